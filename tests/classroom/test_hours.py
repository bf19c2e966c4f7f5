"""How long the course takes: what its lessons state, added up, and what the documents say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from classroom import ROOT, hours
from classroom.authoring import AuthoringError
from course_utils.files import write_whole


def test_the_documents_say_what_the_lessons_state_and_one_has_a_table() -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in hours.DOCUMENTS]
    for name, text in zip(hours.DOCUMENTS, texts, strict=True):
        assert hours.filled(text, ROOT) == text, f"{name} is out of date; `course build` renews it"
    assert any("<!-- minutes -->" in text for text in texts)


@pytest.mark.parametrize(("minutes", "said"), [(0, "0"), (1, "0.5"), (30, "0.5"), (31, "1"), (815, "14")])
def test_hours_are_rounded_up_to_the_half(minutes: int, said: str) -> None:
    assert hours.in_hours(minutes) == said


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_whole(tmp_path / "lessons" / "contents.txt", "03 memory\n")
    write_whole(
        tmp_path / "lessons" / "memory" / "lesson.py",
        '# %% [markdown]\n# # 03 · Memory\n\n# %% [markdown] slide="notes"\n# About 90 minutes.\n\n# %%\n1\n',
    )
    return tmp_path


def test_blocks_are_filled_in_and_the_rest_is_left(root: Path) -> None:
    text = "A <!-- hours -->old<!-- /hours -->, B\n<!-- minutes -->\n<!-- /minutes -->\nC \\1"
    made = hours.filled(text, root)
    assert made.startswith("A <!-- hours -->1.5 hours of lessons and 0 of exercises, 1.5 in all<!-- /hours -->, B\n")
    assert "\n| 03 | Memory | 90 |  |\n<!-- /minutes -->\nC \\1" in made
    assert hours.filled(made, root) == made


@pytest.mark.parametrize("wrong", ["# # Memory\n#\n# About 90 minutes.\n", "# # 03 · Memory\n"])
def test_a_lesson_that_states_none_is_refused_with_its_line(root: Path, wrong: str) -> None:
    write_whole(root / "lessons" / "memory" / "lesson.py", f"# %% [markdown]\n{wrong}")
    with pytest.raises(AuthoringError, match=r"lessons/memory/lesson.py:1: .*About 20 minutes"):
        hours.stated(root)
