"""A small exercise of six alike questions, without torch, for tests of marking: `one(n)` is 1 * n, and so on."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from nbformat import NotebookNode

from classroom.building import build
from classroom.grading.graft import Graft
from classroom.grading.library import trusted_imports
from classroom.grading.mark import Marks, decide, explain
from classroom.grading.run import Limits
from classroom.grading.sandbox import Sandbox
from classroom.notebooks import parse_notebook, read_notebook

NAMES = ("one", "two", "three", "four", "five", "six")

SOURCE = """\
# %% [markdown]
# # Multiples

# %%
from types import SimpleNamespace

from classroom.questions.core import Slip
from classroom.questions.functions import Check
from classroom.questions.graded import Graded

NAMES = ("one", "two", "three", "four", "five", "six")

def checks(name, factor):
    slip = Slip("added", lambda n: n + factor, "You added; multiply.")
    return Check(name, lambda n: n * factor, [(5,), (7,)], [slip], "good")

check = SimpleNamespace(**{name: checks(name, i + 1) for i, name in enumerate(NAMES)})

def inputs(draw):
    return [(draw.randint(10, 99),), (-3,)]

graded = SimpleNamespace(**{name: Graded(name, inputs) for name in NAMES})
"""
QUESTION = """
# %% [markdown] question="{name}" points={points} difficulty=1 minutes=1
# ## {points}. Times {name}

# %% answer="{name}"
def {name}(n):
    # BEGIN SOLUTION
    return n * {points}
    # END SOLUTION

# %% check="{name}"
check.{name}({name})

# %% [markdown] hint="{name}"
# **a** b

# %% [markdown] hint="{name}"
# **c** d

# %% graded="{name}"
graded.{name}({name})
"""


def add_topic(root: Path, topic: str) -> Path:
    """The new folder of a topic such as "01_multiples", named in the course's list."""
    folder = root / "lessons" / topic.partition("_")[2]
    if not folder.exists():
        folder.mkdir(parents=True)
        with (root / "lessons" / "contents.txt").open("a") as contents:
            contents.write(topic.replace("_", " ", 1) + "\n")
    return folder


def build_course(root: Path) -> Path:
    """A course of this one exercise, built."""
    questions = [QUESTION.format(name=name, points=i + 1) for i, name in enumerate(NAMES)]
    text = SOURCE + "".join(questions)
    (add_topic(root, "01_multiples") / "exercise.py").write_text(text)
    for path, data in _built(text).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


@cache
def _built(text: str) -> dict[Path, bytes]:
    """What `course build` makes of this exercise, by its place: executed once for all files of tests."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        source = add_topic(root, "01_multiples") / "exercise.py"
        source.write_text(text)
        build([], root)
        made = (path for path in root.rglob("*") if path.is_file() and not path.is_relative_to(root / "lessons"))
        return {path.relative_to(root): path.read_bytes() for path in made}


def cell_of(notebook: NotebookNode, identity: str) -> NotebookNode:
    return next(cell for cell in notebook.cells if cell.id == identity)


def answer(notebook: NotebookNode, **sources: str) -> NotebookNode:
    """The exercise with these texts in its answer cells."""
    for name, source in sources.items():
        cell_of(notebook, f"answer-{name}").source = source
    return notebook


def right(name: str) -> str:
    return f"def {name}(n):\n    return n * {NAMES.index(name) + 1}"


def mark_stranger(grafted: Graft, limits: Limits, sandbox: Sandbox | None) -> Marks:
    """The marks of answers that are not trusted, in the two steps of a class."""
    marks, found = decide(grafted, limits, sandbox)
    return explain(grafted, marks, found, limits, sandbox)


def wrong(name: str) -> str:
    return f"def {name}(n):\n    return n + {NAMES.index(name) + 1}"


def imports_of_every_exercise() -> frozenset[str]:
    """Of the course itself: what a sandbox is made with that is to run any exercise."""
    solutions = Path(__file__).resolve().parents[1].glob("solutions/*.ipynb")
    return frozenset[str]().union(*(trusted_imports(read_notebook(path)) for path in solutions))


@cache
def notebooks() -> tuple[NotebookNode, NotebookNode]:
    """The exercise and its solution; not to be changed."""
    with TemporaryDirectory() as folder:
        root = build_course(Path(folder))
        exercise, solution = (
            parse_notebook((root / name / "01_multiples.ipynb").read_bytes(), name)
            for name in ("exercises", "solutions")
        )
        return exercise, solution
