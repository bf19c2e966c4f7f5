"""What a step does inside its forward, loss, hooks and optimizer, against real CPU storages: caches, autocast, devices.

Each case once gave a wrong figure and said nothing.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from small_nets import Net, chain
from test_whole_step import BATCH, plain, real, traced
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.memory import StepTrace
from course_utils.trace import Spec, TraceError, training_step

pytestmark = pytest.mark.usefixtures("one_thread")
CACHE: dict[Any, Tensor] = {}
COUNT = {"steps": 0}


@pytest.fixture(autouse=True)
def emptied() -> Iterator[None]:
    """What the functions here keep is this test's alone."""
    yield
    CACHE.clear()
    masks.cache_clear()
    COUNT["steps"] = 0


def on_the_cpu(run: Callable[[Any, Tensor], Any], **options: Any) -> StepTrace:
    return training_step(Net(run), (8,), 5, "momentum", target="cpu", **options)


momentum = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)


# -- what a step keeps for the next --------------------------------------------------------------------------------


def capped(net: Any, x: Tensor) -> Tensor:
    """A pooled step that no line fits, with a buffer that only grows."""
    if getattr(net, "buffer", None) is None or len(net.buffer) < len(x):
        net.buffer = torch.zeros(len(x), 16)
    hidden = F.relu(net.a(x)) + net.buffer[: len(x)]
    pairs = torch.einsum("ic,jc->ij", hidden, hidden)
    out: Tensor = net.c(hidden) + pairs.mean()
    return out


def by_length(net: Any, x: Tensor) -> Tensor:
    """A cache in a dictionary of the module's."""
    if not hasattr(net, "kept"):
        net.kept = {}
    if len(x) not in net.kept:
        net.kept[len(x)] = torch.ones(len(x), 16)
    out: Tensor = net.c(F.relu(net.a(x)) * net.kept[len(x)])
    return out


def in_a_global(net: Any, x: Tensor) -> Tensor:
    if len(x) not in CACHE:
        CACHE[len(x)] = torch.ones(len(x), 16)
    out: Tensor = net.c(F.relu(net.a(x)) * CACHE[len(x)])
    return out


@functools.lru_cache
def masks(rows: int) -> Tensor:
    return torch.ones(rows, 16)


def by_lru_cache(net: Any, x: Tensor) -> Tensor:
    out: Tensor = net.c(F.relu(net.a(x)) * masks(len(x)))
    return out


def replaces(net: Any, x: Tensor) -> Tensor:
    """The last module's attribute is another tensor after the step, and the old one is freed in its middle."""
    hidden = F.relu(net.a(x))
    net.c.seen = hidden.detach() * 2.0
    out: Tensor = net.c(hidden)
    return out


KEEPING = {
    "a buffer that only grows, in a step without a line": capped,
    "a dictionary of the module's": by_length,
    "a dictionary of the file's": in_a_global,
    "lru_cache": by_lru_cache,
    "an attribute that every step replaces": replaces,
}


@pytest.mark.parametrize("name", KEEPING)
def test_what_a_step_keeps_is_kept_from_its_own_batch(name: str) -> None:
    step = on_the_cpu(KEEPING[name])
    for batch in (BATCH, 9, BATCH):
        steps = traced(step, batch)
        assert not CACHE
        assert not masks.cache_info().currsize
        expected = real(Net(KEEPING[name]), momentum, batch=batch, steps=3)
        CACHE.clear()
        masks.cache_clear()
        assert steps == expected, batch


def test_a_hook_keeps_in_a_list_of_its_own() -> None:
    def hooked() -> nn.Module:
        net, kept = plain(), []

        def keep(module: nn.Module, args: Any, out: Tensor) -> None:
            kept[:] = [out.detach().clone()]

        net.b.register_forward_hook(keep)
        return net

    step = training_step(hooked(), (8,), 5, "momentum", target="cpu")
    assert traced(step) == real(hooked(), momentum, steps=3)


class Counting(Net):
    """Every third step computes a penalty."""

    def __init__(self) -> None:
        super().__init__(chain)
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        out = chain(self, x)
        self.steps += 1
        if self.steps % 3 == 0:
            out = out + out.square().mean()
        return out


def counted_elsewhere(net: Any, x: Tensor) -> Tensor:
    COUNT["steps"] += 1
    out = chain(net, x)
    return out + out.square().mean() if COUNT["steps"] % 3 == 0 else out


@pytest.mark.parametrize("build", [Counting, lambda: Net(counted_elsewhere)])
def test_a_step_that_counts_itself_says_so(build: Callable[[], nn.Module]) -> None:
    step = training_step(build(), (8,), 5)
    assert [text for text in step.assumptions if "steps: another after every step" in text]
    assert COUNT["steps"] == 0
    assert not any("another number" in text for text in training_step(plain(), (8,), 5).assumptions)


def cat_into(net: Any, x: Tensor) -> Tensor:
    """`out=` gives a tensor that exists as much memory as the result needs."""
    hidden = F.relu(net.a(x))
    joined = torch.empty(0)
    torch.cat([hidden.detach(), x], 1, out=joined)
    joined.resize_(0)
    out: Tensor = net.c(hidden)
    return out


def emptied_by_hand(net: Any, x: Tensor) -> Tensor:
    hidden = F.relu(net.a(x))
    double = hidden.detach() * 2.0
    out: Tensor = net.c(hidden + double.mean())
    net.double = double
    double.untyped_storage().resize_(0)
    return out


def test_a_storage_that_grows_counts_as_large_as_it_is() -> None:
    step = on_the_cpu(cat_into)
    assert traced(step) == real(Net(cat_into), momentum)
    with pytest.raises(TraceError, match=r"fails in the forward pass .*: it resizes a storage by hand"):
        on_the_cpu(emptied_by_hand)


# -- what looks like a line and is none ------------------------------------------------------------------------------

BANK = torch.randn(200, 16)


def pairs_with_a_bank(net: Any, x: Tensor) -> Tensor:
    """Distances of all pairs of the batch and 200 rows more: a square in one dimension."""
    hidden = F.relu(net.a(x))
    out: Tensor = net.c(hidden) + F.pdist(torch.cat([hidden, net.bank])).mean()
    return out


def with_a_bank() -> nn.Module:
    net = Net(pairs_with_a_bank)
    net.register_buffer("bank", BANK.clone())
    return net


def test_a_square_in_one_dimension_is_no_line() -> None:
    step = training_step(with_a_bank(), (8,), 5, "momentum", target="cpu")
    assert "is not fixed + per_sample * batch" in step.why
    assert traced(step, 7) == real(with_a_bank(), momentum, batch=7)


def test_the_batches_that_were_traced_are_told() -> None:
    step = training_step(plain(), (8,), 5)
    assert any("batches 2 and 4,099" in text for text in step.assumptions)


# -- what a step finds out about its device ----------------------------------------------------------------------------


def under_autocast(net: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return chain(net, x)


def under_autocast_of_its_device(net: Any, x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        return chain(net, x)


BEFORE = torch.autocast("cpu", dtype=torch.bfloat16)


def made_before(net: Any, x: Tensor) -> Tensor:
    with BEFORE:
        return chain(net, x)


@pytest.mark.parametrize("run", [under_autocast, under_autocast_of_its_device, made_before])
def test_autocast_inside_the_step_is_that_of_its_target(run: Callable[..., Tensor]) -> None:
    assert traced(on_the_cpu(run)) == real(Net(run), momentum)
    assert traced(on_the_cpu(run)) != traced(on_the_cpu(chain))


def on_a_card(run: Callable[..., Tensor], **options: Any) -> Any:
    return traced(training_step(Net(run), (8,), 5, "momentum", **options))


CARDS = torch.autocast("cuda", dtype=torch.bfloat16)  # disabled where there is no card


def test_autocast_of_a_card_is_that_of_a_trace_for_one() -> None:
    def trace(make: Callable[[], Any], precision: str = "float32") -> Any:
        def loss(net: Any, batch: Any) -> Tensor:
            with make():
                return F.cross_entropy(net(batch[0]), batch[1])

        inputs = [Spec((8,)), Spec((), torch.int64)]
        return traced(training_step(plain(), inputs=inputs, loss=loss, precision=precision))

    expected = trace(nullcontext, "bfloat16")
    named: dict[str, Callable[..., Any]] = {
        "cuda": lambda: torch.autocast("cuda", dtype=torch.bfloat16),
        "torch.cuda.amp": lambda: torch.cuda.amp.autocast(dtype=torch.bfloat16),
        "made before": lambda: CARDS,
    }

    assert expected != trace(nullcontext)
    for name, make in named.items():
        assert trace(make) == expected, name
    # That of the CPU changes nothing on a card; and there may be an island without it.
    assert trace(lambda: torch.autocast("cpu")) == trace(nullcontext)
    assert trace(lambda: torch.autocast("cuda", enabled=False), "bfloat16") == trace(nullcontext)


def by_device(net: Any, x: Tensor) -> Tensor:
    return chain(net, x).square() if x.device.type == "cuda" else chain(net, x)


def by_is_cuda(net: Any, x: Tensor) -> Tensor:
    return chain(net, x).square() if x.is_cuda else chain(net, x)


class OfItsOwn(Net):
    """Asks in a method of its own, and makes a tensor there."""

    def __init__(self) -> None:
        super().__init__(chain)

    def offset(self, x: Tensor) -> Tensor:
        where = torch.device("cuda") if x.is_cuda else x.device
        return torch.zeros(len(x), 8, device=where)

    def forward(self, x: Tensor) -> Tensor:
        return chain(self, x + self.offset(x).to(x.device))


def test_a_step_that_asks_for_its_device_hears_of_its_target() -> None:
    squared = on_a_card(lambda net, x: chain(net, x).square())
    for run in (by_device, by_is_cuda):
        assert on_a_card(run) == squared
        assert traced(on_the_cpu(run)) == real(Net(run), momentum)
    step = training_step(OfItsOwn(), (8,), 5, "momentum", target="cpu")
    assert traced(step) == real(OfItsOwn(), momentum)
    assert traced(training_step(OfItsOwn(), (8,), 5, "momentum"))


def one_hot(out: Tensor, y: Tensor) -> Tensor:
    return (out - F.one_hot(y, 5)).square().mean()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_one_hot_is_zeros_and_ones_written_there(precision: str) -> None:
    step = training_step(plain(), (8,), 5, "momentum", target="cpu", criterion=one_hot, precision=precision)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return one_hot(out, y)

    if precision == "float32":
        assert traced(step) == real(plain(), momentum, loss=loss)
    names = [name for name, _ in traced(step)]
    assert "scatter_" in names
    assert "eq" not in names


# -- optimizers ------------------------------------------------------------------------------------------------------


class Flattening(torch.optim.SGD):
    """Flattens the gradients, as clipping by hand does: a copy, where they do not lie in plain order."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        flat = torch.cat([p.grad.reshape(-1) for p in self.param_groups[0]["params"]])
        flat.mul_(2)
        super().step()


def pictures() -> nn.Module:
    net = nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 4, 2), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(4, 5)
    )
    return net.to(memory_format=torch.channels_last)


def test_gradients_lie_as_their_parameters_do() -> None:
    make = functools.partial(Flattening, lr=0.1)
    ran, expected = traced(training_step(pictures(), (8,), 5, make, target="cpu")), real(pictures(), make)
    assert ran[-10:] == expected[-10:]  # the update: a convolution of the CPU may keep what no shape shows


def test_an_optimizer_that_the_loss_names_is_counted_once() -> None:
    net = plain()
    optimizer = torch.optim.Adam(net.parameters())
    F.cross_entropy(net(torch.randn(2, 8)), torch.zeros(2, dtype=torch.int64)).backward()
    optimizer.step()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, y) * optimizer.param_groups[0]["lr"]

    named = training_step(net, (8,), 5, lambda ps: optimizer, criterion=loss, target="cpu")
    expected = training_step(
        plain(), (8,), 5, "adam", criterion=lambda out, y: F.cross_entropy(out, y) * 0.001, target="cpu"
    )
    assert traced(named) == traced(expected)


def averaged(frozen: bool) -> tuple[nn.Module, Any]:
    """An average of all weights, frozen ones too, kept by a hook of the optimizer's."""
    net = plain()
    net.a.requires_grad_(not frozen)
    mean = [p.detach().clone() for p in net.parameters()]
    optimizer = momentum([p for p in net.parameters() if p.requires_grad])

    def average(*step: Any) -> None:
        with torch.no_grad():
            for kept, p in zip(mean, net.parameters(), strict=True):
                kept.lerp_(p.detach().view_as(kept), 0.1)

    optimizer.register_step_post_hook(average)
    return net, (optimizer, mean)


@pytest.mark.parametrize("frozen", [False, True])
def test_an_average_of_frozen_weights_makes_no_weights(frozen: bool) -> None:
    net, (optimizer, mean) = averaged(frozen)
    step = training_step(net, (8,), 5, lambda ps: optimizer, target="cpu")
    net, (optimizer, mean) = averaged(frozen)
    assert traced(step) == real(net, lambda ps: optimizer, mean)


class MakesMatrices(torch.optim.Optimizer):
    """Makes its state in plain host memory, as if there were no card."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if "left" not in state:
                state["left"] = torch.eye(len(p))
            rows = p.grad.reshape(len(p), -1)
            state["left"].add_(rows @ rows.T)
            p.sub_(torch.linalg.solve(state["left"], rows).reshape(p.shape), alpha=0.1)


def test_what_an_optimizer_makes_is_with_its_weights_or_refused() -> None:
    assert traced(training_step(plain(), (8,), 5, MakesMatrices, target="cpu")) == real(plain(), MakesMatrices)
    with pytest.raises(TraceError, match=r"optimizer fails: a tensor of shape \(16, 16\) in host memory, meets"):
        training_step(plain(), (8,), 5, MakesMatrices)


class Clipped(torch.optim.SGD):
    """Puts another gradient in the place of each."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            p.grad = p.grad / 2
        super().step()


def test_an_optimizer_that_replaces_gradients_frees_the_old_ones() -> None:
    make = functools.partial(Clipped, lr=0.1)
    assert traced(training_step(plain(), (8,), 5, make, target="cpu")) == real(plain(), make)


class InstallsHooks(Net):
    """Hooks its layers in its first forward, and counts on there being one hook a layer, as transformers 5 does."""

    def __init__(self) -> None:
        super().__init__(chain)
        self.seen: list[Tensor] = []
        self.installed = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.installed:
            for layer in (self.a, self.b):
                layer.register_forward_hook(lambda module, args, out: self.seen.append(out))
            self.installed = True
        self.seen.clear()
        out = chain(self, x)
        first, second = self.seen
        self.seen.clear()
        return out + first.mean() + second.mean()


def test_hooks_that_a_forward_installs_are_installed_once() -> None:
    step = training_step(InstallsHooks(), (8,), 5, "momentum", target="cpu")
    assert traced(step) == real(InstallsHooks(), momentum)
    assert step.affine


def of_three_steps(net: Any, x: Tensor) -> Tensor:
    """A list that the module makes anew in every step: what it held first is gone."""
    hidden = F.relu(net.a(x))
    net.history.append(hidden.detach().mean(0))
    net.history = net.history[-3:]
    out: Tensor = net.c(hidden - sum(net.history))
    return out


def with_history() -> nn.Module:
    net = Net(of_three_steps)
    net.history = []
    return net


class InAPlainList(nn.Module):
    """Layers that the module does not know of, and that no optimizer updates."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.layers = nn.Linear(8, 8), [nn.Linear(8, 16), nn.Linear(16, 5)]

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers[1](F.relu(self.layers[0](self.first(x))))
        return out


def test_lists_of_a_module_are_its_own_again_at_every_batch() -> None:
    step = training_step(with_history(), (8,), 5, "momentum", target="cpu")
    assert step.affine
    assert traced(step) == real(with_history(), momentum, steps=6)
    hidden = InAPlainList()
    parameters = [p for layer in hidden.layers for p in layer.parameters()]
    step = training_step(InAPlainList(), (8,), 5, "momentum", target="cpu")
    assert step.affine
    assert traced(step) == real(hidden, momentum, parameters, steps=3)


@pytest.mark.parametrize("clip", [nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_])
def test_gradients_are_clipped_all_at_once_as_on_both_targets(clip: Callable[..., Any]) -> None:
    class Clipping(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            clip(self.param_groups[0]["params"], 1.0)
            super().step()

    make = functools.partial(Clipping, lr=0.1)
    assert traced(training_step(plain(), (8,), 5, make, target="cpu")) == real(plain(), make)
    names = [name for name, _ in traced(training_step(plain(), (8,), 5, make))]
    assert {"clip_grad_norm_": "_foreach_norm", "clip_grad_value_": "_foreach_clamp_min_"}[clip.__name__] in names


class CountsInItsClass(Net):
    """A count and a mask that all networks of its kind share."""

    steps = 0
    mask: Tensor | None = None

    def __init__(self) -> None:
        super().__init__(chain)

    def forward(self, x: Tensor) -> Tensor:
        kind = type(self)
        kind.steps += 1
        if kind.mask is None or len(kind.mask) != len(x):
            kind.mask = torch.ones(len(x), 8)
        return chain(self, x * kind.mask)


MASK: Tensor | None = None


def named_anew(net: Any, x: Tensor) -> Tensor:
    global MASK
    if MASK is None or len(MASK) != len(x):
        MASK = torch.ones(len(x), 8)
    return chain(net, x * MASK)


def test_classes_and_files_are_as_they_were() -> None:
    step = training_step(CountsInItsClass(), (8,), 5, "momentum", target="cpu")
    assert CountsInItsClass.steps == 0
    assert CountsInItsClass.mask is None
    assert any("CountsInItsClass.steps: another after" in text for text in step.assumptions)
    steps = traced(step), traced(training_step(Net(named_anew), (8,), 5, "momentum", target="cpu"))
    assert MASK is None
    assert steps == (real(CountsInItsClass(), momentum), real(Net(named_anew), momentum))


def grown_by_length(net: Any, x: Tensor) -> Tensor:
    if net.buffer is None or len(net.buffer) < x.shape[1]:
        net.buffer = torch.zeros(x.shape[1], 16)
    out: Tensor = net.c(F.relu(net.a(x)) + net.buffer[: x.shape[1]]).mean(1)
    return out


def with_buffer() -> nn.Module:
    net = Net(grown_by_length)
    net.buffer = None
    return net


def test_another_length_finds_no_buffer_of_a_longer_one() -> None:
    def loss(net: Any, batch: Any) -> Tensor:
        return F.cross_entropy(net(batch[0]), batch[1])

    inputs = [Spec(("length", 8)), Spec((), torch.int64)]
    step = training_step(with_buffer(), inputs=inputs, loss=loss, optimizer="sgd", sizes={"length": 40}, target="cpu")
    short = training_step(with_buffer(), inputs=inputs, loss=loss, optimizer="sgd", sizes={"length": 6}, target="cpu")
    assert step.at(3, length=6).timeline().equals(short.at(3).timeline())
    assert step.at(3, length=40).peak_bytes == step.at(3).peak_bytes > short.at(3).peak_bytes


def run_for_real(told: SimpleQueue[torch.dtype]) -> None:
    net, x = plain(), torch.randn(4, 8)
    for device in ("cpu", "cuda"):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cpu"):
            told.put(net(x).dtype)


def test_other_threads_have_their_own_autocast_meanwhile() -> None:
    told: SimpleQueue[torch.dtype] = SimpleQueue()  # a list would be put back

    def beside(net: Any, x: Tensor) -> Tensor:
        thread = threading.Thread(target=run_for_real, args=(told,))
        thread.start()
        thread.join()
        return under_autocast(net, x)

    on_the_cpu(beside)
    found = [told.get() for _ in range(told.qsize())]
    assert found
    assert found == [torch.bfloat16, torch.float32] * (len(found) // 2)


def test_every_tensor_of_a_list_that_the_loss_names_counts() -> None:
    bank = [torch.randn(rows, 5) for rows in (100, 50, 25)]

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, y) + sum((out @ rows.T).mean() for rows in bank)

    step = training_step(plain(), (8,), 5, "momentum", target="cpu", criterion=loss)
    assert traced(step) == real(plain(), momentum, bank, loss=loss)


def test_the_state_of_a_critic_that_steps_first_counts() -> None:
    """Its gradients of the generator's own pass are left over; its step has been."""

    def made() -> tuple[nn.Module, nn.Module, Any]:
        critic = nn.Linear(5, 1)
        return plain(), critic, torch.optim.Adam(critic.parameters())

    def loss_of(critic: nn.Module, optimizer: Any) -> Callable[..., Tensor]:
        def loss(out: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            critic(out.detach()).mean().backward()
            optimizer.step()
            return critic(out).mean() + F.cross_entropy(out, y)

        return loss

    net, critic, optimizer = made()
    step = training_step(net, (8,), 5, "momentum", target="cpu", criterion=loss_of(critic, optimizer))
    net, critic, optimizer = made()
    assert traced(step) == real(net, momentum, list(critic.parameters()), loss=loss_of(critic, optimizer), steps=4)


def test_a_number_of_the_loss_is_as_it_was() -> None:
    count = torch.tensor(0)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        count.add_(1)
        return F.cross_entropy(out, y)

    for target in ("cpu", "cuda"):
        training_step(plain(), (8,), 5, criterion=loss, target=target)
    assert int(count) == 0


SCALE = 2.0


def scaled(net: Any, x: Tensor) -> Tensor:
    """No line fits it, so that it is traced again whenever it is asked."""
    out = chain(net, x) * SCALE
    return out + (out @ out.T).mean()


def test_what_its_owner_changes_after_the_trace_stays_changed() -> None:
    global SCALE
    step = on_the_cpu(scaled)
    SCALE = 3.0
    step.at(7)
    assert SCALE == 3.0
    SCALE = 2.0
