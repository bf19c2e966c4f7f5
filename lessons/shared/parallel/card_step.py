"""What `schemes` and `pipeline` return: a step on several cards, as one card lives it."""

from __future__ import annotations

from dataclasses import dataclass

from course_utils.machine.hardware import Device, Link

DATA, UNITS, MIXED, STAGES = "data parallel", "split by units", "one weird trick", "pipeline"
SCHEMES = (DATA, UNITS, MIXED, STAGES)


@dataclass(frozen=True)
class Span:
    """A stretch of time in a step on one card: when it begins and ends, and what happens.

    `what` is a phase ("forward", "backward", "update") in the lane of computation; on the link "all-reduce", "exchange"
    (of maps, for which the computation waits) or "hand on" (maps to the next stage).
    """

    begin: float
    end: float
    what: str
    sent: float = 0.0  # bytes

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin


@dataclass(frozen=True)
class CardStep:
    """One step of `cards` cards, each with `batch` samples to bring to it, as the busiest card lives it.

    Attributes:
        name: the network.
        scheme: one of SCHEMES.
        device: every card.
        link: from card to card.
        cards: how many.
        batch: samples a card; the step is one update by cards x batch samples.
        alone_seconds: one card's step with its `batch` samples and no others, which the speed-up is against.
        computing: when the card computes, in order.
        linking: when its link is busy, in order.
        seconds: of the step.
        peak_bytes: tensors of the fullest card at its peak, with the buckets that gradients are copied into.
    """

    name: str
    scheme: str
    device: Device
    link: Link
    cards: int
    batch: int
    alone_seconds: float
    computing: tuple[Span, ...]
    linking: tuple[Span, ...]
    seconds: float
    peak_bytes: int

    @property
    def samples(self) -> int:
        """Samples of the whole step."""
        return self.cards * self.batch

    @property
    def compute_seconds(self) -> float:
        """Seconds in which the card computes."""
        return sum(span.seconds for span in self.computing)

    @property
    def link_seconds(self) -> float:
        """Seconds in which its link is busy."""
        return sum(span.seconds for span in self.linking)

    @property
    def idle_seconds(self) -> float:
        """Seconds in which the card waits."""
        return self.seconds - self.compute_seconds

    @property
    def hidden_seconds(self) -> float:
        """Seconds in which the link is busy and the card computes as well."""
        return sum(
            max(0.0, min(one.end, other.end) - max(one.begin, other.begin))
            for one in self.linking
            for other in self.computing
        )

    @property
    def sent_bytes(self) -> float:
        """Bytes this card sends in the step."""
        return sum(span.sent for span in self.linking)

    @property
    def speed_up(self) -> float:
        """Samples a second of all cards over those of one card alone with `batch` samples."""
        return self.cards * self.alone_seconds / self.seconds
