"""`course lab`: what JupyterLab is started with. What that leads to, the browser tests show."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from classroom import ROOT, cli, doctor, lab, workspace


def test_the_environments_scripts_come_first_and_settings_are_added() -> None:
    made = lab.environment({"PATH": "elsewhere", "JUPYTER_CONFIG_PATH": "mine", "HOME": "here"})
    scripts = sysconfig.get_path("scripts")
    assert made["PATH"].split(os.pathsep) == [scripts, "elsewhere"]
    assert shutil.which("course", path=scripts)
    own, mine = made["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert mine == "mine"
    assert json.loads((Path(own) / "labconfig" / "default_setting_overrides.json").read_text(encoding="utf-8"))
    assert made["HOME"] == "here"


def test_an_option_takes_the_place_of_the_courses_own(tmp_path: Path) -> None:
    command = lab.jupyterlab(tmp_path)
    assert f"--ServerApp.root_dir={tmp_path}" in command
    assert f"--LabApp.default_url={lab.FIRST}" in command
    mine = ["--no-browser", "--notebook-dir=elsewhere", "--LabApp.default_url=/lab"]
    command = lab.jupyterlab(tmp_path, mine)
    assert command[-3:] == mine
    assert not any(part.startswith(("--ServerApp.root_dir", "--LabApp.default_url=/lab/tree")) for part in command)


def test_it_stops_where_a_requirement_fails_and_fills_work_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(workspace, "bring_up_to_date", lambda root: done.append("filled") or [])
    monkeypatch.setattr(lab, "run", lambda command, variables: done.append(command[-1]) or 0)
    for failed in (1, 0):
        monkeypatch.setattr(doctor, "doctor_command", lambda arguments, root, failed=failed: failed)
        assert lab.lab_command(["--port=9999"], tmp_path) == failed
        assert done == ([] if failed else ["filled", "--port=9999"])


@pytest.mark.parametrize("system", ["posix", "nt"])
def test_jupyterlabs_exit_code_is_its_own(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, where a process cannot be replaced, Ctrl-C is left to JupyterLab."""
    waits = iter([KeyboardInterrupt(), 3])

    class Process:
        def __init__(self, command: list[str], env: dict[str, str]) -> None:
            assert (command, env) == (["python", "-m", "jupyterlab"], {"PATH": "here"})

        def wait(self) -> int:
            said = next(waits)
            if isinstance(said, int):
                return said
            raise said

    def replaced(program: str, command: list[str], variables: dict[str, str]) -> None:
        assert (program, command, variables) == ("python", ["python", "-m", "jupyterlab"], {"PATH": "here"})
        raise SystemExit(3)

    monkeypatch.setattr(lab, "os", SimpleNamespace(name=system, execve=replaced))
    monkeypatch.setattr(lab.subprocess, "Popen", Process)
    try:
        code: object = lab.run(["python", "-m", "jupyterlab"], {"PATH": "here"})
    except SystemExit as ended:
        code = ended.code
        assert system == "posix"
    assert code == 3


def test_everything_that_opens_the_lessons_does_it_by_course_lab(capsys: pytest.CaptureFixture[str]) -> None:
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^lab: .*\n\t@\$\(BIN\)/python -m classroom\.cli lab \$\(LAB\)$", make, re.MULTILINE)
    assert (ROOT / lab.FIRST.removeprefix("/lab/tree/")).is_file()
    assert cli.main(["lab", "--help"]) == 0
    assert "usage: course lab" in capsys.readouterr().out
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert container["remoteEnv"]["PATH"].startswith("${containerWorkspaceFolder}/.venv/bin:")
    assert "course work" in (ROOT / ".devcontainer/install.sh").read_text(encoding="utf-8")
    assert "classroom.cli work" in (ROOT / ".binder/postBuild").read_text(encoding="utf-8")
    ignored = subprocess.run(["git", "check-ignore", "work/notebooks/x.ipynb"], cwd=ROOT, capture_output=True)
    assert ignored.returncode in (0, 128)  # 128: this copy of the course is no repository
