"""`course trace`: a network of the reader's own, traced from the terminal, and what would help it onto a card.

Every figure is the library's. The builder's code runs here, with the permissions of whoever runs the command.
`builders` finds the network, `network` traces it under `Settings`, `changes` tries others, `report` says it.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import NoReturn

from torch import nn

from course_utils.files import write_whole
from course_utils.machine import hardware
from course_utils.machine.context import context, known_context
from course_utils.machine.hardware import Device
from course_utils.techniques.capacity import largest_batch
from course_utils.trace import PRECISIONS
from course_utils.trace_command.builders import DTYPES, build, own, transformer
from course_utils.trace_command.changes import Workbench
from course_utils.trace_command.network import CLEARED, WEIGHTS, Network, Settings
from course_utils.trace_command.optimizers import NAMES
from course_utils.trace_command.report import Report
from course_utils.units import GIB, CourseError, require_whole

LARGEST_CARD = 1000  # GiB; a number above it is a name cut short
LARGEST_BATCH = 10**7


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """What is wrong with the command line, as one line."""
        raise CourseError(f"{message}: course trace --help says what there is")


def parser() -> argparse.ArgumentParser:
    """The command line of `course trace`."""
    found = _Parser(
        prog="course trace",
        description="Trace one training step of your own network without running it: who owns the memory, whether it "
        "fits a card, and what would help. The builder is your code, and runs with your permissions.",
        allow_abbrev=False,
    )
    found.add_argument("builder", nargs="?", metavar="PACKAGE.MODULE:BUILDER", help="a function that returns the model")
    add = found.add_argument_group("the network").add_argument
    add("--hf", type=Path, metavar="CONFIG.json", help="in place of a builder: a transformers model by its config")
    add("--sequence", type=int, metavar="N", help="tokens in a sample, with --hf")
    add("--input", metavar="3,224,224", help="shape of one sample, without the batch; token ids: int64:1024")
    add("--classes", type=int, metavar="N", help="columns that the output must have")
    add(
        "--loss", default="", metavar="LOSS",
        help="classes: cross entropy with one label a sample; tokens (for token ids): with one a token; returned: "
        "model(x, y) gives it; or MODULE:FUNCTION of (model, x)",
    )  # fmt: skip
    add = found.add_argument_group("the step").add_argument
    add("--batch", type=int, default=32, metavar="N", help="samples in the batch (default: 32)")
    add("--accumulate", type=int, default=1, metavar="N", help="micro-batches that the batch is run in (default: 1)")
    add(
        "--optimizer", metavar="NAME",
        help=f"{', '.join(NAMES)}, or MODULE:FUNCTION of a list of parameters (default: adamw)",
    )  # fmt: skip
    add("--precision", choices=PRECISIONS, default="float32", help="autocast but for float32, the default")
    add("--weights", choices=WEIGHTS, default="", help="dtype of all weights (default: as built)")
    add("--checkpoint", action="store_true", help="run every block again in the backward pass")
    add("--lora", type=int, metavar="RANK", help="train LoRA beside the linear layers of the blocks")
    add("--qlora", type=int, metavar="RANK", help="the same with those layers in 4 bits, the rest float32")
    add(
        "--zero-grad", choices=CLEARED, default="", metavar="WHERE",
        help="where gradients are cleared: at the end of a step (default), before-backward as in Lightning, or never",
    )  # fmt: skip
    add("--in-backward", action="store_true", help="update each weight as soon as its gradient is there")
    add("--inference", action="store_true", help="no training: the forward pass; with --hf a prompt, its cache kept")
    add = found.add_argument_group("the answer").add_argument
    add("--card", metavar="NAME", help='a card of the catalogue, such as "RTX 4090", or its GiB')
    add(
        "--context", type=float, metavar="GIB",
        help="what the driver takes of the card (default: between the least and the most that was seen)",
    )  # fmt: skip
    add("--html", type=Path, metavar="FILE", help="also write one page with the skyline")
    add("--json", action="store_true", help="print the answer as JSON, bytes as whole numbers")
    return found


def trace_command(arguments: Sequence[str], root: Path | None = None) -> int:
    """Run `course trace`. Raises CourseError for no such builder or card, or what cannot be built or traced."""
    options = parser().parse_args(arguments)
    with redirect_stdout(sys.stderr):  # what the builder prints is no part of the answer
        report = make_report(options)
    print(json.dumps(report.as_json(), indent=2) if options.json else "\n".join(report.lines()))
    if options.html:
        try:
            write_whole(options.html, report.page(card_of(options.card)))
        except OSError as error:
            raise CourseError(f"cannot write {options.html}: {error.strerror or error}") from error
        if not options.json:
            print(f"\nWritten: {options.html}")
    return 0


def make_report(options: argparse.Namespace) -> Report:
    """Trace the step, and every change to it that may help. Raises CourseError as `trace_command` does."""
    card, settings = card_of(options.card), settings_of(options)
    if options.context is None:
        taken = context(card if isinstance(card, Device) else None)
    elif 0 <= options.context < float("inf"):
        taken = known_context(int(options.context * GIB))
    else:
        raise CourseError(f"--context must be 0 GiB or more, got {options.context:g}")
    network = network_of(options)
    bench = Workbench(network, settings, card, taken)
    step, verdict = network.step(settings), bench.verdict(bench.ledger)
    batches = None
    if card is not None:
        try:
            batches = largest_batch(step, card, taken)
        except CourseError as error:  # memory does not grow with the batch
            bench.notes.append(f"{error}.")
    singles = bench.singles()
    sets = bench.sets(singles)
    singles.sort(key=lambda one: (0, *one.price) if one.fits else (1, one.peak_bytes))
    model = network.changed(settings)
    if settings.trains and network.norms:
        bench.notes.append("The network has batch norms: a smaller or an accumulated batch is another update.")
    if isinstance(card, Device) and not card.bfloat16 and "bfloat16" in (settings.precision, network.dtype(settings)):
        bench.notes.append(f"{card.name} has no arithmetic in bfloat16: there write float16.")
    if settings.rank:
        wide = "As peft prepares it, all that is not in 4 bits is float32." if settings.four_bit else ""
        bench.notes.append(f"{wide or 'Adapters have the dtype of the weights beside them.'} Adapters have no dropout.")
    if not settings.trains and not network.cached:
        bench.notes.append("Of a network of your own the forward pass is traced: no keys and values are kept.")
    return Report(
        bench.ledger, in_words(network, settings), counted(model, settings), taken.most, verdict, batches,
        network.cache_bytes(settings), singles, sets, step.assumptions,
        step.why, bench.notes,
    )  # fmt: skip


def counted(model: nn.Module, settings: Settings) -> tuple[int, int]:
    """Parameters of a network, all and those that are trained; two of a 4-bit weight are in one byte."""
    values = {id(p): (p.numel() * (1 if p.dtype.is_floating_point else 2), p) for p in model.parameters()}
    scales = {id(p) for name, p in model.named_parameters() if name.endswith(".scales") and settings.four_bit}
    trained = sum(count for count, p in values.values() if p.requires_grad and settings.trains)
    return sum(count for key, (count, _) in values.items() if key not in scales), trained


def in_words(network: Network, settings: Settings) -> str:
    """How the step is taken: "batch 32, adamw, float32 weights, bfloat16 autocast"."""
    found = [f"batch {settings.batch:,}"]
    if settings.accumulate > 1:
        found[0] += f" in {settings.accumulate:,} micro-batches"
    if settings.sequence:
        found.append(f"{settings.sequence:,} tokens")
    found.append(settings.optimizer if settings.trains else "inference")
    dtype = network.dtype(settings)
    found.append(f"4-bit weights, {dtype} products" if settings.four_bit else f"{dtype} weights")
    if settings.precision != "float32":
        found.append(f"{settings.precision} autocast")
    if settings.rank:
        found.append(f"LoRA {settings.rank}")
    found += [f"gradients cleared {CLEARED[settings.zero_grad]}"] if settings.zero_grad else []
    found += ["checkpointing"] * settings.checkpoint + ["update in backward"] * settings.in_backward
    return ", ".join(found)


# -- The command line, read ---------------------------------------------------------------------------------------


def settings_of(options: argparse.Namespace) -> Settings:
    """The step that is asked for. Raises CourseError for numbers out of range, or options that exclude each other."""
    for name in ("batch", "accumulate", "lora", "qlora"):
        if (number := getattr(options, name)) is not None:
            require_whole(f"--{name}", number)
    batch, parts = options.batch, options.accumulate
    if batch > LARGEST_BATCH:
        raise CourseError(f"--batch must be at most {LARGEST_BATCH:,}, got {batch:,}")
    if batch % parts:
        raise CourseError(f"--accumulate must divide the batch, and {parts:,} does not divide {batch:,}")
    if options.lora and options.qlora:
        raise CourseError("give either --lora or --qlora, not both")
    optimizer = "adamw" if options.optimizer is None else options.optimizer
    optimizer = optimizer if ":" in optimizer else optimizer.lower()
    inference = options.inference or optimizer == "none"
    training = {"--accumulate": parts > 1, "--checkpoint": options.checkpoint, "--lora": options.lora,
                "--in-backward": options.in_backward, "--zero-grad": options.zero_grad,
                "--optimizer": options.optimizer and optimizer != "none"}  # fmt: skip
    if inference and (wrong := [name for name, given in training.items() if given]):
        raise CourseError(f"--inference trains nothing: leave out {wrong[0]}")
    weights = options.weights or ("bfloat16" if options.qlora else "")
    return Settings(
        batch, "none" if inference else optimizer, options.precision, weights,
        options.sequence or 0, parts, options.checkpoint,
        0 if inference else options.lora or options.qlora or 0, bool(options.qlora), options.in_backward,
        options.zero_grad,
    )  # fmt: skip


def network_of(options: argparse.Namespace) -> Network:
    """The network that is asked for. Raises CourseError where there is none, or what goes in is not said."""
    if bool(options.builder) == bool(options.hf):
        raise CourseError("give either PACKAGE.MODULE:BUILDER or --hf CONFIG.json")
    if options.hf:
        given = [f"--{name}" for name in ("input", "classes", "loss") if getattr(options, name)]
        if given:
            raise CourseError(f"{given[0]} is for a builder: a transformer says by itself what it takes")
        return transformer(options.hf, options.sequence)
    if options.sequence is not None:
        way = f"or, for a network that reads token ids, write --input int64:{options.sequence}"
        raise CourseError(f"--sequence is for --hf: leave it out, {way}")
    model = build(options.builder)  # first: what is wrong with the name is said before what else is missing
    name = options.builder.partition(":")[2]
    return own(name, model, *input_of(options.input), options.classes, options.loss)


def input_of(text: str | None) -> tuple[tuple[int, ...], str]:
    """The shape that --input names, and the dtype. Raises CourseError where it is missing or names none."""
    if text is None:
        raise CourseError("--input is missing: give the shape of one sample, such as --input 3,224,224 or int64:1024")
    kind, _, shape = text.rpartition(":")
    if kind and kind not in DTYPES:
        raise CourseError(f"--input has no dtype {kind!r}: choose one of {', '.join(DTYPES)}")
    if not all(re.fullmatch(r" *0*[1-9]\d{0,11} *", part) for part in shape.split(",")):  # longer is no size
        raise CourseError(f"--input must be whole numbers above 0 with commas, such as 3,224,224; got {text!r}")
    return tuple(map(int, shape.split(","))), kind or "float32"


def card_of(text: str | None) -> Device | int | None:
    """The card that --card names, or so many GiB. Raises CourseError for no such card, and names the nearest."""
    if text is None:
        return None
    try:
        size = float(text.lower().removesuffix("gib").removesuffix("gb"))
    except ValueError:
        return hardware.device(text)
    if size > LARGEST_CARD and (names := [one.name for one in hardware.devices() if text in one.name]):
        raise CourseError(f"no card has {size:,.0f} GiB: did you mean {' or '.join(names)}?")
    if not 0 < size < float("inf"):
        raise CourseError(f"--card must be a name or more than 0 GiB, got {text!r}")
    return int(size * GIB)
