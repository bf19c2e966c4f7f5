"""`training_step`: one training step run on shapes alone, and every tensor's birth, death, size, layer and role.

The step runs on meta tensors: no data, no GPU, nothing of the size of the network is allocated. Two such runs, at
batches far apart, give every size as `fixed + per_sample * batch`; a network that cannot be written so is noticed,
and traced anew at every batch asked for. `course_utils.recorder` does the noting, `course_utils.kernels` knows what
real kernels do differently, `course_utils.memory` reads the result. Must never import matplotlib or ipywidgets.
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

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from course_utils import kernels
from course_utils.affine import NotAffine, Update, make_tape
from course_utils.memory import ROLE, StepTrace, Tape
from course_utils.recorder import (
    BACKWARD,
    FAILED_IN,
    FORWARD,
    LOSS,
    OPTIMIZER,
    UPDATE,
    Recorder,
    Recording,
    follow_modules,
)
from course_utils.units import CourseError

Criterion = Callable[[Tensor, Tensor], Tensor]
Left = tuple[Any, tuple[int, ...], str, bool]  # a storage that outlives its step: it, its shape, layer, whether a map

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TARGETS = ("cuda", "cpu")

# The two batches traced. Far apart, so that a size that is capped, halved or switched somewhere between them shows as a
# slope that is no whole number, or as another sequence of operators; one even and one prime, so that padding and
# pairing show too.
SMALL_BATCH, LARGE_BATCH = 2, 4099
ROUND_BATCH = 128  # tried when both fail: a network may ask for a multiple of something


class TraceError(CourseError):
    """The step cannot be traced; the message names the layer and the cause in one line."""


class LeakError(TraceError):
    """Every step leaves more tensors behind than the one before: there is no steady state to trace."""


def training_step(
    module: nn.Module,
    input_shape: tuple[int, ...],
    classes: int | None = None,
    optimizer: str | None = "momentum",
    precision: str = "float32",
    target: str = "cuda",
    *,
    accumulate: int = 1,
    criterion: Criterion = nn.functional.cross_entropy,
    input_dtype: torch.dtype = torch.float32,
    target_shape: tuple[int, ...] = (),
    target_dtype: torch.dtype = torch.int64,
    name: str | None = None,
) -> StepTrace:
    """Trace one steady-state training step (step two or later: the optimizer's state exists) of any module.

    The step is `loss = criterion(model(x), y); loss.backward(); optimizer.step();
    optimizer.zero_grad(set_to_none=True)` with x and y alive throughout. The module is copied shape by
    shape; it is not run, not moved and not changed.

    With `accumulate` above 1 the first line runs so many times before the update, with the loss divided by as many: the
    batch of `StepTrace.at` is then a micro-batch, and one micro-batch of input is alive at a time. From the second one
    on, the weight gradients of those before are alive in the forward pass too.

    Args:
        module: any nn.Module that takes one tensor; on any device, "meta" included. Its train/eval flags and
            `requires_grad` are respected.
        input_shape: shape of one sample, without the batch dimension, which comes first.
        classes: columns the output must have; None does not check.
        optimizer: "sgd", "momentum", "adam", "adamw"; None traces inference: forward only, eval mode, no gradients.
        precision: "float32", or "bfloat16"/"float16" for autocast with float32 weights.
        target: whose kernels: "cuda" (eager mode, one GPU) or "cpu". `course_utils.kernels` lists the differences.
        accumulate: micro-batches whose gradients are added up before the update.
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
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
        raise TraceError(f"accumulate must be a whole number of 1 or more, got {accumulate!r}")
    if optimizer is None and accumulate > 1:
        raise TraceError("there are no gradients to accumulate in inference: leave accumulate=1 with optimizer=None")
    if not isinstance(module, nn.Module):
        raise TraceError(f"module must be an nn.Module, got {type(module).__name__}")
    if not isinstance(input_shape, tuple) or not all(isinstance(n, int) and n > 0 for n in input_shape):
        raise TraceError(f"input_shape must be a tuple of whole numbers (one sample, no batch), got {input_shape!r}")
    if optimizer is not None and not any(parameter.requires_grad for parameter in module.parameters()):
        raise TraceError(f"{type(module).__name__} has no trainable parameters, so there is nothing to train")
    lazy = [n for n, p in module.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
    if lazy:
        raise TraceError(f"{lazy[0]} has no shape yet: run the network once on a sample, then trace it")
    fused = kernels.fused_recurrence(module)
    if fused is not None:
        raise TraceError(
            f"{fused} runs in one fused kernel that hides its buffers from a trace: "
            "write the recurrence from cells (nn.RNNCell, nn.LSTMCell, nn.GRUCell)"
        )
    data = _Data(input_shape, input_dtype, target_shape, target_dtype, criterion, classes, accumulate)
    with _no_garbage_collection():
        tracer = _Tracer(module, data, optimizer, precision, target, name or type(module).__name__)
        tape, why = tracer.affine()
    settings: dict[str, object] = {
        "input_shape": input_shape, "optimizer": optimizer, "precision": precision, "target": target,
        "accumulate": accumulate,
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
    accumulate: int


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
        self.modules = list(self.model.named_modules())
        for path, child in self.modules:
            for parameter in child._parameters.values():
                if parameter is not None and id(parameter) not in self.owner:
                    layer = self.owner[id(parameter)] = path or name
                    self.layer_parameters[layer] = self.layer_parameters.get(layer, 0) + parameter.numel()
        self.parameters = list(self.model.parameters())
        self._trained: list[nn.Parameter] = []  # the parameters that get a gradient
        self._updates: dict[tuple[int, ...], Update] = {}  # by the parameters that get a gradient
        self._left: list[Left] = []  # what the last run left in the modules

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
            TraceError: the step fails.
            LeakError: it leaves more behind every time it runs.
        """
        for _ in range(4):
            found = _sizes(self._left)
            recorder = self._run_once(batch)
            self._left = self._left_behind(recorder)
            if _sizes(self._left) == found:
                break
            # Either the module keeps tensors for its next step, which must then start with them; or, in a process's
            # first run, parts of torch were imported in mid-step, and their dead frames hold on to our tensors.
            self._left = []
            gc.collect()
            self._left = self._left_behind(recorder)
        else:
            layers = ", ".join(sorted({layer for _, _, layer, _ in self._left})[:3])
            raise LeakError(
                f"{self.name} leaves more tensors behind with every step (made in {layers}), so its memory has no end: "
                "drop what the forward stores before it stores more"
            )
        if self.target == "cuda":
            _as_on_cuda(recorder)
        return recorder.record

    def _left_behind(self, recorder: Recorder) -> list[Left]:
        """Storages born in the step that outlive it, the gradients aside."""
        record = recorder.record
        kept = []
        for index, reference in recorder.storages.items():
            storage = reference()
            if storage is not None and record.role[index] in (ROLE["feature maps"], ROLE["gradient maps"]):
                kept.append((storage, record.shape[index], record.layer[index], record.is_map[index]))
        return kept

    def _run_once(self, batch: int) -> Recorder:
        recorder = Recorder(self.name, self.device, host_counts=self.target == "cpu" or self.fake is not None)
        data, record = self.data, recorder.record
        training = self.optimizer is not None
        with _no_garbage_collection(), self._shapes_only(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = torch.empty((batch, *data.input_shape), dtype=data.input_dtype, device=self.device)
            y = torch.empty((batch, *data.target_shape), dtype=data.target_dtype, device=self.device)
            for parameter in self.parameters:
                index = recorder.watch_tensor(parameter, ROLE["parameters"], self.owner[id(parameter)])
                recorder.weight_made.add(index)
                recorder.layer_of_parameter[id(parameter)] = self.owner[id(parameter)]
            for path, child in self.modules:
                for value in (*child._buffers.values(), *vars(child).values()):
                    if isinstance(value, Tensor):
                        recorder.watch_tensor(value, ROLE["other"], path or self.name)
            recorder.watch_tensor(x, ROLE["input"], "input")
            if training:
                recorder.watch_tensor(y, ROLE["input"], "labels")
            while self._left:  # emptied as it is read: nothing here may keep a storage alive
                recorder.watch(self._left[0][0], self._left[0][1], ROLE["feature maps"], *self._left[0][2:])
                del self._left[0]
            record.event("start", FORWARD, self.name)
            handles = follow_modules(self.modules, recorder)
            try:
                with kernels.attention(self.target) as calls, torch.set_grad_enabled(training):
                    self._forward_backward(recorder, x, y, training)
                if self.device == "meta" and "_safe_softmax" in record.ops and not calls.unfused:
                    layer = record.event_layer[record.ops.index("_safe_softmax")]
                    raise TraceError(
                        f"{layer} calls attention by a name bound at import, which a trace cannot follow: "
                        "call it as torch.nn.functional.scaled_dot_product_attention"
                    )
            finally:
                for handle in handles:
                    handle.remove()
                for parameter in self.parameters:
                    parameter.grad = None
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
                for _ in range(self.data.accumulate):
                    doing, recorder.phase, recorder.modules[0] = "forward", FORWARD, self.name
                    with self._autocast():
                        loss = self._criterion(recorder, model(x), y)
                    if loss.dim() > 0 or not loss.requires_grad:
                        raise TraceError(
                            f"{self.name}: the criterion must return one number that depends on parameters"
                        )
                    if self.data.accumulate > 1:
                        loss = loss / self.data.accumulate
                    doing, recorder.phase = "backward", BACKWARD
                    loss.backward()
                recorder.closed = True  # what dies from here on is freed by zero_grad, not by this pass
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(self._explain(doing, error)) from error
        for parameter in self.parameters:
            if parameter.grad is not None:
                _mark_weight_gradient(recorder, recorder.index_of(parameter.grad), self.owner[id(parameter)])
        for index, layer in recorder.accumulated:
            _mark_weight_gradient(recorder, index, layer)
        self._trained = [parameter for parameter in self.parameters if parameter.grad is not None]

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

    def _explain(self, doing: str, error: Exception) -> str:
        inside = vars(error).get(FAILED_IN)
        path = inside or self.name
        kind = type(self.model.get_submodule(inside) if inside else self.model).__name__
        return f"{path} ({kind}) fails in the {doing} pass on input_shape={self.data.input_shape}: {_cause(error)}"

    def _trace_update(self, optimizer_name: str) -> Update:
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
        return Update(recorder.record, state, before)

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
            for batch in (LARGE_BATCH, ROUND_BATCH):
                try:
                    self.run(batch)
                except TraceError:
                    continue
                return None, f"the step fails at batch {SMALL_BATCH} but not at {batch}"
            raise error from None
        try:
            return self._tape(small, self.run(LARGE_BATCH)), ""
        except (NotAffine, TraceError) as reason:
            return None, str(reason)

    def _tape(self, small: Recording, large: Recording | None) -> Tape:
        update = None
        if self.optimizer is not None:
            trained = tuple(map(id, self._trained))
            if trained not in self._updates:
                self._updates[trained] = self._trace_update(self.optimizer)
            update = self._updates[trained]
        return make_tape(small, large, (SMALL_BATCH, LARGE_BATCH), update, self.layer_parameters)


def _sizes(left: list[Left]) -> list[tuple[int, str]]:
    return sorted((storage.nbytes(), layer) for storage, _, layer, _ in left)


def _mark_weight_gradient(recorder: Recorder, gradient: int | None, layer: str) -> None:
    """Give the storage of a gradient, and the partial sums it was added up from, the role of a weight gradient."""
    record = recorder.record
    waiting = [gradient]
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
            size = kernels.CUBLAS_WORKSPACE
            index = record.storage(size, (size,), ROLE["workspace"], "cuBLAS", is_map=False)
            record.birth[index] = 0


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _cause(error: Exception) -> str:
    """What went wrong, in the words of someone who has only shapes."""
    text = _first_line(error)
    missing = re.search(r"Could not run '([\w:.]+)'|no fake impl registered for <CustomOpDef\(([\w:.]+)\)", text)
    if missing:
        return f"operator {missing.group(1) or missing.group(2)} has no meta kernel, so its shapes cannot be traced"
    needs_values = r"meta tensor|item\(\)|data-(in)?dependent|DataDependent|DynamicOutputShape|to numpy"
    if "not on the expected device" in text:
        return "it mixes its input with a tensor made elsewhere: create that one with device=x.device"
    if re.search(needs_values, f"{type(error).__name__} {text}"):
        text = text.split(". ")[0]
        return f"it depends on the values of its data, and a trace has only shapes ({text})"
    return text
