"""CUDA's named differences against what a CPU can witness of them.

No GPU is needed and none is asked: each difference of `course_utils.trace.kernels` is tested as far as its docstring
says it is confirmed. Optimizer temporaries: live storages of a real `foreach=True` update. Sums of gradients in place:
the allocator's records of runs that nobody watches, on random graphs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import awkward_nets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import MAKE_OPTIMIZER, Case, allocator_records, live_storages_timeline
from torch import Tensor, nn

from course_utils.memory import ROLE, Ledger
from course_utils.trace import kernels, training_step
from course_utils.trace.shortcuts import SHORTCUTS

aten = torch.ops.aten

# -- traffic -----------------------------------------------------------------------------------------------------------


def _scores() -> Tensor:
    return torch.arange(35.0).reshape(5, 7)


def _changed(result: Any, other: Any) -> int:
    """Elements in which results differ."""
    pairs = zip(kernels.flat_tensors(result), kernels.flat_tensors(other), strict=True)
    return sum(int((one != two).sum()) for one, two in pairs)


LABEL, ROWS = torch.tensor([3, 0, 6, 2, 2]), torch.tensor([4, 1])
PLACES = [torch.arange(5), LABEL]
GAP, MANY = torch.full((5,), -9.0), torch.full((2, 7), -9.0)
TOTAL = torch.tensor(5.0)
BY_HAND = {  # 4 bytes a value, 8 an index; 5 x 7 values: 140 bytes
    "gather": ((_scores(), 1, LABEL[:, None]), 5 * 4 + 5 * 8 + 5 * 4),
    "index": ((_scores(), PLACES), 5 * 4 + 10 * 8 + 5 * 4),
    "index_select": ((_scores(), 0, ROWS), 14 * 4 + 2 * 8 + 14 * 4),
    "embedding": ((_scores(), ROWS), 14 * 4 + 2 * 8 + 14 * 4),
    "take": ((_scores(), torch.tensor([3, 0, 6, 2, 30])), 5 * 4 + 5 * 8 + 5 * 4),
    "nll_loss_forward": ((_scores(), LABEL, None, 1, -100), 5 * 4 + 5 * 8 + 2 * 4),
    "nll_loss_backward": ((torch.ones(()), _scores(), LABEL, None, 1, -100, TOTAL), 4 + 5 * 8 + 4 + 140),
    "index_put_": ((_scores(), PLACES, GAP), 10 * 8 + 5 * 4 + 5 * 4),
    "_index_put_impl_": ((_scores(), PLACES, GAP, True, True), 10 * 8 + 5 * 4 + 2 * 5 * 4),
    "scatter_": ((_scores(), 1, LABEL[:, None], GAP[:, None]), 5 * 8 + 5 * 4 + 5 * 4),
    "scatter_add_": ((_scores(), 1, LABEL[:, None], GAP[:, None]), 5 * 8 + 5 * 4 + 2 * 5 * 4),
    "index_copy_": ((_scores(), 0, ROWS, MANY), 2 * 8 + 14 * 4 + 14 * 4),
    "index_add_": ((_scores(), 0, ROWS, MANY), 2 * 8 + 14 * 4 + 2 * 14 * 4),
    "relu": ((_scores(),), 140 + 140),
    "embedding_dense_backward": ((MANY, ROWS, 50, -1, False), 14 * 4 + 2 * 8 + 50 * 7 * 4),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_traffic_is_what_a_kernel_reads_and_writes(name: str) -> None:
    """By hand, and by torch: an element that is read is one whose change changes the result."""
    args, by_hand = BY_HAND[name]
    operator = getattr(aten, name)

    def result(which: int, place: int) -> Any:
        """What the operator makes where this element of that operand is one larger."""
        copies = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
        kernels.flat_tensors(copies)[which].view(-1)[place] += 1
        return operator(*copies)

    inputs = kernels.flat_tensors(args)
    in_place = name.endswith("_")
    made = operator(*(arg.clone() if isinstance(arg, Tensor) else arg for arg in args))
    outputs = kernels.flat_tensors(made)
    assert kernels.traffic(name, inputs, outputs) == by_hand
    written = (inputs[0] != made) if in_place else torch.ones(0)
    counted = 4 * int(written.sum()) + sum(one.nbytes for one in outputs if not in_place)
    for which, one in enumerate(inputs):
        if one.dtype == torch.int64:
            counted += one.nbytes  # every index is read
            continue
        stays = in_place and which == 0  # what is not written is neither read nor written
        places = written.view(-1).nonzero()[:, 0].tolist() if stays else range(one.numel())
        counted += 4 * sum(_changed(made, result(which, place)) > 0 for place in places)
    assert counted == by_hand


def test_a_number_put_into_rows_is_charged_a_whole_pass() -> None:
    whole, row = torch.zeros(5, 7), torch.tensor([1])
    assert kernels.traffic("index_put_", [whole, row, torch.tensor(1.0)], [whole]) == 2 * 140 + 8 + 4


# -- 1. dropout's mask -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inplace", "target", "mask"), [(False, "cuda", 1), (False, "cpu", 4), (True, "cuda", 4)])
def test_a_dropout_mask_takes_one_byte_a_value_on_cuda_where_the_kernel_is_fused(
    inplace: bool, target: str, mask: int
) -> None:
    net = nn.Sequential(nn.Linear(8, 100), nn.Dropout(0.5, inplace), nn.Linear(100, 5))
    step = training_step(net, (8,), target=target)
    for batch in (1, 7):
        layers = step.at(batch).by_layer().set_index("layer")
        out = 0 if inplace else 4 * 100 * batch  # made by the dropout, kept for the layer behind it
        assert layers.loc["1", "saved feature maps"] == out + mask * 100 * batch


def test_dropout_between_layers_leaves_other_masks_and_products_alone() -> None:
    """A mask is told by how it was made, so a product with an ordinary tensor keeps its four bytes."""

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.head = nn.Linear(8, 100), nn.Linear(100, 5)

        def forward(self, x: Tensor) -> Tensor:
            gate = torch.empty_like(self.gate(x)).fill_(0.5)
            scores: Tensor = self.head(self.gate(x) * gate)
            return scores

    saved = [
        training_step(Gated(), (8,), target=target).at(9).by_layer()["saved feature maps"].sum()
        for target in ("cuda", "cpu")
    ]
    assert saved[0] == saved[1]


# -- 2. and 6. the optimizer's update ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "make_optimizer"),
    [
        ("sgd", lambda p: torch.optim.SGD(p, lr=0.01, foreach=True)),
        ("momentum", lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, foreach=True)),
        ("adam", lambda p: torch.optim.Adam(p, foreach=True)),
        ("adamw", lambda p: torch.optim.AdamW(p, foreach=True)),
    ],
)
def test_update_equals_a_real_foreach_update(optimizer: str, make_optimizer: Callable[..., Any]) -> None:
    build, input_shape = awkward_nets.branching_cnn, (3, 8, 8)
    with mock.patch.dict(MAKE_OPTIMIZER, {optimizer: make_optimizer}):
        real = live_storages_timeline(Case(build, input_shape, 10, optimizer), batch=3)
    frame = training_step(build(), input_shape, optimizer=optimizer, target="cuda").at(3).timeline()
    update = frame[frame["phase"] == "update"][:-1]  # without zero_grad
    # On CUDA the step counters, one number a parameter, and the 1 added to them stay in host memory.
    counters = 4 * len(list(build().parameters())) if "adam" in optimizer else 0
    first = 4 if counters else 0
    expected = [(op, size - counters - (first if i == 0 else 0)) for i, (op, size) in enumerate(real[-len(update) :])]
    assert list(zip(update["event"], update["total"] - update["workspace"], strict=True)) == expected


# -- 3. gradients added in place ---------------------------------------------------------------------------------------


def without_workspace(ledger: Ledger) -> int:
    """The peak less what matrix products keep for themselves, which a CPU does not have."""
    return ledger.peak_bytes - int(ledger.by_role()["workspace"])


class Fan(nn.Module):
    """One map used three times by operators that save nothing, so that the sum of its gradients is the peak."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 400), nn.Linear(400, 5)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.inner(x)
        total = -maps
        total += maps.flip(1)
        total += maps.roll(1, 1)
        scores: Tensor = self.head(total)
        return scores


def test_the_sum_of_gradients_needs_no_third_map_where_nobody_watches() -> None:
    batch, one_map = 50, 4 * 50 * 400
    truth, _ = allocator_records(Case(Fan, (4,), 5), batch)
    on_cuda = training_step(Fan(), (4,), optimizer="sgd", target="cuda").at(batch)
    watched = training_step(Fan(), (4,), optimizer="sgd", target="cpu").at(batch)
    assert without_workspace(on_cuda) == truth
    assert watched.peak_bytes == truth + one_map


class RandomGraph(nn.Module):
    """Operators chosen at random over the maps made so far, in ways that let gradients meet: shared, cut, stretched."""

    KINDS = ("linear", "relu", "neg", "tanh", "add", "mul", "cat", "sigmoid", "turn", "cut", "stretch", "sum")

    def __init__(self, seed: int) -> None:
        super().__init__()
        choose = random.Random(seed)
        self.plan: list[tuple[str, int, int]] = []
        self.layers = nn.ModuleList()
        for count in range(1, choose.randint(3, 10)):
            kind = choose.choice(self.KINDS)
            self.plan.append((kind, choose.randrange(count), choose.randrange(count)))
            self.layers.append(
                nn.Linear(32 if kind == "cat" else 16, 16) if kind in ("linear", "cat") else nn.Identity()
            )
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        maps = [x]
        for (kind, first, second), layer in zip(self.plan, self.layers, strict=True):
            a, b = maps[first], maps[second]
            if kind in ("relu", "neg", "tanh", "sigmoid"):
                maps.append(getattr(torch, kind)(a))
            elif kind in ("add", "mul"):
                maps.append(getattr(torch, kind)(a, b))
            elif kind == "linear":
                maps.append(-layer(a))  # the sign keeps stretched gradients from products, which would copy them
            elif kind == "cat":
                maps.append(-layer(torch.cat([a, b], 1)))
            elif kind == "turn":
                maps.append((-a.t()).t())
            elif kind == "cut":
                maps.append(torch.cat([a[:, 8:], a[:, :8]], 1))
            else:  # the gradient of a sum is one value seen many times
                maps.append((a.mean(1, keepdim=True) if kind == "stretch" else a.sum(1, keepdim=True)) + b)
        used = {place for _, *places in self.plan for place in places}
        total = maps[-1]
        for place, other in enumerate(maps[:-1]):
            if place not in used:
                total = total + other
        scores: Tensor = self.head(total)
        return scores


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 64]))
def test_random_graphs_allocate_what_an_unwatched_run_does(seed: int, batch: int) -> None:
    peak, asked = allocator_records(Case(lambda: RandomGraph(seed), (16,), 5), batch)
    ledger = training_step(RandomGraph(seed), (16,), optimizer="sgd", target="cuda").at(batch)
    assert without_workspace(ledger) == peak
    tape = ledger.tape
    made = (tape.birth > 0) & (tape.role != ROLE["workspace"])
    sizes = (tape.fixed + batch * tape.per_sample)[made]
    # Up to 8 bytes may be a Python number that a kernel made a tensor of.
    assert sorted(sizes[sizes > 8]) == sorted(size for size in asked if size > 8)


# -- 4. cuBLAS workspace -----------------------------------------------------------------------------------------------


def test_cublas_keeps_one_workspace_for_each_thread_that_multiplies() -> None:
    size = kernels.CUBLAS_WORKSPACE
    assert size == 8_519_680  # as seen on cards before Hopper
    dense, pictures = nn.Sequential(nn.Linear(4, 3)), nn.Sequential(nn.Conv2d(1, 3, 1), nn.Flatten())
    for net, shape, optimizer, count in [
        (dense, (4,), "sgd", 2),
        (dense, (4,), None, 1),
        (pictures, (1, 2, 2), "sgd", 0),
    ]:
        timeline = training_step(net, shape, optimizer=optimizer, target="cuda").at(2).timeline()
        assert set(timeline["workspace"]) == {count * size}
        on_cpu = training_step(net, shape, optimizer=optimizer, target="cpu").at(2).timeline()
        assert set(on_cpu["workspace"]) == {0}


# -- 5. attention ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "value_bytes"), [("float32", 4), ("bfloat16", 2)])
def test_attention_on_cuda_keeps_nothing_of_tokens_by_tokens(precision: str, value_bytes: int) -> None:
    """Fused kernels keep their output and one float32 a query: by reading, no GPU has confirmed it here."""
    tokens, width, heads, batch = 256, 64, 4, 3
    step = training_step(awkward_nets.encoder_block(width, heads), (tokens, width), precision=precision, target="cuda")
    attention = [i for i, op in enumerate(step.at(batch).tape.event_ops) if "attention" in op and "backward" not in op]
    tape = step.at(batch).tape
    born = tape.birth == attention[0]
    kept = born & (tape.death > int(np.flatnonzero(tape.event_phase == 0)[-1]))
    sizes = (tape.fixed + batch * tape.per_sample)[kept]
    assert sizes.sum() >= batch * tokens * (width * value_bytes + heads * 4)
    assert sizes.sum() < batch * heads * tokens * tokens * value_bytes / 2


def test_batch_norm_of_one_pixel_is_in_plain_order() -> None:
    """The strides of channels last say nothing of one pixel: what reads its layout next sees the plain one."""
    numbers = (torch.ones(4), torch.ones(4), torch.zeros(4), torch.ones(4), True, 0.1, 1e-5)
    x = torch.ones(3, 4).as_strided((3, 4, 1, 1), (4, 1, 4, 4))
    for operator, arguments in (
        (aten.native_batch_norm.default, (x, *numbers)),
        (
            aten.native_batch_norm_backward.default,
            (x, x, *numbers[:1], *numbers[2:4], torch.ones(4), torch.ones(4), True, 1e-5, [True] * 3),
        ),
    ):
        assert SHORTCUTS[operator](arguments, {})[0].stride() == operator(*arguments)[0].stride()
