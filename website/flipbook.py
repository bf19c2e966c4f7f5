"""Explorers without a kernel: every setting of a small grid is drawn once, and a script on the page switches views.

A lesson's `explorer.py` says in `PAGE` which settings. Views are drawn by the explorer, so that picture and words
are those of the lab. They are kept in parts, each a script file (a page read from a disk may load no other kind) that
holds gzipped JSON: the elements that its pictures are made of, each once, and the views. A view is `[places of its
elements, lines, number watched, controls of which nothing is said]`, or `[null, reason]` for a setting that cannot be,
or null for one that the controls do not offer.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib
import json
import math
import multiprocessing
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from classroom import ROOT
from classroom.explorer import Explorer, Page, written
from course_utils.files import write_whole
from course_utils.units import CourseError, as_written

PART_BYTES = 200_000  # of a part as it is loaded, before a server packs it once more
SOURCES = ("course_utils", "lessons/shared", "classroom/explorer.py", "constraints.txt")
FORM = "1"  # of what is kept: another number for another form
Settings = tuple[str, ...]


def has_explorer(topic: str) -> bool:
    """Whether a topic, such as "memory", has an explorer."""
    return find_spec(f"lessons.{topic}.explorer") is not None


def page_of(topic: str) -> Page:
    """The settings that a topic's page shows."""
    page: Page = importlib.import_module(f"lessons.{topic}.explorer").PAGE
    return page


def offered(control: Any, wanted: Sequence[object] | None) -> list[str]:
    """Which of the values wanted a control offers now, as it writes them on the screen."""
    labels = getattr(control, "_options_labels", None)
    if labels is None:
        return [str(value) for value in wanted or () if control.min <= int(str(value)) <= control.max]
    return [label for label in labels if wanted is None or label in map(str, wanted)]


def choose(control: Any, label: str) -> None:
    """Move a control to what it writes as `label`."""
    labels = getattr(control, "_options_labels", None)
    if labels is None:
        control.value = int(label)
    else:
        control.index = labels.index(label)


def settings(explorer: Explorer, grid: Mapping[str, Sequence[object] | None]) -> Iterator[Settings]:
    """Every setting of the grid, and the explorer set to it when it is given out; nothing is drawn."""

    def deeper(chosen: Settings) -> Iterator[Settings]:
        if len(chosen) == len(grid):
            yield chosen
            return
        name = list(grid)[len(chosen)]
        for label in offered(explorer.controls[name], grid[name]):
            for place, said in zip(grid, (*chosen, label), strict=False):
                choose(explorer.controls[place], said)
            yield from deeper((*chosen, label))

    with explorer.in_one_move():
        yield from deeper(())


def draw(page: Page) -> dict[str, Any]:
    """All views of a page's grid.

    Returns:
        controls (name, labels, whether a slider), start (place of each control), at rest (name and words of the
        controls left out), what (the number watched), write, views (by place of the controls, the last one fastest).

    Raises:
        CourseError: where the explorer begins is not in the grid, or the grid names no control.
    """
    explorer = page.make()
    if unknown := [name for name in page.grid if name not in explorer.controls]:
        raise CourseError(f"PAGE names {unknown[0]!r}; the controls are {', '.join(explorer.controls)}")
    start = tuple(written(explorer.controls[name]) for name in page.grid)
    resting = {name: written(one) for name, one in explorer.controls.items() if name not in page.grid}
    what, found = "", dict[Settings, list[Any]]()
    for chosen in settings(explorer, page.grid):
        try:
            view = explorer.view()
        except CourseError as error:
            found[chosen] = [None, str(error)]
            continue
        view = view.whole() if view.whole is not None else view
        what = view.what
        said = [as_written(line) for line in view.sentences]
        found[chosen] = [view.picture.svg, said, view.number, list(view.uncaused)]
    if start not in found:
        raise CourseError(f"PAGE leaves out where the explorer begins: {', '.join(start)}")
    labels = [list(dict.fromkeys(chosen[i] for chosen in found)) for i in range(len(page.grid))]
    for one in labels:
        if all(label.replace(",", "").isdigit() for label in one):
            one.sort(key=lambda label: int(label.replace(",", "")))
    sliders = ["Slider" in type(explorer.controls[name]).__name__ for name in page.grid]
    return {
        "controls": [list(one) for one in zip(page.grid, labels, sliders, strict=True)],
        "start": [one.index(label) for one, label in zip(labels, start, strict=True)],
        "rest": resting,
        "what": what,
        "write": page.write,
        "views": [found.get(chosen) for chosen in product(*labels)],
    }


def begins(book: Mapping[str, Any]) -> list[Any]:
    """The view that a book of `draw` begins with."""
    labels = [labels for _, labels, _ in book["controls"]]
    place = 0
    for one, at in zip(labels, book["start"], strict=True):
        place = place * len(one) + at
    view: list[Any] = book["views"][place]
    return view


def parts(views: Sequence[Any], lengths: Sequence[int], most: int = PART_BYTES) -> tuple[int, list[str]]:
    """Views as packed text in equal runs, as long as none is larger than `most` bytes; and how many views a run has.

    A run holds all places of the last controls, so that few moves lead out of it.
    """

    def cut(run: int) -> list[str]:
        return [_packed(views[first : first + run]) for first in range(0, len(views), run)]

    for depth in range(len(lengths) + 1):
        run = math.prod(lengths[depth:])
        packed = cut(run)
        if max(map(len, packed)) <= most:
            break
    several = most // max(map(len, packed))  # runs that together are small enough
    return (run * several, cut(run * several)) if depth and several > 1 else (run, packed)


def _packed(views: Sequence[Any]) -> str:
    table: dict[str, int] = {}
    short = [
        [[table.setdefault(one, len(table)) for one in re.split(r"(?<=>)(?=<)", view[0])], *view[1:]]
        if view is not None and view[0] is not None
        else view
        for view in views
    ]
    text = json.dumps([list(table), short], ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def bound(name: str, book: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What the page itself has to say of a book, and the book's parts."""
    run, packed = parts(book["views"], [len(labels) for _, labels, _ in book["controls"]])
    missing = [i for i, view in enumerate(book["views"]) if view is None]
    head = {key: value for key, value in book.items() if key != "views"}
    return {**head, "name": name, "run": run, "missing": missing}, packed


def write_parts(name: str, book: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Write a book's parts as script files to `folder`; gives what the page itself has to say of it."""
    head, packed = bound(name, book)
    for number, text in enumerate(packed):
        write_whole(folder / f"{number}.js", f'courseViews("{name}",{number},"{text}")\n')
    return head


def digest(topic: str, root: Path = ROOT) -> str:
    """Of all sources that a topic's views come from."""
    found = hashlib.sha256(FORM.encode())
    for source in (*SOURCES, f"lessons/{topic}"):
        path = root / source
        files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
        for file in files:
            if file.suffix != ".pyc" and file.name not in ("lesson.py", "exercise.py", "answers.py"):
                found.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return found.hexdigest()[:16]


def drawn(topic: str, cache: Path) -> dict[str, Any]:
    """A topic's book as `draw` makes it, read from the folder `cache` if nothing it comes from has changed."""
    kept = cache / f"{topic}-{digest(topic)}.json.gz"
    if not kept.exists():
        book = draw(page_of(topic))
        for old in cache.glob(f"{topic}-*.json.gz"):
            old.unlink()
        write_whole(kept, gzip.compress(json.dumps(book).encode(), 6, mtime=0))
    found: dict[str, Any] = json.loads(gzip.decompress(kept.read_bytes()))
    return found


def books(topics: Sequence[str], cache: Path, processes: int = 2) -> dict[str, dict[str, Any]]:
    """The books of those of the topics that have an explorer, drawn by several processes."""
    known = [topic for topic in topics if has_explorer(topic)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        return dict(zip(known, pool.map(drawn, known, [cache] * len(known)), strict=True))
