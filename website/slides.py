"""`course slides`: each lesson as one HTML file that presents itself, with reveal.js inside and no network needed.

A lesson's saved outputs are shown, nothing is run: pictures as their SVG, explorers as their stills, or alive where
`Live` says how. Slides are cut by the cells' slide types. What Python cannot know, how tall a text comes out, is
settled in the page: the script in `slides.html` gives tables the largest print that fits, and pictures the room that
is left; text has one size.

Markdown and code are rendered by nbconvert and Pygments; reveal.js comes from the package sphinx-revealjs, of which
nothing else is used.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from classroom import STILL
from classroom.claims import VERDICTS
from classroom.deck import HIDE_CELL, HIDE_OUTPUT, NOTES, is_short
from classroom.doctor import FIX_INSTALL
from classroom.notebooks import chosen, read_notebook
from course_utils.files import write_whole
from course_utils.units import CourseError, format_bytes

REVEAL = "sphinx-revealjs"
REVEAL_FILES = {
    "reveal_css": "dist/reveal.css",
    "reveal_js": "dist/reveal.js",
    "notes_js": "plugin/notes/notes.js",
    "licence": "LICENSE",
}
WIDTH, HEIGHT = 1280, 720  # pixels of a slide's own canvas, which is scaled to the window
TEXT = 28  # pixels on that canvas, of every slide's text
FOLDED = '<div class="fragment together">'  # what comes at the next key
MIN_WORDS, MIN_PICTURE_WORDS = 18, 14  # of tables and of pictures: 1/40 and about 1/50 of the height


@dataclass
class Slide:
    """One screen: its blocks of HTML, and what the speaker alone sees."""

    blocks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Live:
    """An explorer that moves without a kernel.

    Attributes:
        html: what stands in its place, a `div` of the class course-explorer with a figure in it.
        script: what this needs in the page, beside the scripts in `html`.
    """

    html: str
    script: str


def cut(notebook: NotebookNode, label: str, folder: Path, live: Live | None = None) -> tuple[str, list[list[Slide]]]:
    """A lesson's title, and its slides in order, each with the subslides below it.

    A cell without a slide type continues the slide before it; a slide without a heading repeats the last one, small.

    Args:
        notebook: an executed lesson.
        label: its name in errors.
        folder: where its pictures' paths start.
        live: its explorer; a still where none is given.

    Raises:
        CourseError: it was not run, a cell failed, or it holds a formula in LaTeX, which needs a network to be shown.
    """
    codes = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    if not all(cell.get("execution_count") for cell in codes):
        raise CourseError(f"{label} has cells that were not run; run them all and save, or `course build` it")
    title, heading = "", ""
    stacks: list[list[Slide]] = []
    for cell in notebook.cells:
        kind, tags = cell.metadata.get("slideshow", {}).get("slide_type", "-"), cell.metadata.get("tags", [])
        kind = "notes" if NOTES in tags else kind
        if kind == "skip" or HIDE_CELL in tags or cell.cell_type == "raw":
            continue
        blocks, spoken = _blocks(cell, f"{label}, cell {cell.get('id', '?')}", folder, live)
        if kind in ("slide", "subslide") or not stacks:
            own = re.match(r"<h[12][^>]*>(.*?)</h[12]>", blocks[0], re.DOTALL) if blocks else None
            title, heading = title or (own[1] if own else ""), own[1] if own else heading
            if kind != "subslide" or not stacks:
                stacks.append([])
            stacks[-1].append(Slide([f'<p class="running">{heading}</p>'] if own is None and heading else []))
        slide = stacks[-1][-1]
        if kind == "notes":
            slide.notes += blocks
        elif kind == "fragment":
            slide.blocks.append(f"{FOLDED}{''.join(blocks)}</div>")
        else:
            slide.blocks += blocks
        slide.notes += spoken
    return re.sub(r"<[^>]+>", "", title), stacks


def _blocks(cell: NotebookNode, where: str, folder: Path, live: Live | None) -> tuple[list[str], list[str]]:
    """A cell as blocks of HTML, text, or code if it is short and then its outputs; and what of it is spoken instead."""
    if cell.cell_type == "markdown":
        return [_short_values(_markdown(cell.source, where, folder))], []
    tags = cell.metadata.get("tags", [])
    outputs = [] if HIDE_OUTPUT in tags else cell.outputs
    shown, spoken, speaks_for_itself = [], [], False
    for output in outputs:
        block, data = _output(output, where), output.get("data", {})
        widget = STILL in data.get("text/html", "")
        speaks_for_itself |= widget or VERDICTS in block
        if widget and "<figure>" in block and "fragment" not in block:
            # An explorer at rest: the picture's title is its finding, and no sentence asks for a move.
            spoken.append(re.sub(r"<figure>.*</figure>", "", block, flags=re.DOTALL))
            block = "".join(re.findall(r"<figure>.*</figure>", block, re.DOTALL))
            block = live.html if live else block
        elif VERDICTS in block:
            spoken.append(block.replace(FOLDED, "<div>"))
            block = re.sub(f"{FOLDED}.*?</div>", "", block, flags=re.DOTALL)  # what a verdict rests on is spoken
            block = re.sub(r"<t[hd][^>]*>((?!</t[hd]>).)*</t[hd]></tr>", "</tr>", re.sub(r"<col [^>]*>", "", block))
        shown.append(block)
    # The code of a widget or a verdict says nothing that these do not.
    return [_code(cell.source)] * (is_short(cell) and not speaks_for_itself) + shown, spoken


def _markdown(text: str, where: str, folder: Path) -> str:
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Renderer(IPythonRenderer):
        def refuse(self, *_parts: Any, **_options: Any) -> str:
            raise CourseError(f"{where}: slides show no LaTeX ($…$), which needs a network; write 3 · 8 or `code`")

        block_math = multiline_math = latex_environment = inline_math = refuse

        def link(self, text: str, url: str, title: str | None = None) -> str:
            """Files of the course lie elsewhere than the slides: their links are words here."""
            return str(super().link(text, url, title)) if re.match(r"https?:", url) else text

    renderer = Renderer(escape=False, embed_images=True, exclude_anchor_links=True, path=str(folder))
    return str(MarkdownWithMath(renderer=renderer).render(text))


def _code(text: str) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return str(highlight(text.strip(), PythonLexer(), HtmlFormatter(cssclass="code")))


def _output(output: NotebookNode, where: str) -> str:
    """One output as it reads best without a kernel: HTML, a picture, or its text."""
    if output.output_type == "error":
        raise CourseError(f"{where} failed with {output.ename}; mend it, run the lesson and save, then export")
    if output.output_type == "stream":
        return _plain(output.text)
    data = output.get("data", {})
    if "text/html" in data:
        return _html(data["text/html"])
    if "image/svg+xml" in data:
        return f"<figure>{data['image/svg+xml']}</figure>"
    for kind in ("image/png", "image/jpeg"):
        if kind in data:
            picture = data[kind].replace("\n", "")
            return (
                f'<figure><img alt="{escape(data.get("text/plain", ""))}" src="data:{kind};base64,{picture}"></figure>'
            )
    return _plain(data.get("text/plain", ""))


def _plain(text: str) -> str:
    from nbconvert.filters.ansi import ansi2html

    return f'<pre class="out">{ansi2html(text.rstrip())}</pre>'  # type: ignore[no-untyped-call]


def _html(text: str) -> str:
    """An output's HTML for a slide: of a course picture the SVG alone; what is folded away comes at the next key."""
    if text.startswith(f'<div class="{STILL}">'):  # no slide has a cell to run
        text = re.sub(r'<p class="course-at-rest">.*?</p>', "", text).removesuffix("</div>").partition(">")[2]
    text = re.sub(
        r'<div class="course-picture">.*?<div hidden="hidden">(<svg.*?</svg>)</div></div>',
        r"<figure>\1</figure>",
        text,
        flags=re.DOTALL,
    )
    text = re.sub(r"<style scoped>.*?</style>", "", text, flags=re.DOTALL)  # pandas': not scoped in any browser
    if re.search(r"<td>-?\d{5,}</td>", text) and ">year</th>" not in text:  # pandas writes 119432
        text = re.sub(r"(?<=<td>)-?\d{4,}(?=</td>)", lambda number: f"{int(number[0]):,}", text)
    text = _short_values(text)
    folded = r"<details[^>]*>\s*<summary>.*?</summary>(.*?)</details>"
    text = re.sub(r"<br>\s*<small>", "<small><br>", text)  # a slide without room leaves small print out, line and all
    return re.sub(folded, rf"{FOLDED}\1</div>", text, flags=re.DOTALL).strip()


def _short_values(text: str) -> str:
    """A table's HTML in which a short value ("824.58 MiB", "1.2e-38") stays on one line; heads of columns may break."""
    return re.sub(r"<(td|th)([^>]*)>([^<]{1,18}</\1>)(?!\s*(?:<th|</tr>\s*</thead>))", r'<\1 class="short"\2>\3', text)


def _read_reveal() -> dict[str, str]:
    """reveal.js, its style and its speaker's window, from the package that carries them."""
    try:
        package = importlib.metadata.distribution(REVEAL)  # importing it would import Sphinx
        folder = Path(str(package.locate_file("sphinx_revealjs/_static/revealjs")))
        return {name: (folder / path).read_text(encoding="utf-8") for name, path in REVEAL_FILES.items()}
    except (importlib.metadata.PackageNotFoundError, OSError):
        raise CourseError(f"slides need the package {REVEAL}, whole; {FIX_INSTALL}") from None


def make_deck(notebook: NotebookNode, label: str, folder: Path, live: Live | None = None) -> tuple[str, int]:
    """One lesson as a self-contained HTML file, and how many slides it has. Arguments and errors as in `cut`."""
    from jinja2 import Environment, PackageLoader
    from pygments.formatters import HtmlFormatter

    title, stacks = cut(notebook, label, folder, live)
    scripts = {name: re.sub("</(script|style)", r"<\\/\1", text, flags=re.I) for name, text in _read_reveal().items()}
    template = Environment(loader=PackageLoader("website", ""), autoescape=True).get_template("slides.html")
    html = template.render(
        title=title or label,
        stacks=stacks,
        width=WIDTH,
        height=HEIGHT,
        text=TEXT,
        least={"words": MIN_WORDS, "picture": MIN_PICTURE_WORDS},
        pygments_css=HtmlFormatter().get_style_defs(".code"),
        explorer_js=live.script if live else "",
        **scripts,
    )
    return html, sum(map(len, stacks))


def export(
    names: Sequence[str], root: Path, out: Path, alive: Callable[[Path], Live | None] | None = None
) -> None:
    """Write the slides of these lessons to `out`, one HTML file each, whole, with a line for each as it is done.

    Args:
        names: lessons such as "03"; all when none is given.
        root: the course's folder.
        out: where to.
        alive: gives the explorer of a lesson by its path; stills where nothing is given.

    Raises:
        CourseError: an unknown lesson, one that was not run, a folder that cannot be written.
    """
    lessons = {path.stem: path for path in sorted((root / "notebooks").glob("[0-9A-Z]*_*.ipynb"))}
    if not lessons:
        raise CourseError("there are no lessons in notebooks/; `course build` makes them")
    for path in map(lessons.__getitem__, chosen(names, lessons, "lesson")):
        live = alive(path) if alive else None
        html, slides = make_deck(read_notebook(path), f"{path.parent.name}/{path.name}", path.parent, live)
        target = out / f"{path.stem}.html"
        try:
            write_whole(target, html)
        except OSError as error:
            reason = error.strerror or error
            raise CourseError(f"{target} cannot be written: {reason}; choose another folder with --out") from None
        counted = f"{slides} slide{'' if slides == 1 else 's'}"
        print(f"{target}: {counted}, {format_bytes(len(html.encode()), 1)}", flush=True)


def slides_command(arguments: Sequence[str], root: Path) -> int:
    """`course slides`: as `export`, explorers alive."""
    parser = argparse.ArgumentParser(prog="course slides", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("topics", nargs="*", metavar="NN", help="lesson numbers such as 03; all when none is given")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write them; slides/ in the course's folder")
    options = parser.parse_args(arguments)
    from website.decks import explorer  # which imports this module

    export(options.topics, root, options.out or root / "slides", explorer)
    return 0
