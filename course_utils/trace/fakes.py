"""Fake CPU tensors at about half their price: torch's own mode, without its cache for operators that need no rule.

`FakeTensorMode` looks every operator up in a cache whose key costs more than most meta kernels. What it does in the
end, for an operator without a rule of its own (`torch._subclasses.fake_impls`), is to run the meta kernel and to say
of the results that they are on the CPU; for those known to be so this does it at once.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from course_utils.trace.operators import SAME_AS_CPU, VIEWS, WITH_RULES

_CPU, _META = torch.device("cpu"), torch.device("meta")
_EMPTY = (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default)
_PLAIN = (SAME_AS_CPU | VIEWS) - WITH_RULES


@cache
def _is_plain(func: Any) -> bool:
    return func.namespace == "aten" and func._schema.name.removeprefix("aten::") in _PLAIN


def _on_cpu(value: Any) -> bool:
    """Whether a value is no tensor, or a fake one on the CPU of which no number is known."""
    if isinstance(value, (list, tuple)):
        return all(map(_on_cpu, value))
    if not isinstance(value, Tensor):
        return True
    return type(value) is FakeTensor and value.fake_device == _CPU and value.constant is None


def is_real(tensor: Tensor) -> bool:
    """Whether a tensor has data, in host memory."""
    return tensor.device.type == "cpu" and not isinstance(tensor, FakeTensor)


class Unwrapped:
    """Mixed into a dispatch mode: torch would wrap what sees every operator, for a compiler that nobody calls here."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Fakes(Unwrapped, FakeTensorMode):
    """Tensors without data that say they are on the CPU."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Fakes":
        """A step may copy its tensors, each of which holds this mode."""
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _EMPTY and kwargs.get("device") == _CPU and not kwargs.get("pin_memory"):
            return FakeTensor(self, func(*args, **{**kwargs, "device": _META}), _CPU)
        if _is_plain(func) and _on_cpu(args) and not any(isinstance(value, Tensor) for value in kwargs.values()):
            with in_kernel_invocation_manager(self):
                out = func(*args, **kwargs)
            return self._as_fakes(out)
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _as_fakes(self, out: Any) -> Any:
        if isinstance(out, (list, tuple)):
            return type(out)(map(self._as_fakes, out))
        return FakeTensor(self, out, _CPU) if type(out) is Tensor else out
