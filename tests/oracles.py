"""Two independent witnesses of a training step's memory, to hold the trace against.

`mem_tracker_timeline`: torch's own MemTracker under FakeTensorMode. `live_storages_timeline`: real CPU tensors whose
storages are followed by torch's C-level weak references. Both return (operator, bytes alive after it) for each operator
of the second step that allocates or writes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Timeline = list[tuple[str, int]]

MAKE_OPTIMIZER: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters),
}


def _storages(values: Any) -> set[int]:
    return {t.untyped_storage()._cdata for t in tree_leaves(values) if isinstance(t, Tensor)}


class _Sampler(TorchDispatchMode):
    """Notes (operator, bytes alive) after every operator that allocates or writes, while `on`."""

    def __init__(self, measure: Callable[[], int], see: Callable[[Any], None] = lambda out: None) -> None:
        super().__init__()
        self.measure, self.see, self.on = measure, see, False
        self.samples: Timeline = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = _storages((args, kwargs))
        out = func(*args, **(kwargs or {}))
        self.see(out)
        if self.on and not func.is_view and (func._schema.is_mutable or _storages(out) - before):
            self.samples.append((func.overloadpacket.__name__, self.measure()))
        return out


class LiveStorages:
    """The bytes of all real storages seen so far that still exist."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[StorageWeakRef, int]] = {}

    def see(self, values: Any) -> None:
        for tensor in tree_leaves(values):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._drop_dead()
                if storage._cdata not in self.known:
                    self.known[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())

    def _drop_dead(self) -> None:
        self.known = {key: entry for key, entry in self.known.items() if not entry[0].expired()}

    def bytes(self) -> int:
        self._drop_dead()
        return sum(size for _, size in self.known.values())


def _run(
    model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer, sampler: _Sampler, criterion: Any,
    between: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    with sampler:
        for step in range(2):
            sampler.on = step == 1
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            sampler.on = False
            del loss
            between()


def live_storages_timeline(
    build: Callable[[], nn.Module], make_data: Callable[[], tuple[Tensor, Tensor]], optimizer: str, criterion: Any
) -> Timeline:
    """The second step of a real run on the CPU."""
    model = build()
    x, y = make_data()
    live = LiveStorages()
    live.see((list(model.parameters()), list(model.buffers()), x, y))
    sampler = _Sampler(live.bytes, live.see)
    _run(model, x, y, MAKE_OPTIMIZER[optimizer](model.parameters()), sampler, criterion)
    return sampler.samples


def mem_tracker_timeline(
    build: Callable[[], nn.Module], make_data: Callable[[], tuple[Tensor, Tensor]], optimizer: str, criterion: Any
) -> tuple[Timeline, int]:
    """The second step under torch's MemTracker on fake CPU tensors, and MemTracker's own peak of that step."""
    with FakeTensorMode():
        model = build()
        x, y = make_data()
        update = MAKE_OPTIMIZER[optimizer](model.parameters())
        tracker = MemTracker()
        tracker.track_external(model, update, x, y)
        cpu = torch.device("cpu")

        def measure() -> int:
            return int(tracker.get_tracker_snapshot("current")[cpu]["Total"])

        sampler = _Sampler(measure)
        with tracker:
            _run(model, x, y, update, sampler, criterion, between=tracker.reset_mod_stats)
        peak = int(tracker.get_tracker_snapshot("peak")[cpu]["Total"])
    return sampler.samples, peak


def default_data(input_shape: tuple[int, ...], classes: int, batch: int) -> Callable[[], tuple[Tensor, Tensor]]:
    """Random pictures and labels; under a fake mode they are fake."""
    return lambda: (torch.randn(batch, *input_shape), torch.randint(classes, (batch,)))


__all__ = ["LiveStorages", "default_data", "live_storages_timeline", "mem_tracker_timeline", "nullcontext"]
