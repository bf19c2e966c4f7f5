"""A csv file whose every cell is checked when it is read: a fault is one line that names file, line and column.

Rows name the publications their values are from in the column `sources`, and in `address` and `quote` where one of them
is read and what it says; values computed from others are listed in `derived` as "COLUMN: how; COLUMN: how". An empty
cell is a value nobody confirmed.
"""

import csv
import difflib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from course_utils.units import CourseError

NEEDED = object()


@dataclass(frozen=True)
class Column:
    """How the text of a cell is read (a ValueError says what is wrong with it), and what an empty cell stands for."""

    parse: Callable[[str], Any]
    empty: Any = NEEDED


class Row(dict[str, Any]):
    """One row's values by column; knows where it stands."""

    def __init__(self, path: Path, line: int) -> None:
        super().__init__()
        self.where = f"{path.name}, line {line}"

    def fault(self, column: str, what: str) -> NoReturn:
        """Raise CourseError with the place and what is wrong there."""
        raise CourseError(f"{self.where}, column {column}: {what}")


def number(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number; leave the cell empty where nothing is confirmed") from None
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{text} must be a number above 0; leave the cell empty where nothing is confirmed")
    return value


def whole(text: str) -> int:
    """A whole number above 0."""
    if number(text) % 1:
        raise ValueError(f"{text} must be a whole number")
    return int(float(text))


def one_of(*choices: str) -> Callable[[str], str]:
    """One of some words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} must be one of {', '.join(choices)}")
        return text

    return parse


def yes(text: str) -> bool:
    """The words "yes" and "no"."""
    return one_of("yes", "no")(text) == "yes"


def address(text: str) -> str:
    """An address of the web."""
    if not re.fullmatch(r"https?://[^\s/]+\.[^\s/]+/\S*", text):
        raise ValueError(f"{text!r} is no address such as https://example.org/page")
    return text


def check_quote(row: Row, columns: Sequence[str]) -> None:
    """A row's quotation holds one of its figures in these columns, to 1 % and in whatever thousand of the unit.

    Raises CourseError where it holds none, or a quotation has no address, or an address no quotation.
    """
    if not row["address"] and not row["quote"]:
        return
    if not (row["address"] and row["quote"]):
        row.fault("quote", "an address and a quotation come together: say where, and what is written there")
    words = re.findall(r"\d[\d.,]*", row["quote"])
    written = {word.rstrip(".,").replace(",", mark) for word in words for mark in ("", ".")}
    numbers = [float(text) * unit for text in written if text.count(".") < 2 for unit in (0.001, 1, 1000)]
    figures = [row[column] * row.get("dies", 1) ** power for column in columns if row[column] for power in (0, 1)]
    if not any(math.isclose(number, figure, rel_tol=0.01) for number in numbers for figure in figures):
        row.fault("quote", f"holds none of this row's {', '.join(columns)}: quote the words that do")


def read_rows(path: Path, columns: dict[str, Column]) -> Iterator[Row]:
    """The rows of a catalogue file, every cell read. Its columns must include name, sources and derived.

    Raises CourseError where the file cannot be read, or naming file, line and column of the first fault.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"{path.name} cannot be read: {error}") from error
    reader = csv.reader(lines)
    heading = next(reader, [])
    first = Row(path, 1)
    for name in heading:
        if name not in columns:
            near = difflib.get_close_matches(name, columns, n=1)
            first.fault(name, f"unknown; did you mean {near[0]}?" if near else f"unknown; use {', '.join(columns)}")
        if heading.count(name) > 1:
            first.fault(name, "appears twice")
    for name in columns:
        if name not in heading:
            first.fault(name, "is missing")
    seen: set[str] = set()
    for cells in reader:
        row = Row(path, reader.line_num)
        if len(cells) != len(heading):
            last = heading[min(len(cells), len(heading)) - 1]
            few = "an empty cell keeps its comma" if len(cells) < len(heading) else "a cell with a comma needs quotes"
            row.fault(last, f"{len(cells)} cells in a row of {len(heading)}: {few}")
        for name, text in zip(heading, cells, strict=True):
            row[name] = _value(row, name, columns[name], text.strip())
        if row["name"].casefold() in seen:
            row.fault("name", f"{row['name']} has a row already")
        seen.add(row["name"].casefold())
        for part in filter(None, row["derived"].split("; ")):
            column, _, how = part.partition(": ")
            if column not in columns or not how:
                row.fault("derived", f"{part!r} must read COLUMN: how it was computed")
        yield row


def _value(row: Row, name: str, column: Column, text: str) -> Any:
    if not text:
        if column.empty is NEEDED:
            row.fault(name, "every value needs its source" if name == "sources" else "must not be empty")
        return column.empty
    try:
        return column.parse(text)
    except ValueError as error:
        row.fault(name, str(error))
