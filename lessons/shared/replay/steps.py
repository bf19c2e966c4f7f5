"""Training steps of a network as a record, and what they come to on fresh values beside the original's.

`record_steps` writes the record, in the process of the answer. `run` replays it, in any other: outputs, gradients and
bytes by the same rules for an answer as for the original, which goes the same way.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lessons.shared.compared import same, take_weights
from lessons.shared.replay.form import Record, Refused
from lessons.shared.replay.replayer import Replayed, replay
from lessons.shared.replay.witness import Begin, Write, recorded, written

Batch = tuple[Tensor, ...]
ELSEWHERE = (
    "What it returns is right for the batches that it is trained on, and not everywhere: in evaluation, on a batch of "
    "{}, it is another result than the original's."
)
REENTRANT = "CheckpointFunctionBackward"  # the node of a checkpoint in the way of old, and a mark where there is one


def record_steps(
    make: Callable[[], nn.Module],
    batches: Sequence[Batch],
    classes: int | None = None,
    others: Sequence[Batch] = (),
    write: Write = recorded,
) -> Record:
    """A record of a forward and a backward pass of a network that is made on each batch, and then its output on others.

    Others go through it in evaluation mode, without gradients: they may have other sizes.

    The loss is the cross entropy of scores of so many classes with the labels that come last in a batch, or, without
    classes, what the network returns of all of the batch.

    What it hands out, for step 1 and so on: "returned 1 Tensor", "output 1", "gradient 1 NAME", "end 1"; and then
    "evaluated 1" and so on. A backward pass follows if the output has the right shape and a gradient.

    Raises what the network raises; Refused, as `recorded`.
    """
    warm_up()

    def steps(begin: Begin) -> None:
        network = make()
        parameters, buffers = dict(network.named_parameters()), dict(network.named_buffers())
        training = network.training
        before = {name: one.clone() for name, one in buffers.items()}
        scribe = begin(named_inputs(parameters, buffers, batches, others))
        for _ in range(scribe.again):
            network.train(training)
            for name, one in before.items():
                buffers[name].copy_(one)  # as at first: a batch norm's running mean goes on
            for number, batch in enumerate(batches, 1):
                network.zero_grad(set_to_none=True)
                torch.manual_seed(number)  # in each step dropout draws from the same state, whatever the others drew
                with scribe:
                    output = network(*(batch if classes is None else batch[:-1]))
                    scribe.mark(f"returned {number} {type(output).__name__}")
                    if isinstance(output, Tensor):
                        scribe.mark(f"output {number}", output)
                        if REENTRANT in _nodes(output):
                            scribe.mark(REENTRANT)
                        if output.requires_grad and tuple(output.shape) == shape_of(batch, classes):
                            value = output if classes is None else nn.functional.cross_entropy(output, batch[-1])
                            del output  # the loss has what it needs of it
                            value.backward()
                            del value
                    for name, parameter in parameters.items():
                        if parameter.grad is not None:
                            scribe.mark(f"gradient {number} {name}", parameter.grad)
                    output = None
                    scribe.mark(f"end {number}")
            network.eval()
            for number, batch in enumerate(others, 1):
                with scribe, torch.no_grad():
                    output = network(*(batch if classes is None else batch[:-1]))
                    scribe.mark(f"evaluated {number}", output if isinstance(output, Tensor) else None)
                    output = None

    return write(steps)


def shape_of(batch: Batch, classes: int | None) -> tuple[int, ...]:
    """The shape that an output is to have."""
    return () if classes is None else (len(batch[0]), classes)


def _nodes(output: Tensor) -> set[str]:
    """Kinds of the autograd nodes behind a tensor."""
    found, waiting = set[object](), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [before for before, _ in node.next_functions]
    return {type(one).__name__ for one in found}


def named_inputs(
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    batches: Sequence[Batch],
    others: Sequence[Batch] = (),
) -> dict[str, Tensor]:
    """What goes into a record, by name: "parameter NAME", "buffer NAME", "batch 1.0", "other 1.0" and so on."""
    return {
        **{f"parameter {name}": tensor for name, tensor in parameters.items()},
        **{f"buffer {name}": tensor for name, tensor in buffers.items()},
        **{f"batch {k}.{i}": one for k, batch in enumerate(batches, 1) for i, one in enumerate(batch)},
        **{f"other {k}.{i}": one for k, batch in enumerate(others, 1) for i, one in enumerate(batch)},
    }


@functools.cache
def warm_up() -> None:
    """Have a process's first step, in which torch imports parts of itself that hold on to what is there, behind us."""
    x = torch.ones(1, requires_grad=True)
    checkpoint(torch.exp, x, use_reentrant=False).backward()


@dataclass(frozen=True)
class Step:
    """What one step comes to.

    Attributes:
        returned: type of what the network returned.
        output: that, where it is a tensor.
        gradients: by name of the parameter.
        left: bytes alive when it has ended, those of its inputs and gradients aside.
        operators: that launched a kernel in it.
    """

    returned: str
    output: Tensor | None
    gradients: dict[str, Tensor]
    left: int
    operators: int


@dataclass(frozen=True)
class Steps:
    """What a record comes to: its steps, and all that ran in them."""

    each: tuple[Step, ...]
    replayed: Replayed
    evaluated: tuple[Tensor | None, ...] = ()  # outputs on others
    evaluating: tuple[int, ...] = ()  # operators that launched a kernel for each of them
    beside: tuple[int, int] = (0, 0)  # bytes and values of the others, which wait through all steps

    @property
    def peak(self) -> int:
        """The most bytes alive at once, with a momentum beside each parameter that has a gradient."""
        return self.replayed.peak - self.beside[0] + sum(one.nbytes for one in self._momentum.values())

    @property
    def most_values(self) -> int:
        """The most values alive at once, whatever their types, with the same beside them."""
        return self.replayed.most_values - self.beside[1] + sum(one.numel() for one in self._momentum.values())

    @property
    def _momentum(self) -> dict[str, Tensor]:
        return {name: one for step in self.each for name, one in step.gradients.items()}


def run(record: Record, values: Mapping[str, Tensor], seed: int = 0, steps: int = 1, others: int = 0) -> Steps:
    """What a record of so many steps, and others, comes to on these values, and with draws from this seed.

    Raises Refused.
    """
    evaluated = [f"evaluated {number}" for number in range(1, 1 + others)]
    record.require_marks("".join([*map(_marks_of, range(1, 1 + steps)), *(rf"{name}\n" for name in evaluated)]))
    found = replay(record, values, seed)
    each, begin = [], 0
    for number in range(1, 1 + steps):
        returned = next((n.split()[-1] for n in found.alive if n.startswith(f"returned {number} ")), "")
        prefix = f"gradient {number} "
        gradients = {n.removeprefix(prefix): one for n, one in found.handed.items() if n.startswith(prefix)}
        left = found.alive[f"end {number}"] - found.given - sum(one.nbytes for one in gradients.values())
        end = found.done[f"end {number}"]
        operators = _launched(found, begin, end)
        each.append(Step(returned, found.handed.get(f"output {number}"), gradients, left, operators))
        begin = end
    ends = [begin, *(found.done[name] for name in evaluated)]
    launched = tuple(_launched(found, *span) for span in itertools.pairwise(ends))
    waiting = [value for name, value in values.items() if name.startswith("other ")]
    beside = sum(one.nbytes for one in waiting), sum(one.numel() for one in waiting)
    trained = replace(found, ran=found.ran[:begin])  # so that no peak is one of evaluation
    return Steps(tuple(each), trained, tuple(map(found.handed.get, evaluated)), launched, beside)


def _launched(found: Replayed, begin: int, end: int) -> int:
    return sum(one.launched for one in found.ran[begin:end])


def _marks_of(number: int) -> str:
    """What `record_steps` hands out of a step, in this order, as a pattern of names."""
    output = rf"(output {number}\n({REENTRANT}\n)?)?"
    return rf"returned {number} \w+\n{output}(gradient {number} [^\n]+\n)*end {number}\n"


@dataclass(frozen=True)
class Trial:
    """What an answer is recorded on, and what its record is judged on: an original with its values, and batches.

    Attributes:
        original: the network in whose place another one stands, with weights of its own.
        batches: one for each step.
        classes: of its scores; None where it returns its loss.
        seed: of what dropout draws.
        others: batches on which the output alone is judged, in evaluation.
    """

    original: nn.Module
    batches: Sequence[Batch]
    classes: int | None = None
    seed: int = 0
    others: Sequence[Batch] = ()

    def record(self, make: Callable[[], nn.Module], training: bool = True, write: Write = recorded) -> Record:
        """Steps of another network with the original's weights. Raises what it raises, and Refused."""

        def changed() -> nn.Module:
            network = make()
            if not training:
                network.eval()
            take_weights(network, self.original)
            return network

        return record_steps(changed, self.batches, self.classes, self.others, write)

    def differing(self, record: Record) -> str:
        """Up to three names of parameters or buffers whose sizes are not the original's, with commas, or ""."""
        ours = {n: tuple(t.shape) for n, t in self.original.state_dict().items()}
        theirs = record.shapes("parameter ") | record.shapes("buffer ")
        return ", ".join(sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))[:3])

    def beside(self, record: Record) -> tuple[Steps, Steps]:
        """What the original and a record of sizes like its come to, both replayed. Raises Refused."""
        return self.original_steps, self.run(record)

    @functools.cached_property
    def original_steps(self) -> Steps:
        """What the original comes to."""
        training = self.original.training
        record = record_steps(lambda: self.original, self.batches, self.classes, self.others, written)
        self.original.train(training)
        return self.run(record)

    def run(self, record: Record) -> Steps:
        """What a record comes to on the original's values. Raises Refused, also where it changes a parameter."""
        values = self.values
        steps = run(record, values, self.seed, len(self.batches), len(self.others))
        for name, one in steps.replayed.ended.items():
            if name.startswith("parameter ") and not torch.equal(one, values[name]):
                raise Refused(f"it changes {name.removeprefix('parameter ')} by itself: that is an optimizer's work")
        return steps

    def elsewhere(self, ours: Steps, theirs: Steps, relative: float = 1e-4) -> str:
        """On which of the others two outputs differ, in words, or ""."""
        for batch, one, other in zip(self.others, ours.evaluated, theirs.evaluated, strict=True):
            if one is None or other is None or not same(other, one, relative):
                return ELSEWHERE.format(" × ".join(map(str, batch[-1].shape)))
        return ""

    @property
    def values(self) -> dict[str, Tensor]:
        """Those of all that goes into a record."""
        parameters, buffers = dict(self.original.named_parameters()), dict(self.original.named_buffers())
        return named_inputs(parameters, buffers, self.batches, self.others)
