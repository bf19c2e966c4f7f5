"""Two hooks written by a learner, judged by what they do: what waits outside, what stays, and the gradients.

The network is small: convolutions, a pool and dense layers, one of which has more parameters than its maps have values.
Nothing here knows right hooks, only what was saved.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from classroom.questions.core import has_dots
from lessons.shared.judged import Unfit
from lessons.shared.replay.form import Record, Refused
from lessons.shared.replay.replayer import Replayed, replay
from lessons.shared.replay.steps import named_inputs, warm_up
from lessons.shared.replay.witness import Begin, Scribe, Write, recorded, written

SIDE = 16  # of the images, in pixels
CLASSES = 10
HIDDEN = 64
BATCH = 16
SHARE = 0.95  # of what is in memory without hooks: as much as may be with them, wherever most is
Hooks = Callable[..., Any]
MARKS = r"(saved {0}\.\d+\n|put \d+\n)+forward {0}\n(back {0}\.\d+ \w+\n|put \d+\n)*"  # of a step, by name


class Host:
    """Memory outside: what is put there is copied, and copied back whenever it is taken."""

    def __init__(self) -> None:
        self._held: list[Tensor] = []

    def put(self, tensor: Tensor) -> int:
        """Copy a tensor out; returns the ticket it is taken back with."""
        self._held.append(tensor.detach().clone())
        return len(self._held) - 1

    def take(self, ticket: int) -> Tensor:
        """A new tensor with the bytes, shape and type of the one put."""
        return self._held[ticket].clone()


def network(seed: int) -> nn.Sequential:
    """A seed's network: (n, 1, 16, 16) to (n, 10); the first dense layer has 524,288 bytes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * (SIDE // 2) ** 2, 2 * HIDDEN), nn.ReLU(),
            nn.Linear(2 * HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES),
        )  # fmt: skip


def least_bytes(batch: int) -> int:
    """What the question asks to move: tensors of as many bytes as the second dense layer's map, or more."""
    return 4 * batch * HIDDEN


class _RecordedHost(Host):
    """A host whose copies are marked as such."""

    def __init__(self, scribe: Scribe) -> None:
        super().__init__()
        self._scribe = scribe
        self._before = 0

    def put(self, tensor: Tensor) -> int:
        ticket = super().put(tensor)
        self._scribe.mark(f"put {ticket - self._before}", self._held[ticket])
        return ticket

    def count_anew(self) -> None:
        """Name what comes from now on as if it were the first."""
        self._before = len(self._held)


@dataclass(frozen=True)
class Saved:
    """One tensor that autograd saved: whose it is, its bytes, whether the hook kept it, and whether it is outside."""

    parameter: bool
    given: bool  # the images or the labels, which the training loop holds
    bytes: int
    moved: bool  # its memory is no longer what the hook returned
    put: bool  # on the host, all its bytes


@dataclass(frozen=True)
class Seen:
    """What two training steps with a learner's hooks did.

    Attributes:
        returned: what the learner's function returned; "hooks" for two functions.
        saved: every tensor that autograd saved in the first step.
        again: the same in the second, whose batch makes a map that has the shape of a parameter.
        alive: bytes that were still in memory after a forward pass and have no business there, copies and their pieces
            included: 0 if all of them are less than one map.
        wrong: of each step, how the first tensor that came back differs from the one saved; "" if none does, and then
            the gradients are those without hooks, bit by bit.
        least: bytes from which on a tensor is to be moved.
        copies: tensors that were put on the host in both steps.
        share: the most bytes in memory during a step, as a share of those without hooks; the host's are none of them.
    """

    returned: Any
    saved: tuple[Saved, ...] = ()
    again: tuple[Saved, ...] = ()
    alive: int = 0
    wrong: tuple[str, str] = ("", "")
    least: int = 0
    copies: int = 0
    share: float = 0.0

    @property
    def to_move(self) -> tuple[Saved, ...]:
        """Maps that are large enough."""
        both = (*self.saved, *self.again)
        return tuple(s for s in both if not s.parameter and not s.given and s.bytes >= self.least)

    @property
    def stayed(self) -> tuple[Saved, ...]:
        """Of them, those that were not moved."""
        return tuple(s for s in self.to_move if not s.moved)

    @property
    def elsewhere(self) -> bool:
        """Whether one was moved and is not on the host."""
        return any(s.moved and not s.put for s in self.to_move)

    @property
    def needless(self) -> int:
        """Copies on the host beside one of each tensor that is large enough, the images among them."""
        both = (*self.saved, *self.again)
        return max(0, self.copies - sum(not s.parameter and s.bytes >= self.least for s in both))

    @property
    def by_shape(self) -> bool:
        """Whether maps stay in the second step alone, where one has the shape of a parameter."""
        first = [s for s in self.saved if s in self.stayed]
        return bool(self.stayed) and not first

    @property
    def parameters_moved(self) -> bool:
        """Whether a parameter was moved."""
        return any(s.moved for s in (*self.saved, *self.again) if s.parameter)

    @property
    def small_moved(self) -> bool:
        """Whether anything else was moved that is too small."""
        return any(s.moved for s in (*self.saved, *self.again) if not s.parameter and s.bytes < self.least)

    @property
    def outside(self) -> tuple[Saved, ...]:
        """Maps that wait outside in the first step."""
        return tuple(s for s in self.saved if s in self.to_move and s.put)

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        hooks = self.returned == "hooks"
        return {
            "gradients equal": hooks and not self.wrong[0],
            "also in the second step": hooks and not self.wrong[1],
            "parameters stay": hooks and not self.parameters_moved,
            "small tensors stay": hooks and not self.small_moved,
            "maps move": hooks and not self.stayed,
            "the host has them": hooks and not self.elsewhere and not self.needless,
            "their memory is free": hooks and self.alive == 0 and self.share <= SHARE,
        }


def _batches(batch: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Images and labels of two steps; the second makes a map that has the shape of a parameter."""
    draw = torch.Generator().manual_seed(seed)
    sizes = (batch, HIDDEN)
    return [
        (torch.rand((n, 1, SIDE, SIDE), generator=draw), torch.randint(CLASSES, (n,), generator=draw)) for n in sizes
    ]


def record(make: Hooks, batch: int = BATCH, seed: int = 0, write: Write | None = None) -> Record:
    """Two forward passes with the hooks that a learner's `make(model, least, host)` returns.

    When a forward pass has ended each tensor that it saved is unpacked, the last one first. It hands out "saved 1.0"
    and "back 1.0", and so on, and "put 0" for the host's copies. Raises whatever the learner's code raises; Unfit where
    it returns no hooks; Refused.
    """
    warm_up()
    return (write or functools.partial(recorded, steady=False))(lambda begin: _steps(make, batch, seed, begin))


def _steps(make: Hooks, batch: int, seed: int, begin: Begin) -> None:
    model, batches = network(seed), _batches(batch, seed)
    scribe = begin(named_inputs(dict(model.named_parameters()), {}, batches))
    host = _RecordedHost(scribe)
    returned = make(model, least_bytes(batch), host)
    hooks = tuple(returned) if isinstance(returned, tuple | list) else ()
    if has_dots(returned):
        raise TypeError("an ellipsis is no hook")
    if len(hooks) != 2 or not all(map(callable, hooks)):
        raise Unfit("return two functions, first the one that packs, then the one that unpacks: `return pack, unpack`")
    for again in range(scribe.again):
        host.count_anew()
        for number, (images, y) in enumerate(batches, 1):
            x = images.clone() if again else images  # a later step has images of its own
            with scribe:
                _step(number, functools.partial(_loss, model, x, y), hooks, scribe)


def _loss(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(images), labels)


def _step(number: int, forward: Callable[[], Tensor], hooks: tuple[Any, ...], scribe: Scribe) -> None:
    pack, unpack = hooks
    kept: list[Any] = []

    def packed(tensor: Tensor) -> int:
        scribe.mark(f"saved {number}.{len(kept)}", tensor)
        kept.append(_without_dots(pack(tensor)))
        return len(kept)  # what autograd holds is no tensor: one that its own node holds would never be freed

    with torch.autograd.graph.saved_tensors_hooks(packed, lambda one: one):
        loss = forward()
    gc.collect()
    scribe.mark(f"forward {number}")
    for place in reversed(range(len(kept))):
        back = _without_dots(unpack(kept.pop()))
        tensor = isinstance(back, Tensor)
        scribe.mark(f"back {number}.{place} {type(back).__name__}", back if tensor else None)
        del back
    del loss


def _without_dots(value: Any) -> Any:
    if has_dots(value):
        raise TypeError("an ellipsis is no tensor")
    return value


def judge(record: Record, batch: int = BATCH, seed: int = 1) -> Seen:
    """What a record comes to, on weights and images drawn from this seed. Raises Refused."""
    values = named_inputs(dict(network(seed).named_parameters()), {}, _batches(batch, seed))
    record.require_marks("".join(MARKS.format(number) for number in (1, 2)))
    found = replay(record, {name: one.detach() for name, one in values.items()})
    own, given = (
        {ref.storage for name, ref in record.inputs.items() if name.startswith(kind)} for kind in ("parameter", "batch")
    )
    least, marks = least_bytes(batch), {name: ref for name, ref in record.marks.items() if ref is not None}
    copies = {name: ref.storage for name, ref in marks.items() if name.startswith("put ")}
    plain = replay(_unmoved(batch), {name: one.detach() for name, one in values.items()})
    for name, tensor in plain.handed.items():
        if name.startswith("saved ") and not (name in marks and torch.equal(found.handed[name], tensor)):
            raise Refused("autograd saves other tensors than these")
    for one in found.ran:  # the host copies, and nobody else has to do with its memory
        touched = {ref.storage for ref in (*one.read, *one.made)}
        if one.name != "clone" and not touched.isdisjoint(copies.values()):
            raise Refused("what is on the host is used there")
    steps, wrong, alive = [], [], 0
    for number in (1, 2):
        names = [name for name in marks if name.startswith(f"saved {number}.")]
        if not names:
            raise Refused("a forward pass is missing")
        backs = {name.split()[1]: name for name in record.marks if name.startswith(f"back {number}.")}
        saved, differences = [], []
        for name in names:
            truth, place = found.handed[name], name.split()[1]
            back = marks.get(backs.get(place, ""))
            put = any(torch.equal(found.handed[copy], truth) for copy in copies if _alike(found.handed[copy], truth))
            storage = marks[name].storage
            moved = back is None or back.storage != storage
            saved.append(Saved(storage in own, storage in given, truth.nbytes, moved, moved and put))
            back_name = backs.get(place, "nothing")
            differences.append(_difference(found.handed.get(back_name, back_name.split()[-1]), truth))
        living = found.living[f"forward {number}"]
        small = {marks[name].storage for name in names if living.get(marks[name].storage, least) < least}  # these stay
        left = sum(living[n] for n in living.keys() - own - given - small - set(copies.values()))
        alive += left if left >= least else 0
        steps.append(tuple(saved))
        wrong.append(next(filter(None, reversed(differences)), ""))
    share = max(most / without for most, without in zip(_most(found), _most(plain), strict=True))
    return Seen("hooks", steps[0], steps[1], alive, (wrong[0], wrong[1]), least, len(copies), share)


def _most(found: Replayed) -> list[int]:
    """The most bytes alive in each step where a tensor is saved or back, those of its inputs and of the host's aside.

    What hooks compute in between, to print it maybe, has gone by then.
    """
    puts = [(found.done[name], one.nbytes) for name, one in found.handed.items() if name.startswith("put ")]
    most = [0, 0]
    for name, alive in found.alive.items():
        if name.startswith(("saved ", "back ")):
            outside = sum(size for when, size in puts if when <= found.done[name])
            step = int(name.split()[1][0]) - 1
            most[step] = max(most[step], alive - found.given - outside)
    return most


@functools.lru_cache(maxsize=4)
def _unmoved(batch: int) -> Record:
    """A record in which all that autograd saves stays as it is."""
    return record(lambda model, least, host: (lambda one: one, lambda one: one), batch, write=written)


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _difference(back: object, truth: Tensor) -> str:
    """How what came back differs from what was saved, in words; "" if it does not, to the last bit."""
    if not isinstance(back, Tensor):
        return f"a {back} in place of a tensor"
    if back.shape != truth.shape:
        return f"a tensor of shape {tuple(back.shape)} in place of {tuple(truth.shape)}"
    if back.dtype != truth.dtype:
        return f"{back.dtype} in place of {truth.dtype}"
    if torch.equal(back, truth):
        return ""
    return "rounded values" if torch.allclose(back, truth, rtol=1e-2, atol=1e-4) else "other values"
