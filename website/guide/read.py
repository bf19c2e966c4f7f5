"""The guide's answers, looked up: what fits, how much it takes, and the gentlest change that makes it fit.

The words are the library's: an answer's verdict is a `capacity.Fit`, and what is gentle is as `course trace` sorts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from course_utils.machine import hardware
from course_utils.machine.context import context
from course_utils.machine.hardware import Device
from course_utils.techniques.capacity import FITS, TIGHT, Fit
from course_utils.trace_command.changes import ALTERS, MODEL, ROUNDING, TIME
from course_utils.units import CourseError, format_bytes
from website.guide.build import ANSWERS, BATCHES, read_table
from website.guide.models import IMAGE, MODELS, TEXT, Model
from website.guide.steps import DEFAULT, EIGHT_BIT, FUSED, HALF, LORA, MIXED, QLORA, WHOLE, Way, command, methods, ways

OF = {TEXT: ("tokens", "sequences"), IMAGE: ("pixels", "images")}
# What a change to a way alters, the cheapest first, as `course trace` has them.
_METHODS = {WHOLE: TIME, MIXED: ROUNDING, HALF: ROUNDING, LORA: MODEL, QLORA: MODEL}


@dataclass(frozen=True)
class Answer:
    """What the guide says of one model, trained one way, on one card.

    Attributes:
        model: which.
        way: how it is trained.
        card: of the catalogue.
        batch: the largest of BATCHES up to which all fit; 0 where not even one sample does.
        verdict: of the library, on that batch, or on batch 1.
        peak_bytes: of the tensors, at that batch.
        reserved_bytes: what PyTorch would reserve then on a card without end; None where no card has room for it.
    """

    model: Model
    way: Way
    card: Device
    batch: int
    verdict: Fit
    peak_bytes: int
    reserved_bytes: int | None

    @property
    def fits(self) -> bool:
        """Whether one sample fits."""
        return self.batch > 0

    @property
    def sentence(self) -> str:
        """The largest batch, and the next looked at; or batch 1 where none fits: peak, verdict, what tight means."""
        reserved = "" if self.reserved_bytes is None else f"; PyTorch reserves {format_bytes(self.reserved_bytes)}"
        batch = f"Batch {max(1, self.batch):,} peaks at {format_bytes(self.peak_bytes)} and {self.verdict.words}"
        tight = f" {self.verdict.sentence}" if self.verdict.state == TIGHT else ""
        if not self.fits:
            return f"{batch}.{tight}"
        larger = next((other for other in BATCHES if other > self.batch), None)
        if larger is None:
            return f"{batch}{reserved}."
        between = range(self.batch + 1, larger)
        unknown = f"; {between[0]:,} to {between[-1]:,} were not looked at" if len(between) > 1 else ""
        unknown = f"; {between[0]} was not looked at" if len(between) == 1 else unknown
        return f"{batch}{reserved}. {larger:,} does not surely fit{unknown}."

    @property
    def command(self) -> str:
        """`course trace …`, which says the same at this batch."""
        return command(self.model, self.way, max(1, self.batch), self.card.name)


@dataclass(frozen=True)
class Guide:
    """The table of answers."""

    table: dict[str, Any]

    @property
    def torch(self) -> str:
        """The release that the steps were traced with."""
        return str(self.table["torch"])

    @property
    def measured(self) -> dict[str, Any]:
        """What `Measured.traced` found of the steps that others measured, by their names."""
        found: dict[str, Any] = self.table.get("measured", {})
        return found

    @cached_property
    def cards(self) -> dict[str, Device]:
        """Those that there are answers for, by name."""
        return {name: hardware.device(name) for name in self.table["cards"]}

    @cached_property
    def models(self) -> dict[str, Model]:
        """Those that there are all answers for, by key: the smallest of each kind first."""
        known = [MODELS[key] for key, kept in self.table["models"].items() if set(methods(MODELS[key])) == set(kept)]
        return {one.key: one for one in sorted(known, key=lambda one: (one.kind, one.parameters))}

    @cached_property
    def _ways(self) -> dict[str, dict[Way, dict[str, Any]]]:
        found = {}
        for key, one in self.models.items():
            kept = [answer for method in methods(one) for answer in self.table["models"][key][method]]
            found[key] = dict(zip(ways(one), kept, strict=True))
        return found

    def ways(self, model: Model) -> list[Way]:
        """How it is trained, in the table's order."""
        return list(self._ways[model.key])

    def kept(self, model: Model, way: Way) -> dict[str, Any]:
        """What is kept of a model's step, as `build.answers` has it.

        Raises:
            CourseError: the table has no such model or way.
        """
        found = self._ways.get(model.key, {}).get(way)
        if found is None:
            raise CourseError(f"the guide has no answer for {model.name}, {way}")
        return found

    def answer(self, model: Model, way: Way, card: str) -> Answer:
        """What fits.

        Raises:
            CourseError: the table has no such model, way or card.
        """
        kept = self.kept(model, way)
        if card not in self.cards:
            raise CourseError(f"the guide has no card {card!r}: choose one of {', '.join(self.cards)}")
        said, on = kept["cards"][list(self.cards).index(card)], self.cards[card]
        batch = said if isinstance(said, int) else 0
        peak, blocks, reserved = kept["batches"][str(max(1, batch))]
        taken = context(on)
        state, decided, beside = (FITS, "", "most") if batch else said.split(" ")
        verdict = Fit(
            state, decided, on.name, on.memory_bytes, blocks, taken, taken.most if beside == "most" else taken.least,
            *kept.get("scratch", (0, blocks)),
        )  # fmt: skip
        return Answer(model, way, on, batch, verdict, peak, reserved)

    def gentlest(self, model: Model, way: Way, card: str) -> tuple[Way, str] | None:
        """The cheapest change with which a sample fits, and what it alters; None where the table has none.

        What a set of changes alters counts first, then how many they are, then its peak: as `course trace` sorts them.
        """
        place = list(self.cards).index(card)
        found = [
            (*price(way, other), kept["batches"]["1"][0], order, other)
            for order, (other, kept) in enumerate(self._ways[model.key].items())
            if isinstance(kept["cards"][place], int) and other != way and price(way, other)[0] < len(ALTERS)
        ]
        if not found:
            return None
        alters, *_, other = min(found)
        return other, ALTERS[alters]

    def __iter__(self) -> Iterator[tuple[Model, Way, str]]:
        for one in self.models.values():
            for way in self._ways[one.key]:
                for card in self.cards:
                    yield one, way, card


def price(way: Way, other: Way) -> tuple[int, int]:
    """What a change from one way to another alters at most, and how many changes it is.

    A change that nobody would make to save memory (a longer text, no checkpointing, a method that trains more) has a
    price beyond all that `course trace` knows.
    """
    beyond = len(ALTERS), 0
    alters = []
    if other.length != way.length:
        if other.length > way.length:
            return beyond
        alters.append(MODEL)
    if other.checkpoint != way.checkpoint:
        if way.checkpoint:
            return beyond
        alters.append(TIME)
    if other.method != way.method:
        order = list(_METHODS)
        if order.index(other.method) < order.index(way.method):
            return beyond
        alters.append(_METHODS[other.method])
    if other.optimizer != way.optimizer:
        step = (way.optimizer, other.optimizer)
        known = {(DEFAULT, FUSED): TIME, (DEFAULT, EIGHT_BIT): ROUNDING, (FUSED, EIGHT_BIT): ROUNDING}
        if step not in known:
            return beyond
        alters.append(known[step])
    return max(alters, default=TIME), len(alters)


def difference(way: Way, other: Way, model: Model) -> str:
    """What is changed, in words: "checkpointing + LoRA"."""
    unit = OF.get(model.kind, ("latents", ""))[0]
    parts = []
    if other.checkpoint != way.checkpoint:
        parts.append("checkpointing of each block")
    if other.method != way.method:
        parts.append(other.method)
    if other.optimizer != way.optimizer:
        parts.append(f"optimizer {other.optimizer}")
    if other.length != way.length:
        parts.append(f"{other.length:,} {unit}")
    return " + ".join(parts)


@lru_cache(maxsize=1)
def guide(path: Path = ANSWERS) -> Guide:
    """The table beside this file, read once.

    Raises:
        CourseError: it was not built.
    """
    if not path.exists():
        raise CourseError("the field guide has no answers yet: python -m website.guide traces them")
    return Guide(read_table(path))
