"""While a step is traced: operators on shapes run what the target would run.

Torch chooses kernels by device, and tensors without data are on none. So for the time of a trace some choices are made
here, at torch's dispatcher: whichever name an operator was called by, and only in the thread that traces. What differs
is listed, with its sources, in `course_utils.trace.kernels`.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from course_utils.trace.operators import AUTOCAST

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)


class _Tracing(threading.local):
    """What this thread traces for: None where it does not trace."""

    target: str | None = None
    assumptions: dict[str, None] | None = None


_TRACING = _Tracing()
_LOCK = threading.Lock()
_OPEN: dict[str, Any] = {"traces": 0, "library": None}  # under way; and what they share


@contextmanager
def registered() -> Iterator[None]:
    """Keep what is put into torch's dispatcher there, for traces one after another: it takes as long as a small one."""
    with _LOCK:
        _OPEN["traces"] += 1
        if _OPEN["traces"] == 1:
            _OPEN["library"] = _register()
    try:
        yield
    finally:
        with _LOCK:
            _OPEN["traces"] -= 1
            if _OPEN["traces"] == 0:
                _OPEN["library"]._destroy()


@contextmanager
def of(target: str) -> Iterator[dict[str, None]]:
    """While active, this thread's operators on shapes run what the target would.

    The target is "cuda", "cpu" or "fake cpu", for fake CPU tensors, of which torch itself chooses most kernels well.
    Yields the assumptions made, in order.
    """
    before = _TRACING.target, _TRACING.assumptions
    assumptions: dict[str, None] = {}
    with registered():
        _TRACING.target, _TRACING.assumptions = target, assumptions
        try:
            yield assumptions
        finally:
            _TRACING.target, _TRACING.assumptions = before


def target() -> str | None:
    """What this thread traces for."""
    return _TRACING.target


def _register() -> Any:
    library: Any = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some stand in for another rule
        for name, ours in CHOSEN.items():
            for key, on_cpu in (("AutogradCPU", "fake cpu"), ("AutogradMeta", "cpu")):
                chosen = {target: kernel for target, kernel in ours.items() if target in ("cuda", on_cpu)}
                library.impl(name, _in_traces(chosen, _own_kernel(name)), key)
        for name, kernel in META_KERNELS.items():
            library.m.impl(name, "Meta", kernel, False)  # `library.impl` refuses: by itself torch takes these apart
        for kind, names in AUTOCAST.items():
            for name in names:
                if (operator := overload(name)) is not None:
                    has = partial(torch._C._dispatch_has_kernel_for_dispatch_key, f"aten::{name}")
                    made_of_others = _own_kernel(name) if has("CompositeImplicitAutograd") else _as_it_comes(operator)
                    plain = (_half if kind == "half" else _float32)(operator) if has("AutocastCPU") else made_of_others
                    library.impl(name, _in_traces({"cuda": AUTOCAST_RULES[kind](operator)}, plain), "AutocastCPU")
    return library


def overload(name: str) -> Any:
    """The operator of a name such as "add.Tensor", "mm" for "mm.default"; None where this torch has none."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet, None), overload or "default", None)


def _own_kernel(name: str) -> Callable[..., Any]:
    """Torch's own, whatever stands in for it: not `decompose`, which takes one of Python's where there is one."""
    return partial(overload(name)._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd)


def _in_traces(ours: dict[str, Callable[..., Any]], other: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return ours.get(_TRACING.target or "", other)(*args, **kwargs)

    return run


def assume(what: str) -> None:
    """Note an assumption on the trace that this thread makes."""
    if _TRACING.assumptions is not None:
        _TRACING.assumptions[what] = None


# -- Attention ---------------------------------------------------------------------------------------------------------


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    kernel = _cuda_kernel(query, key, value, attn_mask, enable_gqa)
    if kernel == "unfused":
        options = {"scale": scale, "enable_gqa": enable_gqa}
        return aten._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, **options)[0]
    if kernel == "flash":
        width = query.shape[-1]
        scale = width**-0.5 if scale is None else scale
        query, key, value = (pad(t, (0, -width % 8)) if width % 8 else t for t in (query, key, value))
        out = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        return out[..., :width] if width % 8 else out
    bias = _as_bias(attn_mask, query)
    if bias is not None:
        columns = bias.shape[-1]
        if columns % 16:
            bias = pad(bias, (0, -columns % 16))[..., :columns]
        bias = bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    keeps = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    efficient = aten._scaled_dot_product_efficient_attention
    return efficient(query, key, value, bias, keeps, dropout_p, is_causal, scale=scale)[0]


def _attention_of_cpu(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """What torch chooses for fake CPU tensors of the same shapes; on meta tensors by itself it never fuses."""
    described = tuple(
        None if t is None else (tuple(t.shape), t.stride(), t.dtype, t.requires_grad)
        for t in (query, key, value, attn_mask)
    )
    allowed = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled(), torch.is_grad_enabled()
    options = (dropout_p, is_causal, scale, enable_gqa)
    if not _cpu_fuses(described, allowed, options):
        return overload("scaled_dot_product_attention").decompose(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    bias = _as_bias(attn_mask, query)
    fused = aten._scaled_dot_product_flash_attention_for_cpu
    return fused(query, key, value, dropout_p, is_causal, attn_mask=bias, scale=scale)[0]


class _Operators(TorchDispatchMode):
    """The names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: dict[str, None] = {}  # in their order

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func.overloadpacket.__name__] = None
        return func(*args, **(kwargs or {}))


@lru_cache(maxsize=256)
def _cpu_fuses(described: tuple[Any, ...], allowed: tuple[bool, ...], options: tuple[Any, ...]) -> bool:
    with _disable_current_modes(), FakeTensorMode(), _Operators() as ran:
        tensors: Any = (
            None if of is None else torch.empty_strided(of[0], of[1], dtype=of[2], requires_grad=of[3])
            for of in described
        )
        dropout, causal, scale, grouped = options
        query, key, value, mask = tensors
        scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale=scale, enable_gqa=grouped)
    return "_scaled_dot_product_flash_attention_for_cpu" in ran.names


def _cuda_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, grouped: bool) -> str:
    """The kernel CUDA takes on cards from Ampere on, among those that `torch.nn.attention.sdpa_kernel` allows."""
    width, half = query.shape[-1], query.dtype in HALF
    four = all(t.dim() == 4 for t in (query, key, value))
    fused = four and query.dtype == key.dtype == value.dtype and key.shape[2] > 0
    same_heads = fused and query.shape[1] == key.shape[1] == value.shape[1]
    same_width = width == key.shape[-1] == value.shape[-1]
    flash, efficient = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()
    if flash and fused and half and mask is None and same_width and width <= 256 and (same_heads or grouped):
        assume("attention: the flash kernel, as on cards from Ampere on (older ones: the memory-efficient kernel)")
        return "flash"
    aligned = (width * query.element_size()) % 16 == 0 and (value.shape[-1] * value.element_size()) % 16 == 0
    if efficient and fused and same_heads and (half or query.dtype == torch.float32) and aligned:
        assume("attention: the memory-efficient kernel")
        return "memory-efficient"
    assume("attention: not fused, as its shapes or its mask suit no fused kernel of CUDA")
    return "unfused"


def _as_bias(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """What the fused kernels take: 0 or minus infinity for every value of a bool mask."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(-torch.inf, dtype=query.dtype, device=query.device))


# -- Kernels that CUDA has and shapes do not ---------------------------------------------------------------------------


def _softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """Half precision in, float32 out, in one kernel."""
    if x.dtype == torch.float16 and dtype == torch.float32:
        with torch.autocast("cpu", enabled=False):
            return aten._softmax(x, dim, True)
    return aten.softmax.int.decompose(x, dim, dtype)


def _rms_norm(x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    dtype = torch.float32 if x.dtype in HALF else x.dtype
    statistics = (*x.shape[: x.dim() - len(shape)], *(1,) * len(shape))
    return torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.empty(statistics, dtype=dtype, device=x.device)


def _rms_norm_backward(
    gradient: Tensor, x: Tensor, shape: list[int], rstd: Tensor, weight: Tensor | None, wanted: list[bool]
) -> tuple[Tensor | None, Tensor | None]:
    return (
        torch.empty(x.shape, dtype=x.dtype, device=x.device) if wanted[0] else None,
        torch.empty_like(weight) if wanted[1] and weight is not None else None,
    )


def _one_hot_on_cuda(x: Tensor, classes: int = -1) -> Tensor:
    """Zeros with ones written there, as on real tensors: on shapes torch compares with all classes instead.

    Source: aten/native/Onehot.cpp.
    """
    shape = (*x.shape, int(x.max().item()) + 1 if classes == -1 else classes)
    return torch.zeros(shape, dtype=x.dtype, device=x.device).scatter_(-1, x.unsqueeze(-1), 1)


def _one_hot_on_cpu(x: Tensor, classes: int = -1) -> Tensor:
    """The same, after a look at the smallest and the largest class, which every version of torch takes otherwise."""
    for name in _looks_of_one_hot():
        getattr(x, name)()
    return _one_hot_on_cuda(x, classes)


@lru_cache(maxsize=1)
def _looks_of_one_hot() -> tuple[str, ...]:
    with _disable_current_modes(), _Operators() as ran:
        _own_kernel("one_hot")(torch.zeros(1, dtype=torch.int64), 1)
    return tuple(name for name in ran.names if name in ("min", "max", "aminmax"))


# By name and target, where it is not what torch chooses.
CHOSEN: dict[str, dict[str, Callable[..., Any]]] = {
    "scaled_dot_product_attention": {"cuda": _attention, "cpu": _attention_of_cpu},
    "softmax.int": {"cuda": _softmax},
    "one_hot": {"cuda": _one_hot_on_cuda, "cpu": _one_hot_on_cpu, "fake cpu": _one_hot_on_cpu},
}
META_KERNELS: dict[str, Callable[..., Any]] = {
    "mish_backward": lambda gradient, x: torch.empty_like(x),
    "_fused_rms_norm": _rms_norm,
    "_fused_rms_norm_backward": _rms_norm_backward,
}


# -- Autocast ----------------------------------------------------------------------------------------------------------


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dtype != torch.float64 else value
    return [_cast(v, dtype) for v in value] if isinstance(value, (list, tuple)) else value


def _without_autocast(operator: Any, dtype: Callable[..., torch.dtype | None]) -> Callable[..., Any]:
    """The operator outside of autocast, its arguments in the dtype that is found from them; as they come for None."""

    def run(*args: Any, **kwargs: Any) -> Any:
        wanted = dtype(*args)
        with torch.autocast("cpu", enabled=False):
            return operator(*(a if wanted is None else _cast(a, wanted) for a in args), **kwargs)

    return run


def _widest_of(*args: Any) -> torch.dtype:
    floats = [a.dtype for a in args if isinstance(a, Tensor) and a.is_floating_point()]
    return torch.float32 if torch.float32 in floats or not floats else floats[0]


_as_it_comes = partial(_without_autocast, dtype=lambda *args: None)
_float32 = partial(_without_autocast, dtype=lambda *args: torch.float32)
_half = partial(_without_autocast, dtype=lambda *args: torch.get_autocast_dtype("cpu"))
_widest = partial(_without_autocast, dtype=_widest_of)


def _float32_in_order(operator: Any) -> Callable[..., Any]:
    """In float32, and of channels-last input a copy, which the CPU does without."""
    in_float32 = _float32(operator)
    return lambda x, *args, **kwargs: in_float32(x.contiguous(), *args, **kwargs)


def _float32_result(operator: Any) -> Callable[..., Any]:
    place = next((i for i, a in enumerate(operator._schema.arguments) if a.name == "dtype"), None)
    as_it_comes = _as_it_comes(operator)

    def run(*args: Any, **kwargs: Any) -> Any:
        if place is not None and len(args) > place:  # it was given by its place
            args, kwargs["dtype"] = args[:place], args[place]
        if args[0].dtype in HALF and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.float32
        return as_it_comes(*args, **kwargs)

    return run


AUTOCAST_RULES: dict[str, Callable[[Any], Callable[..., Any]]] = {  # by the kinds of operators.toml
    "float32": _float32,
    "float32, in plain order": _float32_in_order,
    "float32 result": _float32_result,
    "half": _half,
    "widest": _widest,
}
