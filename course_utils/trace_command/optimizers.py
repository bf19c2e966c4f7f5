"""The optimizers that `course trace` knows by name, and the reader's own."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from course_utils.techniques.fine_tuning import blocks_of, eight_bit, on_host
from course_utils.trace import OPTIMIZERS as DEFAULTS
from course_utils.trace import MakeOptimizer
from course_utils.trace_command.names import resolved
from course_utils.units import CourseError

# Torch's own four are as they are by default on a GPU (`foreach`), which makes temporaries as large as the weights.
ONE_KERNEL = {"adam": "adam-fused", "adamw": "adamw-fused"}  # the same update without them
EIGHT_BIT = {name: f"{name.removesuffix('-fused')}-8bit" for name in (*ONE_KERNEL, *ONE_KERNEL.values())}
MADE: dict[str, MakeOptimizer] = {
    "adam-fused": lambda parameters: torch.optim.Adam(parameters, fused=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    **dict.fromkeys(EIGHT_BIT.values(), eight_bit),
    "adamw-cpu": on_host,
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters),
    "lion": lambda parameters: Lion(parameters),
}
NAMES = (*DEFAULTS, *MADE, "muon")


class Lion(torch.optim.Optimizer):
    """Chen and others, "Symbolic Discovery of Optimization Algorithms" (2023), as their code for PyTorch has it."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 1e-4) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move each weight by the sign of its smoothed gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["exp_avg"] = torch.zeros_like(weight)
                average = state["exp_avg"]
                update = average * 0.9 + weight.grad * 0.1
                weight.add_(update.sign_(), alpha=-group["lr"])
                average.mul_(0.99).add_(weight.grad, alpha=0.01)


def _muon(model: nn.Module) -> MakeOptimizer:
    """Muon for the matrices of the blocks, AdamW for all else: Jordan, "Muon" (2024)."""
    inside = {id(p) for block in blocks_of(model) for p in block.parameters() if p.dim() == 2}
    trained = [p for p in model.parameters() if p.requires_grad]
    hidden, others = ([p for p in trained if (id(p) in inside) is wanted] for wanted in (True, False))
    if not hidden:
        raise CourseError("muon is for the matrices of repeated blocks, and there are none")
    return lambda _: [torch.optim.Muon(hidden), *([torch.optim.AdamW(others)] if others else [])]


def maker(name: str, model: nn.Module) -> str | MakeOptimizer:
    """What `training_step` takes for a name, or for MODULE:FUNCTION of parameters. Raises CourseError for neither."""
    if name in DEFAULTS:
        return name
    if name in MADE:
        return MADE[name]
    if name == "muon":
        return _muon(model)
    if ":" not in name:
        raise CourseError(
            f"no optimizer is called {name!r}: choose one of {', '.join(NAMES)}, or write MODULE:FUNCTION of your own"
        )
    found: MakeOptimizer = resolved(name, "optimizer")
    if not callable(found):
        raise CourseError(f"{name} is no function of a list of parameters, but of type {type(found).__name__}")
    return found


def alone(name: str, make: str | MakeOptimizer | None) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    """The optimizer of one weight, where each has its own.

    Raises CourseError if it is fused, for which shapes have no kernels in a backward pass, or for all weights at once.
    """
    if isinstance(make, str):
        kind, settings = DEFAULTS[make]
        return lambda parameters: kind(parameters, **settings)
    if make is None or name == "muon" or name in ONE_KERNEL.values():
        raise CourseError(f"{name} cannot be traced within the backward pass: choose one of {', '.join(DEFAULTS)}")
    return make  # type: ignore[return-value]
