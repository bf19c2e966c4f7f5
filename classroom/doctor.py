"""`course doctor`: one line per requirement of the course, each failure with its fix.

Must run where something is missing, so everything outside the standard library is imported inside the check that needs
it. What is required is read from the installed project's metadata, hence from pyproject.toml, and written down nowhere
else.
"""

import argparse
import contextlib
import importlib.metadata
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from pathlib import Path
from typing import Literal

from classroom import ROOT
from course_utils.units import format_bytes

DISTRIBUTION, PYTHON = "course-utils", "Python"
FIX_INSTALL = 'in the course\'s folder run: python -m pip install -c constraints.txt -e ".[lab]"'
FIX_PYTHON = "install a Python in that range, remove the folder .venv, run make lab again"


@dataclass(frozen=True)
class Finding:
    """One line of the report. `OK` and `FAIL` judge a requirement; `info` is worth knowing and never fails."""

    status: Literal["OK", "FAIL", "info"]
    text: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f" Fix: {self.fix}" if self.fix else ""
        return f"{self.status:<5} {self.text}{fix}"


def examine_setup(root: Path | None) -> Iterator[Finding]:
    """The findings that matter to a learner, as they are made. `root`: the course's folder, None where not found."""
    yield from check_requirements()
    yield check_torch()
    yield check_kernel()
    yield from check_folders(root)
    yield from describe_machine()


def check_requirements() -> Iterator[Finding]:
    """Python, and each direct requirement of the project and of its extra `lab`: present, and in the range stated."""
    try:
        metadata = importlib.metadata.metadata(DISTRIBUTION)
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        yield Finding("FAIL", f"the course's library is not installed in {sys.prefix}.", FIX_INSTALL)
        return
    try:
        from packaging.requirements import Requirement
    except ImportError:
        yield Finding("FAIL", "packaging is not installed, so no version could be compared.", FIX_INSTALL)
        return
    for text in (f"{PYTHON}{metadata['Requires-Python']}", *requirements):
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": "lab"}):
            yield check_requirement(text)


def check_requirement(text: str) -> Finding:
    """Whether what one requirement line names, such as `torch>=2.11,<2.14` or Python, is here and in its range."""
    from packaging.requirements import Requirement

    name, required = Requirement(text).name, Requirement(text).specifier
    try:
        version = platform.python_version() if name == PYTHON else importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding("FAIL", f"{name} is not installed.", FIX_INSTALL)
    if required.contains(version, prereleases=True):
        return Finding("OK", f"{name} {version}")
    return Finding("FAIL", f"{name} is {version}; needs {required}.", FIX_PYTHON if name == PYTHON else FIX_INSTALL)


def check_torch() -> Finding:
    """Whether torch imports, multiplies, and differentiates; being installed does not yet mean it loads."""
    try:
        import torch

        ones = torch.ones(3, 3, requires_grad=True)
        (ones @ ones).sum().backward()
        correct = ones.grad is not None and float(ones.grad.sum()) == 54.0  # each of 9 entries is used 6 times
    except (ImportError, OSError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        fix = "reinstall it: python -m pip install --force-reinstall -c constraints.txt torch"
        if sys.platform == "win32":
            fix += "; on Windows it also needs the Microsoft Visual C++ Redistributable"
        return Finding("FAIL", f"torch does not work: {reason}.", fix)
    if not correct:
        return Finding("FAIL", "torch computes a wrong gradient of a 3×3 product.", "reinstall torch")
    return Finding("OK", "torch computes a product and its gradient")


def check_kernel() -> Finding:
    """Whether the notebooks' kernel, `python3`, runs the Python of this very environment."""
    fix = f"{sys.executable} -m ipykernel install --sys-prefix"
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        return Finding("FAIL", "no Jupyter kernel: jupyter_client is not installed.", FIX_INSTALL)
    try:
        command = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return Finding("FAIL", "Jupyter knows no kernel named python3.", fix)
    # Jupyter itself replaces a bare `python` by the interpreter it runs in.
    bare = command.removesuffix(".exe") in {"python", "python3", f"python3.{sys.version_info.minor}"}
    # Folders are compared unresolved: an environment's interpreter is a link to the one it was made with.
    one, other = (os.path.normcase(os.path.dirname(os.path.abspath(path))) for path in (command, sys.executable))
    if bare or (one == other and os.path.exists(command) and os.path.samefile(command, sys.executable)):
        return Finding("OK", "the Jupyter kernel python3 runs this environment's Python")
    return Finding("FAIL", f"the Jupyter kernel python3 runs {command}, not {sys.executable}.", fix)


def check_folders(root: Path | None) -> Iterator[Finding]:
    """Whether `root` has `notebooks` and `exercises`, and `work`, for the learner's copies, is there or can be made."""
    if root is None:
        yield Finding("FAIL", "the course's folder is not here.", "change to the folder you cloned, and run it there")
        return
    for name in ("notebooks", "exercises"):
        if (root / name).is_dir():
            yield Finding("OK", f"the folder {name} is here")
        else:
            yield Finding("FAIL", f"there is no folder {root / name}.", f"restore it: git checkout -- {name}")
    work = root / "work"
    try:
        tempfile.TemporaryFile(dir=work if work.exists() else root).close()
        yield Finding("OK", "your copies can be written in the folder work")
    except NotADirectoryError:
        yield Finding("FAIL", f"{work} is no folder.", "rename it")
    except OSError:
        yield Finding("FAIL", f"{work} cannot be written.", "change its owner or permissions, or clone elsewhere")


def describe_machine() -> Iterator[Finding]:
    """What the machine has that the lessons can use and do not need: CUDA, cores, memory."""
    with contextlib.suppress(ImportError, OSError):  # check_torch has said so
        import torch

        if torch.cuda.is_available():
            properties = torch.cuda.get_device_properties(0)
            yield Finding("info", f"GPU: {properties.name}, {format_bytes(properties.total_memory, 1)}")
        else:
            yield Finding("info", "GPU: none that torch can use; no part of the course needs one")
    with contextlib.suppress(ImportError):  # check_requirements has said so
        import psutil

        memory = psutil.virtual_memory()
        free = f"{format_bytes(memory.total, 1)} of memory, {format_bytes(memory.available, 1)} of it free"
        yield Finding("info", f"{os.cpu_count()} CPU cores, {free}")


def describe_tools() -> Iterator[Finding]:
    """What a teacher can use besides: a sandbox for marking."""
    try:
        from classroom.grading.sandbox import why_not
    except ImportError:
        return  # check_requirements has said so
    problem = why_not()
    said = f"none; {problem}" if problem else "bubblewrap works: `course grade` can mark strangers' notebooks"
    yield Finding("info", f"sandbox: {said}")


def summary(failures: int) -> str:
    """The report's last line in the terminal, its first in a notebook."""
    if not failures:
        return "Everything the course needs is here."
    return f"{failures} of the course's requirements {'fails' if failures == 1 else 'fail'}; see the FAIL lines above."


def doctor_command(arguments: Sequence[str], root: Path | None) -> int:
    """Print the findings as they are made, then a summary. Returns the exit code: 1 when a requirement fails."""
    argparse.ArgumentParser(prog="course doctor").parse_args(arguments)
    failures = 0
    for finding in chain(examine_setup(root), describe_tools()):
        print(finding, flush=True)
        failures += finding.status == "FAIL"
    print(summary(failures))
    return 1 if failures else 0


@dataclass(frozen=True)
class Report:
    """Findings as a notebook shows them: what fails with its fix first, what is in order in one row.

    Where nothing fails, all but the summary is folded: a reader who came for a lesson need not pass it.
    """

    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        failures = [finding for finding in self.findings if finding.status == "FAIL"]
        return "\n".join([*map(str, self.findings), summary(len(failures))])

    def _repr_html_(self) -> str:
        failed, fine, known = ([f for f in self.findings if f.status == one] for one in ("FAIL", "OK", "info"))
        rows = [("FAIL", f"{escape(f.text)}<br><b>Fix:</b> {escape(f.fix)}") for f in failed]
        if fine:
            rows.append(("OK", escape(", ".join(finding.text for finding in fine))))
        rows += [("info", escape(finding.text)) for finding in known]
        body = "".join(
            f"<tr style='vertical-align:top'><th scope='row'>{status}</th><td style='text-align:left'>{text}</td></tr>"
            for status, text in rows
        )
        said = summary(len(failed)).replace("see the FAIL lines above", "each with its fix below")
        table = f"<table style='font-size:inherit'><tbody>{body}</tbody></table>"
        return f"<details{' open' if failed else ''}><summary><b>{escape(said)}</b></summary>{table}</details>"


def show() -> Report:
    """What `course doctor` checks of a learner's set-up, as the last value of a notebook's cell."""
    return Report(tuple(examine_setup(ROOT if (ROOT / "notebooks").is_dir() else None)))
