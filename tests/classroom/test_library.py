"""What of the library and of the machine's files lies in a stranger's sandbox: what trusted cells need, no answer."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from multiples import notebooks

from classroom.grading import library, sandbox
from classroom.grading.library import STUB, copy_without_answers, topic_checks, trusted_imports
from classroom.grading.sandbox import ALWAYS_WARM, sandboxed, to_warm
from classroom.notebooks import read_notebook

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))
IMPORT_ALL = """\
import os, sys, torch, classroom, course_utils, lessons
for folder, *lines in (line.split("\\0") for line in sys.stdin.read().split("\\1")):
    child = os.fork()
    if child == 0:
        sys.path.insert(0, folder)
        ours = ("classroom", "course_utils", "lessons")
        for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
            del sys.modules[name]
        try:
            for line in lines:
                exec(line, {})
            import classroom
            assert classroom.__file__.startswith(folder)
            os._exit(0)
        except BaseException as error:
            print(folder, type(error).__name__, error, flush=True)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
"""


def import_lines(path: Path) -> list[str]:
    """The lines of trusted cells that import something."""
    cells = [cell for cell in read_notebook(path).cells if cell.cell_type == "code"]
    trusted = [cell for cell in cells if (cell.metadata.get("course") or {}).get("kind") != "answer"]
    nodes = [node for cell in trusted for node in ast.walk(ast.parse(cell.source))]
    return [ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, frozenset[str]]]:
    """The folder with the part of each exercise, and what each imports."""
    folder = tmp_path_factory.mktemp("parts")
    names = {path.stem: trusted_imports(read_notebook(path)) for path in SOLUTIONS}
    return folder, {exercise: copy_without_answers(folder / exercise, own) for exercise, own in names.items()}


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_every_exercise_imports_all_it_needs_from_its_part_of_the_library(copied) -> None:
    folder, _ = copied
    told = ["\0".join([str(folder / path.stem), *import_lines(path)]) for path in SOLUTIONS]
    ran = subprocess.run(
        [sys.executable, "-B", "-c", IMPORT_ALL], input="\1".join(told), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_file_of_a_lesson_is_shown_that_checks_alone_lead_to(copied, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold what only checks know: a reference, or a slip a word away from one."""
    folder, _ = copied
    for path in SOLUTIONS:
        own, names = folder / path.stem, trusted_imports(read_notebook(path))
        monkeypatch.setattr(library, "ROOT", own)  # where checks are stubs, and lead nowhere
        stubs = topic_checks(own)
        packages = {path.with_name("__init__.py") for path in stubs}
        led = library.Finder({*names, library.ZYGOTE}).files() | {*stubs} | packages
        assert not any(ast.parse(path.read_text()).body[1:] for path in packages)  # a docstring is all they hold
        assert not {path.relative_to(folder) for path in {*(own / "lessons").rglob("*.py")} - led}


def test_an_exercise_has_no_answer_and_nothing_that_it_does_not_lead_to(copied) -> None:
    folder, imported = copied
    texts = {path.read_text() for path in topic_checks()}
    assert len(texts) >= 10
    shown = {}
    for path in SOLUTIONS:
        files = {str(one.relative_to(folder / path.stem)): one for one in _files(folder / path.stem)}
        assert not texts & {one.read_text() for one in files.values()}
        shown[path.stem] = set(files)
    every = set.union(*shown.values())
    assert not {name for name in every if name.startswith(("lessons/shared/parallel", "lessons/many_gpus/distributed"))}
    assert not {name for name in every if name.startswith("course_utils/figures")}
    assert not {name for name in every if name.endswith(("claims.py", "explorer.py", "answers.py", "exercise.py"))}
    assert not {f"classroom/grading/{name}.py" for name in ("mark", "secret", "batch", "library")} & every
    assert "course_utils/trace/__init__.py" in shown["12_capstone"]
    assert "course_utils/trace/__init__.py" not in shown["03_memory"]
    assert "course_utils/machine/devices.csv" in shown["12_capstone"]
    for topic, names in shown.items():  # of the graded cells, those of this exercise
        assert {name for name in names if name.endswith("/graded.py")} == {
            "classroom/questions/graded.py", f"lessons/{topic[3:]}/graded.py",
        }  # fmt: skip
    assert all("torch._dynamo" in to_warm(names) for names in imported.values())
    assert [topic for topic, names in imported.items() if "course_utils.trace" in to_warm(names)] == [
        "08_half_precision", "12_capstone",
    ]  # fmt: skip


def test_an_exercise_without_torch_waits_for_none(tmp_path: Path) -> None:
    imported = copy_without_answers(tmp_path, trusted_imports(notebooks()[1]))
    assert to_warm(imported) == [*ALWAYS_WARM]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.skipif(bool(sandbox.why_not()), reason=f"sandbox: {sandbox.why_not()}")
@pytest.mark.parametrize("course", ["course", "lib/course", "lib/python3/site-packages", ""])
@pytest.mark.parametrize("work", ["lib/python3/work", "work"])
def test_no_answer_and_no_submission_is_seen_wherever_it_lies(
    course: str, work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A course below Python's folder, editable or copied into site-packages, and the class beside it."""
    prefix = tmp_path / "python"
    site, root = prefix / "lib/python3/site-packages", prefix / course if course else tmp_path / "elsewhere"
    for path, text in (
        (prefix / "lib/python3/os.py", "visible stdlib"),
        (site / "torch/__init__.py", "visible package"),
        (root / "lessons/memory/checks.py", "secret check"),
        (root / "solutions/03_memory.ipynb", "secret solution"),
        (prefix / work / "class/anna.ipynb", "secret submission"),
        (prefix / work / "class.zip", "secret archive"),
        (prefix / work / "out/reference.ipynb", "secret reference"),
        (tmp_path / "package/lessons/memory/checks.py", STUB),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if course.endswith("site-packages"):
        shutil.rmtree(root / "solutions")  # a copy has none
    (tmp_path / "s").mkdir()
    for name in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, name, str(prefix))
    monkeypatch.setattr(sys, "path", [str(prefix / "lib/python3"), str(site)])
    monkeypatch.setattr(sandbox, "ROOT", root)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(site if "lib" in name else prefix / "lib/python3"))
    hidden = [str(prefix / work / name) for name in ("class", "class.zip", "out")]
    command = ["/bin/sh", "-c", f"cd {tmp_path}; cat $(find . /course -type f); true"]
    ran = subprocess.run(
        sandboxed(command, tmp_path / "s", tmp_path / "package", hidden), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "secret" not in ran.stdout
    assert "visible stdlib" in ran.stdout
    assert "visible package" in ran.stdout


def test_magic_lines_of_a_set_up_cell_are_passed_over() -> None:
    notebook = read_notebook(SOLUTIONS[0])
    (first, *_) = (cell for cell in notebook.cells if cell.cell_type == "code")
    first.source = "%matplotlib inline\n!ls\nfrom course_utils.units import GIB"
    assert "course_utils.units.GIB" in trusted_imports(notebook)
