"""A real training step of a network that a learner wrote, watched operator by operator while it runs.

What is measured (bytes alive at once, operators, which layers a map went through) and what is compared (output and
gradients) come from one and the same run on random values, so no network can be one thing here and another there. As
the trace counts on a CPU: tensors, not the scratch memory inside a kernel, so every machine counts alike.

Nothing here knows a right answer.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_utils.machine.speed import NO_KERNEL

CONVOLUTIONS = frozenset({"convolution"})
PRODUCTS = frozenset({"addmm", "mm", "bmm", "baddbmm"})
ACTIVATIONS = frozenset(
    "relu relu_ clamp clamp_ clamp_min clamp_min_ threshold threshold_ maximum where leaky_relu leaky_relu_ elu elu_ "
    "gelu silu silu_ hardtanh hardtanh_ mish softplus tanh sigmoid".split()
)


class Watch(TorchDispatchMode):
    """Notes, while it is active, what runs and the most bytes that were alive at once.

    Attributes:
        peak: the most bytes of tensors alive after any operator, those it was told of included.
        operators: names of those that launch a kernel, in order.
        sides: of every four-dimensional result of a forward pass, its last side.
        straight: whether weights multiply what other weights were multiplied with, and no activation stands between.
        read: shapes that the convolutions of a forward pass read.
    """

    def __init__(self, measures: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.measures = measures  # the peak; where thousands of small tensors live, that takes long
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._ignored: dict[int, weakref.ref[Any]] = {}
        self._linear: set[int] = set()  # storages that hold weights' products, and no activation came since
        self.begin()

    def begin(self, *held: Tensor) -> None:
        """Begin anew, but for what is alive; these tensors are."""
        self.peak = 0
        self.operators: list[str] = []
        self.sides: list[int] = []
        self.straight = False
        self.read: list[tuple[int, ...]] = []
        for tensor in held:
            self._hold(tensor)

    def _hold(self, tensor: Tensor) -> bool:
        """Note a tensor's memory; whether it is new."""
        storage = tensor.untyped_storage()
        ignored = self._ignored.get(storage._cdata)
        if ignored is not None and ignored() is not None:
            return False
        known = self._alive.get(storage._cdata)
        if known is not None and known() is not None:  # an address may be given a second time
            return False
        self._alive[storage._cdata] = weakref.ref(storage)
        self._linear.discard(storage._cdata)
        return True

    def ignore(self, tensor: Tensor) -> None:
        """Leave this tensor's memory out of the count."""
        self._ignored[tensor.untyped_storage()._cdata] = weakref.ref(tensor.untyped_storage())

    @property
    def bytes(self) -> int:
        """Bytes of all tensors that are alive now."""
        storages = {address: storage() for address, storage in self._alive.items()}
        self._alive = {address: self._alive[address] for address, storage in storages.items() if storage is not None}
        return sum(storage.nbytes() for storage in storages.values() if storage is not None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        made = _tensors(out)
        born = [self._hold(tensor) for tensor in made]
        if self.measures:
            self.peak = max(self.peak, self.bytes)
        if name not in NO_KERNEL and not func.is_view and (any(born) or func._schema.is_mutable):
            self.operators.append(name)
        if torch._C._current_autograd_node() is None:
            self._forward(name, _tensors(args), made)
        return out

    def _forward(self, name: str, read: list[Tensor], made: list[Tensor]) -> None:
        """Follow maps from weights to activations; a convolution and a product read theirs first of all arguments."""
        self.sides += [tensor.shape[-1] for tensor in made[:1] if tensor.dim() == 4]
        linear = any(tensor.untyped_storage()._cdata in self._linear for tensor in read)
        if name in CONVOLUTIONS | PRODUCTS:
            if name in CONVOLUTIONS:
                self.read.append(tuple(read[0].shape))
            self.straight = self.straight or linear
            linear = True
        elif name in ACTIVATIONS:
            linear = False
        for tensor in made:
            (self._linear.add if linear else self._linear.discard)(tensor.untyped_storage()._cdata)


@dataclass(frozen=True)
class WatchedStep:
    """What one training step of a network did.

    Attributes:
        output: what forward returned; a tensor detached.
        trainable: whether the output has a gradient.
        gradients: of the cross-entropy, by name of the parameter; empty if there was no backward pass.
        peak: bytes alive at most: parameters, their momentum, images, labels, maps and gradients.
        left: bytes alive after the step beside what was there before, gradients aside.
        operators: names of those that launched a kernel.
        nodes: kinds of autograd nodes that the forward pass left.
        sides: last sides of the four-dimensional results of the forward pass.
        straight: whether weights stand behind other weights without an activation between.
        read: shapes that convolutions of the forward pass read, in their order.
    """

    output: Any
    trainable: bool
    gradients: dict[str, Tensor]
    peak: int
    left: int
    operators: tuple[str, ...]
    nodes: frozenset[str]
    sides: frozenset[int]
    straight: bool
    read: tuple[tuple[int, ...], ...]


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Deaths must come from reference counts alone, or two runs would differ."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def step(
    network: nn.Module, images: Tensor, labels: Tensor, shape: tuple[int, ...], watch: Watch | None = None
) -> WatchedStep:
    """Forward, cross-entropy and backward of a network on these images and labels, watched.

    A backward pass follows if the output has this shape and a gradient. What a step before has left counts where that
    was watched by the same `watch`. Raises what the network raises.
    """
    network.zero_grad(set_to_none=True)
    held = [*network.parameters(), *network.buffers(), images, labels]
    with no_garbage_collection():
        watch = watch or Watch()
        watch.begin(*held)
        if watch.bytes > _bytes(held):  # a step before left something: what is garbage of it must not count
            gc.collect()
        with watch:
            output = network(images)
        seen, trainable, nodes = output, False, frozenset[str]()
        if isinstance(output, Tensor):
            seen, trainable, nodes = output.detach().clone(), output.requires_grad, _nodes(output)
        forward = frozenset(watch.sides), watch.straight, tuple(watch.read)
        if trainable and tuple(seen.shape) == shape:
            with watch:
                loss = nn.functional.cross_entropy(output, labels)
                del output  # the loss has what it needs of it
                loss.backward()
            del loss
        else:
            del output
        gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
        momentum = _bytes(p for p in network.parameters() if p.grad is not None)
        left = watch.bytes - _bytes([*held, *gradients.values()])
        gradients = {name: gradient.clone() for name, gradient in gradients.items()}
        network.zero_grad(set_to_none=True)
    return WatchedStep(seen, trainable, gradients, watch.peak + momentum, left, tuple(watch.operators), nodes, *forward)


def _nodes(output: Tensor) -> frozenset[str]:
    found: set[Any] = set()
    waiting = [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [before for before, _ in node.next_functions]
    return frozenset(type(node).__name__ for node in found)


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _bytes(tensors: Iterable[Tensor]) -> int:
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())
