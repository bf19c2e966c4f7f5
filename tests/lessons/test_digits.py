"""Training on the digits: seeded, comparable, and honest about what it took."""

from functools import partial

import pytest
import torch
from oracles import Case, live_storages_timeline
from torch import nn

from course_utils.units import CourseError
from lessons.shared import digits
from lessons.shared.digits import Variant, compare, images


def dense() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def wide() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def tensors_alive(dtype: torch.dtype) -> int:
    """The most bytes of real tensors at once, in a step of `dense` with Adam and 64 pictures, all in this type."""
    case = Case(lambda: dense().to(dtype), (1, 8, 8), 10, "adam", make_input=partial(torch.zeros, dtype=dtype))
    return max(alive for _, alive in live_storages_timeline(case, 64))


@pytest.mark.parametrize("side", [8, 16, 24])
def test_pictures_keep_what_is_to_be_seen(side):
    x, y, test_x, test_y = images(side)
    assert x.shape == (1297, 1, side, side)
    assert test_x.shape == (500, 1, side, side)
    assert len(y) == 1297
    assert len(test_y) == 500
    assert 0 <= float(x.min()) < float(x.max()) <= 1
    back = nn.functional.adaptive_avg_pool2d(x, 8).flatten(1)
    assert torch.corrcoef(torch.stack([back.flatten(), digits.load()[0].flatten()]))[0, 1] > 0.9


def test_training_runs_on_one_thread_and_gives_the_others_back():
    seen = []

    class Asks(nn.Linear):
        def forward(self, x):
            if x.device.type != "meta":
                seen.append(torch.get_num_threads())
            return super().forward(x.flatten(1))

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        compare({"a": Variant(lambda: Asks(64, 10), batch=512)}, epochs=1, seeds=(0,), side=8)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen[0] == 1


def test_a_seed_decides_everything_but_time():
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first, second = (compare({"a": Variant(dense)}, epochs=2, seeds=(0, 1), side=8) for _ in range(2))
    assert torch.equal(state, torch.random.get_rng_state())
    columns = ["traced peak", "measured peak", "accuracy", "lowest", "highest"]
    assert first[columns].equals(second[columns])
    assert first.loc["a", "lowest"] <= first.loc["a", "accuracy"] <= first.loc["a", "highest"]


def test_it_learns_and_memory_is_that_of_one_batch():
    table = compare({"few": Variant(dense, 32), "many": Variant(dense, 256), "wide": Variant(wide, 32)}, 8, (0,), 8)
    assert table["accuracy"].min() > 0.8
    assert table.loc["few", "traced peak"] < table.loc["many", "traced peak"]
    assert table.loc["few", "traced peak"] < table.loc["wide", "traced peak"]
    assert (table["measured peak"] - table["traced peak"]).between(0, 64).all()


def test_accumulated_batches_are_the_large_batch():
    table = compare({"whole": Variant(dense, 64), "parts": Variant(dense, 16, accumulate=4)}, 3, (0, 1), 8)
    assert table.loc["whole", "accuracy"] == pytest.approx(table.loc["parts", "accuracy"], abs=0.004)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_reduced_precision_learns_too(precision):
    assert compare({"half": Variant(dense, precision=precision)}, 8, (0,), 8)["accuracy"].min() > 0.8


def test_some_digits_alone():
    x, y, test_x, test_y = digits.only(range(5, 10), 8)
    assert set(y.tolist()) == set(test_y.tolist()) == set(range(5, 10))
    others = digits.only(range(5), 8)
    assert len(y) + len(others[1]) == 1297
    assert len(test_y) + len(others[3]) == 500
    assert x.shape[1:] == test_x.shape[1:] == (1, 8, 8)
    table = compare({"a": Variant(dense)}, 8, (0,), 8, data=(x, y, test_x, test_y))
    assert table.loc["a", "accuracy"] > 0.8
    with pytest.raises(CourseError, match=r"no digit is one of \[12\]"):
        digits.only([12])


def test_pure_halves_take_half_of_everything_and_adam_divides_by_nothing():
    """Adam's 1e-8 is 0 in float16, so a weight whose gradient is 0 moves by 0 / 0; bfloat16 has the range for it.

    Tensors are counted to the byte; what kernels take beside them for a moment is each processor's own affair.
    """
    variants = {"full": Variant(dense), "half": Variant(dense, precision="float16", pure=True)}
    table = compare({**variants, "brain": Variant(dense, precision="bfloat16", pure=True)}, 8, (0,), 8)
    labels = 64 * 8
    for name, dtype in (("half", torch.float16), ("brain", torch.bfloat16)):
        traced = table.loc[name, "traced peak"]
        assert traced - labels == pytest.approx((table.loc["full", "traced peak"] - labels) / 2, rel=0.05)
        assert traced == tensors_alive(dtype)
        assert traced <= table.loc[name, "measured peak"]
    assert table.loc["half", "accuracy"] < 0.2
    assert table.loc["brain", "accuracy"] > 0.8


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"variants": {}}, "needs a variant"),
        ({"seeds": ()}, "needs a variant, a seed"),
        ({"epochs": 0}, "needs a variant, a seed and an epoch"),
        ({"variants": {"a": Variant(dense, 0)}}, "batch and accumulate of 'a' must be 1 or more"),
        ({"variants": {"a": Variant(dense, precision="int8")}}, "unknown precision 'int8'"),
    ],
)
def test_what_cannot_be_trained_is_one_line(wrong, message):
    with pytest.raises(CourseError, match=message):
        compare(**{"variants": {"a": Variant(dense)}, **wrong})
