"""environment.yml, .binder/, .devcontainer/, pyproject.toml and constraints.txt must describe the same environment."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
DIRECT = [
    Requirement(text)
    for group in (PROJECT["dependencies"], *(EXTRAS[name] for name in EXTRAS if name != "zoo"))  # no lesson needs a zoo
    for text in group
]


def read_pins() -> dict[str, Version]:
    """Canonical name to pinned version; a line that is not `name==version` or a name twice is an error."""
    pins: dict[str, Version] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        text = line.split("#")[0].strip()
        if not text:
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", text)
        assert match, f"constraints.txt: {line!r} is not name==version"
        name = canonicalize_name(match[1])
        assert name not in pins, f"constraints.txt pins {name} twice"
        pins[name] = Version(match[2])
    return pins


PINS = read_pins()


@pytest.mark.parametrize("requirement", DIRECT, ids=lambda requirement: requirement.name)
def test_every_direct_requirement_is_pinned_within_its_range(requirement: Requirement) -> None:
    pin = PINS.get(canonicalize_name(requirement.name))
    assert pin is not None, f"constraints.txt does not pin {requirement.name}"
    assert requirement.specifier.contains(pin), f"{requirement} does not allow the pinned {pin}"


@pytest.mark.parametrize("requirement", DIRECT, ids=lambda requirement: requirement.name)
def test_every_direct_requirement_has_a_lower_bound(requirement: Requirement) -> None:
    assert any(clause.operator in (">=", "==") for clause in requirement.specifier), requirement


def test_the_pin_of_torch_serves_cpu_and_cuda_builds() -> None:
    assert PINS["torch"] == Version("2.13.0")
    assert PINS["torch"].local is None


def test_no_pin_names_a_pre_release_or_a_local_build() -> None:
    assert [name for name, pin in PINS.items() if pin.is_prerelease or pin.local] == []


def test_conda_environment_installs_this_project_with_the_lab_extra_under_the_constraints() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment["channels"] == ["conda-forge"]

    plain = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    names = {re.split(r"[=<> ]", entry)[0] for entry in plain}
    assert names == {"python", "pip"}, "packages belong in pyproject.toml, the only list"

    python = next(entry for entry in plain if entry.startswith("python="))
    version = python.split("=")[1]
    assert SpecifierSet(PROJECT["requires-python"]).contains(f"{version}.0")

    [pip_lines] = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    assert sorted(pip_lines) == ["-c constraints.txt", "-e .[lab]"]
    assert "lab" in PROJECT["optional-dependencies"]


def installs(script: str) -> list[str]:
    """The commands of a shell script that install something."""
    return [line for line in (ROOT / script).read_text(encoding="utf-8").splitlines() if " install " in line]


def test_binder_installs_the_lab_extra_under_the_constraints() -> None:
    """As repo2docker reads it: with this folder there it looks nowhere else, and runs postBuild in the repository."""
    runtime = re.fullmatch(r"python-(\d+\.\d+)\n", (ROOT / ".binder/runtime.txt").read_text(encoding="utf-8"))
    assert runtime
    assert SpecifierSet(PROJECT["requires-python"]).contains(f"{runtime[1]}.0")
    lines = (ROOT / ".binder/requirements.txt").read_text(encoding="utf-8").splitlines()
    assert [Requirement(line).name for line in lines if not line.startswith("#")] == ["uv"]
    [line] = installs(".binder/postBuild")
    assert "--torch-backend cpu" in line
    assert line.endswith('-c constraints.txt -e ".[lab]"')
    assert os.access(ROOT / ".binder/postBuild", os.X_OK)
    # repo2docker would take it in place of requirements.txt, and conda in place of root's.
    assert not (ROOT / ".binder/environment.yml").exists()


def test_the_dev_container_installs_what_make_lab_does() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    image, version = container["image"].rsplit(":", 1)
    assert image == "python"
    assert SpecifierSet(PROJECT["requires-python"]).contains(f"{version}.0")
    assert container["forwardPorts"] == [8888]
    assert container["postCreateCommand"] == "bash .devcontainer/install.sh"
    assert installs(".devcontainer/install.sh")[-1].endswith("--torch-backend cpu -c constraints.txt torch")
    targets = re.findall(r"^make (\S+)$", (ROOT / ".devcontainer/install.sh").read_text(encoding="utf-8"), re.M)
    assert targets == [".venv/created", ".venv/lab.done"]
    if make := shutil.which("make"):  # both are targets that the Makefile knows
        subprocess.run([make, "--dry-run", "--always-make", *targets], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("script", [".binder/postBuild", ".devcontainer/install.sh"])
def test_the_scripts_that_install_are_valid_shell(script: str) -> None:
    subprocess.run(["bash", "-n", ROOT / script], check=True)


def test_requires_python_is_what_the_documents_promise() -> None:
    supported = SpecifierSet(PROJECT["requires-python"])
    assert [minor for minor in range(8, 16) if supported.contains(f"3.{minor}.0")] == [11, 12, 13]
