"""A copy of a network in a quarter of the time of `copy.deepcopy`, which took a tenth of a trace."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

from torch import nn

# Most of what a module holds: flags and numbers, which are not copied, and lists of hooks that it does not have.
_ATOMS = (type(None), bool, int, float, str)


def copied(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """`copy.deepcopy(module, memo)`, where `memo` holds what stands for its tensors, by their ids."""
    for child in reversed(list(module.modules())):  # those within others first
        kind: Any = type(child)
        plain = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__getstate__ is nn.Module.__getstate__
        state = child.__getstate__() if plain and kind.__new__ is object.__new__ else None
        if not isinstance(state, dict) or hasattr(kind, "__deepcopy__") or id(child) in memo:
            continue
        twin = memo[id(child)] = kind.__new__(kind)
        twin.__setstate__({name: _copied(value, memo) for name, value in state.items()})
    return copy.deepcopy(module, memo)


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if type(value) in _ATOMS:
        return value
    if type(value) in (dict, list, set, OrderedDict) and not value:
        return memo.setdefault(id(value), type(value)())
    return copy.deepcopy(value, memo)
