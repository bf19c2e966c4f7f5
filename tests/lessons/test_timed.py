"""What lesson 01 times has the right form, and leaves torch as it was. No time is asserted."""

from __future__ import annotations

import pytest
import torch

from course_utils.units import CourseError
from lessons.why_gpus import timed


def test_the_best_run_counts_and_the_middle_one_says_how_busy_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 5.0, 10.0, 12.0, 20.0, 24.0, 30.0, 32.0, 40.0, 46.0])
    monkeypatch.setattr(timed, "timer", lambda: next(ticks))
    ran: list[int] = []
    best = timed.best_of(lambda: ran.append(1), seconds=1.0, block=2)
    assert (best.seconds, best.median, best.runs) == (1.0, 2.0, 10)
    assert best.spread == 1.0
    assert len(ran) == 11  # one to warm up
    with pytest.raises(CourseError, match="block must be a whole number of 1 or more, got 0"):
        timed.best_of(list, block=0)


def test_the_better_of_one_thread_and_all_is_taken_and_torchs_number_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    took = iter([timed.Best(3.0, 3.0, 5), timed.Best(2.0, 2.0, 5)])
    monkeypatch.setattr(timed, "best_of", lambda *_: next(took))
    best, threads = timed.best_on_threads(list)
    assert (best.seconds, threads) == (2.0, 4)
    assert set_to == [1, 4, 4]


def test_this_machine_becomes_a_device_of_its_three_numbers() -> None:
    before = torch.get_num_threads()
    here = timed.measure_here(0.001, side=8, copy_bytes=64)
    assert here.device.launch_seconds > 0
    assert torch.get_num_threads() == before
    made = timed.Here(timed.Best(2.0, 3.0, 5), timed.Best(4.0, 4.0, 5), timed.Best(1e-6, 1e-6, 5), 1000, 10**9)
    assert made.device.float32_tflops == pytest.approx(1e-3)  # 2 · 1,000³ operations in 2 s
    assert made.device.bandwidth_gb_s == 0.5  # 10⁹ bytes read and as many written in 4 s
    assert made.device.reached_flops_per_s() == 1e9
    assert made.device.launch_seconds == 1e-6
    assert made.table()["median slower by"].tolist() == ["0 %", "50 %", "0 %"]


def test_steps_are_measured_at_each_batch() -> None:
    assert list(timed.measure_steps(3, 4, [1, 5], seconds=0.001)) == [1, 5]
    with pytest.raises(CourseError, match="needs a batch"):
        timed.measure_steps(3, 4, [])
