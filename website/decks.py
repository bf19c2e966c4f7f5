"""Explorers in exported slides: the site's flip-books, inside the one file that a lesson's slides are."""

from __future__ import annotations

from pathlib import Path

from classroom.notebooks import topics
from website.flipbook import begins, bound, drawn, has_explorer
from website.pages import explorer_html
from website.slides import Live

SCRIPT = Path(__file__).with_name("static") / "explorer.js"


def explorer(lesson: Path) -> Live | None:
    """A lesson's explorer for its slides; None if it has none.

    Its views are drawn if they are not kept from before: seconds, for the largest half a minute.

    Args:
        lesson: the path of the notebook, in the folder notebooks/ of the course.
    """
    root = lesson.parent.parent
    topic = topics(root)[lesson.stem].name
    if not has_explorer(topic):
        return None
    book = drawn(topic, root / "build" / "site-cache")
    head, parts = bound(topic, book)
    kept = "".join(
        f'<script type="text/plain" id="{topic}/{number}">{text}</script>' for number, text in enumerate(parts)
    )
    return Live(explorer_html(head, begins(book)) + kept, SCRIPT.read_text(encoding="utf-8"))
