"""The values of tensors that depend on no data, so that a forward that looks at them can be followed on shapes.

A mask counted out by `arange`, a buffer of indices, an attention mask of ones: what is computed from such things alone
is computed once more on real tensors, as long as it is small. So `if mask.all():` goes the way it goes in a real step,
while whatever depends on the input or on the weights stays unknown.
"""

import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from course_utils.trace.fakes import is_real
from course_utils.trace.kernels import flat_tensors
from course_utils.trace.operators import FILLED, MADE_FROM_NOTHING

LARGEST = 2**22  # elements of whole numbers and truth values that are carried
LARGEST_FLOAT = 2**20


class KnownValues:
    """Values by storage: a tensor is known if the whole of its storage is."""

    def __init__(self, fake: bool) -> None:
        self._flat: dict[int, tuple[weakref.ref[Any], Tensor]] = {}
        self._fake = fake

    def _real(self) -> AbstractContextManager[Any]:
        return _disable_current_modes() if self._fake else nullcontext()

    def tell(self, tensor: Tensor, values: Tensor | float) -> None:
        """Note the values of all of a tensor's storage, or the one value; what is too large is not carried."""
        storage = tensor.untyped_storage()
        count = storage.nbytes() // tensor.element_size()
        if count > (LARGEST_FLOAT if tensor.is_floating_point() else LARGEST) or not count or tensor.dtype.is_complex:
            return
        with self._real():
            flat = torch.empty(count, dtype=tensor.dtype)
            flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(
                torch.as_tensor(values).detach()
            )
        key = storage._cdata
        self._flat[key] = (weakref.ref(storage, lambda _: self._flat.pop(key, None)), flat)

    def forget(self, tensor: Tensor) -> None:
        """Something unknown was written into a tensor's storage."""
        if self._flat:
            self._flat.pop(tensor.untyped_storage()._cdata, None)

    def of(self, tensor: Tensor) -> Tensor | None:
        """The values of a tensor, None if they are not known."""
        if is_real(tensor):
            return tensor
        entry = self._flat.get(tensor.untyped_storage()._cdata)
        if entry is None or entry[1].dtype != tensor.dtype:
            return getattr(tensor, "constant", None)  # of a number that torch made fake by itself
        with self._real():
            return entry[1].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def without_masks(self, indices: list[Tensor | None], device: str) -> list[Tensor | None]:
        """Indices in which a mask of known values is as many index tensors as it has dimensions, of as many places."""
        found: list[Tensor | None] = []
        for index in indices:
            mask = self.of(index) if index is not None and index.dtype in (torch.bool, torch.uint8) else None
            if index is None or mask is None:
                found.append(index)
                continue
            with self._real():
                places = int(torch.count_nonzero(mask))
            found += [torch.empty(places, dtype=torch.int64, device=device) for _ in range(mask.dim())]
        return found

    def follow(self, func: Any, name: str, args: Any, kwargs: dict[str, Any], out: Any, writes: bool) -> None:
        """Carry the values of an operator that has run on shapes, if they follow from what is known."""
        if not self._flat and name not in MADE_FROM_NOTHING and name not in FILLED:
            return
        if name in FILLED:
            if out.numel() <= LARGEST_FLOAT:
                fill = FILLED[name]
                self.tell(out, args[-1] if fill is None else fill)
            return
        results, values = flat_tensors(out), NotImplemented
        if all(one.numel() <= LARGEST for one in results):
            values = self.values(func, name, args, kwargs)
        if values is NotImplemented:
            for one in results if writes else ():
                self.forget(one)
            return
        for one, value in zip(results, flat_tensors(values), strict=False):
            if one.untyped_storage()._cdata in self._flat:
                continue  # in place: written where it is carried
            if value.shape == one.shape and value.dtype == one.dtype:
                self.tell(one, value)

    def values(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """What an operator gives on known values; NotImplemented if they are not known.

        In-place operators write the values that are carried.
        """
        tensors = 0
        known: list[Any] = []
        for argument in args:
            parts = argument if isinstance(argument, (list, tuple)) else [argument]
            if any(isinstance(part, Tensor) for part in parts):
                tensors += 1
                found = [self.of(part) if isinstance(part, Tensor) else part for part in parts]
                if any(one is None for one in found):
                    return NotImplemented
                argument = found if argument is parts else found[0]
            known.append(argument)
        if (not tensors and name not in MADE_FROM_NOTHING) or torch.Tag.nondeterministic_seeded in func.tags:
            return NotImplemented
        options = {key: value for key, value in kwargs.items() if key not in ("device", "pin_memory", "layout")}
        if any(isinstance(value, Tensor) for value in options.values()):
            return NotImplemented
        try:
            with self._real(), torch.no_grad():
                return func(*known, **options)
        except Exception:  # noqa: BLE001 - then it is not known; the operator itself reports what is wrong with it
            return NotImplemented
