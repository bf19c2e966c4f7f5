"""One network changed at one place: the same training step before and after, at every batch.

A function for each kind of change makes it to one of `course_utils.networks` and traces both; every change is
traced once and kept. What they do to a network is plain PyTorch, as the lessons show it: a module is given another
stride, or put in another's place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
from torch import nn

from course_utils.memory import ROLE, Ledger, StepTrace
from course_utils.networks import Bottleneck, Network
from course_utils.trace import training_step
from course_utils.units import CourseError, require_one_of

STAYS = ("parameters", "optimizer state", "weight gradients")  # the roles that do not grow with the batch


@dataclass(frozen=True)
class Change:
    """A step before and after a change at one layer.

    Attributes:
        layer: the layer changed, as the network before the change calls it.
        before: the step of the network as published.
        after: the step of the network changed.
    """

    layer: str
    before: StepTrace
    after: StepTrace

    def peaks(self, batch: int) -> tuple[int, int]:
        """Peak bytes before and after."""
        return self.before.at(batch).peak_bytes, self.after.at(batch).peak_bytes

    @property
    def output_values(self) -> tuple[int, int]:
        """Values that the changed place puts out for one sample, before and after."""
        old, new = (_values(step, self.layer) for step in (self.before, self.after))
        return old, new

    def above(self, batch: int) -> int:
        """Bytes of feature maps that layers before the changed one keep: no change at this place reaches them."""
        kept = 0
        for name, saved in self._kept(self.after, batch):
            if name == self.layer or name.startswith(f"{self.layer}."):
                return kept
            kept += saved
        return kept

    def added(self, batch: int) -> int:
        """Bytes of feature maps more (or, negative, fewer) that all layers together keep after the change."""
        old, new = (sum(saved for _, saved in self._kept(step, batch)) for step in (self.before, self.after))
        return new - old

    @property
    def parameters_added(self) -> int:
        """Parameters more (or, negative, fewer) after the change."""
        old, new = (int(step.at(2).by_layer()["parameters"].sum()) for step in (self.before, self.after))
        return new - old

    @property
    def flops(self) -> tuple[int, int]:
        """Operations of the forward pass for one sample, before and after; a multiply-add counts as two."""
        old, new = (int(step.at(2).by_layer()["flops"].sum()) // 2 for step in (self.before, self.after))
        return old, new

    @staticmethod
    def _kept(step: StepTrace, batch: int) -> list[tuple[str, int]]:
        table = step.at(batch).by_layer()
        return [(str(n), int(s)) for n, s in zip(table["layer"], table["saved feature maps"], strict=True)]


def stays(ledger: Ledger) -> int:
    """Bytes at the peak that do not grow with the batch: parameters, their gradients, optimizer state."""
    return int(ledger.by_role()[list(STAYS)].sum())


def _values(step: StepTrace, layer: str) -> int:
    """Values a sample of a layer's output; of a layer with parts, of the last part that ran."""
    table = step.at(2).by_layer()
    own = [shape for name, shape in zip(table["layer"], table["shape"], strict=True) if str(name) == layer and shape]
    if not own:
        raise CourseError(f"{step.name} has no layer {layer!r} with an output of its own")
    return prod(own[-1][1:])


def _network(network: Network) -> nn.Module:
    with torch.device("meta"):
        return network.build()


def _trace(module: nn.Module, network: Network, precision: str, name: str) -> StepTrace:
    return training_step(module, network.input_shape, network.classes, precision=precision, name=name)


@lru_cache(maxsize=64)
def unchanged(network: Network, precision: str = "float32") -> StepTrace:
    """The step of a network as published, with momentum."""
    return _trace(_network(network), network, precision, network.name)


def _changed(
    network: Network, layer: str, name: str, edit: Callable[[nn.Module], None], precision: str = "float32"
) -> Change:
    module = _network(network)
    if layer not in dict(module.named_modules()):
        raise CourseError(f"{network.name} has no layer {layer!r}")
    with torch.device("meta"):
        edit(module)
    after = _trace(module, network, precision, f"{network.name}, {name}")
    return Change(layer, unchanged(network, precision), after)


# -- stride -----------------------------------------------------------------------------------------------------------


def next_pool(network: Network, layer: str) -> str | None:
    """The first pool after a layer of a chain, or None."""
    names = [name for name, _ in _network(network).named_children()]
    children = dict(_network(network).named_children())
    after = names[names.index(layer) + 1 :] if layer in names else []
    return next((name for name in after if isinstance(children[name], nn.MaxPool2d)), None)


@lru_cache(maxsize=256)
def stride(network: Network, layer: str, step: int, drop_pool: bool = False) -> Change:
    """Give a convolution (or a residual block that has a convolution on its shortcut) this stride.

    Args:
        network: as published.
        layer: name of the convolution or block, among the direct children of the network.
        step: the stride, in place of the layer's own.
        drop_pool: leave out the first pool after it, so that a stride of 2 leaves all later maps their size.

    Raises:
        CourseError: no such layer, or one that takes no stride; the step with it cannot be traced.
    """

    def edit(module: nn.Module) -> None:
        part = module.get_submodule(layer)
        convolutions = [part]
        if isinstance(part, Bottleneck):
            convolutions = [part.conv2, part.shortcut[0] if isinstance(part.shortcut, nn.Sequential) else part]
        for convolution in convolutions:
            if not isinstance(convolution, nn.Conv2d):
                raise CourseError(f"{layer} of {network.name} takes no stride: choose a convolution")
            convolution.stride = (step, step)
        pool = next_pool(network, layer) if drop_pool else None
        if pool is not None:
            setattr(module, pool, nn.Identity())

    return _changed(network, layer, f"{layer} at stride {step}", edit)


# -- pool -------------------------------------------------------------------------------------------------------------

POOL_KINDS = ("max pool", "average pool", "strided convolution", "nothing")
EVERY_POOL = "every pool"


def pools(network: Network) -> list[str]:
    """The pools of a chain by name, in order."""
    return [name for name, child in _network(network).named_children() if isinstance(child, nn.MaxPool2d)]


@lru_cache(maxsize=256)
def pool(
    network: Network, place: str, kind: str = "max pool", size: int | None = None, precision: str = "float32"
) -> Change:
    """Put something else where a max pool stands; before and after are in the same precision.

    Args:
        network: as published.
        place: a pool among the direct children of the network, or EVERY_POOL.
        kind: one of POOL_KINDS; the strided convolution keeps the channels, and its kernel is that of the pool.
        size: kernel and stride of what is put there; those of the published pool if None.
        precision: "float32", or "bfloat16"/"float16".

    Raises:
        CourseError: no such pool, an unknown kind, or a network that cannot be traced with it.
    """
    names = pools(network)
    if place not in (*names, EVERY_POOL):
        raise CourseError(f"{network.name} has no pool {place!r}: choose one of {', '.join([*names, EVERY_POOL])}")
    require_one_of("kind of pool", kind, POOL_KINDS)
    places = names if place == EVERY_POOL else [place]
    channels = {str(layer): shape[1] for layer, shape in _shapes(unchanged(network))}

    def edit(module: nn.Module) -> None:
        for name in places:
            old = module.get_submodule(name)
            assert isinstance(old, nn.MaxPool2d)
            setattr(module, name, _instead(old, kind, size, channels[name]))

    return _changed(network, places[0], f"{kind} in {place}", edit, precision)


def _instead(old: nn.MaxPool2d, kind: str, size: int | None, channels: int) -> nn.Module:
    """What stands in place of a max pool."""
    kernel, step, padding = (old.kernel_size, old.stride, old.padding) if size is None else (size, size, 0)
    if kind == "max pool":
        return nn.MaxPool2d(kernel, step, padding, ceil_mode=old.ceil_mode)
    if kind == "average pool":
        return nn.AvgPool2d(kernel, step, padding, ceil_mode=old.ceil_mode)
    if kind == "strided convolution":
        return nn.Conv2d(channels, channels, kernel, step, padding)
    return nn.Identity()


def _shapes(step: StepTrace) -> list[tuple[str, tuple[int, ...]]]:
    table = step.at(2).by_layer()
    return [(str(layer), shape) for layer, shape in zip(table["layer"], table["shape"], strict=True) if len(shape) > 1]


def index_bytes(ledger: Ledger) -> int:
    """Bytes of pooling indices kept for the backward pass: integers, so they are no maps of values."""
    tape = ledger.tape
    last_forward = int((tape.event_phase == 0).nonzero()[0][-1])
    kept = (tape.role == ROLE["feature maps"]) & (tape.birth <= last_forward) & (tape.death > last_forward)
    made_by = [tape.event_ops[min(int(event), tape.events - 1)] for event in tape.birth]
    pooled = [op.startswith("max_pool") for op in made_by]
    sizes = tape.fixed + tape.per_sample * ledger.batch
    return int(sizes[kept & ~tape.is_map & pooled].sum())


# -- squeeze ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def squeeze(network: Network, layer: str, channels: int, narrow: int = 0) -> Change:
    """Put a 1×1 convolution to `channels` (and a ReLU) in front of a convolution of a chain.

    Args:
        network: as published.
        layer: a convolution among the direct children of the network; it becomes a sequence of "squeeze", "relu" and
            "conv", which reads `channels` in place of its own inputs.
        channels: that the 1×1 convolution puts out.
        narrow: how many convolutions, `layer` first, put out `channels` too; the one after them widens again. 0:
            `layer` itself widens again.

    Raises:
        CourseError: no such convolution, too few convolutions after it, or fewer channels than one.
    """
    if channels < 1 or narrow < 0:
        raise CourseError(f"squeeze needs 1 channel or more and 0 narrow layers or more, got {channels} and {narrow}")

    def edit(module: nn.Module) -> None:
        convolutions = [name for name, part in module.named_children() if isinstance(part, nn.Conv2d)]
        if layer not in convolutions:
            raise CourseError(f"{network.name} has no convolution {layer!r} to squeeze in front of")
        run = convolutions[convolutions.index(layer) :][: narrow + 1]
        if len(run) <= narrow:
            raise CourseError(
                f"{layer} of {network.name} has {len(run) - 1} convolutions after it, so {narrow} cannot stay narrow: "
                "one has to widen again"
            )
        first = module.get_submodule(layer)
        assert isinstance(first, nn.Conv2d)
        for index, name in enumerate(run):
            old = module.get_submodule(name)
            assert isinstance(old, nn.Conv2d)
            outputs = channels if index < narrow else old.out_channels
            kernel, step, padding = old.kernel_size[0], old.stride[0], old.padding[0]
            assert isinstance(padding, int)
            setattr(module, name, nn.Conv2d(channels, outputs, kernel, step, padding))
        parts = {
            "squeeze": nn.Conv2d(first.in_channels, channels, 1),
            "relu": nn.ReLU(),
            "conv": getattr(module, layer),
        }
        setattr(module, layer, nn.Sequential(OrderedDict(parts)))

    return _changed(network, layer, f"{channels} channels before {layer}", edit)
