"""`course doctor` and the command line: every failure is named with its fix, and no traceback reaches a learner."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from classroom import cli, doctor, hours
from classroom.notebooks import read_notebook
from course_utils.units import CourseError

ROOT = Path(__file__).resolve().parents[2]


def is_installed() -> bool:
    try:
        importlib.metadata.distribution(doctor.DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


installed = pytest.mark.skipif(not is_installed(), reason="the library is on the path but not installed: make test")


@installed
def test_every_requirement_is_met_where_the_tests_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("FAIL")] == []
    for name in ("Python", "torch", "numpy", "nbval", "jupyterlab", "jupyterlab-slideshow", "ipywidgets"):
        assert any(line.startswith(f"OK    {name} ") for line in lines), f"no line for {name}"


@pytest.mark.parametrize(
    ("required", "version", "status"),
    [
        (">=3.11,<3.14", "3.11.0", "OK"),
        (">=3.11,<3.14", "3.13.9", "OK"),
        (">=3.11,<3.14", "3.10.13", "FAIL"),
        (">=3.11,<3.14", "3.14.0", "FAIL"),
    ],
)
def test_python_outside_the_range_fails(
    required: str, version: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.platform, "python_version", lambda: version)
    finding = doctor.check_requirement(f"Python{required}")
    assert finding.status == status
    assert version in finding.text
    assert finding.fix == (doctor.FIX_PYTHON if status == "FAIL" else "")


def test_requirements_present_too_old_and_missing() -> None:
    version = importlib.metadata.version("pytest")
    assert doctor.check_requirement("pytest>=1").status == "OK"
    old = doctor.check_requirement("pytest>=999")
    assert (old.status, old.text) == ("FAIL", f"pytest is {version}; needs >=999.")
    assert "pip install -c constraints.txt" in old.fix
    missing = doctor.check_requirement("no-such-package-for-this-course>=1")
    assert (missing.status, missing.text) == ("FAIL", "no-such-package-for-this-course is not installed.")
    assert missing.fix


def test_a_build_of_torch_with_a_local_version_is_in_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.13.0+cu130")
    assert doctor.check_requirement("torch>=2.11,<2.14").status == "OK"


def test_the_lab_extra_is_required_and_the_test_extra_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: {"Requires-Python": ">=3.11"})
    monkeypatch.setattr(
        importlib.metadata,
        "requires",
        lambda name: ["pytest", 'absent-lab-tool>=1; extra == "lab"', 'absent-test-tool>=1; extra == "test"'],
    )
    findings = list(doctor.check_requirements())
    assert [(finding.status, finding.text.split()[0]) for finding in findings] == [
        ("OK", "Python"),
        ("OK", "pytest"),
        ("FAIL", "absent-lab-tool"),
    ]


def test_a_library_that_is_not_installed_is_one_failure_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISTRIBUTION", "no-such-distribution")
    [finding] = doctor.check_requirements()
    assert finding.status == "FAIL"
    assert 'pip install -c constraints.txt -e ".[lab]"' in finding.fix


def test_torch_that_does_not_load_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    finding = doctor.check_torch()
    assert finding.status == "FAIL"
    assert finding.fix
    assert "\n" not in str(finding)


def test_torch_that_computes_wrongly_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda self, other: self + other)
    assert doctor.check_torch().status == "FAIL"


def write_kernel(folder: Path, interpreter: str) -> None:
    kernel = folder / "kernels" / "python3"
    kernel.mkdir(parents=True)
    spec = {"argv": [interpreter, "-m", "ipykernel_launcher"], "display_name": "Python 3", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")


def test_a_kernel_of_another_environment_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other" / "bin" / "python"
    other.parent.mkdir(parents=True)
    other.symlink_to(sys.executable)  # as virtual environments of one Python are: same program, another environment
    write_kernel(tmp_path, str(other))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    finding = doctor.check_kernel()
    assert finding.status == "FAIL"
    assert str(other) in finding.text
    assert "ipykernel install --sys-prefix" in finding.fix


@pytest.mark.parametrize("interpreter", [sys.executable, "python", "python3"])
def test_a_kernel_of_this_environment_is_accepted(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_kernel(tmp_path, interpreter)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    assert doctor.check_kernel().status == "OK"


def test_folders_missing_and_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [nowhere] = doctor.check_folders(None)
    assert nowhere.status == "FAIL"

    (tmp_path / "notebooks").mkdir()
    notebooks, exercises, work = doctor.check_folders(tmp_path)
    assert (notebooks.status, work.status) == ("OK", "OK")
    assert exercises.status == "FAIL"
    assert "git checkout" in exercises.fix

    def refuse(dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))

    # Not by chmod: a container's root writes everywhere.
    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    *_, work = doctor.check_folders(tmp_path)
    assert work.status == "FAIL"
    assert "permissions" in work.fix
    monkeypatch.undo()
    (tmp_path / "work").touch()
    *_, work = doctor.check_folders(tmp_path)
    assert (work.status, work.fix) == ("FAIL", "rename it")


def test_the_folders_check_leaves_nothing_behind(tmp_path: Path) -> None:
    for name in ("notebooks", "exercises"):
        (tmp_path / name).mkdir()
    assert [finding.status for finding in doctor.check_folders(tmp_path)] == ["OK", "OK", "OK"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_machine_lines_never_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    findings = [*doctor.describe_machine(), *doctor.describe_tools()]
    assert {finding.status for finding in findings} == {"info"}
    assert any("--no-sandbox" in finding.text for finding in findings)


def test_one_failure_makes_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    findings = [doctor.Finding("OK", "fine"), doctor.Finding("FAIL", "broken.", "mend it"), doctor.Finding("info", "x")]
    monkeypatch.setattr(doctor, "examine_setup", lambda root: iter(findings[:2]))
    monkeypatch.setattr(doctor, "describe_tools", lambda: iter(findings[2:]))
    assert doctor.doctor_command((), ROOT) == 1
    assert capsys.readouterr().out.splitlines() == [
        "OK    fine",
        "FAIL  broken. Fix: mend it",
        "info  x",
        "1 of the course's requirements fails; see the FAIL lines above.",
    ]


def test_a_notebook_shows_what_fails_first_with_its_fix() -> None:
    fine, broken = doctor.Finding("OK", "torch <2>"), doctor.Finding("FAIL", "broken.", "mend it")
    good, bad = doctor.Report((fine, fine)), doctor.Report((fine, broken, doctor.Finding("info", "2 cores")))
    assert repr(bad).splitlines()[1:] == [
        "FAIL  broken. Fix: mend it",
        "info  2 cores",
        "1 of the course's requirements fails; see the FAIL lines above.",
    ]
    html = bad._repr_html_()
    assert "1 of the course&#x27;s requirements fails; each with its fix below." in html
    assert html.index("broken.") < html.index("mend it") < html.index("torch &lt;2&gt;") < html.index("2 cores")
    assert "Everything the course needs is here." in good._repr_html_()
    assert good._repr_html_().count("<tr") == 1


@installed
def test_a_notebook_is_shown_the_set_up_without_what_only_authors_need() -> None:
    shown = doctor.show()
    assert {finding.status for finding in shown.findings} == {"OK", "info"}
    assert "sandbox" not in repr(shown)


def test_lesson_00_is_committed_with_a_set_up_in_order_and_no_path_of_a_machine() -> None:
    lesson = read_notebook(ROOT / "notebooks" / "00_start_here.ipynb")
    [cell] = [cell for cell in lesson.cells if "doctor.show()" in cell.source]
    said = cell.outputs[0].data["text/plain"]
    assert said.endswith("Everything the course needs is here.")
    assert "/" not in said


# ---------------------------------------------------------------------------------------------------------------------
# The command line


def test_the_command_line_imports_no_heavy_package() -> None:
    program = (
        "import sys, classroom.cli, classroom.doctor; "
        "print(sorted({'torch', 'matplotlib', 'numpy', 'packaging'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_find_root_from_inside_from_outside_and_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lessons", "notebooks", "classroom"):
        (tmp_path / "clone" / name).mkdir(parents=True)
    assert cli.find_root(tmp_path / "clone" / "notebooks") == tmp_path / "clone"
    assert cli.find_root(tmp_path) == ROOT
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "site-packages" / "classroom" / "cli.py"))
    assert cli.find_root(tmp_path) is None


def replace_room(monkeypatch: pytest.MonkeyPatch, name: str, **functions: object) -> None:
    room = types.ModuleType(name)
    room.__dict__.update(functions)
    monkeypatch.setitem(sys.modules, name, room)


def test_check_and_progress_get_their_arguments_untouched_and_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, list[str]]] = []

    def check(args: list[str], root: Path) -> int:
        assert root == ROOT
        calls.append(("check", args))
        return 1

    def progress(args: list[str], root: Path) -> int:
        assert root == ROOT
        calls.append(("progress", args))
        return 0

    replace_room(monkeypatch, "classroom.grading.report", check_command=check, progress_command=progress)
    monkeypatch.chdir(ROOT / "tests")
    assert cli.main(["check", "03"]) == 1
    assert cli.main(["check", "a folder/03_memory.ipynb", "--option", "-h"]) == 1
    assert cli.main(["progress"]) == 0
    assert calls == [
        ("check", ["03"]),
        ("check", ["a folder/03_memory.ipynb", "--option", "-h"]),
        ("progress", []),
    ]


def test_build_gets_the_topics_and_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[list[str], Path]] = []
    monkeypatch.setattr(hours, "DOCUMENTS", ())
    monkeypatch.setattr(hours, "build", lambda topics, root: calls.append((topics, root)))
    monkeypatch.chdir(ROOT / "tests")
    assert cli.main(["build"]) == 0
    assert cli.main(["build", "03", "04"]) == 0
    assert calls == [([], ROOT), (["03", "04"], ROOT)]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "site-packages" / "classroom" / "cli.py"))
    assert cli.main(["build"]) == 2


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            CourseError("lessons/memory/exercise.py:7: no END SOLUTION"),
            2,
            "course: lessons/memory/exercise.py:7: no",
        ),
        (KeyboardInterrupt(), 130, "course: interrupted"),
    ],
)
def test_errors_are_one_line_on_stderr(
    error: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(topics: list[str], root: Path) -> None:
        raise error

    monkeypatch.setattr(hours, "build", fail)
    assert cli.main(["build", "03"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith(line)


@pytest.mark.parametrize("argv", [[], ["bake"], ["--fast"], ["doctor", "--fast"], ["build", "--fast"], ["work", "03"]])
def test_a_wrong_command_line_exits_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == 2
    assert "usage: course" in capsys.readouterr().err


def test_help_lists_what_works_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("    ") and line[4] != " "]
    learners, others = ["lab", "work", "doctor"], ["build", "new"]
    assert listed == [*learners, *others, "check", "progress", "grade", "trace", "slides", "site", "links", "record"]
