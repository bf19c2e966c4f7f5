"""The command `course`: hands over to the room that does the work, and prints errors as one line.

Does no work of its own, and must never import a room: each is looked up when its command is given, so that `course
doctor` runs where others cannot be imported. A room reads its command's arguments itself.
"""

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name

from course_utils import __version__
from course_utils.units import CourseError

# The room that does the work of each command, as its function `NAME_command`, and what the command is for.
COMMANDS = {
    "lab": ("classroom.lab", "open JupyterLab on your own copies of the lessons, in work/"),
    "work": ("classroom.lab", "bring your copies in work/ up to date, as `course lab` does first"),
    "doctor": ("classroom.doctor", "check that everything the course needs is here, with a fix for what is not"),
    "build": ("classroom.hours", "write notebooks, exercises and solutions from lessons/ (for authors)"),
    "new": ("classroom.new_lesson", "write the folder of a new lesson, which builds and passes (for authors)"),
    "check": ("classroom.grading.report", "mark your own saved exercise, question by question"),
    "progress": ("classroom.grading.report", "all exercises at a glance"),
    "grade": ("classroom.grading.command", "grade a class's submissions, each in a sandbox (for teachers)"),
    "trace": ("course_utils.trace_command", "trace a network of your own: its memory, and whether it fits"),
    "slides": ("website.slides", "each lesson as one HTML file of slides that needs no network"),
    "site": ("website.build", "the course as web pages that need no kernel and no network"),
    "links": ("website.links", "links that open your copy of the course in Binder, Codespaces, others"),
    "record": ("course_utils.recordings.making", "measure this machine's GPU for the lessons, in one file"),
}
ANYWHERE = ("doctor", "trace", "record")  # commands that need no folder of the course


def find_root(start: Path) -> Path | None:
    """The course's folder: the nearest at or above `start`, else where the library was installed from, else None."""
    for folder in (start, *start.parents, Path(__file__).resolve().parents[1]):
        if all((folder / name).is_dir() for name in ("lessons", "notebooks", "classroom")):
            return folder
    return None


def run(argv: Sequence[str]) -> int:
    """Run one subcommand and return its exit code. Raises CourseError, and SystemExit 2 for a wrong command line."""
    parser = argparse.ArgumentParser(prog="course", description="Tools for the course's learners and authors.")
    parser.add_argument("--version", action="version", version=f"course {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, purpose) in COMMANDS.items():
        commands.add_parser(name, add_help=False, help=purpose)
    name, root = parser.parse_args(argv[:1]).command, find_root(Path.cwd())
    if root is None and name not in ANYWHERE:
        raise CourseError("the course's folder is not here; change to the folder you cloned, and run it there")
    command: Callable[[Sequence[str], Path | None], int] = resolve_name(f"{COMMANDS[name][0]}:{name}_command")
    return command(argv[1:], root)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point: 0 done, 1 something was found wanting, 2 the request was wrong, 130 interrupted, 141 no reader."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console without × or – must not end a command
    try:
        code = run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except CourseError as error:
        print(f"course: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("course: interrupted; files already written are whole", file=sys.stderr)
        return 130
    except BrokenPipeError:  # as of `course trace … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        return 141


if __name__ == "__main__":
    sys.exit(main())
