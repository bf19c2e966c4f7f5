"""Explorer of lesson 04 at every corner: picture and words agree with the reading."""

import re

import pytest
from amount import every_pair
from drawn import assert_says_how_the_peak_moves, assert_sound, drawn_by, one_move, said_by, words_of

from course_utils.networks import NETWORKS
from course_utils.units import CourseError, format_bytes
from lessons.shared import changes
from lessons.shared.change_explorer import times
from lessons.stride import explorer as explorers
from lessons.stride.explorer import DROPS, LAYERS, STRIDES, stride_explorer


def test_the_screen_shows_the_reading():
    explorer = stride_explorer("AlexNet", "conv2", 2, batch=64)
    change = changes.stride(NETWORKS["AlexNet"], "conv2", 2)
    old, new = (format_bytes(peak) for peak in change.peaks(64))
    state, culprit, way_out = said_by(explorer).split("\n")
    assert state == f"Batch 64, conv2 at stride 2: the peak falls from {old} to {new}."
    assert "The output of conv2 is 3.7 times smaller" in culprit  # 27 positions become 14
    assert f"{format_bytes(change.above(64))} of maps lie before conv2" in culprit
    assert way_out == f"An earlier layer would reach the {format_bytes(change.above(64))} before conv2: try conv1."
    texts = [text.text for text in words_of(drawn_by(explorer))]
    assert any(text.startswith(f"peak {new}") for text in texts)
    assert f"before: {old}" in texts


def test_every_control_changes_picture_or_words():
    explorer = stride_explorer("AlexNet", "conv2", 2, batch=64)
    for name, value in {"batch": 65, "stride": 3, "pool": True, "layer": "conv3", "network": "VGG-16"}.items():
        before = explorer.figure.value, said_by(explorer)
        getattr(explorer, name).value = value
        assert (explorer.figure.value, said_by(explorer)) != before, name


def test_another_network_offers_its_own_layers():
    explorer = stride_explorer("AlexNet", "conv2")
    explorer.network.value = "VGG-16"
    assert explorer.layer.options == LAYERS["VGG-16"]
    assert explorer.layer.value == "conv1_1"
    explorer.layer.value = "conv3_1"
    explorer.network.value = "ResNet-50"
    assert explorer.layer.value == "conv3_1"  # both have one
    assert "This is the stride that ResNet-50 has as published" in said_by(explorer)
    assert "the peak stays at" in said_by(explorer)


def test_a_network_with_other_layers_is_drawn_once(monkeypatch):
    explorer = stride_explorer("AlexNet", "conv2")
    drawn, view = [], explorer.view
    monkeypatch.setattr(explorer, "view", lambda: drawn.append(explorer.layer.value) or view())
    explorer.network.value = "VGG-16"
    assert drawn == ["conv1_1"]
    assert "Last move" not in said_by(explorer)  # two things changed, of which the layer is not the cause
    explorer.layer.value = "conv3_1"
    explorer.network.value = "ResNet-50"
    assert "Last move, network VGG-16 to ResNet-50: the peak rises by" in said_by(explorer)


def test_the_batch_is_never_traced(monkeypatch):
    explorer = stride_explorer("AlexNet", "conv2")
    monkeypatch.setattr(changes, "training_step", lambda *_, **__: pytest.fail("traced"))
    for batch in range(100, 120):
        explorer.batch.value = batch
    assert "Batch 119" in said_by(explorer)


@pytest.mark.parametrize("network", LAYERS)
def test_the_corners_of_every_control(network):
    layers = LAYERS[network]
    explorer = stride_explorer(network, layers[0])
    corners = every_pair((layers[0], layers[-1]), (STRIDES[0], STRIDES[-1]), DROPS.values(), (1, 512))
    for layer, stride, drop, batch in corners:
        with one_move(explorer):
            explorer.layer.value, explorer.stride.value, explorer.pool.value = layer, stride, drop
            explorer.batch.value = batch
        said = assert_sound(explorer)
        assert f"{layer} at stride {stride}" in said
        assert_says_how_the_peak_moves(said, *explorer.change.peaks(batch))


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (4, "4 times smaller"), (2.73, "2.7 times smaller"), (0.25, "4 times larger"), (1, "as large as before"),
        (1.05, "4.8 % smaller"), (0.97, "3.1 % larger"), (1.004, "as large as before"),
    ],
)  # fmt: skip
def test_factors_in_words(factor, said):
    assert times(factor) == said


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"network": "LeNet"}, "unknown network 'LeNet': choose one of VGG-16, AlexNet, ResNet-50"),
        ({"layer": "conv9"}, "unknown layer 'conv9' of VGG-16"),
        ({"stride": 5}, "stride must be 1, 2, 3 or 4, got 5"),
        ({"batch": 0}, "batch must be a whole number of 1 or more, got 0"),
    ],
)
def test_wrong_starts_are_one_line(wrong, message):
    with pytest.raises(CourseError, match=re.escape(message)):
        stride_explorer(**wrong)


def test_the_saved_notebook_carries_a_still():
    bundle = stride_explorer("AlexNet", "conv2")._repr_mimebundle_()
    assert bundle["text/plain"].startswith("Batch 128, conv2 at stride 2: ")
    assert bundle["image/png"]
    assert explorers.LAYERS
