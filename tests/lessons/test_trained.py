"""The trainings that are kept: those of the networks that lessons show, and trained as lessons train."""

from __future__ import annotations

import pytest
from torch import nn

from course_utils.units import CourseError
from lessons.shared import trained
from lessons.shared.digits import Variant, compare, learned


def dense() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


@pytest.mark.parametrize("run", trained.RUNS)
def test_the_file_has_every_run_and_says_where_it_was_made(run):
    shares, wanted = trained.kept(run), trained.RUNS[run]
    assert set(shares.index.get_level_values(0)) == set(wanted.networks)
    assert list(shares.columns) == list(wanted.columns)
    assert len(shares) == len(wanted.networks) * len(trained.SEEDS)
    assert shares.min(axis=None) > 0.1  # better than by chance
    assert shares.max(axis=None) <= 1
    assert f"python -m lessons.shared.trained {run}" in trained.provenance(run)


def test_a_run_is_trained_and_written_and_the_others_are_left(monkeypatch, tmp_path):
    monkeypatch.setattr(trained, "KEPT", tmp_path / "trained.json")
    monkeypatch.setattr(trained, "SEEDS", (0,))
    monkeypatch.setattr(
        trained, "RUNS", {name: trained.Run({"dense": dense}, 8, (1, 2), look=look) for name in ("first", "second")}
    )
    trained.make("first")
    trained.make("second")
    assert trained.kept("first").equals(trained.kept("second"))
    assert list(trained.kept("first").loc[("dense", 0)]) == [round(share, 4) for share in learned(dense, [1, 2], 0, 8)]
    with pytest.raises(CourseError, match="third"):
        trained.kept("third")


def look(build, seed, side):
    return learned(build, [1, 2], seed, side)


def test_learning_is_the_same_however_often_it_is_looked_at_and_as_compare_trains():
    often, once = learned(dense, [1, 2, 3], 1, 8), learned(dense, [3], 1, 8)
    assert often[-1:] == once
    assert compare({"dense": Variant(dense)}, 3, (1,), 8)["accuracy"].item() == pytest.approx(once[0])


@pytest.mark.parametrize("epochs", [[], [0, 3], [3, 1], [2, 2]])
def test_epochs_that_do_not_rise_are_refused(epochs):
    with pytest.raises(CourseError, match=r"epochs must be whole numbers of 1 or more that rise"):
        learned(dense, epochs)
