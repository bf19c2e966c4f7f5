"""What a trace needs to know of an operator of torch's, from its schema and its tags, looked up once."""

from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from course_utils.trace.shortcuts import SHORTCUTS, Shortcut


class Operator:
    """An overload as the trace sees it."""

    def __init__(self, func: Any) -> None:
        packet = func.overloadpacket
        self.name: str = packet.__name__
        self.is_view: bool = func.is_view
        self.writes: bool = func._schema.is_mutable
        self.counted: Any = packet if packet in flop_registry else None  # where torch has a flop formula for it
        self.shortcut: Shortcut | None = SHORTCUTS.get(func)
        self.takes_device = any(argument.name == "device" for argument in func._schema.arguments)
        # The shape of its result, or what it returns, depends on values.
        self.by_values = bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags))


look_up = cache(Operator)
