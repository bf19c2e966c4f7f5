"""Two hooks written by a learner, judged by what they do: what waits outside, what stays, and the gradients.

The network is small: convolutions, a pool and dense layers, one of which has more parameters than its maps have values.
Nothing here knows right hooks, only what was saved.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from classroom.questions.core import has_dots
from lessons.shared.watched import Watch

SIDE = 16  # of the images, in pixels
CLASSES = 10
HIDDEN = 64
BATCH = 16
Hooks = Callable[..., Any]


class Host:
    """Memory outside: what is put there is copied, and copied back whenever it is taken."""

    def __init__(self) -> None:
        self._held: list[Tensor] = []

    def put(self, tensor: Tensor) -> int:
        """Copy a tensor out; returns the ticket it is taken back with."""
        self._held.append(tensor.detach().clone())
        return len(self._held) - 1

    def take(self, ticket: int) -> Tensor:
        """A new tensor with the bytes, shape and type of the one put."""
        return self._held[ticket].clone()


def network(seed: int) -> nn.Sequential:
    """The network of a seed: (n, 1, 16, 16) to (n, 10); the first dense layer has 524,288 bytes of weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * (SIDE // 2) ** 2, 2 * HIDDEN), nn.ReLU(), nn.Linear(2 * HIDDEN, HIDDEN),
            nn.ReLU(), nn.Linear(HIDDEN, CLASSES),
        )  # fmt: skip


def least_bytes(batch: int) -> int:
    """What the question asks to move: tensors of as many bytes as the second dense layer's map, or more."""
    return 4 * batch * HIDDEN


class _WatchedHost(Host):
    """A host that knows which memory is its own."""

    @property
    def bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in self._held)


@dataclass(frozen=True)
class Saved:
    """One tensor that autograd saved: whose it is, its bytes, whether the hook kept it, and whether it is outside."""

    parameter: bool
    given: bool  # the images or the labels, which the training loop holds
    bytes: int
    moved: bool  # its memory is no longer what the hook returned
    put: bool  # on the host, all its bytes


@dataclass(frozen=True)
class Seen:
    """What two training steps with a learner's hooks did.

    Attributes:
        returned: what the learner's function returned; "hooks" for two functions.
        saved: every tensor that autograd saved in the first step.
        again: the same in the second, whose batch makes a map that has the shape of a parameter.
        alive: bytes of maps to be moved that were still in memory after a forward pass, copies included.
        wrong: of each step, how the first tensor that came back differs from the one saved; "" if none does, and then
            the gradients are those without hooks, bit by bit.
        least: bytes from which on a tensor is to be moved.
    """

    returned: Any
    saved: tuple[Saved, ...] = ()
    again: tuple[Saved, ...] = ()
    alive: int = 0
    wrong: tuple[str, str] = ("", "")
    least: int = 0

    @property
    def to_move(self) -> tuple[Saved, ...]:
        """Maps that are large enough."""
        both = (*self.saved, *self.again)
        return tuple(s for s in both if not s.parameter and not s.given and s.bytes >= self.least)

    @property
    def stayed(self) -> tuple[Saved, ...]:
        """Of them, those that were not moved."""
        return tuple(s for s in self.to_move if not s.moved)

    @property
    def elsewhere(self) -> bool:
        """Whether one was moved and is not on the host."""
        return any(s.moved and not s.put for s in self.to_move)

    @property
    def by_shape(self) -> bool:
        """Whether maps stay in the second step alone, where one has the shape of a parameter."""
        first = [s for s in self.saved if s in self.stayed]
        return bool(self.stayed) and not first

    @property
    def parameters_moved(self) -> bool:
        """Whether a parameter was moved."""
        return any(s.moved for s in (*self.saved, *self.again) if s.parameter)

    @property
    def small_moved(self) -> bool:
        """Whether anything else was moved that is too small."""
        return any(s.moved for s in (*self.saved, *self.again) if not s.parameter and s.bytes < self.least)

    @property
    def outside(self) -> tuple[Saved, ...]:
        """Maps that wait outside in the first step."""
        return tuple(s for s in self.saved if s in self.to_move and s.put)

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        hooks = self.returned == "hooks"
        return {
            "gradients equal": hooks and not self.wrong[0],
            "also in the second step": hooks and not self.wrong[1],
            "parameters stay": hooks and not self.parameters_moved,
            "small tensors stay": hooks and not self.small_moved,
            "maps move": hooks and not self.stayed,
            "the host has them": hooks and not self.elsewhere,
            "their memory is free": hooks and self.alive == 0,
        }


def run(make: Hooks, batch: int = BATCH, seed: int = 0) -> Seen:
    """Train two steps with the hooks that a learner's `make(model, least, host)` returns.

    Raises whatever the learner's code raises.
    """
    least, model, host = least_bytes(batch), network(seed), _WatchedHost()
    returned = make(model, least, host)
    hooks = tuple(returned) if isinstance(returned, tuple | list) else ()
    if len(hooks) != 2 or not all(map(callable, hooks)):
        return Seen(returned)
    pack, unpack = hooks
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: list[Saved] = []
    maps: dict[int, tuple[weakref.ref[Any], int]] = {}
    given: set[int] = set()
    wrong, dots = "", False
    packing = Watch()

    def watched_pack(tensor: Tensor) -> tuple[Any, Tensor]:
        nonlocal dots
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), tensor.nbytes
        before = host.bytes
        packing.ignore(tensor)
        with packing:
            result = pack(tensor)
        dots = dots or has_dots(result)
        stays = any(held.untyped_storage().data_ptr() == address for held in _tensors(result))
        saved.append(Saved(address in own, address in given, size, not stays, host.bytes - before >= size))
        if address not in own and address not in given and size >= least:
            maps[address] = weakref.ref(storage), size
        return result, tensor.detach().clone()

    def watched_unpack(kept: tuple[Any, Tensor]) -> Tensor:
        """What autograd gets is right in any case: with wrong indices a pool's kernel ends the whole process."""
        nonlocal wrong, dots
        result, truth = kept
        back = unpack(result)
        dots = dots or has_dots(back)
        wrong = wrong or _difference(back, truth)
        return truth

    def left() -> int:
        return sum(size for storage, size in maps.values() if storage() is not None) + packing.bytes - host.bytes

    right: list[str] = []
    steps: list[tuple[Saved, ...]] = []
    alive = 0
    for step, size in enumerate((batch, HIDDEN)):
        wrong = ""
        saved.clear()
        maps.clear()
        draw = torch.Generator().manual_seed(seed + step)
        x, y = torch.rand((size, 1, SIDE, SIDE), generator=draw), torch.randint(CLASSES, (size,), generator=draw)
        given.clear()
        given.update({x.untyped_storage().data_ptr(), y.untyped_storage().data_ptr()})
        model.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(watched_pack, watched_unpack):
            loss = nn.functional.cross_entropy(model(x), y)
        if still := left():
            gc.collect()
            still = left()
        alive += still
        loss.backward()
        if dots:
            return Seen(...)
        right.append(wrong)
        steps.append(tuple(saved))
    return Seen("hooks", steps[0], steps[1], alive, (right[0], right[1]), least)


def _tensors(value: object) -> list[Tensor]:
    """The tensors that a hook returned, by themselves or in something."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _difference(back: object, truth: Tensor) -> str:
    """How what came back differs from what was saved, in words; "" if it does not, to the last bit."""
    if not isinstance(back, Tensor):
        return f"a {type(back).__name__} in place of a tensor"
    if back.shape != truth.shape:
        return f"a tensor of shape {tuple(back.shape)} in place of {tuple(truth.shape)}"
    if back.dtype != truth.dtype:
        return f"{back.dtype} in place of {truth.dtype}"
    if torch.equal(back, truth):
        return ""
    return "rounded values" if torch.allclose(back, truth, rtol=1e-2, atol=1e-4) else "other values"
