"""Grade a class on a Dask cluster that is there: the tasks of `batch`, marked by its workers, collected here.

A worker marks in processes beside Dask's (`helper`); it gets a submission and what right answers print, and never the
seed. Before a task a worker looks whether it can mark as this machine would, as one may come at any time.

Of Dask's ways to fail, these are used: a task whose worker is killed goes to another, as often as the scheduler allows
(`distributed.scheduler.allowed-failures`); each task that was with the killed workers is then tried by itself, so that
the one that kills them costs no other; a task that raises, which none should, is tried once more. A result lies with
its worker until it is fetched; lost with it, it is made again.
"""

import functools
import hashlib
import logging
import pickle
import socket
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from classroom import PACKAGES, ROOT
from classroom.grading.batch import KILLED, Result, Task, in_words, unmarked
from classroom.grading.helper import grade_in_helper
from classroom.grading.sandbox import why_not
from course_utils.units import CourseError

if TYPE_CHECKING:
    from distributed import Client, Future

ANSWER_SECONDS = 10.0  # within which a scheduler must answer, or a result come that is there
PATIENCE = 60.0  # seconds a cluster may be without any worker, as it is while workers are started again
LOOK_SECONDS = 1.0  # between two looks at whether there are workers


def connect(address: str) -> "Client":
    """A client of the scheduler at this address, such as tcp://10.0.0.5:8786. Raises CourseError if there is none."""
    try:
        from distributed import Client
    except ImportError:
        need = "in the course's folder: pip install -c constraints.txt -e '.[cluster]'"
        raise CourseError(f"--scheduler needs dask.distributed, which is not installed; {need}") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what it would say of a lost line is said in one here
    try:
        return Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise CourseError(f"no Dask scheduler answers at {address!r} ({said}); name it as tcp://HOST:8786") from None


def fingerprint() -> str:
    """Of the course's library, as it lies on the machine this runs on."""
    digest = hashlib.sha256()
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*"))
    for path in sorted(path for path in files if path.suffix in (".py", ".csv", ".toml", ".txt")):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@functools.cache  # a worker stays as it is
def why_unfit(code: str, sandboxed: bool) -> str:
    """Why this machine cannot mark, or would otherwise than one whose library has this fingerprint; "" if it can."""
    if fingerprint() != code:
        return "it has another version of the course; install this one there"
    return (why_not() or "") if sandboxed else ""


class UnfitWorker(CourseError):
    """A worker that would mark otherwise than the machine that collects, or not at all."""


def mark_if_fit(code: str, work: Callable[[Task], Result], task: Task) -> Result:
    """`work(task)` on a worker. Raises UnfitWorker if its library is another than the one with this fingerprint."""
    if problem := why_unfit(code, task.confinement is not None):
        raise UnfitWorker(f"{socket.gethostname()}: {problem}")
    return work(task)


def grade_on_cluster(
    client: "Client",
    tasks: Sequence[Task],
    jobs: int | None = None,
    work: Callable[[Task], Result] = grade_in_helper,
) -> Iterator[Result]:
    """Results as they are ready. `jobs`: markings at a time; by default one for each thread of the cluster's workers.

    Raises CourseError if the cluster is lost; results that were yielded before are not.
    """
    from distributed import KilledWorker, wait

    together, suspected = deque(tasks), deque[Task]()
    flying: dict[Future[Result], Task] = {}
    alone, without, code = False, PATIENCE - ANSWER_SECONDS, fingerprint()  # at the start a shorter one

    def submit(task: Task) -> None:
        given = pickle.dumps(_Call(code, work, task))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # a notebook may be large
            flying[client.submit(pickle.loads, given, key=f"grade-{uuid.uuid4()}", retries=1)] = task

    try:
        while together or suspected or flying:
            threads = sum(client.nthreads().values())
            while together and len(flying) < (jobs or max(1, threads)):
                submit(together.popleft())
            if not flying:
                alone = True
                submit(suspected.popleft())
            without = 0.0 if threads else without + LOOK_SECONDS
            if without > PATIENCE:
                address = client.scheduler.address  # type: ignore[union-attr]
                raise CourseError(f"the cluster has no workers; start some (dask worker {address}) and call again")
            try:
                with client.as_current():
                    done = wait(list(flying), timeout=LOOK_SECONDS, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                continue
            for future in done:
                became = _became(future)
                if became is None:
                    continue
                task = flying.pop(future)
                future.release()  # before the next task, or what is here would be made again when its worker is lost
                if isinstance(became, Result):
                    yield became
                elif isinstance(became, UnfitWorker | ImportError | AttributeError):
                    # It would fail a whole class faster than others mark it.
                    raise UnfitWorker(f"a worker cannot mark: {became}; then call again, what is marked stays marked")
                elif isinstance(became, KilledWorker) and not alone:
                    suspected.append(task)
                else:
                    yield unmarked(task, KILLED if isinstance(became, KilledWorker) else in_words(became))
    except (CancelledError, OSError):
        raise CourseError("the scheduler was lost; call again when it is back, what is marked stays marked") from None
    finally:
        if flying and client.status == "running":
            client.cancel(list(flying))


def _became(future: "Future[Result]") -> Result | Exception | None:
    """The result of a task that is done, or what it raised; None if its worker was lost since, with the result."""
    try:
        return future.result(ANSWER_SECONDS)
    except Exception as error:
        if future.status == "error":
            return error
        if isinstance(error, TimeoutError):
            return None
        raise


class _Call:
    """Unpickled, it is the task marked: so the scheduler hands on bytes, and need not have this library."""

    def __init__(self, *given: Any) -> None:
        self.given = given  # of mark_if_fit

    def __reduce__(self) -> tuple[Callable[..., Result], tuple[Any, ...]]:
        return mark_if_fit, self.given
