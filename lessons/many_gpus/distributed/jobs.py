"""What the lesson's processes do: average gradients in a ring, and split dense layers by units.

Each function runs in every one of the processes that `launch.run` starts; `dist.get_rank()` says which one it is. What
they are compared with, on one process, are `gradient` and `whole_layers`. Imports little, for every process starts
anew: must never import anything of ours but `networks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils import networks


def network() -> nn.Module:
    """The small convolutional network on digits of 8 x 8, with the same weights wherever it is made."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return networks.small_cnn(channels=1, size=8)


def gradient(images: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the mean loss of these samples, of all parameters of `network` in one vector."""
    model = network()
    loss = F.cross_entropy(model(images), labels)
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])


# -- data parallel ---------------------------------------------------------------------------------------------------


def ring_all_reduce(values: Tensor) -> int:
    """Add up a vector over all processes, in place, by passing chunks round a ring; returns the bytes this one sent."""
    rank, cards = dist.get_rank(), dist.get_world_size()
    chunks, sent = list(values.tensor_split(cards)), 0
    for step in range(2 * (cards - 1)):
        gathering = step >= cards - 1
        out = (rank - step + (cards if gathering else 0)) % cards
        arriving = torch.empty_like(chunks[(out - 1) % cards])
        request = dist.isend(chunks[out].clone(), (rank + 1) % cards)
        dist.recv(arriving, (rank - 1) % cards)
        if request is not None:  # None where a process is not part of the group
            request.wait()
        sent += chunks[out].numel() * chunks[out].element_size()
        if gathering:
            chunks[(out - 1) % cards].copy_(arriving)
        else:
            chunks[(out - 1) % cards].add_(arriving)
    return sent


def averaged_gradients(images: Tensor, labels: Tensor, shards: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Each process takes its part of the samples; gradients of means are averaged in a ring.

    Args:
        images: all samples.
        labels: theirs.
        shards: one list for each experiment: samples of each process, which add up to all.

    Returns:
        For each experiment. own: the gradient of this process's samples; average: that of all; weighed: the same, each
        weighed by its number of samples; sent: bytes for one average.
    """
    rank, cards, found = dist.get_rank(), dist.get_world_size(), []
    for sizes in shards:
        first, count = sum(sizes[:rank]), sizes[rank]
        own = gradient(images[first : first + count], labels[first : first + count])
        average, weighed = own.clone(), own * count / sum(sizes)
        sent = ring_all_reduce(average)
        average /= cards
        ring_all_reduce(weighed)
        found.append({"own": own, "average": average, "weighed": weighed, "sent": sent})
    return found


# -- split by units --------------------------------------------------------------------------------------------------


class Gather(torch.autograd.Function):
    """Units of all processes side by side.

    Its backward pass returns the columns of a process's own units. `summed` is True where every process goes on with
    units of its own, so that each knows a part of the gradient and the parts are added up first; False where all go on
    alike and each knows the whole.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, summed: bool) -> Tensor:
        """(n, units) on each process to (n, units of all)."""
        ctx.summed = summed
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own.contiguous())
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """(n, units of all) to (n, units)."""
        gradient = gradients[0].contiguous()
        if ctx.summed:
            dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size(), dim=1)[dist.get_rank()].contiguous(), None


def dense_weights() -> list[Tensor]:
    """Weights of two dense layers, 64 to 128 and 128 to 10 units, the same everywhere: (128, 64) and (10, 128)."""
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(128, 64, generator=draw) / 8, torch.randn(10, 128, generator=draw) / 11]


def split_layers(images: Tensor, labels: Tensor) -> dict[str, Any]:
    """Each process keeps its share of the units of both layers, and runs all samples, (n, 64), through them.

    Returns:
        scores, loss: of all samples; gradients: of this process's rows of the two weights.
    """
    rank, cards = dist.get_rank(), dist.get_world_size()
    mine = [weight.chunk(cards)[rank].clone().requires_grad_() for weight in dense_weights()]
    hidden: Tensor = Gather.apply(F.relu(images @ mine[0].T), True)  # type: ignore[no-untyped-call]
    scores: Tensor = Gather.apply(hidden @ mine[1].T, False)  # type: ignore[no-untyped-call]
    return _trained(scores, labels, mine)


def whole_layers(images: Tensor, labels: Tensor) -> dict[str, Any]:
    """The same two layers on one process."""
    weights = [weight.requires_grad_() for weight in dense_weights()]
    return _trained(F.relu(images @ weights[0].T) @ weights[1].T, labels, weights)


def _trained(scores: Tensor, labels: Tensor, weights: list[Tensor]) -> dict[str, Any]:
    loss = F.cross_entropy(scores, labels)
    loss.backward()
    return {"scores": scores.detach(), "loss": loss.item(), "gradients": [weight.grad for weight in weights]}
