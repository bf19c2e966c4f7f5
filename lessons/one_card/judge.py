"""A layer that a learner wrote to adapt a frozen one, judged by what it does: LoRA's properties, however it is written.

Nothing here knows a right answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lessons.shared.compared import same
from lessons.shared.tensors import own_kind
from lessons.shared.watched import members

RANK = 4
RATE = 0.5


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


def adapt(network: nn.Module, wrap: Callable[[nn.Linear, int], nn.Module], rank: int = RANK) -> nn.Module:
    """Freeze a network, and put `wrap(layer, rank)` in the place of each of its linear layers. Returns the network."""
    network.requires_grad_(False)
    for name, layer in list(network.named_children()):
        if isinstance(layer, nn.Linear):
            setattr(network, name, wrap(layer, rank))
    return network


def allowed_bytes(network: nn.Module, rank: int = RANK) -> int:
    """What LoRA of this rank trains beside a network's linear layers: rank · (inputs + outputs) values of float32."""
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    return 4 * rank * sum(layer.in_features + layer.out_features for layer in linear)


@dataclass(frozen=True)
class Adapted:
    """What a look at an adapted network found; what follows one that does not hold means little.

    Attributes:
        kind: type of what a wrapped layer returns.
        same_objects: whether all parameters of the original are still there, the very same ones.
        frozen: whether none of them is trained.
        unchanged: whether they have their values after training.
        same_at_start: whether the outputs are the original's before training.
        trained_bytes: of parameters that are trained.
        allowed_bytes: that may be.
        learning: how many of `layers` give other results after training, by what is trained beside them.
        linear: how many of them add a linear function of what enters them, whatever their own parameters are.
        of_rank: how many of them add a matrix of the rank asked for, whatever their own parameters are.
        passing: how many of them pass all of their gradient on to what enters them.
        layers: that are adapted.
    """

    kind: str = ""
    same_objects: bool = False
    frozen: bool = False
    unchanged: bool = False
    same_at_start: bool = False
    trained_bytes: int = 0
    allowed_bytes: int = 0
    learning: int = 0
    linear: int = 0
    of_rank: int = 0
    passing: int = 0
    layers: int = 0

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "the frozen layers are the same objects": self.same_objects,
            "they stay frozen": self.frozen and self.unchanged,
            "same output at the start": self.same_at_start,
            "few enough trained bytes": 0 < self.trained_bytes <= self.allowed_bytes,
            "every layer learns": 0 < self.layers == self.learning,
            "what is added is linear": self.layers == self.linear,
            "what is added has the rank asked for": self.layers == self.of_rank,
            "gradients pass": self.layers == self.passing,
        }


def look(wrap: Callable[[nn.Linear, int], nn.Module], batch: int, seed: int = 0, rank: int = RANK) -> Adapted:
    """Adapt a network of random weights, train it two steps on random data, and compare it with the original.

    Raises whatever the learner's code raises.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Reader()
        original = dict(network.named_parameters())
        values = {name: parameter.detach().clone() for name, parameter in original.items()}
        most = allowed_bytes(network, rank)
        x, labels = torch.randn(batch, 24), torch.randint(10, (batch,))
        wanted = network(x).detach()
        linear = {name: layer for name, layer in network.named_children() if isinstance(layer, nn.Linear)}
        adapt(network, wrap, rank)
        inputs = {name: torch.randn(5, layer.in_features) for name, layer in linear.items()}
        returned = [getattr(network, name)(inputs[name]) for name in linear]
        found = Adapted(
            kind=next((type(one).__name__ for one in returned if not isinstance(one, Tensor)), "Tensor"),
            layers=len(linear),
            allowed_bytes=most,
        )
        if found.kind != "Tensor":
            return found
        given = own_kind(network(x))
        parameters = [one for one in members(network).values() if isinstance(one, nn.Parameter)]
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        present = {id(parameter) for parameter in parameters}
        found = replace(
            found,
            same_objects=all(id(parameter) in present for parameter in original.values()),
            frozen=not any(parameter.requires_grad for parameter in original.values()),
            same_at_start=same(given, wanted),
            trained_bytes=sum(parameter.numel() * parameter.element_size() for parameter in trained),
        )
        network.eval()  # dropout on the way to the matrices is theirs to choose
        before = {name: _through(network, name, inputs[name]).detach().clone() for name in linear}
        if trained:
            _train(network, trained, x, labels)
        network.eval()
        after = {name: _through(network, name, inputs[name]).detach() for name in linear}
        kept = all(torch.equal(parameter, values[name]) for name, parameter in original.items())
        with torch.no_grad():
            matrices, others = (_drawn(network, trained, linear) for _ in "12")
            straight = [_is_linear(getattr(network, name), layer, inputs[name]) for name, layer in linear.items()]
        passing = sum(_passes(getattr(network, name), inputs[name]) for name in linear)
    by_parameters = {name: not torch.allclose(matrix, others[name]) for name, matrix in matrices.items()}
    learning = sum(by_parameters[name] and not torch.equal(before[name], after[name]) for name in linear)
    of_rank = sum(int(torch.linalg.matrix_rank(matrix, rtol=1e-3)) == rank for matrix in matrices.values())
    return replace(
        found, unchanged=kept, learning=learning, linear=sum(straight), of_rank=of_rank, passing=passing
    )


def _through(network: nn.Module, name: str, x: Tensor) -> Tensor:
    """What the layer of this name makes of x."""
    return own_kind(getattr(network, name)(x))


def _drawn(network: nn.Module, trained: list[nn.Parameter], linear: dict[str, nn.Linear]) -> dict[str, Tensor]:
    """With random numbers in all that is trained: what is added to each layer, as a matrix (inputs, outputs)."""
    for parameter in trained:
        parameter.normal_()
    ones = {name: torch.eye(layer.in_features) for name, layer in linear.items()}
    return {name: _through(network, name, ones[name]) - layer(ones[name]) for name, layer in linear.items()}


def _is_linear(adapted: nn.Module, layer: nn.Linear, x: Tensor) -> bool:
    """Whether what is added to the layer's result at x, its double and its opposite is one, two and minus one of it."""
    one, two, less = (own_kind(adapted(times * x)) - layer(times * x) for times in (1, 2, -1))
    near = 1e-4 * float(max(one.abs().max(), layer(x).abs().max()))  # as close as sums of float32 are
    return all(torch.allclose(got, times * one, rtol=0, atol=near) for got, times in ((two, 2), (less, -1)))


def _passes(adapted: nn.Module, x: Tensor) -> bool:
    """Whether the gradient of an affine function is the whole one: times x it is what the function adds to f(0)."""
    x = x.clone().requires_grad_()
    total = own_kind(adapted(x)).sum()
    if not total.requires_grad:
        return False
    (slope,) = torch.autograd.grad(total, x, allow_unused=True)
    wanted = total - own_kind(adapted(torch.zeros_like(x))).sum()
    return slope is not None and bool((slope * x).sum().sub(wanted).abs() <= 1e-3 * (1 + (slope * x).abs().sum()))


def _train(network: nn.Module, trained: list[nn.Parameter], x: Tensor, labels: Tensor) -> None:
    network.train()
    optimizer = torch.optim.SGD(trained, lr=RATE)
    for _ in range(2):  # the matrix that is 0 moves in the first step, and so the other in the second
        output = network(x)
        if not output.requires_grad:
            return
        nn.functional.cross_entropy(output, labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
