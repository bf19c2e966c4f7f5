"""What a trace needs to know of an operator of torch's, from its schema and its tags, looked up once."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from course_utils.trace.shortcuts import SHORTCUTS, Shortcut


@dataclass(frozen=True)
class Operator:
    """One operator."""

    name: str
    is_view: bool
    writes: bool
    counted: Any  # the operator's packet where torch has a flop formula for it
    shortcut: Shortcut | None
    takes_device: bool
    by_values: bool  # the shape of its result, or what it returns, depends on values


@cache
def look_up(func: Any) -> Operator:
    """An overload as the trace sees it."""
    packet = func.overloadpacket
    return Operator(
        name=packet.__name__,
        is_view=func.is_view,
        writes=func._schema.is_mutable,
        counted=packet if packet in flop_registry else None,
        shortcut=SHORTCUTS.get(func),
        takes_device=any(argument.name == "device" for argument in func._schema.arguments),
        by_values=bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags)),
    )
