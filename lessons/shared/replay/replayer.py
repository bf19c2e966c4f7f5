"""The replayer: runs a record on other values, where no code of an answer's ever ran.

What a program does is computed here and nowhere else: which storages it makes and how large they are, what it hands
out. A storage that the record calls dead cannot be read any more. Memory that nobody wrote into holds NaN.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from course_utils.machine.speed import NO_KERNEL
from lessons.shared.replay.form import (
    DTYPES,
    MOST_CONSTANTS,
    NAMED,
    Constant,
    Freed,
    Mark,
    Operator,
    Received,
    Record,
    Ref,
    Refused,
    Sent,
    operator,
)
from lessons.shared.replay.guards import GUARDS, require_kinds

MOST_BYTES = 2**30  # alive at once
SECONDS = 15.0
OBJECTS = tuple({type(one) for one in NAMED.values()})


@dataclass(frozen=True)
class Ran:
    """An operator that ran.

    Attributes:
        name: without overload.
        phase: the last mark before it, or "".
        launched: whether it launched a kernel.
        read: the tensors it was given, in order; of made, those it returned.
        bytes: alive behind it.
        values: alive behind it, as many as the bytes hold in the narrowest type that a storage was read or written in.
    """

    name: str
    phase: str
    launched: bool
    read: tuple[Ref, ...]
    made: tuple[Ref, ...]
    bytes: int
    values: int


@dataclass
class Replayed:
    """What a program does on other values.

    Attributes:
        given: bytes of the inputs.
        handed: the tensors at its marks, as they were there.
        ran: its operators, in order.
        alive: bytes alive at each mark.
        done: how many operators had run at each mark.
        living: at each mark that hands nothing out, the bytes of every storage that was alive.
        ended: the inputs as they are at the end.
    """

    given: int
    handed: dict[str, Tensor] = field(default_factory=dict)
    ran: list[Ran] = field(default_factory=list)
    alive: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    living: dict[str, dict[int, int]] = field(default_factory=dict)
    ended: dict[str, Tensor] = field(default_factory=dict)

    @property
    def peak(self) -> int:
        """The most bytes alive behind any operator, the inputs among them."""
        return max((one.bytes for one in self.ran), default=self.given)

    @property
    def most_values(self) -> int:
        """The most values alive behind any operator, whatever their types: rounded to fewer bits they are as many."""
        return max((one.values for one in self.ran), default=0)

    @property
    def grows(self) -> bool:
        """Whether more is alive when its last step has ended than when its first has: marks "end 1" and so on."""
        ends = [alive for name, alive in self.alive.items() if name.startswith("end ")]
        return len(ends) > 1 and ends[-1] > ends[0]

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators that launched a kernel, in order."""
        return tuple(one.name for one in self.ran if one.launched)


def replay(record: Record, values: Mapping[str, Tensor], seed: int = 0) -> Replayed:
    """Run a record with these values for its inputs; `seed` is what it draws from.

    Raises Refused for a record that is no program, or takes others inputs, and for one that takes too much.
    """
    with torch.no_grad(), drawing():
        return Replayer(record, values, seed).run()


def slopes(
    record: Record, values: Mapping[str, Tensor], until: str, weights: Tensor, seed: int = 0
) -> dict[str, Tensor]:
    """Gradients of the sum of what is marked `until`, times weights, by every input of floats: as autograd finds them.

    Buffers, which nothing trains, are left out: a batch norm's running mean has no gradient.
    A program's own backward pass comes behind that mark, and is not run. Raises Refused as `replay` does.
    """
    inputs = {
        name: value.clone().requires_grad_(value.is_floating_point() and not name.startswith("buffer "))
        for name, value in values.items()
    }
    with torch.enable_grad(), drawing():
        out = Replayer(record, inputs, seed, until).run().handed[until]
        if out.shape != weights.shape:
            raise Refused(f"`{until}` has another shape")
        wanted = {name: one for name, one in inputs.items() if one.requires_grad}
        if not out.requires_grad:
            return {name: torch.zeros_like(one) for name, one in wanted.items()}
        found = torch.autograd.grad((out * weights).sum(), list(wanted.values()), allow_unused=True)
    pairs = zip(wanted, found, strict=True)
    return {name: torch.zeros_like(values[name]) if slope is None else slope for name, slope in pairs}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """While active, what is drawn changes nothing of torch's generator."""
    with torch.random.fork_rng(devices=[]):
        yield


def _other_shape(kind: str, tensor: Tensor, ref: Ref) -> str:
    return f"`{kind}` makes another tensor on other values: {tuple(tensor.shape)}, and not {ref.size}"


BY_VALUE = ("index", "masked_select", "nonzero", "_unique2")  # how much they make depends on the values
MASKED = "a mask and its sum have one size on all values"


@dataclass(frozen=True)
class Message:
    """What a program sends, or waits for: the other card, and the tensor, None where it waits."""

    card: int
    tensor: Tensor | None = None


class Replayer:
    """Runs one record. Raises Refused as `replay` does.

    With `states`, of the generator by the number of a draw, it draws what was drawn when the record was written.
    """

    def __init__(
        self,
        record: Record,
        values: Mapping[str, Tensor],
        seed: int = 0,
        until: str = "",
        states: Mapping[int, Tensor] | None = None,
    ) -> None:
        if {name: ref.size for name, ref in record.inputs.items()} != {n: tuple(v.shape) for n, v in values.items()}:
            raise Refused("its inputs are others than those it was given")
        self.record, self.seed, self.until, self.states = record, seed, until, states
        self.whole: dict[int, Tensor] = {}  # of each storage that is alive, all of it as a vector
        self.values: dict[int, int] = {}  # of each, how many there are
        # Storages of other sizes on other values, such as a selection that is printed, and what is said of them. They
        # take as much as was recorded, and nothing that is handed out may come of them.
        self.unknown: dict[int, tuple[Ref, str]] = {}
        self.addresses: set[int] = set()
        self.phase, self.constants, self.bytes = "", 0, 0
        for name, ref in record.inputs.items():
            value = values[name]
            if str(value.dtype) != ref.dtype or ref.storage in self.whole:
                raise Refused(f"input `{name}` is another tensor than it was given")
            self._bear(f"input `{name}`", ref, value)  # no leaf: a program may write into it
        self.inputs = frozenset(self.whole)
        self.found = Replayed(self.bytes)

    def run(self) -> Replayed:
        """All of it, or up to a mark."""
        for _ in self.steps():
            raise Refused("it sends a message or waits for one, and is alone")
        self.found.ended = {name: self._tensor(ref) for name, ref in self.record.inputs.items()}
        return self.found

    def steps(self) -> Generator[Message, Tensor | None, None]:
        """The same, and what passes between it and other cards: whoever asks for the next gives what it waits for."""
        end = time.process_time() + SECONDS
        for entry in self.record.entries:
            if time.process_time() > end:
                raise Refused(f"it took more than {SECONDS:g} seconds of processor time")
            match entry:
                case Operator():
                    self._operate(entry)
                case Freed(storages):
                    for number in storages:
                        if number in self.unknown:
                            self.bytes -= self.unknown.pop(number)[0].end
                        if number not in self.inputs and number in self.whole:
                            storage = self.whole.pop(number).untyped_storage()
                            self.addresses.remove(storage._cdata)
                            del self.values[number]
                            self.bytes -= storage.nbytes()
                case Constant(ref, values):
                    self._bring(ref, values)
                case Mark(name, ref):
                    self.phase = name
                    self.found.alive[name], self.found.done[name] = self.bytes, len(self.found.ran)
                    if ref is None:
                        sizes = {number: one.untyped_storage().nbytes() for number, one in self.whole.items()}
                        self.found.living[name] = sizes | {n: one.end for n, (one, _) in self.unknown.items()}
                    else:
                        one = self._tensor(ref)
                        self.found.handed[name] = one if one.requires_grad else one.clone()
                    if name == self.until:
                        break
                case Sent(to, ref):
                    yield Message(to, self._tensor(ref).clone())
                case Received(source, ref):
                    arrived = yield Message(source)
                    if arrived is None or ref is None or ref.storage in self.whole:
                        raise Refused(f"it goes on without the message from card {source}")
                    if (arrived.shape, str(arrived.dtype)) != (ref.size, ref.dtype):
                        raise Refused(f"the message from card {source} is another one on other values")
                    self._bear(f"the message from card {source}", ref, arrived)

    def _bear(self, what: str, ref: Ref, value: Tensor) -> None:
        if not ref.whole:
            raise Refused(f"{what} is a part of another tensor: use one of its own")
        made = torch.empty(value.numel(), dtype=value.dtype)
        made.as_strided(ref.size, ref.stride).copy_(value)
        self._keep(ref.storage, made)

    def _keep(self, number: int, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self.whole[number] = tensor.as_strided((storage.nbytes() // tensor.element_size(),), (1,), 0)
        self.values[number] = len(self.whole[number])
        self.addresses.add(storage._cdata)
        self.bytes += storage.nbytes()
        if self.bytes > MOST_BYTES:
            raise Refused("it takes more memory than any answer needs")

    def _bring(self, ref: Ref, values: tuple[Any, ...]) -> None:
        self.constants += len(values)
        if ref.storage in self.whole or self.constants > MOST_CONSTANTS or ref.size != (len(values),) or ref.offset:
            raise Refused("a constant that is none")
        self._keep(ref.storage, torch.tensor(values, dtype=DTYPES[ref.dtype]))

    def _tensor(self, ref: Ref) -> Tensor:
        whole = self.whole.get(ref.storage)
        if ref.storage in self.unknown:
            raise Refused(self.unknown[ref.storage][1])
        if whole is None:
            raise Refused(f"storage {ref.storage} is read, and is not there: it was freed, or nobody made it")
        if ref.end > whole.untyped_storage().nbytes():
            raise Refused(f"storage {ref.storage} is read beyond its end")
        dtype = DTYPES[ref.dtype]
        if whole.dtype is not dtype:
            if torch.bool in (whole.dtype, dtype) or len(whole) * whole.element_size() % dtype.itemsize:
                raise Refused(f"{whole.dtype} is read as {dtype}, byte by byte")
            whole = whole.view(dtype)
            self.values[ref.storage] = max(self.values[ref.storage], len(whole))
        return whole.as_strided(ref.size, ref.stride, ref.offset)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self._tensor(value)
        return [self._argument(one) for one in value] if isinstance(value, list | tuple) else value

    def _operate(self, entry: Operator) -> None:
        kind, function = entry.kind, operator(entry.name)
        refs = tuple(one for one in tree_leaves((entry.given, list(entry.named.values()))) if isinstance(one, Ref))
        if unknown := [one.storage for one in refs if one.storage in self.unknown]:
            said = self.unknown[unknown[0]][1]
            if function._schema.is_mutable and len(unknown) < len(refs):  # type: ignore[attr-defined]
                raise Refused(said)
            self._leave_out(entry, said)
            self._note(entry, refs, True)
            return
        given = [self._argument(one) for one in entry.given]
        named = {key: self._argument(one) for key, one in entry.named.items()}
        if torch.Tag.nondeterministic_seeded in function.tags:  # type: ignore[attr-defined]
            if entry.draw is None:
                raise Refused(f"`{kind}` draws, and nobody knows from what state")
            if self.states is None:
                torch.manual_seed(self.seed + entry.draw)
            else:
                torch.set_rng_state(self.states[entry.draw])
        require_kinds(function, given, named)
        try:
            if kind in GUARDS and not GUARDS[kind](*given, **named):
                raise Refused(f"`{kind}` is given what no forward pass leaves")
            storages = [one.untyped_storage() for one in tree_leaves((given, named)) if isinstance(one, Tensor)]
            sizes = [one.nbytes() for one in storages]
            out = function(*given, **named)
            if sizes != [one.nbytes() for one in storages]:
                raise Refused(f"`{kind}` writes into a tensor of another size: give it one of the right size, or none")
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an operator says of its arguments
            said = str(error).strip().split("\n")[0]
            raise Refused(f"`{kind}` cannot run on other values: {said}") from None
        made = [] if out is None else tree_leaves(out, is_leaf=lambda x: x is None)
        if [one is None for one in made] != [one is None for one in entry.made]:
            raise Refused(f"`{kind}` returns something else")
        pairs = [(one, ref) for one, ref in zip(made, entry.made, strict=True) if one is not None and ref is not None]
        others = [(one, ref) for one, ref in pairs if kind in BY_VALUE and one.shape != ref.size]
        if others:
            self._leave_out(entry, f"{_other_shape(kind, *others[0])}; {MASKED}")
        new = [True] if others else [self._match(kind, one, ref) for one, ref in pairs]
        self._note(entry, refs, any(new) or function._schema.is_mutable)  # type: ignore[attr-defined]

    def _note(self, entry: Operator, refs: tuple[Ref, ...], works: bool) -> None:
        made = tuple(one for one in entry.made if one is not None)
        values = sum(self.values.values()) + sum(math.prod(one.size) for one, _ in self.unknown.values())
        launched = works and entry.kind not in NO_KERNEL
        self.found.ran.append(Ran(entry.kind, self.phase, launched, refs, made, self.bytes, values))

    def _leave_out(self, entry: Operator, said: str) -> None:
        """Leave out an operator whose result has another size on other values: who hands it out is told `said`."""
        for ref in (one for one in entry.made if one is not None):
            if ref.storage in self.whole:
                raise Refused(said)
            if ref.storage not in self.unknown:
                self.unknown[ref.storage] = ref, said
                self.bytes += ref.end

    def _match(self, kind: str, tensor: Tensor, ref: Ref) -> bool:
        """Take what an operator returned for what the record says; whether its memory is new."""
        seen = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), str(tensor.dtype)
        if seen != (ref.size, ref.stride, ref.offset, ref.dtype):
            raise Refused(_other_shape(kind, tensor, ref))
        known = self.whole.get(ref.storage)
        if known is not None:
            if known.untyped_storage()._cdata != tensor.untyped_storage()._cdata:
                raise Refused(f"`{kind}` makes memory of its own, and returns none that was there")
            return False
        if tensor.untyped_storage()._cdata in self.addresses:
            raise Refused(f"`{kind}` returns memory that was there")
        if kind.startswith(("empty", "new_empty")):
            tensor.fill_(float("nan") if tensor.is_floating_point() else 0)
        self._keep(ref.storage, tensor)
        return True
