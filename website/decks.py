"""Explorers in exported slides: the site's flip-books, inside the one file that a lesson's slides are."""

from __future__ import annotations

import re
from pathlib import Path

from nbformat import NotebookNode

from classroom import EXPLORER_CALL, STILL
from classroom.notebooks import topics
from website.flipbook import bound, drawn, has_explorer
from website.pages import explorer_html, shown
from website.slides import Live

SCRIPT = Path(__file__).with_name("static") / "explorer.js"


def explorer(lesson: Path, notebook: NotebookNode) -> Live | None:
    """A lesson's explorer for its slides; None if it has none.

    Its views are drawn if they are not kept from before: seconds, for the largest half a minute.

    Args:
        lesson: the path of the notebook, in the folder notebooks/ of the course.
        notebook: executed, so that it holds the explorer's still.
    """
    root = lesson.parent.parent
    topic = topics(root)[lesson.stem].name
    still = _still(notebook)
    if still is None or not has_explorer(topic):
        return None
    head, parts = bound(topic, drawn(topic, root / "build" / "site-cache"))
    kept = "".join(
        f'<script type="text/plain" id="{topic}/{number}">{text}</script>' for number, text in enumerate(parts)
    )
    return Live(explorer_html(head, shown(still)) + kept, SCRIPT.read_text(encoding="utf-8"))


def _still(notebook: NotebookNode) -> str | None:
    """What is saved in place of the cell's explorer."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and re.search(EXPLORER_CALL, cell.source, re.MULTILINE):
            for output in cell.outputs:
                html: str = output.get("data", {}).get("text/html", "")
                if html.startswith(f'<div class="{STILL}">'):
                    return html
    return None
