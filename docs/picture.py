"""Films the explorer of lesson 03 in a real JupyterLab, light and dark, and puts it into the README: `make picture`.

The batch goes up to one whose tensors alone are more than the card, then, as the words advise, back to the largest
that fits, and to where it began. Each frame is a photograph of the page after the explorer has redrawn. What the page
said in each is kept in the file, as XMP: a test makes the same moves on the explorer as it is today and compares.
"""

from __future__ import annotations

import io
import json
import math
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat
from PIL import Image

from course_utils.files import write_whole
from course_utils.techniques.capacity import largest_batch
from course_utils.units import CourseError
from lessons.memory.explorer import MemoryExplorer, memory_explorer

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
MOVIES = {False: "docs/explorer.webp", True: "docs/explorer-dark.webp"}  # by: is it dark?
STILLS = {False: "docs/explorer.png", True: "docs/explorer-dark.png"}  # for who asked for less motion
WINDOW = (1440, 1100)  # wide enough that the words fill as many lines at each batch
MARGIN = 14  # pixels around the explorer
SHOWN = 800  # pixels of the README's width: the lines under it are on the first screen
# Milliseconds: of all frames that move, together; of the one at the turn, at the largest batch that fits, at the end.
MOVING, TURN, FITS, END = 3710, 2000, 1500, 600
BLOCK = re.compile(r"(<!-- picture -->\n).*?(<!-- /picture -->)", re.DOTALL)
SLIDER = "batch"


@dataclass(frozen=True)
class Frame:
    """A photograph: the key presses that lead to it, the batch it shows, how many milliseconds it is seen."""

    key: str
    presses: int
    batch: int
    milliseconds: int

    @property
    def stops(self) -> list[int]:
        """The batches on the way to it, its own last."""
        step = {"ArrowRight": 1, "PageDown": -5}[self.key]
        return [self.batch - step * i for i in reversed(range(self.presses))]


def story(explorer: MemoryExplorer) -> list[Frame]:
    """Up by two, down by five; the last frame shows the batch that the first one begins from."""
    fits = largest_batch(explorer.step, explorer.limit_bytes).fits
    too_much = 1.03 * explorer.limit_bytes
    last = next(b for b in range(fits, explorer.batch.max, 5) if explorer.step.at(b).peak_bytes > too_much)
    first = last - 10 * math.ceil((last - fits + 30) / 10)
    ways = [("ArrowRight", 2, batch) for batch in range(first + 2, last + 1, 2)]
    ways += [("PageDown", 1, batch) for batch in range(last - 5, first - 1, -5)]
    held = {("ArrowRight", 2, last): TURN, ("PageDown", 1, fits): FITS, ("PageDown", 1, first): END}
    pace = MOVING // (len(ways) - len(held))
    return [Frame(*way, held.get(way, pace)) for way in ways]


def _turn(frames: Sequence[Frame]) -> int:
    return max(range(len(frames)), key=lambda i: frames[i].batch)


def said(explorer: MemoryExplorer) -> list[str]:
    """What an explorer says now: the words of its picture, then the lines under it."""
    drawn = ElementTree.fromstring(explorer.figure.value)
    words = ["".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    lines = ElementTree.fromstring(explorer.words.value.replace("<br>", "\n"))
    return [*words, *"".join(lines.itertext()).splitlines()]


def played(frames: Sequence[Frame]) -> list[list[str]]:
    """What the explorer says at each frame, its moves made without a page."""
    explorer = memory_explorer(batch=frames[-1].batch)
    heard = []
    for frame in frames:
        for batch in frame.stops:
            explorer.batch.value = batch
        heard.append(said(explorer))
    return heard


def kept(movie: Path) -> list[list[str]]:
    """What the page said at each frame of a movie when it was filmed."""
    with Image.open(movie) as image:
        text: bytes = image.info["xmp"]
    found: list[list[str]] = json.loads(text)
    return found


def block(frames: Sequence[Frame], heard: Sequence[Sequence[str]]) -> str:
    """The README's lines that show the movie, with what it says at the turn as alternative text."""
    turn = _turn(frames)
    # A picture's first text is its title; the last lines are the way out and what the last move did.
    alt = (
        f"An explorer, filmed: the batch slider moves, the step's memory is redrawn. {heard[turn][0]}. "
        f"{heard[turn][-2]}"
    )
    return (
        "<picture>\n"
        f'<source media="(prefers-reduced-motion:reduce) and (prefers-color-scheme:dark)" srcset="{STILLS[True]}">\n'
        f'<source media="(prefers-reduced-motion:reduce)" srcset="{STILLS[False]}">\n'
        f'<source media="(prefers-color-scheme:dark)" srcset="{MOVIES[True]}">\n'
        f'<img width="{SHOWN}" src="{MOVIES[False]}" alt="{escape(alt)}">\n'
        "</picture>\n"
    )


def filled(readme: str, frames: Sequence[Frame], heard: Sequence[Sequence[str]]) -> str:
    """The README's text with the block as it must be."""
    if not BLOCK.search(readme):
        raise CourseError("README.md has no lines <!-- picture --> and <!-- /picture -->")
    return BLOCK.sub(lambda found: found[1] + block(frames, heard) + found[2], readme)


# ---------------------------------------------------------------------------------------------------------------------
# Filming

SAYS = """() => {
  const explorer = document.querySelector('.course-explorer');
  const words = [...explorer.querySelectorAll('svg[role=img] text')].map(text => text.textContent);
  return [...words, ...explorer.querySelector('p[aria-live]').innerText.split('\\n')];
}"""
DRAWN = """batch => document.querySelector('.course-explorer p[aria-live]')?.innerText.startsWith(`Batch ${batch} `)"""


def film(frames: Sequence[Frame]) -> dict[bool, tuple[list[Image.Image], list[list[str]]]]:
    """Photographs of each frame, and what the page said; light and dark."""
    sys.path.insert(0, str(ROOT / "tests"))
    import lab

    if reason := lab.missing():
        raise CourseError(reason)
    cell = nbformat.v4.new_code_cell(
        f"from lessons.memory.explorer import memory_explorer\nmemory_explorer(batch={frames[-1].batch})"
    )
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    films: dict[bool, tuple[list[Image.Image], list[list[str]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "notebooks"
        root.mkdir()
        nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=kernel), root / "film.ipynb")
        with lab.server(root, Path(folder) / "server") as address, lab.browser(*WINDOW) as page:
            lab.open_notebook(page, address, "film.ipynb")
            lab.run_all(page)
            for dark in MOVIES:
                lab.set_theme(page, dark)
                lab.slider(page, SLIDER).focus()
                films[dark] = _walk(page, frames)
    return films


def _walk(page: Any, frames: Sequence[Frame]) -> tuple[list[Image.Image], list[list[str]]]:
    explorer = page.locator(".course-explorer")
    photographs, heard = [], []
    for frame in frames:
        for batch in frame.stops:  # one by one, as words say what the last move did
            page.keyboard.press(frame.key)
            page.wait_for_function(DRAWN, arg=batch)
        photographs.append(Image.open(io.BytesIO(explorer.screenshot(caret="hide"))).convert("RGB"))
        heard.append(page.evaluate(SAYS))
    return _alike(photographs), heard


def _alike(photographs: Sequence[Image.Image]) -> list[Image.Image]:
    """All as high as the highest, with a margin; the corner's colour is the paper's."""
    width, height = (max(getattr(image, side) for image in photographs) for side in ("width", "height"))
    made = []
    for image in photographs:
        whole = Image.new("RGB", (width + 2 * MARGIN, height + 2 * MARGIN), image.getpixel((0, image.height - 1)))
        whole.paste(image, (MARGIN, MARGIN))
        made.append(whole)
    return made


def main() -> None:
    """Film, write the four files, and put the block into the README."""
    frames = story(memory_explorer())
    turn = _turn(frames)
    for dark, (photographs, heard) in film(frames).items():
        buffer = io.BytesIO()
        photographs[0].save(
            buffer,
            "WEBP",
            save_all=True,
            append_images=photographs[1:],
            duration=[frame.milliseconds for frame in frames],
            loop=0,
            lossless=True,
            quality=40,
            method=2,
            xmp=json.dumps(heard, ensure_ascii=False, separators=(",", ":")).encode(),
        )
        (ROOT / MOVIES[dark]).write_bytes(buffer.getvalue())
        still = io.BytesIO()
        photographs[turn].quantize(128, dither=Image.Dither.NONE).save(still, "PNG", optimize=True)
        (ROOT / STILLS[dark]).write_bytes(still.getvalue())
        seconds = sum(frame.milliseconds for frame in frames) / 1000
        print(f"{MOVIES[dark]}: {len(frames)} frames, {seconds:.1f} s, {buffer.tell() / 1e6:.2f} MB")
    write_whole(README, filled(README.read_text(encoding="utf-8"), frames, heard))


if __name__ == "__main__":
    main()
