"""A class graded by a Dask cluster: real schedulers and workers, some of them killed, and the marks of a local run."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from multiples import NAMES, answer, right, wrong
from rich.console import Console

from classroom import PACKAGES, ROOT
from classroom.grading import cluster, command, helper, sandbox
from classroom.grading.batch import Result, Task, grade_one, read_results, unmarked
from classroom.grading.cluster import UnfitWorker, connect, fingerprint, grade_on_cluster, why_unfit
from classroom.grading.command import grade_command
from classroom.grading.helper import grade_in_helper
from classroom.grading.run import Limits
from classroom.grading.submissions import Submission
from classroom.notebooks import read_notebook, to_text
from classroom.questions.core import Outcome
from course_utils.units import CourseError

distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
SEED = "a-seed-of-this-class"


@pytest.fixture(scope="module")
def dask() -> Iterator[distributed.LocalCluster]:
    """A scheduler and two workers, each a process of its own, started anew by its nanny when it is killed."""
    import dask

    with (
        # So that few workers need be killed; and a worker that is being started again is not taken for lost, which is
        # how LocalCluster, no other, stops a second one some seconds after the first was killed.
        dask.config.set({"distributed.scheduler.allowed-failures": 0, "distributed.deploy.lost-worker-timeout": "1h"}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as started,
    ):
        yield started


def task(learner: str, reference: str = "{}", **submission: object) -> Task:
    return Task(Submission(learner, **submission), reference, Limits(), None)  # type: ignore[arg-type]


def grade(course: Path, folder: Path, out: Path, *more: str) -> str:
    stream = io.StringIO()
    arguments = [str(folder), "--exercise", "1", "--out", str(out), "--seed", SEED, "--seconds", "5", *more]
    assert grade_command(arguments, course, Console(file=stream, width=200)) == 0
    return stream.getvalue()


@pytest.mark.skipif(bool(sandbox.why_not()), reason=f"sandbox: {sandbox.why_not()}")
def test_with_a_worker_killed_half_way_all_marks_are_those_of_a_local_run(dask, course, tmp_path, monkeypatch) -> None:
    host, port = dask.scheduler_address.removeprefix("tcp://").split(":")
    spy = f"import socket\nsocket.create_connection(({host!r}, {port}), 2)"
    folder = tmp_path / "class"
    folder.mkdir()
    for i, learner in enumerate(("ann", "bob", "spy")):
        answers = {name: right(name) if n != i else wrong(name) for n, name in enumerate(NAMES)}
        exercise = read_notebook(course / "exercises" / "01_multiples.ipynb")
        answers |= {"three": spy} if learner == "spy" else {}
        (folder / f"{learner}.ipynb").write_text(to_text(answer(exercise, **answers)))
    (folder / "broken.ipynb").write_text("{")
    write_result, killed = command.batch.write_result, list[psutil.Process]()

    def kill_then_write(results: Path, result: Result) -> None:
        """After the first marks, kill a worker that marks at this moment."""
        with distributed.Client(dask.scheduler_address, set_as_default=False) as client:
            busy = [name for name, tasks in client.processing().items() if tasks]
            if not killed and busy:
                worker = psutil.Process(client.run(os.getpid, workers=busy[:1])[busy[0]])
                killed.extend([worker, *worker.children(recursive=True)])
                worker.send_signal(signal.SIGKILL)
        write_result(results, result)

    monkeypatch.setattr(command.batch, "write_result", kill_then_write)
    there = ("--scheduler", dask.scheduler_address)
    assert "4 of 4 marked" in grade(course, folder, tmp_path / "there", *there)
    assert len(killed) > 2  # the worker was marking: its helper and a sandbox were there
    assert not psutil.wait_procs(killed, timeout=20)[1]
    monkeypatch.setattr(command.batch, "write_result", write_result)
    assert "4 graded before" in grade(course, folder, tmp_path / "there", *there)
    assert "4 of 4 marked" in grade(course, folder, tmp_path / "here", "--jobs", "1")
    marks = read_results(tmp_path / "there" / "results")
    assert marks == read_results(tmp_path / "here" / "results")
    assert [marks[name, ""].marks.points for name in ("ann", "bob")] == [20, 19]
    assert marks["spy", ""].marks.questions[2].outcome is Outcome.CRASHED  # no way to the scheduler


def kill(task: Task) -> Result:
    """In place of marking: one learner's submission kills the worker."""
    if task.submission.learner == "evil":
        os.kill(os.getpid(), signal.SIGKILL)
    if task.submission.learner == "odd":
        raise RuntimeError("none should")
    return unmarked(task, "")


def test_a_submission_that_kills_workers_costs_only_itself(dask, course) -> None:
    reference = (course / "solutions" / "01_multiples.ipynb").read_text()
    tasks = [task(learner, reference) for learner in ("ann", "evil", "bob", "odd", "cid")]
    with connect(dask.scheduler_address) as client:
        results = {result.learner: result.failed for result in grade_on_cluster(client, tasks, jobs=3, work=kill)}
    assert results.pop("evil").startswith("the process that marked it was killed, more than once")
    assert results.pop("odd") == "RuntimeError: none should"
    assert results == {"ann": "", "bob": "", "cid": ""}


def noted(task: Task) -> Result:
    """As `kill`, and each marking adds an I to the learner's file; "second" kills its worker at the second."""
    path = Path(task.submission.problem) / task.submission.learner
    with path.open("a") as file:
        file.write("I")
    if (path.name, path.read_text()) == ("second", "II"):
        os.kill(os.getpid(), signal.SIGKILL)
    return kill(task)


def test_what_is_lost_with_its_worker_before_it_is_fetched_is_marked_again(dask, course, tmp_path, monkeypatch) -> None:
    fetch, lost, seen = distributed.Future.result, set[str](), list[distributed.Future]()

    def lose_then_fetch(future: distributed.Future, timeout: float | None = None) -> Result:
        seen.append(future)  # as a slow collection of garbage does: what was fetched must not be kept for it
        if future.key not in lost and future.status == "finished" and len(lost) < 2:
            lost.add(future.key)
            (worker,) = future.client.who_has([future])[future.key]
            process = psutil.Process(future.client.run(os.getpid, workers=[worker])[worker])
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=20)
            while worker in future.client.nthreads():
                time.sleep(0.05)
        return fetch(future, timeout)

    monkeypatch.setattr(distributed.Future, "result", lose_then_fetch)
    reference = (course / "solutions" / "01_multiples.ipynb").read_text()
    tasks = [task(learner, reference, problem=str(tmp_path)) for learner in ("ann", "second", "cid")]
    with connect(dask.scheduler_address) as client:
        results = {result.learner: result.failed for result in grade_on_cluster(client, tasks, jobs=1, work=noted)}
    assert len(lost) == 2
    assert results == {"ann": "", "second": "", "cid": ""}
    marked = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert marked == {"ann": "II", "second": "III", "cid": "I"}


def test_a_lost_scheduler_is_one_line_and_loses_no_result(course) -> None:
    reference = (course / "solutions" / "01_multiples.ipynb").read_text()
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as lost:
        client = connect(lost.scheduler_address)
        results = grade_on_cluster(client, [task(name, reference) for name in ("ann", "bob")], jobs=1, work=kill)
        assert next(results).learner == "ann"
        lost.close()
        with pytest.raises(CourseError, match="what is marked stays marked"):
            list(results)
        client.close()


def test_a_worker_with_another_version_marks_nothing(course, tmp_path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "course_utils" / "units.py").open("a") as file:
        file.write("# another version\n")
    reference = (course / "solutions" / "01_multiples.ipynb").read_text()
    paths = (tmp_path, Path(__file__).parent, Path(__file__).parents[1])  # its library, and what these tests import
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0") as late:
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", late.scheduler_address, "--no-dashboard"]
        process = subprocess.Popen(
            [*worker, "--nthreads", "1"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
        )
        try:
            with connect(late.scheduler_address) as client:
                client.wait_for_workers(1, timeout=60)
                with pytest.raises(UnfitWorker, match=r"another version of the course.*what is marked stays marked"):
                    list(grade_on_cluster(client, [task("ann", reference)], work=kill))
        finally:
            process.terminate()
            process.wait()


class TestRefusals:
    def test_nobody_answers(self, monkeypatch) -> None:
        monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.2)
        for address in ("tcp://127.0.0.1:1", "nonsense://x", "127.0.0.1:1"):
            with pytest.raises(CourseError, match="no Dask scheduler answers at") as error:
                connect(address)
            assert "\n" not in str(error.value)

    def test_not_installed(self, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(CourseError, match=r"--scheduler needs dask.distributed.*\[cluster\]"):
            connect("tcp://127.0.0.1:1")

    def test_a_cluster_without_workers(self, monkeypatch) -> None:
        monkeypatch.setattr(cluster, "ANSWER_SECONDS", 1.0)
        with (
            distributed.LocalCluster(n_workers=0, dashboard_address=":0") as empty,
            connect(empty.scheduler_address) as client,
            pytest.raises(CourseError, match="the cluster has no workers; start some"),
        ):
            list(grade_on_cluster(client, [task("ann")]))

    def test_who_has_another_library_or_no_sandbox_is_unfit(self, monkeypatch) -> None:
        fresh = why_unfit.__wrapped__  # which remembers nothing
        monkeypatch.setattr(cluster, "why_not", lambda: "bubblewrap is not installed")
        assert fresh("other", sandboxed=False).startswith("it has another version of the course")
        assert fresh(fingerprint(), sandboxed=True) == "bubblewrap is not installed"
        assert fresh(fingerprint(), sandboxed=False) == ""


class TestHelper:
    def test_it_answers_as_here_and_is_replaced_when_it_was_killed(self, course) -> None:
        reference = (course / "solutions" / "01_multiples.ipynb").read_text()
        one = task("ann", reference, problem="no notebook was handed in")
        assert grade_in_helper(one) == grade_one(one)
        kept = helper._own.helper
        assert grade_in_helper(one) == grade_one(one)
        assert helper._own.helper is kept
        kept.kill()
        kept.wait()
        assert grade_in_helper(one) == grade_one(one)
        other = helper._own.helper
        assert helper._all == {other} != {kept}
        other.close()
        assert other.wait(timeout=20) == 0

    def test_a_submission_that_kills_each_is_given_up(self, course, monkeypatch) -> None:
        class Killed(helper.Helper):
            def grade(self, task: Task) -> Result:
                self.kill()
                return super().grade(task)

        monkeypatch.setattr(helper, "Helper", Killed)
        one = task("ann", (course / "solutions" / "01_multiples.ipynb").read_text())
        assert grade_in_helper(one).failed.startswith("the process that marked it was killed, more than once")


def test_what_a_worker_is_sent_does_not_hold_the_seed(course, tmp_path, monkeypatch) -> None:
    sent = list[bytes]()

    def instead(tasks: list[Task], *more: object) -> Iterator[Result]:
        sent.extend(map(pickle.dumps, tasks))
        yield from (unmarked(task, "") for task in tasks)

    monkeypatch.setattr(command, "_results", instead)
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "ann.ipynb").write_text("{}")
    grade(course, tmp_path / "class", tmp_path / "out", "--no-sandbox")
    assert sent
    assert not any(SEED.encode() in data for data in sent)
