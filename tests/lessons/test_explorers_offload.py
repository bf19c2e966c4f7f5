"""The explorer of lesson 09 at every corner: words agree with the schedule, the picture is well laid out."""

from __future__ import annotations

import itertools
import re

import pytest
from amount import every_pair
from drawn import assert_well_laid, one_move

from course_utils.machine import hardware
from course_utils.units import CourseError, format_bytes, format_seconds
from lessons.offload import explorer as offload
from lessons.offload.explorer import BATCHES, FAST, OFFERED, SMALL, offload_explorer, sentences, waiting
from lessons.offload.search import POLICIES, simulate_2016

MACHINES = (("Titan X (Maxwell)", "PCIe 3.0 x16"), ("GTX 980", "PCIe 2.0 x16"), ("B200", "PCIe 5.0 x16"))


def chosen(explorer):
    return explorer.plans.get(explorer.policy.value, explorer.algorithm.value)


@pytest.mark.parametrize("network", OFFERED)
def test_every_corner_says_what_the_schedule_says(network):
    explorer = offload_explorer(network, 8)
    settings = every_pair((8, 512), MACHINES, POLICIES, ("m", "p"))
    for batch, (card, link), policy, algorithm in settings:
        if algorithm == "m" and policy in ("dyn", "windowed"):
            continue
        with one_move(explorer) as moved:
            explorer.batch.value, explorer.device.value, explorer.link.value = batch, card, link
            explorer.policy.value, explorer.algorithm.value = policy, algorithm
        try:
            view = moved()
        except CourseError as error:
            refused = str(error)
        else:
            refused = ""
        if refused:
            assert policy == "dyn"
            assert "take a smaller batch" in refused
            assert refused in explorer.words.value
            continue
        found, limit = chosen(explorer), hardware.device(card).memory_bytes
        assert_well_laid(view.picture)
        words = " ".join(view.sentences)
        assert not re.search(r"\b(nan|inf|None)\b|-\d", words), words
        assert f"{policy} (" in words
        assert f"{format_seconds(found.total_seconds)} a step" in words
        assert f"the peak of {format_bytes(found.peak_bytes)}" in words
        assert ("to spare" in words) == (found.peak_bytes <= limit)
        assert ("every copy hides" in words) == (bool(found.copies) and waiting(found) == pytest.approx(0, abs=1e-12))
        assert ("Nothing moves" in words) == (not found.copies)
        everything = [explorer.plans.get(*way) for way in (*FAST, *SMALL)]
        fitting = [plan.total_seconds for plan in everything if plan.peak_bytes <= limit]
        assert ("No plan fits" in words) == (not fitting)
        if fitting:
            named = re.search(r"Fastest plan that fits: \S+ \(.\), (.+?) a step", words)
            least = format_seconds(min(fitting))
            assert named[1] == least if named else found.total_seconds <= min(fitting) * 1.001


def test_the_schedule_is_what_simulate_gives():
    explorer = offload_explorer("AlexNet", 64, "conv", device="P100")
    ledger = explorer._step("AlexNet").at(64)
    expected = simulate_2016(ledger, "P100", "conv", "p", "PCIe 3.0 x16")
    assert chosen(explorer).total_seconds == expected.total_seconds
    assert chosen(explorer).peak_bytes == expected.peak_bytes


def test_no_move_traces_and_a_policy_already_seen_is_not_made_again(monkeypatch):
    explorer = offload_explorer()
    monkeypatch.setattr(offload, "training_step", lambda *_, **__: pytest.fail("traced again"))
    for batch, policy in itertools.product(BATCHES, POLICIES):
        explorer.batch.value, explorer.policy.value = batch, policy
    monkeypatch.setattr(offload, "schedule_2016", lambda *_, **__: pytest.fail("simulated again"))
    explorer.batch.value = 128
    for policy in POLICIES:
        explorer.policy.value = policy
        assert "alert" not in explorer.words.value
        assert explorer.algorithm.disabled == (policy == "dyn")


def test_it_says_what_the_last_move_did_and_saves_a_still():
    explorer = offload_explorer()
    before = waiting(chosen(explorer))
    explorer.policy.value = "windowed"
    points = f"{100 * before:.1f} points"
    assert f"Last move, policy all to windowed: the share of waiting falls by {points}." in explorer.words.value
    explorer.batch.value = 64
    assert "the share of waiting stays the same" in explorer.words.value
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/plain"] == "\n".join(sentences(explorer.plans, chosen(explorer)))
    assert bundle["image/png"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"network": "LeNet"}, "unknown network 'LeNet': choose one of VGG-16, AlexNet"),
        ({"policy": "some"}, "unknown policy 'some': choose one of none, all"),
        ({"algorithm": "q"}, "unknown algorithm 'q': choose one of m, p"),
        ({"batch": 3}, "unknown batch 3: choose one of 8, 16"),
        ({"device": "P1000"}, "no device called 'P1000': did you mean"),
        ({"link": "USB"}, "no link called 'USB'"),
    ],
)
def test_wrong_starts_are_refused_in_one_line(wrong, message):
    with pytest.raises(CourseError, match=re.escape(message)):
        offload_explorer(**wrong)
