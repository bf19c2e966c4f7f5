"""What this lesson times: layers of a network one by one, and a product of matrices in four ways."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.benchmark import timer

from course_utils.machine.timing import time_warm
from course_utils.units import CourseError


def measure_layers(
    module: nn.Module, x: Tensor, runs: int = 3, only: type[nn.Module] | tuple[type[nn.Module], ...] = nn.Module
) -> dict[str, float]:
    """Seconds of the forward pass of each layer: the median over runs of one pass each, after one to warm up.

    Args:
        module: the network, with real tensors, on the device of `x`; run in its mode, without gradients.
        x: a batch of input.
        runs: passes measured, 1 or more.
        only: the kinds of layer to time; of modules within modules the innermost.

    Returns:
        Path of the layer -> seconds, in the order of `named_modules`; for a layer used several times, their sum.

    Raises:
        CourseError: runs below 1.
    """
    if runs < 1:
        raise CourseError(f"runs must be 1 or more, got {runs}")
    leaves = {name: m for name, m in module.named_modules() if isinstance(m, only) and not any(m.children())}
    began: dict[str, float] = {}
    passes: list[dict[str, float]] = []

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: began.__setitem__(name, timer())

    def leave(name: str) -> Callable[..., None]:
        return lambda *_: passes[-1].__setitem__(name, passes[-1].get(name, 0.0) + timer() - began[name])

    handles = [leaf.register_forward_pre_hook(enter(name)) for name, leaf in leaves.items()]
    handles += [leaf.register_forward_hook(leave(name)) for name, leaf in leaves.items()]
    try:
        with torch.no_grad():
            for _ in range(runs + 1):
                passes.append({})
                module(x)
    finally:
        for handle in handles:
            handle.remove()
    return {name: float(np.median([one[name] for one in passes[1:]])) for name in leaves if name in passes[-1]}


def measure_products(side: int, seconds: float = 0.1, python: bool = True) -> pd.DataFrame:
    """One product of two square matrices in four ways: Python's own loops, NumPy, torch on one thread and on all.

    Args:
        side: rows and columns, float32.
        seconds: how long each way is measured at least; Python's loops run once.
        python: whether to run Python's loops, which take side³ rounds.

    Returns:
        One row a way: "seconds", "GFLOP/s" (a multiply-add counts as two), "times faster" (than the first row).

    Raises:
        CourseError: side is below 1.
    """
    if side < 1:
        raise CourseError(f"side must be 1 or more, got {side}")
    left, right = torch.randn(side, side), torch.randn(side, side)
    took: dict[str, float] = {}
    if python:
        rows, columns = left.tolist(), right.T.tolist()
        began = timer()
        [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in rows]
        took["Python's loops"] = timer() - began
    one, other = left.numpy(), right.numpy()
    took["NumPy"] = time_warm(lambda: one @ other, seconds).median
    most = torch.get_num_threads()
    try:
        for threads, name in ((1, "torch, one thread"), (most, f"torch, all threads ({most})")):
            torch.set_num_threads(threads)
            took[name] = time_warm(lambda: torch.mm(left, right), seconds).median
    finally:
        torch.set_num_threads(most)
    table = pd.DataFrame({"seconds": took})
    table["GFLOP/s"] = 2 * side**3 / table["seconds"] / 1e9
    table["times faster"] = table["seconds"].iloc[0] / table["seconds"]
    return table
