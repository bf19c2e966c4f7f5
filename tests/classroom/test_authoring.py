"""From source to notebooks: every fault has its file and line, the same source gives the same bytes."""

import json
import re
from pathlib import Path

import pytest
from multiples import add_topic

from classroom.authoring import DOTS, AuthoringError, plan, read_cells
from classroom.building import build
from classroom.deck import is_short
from classroom.notebooks import chosen, outline, read_notebook, to_text, topics
from course_utils.files import write_whole
from course_utils.units import CourseError

LESSON = """\
# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # A lesson
#
# with text

# %% slide="fragment" tags=["nbval-ignore-output"]
import os, random
random.random()

# %%
%matplotlib inline
print(os.environ["PYTHONHASHSEED"], os.environ["COURSE_SEED"])
print(os.path.basename(os.getcwd()), {"b", "a", "c"})

# %%
import ipywidgets
ipywidgets.HBox([ipywidgets.IntSlider(value=3), ipywidgets.Image(value=b"png", format="png")])
"""

EXERCISE = '''\
# %% [markdown]
# # An exercise

# %%
import math

# %% [markdown] question="double" points=2 difficulty=1 minutes=5
# ## 1. Twice
# Return twice the number.

# %% answer="double"
def double(n: int) -> int:
    """Twice n."""
    # BEGIN SOLUTION
    twice = 2 * n
    return twice
    # END SOLUTION

# %% check="double"
print(double)if False else None

# %% [markdown] hint="double"
# **My `number` is too small.** Multiply.

# %% [markdown] hint="double"
# **Nothing comes back.** Return it.

# %% graded="double"
print(double(4))

# %% [markdown] question="limit" points=1 difficulty=3 minutes=1
# ## 2. A name
# Set it.

# %% answer="limit"
# BEGIN SOLUTION
limit, other = math.pi, 1
# END SOLUTION

# %% check="limit"
limit

# %% [markdown] hint="limit"
# **a** b

# %% [markdown] hint="limit"
# **c** d

# %% graded="limit"
print(limit)
'''


def write(root: Path, exercise: str | None = EXERCISE, lesson: str | None = LESSON) -> Path:
    folder = add_topic(root, "03_memory")
    for name, text in (("exercise.py", exercise), ("lesson.py", lesson)):
        if text is not None:
            (folder / name).write_text(text)
    return root


def sources(notebook) -> dict[str, str]:
    return {cell.id: cell.source for cell in notebook.cells}


class TestPlan:
    def test_the_learner_gets_dots_where_the_solution_stood(self, tmp_path):
        cells = sources(plan("03_memory", write(tmp_path))["exercises"].notebook)
        assert cells["answer-double"] == f'def double(n: int) -> int:\n    """Twice n."""\n    return {DOTS}'
        assert cells["answer-limit"] == f"limit = {DOTS}\nother = {DOTS}"

    def test_the_solution_has_the_answer_without_markers(self, tmp_path):
        cells = sources(plan("03_memory", write(tmp_path))["solutions"].notebook)
        assert cells["answer-double"].endswith("    twice = 2 * n\n    return twice")
        assert "SOLUTION" not in "".join(cells.values())

    def test_graded_cells_are_in_the_solution_only(self, tmp_path):
        made = plan("03_memory", write(tmp_path))
        exercise, solution = (set(sources(made[folder].notebook)) for folder in ("exercises", "solutions"))
        assert solution - exercise == {"graded-double", "graded-limit"}
        assert exercise < solution

    @pytest.mark.parametrize(
        ("marker", "code"), [("# %% folded=true", "import math"), ("# %%", 'import math\nguess = predict("How?")')]
    )
    def test_a_folded_cell_hides_its_code_on_the_page_and_in_a_lecture(self, marker, code, tmp_path):
        """So does one that asks for a prediction: a screen reader would read the question twice."""
        made = plan("03_memory", write(tmp_path, exercise=EXERCISE.replace("# %%\nimport math", f"{marker}\n{code}")))
        for cells in (made["exercises"].notebook.cells, made["solutions"].notebook.cells):
            (cell,) = (cell for cell in cells if cell.source == code)
            assert cell.metadata.jupyter == {"source_hidden": True}
            assert cell.metadata.transient == {"remove_source": True}
            assert not is_short(cell)

    def test_ids_and_metadata_tell_what_a_cell_is(self, tmp_path):
        made = plan("03_memory", write(tmp_path))["exercises"].notebook
        answer = next(cell for cell in made.cells if cell.id == "answer-double")
        assert answer.metadata.course == {
            "kind": "answer", "question": "double", "points": 2, "stub": answer.source,
        }  # fmt: skip
        assert [c.id for c in made.cells if c.id.startswith(("text", "code", "hint-double"))] == [
            "text-1", "code-1", "hint-double-1", "hint-double-2",
        ]  # fmt: skip
        assert made.metadata.course == {"kind": "exercise", "topic": "03_memory"}

    def test_a_question_says_what_it_is_worth_and_the_title_sums_up(self, tmp_path):
        cells = sources(plan("03_memory", write(tmp_path))["exercises"].notebook)
        assert "*2 points · difficulty 1 of 3 · about 5 minutes*" in cells["question-double"]
        assert "*1 point · difficulty 3 of 3 · about 1 minute*" in cells["question-limit"]
        assert "*2 questions, 3 points, about 6 minutes*" in cells["text-1"]

    def test_hints_are_folded(self, tmp_path):
        hint = sources(plan("03_memory", write(tmp_path))["exercises"].notebook)["hint-double-1"]
        summary = "<summary><b>Hint.</b> My <code>number</code> is too small.</summary>"
        assert hint.startswith(f"<details>\n{summary}\n\nMultiply.")

    def test_slides_and_tags_pass_through(self, tmp_path):
        text, code, *_ = plan("03_memory", write(tmp_path))["notebooks"].notebook.cells
        assert text.metadata == {"slideshow": {"slide_type": "slide"}}
        assert code.metadata == {"slideshow": {"slide_type": "fragment"}, "tags": ["nbval-ignore-output"]}

    def test_it_is_pure(self, tmp_path):
        root = write(tmp_path)
        before = sorted(root.rglob("*"))
        first, second = plan("03_memory", root), plan("03_memory", root)
        assert sorted(root.rglob("*")) == before
        for a, b in zip(first.values(), second.values(), strict=True):
            assert to_text(a.notebook) == to_text(b.notebook)

    def test_a_topic_may_have_a_lesson_only(self, tmp_path):
        made = plan("03_memory", write(tmp_path, exercise=None))
        assert list(made) == ["notebooks"]


def without(part: str) -> str:
    """The exercise without the cell that begins with this marker."""
    cells = re.split(r"(?m)^(?=# %%)", EXERCISE)
    kept = [cell for cell in cells if part not in cell.split("\n")[0]]
    assert len(kept) == len(cells) - 1
    return "".join(kept)


def line_of(text: str, part: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), start=1) if part in line)


FAULTS = {
    "unclosed marker": (EXERCISE.replace("    # END SOLUTION\n", "", 1), "# BEGIN SOLUTION", "stands alone"),
    "END alone": (EXERCISE.replace("    # BEGIN SOLUTION\n", "", 1), "# END SOLUTION", "stands alone"),
    "BEGIN twice": (
        EXERCISE.replace("    twice = 2", "    # BEGIN SOLUTION\n    twice = 2"),
        None,
        "stands alone",
    ),
    "no marker": (
        EXERCISE.replace("    # BEGIN SOLUTION\n", "", 1).replace("    # END SOLUTION\n", "", 1),
        'answer="double"',
        "has no `# BEGIN SOLUTION`",
    ),
    "marker elsewhere": (EXERCISE.replace("print(limit)", "# BEGIN SOLUTION\n1"), None, "outside an answer cell"),
    "solution names nothing": (
        EXERCISE.replace("limit, other = math.pi, 1", "print(1)"),
        None,
        "neither stands in a function nor names",
    ),
    "asked twice": (EXERCISE.replace('question="limit"', 'question="double"'), None, "was already asked at line 7"),
    "no check": (without('check="double"'), 'question="double"', "has 0 check cells"),
    "no answer": (without('answer="double"'), 'question="double"', "has 0 answer cells"),
    "no graded": (without('graded="double"'), 'question="double"', "has 0 graded cells"),
    "one hint": (
        EXERCISE.replace('# %% [markdown] hint="limit"\n# **a** b\n\n', ""),
        'question="limit"',
        "has 1 hint;",
    ),
    "two answers": (
        EXERCISE + '\n# %% answer="limit"\n# BEGIN SOLUTION\nlimit = 3\n# END SOLUTION\n',
        'question="limit"',
        "has 2 answer cells",
    ),
    "order": (without('check="limit"') + '\n# %% check="limit"\nlimit\n', 'question="limit"', "answer, check, graded"),
    "no points": (EXERCISE.replace(" points=2", ""), 'question="double"', "has no points="),
    "no difficulty": (EXERCISE.replace(" difficulty=1", ""), 'question="double"', "has no difficulty="),
    "no minutes": (EXERCISE.replace(" minutes=5", ""), 'question="double"', "has no minutes="),
    "points as text": (EXERCISE.replace("points=2", 'points="2"'), 'question="double"', "must be a whole number"),
    "no points at all": (EXERCISE.replace("points=2", "points=0"), 'question="double"', "at least 1"),
    "difficulty 4": (EXERCISE.replace("difficulty=3", "difficulty=4"), 'question="limit"', "must be 1, 2 or 3"),
    "no heading": (EXERCISE.replace("# ## 1.", "# 1."), 'question="double"', "must begin with a heading"),
    "heading that skips a level": (EXERCISE.replace("# ## 1.", "# ### 1."), 'question="double"', "with a heading: ##"),
    "hint without symptom": (EXERCISE.replace("**a** b", "a b"), None, "begins with the symptom"),
    "check of unknown question": (
        EXERCISE.replace('check="limit"', 'check="limits"'),
        'check="limits"',
        "did you mean 'limit'?",
    ),
    "question no identifier": (EXERCISE.replace('"limit"', '"the limit"'), 'question="the limit"', "needs the name of"),
    "text kind as code": (
        EXERCISE.replace('[markdown] hint="double"', 'hint="double"'),
        'hint="double"',
        "# %% [markdown]",
    ),
    "code kind as text": (
        EXERCISE.replace('# %% check="limit"', '# %% [markdown] check="limit"'),
        None,
        "begins with `# %%`",
    ),
    "two kinds": (EXERCISE.replace('check="limit"', 'check="limit" graded="limit"'), None, "not both"),
    "unknown key": (EXERCISE.replace("minutes=5", "minute=5"), 'question="double"', "did you mean minutes=?"),
    "slide type": (
        EXERCISE.replace("# %%\nimport", '# %% slide="slides"\nimport'),
        'slide="slides"',
        "is no slide type",
    ),
    "folded with no": (EXERCISE.replace("# %%\nimport", "# %% folded=false\nimport"), "folded=false", "must be true"),
    "folded text": (
        EXERCISE.replace("# %% [markdown]\n", "# %% [markdown] folded=true\n", 1),
        "folded=true",
        "unknown key",
    ),
    "nbval tag": (EXERCISE.replace("# %%\nimport", '# %% tags=["nbval-ignore"]\nimport'), None, "unknown tag"),
    "tags as text": (EXERCISE.replace("# %%\nimport", '# %% tags="a"\nimport'), 'tags="a"', "cannot be read"),
    "unquoted": (EXERCISE.replace('answer="limit"', "answer=limit"), "answer=limit", "cannot read"),
    "brackets forgotten": (EXERCISE.replace("# %% [markdown]\n", "# %% markdown\n"), "# %% markdown", "cannot read"),
    "raw cell": (EXERCISE + "\n# %% [raw]\n# x\n", "# %% [raw]", "cannot read"),
    "syntax error": (EXERCISE.replace("print(double(4))", "x = 1\nprint(double(4)"), "print(double(4)", "syntax error"),
    "code that scrolls": (
        EXERCISE.replace("print(double(4))", "x = 1\nprint(double(4))" + "  # wide".ljust(80, "e")),
        "print(double(4))",
        "96 columns of code, a notebook shows 95: break the line",
    ),
    "text before cells": ("import os\n" + EXERCISE, "import os", "text before the first cell"),
    "no cells": ("x = 1\n", "x = 1", "no cells"),
    "code first": (EXERCISE.split("\n\n", 1)[1], None, "begins with a text cell"),
}


class TestFaults:
    @pytest.mark.parametrize("name", FAULTS)
    def test_a_fault_is_one_line_with_file_and_line(self, tmp_path, name):
        text, place, message = FAULTS[name]
        with pytest.raises(AuthoringError) as caught:
            plan("03_memory", write(tmp_path, exercise=text))
        error = str(caught.value)
        found = re.fullmatch(r"lessons/memory/exercise\.py:(\d+): (.+)", error)
        assert found, error
        assert message in found[2]
        assert 1 <= int(found[1]) <= len(text.splitlines())
        if place is not None:
            assert int(found[1]) == line_of(text, place)

    def test_a_lesson_asks_no_questions(self, tmp_path):
        with pytest.raises(AuthoringError, match=r"lesson\.py:22: a lesson has no check cells"):
            plan("03_memory", write(tmp_path, lesson=LESSON.replace("# %%\nimport ipy", '# %% check="a"\nimport ipy')))

    def test_an_unknown_topic_is_named(self, tmp_path):
        root = write(tmp_path)
        with pytest.raises(CourseError, match="no topic '07'; there is 03_memory"):
            build(["07"], root)

    def test_the_one_list_and_the_folders_agree(self, tmp_path):
        with pytest.raises(CourseError, match=r"contents\.txt is missing"):
            topics(tmp_path)
        root = write(tmp_path)
        contents = root / "lessons" / "contents.txt"
        for lines in ("", "03 memory\n04 stride\n", "03 memory\n04 memory\n", "03 memory\nstride\n"):
            contents.write_text(lines)
            with pytest.raises(CourseError, match="a line each"):
                topics(root)

    def test_topics_are_found_by_number_and_by_name(self, tmp_path):
        root = write(tmp_path)
        (add_topic(root, "04_stride") / "lesson.py").write_text(LESSON)
        assert list(topics(root)) == ["03_memory", "04_stride"]
        assert chosen(["4", "04", "stride", "04_stride"], topics(root), "topic") == ["04_stride"]

    def test_a_lesson_says_what_its_exercise_asks(self, tmp_path):
        said = LESSON.replace("# with text", "# {questions}; {minutes} for the exercise")
        told = plan("03_memory", write(tmp_path, lesson=said))["notebooks"].notebook.cells[0].source
        assert "Two questions, 6 minutes; 6 for" in told

    def test_text_may_be_wider_than_code(self):
        wide = "word " * 30
        assert [cell.kind for cell in read_cells(f"# %% [markdown]\n# {wide}\n\n# %%\n{'x' * 95}\n", "f")] == [
            "text",
            "code",
        ]

    def test_an_empty_header_is_no_text_before_cells(self):
        assert [cell.kind for cell in read_cells("\n\n# %%\nx = 1\n", "f")] == ["code"]


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("topic", topics(ROOT))
def test_the_course_s_own_sources_have_no_fault(topic):
    plan(topic, ROOT)


class TestBuild:
    def test_building_twice_changes_no_byte(self, tmp_path, capsys):
        root = write(tmp_path)
        build(["03"], root)
        files = {path: path.read_bytes() for path in root.glob("*/03_memory.ipynb")}
        assert sorted(path.parent.name for path in files) == ["exercises", "notebooks", "solutions"]
        build(["03_memory"], root)
        assert {path: path.read_bytes() for path in files} == files
        assert capsys.readouterr().out.count("unchanged") == 3
        assert not list(root.rglob("*.tmp"))

        lesson = read_notebook(root / "notebooks" / "03_memory.ipynb")
        printed = lesson.cells[2].outputs[0].text
        assert printed.startswith("0 0\nnotebooks ")
        assert [c.execution_count for c in lesson.cells if c.cell_type == "code"] == [1, 2, 3]
        assert "widgets" not in lesson.metadata
        assert lesson.cells[3].outputs[0].data.keys() == {"text/plain"}  # of a widget what reads without its kernel
        assert "execution" not in json.dumps([c.metadata for c in lesson.cells])
        assert "version" not in lesson.metadata.language_info

        made = plan("03_memory", root)
        for folder, planned in made.items():
            committed = read_notebook(root / folder / "03_memory.ipynb")
            assert outline(committed) == outline(planned.notebook)
            assert any(c.get("outputs") for c in committed.cells) == (folder != "exercises")

    def test_from_nothing_the_bytes_are_the_same_where_outputs_do_not_vary(self, tmp_path):
        root = write(tmp_path, exercise=None, lesson=LESSON.replace("\nrandom.random()", ""))
        path = root / "notebooks" / "03_memory.ipynb"
        build([], root)
        first = path.read_bytes()
        path.unlink()
        build([], root)
        assert path.read_bytes() == first

    def test_a_changed_output_is_written(self, tmp_path, capsys):
        root = write(tmp_path, exercise=None, lesson="# %%\nprint(open('../data').read())\n")
        for data in ("one", "two"):
            (root / "data").write_text(data)
            build(["03"], root)
            assert data in (root / "notebooks" / "03_memory.ipynb").read_text()

    def test_what_has_the_same_code_keeps_its_outputs_unless_it_is_named(self, tmp_path, capsys):
        code = "# %%\nprint(open('../data').read())\n"
        root = write(tmp_path, exercise=None, lesson=code)
        (root / "data").write_text("one")
        build([], root)
        (root / "data").unlink()
        build([], root)
        assert capsys.readouterr().out.endswith("03_memory.ipynb: unchanged\n")
        lesson, built = root / "lessons" / "memory" / "lesson.py", root / "notebooks" / "03_memory.ipynb"
        lesson.write_text("# %% [markdown] slide=\"slide\"\n# # New\n\n" + code)
        build([], root)
        text, cell = read_notebook(built).cells
        assert (text.source, cell.execution_count, cell.outputs[0].text) == ("# New", 1, "one\n")
        with pytest.raises(AuthoringError, match="FileNotFoundError"):
            build(["03"], root)
        half = read_notebook(built)
        half.cells[1].execution_count = None
        built.write_text(to_text(half))
        with pytest.raises(AuthoringError, match="FileNotFoundError"):
            build([], root)
        lesson.write_text(code.replace("print", "repr"))
        with pytest.raises(AuthoringError, match="FileNotFoundError"):
            build([], root)

    def test_a_cell_that_fails_is_an_authoring_error_and_leaves_the_old_file(self, tmp_path):
        root = write(
            tmp_path, exercise=None, lesson="# %% [markdown]\n# # T\n\n# %%\n\nx = 1\nraise ValueError('no')\n"
        )
        old = root / "notebooks" / "03_memory.ipynb"
        old.parent.mkdir()
        old.write_text("old")
        with pytest.raises(AuthoringError, match=r"^lessons/memory/lesson\.py:7: ValueError: no$"):
            build(["03"], root)
        assert old.read_text() == "old"
        assert list(old.parent.iterdir()) == [old]

    def test_a_build_that_fails_writes_nothing(self, tmp_path):
        root = write(tmp_path, lesson=None)
        build([], root)
        before = {path: path.read_bytes() for path in root.rglob("*.ipynb")}
        source = root / "lessons" / "memory" / "exercise.py"
        source.write_text(source.read_text() + "\n# %%\nraise ValueError('no')\n")
        (source.parent / "lesson.py").write_text("# %%\nraise ValueError('solutions first')\n")
        with pytest.raises(AuthoringError, match="ValueError: no"):
            build([], root)
        assert {path: path.read_bytes() for path in root.rglob("*.ipynb")} == before

    def test_answers_of_a_learner_are_never_overwritten(self, tmp_path):
        root = write(tmp_path, lesson=None)
        build([], root)
        path = root / "exercises" / "03_memory.ipynb"
        notebook = read_notebook(path)
        next(c for c in notebook.cells if c.id == "answer-limit").source = "limit = 3"
        path.write_text(to_text(notebook))
        with pytest.raises(AuthoringError, match=r"exercises/03_memory\.ipynb holds answers"):
            build([], root)
        assert read_notebook(path) == notebook


BROKEN = {
    "absent": (None, "check the name"),
    "empty": ("  \n", "is empty"),
    "not JSON": ("{", "not valid JSON (line 1)"),
    "conflict": ('{\n<<<<<<< HEAD\n "a": 1\n=======\n', "conflict markers"),
    "a list": ("[1]", "no notebook"),
    "a dictionary": ("{}", "no notebook"),
    "cells of text": ('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": ["a"]}', "no notebook"),
    "bytes": (b"\xff\xfe\x00", "not a text file"),
}


class TestNotebookFiles:
    @pytest.mark.parametrize("name", BROKEN)
    def test_a_broken_file_is_one_line(self, tmp_path, name):
        content, message = BROKEN[name]
        path = tmp_path / "a.ipynb"
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(CourseError) as caught:
            read_notebook(path)
        assert message in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1

    def test_a_folder_is_named(self, tmp_path):
        with pytest.raises(CourseError, match="cannot be read"):
            read_notebook(tmp_path)

    def test_odd_metadata_does_not_refuse_the_rest(self, tmp_path):
        path = tmp_path / "a.ipynb"
        cell = {
            "cell_type": "code",
            "source": ["x = 1\n", "y"],
            "metadata": None,
            "outputs": [],
            "execution_count": None,
        }
        path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [cell, cell]}))
        assert [c.source for c in read_notebook(path).cells] == ["x = 1\ny", "x = 1\ny"]

    def test_an_old_format_is_converted(self, tmp_path):
        path = tmp_path / "a.ipynb"
        cell = {
            "cell_type": "code",
            "language": "python",
            "input": "x = 1",
            "outputs": [],
            "collapsed": False,
            "metadata": {},
        }
        old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"cells": [cell]}]}
        path.write_text(json.dumps(old))
        assert [c.source for c in read_notebook(path).cells] == ["x = 1"]

    def test_nothing_is_left_behind_when_writing_fails(self, tmp_path, monkeypatch):
        path = tmp_path / "a"
        path.write_text("old")

        def fail(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("os.replace", fail)
        with pytest.raises(KeyboardInterrupt):
            write_whole(path, "new")
        assert [p.name for p in tmp_path.iterdir()] == ["a"]
        assert path.read_text() == "old"
