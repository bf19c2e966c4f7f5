"""A small language model whose loss a learner rewrites, judged by what it does: same loss, same gradients, its peak.

Nothing here knows a right answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lessons.shared.compared import PeakComparison, same, same_gradients, same_rows
from lessons.shared.replay.form import Record
from lessons.shared.replay.steps import Trial
from lessons.shared.replay.witness import Write, recorded

WORDS = 4096
SHARE = 0.25  # of the original's peak, which the rewritten one may have at most: too little for 18 bits of every logit
RELATIVE = 1e-5  # a sum in another order is off by less, and in some row one of values in 18 bits by more
# Texts, tokens: 33, 127, 201 and 241 in all. Every size that divides 32, 126, 200 or 240 leaves one for a last piece.
OTHERS = ((3, 11), (1, 127), (3, 67), (1, 241))
SPREAD = 8.0  # times as far apart as at first logits are judged: there fewer bits show
ROUNDED = 1e-2  # as little as what fewer bits than float32's leave


class Reader(nn.Module):
    """Embedding, hidden layer, head: the loss of guessing the labels, from all logits at once."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, hidden)
        self.body = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU())
        self.head = nn.Linear(hidden, WORDS, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """(texts, tokens) token ids, and a label for each -> the mean cross entropy."""
        maps = self.body(self.embedding(ids))
        logits = self.head(maps)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


@dataclass(frozen=True)
class PiecesComparison(PeakComparison):
    """How a rewritten reader stands beside the original; the output is the loss."""

    loss_factor: float = 0.0  # the loss as a multiple of the original's
    rounded: bool = False  # loss and gradients are right but for their last digits
    most_values: int = 0  # alive at once, whatever their types
    original_values: int = 1
    alike_factor: float = 0.0  # the same where all tokens are alike: whole if means of pieces are added up
    again: bool = False  # something is computed a second time
    without_gradient: tuple[str, ...] = ()  # names of parameters that get none

    @property
    def low_enough(self) -> bool:
        """Whether the peak is, in bytes and in values: logits of fewer bits are as many."""
        return 0 < self.peak <= SHARE * self.original_peak and self.most_values <= SHARE * self.original_values

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "parameters kept": not self.parameters_differ,
            "same loss": self.same_output and not self.elsewhere,
            "same gradients": self.same_gradients,
            "peak low enough": self.low_enough,
        }


@functools.lru_cache(maxsize=4)
def _trial(texts: int, tokens: int, seed: int) -> Trial:
    """A `Reader`, and random tokens with labels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        original = Reader()
        batch, *others = [tuple(torch.randint(WORDS, size) for _ in "12") for size in ((texts, tokens), *OTHERS)]
        original.head.weight.detach().mul_(SPREAD)
    return Trial(original, [batch], others=others)


def record(
    make: Callable[[], nn.Module], texts: int = 4, tokens: int = 63, seed: int = 0, write: Write = recorded
) -> Record:
    """One step of `make()` as a record. Raises whatever the learner's code raises, and Refused."""
    return _trial(texts, tokens, seed).record(make, write=write)


def judge(record: Record, texts: int = 4, tokens: int = 63, seed: int = 1) -> PiecesComparison:
    """What a record comes to beside a step of a `Reader`, on weights and tokens drawn from this seed.

    Raises Refused.
    """
    trial = _trial(texts, tokens, seed)
    if differ := trial.differing(record):
        return PiecesComparison(parameters_differ=differ)
    ours, theirs = trial.beside(record)
    (wanted,), (given,) = ours.each, theirs.each
    seen = PiecesComparison(
        returned=given.returned, trainable=bool(given.gradients), peak=theirs.peak, original_peak=ours.peak,
        most_values=theirs.most_values, original_values=ours.most_values,
        again=len(theirs.replayed.operators) > len(ours.replayed.operators),
        without_gradient=tuple(name for name in wanted.gradients if name not in given.gradients),
    )  # fmt: skip
    if given.output is None or wanted.output is None:
        return seen
    seen = replace(
        seen,
        shape=tuple(given.output.shape),
        same_output=same(given.output, wanted.output, RELATIVE),
        elsewhere=trial.elsewhere(ours, theirs, RELATIVE),
        loss_factor=float(given.output / wanted.output) if given.output.dim() == 0 else 0.0,
        same_gradients=same_gradients(given.gradients, wanted.gradients, RELATIVE)
        and same_rows(given.gradients, wanted.gradients, RELATIVE),
        rounded=same(given.output, wanted.output, ROUNDED)
        and same_gradients(given.gradients, wanted.gradients, ROUNDED),
    )
    if seen.same_output or seen.shape:
        return seen
    alike = replace(trial, batches=[tuple(torch.zeros_like(one) for one in trial.batches[0])])
    one, other = (steps.each[0].output for steps in alike.beside(record))
    return replace(seen, alike_factor=0.0 if one is None or other is None else float(other / one))
