"""Tensors that a step moves to host memory and back: on a card they take nothing there, and what comes back does.

The witness is a real step on the CPU whose "host" is NumPy's memory, in which no torch storage lies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_whole_step import BATCH, real
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from course_utils.memory import Ledger
from course_utils.trace import TraceError, training_step

pytestmark = pytest.mark.usefixtures("one_thread")
MAKE = functools.partial(torch.optim.SGD, lr=0.1)
COPIES = ("_to_copy", "empty", "copy_", "start", "_foreach_add_", "add_", "zero_grad")  # where both are told apart


def body() -> nn.Sequential:
    widths = ((8, 16), (16, 16), (16, 16))
    return nn.Sequential(*(m for pair in widths for m in (nn.Linear(*pair), nn.Tanh())), nn.Linear(16, 5))


class Saved(nn.Module):
    """What is saved for the backward pass waits elsewhere."""

    def __init__(self, hooks: Callable[[], Any]) -> None:
        super().__init__()
        self.body, self.hooks = body(), hooks

    def forward(self, x: Tensor) -> Tensor:
        with self.hooks():
            scores: Tensor = self.body(x)
        return scores


class Moved(nn.Module):
    """A map waits in host memory while its layer's neighbours run."""

    def __init__(self, out: Callable[[Tensor], Any], back: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 64), nn.Linear(8, 64), nn.Linear(64, 5)
        self.out, self.back = out, back

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            waits = self.out(self.first(x))
            other = self.middle(x)
            other += self.back(waits, x)
        scores: Tensor = self.last(other)
        return scores


def on_card(ledger: Ledger) -> list[tuple[str, int]]:
    """(operator, bytes alive after it), cuBLAS's buffer left out."""
    frame = ledger.timeline()
    rows = zip(frame["event"], frame["total"], frame["workspace"], strict=True)
    return [(event, int(total - own)) for event, total, own in rows if event not in COPIES]


def witnessed(net: nn.Module) -> list[tuple[str, int]]:
    return [row for row in real(net, MAKE) if row[0] not in COPIES]


def in_numpy() -> Any:
    return saved_tensors_hooks(lambda tensor: tensor.detach().numpy().copy(), torch.tensor)


def pinned_by_hand() -> Any:
    def pack(tensor: Tensor) -> Tensor:
        host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        return host.copy_(tensor, non_blocking=True)

    return saved_tensors_hooks(pack, lambda host: host.to("cuda", non_blocking=True))


@pytest.mark.parametrize("hooks", [save_on_cpu, functools.partial(save_on_cpu, pin_memory=True), pinned_by_hand])
def test_maps_saved_in_host_memory_take_nothing_until_they_are_back(hooks: Callable[[], Any]) -> None:
    step = training_step(Saved(hooks), (8,), 5, MAKE)
    assert on_card(step.at(BATCH)) == witnessed(Saved(in_numpy))


@pytest.mark.parametrize(
    ("out", "back"),
    [
        (lambda y: y.to("cpu"), lambda host, x: host.to(x.device)),
        (lambda y: y.cpu(), lambda host, x: host.cuda()),
        (lambda y: y.to(torch.device("cpu"), non_blocking=True), lambda host, x: host.to("cuda:0")),
        (lambda y: y.cpu() * 2, lambda host, x: (host + 1).to(x)),
    ],
)
def test_a_map_that_is_moved_by_hand_and_back(out: Any, back: Any) -> None:
    step = training_step(Moved(out, back), (8,), 5, MAKE)
    expected = witnessed(Moved(lambda y: y.numpy().copy(), lambda host, x: torch.tensor(host)))
    found = [row for row in on_card(step.at(BATCH)) if row[0] not in ("mul", "add")]
    assert found == [row for row in expected if row[0] not in ("mul", "add")]


def test_under_autocast_they_are_moved_as_well() -> None:
    kept, saved = (
        training_step(net, (8,), 5, MAKE, precision="bfloat16").at(4096) for net in (body(), Saved(save_on_cpu))
    )
    assert saved.by_role()["feature maps"] < 0.5 * kept.by_role()["feature maps"]
    assert saved.peak_bytes < kept.peak_bytes


def test_what_is_computed_in_host_memory_and_kept_there_counts_nothing() -> None:
    class Logs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.logs = body(), True

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.body(x)
            if self.logs:
                copied = scores.detach().cpu()
                assert (copied.device.type, copied.is_cuda) == ("cpu", False)
                self.mean, self.spread = copied.mean(), (copied * 2 + 1).std(dim=0)
            return scores

    quiet = Logs()
    quiet.logs = False
    logs, without = (training_step(net, (8,), 5, MAKE).at(BATCH) for net in (Logs(), quiet))
    assert logs.peak_bytes == without.peak_bytes


def test_a_tensor_in_host_memory_that_meets_one_on_the_card_is_refused() -> None:
    with pytest.raises(TraceError, match=r"moved to host memory meets tensors on the card: move it back first"):
        training_step(Moved(lambda y: y.cpu(), lambda host, x: host), (8,), 5, MAKE)


def test_on_a_cpu_nothing_moves() -> None:
    moved = Moved(lambda y: y.to("cpu"), lambda host, x: host.to(x.device))
    plain = Moved(lambda y: y, lambda host, x: host)
    peaks = [training_step(net, (8,), 5, MAKE, target="cpu").at(BATCH).peak_bytes for net in (moved, plain)]
    assert peaks[0] == peaks[1]


class OnHost(torch.optim.Optimizer):
    """Momentum in host memory, as ZeRO-Offload has it."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            momentum = state.setdefault("momentum", torch.zeros(parameter.shape, device="cpu"))
            momentum.mul_(0.9).add_(parameter.grad.cpu())
            parameter.sub_(momentum.to(parameter.device))


def test_an_optimizer_whose_state_is_on_the_host_is_refused_in_these_words() -> None:
    with pytest.raises(TraceError, match=r"copies gradients or weights to the CPU in .*grad\.cpu\(\).*in host memory"):
        training_step(nn.Linear(8, 4), (8,), 4, OnHost)
