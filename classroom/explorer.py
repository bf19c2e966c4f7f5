"""What every explorer shares: controls, sentences, one picture under them, and what the last move did.

An explorer has no arithmetic of its own: `view` takes what the controls say, asks a reading, and returns a `View`. The
base draws it, says what the last move changed and that a slow one is being worked on, shows an impossible setting's
reason in one line over the old picture, and saves a still (sentences and picture) beside the live view, for where no
kernel runs. The sentences come first: a window too low for both cuts the picture, and no sentence.
"""

import asyncio
import base64
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import escape
from itertools import cycle
from typing import Any

import ipywidgets as widgets

from classroom.predict import WIDGET_HEAD, still
from course_utils.figures import Picture
from course_utils.units import CourseError, as_written, format_bytes

DESCRIPTION_WIDTH = 5.5  # em, of the words before a control, unless they are longer
FAINT = "course-faint"  # a class of widget_head.html: a widget's layout knows no opacity
SLOW = 0.15  # seconds after which a move says that it is being worked on, before anybody wonders
BREATH = 0.01  # seconds in which a kernel takes up a move that waits
QUIET = 1.5  # seconds without a move, or of a new page, after which a pause begins


@dataclass(frozen=True)
class View:
    """What an explorer shows at one setting of its controls."""

    picture: Picture
    sentences: Sequence[str]  # one for the state, one for the culprit, one for the way out
    number: float | None = None  # what is watched from move to move, such as the peak in bytes; None: nothing is
    what: str = "the peak"  # its name with the article, as in "the peak rises by 3 MiB"
    write: Callable[[float], str] = format_bytes  # how a difference of it is written
    uncaused: Sequence[str] = ()  # controls whose moves do not change it by their nature: nothing is said of them
    advised: Mapping[str, object] = field(default_factory=dict)  # by the last sentence: control -> value to set it to
    whole: Callable[[], "View"] | None = None  # the same with what takes longer to read, drawn once that was read
    parts: Iterable[Callable[[], object]] = ()  # of that longer reading; between two of them a move is answered


@dataclass(frozen=True)
class Page:
    """The settings of an explorer that a page without a kernel shows: `PAGE` of an explorer's module."""

    make: Callable[[], "Explorer"]  # as its lesson shows it; where its controls begin, the page begins
    # By the name of a control, what it offers on the page, as written on the screen; None for all there is. A control
    # that changes what another offers stands before it. The controls left out stay where they begin.
    grid: Mapping[str, Sequence[object] | None]
    write: str = "bytes"  # how a difference of the number is written, by a writer of `website/static/explorer.js`


def described(kind: type[Any], description: str, width: str = "", **options: Any) -> Any:
    """A control of this kind with its name before it, as wide as its place in the row allows."""
    options.setdefault("layout", widgets.Layout(width="98%"))
    width = width or f"{max(DESCRIPTION_WIDTH, 0.62 * len(description) + 0.8):.1f}em"
    return kind(description=description, style={"description_width": width}, **options)


def _row(widths: Sequence[str], controls: Sequence[Any]) -> Any:
    """Controls side by side, `len(widths)` to a line and in columns, in as many lines as it takes to cut no word."""
    columns = len(widths)
    needs = [max(map(_need, controls[i::columns])) for i in range(min(columns, len(controls)))]
    for control, width, need in zip(controls, cycle(widths), cycle(needs), strict=False):
        control.layout.width, control.layout.max_width = "auto", "100%"
        control.layout.flex = f"{width.removesuffix('fr')} 1 {need:.1f}em"
    lines = [controls[i : i + columns] for i in range(0, len(controls), columns)]
    layout = {"flex_flow": "row wrap", "max_width": "68em", "grid_gap": "0 .3em"}
    boxes = [widgets.Box(list(line), layout=widgets.Layout(**layout)) for line in lines]
    return boxes[0] if len(boxes) == 1 else widgets.VBox(boxes)


def _need(control: Any) -> float:
    """The width below which a control's words would be cut, in em: its name, and its longest option or its slide."""
    if isinstance(control, widgets.ToggleButton):
        return 0.58 * len(control.description) + 2
    before = float(control.style.description_width.removesuffix("em"))
    longest = 0.58 * max(map(len, getattr(control, "_options_labels", ["1234"])))
    return before + longest + (2.5 if isinstance(control, widgets.Dropdown) else 12)  # the arrow; the slide


def written(control: Any) -> str:
    """What a control says, as it is written on the screen."""
    return str(getattr(control, "label", None) or control.value)


class Explorer(widgets.VBox):  # type: ignore[misc]
    """Rows of controls, sentences, a picture. Subclasses make their controls, call `lay_out`, and define `view`."""

    _waits = False
    _going_on: asyncio.Task[None] | None = None

    def lay_out(self, rows: Sequence[tuple[str, Sequence[Any]]], controls: Mapping[str, Any]) -> None:
        """Put the controls in rows over words and picture, and draw the first view.

        Args:
            rows: shares of a line, such as "1fr 1fr 3fr", and the controls in it; a line breaks where one of them would
                be cut.
            controls: by the name that words use for it ("batch"), every control whose move redraws.
        """
        self.controls = dict(controls)
        self._last: tuple[dict[str, str], float] | None = None
        self.figure, self.words = widgets.HTML(), widgets.HTML()
        grids = [_row(widths.split(), list(row)) for widths, row in rows]
        self.words.add_class("course-words")
        super().__init__([widgets.HTML(WIDGET_HEAD), *grids, self.words, self.figure])
        self.add_class("course-widget").add_class("course-explorer")
        for control in self.controls.values():
            control.observe(self.redraw, names="value")
        self.redraw()

    def view(self) -> View:
        """The present settings read, drawn and said in words. Raises CourseError, shown there, where they cannot be."""
        raise NotImplementedError

    def ahead(self) -> Iterable[Callable[[], object]]:
        """What a later move may need and takes long to compute, in parts: done in pauses, and kept by the subclass."""
        return ()

    @contextmanager
    def in_one_move(self) -> Iterator[None]:
        """Where several controls change, and nothing is drawn before the last has."""
        waited, self._waits = self._waits, True
        try:
            yield
        finally:
            self._waits = waited

    def redraw(self, change: Mapping[str, Any] | None = None) -> None:
        """Show the present settings; `change` is what a control that moved tells."""
        if self._waits:
            return
        moved = change["owner"] if change else None
        try:
            with self._said_if_slow(f"{moved.description} {written(moved)}" if moved else "this"):
                view = self.view()
        except CourseError as error:  # the old picture stays, faint, and the reason stands where the words were
            self.figure.add_class(FAINT)
            self.words.value = f'<p role="alert"><b>{escape(str(error))}</b></p>'
            return
        last_move = self._last_move(view)
        self._show(view, last_move)
        if self._going_on is not None:
            self._going_on.cancel()
        with suppress(RuntimeError):  # no loop, no kernel: no move can come
            self._going_on = asyncio.get_running_loop().create_task(self._go_on(view, last_move))
            return
        if view.whole is not None:
            self._show(view.whole(), last_move)

    async def _go_on(self, view: View, last_move: Sequence[str]) -> None:
        """Complete the view, then look ahead, until a move comes."""
        for part in view.parts:
            await asyncio.sleep(BREATH)
            with suppress(CourseError):  # whoever needs it is told
                part()
        if view.whole is not None:
            self._show(view.whole(), last_move)
        await asyncio.sleep(QUIET)
        for part in self.ahead():
            with suppress(CourseError):
                part()
            await asyncio.sleep(BREATH)

    def _show(self, view: View, last_move: Sequence[str]) -> None:
        self.figure.remove_class(FAINT)
        self.figure.value = view.picture.svg
        lines = "<br>".join(escape(as_written(line)) for line in [*view.sentences, *last_move])
        self.words.value = f'<p aria-live="polite">{lines}</p>'

    @contextmanager
    def _said_if_slow(self, what: str) -> Iterator[None]:
        """Say that `what` is worked on once that has taken SLOW seconds; from another thread, as this one is busy."""
        busy = threading.Lock()

        def say() -> None:
            if busy.acquire(blocking=False):  # else it was done in the same moment
                self.figure.add_class(FAINT)
                self.words.value = f'<p role="status">Working on {escape(what)} …</p>'
                busy.release()

        timer = threading.Timer(SLOW, say)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            busy.acquire()  # for good: what is said while working comes before what is said next, or not at all

    def _last_move(self, view: View) -> list[str]:
        """What the last change of one control did to the number watched."""
        if view.number is None:
            return []
        now = {name: written(control) for name, control in self.controls.items()}
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
        view = view.whole() if view.whole is not None else view
        said = [as_written(line) for line in view.sentences]
        return {
            **bundle,
            "text/html": still(f"<p>{'<br>'.join(map(escape, said))}</p>{view.picture.html}", "to move it"),
            "image/png": base64.b64encode(view.picture.png).decode(),
            "text/plain": "\n".join(said),
        }
