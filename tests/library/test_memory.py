"""What a ledger says: its parts sum to its peak, the accounting of 2016, workspace, arithmetic, the largest batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import awkward_nets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from course_utils import networks
from course_utils.memory import PHASES, ROLES, StepTrace
from course_utils.trace import training_step
from course_utils.units import CourseError

BUILDERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "alexnet": (networks.alexnet, (3, 224, 224), 1000),
    "vgg16": (networks.vgg16, (3, 224, 224), 1000),
    "vgg416": (lambda: networks.vgg_deep(416), (3, 224, 224), 1000),
    "resnet50": (networks.resnet50, (3, 224, 224), 1000),
    "kaggle_mlp": (networks.kaggle_mlp, (9000,), 32),
    "encoder_block": (awkward_nets.encoder_block, (9, 64), 10),
    "branching_cnn": (awkward_nets.branching_cnn, (3, 16, 16), 10),
    "shared_weights": (awkward_nets.shared_weights, (64,), 10),
}
SOME = ["alexnet", "resnet50", "encoder_block", "branching_cnn", "shared_weights"]


@cache
def trace_of(name: str, optimizer: str | None = "momentum", target: str = "cuda") -> StepTrace:
    build, input_shape, classes = BUILDERS[name]
    with torch.device("meta"):
        module = build()
    return training_step(module, input_shape, classes, optimizer, target=target)


class Gram(nn.Module):
    """Multiplies the batch by itself, so that its memory grows with the square of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 8) to (batch, 5)."""
        maps = self.inner(x)
        scores: Tensor = self.head((maps @ maps.T) @ maps)
        return scores


@cache
def gram() -> StepTrace:
    return training_step(Gram(), (8,), 5, optimizer="sgd")


# -- the parts and the whole -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("optimizer", ["momentum", "adam", None])
def test_roles_sum_to_the_peak_and_to_every_row_of_the_timeline(name: str, optimizer: str | None) -> None:
    step = trace_of(name, optimizer)
    for batch in (1, 64):
        ledger = step.at(batch)
        roles, frame = ledger.by_role(), ledger.timeline()
        assert list(roles.index) == list(ROLES)
        assert roles.sum() == ledger.peak_bytes == frame["total"].max()
        assert list(frame.columns) == ["event", "phase", "layer", *ROLES, "total"]
        assert (frame[list(ROLES)].sum(axis=1) == frame["total"]).all()
        assert (frame[list(ROLES)] >= 0).all(axis=None)
        at_peak = frame.iloc[int(frame["total"].to_numpy().argmax())]
        assert (at_peak["phase"], at_peak["layer"]) == (ledger.peak_phase, ledger.peak_layer)
        assert (at_peak[list(ROLES)].to_numpy() == roles.to_numpy()).all()


@pytest.mark.parametrize("name", SOME)
def test_a_step_ends_as_it_began(name: str) -> None:
    """zero_grad frees the gradients: what stays is parameters, state, input, buffers, and the number of the loss."""
    frame = trace_of(name, "adam").at(32).timeline()
    first, last = frame.iloc[0], frame.iloc[-1]
    assert (first["event"], last["event"]) == ("start", "zero_grad")
    assert (last[[*ROLES]] - first[[*ROLES]]).to_dict() == {role: 4 if role == "feature maps" else 0 for role in ROLES}
    assert list(dict.fromkeys(frame["phase"])) == list(PHASES)
    assert frame.iloc[-2]["weight gradients"] == first["parameters"]


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 0), ("momentum", 1), ("adam", 2), ("adamw", 2)])
def test_optimizer_state_in_copies_of_the_parameters(optimizer: str, copies: int) -> None:
    build, _, _ = BUILDERS["alexnet"]
    with torch.device("meta"):
        parameters = sum(p.numel() for p in build().parameters())
    for target, counters in (("cuda", 0), ("cpu", 4 * 16 if copies == 2 else 0)):  # 16 tensors count their own steps
        frame = trace_of("alexnet", optimizer, target).at(8).timeline()
        assert set(frame["parameters"]) == {4 * parameters}
        assert set(frame["optimizer state"]) == {4 * parameters * copies + counters}


def test_inference_has_neither_gradients_nor_state() -> None:
    frame = trace_of("alexnet", None).at(8).timeline()
    assert set(frame["phase"]) == {"forward"}
    for role in ("optimizer state", "weight gradients", "gradient maps"):
        assert set(frame[role]) == {0}
    # Maps are dropped as soon as the next layer has run, so the peak is that of two layers, not of the sum.
    largest = 8 * 4 * 64 * 55 * 55
    assert frame["feature maps"].max() == 2 * largest


# -- layer by layer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SOME, "vgg16", "kaggle_mlp"])
def test_layers_sum_to_the_network(name: str) -> None:
    build, _, _ = BUILDERS[name]
    with torch.device("meta"):
        parameters = sum(p.numel() for p in build().parameters())
    ledger = trace_of(name, "sgd").at(16)
    layers, frame = ledger.by_layer(), ledger.timeline()
    assert layers["layer"].is_unique
    assert layers["parameters"].sum() == parameters
    assert layers["weight gradients"].sum() == 4 * parameters
    last_forward = frame[frame["phase"] == "forward"].iloc[-1]
    assert layers["saved feature maps"].sum() == last_forward["feature maps"]


def test_shapes_are_those_of_the_modules_own_outputs() -> None:
    build, input_shape, _ = BUILDERS["resnet50"]
    with torch.device("meta"):
        module = build()
        seen: dict[str, tuple[int, ...]] = {}
        for path, child in module.named_modules():
            if not list(child.children()) and not isinstance(child, nn.Identity):
                child.register_forward_hook(lambda child, x, out, path=path: seen.update({path: tuple(out.shape)}))
        module(torch.empty(16, *input_shape))
    layers = trace_of("resnet50").at(16).by_layer().set_index("layer")
    assert {path: layers.loc[path, "shape"] for path in seen} == seen


def test_arithmetic_of_vgg16() -> None:
    """A multiply-add counts as two: 15.47 G multiply-adds a picture, by the formula for each layer."""
    ledger = trace_of("vgg16").at(3)
    layers = ledger.by_layer().set_index("layer")
    assert layers.loc["conv1_1", "flops"] == 3 * 2 * 64 * 224 * 224 * 3 * 3 * 3
    assert layers.loc["fc6", "flops"] == 3 * 2 * 25_088 * 4_096
    assert layers["flops"].sum() / 3 == 30_940_528_640
    flops = (ledger.tape.event_flops[:, 0] + 3 * ledger.tape.event_flops[:, 1]).reshape(-1)
    phase = ledger.tape.event_phase
    # Backward takes two products a layer where forward takes one, but the first layer needs no gradient of its input.
    assert flops[phase == 1].sum() == 2 * flops[phase == 0].sum() - layers.loc["conv1_1", "flops"]


# -- the accounting of 2016 --------------------------------------------------------------------------------------------


def test_network_wide_alexnet_by_hand() -> None:
    maps = 64 * 55**2 + 64 * 27**2 + 192 * 27**2 + 192 * 13**2 + 384 * 13**2 + 2 * 256 * 13**2 + 256 * 6**2
    dense = 4096 + 4096 + 1000
    parts = trace_of("alexnet").at(128).network_wide_parts()
    assert parts == {
        "feature maps": 128 * 4 * (3 * 224**2 + maps + dense),
        "gradient maps": 2 * 128 * 4 * 64 * 55**2,
        "parameters": 4 * 61_100_840,
        "weight gradients": 4 * 61_100_840,
    }
    assert trace_of("alexnet").at(128).network_wide_bytes() == sum(parts.values())
    assert [round(b / 1e9, 3) for b in (parts["feature maps"], parts["gradient maps"], 2 * parts["parameters"])] == [
        *(0.375, 0.198, 0.489)
    ]
    assert round(sum(parts.values()) / 1e9, 2) == 1.06


def test_network_wide_vgg16_by_hand() -> None:
    convolutions = 13_547_520  # Simonyan, Zisserman 2015, table 1; tests/library/test_networks.py adds them up
    pools = sum(width * side**2 for width, side in [(64, 112), (128, 56), (256, 28), (512, 14), (512, 7)])
    parts = trace_of("vgg16").at(128).network_wide_parts()
    assert parts["feature maps"] == 128 * 4 * (3 * 224**2 + convolutions + pools + 4096 + 4096 + 1000)
    assert parts["gradient maps"] == 2 * 128 * 4 * 64 * 224**2
    terms = (parts["feature maps"], parts["gradient maps"], parts["parameters"] + parts["weight gradients"])
    assert [round(term / 1e9, 2) for term in terms] == [7.80, 3.29, 1.11]
    assert round(trace_of("vgg16").at(128).network_wide_bytes() / 1e9, 2) == 12.20


@pytest.mark.parametrize(("batch", "percent"), [(64, 59), (128, 64), (256, 67)])
def test_share_of_the_feature_maps_in_vgg16(batch: int, percent: int) -> None:
    parts = trace_of("vgg16").at(batch).network_wide_parts()
    assert round(100 * parts["feature maps"] / sum(parts.values())) == percent


def test_network_wide_vgg416() -> None:
    assert round(trace_of("vgg416").at(32).network_wide_bytes() / 1e9, 1) == 70.1


def test_network_wide_counts_activations_in_place_whether_they_are_or_not() -> None:
    with torch.device("meta"):
        nets = networks.vgg16(), networks.vgg16()
    for part in nets[1].modules():
        if isinstance(part, nn.ReLU):
            part.inplace = True
    ledgers = [training_step(net, (3, 224, 224)).at(32) for net in nets]
    assert ledgers[0].network_wide_bytes() == ledgers[1].network_wide_bytes()


# -- reserved ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SOME, "vgg16", "kaggle_mlp"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", None])
def test_reserved_is_at_least_allocated_and_that_at_least_the_peak(name: str, optimizer: str | None) -> None:
    for batch in (1, 50):
        ledger = trace_of(name, optimizer).at(batch)
        assert ledger.reserved_bytes() >= ledger.allocated_bytes() >= ledger.peak_bytes
        assert ledger.reserved_bytes() % (2 * 2**20) == 0  # whole segments


# -- the largest batch -------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.sampled_from([("alexnet", "adam"), ("resnet50", "momentum"), ("encoder_block", "adam"), ("vgg16", None)]),
    st.integers(0, 2**37),
)
def test_the_largest_batch_fits_and_the_next_does_not(case: tuple[str, str | None], limit: int) -> None:
    step = trace_of(*case)
    largest = step.largest_batch(limit)
    if largest > 0:
        assert step.at(largest).peak_bytes <= limit
    assert step.at(largest + 1).peak_bytes > limit


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**7))
def test_the_largest_batch_of_a_network_that_is_not_affine(limit: int) -> None:
    step = gram()
    assert not step.affine
    largest = step.largest_batch(limit)
    if largest > 0:
        assert step.at(largest).peak_bytes <= limit
    assert step.at(largest + 1).peak_bytes > limit


def test_the_largest_batch_at_exactly_the_limit() -> None:
    step = trace_of("alexnet")
    for batch in (1, 2, 3, 200):
        peak = step.at(batch).peak_bytes
        assert step.largest_batch(peak) == batch
        assert step.largest_batch(peak - 1) == batch - 1


class OtherwiseAlone(nn.Module):
    """Takes a shorter path for one sample than for several."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(8, 500), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 8) to (batch, 5)."""
        scores: Tensor = self.head(x)
        return scores if len(x) == 1 else scores + self.inner(x).relu().mean(1, keepdim=True)


def test_the_largest_batch_where_one_sample_takes_another_path() -> None:
    """One sample is never read from the two traces; with one as with several, the answer is exact."""
    step = training_step(OtherwiseAlone(), (8,), optimizer="sgd", target="cpu")
    assert step.affine
    alone, two = step.at(1).peak_bytes, step.at(2).peak_bytes
    line = 2 * two - step.at(3).peak_bytes  # where the line of two and three meets one
    assert alone < line < two
    assert [step.largest_batch(limit) for limit in (alone - 1, alone, line, two - 1, two)] == [0, 1, 1, 1, 2]


def test_the_peak_of_a_large_batch_is_not_on_the_line_through_two_small_ones() -> None:
    """Why peaks are never extrapolated: they move from the update to the backward pass as the batch grows."""
    step = trace_of("vgg16", "adam", "cpu")
    few, more, many = (step.at(batch) for batch in (1, 2, 256))
    assert (few.peak_phase, many.peak_phase) == ("update", "backward")
    line = few.peak_bytes + 255 * (more.peak_bytes - few.peak_bytes)
    assert line < 0.2 * many.peak_bytes


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, -3, 1.5, "8", True, None])
def test_a_batch_that_is_none_is_refused_in_one_line(batch: object) -> None:
    with pytest.raises(CourseError, match=r"batch must be a whole number of 1 or more, got") as caught:
        trace_of("shared_weights").at(batch)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_numpy_integers_are_batches() -> None:
    assert trace_of("shared_weights").at(np.int64(7)).peak_bytes == trace_of("shared_weights").at(7).peak_bytes
