"""Why a step cannot be traced, in one line that names the place, the cause and what to do."""

import linecache
import re
import traceback
from pathlib import Path

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from course_utils.units import CourseError

_OURS = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent))


# Messages of torch's insides, and what they mean to whoever wrote the step.
_KNOWN = {
    "not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs": (
        "it asks the card itself, which is not here: leave that out for the trace"
    ),
    "when making fake tensor call|torch._dynamo": (
        "it calls what torch.compile made, which a trace cannot take apart here: trace it without torch.compile"
    ),
    "not on the expected device|Please convert all Tensors to FakeTensors": (
        "it mixes its input with a tensor made elsewhere: create that one with device=x.device"
    ),
    "FlexAttention": (
        "flex_attention has kernels for a card alone, which shapes do not run: put scaled_dot_product_attention in its "
        "place"
    ),
    "Sparse[A-Za-z]*TensorImpl": (
        "it makes or reads sparse tensors, whose storages cannot be followed: build an embedding with sparse=False, "
        "and make others dense"
    ),
    "_pack_padded_sequence|'lengths' argument should be": (
        "packed sequences have the lengths of their rows as values, and a trace has only shapes: trace the padded rows"
    ),
    "_ctc_loss": (
        "the CTC loss looks at the lengths of its rows, which are values, and a trace has only shapes: put a loss of "
        "the same logits in its place"
    ),
    "shape_env|NestedInt|nested_int|nested tensor": (
        "nested tensors have the lengths of their rows as values, and a trace has only shapes: pad them to one length"
    ),
}


class TraceError(CourseError):
    """The step cannot be traced; the message names the layer and the cause in one line."""


class LeakError(TraceError):
    """Every step leaves more tensors behind than the one before: there is no steady state to trace."""


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def check_dense(tensor: Tensor) -> None:
    """Raise ValueError for a tensor whose bytes do not follow from its shape, dtype and strides."""
    kind = "sparse" if tensor.layout is not torch.strided else "quantized" if tensor.is_quantized else ""
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__ and not isinstance(tensor, FakeTensor):
        kind = f"a {type(tensor).__name__}, which holds others"
    if kind:
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} is {kind}, so its bytes do not follow from its shape: trace the "
            "step with a plain tensor in its place"
        )


def needs_values(error: BaseException) -> bool:
    """Whether a step failed because it looked at values, which a trace has not."""
    known = (
        r"[Mm]eta\b|item\(\)|data-(in)?dependent|DataDependent|DynamicOutputShape|numpy|unbacked"
        r"|data is not allocated|passed to (Fake)?Tensor.__format__|_share_fd_|cannot pin"
    )
    return bool(re.search(known, f"{type(error).__name__} {first_line(error)}"))


def cause(error: BaseException) -> str:
    """What went wrong, in the words of someone who has only shapes, and the way out."""
    text = first_line(error)
    for words, said in _KNOWN.items():
        if re.search(words, text):
            return said
    missing = re.search(
        r"Could not run '([\w:.]+)'|no fake impl registered for <CustomOpDef\(([\w:.]+)\)|([\w:.]+): attempted to run",
        text,
    )
    if missing:
        name = next(filter(None, missing.groups()))
        return f"operator {name} has no meta kernel, so its shapes cannot be traced"
    if needs_values(error):
        text = text.split(". ")[0]
        frames = traceback.extract_tb(error.__traceback__)
        checked = any("torch/distributions/" in Path(frame.filename).as_posix() for frame in frames)
        line = _line_of(error)
        advice = (
            "leave out what only prints or checks; values of an input that are the same everywhere are told with "
            "Spec(fill=...)"
        )
        if checked:
            advice = "give the distribution validate_args=False"
        elif re.search(r"torch\.(rand|bernoulli|multinomial)", line):
            advice = "a number that torch draws is a value too: set its chance to 0 or 1 for the trace"
        return f"it depends on the values of its data, and a trace has only shapes ({text}){line}; {advice}"
    if re.search(r"scalar types.*(Long|Int)|indices.*(Long|Int|int)|not implemented for 'Float'", text):
        return f"{text}; whole numbers, such as token ids, are input_dtype=torch.int64"
    return text


def optimizer_cause(error: BaseException) -> str:
    """What went wrong in an optimizer's step, and the way out."""
    text, frames = first_line(error), traceback.extract_tb(error.__traceback__)
    if any(frame.filename.endswith("grad_scaler.py") for frame in frames):
        return "its GradScaler looks at values, and a trace has only shapes: leave it out, as it holds a few numbers"
    if "closure" in text or text == "'NoneType' object is not callable":
        return "its step calls a closure, which runs the network again, and an update is traced by step() alone"
    if isinstance(error, KeyError):
        return f"its step reads {text}, which a method besides step() has to make, and an update is step() alone"
    if "Cannot copy out of meta tensor" in text and "cpu" in (line := _line_of(error)):
        return (
            f"it copies gradients or weights to the CPU{line}; an optimizer's state in host memory is not followed: "
            'trace with "sgd", which keeps no state on a card'
        )
    if needs_values(error):
        return f"it looks at the values of gradients or weights, and a trace has only shapes ({text.split('. ')[0]})"
    return cause(error)


def _line_of(error: BaseException) -> str:
    """The last line of code, of neither torch nor this library, that ran into the error."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_OURS) and not frame.filename.startswith("<"):
            line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
            return f" in {Path(frame.filename).name}, line {frame.lineno}: {line}" if line else ""
    return ""
