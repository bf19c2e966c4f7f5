"""Checks that several lessons use: of a number of bytes, where results in another unit are a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from classroom.questions.core import TOLERANCE, Try
from classroom.questions.functions import Check

# Factors between a right number of bytes and the same quantity in another unit.
UNITS = {
    8: "Your numbers are bits: 8 times too large. A byte has 8 bits; memory is counted in bytes.",
    1 / 2**10: "Your numbers are in KiB. Return bytes; divide by 1024 only when you print.",
    1 / 2**20: "Your numbers are in MiB. Return bytes; divide by 2**20 only when you print.",
    1 / 2**30: "Your numbers are in GiB. Return bytes; divide by 2**30 only when you print.",
    1 / 10**3: "Your numbers are in kB (1000 bytes). Return bytes; divide only when you print.",
    1 / 10**6: "Your numbers are in MB (10**6 bytes). Return bytes; divide only when you print.",
    1 / 10**9: "Your numbers are in GB (10**9 bytes). Return bytes; divide only when you print.",
}
DECIMAL_AGAINST_BINARY = (
    "Your numbers are off by {percent:.1f} %: a decimal unit (1000) stands where a binary one (1024) belongs, "
    "or the other way round. Return plain bytes and no unit is needed."
)


class BytesCheck(Check):
    """As `Check`, of numbers of bytes."""

    def diagnose(self, tries: Sequence[Try], answer: Callable[..., Any]) -> str:
        """What is wrong with these results: first, whether they are in another unit."""
        return self._unit(tries) or super().diagnose(tries, answer)

    def _unit(self, tries: Sequence[Try]) -> str:
        factor, pairs = self.constant_factor(tries), self.pairs(tries)
        for unit, message in UNITS.items():
            if factor is not None and math.isclose(factor, unit, rel_tol=TOLERANCE):
                return message
            # The same, rounded to whole units.
            most = max((truth * unit for _, truth in pairs), default=0)
            if unit < 1 and most > 100 and all(abs(one - truth * unit) < 1 for one, truth in pairs):
                return message
        for power in (1, 2, 3, -1, -2, -3):
            if factor is not None and math.isclose(factor, 1.024**power, rel_tol=TOLERANCE):
                return DECIMAL_AGAINST_BINARY.format(percent=abs(factor - 1) * 100)
        return ""
