"""One network on shapes, and the runs that are made of it.

Meta tensors where they do what the target does; fake CPU tensors, three to four times as slow, where they do not:
under autocast, which ignores meta tensors, and for `target="cpu"` as soon as an operator runs that is not known to be
the same on both.
"""

from __future__ import annotations

import copy
import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from course_utils.memory import ROLE, Tape
from course_utils.trace import kernels, overrides
from course_utils.trace.affine import NotAffine, Update, make_tape
from course_utils.trace.copies import copied
from course_utils.trace.corrections import as_on_cpu, as_on_cuda, mark_weight_gradient
from course_utils.trace.fakes import Fakes
from course_utils.trace.inputs import StepSpec
from course_utils.trace.operators import SAME_AS_CPU
from course_utils.trace.record import BACKWARD, FORWARD, UPDATE, Event, Run
from course_utils.trace.recorder import FAILED_IN, LOSS, OPTIMIZER, Recorder, follow_modules
from course_utils.trace.refusals import LeakError, TraceError, cause, first_line, needs_values, optimizer_cause

Left = tuple[Any, tuple[int, ...], str, bool]  # a storage that outlives its step: it, its shape, layer, whether a map
MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

ROUND_BATCH = 128  # tried when both fail: a network may ask for a multiple of something

HIDDEN_BUFFERS = (nn.RNN, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell)  # of CUDA's kernels, and of the CPU's LSTM


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


class Tracer:
    """One network on shapes, and the runs that are made of it."""

    def __init__(
        self,
        module: nn.Module,
        step: StepSpec,
        optimizer: str | MakeOptimizer | None,
        precision: str,
        target: str,
        name: str,
    ) -> None:
        self.step, self.optimizer, self.precision, self.target, self.name = step, optimizer, precision, target, name
        self.assumptions: dict[str, None] = {}
        self.batches = step.batches
        values = {id(b): b.detach().clone() for b in module.buffers() if _is_index(b) and b.device.type == "cpu"}
        self._set_up(module, values, fake=precision != "float32")

    def _set_up(self, module: nn.Module, values: dict[int, Tensor], fake: bool) -> None:
        self.fake = Fakes() if fake else None
        self.device = "cpu" if fake else "meta"
        self._values: list[tuple[Tensor, Tensor]] = []  # buffers whose values are known, and those
        self.model = self._on_shapes(module, values)
        if self.optimizer is None:
            self.model.eval()
        self.owner: dict[int, str] = {}
        self.layer_parameters: dict[str, int] = {}
        self.modules = list(self.model.named_modules())
        for path, child in self.modules:
            for parameter in child._parameters.values():
                if parameter is not None and id(parameter) not in self.owner:
                    layer = self.owner[id(parameter)] = path or self.name
                    self.layer_parameters[layer] = self.layer_parameters.get(layer, 0) + parameter.numel()
        self.parameters = list(self.model.parameters())
        self._trained: list[nn.Parameter] = []  # the parameters that get a gradient
        self._updates: dict[tuple[int, ...], Update] = {}  # by the parameters that get a gradient
        self._left: list[Left] = []  # what the last run left in the modules

    def resized(self, sizes: dict[str, int]) -> Tracer:
        """The same network in a step of other sizes."""
        other = copy.copy(self)
        other.step = replace(self.step, sizes={**self.step.sizes, **sizes})
        other.batches, other.assumptions, other._left = other.step.batches, {}, []
        return other

    def _become_fake(self) -> None:
        self._set_up(self.model, {id(buffer): values for buffer, values in self._values}, fake=True)

    def _shapes_only(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.fake is None else self.fake

    def _on_shapes(self, module: nn.Module, values: dict[int, Tensor]) -> nn.Module:
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
                if id(value) in values:
                    self._values.append((memo[id(value)], values[id(value)]))
        try:
            return copied(module, memo)
        except Exception as error:
            raise TraceError(f"{self.name} cannot be copied: {first_line(error)}") from error

    # -- runs ----------------------------------------------------------------------------------------------------

    def run(self, batch: int) -> Run:
        """The forward and backward pass at one batch, in a steady state.

        Raises:
            TraceError: the step fails.
            LeakError: it leaves more behind every time it runs.
        """
        try:
            recorder = self._steady(batch)
        except TraceError as error:
            if self.fake is not None or isinstance(error, LeakError) or not self._may_pass_as_fake(error):
                raise
            self._become_fake()
            recorder = self._steady(batch)
            if self.target == "cuda":
                self.assumptions["kernels chosen as on the CPU, because on meta tensors it looks at values"] = None
        ran = {event.op for event in recorder.record.events}
        same = not recorder.cpu_differences.found and ran <= SAME_AS_CPU
        if self.fake is None and self.target == "cpu" and not same:
            del recorder
            self._become_fake()
            recorder = self._steady(batch)
        self._say_what_is_hidden({event.op for event in recorder.record.events})
        if self.fake is not None and recorder.overwritten_views.found:  # autograd replays the views of fake tensors
            self.assumptions["a view written in place: without the two copies that its gradient may take"] = None
        (as_on_cuda if self.target == "cuda" else as_on_cpu)(recorder)
        return recorder.record

    def _say_what_is_hidden(self, ops: set[str]) -> None:
        """Recurrences run in kernels of libraries whose buffers no trace sees: their figures are estimates."""
        if self.target == "cpu" and "mkldnn_rnn_layer" in ops:
            self.assumptions["LSTM: without the workspace that the CPU's library keeps for the backward pass"] = None
        if self.target == "cuda":
            for path, child in self.modules:
                if isinstance(child, HIDDEN_BUFFERS):
                    said = f"{path or self.name} ({type(child).__name__}): traced cell by cell, while CUDA's kernel "
                    self.assumptions[said + "keeps buffers of its own"] = None

    def _may_pass_as_fake(self, error: TraceError) -> bool:
        return self.target == "cpu" or (error.__cause__ is not None and needs_values(error.__cause__))

    def _steady(self, batch: int) -> Recorder:
        for _ in range(4):
            found = _sizes(self._left)
            recorder = self._run_once(batch)
            self._left = self._left_behind(recorder)
            if _sizes(self._left) == found:
                return recorder
            # Either the module keeps tensors for its next step, which must then start with them; or, in a process's
            # first run, parts of torch were imported in mid-step, and their dead frames hold on to our tensors.
            self._left = []
            gc.collect()
            self._left = self._left_behind(recorder)
        layers = ", ".join(sorted({layer for _, _, layer, _ in self._left})[:3])
        raise LeakError(
            f"{self.name} leaves more tensors behind with every step (made in {layers}), so its memory has no end: "
            "drop what the forward stores before it stores more"
        )

    def _left_behind(self, recorder: Recorder) -> list[Left]:
        """Storages born in the step that outlive it, the gradients aside."""
        record = recorder.record
        kept = []
        for index, reference in recorder.storages.items():
            storage, known = reference(), record.storages[index]
            if storage is not None and known.role in (ROLE["feature maps"], ROLE["gradient maps"]):
                kept.append((storage, known.shape, known.layer, known.is_map))
        return kept

    def _run_once(self, batch: int) -> Recorder:
        fake = self.fake is not None
        recorder = Recorder(self.name, self.device, host_counts=self.target == "cpu" or fake, fake=fake)
        record, training = recorder.record, self.optimizer is not None
        with no_garbage_collection(), self._shapes_only(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for buffer, values in self._values:
                recorder.known.tell(buffer, values)
            inputs, named = self.step.make(batch, self.device, recorder.known)
            for parameter in self.parameters:
                index = recorder.watch_tensor(parameter, ROLE["parameters"], self.owner[id(parameter)])
                recorder.weight_copies.storages.add(index)
                recorder.layer_of_parameter[id(parameter)] = self.owner[id(parameter)]
            for path, child in self.modules:
                for value in (*child._buffers.values(), *vars(child).values()):
                    if isinstance(value, Tensor):
                        recorder.watch_tensor(value, ROLE["other"], path or self.name)
            for layer, tensor in named if training else named[: len(named) - self.step.labels]:
                recorder.watch_tensor(tensor, ROLE["input"], layer)
            while self._left:  # emptied as it is read: nothing here may keep a storage alive
                recorder.watch(self._left[0][0], self._left[0][1], ROLE["feature maps"], *self._left[0][2:])
                del self._left[0]
            record.events.append(Event("start", FORWARD, self.name))
            handles = follow_modules(self.modules, recorder)
            kept: list[Any] = []  # what the model returned last, where it stays alive
            handles += self._follow_the_model(recorder, kept)
            try:
                with self._kernels(), _quiet(), _as_if_real(fake), torch.set_grad_enabled(training):
                    self._forward_backward(recorder, inputs, training)
            finally:
                for handle in handles:
                    handle.remove()
                for parameter in self.parameters:
                    parameter.grad = None
            return recorder

    @contextmanager
    def _kernels(self) -> Iterator[None]:
        if self.target == "cpu" and self.fake is not None:
            yield  # torch itself chooses
            return
        with overrides.of(self.target) as assumptions:
            yield
        self.assumptions.update(assumptions)

    def _follow_the_model(self, recorder: Recorder, kept: list[Any]) -> list[Any]:
        """What runs behind the whole network belongs to the loss."""

        def enter(module: nn.Module, args: Any) -> None:
            recorder.modules[0] = self.name

        def leave(module: nn.Module, args: Any, out: Any) -> None:
            recorder.modules[0] = LOSS
            if self.step.keep_output:
                kept[:] = [out]

        return [self.model.register_forward_pre_hook(enter), self.model.register_forward_hook(leave)]

    def _forward_backward(self, recorder: Recorder, inputs: Any, training: bool) -> None:
        record, model = recorder.record, self.model
        doing = "forward"
        try:
            with recorder:
                if not training:
                    with self._autocast():
                        self.step.forward(model, inputs)
                    record.events.append(Event("end", FORWARD, self.name))
                    recorder.closed = True
                    return
                for _ in range(self.step.accumulate):
                    doing, recorder.phase, recorder.modules[0] = "forward", FORWARD, self.name
                    with self._autocast():
                        loss = self.step.loss(model, inputs)
                    if not isinstance(loss, Tensor) or loss.dim() > 0 or not loss.requires_grad:
                        what = "criterion" if self.step.told else "loss"
                        raise TraceError(f"{self.name}: the {what} must return one number that depends on parameters")
                    if self.step.accumulate > 1:
                        loss = loss / self.step.accumulate
                    doing, recorder.phase = "backward", BACKWARD
                    loss.backward()
                recorder.closed = True  # what dies from here on is freed by zero_grad, not by this pass
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(self._explain(doing, error)) from error
        for parameter in self.parameters:
            if parameter.grad is not None:
                mark_weight_gradient(record, recorder.index_of(parameter.grad), self.owner[id(parameter)])
        for index, layer in recorder.accumulation.found:
            mark_weight_gradient(record, index, layer)
        self._trained = [parameter for parameter in self.parameters if parameter.grad is not None]

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast("cpu", dtype=PRECISIONS[self.precision])

    def _explain(self, doing: str, error: Exception) -> str:
        inside = vars(error).get(FAILED_IN)
        path = inside or self.name
        kind = type(self.model.get_submodule(inside) if inside else self.model).__name__
        on = f" on {self.step.told}" if self.step.told else ""
        return f"{path} ({kind}) fails in the {doing} pass{on}: {cause(error)}"

    def _trace_update(self) -> Update:
        """`optimizer.step()` on tensors of its own: it does not depend on the batch, so it is run once."""
        made = [nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="meta")) for p in self._trained]
        owners = [self.owner[id(p)] for p in self._trained]
        on_cuda = self.target == "cuda"
        recorder = Recorder(OPTIMIZER, "meta", host_counts=not on_cuda)
        try:
            optimizer = self._make_optimizer(made, on_cuda)
            for parameter in made:
                parameter.grad = torch.empty_like(parameter)
            with kernels.writes_skipped():
                optimizer.step()  # makes the state, which the first step of a real run does too
            state = []
            for parameter, layer in zip(made, owners, strict=True):
                recorder.watch_tensor(parameter, ROLE["parameters"], layer)
                recorder.watch_tensor(parameter.grad, ROLE["weight gradients"], layer)  # type: ignore[arg-type]
                for value in tree_leaves(optimizer.state[parameter]):
                    if isinstance(value, Tensor) and (value.is_meta or not on_cuda):
                        state.append(recorder.watch_tensor(value, ROLE["optimizer state"], layer))
            before = len(recorder.record.storages)
            recorder.phase = UPDATE
            with no_garbage_collection(), recorder:
                optimizer.step()
                recorder.closed = True
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(f"the optimizer fails: {optimizer_cause(error)}") from error
        return Update(recorder.record, state, before)

    def _make_optimizer(self, parameters: list[nn.Parameter], on_cuda: bool) -> torch.optim.Optimizer:
        if isinstance(self.optimizer, str):
            kind, options = OPTIMIZERS[self.optimizer]
            return kind(parameters, **options, foreach=on_cuda)  # type: ignore[no-any-return]
        assert self.optimizer is not None
        optimizer = self.optimizer(parameters)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TraceError(f"optimizer must return a torch.optim.Optimizer, got {type(optimizer).__name__}")
        if not (kind := type(optimizer)).__module__.startswith("torch.optim"):
            self.assumptions[f"{kind.__name__} as in its second step, without what only later ones make"] = None
        for group in optimizer.param_groups:
            if "foreach" in group and group["foreach"] is None and not group.get("fused"):
                group["foreach"] = on_cuda  # what torch chooses where it sees a card
        return optimizer

    # -- from recordings to a tape -------------------------------------------------------------------------------

    def tape_at(self, batch: int) -> Tape:
        """The step traced at one batch: every size fixed.

        Raises:
            TraceError: the step fails at this batch.
        """
        return self._tape(self.run(batch), None)

    def affine(self) -> tuple[Tape | None, str]:
        """The step at every batch, or None and the reason why no straight line fits."""
        with nullcontext() if self.target == "cpu" and self.fake is not None else overrides.registered():
            return self._affine()

    def _affine(self) -> tuple[Tape | None, str]:
        first, second = self.batches
        try:
            small = self.run(first)
        except TraceError as error:
            for batch in (second, ROUND_BATCH):
                try:
                    self.run(batch)
                except TraceError:
                    continue
                return None, f"the step fails at batch {first} but not at {batch}"
            raise error from None
        self._update()  # an optimizer that fails does so at every batch
        try:
            return self._tape(small, self.run(second)), ""
        except (NotAffine, TraceError) as reason:
            return None, str(reason)

    def _tape(self, small: Run, large: Run | None) -> Tape:
        return make_tape(small, large, self.batches, self._update(), self.layer_parameters)

    def _update(self) -> Update | None:
        if self.optimizer is None:
            return None
        trained = tuple(map(id, self._trained))
        if trained not in self._updates:
            self._updates[trained] = self._trace_update()
        return self._updates[trained]


@contextmanager
def _quiet() -> Iterator[None]:
    """Fake tensors print what goes wrong before they raise it; the refusal says it in one line."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was


@contextmanager
def _as_if_real(fake: bool) -> Iterator[None]:
    """Transformers takes another way with fake tensors, as if it were exported; a step goes the ordinary one."""
    transformers: Any = sys.modules.get("transformers.utils.import_utils")
    asked = getattr(transformers, "is_fake_tensor", None)
    if not fake or asked is None:
        yield
        return
    transformers.is_fake_tensor = lambda tensor: False  # no mock: that would hold on to every tensor it is asked about
    try:
        yield
    finally:
        transformers.is_fake_tensor = asked


def _is_index(tensor: Tensor) -> bool:
    """Whether a buffer may be one that a forward looks at: whole numbers or truth values, which no kernel changes."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def _sizes(left: list[Left]) -> list[tuple[int, str]]:
    return sorted((storage.nbytes(), layer) for storage, _, layer, _ in left)
