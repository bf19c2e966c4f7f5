"""What `course record` asks of a card, and lessons that measure live: a step, a contest, the context."""

import gc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from course_utils.machine.measure import Measurement, measure_step
from course_utils.machine.timing import ABOVE_0, Timing, measure_step_time, time_runs
from course_utils.networks import Network, mlp
from course_utils.trace import OPTIMIZERS, PRECISIONS

SHORT = 0.05  # seconds that each figure of a recording is measured at least
WAYS = ("kept", "save_on_cpu", "save_on_cpu, pinned", "checkpoint")
PLAIN = WAYS[0]


@dataclass(frozen=True)
class RealStep:
    """A real training step of a network: what it took of memory and time, all three None where memory ran out.

    `way` is what becomes of saved maps: kept, moved by torch's `save_on_cpu` (pinned or not), or computed again.
    """

    network: str  # as `course_utils.networks.NETWORKS` names it
    batch: int = field(metadata=ABOVE_0)
    precision: str = field(metadata={"choices": tuple(PRECISIONS)})
    optimizer: str = field(metadata={"choices": tuple(OPTIMIZERS)})
    way: str = field(metadata={"choices": WAYS})
    memory: Measurement | None
    forward: Timing | None  # with its graph
    step: Timing | None  # whole, with the update

    @property
    def out_of_memory(self) -> bool:
        """Whether the device had too little memory for it."""
        return self.memory is None

    @property
    def per_sample_s(self) -> float | None:
        """Seconds of the step for each sample."""
        return None if self.step is None else self.step.median / self.batch


@dataclass(frozen=True)
class Contest:
    """A training step (plain SGD) of a network of one hidden layer, on the host's CPU and on the device.

    `transferred` is the device's step with input and labels copied from ordinary memory of the host before each step.
    """

    inputs: int = field(metadata=ABOVE_0)
    units: int = field(metadata=ABOVE_0)
    batch: int = field(metadata=ABOVE_0)
    cpu: Timing
    device: Timing
    transferred: Timing


@dataclass(frozen=True)
class Context:
    """What the driver counts as used beside what PyTorch's allocator reserved."""

    libraries: bool  # whether a product and a convolution had run before, so that cuBLAS and cuDNN were loaded
    used_bytes: int  # of the device, by the driver
    reserved_bytes: int  # of it, by PyTorch's allocator
    others_bytes: int | None  # used before this process touched the device; None if not readable

    @property
    def context_bytes(self) -> int:
        """What the process took besides reserved memory: the context, and the libraries' code."""
        return max(0, self.used_bytes - self.reserved_bytes - (self.others_bytes or 0))


class OnItsWay(nn.Module):
    """A network whose saved maps are kept, moved to the host and back by torch, or computed again."""

    def __init__(self, inner: nn.Module, way: str) -> None:
        super().__init__()
        self.inner, self.way = inner, way

    def forward(self, x: Tensor) -> Tensor:
        """As the network's own."""
        if self.way == "checkpoint":
            assert isinstance(self.inner, nn.Sequential)
            segments = max(1, round(len(self.inner) ** 0.5))  # √n segments, after Chen et al. (2016)
            found: Tensor = checkpoint_sequential(self.inner, segments, x, use_reentrant=False)
            return found
        moved = torch.autograd.graph.save_on_cpu(pin_memory=self.way.endswith("pinned"))
        with nullcontext() if self.way == PLAIN else moved:
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
) -> RealStep:
    """Memory and time of a real step; both None where the device runs out of memory.

    Raises CourseError for an unknown optimizer or precision, or where there is no such device.
    """
    made = RealStep(network.name, batch, precision, optimizer, way, None, None, None)
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

    ways = ("cpu", False), (device, False), (device, True)
    return Contest(inputs, units, batch, *(time_runs(step_on(*way), seconds) for way in ways))


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
