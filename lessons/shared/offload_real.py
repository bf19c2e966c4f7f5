"""The real thing: what autograd saves for the backward pass, moved to host memory and brought back ahead of use.

`OffloadActivations` is a context manager on PyTorch's saved-tensor hooks. On a GPU copies run on a stream of their own,
through pinned buffers that are reused; on a CPU the same code moves real bytes into a second pool, so that everything
but the overlap can be seen and tested anywhere. The part for GPUs has not met one in this project yet.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from course_utils.techniques.offload.policies import MINIMUM_BYTES, WINDOW
from course_utils.units import CourseError

REAL_POLICIES = ("none", "all", "conv", "windowed")
Chooses = Callable[[Tensor], bool]


class HostPool:
    """Host buffers of bytes, reused by size: a training step asks for the same sizes every time.

    Attributes:
        pinned: whether buffers are page-locked, which a copy that runs beside kernels needs.
        allocated_bytes: in all buffers.
        used_bytes: in the buffers given out.
        peak_bytes: the most ever given out at once.
    """

    def __init__(self, pinned: bool) -> None:
        self.pinned = pinned
        self.allocated_bytes = self.used_bytes = self.peak_bytes = 0
        self._free: dict[int, list[Tensor]] = {}

    def take(self, count: int) -> Tensor:
        """A buffer of `count` bytes, its contents arbitrary."""
        free = self._free.get(count)
        if free:
            buffer = free.pop()
        else:
            buffer = torch.empty(count, dtype=torch.uint8, pin_memory=self.pinned)
            self.allocated_bytes += count
        self.used_bytes += count
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return buffer

    def give(self, buffer: Tensor) -> None:
        """Take a buffer back, for whoever asks next for its size."""
        self.used_bytes -= buffer.numel()
        self._free.setdefault(buffer.numel(), []).append(buffer)

    def clear(self) -> None:
        """Free the buffers that nobody has."""
        self.allocated_bytes = self.used_bytes
        self._free.clear()


class _Record:
    """One storage that went to the host, whatever number of saved tensors look into it."""

    def __init__(self, key: tuple[int, int], number: int, buffer: Tensor) -> None:
        self.key, self.number, self.buffer = key, number, buffer
        self.handles = 0  # saved tensors that may still be asked for
        self.waiting = 0  # of them, those not asked for since it last came back
        self.round = 0  # how often it came back
        self.resident: Tensor | None = None  # its bytes on the device
        self.arrived: Any = None  # the event after which they are there; None on a CPU


class _Handle:
    """What autograd keeps in place of a saved tensor."""

    def __init__(self, owner: OffloadActivations, record: _Record, tensor: Tensor) -> None:
        self.owner, self.record = owner, record
        self.dtype, self.offset = tensor.dtype, tensor.storage_offset()
        self.shape, self.stride = tensor.shape, tensor.stride()
        self.asked = -1  # the round in which it was last asked for
        record.handles += 1
        record.waiting += 1

    def __del__(self) -> None:
        self.owner._forget(self)


class _Undecided:
    """What autograd keeps of a tensor that stays unless a convolution saves its storage too: the tensor or a handle."""

    def __init__(self, tensor: Tensor) -> None:
        self.kept: Tensor | _Handle = tensor


class OffloadActivations:
    """Moves what autograd saves to host memory during a forward pass, and back ahead of use in the backward pass.

        offload = OffloadActivations("windowed", window=5)
        for x, y in batches:
            with offload:
                loss = criterion(model(x), y)
            loss.backward()

    Results are the same bits with and without. A storage is moved once, however many saved tensors look into it, with
    its bytes at the time it was saved. Parameters and buffers of the modules that run stay, and so does whatever is
    small, sparse, on another device or a tensor of a class of its own. The backward pass may run inside or outside the
    context, more than once, and of several forward passes together. One object serves many steps, and keeps its host
    buffers between them. Within another context of this kind the inner one takes what is saved in it; the same object
    within itself is refused. A part of a network under `torch.utils.checkpoint` keeps nothing that could move but its
    input.

    A saved tensor goes when it is first saved, beside the kernel that reads it; its memory is free once nobody else
    holds it. Without hooks autograd refuses a saved tensor that is overwritten afterwards; with hooks it cannot notice.
    Write in place only where the network also works without this context.

    Args:
        policy: "none", "all" (one tensor on its way), "conv" (as "all", the storages that nn.Conv1d to nn.Conv3d save,
            also where a ReLU before them saved one first), "windowed" (as "all" with `window` on their way), or a
            function that says of a saved tensor whether it moves.
        window: tensors on their way to the host, and fetched ahead, with "windowed" or a function.
        prefetch: whether tensors are fetched ahead of use; without, each is brought back on demand: less memory, and
            every copy back is waited for.
        minimum_bytes: storages below this stay.
        keep: modules and tensors that stay besides, such as the input that the training loop holds anyway.
        device: whose tensors move; the current GPU if there is one, else the CPU.

    Raises:
        CourseError: an unknown policy, or a window below 1.
    """

    def __init__(
        self,
        policy: str | Chooses = "windowed",
        *,
        window: int = WINDOW,
        prefetch: bool = True,
        minimum_bytes: int = MINIMUM_BYTES,
        keep: Iterable[nn.Module | Tensor] = (),
        device: torch.device | str | None = None,
    ) -> None:
        if policy == "dyn":
            raise CourseError(
                "the search is made on the schedule: ask lesson 09's simulate_2016(..., 'dyn') what fits, then choose "
                "none, conv or all"
            )
        if not callable(policy) and policy not in REAL_POLICIES:
            raise CourseError(
                f"unknown policy {policy!r}: choose one of {', '.join(REAL_POLICIES)}, or give a function"
            )
        if window < 1:
            raise CourseError(f"window must be 1 or more tensors, got {window!r}; policy 'all' has one on its way")
        self.policy, self.minimum_bytes, self.keep = policy, minimum_bytes, tuple(keep)
        self.prefetch = prefetch
        self.window = 1 if policy in ("all", "conv") else window
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.on_gpu = self.device.type == "cuda"
        if self.on_gpu and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.pool = HostPool(pinned=self.on_gpu)
        self.moved_bytes = self.returned_bytes = 0  # over the link, since the object was made
        self.moved_tensors = self.returned_tensors = 0
        self._lock = threading.RLock()
        self._open: contextlib.ExitStack | None = None
        # One stream for copies both ways, so that a buffer is never written before it has been read.
        self._stream = torch.cuda.Stream(self.device) if self.on_gpu else None
        self._records: dict[tuple[int, int], _Record] = {}  # (address of a living storage, its version) -> record
        self._undecided: dict[tuple[int, int], list[weakref.ref[_Undecided]]] = {}  # by the same keys
        self._line: list[int] = []  # numbers of the records in the order in which they were last saved
        self._by_number: dict[int, _Record] = {}
        self._next = 0
        self._leaving: deque[tuple[Tensor, Any]] = deque()  # on their way to the host: bytes, and the event at the end
        self._kept: dict[int, Any] = {}  # storages that stay, by address
        self._depth = self._in_convolution = 0

    # -- the context -------------------------------------------------------------------------------------------------

    def __enter__(self) -> OffloadActivations:
        if self._open is not None:
            raise CourseError("this OffloadActivations is active already: leave it first, or make a second one")
        with contextlib.ExitStack() as stack:
            stack.callback(self._settle)
            for handle in (
                register_module_forward_pre_hook(self._enter_module),
                register_module_forward_hook(self._leave_module, always_call=True),
            ):
                stack.callback(handle.remove)
            for item in self.keep:
                self._keep(item)
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    def _settle(self) -> None:
        """Let the last copies end, and hold on to nothing of the network."""
        with self._lock:
            while self._leaving:
                self._let_go()
            self._kept.clear()
            self._undecided.clear()
            self._depth = self._in_convolution = 0

    def _keep(self, item: nn.Module | Tensor) -> None:
        tensors = chain(item.parameters(), item.buffers()) if isinstance(item, nn.Module) else (item,)
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._kept[storage._cdata] = storage

    def _enter_module(self, module: nn.Module, inputs: Any) -> None:
        if self._depth == 0:
            self._keep(module)
        self._depth += 1
        self._in_convolution += isinstance(module, _ConvNd)

    def _leave_module(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._depth -= 1
        self._in_convolution -= isinstance(module, _ConvNd)

    # -- forward -----------------------------------------------------------------------------------------------------

    def _pack(self, tensor: Tensor) -> Tensor | _Handle | _Undecided:
        """What autograd keeps: the tensor itself, or a handle on bytes in host memory."""
        if not self._moves(tensor):
            return tensor
        with self._lock, torch.no_grad():
            storage = tensor.untyped_storage()
            key = (storage._cdata, tensor._version)
            record = self._records.get(key)
            if self.policy == "conv" and not self._in_convolution and record is None:
                undecided = _Undecided(tensor)
                self._undecided.setdefault(key, []).append(weakref.ref(undecided))
                return undecided
            if record is None:
                record = self._send(key, storage)
                self._records[key] = record
                self._drop_key_with(storage, key)
            else:  # saved again: the backward pass reaches it earlier
                self._unlist(record)
                record.number = self._number()
            self._list(record)
            for reference in self._undecided.pop(key, ()):  # a ReLU keeps the storage that a convolution reads
                undecided_before = reference()
                if undecided_before is not None and isinstance(undecided_before.kept, Tensor):
                    undecided_before.kept = _Handle(self, record, undecided_before.kept)
            return _Handle(self, record, tensor)

    def _moves(self, tensor: Tensor) -> bool:
        if self.policy == "none":
            return False
        if tensor.device != self.device or type(tensor) not in (Tensor, nn.Parameter):
            return False
        if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.is_inference():
            return False
        storage = tensor.untyped_storage()
        if storage.nbytes() < max(self.minimum_bytes, 1) or storage._cdata in self._kept:
            return False
        return self.policy(tensor) if callable(self.policy) else True

    def _send(self, key: tuple[int, int], storage: torch.UntypedStorage) -> _Record:
        count = storage.nbytes()
        buffer = self.pool.take(count)
        source = torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, 0, (count,), (1,))
        if self.on_gpu:
            while len(self._leaving) >= self.window:
                self._let_go()
            with self._copying():
                buffer.copy_(source, non_blocking=True)
                self._leaving.append((source, torch.cuda.current_stream().record_event()))
        else:
            buffer.copy_(source)
        self.moved_bytes += count
        self.moved_tensors += 1
        return _Record(key, self._number(), buffer)

    def _let_go(self) -> None:
        """Give up the oldest tensor on its way: what computes next waits until its copy has ended."""
        torch.cuda.current_stream(self.device).wait_event(self._leaving[0][1])
        self._leaving.popleft()

    def _drop_key_with(self, storage: torch.UntypedStorage, key: tuple[int, int]) -> None:
        """Forget an address when its storage dies: another may be given the same."""
        owner = weakref.ref(self)

        def died() -> None:
            self = owner()
            if self is not None:
                self._records.pop(key, None)
                self._undecided.pop(key, None)

        weakref.finalize(storage, died).atexit = False

    # -- backward ----------------------------------------------------------------------------------------------------

    def _unpack(self, kept: Tensor | _Handle | _Undecided) -> Tensor:
        """The saved tensor, its bytes brought back if they are not yet, and the next ones on their way."""
        if isinstance(kept, _Undecided):
            kept = kept.kept
        if isinstance(kept, Tensor):
            return kept
        with self._lock, torch.no_grad():
            record = kept.record
            self._fetch(record)
            if self.prefetch:
                self._fetch_ahead(record)
            resident = record.resident
            assert resident is not None
            if record.arrived is not None:
                torch.cuda.current_stream(self.device).wait_event(record.arrived)
            tensor = torch.empty(0, dtype=kept.dtype, device=self.device)
            tensor.set_(resident.untyped_storage(), kept.offset, kept.shape, kept.stride)
            if kept.asked != record.round:
                kept.asked = record.round
                record.waiting -= 1
                self._drop_if_used(record)
            return tensor

    def _fetch(self, record: _Record) -> None:
        if record.resident is not None:
            return
        record.round += 1
        record.waiting = record.handles
        record.resident = torch.empty(record.buffer.numel(), dtype=torch.uint8, device=self.device)
        if self.on_gpu:
            with self._copying():
                record.resident.copy_(record.buffer, non_blocking=True)
                record.arrived = torch.cuda.current_stream().record_event()
        else:
            record.resident.copy_(record.buffer)
        self.returned_bytes += record.buffer.numel()
        self.returned_tensors += 1

    def _fetch_ahead(self, record: _Record) -> None:
        """Bring back the records saved just before this one, which the backward pass comes to next."""
        at = bisect_left(self._line, record.number)
        for number in self._line[max(0, at - self.window) : at][::-1]:
            ahead = self._by_number.get(number)
            # It may go while memory is sought for another; and what came back before was used, if its node still runs.
            if ahead is not None and ahead.round == 0:
                self._fetch(ahead)

    def _drop_if_used(self, record: _Record) -> None:
        """Free a record's bytes on the device once every saved tensor that looks into them was asked for."""
        if record.waiting == 0 and record.resident is not None:
            if record.arrived is not None:  # fetched and perhaps never used: nobody may get this memory before the copy
                torch.cuda.current_stream(self.device).wait_event(record.arrived)
            record.resident = record.arrived = None

    def _forget(self, handle: _Handle) -> None:
        """A saved tensor that nobody can ask for any more; with a record's last one its buffer is free."""
        with self._lock:
            record = handle.record
            record.handles -= 1
            if handle.asked != record.round:
                record.waiting -= 1
            self._drop_if_used(record)
            if record.handles == 0:
                self._unlist(record)
                if self._records.get(record.key) is record:
                    del self._records[record.key]
                self.pool.give(record.buffer)

    # -- the line ----------------------------------------------------------------------------------------------------

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _list(self, record: _Record) -> None:
        insort(self._line, record.number)
        self._by_number[record.number] = record

    def _unlist(self, record: _Record) -> None:
        del self._line[bisect_left(self._line, record.number)]
        del self._by_number[record.number]

    @contextlib.contextmanager
    def _copying(self) -> Iterator[None]:
        """The copy stream, after all that was computed so far: what makes a tensor, or used its memory before it."""
        stream = self._stream
        assert stream is not None
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            yield

    def records(self) -> Iterator[int]:
        """Bytes of each storage that is in host memory now, in the order in which they were last saved."""
        yield from (self._by_number[number].buffer.numel() for number in self._line)
