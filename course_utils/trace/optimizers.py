"""An optimizer's step on shapes: its state, wherever it is kept, and what it makes while it updates.

The step does not depend on the batch, so it is run on parameters of its own, once the state exists. An optimizer that
was made of the network's own parameters, and not of those handed over, is copied onto these first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from course_utils.memory import ROLE
from course_utils.trace import kernels
from course_utils.trace.affine import Update
from course_utils.trace.assumptions import ONE_FOR_ALL
from course_utils.trace.copying import OnShapes, held, reached
from course_utils.trace.fakes import Fakes, Unwrapped, is_real
from course_utils.trace.known import KnownValues
from course_utils.trace.observers import check_devices
from course_utils.trace.record import ALIVE, UPDATE
from course_utils.trace.recorder import OPTIMIZER, Left, Recorder
from course_utils.trace.refusals import LeakError, TraceError, needs_values, optimizer_cause
from course_utils.trace.schemas import look_up
from course_utils.trace.state import State

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer | Sequence[Optimizer]]

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}
STEPS = 4  # tried until the optimizer holds after a step what it held before


def as_on(optimizers: Iterable[Optimizer], on_cuda: bool) -> None:
    """Let torch choose as it does where it sees the target: all tensors at once (`foreach`) on a card."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if "foreach" in group and group["foreach"] is None and not group.get("fused"):
                group["foreach"] = on_cuda


class UpdateTracer:
    """Traces the update of one network's parameters."""

    parameters: list[nn.Parameter]  # that stand for the network's, with their gradients
    layers: list[str]  # whose each is
    optimizers: list[Optimizer]  # that update them
    network: list[Tensor]  # all that are the network's, and no optimizer's

    def __init__(
        self,
        chosen: str | MakeOptimizer,
        own: Iterable[tuple[Tensor, nn.Parameter | None]],
        on_cuda: bool,
        assume: Callable[[str], None],
    ) -> None:
        self.chosen = chosen  # a name of OPTIMIZERS, or a function of a list of parameters
        # The network's parameters and buffers as its owner knows them -> the copy's parameters, None for buffers.
        self.own = list(own)
        self.on_cuda, self.assume = on_cuda, assume
        self.fakes: Fakes | None = None  # on a device that fused kernels exist for
        self.device = "meta"
        self.numbers: AbstractContextManager[Any] = nullcontext()

    def update(self, trained: list[nn.Parameter], layers: list[str]) -> Update:
        """One step on parameters of these shapes, each of a layer.

        Raises TraceError where the optimizer fails, or what it updates is not the network's.
        """
        while True:
            try:
                return self._update(trained, layers)
            except TraceError:
                raise
            except Exception as error:
                if "fused=True" in str(error) and self.fakes is None:
                    self.fakes, self.device = Fakes(), "cpu"
                elif needs_values(error) and isinstance(self.numbers, nullcontext):
                    self.numbers = Numbers(self.assume)
                else:
                    raise TraceError(f"the optimizer fails: {optimizer_cause(error)}") from error

    def _update(self, trained: list[nn.Parameter], layers: list[str]) -> Update:
        with self.fakes or nullcontext():
            self.parameters, self.layers = [nn.Parameter(self._empty(parameter)) for parameter in trained], layers
            self.optimizers, self.network = self._made_of(self.parameters, trained)
            functions: list[Any] = [self.chosen]
            for one in self.optimizers:
                functions += [one.step, *one._optimizer_step_pre_hooks.values()]
                functions += one._optimizer_step_post_hooks.values()
            beside = State((), functions)
            beside.look()
            try:
                return self._steady()
            finally:
                beside.put_back()

    def _empty(self, tensor: Tensor) -> Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self.device)

    def _steady(self) -> Update:
        """The first step after which the optimizers hold as much as before."""
        fake = self.fakes is not None
        for parameter in self.parameters:
            parameter.grad = torch.empty_like(parameter)
        fused = _AsOnTarget(self.on_cuda, fake)
        with fused, self.numbers:
            for optimizer in self.optimizers:
                optimizer.step()  # makes the state, which the first step of a real run does too
        left: list[Left] = []  # what the step before left, wherever it is kept
        for _ in range(STEPS):
            recorder = Recorder(OPTIMIZER, self.device, fake or not self.on_cuda, fake)
            handed = self._watch(recorder)
            while left:
                storage, shape, _, layer, is_map, on_host = left.pop()
                recorder.watch(storage, shape, ROLE["optimizer state"], layer, is_map, on_host)
                del storage
            storages = recorder.record.storages
            before = len(storages)
            recorder.phase = UPDATE
            with fused, recorder, self.numbers:
                for optimizer in self.optimizers:
                    optimizer.step()
                recorder.closed = True
            left = recorder.left_behind()
            if any(recorder.alive[one[0]._cdata] >= before for one in left):  # made in the step, or found in it
                left = self._tell(left, recorder)
            recorder.storages.clear()  # what waits for their deaths holds the recorder
            state = [i for i, storage in enumerate(storages) if storage.role == ROLE["optimizer state"]]
            after = [storages[i].size for i in state if storages[i].death == ALIVE]
            if sorted(after) == sorted(storages[i].size for i in state if i < before):
                held_by_them = {*map(id, updated(reached(self.optimizers, Optimizer)))}
                uncleared = [i for i, one in enumerate(self.parameters) if id(one) not in held_by_them]
                deaths = {place: storages[index].death for place, index in enumerate(handed)}
                freed = {place: death for place, death in deaths.items() if death != ALIVE}
                return Update(recorder.record, state, before, uncleared, freed)
        raise LeakError("the optimizer holds more after every step, so its memory has no end")

    def _made_of(self, made: list[nn.Parameter], trained: list[nn.Parameter]) -> tuple[list[Optimizer], list[Tensor]]:
        """The optimizers on what was made; and the tensors that are the network's own, no state of theirs."""
        network: list[Tensor] = list(made)
        if not made:  # whatever updates the parameters has also cleared their gradients
            return [], network
        if isinstance(self.chosen, str):
            kind, options = OPTIMIZERS[self.chosen]
            return [kind(made, **options, foreach=self.on_cuda)], network
        found = self.chosen(made)
        optimizers: list[Any] = list(found) if isinstance(found, (list, tuple)) else [found]
        for optimizer in optimizers:
            if not isinstance(optimizer, Optimizer):
                raise TraceError(
                    f"optimizer must return a torch.optim.Optimizer, or a list of them, got {type(optimizer).__name__}"
                )
            if not (kind := type(optimizer)).__module__.startswith("torch.optim"):
                self.assume(f"{kind.__name__} as in its second step, without what only later ones make")
                if len(trained) < sum(copied is not None for _, copied in self.own):
                    self.assume(f"{kind.__name__} is made of the parameters that get a gradient, and of no others")
        shapes = self._shapes(made, trained)
        network += [shapes.memo[id(t)] for t in shapes.originals]
        if any(shapes.memo.get(id(t), t) is not t or (is_real(t) and t.dim()) for t in reached(optimizers, Tensor)):
            optimizers = [shapes(optimizer) for optimizer in optimizers]
        known = {tensor.untyped_storage()._cdata for tensor in network}
        for parameter in updated(optimizers):
            if parameter.untyped_storage()._cdata not in known:
                raise TraceError(
                    f"the optimizer updates a parameter of shape {tuple(parameter.shape)} that the network does not "
                    "have: make what holds it a part of the network"
                )
        as_on(reached(optimizers, Optimizer), self.on_cuda)
        return optimizers, network

    def _shapes(self, made: list[nn.Parameter], trained: list[nn.Parameter]) -> OnShapes:
        """What copies an optimizer of the network's own parameters onto those that were made."""

        def empty(tensor: Tensor) -> Tensor:
            if not is_real(tensor):
                return tensor
            twin = self._empty(tensor)
            if isinstance(self.numbers, Numbers) and not tensor.dim():  # such as a network's count of batches
                self.numbers.known.tell(twin, tensor)
            return twin

        shapes = OnShapes(empty, lambda tensor: tensor.clone() if _is_number(tensor) else None)
        place = {id(parameter): one for parameter, one in zip(trained, made, strict=True)}
        for one in made:
            shapes.tell(one, one)
        for tensor, copied in self.own:
            twin = place.get(id(copied))
            if twin is None:  # no `empty_like`: with fakes it would mix a meta tensor with theirs
                twin = nn.Parameter(torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device), False)
            shapes.tell(tensor, twin)
        return shapes

    def _state(self) -> Iterator[tuple[str, Tensor]]:
        return state_of(self.optimizers, dict(zip(map(id, self.parameters), self.layers, strict=True)), self.network)

    def _watch(self, recorder: Recorder) -> list[int]:
        """Note all that exists before a step. Returns the storages of gradients, then those of parameters."""
        weights, gradients = [], []
        for parameter, layer in zip(self.parameters, self.layers, strict=True):
            weights.append(recorder.watch_tensor(parameter, ROLE["parameters"], layer))
            parameter.grad = torch.empty_like(parameter) if parameter.grad is None else parameter.grad
            gradients.append(recorder.watch_tensor(parameter.grad, ROLE["weight gradients"], layer))
        recorder.watch_all(((OPTIMIZER, tensor) for tensor in self.network), ROLE["other"])
        recorder.begin()
        state = [*self._state()]
        if any(recorder.index_of(tensor) in gradients for _, tensor in state):
            raise TraceError("the optimizer keeps gradients for its next step, which nothing can follow: keep copies")
        recorder.watch_all(state, ROLE["optimizer state"])
        return [*gradients, *weights]

    def _tell(self, left: list[Left], recorder: Recorder) -> list[Left]:
        """Let what a step left be state, but for gradients and weights. Returns the rest."""
        layers = {tensor.untyped_storage()._cdata: layer for layer, tensor in self._state()}
        gradients = [one.grad for one in self.parameters if one.grad is not None]
        own = {tensor.untyped_storage()._cdata for tensor in (*self.network, *gradients)}
        left = [one for one in left if one[0]._cdata not in own]
        for address in (one[0]._cdata for one in left):
            known = recorder.record.storages[recorder.alive[address]]
            known.role, known.layer = ROLE["optimizer state"], layers.get(address, known.layer)
        return left


def updated(optimizers: Iterable[Optimizer]) -> list[Tensor]:
    """The parameters of optimizers."""
    return [parameter for one in optimizers for group in one.param_groups for parameter in group["params"]]


def _is_number(tensor: Tensor) -> bool:
    """Whether a tensor is one number with a value, which is in host memory on a card too."""
    return not tensor.dim() and is_real(tensor)


def state_of(
    optimizers: list[Optimizer], layer_of: dict[int, str], network: Iterable[Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that optimizers hold and the network does not, and the layer whose parameter it is kept for."""
    of_network = {tensor.untyped_storage()._cdata for tensor in network}  # now: `p.data = ...` gives p another one
    found, told = list(reached(optimizers, (Optimizer, Tensor))), set()
    for optimizer in found:
        if not isinstance(optimizer, Optimizer):
            continue
        for parameter, state in optimizer.state.items():
            layer = layer_of.get(id(parameter), OPTIMIZER)
            tensors = [one for one in held(state) if isinstance(one, Tensor)]
            for tensor in tensors if tensors else reached(state, Tensor):
                told.add(id(tensor))
                yield layer, tensor
    for tensor in found:
        if isinstance(tensor, Optimizer) or tensor.untyped_storage()._cdata in of_network:
            continue
        if id(tensor) not in told:
            yield OPTIMIZER, tensor
        if tensor.is_leaf and tensor.grad is not None:  # of a weight that the optimizer keeps in another precision
            yield OPTIMIZER, tensor.grad


class _AsOnTarget(Unwrapped, TorchDispatchMode):
    """Fused kernels write in place and make nothing; what is made out of nothing is with the weights, or is refused.

    Runs shortcuts where there are any, so that an optimizer makes its state quickly.
    """

    def __init__(self, on_cuda: bool, fake: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.on_cuda, self.fake = on_cuda, fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name.startswith("aten::_fused_"):
            return None
        kwargs, operator = kwargs or {}, look_up(func)
        out = NotImplemented if operator.shortcut is None else operator.shortcut(args, kwargs)
        if out is not NotImplemented:
            return out
        tensors = kernels.flat_tensors(args)
        if not self.fake and self.on_cuda:
            check_devices(operator.name, tensors, {})
        elif not self.fake and operator.takes_device and operator.name != "scalar_tensor" and args and not tensors:
            device = kwargs.get("device")
            if (device is None or device.type == "cpu") and args[0] != []:  # a number stays on the host
                kwargs = {**kwargs, "device": torch.device("meta")}
        return func(*args, **kwargs)


class Numbers(Unwrapped, TorchDispatchMode):
    """Carries numbers that an optimizer computes for itself, such as its count of steps, and looks at.

    A number that depends on gradients or weights, such as a norm, is taken to be 1.
    """

    def __init__(self, assume: Callable[[str], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known, self.assume = KnownValues(fake=True), assume  # real numbers are computed unseen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        if name == "_local_scalar_dense":
            value = self.known.values(func, name, args, kwargs)
            if value is not NotImplemented:
                return value
            if args[0].is_floating_point():
                self.assume(ONE_FOR_ALL)
                return 1.0
        out = func(*args, **kwargs)
        if isinstance(out, Tensor) and out.numel() == 1 and not _is_number(out):
            self.known.follow(func, name, args, kwargs, out, func._schema.is_mutable)
        elif func._schema.is_mutable:
            for tensor in kernels.flat_tensors(args):
                self.known.forget(tensor)
        return out
