"""What goes into a step besides the network: a tree of specs, made into tensors without data at any batch."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_unflatten

from course_utils.trace.known import KnownValues
from course_utils.trace.refusals import TraceError

# The two batches traced. Far apart, so that a size capped or switched between them shows as a slope that is no whole
# number, or as another sequence of operators; one even and one prime, so that padding and pairing show too.
SMALL_BATCH, LARGE_BATCH = 2, 4099
# With long rows of whole numbers, whose masks are computed for real where a network looks at them: a nearer prime.
LARGE_BATCH_OF_ROWS, LONG_ROW = 67, 256
ROUND_BATCH = 128  # tried when both fail: a network may ask for a multiple of something
THIRD_BATCH = 37  # traced too, where something grows, but not from nothing


@dataclass(frozen=True, eq=False)
class Spec:
    """One tensor of a batch, by its shape. One and the same spec in two places stands for one and the same tensor.

    Attributes:
        shape: of one sample, without the batch dimension, which comes first. A name in place of a number, such as
            "sequence", is a size that can be swept: `training_step(..., sizes={"sequence": 1024})` sets it.
        dtype: of its values.
        fill: the value it has everywhere, where the network looks at it: 1 for an attention mask without padding.
        batched: False for a tensor without a batch dimension.
    """

    shape: tuple[int | str, ...] = ()
    dtype: torch.dtype = torch.float32
    fill: float | None = None
    batched: bool = True

    def __post_init__(self) -> None:
        whole = all(
            (isinstance(n, int) and not isinstance(n, bool) and n > 0) or isinstance(n, str) for n in self.shape
        )
        if not isinstance(self.shape, tuple) or not whole:
            raise TraceError(
                f"a spec's shape must be a tuple of whole numbers (one sample, no batch), got {self.shape!r}"
            )
        if not isinstance(self.dtype, torch.dtype):
            raise TraceError(f"a spec's dtype must be a torch.dtype, got {self.dtype!r}")


@dataclass(frozen=True)
class StepSpec:
    """One step: its batch as a tree of specs, and what is done with it."""

    inputs: Any  # a spec, or a list, tuple or dict of what this says
    forward: Callable[[nn.Module, Any], Any]  # (model, batch) -> output, all that inference runs
    loss: Callable[[nn.Module, Any], Tensor]  # (model, batch) -> one number
    sizes: dict[str, int]  # the names in shapes -> their sizes
    accumulate: int = 1  # micro-batches before the update
    keep_output: bool = False  # whether what the model returns stays alive to the end of the step
    names: tuple[str, ...] = ()  # of the tensors in tables, in the order of the tree
    labels: int = 0  # how many of the last tensors only the loss needs
    told: str = ""  # what to call the input in messages
    # When gradients are cleared: "end", "before backward" or "never"; None for "end", as is assumed.
    zero_grad: str | None = None
    set_to_none: bool = True  # whether clearing frees them; if not, they are overwritten with zeros

    def __post_init__(self) -> None:
        leaves, _ = tree_flatten_with_path(self.inputs)
        if not leaves:
            raise TraceError("inputs is empty: give a Spec, or a list, tuple or dict of them")
        for path, spec in leaves:
            where = f"inputs{keystr(path)}"
            if not isinstance(spec, Spec):
                raise TraceError(f"{where} must be a Spec (shape of one sample, dtype), got {type(spec).__name__}")
            for n in spec.shape:
                if isinstance(n, str) and n not in self.sizes:
                    raise TraceError(f"{where} has the size {n!r}: say how large it is, with sizes={{{n!r}: ...}}")
        for n, value in self.sizes.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise TraceError(f"the size {n!r} must be a whole number of 1 or more, got {value!r}")

    @property
    def clears_at_end(self) -> bool:
        """Whether no gradient is alive from one step to the next."""
        return self.zero_grad in (None, "end") and self.set_to_none

    def make(self, batch: int, device: str, known: KnownValues) -> tuple[Any, list[tuple[str, Tensor]]]:
        """The batch, and its tensors by name."""
        leaves, tree = tree_flatten_with_path(self.inputs)
        made: dict[int, Tensor] = {}
        named = []
        for index, (path, spec) in enumerate(leaves):
            if id(spec) not in made:
                shape = [self.sizes[n] if isinstance(n, str) else n for n in spec.shape]
                tensor = torch.empty([batch, *shape] if spec.batched else shape, dtype=spec.dtype, device=device)
                made[id(spec)] = tensor
                if spec.fill is not None:
                    known.tell(tensor, spec.fill)
                named.append((self.names[index] if self.names else keystr(path).strip("[]'.") or "input", tensor))
        return tree_unflatten([made[id(spec)] for _, spec in leaves], tree), named

    @property
    def batches(self) -> tuple[int, int]:
        """The two batches that are traced."""
        rows = [spec for _, spec in tree_flatten_with_path(self.inputs)[0] if not spec.dtype.is_floating_point]
        values = [prod(self.sizes[n] if isinstance(n, str) else n for n in spec.shape) for spec in rows]
        return SMALL_BATCH, LARGE_BATCH_OF_ROWS if max(values, default=1) >= LONG_ROW else LARGE_BATCH
