"""What is noticed of a step besides its events: one class a concern.

The recorder shows every call to the observers that ask for its operator. A new concern is a class here and a line in
`Recorder.__init__`; whoever needs its findings reads them from there once the step is over.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from course_utils.memory import ROLE
from course_utils.trace.copying import COMPUTED
from course_utils.trace.operators import MIXES_DEVICES, NOTICED
from course_utils.trace.overrides import HALF
from course_utils.trace.record import BACKWARD, FORWARD, Run


@dataclass(slots=True)
class Call:
    """An operator that has run, with its tensors: seen by observers, and kept by none."""

    op: str
    writes: bool  # into its arguments
    phase: int
    layer: str
    role: int  # of what it makes
    node: Any  # of autograd, in the backward pass; None where autograd runs none
    inputs: list[Tensor]
    outputs: list[Tensor]
    read: list[int | None]  # storages of `inputs`, None for one that is unknown
    written: list[int]  # storages of `outputs`
    born: list[int]  # those of `written` that are new


class Observer:
    """One concern."""

    operators: frozenset[str] | None = None  # the names of those it wants to see; None for all

    def see(self, call: Call, record: Run) -> None:
        """Look at a call before its event is added to the record."""
        raise NotImplementedError


@dataclass
class WeightCopies(Observer):
    """What is computed from parameters alone, such as autocast's copies, is no feature map."""

    storages: set[int] = field(default_factory=set)  # the parameters, and what is made of them

    def see(self, call: Call, record: Run) -> None:
        """Follow results whose arguments are all known here."""
        if call.born and call.role == ROLE["feature maps"] and call.read and self.storages.issuperset(call.read):
            self.storages.update(call.born)
            for index in call.born:
                record.storages[index].role = ROLE["other"]


@dataclass
class CpuDifferences(Observer):
    """Whether something ran on meta tensors that a CPU would do without, or do otherwise."""

    found: bool = False

    def see(self, call: Call, record: Run) -> None:
        """Look for each difference, until there is one."""
        if not self.found:
            unseen = (t for t, index in zip(call.inputs, call.read, strict=True) if index is None)
            self.found = (
                any(tensor.is_meta and tensor.numel() for tensor in unseen)  # `torch.tensor(...)`: no mode sees it
                or any(tensor.dtype in HALF for tensor in call.outputs)  # norms keep statistics of another dtype
                or (call.op in NOTICED["unlike_cpu"] and self._by_name(call, record))
            )

    @staticmethod
    def _by_name(call: Call, record: Run) -> bool:
        if call.op == "native_group_norm":  # on all but the CPU it begins with a copy in plain order
            return bool(record.events) and record.events[-1].op == "clone"
        if call.op == "_to_copy":  # what is on the host is moved
            return call.inputs[0].device != call.outputs[0].device
        return call.inputs[0].dim() > 0 and not any(call.inputs[-1].stride())  # one number only fills a larger tensor


@dataclass
class HostTensors(Observer):
    """Tensors in host memory, made outside of the step, that a step on a card would fail on."""

    names: dict[int, str]  # by the address of a storage

    def see(self, call: Call, record: Run) -> None:
        """Look for one that meets traced tensors; a number may, and what is moved or copied to them."""
        check_devices(call.op, call.inputs, self.names)


def check_devices(op: str, inputs: list[Tensor], names: dict[int, str]) -> None:
    """Raise ValueError if an operator gets a tensor in host memory, of these names by storage, and one on the card."""
    if len(inputs) < 2 or op in MIXES_DEVICES:
        return
    real = [t for t in inputs if type(t) is not FakeTensor and not t.is_meta and t.dim()]
    if real and len(real) < len(inputs):
        name = names.get(real[0].untyped_storage()._cdata)
        what = f"a tensor of shape {tuple(real[0].shape)} in host memory"
        raise ValueError(
            f"{name + ', ' if name else ''}{what}, meets tensors on the card: create that one with device=x.device"
        )


class ComputedBefore(Observer):
    """Tensors that were computed before the step, from weights: their copies do not know of which."""

    def see(self, call: Call, record: Run) -> None:
        """Look for one that gradients would flow through, itself or a view of it."""
        if call.phase == FORWARD and torch.is_grad_enabled():
            for tensor in call.inputs:
                if by := vars(tensor if tensor._base is None else tensor._base).get(COMPUTED):
                    raise ValueError(f"a tensor was computed before the step ({by}): compute it in the forward pass")


@dataclass
class OverwrittenViews(Observer):
    """Whether a view that gradients flow through was written in place."""

    found: bool = False

    def see(self, call: Call, record: Run) -> None:
        """Look at the first argument, the one that is written."""
        if call.writes and call.phase == FORWARD and call.inputs and call.inputs[0]._is_view():
            self.found |= torch.is_grad_enabled() and any(tensor.requires_grad for tensor in call.inputs)


@dataclass
class BranchSums(Observer):
    """Gradients of a branch, added in the backward pass where an engine that nobody watches adds in place."""

    operators = NOTICED["branch_sums"]
    found: list[tuple[int, int, int]] = field(default_factory=list)  # (event, left, total)

    def see(self, call: Call, record: Run) -> None:
        """Note a sum whose left side nobody else holds."""
        if call.role != ROLE["gradient maps"] or not call.born:
            return
        left, *right = call.read
        if left is None or left in right or record.storages[left].role != ROLE["gradient maps"]:
            return  # a gradient added to itself has two holders
        if not call.inputs[0]._is_view():  # which shares its storage with its base
            self.found.append((len(record.events), left, call.written[0]))


@dataclass
class Accumulation(Observer):
    """Gradients that autograd adds to a parameter's gradient, which is there already."""

    operators = NOTICED["accumulation"]
    found: list[tuple[int | None, str]] = field(default_factory=list)  # (storage that is added, layer)

    def see(self, call: Call, record: Run) -> None:
        """Note what is added to a parameter's gradient; hooks of the parameter may add to other tensors."""
        gradient = getattr(getattr(call.node, "variable", None), "grad", None)
        if call.phase != BACKWARD or gradient is None:
            return
        if gradient.untyped_storage()._cdata == call.inputs[0].untyped_storage()._cdata:
            self.found.append((call.read[1], call.layer))
