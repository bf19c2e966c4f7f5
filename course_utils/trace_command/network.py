"""A network, and its step under the settings of the command: what `course trace` traces, again for every change."""

import copy
import functools
import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course_utils.memory import StepTrace
from course_utils.techniques.fine_tuning import adapt, blocks_of, step_in_backward
from course_utils.trace_command.optimizers import alone, maker
from course_utils.units import CourseError

CLEARED = {"end": "end", "before-backward": "before backward", "never": "never"}  # as `training_step` calls it
WEIGHTS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Settings:
    """How the step is taken; a change that may help changes some of it."""

    batch: int  # samples before an update
    optimizer: str = "adamw"  # a name of `optimizers.OPTIMIZERS`, MODULE:FUNCTION, or "none" for inference
    precision: str = "float32"  # of autocast; "float32" for none
    weights: str = ""  # the dtype that all weights are moved to; empty leaves them as built
    sequence: int = 0  # tokens in a sample of a transformer by its config; 0 for any other network
    accumulate: int = 1  # micro-batches that the batch is run in
    checkpoint: bool = False  # whether every block is run again in the backward pass
    rank: int = 0  # of LoRA; 0 for none
    four_bit: bool = False  # whether the linear layers of the blocks keep their weights in 4 bits, as peft trains them
    in_backward: bool = False  # whether each weight is updated as soon as its gradient is whole
    zero_grad: str = ""  # where gradients are cleared, a key of CLEARED; empty where it is not said

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass."""
        return self.optimizer != "none"


@dataclass(frozen=True)
class Network:
    """A network as built, and how a step of such a one is traced."""

    name: str  # the builder's, or the class of a transformer
    model: nn.Module  # as built; never changed
    trace: Callable[[nn.Module, Settings, Any], StepTrace]  # (model, settings, optimizer) -> its step
    tokens: bool = False  # whether it reads token ids
    cached: bool = False  # whether it keeps keys and values in inference
    _steps: dict[Settings, StepTrace] = field(default_factory=dict, init=False, repr=False, compare=False)

    @functools.cached_property
    def blocks(self) -> int:
        """How many blocks checkpointing would run again."""
        return len(blocks_of(self.model))

    @functools.cached_property
    def norms(self) -> bool:
        """Whether it has batch norms, whose result depends on what is in the batch."""
        return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in self.model.modules())

    def dtype(self, settings: Settings) -> str:
        """Of most weights."""
        return settings.weights or dtype_of(self.model)

    def step(self, settings: Settings) -> StepTrace:
        """The step at every micro-batch, traced once for each setting but the batch.

        Raises CourseError for a step that cannot be traced, or settings that exclude each other.
        """
        if settings.in_backward and settings.accumulate > 1:
            raise CourseError("an update within the backward pass leaves no gradients to accumulate")
        if settings.in_backward and settings.zero_grad not in ("", "end"):
            raise CourseError("an update within the backward pass clears each gradient there: leave out --zero-grad")
        # The third micro-batch meets what the second met: gradients that are whole but for its own share.
        key = replace(settings, batch=0, accumulate=min(settings.accumulate, 2))
        if key not in self._steps:
            model = self.changed(key)
            make = maker(key.optimizer, model) if key.trains else None
            if key.in_backward:
                step_in_backward(model, alone(key.optimizer, make))
            # What is updated in the backward pass leaves nothing to an optimizer behind it.
            self._steps[key] = self.trace(model, key, (lambda _: []) if key.in_backward else make)
        return self._steps[key]

    def changed(self, settings: Settings) -> nn.Module:
        """The network as the settings want it: a copy without numbers, or the very one where nothing changes."""
        changed = settings.weights or settings.rank or settings.four_bit or settings.checkpoint or settings.in_backward
        if not changed and settings.trains:
            return self.model
        memo: dict[int, Any] = {  # parameters without numbers, so that changing them costs nothing
            id(p): nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=p.requires_grad)
            for p in self.model.parameters()
        }
        model = copy.deepcopy(self.model, memo)
        if settings.weights:
            model.to(getattr(torch, settings.weights))
        if settings.rank or settings.four_bit:
            adapt(model, settings.rank, settings.four_bit, widened=settings.four_bit and settings.trains)
        if settings.checkpoint:
            if not (blocks := blocks_of(model)):
                raise CourseError(f"{self.name} has no list of blocks to checkpoint")
            for block in blocks:
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        if not settings.trains and "logits_to_keep" in inspect.signature(model.forward).parameters:
            model.forward = functools.partial(model.forward, logits_to_keep=1)  # as generate reads a prompt
        return model

    def cache_bytes(self, settings: Settings) -> int:
        """Of the keys and values of one sequence after its last token; 0 where none are kept."""
        if not self.cached or settings.trains:
            return 0
        ids = torch.empty(1, settings.sequence, dtype=torch.int64, device="meta")
        with torch.no_grad():
            kept = getattr(self.changed(settings).to("meta").eval()(input_ids=ids), "past_key_values", None)
        tensors = [t for layer in getattr(kept, "layers", ()) for t in (layer.keys, layer.values)]
        return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))


def dtype_of(model: nn.Module) -> str:
    """The dtype of most of a network's parameters, those in 4 bits left out, as torch calls it."""
    values: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and not name.endswith(".scales"):
            values[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return values.most_common(1)[0][0] if values else "float32"
