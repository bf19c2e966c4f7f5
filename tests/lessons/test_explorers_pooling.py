"""Explorer of lesson 06 at every corner: picture and words agree with the reading."""

import re

import pytest
from amount import every_pair
from drawn import assert_says_how_the_peak_moves, assert_sound, drawn_by, one_move, said_by, words_of

from course_utils.networks import NETWORKS
from course_utils.units import CourseError, format_bytes
from lessons.pooling.explorer import NETWORK_NAMES, pool_explorer
from lessons.shared import changes
from lessons.shared.changes import EVERY_POOL, POOL_KINDS


def test_the_screen_shows_the_reading():
    explorer = pool_explorer("AlexNet", "pool1", "average pool", batch=64)
    change = changes.pool(NETWORKS["AlexNet"], "pool1", "average pool")
    old, new = (format_bytes(peak) for peak in change.peaks(64))
    state, culprit, way_out = said_by(explorer).split("\n")
    assert state == f"Batch 64, float32, average pool in pool1: the peak falls from {old} to {new}."
    # 64 channels of 27 × 27 positions, 8 bytes an index
    assert f"maps as before, indices {format_bytes(8 * 64 * 64 * 27 * 27)} less" in culprit
    left = format_bytes(changes.index_bytes(change.after.at(64)))
    assert way_out.startswith(f"The other pools keep {left} of indices")
    assert f"before: {old}" in [text.text for text in words_of(drawn_by(explorer))]


def test_a_max_pool_is_told_what_an_average_would_save():
    explorer = pool_explorer("AlexNet", EVERY_POOL, "max pool")
    average = changes.pool(NETWORKS["AlexNet"], EVERY_POOL, "average pool").after.at(128).peak_bytes
    assert "the peak stays at" in said_by(explorer)
    assert f"an average pool here would bring the peak to {format_bytes(average)}" in said_by(explorer)


def test_every_control_changes_picture_or_words():
    explorer = pool_explorer("AlexNet", "pool1", batch=64)
    moves = {"batch": 65, "size": 4, "kind": "max pool", "precision": "float16", "place": "pool2", "network": "VGG-16"}
    for name, value in moves.items():
        before = explorer.figure.value, said_by(explorer)
        getattr(explorer, name).value = value
        assert (explorer.figure.value, said_by(explorer)) != before, name


def test_another_network_offers_its_own_pools():
    explorer = pool_explorer("VGG-16", "pool3")
    explorer.network.value = "ResNet-50"
    assert explorer.place.options == ("pool1",)
    explorer.network.value = "AlexNet"
    assert explorer.place.options == ("pool1", "pool2", "pool5", EVERY_POOL)


def test_the_batch_is_never_traced(monkeypatch):
    explorer = pool_explorer("AlexNet")
    monkeypatch.setattr(changes, "training_step", lambda *_, **__: pytest.fail("traced"))
    for batch in range(100, 120):
        explorer.batch.value = batch
    assert "Batch 119" in said_by(explorer)


@pytest.mark.parametrize("network", NETWORK_NAMES)
def test_the_corners_of_every_control(network):
    explorer = pool_explorer(network)
    places = (explorer.place.options[0], explorer.place.options[-1])
    precisions = ("float32", "float16") if network == "AlexNet" else ("float32",)
    for place, kind, size, precision, batch in every_pair(places, POOL_KINDS, (0, 4), precisions, (1, 512)):
        with one_move(explorer):
            explorer.place.value, explorer.kind.value = place, kind
            explorer.size.value, explorer.precision.value = size, precision
            explorer.batch.value = batch
        said = said_by(explorer)
        if "alert" in explorer.words.value:
            assert (place, size) == (EVERY_POOL, 4), said  # four times smaller three or five times: nothing is left
            continue
        assert_sound(explorer)
        assert f"Batch {batch}, {precision}, {kind}" in said
        assert_says_how_the_peak_moves(said, *explorer.change.peaks(batch))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"network": "LeNet"}, "unknown network 'LeNet': choose one of VGG-16, AlexNet, ResNet-50"),
        ({"place": "pool9"}, "unknown place 'pool9'"),
        ({"kind": "median pool"}, "unknown kind 'median pool': choose one of max pool, average pool"),
        ({"size": 5}, "unknown size 5"),
        ({"precision": "int8"}, "unknown precision 'int8'"),
        ({"batch": True}, "batch must be a whole number of 1 or more, got True"),
    ],
)
def test_wrong_starts_are_one_line(wrong, message):
    with pytest.raises(CourseError, match=re.escape(message)):
        pool_explorer(**wrong)
