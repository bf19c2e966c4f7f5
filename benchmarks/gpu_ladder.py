"""Which batches ran on a real card and which failed, beside the verdict: timm's own search on an RTX 3090.

`timm_ladder.csv` is from pytorch-image-models (Apache-2.0, Ross Wightman), July 2022: 153 networks drawn at random from
results/benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv. Its benchmark.py begins at batch 512 and steps down (384, 256,
192 …) until the training steps run. So the batch that is listed ran, and the next rung above failed: two facts each.
`channels_last_measured` is what the same search found on the same card with the other layout, of which tensors are as
large (results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv): how far two searches agree bounds what a verdict that
knows tensors can reach.

The step is that of 2022: float16 by autocast, with its lists of torch 1.12 (`torch_1_12`), SGD with Nesterov momentum
(one tensor after another), attention not fused, a `zero_grad` that sets gradients to 0 and keeps them, and TResNet with
the norm it had then (`WrittenOver`). torch 1.12 with CUDA 11.3 loaded every kernel at once: the context is "eager".
Blocks, allocator and scratch memory are those of `capacity.fit`.

What was chosen, and from what: two bounds of the context, from reports of people who looked
(`course_utils.machine.context`), and the mean error of a replay, from peaks on a T4 (`capacity.REPLAY_PERCENT`). No
number was moved to suit a row, but that an error is allowed for, and the mean and not the root mean square (3 %, with
which 13 of 151 batches that ran are called tight), was decided when the rows had been seen. A hash of the name
parts them into halves, both reported.

Another file of the same columns, `python -m benchmarks.gpu_ladder FILE`, is judged by the same rules.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import json
import logging
import os
import sys
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.zoo_models import torchvision_beside_a_cpu_build
from course_utils.allocator import Requests
from course_utils.machine.context import context
from course_utils.machine.hardware import device
from course_utils.memory import StepTrace
from course_utils.techniques.capacity import FITS, NO, TIGHT, demand, fit
from course_utils.trace import training_step
from course_utils.trace.operators import AUTOCAST
from course_utils.units import MIB, CourseError
from lessons.memory.ladder import LADDER_FOUND

CONSOLE = Console(width=150)
LADDER = Path(__file__).with_name("timm_ladder.csv")
CARD = device("RTX 3090")
# Of batches that failed, at most this share may be called fits; of those that ran, at most this share no; and of the
# networks at least this share must meet the very rung: fits where it ran, not where it failed.
FALSELY_FITS, FALSELY_NO, MET = 0.03, 0.02, 0.92
NEAR = 8  # MiB


@dataclass(frozen=True)
class Verdict:
    """One batch of one network: whether it ran, what is said of it, and what the tensors leave of the card, in MiB."""

    model: str
    layout: str
    batch: int
    ran: bool
    state: str
    decided: str
    left_mib: int
    needs_mib: int  # the least that the replay gets through in, scratch memory included, to NEAR
    channels_last: int | None = None  # the largest batch that ran in the other layout; None where it is not known

    @property
    def missed(self) -> bool:
        """Whether the rung is not met: it ran and is not called fits, or failed and is."""
        return (self.state == FITS) is not self.ran

    @property
    def second(self) -> bool:
        """Whether the row is of the second half."""
        return hashlib.sha256(self.model.encode()).digest()[-1] % 2 == 1


@contextmanager
def torch_1_12() -> Iterator[None]:
    """Traces made here have the autocast lists of torch 1.12: what resizes maps is not cast to float32.

    Its documentation (docs/source/amp.rst) does not list `upsample_nearest2d` and its like, and in 2024 pytorch issue
    121072 still asked for it. They took what came, which for one tensor is the rule "widest".
    """
    now = dict(AUTOCAST)
    resized = [name for name in now["float32"] if "upsample" in name]
    AUTOCAST["float32"] = [name for name in now["float32"] if name not in resized]
    AUTOCAST["widest"] = now["widest"] + resized
    try:
        yield
    finally:
        AUTOCAST.update(now)


class WrittenOver(torch.autograd.Function):
    """What a batch norm with its activation allocates in inplace_abn 1.0.12, of which timm 0.6 makes TResNet.

    The result is written over the input, and backward reads it alone, making two tensors of its size
    (inplace_abn/functions.py, `InPlaceABN`; src/inplace_abn_cuda.cu, `backward_reduce_template`).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        _mean, variance = torch.empty_like(weight), torch.empty_like(weight)
        ctx.mark_dirty(x.zero_())
        ctx.save_for_backward(x, variance, weight, bias)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        result, _variance, weight, bias = ctx.saved_tensors
        _normalized, of_input = torch.empty_like(result), torch.empty_like(result)
        return of_input.copy_(gradient), torch.empty_like(weight), torch.empty_like(bias)


class InPlaceNorm(nn.Module):
    """`WrittenOver` as a module, in place of a batch norm."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = WrittenOver.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return out


def written_over(module: nn.Module) -> None:
    """Give a network `InPlaceNorm` for every batch norm."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, InPlaceNorm(child))
        else:
            written_over(child)


def build(name: str, image: int) -> nn.Module:
    """A network of timm by its name of 2022, for images of one size."""
    timm = importlib.import_module("timm")
    try:
        network: nn.Module = timm.create_model(name, num_classes=1000, img_size=image)
    except TypeError:  # those that take any size have no such argument
        network = timm.create_model(name, num_classes=1000)
    if type(network).__name__ == "TResNet":
        written_over(network)
    return network


def traced(name: str, image: int, layout: str) -> StepTrace:
    """The training step of timm's benchmark as it was in 2022."""

    def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, nesterov=True, foreach=False)

    shape, module = (3, image, image), build(name, image)
    if layout == "nhwc":
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch_1_12():
        return training_step(module, shape, optimizer=optimizer, precision="float16", zero_grad="never")


def asked(row: dict[str, str]) -> tuple[list[Verdict], str]:
    """What is said of the batch that ran and of the one that failed, or why a network could not be asked."""
    try:
        step = traced(row["model"], int(row["image"] or 224), row["layout"])
    except (RuntimeError, CourseError, AssertionError) as error:
        return [], f"{row['model']}: {str(error).splitlines()[0][:90]}"
    found = []
    for column, ran in (("largest_batch_measured", True), ("next_rung_failed", False)):
        if row[column]:
            batch = int(row[column])
            said = fit(step.at(batch), CARD, taken=context(CARD, "eager"))
            needs = least_room(demand(step.at(batch)).scratch)
            left = (said.card_bytes - said.tensor_bytes) // MIB
            other = int(row["channels_last_measured"]) if row.get("channels_last_measured") else None
            found.append(Verdict(row["model"], row["layout"], batch, ran, said.state, said.decided, left, needs, other))
    return found, ""


def least_room(requests: Requests) -> int:
    """MiB of the smallest card on which the allocator gets through, to NEAR: by bisection, as if all larger ones do."""
    low, high = requests.least_bytes // (NEAR * MIB), -(-requests.reserved_bytes // (NEAR * MIB))
    return NEAR * (low + bisect_left(range(low, high), True, key=lambda size: requests.fit_in(size * NEAR * MIB)))


_KEPT: list[object] = []  # of each process


def _ready() -> None:
    os.environ["TIMM_FUSED_ATTN"] = "0"
    torch.set_num_threads(1)
    _KEPT.extend(torchvision_beside_a_cpu_build() if torch.version.cuda is None else [])
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")


def verdicts(rows: list[dict[str, str]]) -> tuple[list[Verdict], list[str]]:
    """What is said of every batch, and why others could not be asked; on all cores."""
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=_ready) as pool:
        said = list(pool.map(asked, rows))
    return [one for found, _ in said for one in found], [why for _, why in said if why]


def rates(found: list[Verdict]) -> dict[str, int]:
    """How many networks, how many batches of each kind, and how many of each verdict."""
    ran, failed = ([one for one in found if one.ran is was] for was in (True, False))
    missed = {one.model for one in found if one.missed}
    networks = {one.model for one in found}
    count = {f"{word} {state}": sum(one.state == state for one in batches)
             for word, batches in (("ran", ran), ("failed", failed)) for state in (FITS, TIGHT, NO)}  # fmt: skip
    return {"networks": len(networks), "met": len(networks - missed), "ran": len(ran), "failed": len(failed), **count}


def best_limit(found: list[Verdict], figure: Callable[[Verdict], int]) -> int:
    """How many networks the best of all limits on one figure meets: what is below it said to fit, all else not.

    Of limits with which no more than FALSELY_FITS of the batches that failed are called fits.
    """
    failed = sum(not one.ran for one in found)

    def met(limit: int) -> int:
        wrong = [one for one in found if (figure(one) <= limit) is not one.ran]
        allowed = sum(not one.ran for one in wrong) <= FALSELY_FITS * failed
        return len({one.model for one in found} - {one.model for one in wrong}) if allowed else 0

    return max(met(figure(one)) for one in found)


def agreement(found: list[Verdict]) -> dict[str, int]:
    """Of networks searched in both layouts how many got one batch, and of these how many meet the very rung."""
    known = {one.model for one in found if one.ran and one.channels_last is not None}
    same = {one.model for one in found if one.ran and one.channels_last == one.batch}
    return {"both": len(known), "same": len(same), "met": len(same - {one.model for one in found if one.missed})}


def gpu_ladder(path: Path = LADDER) -> None:
    """All rows, both halves, and what the verdict has wrong. Writes `lessons/memory/ladder.json`, for lesson 03."""
    found, unknown = verdicts(list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())))
    parts = {
        "all": found,
        "first half": [one for one in found if not one.second],
        "second half": [one for one in found if one.second],
    }
    table = Table(title=f"{CARD.name}: what ran and what failed, and what is said of it", title_justify="left")
    said = {name: rates(part) for name, part in parts.items()}
    table.add_column("rows")
    for column in said["all"]:
        table.add_column(column, justify="right")
    for name, row in said.items():
        table.add_row(name, *map(str, row.values()))
    CONSOLE.print(table)
    missed = sorted((one for one in found if one.missed), key=lambda one: -one.left_mib)
    for one in missed:
        CONSOLE.print(
            f"{one.model}, batch {one.batch}: {'ran' if one.ran else 'failed'}, said {one.state} {one.decided}; "
            f"tensors leave {one.left_mib:,} MiB; with channels last {one.channels_last or 'unknown'} ran"
        )
    twice = agreement(found)
    CONSOLE.print(
        f"{twice['same']} of {twice['both']} networks got one batch in both layouts; of these {twice['met']} meet it"
    )
    held = CARD.memory_bytes // MIB
    for what, figure in (("tensors", lambda one: held - one.left_mib), ("the replay", lambda one: one.needs_mib)):
        most = best_limit(found, figure)
        CONSOLE.print(f"no limit on {what} meets more than {most} networks and the bound of failed batches")
    for line in unknown:
        CONSOLE.print(f"not asked: {line}")
    for name, row in said.items():
        for what, share, limit, holds in (
            ("of batches that failed called fits", row["failed fits"] / max(1, row["failed"]), FALSELY_FITS, False),
            ("of batches that ran called no", row["ran no"] / max(1, row["ran"]), FALSELY_NO, False),
            ("of networks meet the very rung", row["met"] / max(1, row["networks"]), MET, True),
        ):
            passes = share >= limit if holds else share <= limit
            asked = "at least" if holds else "at most"
            CONSOLE.print(f"{'pass' if passes else 'FAIL'}: {name}: {share:.1%} {what}, asked {asked} {limit:.0%}")
    reasons = Counter(one.decided for one in found if one.state == TIGHT)
    CONSOLE.print(f"tight: {', '.join(f'{count} by {what}' for what, count in reasons.most_common())}\n")
    if path == LADDER:
        facts = {
            "source": "timm, results/benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv, July 2022",
            "card": CARD.name,
            "context_mib": [size // MIB for size in asdict(context(CARD, "eager")).values()],
            "traced_with": {name: version(name).split("+")[0] for name in ("torch", "timm")},
            "rates": said,
            "both_layouts": twice,
            "missed": [asdict(one) for one in missed],
            "not_asked": unknown,
        }
        LADDER_FOUND.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    gpu_ladder(Path(sys.argv[1]) if len(sys.argv) > 1 else LADDER)
