"""`course lab`: JupyterLab on a learner's own copies, with `course` on the path of its terminals.

The settings that learners begin with lie in `classroom/jupyter/labconfig`; a learner's own come before them, and the
browser tests start with the same ones.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

FIRST = "/lab/tree/notebooks/00_start_here.ipynb"
CONFIG = Path(__file__).with_name("jupyter")
USAGE = "usage: course lab [OPTIONS OF JUPYTERLAB]\n\nBrings work/ up to date, opens JupyterLab on your copies in it."


def lab_command(options: Sequence[str], root: Path) -> int:
    """Check the set-up, bring `work/` up to date, run JupyterLab until it ends. Returns its exit code.

    Raises CourseError where `work/` cannot be filled.
    """
    if {"-h", "--help"} & {*options}:
        print(USAGE)
        return 0
    from classroom.doctor import doctor_command  # before anything is imported that may be missing

    if failed := doctor_command((), root):
        return failed
    work_command((), root)
    from classroom.workspace import WORK

    return run(jupyterlab(root / WORK, options), environment(os.environ))


def run(command: list[str], variables: Mapping[str, str]) -> int:
    """Run JupyterLab until it ends; where the system can, in place of this process. Returns its exit code."""
    sys.stdout.flush()
    if os.name != "nt":  # it then gets every signal, and asks about Ctrl-C, itself
        os.execve(command[0], command, variables)
    process = subprocess.Popen(command, env=variables)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # went to it as well; it asks, and ends or not
            continue


def work_command(arguments: Sequence[str], root: Path) -> int:
    """`course work`: bring `work/` up to date and say what was done. Raises CourseError."""
    argparse.ArgumentParser(prog="course work").parse_args(arguments)
    from classroom.workspace import bring_up_to_date

    for line in bring_up_to_date(root):
        print(line)
    return 0


def jupyterlab(folder: Path, options: Sequence[str] = ()) -> list[str]:
    """The command that starts JupyterLab on a folder; each of these options takes the place of the course's own."""
    own = {"ServerApp.root_dir": str(folder), "LabApp.default_url": FIRST}
    if os.name != "nt" and not sys.stdout.isatty():
        # Without a terminal Jupyter starts login shells, whose profile may begin the path anew.
        own["ServerApp.terminado_settings"] = str({"shell_command": [os.environ.get("SHELL") or "sh"]})
    named = {option.lstrip("-").partition("=")[0].replace("notebook-dir", "ServerApp.root_dir") for option in options}
    settings = [f"--{name}={value}" for name, value in own.items() if name not in named]
    return [sys.executable, "-m", "jupyterlab", *settings, *options]


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with this Python's scripts first on the path, and the course's settings for JupyterLab."""
    made = dict(variables)
    for name, value in (("PATH", sysconfig.get_path("scripts")), ("JUPYTER_CONFIG_PATH", str(CONFIG))):
        made[name] = os.pathsep.join(filter(None, (value, made.get(name, ""))))
    return made
