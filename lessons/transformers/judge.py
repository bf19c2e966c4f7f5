"""A small language model whose loss a learner rewrites, judged by what it does: same loss, same gradients, its peak.

Nothing here knows a right answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lessons.shared.compared import PeakComparison, same, same_gradients, take_weights
from lessons.shared.tensors import own_kind
from lessons.shared.watched import Watch, apart, forget, members, no_garbage_collection

WORDS = 4096
SHARE = 0.3  # of the original's peak, which the rewritten one may have at most
RELATIVE = 1e-3  # a sum in another order is off by less


class Reader(nn.Module):
    """Embedding, a hidden layer and a head: the loss of guessing each token's label, from all logits at once."""

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
    alike_factor: float = 0.0  # the same where all tokens are alike: whole if means of pieces are added up
    again: bool = False  # something is computed a second time

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "parameters kept": not self.parameters_differ,
            "same loss": self.same_output,
            "same gradients": self.same_gradients,
            "peak low enough": 0 < self.peak <= SHARE * self.original_peak,
        }


@dataclass(frozen=True)
class _Step:
    loss: object
    trainable: bool
    gradients: dict[str, Tensor]
    peak: int
    operators: int  # that launched a kernel


def _step(network: nn.Module, ids: Tensor, labels: Tensor) -> _Step:
    return apart(lambda: _watched_step(network, ids, labels))


def _watched_step(network: nn.Module, ids: Tensor, labels: Tensor) -> _Step:
    parameters = members(network)
    forget(parameters)
    with no_garbage_collection():
        watch = Watch()
        watch.begin(*parameters.values(), ids, labels)
        with watch:
            loss = network(ids, labels)
        one = isinstance(loss, Tensor) and own_kind(loss).dim() == 0
        seen = loss.detach().clone() if isinstance(loss, Tensor) else loss
        trainable = one and loss.requires_grad
        with watch:  # also while the graph goes, whose end may call what is in it
            if trainable:
                loss.backward()
            del loss
    gradients = {name: own_kind(p.grad).clone() for name, p in parameters.items() if p.grad is not None}
    return _Step(seen, trainable, gradients, watch.peak, len(watch.operators))


def compare(make: Callable[[], nn.Module], texts: int = 4, tokens: int = 63, seed: int = 0) -> PiecesComparison:
    """Compare `make()` with a `Reader` of the same weights in one step on random tokens.

    Raises whatever the learner's code raises.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        original, rewritten = Reader(), make()
        if differ := take_weights(rewritten, original):
            return PiecesComparison(parameters_differ=differ)
        ids, labels = (torch.randint(WORDS, (texts, tokens)) for _ in range(2))
        for network in (original, rewritten):  # a process's first step imports parts of torch, which hold on to it
            _step(network, ids, labels)
        wanted, given = _step(original, ids, labels), _step(rewritten, ids, labels)
        alike = 0.0
        if isinstance(given.loss, Tensor) and given.loss.dim() == 0:
            equal = torch.zeros_like(ids)
            with torch.no_grad():
                alike = float(rewritten(equal, equal) / original(equal, equal))
    seen = PiecesComparison(
        returned=type(given.loss).__name__, trainable=given.trainable, peak=given.peak, original_peak=wanted.peak,
        again=given.operators > wanted.operators,
    )  # fmt: skip
    if not isinstance(given.loss, Tensor) or not isinstance(wanted.loss, Tensor):
        return seen
    return replace(
        seen,
        shape=tuple(given.loss.shape),
        same_output=same(given.loss, wanted.loss, RELATIVE),
        loss_factor=float(given.loss / wanted.loss) if given.loss.dim() == 0 else 0.0,
        alike_factor=alike,
        same_gradients=same_gradients(given.gradients, wanted.gradients, RELATIVE),
    )
