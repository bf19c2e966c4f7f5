"""One network on shapes, and the runs that are made of it.

Meta tensors where they do what the target does; fake CPU tensors, three to four times as slow, where they do not:
under autocast, which ignores meta tensors, and for `target="cpu"` as soon as an operator runs that is not known to be
the same on both.
"""

import contextvars
import copy
import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.weak import TensorWeakRef

from course_utils.memory import ROLE
from course_utils.surroundings import Draws, as_if_real, no_garbage_collection, quiet
from course_utils.trace import assumptions, devices, overrides
from course_utils.trace.affine import Update
from course_utils.trace.copying import MARK, OnShapes, hooks_of
from course_utils.trace.corrections import as_on_cpu, as_on_cuda, mark_weight_gradient
from course_utils.trace.fakes import Fakes, is_real
from course_utils.trace.inputs import StepSpec
from course_utils.trace.known import LARGEST
from course_utils.trace.observers import ComputedBefore, HostTensors
from course_utils.trace.operators import SAME_AS_CPU
from course_utils.trace.optimizers import MakeOptimizer, Numbers, as_on, state_of, updated
from course_utils.trace.record import BACKWARD, FORWARD, Event, Run
from course_utils.trace.recorder import LOSS, OPTIMIZER, Left, Recorder
from course_utils.trace.refusals import LeakError, TraceError, cause, first_line, needs_values
from course_utils.trace.state import State

STEPS = 10  # tried until a step leaves as much as it found
FAILED_IN = "course_failed_in"  # attribute of an error: the path of the innermost module it was raised in
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Runs:
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
        self._given: dict[str, None] = {}  # those of them that do not depend on sizes
        self.draws = Draws()
        self._recorder: Recorder | None = None
        self.batches = step.batches
        # The owner's parameters and buffers, of which an optimizer may be made; which of the copy's parameters each is.
        self._own = [(TensorWeakRef(parameter), index) for index, parameter in enumerate(module.parameters())]
        self._own += [(TensorWeakRef(buffer), -1) for buffer in module.buffers()]
        self._values: list[tuple[Tensor, Tensor]] = []  # tensors, and their values before the first step
        self._now: dict[int, Tensor | None] = {}  # by id: what a step has left there; None if nobody knows
        self._set_up(module, fake=precision != "float32")

    def _set_up(self, module: nn.Module, fake: bool) -> None:
        self.fake = Fakes() if fake else None
        self.device = "cpu" if fake else "meta"
        shapes = self._shapes = self._copy(module)
        if self.optimizer is None:
            self.model.eval()
        self.owner: dict[int, str] = {}
        self.layer_parameters: dict[str, int] = {}
        self.modules = list(self.model.named_modules())
        self.parameters = list(self.model.parameters())
        known = {id(child) for _, child in self.modules}
        for name, network in shapes.networks.items():
            if not [*network.parameters(), *network.buffers()]:
                continue
            self.modules += [pair for pair in network.named_modules(prefix=name) if id(pair[1]) not in known]
            if self.target == "cuda":
                self._given[assumptions.OUTSIDE.format(name, self.name)] = None
        for path, child in self.modules:
            for parameter in child._parameters.values():
                if parameter is not None and id(parameter) not in self.owner:
                    layer = self.owner[id(parameter)] = path or self.name
                    self.layer_parameters[layer] = self.layer_parameters.get(layer, 0) + parameter.numel()
        self.everything = [p for _, child in self.modules for p in child._parameters.values() if p is not None]
        self._trained: list[nn.Parameter] = []  # the parameters that get a gradient
        self._uncleared: set[int] = set()  # ids of parameters that the optimizer does not update
        self._lasting: list[nn.Parameter] = []  # those with a gradient when a step begins; the optimizer clears its own
        self.assumptions.update(self._given)
        self._updates: dict[tuple[int, ...], Update] = {}  # by the parameters that get a gradient
        self._left: list[Left] = []  # what the last run left in the modules
        hooks = [one for _, child in self.modules for one in hooks_of(child)]
        numbers = [(name, one) for name, one in shapes.tensors if is_real(one)]
        self._state = State(self.modules, [self.step.forward, self.step.loss, *hooks], numbers)

    def resized(self, sizes: dict[str, int]) -> Self:
        """The same network in a step of other sizes."""
        other = copy.copy(self)
        other.step = replace(self.step, sizes={**self.step.sizes, **sizes})
        other.batches, other.assumptions, other._left = other.step.batches, dict(self._given), []
        return other

    def _become_fake(self) -> None:
        self._state.put_back()
        self._left = []
        self._set_up(self.model, fake=True)
        self._state.look()

    def _copy(self, module: nn.Module) -> OnShapes:
        """The network, and what its step reaches outside of it, as tensors that have shapes and no data."""
        values, self._values = {id(tensor): known for tensor, known in self._values}, []
        storages: dict[int, Any] = {}  # by the address of the original

        def empty(tensor: Tensor) -> Tensor:
            known = values.get(id(tensor))
            # One that a forward may look at: a number, or whole numbers and truth values, which no kernel changes.
            looked_at = not tensor.dim() or not (tensor.is_floating_point() or tensor.is_complex())
            if known is None and looked_at and tensor.numel() <= LARGEST and is_real(tensor):
                known = tensor.detach().clone()
            # Moved to a card, tensors are copied one by one, without gaps and what else is in their storages.
            moved = self.target == "cuda" and not tensor.is_contiguous()
            stride = (torch.empty_like(tensor, device="meta") if moved else tensor).stride()
            with self.fake or nullcontext():
                twin = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=self.device)
                if self.target == "cpu":
                    original = tensor.untyped_storage()
                    whole = storages.get(original._cdata)
                    if whole is None and original.nbytes() > twin.untyped_storage().nbytes():
                        whole = torch.empty(original.nbytes(), dtype=torch.uint8, device=self.device).untyped_storage()
                    if whole is not None:
                        place = whole, tensor.storage_offset(), tensor.shape, tensor.stride()
                        twin = torch.empty(0, dtype=tensor.dtype, device=self.device).set_(*place)
                    storages[original._cdata] = twin.untyped_storage()
            if known is not None:
                self._values.append((twin, known))
            return twin

        def stays(tensor: Tensor) -> Tensor | None:
            """A number mixes with all devices; a tensor in host memory does not with one on a card."""
            kept = is_real(tensor) and (self.target == "cuda" if tensor.dim() else self.fake is None)
            return tensor.clone() if kept else None  # a step may write into it

        def marks(parameter: Tensor) -> None:
            recorder = self._recorder
            assert recorder is not None
            assert parameter.grad is not None
            mark_weight_gradient(recorder.record, recorder.index_of(parameter.grad), self.owner[id(parameter)])

        setattr(marks, MARK, True)
        shapes = OnShapes(empty, stays, marks)
        try:
            self.model = shapes.module(module)
            forward, loss = (shapes(function) for function in (self.step.forward, self.step.loss))
        except Exception as error:
            raise TraceError(f"{self.name} cannot be copied: {first_line(error)}") from error
        self.step = replace(self.step, forward=forward, loss=loss)
        as_on(shapes.optimizers, self.target == "cuda")
        self._numbers = Numbers(self._assume) if shapes.optimizers else nullcontext()  # of steps in the backward pass
        if isinstance(self._numbers, Numbers):
            for tensor, known in self._values:
                self._numbers.known.tell(tensor, known)
        shapes.memo.clear()
        storages.clear()  # a tensor that the step replaces must die
        shapes.originals.clear()  # so that nobody's weights live as long as the trace
        if shapes.compiled:
            self._given[assumptions.COMPILED] = None
        return shapes

    # -- runs ----------------------------------------------------------------------------------------------------

    def run(self, batch: int) -> Run:
        """The forward and backward pass at one batch, in a steady state.

        Raises TraceError where the step fails, LeakError where it leaves more behind every time it runs.
        """
        self._state.look()
        with self.draws.watched(self._state.generators), torch.random.fork_rng(devices=()):
            try:
                return contextvars.copy_context().run(self._run, batch)
            finally:  # what a step keeps is of its batch
                self._state.put_back()
                self._left, self._now = [], {}
                for _, tensor in self._shapes.tensors:  # whose networks nobody else clears
                    tensor.grad = None

    def _run(self, batch: int) -> Run:
        try:
            recorder = self._steady(batch)
        except TraceError as error:
            autocast = isinstance(error.__cause__, devices.AutocastOnMeta)
            looks = error.__cause__ is not None and needs_values(error.__cause__)
            may_pass = self.target == "cpu" or autocast or looks
            if self.fake is not None or isinstance(error, LeakError) or not may_pass:
                raise
            self._become_fake()
            recorder = self._steady(batch)
            if self.target == "cuda" and not autocast:
                self._assume(assumptions.CHOSEN_ON_CPU)
        ran = {event.op for event in recorder.record.events}
        same = not recorder.cpu_differences.found and ran <= SAME_AS_CPU
        if self.fake is None and self.target == "cpu" and not same:
            del recorder
            self._become_fake()
            recorder = self._steady(batch)
            ran = {event.op for event in recorder.record.events}
        self._assume(*assumptions.of_recurrences(self.modules, ran, self.target == "cuda", self.name))
        if self.fake is not None and recorder.overwritten_views.found:  # autograd replays the views of fake tensors
            self._assume(assumptions.OVERWRITTEN_VIEW)
        (as_on_cuda if self.target == "cuda" else as_on_cpu)(recorder)
        recorder.storages.clear()  # what waits for their deaths holds the recorder
        return recorder.record

    def _steady(self, batch: int) -> Recorder:
        changed: dict[str, Any] | None = None
        for step in range(STEPS):
            lasting = len(self._lasting)
            recorder = self._run_once(batch)
            self._left = recorder.left_behind()
            if recorder.holds_what_it_held() and len(self._lasting) == lasting:
                now = {**self._state.changed(), **self._counted(recorder)}
                if changed is None and now:  # once, or in every step?
                    changed = now
                    continue
                changed = changed or {}
                names = [name for name in {**changed, **now} if now.get(name) != changed.get(name)]
                self._assume(*([assumptions.counted(names)] if names else []))
                return recorder
            # Either the module keeps tensors for its next step, which must then start with them; or, in a process's
            # first run, parts of torch were imported in mid-step, and their dead frames hold on to our tensors.
            if step < 2 and any(role != ROLE["other"] for _, _, role, *_ in self._left):
                self._left = []
                gc.collect()
                self._left = recorder.left_behind()
        layers = ", ".join(sorted({layer or self.name for _, _, _, layer, *_ in self._left})[:3])
        raise LeakError(
            f"{self.name} leaves more tensors behind with every step (made in {layers}), {STEPS} times: drop what it "
            f"stores before it stores more, or let it store {STEPS - 2} at most for the trace"
        )

    def _counted(self, recorder: Recorder) -> dict[str, Any]:
        """What the step left, by name, in buffers that it looks at; its next step starts with that."""
        self._now = {id(tensor): recorder.known.of(tensor) for tensor, _ in self._values}
        found: dict[str, Any] = {}
        looked_at = recorder.looked_at()
        for tensor, values in self._values:
            now = self._now[id(tensor)]
            if recorder.index_of(tensor) in looked_at and (now is None or not torch.equal(values, now)):
                named = (pair for path, child in self.modules for pair in child.named_buffers(path, False))
                name = next((name for name, buffer in named if buffer is tensor), "a tensor")
                found[name] = None if now is None else now.tolist()
        return found

    def _run_once(self, batch: int) -> Recorder:
        fake = self.fake is not None
        recorder = Recorder(self.name, self.device, host_counts=self.target == "cpu" or fake, fake=fake)
        record, training = recorder.record, self.optimizer is not None
        self._recorder = recorder
        if self.target == "cuda":
            names = {t.untyped_storage()._cdata: name for name, t in self._shapes.tensors}
            recorder.observers.append(HostTensors(names))
        if self._shapes.computed:
            recorder.observers.append(ComputedBefore())
        with no_garbage_collection(), self.fake or nullcontext(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for buffer, values in self._values:
                now = self._now.get(id(buffer), values)
                if now is not None:
                    recorder.known.tell(buffer, now)
            inputs, named = self.step.make(batch, self.device, recorder.known)
            for parameter in self.everything:
                index = recorder.watch_tensor(parameter, ROLE["parameters"], self.owner[id(parameter)])
                recorder.weight_copies.storages.add(index)
                recorder.layer_of_parameter[id(parameter)] = self.owner[id(parameter)]
            for parameter in self._lasting:
                parameter.grad = torch.empty_like(parameter)
                recorder.watch_tensor(parameter.grad, ROLE["weight gradients"], self.owner[id(parameter)])
            states = self._watch_what_is_kept(recorder)
            recorder.begin()
            while self._left:  # emptied as it is read: nothing here may keep a storage alive
                recorder.watch(*self._left[0])
                del self._left[0]
            recorder.watch_all(named if training else named[: len(named) - self.step.labels], ROLE["input"])
            record.events.append(Event("start", FORWARD, self.name))
            kept: list[Any] = []  # what the model returned last, where it stays alive
            handles = self._follow(recorder, kept)
            try:
                with self._kernels(recorder), quiet(), as_if_real(fake), torch.set_grad_enabled(training):
                    self._forward_backward(recorder, inputs, training)
                if training:
                    self._mark_gradients(recorder)
                for optimizer, indices in states:
                    own = [p for p in updated([optimizer]) if p.grad is not None]
                    if own and not recorder.wrote(own):  # it steps after this, where its state is counted
                        for index in indices:
                            record.storages[index].size = 0
            finally:
                for handle in handles:
                    handle.remove()
                for parameter in self.everything:
                    parameter.grad = None
                self._recorder = None
            return recorder

    def _watch_what_is_kept(self, recorder: Recorder) -> list[tuple[Any, list[int]]]:
        """Note all that exists before the step. Returns the state of each optimizer that the step reaches."""
        held = [(path or self.name, (*child._buffers.values(), *vars(child).values())) for path, child in self.modules]
        held += [(self.owner[id(parameter)], tuple(vars(parameter).values())) for parameter in self.everything]
        for layer, values in held:
            for value in values:
                if isinstance(value, Tensor):
                    recorder.watch_tensor(value, ROLE["other"], layer)
        del held, values, value
        states = []
        for optimizer in self._shapes.optimizers:
            first = len(recorder.record.storages)
            recorder.watch_all(state_of([optimizer], self.owner, self.everything), ROLE["optimizer state"])
            states.append((optimizer, [*range(first, len(recorder.record.storages))]))
        there = self._shapes.still_there(self.modules, self._state.functions)
        recorder.watch_all(((self.name, tensor) for tensor in there), ROLE["other"])
        return states

    @contextmanager
    def _kernels(self, recorder: Recorder) -> Iterator[None]:
        """What runs, and what the step hears of its device, is as on the target."""
        named = list(self._state.on_cpu)
        cpu_is_card = (lambda: self._assume(assumptions.CPU_IS_CARD.format(" and ".join(named)))) if named else None
        kernels = "fake cpu" if self.target == "cpu" and self.fake is not None else self.target
        with (
            overrides.of(kernels) as taken,
            devices.of(self.target, self.fake is None, self._assume),
            devices.Hears(self.target, self.device, recorder, cpu_is_card if self.target == "cuda" else None),
        ):
            yield
        self.assumptions.update(taken)

    def _forward_backward(self, recorder: Recorder, inputs: Any, training: bool) -> None:
        record, model = recorder.record, self.model
        doing = "forward"
        try:
            with recorder, self._numbers:
                if not training:
                    with self._autocast():
                        self.step.forward(model, inputs)
                    record.events.append(Event("end", FORWARD, self.name))
                    recorder.closed = True
                    return
                for part in range(self.step.accumulate):
                    doing, recorder.phase, recorder.modules[0] = "forward", FORWARD, self.name
                    with self._autocast():
                        loss = self.step.loss(model, inputs)
                    if not isinstance(loss, Tensor) or loss.dim() > 0 or not loss.requires_grad:
                        what = "criterion" if self.step.told else "loss"
                        raise TraceError(f"{self.name}: the {what} must return one number that depends on parameters")
                    if self.step.accumulate > 1:
                        loss = loss / self.step.accumulate
                    doing, recorder.phase = "backward", BACKWARD
                    if part == 0 and self.step.zero_grad == "before backward" and self.step.set_to_none:
                        for parameter in self.parameters:
                            parameter.grad = None
                        record.events.append(Event("zero_grad", BACKWARD, OPTIMIZER))
                    loss.backward()
                recorder.closed = True  # what dies from here on is freed by zero_grad, not by this pass
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(self._explain(doing, error)) from error

    def _mark_gradients(self, recorder: Recorder) -> None:
        record = recorder.record
        for parameter in self.everything:
            if parameter.grad is not None:
                mark_weight_gradient(record, recorder.index_of(parameter.grad), self.owner[id(parameter)])
        for index, layer in recorder.accumulation.found:
            mark_weight_gradient(record, index, layer)
        self._trained = [parameter for parameter in self.parameters if parameter.grad is not None]
        record.handed = [recorder.index_of(p.grad) for p in self._trained if p.grad is not None]
        record.handed += [recorder.index_of(parameter) for parameter in self._trained]
        cleared = {*map(id, self.parameters)} - self._uncleared if self.step.clears_at_end else set()
        self._lasting = [p for p in self.everything if p.grad is not None and id(p) not in cleared]

    def _follow(self, recorder: Recorder, kept: list[Any]) -> list[Any]:
        """Keep `recorder.modules` the stack of running modules by path. Returns the hooks' handles, to be removed.

        What runs after the whole network belongs to the loss. Its output is put into `kept`, if the step keeps it.
        """

        def enter(path: str, module: nn.Module, args: Any) -> None:
            recorder.modules.append(path)

        def leave(path: str, module: nn.Module, args: Any, out: Any) -> None:
            error = sys.exception()
            if error is not None:  # the innermost module is left first; to hold the error would hold its tensors
                vars(error).setdefault(FAILED_IN, path)
            recorder.modules.pop()

        def begin(module: nn.Module, args: Any) -> None:
            recorder.modules[0] = self.name

        def end(module: nn.Module, args: Any, out: Any) -> None:
            recorder.modules[0] = LOSS
            kept[:] = [out] * self.step.keep_output

        handles: list[Any] = []
        for path, child in self.modules:
            if path:
                handles.append(child.register_forward_pre_hook(partial(enter, path)))
                # Always, because a checkpoint leaves its modules by an exception once it has what it wants.
                handles.append(child.register_forward_hook(partial(leave, path), always_call=True))
        return [*handles, self.model.register_forward_pre_hook(begin), self.model.register_forward_hook(end)]

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast("cpu", dtype=PRECISIONS[self.precision])

    def _explain(self, doing: str, error: Exception) -> str:
        inside = vars(error).get(FAILED_IN)
        path = inside or self.name
        kind = type(dict(self.modules).get(inside or "", self.model)).__name__
        on = f" on {self.step.told}" if self.step.told else ""
        said, named = cause(error), [name for name, tensor in self._shapes.tensors if is_real(tensor)]
        if named:
            said = said.replace("a tensor made elsewhere", f"a tensor made elsewhere ({', '.join(named)})")
        return f"{path} ({kind}) fails in the {doing} pass{on}: {said}"

    def _assume(self, *texts: str) -> None:
        self.assumptions.update(dict.fromkeys(texts))
