"""A model of the transformers library in one line: `training_step(model, sequence=1024)`.

The model is taken as it is, attention masks, caches and checkpointing included. What a batch holds follows from what
kind of model it is; `inputs` says it where that does not suffice. transformers itself is never imported here.
"""

import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.memory import StepTrace
from course_utils.trace import MakeOptimizer, Spec, TraceError
from course_utils.trace import training_step as trace

# What a model is for, as the name of its class ends, and the labels that one sample then has.
_BY_TOKEN = ("LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForPreTraining", "ForConditionalGeneration",
             "ForTokenClassification")  # fmt: skip
_ONE = ("ForSequenceClassification", "ForImageClassification", "ForAudioClassification", "ForVideoClassification")


def training_step(
    model: nn.Module,
    sequence: int | None = None,
    optimizer: str | MakeOptimizer | None = "adamw",
    precision: str = "float32",
    target: str = "cuda",
    *,
    inputs: dict[str, Spec] | None = None,
    mask: bool = False,
    keep_output: bool = True,
    accumulate: int = 1,
    zero_grad: str | None = None,
    name: str | None = None,
) -> StepTrace:
    """Trace `out = model(**batch); out.loss.backward(); optimizer.step(); optimizer.zero_grad()` of a model as it is.

    Arguments that are not listed are as `course_utils.trace.training_step` takes them.

    Args:
        model: a model of transformers, on any device, "meta" included; also one that peft has wrapped.
        sequence: tokens in a sample, for models that take `input_ids`; `at(batch, sequence=...)` takes others.
        inputs: what a batch holds, by the names that the model's forward has, labels included; where it is not given,
            `input_ids` or `pixel_values`, and labels as a model of this kind takes them.
        mask: whether the batch has an attention mask, all ones.
        keep_output: `out`, with the logits, stays alive to the end of the step, as in the loop above.

    Raises:
        TraceError: as `course_utils.trace.training_step`, or what a batch holds cannot be told.
    """
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise TraceError(f"model must be a model of transformers, got {type(model).__name__}")
    if inputs is None:
        inputs = _batch_of(model, sequence, mask, labels=optimizer is not None)
    try:
        step = trace(
            model, None, None, optimizer, precision, target, inputs=inputs, loss=_loss, keep_output=keep_output,
            sizes={} if sequence is None else {"sequence": sequence}, accumulate=accumulate, zero_grad=zero_grad,
            name=name or type(_inner(model)).__name__,
        )  # fmt: skip
    except TraceError as error:
        if "pad_token_id" not in str(error):
            raise
        raise TraceError(
            f"{type(_inner(model)).__name__} looks for padding in its tokens where there is no attention mask: "
            "give it one, with mask=True"
        ) from None
    if optimizer is not None and not model.training:
        what = "the model is in evaluation mode, as from_pretrained leaves it: no dropout, so call model.train() first"
        warnings.warn(what, stacklevel=2)
        step = replace(step, assumptions=(*step.assumptions, what))
    return step


def _loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    loss = getattr(model(**batch), "loss", None)
    if not isinstance(loss, Tensor):
        raise TraceError(
            f"{type(_inner(model)).__name__} gives no loss for {', '.join(batch)}: add the labels its forward takes to "
            "inputs, or use course_utils.trace.training_step with a loss of your own"
        )
    return loss


def _inner(model: Any) -> Any:
    """The model that peft has wrapped."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _batch_of(model: Any, sequence: int | None, mask: bool, labels: bool) -> dict[str, Spec]:
    inner = _inner(model)
    kind, config = type(inner).__name__, inner.config
    main = getattr(inner, "main_input_name", "input_ids")
    if main == "input_ids":
        if sequence is None:
            raise TraceError(f"{kind} takes tokens: say how many a sample has, with sequence=...")
        tokens = Spec(("sequence",), torch.int64)
        batch = {"input_ids": tokens}
        if mask:
            batch["attention_mask"] = Spec(("sequence",), torch.int64, fill=1)
    elif main == "pixel_values":
        size = getattr(config, "image_size", 224)
        sides = (size, size) if isinstance(size, int) else tuple(size)
        tokens = Spec((getattr(config, "num_channels", 3), *sides))
        batch = {"pixel_values": tokens}
    else:
        raise TraceError(f"{kind} takes {main}: say what a batch holds, with inputs={{{main!r}: Spec(...), ...}}")
    if not labels:
        return batch
    if kind.endswith(_BY_TOKEN) and main == "input_ids":
        return {**batch, "labels": tokens}
    if kind.endswith(_ONE):
        return {**batch, "labels": Spec((), torch.int64)}
    if kind.endswith("ForQuestionAnswering"):
        return {**batch, "start_positions": Spec((), torch.int64), "end_positions": Spec((), torch.int64)}
    raise TraceError(f"{kind} has labels of its own: say what a batch holds, with inputs={{..., 'labels': Spec(...)}}")
