"""Offload on real tensors: the same bits with and without, every byte accounted for, nothing left behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import awkward_nets
import oracles
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_nets import random_networks
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from course_utils import networks
from course_utils.machine import hardware
from course_utils.techniques.offload import pytorch_step, simulate
from course_utils.trace import training_step
from course_utils.units import CourseError
from lessons.memory.recurrent import rnn_from_cells
from lessons.shared.offload_real import HostPool, OffloadActivations

# What fails while a saved tensor is given up cannot be raised there: pytest turns it into a warning.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "small_cnn": (networks.small_cnn, (3, 32, 32)),
    "branching": (awkward_nets.branching_cnn, (3, 16, 16)),
    "in place": (awkward_nets.inplace_cnn, (3, 16, 16)),
    "shared weights": (awkward_nets.shared_weights, (64,)),
    "recurrent": (rnn_from_cells, (7, 4)),
    "attention": (awkward_nets.encoder_block, (10, 64)),
    "dropout": (lambda: nn.Sequential(nn.Linear(20, 40), nn.Dropout(0.5), nn.ReLU(), nn.Linear(40, 10)), (20,)),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(True), nn.Flatten(),
                                         nn.Linear(8 * 64, 10)), (3, 10, 10)),
}  # fmt: skip
WAYS: list[dict[str, Any]] = [
    {"policy": "none"},
    {"policy": "all"},
    {"policy": "conv"},
    {"policy": "windowed", "window": 3},
    {"policy": lambda tensor: tensor.dim() == 4, "window": 2},
    {"policy": "windowed", "prefetch": False},
]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers that go back are overwritten, so that whoever still reads one is found out."""
    give = HostPool.give

    def give_poisoned(self: HostPool, buffer: Tensor) -> None:
        buffer.fill_(0xFF)
        give(self, buffer)

    monkeypatch.setattr(HostPool, "give", give_poisoned)


def data(shape: tuple[int, ...], batch: int = 4) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(batch, *shape), torch.randint(10, (batch,))


def gradients(
    net: nn.Module, x: Tensor, y: Tensor, offload: Any = None, steps: int = 1, inside: bool = False
) -> list[Tensor]:
    """The loss and every gradient, after `steps` accumulated passes with the same random numbers."""
    net.zero_grad(set_to_none=True)
    torch.manual_seed(2)
    for _ in range(steps):
        if offload is None:
            loss = F.cross_entropy(net(x), y)
            loss.backward()
        else:
            with offload:
                loss = F.cross_entropy(net(x), y)
                if inside:
                    loss.backward()
            if not inside:
                loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)]


def assert_same_bits(one: list[Tensor], other: list[Tensor]) -> None:
    assert len(one) == len(other) > 1
    for a, b in zip(one, other, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def assert_nothing_left(offload: OffloadActivations) -> None:
    gc.collect()
    assert not list(offload.records())
    assert offload.pool.used_bytes == 0
    assert not offload._records
    assert not offload._kept
    assert not offload._leaving
    assert not offload._undecided
    assert torch.nn.modules.module._global_forward_hooks == {}
    assert torch.nn.modules.module._global_forward_pre_hooks == {}
    # No hook is left: a tensor saved now is kept as it is.
    x = torch.ones(5000, requires_grad=True)
    before = offload.moved_bytes
    (x * x).sum().backward()
    assert offload.moved_bytes == before


# -- the same bits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way["policy"])[:9])
@pytest.mark.parametrize("name", NETWORKS)
def test_same_bits(name: str, way: dict[str, Any]) -> None:
    build, shape = NETWORKS[name]
    torch.manual_seed(0)
    net = build()
    x, y = data(shape)
    state = {key: value.clone() for key, value in net.state_dict().items()}
    plain = gradients(net, x, y, steps=2)
    for inside in (False, True):
        net.load_state_dict(state)
        offload = OffloadActivations(**way, minimum_bytes=1, device="cpu")
        assert_same_bits(plain, gradients(net, x, y, offload, steps=2, inside=inside))
        assert offload.moved_bytes >= offload.returned_bytes  # what nobody needs again does not return
        assert offload.moved_bytes > 0 or way["policy"] not in ("all", "windowed")
        assert offload.moved_bytes == 0 or way["policy"] != "none"
        assert_nothing_left(offload)


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(random_networks(), st.sampled_from(WAYS[1:]), st.integers(1, 3))
def test_same_bits_on_random_networks(network: Any, way: dict[str, Any], batch: int) -> None:
    build, shape = network
    torch.manual_seed(0)
    try:
        net = build()
        x = torch.randn(batch, *shape)
        y = torch.randint(5, (batch,))
        state = {key: value.clone() for key, value in net.state_dict().items()}
        plain = gradients(net, x, y)
    except (RuntimeError, ValueError):  # what the backward pass needs is overwritten, or one value is normalised
        return
    net.load_state_dict(state)
    offload = OffloadActivations(**way, minimum_bytes=1, device="cpu")
    assert_same_bits(plain, gradients(net, x, y, offload))
    assert_nothing_left(offload)


@pytest.mark.parametrize("reentrant", [False, True])
def test_same_bits_with_a_checkpoint_inside(reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.body, self.head = nn.Linear(20, 50), nn.Linear(50, 50), nn.Linear(50, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.gelu(self.stem(x))
            x = checkpoint(lambda t: F.gelu(self.body(F.gelu(t))), x, use_reentrant=reentrant)
            return self.head(x)

    torch.manual_seed(0)
    net = Checkpointed()
    x, y = data((20,))
    plain = gradients(net, x, y)
    for inside in (False, True):
        offload = OffloadActivations(minimum_bytes=1, device="cpu")
        assert_same_bits(plain, gradients(net, x, y, offload, inside=inside))
        assert_nothing_left(offload)


def test_same_bits_under_autocast() -> None:
    torch.manual_seed(0)
    net = networks.small_cnn()
    x, y = data((3, 32, 32))
    with torch.autocast("cpu", torch.bfloat16):
        plain = gradients(net, x, y)
    offload = OffloadActivations(minimum_bytes=1, device="cpu")
    with torch.autocast("cpu", torch.bfloat16):
        assert_same_bits(plain, gradients(net, x, y, offload))
    assert offload.moved_bytes > 0
    assert_nothing_left(offload)


def test_two_forward_passes_and_then_two_backward_passes() -> None:
    torch.manual_seed(0)
    net = networks.small_cnn()
    batches = [data((3, 32, 32)), data((3, 32, 32), batch=2)]
    offload = OffloadActivations(minimum_bytes=1, device="cpu")
    for order in ((0, 1), (1, 0)):
        found = []
        for context in (None, offload):
            net.zero_grad(set_to_none=True)
            losses = []
            for x, y in batches:
                if context is None:
                    losses.append(F.cross_entropy(net(x), y))
                else:
                    with context:
                        losses.append(F.cross_entropy(net(x), y))
            for index in order:
                losses[index].backward()
            found.append([losses[0].detach(), *(p.grad.clone() for p in net.parameters())])
            del losses
        assert_same_bits(*found)
    assert_nothing_left(offload)


def test_a_graph_kept_for_a_second_backward_pass_and_gradients_of_gradients() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 10))
    x, y = data((20,))
    found = []
    for context in (None, OffloadActivations(minimum_bytes=1, device="cpu")):
        net.zero_grad(set_to_none=True)
        if context is None:
            loss = F.cross_entropy(net(x), y)
        else:
            with context:
                loss = F.cross_entropy(net(x), y)
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        first = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
        sum(g.square().sum() for g in first).backward()
        found.append([loss.detach(), *(p.grad.clone() for p in net.parameters())])
        del loss, first
    assert_same_bits(*found)
    assert context is not None
    assert_nothing_left(context)


# -- what moves --------------------------------------------------------------------------------------------------------


def test_each_storage_moves_once_and_parameters_never() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.linear(x))  # saved by tanh, and by everything below
            return (h * h).sum(1) + h[:, :10].exp().sum(1) + (h.t() @ h).sum() + (h.view(2, -1) ** 2).sum()

    net, x = Views(), torch.randn(16, 64)
    offload = OffloadActivations(minimum_bytes=1, device="cpu", keep=(x,))
    with offload:
        loss = net(x).sum()
    sizes = list(offload.records())
    # tanh's result, exp's result (16 × 10); not x, which stays, nor the weight that the product saves.
    assert sorted(sizes) == [4 * 16 * 10, 4 * 16 * 64]
    assert offload.moved_bytes == sum(sizes)
    loss.backward()
    assert offload.returned_bytes == offload.moved_bytes
    assert offload.moved_tensors == offload.returned_tensors == 2


@pytest.mark.parametrize("name", ["small_cnn", "branching", "in place", "shared weights", "recurrent", "attention"])
def test_what_moves_is_what_the_trace_says_is_saved(name: str) -> None:
    """Storage by storage, in bytes: made in the forward pass, used in the backward pass."""
    build, shape = NETWORKS[name]
    net, (x, y) = build(), data(shape)
    work = pytorch_step(training_step(net, shape, 10, target="cpu").at(len(x)), "T4")
    traced = work.size[work.allowed & (work.first_backward_use >= 0) & (work.size >= 64)]
    offload = OffloadActivations(minimum_bytes=64, device="cpu", keep=(x, y))
    with offload:
        loss = F.cross_entropy(net(x), y)
    assert sorted(offload.records()) == sorted(traced.tolist())
    loss.backward()


def test_only_what_convolutions_save_with_conv() -> None:
    net, (x, y) = networks.small_cnn(), data((3, 32, 32))
    offload = OffloadActivations("conv", minimum_bytes=1, device="cpu")
    with offload:
        loss = F.cross_entropy(net(x), y)
    assert list(offload.records()) == [x.nbytes, 4 * 4 * 16 * 16 * 16]  # the pictures, and what pool1 makes
    loss.backward()


def test_conv_moves_a_map_that_a_relu_saved_before_the_convolution_did() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(layer for _ in "123" for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())))
    x = torch.randn(2, 4, 16, 16)
    net(x).sum().backward()
    expected = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad(set_to_none=True)
    maps: list[Any] = []
    for layer in net:
        if isinstance(layer, nn.ReLU):
            layer.register_forward_hook(lambda *seen: maps.append(weakref.ref(seen[-1].untyped_storage())))
    offload = OffloadActivations("conv", minimum_bytes=1, device="cpu")
    with offload:
        loss = net(x).sum()
    assert [alive() is None for alive in maps] == [True, True, False]  # the last ReLU feeds no convolution
    assert list(offload.records()) == [x.nbytes] * 3
    loss.backward()
    assert_same_bits([p.grad for p in net.parameters() if p.grad is not None], expected)
    assert_nothing_left(offload)


def test_small_sparse_and_unusual_tensors_stay() -> None:
    x = torch.randn(10, requires_grad=True)
    offload = OffloadActivations(minimum_bytes=100, device="cpu")
    with offload:
        (x * x).sum().backward()
        z = torch.randn(100, dtype=torch.complex64, requires_grad=True)
        (z.conj() * z).abs().sum().backward()
    assert offload.moved_bytes % z.nbytes == 0


def test_on_demand_needs_one_map_less_than_a_prefetch() -> None:
    """Maps of one size, their living storages counted: input, output and two gradients, and one fetched too early."""
    torch.manual_seed(0)
    net = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())))
    x = torch.randn(4, 8, 16, 16)
    peaks, found = {}, []
    for prefetch in (True, False):
        offload = OffloadActivations("all", prefetch=prefetch, minimum_bytes=1, device="cpu", keep=[x, net])
        for _ in range(2):  # the host's buffers are there from the first step on
            net.zero_grad(set_to_none=True)
            storages = oracles.LiveStorages()
            with oracles._Sampler(storages.bytes, storages.see, on=True) as sampler:
                with offload:
                    loss = net(x).square().mean()
                loss.backward()
        peaks[prefetch] = max(count for _, count in sampler.samples)
        found.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
        del loss
        assert_nothing_left(offload)
    assert_same_bits(*found)
    assert peaks[True] - peaks[False] == x.nbytes


def test_on_demand_the_schedules_peak_is_that_of_the_real_tensors() -> None:
    """Over a link that takes no time, on convolutions, norms and ReLUs: living storages without the host's."""

    def build() -> nn.Module:
        blocks = ((nn.Conv2d(8 if i else 1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for i in range(5))
        return nn.Sequential(*(layer for block in blocks for layer in block), nn.Flatten(), nn.Linear(8 * 144, 10))

    net, (x, y) = build(), data((1, 12, 12), batch=16)
    offload = OffloadActivations("all", prefetch=False, device="cpu", keep=[x, net])
    for _ in range(2):
        net.zero_grad(set_to_none=True)
        storages = oracles.LiveStorages()
        storages.see([*net.parameters(), *net.buffers(), x, y])
        with oracles._Sampler(storages.bytes, storages.see, on=True) as sampler:
            with offload:
                loss = F.cross_entropy(net(x), y)
            loss.backward()
        del loss
    measured = max(count for _, count in sampler.samples) - offload.pool.allocated_bytes
    ledger = training_step(build(), (1, 12, 12), 10, "sgd", target="cpu").at(16)
    link = hardware.Link("no time at all", 5, 1e9, 1e9, "none")
    card = replace(hardware.device("T4"), launch_seconds=0.0)
    assert simulate(ledger, card, "all", link=link, prefetch=False).peak_bytes == measured


@pytest.mark.parametrize("moves", [False, True])
def test_memory_of_what_moved_is_free_until_it_returns(moves: bool) -> None:
    """The storages made in the forward pass die with it; without the context they live until the backward pass."""
    x = torch.randn(100, 100, requires_grad=True)
    offload = OffloadActivations("all" if moves else "none", minimum_bytes=1, device="cpu")
    alive: list[Any] = []

    def forward() -> Tensor:
        h = torch.tanh(x * 2)
        alive.append(weakref.ref(h.untyped_storage()))
        return torch.tanh(h).sum()

    with offload:
        loss = forward()
    assert (alive[0]() is None) == moves
    assert offload.pool.used_bytes == sum(offload.records()) == (2 * x.nbytes if moves else 0)
    loss.backward()


class Counts(torch.autograd.Function):
    """Asks in the backward pass how many tensors are on the device."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: Callable[[], None]) -> Tensor:
        ctx.count = count
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.count()
        return gradients[0], None


@pytest.mark.parametrize("window", [1, 2, 4])
def test_fetched_ahead_by_the_window(window: int) -> None:
    offload = OffloadActivations("windowed", window=window, minimum_bytes=1, device="cpu")
    resident: list[int] = []

    def count() -> None:
        resident.append(sum(record.resident is not None for record in offload._by_number.values()))

    h = torch.randn(1000, requires_grad=True)
    with offload:
        for _ in range(8):
            h = Counts.apply(torch.tanh(h), count)
    h.sum().backward()
    # Before the first product nothing is back; then what comes next, and fewer where less is left.
    assert resident == [0, *(min(window, 7 - done) for done in range(7))]
    assert offload.returned_tensors == 8
    assert_nothing_left(offload)


def test_buffers_are_reused_between_steps() -> None:
    net, (x, y) = networks.small_cnn(), data((3, 32, 32))
    offload = OffloadActivations(minimum_bytes=1, device="cpu")
    for _ in range(3):
        gradients(net, x, y, offload)
        taken = offload.pool.allocated_bytes
        assert taken == offload.pool.peak_bytes
    assert offload.moved_bytes == 3 * taken
    offload.pool.clear()
    assert offload.pool.allocated_bytes == 0


def test_an_address_used_again_is_another_tensor() -> None:
    """A loop whose intermediate storages die and are allocated anew at the same address."""
    weight = torch.randn(50, 50, requires_grad=True)
    found = []
    for offload in (None, OffloadActivations(minimum_bytes=1, device="cpu")):
        weight.grad = None
        total: Any = 0
        for step in range(20):
            if offload is None:
                total = total + torch.tanh(weight * step).square().mean()
            else:
                with offload:
                    total = total + torch.tanh(weight * step).square().mean()
        total.backward()
        found.append([total.detach(), weight.grad])
    assert_same_bits(*found)


def test_a_storage_saved_again_after_it_was_overwritten() -> None:
    """Allowed where the first to save it no longer needs it in the backward pass that is run."""
    x = torch.randn(100, requires_grad=True)
    offload = OffloadActivations(minimum_bytes=1, device="cpu")
    with offload:
        h = torch.zeros(100)
        h.add_(1)
        first = (x * h).sum()
        h.add_(1)
        second = (x * h).sum()
    second.backward()
    assert torch.equal(x.grad, torch.full((100,), 2.0))
    assert offload.moved_tensors == 2  # h twice, as it changed in between
    del first


# -- what goes wrong ---------------------------------------------------------------------------------------------------


class Fails(torch.autograd.Function):
    """Fails in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise ArithmeticError("backward")


@pytest.fixture
def offload() -> Iterator[OffloadActivations]:
    made = OffloadActivations(minimum_bytes=1, device="cpu")
    yield made
    net, (x, y) = networks.small_cnn(), data((3, 32, 32))
    assert_same_bits(gradients(net, x, y), gradients(net, x, y, made))  # it still works
    assert_nothing_left(made)


def test_nothing_is_left_when_the_forward_pass_fails(offload: OffloadActivations) -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: Tensor) -> Tensor:
            torch.relu(self.conv(x))
            raise ArithmeticError("forward")

    with pytest.raises(ArithmeticError, match="forward"), offload:
        Broken()(torch.randn(2, 3, 8, 8, requires_grad=True))
    assert offload.moved_bytes > 0
    assert_nothing_left(offload)


def test_nothing_is_left_when_the_backward_pass_fails(offload: OffloadActivations) -> None:
    x = torch.randn(100, requires_grad=True)
    with offload:
        h = torch.tanh(torch.tanh(Fails.apply(torch.tanh(x))))
    with pytest.raises(ArithmeticError, match="backward"):
        h.sum().backward()
    assert offload.returned_bytes > 0
    del h
    assert_nothing_left(offload)


def test_nothing_is_left_of_a_graph_never_run(offload: OffloadActivations) -> None:
    x = torch.randn(100, requires_grad=True)
    with offload:
        h = torch.tanh(torch.tanh(x)).sum()
    del h
    assert offload.moved_bytes > 0
    assert offload.returned_bytes == 0
    assert_nothing_left(offload)


def test_nested_in_itself_is_refused_and_in_another_the_inner_takes_its_part(offload: OffloadActivations) -> None:
    inner = OffloadActivations(minimum_bytes=1, device="cpu")
    x = torch.randn(100, requires_grad=True)
    with offload:
        with pytest.raises(CourseError, match="active already"):
            offload.__enter__()
        a = torch.tanh(x)
        with inner:
            b = torch.tanh(a)
        c = torch.tanh(b)
    assert (offload.moved_tensors, inner.moved_tensors) == (2, 1)
    c.sum().backward()
    with torch.enable_grad():
        plain = x.detach().requires_grad_()
        torch.tanh(torch.tanh(torch.tanh(plain))).sum().backward()
    assert torch.equal(x.grad, plain.grad)
    del a, b, c
    assert_nothing_left(inner)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"policy": "some"}, "unknown policy 'some': choose one of none, all, conv, windowed"),
        ({"policy": "dyn"}, "ask lesson 09's simulate_2016"),
        ({"window": 0}, "window must be 1 or more"),
    ],
)
def test_refusals(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(CourseError, match=message):
        OffloadActivations(**asked)
