"""Explorer of lesson 13: what breaks the budget of a transformer's training step, and the cheapest way out.

Its controls choose a model and how it runs (`language_steps`), a batch of texts and a card; the picture is a
`figures.skyline`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
import numpy as np

from classroom.explorer import Explorer, Page, View, described
from course_utils.figures import skyline
from course_utils.figures.style import percent
from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from course_utils.memory import ROLE, Ledger
from course_utils.techniques.capacity import FITS, Fit, fit, with_room
from course_utils.units import CourseError, format_bytes
from lessons.shared.language_models import ATTENTION, RECOMPUTE, SHAPES, Options, Shape
from lessons.shared.language_steps import FORMATS, LOST, kept_step

OFFERED = ("GPT-2", "GPT-2 medium", "GPT-2 XL", "SmolLM2-135M", "TinyLlama-1.1B", "Llama-3.2-1B", "Llama-3-8B")
SEQUENCES = (128, 256, 512, 1024, 2048, 4096, 8192)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
AT_ONCE, IN_PIECES = "all at once", "in 16 pieces"
LOSSES = {AT_ONCE: 0, IN_PIECES: 16}
OPTIMIZERS = ("adamw", "momentum", "sgd")
STATES, LOGITS, SCORES, MAPS = "weights and states", "logits", "scores", "other maps"
# What attention written out makes of a score, in the forward and in the backward pass.
OF_SCORES = ("bmm", "div", "masked_fill", "_to_copy", "_softmax", "_softmax_backward_data", "native_dropout")
STAYS = ("parameters", "optimizer state", "weight gradients", "other")


@dataclass(frozen=True)
class Culprits:
    """What is alive at the peak, in bytes: what stays whatever the batch, logits, scores, all other maps."""

    parts: Mapping[str, int]

    @property
    def largest(self) -> str:
        """The name of the largest part."""
        return max(self.parts, key=lambda name: self.parts[name])


def culprits(ledger: Ledger, shape: Shape, sequence: int, pieces: int) -> Culprits:
    """The peak by what it is for: logits are maps of a vocabulary a token, scores those of a sequence a head and token.

    Logits are made by the head and the loss; scores by attention that is written out, in 1, 2 or 4 bytes.
    """
    tape, peak = ledger.tape, ledger.peak_event
    alive = (tape.birth <= peak) & (tape.death > peak)
    maps = np.isin(tape.role, (ROLE["feature maps"], ROLE["gradient maps"]))
    tokens = sequence * ledger.batch
    at_loss = np.isin(tape.layer_names, ("head", shape.name))[tape.layer]
    logits = maps & at_loss & (ledger.size >= 2 * -(-tokens // max(1, pieces)) * shape.vocabulary)
    attention = np.array([name.endswith(".attention") for name in tape.layer_names])[tape.layer]
    made_by = np.array(tape.event_ops)[np.minimum(tape.birth, len(tape.event_ops) - 1)]
    sizes = [tokens * sequence * shape.heads * size for size in (1, 2, 4)]
    scores = maps & attention & np.isin(made_by, OF_SCORES) & np.isin(ledger.size, sizes)
    stays = np.isin(tape.role, [ROLE[name] for name in STAYS])

    def alive_of(which: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
        return int(ledger.size[alive & which].sum())

    found = {STATES: alive_of(stays), LOGITS: alive_of(logits), SCORES: alive_of(scores)}
    return Culprits({**found, MAPS: ledger.peak_bytes - sum(found.values())})


# What the last sentence tries: of each culprit first what is meant for it. Control, value, and what it does in words.
MOVES: dict[str, tuple[tuple[str, str, str], ...]] = {
    SCORES: (("attention", "fused", "Fused attention, which does not write the scores,"),),
    LOGITS: (("loss", IN_PIECES, "The loss in pieces, with fewer logits at a time,"),),
    MAPS: (("recompute", "full", "Full checkpointing"), ("recompute", "selective", "Selective checkpointing")),
    STATES: (
        ("optimizer", "momentum", "Momentum, with half AdamW's state,"),
        ("optimizer", "sgd", "SGD, without state,"),
    ),
}


def _in_turn(largest: str) -> list[tuple[str, str, str]]:
    return [move for culprit in sorted(MOVES, key=lambda name: name != largest) for move in MOVES[culprit]]


def sentences(
    ledger: Ledger, verdict: Fit, sequence: int, found: Culprits, advice: str, most: int, warning: str = ""
) -> tuple[str, str, str]:
    """The state, the culprit and the way out, in words; more than `most` texts cannot fit.

    A `warning` is of the format: the card does not compute in it, or training loses updates.
    """
    texts = f"{ledger.batch:,} text{'s' if ledger.batch > 1 else ''} of {sequence:,} tokens"
    state = (
        f"{ledger.name}, {texts}: peak {format_bytes(ledger.peak_bytes)} in the {ledger.peak_phase} phase. "
        f"{verdict.card}: {verdict.sentence} {warning}"
    ).strip()
    largest = found.largest
    rest = ", ".join(f"{name} {format_bytes(size)}" for name, size in found.parts.items() if name != largest)
    breaks = "are the largest part" if verdict.state == FITS else "break the budget"
    size = found.parts[largest]
    share = percent(size, ledger.peak_bytes)
    culprit = f"{largest.capitalize()} {breaks}: {format_bytes(size)}, {share} of the peak; {rest}."
    room = "No text of this length leaves room for tensors and the least context."
    if most:
        texts = f"{most:,} text{'s' if most > 1 else ''} of this length"
        room = f"More than {texts} cannot fit; near that number, context and allocator decide."
    return state, culprit, f"{advice} {room}"


class TransformerExplorer(Explorer):
    """Controls over a language model's step, its skyline and what breaks the budget; see `transformer_explorer`."""

    def __init__(self, shapes: Mapping[str, Shape], start: Mapping[str, Any]) -> None:
        self._shapes = shapes
        dropdown, slider = widgets.Dropdown, widgets.SelectionSlider
        cards = [item.name for item in hardware.devices()]
        self.model = described(dropdown, "model", options=list(shapes), value=start["model"])
        self.device = described(dropdown, "card", options=cards, value=start["device"])
        self.numbers = described(dropdown, "numbers", options=list(FORMATS), value=start["numbers"])
        self.attention = described(dropdown, "attention", options=list(ATTENTION), value=start["attention"])
        self.recompute = described(dropdown, "recompute", options=list(RECOMPUTE), value=start["recompute"])
        self.loss = described(dropdown, "loss", options=list(LOSSES), value=AT_ONCE)
        self.optimizer = described(dropdown, "optimizer", options=list(OPTIMIZERS), value=OPTIMIZERS[0])
        self.sequence = described(slider, "sequence", options=list(SEQUENCES), value=start["sequence"])
        self.batch = described(slider, "batch", options=list(BATCHES), value=start["batch"])
        rows = (
            (self.model, self.device, self.numbers, self.optimizer), (self.attention, self.recompute, self.loss),
            (self.sequence, self.batch),
        )  # fmt: skip
        self.lay_out(
            [(" ".join(["1fr"] * len(row)), list(row)) for row in rows],
            {control.description: control for row in rows for control in row},
        )

    @property
    def options(self) -> Options:
        """How the model runs."""
        return Options(self.attention.value, recompute=self.recompute.value, pieces=LOSSES[self.loss.value])

    @property
    def _step(self) -> tuple[Shape, int, Options, str, str]:
        shape, sequence = self._shapes[self.model.value], self.sequence.value
        return shape, sequence, self.options, self.numbers.value, self.optimizer.value

    def view(self) -> View:
        """Skyline and sentences of the present settings; the peak is watched."""
        shape, sequence, options, *_ = self._step
        batch, device = self.batch.value, hardware.device(self.device.value)
        step = kept_step(*self._step)
        ledger = step.at(batch)
        verdict = fit(ledger, device)
        found = culprits(ledger, shape, sequence, options.pieces)
        advice, advised = self._advice(found.largest, ledger)
        most, warning = with_room(step, device), self._warning(device)
        said = sentences(ledger, verdict, sequence, found, advice, most, warning)
        share = percent(found.parts[found.largest], ledger.peak_bytes)
        peak = format_bytes(ledger.peak_bytes)
        # Weights, states and other maps are bands of the picture; logits and scores are parts of them.
        part = (found.largest, found.parts[found.largest]) if found.largest in (LOGITS, SCORES) else None
        title = f"{shape.name}, {batch:,} × {sequence:,}: {peak}, {share} of it {found.largest}"
        return View(
            skyline(ledger, device, title=title, limit=device.name, part=part), said, ledger.peak_bytes,
            uncaused=["card"], advised=advised,
        )  # fmt: skip

    def _warning(self, device: Device) -> str:
        if self.numbers.value != "float32" and not device.bfloat16:
            return f"But {device.name} does not compute in bfloat16: take float16, of as many bytes a value."
        return LOST if self.numbers.value == "bfloat16" else ""

    def _advice(self, largest: str, ledger: Ledger) -> tuple[str, dict[str, object]]:
        """The first of MOVES, beginning with the culprit's, that lowers the peak: in words, and as settings."""
        shape, sequence, options, numbers, optimizer = self._step
        for control, value, words in _in_turn(largest):
            now = {"attention": options.attention, "recompute": options.recompute, "loss": self.loss.value}
            wanted = {**now, "optimizer": optimizer, control: value}
            other = Options(wanted["attention"], recompute=wanted["recompute"], pieces=LOSSES[wanted["loss"]])
            step = kept_step(shape, sequence, other, numbers, wanted["optimizer"])
            peak = step.at(ledger.batch).peak_bytes
            if peak < ledger.peak_bytes:
                return f"{words} would bring it to {format_bytes(peak)}.", {control: value}
        nothing = "Neither attention, checkpointing, the loss nor another optimizer lowers it"
        fewer: list[tuple[str, str, int, int]] = []
        if ledger.batch > 1:
            fewer.append(("half the batch", "batch", sequence, ledger.batch // 2))
        if sequence // 2 in SEQUENCES:
            fewer.append(("texts of half the length", "sequence", sequence // 2, ledger.batch))
        for less, control, tokens, batch in fewer:
            peak = kept_step(shape, tokens, options, numbers, optimizer).at(batch).peak_bytes
            if peak < ledger.peak_bytes:
                fewer_of = batch if control == "batch" else tokens
                return f"{nothing}; {less} would bring it to {format_bytes(peak)}.", {control: fewer_of}
        return f"{nothing}, nor do fewer tokens: take a smaller model.", {}


def transformer_explorer(
    model: str = "GPT-2",
    sequence: int = 1024,
    batch: int = 8,
    attention: str = "eager",
    recompute: str = "none",
    numbers: str = "bfloat16",
    device: str = "RTX 3090",
    shapes: Mapping[str, Shape] | None = None,
) -> TransformerExplorer:
    """What breaks a transformer's budget: controls for model, format, optimizer, attention, recompute, loss and card.

    Steps of the published models are kept (`lessons.transformers.keep`), so that each move is a reading; what is not,
    such as a shape of your own, is traced when it is first shown.

    Args:
        model: which of `shapes` to start with.
        sequence: tokens in a text, one of SEQUENCES.
        batch: texts, one of BATCHES.
        attention: "eager" or "fused".
        recompute: "none", "selective" or "full".
        numbers: one of `language_steps.FORMATS`.
        device: of the catalogue.
        shapes: what the first control offers, by name; seven of `language_models.SHAPES` if not given.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    offered = {name: SHAPES[name] for name in OFFERED} if shapes is None else shapes
    for what, value, known in (
        ("model", model, offered), ("sequence", sequence, SEQUENCES), ("batch", batch, BATCHES),
        ("attention", attention, ATTENTION), ("recompute", recompute, RECOMPUTE), ("format", numbers, FORMATS),
    ):  # fmt: skip
        if value not in known:
            raise CourseError(f"unknown {what} {value!r}: choose one of {', '.join(map(str, known))}")
    start = {
        "model": model, "sequence": sequence, "batch": batch, "attention": attention, "recompute": recompute,
        "numbers": numbers, "device": hardware.device(device).name,
    }  # fmt: skip
    return TransformerExplorer(offered, start)


# What a page without a kernel shows: all that *Try three things* asks.
PAGE = Page(
    transformer_explorer,
    {
        "model": ("GPT-2", "GPT-2 XL"),
        "card": ("T4", "RTX 3090"),
        "attention": None,
        "recompute": ("none", "full"),
        "loss": None,
        "sequence": ("512", "1024", "2048", "8192"),
        "batch": ("1", "4", "8", "16"),
    },
)
