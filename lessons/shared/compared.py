"""A network that a learner changed beside the original: what the looks of several lessons share."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Comparison:
    """How a changed network stands beside the original. Where one thing differs, what follows it means little."""

    parameters_differ: str = ""  # what differs, or ""
    returned: str = ""  # type of what forward returned
    shape: tuple[int, ...] = ()
    expected_shape: tuple[int, ...] = ()
    same_output: bool = False
    elsewhere: str = ""  # where the output is another one than the original's, on batches of other sizes, or ""
    trainable: bool = False
    same_gradients: bool = False

    def unlike(self, other_parameters: str, another_shape: str) -> str:
        """What keeps two networks from being compared at all, or "", told with the messages of two slips."""
        if self.parameters_differ:
            return f"{other_parameters} (Different: {self.parameters_differ}.)"
        if self.returned != "Tensor":
            nothing = " Is there a `return`?" if self.returned == "NoneType" else ""
            return f"`forward` returned a {self.returned}, not a tensor.{nothing}"
        if self.shape != self.expected_shape:
            return f"{another_shape} It is {self.shape}, and should be {self.expected_shape}."
        return ""


@dataclass(frozen=True)
class PeakComparison(Comparison):
    """The same, with the peaks of a traced training step, in bytes."""

    peak: int = 0
    original_peak: int = 1

    @property
    def share(self) -> float:
        """The peak as a share of the original's."""
        return self.peak / self.original_peak


def parameters_differ(changed: nn.Module, original: nn.Module) -> str:
    """Up to three names of parameters or buffers whose shapes differ, with commas; "" if there are none."""
    ours, theirs = ({n: tuple(t.shape) for n, t in m.state_dict().items()} for m in (original, changed))
    return ", ".join(sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))[:3])


def take_weights(changed: nn.Module, original: nn.Module) -> str:
    """Give a changed network the original's weights, copied; says what differs (`parameters_differ`) if it cannot."""
    differ = parameters_differ(changed, original)
    if not differ:
        changed.load_state_dict(copy.deepcopy(original.state_dict()))
    return differ


LEAKS = "Every step leaves more tensors behind than the one before: drop what forward stores."
ROUNDING = 1e-6  # of the longest gradient: what rounding leaves where a gradient is 0 but for that


def same(one: object, other: Tensor, relative: float = 1e-4, floor: float = 0.0) -> bool:
    """Whether something is a tensor of the same shape and values, to this share of them or a hundredth of it.

    Small tensors count like large ones: as vectors, too, the two differ by at most this share of the other's length,
    or by `floor`.
    """
    if not isinstance(one, Tensor) or one.shape != other.shape:
        return False
    near = torch.allclose(one, other, rtol=relative, atol=relative / 100)
    apart = torch.linalg.vector_norm((one - other).double())
    return near and bool(apart <= relative * torch.linalg.vector_norm(other.double()) + floor)


def same_each(
    ours: Mapping[str, Tensor | None], theirs: Mapping[str, Tensor], relative: float = 1e-4
) -> dict[str, bool]:
    """Whether each of these gradients is the one in `theirs`, by name."""
    floor = ROUNDING * max((float(torch.linalg.vector_norm(one.double())) for one in theirs.values()), default=0.0)
    return {name: same(ours.get(name), other, relative, floor) for name, other in theirs.items()}


def same_gradients(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], relative: float = 1e-4) -> bool:
    """Whether the same parameters have the same gradients."""
    return ours.keys() == theirs.keys() and all(same_each(ours, theirs, relative).values())


def same_rows(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], relative: float) -> bool:
    """Whether every row of every matrix in `theirs` is that of `ours`, to this share of the row's own length."""

    def same_row(one: Tensor, other: Tensor) -> bool:
        apart, length = (torch.linalg.vector_norm(x.double(), dim=-1) for x in (one - other, other))
        return bool((apart <= relative * length).all())

    return all(same_row(ours[name], one) for name, one in theirs.items() if one.dim() == 2)


@torch.no_grad()
def awake(network: nn.Module) -> nn.Module:
    """Draw a network's weights so that no layer falls silent; returns it.

    A deep network's own at first make maps, and gradients of early layers, smaller than rounding: then its output
    hardly depends on its images, and whoever leaves them out is right.
    """
    for parameter in network.parameters():
        many = parameter.dim() > 1
        parameter.normal_(0, math.sqrt(2 / parameter[0].numel()) if many else 0.1)
    return network
