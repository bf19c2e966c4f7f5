"""What every explorer shares: controls over one picture, sentences under it, and what the last move did.

An explorer has no arithmetic of its own: `view` takes what the controls say, asks a reading, and returns a `View`. The
base draws it, says what the last move changed, shows an impossible setting's reason in one line over the old picture,
and saves a still (picture and sentences) beside the live view, for where no kernel runs.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from itertools import cycle
from typing import Any

import ipywidgets as widgets

from classroom.predict import WIDGET_HEAD
from course_utils.figures import Picture
from course_utils.units import CourseError, format_bytes

DESCRIPTION_WIDTH = 5.5  # em, of the words before a control, unless they are longer
FAINT = "course-faint"  # a class: a widget's layout knows no opacity
FAINT_STYLE = f"<style>.course-widget .{FAINT}{{opacity:.35}}</style>"
WORDS_STYLE = "font-size:1.15em;max-width:60em;line-height:1.5"


@dataclass(frozen=True)
class View:
    """What an explorer shows at one setting of its controls.

    Attributes:
        picture: the figure.
        sentences: one for the state, one for the culprit, one for the way out.
        number: what is watched from move to move, such as the peak in bytes; None to say nothing of moves.
        what: its name with the article, as in "the peak rises by 3 MiB".
        write: how a difference of it is written.
        uncaused: names of controls whose moves do not change it by their nature, and of which nothing is said.
    """

    picture: Picture
    sentences: Sequence[str]
    number: float | None = None
    what: str = "the peak"
    write: Callable[[float], str] = format_bytes
    uncaused: Sequence[str] = ()


def described(kind: type[Any], description: str, width: str = "", **options: Any) -> Any:
    """A control of this kind with its name before it, as wide as its place in the row allows."""
    options.setdefault("layout", widgets.Layout(width="98%"))
    width = width or f"{max(DESCRIPTION_WIDTH, 0.62 * len(description) + 0.8):.1f}em"
    return kind(description=description, style={"description_width": width}, **options)


def _row(widths: Sequence[str], controls: Sequence[Any]) -> Any:
    """Controls side by side, `len(widths)` to a line, in as many lines as they need to show all they can say."""
    for control, width in zip(controls, cycle(widths), strict=False):
        control.layout.width, control.layout.max_width = "auto", "100%"
        control.layout.flex = f"{width.removesuffix('fr')} 1 {_need(control):.1f}em"
    lines = [controls[i : i + len(widths)] for i in range(0, len(controls), len(widths))]
    layout = {"flex_flow": "row wrap", "max_width": "68em"}
    boxes = [widgets.Box(list(line), layout=widgets.Layout(**layout)) for line in lines]
    return boxes[0] if len(boxes) == 1 else widgets.VBox(boxes)


def _need(control: Any) -> float:
    """The width below which a control's words would be cut, in em: its name, and its longest option or its slide."""
    if isinstance(control, widgets.ToggleButton):
        return 0.58 * len(control.description) + 2
    before = float(control.style.description_width.removesuffix("em"))
    longest = 0.58 * max(map(len, getattr(control, "_options_labels", ["1234"])))
    return before + longest + (2.5 if isinstance(control, widgets.Dropdown) else 12)  # the arrow; the slide


class Explorer(widgets.VBox):  # type: ignore[misc]
    """Rows of controls, a picture, sentences. Subclasses make their controls, call `lay_out`, and define `view`."""

    _waits = False

    def lay_out(self, rows: Sequence[tuple[str, Sequence[Any]]], controls: Mapping[str, Any]) -> None:
        """Put the controls in rows over picture and words, and draw the first view.

        Args:
            rows: shares of a line, such as "1fr 1fr 3fr", and the controls in it; a line breaks where one of them would
                be cut.
            controls: by the name that words use for it ("batch"), every control whose move redraws.
        """
        self._controls = dict(controls)
        self._last: tuple[dict[str, str], float] | None = None
        self.figure, self.words = widgets.HTML(), widgets.HTML()
        grids = [_row(widths.split(), list(row)) for widths, row in rows]
        super().__init__([widgets.HTML(WIDGET_HEAD + FAINT_STYLE), *grids, self.figure, self.words])
        self.add_class("course-widget")
        self.add_class("course-explorer")
        for control in self._controls.values():
            control.observe(self.redraw, names="value")
        self.redraw()

    def view(self) -> View:
        """The present settings read, drawn and said in words.

        Raises:
            CourseError: they cannot be; its message stands where the words were.
        """
        raise NotImplementedError

    def pending(self) -> str:
        """What is said at once of settings whose view takes longer than a blink; nothing of others."""
        return ""

    @contextmanager
    def in_one_move(self) -> Iterator[None]:
        """Where several controls change, and nothing is drawn before the last has."""
        waited, self._waits = self._waits, True
        try:
            yield
        finally:
            self._waits = waited

    def redraw(self, _change: object = None) -> None:
        """Show the present settings."""
        if self._waits:
            return
        if waiting := self.pending():
            self.figure.add_class(FAINT)
            self.words.value = f'<p style="{WORDS_STYLE}">{escape(waiting)}</p>'
        try:
            view = self.view()
        except CourseError as error:  # the old picture stays, faint, and the reason stands where the words were
            self.figure.add_class(FAINT)
            self.words.value = f'<p role="alert" style="font-size:1.15em"><b>{escape(str(error))}</b></p>'
            return
        self.figure.remove_class(FAINT)
        self.figure.value = view.picture.svg
        lines = "<br>".join(escape(line) for line in [*view.sentences, *self._last_move(view)])
        self.words.value = f'<p aria-live="polite" style="{WORDS_STYLE}">{lines}</p>'

    def _last_move(self, view: View) -> list[str]:
        """What the last change of one control did to the number watched."""
        if view.number is None:
            return []
        # What every control says, by its name, as it is written on the screen.
        now = {name: str(getattr(control, "label", None) or control.value) for name, control in self._controls.items()}
        last, self._last = self._last, (now, view.number)
        changed = [name for name in now if last is not None and now[name] != last[0][name]]
        if last is None or len(changed) != 1 or changed[0] in view.uncaused:
            return []
        name, change = changed[0], view.number - last[1]
        effect = f"{'rises' if change > 0 else 'falls'} by {view.write(abs(change))}" if change else "stays the same"
        return [f"Last move, {name} {last[0][name]} to {now[name]}: {view.what} {effect}."]

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs) or {}
        try:
            view = self.view()
        except CourseError as error:
            return {**bundle, "text/plain": str(error)}
        lines = "<br>".join(escape(line) for line in view.sentences)
        return {
            **bundle,
            "text/html": f"{view.picture.html}<p>{lines}</p>",
            "image/png": base64.b64encode(view.picture.png).decode(),
            "text/plain": "\n".join(view.sentences),
        }
