"""The reader's network, by its builder or by its config, and what a step of it is."""

import importlib
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.memory import StepTrace
from course_utils.trace import Spec, TraceError, training_step
from course_utils.trace.huggingface import training_step as trace_transformer
from course_utils.trace_command.names import reason, resolved
from course_utils.trace_command.network import CLEARED, Network, Settings, dtype_of
from course_utils.units import CourseError

DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64", "int64", "int32")}
CLASSES, TOKENS, RETURNED = LOSSES = ("classes", "tokens", "returned")


def build(name: str) -> nn.Module:
    """What a builder returns, on the meta device where it can be built there.

    Raises CourseError where there is no such module or builder, it raises, or what it returns is no network.
    """
    builder = resolved(name, "builder")
    if isinstance(builder, nn.Module):
        return builder
    if not callable(builder):
        raise CourseError(f"{name} is no function that builds a network, but of type {type(builder).__name__}")
    try:
        with torch.device("meta"):
            model = builder()
    except (Exception, SystemExit):  # noqa: BLE001 - any code may fail without numbers, and is then tried with them
        try:
            model = builder()
        except (Exception, SystemExit) as error:
            itself = isinstance(error, TypeError) and error.__traceback__ and error.__traceback__.tb_next is None
            raise CourseError(
                f"{name} raised {reason(error)}{': it is called without arguments' if itself else ''}"
            ) from error
    if not isinstance(model, nn.Module):
        raise CourseError(f"{name} must return an nn.Module, got {type(model).__name__}")
    return model


def own(name: str, model: nn.Module, shape: tuple[int, ...], dtype: str, classes: int | None, loss: str) -> Network:
    """A network as built, and its step on samples of such a shape and dtype.

    Args:
        name, model: what to call it, and it as `build` returns it.
        shape, dtype: of one sample.
        classes: columns of the output, to be checked; None does not.
        loss: one of LOSSES, MODULE:FUNCTION of (model, x), or empty for what goes with the input.

    Raises:
        CourseError: no such loss, or layers without a shape.
    """
    if any(nn.parameter.is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        raise CourseError(f"{name} has layers that have no shape yet: let it run the network once on a sample")
    whole = not DTYPES[dtype].is_floating_point
    loss = loss or (TOKENS if whole and classes is None else CLASSES)
    if classes is not None and loss != CLASSES:
        raise CourseError(f"--classes checks the output for --loss classes: leave it out with --loss {loss}")
    function = None if loss in LOSSES else resolved(loss, f"loss, which is one of {', '.join(LOSSES)} or your own")
    if function is not None and not callable(function):
        raise CourseError(f"--loss {loss} is no function of (model, x), but of type {type(function).__name__}")

    def trace(model: nn.Module, settings: Settings, optimizer: Any) -> StepTrace:
        kept = dtype_of(model)
        # What enters half-precision weights must be of their dtype, unless autocast sees to it.
        cast = not whole and settings.precision == "float32" and kept != "float32"
        x = DTYPES[kept if cast else dtype]
        how: dict[str, Any] = {"input_shape": shape, "classes": classes, "input_dtype": x}
        if function is not None:
            how = {"inputs": Spec(shape, x), "loss": function}
        elif loss == RETURNED:
            inputs = Spec(shape, x), Spec(shape if whole else (), torch.int64)
            how = {"inputs": inputs, "loss": _returned, "keep_output": True}
        elif loss == TOKENS:
            how |= {"classes": None, "target_shape": shape, "criterion": _next_token, "keep_output": True}
        try:
            return training_step(
                model, optimizer=optimizer, precision=settings.precision, accumulate=settings.accumulate, name=name,
                zero_grad=CLEARED.get(settings.zero_grad), **how,
            )  # fmt: skip
        except TraceError as error:
            if isinstance(error.__cause__, CourseError):
                raise error.__cause__ from None
            if not whole and "scalar types: Long" in str(error):
                raise CourseError(f"{name} reads token ids: write --input int64:{','.join(map(str, shape))}") from error
            said, *in_python = re.split(r": pick what to train on|, so give criterion=", str(error), maxsplit=1)
            if in_python or said.startswith("the criterion fails"):
                raise CourseError(f"{said}; for another loss write --loss MODULE:FUNCTION of (model, x)") from error
            raise

    return Network(name, model, trace, tokens=whole)


def _next_token(logits: Any, labels: Tensor) -> Tensor:
    """Cross entropy of (batch, tokens, vocabulary) and (batch, tokens)."""
    if not isinstance(logits, Tensor) or logits.dim() != labels.dim() + 1:
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise CourseError(
            f"token ids are trained on logits of (batch, tokens, vocabulary), got {got}: write --loss returned if "
            "model(x, y) returns the loss, --loss classes for a label a sample, or --loss MODULE:FUNCTION of (model, x)"
        )
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def _returned(model: nn.Module, batch: Any) -> Tensor:
    out = model(*batch)
    if isinstance(found := getattr(out, "loss", None), Tensor):
        return found
    parts = out.values() if isinstance(out, dict) else out if isinstance(out, (tuple, list)) else [out]
    scalars = [part for part in parts if isinstance(part, Tensor) and part.dim() == 0]
    if len(scalars) != 1:
        raise CourseError(f"--loss returned: model(x, y) returns {len(scalars)} losses, not one number")
    return scalars[0]


# -- By its config ------------------------------------------------------------------------------------------------


def transformer(path: Path, sequence: int | None) -> Network:
    """A model of transformers by its config. Raises CourseError for no such file, package or model."""
    if not path.is_file():
        raise CourseError(f"there is no file {path}")
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise CourseError(f"--hf needs the package transformers ({error}): pip install transformers") from error
    try:
        config = transformers.AutoConfig.from_pretrained(str(path))
        with torch.device("meta"):
            kind = (config.architectures or [""])[0]
            known = getattr(transformers, kind) if kind else transformers.AutoModelForCausalLM
            model: nn.Module = known._from_config(config) if kind else known.from_config(config)
    except Exception as error:
        raise CourseError(f"{path} makes no model of transformers ({reason(error)})") from error
    model.train()
    tokens = getattr(model, "main_input_name", "") == "input_ids"
    if tokens and not sequence:
        raise CourseError("--sequence is missing: tokens in a sample, such as --sequence 1024")

    pair = getattr(config, "is_encoder_decoder", False)

    def trace(model: nn.Module, settings: Settings, optimizer: Any) -> StepTrace:
        if pair and not settings.trains:
            raise CourseError("of an encoder with a decoder training alone can be traced: leave out --inference")
        return trace_transformer(
            model, settings.sequence or None, optimizer, settings.precision, accumulate=settings.accumulate,
            zero_grad=CLEARED.get(settings.zero_grad),
        )  # fmt: skip

    return Network(type(model).__name__, model, trace, tokens, cached=tokens and not pair)
