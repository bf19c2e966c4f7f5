"""Steps as people write them: whatever optimizer, hooks, teachers and orders they have, against real CPU storages.

Each case is one real step in plain torch, and the same told to the trace; both must agree operator by operator.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from oracles import Case, Timeline, last_step_timeline, live_storages_timeline
from small_nets import Net, chain
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.memory import ROLE, StepTrace
from course_utils.trace import STANDING, TraceError, training_step

BATCH = 5
pytestmark = pytest.mark.usefixtures("one_thread")


def traced(step: StepTrace, batch: int = BATCH) -> Timeline:
    """(operator, bytes alive after it), as the witness has it: of clearing gradients it sees nothing."""
    frame = step.at(batch).timeline()[1:]
    rows = zip(frame["event"], frame["total"].tolist(), strict=True)
    return [row for row in rows if row[0] not in ("zero_grad", "end")]


def real(
    net: nn.Module, make: Any, *more: Any, steps: int = 2, loss: Callable[..., Tensor] = F.cross_entropy,
    order: str = "end", set_to_none: bool = True, batch: int = BATCH,
) -> Timeline:  # fmt: skip
    """A real step; `make` makes one optimizer or several, `more` is what exists besides the network and its batch."""
    x, y = torch.randn(batch, 8), torch.randint(5, (batch,))
    made = make(list(net.parameters()))
    optimizers = made if isinstance(made, list) else [made]

    def clear() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=set_to_none)

    def step() -> None:
        found = loss(net(x), y)
        if order == "before backward":
            clear()
        found.backward()
        for optimizer in optimizers:
            optimizer.step()
        if order == "end":
            clear()

    rows = last_step_timeline([*net.parameters(), *net.buffers(), x, y, *more], step, steps)
    return [row for row in rows if row[0] != "zero_"]


plain = functools.partial(Net, chain)


# -- optimizers ----------------------------------------------------------------------------------------------------


class Configured(Net):
    """A network that makes its own optimizer, as nanoGPT does."""

    def __init__(self) -> None:
        super().__init__(chain)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        weights = [p for p in self.parameters() if p.dim() > 1]
        others = [p for p in self.parameters() if p.dim() < 2]
        return torch.optim.AdamW([{"params": weights, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}])


class Wrapped(torch.optim.Optimizer):
    """Two optimizers in one, each with the state of its own."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__(parameters, {})
        self.first = torch.optim.SGD([p for p in parameters if p.dim() > 1], 0.1, momentum=0.9)
        self.rest = torch.optim.AdamW([p for p in parameters if p.dim() < 2])

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.first.step()
        self.rest.step()


class Averaging(torch.optim.SGD):
    """Keeps an average of the weights as an attribute."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__(parameters, 0.1)
        self.average = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        for mean, p in zip(self.average, self.param_groups[0]["params"], strict=True):
            mean.mul_(0.9).add_(p, alpha=0.1)


class Masters(torch.optim.Optimizer):
    """Updates copies in double precision, and writes them back."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__(parameters, {})
        self.masters = [p.detach().double().requires_grad_() for p in parameters]
        self.inner = torch.optim.Adam(self.masters)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p, master in zip(self.param_groups[0]["params"], self.masters, strict=True):
            master.grad = p.grad.double()
        self.inner.step()
        for p, master in zip(self.param_groups[0]["params"], self.masters, strict=True):
            p.copy_(master)


class Replacing(torch.optim.Optimizer):
    """Makes its state anew in every step, as 8-bit Adam by hand does."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            mean = 0.9 * state["mean"].float() + p.grad if "mean" in state else p.grad.clone()
            p.sub_(mean, alpha=0.1)
            state["mean"] = mean.half()


OPTIMIZERS: dict[str, Callable[[list[Any]], Any]] = {
    "two wrapped in one": Wrapped,
    "a list of two": lambda ps: [torch.optim.SGD(ps[:2], 0.1, momentum=0.9), torch.optim.Adam(ps[2:])],
    "an average of the weights": Averaging,
    "masters in another precision": Masters,
    "state made anew in every step": Replacing,
    "Adafactor": torch.optim.Adafactor,
    "ASGD": torch.optim.ASGD,
    "fused Adam": functools.partial(torch.optim.Adam, fused=True),
    "fused AdamW": functools.partial(torch.optim.AdamW, fused=True),
    "fused AdamW with a maximum": functools.partial(torch.optim.AdamW, fused=True, amsgrad=True),
    "fused SGD": functools.partial(torch.optim.SGD, lr=0.1, fused=True),
    "fused SGD with momentum": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True),
    "fused Adagrad": functools.partial(torch.optim.Adagrad, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_all_that_an_optimizer_holds_and_makes_equals_real_tensors(name: str) -> None:
    make = OPTIMIZERS[name]
    net = plain()
    made = make(list(net.parameters()))
    state = [] if isinstance(made, list) else list(made.state.values())
    held = [getattr(made, "average", []), getattr(made, "masters", []), state]
    expected = real(net, lambda _: made, held, steps=3)
    assert traced(training_step(plain(), (8,), 5, make, target="cpu")) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda net: lambda ps: net.configure_optimizers(),
        lambda net: lambda ps: torch.optim.AdamW(net.parameters()),
        lambda net: functools.partial(lambda made, ps: made, net.configure_optimizers()),
        lambda net: lambda ps: Wrapped(list(net.parameters())),
        lambda net: lambda ps: Averaging(list(net.parameters())),
    ],
)
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_optimizer_of_the_modules_own_parameters_is_one_of_those_handed_over(make: Any, target: str) -> None:
    net = Configured()
    own = make(net)
    before = {name: (id(p), p.clone()) for name, p in net.named_parameters()}
    step = training_step(net, (8,), 5, own, target=target)
    assert all(torch.equal(p, before[name][1]) and id(p) == before[name][0] for name, p in net.named_parameters())
    optimizer = own(list(net.parameters()))
    assert not optimizer.state
    assert not getattr(optimizer, "_opt_called", False)
    kinds = {"Wrapped": Wrapped, "Averaging": Averaging, "AdamW": torch.optim.AdamW}
    if len(optimizer.param_groups) == 1:
        expected = training_step(Configured(), (8,), 5, kinds[type(optimizer).__name__], target=target)
        assert traced(step) == traced(expected)
    assert int(step.at(BATCH).matrix[0, ROLE["optimizer state"]]) > 0


def test_a_parameter_of_elsewhere_is_refused() -> None:
    other = nn.Linear(3, 4)
    with pytest.raises(TraceError, match=r"^the optimizer updates a parameter of shape \(4, 3\) that the network does"):
        training_step(plain(), (8,), 5, lambda ps: torch.optim.SGD([*ps, *other.parameters()], 0.1))


def test_gradients_that_an_optimizer_does_not_update_are_never_cleared() -> None:
    for make in (lambda ps: torch.optim.SGD(ps[:2], 0.1), lambda ps: torch.optim.Muon([p for p in ps if p.dim() > 1])):
        step = training_step(plain(), (8,), 5, make, target="cpu")
        assert traced(step) == real(plain(), make, steps=3)
        assert any("that the optimizer does not update" in text for text in step.assumptions)


def test_an_optimizer_that_holds_more_every_step_is_refused() -> None:
    class Growing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.__dict__.setdefault("all", []).append(self.param_groups[0]["params"][0].detach().clone())

    with pytest.raises(TraceError, match="holds more after every step"):
        training_step(plain(), (8,), 5, functools.partial(Growing, lr=0.1))


def test_fused_needs_no_copy_of_the_weights_on_cuda() -> None:
    """By hand: foreach makes one copy of all weights, a fused kernel none; its step counters are on the card."""
    net = plain()
    weights = sum(4 * p.numel() for p in net.parameters())
    gradients = weights
    steps = [training_step(plain(), (8,), 5, functools.partial(torch.optim.AdamW, fused=f)) for f in (True, False)]
    fused, foreach = (step.at(BATCH) for step in steps)
    update = fused.phases == "update"
    counters = 4 * len(list(net.parameters()))
    workspace = fused.matrix[update][0, ROLE["workspace"]]
    lasting = 3 * weights + gradients + counters + 4 * BATCH * 8 + 8 * BATCH + 4  # x, y and the loss too
    assert set(fused.total[update][:-1] - workspace) == {lasting}
    assert fused.matrix[0, ROLE["optimizer state"]] == 2 * weights + counters
    assert foreach.matrix[0, ROLE["optimizer state"]] == 2 * weights
    assert foreach.total[foreach.phases == "update"].max() >= foreach.total[foreach.phases == "update"][0] + weights


# -- where gradients are cleared -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["end", "before backward", "never"])
@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, functools.partial(torch.optim.SGD, lr=0.1)])
def test_wherever_gradients_are_cleared_the_step_equals_real_tensors(
    order: str, set_to_none: bool, optimizer: Any
) -> None:
    step = training_step(
        plain(), (8,), 5, optimizer, target="cpu", zero_grad=order, set_to_none=set_to_none
    )  # fmt: skip
    assert step.affine, step.why
    assert traced(step) == real(plain(), optimizer, order=order, set_to_none=set_to_none, steps=3)


def test_the_default_says_where_it_takes_gradients_to_be_cleared() -> None:
    said, told = (training_step(plain(), (8,), 5, zero_grad=order).assumptions for order in (None, "end"))
    assert [text for text in said if "zero_grad" in text]
    assert not [text for text in told if "zero_grad" in text]
    with pytest.raises(TraceError, match=r"^unknown zero_grad 'start': choose one of end, before backward, never$"):
        training_step(plain(), (8,), 5, zero_grad="start")


# -- hooks -----------------------------------------------------------------------------------------------------------


def with_step_in_backward() -> nn.Module:
    """PyTorch's tutorial: each parameter is updated as soon as it has its gradient, which is freed at once."""
    net = plain()
    optimizers = {p: torch.optim.Adam([p], foreach=False) for p in net.parameters()}

    def update(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(update)
    return net


def with_masks() -> nn.Module:
    net = plain()
    for p in net.parameters():
        mask = torch.ones_like(p)
        net.register_buffer(f"mask_{id(p)}", mask)
        p.register_hook(lambda gradient, mask=mask: gradient * mask)
    return net


HOOKED: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "a step in backward": (with_step_in_backward, lambda ps: []),
    "gradients through masks": (with_masks, functools.partial(torch.optim.SGD, lr=0.1)),
}


@pytest.mark.parametrize("name", HOOKED)
def test_hooks_of_parameters_run_as_on_real_tensors(name: str) -> None:
    build, make = HOOKED[name]
    expected = real(build(), make, steps=3)
    net = build()
    before = [p.clone() for p in net.parameters()]
    step = training_step(net, (8,), 5, make, target="cpu")
    assert step.affine, step.why
    assert traced(step) == expected
    assert all(torch.equal(p, was) for p, was in zip(net.parameters(), before, strict=True))


def test_a_step_in_backward_frees_each_gradient_and_keeps_the_state() -> None:
    step = training_step(with_step_in_backward(), (8,), 5, lambda ps: [], target="cpu").at(BATCH)
    net = plain()
    weights = [4 * p.numel() for p in net.parameters()]
    counters = 4 * len(weights)
    assert step.matrix[0, ROLE["optimizer state"]] == 2 * sum(weights) + counters
    assert step.matrix[:, ROLE["weight gradients"]].max() < sum(weights)
    assert step.matrix[-1, ROLE["weight gradients"]] == 0


class Features(nn.Module):
    """Takes maps out of the middle of a network by a hook that knows the outside."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.found, self.head = plain(), {}, nn.Linear(16, 5)
        self.body.a.register_forward_hook(lambda module, x, out: self.found.__setitem__("a", out))

    def forward(self, x: Tensor) -> Tensor:
        self.body(x)
        scores: Tensor = self.head(self.found["a"])
        return scores


class Remembers(nn.Module):
    """A recurrence whose state goes on from batch to batch: truncated backpropagation through time."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head, self.state = nn.RNNCell(8, 16), nn.Linear(16, 5), None

    def forward(self, x: Tensor) -> Tensor:
        state = self.cell(x, self.state)
        self.state = state.detach()
        scores: Tensor = self.head(state)
        return scores


class InAList(nn.Module):
    """Tensors in a list, which no buffer holds."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.scales = plain(), [torch.ones(5), torch.ones(5)]

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.body(x) * self.scales[0] + self.scales[1]
        return scores


class LogsOnTheHost(nn.Module):
    """Keeps a copy in host memory, which a CPU need not make."""

    def __init__(self) -> None:
        super().__init__()
        self.body = plain()
        self.body.a.register_forward_hook(lambda module, x, out: self.__dict__.__setitem__("log", out.detach().cpu()))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.body(x)
        return scores


@pytest.mark.parametrize("build", [Features, Remembers, InAList, LogsOnTheHost])
def test_hooks_and_state_of_modules_equal_real_tensors(build: Callable[[], nn.Module]) -> None:
    make = functools.partial(torch.optim.SGD, lr=0.1)
    net = build()
    expected = real(net, make, getattr(net, "scales", []))
    step = training_step(build(), (8,), 5, make, target="cpu")
    assert step.affine, step.why
    assert traced(step) == expected


def without_the_diagonal(out: Tensor, y: Tensor) -> Tensor:
    """The contrastive loss of SimCLR: of every sample to all others."""
    similar = out @ out.T
    same = torch.eye(len(out), dtype=torch.bool, device=out.device)
    return similar[~same].view(len(out), -1).logsumexp(-1).mean()


def test_a_mask_of_known_values_indexes_as_on_real_tensors() -> None:
    make = functools.partial(torch.optim.SGD, lr=0.1)
    step = training_step(plain(), (8,), optimizer=make, target="cpu", criterion=without_the_diagonal)
    assert traced(step, 7) == real(plain(), make, loss=without_the_diagonal, batch=7)
    timeline = training_step(plain(), (8,), criterion=without_the_diagonal, optimizer=make).at(7).timeline()
    rows = timeline[timeline["event"] == "index"]
    assert rows["gradient maps"].tolist() == [8 * 2 * 42]  # the places of 42 values, a row and a column each


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("norm", [lambda: nn.LayerNorm(16), lambda: nn.GroupNorm(4, 16)])
def test_norms_with_float32_weights_keep_float32_statistics_on_the_cpu(norm: Any, precision: str) -> None:
    build = lambda: nn.Sequential(nn.Linear(8, 16), norm(), nn.Linear(16, 5))  # noqa: E731
    expected = live_storages_timeline(Case(build, (8,), 5, precision=precision), BATCH)
    assert traced(training_step(build(), (8,), 5, "sgd", precision, "cpu")) == expected


# -- what the step reaches outside of the network ----------------------------------------------------------------------

TEACHER = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 5)).requires_grad_(False)
WEIGHT = torch.ones(5)


def distilled(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y) + F.mse_loss(out, TEACHER(torch.zeros(len(out), 8, device=out.device)))


def weighted(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y, weight=WEIGHT)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_teacher_of_the_loss_counts_as_real_tensors_do(precision: str) -> None:
    make = functools.partial(torch.optim.SGD, lr=0.1)
    teacher = list(TEACHER.parameters())
    step = training_step(plain(), (8,), 5, make, target="cpu", criterion=distilled)
    assert traced(step) == real(plain(), make, teacher, loss=distilled)
    bytes_ = sum(4 * p.numel() for p in teacher)
    options: dict[str, Any] = {"precision": precision, "optimizer": make, "criterion": distilled}
    without = sum(4 * p.numel() for p in plain().parameters())
    on_cuda = training_step(plain(), (8,), 5, **options)
    assert on_cuda.at(BATCH).matrix[0, ROLE["parameters"]] == without + bytes_
    assert any(text.startswith("TEACHER, which the step reaches outside of Net") for text in on_cuda.assumptions)
    assert all(p.device.type == "cpu" and p.grad is None for p in teacher)


def test_gradients_of_a_teacher_that_is_not_frozen_are_alive_all_the_time() -> None:
    make = functools.partial(torch.optim.SGD, lr=0.1)
    teacher = copy.deepcopy(TEACHER).requires_grad_()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(out, teacher(torch.zeros(len(out), 8, device=out.device)))

    step = training_step(plain(), (8,), 5, make, target="cpu", criterion=loss)
    assert traced(step) == real(plain(), make, *teacher.parameters(), loss=loss, steps=3)


def test_a_teacher_in_a_closure_and_one_that_a_helper_names_are_found_too() -> None:
    teacher = copy.deepcopy(TEACHER)

    def helper(out: Tensor) -> Tensor:
        found: Tensor = teacher(torch.zeros(len(out), 8, device=out.device))
        return found

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, y) + F.mse_loss(out, helper(out))

    steps = [training_step(plain(), (8,), 5, target="cuda", criterion=one) for one in (loss, distilled)]
    assert traced(steps[0]) == traced(steps[1])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_tensor_in_host_memory_is_refused_by_its_name_on_a_card(precision: str) -> None:
    make = functools.partial(torch.optim.SGD, lr=0.1)
    step = training_step(plain(), (8,), 5, make, target="cpu", criterion=weighted)
    assert traced(step) == real(plain(), make, WEIGHT, loss=weighted)
    with pytest.raises(TraceError, match=r"WEIGHT, a tensor of shape \(5,\) in host memory"):
        training_step(plain(), (8,), 5, make, precision, criterion=weighted)


# -- chance, compiling, branches -------------------------------------------------------------------------------------


def by_python(net: Any, x: Tensor) -> Tensor:
    out: Tensor = net.c(net.a(x)) if random.random() < 0.5 else chain(net, x)
    return out


def by_numpy(net: Any, x: Tensor) -> Tensor:
    out: Tensor = net.c(net.a(x)) if np.random.rand() < 0.5 else chain(net, x)
    return out


@pytest.mark.parametrize("run", [by_python, by_numpy])
def test_a_step_drawn_by_lot_is_labelled_and_the_generators_are_left_alone(run: Any) -> None:
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), str(np.random.get_state())
    step = training_step(Net(run), (8,), 5)
    peaks = {step.at(64).peak_bytes for _ in range(3)}
    assert (random.getstate(), str(np.random.get_state())) == before
    assert len(peaks) == 1
    assert any("draws random numbers in Python" in text for text in step.assumptions)
    assert not any("draws" in text for text in training_step(plain(), (8,), 5).assumptions)


def test_a_compiled_network_is_traced_as_eager_and_says_so() -> None:
    eager = training_step(plain(), (8,), 5)
    net = plain()
    net.compile()
    for compiled in (torch.compile(plain()), nn.Sequential(torch.compile(plain())), net):
        step = training_step(compiled, (8,), 5)
        assert traced(step) == traced(eager)
        assert any(text.startswith("compiled, but traced as eager") for text in step.assumptions)


def test_a_branch_on_a_batch_between_the_traced_ones_is_taken_for_granted() -> None:
    assert set(training_step(plain(), (8,), 5).assumptions) < STANDING


# -- group norm on CUDA ----------------------------------------------------------------------------------------------


def normed(channels: int, weights: bool, pixels: int, dtype: torch.dtype) -> nn.Module:
    net = nn.Sequential(
        nn.Conv1d(channels, channels, 1), nn.GroupNorm(channels // 4, channels, affine=weights), nn.Flatten(),
        nn.Linear(channels * pixels, 5),
    )  # fmt: skip
    return net.to(dtype)


@pytest.mark.parametrize(
    ("channels", "weights", "pixels", "dtype", "forward", "backward"),
    [
        # Numbers of 4 bytes that group_norm_kernel.cu makes for each channel of each sample, by hand; a group has four.
        (8, True, 3, torch.float32, 2, 3 + 2 / 4),
        (8, False, 3, torch.float32, 0, 2 + 2 / 4),
        (8, True, 1, torch.float32, 0, 2 / 4),
        (8, True, 3, torch.bfloat16, 2 + 2 / 4, 3 + 2 / 4),
        # What seven published peaks of Liger-Kernel's script (128 samples, an A100) were found to lack; the ends.
        (32, True, 512, torch.float32, 2, 57_344 / (4 * 128 * 32)),
        (2048, True, 512, torch.float32, 2, 3_670_016 / (4 * 128 * 2048)),
    ],
)
def test_group_norm_on_cuda_makes_factors_for_channels_and_groups(
    channels: int, weights: bool, pixels: int, dtype: torch.dtype, forward: float, backward: float
) -> None:
    with torch.device("meta"):
        net = normed(channels, weights, pixels, dtype)
    options: dict[str, Any] = {"input_dtype": dtype, "optimizer": "sgd"}
    on_cuda, on_cpu = (
        training_step(net, (channels, pixels), 5, target=target, **options).at(128).timeline()
        for target in ("cuda", "cpu")
    )
    maps = ["feature maps", "gradient maps"]
    for name, count in (("native_group_norm", forward), ("native_group_norm_backward", backward)):
        rows = [frame[frame["event"] == name][maps].to_numpy().sum() for frame in (on_cuda, on_cpu)]
        assert rows[0] - rows[1] == 4 * 128 * channels * count
