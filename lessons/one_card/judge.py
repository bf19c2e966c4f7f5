"""A layer that a learner wrote to adapt a frozen one, judged by what it does: LoRA's properties, however it is written.

Nothing here knows a right answer.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lessons.shared.compared import same
from lessons.shared.replay.form import DTYPES, Mark, Operator, Record, Refused
from lessons.shared.replay.recorder import Births
from lessons.shared.replay.replayer import replay, slopes
from lessons.shared.replay.steps import warm_up
from lessons.shared.replay.witness import Begin, recorded

RANK = 4
FEW = 5  # rows of a second input, on which a layer runs in training and, without gradients, in evaluation
Values = dict[str, Tensor]
# Of a layer, by name.
MARKS = (
    r"{0} returned \w+\n({0} out\n)?(gradient {0} [^\n]+\n)*{0} training\n(again {0} [^\n]+\n)*{0} evaluated\n"
    r"(after {0} frozen \w+\n)+{0} end\n"
)


class Reader(nn.Module):
    """A small network of three layers that are to be adapted, and a norm that is not."""

    def __init__(self, width: int = 24, inner: int = 40, outputs: int = 10) -> None:
        super().__init__()
        self.enter = nn.Linear(width, inner, bias=False)
        self.norm = nn.LayerNorm(inner)
        self.middle = nn.Linear(inner, inner)
        self.leave = nn.Linear(inner, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(N, width) to (N, outputs)."""
        x = torch.tanh(self.norm(self.enter(x)))
        scores: Tensor = self.leave(torch.tanh(self.middle(x)))
        return scores


def adapt(
    network: nn.Module,
    wrap: Callable[[nn.Linear, int], nn.Module],
    rank: int = RANK,
) -> nn.Module:
    """Freeze a network, and put `wrap(layer, rank)` in place of each linear layer; returns it."""
    network.requires_grad_(False)
    for name, layer in list(network.named_children()):
        if isinstance(layer, nn.Linear):
            setattr(network, name, wrap(layer, rank))
    return network


@dataclass(frozen=True)
class Adapted:
    """What the layers of a network are when they were adapted; what follows one that does not hold means little.

    Attributes:
        kind: type of what a wrapped layer returns.
        kept: values that each wrapped layer holds beside the frozen one's, in whatever form, and does not train.
        used: whether what comes out depends on the frozen layers' own weights.
        frozen: whether none of these gets a gradient, or another value.
        same_at_start: whether the outputs are the original's before training.
        trained: values that it trains.
        allowed: values that it may train, and that it may keep: rank · (inputs + outputs).
        learning: how many of `layers` have parameters with a gradient, and all of them the right one.
        linear: how many of them add a linear function of what enters them, whatever their own parameters are.
        of_rank: how many of them add a matrix of the rank asked for, whatever their own parameters are.
        passing: how many of them pass all of their gradient on to what enters them.
        steady: how many of them do the same on fewer rows, in training as in evaluation, with gradients and without.
        layers: that are adapted.
    """

    kind: str = ""
    kept: tuple[int, ...] = ()
    used: bool = False
    frozen: bool = False
    same_at_start: bool = False
    trained: tuple[int, ...] = ()
    allowed: tuple[int, ...] = ()
    learning: int = 0
    linear: int = 0
    of_rank: int = 0
    passing: int = 0
    steady: int = 0
    layers: int = 0

    @property
    def returned(self) -> str:
        """The type of what a wrapped layer returns, by the name that marking knows."""
        return self.kind

    @property
    def copied(self) -> bool:
        """Whether a layer keeps more than its matrices may hold: a copy of the frozen weight, in whatever form."""
        return any(kept > allowed for kept, allowed in zip(self.kept, self.allowed, strict=True))

    @property
    def too_much(self) -> bool:
        """Whether a layer trains more values than it may."""
        return any(trained > allowed for trained, allowed in zip(self.trained, self.allowed, strict=True))

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "the frozen layers are the same objects": not self.copied and self.used,
            "they stay frozen": self.frozen,
            "same output at the start": self.same_at_start,
            "few enough trained values": any(self.trained) and not self.too_much,
            "every layer learns": 0 < self.layers == self.learning,
            "what is added is linear": self.layers == self.linear == self.steady,
            "what is added has the rank asked for": self.layers == self.of_rank,
            "gradients pass": self.layers == self.passing,
        }


def _layers(seed: int) -> dict[str, tuple[nn.Linear, dict[str, Tensor]]]:
    """The frozen layers of a `Reader`, with inputs for each, and weights of its outputs in a loss."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Reader().requires_grad_(False)
        return {
            name: (layer, {
                **{f"{name} frozen {key}": one.detach() for key, one in layer.named_parameters()},
                f"{name} x": torch.randn(layer.in_features, layer.in_features),
                f"{name} few": torch.randn(FEW, layer.in_features),
                f"{name} loss": torch.randn(layer.in_features, layer.out_features),
            })
            for name, layer in network.named_children() if isinstance(layer, nn.Linear)
        }  # fmt: skip


def record(wrap: Callable[[nn.Linear, int], nn.Module], rank: int = RANK, seed: int = 0) -> Record:
    """What each adapted layer does, forward and backward, without dropout.

    A parameter of its own is named "NAME trained KEY", or "kept" where it is none that is trained; those that begin at
    0 say so. What else was made with the layer and is there still is "NAME kept besides NUMBER".

    Raises whatever the learner's code raises, and Refused.
    """
    warm_up()
    return recorded(lambda begin: _run(wrap, rank, seed, begin), memory=False)


def _run(wrap: Callable[[nn.Linear, int], nn.Module], rank: int, seed: int, begin: Begin) -> None:
    layers = _layers(seed)
    before = {name: dict(layer.named_parameters()) for name, (layer, _) in layers.items()}  # a wrapper may add others
    adapted, births = {}, {name: Births() for name in layers}
    for name, (layer, _) in layers.items():
        with births[name]:
            adapted[name] = wrap(layer, rank).eval()
    gc.collect()
    as_given = {name: layer.state_dict() for name, (layer, _) in _layers(seed).items()}
    if not all(torch.equal(one, as_given[name][key]) for name in layers for key, one in before[name].items()):
        raise Refused("the frozen weights are not what they were before the layer was wrapped: leave them as they are")
    inputs: dict[str, Tensor] = {}
    own: dict[str, Tensor] = {}
    for name, (_, given) in layers.items():
        frozen = {id(one) for one in before[name].values()}
        inputs |= given | {f"{name} frozen {key}": one for key, one in before[name].items()}
        for key, one in (*adapted[name].named_parameters(), *adapted[name].named_buffers()):
            if id(one) not in frozen:
                kind = "trained" if one.requires_grad else "kept"
                own[f"{name} {kind}{'' if one.any() else ' from 0'} {key}"] = one
    known = {one.untyped_storage()._cdata for one in (*own.values(), *inputs.values())}
    for name in layers:
        besides = (values for address, values in births[name].alive.items() if address not in known)
        own |= {f"{name} kept besides {number}": torch.zeros(values) for number, values in enumerate(besides)}
    scribe = begin(inputs | own)
    with scribe:
        for name, (_, given) in layers.items():
            mine = {key: one for key, one in own.items() if key.startswith(f"{name} ")}
            theirs = {f"{name} frozen {key}": one for key, one in before[name].items()}
            x, few = given[f"{name} x"].requires_grad_(), given[f"{name} few"]
            out = adapted[name](x)
            scribe.mark(f"{name} returned {type(out).__name__}")
            if isinstance(out, Tensor):
                scribe.mark(f"{name} out", out)
                if out.requires_grad and out.shape == given[f"{name} loss"].shape:
                    (out * given[f"{name} loss"]).sum().backward()
            for key, one in {f"{name} x": x, **mine, **theirs}.items():
                if one.grad is not None:
                    scribe.mark(f"gradient {key}", one.grad)
            for one in (*mine.values(), *theirs.values()):
                one.grad = None
            adapted[name].train()
            out = adapted[name](few)
            scribe.mark(f"{name} training", out if isinstance(out, Tensor) else None)
            if isinstance(out, Tensor) and out.requires_grad:
                out.sum().backward()
            for key, one in (mine | theirs).items():
                if one.grad is not None:
                    scribe.mark(f"again {key}", one.grad)
            adapted[name].eval()
            with torch.no_grad():
                out = adapted[name](few)
                scribe.mark(f"{name} evaluated", out if isinstance(out, Tensor) else None)
            for key, one in theirs.items():
                scribe.mark(f"after {key}", one)
            del out
            scribe.mark(f"{name} end")


def judge(record: Record, rank: int = RANK, seed: int = 1) -> Adapted:
    """What a record comes to, on values drawn from this seed. Raises Refused."""
    layers = _layers(seed)
    given = {key: one for _, values in layers.values() for key, one in values.items()}
    own = {key: ref for key, ref in record.inputs.items() if key not in given}
    record.require_marks("".join(MARKS.format(name) for name in layers))
    if not all(re.match(rf"({'|'.join(layers)}) (trained|kept) ", key) for key in own):
        raise Refused("a parameter of no layer")
    draw = torch.Generator().manual_seed(seed)
    drawn = {key: torch.randn(ref.size, generator=draw).to(DTYPES[ref.dtype]) for key, ref in own.items()}
    start = {key: 0 * one if " from 0 " in key else one for key, one in drawn.items()}
    looked = [_look(record, name, layer, given, start, drawn, rank) for name, (layer, _) in layers.items()]
    trained = {key for key in own if " trained " in key or record.marks.get(f"gradient {key}")}

    def values(some: Iterable[str]) -> tuple[int, ...]:
        return tuple(sum(drawn[key].numel() for key in some if key.startswith(f"{name} ")) for name in layers)

    return Adapted(
        kind=next((one.kind for one in looked if one.kind != "Tensor"), "Tensor"),
        kept=tuple(map(sum, zip(values(own.keys() - trained), _left(record, {**given, **drawn}, layers), strict=True))),
        used=all(one.used for one in looked),
        frozen=all(one.frozen for one in looked),
        same_at_start=all(one.same_at_start for one in looked),
        trained=values(trained),
        allowed=tuple(rank * (layer.in_features + layer.out_features) for layer, _ in layers.values()),
        learning=sum(one.learning for one in looked),
        linear=sum(one.linear for one in looked),
        of_rank=sum(one.of_rank for one in looked),
        passing=sum(one.passing for one in looked),
        steady=sum(one.steady for one in looked),
        layers=len(layers),
    )


def _left(record: Record, values: Values, layers: Iterable[str]) -> Iterator[int]:
    """Values that each layer holds on to, of what it made when it ran; gradients aside."""
    found, width = replay(record, values), dict[int, int]()
    for ref in (ref for one in found.ran for ref in one.made):
        width[ref.storage] = min(width.get(ref.storage, 8), DTYPES[ref.dtype].itemsize)
    kinds = ("gradient ", "again ")
    gradients = (ref for key, ref in record.marks.items() if ref is not None and key.startswith(kinds))
    known = {ref.storage for ref in (*record.inputs.values(), *gradients)}  # written into, maybe, and not made
    for name in layers:
        left = found.living[f"{name} end"]
        new = left.keys() & width.keys() - known
        yield sum(left[number] // width[number] for number in new)
        known |= new


def _look(
    record: Record, name: str, layer: nn.Linear, given: Values, start: Values, drawn: Values, rank: int
) -> Adapted:
    """The same of one layer, its counts 0 or 1."""
    x, weights = given[f"{name} x"], given[f"{name} loss"]

    def added(entering: Tensor) -> Tensor:
        values = {**given, **drawn, f"{name} x": entering}
        more: Tensor = replay(record, values).handed[f"{name} out"] - layer(entering)
        return more

    begin = replay(record, {**given, **start})
    kind = next((key.split()[-1] for key in begin.alive if key.startswith(f"{name} returned ")), "nothing")
    if kind != "Tensor" or begin.handed[f"{name} out"].shape != weights.shape:
        return Adapted(kind=kind)
    slope = slopes(record, {**given, **start}, f"{name} out", weights)
    later = slopes(record, {**given, **drawn}, f"{name} out", weights)
    ran = replay(record, {**given, **drawn})
    mine = [key for key in start if key.startswith(f"{name} trained ")]
    frozen = [key for key in given if key.startswith(f"{name} frozen ")]
    right = all(_same(begin.handed.get(f"gradient {key}"), slope[key]) for key in mine)
    one, two, matrix = (added(entering) for entering in (x, 2 * x, torch.eye(len(x))))
    near = 1e-4 * float(max(one.abs().max(), layer(x).abs().max()))  # as close as sums of float32 are
    straight = torch.allclose(two, 2 * one, rtol=0, atol=near) and torch.allclose(x @ matrix, one, rtol=0, atol=near)
    base = layer(given[f"{name} few"])
    training, evaluated = (ran.handed.get(f"{name} {when}") for when in ("training", "evaluated"))
    twice = replay(record, {**given, **drawn, f"{name} few": 2 * given[f"{name} few"]}).handed.get(f"{name} training")
    wanted = base + given[f"{name} few"] @ matrix

    def close(found: Tensor | None, other: Tensor) -> bool:
        return found is not None and found.shape == other.shape and torch.allclose(found, other, rtol=0, atol=near)

    trains = close(training, wanted)
    if training is not None and twice is not None and _draws(record, name):  # dropout: a linear function, if not this
        doubled = layer(2 * given[f"{name} few"]) + 2 * (training - base)
        trains = close(twice, doubled) and not close(training, base)
    if trains:
        again = slopes(record, {**given, **drawn}, f"{name} training", torch.ones_like(base))
        right_again = (_same(ran.handed.get(f"again {key}"), again[key]) for key in mine)
        trains = all(right_again) and all(bool(again[key].any()) for key in mine if later[key].any())
    return Adapted(
        kind=kind,
        used=all(bool(slope[key].any()) for key in frozen),
        frozen=not any(f"{when} {key}" in record.marks for when in ("gradient", "again") for key in frozen)
        and all(torch.equal(ran.handed[f"after {key}"], given[key]) for key in frozen),
        same_at_start=same(begin.handed[f"{name} out"], layer(x)),
        learning=int(right and any(bool(slope[key].any()) for key in mine)),
        linear=int(straight),
        of_rank=int(int(torch.linalg.matrix_rank(matrix, rtol=1e-3)) == rank),
        passing=int(_same(ran.handed.get(f"gradient {name} x"), later[f"{name} x"])),
        steady=int(trains and close(evaluated, wanted)),
    )


def _draws(record: Record, name: str) -> bool:
    """Whether something is drawn while a layer runs in training."""
    names = [one.name if isinstance(one, Mark) else "" for one in record.entries]
    end = names.index(f"{name} training")
    begin = max((at for at, mark in enumerate(names[:end]) if mark), default=0)
    return any(isinstance(one, Operator) and one.draw is not None for one in record.entries[begin:end])


def _same(gradient: Tensor | None, wanted: Tensor) -> bool:
    """Whether a gradient is what is wanted; one that was not handed out is all 0."""
    found = torch.zeros_like(wanted) if gradient is None else gradient
    return same(found, wanted, 1e-3)
