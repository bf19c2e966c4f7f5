"""The guide as a page: a fragment of HTML with its script, and beside it one small file of answers for each model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Template

from course_utils.files import write_whole
from course_utils.machine.hardware import Device
from course_utils.techniques.capacity import FITS, NO, TIGHT
from course_utils.techniques.fine_tuning import RANK
from course_utils.units import GB, GIB, MIB, as_written, format_bytes
from website.guide.articles import said
from website.guide.measured import measured, off
from website.guide.models import IMAGE, LATENT, MODELS, TEXT, Model
from website.guide.read import Guide, difference, guide
from website.guide.steps import FUSED, LORA, METHODS, MIXED, QLORA, Way, methods

HERE = Path(__file__).parent
DOCUMENT = "field-guide.md"
FIRST, FIRST_CARD = "llama_3_8b", "RTX 4090"  # chosen when the page opens
KINDS = {TEXT: "language", IMAGE: "vision", LATENT: "diffusion"}
UNITS = {TEXT: "tokens", IMAGE: "pixels", LATENT: "places a side"}
LENGTHS = {TEXT: 2048, IMAGE: 224, LATENT: 32}  # of the table of the smallest cards, where there are answers for them


def _key(way: Way) -> str:
    return f"{way.method}/{way.optimizer}/{int(way.checkpoint)}/{way.length}"


def part(table: Guide, model: Model) -> str:
    """The script that gives a model's answers to the page, every sentence as `read.Answer` says it."""
    found: dict[str, Any] = {}
    for way in table.ways(model):
        of_cards, line = [], ""
        for card in table.cards:
            answer = table.answer(model, way, card)
            of_cards.append([answer.batch, answer.sentence, *_way_out(table, model, way, card, answer.fits)])
            line = line or _open(answer.command, max(1, answer.batch), card)
        found[_key(way)] = {"cards": of_cards, "command": line, "sketch": table.kept(model, way)["sketch"]}
    return f"fieldGuide({json.dumps(model.key)},{json.dumps({'ways': found}, separators=(',', ':'))});\n"


def _open(command: str, batch: int, card: str) -> str:
    """A command with places for the batch and the card."""
    return command.replace(f"--batch {batch} ", "--batch {batch} ").replace(f'--card "{card}"', '--card "{card}"')


def _way_out(table: Guide, model: Model, way: Way, card: str, fits: bool) -> list[str]:
    """Where one sample does not fit: the way with which it does, by its key and in words; else nothing."""
    if fits or (found := table.gentlest(model, way, card)) is None:
        return []
    other, alters = found
    return [_key(other), f"{difference(way, other, model)} (it alters {alters})"]


def _card(card: Device) -> dict[str, Any]:
    note = "" if card.bfloat16 else f"{card.name} has no arithmetic in bfloat16: there write float16."
    return {"name": card.name, "gib": round(card.memory_bytes / GIB, 2), "note": note}


def _data(table: Guide, parts: str) -> str:
    models = {
        key: {"methods": methods(one), "lengths": one.lengths, "unit": UNITS[one.kind], "blocks": one.blocks}
        for key, one in table.models.items()
    }
    cards = [_card(card) for card in table.cards.values()]
    found = {"parts": parts, "cards": cards, "card": FIRST_CARD, "models": models}
    return json.dumps(found, separators=(",", ":")).replace("</", "<\\/")


def _smallest(table: Guide) -> Iterator[dict[str, Any]]:
    """For each model and method the card with the least memory that takes one sample."""
    cards = sorted(table.cards.values(), key=lambda card: card.memory_bytes)
    for model in table.models.values():
        length = LENGTHS[model.kind] if LENGTHS[model.kind] in model.lengths else model.lengths[-1]
        found = []
        for method in (MIXED, LORA, QLORA):
            if method not in methods(model):
                found.append("")
                continue
            way = Way(method, FUSED, model.blocks, length)
            fits = (card.name for card in cards if table.answer(model, way, card.name).fits)
            found.append(next(fits, "none"))
        name = f"{model.name}, {length:,} {UNITS[model.kind]}"
        yield {"name": name, "parameters": f"{model.parameters:,}", "cards": found, "source": model.source}


def _measured(table: Guide) -> Iterator[tuple[str, ...]]:
    for row in measured():
        if row.name not in table.measured:
            continue
        step, ours = f"{MODELS[row.model].name}, {row.way.method}", table.measured[row.name]
        if row.card:
            ran = f"{row.batch} ran" + (f", {row.failed} failed" if row.failed else "")
            said = "; ".join(f"{batch} {words}" for batch, _, words in ours)
            yield f"{step}, {row.way.length:,}", ran, said, agrees([state for _, state, _ in ours])
        else:
            step = f"{step}, batch {row.batch} × {row.way.length:,}"
            yield step, format_bytes(row.mib * MIB), format_bytes(ours), as_written(f"{100 * off(row, ours):+.1f} %")


def agrees(states: Sequence[str]) -> str:
    """What verdicts on the batch that ran, and on the one that failed if there is one, are worth."""
    ran, *failed = states
    if ran == NO or FITS in failed:
        return "wrong"
    return "left open" if TIGHT in states else "agrees"


def _measured_intro(table: Guide) -> str:
    return (
        "Peaks of a Tesla T4 (fitcheck-llm 0.3.1, MIT licence) and batches of an RTX 3090 (pytorch-image-models, "
        f"Apache-2.0) beside the guide's step. {_largest(table)} One difference is known: theirs have LoRA of rank 32 "
        f"on four matrices of a layer, the guide's of rank {RANK} on all. The search on the RTX 3090 has autocast, "
        "optimizer and layout of the guide; its gradients, as torch 1.12 clears them, stay at 0 between steps, the "
        "guide's are freed. \"Left open\" is a batch that is tight: whether it runs depends on what the driver and the "
        "libraries take of the card, and the guide names the largest batch that surely fits."
    )


def _largest(table: Guide) -> str:
    """The largest difference from a measured peak, for each method."""
    found: dict[str, list[float]] = {}
    for row in measured():
        if row.mib and row.name in table.measured:
            found.setdefault(row.way.method, []).append(off(row, table.measured[row.name]))
    worst = {method: 100 * max(those, key=abs) for method, those in found.items()}
    lines = (f"{method}: {len(found[method])} peaks, the worst off by {one:+.1f} %." for method, one in worst.items())
    return as_written(" ".join(lines))


def _said(table: Guide) -> Iterator[dict[str, str]]:
    for one in said(table):
        name = table.models[one.model].name
        yield {
            "title": one.title, "address": one.address, "what": f"{one.says}, {one.method}: {one.gb:g} GB",
            "found": f"{name}: {one.low / GB:,.1f} to {one.high / GB:,.1f}", "judgement": one.judgement,
        }  # fmt: skip


def fragment(table: Guide | None = None, parts: str = "guide/") -> str:
    """The guide as a fragment for any page: sections, and headings between them.

    Args:
        table: the answers; those of this folder if not given.
        parts: where the page finds the files of `write_parts`, relative to itself, with a slash at the end.
    """
    table = table or guide()
    kinds = {
        name: [one for one in table.models.values() if one.kind == kind]
        for kind, name in KINDS.items()
        if any(one.kind == kind for one in table.models.values())
    }
    count, rows = len(table.models), sum(1 for _ in table)
    template = Template((HERE / "guide.html").read_text(encoding="utf-8"), keep_trailing_newline=True)
    html: str = template.render(
        intro=f"{rows:,} answers on {count} models and {len(table.cards)} cards, each from a training step that was "
        f"traced with torch {table.torch}, none from a rule of thumb. Batches looked at are 1, 2, 3, 4, 6, 8, 12 and "
        f"so on; LoRA and QLoRA have rank {RANK} on every linear layer of the blocks. A mixture of experts is taken to "
        "spread its tokens evenly.",
        lab="from website.guide.explorer import field_guide; field_guide()",
        first=FIRST if FIRST in table.models else next(iter(table.models)), kinds=kinds,
        data=_data(table, parts), script=(HERE / "guide.js").read_text(encoding="utf-8"),
        methods=[MIXED, LORA, QLORA], smallest=_smallest(table),
        smallest_intro="The card with the least memory on which one sample surely fits. Each block is computed again, "
        f"where there are blocks; the optimizer is {FUSED}.",
        measured=_measured(table),
        measured_intro=_measured_intro(table),
        said=_said(table),
        said_intro="What three pages say one needs, and what the guide finds at batch 1 from the best to the worst of "
        "its optimizers, with blocks computed again or not. Where a page gives no length, up to 2,048 tokens. GB are "
        "10⁹ bytes, and half a GB is let pass.",
    )  # fmt: skip
    return html


def write_parts(folder: Path, table: Guide | None = None) -> list[Path]:
    """One file for each model, which the page loads when it is chosen. Returns their paths."""
    table, written = table or guide(), []
    for model in table.models.values():
        written.append(folder / f"{model.key}.js")
        write_whole(written[-1], part(table, model))
    return written


def write(folder: Path) -> str:
    """The guide as a document that Sphinx reads, with its answers among the static files.

    Args:
        folder: of the site's documents.

    Returns:
        The document's path in it.
    """
    write_parts(folder / "_static" / "guide")
    html = fragment(parts="_static/guide/")
    title = "# What fits: the field guide\n\nHow much GPU memory (VRAM) does it take to train or fine-tune a model?"
    # Headings as Sphinx's own: it lists in a page's contents what it has read, and not what is in raw HTML.
    html = re.sub(r"<h2>(.*?)</h2>\n", r"````\n\n## \1\n\n````{raw} html\n", html)
    write_whole(folder / DOCUMENT, f"{title}\n\n````{{raw}} html\n{html}\n````\n\n{_contents(guide())}\n")
    return DOCUMENT


def _contents(table: Guide) -> str:
    """What there are answers for, in words that the site's search reads: it does not look into raw HTML."""
    names = ", ".join(model.name for model in table.models.values())
    return f"## What it covers\n\n- Models: {names}.\n- Ways: {'; '.join(METHODS)}.\n- Cards: {', '.join(table.cards)}."
