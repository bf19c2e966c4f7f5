"""Real processes over gloo: averages and splits equal one process's, failures are one line, nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import processes_to_run
import pytest
import torch

from course_utils.units import CourseError
from lessons.many_gpus.distributed import jobs, launch, run, train
from lessons.shared import digits
from lessons.shared.parallel import ring_bytes


def samples(count=64):
    pictures, labels, _, _ = digits.images(side=8)
    return pictures[:count], labels[:count]


def test_averaged_gradients_and_split_layers_are_one_processs():
    pictures, labels = samples()
    flat = pictures.flatten(1)
    whole, layers = jobs.gradient(pictures, labels), jobs.whole_layers(flat, labels)
    found = run(processes_to_run.average_and_split, images=pictures, labels=labels, shards=[[32, 32], [40, 24]])
    for averages, part in found:
        for one, even in zip(averages, (True, False), strict=True):
            assert torch.allclose(one["weighed"], whole, rtol=1e-4, atol=1e-6)
            assert torch.allclose(one["average"], whole, rtol=1e-4, atol=1e-6) == even  # else it is a mean of means
            assert not torch.allclose(one["own"], whole, rtol=1e-2)
            assert abs(one["sent"] - ring_bytes(4 * whole.numel(), 2)) <= 2 * 4  # chunks differ by a number
        assert torch.allclose(part["scores"], layers["scores"], atol=1e-5)
        assert part["loss"] == pytest.approx(layers["loss"], rel=1e-6)
    for i, gradient in enumerate(layers["gradients"]):
        assert torch.allclose(torch.cat([part["gradients"][i] for _, part in found]), gradient, atol=1e-6)


def test_ddp_and_fsdp_under_torchrun_lose_what_one_process_loses():
    pictures, labels, _, _ = digits.images(side=8)
    losses, kept = train.train("single", 10, 64, pictures, labels)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)), OMP_NUM_THREADS="1")
    ended = subprocess.run(
        [*command, train.__name__, "--mode", "ddp", "fsdp"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    ddp, fsdp = (json.loads(line) for line in ended.stdout.strip().splitlines()[-2:])
    assert (ddp["mode"], fsdp["mode"], ddp["processes"]) == ("ddp", "fsdp", 2)
    for told in (ddp, fsdp):
        assert told["losses"] == pytest.approx(losses, rel=1e-5)
    assert ddp["kept_bytes"] == kept
    assert fsdp["kept_bytes"] == pytest.approx(kept / 2, rel=0.02)
    assert len(set(losses)) == 10


def test_the_script_says_what_it_needs(capsys, monkeypatch):
    for arguments, message in (
        (["--mode", "ddp"], "start ddp and fsdp with torchrun, and single without"),
        (["--steps", "0"], "steps must be 1 or more"),
    ):
        monkeypatch.setattr(sys, "argv", ["train", *arguments])
        with pytest.raises(SystemExit):
            train.main()
        assert message in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["train", "--steps", "2"])
    train.main()
    assert json.loads(capsys.readouterr().out)["mode"] == "single"


def test_a_failure_is_one_line_and_ends_the_others():
    with pytest.raises(CourseError, match=r"^processes_to_run.fail_alone: process 1 of 2 failed: ValueError: no luck$"):
        run(processes_to_run.fail_alone)


def test_too_long_is_one_line_and_leaves_no_process(monkeypatch):
    started = []
    start = launch._start
    monkeypatch.setattr(launch, "_start", lambda *arguments: started.append(start(*arguments)) or started[-1])
    began = time.monotonic()
    with pytest.raises(CourseError, match=r"wait_for_ever: not finished after 3 seconds, so its processes were ended$"):
        run(processes_to_run.wait_for_ever, 1, timeout=3)
    assert len(started) == 1
    assert all(process.poll() is not None for process in started)
    assert time.monotonic() - began < 60


def test_what_no_process_could_run_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(launch, "_start", lambda *_: pytest.fail("started"))
    for function in (lambda: 1, type("Mine", (), {"__module__": "__main__"})):
        with pytest.raises(CourseError, match=r"^processes can only run a function that they can import"):
            run(function)
    for processes in (0, True, 2.0):
        with pytest.raises(CourseError, match=r"^processes must be a whole number of 1 or more"):
            run(jobs.split_layers, processes)


@pytest.mark.parametrize(
    ("gpus", "environment", "found"),
    [
        (0, {}, "cpu"),
        (1, {}, "cpu"),
        (8, {}, "cuda:5"),
        (4, {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, "cuda:1"),  # the second of two machines
        (2, {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, "cpu"),
    ],
)
def test_a_process_takes_its_own_gpu_on_its_own_machine(monkeypatch, gpus, environment, found):
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert str(train.device_here(5, 8)) == found
