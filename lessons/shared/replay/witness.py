"""A record beside a run that nobody recorded: it hands out the same, and takes no memory that the record leaves out.

A recorder sees what goes through torch's dispatcher. What NumPy or a pointer writes or keeps, it does not; nor what a
program does only where nothing records. So a program runs a few times more, on the same values, and its record is
replayed on these: whoever does all by torch's operators, and always the same, differs in nothing. All of this is in the
process of the answer and speaks against it alone.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from course_utils.surroundings import no_garbage_collection
from lessons.shared.replay.form import Mark, Record, Refused
from lessons.shared.replay.recorder import Recorder
from lessons.shared.replay.replayer import Replayed, Replayer, drawing
from lessons.shared.replay.taken import taken

AGAIN = 2  # times that a witness has steps run: what is kept of each shows after the second
BLOCK = 16  # bytes of Python's smallest block
FREE = 2**18  # bytes that caches, autograd's nodes and a program's own few numbers may take
AN_OPERATOR = 512  # the same, for each operator that ran
GROWTH = 2**14  # from one run of the steps to the next
NEAR = 1e-5  # of the largest value handed out: what another order of sums leaves
KEPT = (
    "it takes {0:,} bytes more than torch's operators make in it: something is kept where they do not see it (in "
    "NumPy, a list of numbers, a file in memory), or where nothing records. Keep what is needed in tensors"
)
GROWS = "each step keeps {0:,} bytes more than the one before it: let go of them when it ends"
OTHERWISE = (
    "what it hands out is not what torch's operators compute in it: a tensor is written past them (by NumPy or "
    "`apply_`), or it does another thing in a later run, or where nothing records"
)


class Scribe(Protocol):
    """What notes what a program does: a recorder, or a witness in its place."""

    again: int  # times that the program's steps are to run

    def mark(self, name: str, tensor: Tensor | None = None) -> None:
        """Note that a tensor is handed out here under this name, or that a phase ends."""

    def __enter__(self) -> Any: ...

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> Any: ...


Begin = Callable[[Mapping[str, Tensor]], Scribe]
Program = Callable[[Begin], None]
Write = Callable[[Program], Record]
S = TypeVar("S", bound=Scribe)


class _Nowhere(io.TextIOBase):
    """Takes what a program prints and keeps none of it: a text that grows would count as memory of the program's."""

    def write(self, text: str) -> int:
        return len(text)


class Witness:
    """Takes a recorder's place where nothing is recorded: notes what is handed out, and what memory is taken then."""

    def __init__(self, inputs: Mapping[str, Tensor], again: int = AGAIN) -> None:
        self.inputs, self.again = inputs, again
        self.given = _copied(inputs)
        self.seen: list[tuple[str, Tensor | None, int]] = []
        self._mine, self._began = 0, _held()

    def mark(self, name: str, tensor: Tensor | None = None) -> None:
        """Note a tensor's values, and the bytes taken since it began."""
        now = _held()
        self.seen.append((name, None if tensor is None else tensor.detach().clone(), now - self._began - self._mine))
        self._mine += _held() - now

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None:
        gc.collect(0)  # what refers to itself is as good as freed


@contextlib.contextmanager
def _printed_after() -> Iterator[None]:
    """Keep what is printed in a file, as a text that grows would count as memory of the program's; then print it."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        try:
            with contextlib.redirect_stdout(said):
                yield
        finally:
            said.seek(0)
            for line in said:
                print(line, end="")


def recorded(run: Program, memory: bool = True, steady: bool = True) -> Record:
    """The record of a program, after it did the same where nothing recorded it.

    Args:
        run: what makes inputs, begins a scribe with them, and has the program run while that is active. It is called
            thrice.
        memory: whether it is asked for that the program keeps little.
        steady: whether it is to keep no more after a later run of its steps.

    Raises whatever the program raises; Refused, also where a record leaves out what it does.
    """
    with _alone():
        with contextlib.redirect_stdout(_Nowhere()):  # what a program prints is shown once, when it is recorded
            _begun(run, functools.partial(Witness, again=1))  # fills torch's caches
            witness = _begun(run, Witness)
        with _printed_after():
            recorder = _begun(run, Recorder)
    record = recorder.record
    with torch.no_grad(), drawing():
        own = Replayer(record, witness.given, states=recorder.states).run()
    names = [mark.name for mark in record.entries if isinstance(mark, Mark)]
    if not _same(witness, own, names):
        raise Refused(OTHERWISE)
    if memory and taken():
        _require_little(witness, own, names, recorder.hidden, steady and not own.grows)  # else the judge says so
    return record


def _same(witness: Witness, own: Replayed, names: list[str]) -> bool:
    """Whether a witness saw at every mark, and leaves in the inputs, what the record comes to on the same values."""
    rounds = len(witness.seen) // max(1, len(names))
    handed = [(one, own.handed.get(name)) for name, one, _ in witness.seen if one is not None]
    left = [(witness.inputs[name], one) for name, one in own.ended.items()]
    return [name for name, _, _ in witness.seen] == names * rounds and not any(apart(*pair) for pair in handed + left)


def _require_little(witness: Witness, own: Replayed, names: list[str], hidden: int, steady: bool) -> None:
    """Raise Refused where the process held more than the record says, or where steady, more after a later round."""
    held = [bytes_taken for _, _, bytes_taken in witness.seen]
    first, last = held[: len(names)], held[-len(names) :]
    growth = [later - before for before, later in zip(first, last, strict=True)] if steady else []
    if min(growth, default=0) > GROWTH:
        raise Refused(GROWS.format(min(growth)))
    if max(growth, default=0) > FREE:  # at some marks alone
        raise Refused(OTHERWISE)
    besides = [bytes_taken - own.alive[name] + own.given for bytes_taken, name in zip(first, names, strict=True)]
    if (most := max(hidden, *besides)) > FREE + AN_OPERATOR * len(own.ran):
        raise Refused(KEPT.format(most))


def written(run: Program) -> Record:
    """The record of a program of this course's own, which needs no witness."""
    with _alone():
        return _begun(run, Recorder).record


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Deaths come from reference counts alone, and who collects garbage goes through what is new, which is little."""
    with no_garbage_collection(), drawing():
        gc.freeze()
        try:
            yield
        finally:
            gc.unfreeze()


def _begun(run: Program, kind: Callable[[dict[str, Tensor]], S]) -> S:
    """The scribe of this kind that a run began, when it has ended."""
    scribes: list[S] = []

    def begin(inputs: Mapping[str, Tensor]) -> S:
        scribes.append(kind(dict(inputs)))
        return scribes[0]

    torch.manual_seed(0)
    run(begin)
    return scribes[0]


def _held() -> int:
    """Bytes taken from the C library, and at least as many as there are in Python's own small blocks."""
    return taken() + BLOCK * sys.getallocatedblocks()


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.detach().clone() for name, one in tensors.items()}


def apart(one: Tensor, other: Tensor | None) -> bool:
    """Whether two tensors differ by more than rounding."""
    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return True
    if not one.is_floating_point():
        return not torch.equal(one, other)
    finite = other[other.isfinite()].abs()
    near = NEAR * float(finite.max()) if finite.numel() else 0.0
    return not torch.allclose(one.detach(), other, rtol=NEAR, atol=near, equal_nan=True)
