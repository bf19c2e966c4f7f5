"""Why a step cannot be traced, in one line that names the place, the cause and what to do."""

from __future__ import annotations

import linecache
import re
import traceback
from pathlib import Path

import torch

from course_utils.units import CourseError

_OURS = (str(Path(__file__).resolve().parents[1]), str(Path(torch.__file__).parent))


class TraceError(CourseError):
    """The step cannot be traced; the message names the layer and the cause in one line."""


class LeakError(TraceError):
    """Every step leaves more tensors behind than the one before: there is no steady state to trace."""


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def needs_values(error: BaseException) -> bool:
    """Whether a step failed because it looked at values, which a trace has not."""
    known = r"meta tensor|item\(\)|data-(in)?dependent|DataDependent|DynamicOutputShape|numpy|unbacked"
    return bool(re.search(known, f"{type(error).__name__} {first_line(error)}"))


def cause(error: BaseException) -> str:
    """What went wrong, in the words of someone who has only shapes, and the way out."""
    text = first_line(error)
    missing = re.search(r"Could not run '([\w:.]+)'|no fake impl registered for <CustomOpDef\(([\w:.]+)\)", text)
    if missing:
        return f"operator {missing.group(1) or missing.group(2)} has no meta kernel, so its shapes cannot be traced"
    if "not on the expected device" in text:
        return "it mixes its input with a tensor made elsewhere: create that one with device=x.device"
    if "SparseTensorImpl" in text:
        return "it makes sparse gradients, whose storages cannot be followed: build the embedding with sparse=False"
    if needs_values(error):
        text = text.split(". ")[0]
        return (
            f"it depends on the values of its data, and a trace has only shapes ({text}){_line_of(error)}; if they are "
            "values of an input that are the same everywhere, say so with Spec(fill=...)"
        )
    if re.search(r"scalar types.*(Long|Int)|indices.*(Long|Int|int)|not implemented for 'Float'", text):
        return f"{text}; whole numbers, such as token ids, are input_dtype=torch.int64"
    return text


def optimizer_cause(error: BaseException) -> str:
    """What went wrong in an optimizer's step, and the way out."""
    text = first_line(error)
    if needs_values(error):
        return f"it looks at the values of gradients or weights, and a trace has only shapes ({text.split('. ')[0]})"
    if "fused=True" in text:
        return "fused=True asks for tensors on a device, and a trace has only shapes: build it with fused=False"
    return cause(error)


def _line_of(error: BaseException) -> str:
    """The last line of code, of neither torch nor this library, that ran into the error."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_OURS) and not frame.filename.startswith("<"):
            line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
            return f" in {Path(frame.filename).name}, line {frame.lineno}: {line}" if line else ""
    return ""
