"""`course trace`: a network of the reader's own, traced from the terminal, and what would help it onto a card.

Every figure is the library's: *traced* where the changed step was traced, *computed* where it follows from the trace
(`eight_bit_state`, the offload schedule). The builder's code runs here, with the rights of whoever runs the command.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import Template
from torch import nn
from torch.utils.checkpoint import checkpoint

from course_utils.files import write_whole
from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from course_utils.memory import ROLE, Ledger, StepTrace
from course_utils.techniques.capacity import Batches, Fit, card_name, fit, largest_batch
from course_utils.techniques.offload import simulate
from course_utils.trace import OPTIMIZERS, PRECISIONS, training_step
from course_utils.trace.huggingface import training_step as trace_transformer
from course_utils.units import GIB, CourseError, format_bytes

TRACED, COMPUTED = "traced", "computed"
# bitsandbytes keeps tensors of fewer values in 32 bits, and one float32 scale for each block of 256 values
# (bitsandbytes/optim/optimizer.py, min_8bit_size and block-wise state; Dettmers et al., "8-bit Optimizers", 2022).
SMALLEST_8_BIT, BLOCK_VALUES = 4096, 256


@dataclass(frozen=True)
class Help:
    """What one change does to the step: its peak, the verdict on the card if there is one, and how it is known."""

    name: str
    peak_bytes: int
    verdict: Fit | None
    known: str


@dataclass(frozen=True)
class Report:
    """What the command says: the step at its batch, the verdict, and what would help, the largest saving first."""

    ledger: Ledger
    settings: str
    verdict: Fit | None
    batches: Batches | None
    helps: Sequence[Help]
    notes: Sequence[str]


def parser() -> argparse.ArgumentParser:
    """The command line of `course trace`."""
    found = argparse.ArgumentParser(
        prog="course trace",
        description="Trace one training step of your own network without running it: who owns the memory, whether it "
        "fits a card, and what would help. The builder is your code, and runs with your rights.",
    )
    found.add_argument("builder", nargs="?", metavar="PACKAGE.MODULE:BUILDER", help="a function that returns the model")
    found.add_argument(
        "--hf", type=Path, metavar="CONFIG.json", help="in its place: a transformers model by its config"
    )
    found.add_argument("--sequence", type=int, metavar="N", help="tokens in a sample, with --hf")
    found.add_argument("--input", metavar="3,224,224", help="shape of one sample, without the batch")
    found.add_argument("--classes", type=int, metavar="N", help="columns that the output must have")
    found.add_argument("--batch", type=int, default=32, metavar="N", help="samples in the batch (default: 32)")
    found.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw", help="default: adamw")
    found.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="autocast but for float32, the default"
    )
    found.add_argument("--card", metavar="NAME", help='a card of the catalogue, such as "RTX 4090", or its GiB')
    found.add_argument("--html", type=Path, metavar="FILE", help="also write one page with the skyline")
    return found


def trace_command(arguments: Sequence[str]) -> int:
    """Run `course trace`.

    Raises:
        CourseError: no such builder, one that raises, no such card, or a step that cannot be traced.
    """
    options = parser().parse_args(arguments)
    report = make_report(options)
    print("\n".join(lines(report)))
    if options.html:
        try:
            write_whole(options.html, page(report, card_of(options.card)))
        except OSError as error:
            raise CourseError(f"cannot write {options.html}: {error.strerror or error}") from error
        print(f"\nWritten: {options.html}")
    return 0


# -- The reader's network -----------------------------------------------------------------------------------------


def build(name: str) -> nn.Module:
    """What a builder returns, on the meta device where it can be built there.

    Raises:
        CourseError: there is no such module or builder, it raises, or what it returns is no network.
    """
    where, _, what = name.partition(":")
    if not where or not what:
        raise CourseError(
            f"{name!r} names no builder: write PACKAGE.MODULE:BUILDER, such as torchvision.models:resnet50"
        )
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        module: Any = importlib.import_module(where)
    except (Exception, SystemExit) as error:
        raise CourseError(f"cannot import {where} ({_reason(error)}): run this in the folder that holds it") from error
    for part in what.split("."):
        if not hasattr(module, part):
            near = difflib.get_close_matches(part, dir(module), n=2)
            hint = f": did you mean {' or '.join(near)}?" if near else ": is it spelled as in the file?"
            raise CourseError(f"{where} has no {part!r}{hint}")
        module = getattr(module, part)
    if isinstance(module, nn.Module):
        return module
    if not callable(module):
        raise CourseError(f"{name} is no function that builds a network, but of type {type(module).__name__}")
    try:
        with torch.device("meta"):
            model = module()
    except Exception:  # noqa: BLE001 - any code may fail without numbers, and is then tried with them
        try:
            model = module()
        except (Exception, SystemExit) as error:
            raise CourseError(f"{name} raised {_reason(error)}: it is called without arguments") from error
    if not isinstance(model, nn.Module):
        raise CourseError(f"{name} returned no nn.Module, but a {type(model).__name__}")
    return model


def _reason(error: BaseException) -> str:
    text = (str(error).strip() or "without a message").splitlines()[0]
    return f"{type(error).__name__}: {text}"


def shape_of(text: str | None) -> tuple[int, ...]:
    """The shape that --input names.

    Raises:
        CourseError: it is missing, or no whole numbers.
    """
    if text is None:
        raise CourseError("--input is missing: give the shape of one sample, such as --input 3,224,224")
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise CourseError(f"--input must be whole numbers with commas, such as 3,224,224; got {text!r}") from None


def card_of(text: str | None) -> Device | int | None:
    """The card that --card names: one of the catalogue, or so many GiB.

    Raises:
        CourseError: no such card; the message names the nearest.
    """
    if text is None:
        return None
    try:
        size = float(text.lower().removesuffix("gib").removesuffix("gb"))
    except ValueError:
        return hardware.device(text)
    if not 0 < size < float("inf"):
        raise CourseError(f"--card must be a name or more than 0 GiB, got {text!r}")
    return int(size * GIB)


def stepper(options: argparse.Namespace) -> tuple[nn.Module, Callable[..., StepTrace]]:
    """The network, and how to trace its step: `trace(model, optimizer=…, precision=…, accumulate=…)`.

    Raises:
        CourseError: what was asked for makes no sense, or there is no such network.
    """
    if bool(options.builder) == bool(options.hf):
        raise CourseError("give either PACKAGE.MODULE:BUILDER or --hf CONFIG.json")
    if options.hf:
        return _transformer(options)
    model, shape = build(options.builder), shape_of(options.input)

    def trace(model: nn.Module, **settings: Any) -> StepTrace:
        return training_step(model, shape, options.classes, name=type(model).__name__, **settings)

    return model, trace


def _transformer(options: argparse.Namespace) -> tuple[nn.Module, Callable[..., StepTrace]]:
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise CourseError(f"--hf needs the package transformers ({error}): pip install transformers") from error
    if not options.hf.is_file():
        raise CourseError(f"there is no file {options.hf}")
    if options.sequence is None:
        raise CourseError("--sequence is missing: tokens in a sample, such as --sequence 1024")
    try:
        config = transformers.AutoConfig.from_pretrained(str(options.hf))
        with torch.device("meta"):
            kind = (config.architectures or [""])[0]
            known = getattr(transformers, kind) if kind else transformers.AutoModelForCausalLM
            model: nn.Module = known._from_config(config) if kind else known.from_config(config)
    except Exception as error:
        raise CourseError(f"{options.hf} makes no model of transformers ({_reason(error)})") from error
    model.train()

    def trace(model: nn.Module, **settings: Any) -> StepTrace:
        return trace_transformer(model, sequence=options.sequence, **settings)

    return model, trace


# -- The readings -------------------------------------------------------------------------------------------------


def make_report(options: argparse.Namespace) -> Report:
    """Trace the step, and every change to it that may help.

    Raises:
        CourseError: as `trace_command`.
    """
    card = card_of(options.card)
    model, trace = stepper(options)
    settings = {"optimizer": options.optimizer, "precision": options.precision}
    step = trace(model, **settings)
    ledger = step.at(options.batch)
    helps, notes = [], []
    for name, known, change in changes(model, trace, settings, ledger, card, step):
        try:
            changed = change()
        except CourseError as error:
            notes.append(f"Not known, {name}: {error}.")
            continue
        verdict = None if card is None or isinstance(changed, int) else fit(changed, card)
        peak = changed if isinstance(changed, int) else changed.peak_bytes
        helps.append(Help(name, peak, verdict, known))
    helps.sort(key=lambda one: one.peak_bytes)
    batches = None
    if card is not None:
        try:
            batches = largest_batch(step, card, seen=options.batch)
        except CourseError as error:  # memory does not grow with the batch
            notes.append(f"{error}.")
    notes += [f"Assumed: {text}." for text in step.assumptions]
    if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules()):
        notes.append("The network has batch norms: a smaller or an accumulated batch is another update.")
    verdict = None if card is None else fit(ledger, card)
    return Report(ledger, f"{options.optimizer}, {options.precision}", verdict, batches, helps, notes)


Change = tuple[str, str, Callable[[], Ledger | int]]


def changes(
    model: nn.Module,
    trace: Callable[..., StepTrace],
    settings: dict[str, Any],
    ledger: Ledger,
    card: Device | int | None,
    step: StepTrace,
) -> Iterator[Change]:
    """What may help: a name, how its figure is known, and what gives it: a ledger, or the bytes of a peak alone."""
    half = ledger.batch // 2
    if half:
        yield f"a batch of {half:,}", TRACED, lambda: step.at(half)
        if ledger.batch % 2 == 0:
            yield f"accumulation, 2 × {half:,}", TRACED, lambda: trace(model, **settings, accumulate=2).at(half)
    if settings["precision"] == "float32":
        yield "bfloat16", TRACED, lambda: trace(model, **{**settings, "precision": "bfloat16"}).at(ledger.batch)
    blocks = blocks_of(model)
    if blocks:
        name = f"checkpointing of {len(blocks)} blocks"
        yield name, TRACED, lambda: _checkpointed(model, blocks, trace, settings).at(ledger.batch)
    if settings["optimizer"] in ("adam", "adamw"):
        yield "8-bit Adam", COMPUTED, lambda: eight_bit_state(ledger)
    if isinstance(card, Device):
        schedule = functools.partial(simulate, ledger, card, "all", precision=ledger.precision)
        yield "offload of all maps", COMPUTED, lambda: int(schedule().peak_bytes)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """What to checkpoint: the members of the outermost lists of modules that are built of several themselves."""
    found: list[nn.Module] = []

    def walk(module: nn.Module) -> None:
        members = list(module.children())
        if isinstance(module, (nn.Sequential, nn.ModuleList)):
            found.extend(member for member in members if len(list(member.modules())) > 2)
            return
        for member in members:
            walk(member)

    walk(model)
    return found


def _checkpointed(
    model: nn.Module, blocks: Sequence[nn.Module], trace: Callable[..., StepTrace], settings: dict[str, Any]
) -> StepTrace:
    """The step with every block run through torch's own checkpoint; the model is as it was afterwards."""
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    try:
        return trace(model, **settings)
    finally:
        for block in blocks:
            del block.forward


def eight_bit_state(ledger: Ledger) -> Ledger:
    """The step with the optimizer's two float32 moments in 8 bits, one byte a value and a scale for each block."""
    tape = ledger.tape
    large = (tape.role == ROLE["optimizer state"]) & (tape.fixed >= 4 * SMALLEST_8_BIT)
    values = tape.fixed // 4
    state = values + 4 * -(-values // BLOCK_VALUES)
    return replace(ledger, tape=replace(tape, fixed=np.where(large, state, tape.fixed)))


# -- What is said -------------------------------------------------------------------------------------------------


def lines(report: Report) -> list[str]:
    """The report as text, one line a row."""
    ledger = report.ledger
    said = [headline(report), ""]
    roles = [(role, count) for role, count in ledger.by_role().items() if count]
    said += [f"  {role:<18}{format_bytes(count):>12}{count / ledger.peak_bytes:>7.0%}" for role, count in roles]
    said += ["", "Largest layers: maps kept for the backward pass, parameters"]
    said += [f"  {name:<28}{kept:>12}{count:>16}" for name, kept, count in largest_layers(ledger)]
    said += ["", *verdict_lines(report)]
    if report.helps:
        said += ["", f"What would change      {'peak':>26}{'saves':>14}"]
    for row in help_rows(report):
        said.append(f"  {row[0]:<35}{row[1]:>12}{row[2]:>14}  {row[3]:<9} {row[4]}".rstrip())
    return [*said, *([""] if report.notes else []), *report.notes]


def headline(report: Report) -> str:
    """The step and its peak in one sentence."""
    ledger = report.ledger
    layer = f", layer {ledger.peak_layer}" if ledger.peak_layer else ""
    return (
        f"{ledger.name}, batch {ledger.batch:,}, {report.settings}: {format_bytes(ledger.peak_bytes)} at the peak, in "
        f"the {ledger.peak_phase} phase{layer}."
    )


def verdict_lines(report: Report) -> list[str]:
    """Verdict and largest batch; what to do where no card was named."""
    if report.verdict is None:
        return ['Name a card for a verdict: --card "RTX 4090", or --card 24 for so many GiB.']
    head = f"{report.verdict.card}: {report.verdict.sentence}"
    return [head, *([] if report.batches is None else [report.batches.words])]


def largest_layers(ledger: Ledger) -> list[tuple[str, str, str]]:
    """The five layers that keep the most for the backward pass: name, bytes, parameters."""
    table = ledger.by_layer().nlargest(5, "saved feature maps")
    return [
        (str(row["layer"]) or "(top)", format_bytes(row["saved feature maps"]), f"{row['parameters']:,}")
        for _, row in table.iterrows()
    ]


def help_rows(report: Report) -> list[tuple[str, str, str, str, str]]:
    """For each change: name, peak, what it saves, how that is known, and the verdict."""
    before = report.ledger.peak_bytes
    sizes = [(format_bytes(one.peak_bytes), format_bytes(before - one.peak_bytes)) for one in report.helps]
    states = ["" if one.verdict is None else one.verdict.state for one in report.helps]
    return [(one.name, *two, one.known, state) for one, two, state in zip(report.helps, sizes, states, strict=True)]


def page(report: Report, card: Device | int | None) -> str:
    """The report as one HTML page that needs nothing else."""
    from course_utils.figures import skyline

    limit = card.memory_bytes if isinstance(card, Device) else card
    name = None if card is None else card.name if isinstance(card, Device) else card_name(card)
    template = Path(__file__).with_name("trace_page.html").read_text(encoding="utf-8")
    made: str = Template(template, autoescape=True, keep_trailing_newline=True).render(
        name=report.ledger.name, headline=headline(report), svg=skyline(report.ledger, limit, limit=name).svg,
        verdict=verdict_lines(report), layers=largest_layers(report.ledger), helps=help_rows(report),
        notes=report.notes,
    )  # fmt: skip
    return made
