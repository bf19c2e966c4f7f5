"""The network of exercise 01 that launches too much: what is counted, and what its check says of odd answers."""

import pytest
import torch

from classroom.questions.core import Outcome
from course_utils.trace import training_step
from lessons.why_gpus import checks as why_gpus
from lessons.why_gpus import graded
from lessons.why_gpus import judge as loops
from lessons.why_gpus.answers import ByVmap, Plain
from lessons.why_gpus.behaviour import BATCH
from lessons.why_gpus.judge import OneByOne


def launched(kind, batch):
    return loops.judge(loops.record(kind, batch), batch).operators


def test_operators_are_counted_as_the_trace_counts_them():
    step = training_step(Plain(), (loops.INPUTS,), loops.CLASSES, target="cpu", optimizer="sgd").at(40)
    traced = [op for op, phase in zip(step.tape.event_ops, step.phases, strict=True) if phase != "update"]
    assert launched(Plain, 40) == len([op for op in traced if op not in ("start", "end", "zero_grad")])


def test_a_loop_launches_more_with_every_sample_and_a_batch_does_not():
    loop = [launched(OneByOne, batch) for batch in (10, 20, 30)]
    assert loop[2] - loop[1] == loop[1] - loop[0] > 100
    assert launched(Plain, 10) == launched(Plain, 500) < loops.MOST / 1.5
    assert launched(ByVmap, 40) <= loops.MOST


def test_the_text_of_the_question_is_true():
    assert 600 < launched(OneByOne, 40) < 620  # "over 600 operators", at batch 40


class Silent(OneByOne):
    def forward(self, hands):
        self.fc2(self.fc1(hands))


class Broken(OneByOne):
    def forward(self, hands):
        return self.fc2(hands)


class Detached(OneByOne):
    def forward(self, hands):
        centred = hands - hands.mean(dim=1, keepdim=True)
        return self.fc2(torch.relu(self.fc1(centred)).detach())


class ReadsValues(OneByOne):
    def forward(self, hands):
        means = torch.tensor(hands.mean(dim=1).tolist())
        return self.fc2(torch.relu(self.fc1(hands - means[:, None])))


class Scaled(Plain):
    def forward(self, hands):
        return 2 * super().forward(hands)


@pytest.mark.parametrize(
    ("answer", "outcome", "words"),
    [
        (Silent, Outcome.WRONG, "Is there a `return`?"),
        (Broken, Outcome.CRASHED, "raised RuntimeError"),
        (Detached, Outcome.WRONG, "something detaches the values"),
        (Scaled, Outcome.WRONG, "compare one sample's scores"),
        (3, Outcome.WRONG, "and no class"),
    ],
)
def test_odd_answers_are_told_what_is_wrong(answer, outcome, words):
    feedback = why_gpus.fewer_launches(answer)
    assert feedback.outcome is outcome, feedback
    assert words in feedback.message
    lines = graded.fewer_launches.lines(answer)
    assert lines != graded.fewer_launches.lines(Plain)
    assert not any("Traceback" in line for line in lines)


def test_numbers_that_were_read_are_no_longer_those_of_other_hands():
    feedback = why_gpus.fewer_launches(ReadsValues)
    assert feedback.outcome is Outcome.WRONG
    assert "a number is read by `.tolist()`" in feedback.message
    assert graded.fewer_launches.lines(ReadsValues) != graded.fewer_launches.lines(Plain)


def test_the_right_answer_is_told_what_it_saved():
    before, after = (launched(kind, BATCH) for kind in (OneByOne, Plain))
    assert f"{before} operators become {after}" in why_gpus.fewer_launches(Plain).message
