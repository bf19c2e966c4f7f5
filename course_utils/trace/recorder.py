"""A dispatch mode that notes every operator of a step, and the birth and death of every storage.

Births come from operators' results, deaths from weak references on storages, the layer of a backward operator from the
sequence number of its autograd node. An operator that runs in the backward pass with gradients enabled computes
something a second time: that is what checkpointing does, whichever way. Knows nothing of batches or optimizers:
`course_utils.trace` runs the step.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from course_utils.memory import PHASES, ROLE
from course_utils.trace import kernels
from course_utils.trace.known import KnownValues
from course_utils.trace.shortcuts import SHORTCUTS, Shortcut

FORWARD, BACKWARD, UPDATE = range(len(PHASES))
ALIVE = 2**31  # death of a storage that outlives the recording
LOSS, OPTIMIZER = "loss", "optimizer"  # the "layers" of what no module runs
HALF = (torch.float16, torch.bfloat16)
FAILED_IN = "course_failed_in"  # attribute of an error: the path of the innermost module it was raised in

OperatorCall = tuple[Any, list[Any], Any]  # an operator, its arguments and its result, tensors replaced by their shapes


@dataclass
class Run:
    """What one run leaves: one entry for each storage (S) and each event (E)."""

    size: list[int] = field(default_factory=list)
    shape: list[tuple[int, ...]] = field(default_factory=list)
    role: list[int] = field(default_factory=list)
    layer: list[str] = field(default_factory=list)
    birth: list[int] = field(default_factory=list)
    death: list[int] = field(default_factory=list)
    is_map: list[bool] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    phase: list[int] = field(default_factory=list)
    event_layer: list[str] = field(default_factory=list)
    work: list[OperatorCall | None] = field(default_factory=list)
    traffic: list[int] = field(default_factory=list)
    recomputed: list[bool] = field(default_factory=list)  # events of the backward pass that repeat the forward pass
    uses: list[tuple[int, int, int]] = field(default_factory=list)  # event, storage, whether it is written
    layer_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def event(
        self,
        op: str,
        phase: int,
        layer: str,
        work: OperatorCall | None = None,
        traffic: int = 0,
        recomputed: bool = False,
    ) -> None:
        """Add an event."""
        self.ops.append(op)
        self.phase.append(phase)
        self.event_layer.append(layer)
        self.work.append(work)
        self.traffic.append(traffic)
        self.recomputed.append(recomputed)

    def storage(self, size: int, shape: tuple[int, ...], role: int, layer: str, is_map: bool) -> int:
        """Add a storage born in the event that comes next. Returns its index."""
        self.size.append(size)
        self.shape.append(shape)
        self.role.append(role)
        self.layer.append(layer)
        self.birth.append(len(self.ops))
        self.death.append(ALIVE)
        self.is_map.append(is_map)
        return len(self.size) - 1

    def without_the_last(self) -> None:
        """Take the last event back, and the storage that it made: born in the event that comes next."""
        for column in (self.ops, self.phase, self.event_layer, self.work, self.traffic, self.recomputed):
            column.pop()
        while self.uses and self.uses[-1][0] == len(self.ops):
            self.uses.pop()
        self.birth[-1] = len(self.ops)

    def flops(self) -> list[int]:
        """Floating-point operations of each event by torch's own formulas (a multiply-add counts as two)."""
        return [0 if work is None else int(flop_registry[work[0]](*work[1], out_val=work[2])) for work in self.work]


@dataclass(frozen=True)
class _Operator:
    """What the recorder needs of an operator, looked up once."""

    name: str
    is_view: bool
    writes: bool
    counted: Any  # the operator's packet where torch has a flop formula for it
    shortcut: Shortcut | None
    takes_device: bool
    by_values: bool  # the shape of its result, or what it returns, depends on values


_OPERATORS: dict[Any, _Operator] = {}
_WHICH_DEVICE = torch.ops.prim.device.default


def _operator(func: Any) -> _Operator:
    known = _OPERATORS.get(func)
    if known is None:
        packet = func.overloadpacket
        known = _OPERATORS[func] = _Operator(
            name=packet.__name__,
            is_view=func.is_view,
            writes=func._schema.is_mutable,
            counted=packet if packet in flop_registry else None,
            shortcut=SHORTCUTS.get(func),
            takes_device=any(argument.name == "device" for argument in func._schema.arguments),
            by_values=bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags)),
        )
    return known


class Recorder(TorchDispatchMode):
    """Records what runs while it is active into `record`.

    Attributes:
        phase: FORWARD, BACKWARD or UPDATE; set by whoever runs the step.
        modules: paths of the modules being run, innermost last; the bottom entry stands for what no module runs.
        layer_of_parameter: id of a parameter -> layer, for the gradients that accumulate there.
    """

    def __init__(self, bottom: str, device: str, host_counts: bool = True, fake: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known = KnownValues(fake)
        self.host_counts = host_counts  # False: tensors in host memory are not on the card, and not noted
        self.closed = False
        self.record = Run()
        self.phase = FORWARD
        self.bottom = bottom
        self.modules = [bottom]
        self.device = device
        self.layer_of_parameter: dict[int, str] = {}
        self.alive: dict[int, int] = {}  # address of a storage -> its index
        self.storages: dict[int, weakref.ref[Any]] = {}  # index -> the storage
        self.weight_made: set[int] = set()  # storages computed from parameters alone, such as autocast's copies
        self.made_from: dict[
            int, list[int | None]
        ] = {}  # storage made in the backward pass -> storages it was made from
        self.sums: list[tuple[int, int, int]] = []  # (event, left, total): gradients added in the backward pass
        self.accumulated: list[tuple[int | None, str]] = []  # (storage, layer): gradients added to those already there
        self.reads: list[tuple[str, list[int | None], list[int | None]]] = []  # what dropout is recognised by
        self.view_overwritten = False  # whether a view that gradients flow through was written in place
        self.unlike_cpu = False  # whether something ran on shapes alone that a CPU would do otherwise
        self.scratch: list[tuple[int, int]] = []  # (event, bytes): what CUDA's kernels make while they run
        self.number: int | None = None  # the storage of a number that torch made a tensor, for what it does next
        self._layer_of_node: dict[int, str] = {}  # autograd sequence number -> layer

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: torch would wrap what sees every operator, to keep it from a compiler that nobody calls here."""
        return False

    def watch(self, storage: Any, shape: tuple[int, ...], role: int, layer: str, is_map: bool) -> int:
        """Note a storage that exists already or is born now, once. Returns its index."""
        key = storage._cdata
        if key in self.alive:
            return self.alive[key]
        index = self.record.storage(storage.nbytes(), shape, role, layer, is_map)
        self.alive[key] = index

        def died(_: object) -> None:
            if not self.closed:
                self.record.death[index] = len(self.record.ops)
            del self.alive[key], self.storages[index]

        self.storages[index] = weakref.ref(storage, died)
        return index

    def watch_tensor(self, tensor: Tensor, role: int, layer: str) -> int:
        """`watch` for a tensor's storage."""
        return self.watch(tensor.untyped_storage(), tuple(tensor.shape), role, layer, tensor.is_floating_point())

    def index_of(self, tensor: Tensor) -> int | None:
        """The index of a tensor's storage, None if it is unknown."""
        return self.alive.get(tensor.untyped_storage()._cdata)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _WHICH_DEVICE:
            return args[0].fake_device  # asked of fake tensors all the time
        operator = _operator(func)
        kwargs = kwargs or {}
        if operator.takes_device and self.phase != UPDATE:
            kwargs = self._on_device(args, kwargs)
        follows = self.phase == FORWARD or (self.phase == BACKWARD and torch.is_grad_enabled())
        out: Any = NotImplemented
        if operator.by_values and follows:
            values = self.known.values(func, operator.name, args, kwargs)
            if isinstance(values, Tensor):
                out = torch.empty(values.shape, dtype=values.dtype, device=self.device)
            elif values is not NotImplemented:
                return values
        if out is NotImplemented and operator.shortcut is not None:
            out = operator.shortcut(args, kwargs)
        if out is NotImplemented:
            out = func(*args, **kwargs)
        if follows and not operator.is_view:
            self.known.follow(func, operator.name, args, kwargs, out, operator.writes)
        if operator.is_view:
            if self.phase == FORWARD and isinstance(out, Tensor):
                self.record.layer_shapes[self._forward_layer()] = tuple(out.shape)
                if self.host_counts or out.device.type != "cpu":  # a constant, or a tensor the module holds by itself
                    self.watch(out.untyped_storage(), tuple(out.shape), ROLE["other"], self.modules[-1], is_map=False)
        else:
            self._note(operator, args, out)
            if operator.name == "scalar_tensor" and "pin_memory" not in kwargs:  # torch.scalar_tensor itself gives that
                self.number = self.index_of(out)
        return out

    def _on_device(self, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Send a tensor made out of nothing, such as `torch.zeros(...)` in a forward, to where the traced ones are."""
        device = kwargs.get("device")
        if device is None and kernels.flat_tensors(args):
            return kwargs
        if device is None or device.type == "cpu":
            return {**kwargs, "device": torch.device(self.device)}
        return kwargs

    def _forward_layer(self) -> str:
        """The running module; the autograd node made for the running operator is noted as its own."""
        again = self.phase == BACKWARD and len(self.modules) == 1  # the bottom entry still stands for the loss
        layer = self.bottom if again else self.modules[-1]
        self._layer_of_node.setdefault(torch.autograd._get_sequence_nr() - 1, layer)  # type: ignore[attr-defined]
        return layer

    def _backward_layer(self) -> str:
        node = torch._C._current_autograd_node()
        if node is None:
            return LOSS  # the gradient of the loss by itself, which starts the backward pass
        parameter = _parameter_of_node()
        if parameter is not None:
            return self.layer_of_parameter.get(id(parameter), self.modules[0])
        sequence = node._sequence_nr()
        while sequence not in self._layer_of_node and sequence > 0:
            sequence -= 1  # a node whose operator made nothing: it belongs with the one before
        return self._layer_of_node.get(sequence, self.modules[0])

    def _layer_and_role(self, recomputed: bool) -> tuple[str, int]:
        if self.phase == UPDATE:
            return OPTIMIZER, ROLE["other"]
        if self.phase == FORWARD or recomputed:
            return self._forward_layer(), ROLE["feature maps"]
        return self._backward_layer(), ROLE["gradient maps"]

    def _write_number(self, name: str, inputs: list[Tensor], number: int) -> str:
        """`x[...] = 1`: on shapes an operator makes a tensor of the number first; elsewhere it stays on the host.

        Source: torch/csrc/autograd/python_variable_indexing.cpp, `THPVariable_setitem`; aten/native/TensorIndexing.h,
        `copy_to`. Returns the name of the operator that writes it there.
        """
        if number != len(self.record.size) - 1 or self.record.ops[-1] != "scalar_tensor":
            return name
        self.record.without_the_last()
        self.record.role[number], self.record.is_map[number] = ROLE["other"], False
        if not self.host_counts:
            self.record.size[number] = 0
        inputs[-1] = inputs[-1].as_strided((), ())
        return "fill_" if name == "copy_" and inputs[0].dim() > 0 else name

    def _note(self, operator: _Operator, args: Any, out: Any) -> None:
        recomputed = (
            self.phase == BACKWARD and torch.is_grad_enabled() and torch._C._current_autograd_node() is not None
        )
        layer, role = self._layer_and_role(recomputed)
        inputs, outputs = kernels.flat_tensors(args), kernels.flat_tensors(out)
        alive = self.alive
        read = [alive.get(tensor.untyped_storage()._cdata) for tensor in inputs]
        name = operator.name
        if name in ("copy_", "index_put_") and read[-1] is not None and read[-1] == self.number:
            name = self._write_number(name, inputs, read[-1])
        written: list[int | None] = []
        born = False
        for tensor in outputs:
            storage = tensor.untyped_storage()
            index = alive.get(storage._cdata)
            if index is None:
                if not self.host_counts and tensor.device.type == "cpu":
                    continue
                born = True
                index = self.watch(storage, tuple(tensor.shape), role, layer, tensor.is_floating_point())
                if role == ROLE["gradient maps"]:
                    self.made_from[index] = read
                elif role == ROLE["feature maps"] and read and all(i in self.weight_made for i in read):
                    self.weight_made.add(index)
                    self.record.role[index] = ROLE["other"]
            written.append(index)
        if self.host_counts and self.device == "meta" and not self.unlike_cpu:
            # On all but the CPU, group norm begins with a copy in plain order.
            copied = name == "native_group_norm" and self.record.ops[-1:] == ["clone"]
            self.unlike_cpu = copied or _unlike_cpu(name, inputs, outputs, read)
        if operator.writes and self.phase == FORWARD and inputs and inputs[0]._is_view() and torch.is_grad_enabled():
            self.view_overwritten |= any(t.requires_grad for t in inputs)
        if not born and not operator.writes:
            return  # a view by another name
        if name == "add" and role == ROLE["gradient maps"] and born:
            left, total = read[0], written[0]
            if (
                left is not None
                and total is not None
                and left in self.made_from
                and left not in read[1:]  # a gradient added to itself has two holders
                and kernels.may_add_in_place(inputs[0])
            ):
                self.sums.append((len(self.record.ops), left, total))
        if name == "add_" and self.phase == BACKWARD and _parameter_of_node() is not None:
            self.accumulated.append((read[1], layer))
        if name in ("empty_like", "bernoulli_", "mul", "mul_"):
            self.reads.append((name, read, written))
        if scratch := kernels.scratch_on_cuda(name, inputs):
            self.scratch.append((len(self.record.ops), scratch))
        if self.phase == FORWARD and outputs:
            self.record.layer_shapes[layer] = tuple(outputs[0].shape)
        event = len(self.record.ops)
        self.record.uses += [(event, i, 0) for i in dict.fromkeys(read) if i is not None and i not in written]
        self.record.uses += [(event, i, 1) for i in dict.fromkeys(written) if i is not None]
        work = None if operator.counted is None else (operator.counted, [_shape(a) for a in args], _shape(out))
        traffic = sum(tensor.nbytes for tensor in (*inputs, *outputs))
        self.record.event(name, self.phase, layer, work, traffic, recomputed)


def _parameter_of_node() -> Any:
    """The parameter whose gradient autograd is about to store or add to; None anywhere else."""
    return getattr(torch._C._current_autograd_node(), "variable", None)


def _unlike_cpu(name: str, inputs: list[Tensor], outputs: list[Tensor], read: list[int | None]) -> bool:
    """Whether a CPU would do without or otherwise what ran on meta tensors.

    `torch.tensor(...)` makes a meta tensor that no mode sees; what is on the host is moved; a tensor of one number
    written into a larger one only fills it; statistics of norms in half precision have another dtype.
    """
    if None in read and any(index is None and t.is_meta and t.numel() for index, t in zip(read, inputs, strict=True)):
        return True
    if any(t.dtype in HALF for t in outputs):
        return True
    moved = name == "_to_copy" and inputs[0].device != outputs[0].device
    return moved or (name == "copy_" and inputs[0].dim() > 0 and not any(inputs[-1].stride()))


def _shape(value: Any) -> Any:
    if isinstance(value, Tensor):
        return list(value.shape)
    return [_shape(v) for v in value] if isinstance(value, tuple) else value


def follow_modules(modules: list[tuple[str, nn.Module]], recorder: Recorder) -> list[Any]:
    """Keep `recorder.modules` the stack of running modules by path. Returns the hooks' handles, to be removed."""
    handles: list[Any] = []
    for path, child in modules:
        if not path:
            continue

        def enter(module: nn.Module, args: Any, path: str = path) -> None:
            recorder.modules.append(path)

        def leave(module: nn.Module, args: Any, out: Any, path: str = path) -> None:
            error = sys.exception()
            if error is not None:  # the innermost module is left first; to hold the error would hold its tensors
                vars(error).setdefault(FAILED_IN, path)
            recorder.modules.pop()

        # Always, because a checkpoint leaves its modules by an exception once it has what it wants.
        handles += [child.register_forward_pre_hook(enter), child.register_forward_hook(leave, always_call=True)]
    return handles
