"""Exercise 07's training step: what is said of answers in no catalogue, and the published figures it quotes."""

import re

import pytest
import torch
from torch.nn import functional as F

from classroom.questions.core import Outcome
from course_utils.memory import StepTrace
from course_utils.networks import vgg16
from course_utils.trace import training_step
from lessons.batch_size import checks as batch_size
from lessons.batch_size import graded
from lessons.batch_size import judge as training
from lessons.batch_size.answers import RIGHT, plain
from lessons.batch_size.behaviour import Accumulate


def vgg() -> StepTrace:
    with torch.device("meta"):
        return training_step(vgg16(), (3, 224, 224), 1000)


def test_a_crash_is_named_with_its_line():
    def broken(model, optimizer, images, labels, micro):
        for x in images.chunk(micro, dim=7):
            F.cross_entropy(model(x), labels).backward()

    feedback = batch_size.accumulate(broken)
    assert feedback.outcome is Outcome.CRASHED
    assert re.search(r"raised IndexError: .+ of your cell: `for x in images.chunk", feedback.message)
    assert graded.accumulate.lines(broken) == ["accumulate: crashed: IndexError"]


def test_an_update_that_is_wrong_in_its_own_way_is_measured():
    def too_keen(model, optimizer, images, labels, micro):
        plain(model, optimizer, images, labels, micro)
        with torch.no_grad():
            next(model.parameters()).add_(1e-3)

    message = batch_size.accumulate(too_keen).message
    assert re.search(r"The update is not the whole batch's here. Parameters are off by up to 0\.00[12]", message)


def test_only_the_second_step_wrong_is_said_to_be():
    def once(model, optimizer, images, labels, micro):
        if not hasattr(model, "stepped"):
            plain(model, optimizer, images, labels, micro)
        model.stepped = True

    assert "not the whole batch's in the second step" in batch_size.accumulate(once).message
    assert "also in the second step: no" in graded.accumulate.lines(once)


def test_a_step_that_keeps_every_output_is_refused_for_its_memory():
    def keeps(model, optimizer, images, labels, micro):
        optimizer.zero_grad()
        losses = [
            F.cross_entropy(model(x), y, reduction="sum") / len(images)
            for x, y in zip(images.split(micro), labels.split(micro), strict=True)
        ]
        for loss in losses:
            loss.backward()
        optimizer.step()

    feedback = batch_size.accumulate(keeps)
    assert feedback.outcome is Outcome.WRONG
    assert "25 % is allowed" in feedback.message
    assert graded.accumulate.lines(keeps)[-1] == "peak low enough: no"


def share_of(answer):
    return training.judge(training.record(answer, 4, 5), 4, 5).share


def test_the_allowance_is_far_from_right_and_wrong_alike():
    right = max(share_of(answer) for answer in RIGHT["accumulate"])
    wrong = min(share_of(slip.function) for slip in Accumulate.by_peak)
    assert 1.5 * right < training.SHARE < wrong / 1.5


@pytest.mark.parametrize("batch", [64, 128])
def test_the_line_of_vgg_16_is_the_trace_s(batch):
    fixed, per_picture, _ = batch_size.saved_by_halving.cases[0]
    assert vgg().at(batch).network_wide_bytes() == fixed + per_picture * batch
    assert f"{batch_size.saved_by_halving.truth[0]:.0%}" == "45%"
    assert "45 %" in batch_size.saved_by_halving.takeaway


def test_a_step_that_saves_memory_by_training_something_else_saves_none():
    def two_ways(model, optimizer, images, labels, micro):
        some = images if images.dtype is torch.float64 else images[:micro]
        plain(model, optimizer, some, labels[: len(some)], micro)

    assert graded.accumulate.lines(two_ways)[-1] == "peak low enough: no"
