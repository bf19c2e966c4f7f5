"""Who wins: at every corner of its controls words and picture agree with the reading, and no move traces anything."""

from __future__ import annotations

import itertools
import re

import pytest
from amount import every_pair
from drawn import assert_well_laid, one_move, words_of
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.figures import Picture
from course_utils.machine.hardware import REFERENCE_CPU, Device, devices, links
from course_utils.units import CourseError, format_seconds
from lessons.why_gpus import explorer as why_gpus
from lessons.why_gpus import hidden_layer
from lessons.why_gpus.crossover import batch_times, crossover, leads
from lessons.why_gpus.explorer import BATCHES, INPUTS, ON_THE_CARD, UNITS, sentences, who_wins_explorer
from lessons.why_gpus.hidden_layer import hidden_layer_step

SLOW = Device(
    name="this machine", year=0, dies=1, memory_gb=4, bandwidth_gb_s=2.0, float32_tflops=0.005, sources="measured",
    measured=True, launch_seconds=2e-5,
)  # fmt: skip


@pytest.fixture
def explorer():
    return who_wins_explorer(cpu=SLOW)


def shown(explorer):
    """The picture and the words on the screen, words without their markup."""
    words = re.sub(r"<br>", "\n", re.sub(r"<(?!br>)[^>]*>", "", explorer.words.value))
    return explorer.figure.value, words.replace("&#x27;", "'")


def as_picture(explorer):
    return Picture(explorer.figure.value, "", 0, bytes)


def test_the_corners_of_every_control(explorer):
    corners = every_pair(
        (SLOW.name, REFERENCE_CPU.name), ("GTX Titan", "B200"), (ON_THE_CARD, "PCIe 2.0 x16"),
        (INPUTS[0], INPUTS[-1]), (UNITS[0], UNITS[-1]), (BATCHES[0], BATCHES[-1]),
    )  # fmt: skip
    for cpu, gpu, way, inputs, units, batch in corners:
        with one_move(explorer):
            explorer.cpu.value, explorer.gpu.value, explorer.link.value = cpu, gpu, way
            explorer.inputs.value, explorer.units.value, explorer.batch.value = inputs, units, batch
        words = shown(explorer)[1]
        assert not re.search(r"\b(nan|inf|None)\b|alert", words)
        assert_well_laid(as_picture(explorer))
        here = batch_times(hidden_layer_step(inputs, units, "cpu"), {SLOW.name: SLOW}.get(cpu, REFERENCE_CPU))
        there = batch_times(hidden_layer_step(inputs, units), gpu, link=None if way == ON_THE_CARD else way)
        slow, fast = float(here.at(batch)), float(there.at(batch))
        assert words.startswith(f"Batch {batch:,}: CPU {format_seconds(slow)} a step, GPU {format_seconds(fast)}: ")
        if max(slow / fast, fast / slow) >= 1.05:
            assert f"the {'GPU' if fast < slow else 'CPU'} is " in words.split("\n")[0]
        turn = crossover(here, there)
        if turn and turn > 1:
            assert f"the GPU from {turn:,} on." in words
        elif turn == 1:
            assert "The GPU wins at every batch." in words
        else:
            assert re.search(r"(The CPU wins at every batch|the CPU from [\d,]+ on)\.", words)


def test_every_control_changes_picture_or_words(explorer):
    moves = {
        "batch": 64, "inputs": 4096, "units": 10, "gpu": "B200", "link": "PCIe 4.0 x16", "cpu": SLOW.name,
    }  # fmt: skip
    for name, value in moves.items():
        before = shown(explorer)
        getattr(explorer, name).value = value
        assert shown(explorer) != before, name


def test_no_move_traces_anything(explorer, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("traced on a move")

    monkeypatch.setattr(hidden_layer, "training_step", fail)
    for inputs, units in itertools.product(INPUTS, UNITS):
        explorer.inputs.value, explorer.units.value = inputs, units
    for card in devices():
        explorer.gpu.value = card.name


def test_the_crossover_is_marked_where_it_is(explorer):
    explorer.cpu.value, explorer.link.value = REFERENCE_CPU.name, ON_THE_CARD
    turn = crossover(*explorer.times())
    assert f"crossover {turn}" in [word.text for word in words_of(as_picture(explorer))]
    assert f"The CPU wins up to batch {turn - 1}, the GPU from {turn} on." in shown(explorer)[1]


def test_it_says_what_the_last_move_did(explorer):
    explorer.cpu.value = REFERENCE_CPU.name
    explorer.batch.value = 1024
    assert re.search(r"Last move, batch 32 to 1,024: the GPU's speed-up rises by \d\.\d\.$", shown(explorer)[1])
    explorer.batch.value = 32
    assert "the GPU's speed-up falls by" in shown(explorer)[1]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(INPUTS), st.sampled_from(UNITS), st.integers(1, 10**6), st.sampled_from(devices()),
    st.sampled_from([None, *links()]),
)  # fmt: skip
def test_the_shares_are_of_the_gpus_time_and_the_culprit_is_the_largest(inputs, units, batch, card, way):
    cpu = batch_times(hidden_layer_step(inputs, units, "cpu"), REFERENCE_CPU)
    gpu = batch_times(hidden_layer_step(inputs, units), card, link=way)
    state, culprit, way_out = sentences(cpu, gpu, batch, leads(cpu, gpu))
    shares = {name: int(share) for name, share in re.findall(r"(launches|the transfer|computing) (\d+) %", culprit)}
    assert 97 <= sum(shares.values()) <= 102
    most = re.match(r"(Launches|The transfer|Computing) takes? most", culprit)
    assert shares[f"{most[1][0].lower()}{most[1][1:]}"] == max(shares.values())
    assert ("transfer" in shares) <= (way is not None)
    assert state.endswith(("faster.", "a tie."))
    assert way_out.startswith(("The CPU wins", "The GPU wins"))


def test_the_saved_notebook_carries_a_still_beside_the_live_view(explorer):
    bundle = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == shown(explorer)[1]
    assert bundle["text/html"].startswith('<div class="course-picture">')
    assert bundle["image/png"]


def test_unusual_starts_are_offered_too():
    explorer = who_wins_explorer(inputs=500, units=77, batch=100_000, gpu="h200 sxm", link_name=None)
    assert (explorer.inputs.value, explorer.units.value, explorer.batch.value) == (500, 77, 100_000)
    assert (explorer.gpu.value, explorer.link.value) == ("H200 SXM", ON_THE_CARD)
    assert explorer.cpu.options == (REFERENCE_CPU.name,)
    assert_well_laid(as_picture(explorer))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"inputs": 1}, "inputs must be a whole number of 2 or more, got 1"),
        ({"units": 2.5}, "units must be a whole number of 2 or more, got 2.5"),
        ({"batch": 0}, "batch must be a whole number of 1 or more, got 0"),
        ({"gpu": "Voodoo"}, "no device called 'Voodoo'"),
        ({"link_name": "ISA"}, "no link called 'ISA'"),
    ],
)
def test_wrong_starts_are_refused_in_one_line(wrong, message):
    with pytest.raises(CourseError, match=re.escape(message)):
        who_wins_explorer(**wrong)


def test_small_differences_are_not_written_as_nothing():
    assert [why_gpus._difference(change) for change in (0.001, 0.06, 2.34, 12.6, 1234.0)] == [
        "less than 0.05", "0.1", "2.3", "13", "1,234",
    ]  # fmt: skip
