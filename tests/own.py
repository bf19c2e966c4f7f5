"""An answer of one's own with the results of a function of the library, such as a slip of a check's catalogue."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any


def own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose call is not noted as one into the library; a class as it is."""
    if isinstance(function, type):
        return function

    @functools.wraps(function)
    def answer(*arguments: Any) -> Any:
        before = sys.getprofile()
        sys.setprofile(None)
        try:
            return function(*arguments)
        finally:
            sys.setprofile(before)

    return answer
