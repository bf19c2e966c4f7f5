"""The same quantities as the trace, measured on a real step: what the allocator handed out, here.

One code path for both devices: on a GPU the CUDA allocator's own counters, on a CPU the profiler's records of every
allocation, so that the scratch memory inside kernels counts too.
"""

import gc
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from course_utils.trace import OPTIMIZERS, PRECISIONS, Criterion
from course_utils.units import CourseError, require_one_of, require_whole


@dataclass(frozen=True)
class Measurement:
    """What one real training step took, or one forward pass of inference."""

    device: str  # "cpu" or the name of the GPU
    peak_bytes: int  # the most bytes the allocator had handed out at once, parameters and optimizer state included
    reserved_bytes: int | None  # what the allocator held of the card; on a CPU, where nothing is held back, None
    before_bytes: int  # parameters, optimizer state, input and labels, which are there before the step begins


def find_device(name: str | None) -> str:
    """The device asked for; None asks for a GPU if there is one. Raises CourseError for a GPU that is not there."""
    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise CourseError("this machine shows PyTorch no GPU: leave device=None to measure on the CPU")
    return name


class RealTraining:
    """A network made ready for real steps on random data, each of which is what `training_step` traces.

    Arguments are those of `measure_step`; it raises as that does.
    """

    def __init__(
        self,
        module: nn.Module,
        input_shape: tuple[int, ...],
        classes: int,
        batch: int,
        optimizer: str | None,
        device: str | None,
        precision: str,
        accumulate: int = 1,
        criterion: Criterion = nn.functional.cross_entropy,
        input_dtype: torch.dtype = torch.float32,
    ) -> None:
        if optimizer is not None:
            require_one_of("optimizer", optimizer, OPTIMIZERS)
        require_one_of("precision", precision, PRECISIONS)
        require_whole("accumulate", accumulate)
        require_whole("batch", batch)
        self.device, self.precision = find_device(device), precision
        self.accumulate, self.criterion = accumulate, criterion
        self.model = module.to(self.device)
        self.inputs = [torch.randn((batch, *input_shape), device=self.device).to(input_dtype)]
        self.update: torch.optim.Optimizer | None = None
        if optimizer is not None:
            self.inputs.append(torch.randint(classes, (batch,), device=self.device))
            kind, options = OPTIMIZERS[optimizer]
            self.update = kind(self.model.parameters(), **options)

    def forward(self) -> Tensor:
        """The forward pass to the loss; of inference to the answer, in eval mode and without gradients."""
        x, *labels = self.inputs
        with nullcontext() if labels else inference(self.model), autocast(self.device, self.precision):
            found: Tensor = self.criterion(self.model(x), *labels) if labels else self.model(x)
        return found

    def step(self) -> None:
        """A whole step with its update; of inference the forward pass."""
        if self.update is None:
            self.forward()
            return
        for _ in range(self.accumulate):
            loss = self.forward()
            (loss / self.accumulate if self.accumulate > 1 else loss).backward()
        self.update.step()
        self.update.zero_grad(set_to_none=True)

    @property
    def bytes(self) -> int:
        """What is there before a step: parameters, buffers, optimizer state, input and labels."""
        entries = [] if self.update is None else self.update.state.values()
        state = [value for entry in entries for value in entry.values() if isinstance(value, Tensor)]
        tensors = [*self.model.parameters(), *self.model.buffers(), *state, *self.inputs]
        return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def measure_step(
    module: nn.Module,
    input_shape: tuple[int, ...],
    classes: int,
    batch: int,
    optimizer: str | None = "momentum",
    device: str | None = None,
    *,
    precision: str = "float32",
    accumulate: int = 1,
    criterion: Criterion = nn.functional.cross_entropy,
    input_dtype: torch.dtype = torch.float32,
) -> Measurement:
    """Run two training steps on random data and measure the second, in which the optimizer's state exists.

    Args:
        module: the network with real tensors; it is moved to the device and trained for two steps.
        input_shape: shape of one sample, without the batch.
        classes: labels are drawn from this many.
        batch: samples in the batch, or in each micro-batch.
        optimizer: "sgd", "momentum", "adam" or "adamw"; None measures inference as `training_step` traces it: the
            forward pass alone, in eval mode, without gradients and without labels.
        device: "cpu" or "cuda"; by default a GPU if there is one.
        precision: "float32", or "bfloat16"/"float16" for autocast with float32 weights.
        accumulate: micro-batches whose gradients are added up before the update, the same data each time.
        criterion: (output, labels) -> scalar loss.
        input_dtype: floating-point type of the samples.

    Raises:
        CourseError: an unknown optimizer or precision, batch or accumulate below 1, or a GPU asked for and not there.
    """
    real = RealTraining(
        module, input_shape, classes, batch, optimizer, device, precision, accumulate, criterion, input_dtype
    )
    real.step()
    gc.collect()
    before = real.bytes
    if real.device == "cpu":
        return Measurement("cpu", before + cpu_peak_above(real.step), None, before)
    peak = torch.cuda.memory_allocated() + peak_above(real.step, real.device)
    return Measurement(torch.cuda.get_device_name(), peak, torch.cuda.max_memory_reserved(), before)


def autocast(device: str, precision: str) -> AbstractContextManager[object]:
    """Where forward passes run in this precision: torch's autocast, or nothing for "float32"."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=PRECISIONS[precision])


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Where a network only answers: eval mode and torch.inference_mode; its layers' modes are put back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module, training in modes:
            module.training = training


def cpu_peak_above(step: Callable[[], object]) -> int:
    """The most bytes the CPU allocator hands out during `step`, above what it had handed out before."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler otherwise writes its stages into the notebook
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as records:
        step()
    results = records.profiler.kineto_results
    changes = sorted((e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]")
    return int(max(accumulate((change for _, change in changes), initial=0)))


def this_machine() -> str:
    """The machine in words, for the line under a measurement."""
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    return f"CPU ({platform.machine()}, {torch.get_num_threads()} threads), torch {torch.__version__}"


def peak_above(run: Callable[[], object], device: str) -> int:
    """The most bytes that stand allocated at once while `run` runs, above what stood before."""
    if device == "cpu":
        return cpu_peak_above(run)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before
