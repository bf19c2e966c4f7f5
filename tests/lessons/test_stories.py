"""What makes a lesson a story: guesses that nothing gives away, cells that the reader changes, few headings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from types import SimpleNamespace

import pytest

from classroom import ROOT
from classroom.authoring import plan
from classroom.notebooks import outline, read_notebook, topics

# A number that is the answer's by chance: lesson, the text it is found in, and why it gives nothing away.
BY_CHANCE: dict[tuple[str, str], str] = {
    ("why_gpus", "256"): "the crossover is measured, and it may be 256 by chance; these are another cell's calls",
    ("why_gpus", "128 lanes"): "the crossover may be 128 by chance; these are a card's lanes",
}

MOST_HEADINGS, FEWEST_GUESSES, MOST_GUESSES, FEWEST_CHANGES = 12, 2, 4, 2
NEAR = 0.01  # of the answer: whoever reads a number this near, in its unit, has read the answer
SCALES = {"KiB": ("KiB", 1.0), "MiB": ("KiB", 1024.0), "GiB": ("KiB", 1024.0**2),
          "ns": ("ns", 1.0), "µs": ("ns", 1e3), "ms": ("ns", 1e6), "s": ("ns", 1e9)}  # fmt: skip
NUMBER = re.compile(r"(?<![\w.,])([-\N{MINUS SIGN}]?\d[\d,]*(?:\.\d+)?)[ \u00a0]*([%\w]*)")


@dataclass(frozen=True)
class Answer:
    """What a reveal holds: a number as it is written there, and its unit."""

    written: str
    unit: str


def value(written: str) -> float:
    return float(written.replace(",", "").replace("\N{MINUS SIGN}", "-"))


def digits(written: str) -> int:
    """Significant digits, zeros at the end of a whole number not counted."""
    plain = written.lstrip("-\N{MINUS SIGN}").replace(",", "")
    plain = plain.replace(".", "").lstrip("0") if "." in plain else plain.strip("0")
    return len(plain)


def told(text: str, answer: Answer) -> str:
    """Where a text gives an answer away, with what stands around it; "" where it does not.

    It does with a number in the answer's unit that is the answer but for rounding, and with any number of three
    significant digits that repeats the answer's, whatever follows. A number of one or two digits without the unit,
    such as a batch or a year, tells nothing.
    """
    right, (unit, scale) = value(answer.written), SCALES.get(answer.unit, (answer.unit, 1.0))
    for match in NUMBER.finditer(text):
        count, follows = digits(match[1]), match[2]
        its_unit, its_scale = SCALES.get(follows, (unit if text.startswith(unit, match.start(2)) else "", scale))
        number = value(match[1]) * (its_scale / scale if its_unit == unit else 1.0)
        if unit == "million" and its_unit != unit:  # written out: 52,128,000
            number /= 1e6
        written = digits(answer.written)  # 52,128,000 repeats 52.13: not more digits than the answer has are compared
        shown = max(1, count if written < 3 else min(count, written))
        rounded = float(f"{number:.{shown}g}") == float(f"{right:.{shown}g}")
        near = abs(number - right) <= NEAR * abs(right)
        if (its_unit == unit and (near or rounded)) or (rounded and shown >= 3 and follows not in SCALES):
            return text[max(0, match.start() - 60) : match.end() + 40].replace("\n", " ")
    return ""


def plain(html: str) -> str:
    """What a reader sees of HTML: its words, those of pictures, and what is read aloud in place of pictures."""
    spoken = re.findall(r'(?:alt|aria-label)="([^"]*)"', html)
    seen = re.sub(r"<style.*?</style>|<script.*?</script>", " ", html, flags=re.DOTALL)
    return unescape("\n".join([*spoken, re.sub(r"<[^>]*>", "\n", seen)]))


def shown(cell) -> str:
    """All that a reader sees of a cell: text, open code, outputs."""
    folded = cell.metadata.get("jupyter", {}).get("source_hidden")
    parts = [] if folded else [cell.source]
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        parts += [output.get("text", ""), data.get("text/plain", ""), plain(data.get("text/html", ""))]
    return "\n".join(parts)


def answers(cell) -> list[Answer]:
    """What the reveals of a cell hold, as their pictures say it: the row that the guess is compared with."""
    found = []
    against = re.search(r'against="([^"]*)"', cell.source)
    for output in cell.outputs:
        html = output.get("data", {}).get("text/html", "")
        if "The answer, for readers without a kernel" in html:
            rows = unescape(re.search(r'alt="([^"]*)"', html)[1]).rstrip(".").split("; ")
            row = next((row for row in rows if against and row.startswith(against[1] + ": ")), rows[0])
            number, _, unit = row.rpartition(": ")[2].partition(" ")
            found.append(Answer(number, unit))
    return found


def calls(source: str, name: str) -> int:
    """How often a function is called by its name."""
    tree = ast.parse(source)
    names = [n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    return names.count(name)


def given_away(topic: str, name: str, notebook) -> Iterator[str]:
    """Answers that stand above their reveals."""
    for place, cell in enumerate(notebook.cells):
        for answer in answers(cell) if cell.cell_type == "code" else ():
            for earlier in notebook.cells[:place]:
                where = told(shown(earlier), answer)
                if where and not any(name == lesson and text in where for lesson, text in BY_CHANCE):
                    yield f"{earlier.id}, '… {where} …', gives away {answer.written} {answer.unit} of {cell.id}"


def counted(notebook) -> Iterator[str]:
    """Guesses, cells to change and headings, where they are not as many as they should be."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    asked, revealed = (sum(calls(cell.source, what) for cell in code) for what in ("predict", "reveal"))
    kept = sum(len(answers(cell)) for cell in code)
    if not FEWEST_GUESSES <= asked <= MOST_GUESSES or not asked == revealed == kept:
        yield f"{asked} guesses, {revealed} reveals, {kept} answers saved: {FEWEST_GUESSES} to {MOST_GUESSES} of each"
    changes = [cell for cell in code if "change" in cell.metadata.get("tags", [])]
    if len(changes) < FEWEST_CHANGES:
        yield f'{len(changes)} cells have tags=["change"]: let the reader change and run {FEWEST_CHANGES}'
    for cell in changes:
        if cell.metadata.get("jupyter", {}).get("source_hidden") or not re.search(r"# .*\bchange\b", cell.source, re.I):
            yield f"{cell.id} is to be changed: leave it open, and say in a comment what to change"
    texts = [re.sub(r"```.*?```", "", c.source, flags=re.DOTALL) for c in notebook.cells if c.cell_type == "markdown"]
    headings = re.findall(r"^#{1,6} .*", "\n".join(texts), re.MULTILINE)
    if len(headings) > MOST_HEADINGS:
        yield f"{len(headings)} headings: at most {MOST_HEADINGS}"


def dropped(notebook) -> Iterator[str]:
    """Pictures that are drawn and not shown: what a figure's function returns, and the cell does not end with."""
    drawing: set[str] = set()
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        statements = ast.parse(cell.source).body
        for node in statements:
            if isinstance(node, ast.ImportFrom) and "figure" in f"{node.module}":
                drawing |= {alias.asname or alias.name for alias in node.names}
        for node in statements[:-1]:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                name = ast.unparse(node.value.func)
                if name in drawing:
                    yield f"{cell.id}: {name}(...) is not the cell's last line, so nobody sees it"


@pytest.mark.parametrize(("topic", "name"), [(topic, folder.name) for topic, folder in topics(ROOT).items()])
def test_a_lesson_is_a_story(topic, name):
    notebook = read_notebook(ROOT / "notebooks" / f"{topic}.ipynb")
    if outline(notebook) != outline(plan(topic, ROOT)["notebooks"].notebook):
        pytest.skip(f"the notebook is older than its source; run `course build {topic[:2]}`")
    faults = [*counted(notebook), *given_away(topic, name, notebook), *dropped(notebook)]
    assert not faults, f"{topic}:\n" + "\n".join(faults)


def test_by_chance_names_lessons_that_there_are():
    names = {folder.name for folder in topics(ROOT).values()}
    assert names >= {lesson for lesson, _ in BY_CHANCE}
    assert all(BY_CHANCE.values())


def test_a_picture_that_no_cell_ends_with_is_found():
    drawn, last = "from course_utils.figures import plane\nplane(1)\n", "plane(2)"
    kinds = {"seen": drawn.replace("plane(1)\n", last), "dropped": drawn + "print(3)"}
    cells = {name: SimpleNamespace(cell_type="code", id=name, source=source) for name, source in kinds.items()}
    found = list(dropped(SimpleNamespace(cells=list(cells.values()))))
    assert len(found) == 1
    assert found[0].startswith("dropped: plane")


@pytest.mark.parametrize(
    ("text", "written", "unit"),
    [
        ("a peak of 10.3 GiB", "10.27", "GiB"),
        ("so it needs 10 GiB", "10.27", "GiB"),
        ("10,516 MiB in all", "10.27", "GiB"),
        ("| 1,176 |", "1,176", "MiB"),
        ("is 1176 of them", "1,176", "MiB"),
        ("falls by 45 %", "45.46", "%"),
        ("falls by 45%", "45.46", "%"),
        ("at batch 0 MiB", "0", "MiB"),
        ("\N{MINUS SIGN}392 MiB", "-392", "MiB"),
        ("0.35 times as fast", "0.35", "times"),
        ("50 tokens/s", "49.92", "tokens/s"),
        ("sum 52,128,000", "52.13", "million"),
        ("44 FLOP a byte", "44.3", "FLOP a byte"),
    ],
)
def test_an_answer_is_found_however_it_is_written(text, written, unit):
    assert told(text, Answer(written, unit))


@pytest.mark.parametrize(
    ("text", "written", "unit"),
    [
        ("a batch of 10", "10.27", "GiB"),
        ("10.27.3 and conv10 and v10.27x", "11.5", "GiB"),
        ("it was 2014, with 0 or 1", "0", "MiB"),
        ("10 MiB", "10.27", "GiB"),
        ("35 times", "0.35", "times"),
        ("11.3 GiB", "10.27", "GiB"),
    ],
)
def test_other_numbers_give_nothing_away(text, written, unit):
    assert not told(text, Answer(written, unit))


def test_pictures_and_their_descriptions_are_read_too():
    html = '<img alt="peak: 3.78 GiB."><svg aria-label="in all 4"><text>5.12 GiB</text></svg><style>6.1 GiB</style>'
    for written, seen in (("3.78", True), ("5.12", True), ("6.1", False)):
        assert bool(told(plain(html), Answer(written, "GiB"))) is seen
