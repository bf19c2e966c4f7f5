"""Explorer of lesson 05 at every corner: picture and words agree with the reading."""

import re

import pytest
from amount import every_pair
from drawn import assert_says_how_the_peak_moves, assert_sound, one_move, said_by

from course_utils.networks import NETWORKS
from course_utils.units import CourseError, format_bytes
from lessons.one_by_one.explorer import CHANNELS, NARROW, SQUEEZED, squeeze_explorer
from lessons.shared import changes


def test_the_screen_shows_the_reading():
    explorer = squeeze_explorer("AlexNet", "conv2", 16, batch=64)
    old, new = (format_bytes(p) for p in changes.squeeze(NETWORKS["AlexNet"], "conv2", 16).peaks(64))
    state, culprit, way_out = said_by(explorer).split("\n")
    assert state == f"Batch 64, 1×1 to 16 channels before conv2: the peak rises from {old} to {new}."
    # 16 maps of 27 × 27; 64 · 16 + 16 for the squeeze, and 192 · 25 weights less for each of 48 channels
    assert f"Kept: {format_bytes(4 * 64 * 16 * 27 * 27)} of maps more" in culprit
    assert f"{192 * 25 * 48 - 64 * 16 - 16:,} parameters less" in culprit
    assert way_out == "The squeezed map comes on top and nothing after it is smaller: let layers stay narrow."
    explorer.narrow.value = 1
    assert "of maps less" in said_by(explorer)


def test_every_control_changes_picture_or_words():
    explorer = squeeze_explorer("AlexNet", "conv2", batch=64)
    for name, value in {"batch": 65, "channels": 8, "narrow": 1, "layer": "conv3", "network": "VGG-16"}.items():
        before = explorer.figure.value, said_by(explorer)
        getattr(explorer, name).value = value
        assert (explorer.figure.value, said_by(explorer)) != before, name
    assert explorer.layer.options == SQUEEZED["VGG-16"]


def test_the_batch_is_never_traced(monkeypatch):
    explorer = squeeze_explorer("AlexNet", "conv2")
    monkeypatch.setattr(changes, "training_step", lambda *_, **__: pytest.fail("traced"))
    for batch in range(100, 120):
        explorer.batch.value = batch
    assert "Batch 119" in said_by(explorer)


@pytest.mark.parametrize("network", SQUEEZED)
def test_the_corners_of_every_control(network):
    layers = SQUEEZED[network]
    explorer = squeeze_explorer(network, layers[0])
    ends = every_pair((layers[0], layers[-1]), (CHANNELS[0], CHANNELS[-1]), (0, max(NARROW.values())), (1, 512))
    for layer, channels, narrow, batch in ends:
        with one_move(explorer):
            explorer.layer.value, explorer.channels.value, explorer.narrow.value = layer, channels, narrow
            explorer.batch.value = batch
        said = assert_sound(explorer)
        assert f"1×1 to {channels} channels before {layer}" in said
        assert_says_how_the_peak_moves(said, *explorer.change.peaks(batch))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"network": "ResNet-50"}, "unknown network 'ResNet-50': choose one of VGG-16, AlexNet"),
        ({"layer": "conv1_1"}, "unknown layer 'conv1_1'"),
        ({"channels": 5}, "unknown channels 5"),
        ({"narrow": 3}, "unknown narrow 3"),
        ({"batch": 0}, "batch must be a whole number of 1 or more, got 0"),
    ],
)
def test_wrong_starts_are_one_line(wrong, message):
    with pytest.raises(CourseError, match=re.escape(message)):
        squeeze_explorer(**wrong)
