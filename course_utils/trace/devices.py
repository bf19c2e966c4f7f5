"""What a step finds out about its device: that its tensors are on the target, and autocast for the target.

Tensors without data are on "meta", or say that they are on the CPU. A step that looks (`x.is_cuda`,
`x.device.type == "cuda"`, `x.cuda()`) would take another way than on its target, and autocast, which is made for one
device, would do nothing. Both hold for the thread that traces alone.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.overrides import TorchFunctionMode
from torch.utils import _foreach_utils

from course_utils.trace.copying import LIBRARIES
from course_utils.trace.fakes import is_real
from course_utils.trace.recorder import Recorder
from course_utils.trace.refusals import TraceError, cause, needs_values

MADE_BEFORE = (
    'torch.autocast("cuda") that was made before the trace, where there is no card and it is disabled: taken as enabled'
)


class AutocastOnMeta(Exception):
    """The step switches autocast on, which does nothing to meta tensors."""


class _Step(threading.local):
    """What this thread traces for; None where it does not trace."""

    target: str | None = None
    on_meta = False
    hears: "Hears | None" = None
    assume: Callable[[str], None]


_STEP = _Step()
_LOCK = threading.Lock()
_OPEN = {"traces": 0}
_PLAIN: dict[str, Any] = {name: vars(torch.autocast)[name] for name in ("__init__", "__enter__", "__exit__")}
_RESIZE = torch.UntypedStorage.resize_
_AVAILABLE = torch.cuda.is_available
_ENGINE = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
_HOOKS = torch.autograd.graph.saved_tensors_hooks.__init__
_HAS_FOREACH = _foreach_utils._device_has_foreach_support


@contextmanager
def of(target: str, on_meta: bool, assume: Callable[[str], None]) -> Iterator[None]:
    """While active, `torch.autocast` in this thread is that of the target, "cuda" or "cpu", and clipping too.

    A trace has autocast for the CPU alone; `course_utils.trace.overrides` knows the rules of CUDA's. On meta tensors
    (`on_meta`) no autocast works.
    """
    before = _STEP.target, _STEP.on_meta
    with _LOCK:
        _OPEN["traces"] += 1
        if _OPEN["traces"] == 1:
            for owner, name, own in _STAND_INS:
                setattr(owner, name, own)
    _STEP.target, _STEP.on_meta, _STEP.assume = target, on_meta, assume
    try:
        yield
    finally:
        _STEP.target, _STEP.on_meta = before
        with _LOCK:
            _OPEN["traces"] -= 1
            if _OPEN["traces"] == 0:
                for (owner, name, _), plain in zip(_STAND_INS, _BEFORE, strict=True):
                    setattr(owner, name, plain)


def _has_foreach(device: torch.device) -> bool:
    """Whether norms of all gradients are taken at once, as on both targets."""
    return device.type == "meta" or _HAS_FOREACH(device)


def _of_target(plain: Callable[..., Any], on_card: Any, off: Any) -> Callable[..., Any]:
    """What the step's own code would find; what a library asks for is the machine that it runs on."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        if _STEP.target is None or sys._getframe(1).f_code.co_filename.startswith(LIBRARIES):
            return plain(*args, **kwargs)
        return on_card if _STEP.target == "cuda" else off

    return answer


def _resize(storage: Any, size: int) -> Any:
    """It is no operator, so nothing sees it; torch does it to fake tensors that it makes for itself."""
    if _STEP.target is not None and not str(sys._getframe(1).f_globals.get("__name__")).startswith("torch."):
        raise ValueError("it resizes a storage by hand, whose bytes cannot be followed then")
    return _RESIZE(storage, size)


def _is_ours(frame: Any) -> bool:
    """Whether autocast is asked for by this library, or by a checkpoint, which makes anew what it found."""
    return str(frame.f_globals.get("__name__")).startswith(("torch.utils.checkpoint", "course_utils.trace"))


def _init(
    self: Any, device_type: str, dtype: torch.dtype | None = None, enabled: bool = True, cache_enabled: Any = None
) -> None:
    target = _STEP.target
    if target is None or _is_ours(sys._getframe(1)) or device_type not in (target, "meta", "cpu"):
        _PLAIN["__init__"](self, device_type, dtype, enabled, cache_enabled)
    elif device_type == "cpu" != target:
        _PLAIN["__init__"](self, target, dtype, False, cache_enabled)  # does nothing to tensors on a card
    else:
        wanted = torch.get_autocast_dtype(target) if dtype is None else dtype
        _PLAIN["__init__"](self, "cpu", wanted, enabled, cache_enabled)
    self.course_told = target is not None


def _enter(self: Any) -> Any:
    target = _STEP.target
    if target is not None and not _is_ours(sys._getframe(1)):
        if not getattr(self, "course_told", False) and self.device in (target, "cpu"):
            self.course_before = self.device, self._enabled
            disabled = target == "cuda" == self.device and not self._enabled and not _AVAILABLE()
            if disabled:
                _STEP.assume(MADE_BEFORE)
            self._enabled = (self._enabled or disabled) and self.device == target
            self.device = "cpu" if self.device == target else target
        if _STEP.on_meta and self._enabled and self.device == "cpu":
            _as_it_was(self)
            raise AutocastOnMeta
    return _PLAIN["__enter__"](self)


def _exit(self: Any, *error: Any) -> Any:
    out = _PLAIN["__exit__"](self, *error)
    _as_it_was(self)
    return out


def _as_it_was(self: Any) -> None:
    if hasattr(self, "course_before"):
        self.device, self._enabled = self.course_before
        del self.course_before


def _run_backward(*args: Any, **kwargs: Any) -> Any:
    """The backward pass runs hooks and functions of the step's own, and what a checkpoint runs again: they hear too."""
    with _STEP.hears or nullcontext():
        return _ENGINE(*args, **kwargs)


def _hooks(self: Any, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
    """What autograd saves is packed in the midst of an operator, where no mode hears."""

    def pack(tensor: Tensor) -> Any:
        hears = _STEP.hears
        if hears is None:
            return pack_hook(tensor)
        hears.packs = True
        try:
            with hears:
                return pack_hook(tensor)
        finally:
            hears.packs = False

    _HOOKS(self, pack, unpack_hook)


_STAND_INS: tuple[tuple[Any, str, Any], ...] = (
    (torch.autograd.graph.saved_tensors_hooks, "__init__", _hooks),
    (torch.autocast, "__init__", _init),
    (torch.autocast, "__enter__", _enter),
    (torch.autocast, "__exit__", _exit),
    (torch.UntypedStorage, "resize_", _resize),
    (torch.autograd, "_engine_run_backward", _run_backward),
    (torch.cuda, "is_available", _of_target(_AVAILABLE, True, False)),
    (torch.cuda, "device_count", _of_target(torch.cuda.device_count, 1, 0)),
    (torch.cuda, "current_device", _of_target(torch.cuda.current_device, 0, 0)),
    (torch.cuda, "is_bf16_supported", _of_target(torch.cuda.is_bf16_supported, True, False)),
    (torch.accelerator, "is_available", _of_target(torch.accelerator.is_available, True, False)),
    (
        torch.accelerator,
        "current_accelerator",
        _of_target(torch.accelerator.current_accelerator, torch.device("cuda"), None),
    ),
    (_foreach_utils, "_device_has_foreach_support", _has_foreach),
    (clip_grad, "_device_has_foreach_support", _has_foreach),
)
_BEFORE = [getattr(owner, name) for owner, name, _ in _STAND_INS]


# -- which device it is ------------------------------------------------------------------------------------------------


_ASKED: dict[str, Callable[[bool], Any]] = {  # what each attribute says, on a card or not
    "device": lambda on_card: torch.device("cuda", 0) if on_card else torch.device("cpu"),
    "is_cuda": lambda on_card: on_card,
    "is_cpu": lambda on_card: not on_card,
    "is_meta": lambda on_card: False,
}
_ANSWERS: dict[Any, Callable[[bool], Any]] = {
    Tensor.get_device: lambda on_card: 0 if on_card else -1,
    **{getattr(Tensor, name).__get__: answer for name, answer in _ASKED.items()},
}


_TYPES = {
    dtype: torch.empty(0, dtype=dtype).type()
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.bool)
}  # in the words of `Tensor.type`


_NAMES_A_DEVICE = {Tensor.to, Tensor.cuda, Tensor.type}
_MOVES = {Tensor.to, Tensor.cuda, Tensor.cpu}
_HEEDED = frozenset((*_ANSWERS, *_NAMES_A_DEVICE, *_MOVES))  # or a keyword in _PLACES: all else runs as it is
_PLACES = frozenset(("device", "pin_memory"))


class Hears(TorchFunctionMode):
    """While active, whoever asks a traced tensor for its device hears of the target, torch and this library aside.

    Args:
        target: what the device is to be.
        device: where the trace's tensors are.
        places: knows which of them stand for tensors in host memory beside a card.
        cpu_is_card: called where a step names the CPU, if that is to be taken for the card; else None.
    """

    def __init__(self, target: str, device: str, places: Recorder, cpu_is_card: Callable[[], None] | None) -> None:
        super().__init__()
        self.target, self.device, self.places, self.cpu_is_card = target, device, places, cpu_is_card
        self.met: Exception | None = None  # what a step with real tensors would not meet
        self._outer: list[Hears | None] = []  # who heard when it was entered
        self.packs = False  # while a hook takes what autograd saves: what it makes without a device is on the host

    def __enter__(self) -> Any:
        self._outer.append(_STEP.hears)
        _STEP.hears = self
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, kind: Any, error: Any, where: Any) -> None:
        _STEP.hears = self._outer.pop()
        super().__exit__(kind, error, where)  # type: ignore[no-untyped-call]
        if kind is None and self.met is not None:
            raise TraceError(
                f"the step goes on after an error that only a trace meets: {cause(self.met)}"
            ) from self.met

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in _HEEDED and not self.packs and _PLACES.isdisjoint(kwargs):
            return self._call(func, args, kwargs)
        if func in _ANSWERS and not is_real(args[0]):
            asking = str(sys._getframe(1).f_globals.get("__name__"))
            if not asking.startswith(("torch.", "course_utils.")):
                return _ANSWERS[func](self.target == "cuda" and not self.places.is_on_host(args[0]))
        if self.target == "cuda":
            if func in _MOVES and not is_real(args[0]):
                if (to := self._moves_to(func, args[0], [*args[1:], *kwargs.values()])) is not None:
                    told = (one.dtype if isinstance(one, Tensor) else one for one in (*args[1:], *kwargs.values()))
                    dtype = next((one for one in told if isinstance(one, torch.dtype)), None)
                    return self.places.copy(args[0], dtype, to)
            elif self._makes_on_host(args, kwargs):
                out = func(*args, **{name: value for name, value in kwargs.items() if name != "pin_memory"})
                if isinstance(out, Tensor) and (index := self.places.index_of(out)) is not None:
                    self.places.put_on_host([index])
                return out
        if func in _NAMES_A_DEVICE or "device" in kwargs:
            if func is Tensor.type and len(args) == 1 and not kwargs and args[0].dtype in _TYPES:
                return _TYPES[args[0].dtype].replace("torch.", "torch.cuda." if self.target == "cuda" else "torch.")
            if func is Tensor.cuda and self.target == "cuda":
                func, args = Tensor.to, (args[0], torch.device("cuda"))
            args, kwargs = tuple(map(self._here, args)), {key: self._here(value) for key, value in kwargs.items()}
        return self._call(func, args, kwargs)

    def _call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        try:
            return func(*args, **kwargs)
        except Exception as error:
            if needs_values(error):
                self.met = error
            raise

    def _place(self, named: Any) -> str:
        """Where a device is that a step names: "target", "host" beside a card, or "" for what is no such device."""
        told = isinstance(named, torch.device)
        kind = named.type if told else named.partition(":")[0] if type(named) is str else ""
        if kind == self.target or (told and kind == self.device):  # what it was told of a fake tensor
            return "target"
        if kind == "cpu" and self.cpu_is_card is not None:
            self.cpu_is_card()
            return "target"
        return "host" if kind == "cpu" else ""

    def _here(self, value: Any) -> Any:
        """A device that is meant to be the target's is where the trace's tensors are."""
        return torch.device(self.device) if self._place(value) == "target" else value

    def _moves_to(self, func: Any, tensor: Tensor, told: list[Any]) -> str | None:
        """Into which memory a tensor is copied; None if it stays."""
        on_host = self.places.is_on_host(tensor)
        places = [self.places.is_on_host(one) for one in told if isinstance(one, Tensor)]
        named = {*map(self._place, told)}
        if on_host and (func is Tensor.cuda or "target" in named or False in places):
            return "card"
        return "host" if not on_host and (func is Tensor.cpu or "host" in named or True in places) else None

    def _makes_on_host(self, args: Any, kwargs: dict[str, Any]) -> bool:
        if kwargs.get("pin_memory") or self._place(kwargs.get("device")) == "host":
            return True
        return self.packs and not any(isinstance(one, Tensor) for one in (*args, *kwargs.values()))
