"""Scratch memory that convolutions ask of this GPU, beside the guess of it: `python -m benchmarks scratch`.

The guess is WORKSPACE_SHARE (`course_utils.techniques.offload.work`) of the maps that a convolution reads and writes.
Each is run by itself, with cuDNN's search for the fastest algorithm and without. No GPU has answered yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from course_utils.machine.card import free
from course_utils.machine.measure import peak_above, this_machine
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.offload.work import WORKSPACE_SHARE
from course_utils.units import MIB

ASKED = (("VGG-16", 16), ("VGG-16", 128), ("AlexNet", 128))  # network, batch


@dataclass(frozen=True)
class Scratch:
    """How far the peaks of one convolution stand above its tensors, in bytes."""

    layer: str
    maps: int  # what it reads and writes in the forward pass
    forward: int  # from the second call on, as the next
    backward: int
    first: int  # the more of the first forward and backward: with cuDNN's search, what the trying took


def measure_scratch(network: Network, batch: int, search: bool, device: str = "cuda") -> Iterator[Scratch]:
    """Each convolution of a network on maps of its own; of those that are alike the first."""
    seen: set[tuple[object, ...]] = set()
    for layer, module, shape, first in convolutions(network):
        key = (tuple(module.weight.shape), module.stride, module.padding, module.groups, shape, first)
        if key in seen:
            continue
        seen.add(key)
        free(device)
        real = module.to_empty(device=device)
        for parameter in real.parameters():
            nn.init.normal_(parameter, std=0.01)
        x = torch.randn((batch, *shape), device=device, requires_grad=not first)
        wanted = [*real.parameters(), *([] if first else [x])]
        with torch.backends.cudnn.flags(enabled=True, benchmark=search):
            first_call, (forward, backward) = (_scratch(real, x, wanted, device) for _ in range(2))
        with torch.no_grad():
            maps = x.nbytes + real(x).nbytes
        yield Scratch(layer, maps, forward, backward, max(first_call))


def _scratch(layer: nn.Module, x: Tensor, wanted: list[Tensor], device: str) -> tuple[int, int]:
    made: list[Tensor] = []
    forward = peak_above(lambda: made.append(layer(x)), device) - _allocated(made[0], device)
    gradient = torch.ones_like(made[0])
    results = sum(_allocated(tensor, device) for tensor in wanted)
    backward = peak_above(lambda: torch.autograd.grad(made[0], wanted, gradient), device) - results
    return max(0, forward), max(0, backward)


def _allocated(tensor: Tensor, device: str) -> int:
    """Bytes the allocator counts for a tensor: on a GPU in blocks of 512."""
    return tensor.nbytes if device == "cpu" else -(-tensor.nbytes // 512) * 512


def convolutions(network: Network) -> list[tuple[str, nn.Conv2d, tuple[int, ...], bool]]:
    """(name, layer, shape of one sample of its input, whether it is the network's own input) of each convolution."""
    with torch.device("meta"):
        model, x = network.build(), torch.empty((1, *network.input_shape))
    names = {module: name for name, module in model.named_modules()}
    found: list[tuple[str, nn.Conv2d, tuple[int, ...], bool]] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.Conv2d) and module in names:
            found.append((names[module], module, tuple(inputs[0].shape[1:]), inputs[0] is x))

    with register_module_forward_pre_hook(note), torch.no_grad():
        model(x)
    return found


def main() -> None:
    """A line a convolution: scratch memory in MiB, and as a share of its maps."""
    if not torch.cuda.is_available():
        print("scratch: PyTorch sees no GPU here, and it is a GPU that is asked")
        return
    print(f"{this_machine()}; guessed: {WORKSPACE_SHARE:.2f} of the maps\n")
    for (name, batch), search in itertools.product(ASKED, (False, True)):
        print(f"{name}, batch {batch}, cuDNN {'searches' if search else 'chooses'}")
        for one in measure_scratch(NETWORKS[name], batch, search):
            sizes = (f"{what} {size / MIB:,.0f} MiB, {size / one.maps:.2f}" for what, size in (
                ("forward", one.forward), ("backward", one.backward), ("at first", one.first)))  # fmt: skip
            print(f"  {one.layer:<10}{'; '.join(sizes)}")
