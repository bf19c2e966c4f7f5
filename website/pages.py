"""What the site shows, as a folder that Sphinx reads: the course's own files, made ready for a page.

Notebooks are taken as they are committed. Folded cells stay folded, pictures are their SVG, an explorer's still becomes
its book of views, a prediction a form, and its answer waits for the guess. Links to files that the site has not become
links to the repository, if its address is known, else words.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from classroom import STILL
from classroom.notebooks import read_notebook, to_text, topics
from course_utils.files import write_whole
from course_utils.units import CourseError
from website.flipbook import begins, write_parts

CLAIMS = "A_myths_and_facts"
TEACHING = ("docs/teaching.md",)
BUILT = ("docs/architecture.md", "docs/trace.md", "docs/measured.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md")
COPIED = ("LICENSE", "LICENSE-CONTENT", "CITATION.cff")  # files that a page offers as they are
PICTURES = ("docs/explorer.webp", "docs/explorer-dark.webp", "docs/explorer.png", "docs/explorer-dark.png")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^()\s]+)\)")
FOLDED = "hide-input"  # the tag by which MyST-NB folds code


@dataclass
class Site:
    """What is written where.

    Attributes:
        root: the course's folder.
        folder: what Sphinx reads.
        names: the topics shown, such as "03_memory".
        address: of a file in the course's repository; "" where none is known.
        books: by topic such as "memory", what `flipbook.draw` made.
        pages: documents so far, by the heading of the table of contents that they stand under.
    """

    root: Path
    folder: Path
    names: Sequence[str]
    address: Callable[[str], str] = lambda path: ""
    opened: Callable[[str], str] = lambda path: ""
    books: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pages: dict[str, list[str]] = field(default_factory=dict)

    def write(self, heading: str, path: str, text: str) -> None:
        """One document, under a heading of the table of contents."""
        write_whole(self.folder / path, text)
        self.pages.setdefault(heading, []).append(path)


def stage(site: Site) -> None:
    """Write everything that Sphinx reads."""
    for path in (*COPIED, *PICTURES):
        there = (site.folder if path in COPIED else site.folder / "_extra") / path
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(site.root / path, there)
    known = _known(site)
    for name in site.names:
        path = f"notebooks/{name}.ipynb"
        if (site.root / path).exists():
            heading = "Claims" if name == CLAIMS else "Lessons"
            site.write(heading, path, to_text(lesson(site, name, known)))
    for name in site.names:
        path = f"exercises/{name}.ipynb"
        if (site.root / path).exists():
            site.write("Exercises", path, to_text(exercise(site, name, known)))
    for path in (*TEACHING, *BUILT):
        text = (site.root / path).read_text(encoding="utf-8")
        heading = "Teaching" if path in TEACHING else "How it is built"
        site.write(heading, path, linked(text, path, known, site.address))


def _known(site: Site) -> set[str]:
    """Paths of the repository that the site has, too."""
    notebooks = [f"{folder}/{name}.ipynb" for folder in ("notebooks", "exercises") for name in site.names]
    return {*filter(lambda path: (site.root / path).exists(), notebooks), *TEACHING, *BUILT, *COPIED, "README.md"}


def index(site: Site, more: Sequence[tuple[str, Sequence[str]]] = ()) -> str:
    """The first page: the README, and the table of contents with the site's pages, `more` after the lessons."""
    text = (site.root / "README.md").read_text(encoding="utf-8")
    found = linked(text, "README.md", _known(site), site.address)
    order = ["Lessons", *(heading for heading, _ in more), "Claims", "Exercises", "Teaching", "How it is built"]
    pages = {**site.pages, **{heading: list(paths) for heading, paths in more}}
    trees = [
        "\n".join(["```{toctree}", ":hidden:", f":caption: {heading}", ":maxdepth: 1", "", *pages[heading], "```"])
        for heading in order
        if pages.get(heading)
    ]
    start = "```{toctree}\n:hidden:\n\nStart <self>\n```"
    return "\n\n".join([found.rstrip(), start, *trees, ""])


def linked(text: str, path: str, known: set[str], address: Callable[[str], str]) -> str:
    """A file's Markdown, its links to files that the site has not led to the repository or made words.

    Args:
        text: in Markdown.
        path: of the file, in the repository.
        known: paths that the site has.
        address: of a path in the repository, "" where none is known.
    """

    def link(found: re.Match[str]) -> str:
        said, target = found[1], found[2]
        if re.match(r"[a-z]+:|#|<", target):
            return found[0]
        file, _, anchor = target.partition("#")
        there = os.path.normpath(os.path.join(os.path.dirname(path), file))
        if there in known:
            if there == "README.md":
                file = os.path.relpath("index.md", os.path.dirname(path) or ".")
            return f"[{said}]({file}{'#' * bool(anchor)}{anchor})"
        return f"[{said}]({address(there)})" if address(there) else said

    # Code is no text: a link in it stays as it is.
    pieces = re.split(r"(^```.*?^```|`[^`\n]+`(?!\]))", text, flags=re.S | re.M)
    return "".join(piece if i % 2 else LINK.sub(link, piece) for i, piece in enumerate(pieces))


# -- notebooks -------------------------------------------------------------------------------------------------------


def ready(site: Site, path: str, known: set[str]) -> NotebookNode:
    """A notebook of the repository as Sphinx reads it."""
    notebook = read_notebook(site.root / path)
    opened = site.opened(path)
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            cell.source = linked(cell.source, path, known, site.address)
            if number == 0 and opened:
                cell.source += f"\n\n{opened}"
            continue
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), FOLDED]
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:
                data["text/html"] = linked_html(shown(data["text/html"]), path, known, site.address)
                data.pop("image/png", None)
    notebook.metadata = {
        key: notebook.metadata[key] for key in ("kernelspec", "language_info") if key in notebook.metadata
    }
    return notebook


def shown(html: str) -> str:
    """An output's HTML for a page that shows SVG and runs no cell: without PNG, pandas' styles, a request to run it."""
    html = re.sub(r'<p class="course-at-rest">.*?</p>', "", html)
    html = re.sub(
        r'<div class="course-picture">.*?<div hidden="hidden">(<svg.*?</svg>)</div></div>',
        r'<div class="course-picture">\1</div>',
        html,
        flags=re.DOTALL,
    )
    return re.sub(r"<style scoped>.*?</style>", "", html, flags=re.DOTALL)


def linked_html(html: str, path: str, known: set[str], address: Callable[[str], str]) -> str:
    """An output's HTML, its links to other notebooks led to their pages, else as `linked` does."""

    def link(found: re.Match[str]) -> str:
        there = os.path.normpath(os.path.join(os.path.dirname(path), found[1]))
        target = f"{found[1].removesuffix('.ipynb')}.html" if there in known else address(there)
        return f"<a href='{target}'>{found[2]}</a>" if target else found[2]

    return re.sub(r"<a href='([^':]+\.ipynb)'>(.*?)</a>", link, html)


def exercise(site: Site, name: str, known: set[str]) -> NotebookNode:
    """An exercise, with the code that it asks about as the solution's cell printed it: no cell of it was run."""
    notebook, solved = ready(site, f"exercises/{name}.ipynb", known), site.root / f"solutions/{name}.ipynb"
    cells = read_notebook(solved).cells if solved.exists() else []
    printed = {cell.source: cell.outputs for cell in cells if cell.source.startswith("print(inspect.getsource(")}
    for cell in notebook.cells:
        if cell.source in printed:
            cell.outputs = printed[cell.source]
    return notebook


def lesson(site: Site, name: str, known: set[str]) -> NotebookNode:
    """A lesson, its explorer and its predictions alive.

    Raises:
        CourseError: there are views of its explorer, and no cell that shows it.
    """
    notebook = ready(site, f"notebooks/{name}.ipynb", known)
    topic = topics(site.root)[name].name
    book = site.books.get(topic)
    asked: dict[str, str] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            html = data.get("text/html", "")
            if not html.startswith(f'<div class="{STILL}">'):
                continue
            if found := re.fullmatch(r"Predict\. (.*) \(([^()]*)\)", data.get("text/plain", ""), re.DOTALL):
                asked[found[1]] = hashlib.sha256(f"{name} {found[1]}".encode()).hexdigest()[:12]
                data["text/html"] = predict_html(asked[found[1]], found[1], found[2])
            elif found := re.search(r'<details data-reveal="([^"]*)"><summary>.*?</summary>(.*)</details>', html, re.S):
                question = json.loads(unescape(found[1]))["question"]
                data["text/html"] = reveal_html(asked[question], found[1], found[2])
            elif book is not None and "course-picture" in html:
                head = write_parts(topic, book, site.folder / "_static" / "explorers" / topic)
                data["text/html"], book = explorer_html(head, begins(book)), None
    if book is not None:
        raise CourseError(f"{name} has an explorer, and no cell of it that shows one was found")
    return notebook


def explorer_html(head: Mapping[str, Any], view: Sequence[Any]) -> str:
    """A book's place on the page: the view it begins with, and room for the controls that the script makes.

    Args:
        head: what `write_parts` gave.
        view: of the book: picture, sentences, what only the script reads. The notebook's own still may show what was
            measured on the machine that ran it.
    """
    svg, words = view[0], "<br>".join(map(escape, view[1]))
    rest = ", ".join(f"{name} {said}" for name, said in head["rest"].items())
    note = f"On this page the other controls rest: {rest}. In the lab every one moves." if rest else ""
    read = {key: value for key, value in head.items() if key != "rest"} | {"number": view[2]}
    kept = json.dumps(read, ensure_ascii=False)
    return (
        f'<div class="course-explorer" role="group" aria-label="Explorer" data-book="{escape(kept)}">'
        '<div class="course-controls" hidden></div>'
        f'<p class="course-words" role="status">{words}</p>'
        f'<figure class="course-figure">{svg}</figure>'
        f'<p class="course-at-rest" hidden>{escape(note)}</p></div>'
    )


def predict_html(identity: str, question: str, unit: str) -> str:
    """A question with a field for the guess; the field shows where scripts run."""
    name = f"guess-{identity}"
    return (
        f'<div class="course-predict"><p id="{name}"><b>Predict.</b> {escape(question)} ({escape(unit)})</p>'
        f'<form data-predict="{identity}" data-unit="{escape(unit)}" aria-labelledby="{name}" hidden>'
        '<label>your guess <input type="text" inputmode="text" autocomplete="off" placeholder="a number"></label> '
        f"<span>{escape(unit)}</span> "
        '<button type="submit">Predict</button> <button type="button" hidden>Forget it</button>'
        '<p role="status"></p></form></div>'
    )


def reveal_html(identity: str, told: str, picture: str) -> str:
    """An answer that waits for a guess; without scripts it is folded away.

    Args:
        identity: of the question.
        told: what `classroom.predict.Reveal` keeps, as JSON with HTML's escapes.
        picture: of the answer.
    """
    [numbers] = re.findall(r'<svg[^>]* aria-label="([^"]*)"', picture)
    return (
        f'<div class="course-reveal" data-for="{identity}" data-reveal="{told}"><p aria-live="polite"></p>'
        f'<details class="course-answer"><summary>The answer</summary><p>{numbers}</p>{picture}</details></div>'
    )
