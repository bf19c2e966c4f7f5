"""The guide in the lab: `field_guide()`, six controls over its answers, the sketch of a step, and its command."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from classroom.explorer import Explorer, View, described
from course_utils.figures.plane import Axis, Curve, plane
from course_utils.units import GIB, MIB, CourseError, require_one_of
from website.guide.models import model as model_of
from website.guide.read import Answer, Guide, difference, guide
from website.guide.steps import Way, methods

AGAIN, KEPT = "each block", "nothing"


class FieldGuide(Explorer):
    """Controls over the guide's answers; see `field_guide`."""

    def __init__(self, table: Guide, start: dict[str, Any]) -> None:
        self.table = table
        names = [(one.name, key) for key, one in table.models.items()]
        self.model = described(widgets.Dropdown, "model", options=names, value=start["model"])
        self.method, self.optimizer, self.length = (
            described(widgets.Dropdown, name, options=[""]) for name in ("train", "optimizer", "length")
        )
        self.again = described(widgets.Dropdown, "compute again", options=[AGAIN, KEPT], value=AGAIN)
        self.card = described(widgets.Dropdown, "card", options=list(table.cards), value=start["card"])
        self._offer()
        rows = [[self.model, self.method, self.optimizer], [self.again, self.length, self.card]]
        for control in (self.model, self.method):
            control.observe(self._follow, names="value")
        self.lay_out(
            [("1fr 1fr 1fr", row) for row in rows],
            {control.description: control for row in rows for control in row},
        )

    def _follow(self, change: object) -> None:
        with self.in_one_move():
            self._offer()

    def _offer(self) -> None:
        """What the chosen model has: each control keeps its value where it still can."""
        offered = methods(self.table.models[self.model.value])
        self._options(self.method, list(offered))
        self._options(self.optimizer, offered[self.method.value])
        self._options(self.length, self.table.models[self.model.value].lengths)
        self._options(self.again, [AGAIN, KEPT] if self.table.models[self.model.value].blocks else [KEPT])

    @staticmethod
    def _options(control: Any, options: Any) -> None:
        kept, options = control.value, list(options)
        control.options = options
        control.value = kept if kept in options else options[0]

    @property
    def way(self) -> Way:
        """What the controls choose."""
        return Way(self.method.value, self.optimizer.value, self.again.value == AGAIN, self.length.value)

    def view(self) -> View:
        """The answer, the way out, the command; the largest batch is watched."""
        answer = self.table.answer(self.table.models[self.model.value], self.way, self.card.value)
        said = [answer.sentence, self._way_out(answer), f"The same from the terminal: {answer.command}"]
        said = [line for line in said if line]
        return View(self._sketch(answer), said, answer.batch, "the largest batch", lambda change: f"{change:,.0f}")

    def _way_out(self, answer: Answer) -> str:
        if answer.fits:
            return ""
        found = self.table.gentlest(answer.model, answer.way, answer.card.name)
        if found is None:
            return "No other answer of the guide makes a sample fit this card."
        other, alters = found
        return f"The gentlest change with which one fits: {difference(answer.way, other, answer.model)} ({alters})."

    def _sketch(self, answer: Answer) -> Any:
        fixed, per_sample = self.table.kept(answer.model, answer.way)["sketch"]
        gib = [(a + b * max(1, answer.batch)) * MIB / GIB for a, b in zip(fixed, per_sample, strict=True)]
        x = [edge for at in range(len(gib)) for edge in (at, at + 1)]
        y = [size for size in gib for _ in (0, 1)]
        return plane(
            Axis("moments of a step: forward, backward, update"), Axis("GiB"),
            [Curve("tensors", x, y)],
            title=f"{answer.model.name}, batch {max(1, answer.batch):,}: {answer.verdict.words}",
            limits={answer.card.name: answer.card.memory_bytes / GIB},
        )  # fmt: skip


def field_guide(model: str = "Llama-3-8B", card: str = "RTX 4090") -> FieldGuide:
    """What fits: controls for model, method, optimizer, what is computed again, length and card.

    Args:
        model: of `website.guide.models`, by its name or key.
        card: of `website.guide.build.CARDS`.

    Raises:
        CourseError: the guide has no such model or card.
    """
    table = guide()
    key = model_of(model).key
    if key not in table.models:
        raise CourseError(f"the guide has no answers for {model} yet: python -m website.guide {key}")
    require_one_of("card", card, table.cards)
    return FieldGuide(table, {"model": key, "card": card})
