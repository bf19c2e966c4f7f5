"""One training script for one card or many: single, DDP, or FSDP. Where to go when one card is not enough.

    python -m lessons.many_gpus.distributed.train
    torchrun --standalone --nproc-per-node 2 -m lessons.many_gpus.distributed.train --mode ddp
    torchrun --standalone --nproc-per-node 2 -m lessons.many_gpus.distributed.train --mode fsdp

Without GPUs the processes talk over gloo; where each machine has a GPU for each of its processes, over NCCL. All
modes see the same samples in the same order: process r of p takes rows r, r + p, ... of every batch, so the losses
agree to rounding. Process 0 prints one line of JSON: the mean loss of every step, and the bytes of parameters and
optimizer state it keeps.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from course_utils import networks

MODES = ("single", "ddp", "fsdp")


def wrapped(model: nn.Module, mode: str, device: torch.device) -> nn.Module:
    """The model as this mode trains it; its parameters are on `device`."""
    model = model.to(device)
    if mode == "ddp":
        ids = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=ids)
    if mode == "fsdp":
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in model.children():
            if next(layer.parameters(), None) is not None:
                fully_shard(layer, mesh=mesh)  # gathered by itself, when it runs
        fully_shard(model, mesh=mesh)
    return model


def kept_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of parameters and optimizer state on this process; of a sharded tensor its own part."""
    tensors: list[Tensor] = list(model.parameters())
    tensors += [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    local = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in local)


def device_here(rank: int, processes: int) -> torch.device:
    """This process's own GPU if its machine has one for each of its processes, else the CPU.

    torchrun says how many run on this machine and which of them this is; without it all run here.
    """
    local = int(os.environ.get("LOCAL_RANK", rank))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    return torch.device("cuda", local) if torch.cuda.device_count() >= here else torch.device("cpu")


def train(mode: str, steps: int, batch: int, images: Tensor, labels: Tensor) -> tuple[list[float], int]:
    """Train the small convolutional network on images of 8 x 8.

    Args:
        mode: one of MODES; the last two in processes that have been introduced to one another.
        steps: how many.
        batch: samples of a step over all processes, a multiple of their number.
        images: (n, 1, 8, 8); the rows are used in order, and again from the first.
        labels: (n,).

    Returns:
        The mean loss of every step, and the bytes of parameters and optimizer state that this process keeps at the end.
    """
    rank, cards = (dist.get_rank(), dist.get_world_size()) if mode != "single" else (0, 1)
    device = device_here(rank, cards)
    torch.manual_seed(0)
    model = wrapped(networks.small_cnn(channels=1, size=8), mode, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        rows = torch.arange(step * batch, (step + 1) * batch)[rank::cards] % len(images)
        loss = F.cross_entropy(model(images[rows].to(device)), labels[rows].to(device))
        optimizer.zero_grad()
        loss.backward()  # here gradients are averaged over the processes
        optimizer.step()
        mean = loss.detach()
        if mode != "single":
            dist.all_reduce(mean)
        losses.append(mean.item() / cards)
    return losses, kept_bytes(model, optimizer)


def train_in(modes: Sequence[str], **arguments: Any) -> dict[str, tuple[list[float], int]]:
    """One mode after the other: mode -> what `train` returns."""
    return {mode: train(mode, **arguments) for mode in modes}


def main() -> None:
    """Read the command line, train, print."""
    parser = argparse.ArgumentParser(description="Train on the digits: on one card, with DDP, or with FSDP.")
    parser.add_argument("--mode", choices=MODES, nargs="+", default=["single"], help="one or several, in turn")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64, help="samples a step, over all processes")
    chosen = parser.parse_args()
    cards = int(os.environ.get("WORLD_SIZE", "1"))
    alone = chosen.mode == ["single"]
    if alone == ("RANK" in os.environ) or (not alone and "single" in chosen.mode):
        parser.error("start ddp and fsdp with torchrun, and single without, as the first lines of this file show")
    if chosen.steps < 1 or chosen.batch < 1 or chosen.batch % cards:
        parser.error(f"steps must be 1 or more, and batch a multiple of the {cards} processes")
    from lessons.shared import digits  # slow to import, and whoever calls `train` brings the images

    images, labels, _, _ = digits.images(side=8)
    if not alone:
        dist.init_process_group("nccl" if device_here(0, cards).type == "cuda" else "gloo")
    found = train_in(chosen.mode, steps=chosen.steps, batch=chosen.batch, images=images, labels=labels)
    if alone or dist.get_rank() == 0:
        for mode, (losses, kept) in found.items():
            print(json.dumps({"mode": mode, "processes": cards, "losses": losses, "kept_bytes": kept}))
    if not alone:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
