"""Two independent witnesses of a training step's memory, and the networks they are asked about.

`live_storages_timeline`: real CPU tensors whose storages are followed by torch's C-level weak references. It decides.
`mem_tracker_timeline`: torch's own MemTracker under FakeTensorMode, the second witness. Where the two differ it is
MemTracker that is wrong (torch 2.13): it holds the gradients of modules that take several tensors to the end of the
step; it takes the one number of a reduced loss, such as `mse_loss`, for 4 bytes, which keep the storage of the losses
they were made from; under autocast it gives batch norms' statistics another dtype; and it fails where a module's inputs
are frozen, as in LoRA. No network here does any of that. Both return (operator, bytes alive after it) for each
operator of the second step that allocates or writes. Neither may import anything of ours but the networks.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import awkward_nets
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_utils import networks
from lessons.memory.recurrent import rnn_from_cells

Timeline = list[tuple[str, int]]

MAKE_OPTIMIZER: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters),
    "adamw": lambda parameters: torch.optim.AdamW(parameters),
}
AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Case:
    """A network and its data: x is (batch, *input_shape), y one class a sample unless `make_target` says otherwise."""

    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    classes: int
    optimizer: str | None = "sgd"
    criterion: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy
    make_input: Callable[..., Tensor] = torch.randn
    make_target: Callable[[int], Tensor] | None = None  # batch -> y
    precision: str = "float32"
    accumulate: int = 1  # micro-batches before each update


# -- the networks ------------------------------------------------------------------------------------------------------


class TokenClassifier(nn.Module):
    """torch's own encoder layer, dropout included, and a head: its attention chooses its kernel by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(32, 4, dim_feedforward=64, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens, 32) to (batch, 10)."""
        scores: Tensor = self.head(self.encoder(tokens).mean(dim=1))
        return scores


LARGE: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "alexnet": (networks.alexnet, (3, 224, 224), 1000),
    "vgg16": (networks.vgg16, (3, 224, 224), 1000),
    "googlenet": (networks.googlenet, (3, 224, 224), 1000),
    "resnet50": (networks.resnet50, (3, 224, 224), 1000),
    "kaggle_mlp": (networks.kaggle_mlp, (9000,), 32),
}
SMALL: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "rnn_from_cells": (rnn_from_cells, (7, 4), 10),
    "encoder_block": (awkward_nets.encoder_block, (9, 64), 10),
    "transformer_encoder_layer": (TokenClassifier, (9, 32), 10),
    "shared_weights": (awkward_nets.shared_weights, (64,), 10),
    "inplace_cnn": (awkward_nets.inplace_cnn, (3, 16, 16), 10),
    "branching_cnn": (awkward_nets.branching_cnn, (3, 16, 16), 10),
}
NETWORKS = LARGE | SMALL


# -- watching ----------------------------------------------------------------------------------------------------------


def _storages(values: Any) -> set[int]:
    return {t.untyped_storage()._cdata for t in tree_leaves(values) if isinstance(t, Tensor)}


class _Sampler(TorchDispatchMode):
    """Notes (operator, bytes alive) after every operator that allocates or writes, while `on`."""

    def __init__(
        self, measure: Callable[[], int], see: Callable[[Any], None] = lambda out: None, on: bool = False
    ) -> None:
        super().__init__()
        self.measure, self.see, self.on = measure, see, on
        self.samples: Timeline = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = _storages((args, kwargs)) if self.on else set()
        out = func(*args, **(kwargs or {}))
        self.see(out)
        if self.on and not func.is_view and (func._schema.is_mutable or _storages(out) - before):
            self.samples.append((func.overloadpacket.__name__, self.measure()))
        return out


class LiveStorages:
    """The bytes of all real storages seen so far that still exist."""

    def __init__(self) -> None:
        self.known: dict[int, StorageWeakRef] = {}

    def see(self, values: Any) -> None:
        for tensor in tree_leaves(values):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                # An address is not used again while a weak reference to it is held.
                if storage._cdata not in self.known:
                    self.known[storage._cdata] = StorageWeakRef(storage)

    def bytes(self) -> int:
        self.known = {key: reference for key, reference in self.known.items() if not reference.expired()}
        storages = map(torch.UntypedStorage._new_with_weak_ptr, (one.cdata for one in self.known.values()))
        return sum(storage.nbytes() for storage in storages)  # as large as they are now: an operator may resize one


def _nothing(*anything: Any) -> None:
    pass


def make_step(
    case: Case, batch: int, before_each: Callable[[], None] = _nothing
) -> tuple[list[Any], Callable[[], None]]:
    """What the step needs (model, optimizer, x, y), and the step itself, in whatever mode is active.

    `before_each` is called before each micro-batch but the first.
    """
    model = case.build()
    x = case.make_input(batch, *case.input_shape)
    y = torch.randint(case.classes, (batch,)) if case.make_target is None else case.make_target(batch)
    precision: Callable[[], AbstractContextManager[Any]] = nullcontext
    if case.precision != "float32":
        precision = lambda: torch.autocast("cpu", AUTOCAST[case.precision])  # noqa: E731
    if case.optimizer is None:
        model.eval()

        @torch.no_grad()
        def infer() -> None:
            with precision():
                model(x)

        return [model, x], infer
    optimizer = MAKE_OPTIMIZER[case.optimizer](model.parameters())

    def step() -> None:
        for part in range(case.accumulate):
            if part:
                before_each()
            with precision():
                loss = case.criterion(model(x), y)
            if case.accumulate > 1:
                loss = loss / case.accumulate
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return [model, optimizer, x, y], step


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Deaths come from reference counts alone."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def blank(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """The same builder without the drawing of random weights, which takes longer than a step of a large network."""

    def zeros() -> nn.Module:
        with mock.patch.object(Tensor, "uniform_", lambda tensor, *limits, **options: tensor.zero_()):
            return build()

    return zeros


def live_storages_timeline(case: Case, batch: int) -> Timeline:
    """The second step of a real run on the CPU."""
    parts, step = make_step(case, batch)
    return last_step_timeline([*parts[0].parameters(), *parts[0].buffers(), *parts[1:]], step)


def last_step_timeline(tensors: list[Any], step: Callable[[], None], steps: int = 2) -> Timeline:
    """The last of so many real steps on the CPU; `tensors` exist before."""
    live = LiveStorages()
    live.see(tensors)
    del tensors  # a buffer that the step replaces has no other owner then
    sampler = _Sampler(live.bytes, live.see)
    with _no_garbage_collection(), sampler:
        for number in range(steps):
            sampler.on = number == steps - 1
            step()
    return sampler.samples


def mem_tracker_timeline(case: Case, batch: int) -> tuple[Timeline, int]:
    """The second step under torch's MemTracker on fake CPU tensors, and MemTracker's own peak of that step.

    In place of a first step, an unwatched update on gradients of no value makes the optimizer's state.
    """
    with FakeTensorMode(), _no_garbage_collection():
        tracker = MemTracker()
        parts, step = make_step(case, batch, tracker.reset_mod_stats)  # it cannot tell two passes apart by itself
        if case.optimizer is not None:
            for parameter in parts[0].parameters():
                parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
            parts[1].step()
            parts[1].zero_grad(set_to_none=True)
        tracker.track_external(*parts)
        cpu = torch.device("cpu")
        sampler = _Sampler(lambda: int(tracker.get_tracker_snapshot("current")[cpu]["Total"]), on=True)
        if case.optimizer is not None:  # its figures by module, which nobody reads here, make every operator slow
            parts[1].register_step_pre_hook(lambda *step: tracker.reset_mod_stats())
        # MemTracker looks for this on every module at every operator; found at once, a step takes half as long.
        quick = mock.patch.object(nn.Module, "_fix_weakref", _nothing, create=True)
        with quick, tracker, sampler:  # the sampler asks after the tracker has noted
            step()
        peak = int(tracker.get_tracker_snapshot("peak")[cpu]["Total"])
    return sampler.samples, peak


def allocator_records(case: Case, batch: int) -> tuple[int, list[int]]:
    """The second step of a real run that no mode watches, from the CPU allocator's own records.

    Returns the peak, in bytes, and the size of each request of the step.

    Everything counts, scratch inside kernels and the 8 bytes made of a Python number too.
    """
    parts, step = make_step(case, batch)
    step()
    live = LiveStorages()
    live.see([*parts[0].parameters(), *parts[0].buffers(), *parts[1:]])
    if case.optimizer is not None:
        live.see([list(state.values()) for state in parts[1].state.values()])
    before = live.bytes()
    with _no_garbage_collection(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as records:
        step()
    changes: list[tuple[int, int]] = []

    def collect(events: Any) -> None:
        for event in events:
            if event.tag.name == "Allocation":
                changes.append((event.start_time_ns, event.extra_fields.alloc_size))
            collect(event.children)

    assert records.profiler is not None
    collect(records.profiler.kineto_results.experimental_event_tree())
    alive = peak = before
    for _, size in sorted(changes, key=lambda change: change[0]):
        alive += size
        peak = max(peak, alive)
    return peak, [size for _, size in changes if size > 0]
