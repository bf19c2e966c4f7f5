"""Read what a learner sent in a process of its own, with limits: whatever happens there costs that file, and no other.

It reads the notebook, brings it to format 4 and grafts its answers; back comes JSON, texts and nothing else. Zips are
unpacked in such processes too (`submissions`).
"""

import contextlib
import gc
import json
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from nbformat import NotebookNode

from classroom.grading.graft import Answer, Graft, graft, read_questions
from classroom.grading.warm import working
from classroom.notebooks import parse_notebook
from course_utils.units import GIB, MIB, CourseError, format_bytes

MESSAGE, REFUSED, FAILED, DONE = b"+", b"-", b"!", b"."  # before a message: what it is


@dataclass(frozen=True)
class Bounds:
    """What reading one file may take: address space, processor time (of the clock four times that), and its answers."""

    memory_bytes: int = 2 * GIB
    seconds: int = 30
    answer_bytes: int = MIB


class TookTooMuch(Exception):
    """Says what a reading process did in place of reading, as the words after "it …"."""


def read(data: bytes, name: str, trusted: NotebookNode, bounds: Bounds | None = None) -> Graft:
    """The answers in the bytes of a notebook file, which errors call `name`, beside the trusted notebook.

    Raises CourseError, in one line, for whatever is wrong with the file; OSError if no process can be had.
    """
    bounds = bounds or Bounds()
    try:
        messages = confined(_read, (data, name, trusted, bounds), bounds, 16 * bounds.answer_bytes)
        said = json.loads(next(messages))
        messages.close()
    except TookTooMuch as error:
        raise CourseError(f"{name} {error}") from None
    answers = {name: Answer(source, attempted, tuple(flags)) for name, source, attempted, flags in said}
    return Graft(trusted.metadata.course.topic, trusted, read_questions(trusted), answers)


def confined(
    work: Callable[..., Iterator[bytes]], given: tuple[object, ...], bounds: Bounds, most: int
) -> Generator[bytes]:
    """What `work(*given)` yields in a process with these limits, each message of at most so many bytes.

    Raises the CourseError that the work raises, TookTooMuch for what else ends it, OSError if no process can be had.
    """
    with working("classroom.grading.intake:_serve", work, given, bounds) as (process, line):
        try:
            while True:
                if not line.poll(4 * bounds.seconds):
                    raise TookTooMuch("takes too long to read")
                kind = line.recv_bytes()
                if kind == DONE:
                    return
                message = line.recv_bytes(most)
                if kind != MESSAGE:
                    raise CourseError(message.decode()) if kind == REFUSED else TookTooMuch(message.decode())
                yield message
        except (EOFError, BrokenPipeError, ConnectionError):
            process.join(bounds.seconds)
            if sys.platform != "win32" and process.exitcode == -signal.SIGXCPU:
                raise TookTooMuch("takes too long to read") from None
            raise TookTooMuch("cannot be read: it ended the process that read it") from None


def _serve(line: Connection, work: Callable[..., Iterator[bytes]], given: tuple[object, ...], bounds: Bounds) -> None:
    """Send what the work yields, or why it ended."""
    gc.disable()  # everything that is made here is kept to the end, which comes soon
    _limit(bounds)
    last = [DONE]
    try:
        for message in work(*given):
            line.send_bytes(MESSAGE)
            line.send_bytes(message)
    except CourseError as error:
        last = [REFUSED, str(error).encode()]
    except MemoryError:
        last = [FAILED, f"takes more than {format_bytes(bounds.memory_bytes)} of memory to read".encode()]
    except Exception as error:  # noqa: BLE001 - whatever there is in a file
        last = [FAILED, f"cannot be read: {type(error).__name__}".encode()]
    for part in last:
        line.send_bytes(part)


def _limit(bounds: Bounds) -> None:
    """Limit this process; where the system knows no such limits, the clock alone does."""
    if sys.platform == "win32":
        return
    import resource

    begun = 0
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        begun = int(file.read().split()[0]) * resource.getpagesize()
    memory = begun + bounds.memory_bytes
    limits = {
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_CPU: (bounds.seconds, bounds.seconds + 1),  # SIGXCPU, then SIGKILL
        resource.RLIMIT_FSIZE: (0, 0),
        resource.RLIMIT_CORE: (0, 0),
    }
    for limit, most in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, most)


def _read(data: bytes, name: str, trusted: NotebookNode, bounds: Bounds) -> Iterator[bytes]:
    """What is in a file, as JSON. Raises CourseError."""
    grafted = graft(parse_notebook(data, name, slim=True), trusted)
    if sum(len(answer.source.encode()) for answer in grafted.answers.values()) > bounds.answer_bytes:
        raise CourseError(f"{name} has answers of more than {format_bytes(bounds.answer_bytes)}")
    yield json.dumps([(question, a.source, a.attempted, a.flags) for question, a in grafted.answers.items()]).encode()
