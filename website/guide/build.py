"""Every answer of the guide, traced: `python -m website.guide` writes `answers.json.xz`, method by method.

What is done stays done: the command goes on with what is missing. `--anew` traces again, `--method` one method alone.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from course_utils.files import write_whole
from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from course_utils.memory import StepTrace
from course_utils.techniques.capacity import (
    CERTAIN,
    FITS,
    NO,
    REPLAY_PERCENT,
    SEGMENTS,
    Demand,
    demand,
    room_for_tensors,
)  # fmt: skip
from course_utils.units import MIB
from website.guide.measured import measured
from website.guide.models import MODELS
from website.guide.steps import METHODS, methods, steps, ways

ANSWERS = Path(__file__).with_name("answers.json.xz")
CARDS = (
    "RTX 2080", "Titan X (Pascal)", "T4", "V100", "RTX 3090", "RTX 4090", "RTX 5090", "A100", "H100 SXM", "H200 SXM",
    "B200",
)  # fmt: skip
BATCHES = tuple(sorted({2**i for i in range(13)} | {3 * 2**i for i in range(11)}))  # 1, 2, 3, 4, 6, 8, 12, … 4096
MOMENTS = 16  # of a step that its sketch has


def cards() -> list[Device]:
    """Those that the guide has answers for."""
    return [hardware.device(name) for name in CARDS]


def mib(count: float) -> int:
    """Bytes in whole MiB, as they are kept."""
    return round(count / MIB)


class Asked:
    """What a step asks of a card, batch by batch, each counted once."""

    def __init__(self, step: StepTrace) -> None:
        self.step = step
        self._known: dict[int, Demand] = {}

    def at(self, batch: int) -> Demand:
        """At one batch."""
        if batch not in self._known:
            self._known[batch] = demand(self.step.at(batch))
        return self._known[batch]

    def largest(self, card: Device) -> int:
        """The largest of BATCHES up to which all of them fit a card; 0 if there is none."""
        room = room_for_tensors(card) * 100 // (100 + REPLAY_PERCENT)
        sure = CERTAIN * (room - SEGMENTS)
        found = 0
        for batch in BATCHES:
            asked = self.at(batch)
            if asked.tensors > room or not (asked.scratch.least_bytes <= sure or asked.scratch.fit_in(room)):
                break
            found = batch
        return found


def answers(step: StepTrace, on: Sequence[Device]) -> dict[str, Any]:
    """Of one step: on each card the largest batch, or what stands in the way of the first.

    Returns:
        "cards": of each card a batch, or a verdict on batch 1: state, what decided, and beside which context.
        "batches": of each batch that is named there, and of 1, bytes of its peak, of the same in blocks, and of what
        PyTorch would reserve on a card without end (null where no card has room for the tensors of one sample).
        "scratch": of batch 1, if it has any, bytes of scratch memory and of the tensors then.
        "sketch": at MOMENTS moments, MiB that the batch does not change, and MiB a sample.
    """
    asked, found = Asked(step), list[int | str]()
    for card in on:
        batch = asked.largest(card)
        if batch:
            found.append(batch)
            continue
        verdict = asked.at(1).on(card)
        assert verdict.state != FITS
        beside = "most" if verdict.beside == verdict.context.most else "least"
        found.append(f"{verdict.state} {verdict.decided} {beside}")
    named = sorted({1, *(one for one in found if isinstance(one, int))})
    some = any(not str(one).startswith(NO) for one in found)
    sizes = {
        batch: [step.at(batch).peak_bytes, asked.at(batch).tensors,
                asked.at(batch).requests.reserved_bytes if some else None]
        for batch in named
    }  # fmt: skip
    scratch = {"scratch": list(asked.at(1).fullest)} if asked.at(1).workspace else {}
    return {"cards": found, "batches": sizes, **scratch, "sketch": sketch(step, named[len(named) // 2])}


def sketch(step: StepTrace, batch: int) -> list[list[float]]:
    """The skyline at MOMENTS moments, the fullest of as many parts of the step: MiB fixed, and MiB a sample."""
    tape = step.at(max(2, batch)).tape
    fixed, per_sample = tape.totals
    total = fixed + per_sample * batch
    parts = [part for part in np.array_split(np.arange(tape.events), MOMENTS) if len(part)]
    at = [int(part[total[part].argmax()]) for part in parts]
    return [[mib(fixed[i]) for i in at], [round(float(per_sample[i]) / MIB, 1) for i in at]]


def of_model(key: str, method: str) -> list[dict[str, Any]]:
    """All answers of a model under one method, in the order of `ways`."""
    torch.set_num_threads(1)
    on, model = cards(), MODELS[key]
    found = {way: answers(step, on) for way, step in steps(model, method)}
    return [found[way] for way in ways(model) if way.method == method]


def empty() -> dict[str, Any]:
    """A table without a model."""
    return {"torch": torch.__version__.split("+")[0], "cards": list(CARDS), "models": {}, "measured": {}}


def read_table(path: Path = ANSWERS) -> dict[str, Any]:
    """The table as it is kept."""
    table: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return table


def write_table(table: dict[str, Any], path: Path = ANSWERS) -> None:
    """Keep the table: written whole, then put in the place of the old one."""
    order = {key: table["models"][key] for key in MODELS if key in table["models"]}
    text = json.dumps({**table, "models": order}, separators=(",", ":"))
    write_whole(path, lzma.compress(text.encode(), preset=9))


def build(
    keys: Iterable[str], of: Sequence[str] = METHODS, path: Path = ANSWERS, anew: bool = False, workers: int = 2
) -> None:
    """Trace the models and the measured steps that the table lacks, each method in a process; written after each.

    A table of another release of torch, or of other cards, is begun anew.

    Args:
        keys: of the models asked for.
        of: the methods asked for, of METHODS.
        path: of the table.
        anew: whether what is asked for is traced again where the table has it.
        workers: processes.
    """
    table = empty()
    if path.exists():
        with suppress(ValueError, lzma.LZMAError, KeyError):
            old = read_table(path)
            if all(old[part] == table[part] for part in ("torch", "cards")):
                table = table | old
    asked = [(key, method) for key in keys for method in methods(MODELS[key]) if method in of]
    rows = [row for row in measured() if row.way.method in of]
    for key, method in asked:
        if anew:
            table["models"].get(key, {}).pop(method, None)
    for row in rows:
        if anew:
            table["measured"].pop(row.name, None)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        waiting: dict[Future[Any], tuple[dict[str, Any], str]] = {}
        for row in rows:
            if row.name not in table["measured"]:
                waiting[pool.submit(row.traced)] = table["measured"], row.name
        for key, method in asked:
            if method not in (kept := table["models"].setdefault(key, {})):
                waiting[pool.submit(of_model, key, method)] = kept, method
        try:
            for done in tqdm(as_completed(waiting), total=len(waiting), unit="step"):
                kept, name = waiting[done]
                kept[name] = done.result()
                write_table(table, path)
        finally:
            pool.shutdown(cancel_futures=True)  # where one fails, the others are not waited for
