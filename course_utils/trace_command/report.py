"""What `course trace` says, once: as text, as JSON, and as a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Template

from course_utils.machine.hardware import Device
from course_utils.memory import Ledger
from course_utils.techniques.capacity import FITS, Batches, Fit
from course_utils.trace_command.changes import ALTERS, Help
from course_utils.units import format_bytes


@dataclass(frozen=True)
class Report:
    """What the command found."""

    ledger: Ledger  # the step at its micro-batch
    settings: str  # it in words
    parameters: tuple[int, int]  # of the network, all and those that are trained
    context_bytes: int  # what the driver takes of a card at most
    verdict: Fit | None  # on the card, if there is one
    batches: Batches | None  # how far the card goes
    cache_bytes: int  # of the keys and values of one sequence, in inference
    helps: Sequence[Help]  # every change by itself, what fits first, then by what they save
    sets: Sequence[Help]  # several at once, as tried
    assumptions: Sequence[str]  # of the trace
    why: str  # the batch is traced by itself; empty where two traces stand for every batch
    notes: Sequence[str]  # whatever else is to be known

    @property
    def cheapest(self) -> Help | None:
        """The set of changes that makes it fit at the least price; None where it fits, or none was found."""
        if self.verdict is None or self.verdict.state == FITS:
            return None
        return min((one for one in (*self.helps, *self.sets) if one.fits), key=lambda one: one.price, default=None)

    def lines(self) -> list[str]:
        """The report as text, one line a row."""
        ledger = self.ledger
        found = [self.headline(), self.how_many(), "", "At the peak"]
        for role, count in ledger.by_role().items():
            if count:
                found.append(f"  {role:<18}{format_bytes(count):>12}{100 * count / ledger.peak_bytes:>5.0f} %")
        found += ["", *self.counters()]
        purpose = " for the backward pass" if self.parameters[1] else ""  # nothing is said of inference
        found += ["", f"Largest layers: maps kept{purpose}, parameters"]
        layers = self.largest_layers()
        longest = max(len(name) for name, _, _ in layers)
        found += [f"  {name:<{longest}}{kept:>14}{count:>14}" for name, kept, count in layers]
        found += ["", *self.verdict_lines()]
        rows = self.help_rows()
        width = max((len(row[0]) for row in rows), default=0)
        if rows:
            found += ["", *([] if (way := self.way_out()) is None else [way, ""])]
            found.append(f"{'What would change':<{width + 2}}{'peak':>12}{'saves':>12}")
        for name, peak, saves, known, state, cost in rows:
            found.append(f"  {name:<{width}}{peak:>12}{saves:>12}  {known:<9}{state:<6}{cost}".rstrip())
        return [*found, *([""] if (more := self.remarks()) else []), *more]

    def headline(self) -> str:
        """The step and its peak in one sentence."""
        ledger = self.ledger
        layer = f", layer {ledger.peak_layer}" if ledger.peak_layer not in ("", ledger.name) else ""
        return (
            f"{ledger.name}, {self.settings}: {format_bytes(ledger.peak_bytes)} at the peak, "
            f"in the {ledger.peak_phase} phase{layer}."
        )

    def how_many(self) -> str:
        """How many parameters there are."""
        every, trained = self.parameters
        return f"{every:,} parameters" + (f", {trained:,} of them trained." if 0 < trained < every else ".")

    def counters(self) -> list[str]:
        """What PyTorch's counters and nvidia-smi would say, and the cache of keys and values."""
        ledger, context = self.ledger, self.context_bytes
        reserved = ledger.reserved_bytes()
        found = [
            f"PyTorch would report {format_bytes(ledger.allocated_bytes())} allocated and {format_bytes(reserved)} "
            f"reserved; nvidia-smi {format_bytes(reserved + context)}, with {format_bytes(context)} of context at most."
        ]
        if self.cache_bytes:
            kept = self.cache_bytes * ledger.batch
            lasting = format_bytes(kept + int(ledger.by_role()["parameters"]))
            found.append(
                f"Keys and values are {format_bytes(kept)} of it, {format_bytes(self.cache_bytes)} a sequence; "
                f"with the weights, {lasting}, they stay while further tokens are made."
            )
        if ledger.tape.convolutions.any():
            found.append("Not counted there: the scratch memory that the library's convolutions ask PyTorch for.")
        return found

    def verdict_lines(self) -> list[str]:
        """Verdict and largest batch; what to do where no card was named."""
        if self.verdict is None:
            return ['Name a card for a verdict: --card "RTX 4090", or --card 24 for so many GiB.']
        head = f"{self.verdict.card}: {self.verdict.sentence}"
        return [head, *([] if self.batches is None else [self.batches.words])]

    def way_out(self) -> str | None:
        """The cheapest set of changes that makes it fit, as a sentence; None where there is nothing to say."""
        if self.verdict is None or self.verdict.state == FITS:
            return None
        if (one := self.cheapest) is None:
            return "No change below makes it fit, nor any set of up to three that was worth tracing."
        return f"The gentlest way that makes it fit: {one.name} ({one.cost})."

    def largest_layers(self) -> list[tuple[str, str, str]]:
        """The five layers that keep the most for the backward pass: name, bytes, parameters."""
        table = self.ledger.by_layer().nlargest(5, "saved feature maps")
        return [
            (str(row["layer"]) or "(top)", format_bytes(row["saved feature maps"]), f"{row['parameters']:,}")
            for _, row in table.iterrows()
        ]

    def help_rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """For each change or set: name, peak, what it saves, how that is known, the verdict, what it costs."""
        before, first = self.ledger.peak_bytes, self.cheapest
        tried = [] if self.verdict is not None else self.sets  # a set that was traced in vain is no help
        rest = [one for one in (*self.helps, *tried) if one is not first and one.peak_bytes < before]
        return [
            (
                one.name, format_bytes(one.peak_bytes), format_bytes(before - one.peak_bytes), one.known,
                "" if one.verdict is None else one.verdict.state, one.cost,
            )
            for one in ([] if first is None else [first]) + rest
        ]  # fmt: skip

    def remarks(self) -> list[str]:
        """What is assumed and what was left out."""
        vain = [one.name for one in self.helps if one.peak_bytes >= self.ledger.peak_bytes]
        saved = [f"Saves nothing here: {', '.join(vain)}."] if vain else []
        why = [f"This batch was traced by itself: {self.why}."] if self.why else []
        return [*saved, *self.notes, *why, *(f"Assumed: {text}." for text in self.assumptions)]

    def as_json(self) -> dict[str, Any]:
        """The report as plain values; bytes are whole numbers."""
        ledger, verdict, batches = self.ledger, self.verdict, self.batches

        def helped(one: Help) -> dict[str, Any]:
            return {
                "changes": [change.name for change in one.changes] or [one.name], "peak_bytes": one.peak_bytes,
                "saves_bytes": ledger.peak_bytes - one.peak_bytes, "known": one.known, "alters": ALTERS[one.alters],
                "cost": one.cost, "verdict": one.verdict and one.verdict.state,
            }  # fmt: skip

        return {
            "name": ledger.name, "settings": self.settings, "batch": ledger.batch,
            "parameters": self.parameters[0], "trained_parameters": self.parameters[1],
            "peak_bytes": ledger.peak_bytes, "peak_phase": ledger.peak_phase, "peak_layer": ledger.peak_layer,
            "roles_bytes": {str(role): int(count) for role, count in ledger.by_role().items()},
            "allocated_bytes": ledger.allocated_bytes(), "reserved_bytes": ledger.reserved_bytes(),
            "context_bytes": self.context_bytes, "cache_bytes_a_sequence": self.cache_bytes,
            "card": verdict and {
                "name": verdict.card, "bytes": verdict.card_bytes, "state": verdict.state, "decided": verdict.decided,
                "sentence": verdict.sentence,
            },
            "largest_batch": batches and {"fits": batches.fits, "some": batches.some, "tight": batches.tight},
            "cheapest": self.cheapest and helped(self.cheapest),
            "changes": [helped(one) for one in self.helps], "sets": [helped(one) for one in self.sets],
            "assumptions": list(self.assumptions), "why": self.why, "notes": list(self.notes),
        }  # fmt: skip

    def page(self, card: Device | int | None) -> str:
        """The report as one HTML page that needs nothing else."""
        from course_utils.figures import skyline

        template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
        made: str = Template(template, autoescape=True, keep_trailing_newline=True).render(
            report=self, svg=skyline(self.ledger, card).svg
        )
        return made
