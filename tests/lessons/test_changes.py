"""One network changed at one place: what the change does to shapes, kernels and maps, worked out by hand."""

import pytest
from drawn import assert_well_laid, words_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils.memory import Ledger
from course_utils.networks import NETWORKS, Network
from course_utils.units import CourseError, format_bytes
from lessons.shared import changes
from lessons.shared.layer_changes import kept_before_and_after, layer_changes

VGG, RESNET, ALEXNET = (NETWORKS[name] for name in ("VGG-16", "ResNet-50", "AlexNet"))


def chain() -> nn.Sequential:
    net = nn.Sequential()
    for name, layer in {
        "conv1": nn.Conv2d(1, 4, 3, padding=1), "relu1": nn.ReLU(), "conv2": nn.Conv2d(4, 6, 3, padding=1),
        "relu2": nn.ReLU(), "pool2": nn.MaxPool2d(2), "conv3": nn.Conv2d(6, 8, 3, padding=1), "relu3": nn.ReLU(),
        "average": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(8, 3),
    }.items():  # fmt: skip
        net.add_module(name, layer)
    return net


CHAIN = Network("chain", chain, (1, 16, 16), 3)


def kept(ledger: Ledger) -> dict[str, int]:
    return dict(zip(ledger.by_layer()["layer"], ledger.by_layer()["saved feature maps"], strict=True))


def test_stride_in_the_second_convolution_by_hand():
    change = changes.stride(CHAIN, "conv2", 2)
    before, after = (kept(step.at(10)) for step in (change.before, change.after))
    assert before["relu1"] == after["relu1"] == 4 * 10 * 4 * 16 * 16
    assert (before["relu2"], after["relu2"]) == (4 * 10 * 6 * 16 * 16, 4 * 10 * 6 * 8 * 8)
    # the pool's output, and an index of eight bytes beside each of its values
    assert (before["pool2"], after["pool2"]) == (12 * 10 * 6 * 8 * 8, 12 * 10 * 6 * 4 * 4)
    assert change.output_values == (6 * 16 * 16, 6 * 8 * 8)
    assert change.above(10) == after["relu1"]
    assert change.added(10) == sum(after.values()) - sum(before.values()) < 0
    assert change.parameters_added == 0
    assert change.flops[0] > change.flops[1]


def test_with_its_pool_left_out_everything_later_keeps_its_size():
    change = changes.stride(CHAIN, "conv2", 2, drop_pool=True)
    before, after = (kept(step.at(10)) for step in (change.before, change.after))
    assert after["relu2"] == 4 * 10 * 6 * 8 * 8
    assert after.get("pool2", 0) == 0
    assert before["relu3"] == after["relu3"]
    assert changes.next_pool(CHAIN, "conv2") == "pool2"
    assert changes.next_pool(CHAIN, "conv3") is None


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(["conv1", "conv2", "conv3"]), st.integers(1, 4), st.integers(2, 300))
def test_only_what_lies_downstream_changes(layer, stride, batch):
    change = changes.stride(CHAIN, layer, stride)
    reached = False
    for name, old, new in kept_before_and_after(change.before.at(batch), change.after.at(batch)):
        reached = reached or name == layer.replace("conv", "relu")
        assert new <= old if reached else new == old
    assert change.before.name == "chain"


def test_a_residual_block_strides_on_both_of_its_ways():
    change = changes.stride(RESNET, "conv4_1", 4)
    assert change.output_values == (1024 * 14 * 14, 1024 * 7 * 7)
    assert change.parameters_added == 0


def test_the_published_peak_falls_less_than_the_square():
    for layer, stride in (("conv1_1", 2), ("conv1_1", 4), ("conv3_1", 2)):
        change = changes.stride(VGG, layer, stride)
        wide, narrow = change.output_values
        old, new = change.peaks(128)
        assert wide == stride**2 * narrow
        assert 1 < old / new < stride**2
    # 12 bytes a parameter, of which at the peak a little is not there yet: the gradients of the first layers.
    assert 0.97 * 12 * 138_357_544 < changes.stays(change.after.at(128)) <= 12 * 138_357_544


def test_a_change_is_traced_once():
    assert changes.stride(ALEXNET, "conv2", 2) is changes.stride(ALEXNET, "conv2", 2)
    assert changes.stride(ALEXNET, "conv2", 2).before is changes.stride(ALEXNET, "conv3", 2).before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: changes.stride(CHAIN, "conv9", 2), "chain has no layer 'conv9'"),
        (lambda: changes.stride(CHAIN, "relu1", 2), "relu1 of chain takes no stride: choose a convolution"),
        (lambda: changes.stride(RESNET, "conv2_2", 2), "conv2_2 of ResNet-50 takes no stride"),
    ],
)
def test_impossible_changes_are_one_line(make, message):
    with pytest.raises(CourseError, match=message):
        make()


# -- the figure --------------------------------------------------------------------------------------------------------


def test_layers_before_and_after_are_named_with_both_numbers():
    change = changes.stride(CHAIN, "conv2", 2)
    before, after = change.before.at(10), change.after.at(10)
    picture = layer_changes(before, after)
    assert_well_laid(picture)
    texts = [words.text for words in words_of(picture)]
    for layer, old, new in kept_before_and_after(before, after):
        assert layer in texts
        written = format_bytes(old) if old == new else f"{format_bytes(old)} → {format_bytes(new)}"
        assert written in texts
        assert f"{layer}: {written}" in picture.alt
    assert {"before", "after"} <= set(texts)


def test_a_layer_of_one_step_only_has_nothing_in_the_other():
    change = changes.stride(CHAIN, "conv2", 2, drop_pool=True)
    rows = kept_before_and_after(change.before.at(10), change.after.at(10))
    assert ("pool2", 12 * 10 * 6 * 8 * 8, 0) in rows
    picture = layer_changes(change.before.at(10), change.after.at(10))
    assert f"{format_bytes(12 * 10 * 6 * 8 * 8)} → nothing" in picture.alt
    assert_well_laid(picture)


@pytest.mark.parametrize("top", [1, 3, 50])
def test_layers_beyond_the_largest_share_a_row(top):
    change = changes.stride(VGG, "conv3_1", 2)
    picture = layer_changes(change.before.at(128), change.after.at(128), top=top)
    assert_well_laid(picture)
    assert ("smaller layers" in picture.alt) == (top < 50)


def test_no_row_is_refused():
    change = changes.stride(CHAIN, "conv2", 2)
    with pytest.raises(CourseError, match="needs a row to draw"):
        layer_changes(change.before.at(2), change.after.at(2), top=0)


# -- pools -------------------------------------------------------------------------------------------------------------


def test_a_pool_keeps_its_output_and_an_index_for_each_value():
    published = changes.pool(CHAIN, "pool2").before.at(10)
    outputs = 10 * 6 * 8 * 8
    assert kept(published)["pool2"] == (4 + 8) * outputs
    assert changes.index_bytes(published) == 8 * outputs
    for kind, parameters in (("average pool", 0), ("strided convolution", 6 * 6 * 4 + 6)):
        change = changes.pool(CHAIN, "pool2", kind)
        assert kept(change.after.at(10))["pool2"] == 4 * outputs
        assert changes.index_bytes(change.after.at(10)) == 0
        assert change.parameters_added == parameters
        assert change.added(10) == -8 * outputs


def test_in_half_precision_the_index_stays_as_long():
    change = changes.pool(CHAIN, "pool2", "average pool", precision="float16")
    outputs = 10 * 6 * 8 * 8
    assert kept(change.before.at(10))["pool2"] == (2 + 8) * outputs
    assert changes.index_bytes(change.before.at(10)) == 8 * outputs


def test_nothing_in_the_place_of_a_pool_leaves_later_maps_whole():
    change = changes.pool(CHAIN, "pool2", "nothing")
    before, after = (kept(step.at(10)) for step in (change.before, change.after))
    assert after["relu3"] == 4 * before["relu3"]


def test_every_pool_is_every_pool():
    assert changes.pools(VGG) == [f"pool{group}" for group in range(1, 6)]
    change = changes.pool(VGG, changes.EVERY_POOL, "average pool")
    # 1,530,368 pooled values of one picture (Simonyan and Zisserman 2015, table 1), 8 bytes each.
    assert changes.index_bytes(change.before.at(128)) == 8 * 128 * 1_530_368
    assert changes.index_bytes(change.after.at(128)) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: changes.pool(CHAIN, "relu1"), "chain has no pool 'relu1': choose one of pool2, every pool"),
        (lambda: changes.pool(CHAIN, "pool2", "median"), "unknown kind of pool 'median'"),
    ],
)
def test_impossible_pools_are_one_line(make, message):
    with pytest.raises(CourseError, match=message):
        make()


# -- squeezes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "narrow"), [(2, 0), (3, 1)])
def test_a_squeeze_adds_its_map_and_narrows_what_stays_narrow(channels, narrow):
    change = changes.squeeze(CHAIN, "conv2", channels, narrow)
    before, after = (kept(step.at(10)) for step in (change.before, change.after))
    assert after["relu1"] == before["relu1"]
    assert after["conv2.relu"] == 4 * 10 * channels * 16 * 16
    assert after["relu2"] == 4 * 10 * (channels if narrow else 6) * 16 * 16
    assert after["relu3"] == before["relu3"]
    squeeze, middle = 4 * channels + channels, (channels if narrow else 6)
    convolutions = 9 * channels * middle + middle + 9 * middle * 8 + 8
    assert change.parameters_added == squeeze + convolutions - (9 * 4 * 6 + 6 + 9 * 6 * 8 + 8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: changes.squeeze(CHAIN, "relu1", 2), "chain has no convolution 'relu1' to squeeze in front of"),
        (lambda: changes.squeeze(CHAIN, "conv3", 2, 1), "conv3 of chain has 0 convolutions after it"),
        (lambda: changes.squeeze(CHAIN, "conv3", 0), "squeeze needs 1 channel or more"),
    ],
)
def test_impossible_squeezes_are_one_line(make, message):
    with pytest.raises(CourseError, match=message):
        make()
