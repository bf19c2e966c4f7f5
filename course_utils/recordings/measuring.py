"""One measurement each for a recording, and for lessons that measure live: a step, a contest, workspaces, the context.

What is timed is timed by `timing`, what is weighed is weighed by `measure`. Needs torch, NumPy and this package alone;
must never import pandas, psutil, matplotlib, ipywidgets or scikit-learn.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from course_utils.machine.measure import measure_step, peak_above
from course_utils.machine.timing import measure_step_time, time_runs
from course_utils.networks import Network, mlp
from course_utils.recordings.schema import PLAIN, Contest, Context, Step, Workspace

SHORT = 0.05  # seconds that each figure of a recording is measured at least


class OnItsWay(nn.Module):
    """A network whose saved maps are kept, moved to the host and back by torch, or computed again."""

    def __init__(self, inner: nn.Module, way: str) -> None:
        super().__init__()
        self.inner, self.way = inner, way

    def forward(self, x: Tensor) -> Tensor:
        """As the network's own."""
        if self.way == PLAIN:
            found: Tensor = self.inner(x)
        elif self.way == "checkpoint":
            assert isinstance(self.inner, nn.Sequential)
            segments = max(1, round(len(self.inner) ** 0.5))  # √n segments, after Chen et al. (2016)
            found = checkpoint_sequential(self.inner, segments, x, use_reentrant=False)
        else:
            with torch.autograd.graph.save_on_cpu(pin_memory=self.way.endswith("pinned")):
                found = self.inner(x)
        return found


def measure_one(
    network: Network,
    batch: int,
    precision: str = "float32",
    optimizer: str = "momentum",
    way: str = PLAIN,
    device: str = "cuda",
    seconds: float = SHORT,
) -> Step:
    """Memory and time of a real step; both None where the device runs out of memory.

    Raises:
        CourseError: an unknown optimizer or precision, or no such device.
    """
    made = Step(network.name, batch, precision, optimizer, way, None, None, None)
    free(device)
    try:
        with torch.device(device):  # parameters are drawn where they are used, which is faster
            module = OnItsWay(network.build(), way)
        shape, classes = network.input_shape, network.classes
        memory = measure_step(module, shape, classes, batch, optimizer, device, precision=precision)
        timed = measure_step_time(
            module, shape, classes, batch, optimizer, device, precision=precision, seconds=seconds
        )
        return replace(made, memory=memory, forward=timed.forward, step=timed.step)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
    free(device)  # after the exception, whose traceback held the tensors
    return made


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that a device, or the host, has too little memory."""
    words = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in words or "not enough memory" in words


def free(device: str) -> None:
    """Give back to the device what nothing uses, so that one measurement's cache does not count in the next."""
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


def measure_contest(inputs: int, units: int, batch: int, device: str = "cuda", seconds: float = SHORT) -> Contest:
    """A step of a network of one hidden layer: on the CPU, on the device, on the device with its data transferred."""
    x, y = torch.randn(batch, inputs), torch.randint(10, (batch,))

    def step_on(where: str, transferred: bool) -> Callable[[], None]:
        with torch.device(where):
            model = mlp((inputs, units, 10))
        update = torch.optim.SGD(model.parameters(), lr=0.1)
        held = (x.to(where), y.to(where))

        def step() -> None:
            image, label = (x.to(where, copy=True), y.to(where, copy=True)) if transferred else held
            nn.functional.cross_entropy(model(image), label).backward()
            update.step()
            update.zero_grad(set_to_none=True)

        step()
        step()
        return step

    cpu, there, transferred = (
        time_runs(step_on(where, moved), seconds) for where, moved in (("cpu", False), (device, False), (device, True))
    )
    return Contest(inputs, units, batch, cpu, there, transferred)


def measure_workspaces(network: Network, batch: int, benchmark: bool, device: str = "cuda") -> Iterator[Workspace]:
    """Scratch memory of every convolution of a network, each run by itself on maps of its own."""
    seen: set[tuple[object, ...]] = set()
    for layer, module, shape, first in convolutions(network):
        key = (tuple(module.weight.shape), module.stride, module.padding, module.groups, shape, first)
        if key in seen:  # the same convolution on maps of the same size
            continue
        seen.add(key)
        free(device)
        real = module.to_empty(device=device)
        for parameter in real.parameters():
            nn.init.normal_(parameter, std=0.01)
        x = torch.randn((batch, *shape), device=device, requires_grad=not first)
        wanted = [*real.parameters(), *([] if first else [x])]
        peaks: list[tuple[int, int]] = []
        with torch.backends.cudnn.flags(enabled=True, benchmark=benchmark):
            for _ in range(2):
                peaks.append(_scratch(real, x, wanted, device))
        first_call, (forward, backward) = peaks
        yield Workspace(network.name, layer, batch, benchmark, forward, backward, max(first_call))


def _scratch(layer: nn.Module, x: Tensor, wanted: list[Tensor], device: str) -> tuple[int, int]:
    """How far the peaks of a layer's forward and backward stand above the tensors they make."""
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
    found: list[tuple[str, nn.Conv2d, tuple[int, ...], bool]] = []
    with torch.device("meta"):
        model = network.build()
        x = torch.empty((1, *network.input_shape))

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            assert isinstance(module, nn.Conv2d)
            found.append((name, module, tuple(inputs[0].shape[1:]), inputs[0] is x))

        return hook

    named = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]
    hooks = [module.register_forward_pre_hook(note(name)) for name, module in named]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return found


def measure_context(device: str, libraries: bool, others: int | None) -> Context:
    """What the driver counts as used, beside what PyTorch reserved."""
    if libraries:
        maps = torch.randn(2, 8, 32, 32, device=device)
        nn.functional.conv2d(maps, torch.randn(8, 8, 3, 3, device=device))
        maps[0, 0] @ maps[0, 1]
    else:
        torch.zeros(1, device=device)
    torch.cuda.synchronize()
    left, whole = torch.cuda.mem_get_info()
    return Context(libraries, whole - left, torch.cuda.memory_reserved(), others)
