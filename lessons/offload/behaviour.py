"""The check of question 6 of exercise 09: an answer judged by what it does, and the slips people make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from classroom.questions.core import Slip
from lessons.offload import judge as saved
from lessons.offload.judge import SHARE, Host, Seen
from lessons.shared.network_questions import ReplayCheck
from lessons.shared.replay.form import Record
from lessons.shared.replay.witness import written

# -- 6. hooks that keep maps outside -----------------------------------------------------------------------------------


def _hooks(
    model: nn.Module,
    least: int,
    host: Host,
    parameters: str = "storage",
    size: Callable[[Tensor], int] = lambda tensor: tensor.nbytes,
    chosen: Callable[[Tensor], bool] = lambda tensor: True,
    above: bool = False,
    keep: bool = False,
    half: bool = False,
    aside: bool = False,
) -> tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]:
    """Hooks with everything that can go wrong as a switch; as given, they are right."""
    if parameters == "storage":
        own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    else:
        own = {id(parameter) for parameter in model.parameters()} if parameters == "identity" else set()
    shapes = {tuple(parameter.shape) for parameter in model.parameters()}
    shapes |= {tuple(reversed(shape)) for shape in shapes}
    also: list[Tensor] = []

    def pack(tensor: Tensor) -> Any:
        mine = id(tensor) if parameters == "identity" else tensor.untyped_storage().data_ptr()
        known = tuple(tensor.shape) in shapes if parameters == "shape" else mine in own
        small = size(tensor) <= least if above else size(tensor) < least
        if known or small or not chosen(tensor):
            return tensor
        if aside:
            also.append(tensor.detach().clone())
            return ("aside", len(also) - 1, tensor.dtype)
        if keep:
            also.append(tensor)
        return ("ticket", host.put(tensor.half() if half and tensor.is_floating_point() else tensor), tensor.dtype)

    def unpack(kept: Any) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        return also[kept[1]] if kept[0] == "aside" else host.take(kept[1]).to(kept[2])

    return pack, unpack


def _slip(**options: Any) -> Callable[..., Any]:
    return functools.partial(_hooks, **options)


class KeepOutside(ReplayCheck[Seen]):
    """The check of question 6: two hooks, judged by what moves, what stays, and the gradients."""

    question = name = "keep_outside"
    running = "A training step with your hooks"
    takeaway = "The gradients are equal bit by bit: a copy out and back changes nothing."
    slips: Sequence[Slip] = (
        Slip(
            "everything moved",
            _slip(parameters="none", size=lambda tensor: 1 << 40),
            "You move everything that autograd saves, as torch's `save_on_cpu` does. Parameters are in memory anyway, "
            "so moving them frees nothing, and small tensors are not worth a copy: return both as they are.",
        ),
        Slip(
            "parameters moved",
            _slip(parameters="none"),
            "A parameter is moved. It stays in memory whatever you do, as the model holds it, so its copy is for "
            "nothing. Return it as it is.",
        ),
        Slip(
            "parameters by identity",
            _slip(parameters="identity"),
            "A parameter is moved: a dense layer saves a transposed *view* of its weight, another object with the same "
            "bytes. Compare `tensor.untyped_storage().data_ptr()`.",
        ),
        Slip(
            "parameters by shape",
            _slip(parameters="shape"),
            "In a batch of another size maps stay: you know parameters by their shape, and a map can have the same. "
            "Compare `tensor.untyped_storage().data_ptr()`.",
        ),
        Slip(
            "never on the host",
            _slip(aside=True),
            "The maps are copied, and not to the host: a list or a dict of your own is in the same memory as the maps "
            "were, and frees nothing. Give them to `host.put`.",
        ),
        Slip(
            "small ones moved",
            _slip(size=lambda tensor: 1 << 40),
            "Tensors of fewer than `least` bytes are moved. For them a copy costs more than it frees.",
        ),
        Slip(
            "nothing moved",
            _slip(chosen=lambda tensor: False),
            "Nothing is moved: every large map is still in memory after the forward pass. Let `pack` return a ticket "
            "in place of the tensor.",
        ),
        Slip(
            "values, not bytes",
            _slip(size=lambda tensor: tensor.numel()),
            "You compare a number of values with `least`, which is in bytes, so some maps stay. Take `tensor.nbytes`.",
        ),
        Slip(
            "more than least",
            _slip(above=True),
            "A map of exactly `least` bytes stays. From `least` on they move: at least, not more than.",
        ),
        Slip(
            "floats only",
            _slip(chosen=torch.is_floating_point),
            "The pool's indices stay. They are whole numbers of 8 bytes each and wait as long as any map.",
        ),
        Slip(
            "images only",
            _slip(chosen=lambda tensor: tensor.dim() == 4),
            "Only maps of four dimensions are moved. What dense layers save waits as well.",
        ),
        Slip(
            "copied and kept",
            _slip(keep=True),
            "The maps are copied out and still in memory: something of yours keeps the tensor itself, or another copy "
            "of it, whole or in pieces. Keep the ticket alone.",
        ),
        Slip(
            "halved on the way",
            _slip(half=True),
            "The gradients are not the same: what comes back is not what was put. Give the host the tensor as it is.",
        ),
        Slip(
            "only the parameters",
            lambda model, least, host: _hooks(
                model, least, host, "none",
                chosen=lambda t: any(
                    t.untyped_storage().data_ptr() == p.untyped_storage().data_ptr() for p in model.parameters()
                ),
            ),
            "Your condition is the wrong way round: parameters move and maps stay.",
        ),
    )  # fmt: skip

    def record(self, given: Callable[..., Any]) -> Record:
        """Two steps with the hooks."""
        return saved.record(given)

    def judge(self, record: Record, seed: int) -> Seen:
        """What they come to."""
        return saved.judge(record, seed=seed)

    def diagnose(self, seen: Seen, given: Callable[..., Any]) -> str:
        """What keeps the hooks from being right, or ""."""
        for slip in self.slips:
            if seen == _slip_seen(slip):
                return slip.message
        if seen.wrong[0]:
            return (
                f"What `unpack` gives back is not what `pack` was given: {seen.wrong[0]}. The gradients would differ."
            )
        if seen.wrong[1]:
            return (
                f"The first step is right and the second is not: `unpack` gives back {seen.wrong[1]}. Something of the "
                "first step is still there; hooks are used for many."
            )
        if seen.parameters_moved:
            return self.told("parameters moved")
        if seen.small_moved:
            return self.told("small ones moved")
        if seen.by_shape:
            return self.told("parameters by shape")
        if seen.stayed:
            sizes = ", ".join(f"{one.bytes:,}" for one in seen.stayed[:3])
            head = f"{len(seen.stayed)} of {len(seen.to_move)} large maps stay"
            return f"{head}, of {sizes} bytes; `least` is {seen.least:,}."
        if seen.needless and not seen.elsewhere:
            return f"{seen.needless} tensors too many are put on the host: each map once, and nothing that stays."
        if seen.share > SHARE and not seen.elsewhere and not seen.alive:
            return (
                "The maps move, and in the midst of a step as many are in memory as without your hooks: let go of each "
                "in `pack`, and bring back one at a time."
            )
        return self.told("never on the host" if seen.elsewhere else "copied and kept")

    def praise(self, seen: Seen) -> str:
        """How much waits outside."""
        waiting = sum(one.bytes for one in seen.outside)
        return f"{waiting:,} bytes of {len(seen.outside)} saved maps wait outside. {self.takeaway}"


@functools.cache
def _slip_seen(slip: Slip) -> Seen:
    return saved.judge(saved.record(slip.function, write=written))


keep_outside = KeepOutside()
