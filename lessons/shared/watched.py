"""A real training step of a network that a learner wrote, watched operator by operator while it runs.

What is measured (bytes alive at once, operators, which layers a map went through) and what is compared (output and
gradients) come from one and the same run on random values, so no network can be one thing here and another there.
Nothing of the learner's runs unwatched between the two: parameters are found past the methods of its classes, tensors
are torch's own. As the trace counts on a CPU: tensors, not the scratch memory inside a kernel, so every machine counts
alike.

Nothing here knows a right answer.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from classroom.questions.waiting import run_apart
from course_utils.machine.speed import NO_KERNEL
from lessons.shared.tensors import own_kind

CONVOLUTIONS = frozenset({"convolution"})
PRODUCTS = frozenset({"addmm", "mm", "bmm", "baddbmm"})
ACTIVATIONS = frozenset(
    "relu relu_ clamp clamp_ clamp_min clamp_min_ threshold threshold_ maximum where leaky_relu leaky_relu_ elu elu_ "
    "gelu silu silu_ hardtanh hardtanh_ mish softplus tanh sigmoid".split()
)
Made = TypeVar("Made")


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
        read, made = _tensors(args), _tensors(out)
        for tensor in read:
            own_kind(tensor)
        born = [self._hold(tensor) for tensor in made]
        if self.measures:
            self.peak = max(self.peak, self.bytes)
        if name not in NO_KERNEL and not func.is_view and (any(born) or func._schema.is_mutable):
            self.operators.append(name)
        if torch._C._current_autograd_node() is None:
            self._forward(name, read, made)
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
        parameters: shapes of all parameters by name, before the step.
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
    parameters: dict[str, tuple[int, ...]]
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


def members(network: nn.Module, kind: str = "_parameters") -> dict[str, Tensor]:
    """The parameters (or "_buffers") of a network by name, each once, whatever methods its classes define.

    Raises TypeError for one of a class that somebody derived.
    """
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    waiting = [("", network)]
    while waiting:
        prefix, module = waiting.pop()
        if id(module) in seen:
            continue
        inside = vars(module)
        for name, tensor in inside.get(kind, {}).items():
            if tensor is not None and id(tensor) not in seen:
                found[f"{prefix}{name}"] = own_kind(tensor)
                seen.add(id(tensor))
        seen.add(id(module))
        children = [(f"{prefix}{name}.", child) for name, child in inside.get("_modules", {}).items()]
        waiting += [(name, child) for name, child in reversed(children) if child is not None]
    return found


def apart(work: Callable[[], Made]) -> Made:
    """What `work` returns, from a thread of its own: contexts that somebody entered and never left are not in force.

    Raises what it raises.
    """
    made: list[Made] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            made.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            errors.append(error)

    run_apart(run)
    for error in errors:
        raise error
    return made[0]


def step(
    network: nn.Module, images: Tensor, labels: Tensor, shape: tuple[int, ...], watch: Watch | None = None
) -> WatchedStep:
    """Forward, cross-entropy and backward of a network on these images and labels, watched.

    A backward pass follows if the output has this shape and a gradient. What a step before has left counts where that
    was watched by the same `watch`. Raises what the network raises.
    """
    return apart(lambda: _step(network, images, labels, shape, watch or Watch()))


def _step(network: nn.Module, images: Tensor, labels: Tensor, shape: tuple[int, ...], watch: Watch) -> WatchedStep:
    parameters = members(network)
    forget(parameters)
    held = [*parameters.values(), *members(network, "_buffers").values(), images, labels]
    with no_garbage_collection():
        watch.begin(*held)
        if watch.bytes > _bytes(held):  # a step before left something: what is garbage of it must not count
            gc.collect()
        with watch:
            output = network(images)
        seen, trainable, nodes = output, False, frozenset[str]()
        if isinstance(output, Tensor):
            seen, trainable, nodes = own_kind(output).detach().clone(), output.requires_grad, _nodes(output)
        forward = frozenset(watch.sides), watch.straight, tuple(watch.read)
        with watch:  # also while the graph goes, whose end may call what is in it
            if trainable and tuple(seen.shape) == shape:
                loss = nn.functional.cross_entropy(output, labels)
                del output  # the loss has what it needs of it
                loss.backward()
                del loss
            else:
                del output
        gradients = {name: own_kind(p.grad) for name, p in parameters.items() if p.grad is not None}
        momentum = _bytes(parameters[name] for name in gradients)
        left = watch.bytes - _bytes([*held, *gradients.values()])
        gradients = {name: gradient.clone() for name, gradient in gradients.items()}
        forget(parameters)
    shapes = {name: tuple(p.shape) for name, p in parameters.items()}
    return WatchedStep(
        seen, shapes, trainable, gradients, watch.peak + momentum, left, tuple(watch.operators), nodes, *forward
    )


def forget(parameters: dict[str, Tensor]) -> None:
    """Take away their gradients, as `zero_grad` does."""
    for parameter in parameters.values():
        parameter.grad = None


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
