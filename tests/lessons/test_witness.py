"""A run beside every record that nobody recorded: what NumPy keeps or writes, and what is done elsewhere, shows."""

from __future__ import annotations

import ctypes
import pickle
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from lessons.shared.replay import witness
from lessons.shared.replay.form import Refused
from lessons.shared.replay.steps import record_steps
from lessons.shared.replay.taken import taken

LARGE = 2**20  # bytes
BATCH = 64
needs_count = pytest.mark.skipif(not taken(), reason="this C library says nothing of what is taken from it")


class Plain(nn.Module):
    """A network whose map has LARGE bytes at BATCH, and does something beside with it."""

    def __init__(self, beside: Callable[[Plain, Tensor], object] = lambda network, x: None) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, LARGE // 4 // BATCH), nn.ReLU())
        self.head = nn.Linear(LARGE // 4 // BATCH, 3)
        self.beside = beside
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = self.layers(x)
        self.kept = self.beside(self, x)
        scores: Tensor = self.head(x)
        return scores


def recorded(beside: Callable[[Plain, Tensor], object], others: bool = False) -> None:
    draw = torch.Generator().manual_seed(0)
    batches = [(torch.randn(BATCH, 8, generator=draw), torch.randint(3, (BATCH,), generator=draw)) for _ in "12"]
    record_steps(lambda: Plain(beside), batches[:1], 3, batches[1:] if others else ())


def cycle(network: Plain, x: Tensor) -> list[object]:
    found: list[object] = [x.shape]
    found.append(found)
    return found


@pytest.mark.parametrize(
    "beside",
    [
        lambda network, x: None,
        lambda network, x: print(x.shape, x.mean()),
        lambda network, x: x.detach().mean().item(),
        lambda network, x: [x.shape, "words"] * 100,
        lambda network, x: torch.zeros(LARGE // 4),  # a tensor: the record has it
        lambda network, x: x.detach().numpy().sum(),
        cycle,
    ],
    ids=["nothing", "prints", "a number", "shapes", "a tensor", "a number by NumPy", "a cycle"],
)
def test_who_keeps_little_is_let_through(beside: Callable[[Plain, Tensor], object]) -> None:
    recorded(beside, others=True)


@needs_count
@pytest.mark.parametrize(
    "beside",
    [
        lambda network, x: x.detach().numpy().copy(),
        lambda network, x: x.tolist(),
        lambda network, x: pickle.dumps(x.detach().numpy()),
        lambda network, x: ctypes.string_at(x.data_ptr(), x.nbytes),
        lambda network, x: np.zeros(LARGE, dtype=np.uint8),
        lambda network, x: x.detach().clone() if _get_current_dispatch_mode() is None else None,
    ],
    ids=["NumPy", "a list", "pickled", "bytes", "zeros", "where nothing records"],
)
def test_what_is_kept_past_torch_is_counted(beside: Callable[[Plain, Tensor], object]) -> None:
    with pytest.raises(Refused, match=r"bytes more than torch's operators make"):
        recorded(beside)


@needs_count
def test_what_each_step_leaves_shows_in_the_next() -> None:
    kept: list[object] = []
    with pytest.raises(Refused, match=r"each step keeps .* bytes more than the one before"):
        recorded(lambda network, x: kept.append(x.detach()[:8].clone()))


def spoil(network: Plain, x: Tensor) -> None:
    x.detach().numpy()[:] = 0


@pytest.mark.parametrize(
    "beside",
    [
        spoil,
        lambda network, x: x.detach().apply_(lambda value: 0.0) if network.calls == 1 else None,
        lambda network, x: network.head.bias.detach().numpy().fill(1),
        lambda network, x: x.data.mul_(2) if _get_current_dispatch_mode() is None else None,
        lambda network, x: x.data.mul_(2) if network.calls == 2 else None,
    ],
    ids=["NumPy", "apply_", "a parameter", "where nothing records", "the second call"],
)
def test_what_is_done_past_the_record_is_told(beside: Callable[[Plain, Tensor], object]) -> None:
    with pytest.raises(Refused, match="is not what torch's operators compute"):
        recorded(beside)


def test_a_witness_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    recorded(lambda network, x: print("here"))
    assert capsys.readouterr().out == "here\n"


@needs_count
@pytest.mark.parametrize("make", [lambda: torch.zeros(LARGE), lambda: np.ones(LARGE), lambda: b"1" * LARGE])
def test_the_count_is_of_all_that_a_process_takes(make: Callable[[], object]) -> None:
    before = taken()
    made = make()
    size = made.nbytes if isinstance(made, Tensor | np.ndarray) else sys.getsizeof(made)
    assert size <= taken() - before < size + 2**14
    del made
    assert taken() - before < 2**14


@needs_count
def test_a_witness_counts_what_the_record_counts() -> None:
    """Two oracles at every mark of a step that keeps a map: bytes by operator, and the C library's."""
    seen = []

    class Looking(witness.Witness):
        def __init__(self, inputs: dict[str, Tensor], again: int = witness.AGAIN) -> None:
            super().__init__(inputs, again)
            seen.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(witness, "Witness", Looking)
        recorded(lambda network, x: torch.zeros(LARGE // 4))
    held = {name: taken for name, _, taken in seen[-1].seen}
    gradients = sum(one.nbytes for one in Plain().parameters())
    assert held["returned 1 Tensor"] == pytest.approx(2 * LARGE, abs=2**15)  # the map, and what it keeps
    assert held["end 1"] == pytest.approx(LARGE + gradients, abs=2**15)
