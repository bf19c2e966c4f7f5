"""The command `course`: hands over to the room that does the work, and prints errors as one line.

Does no work of its own, and must never import a room at the top: each is imported by the subcommand that needs it, so
that `course doctor` runs where others cannot be imported.
"""

import argparse
import io
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name

from course_utils import __version__
from course_utils.units import CourseError

# Commands that read their own arguments and work in the course's folder: what does the work of each.
OWN_ARGUMENTS = {
    "lab": "classroom.lab:lab_command",
    "check": "classroom.grading.report:check_command",
    "progress": "classroom.grading.report:progress_command",
    "grade": "classroom.grading.command:grade_command",
    "site": "website.build:site_command",
}


def find_root(start: Path) -> Path | None:
    """The course's folder: the nearest at or above `start`, else where the library was installed from, else None."""
    for folder in (start, *start.parents, Path(__file__).resolve().parents[1]):
        if all((folder / name).is_dir() for name in ("lessons", "notebooks", "classroom")):
            return folder
    return None


def make_parser() -> argparse.ArgumentParser:
    """The parser for the top level; those in `OWN_ARGUMENTS` and `trace` read their own arguments."""
    parser = argparse.ArgumentParser(prog="course", description="Tools for the course's learners and authors.")
    parser.add_argument("--version", action="version", version=f"course {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("lab", add_help=False, help="open JupyterLab on your own copies of the lessons, in work/")
    commands.add_parser("work", help="bring your copies in work/ up to date, as `course lab` does first")
    commands.add_parser("doctor", help="check that everything the course needs is here, with a fix for what is not")
    build = commands.add_parser("build", help="write notebooks, exercises and solutions from lessons/ (for authors)")
    build.add_argument(
        "topics",
        nargs="*",
        metavar="NN",
        help="topic numbers such as 03, executed again; without any, all whose source changed",
    )
    new = commands.add_parser("new", help="write the folder of a new lesson, which builds and passes (for authors)")
    new.add_argument("number", metavar="NN")
    new.add_argument("topic", metavar="TOPIC", nargs="+", help="one word: its folder's name")
    commands.add_parser("check", add_help=False, help="mark your own saved exercise, question by question")
    commands.add_parser("progress", add_help=False, help="all exercises at a glance")
    commands.add_parser("grade", add_help=False, help="grade a class's submissions, each in a sandbox (for teachers)")
    commands.add_parser("trace", add_help=False, help="trace a network of your own: its memory, and whether it fits")
    slides = commands.add_parser("slides", help="each lesson as one HTML file of slides that needs no network")
    slides.add_argument("topics", nargs="*", metavar="NN", help="lesson numbers such as 03; all when none is given")
    slides.add_argument("--out", type=Path, metavar="DIR", help="where to write them; slides/ in the course's folder")
    commands.add_parser("site", add_help=False, help="the course as web pages that need no kernel and no network")
    links = commands.add_parser("links", help="links that open your copy of the course in Binder, Codespaces, others")
    links.add_argument("url", metavar="URL", help="where it is hosted, such as https://github.com/OWNER/NAME")
    links.add_argument("--branch", default="main", help="which branch to open (default: main)")
    links.add_argument("--hub", default="", metavar="URL", help="your JupyterHub, for a link by nbgitpuller")
    links.add_argument("--write", action="store_true", help="put them into README.md too")
    record = commands.add_parser("record", help="measure this machine's GPU for the lessons, in one file")
    record.add_argument("--out", type=Path, metavar="FILE", help="where to write; by default where lessons look")
    record.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu only tries the workings")
    record.add_argument("--quick", action="store_true", help="tiny networks alone, in seconds, to try the workings")
    record.add_argument("--minutes", type=float, default=7.0, help="how long it may take (default: 7)")
    return parser


def run(argv: Sequence[str]) -> int:
    """Run one subcommand and return its exit code. Raises CourseError, and SystemExit 2 for a wrong command line."""
    parser = make_parser()
    options, rest = parser.parse_known_args(argv)
    if rest and options.command not in (*OWN_ARGUMENTS, "trace"):
        parser.error(f"unrecognised arguments: {' '.join(rest)}")
    root = find_root(Path.cwd())
    if options.command == "doctor":
        from classroom.doctor import report

        return report(root)
    if options.command == "record":  # needs neither the course's folder nor most of its packages
        from course_utils.recordings.making import record_command

        return record_command(options, shlex.join(["course", *argv]))
    if options.command == "trace":
        from course_utils.trace_command import trace_command

        return trace_command(argv[1:])
    if root is None:
        raise CourseError("the course's folder is not here; change to the folder you cloned, and run it there")
    if options.command in OWN_ARGUMENTS:
        command: Callable[[Sequence[str], Path], int] = resolve_name(OWN_ARGUMENTS[options.command])
        return command(rest, root)
    if options.command == "work":
        from classroom.lab import work_command

        work_command(root)
        return 0
    if options.command == "slides":
        from website.slides import export

        export(options.topics, root, options.out or root / "slides", resolve_name("website.decks:explorer"))
        return 0
    if options.command == "links":
        from website.links import links_command

        return links_command(options, root)
    if options.command == "new":
        from classroom.new_lesson import new_lesson

        print(f"{new_lesson(options.number, ' '.join(options.topic), root)}: now `course build {options.number}`")
        return 0
    from classroom import hours
    from classroom.authoring import build

    build(options.topics, root)
    hours.fill(root)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point: 0 done, 1 something was found wanting, 2 the request was wrong, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console without × or – must not end a command
    try:
        return run(sys.argv[1:] if argv is None else argv)
    except CourseError as error:
        print(f"course: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("course: interrupted; files already written are whole", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
