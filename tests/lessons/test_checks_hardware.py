"""Exercise 02's own: figures in takeaways are computed, and the head's check tells what went wrong."""

import torch

from classroom.questions.core import Outcome
from course_utils.machine.hardware import devices
from lessons.hardware import checks as hardware
from lessons.hardware import judge as transfer
from lessons.hardware.behaviour import BATCH
from lessons.hardware.judge import Pretrained


def test_the_figures_in_takeaways_are_computed():
    rule = hardware.largest_parameters
    assert f"{rule.reference(6144, 400, 'momentum'):,} parameters with momentum" in rule.takeaway
    assert f"{(6144 - 400) * 1024 * 1024 // 8:,}" in rule.takeaway
    buy = hardware.break_even_weeks
    assert buy.cases[0] == (500, 0.5, 0.09, 0.22, 20)
    assert f"Half of 500 dollars, 20 hours a week at 13 cents saved in each: {buy.truth[0]:.0f} weeks" in buy.takeaway
    k80 = next(card for card in hardware.catalogue() if card["name"] == "Tesla K80")
    assert f"{k80['memory_gib']:.0f} GB and holds steps of {k80['memory_gib'] / k80['dies']:.0f}." in (
        hardware.cards_that_hold.takeaway
    )


def test_the_catalogue_of_the_question_is_the_courses_with_unknown_prices_none():
    given = {card["name"]: card["launch_usd"] for card in hardware.catalogue()}
    assert given == {item.name: item.launch_usd for item in devices()}
    assert None in given.values()


def test_no_saving_at_all_is_never_and_a_division_by_it_a_crash():
    def careless(price, back, power, rent, hours):
        return price * (1 - back) / (hours * (rent - power))

    feedback = hardware.break_even_weeks(careless)
    assert feedback.outcome is Outcome.CRASHED
    assert "ZeroDivisionError" in feedback.message


def test_inference_mode_is_a_crash_with_its_line():
    class Inference(Pretrained):
        def forward(self, images):
            with torch.inference_mode():
                features = self.backbone(images)
            return self.head(features)

    feedback = hardware.head_only(Inference)
    assert feedback.outcome is Outcome.CRASHED
    assert "Inference tensors cannot be saved for backward" in feedback.message
    assert "`return self.head(features)`" in feedback.message


def test_a_network_that_returns_nothing_is_told_so():
    class Silent(Pretrained):
        def forward(self, images):
            self.head(self.backbone(images))

    assert "Is there a `return`?" in hardware.head_only(Silent).message


def test_a_late_cut_is_told_how_high_the_peak_still_is():
    class Detached(Pretrained):
        def forward(self, images):
            return self.head(self.backbone(images).detach())

    seen = transfer.judge(transfer.record(Detached, BATCH), BATCH)
    assert transfer.SHARE < seen.share < 1
    assert f"It is {100 * seen.share:.0f} % of the original's" in hardware.head_only(Detached).message
