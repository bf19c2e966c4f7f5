"""`training_step`: one training step run on shapes alone, and every tensor's birth, death, size, layer and role.

The step runs on tensors without data: no GPU, nothing of the size of the network is allocated. Two such runs, at
batches far apart, give every size as `fixed + per_sample * batch`; a network that cannot be written so is noticed,
and traced anew at every batch asked for. `course_utils.trace.recorder` does the noting, `course_utils.trace.overrides`
and `course_utils.trace.kernels` know what real kernels do differently, `course_utils.memory` reads the result.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.memory import StepTrace
from course_utils.surroundings import no_garbage_collection
from course_utils.trace.assumptions import STANDING
from course_utils.trace.copying import is_compiled
from course_utils.trace.inputs import Spec, StepSpec
from course_utils.trace.optimizers import OPTIMIZERS, MakeOptimizer
from course_utils.trace.refusals import LeakError, TraceError, cause
from course_utils.trace.runs import PRECISIONS
from course_utils.trace.tracer import Tracer
from course_utils.units import require_one_of, require_whole

__all__ = [
    "OPTIMIZERS",
    "PRECISIONS",
    "STANDING",
    "Criterion",
    "LeakError",
    "MakeOptimizer",
    "Spec",
    "TraceError",
    "training_step",
]

Criterion = Callable[[Tensor, Tensor], Tensor]


def training_step(
    module: nn.Module,
    input_shape: tuple[int | str, ...] | None = None,
    classes: int | None = None,
    optimizer: str | MakeOptimizer | None = "momentum",
    precision: str = "float32",
    target: str = "cuda",
    *,
    inputs: Any = None,
    loss: Callable[[nn.Module, Any], Tensor] | None = None,
    sizes: dict[str, int] | None = None,
    keep_output: bool = False,
    accumulate: int = 1,
    zero_grad: str | None = None,
    set_to_none: bool = True,
    criterion: Criterion = nn.functional.cross_entropy,
    input_dtype: torch.dtype = torch.float32,
    target_shape: tuple[int | str, ...] = (),
    target_dtype: torch.dtype = torch.int64,
    name: str | None = None,
) -> StepTrace:
    """Trace one steady-state training step (step two or later: the optimizer's state exists) of any module.

    The step is `loss = criterion(model(x), y); loss.backward(); optimizer.step();
    optimizer.zero_grad(set_to_none=True)` with x and y alive throughout; or, with `inputs`, the same with
    `loss = loss(model, batch)`. The module is copied shape by shape; it is not run, not moved and not changed.

    With `accumulate` above 1 the first line runs so many times before the update, with the loss divided by as many: the
    batch of `StepTrace.at` is then a micro-batch, and one micro-batch of input is alive at a time. From the second one
    on, the weight gradients of those before are alive in the forward pass too.

    Args:
        module: any nn.Module; on any device, "meta" included. Its train/eval flags and `requires_grad` are respected.
        input_shape: shape of one sample of x, without the batch dimension, which comes first.
        classes: columns the output must have; None does not check.
        optimizer: "sgd", "momentum", "adam", "adamw", or a function of a list of parameters that returns a
            `torch.optim.Optimizer` or a list of them, which may as well be made of the module's own parameters; None
            traces inference: forward only, eval mode, no gradients. All tensors that an optimizer holds count as state.
        precision: "float32", or "bfloat16"/"float16" for autocast. The weights keep the dtype they have.
        target: whose kernels: "cuda" (eager mode, one GPU) or "cpu". `course_utils.trace.kernels` lists the
        differences.
        inputs: in place of `input_shape`: a `Spec` for every tensor of a batch, or a list, tuple or dict of them.
        loss: (model, batch) -> the scalar to be trained on, where batch is like `inputs`, with tensors for specs.
        sizes: sizes that shapes name, such as {"sequence": 1024}; `StepTrace.at(batch, sequence=...)` sets another.
        keep_output: what the model returns stays alive to the end of the step, as `out` does in the ordinary loop
            `out = model(x); loss = criterion(out, y); loss.backward()`. It costs the bytes of those outputs that the
            backward pass does not keep anyway: nothing much for 1000 classes, the logits of a language model else.
        accumulate: micro-batches whose gradients are added up before the update.
        zero_grad: where gradients are cleared: "end", after the update or before the next forward pass, which is the
            same (the default, which `StepTrace.assumptions` says); "before backward", as in Lightning, where the last
            step's live through the forward pass; or "never".
        set_to_none: whether clearing frees them, as it does by itself; if not, they are overwritten with zeros.
        criterion: (output, y) -> scalar loss.
        input_dtype: dtype of x, torch.int64 for token ids.
        target_shape: shape of one sample of y; () for one class label a sample.
        target_dtype: dtype of y.
        name: what tables and pictures call the network; the class name if not given.

    Raises:
        TraceError: an argument out of range, no trainable parameters, or a step that fails on these shapes.
    """
    require_one_of("precision", precision, PRECISIONS, TraceError)
    require_one_of("target", target, ("cuda", "cpu"), TraceError)
    require_one_of("zero_grad", zero_grad or "end", ("end", "before backward", "never"), TraceError)
    if optimizer is not None and not callable(optimizer) and optimizer not in OPTIMIZERS:
        raise TraceError(f"unknown optimizer {optimizer!r}: choose one of {', '.join([*OPTIMIZERS, 'None'])}")
    require_whole("accumulate", accumulate, error=TraceError)
    if optimizer is None and accumulate > 1:
        raise TraceError("there are no gradients to accumulate in inference: leave accumulate=1 with optimizer=None")
    if not isinstance(module, nn.Module):
        raise TraceError(f"module must be an nn.Module, got {type(module).__name__}")
    if optimizer is not None and not any(parameter.requires_grad for parameter in module.parameters()):
        raise TraceError(f"{type(module).__name__} has no trainable parameters, so there is nothing to train")
    for path, child in module.named_modules():
        if isinstance(child, torch.jit.ScriptModule):
            raise TraceError(
                f"{path or type(child).__name__} is compiled by torch.jit, whose operators nothing can watch: trace "
                "the module that it was made from"
            )
    lazy = [n for n, p in module.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
    if lazy:
        raise TraceError(f"{lazy[0]} has no shape yet: run the network once on a sample, then trace it")
    name = name or type(module._orig_mod if is_compiled(module) else module).__name__
    if inputs is None:
        try:
            x = Spec(input_shape, input_dtype)  # type: ignore[arg-type]
        except (TraceError, TypeError):
            raise TraceError(
                f"input_shape must be a tuple of whole numbers (one sample, no batch), got {input_shape!r}"
            ) from None
        step = StepSpec(
            (x, Spec(target_shape, target_dtype)), lambda model, batch: model(batch[0]),
            _criterion(criterion, classes, name), sizes or {}, accumulate, keep_output, ("input", "labels"), labels=1,
            told=f"input_shape={input_shape}",
        )  # fmt: skip
    else:
        if input_shape is not None:
            raise TraceError("give either input_shape or inputs, not both")
        if optimizer is not None and loss is None:
            raise TraceError("inputs needs a loss: loss=lambda model, batch: ..., which returns one number")
        step = StepSpec(inputs, _call, loss or _call, sizes or {}, accumulate, keep_output)
    step = replace(step, zero_grad=zero_grad, set_to_none=set_to_none)
    settings: dict[str, object] = {
        "input_shape": input_shape, "optimizer": optimizer, "precision": precision, "target": target,
        "accumulate": accumulate, "inputs": inputs,
    }  # fmt: skip
    return _step_trace(Tracer(module, step, optimizer, precision, target, name), settings)


def _step_trace(tracer: Tracer, settings: dict[str, object]) -> StepTrace:
    with no_garbage_collection():
        tape, why = tracer.affine()

    def resized(sizes: dict[str, int]) -> StepTrace:
        unknown = [n for n in sizes if n not in tracer.step.sizes]
        if unknown:
            raise TraceError(f"no shape has a size {unknown[0]!r}: name it in a spec, as in Spec(({unknown[0]!r},))")
        return _step_trace(tracer.resized(sizes), settings)

    return StepTrace(
        tracer.name, tape, tracer.tape_at, why, settings, tuple(tracer.assumptions), dict(tracer.step.sizes), resized
    )


def _call(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, dict):
        return model(**batch)
    return model(*batch) if isinstance(batch, (list, tuple)) else model(batch)


def _criterion(criterion: Criterion, classes: int | None, name: str) -> Callable[..., Tensor]:
    """The loss of the short form, with what can be said of an output that does not fit."""

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        output, y = model(batch[0]), batch[1]
        if not isinstance(output, Tensor):
            if criterion is nn.functional.cross_entropy:
                raise TraceError(
                    f"{name} must return one tensor, got {type(output).__name__}: pick what to train on with "
                    "criterion=lambda out, y: ..."
                )
        elif classes is not None and (output.dim() < 2 or output.shape[1] != classes):
            shape = ("batch", *output.shape[1:])
            said = f"{name} returns shape ({', '.join(map(str, shape))}), but classes={classes}"
            if output.dim() > 2 and output.shape[-1] == classes:
                said += (
                    ": they come last, and cross entropy takes them second, so give criterion=lambda out, y: "
                    "cross_entropy(out.flatten(0, -2), y.flatten()) and target_shape"
                )
            raise TraceError(said)
        try:
            return criterion(output, y)
        except Exception as error:
            what = f"of shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise TraceError(
                f"the criterion fails on an output {what} and y of shape {tuple(y.shape)}: {cause(error)}"
            ) from error

    return loss
