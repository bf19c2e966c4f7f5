"""The queue of a step: it breaks no order, takes no longer than one after the other, and is drawn as it is."""

from __future__ import annotations

import re

import numpy as np
import pytest
from drawn import assert_well_laid, words_of
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.machine.hardware import COPY_SECONDS, device, link, links
from course_utils.machine.speed import predict_step
from course_utils.units import CourseError
from lessons.shared.reference_cpu import REFERENCE_CPU
from lessons.why_gpus.hidden_layer import hidden_layer_step
from lessons.why_gpus.host_queue import host_queue
from lessons.why_gpus.machine import LAYOUTS, machine
from lessons.why_gpus.queued import queued

CARD = "Titan X (Maxwell)"
law = settings(deadline=None, max_examples=40)


def step_time(batch, over, inputs=784):
    return predict_step(hidden_layer_step(inputs, 100).at(batch), CARD, link=over)


@law
@given(st.integers(1, 10**6), st.sampled_from([None, *links()]), st.booleans())
def test_nothing_runs_before_it_is_issued_or_beside_another_and_all_that_is_asked_for_runs(batch, over, pinned):
    time = step_time(batch, over)
    queue = queued(time, pinned)
    assert len(queue.names) == (time.launch > 0).sum() + time.copies
    assert (queue.begins >= queue.issued - 1e-12).all()
    assert (queue.begins[1:] >= queue.ends[:-1] - 1e-12).all()
    assert (queue.issues[1:] >= queue.issued[:-1] - 1e-12).all()
    assert (queue.ends - queue.begins).sum() == pytest.approx(
        time.work[time.launch > 0].sum() + time.transfer_seconds - time.copies * COPY_SECONDS
    )
    # Never longer than one after the other, never shorter than what the host or the device alone has to do.
    issue = time.launch.sum() + time.copies * COPY_SECONDS
    assert queue.total_seconds <= time.total_seconds * (1 + 1e-9)
    assert queue.total_seconds >= max(issue, (queue.ends - queue.begins).sum()) - 1e-12
    assert queue.host_seconds >= issue - 1e-12
    if pinned:
        assert queue.host_seconds == pytest.approx(issue)


def test_two_operators_by_hand():
    """Three microseconds to issue one, work of 5 and 1: the second waits for the first; unpinned changes nothing."""
    queue = queued(step_time(1, None))
    work = queue.ends - queue.begins
    expected, device_free = [], 0.0
    for issued, seconds in zip(10e-6 * np.arange(1, len(work) + 1), work, strict=True):
        device_free = max(issued, device_free) + seconds
        expected.append(device_free)
    assert queue.ends == pytest.approx(expected)
    assert queued(step_time(1, None), pinned=False).ends == pytest.approx(queue.ends)


def test_pageable_memory_holds_the_host_until_the_copy_is_done():
    time = step_time(2048, "PCIe 3.0 x16")
    free, held = queued(time), queued(time, pinned=False)
    assert held.issues[1] == pytest.approx(held.ends[0])
    assert held.host_seconds > free.host_seconds
    assert held.total_seconds >= free.total_seconds


def test_layouts_give_the_published_peaks():
    assert LAYOUTS[CARD].peak_tflops == pytest.approx(device(CARD).float32_tflops, rel=0.01)
    said = float(re.search(r"its peak is ([\d.]+)", REFERENCE_CPU.derived)[1])
    assert LAYOUTS[REFERENCE_CPU.name].peak_tflops == pytest.approx(said, rel=0.03)


def test_the_pictures_are_well_laid_and_say_their_numbers():
    queues = {f"batch {batch}": queued(step_time(batch, "PCIe 3.0 x16")) for batch in (1, 32, 2048)}
    picture = host_queue(queues, "The title")
    assert_well_laid(picture)
    assert "batch 2048: the host has issued 19 operators after 190 µs" in picture.alt
    chips = [(one, LAYOUTS[one.name]) for one in (REFERENCE_CPU, device(CARD))]
    picture = machine(chips, link("PCIe 3.0 x16"), "The title")
    assert_well_laid(picture)
    assert {"24 SMs × 128 lanes = 3,072 lanes", "11.8 GB/s in use"} <= {word.text for word in words_of(picture)}


def test_no_step_is_no_picture():
    with pytest.raises(CourseError, match="host_queue needs a step"):
        host_queue({})
