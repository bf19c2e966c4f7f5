"""The recorder: while it is active it writes down every operator that makes memory or writes into it.

Views leave no trace: a tensor is written as the part of a storage that it shows. A storage is dead when nothing holds
it any more, as torch itself counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from lessons.shared.replay.form import (
    DTYPES,
    MOST_CONSTANTS,
    NAMED,
    Constant,
    Entry,
    Freed,
    Mark,
    Operator,
    Read,
    Received,
    Record,
    Ref,
    Refused,
    Sent,
    operator,
)
from lessons.shared.replay.taken import taken

OBJECTS = tuple({type(one) for one in NAMED.values()})


class _Prints(TorchFunctionMode):
    """While active, what torch computes to print a tensor is no part of what runs."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with _disable_current_modes() if func is Tensor.__repr__ else contextlib.nullcontext():
            return func(*args, **(kwargs or {}))


class Recorder(TorchDispatchMode):
    """Writes a record of what runs while it is active.

    Raises Refused, in the midst of the code that is recorded, where it does what cannot be replayed.

    Attributes:
        states: the generator's state behind each number of a draw.
        hidden: the most bytes that the process held behind an operator, beside the tensors that are written down.
    """

    again = 1

    def __init__(self, inputs: dict[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._prints, self._entered = _Prints(), 0
        self.states: dict[int, Tensor] = {}
        self.hidden = self._alive = 0
        self._entries: list[Entry] = []
        self._numbers: dict[int, int] = {}  # of the storages that are alive, by address
        self._held: list[Any] = []  # weak references: each tells when its storage dies
        self._dead: list[int] = []
        self._count = self._constants = 0
        self._inputs = {name: self._ref(tensor, born=True) for name, tensor in inputs.items()}
        self._began = taken() - self._alive

    def __enter__(self) -> Any:
        if not self._entered:
            self._prints.__enter__()  # type: ignore[no-untyped-call]
        self._entered += 1
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._entered -= 1
        if not self._entered:
            self._prints.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]

    @property
    def record(self) -> Record:
        """What was written so far."""
        return Record(self._inputs, tuple(self._entries))

    def mark(self, name: str, tensor: Tensor | None = None) -> None:
        """Note that a tensor is handed out here under this name, or that a phase ends."""
        self._bury()
        self._entries.append(Mark(name, None if tensor is None else self._ref(tensor)))

    def sent(self, to: int, tensor: Tensor) -> None:
        """Note that a tensor is put on its way to another card."""
        self._bury()
        self._entries.append(Sent(to, self._ref(tensor)))

    def received(self, source: int, tensor: Tensor | None) -> None:
        """Note that the next tensor from another card is this one, or that none came."""
        self._bury()
        self._entries.append(Received(source, None if tensor is None else self._ref(tensor, born=True)))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._bury()
        named = kwargs or {}
        if func.namespace == "profiler":  # optimizers note by it where they are
            return func(*args, **named)
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            with self:  # in `torch.inference_mode` even these come as they are; elsewhere as what they are made of
                return func.decompose(*args, **named)
        draw = None
        if torch.Tag.nondeterministic_seeded in func.tags:
            # In every process the same state has the same number, as every process has the same generator.
            own = [one for one in tree_leaves((args, named)) if isinstance(one, torch.Generator)]
            state = own[0].get_state() if own else torch.get_rng_state()
            draw = int.from_bytes(hashlib.sha256(state.numpy().tobytes()).digest()[:4])
            self.states[draw] = state
        out = func(*args, **named)
        made = [leaf for leaf in tree_leaves(out) if leaf is not None]
        tensors = [leaf for leaf in made if isinstance(leaf, Tensor)]
        if made and not tensors:
            self._entries.append(Read(func.overloadpacket.__name__))
            return out
        new = any(self._address(one) not in self._numbers for one in tensors)
        if func.is_view or torch.Tag.inplace_view in func.tags or (not new and not func._schema.is_mutable):
            return out  # a view; what it shows is written down where it is used
        operator(func.name())
        given = tuple(self._argument(func, one) for one in args)
        by_name = {key: self._argument(func, one) for key, one in named.items()}
        refs = tuple(self._ref(one, born=True) if isinstance(one, Tensor) else None for one in _flat(out))
        self._entries.append(Operator(func.name(), given, by_name, refs if tensors else (), draw))
        self.hidden = max(self.hidden, taken() - self._began - self._alive)
        return out

    def _argument(self, func: Any, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._ref(value)
        if isinstance(value, list | tuple):
            return [self._argument(func, one) for one in value]
        if value is None or isinstance(value, (bool, int, float, str, *OBJECTS)):
            return value
        if isinstance(value, torch.Generator):
            return None  # its state has a number, as that of torch's own has
        kind = type(value).__name__
        raise Refused(f"`{func.overloadpacket.__name__}` is given a {kind}, which cannot be written down")

    def _address(self, tensor: Tensor) -> int:
        if str(tensor.dtype) not in DTYPES or tensor.layout is not torch.strided or tensor.device.type != "cpu":
            what = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
            raise Refused(f"a tensor of another kind ({what}): use dense ones of plain numbers, on the CPU")
        return int(tensor.untyped_storage()._cdata)

    def _ref(self, tensor: Tensor, born: bool = False) -> Ref:
        address = self._address(tensor)
        new = address not in self._numbers
        if new:
            self._count += 1
            self._numbers[address] = self._count
            number, size = self._count, tensor.untyped_storage().nbytes()
            self._alive += size
            self._held.append(weakref.ref(tensor.untyped_storage(), lambda _: self._dies(address, number, size)))
        place = tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
        ref = Ref(self._numbers[address], str(tensor.dtype), *place)
        if new and not born:
            with _disable_current_modes():
                self._bring(tensor, ref)
        return ref

    def _bring(self, tensor: Tensor, ref: Ref) -> None:
        """Write down the values of a tensor that no operator made."""
        whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
        all_of_it = Ref(ref.storage, ref.dtype, (whole.numel(),), (1,), 0)
        if whole.numel() > 1 and (other := self._alike(tensor.untyped_storage(), ref.dtype)) is not None:
            self._entries.append(Operator("aten::clone", (other,), {}, (all_of_it,)))
            return
        self._constants += whole.numel()
        if self._constants > MOST_CONSTANTS:
            raise Refused(
                f"a tensor of {tuple(tensor.shape)} was made by no operator of torch's in this step, but by NumPy, a "
                "file or before: compute it in the step, of what is given"
            )
        self._entries.append(Constant(all_of_it, tuple(whole.tolist())))

    def _alike(self, storage: Any, dtype: str) -> Ref | None:
        """An input's storage with the same bytes: `copy.deepcopy` and `torch.load` copy past the operators."""
        width = DTYPES[dtype].itemsize
        mine = torch.empty(0, dtype=torch.uint8).set_(storage)
        for held in self._held[: len(self._inputs)]:
            other = held()
            if other is None or other._cdata == storage._cdata or other.nbytes() != storage.nbytes():
                continue
            if mine.any() and torch.equal(torch.empty(0, dtype=torch.uint8).set_(other), mine):
                return Ref(self._numbers[int(other._cdata)], dtype, (other.nbytes() // width,), (1,), 0)
        return None

    def _dies(self, address: int, number: int, size: int) -> None:
        self._dead.append(number)
        self._alive -= size
        if self._numbers.get(address) == number:
            del self._numbers[address]

    def _bury(self) -> None:
        if self._dead:
            self._entries.append(Freed(tuple(sorted(self._dead))))
            self._dead.clear()


def _is_dense(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided


class Births(TorchDispatchMode):
    """Notes what operators make while it is active, any that torch has: how a network is made is not recorded."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: list[tuple[Any, int]] = []  # weak references to storages, and bytes of a value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if _is_dense(one)}
        for one in filter(_is_dense, tree_leaves(out)):
            if one.untyped_storage()._cdata not in given:  # what is written into, or viewed, is not made
                self._made.append((weakref.ref(one.untyped_storage()), one.element_size()))
        return out

    @property
    def alive(self) -> dict[int, int]:
        """Storages that something holds, by address, and how many values each has."""
        storages = ((made(), width) for made, width in self._made)
        return {int(one._cdata): one.nbytes() // width for one, width in storages if one is not None}


def _flat(out: Any) -> list[Any]:
    return tree_leaves(out, is_leaf=lambda one: one is None) if isinstance(out, list | tuple) else [out]
