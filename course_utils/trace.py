"""`training_step`: one training step run on shapes alone, and every tensor's birth, death, size, layer and role.

The step runs on meta tensors: no data, no GPU, nothing of the size of the network is allocated. Two such runs, at batches
far apart, give every size as `fixed + per_sample * batch`; a network that cannot be written so is noticed, and traced
anew at every batch asked for. `course_utils.recorder` does the noting, `course_utils.kernels` knows what real kernels do
differently, `course_utils.memory` reads the result. Must never import matplotlib or ipywidgets.
"""

from __future__ import annotations

import copy
import gc
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from course_utils import kernels
from course_utils.memory import ROLE, Int64, StepTrace, Tape
from course_utils.recorder import ALIVE, BACKWARD, FORWARD, LOSS, OPTIMIZER, UPDATE, Recorder, Recording, follow_modules
from course_utils.units import CourseError

Criterion = Callable[[Tensor, Tensor], Tensor]

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TARGETS = ("cuda", "cpu")

# The two batches traced. Far apart, so that a size that is capped, halved or switched somewhere between them shows as a
# slope that is no whole number, or as another sequence of operators.
SMALL_BATCH, LARGE_BATCH = 2, 4096


class TraceError(CourseError):
    """The step cannot be traced; the message names the layer and the cause in one line."""


def training_step(
    module: nn.Module,
    input_shape: tuple[int, ...],
    classes: int | None = None,
    optimizer: str | None = "momentum",
    precision: str = "float32",
    target: str = "cuda",
    *,
    criterion: Criterion = nn.functional.cross_entropy,
    input_dtype: torch.dtype = torch.float32,
    target_shape: tuple[int, ...] = (),
    target_dtype: torch.dtype = torch.int64,
    name: str | None = None,
) -> StepTrace:
    """Trace one steady-state training step (step two or later: the optimizer's state exists) of any module.

    The step is `loss = criterion(model(x), y); loss.backward(); optimizer.step(); optimizer.zero_grad(set_to_none=True)`
    with x and y alive throughout. The module is copied shape by shape; it is not run, not moved and not changed.

    Args:
        module: any nn.Module that takes one tensor; on any device, "meta" included. Its train/eval flags and
            `requires_grad` are respected.
        input_shape: shape of one sample, without the batch dimension, which comes first.
        classes: columns the output must have; None does not check.
        optimizer: "sgd", "momentum", "adam", "adamw"; None traces inference: forward only, eval mode, no gradients.
        precision: "float32", or "bfloat16"/"float16" for autocast with float32 weights.
        target: whose kernels: "cuda" (eager mode, one GPU) or "cpu". `course_utils.kernels` lists the differences.
        criterion: (output, y) -> scalar loss.
        input_dtype: dtype of x, torch.int64 for token ids.
        target_shape: shape of one sample of y; () for one class label a sample.
        target_dtype: dtype of y.
        name: what tables and pictures call the network; the class name if not given.

    Raises:
        TraceError: an argument out of range, no trainable parameters, or a step that fails on these shapes.
    """
    for what, value, known in (
        ("optimizer", optimizer, [*OPTIMIZERS, None]),
        ("precision", precision, list(PRECISIONS)),
        ("target", target, list(TARGETS)),
    ):
        if value not in known:
            raise TraceError(f"unknown {what} {value!r}: choose one of {', '.join(map(str, known))}")
    if not isinstance(module, nn.Module):
        raise TraceError(f"module must be an nn.Module, got {type(module).__name__}")
    if not isinstance(input_shape, tuple) or not all(isinstance(n, int) and n > 0 for n in input_shape):
        raise TraceError(f"input_shape must be a tuple of whole numbers (one sample, no batch), got {input_shape!r}")
    if optimizer is not None and not any(parameter.requires_grad for parameter in module.parameters()):
        raise TraceError(f"{type(module).__name__} has no trainable parameters, so there is nothing to train")
    fused = kernels.fused_recurrence(module)
    if fused is not None:
        raise TraceError(
            f"{fused} runs in one fused kernel that hides its buffers from a trace: "
            "write the recurrence from cells (nn.RNNCell, nn.LSTMCell, nn.GRUCell)"
        )
    data = _Data(input_shape, input_dtype, target_shape, target_dtype, criterion, classes)
    tracer = _Tracer(module, data, optimizer, precision, target, name or type(module).__name__)
    tape, why = tracer.affine()
    settings: dict[str, object] = {
        "input_shape": input_shape, "optimizer": optimizer, "precision": precision, "target": target,
    }  # fmt: skip
    return StepTrace(tracer.name, tape, tracer.tape_at, why, settings)


@dataclass(frozen=True)
class _Data:
    """What goes into the step besides the network."""

    input_shape: tuple[int, ...]
    input_dtype: torch.dtype
    target_shape: tuple[int, ...]
    target_dtype: torch.dtype
    criterion: Criterion
    classes: int | None


class _NotAffine(Exception):
    """Two traces do not fit one straight line; the message says where."""


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Deaths must come from reference counts alone, or two runs would differ."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Tracer:
    """One network on shapes, and the runs that are made of it."""

    def __init__(
        self, module: nn.Module, data: _Data, optimizer: str | None, precision: str, target: str, name: str
    ) -> None:
        self.data, self.optimizer, self.precision, self.target, self.name = data, optimizer, precision, target, name
        # Autocast ignores meta tensors, so reduced precision runs on fake CPU tensors, three to four times as slow.
        self.fake = None if precision == "float32" else FakeTensorMode()
        self.device = "meta" if self.fake is None else "cpu"
        self.model = self._on_shapes(module)
        if optimizer is None:
            self.model.eval()
        self.owner: dict[int, str] = {}
        self.layer_parameters: dict[str, int] = {}
        for path, child in self.model.named_modules():
            for parameter in child._parameters.values():
                if parameter is not None and id(parameter) not in self.owner:
                    layer = self.owner[id(parameter)] = path or name
                    self.layer_parameters[layer] = self.layer_parameters.get(layer, 0) + parameter.numel()
        self._trained: list[nn.Parameter] = []  # the parameters that get a gradient
        self._update: _Update | None = None

    def _shapes_only(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.fake is None else self.fake

    def _on_shapes(self, module: nn.Module) -> nn.Module:
        """A copy whose tensors have shapes and no data."""
        memo: dict[int, Any] = {}

        def empty(tensor: Tensor) -> Tensor:
            with self._shapes_only():
                return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self.device)

        for parameter in module.parameters():
            memo[id(parameter)] = nn.Parameter(empty(parameter), requires_grad=parameter.requires_grad)
        others = [*module.buffers(), *(v for child in module.modules() for v in vars(child).values())]
        for value in others:
            if isinstance(value, Tensor) and id(value) not in memo:
                memo[id(value)] = empty(value)
        try:
            return copy.deepcopy(module, memo)
        except Exception as error:
            raise TraceError(f"{self.name} cannot be copied: {_first_line(error)}") from error

    # -- runs ----------------------------------------------------------------------------------------------------

    def run(self, batch: int) -> Recording:
        """The forward and backward pass at one batch, in a steady state.

        Raises:
            TraceError: the step fails, or leaves more behind every time it runs.
        """
        recorder = self._run_once(batch, [])
        left = self._left_behind(recorder)
        if left:  # the modules keep tensors from one step to the next: the second step starts with those of the first
            recorder = self._run_once(batch, left)
            again = self._left_behind(recorder)
            if len(again) > len(left):
                layers = sorted({recorder.record.layer[i] for i in recorder.storages} - set(self.owner.values()))
                raise TraceError(
                    f"{self.name} keeps tensors of every step it has ever run (made in {', '.join(layers[:3])}): "
                    "memory grows without end; drop what the forward stores"
                )
        if self.target == "cuda":
            _as_on_cuda(recorder)
        return recorder.record

    def _left_behind(self, recorder: Recorder) -> list[tuple[Any, tuple[int, ...], str, bool]]:
        """Storages born in the step that outlive it, the gradients aside."""
        record = recorder.record
        kept = []
        for index, reference in recorder.storages.items():
            storage = reference()
            if storage is not None and record.role[index] in (ROLE["feature maps"], ROLE["gradient maps"]):
                kept.append((storage, record.shape[index], record.layer[index], record.is_map[index]))
        return kept

    def _run_once(self, batch: int, left: list[tuple[Any, tuple[int, ...], str, bool]]) -> Recorder:
        recorder = Recorder(self.name, self.device)
        data, model, record = self.data, self.model, recorder.record
        training = self.optimizer is not None
        with _no_garbage_collection(), self._shapes_only(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = torch.empty((batch, *data.input_shape), dtype=data.input_dtype, device=self.device)
            y = torch.empty((batch, *data.target_shape), dtype=data.target_dtype, device=self.device)
            for parameter in model.parameters():
                index = recorder.watch_tensor(parameter, ROLE["parameters"], self.owner[id(parameter)])
                recorder.weight_made.add(index)
                recorder.layer_of_parameter[id(parameter)] = self.owner[id(parameter)]
            for path, child in model.named_modules():
                for buffer in child._buffers.values():
                    if buffer is not None:
                        recorder.watch_tensor(buffer, ROLE["other"], path or self.name)
            recorder.watch_tensor(x, ROLE["input"], "input")
            if training:
                recorder.watch_tensor(y, ROLE["input"], "labels")
            for storage, shape, layer, is_map in left:
                recorder.watch(storage, shape, ROLE["feature maps"], layer, is_map)
            left.clear()
            record.event("start", FORWARD, self.name)
            handles = follow_modules(model, recorder)
            try:
                with kernels.attention(self.target), torch.set_grad_enabled(training):
                    self._forward_backward(recorder, x, y, training)
            finally:
                for handle in handles:
                    handle.remove()
                model.zero_grad(set_to_none=True)
            return recorder

    def _forward_backward(self, recorder: Recorder, x: Tensor, y: Tensor, training: bool) -> None:
        record, model = recorder.record, self.model
        doing = "forward"
        try:
            with recorder:
                if not training:
                    with self._autocast():
                        model(x)
                    record.event("end", FORWARD, self.name)
                    recorder.closed = True
                    return
                with self._autocast():
                    loss = self._criterion(recorder, model(x), y)
                if loss.dim() > 0 or not loss.requires_grad:
                    raise TraceError(f"{self.name}: the criterion must return one number that depends on the parameters")
                doing = "backward"
                recorder.phase = BACKWARD
                loss.backward()  # type: ignore[no-untyped-call]
                recorder.closed = True  # what dies from here on is freed by zero_grad, not by this pass
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(self._explain(recorder, doing, error)) from error
        for parameter in model.parameters():
            if parameter.grad is not None:
                _mark_weight_gradient(recorder, parameter.grad, self.owner[id(parameter)])
        self._trained = [parameter for parameter in model.parameters() if parameter.grad is not None]

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == "float32":
            return nullcontext()
        return kernels.autocast(PRECISIONS[self.precision], self.target)

    def _criterion(self, recorder: Recorder, output: Tensor, y: Tensor) -> Tensor:
        recorder.modules[0] = LOSS
        if not isinstance(output, Tensor):
            raise TraceError(f"{self.name} must return one tensor, got {type(output).__name__}")
        classes = self.data.classes
        if classes is not None and (output.dim() < 2 or output.shape[1] != classes):
            shape = ("batch", *output.shape[1:])
            raise TraceError(f"{self.name} returns shape ({', '.join(map(str, shape))}), but classes={classes}")
        try:
            return self.data.criterion(output, y)
        except Exception as error:
            raise TraceError(
                f"the criterion fails on an output of shape {tuple(output.shape)} and y of shape {tuple(y.shape)}: "
                f"{_first_line(error)}"
            ) from error

    def _explain(self, recorder: Recorder, doing: str, error: Exception) -> str:
        path = recorder.modules[-1]
        kind = type(self.model.get_submodule(path)).__name__ if len(recorder.modules) > 1 else type(self.model).__name__
        return f"{path} ({kind}) fails in the {doing} pass on input_shape={self.data.input_shape}: {_cause(error)}"

    def _trace_update(self, optimizer_name: str) -> _Update:
        """`optimizer.step()` on tensors of its own: it does not depend on the batch, so it is run once."""
        made = [nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="meta")) for p in self._trained]
        owners = [self.owner[id(p)] for p in self._trained]
        kind, options = OPTIMIZERS[optimizer_name]
        on_cuda = self.target == "cuda"
        optimizer = kind(made, **options, foreach=on_cuda)
        recorder = Recorder(OPTIMIZER, "meta", host_counts=not on_cuda)
        for parameter in made:
            parameter.grad = torch.empty_like(parameter)
        with kernels.writes_skipped():
            optimizer.step()  # makes the state, which the first step of a real run does too
        state = []
        for parameter, layer in zip(made, owners, strict=True):
            recorder.watch_tensor(parameter, ROLE["parameters"], layer)
            recorder.watch_tensor(parameter.grad, ROLE["weight gradients"], layer)  # type: ignore[arg-type]
            for value in optimizer.state[parameter].values():
                if isinstance(value, Tensor) and (value.is_meta or not on_cuda):
                    state.append(recorder.watch_tensor(value, ROLE["optimizer state"], layer))
        before = len(recorder.record.size)
        recorder.phase = UPDATE
        with _no_garbage_collection(), recorder:
            optimizer.step()
            recorder.closed = True
        return _Update(recorder.record, state, before)

    # -- from recordings to a tape -------------------------------------------------------------------------------

    def tape_at(self, batch: int) -> Tape:
        """The step traced at one batch: every size fixed.

        Raises:
            TraceError: the step fails at this batch.
        """
        return self._tape(self.run(batch), None)

    def affine(self) -> tuple[Tape | None, str]:
        """The step at every batch, or None and the reason why no straight line fits."""
        try:
            small = self.run(SMALL_BATCH)
        except TraceError as error:
            try:
                self.run(LARGE_BATCH)
            except TraceError:
                raise error from None
            return None, f"the step fails at batch {SMALL_BATCH} but not at {LARGE_BATCH}"
        try:
            return self._tape(small, self.run(LARGE_BATCH)), ""
        except (_NotAffine, TraceError) as reason:
            return None, str(reason)

    def _tape(self, small: Recording, large: Recording | None) -> Tape:
        steps = LARGE_BATCH - SMALL_BATCH

        def line(what: str, first: list[int], second: list[int], layers: list[str]) -> tuple[Int64, Int64]:
            low, high = np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)
            slope, rest = np.divmod(high - low, steps)
            fixed = low - slope * SMALL_BATCH
            broken = np.flatnonzero((rest != 0) | (slope < 0) | (fixed < 0))
            if len(broken):
                raise _NotAffine(f"{what} in {layers[broken[0]]} is not fixed + per_sample * batch")
            return fixed, slope

        if large is None:
            zero = np.zeros(len(small.size), dtype=np.int64)
            fixed, slope = np.array(small.size, dtype=np.int64), zero
            flops = np.array([[f, 0] for f in small.flops()], dtype=np.int64)
            traffic = np.array([[t, 0] for t in small.traffic], dtype=np.int64)
            shapes = {layer: tuple((n, 0) for n in shape) for layer, shape in small.layer_shapes.items()}
        else:
            _same_step(small, large)
            fixed, slope = line("the size of a tensor", small.size, large.size, small.layer)
            flops = np.stack(line("the arithmetic", small.flops(), large.flops(), small.event_layer), axis=1)
            traffic = np.stack(line("the traffic", small.traffic, large.traffic, small.event_layer), axis=1)
            shapes = {
                layer: tuple((n - (m - n) // steps * SMALL_BATCH, (m - n) // steps) for n, m in zip(shape, other, strict=True))
                for (layer, shape), other in zip(small.layer_shapes.items(), large.layer_shapes.values(), strict=True)
            }
        return self._assemble(small, fixed, slope, flops, traffic, shapes)

    def _assemble(
        self, record: Recording, fixed: Int64, slope: Int64, flops: Int64, traffic: Int64,
        shapes: dict[str, tuple[tuple[int, int], ...]],
    ) -> Tape:  # fmt: skip
        """Put the forward and backward pass, the update and zero_grad one after the other."""
        first_update = len(record.ops)
        extra = Recording()
        if self.optimizer is not None:
            if self._update is None:
                self._update = self._trace_update(self.optimizer)
            extra = self._update.after(first_update)
        end = first_update + len(extra.ops)  # index of zero_grad; inference has none
        death = np.array([*record.death, *extra.death], dtype=np.int64)
        role = np.array([*record.role, *extra.role], dtype=np.int64)
        if self.optimizer is not None:
            freed = (role == ROLE["weight gradients"]) & (death >= ALIVE)
            death[freed] = end - 1
        death = np.minimum(death, end)
        layer = [*record.layer, *extra.layer]
        event_layer = [*record.event_layer, *extra.event_layer]
        names = tuple(dict.fromkeys([*event_layer, *layer]))
        code = {name: index for index, name in enumerate(names)}
        size = np.concatenate([fixed, np.array(extra.size, dtype=np.int64)])
        extra_traffic = np.array([[t, 0] for t in extra.traffic], dtype=np.int64).reshape(-1, 2)
        tape = Tape(
            fixed=size,
            per_sample=np.concatenate([slope, np.zeros(len(extra.size), dtype=np.int64)]),
            role=role,
            layer=np.array([code[name] for name in layer], dtype=np.int64),
            birth=np.array([*record.birth, *extra.birth], dtype=np.int64),
            death=death,
            is_map=np.array([*record.is_map, *extra.is_map], dtype=np.bool_),
            event_ops=(*record.ops, *extra.ops),
            event_phase=np.array([*record.phase, *extra.phase], dtype=np.int64),
            event_layer=np.array([code[name] for name in event_layer], dtype=np.int64),
            event_flops=np.concatenate([flops, np.zeros_like(extra_traffic)]),
            event_traffic=np.concatenate([traffic, extra_traffic]),
            layer_names=names,
            layer_shapes=shapes,
            layer_parameters=self.layer_parameters,
        )
        return tape


@dataclass(frozen=True)
class _Update:
    """The recording of one `optimizer.step()` on tensors of its own, to be set behind any backward pass."""

    record: Recording
    state: list[int]  # the storages of the optimizer's state
    before: int  # how many storages existed before it ran

    def after(self, first: int) -> Recording:
        """State and temporaries with events counted from `first` on, and `zero_grad` at the end."""
        source, out = self.record, Recording()
        for index in [*self.state, *range(self.before, len(source.size))]:
            lasting = index < self.before
            out.size.append(source.size[index])
            out.shape.append(source.shape[index])
            out.role.append(source.role[index])
            out.layer.append(source.layer[index])
            out.is_map.append(source.is_map[index])
            out.birth.append(0 if lasting else source.birth[index] + first)
            out.death.append(ALIVE if lasting else min(source.death[index], len(source.ops)) + first)
        for op, layer, traffic in zip(source.ops, source.event_layer, source.traffic, strict=True):
            out.event(op, UPDATE, layer, None, traffic)
        out.event("zero_grad", UPDATE, OPTIMIZER)
        return out


def _mark_weight_gradient(recorder: Recorder, gradient: Tensor, layer: str) -> None:
    """Give a gradient, and the partial sums it was added up from, the role of a weight gradient."""
    record = recorder.record
    waiting = [recorder.index_of(gradient)]
    while waiting:
        index = waiting.pop()
        if index is None or record.role[index] != ROLE["gradient maps"]:
            continue
        record.role[index], record.layer[index] = ROLE["weight gradients"], layer
        op = record.ops[record.birth[index]]
        if op in ("add", "_to_copy", "clone"):
            waiting.extend(recorder.made_from.get(index, []))


def _as_on_cuda(recorder: Recorder) -> None:
    """Apply the differences of CUDA eager mode that `course_utils.kernels` lists to a recording."""
    record = recorder.record
    for mask in kernels.dropout_masks(recorder.reads):
        record.size[mask], record.is_map[mask] = math.prod(record.shape[mask]), False
    for event, left, total in reversed(recorder.sums):
        if record.death[left] == event + 1 and record.role[left] == record.role[total]:
            record.death[left], record.size[total] = record.death[total], 0
    for phase in (FORWARD, BACKWARD):
        if any(op in kernels.MATRIX_PRODUCTS and p == phase for op, p in zip(record.ops, record.phase, strict=True)):
            index = record.storage(kernels.CUBLAS_WORKSPACE, (kernels.CUBLAS_WORKSPACE,), ROLE["workspace"], "cuBLAS", False)
            record.birth[index] = 0


def _same_step(small: Recording, large: Recording) -> None:
    """Raise _NotAffine unless both runs did the same things in the same order, with one batch-dependent dimension each."""
    if small.ops != large.ops:
        differing = [i for i, (a, b) in enumerate(zip(small.ops, large.ops, strict=False)) if a != b]
        at = differing[0] if differing else min(len(small.ops), len(large.ops)) - 1
        raise _NotAffine(f"{small.event_layer[at]} runs other operators at batch {SMALL_BATCH} than at {LARGE_BATCH}")
    if (small.role, small.layer, small.birth, small.death, small.event_layer) != (
        large.role, large.layer, large.birth, large.death, large.event_layer
    ) or small.layer_shapes.keys() != large.layer_shapes.keys():  # fmt: skip
        raise _NotAffine(f"tensors live differently at batch {SMALL_BATCH} than at {LARGE_BATCH}")
    for shape, other, layer in zip(small.shape, large.shape, small.layer, strict=True):
        if len(shape) != len(other) or sum(a != b for a, b in zip(shape, other, strict=True)) > 1:
            raise _NotAffine(f"a tensor in {layer} grows in more than one dimension with the batch")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _cause(error: Exception) -> str:
    """What went wrong, in the words of someone who has only shapes."""
    text = _first_line(error)
    missing = re.search(r"Could not run '([\w:.]+)'", text)
    if isinstance(error, NotImplementedError) and missing:
        return f"operator {missing.group(1)} has no meta kernel, so its shapes cannot be traced"
    if "meta tensor" in text or "item()" in text or "data-dependent" in text.lower() or "DataDependent" in type(error).__name__:
        return f"it depends on the values of its data, and a trace has only shapes ({text})"
    return text
