"""What the site makes of the course's files: links, pictures, predictions, the first page; and the words of guesses."""

from __future__ import annotations

import json
import random
import re
from html import unescape
from pathlib import Path
from typing import Any

import lab
import pytest

from classroom import ROOT, STILL
from classroom.notebooks import topics
from classroom.predict import how_far, predict, read_number, reveal, still, thought_behind
from course_utils.figures import side_by_side
from course_utils.units import CourseError
from website import pages
from website.build import build, settings, site_command
from website.pages import Site, exercise, explorer_html, index, linked, linked_html, predict_html, reveal_html, shown


def address(path: str) -> str:
    return f"https://example.org/course/blob/main/{path}"


def nowhere(path: str) -> str:
    return ""


@pytest.mark.parametrize(
    ("text", "made", "without"),
    [
        ("[a](../notebooks/03_memory.ipynb)", "[a](../notebooks/03_memory.ipynb)", "[a](../notebooks/03_memory.ipynb)"),
        ("[a](trace.md#b)", "[a](trace.md#b)", "[a](trace.md#b)"),
        ("[a](../README.md)", "[a](../index.md)", "[a](../index.md)"),
        ("[a](../classroom/cli.py)", f"[a]({address('classroom/cli.py')})", "a"),
        ("[a](https://x.org) ![b](c.png)", "[a](https://x.org) ![b](c.png)", "[a](https://x.org) ![b](c.png)"),
        ("`[a](b.md)`", "`[a](b.md)`", "`[a](b.md)`"),
        ("```\n[a](b.md)\n```", "```\n[a](b.md)\n```", "```\n[a](b.md)\n```"),
    ],
)
def test_a_link_leads_to_a_page_or_to_the_repository_or_is_words(text: str, made: str, without: str) -> None:
    known = {"notebooks/03_memory.ipynb", "docs/trace.md", "README.md"}
    assert linked(text, "docs/teaching.md", known, address) == made
    assert linked(text, "docs/teaching.md", known, nowhere) == without


def test_a_link_in_a_table_leads_to_a_page_or_to_the_repository_or_is_words() -> None:
    known, html = {"notebooks/03_memory.ipynb"}, "<td><a href='03_memory.ipynb'>03</a> <a href='04_stride.ipynb'>04</a>"
    page, there = "<td><a href='03_memory.html'>03</a>", address("notebooks/04_stride.ipynb")
    assert linked_html(html, "notebooks/A.ipynb", known, address) == f"{page} <a href='{there}'>04</a>"
    assert linked_html(html, "notebooks/A.ipynb", known, nowhere) == f"{page} 04"


def test_a_picture_is_its_svg_alone_and_tables_bring_no_style() -> None:
    picture = side_by_side({"a": 1.0}, "MiB")
    assert shown(f"{picture.html}<style scoped>x</style>") == f'<div class="course-picture">{picture.svg}</div>'


def test_a_page_asks_for_no_cell_to_be_run_and_shows_the_code_that_an_exercise_asks_about() -> None:
    assert shown(still("<p>vote</p>", "and vote here")) == f'<div class="{STILL}"><p>vote</p></div>'
    for name in sorted(topics(ROOT)):
        if (ROOT / f"exercises/{name}.ipynb").exists():
            cells = exercise(Site(ROOT, ROOT, [name]), name, set()).cells
            run = {
                cell.source: "".join(output.text for output in cell.outputs) for cell in cells if cell.get("outputs")
            }
            assert all(re.match("def |class ", printed) for printed in run.values())
            assert list(run) == [cell.source for cell in cells if "print(inspect.getsource(" in cell.source]


def test_every_picture_of_every_lesson_is_found() -> None:
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        outputs = [
            output["data"]["text/html"]
            for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
            for output in cell.get("outputs", [])
            if "text/html" in output.get("data", {})
        ]
        for html in map("".join, outputs):
            made = shown(html)
            assert "data:image/png" not in made, path
            assert made.count("<svg") == html.count("<svg"), path


def test_an_answer_takes_along_all_that_the_words_need() -> None:
    guess = predict("How much?", "GiB")
    answer = reveal(guess, {"by hand": 1 / 3, "trace": 2}, "trace", [(1.0, 'That is "one" <layer>.')])
    html = answer._repr_mimebundle_()["text/html"]
    [told] = re.findall(r'<details data-reveal="([^"]*)">', html)
    assert json.loads(unescape(told)) == {
        "question": "How much?",
        "unit": "GiB",
        "rows": {"by hand": 0.333333333, "trace": 2},
        "against": "trace",
        "thoughts": [[1.0, 'That is "one" <layer>.']],
    }


def test_the_first_page_lists_every_page_once_in_the_courses_order(tmp_path: Path) -> None:
    site = Site(ROOT, tmp_path, list(topics(ROOT)))
    pages.stage(site)
    text = index(site, [("Field guide", ["guide/index.md"])])
    headings = re.findall(r":caption: (.*)", text)
    assert headings == ["Lessons", "Field guide", "Claims", "Exercises", "Teaching", "How it is built"]
    listed = re.findall(r"^(\S+\.(?:ipynb|md))$", text, re.M)
    assert len(listed) == len(set(listed))
    lessons = [f"notebooks/{name}.ipynb" for name in topics(ROOT)]
    assert listed[: len(lessons)] == [*lessons[:-1], "guide/index.md"]
    assert lessons[-1] == listed[len(lessons)]
    exercises = [path for path in listed if path.startswith("exercises/")]
    assert exercises == sorted(exercises)
    assert len(exercises) == len(list((ROOT / "exercises").glob("*.ipynb")))
    # What is folded in the notebook is folded on the page.
    for name in ("03_memory", "13_transformers"):
        was = json.loads((ROOT / f"notebooks/{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        now = json.loads((tmp_path / f"notebooks/{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        hidden = [cell["metadata"].get("jupyter", {}).get("source_hidden", False) for cell in was]
        assert hidden == ["hide-input" in cell["metadata"].get("tags", []) for cell in now]


def test_nothing_is_executed_and_nothing_comes_from_elsewhere() -> None:
    assert settings()["nb_execution_mode"] == "off"
    assert "://" not in json.dumps(settings())
    for path in (ROOT / "website/static").iterdir():
        assert "://" not in path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", ""), path


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CourseError, match="holds something else than a site"):
        build(ROOT, tmp_path, tmp_path / "work", ["00"])
    with pytest.raises(CourseError, match="no topic '77'"):
        site_command(["77", "--out", str(tmp_path / "new")], ROOT)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_what_scripts_fill_is_there_without_them() -> None:
    picture = side_by_side({"a": 1.0}, "MiB")
    head = {"name": "x", "controls": [], "rest": {"axis": "time"}}
    made = explorer_html(head, [picture.svg, ["One < two."], 1, []])
    assert picture.svg in made
    assert "One &lt; two." in made
    assert "axis time" in made
    assert " hidden><label>your guess" in predict_html("1", "How much?", "GiB")
    answer = f"<summary>The answer</summary><p>a: 1 MiB.</p>{picture.svg}</details>"
    assert answer in reveal_html("1", "{}", picture.svg)


# -- the words of a guess are the lab's --------------------------------------------------------------------------------

NUMBERS = [
    "1568",
    "1,568",
    "1 568",
    "12.5",
    "12,5",
    "1.5e3",
    "−392",
    "-392",
    ".5",
    "1e400",
    "1,5,6",
    "x",
    "12 MiB",
    "1e2.5",
]


@pytest.mark.browser
@pytest.mark.skipif(bool(lab.missing()), reason=f"browser tests: {lab.missing()}")
def test_a_page_reads_and_answers_a_guess_as_the_lab_does() -> None:
    drawn = random.Random(1)
    guesses: list[tuple[float, float, str]] = [
        (9, 8, "MiB"), (8, 8, "MiB"), (0, 8, "MiB"), (-2, 8, "images"), (95, 100, "%"), (2.5, 2, "%"), (1e9, 8, "ms"),
        (8, 1e9, "ms"), (0.00012, 0.00013, "s"), (1234567, 1234568, "tokens"), (1.125, 1, "GiB"), (16, 1600, "MiB"),
    ]  # fmt: skip
    guesses += [
        (round(10 ** drawn.uniform(-3, 5), drawn.randrange(4)), 10 ** drawn.uniform(-3, 5), "MiB") for _ in range(400)
    ]
    thoughts = [(1.55, "Those are the parameters."), (8.2, "Near."), (8.2, "As near."), (1e9, "Far.")]
    script = (ROOT / "website/static/predict.js").read_text(encoding="utf-8")
    with lab.browser() as tab:
        tab.set_content("<p></p>")
        tab.add_script_tag(content=script)
        said = tab.evaluate("guesses => guesses.map(one => coursePredict.howFar(...one))", guesses)
        behind = tab.evaluate(
            "([all, t]) => all.map(([g, a]) => coursePredict.thoughtBehind(g, a, t))", [guesses, thoughts]
        )
        read = tab.evaluate("texts => texts.map(coursePredict.readNumber)", NUMBERS)
    assert said == [how_far(*one) for one in guesses]
    assert behind == [thought_behind(guess, answer, thoughts) for guess, answer, _ in guesses]
    assert read == [_read(text) for text in NUMBERS]


def _read(text: str) -> Any:
    try:
        return read_number(text)
    except CourseError:
        return None
