"""operators.toml is the one table: what it names exists in torch, and code has a case for no operator beyond it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import course_utils.trace
from course_utils.trace.operators import MATRIX_PRODUCTS, NOTICED, PARTIAL_SUMS, READS_IN_ORDER, WRITES_A_NUMBER
from course_utils.trace.overrides import AUTOCAST_RULES, CHOSEN, META_KERNELS

FOLDER = Path(course_utils.trace.__file__).parent
TABLE: dict[str, Any] = tomllib.loads((FOLDER / "operators.toml").read_text(encoding="utf-8"))
ATEN = {
    name.removeprefix("aten::").partition(".")[0]
    for name in torch._C._dispatch_get_all_op_names()
    if name.startswith("aten::")
}
NO_OPERATORS = {"pin_memory"}  # an argument, too
EVENTS = {"start", "end"}  # of the recorder's own
LATER = {"_grouped_mm"}  # of the versions of torch the course takes, only some have it


def names(table: Any) -> Iterator[str]:
    """Every operator a part of the table names."""
    if isinstance(table, str):
        yield from table.split()
    else:
        for key, value in table.items():
            yield from names(value) if isinstance(value, (dict, str)) else [key]


def compared(module: Path) -> set[str]:
    """The operators that a module's code compares something with."""
    nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
    within = (part for node in nodes if isinstance(node, ast.Compare) for part in ast.walk(node))
    words = {part.value for part in within if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return words & ATEN - NO_OPERATORS


def test_what_the_table_names_exists() -> None:
    assert {name.partition(".")[0] for name in names(TABLE)} - EVENTS - LATER <= ATEN


@pytest.mark.parametrize("module", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_code_has_a_case_for_what_the_table_says(module: str) -> None:
    listed = set(names(TABLE["cases"].get(module, {})))
    has = compared(FOLDER / f"{module}.py")
    if module == "overrides":
        has |= CHOSEN.keys() | META_KERNELS.keys()
    assert has == listed, f"list the operators that {module}.py compares with under [cases.{module}] of operators.toml"


def test_every_list_is_read() -> None:
    assert NOTICED.keys() == TABLE["noticed"].keys()
    assert AUTOCAST_RULES.keys() == TABLE["autocast"].keys()
    assert all((MATRIX_PRODUCTS, PARTIAL_SUMS, WRITES_A_NUMBER, READS_IN_ORDER))
