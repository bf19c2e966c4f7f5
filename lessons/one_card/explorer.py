"""Explorer of lesson 14: what can be fine-tuned on one card, and which choice buys it.

Its controls choose a model, what is trained, an optimizer, a batch and a card; the picture is the peak by role
(`figures.role_bars`) beside that of training everything.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from classroom.explorer import Explorer, Page, View, described
from course_utils.machine import hardware
from course_utils.memory import Ledger
from course_utils.techniques.capacity import FITS, Fit, demand, fit, room_for_tensors
from course_utils.units import CourseError, format_bytes, require_one_of
from lessons.one_card.fine_tuning import DTYPES, OPTIMIZERS, Method, longest_sequence, step
from lessons.shared.language_steps import LOST
from lessons.shared.role_bars import role_bars

MODELS = ("TinyLlama-1.1B", "Llama-3.2-1B", "Llama-3.2-3B", "Llama-3-8B")
TRAINED = {
    "all weights": ("all", "16 bits"),
    "the head alone": ("head", "16 bits"),
    "LoRA": ("lora", "16 bits"),
    "LoRA, base in 4 bits": ("lora", "4 bits"),
}
SEQUENCES = (128, 256, 512, 1024, 2048, 4096, 8192)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
AFTER, WITHIN = "after the backward pass", "within it"
EACH, NOTHING = "each layer", "nothing"
SMALLEST = 8  # GiB of a card that is offered
WHOLE = Method()
IS = {"optimizer state": "The optimizer's state is"}
# What the last sentence tries where a step does not fit: of each role first what is meant for it. Control and value.
MOVES: dict[str, tuple[tuple[str, str], ...]] = {
    "parameters": (("train", "LoRA, base in 4 bits"),),
    "optimizer state": (("optimizer", "8-bit AdamW"), ("train", "LoRA"), ("optimizer", "AdamW, state on the CPU")),
    "weight gradients": (("update", WITHIN), ("train", "LoRA")),
    "feature maps": (("recompute", EACH),),
}


def sentences(
    ledger: Ledger, method: Method, sequence: int, verdict: Fit, longest: int, advice: str = ""
) -> tuple[str, str, str]:
    """What the step needs, in words: the verdict, what the peak is made of, and how far one can go.

    Args:
        ledger: the step.
        method: how it trains.
        sequence: its tokens.
        verdict: of a card.
        longest: sequence whose tensors and context fit the card; 0 if none.
        advice: a move that lowers the peak, if the verdict asks for one.
    """
    roles = ledger.by_role()
    first = str(roles.idxmax())
    lasting = int(roles[["parameters", "optimizer state", "weight gradients"]].sum())
    beside = {"all": "Weights, gradients and state", "head": "Weights, and what the head needs to learn"}
    stays = beside.get(method.trained, "Weights, and what the adapters need to learn")
    state = (
        f"{ledger.name}, {ledger.batch:,} × {sequence:,} tokens: peak {format_bytes(ledger.peak_bytes)}, in the "
        f"{ledger.peak_phase} pass. {verdict.sentence}"
    )
    culprit = (
        f"{IS.get(first, first.capitalize() + ' are')} {100 * roles[first] / ledger.peak_bytes:.0f} % of it. "
        f"{stays}, at the peak {format_bytes(lasting)}, do not depend on the batch."
    )
    if longest:
        way = f"Sequences of up to {longest:,} tokens leave room for tensors and context at this batch."
    else:
        way = "No sequence fits at this batch."
    return state, culprit, f"{way} {advice}".strip()


def _roles(ledger: Ledger) -> dict[str, float]:
    return {str(role): float(size) for role, size in ledger.by_role().items()}


class OneCardExplorer(Explorer):
    """Controls over a fine-tuning step and its peak by role; see `one_card_explorer`."""

    def __init__(self, start: dict[str, Any]) -> None:
        dropdown, slider = widgets.Dropdown, widgets.SelectionSlider
        cards = [item.name for item in hardware.devices() if item.memory_gb >= SMALLEST]
        self.model = described(dropdown, "model", options=MODELS, value=start["model"])
        self.trained = described(dropdown, "train", options=list(TRAINED), value=start["trained"])
        self.optimizer = described(dropdown, "optimizer", options=list(OPTIMIZERS), value=start["optimizer"])
        self.update = described(dropdown, "update", options=[AFTER, WITHIN], value=AFTER)
        self.recompute = described(dropdown, "recompute", options=[EACH, NOTHING], value=EACH)
        self.precision = described(dropdown, "weights", options=list(DTYPES), value="bfloat16")
        self.device = described(dropdown, "card", options=cards, value=start["device"])
        self.sequence = described(slider, "sequence", options=list(SEQUENCES), value=start["sequence"])
        self.batch = described(slider, "batch", options=list(BATCHES), value=start["batch"])
        rows = [
            [self.model, self.trained, self.optimizer],
            [self.update, self.recompute, self.precision],
            [self.device, self.sequence, self.batch],
        ]
        self.lay_out(
            [(" ".join(["1fr"] * len(row)), row) for row in rows],
            {control.description: control for row in rows for control in row},
        )

    @property
    def method(self) -> Method:
        """What the controls choose."""
        trained, base = TRAINED[self.trained.value]
        return Method(trained, base, self.optimizer.value, self.update.value == WITHIN)

    def view(self) -> View:
        """Bars and sentences of the present settings; the peak is watched."""
        method, card = self.method, hardware.device(self.device.value)
        model, batch, dtype = self.model.value, self.batch.value, self.precision.value
        recompute, sequence = self.recompute.value == EACH, self.sequence.value
        ledger = step(model, method, sequence, batch, recompute, dtype, kept=True)
        rows: dict[str, dict[str, float]] = {}
        if method != WHOLE:
            rows["all weights, AdamW"] = _roles(step(model, WHOLE, sequence, batch, recompute, dtype, kept=True))
        name = self.trained.value
        rows[name if name not in rows else f"{name}, as chosen"] = _roles(ledger)
        if not demand(ledger).missing(card):  # replayed once, for every card
            ledger.reserved_bytes()
        verdict = fit(ledger, card)
        room = room_for_tensors(card)
        longest = longest_sequence(model, method, room, batch, recompute, dtype, kept=True)
        title = f"{model}, {batch:,} × {sequence:,} tokens: {format_bytes(ledger.peak_bytes)}, which {verdict.words}"
        picture = role_bars(rows, title, card)
        advice, advised = self._advice(ledger) if verdict.state != FITS else ("", {})
        if method.trained == "all" and dtype == "bfloat16":
            advice = f"{advice} {LOST}".strip()
        said = sentences(ledger, method, sequence, verdict, longest, advice)
        return View(picture, said, ledger.peak_bytes, uncaused=["card"], advised=advised)

    def _advice(self, ledger: Ledger) -> tuple[str, dict[str, object]]:
        """The first of MOVES, beginning with those of the largest role, that lowers the peak: words and settings."""
        now = {name: control.value for name, control in self.controls.items()}
        first = str(ledger.by_role().idxmax())
        for control, value in [move for role in sorted(MOVES, key=lambda role: role != first) for move in MOVES[role]]:
            wanted = {**now, control: value}
            trained, base = TRAINED[wanted["train"]]
            try:
                method = Method(trained, base, wanted["optimizer"], wanted["update"] == WITHIN)
            except CourseError:  # no such combination
                continue
            peak = step(
                wanted["model"], method, wanted["sequence"], wanted["batch"], wanted["recompute"] == EACH,
                wanted["weights"], kept=True,
            ).peak_bytes  # fmt: skip
            if peak < ledger.peak_bytes:
                return f"With {control} {value} the peak would be {format_bytes(peak)}.", {control: value}
        return "Of the method nothing lowers the peak further: take fewer or shorter sequences.", {}


def one_card_explorer(
    model: str = "Llama-3-8B",
    trained: str = "LoRA",
    optimizer: str = "AdamW",
    sequence: int = 2048,
    batch: int = 1,
    device: str = "RTX 4090",
) -> OneCardExplorer:
    """What can be fine-tuned on one card: controls for model, what is trained and how, sequence, batch and card.

    Its steps are kept (`lessons.one_card.keep`), so that each move is a reading.

    Args:
        model: one of MODELS to start with.
        trained: one of TRAINED.
        optimizer: one of `fine_tuning.OPTIMIZERS`.
        sequence: one of SEQUENCES.
        batch: one of BATCHES.
        device: of the catalogue.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    for what, value, known in (
        ("model", model, MODELS), ("trained", trained, TRAINED), ("optimizer", optimizer, OPTIMIZERS),
        ("sequence", sequence, SEQUENCES), ("batch", batch, BATCHES),
    ):  # fmt: skip
        require_one_of(what, value, known)
    card = hardware.device(device)
    if card.memory_gb < SMALLEST:
        raise CourseError(f"the {card.name} has less than {SMALLEST} GiB: choose a larger card")
    return OneCardExplorer({
        "model": model, "trained": trained, "optimizer": optimizer, "sequence": sequence, "batch": batch,
        "device": card.name,
    })  # fmt: skip


# What a page without a kernel shows: all that *Try three things* asks.
PAGE = Page(
    one_card_explorer,
    {
        "train": None,
        "optimizer": ("AdamW", "AdamW, state on the CPU"),
        "update": None,
        "recompute": None,
        "sequence": None,
    },
)
