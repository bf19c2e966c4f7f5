"""A dispatch mode that notes every operator of a step, and the birth and death of every storage.

Births come from operators' results, deaths from weak references on storages, the layer of a backward operator from the
sequence number of its autograd node. An operator that runs in the backward pass with gradients enabled computes
something a second time: that is what checkpointing does, whichever way. Knows nothing of batches or optimizers:
`course_utils.trace` runs the step.

An operator takes three steps here: it runs, on shapes (`Recorder._run`); what it read, wrote and made is looked up
(`_note`); `observers` see it, and an `Event` of `record` is left.
"""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from course_utils.memory import ROLE
from course_utils.trace import kernels, observers
from course_utils.trace.fakes import Unwrapped, is_real
from course_utils.trace.known import KnownValues
from course_utils.trace.observers import Call
from course_utils.trace.operators import MIXES_DEVICES, WRITES_A_NUMBER
from course_utils.trace.record import BACKWARD, FORWARD, UPDATE, Event, Run, Storage
from course_utils.trace.schemas import Operator, look_up

# A storage that outlives its step: it, and what `watch` is told.
Left = tuple[Any, tuple[int, ...], int, str, bool, bool]
LOSS, OPTIMIZER = "loss", "optimizer"  # the "layers" of what no module runs
_UNKNOWN_PARAMETER = (
    "it meets a parameter of shape {} that the trace has no copy of: let the step reach its network by an attribute, a "
    "closure or a name of its file"
)


_WHICH_DEVICE = torch.ops.prim.device.default
_running_node = torch._C._current_autograd_node
_next_node = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


class Recorder(Unwrapped, TorchDispatchMode):
    """Records what runs while it is active into `record`."""

    def __init__(self, bottom: str, device: str, host_counts: bool = True, fake: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bottom = bottom  # what the bottom entry of `modules` stands for
        self.device = device  # where the step's tensors are: "meta", or "cpu" for fake ones
        self.host_counts = host_counts  # False where tensors in host memory are not on the card, and not noted
        self.record = Run()
        self.phase = FORWARD  # set by whoever runs the step
        self.modules = [bottom]  # paths of those being run, innermost last; the bottom entry: what no module runs
        self.layer_of_parameter: dict[int, str] = {}  # by id, for the gradients that accumulate there
        self.closed = False  # set once the step is over: what dies from then on is alive to the end
        self._copies_to = ""  # where the copy that is asked for goes
        self.known = KnownValues(fake)
        self.alive: dict[int, int] = {}  # address of a storage -> its number
        self.storages: dict[int, weakref.ref[Any]] = {}  # number -> the storage
        self._layer_of_node: dict[int, str] = {}  # autograd sequence number -> layer
        self._on_host: set[int] = set()  # storages that count nothing, being in host memory beside a card
        self._values_of: set[int | None] = set()  # storages whose values decided something
        self._first = 0  # number of the first storage that is seen after `begin`
        self._number: int | None = None  # the storage of a number that torch made a tensor, for what it does next

        self.weight_copies = observers.WeightCopies()  # each an attribute, too, for whoever reads its findings
        self.branch_sums = observers.BranchSums()
        self.accumulation = observers.Accumulation()
        self.cpu_differences = observers.CpuDifferences()
        self.overwritten_views = observers.OverwrittenViews()
        self.observers: list[observers.Observer] = [self.weight_copies, self.branch_sums, self.accumulation]
        if host_counts and device == "meta":
            self.observers.append(self.cpu_differences)
        if fake:
            self.observers.append(self.overwritten_views)

    # -- storages ------------------------------------------------------------------------------------------------

    def watch(
        self, storage: Any, shape: tuple[int, ...], role: int, layer: str, is_map: bool, on_host: bool = False
    ) -> int:
        """Note a storage that exists already or is born now, once. Returns its number."""
        key = storage._cdata
        if key in self.alive:
            self.put_on_host([self.alive[key]] * on_host)
            return self.alive[key]
        if torch.SymInt in map(type, shape):
            raise ValueError("a nested tensor")
        index = self.alive[key] = len(self.record.storages)
        birth = len(self.record.events)
        self.record.storages.append(Storage(storage.nbytes(), shape, role, layer, is_map, birth))

        def died(_: object) -> None:
            if not self.closed:
                self.record.storages[index].death = len(self.record.events)
            del self.alive[key], self.storages[index]

        self.storages[index] = weakref.ref(storage, died)
        self.put_on_host([index] * on_host)
        return index

    def watch_tensor(self, tensor: Tensor, role: int, layer: str) -> int:
        """`watch` for a tensor's storage."""
        return self.watch(tensor.untyped_storage(), tuple(tensor.shape), role, layer, tensor.is_floating_point())

    def watch_all(self, tensors: Iterable[tuple[str, Tensor]], role: int) -> None:
        """`watch_tensor` for those that count, each of a layer."""
        for layer, tensor in tensors:
            if self.host_counts or tensor.is_meta:
                self.watch_tensor(tensor, role, layer)

    def index_of(self, tensor: Tensor) -> int | None:
        """The number of a tensor's storage, None if it is unknown."""
        while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            tensor = torch._C._functorch.get_unwrapped(tensor)
        return self.alive.get(tensor.untyped_storage()._cdata)

    def begin(self) -> None:
        """What is seen from now on was left by the last step, or nobody knew of it, or it is born in this one."""
        self._first = len(self.record.storages)

    def left_behind(self) -> list[Left]:
        """Storages seen since `begin` that outlive the step, the gradients aside."""
        kept = []
        for index, reference in self.storages.items():
            storage, known = reference(), self.record.storages[index]
            if storage is not None and index >= self._first and known.role != ROLE["weight gradients"]:
                role = ROLE["other"] if known.role == ROLE["input"] else known.role
                kept.append((storage, known.shape, role, known.layer, known.is_map, index in self._on_host))
        return kept

    def holds_what_it_held(self) -> bool:
        """Whether as much is alive after the step as before it, gradients and its input aside."""
        storages = self.record.storages
        aside = ROLE["weight gradients"], ROLE["input"]
        before = sorted(one.size for one in storages if not one.birth and one.role not in aside)
        alive = (storages[index] for index, storage in self.storages.items() if storage() is not None)
        return before == sorted(one.size for one in alive if one.role != ROLE["weight gradients"])

    def looked_at(self) -> set[int | None]:
        """The storages that the step read, or whose values it looked at."""
        return {index for event in self.record.events for index in event.reads} | self._values_of

    def wrote(self, tensors: list[Tensor]) -> bool:
        """Whether an operator wrote into one of these."""
        written = {index for event in self.record.events for index in event.writes}
        return any(self.index_of(tensor) in written for tensor in tensors)

    def is_on_host(self, tensor: Tensor) -> bool:
        """Whether a tensor of the step lies in host memory, beside a card."""
        return self.index_of(tensor) in self._on_host

    def put_on_host(self, indices: list[int]) -> None:
        """Let new storages lie in host memory, where they take nothing of the card."""
        for index in indices:
            storage = self.record.storages[index]
            storage.size, storage.role, storage.is_map = 0, ROLE["other"], False
        self._on_host.update(indices)

    def copy(self, tensor: Tensor, dtype: torch.dtype | None, to: str) -> Tensor:
        """A copy in the other memory, "card" or "host": between tensors without data there would be none."""
        self._copies_to = to
        try:
            out: Tensor = torch.ops.aten._to_copy.default(tensor, dtype=dtype)
        finally:
            self._copies_to = ""
        return out

    def _as_resized(self, index: int, storage: Any, tensor: Tensor) -> int:
        """Where an operator gave a storage another size (`out=`), one dies and one is born. Returns its number."""
        old = self.record.storages[index]
        if storage.nbytes() == old.size:
            return index
        old.death = len(self.record.events)
        del self.alive[storage._cdata], self.storages[index]
        return self.watch(storage, tuple(tensor.shape), old.role, old.layer, old.is_map)

    def _is_counted(self, tensor: Tensor) -> bool:
        return self.host_counts or tensor.device.type != "cpu"

    # -- an operator runs ----------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _WHICH_DEVICE:
            return args[0].fake_device  # asked of fake tensors all the time
        if torch._C._is_torch_function_mode_enabled():  # in the backward pass; what is asked here is no step's question
            with torch._C.DisableTorchFunction():
                return self.__torch_dispatch__(func, types, args, kwargs)
        operator = look_up(func)
        kwargs = kwargs or {}
        device = kwargs.get("device")
        to_host = operator.name == "_to_copy" and self._copies_to == "host"
        if operator.name == "_to_copy" and args[0].is_meta and device is not None and device.type == "cpu":
            to_host = not self.host_counts
            self.cpu_differences.found |= self.host_counts  # `x.cpu()`: on a CPU there is nothing to copy
        if operator.writes and self.phase != UPDATE and any(map(_is_owners, kernels.flat_tensors(args[:1]))):
            raise ValueError(_UNKNOWN_PARAMETER.format(tuple(kernels.flat_tensors(args)[0].shape)))
        if operator.takes_device and self.phase != UPDATE:
            kwargs = self._on_device(args, kwargs)
        follows = self.phase == FORWARD or (self.phase == BACKWARD and torch.is_grad_enabled())
        values = NotImplemented
        if operator.by_values and follows:
            self._values_of.update(map(self.index_of, kernels.flat_tensors(args)))
            values = self.known.values(func, operator.name, args, kwargs)
            if values is not NotImplemented and not isinstance(values, Tensor):
                return values  # a number: no tensor is made
        out = self._run(func, operator, args, kwargs, values)
        if operator.is_view:
            self._note_view(out)
            return out
        if follows:
            self.known.follow(func, operator.name, args, kwargs, out, operator.writes)
        self._note(operator, args, out)
        if to_host and (index := self.index_of(out)) is not None:
            self.put_on_host([index])
        if operator.name == "scalar_tensor" and "pin_memory" not in kwargs:  # torch.scalar_tensor itself gives that
            self._number = self.index_of(out)
        return out

    def _run(self, func: Any, operator: Operator, args: Any, kwargs: dict[str, Any], values: Any) -> Any:
        """The operator's result: of known values, by a shortcut, or as torch makes it."""
        if operator.name == "index" and values is NotImplemented:
            args = (args[0], self.known.without_masks(args[1], self.device))
        if isinstance(values, Tensor):
            return torch.empty(values.shape, dtype=values.dtype, device=self.device)
        out = NotImplemented if operator.shortcut is None else operator.shortcut(args, kwargs)
        return func(*args, **kwargs) if out is NotImplemented else out

    def _on_device(self, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Send a tensor made out of nothing, such as `torch.zeros(...)` in a forward, to where the traced ones are."""
        device = kwargs.get("device")
        sent = not kernels.flat_tensors(args) if device is None else device.type == "cpu"
        return {**kwargs, "device": torch.device(self.device)} if sent else kwargs

    # -- and is noted --------------------------------------------------------------------------------------------

    def _note_view(self, out: Any) -> None:
        """Nothing is made; but it may be the first that is seen of a tensor, a constant or one the module holds."""
        if self.phase == BACKWARD or not isinstance(out, Tensor):
            return
        if self.phase == FORWARD:
            self.record.layer_shapes[self._forward_layer()] = tuple(out.shape)
        if self.host_counts or (self.phase == FORWARD and self._is_counted(out)):
            self.watch(out.untyped_storage(), tuple(out.shape), ROLE["other"], self.modules[-1], is_map=False)

    def _note(self, operator: Operator, args: Any, out: Any) -> None:
        node = _running_node() if self.phase == BACKWARD else None
        recomputed = node is not None and torch.is_grad_enabled()
        layer, role = self._layer_and_role(node, recomputed)
        inputs, outputs = kernels.flat_tensors(args), kernels.flat_tensors(out)
        read = [self.alive.get(tensor.untyped_storage()._cdata) for tensor in inputs]
        name = operator.name
        if name in WRITES_A_NUMBER and read[-1] is not None and read[-1] == self._number:
            name = self._write_number(name, inputs, read[-1])
        written, born = self._written(outputs, role, layer, operator.writes)
        call = Call(name, operator.writes, self.phase, layer, role, node, inputs, outputs, read, written, born)
        for observer in self.observers:
            if observer.operators is None or name in observer.operators:
                observer.see(call, self.record)
        if None in read:
            read = [self._seen(tensor, layer) for tensor in inputs]
        if not self._on_host.isdisjoint(read):
            self._meets_host(name, inputs, read, born)
        if not born and not operator.writes:
            return  # a view by another name
        if self.phase == FORWARD and outputs:
            self.record.layer_shapes[layer] = tuple(outputs[0].shape)
        event = Event(
            op=name,
            phase=self.phase,
            layer=layer,
            work=None if operator.counted is None else (operator.counted, [_shape(a) for a in args], _shape(out)),
            traffic=kernels.traffic(name, inputs, outputs),
            recomputed=recomputed,
            scratch=kernels.scratch_on_cuda(name, inputs, outputs),
            reads=tuple([i for i in dict.fromkeys(read) if i is not None and i not in written]),
            writes=tuple(dict.fromkeys(written)),
        )
        self.record.events.append(event)

    def _meets_host(self, name: str, inputs: list[Tensor], read: list[int | None], born: list[int]) -> None:
        """What is made of what lies in host memory lies there too.

        Raises ValueError where an operator gets such a tensor and one on the card, on which it would fail.
        """
        there = [index in self._on_host for tensor, index in zip(inputs, read, strict=True) if tensor.dim()]
        if all(there) and (there or self._on_host.issuperset(read)):
            self.put_on_host([] if self._copies_to == "card" else born)
        elif any(there) and name not in MIXES_DEVICES:
            raise ValueError(
                "a tensor that was moved to host memory meets tensors on the card: move it back first, with "
                "`.to(x.device)`; a step that computes in both places is not followed"
            )

    def _seen(self, tensor: Tensor, layer: str) -> int | None:
        """The storage of an argument; one that nobody knew of is there when the next step begins, if it outlives this.

        Raises ValueError where it was computed and no trace saw it.
        """
        index = self.index_of(tensor)
        if index is None and self._is_counted(tensor):
            if self.phase != UPDATE and _is_owners(tensor) and torch.is_grad_enabled() and tensor.requires_grad:
                raise ValueError(_UNKNOWN_PARAMETER.format(tuple(tensor.shape)))
            if tensor.grad_fn is not None and not is_real(tensor):
                raise ValueError(
                    f"a tensor of shape {tuple(tensor.shape)} was computed in another thread, where no trace sees it: "
                    "compute it in the thread that runs the step"
                )
            index = self.watch(tensor.untyped_storage(), tuple(tensor.shape), ROLE["other"], layer, is_map=False)
        return index

    def _written(self, outputs: list[Tensor], role: int, layer: str, in_place: bool) -> tuple[list[int], list[int]]:
        """The storages of an operator's results, and those of them that are new."""
        written, born = [], []
        for tensor in outputs:
            storage = tensor.untyped_storage()
            index = self.alive.get(storage._cdata)
            if index is not None and in_place and index not in self._on_host:
                index = self._as_resized(index, storage, tensor)
            if index is None:
                if not self._is_counted(tensor):
                    continue
                index = self.watch(storage, tuple(tensor.shape), role, layer, tensor.is_floating_point())
                born.append(index)
            written.append(index)
        return written, born

    def _write_number(self, name: str, inputs: list[Tensor], number: int) -> str:
        """`x[...] = 1`: on shapes an operator makes a tensor of the number first; elsewhere it stays on the host.

        Source: torch/csrc/autograd/python_variable_indexing.cpp, `THPVariable_setitem`; aten/native/TensorIndexing.h,
        `copy_to`. Returns the name of the operator that writes it there.
        """
        record = self.record
        if number != len(record.storages) - 1 or record.events[-1].op != "scalar_tensor":
            return name
        record.events.pop()
        storage = record.storages[number]
        storage.birth, storage.role, storage.is_map = len(record.events), ROLE["other"], False
        if not self.host_counts:
            self.put_on_host([number])
        inputs[-1] = inputs[-1].as_strided((), ())
        return "fill_" if name == "copy_" and inputs[0].dim() > 0 else name

    # -- whose it is ---------------------------------------------------------------------------------------------

    def _layer_and_role(self, node: Any, recomputed: bool) -> tuple[str, int]:
        """The layer an operator belongs to, and the role of what it makes."""
        if self.phase == UPDATE:
            return OPTIMIZER, ROLE["other"]
        if self.phase == FORWARD or recomputed:
            return self._forward_layer(), ROLE["feature maps"]
        return self._backward_layer(node), ROLE["gradient maps"]

    def _forward_layer(self) -> str:
        """The running module; the autograd node made for the running operator is noted as its own."""
        again = self.phase == BACKWARD and len(self.modules) == 1  # the bottom entry still stands for the loss
        layer = self.bottom if again else self.modules[-1]
        self._layer_of_node.setdefault(_next_node() - 1, layer)
        return layer

    def _backward_layer(self, node: Any) -> str:
        if node is None:
            return LOSS  # the gradient of the loss by itself, which starts the backward pass
        parameter = getattr(node, "variable", None)
        if parameter is not None:  # a node that stores its gradient, or adds to it
            return self.layer_of_parameter.get(id(parameter), self.modules[0])
        sequence = node._sequence_nr()
        while sequence not in self._layer_of_node and sequence > 0:
            sequence -= 1  # a node whose operator made nothing: it belongs with the one before
        return self._layer_of_node.get(sequence, self.modules[0])


def _is_owners(tensor: Tensor) -> bool:
    """Whether a tensor is a parameter with values: no copy, which is one of shapes alone."""
    return isinstance(tensor, nn.Parameter) and is_real(tensor)


def _shape(value: Any) -> Any:
    if isinstance(value, Tensor):
        return list(value.shape)
    return [_shape(v) for v in value] if isinstance(value, tuple) else value
