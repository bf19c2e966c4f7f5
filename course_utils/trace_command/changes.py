"""What would help: every change to the step that may save memory, what it costs, and the cheapest set that fits.

Each figure is of the changed step itself: *traced*, as the first one was, but for the offload schedule, which is
*computed* from its trace. Which sets are worth tracing is guessed from the changes one by one; what is printed is not.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from course_utils.machine.context import Context
from course_utils.machine.hardware import Device
from course_utils.memory import PHASES, Int64, Ledger
from course_utils.techniques.capacity import FITS, Fit, fit
from course_utils.techniques.fine_tuning import RANK
from course_utils.techniques.offload import simulate
from course_utils.trace_command.network import Network, Settings
from course_utils.trace_command.optimizers import EIGHT_BIT, ONE_KERNEL
from course_utils.units import CourseError

TRACED, COMPUTED = "traced", "computed"
# What a change alters, the cheapest first: time, how numbers are rounded, the update, what is trained or read.
TIME, ROUNDING, UPDATE, MODEL = range(4)
ALTERS = ("time", "rounding", "the update", "the model or its task")
LARGEST_SET = 3  # changes in a set
TRIED = 5  # sets that are traced in search of one that fits; they are tried from the cheapest on


@dataclass(frozen=True)
class Change:
    """One change to the settings."""

    name: str  # what is changed
    cost: str | Callable[[], str] = field(hash=False)  # what it costs, in words, or what finds them from a trace
    alters: int  # TIME, ROUNDING, UPDATE or MODEL
    settings: dict[str, Any] = field(hash=False)  # the fields of `Settings` that it sets


@dataclass(frozen=True)
class Help:
    """What a change, or several at once, does to the step."""

    changes: tuple[Change, ...]  # none for what is no change of the settings, the offload
    name: str  # of it
    cost: str  # what it costs, in words
    alters: int  # the most that one of them does
    peak_bytes: int  # of the changed step
    verdict: Fit | None  # on the card, if there is one; None where only the peak is known
    known: str  # TRACED or COMPUTED
    # (phases, roles) bytes at the peak of each phase; None where they are not known.
    roles: Int64 | None = field(default=None, repr=False, compare=False)

    @property
    def fits(self) -> bool:
        """Whether it makes the step fit the card."""
        return self.verdict is not None and self.verdict.state == FITS

    @property
    def price(self) -> tuple[int, int, int]:
        """To be sorted by: what it alters, how many changes it takes, its peak."""
        return self.alters, len(self.changes), self.peak_bytes


class Workbench:
    """Tries changes on a network's step, with verdicts on a card, or on so many bytes, where one is given."""

    def __init__(self, network: Network, settings: Settings, card: Device | int | None, taken: Context) -> None:
        self.network, self.settings, self.card, self.taken = network, settings, card, taken
        self.ledger = self.at(settings)
        self.notes: list[str] = []

    def at(self, settings: Settings) -> Ledger:
        """The step with these settings, at its micro-batch."""
        return self.network.step(settings).at(settings.batch // settings.accumulate)

    def verdict(self, ledger: Ledger) -> Fit | None:
        """On the card, if there is one."""
        return None if self.card is None else fit(ledger, self.card, taken=self.taken)

    def with_changes(self, *changes: Change) -> Help:
        """The step with these changes, traced. Raises CourseError if it cannot be."""
        settings = replace(self.settings, **{name: value for one in changes for name, value in one.settings.items()})
        ledger = self.at(settings)
        costs = [one.cost if isinstance(one.cost, str) else one.cost() for one in changes]
        return Help(
            changes, " + ".join(one.name for one in changes), "; ".join(costs), max(one.alters for one in changes),
            ledger.peak_bytes, self.verdict(ledger), TRACED, _roles(ledger),
        )  # fmt: skip

    def _if_traced(self, *changes: Change) -> list[Help]:
        """The step with these changes; nothing, and a note, where it cannot be traced."""
        try:
            return [self.with_changes(*changes)]
        except CourseError as error:
            self.notes.append(f"Left out, {' + '.join(one.name for one in changes)}: {error}.")
            return []

    # -- one by one ------------------------------------------------------------------------------------------------

    def changes(self) -> Iterator[Change]:
        """Those that alter this step."""
        now, network = self.settings, self.network
        dtype = network.dtype(now)
        if now.trains:
            yield from self._of_training(dtype)
        if dtype == "float32" and not now.four_bit:
            lost = "an update below 1/512 of its weight is lost" if now.trains else "8 significant bits"
            yield Change("bfloat16 weights", lost, ROUNDING, {"weights": "bfloat16", "precision": "float32"})
        if not now.trains and network.tokens and network.blocks:
            settings = {"weights": now.weights or "bfloat16", "four_bit": True}
            yield Change("4-bit weights", "4 bits of each weight; made wide for every product", ROUNDING, settings)
        if now.batch > now.accumulate and not now.batch % (2 * now.accumulate):
            half = now.batch // 2
            yield Change(f"a batch of {half:,}", "half the samples at a time", UPDATE, {"batch": half})
        if now.sequence >= 2:
            half = now.sequence // 2
            yield Change(f"{half:,} tokens", "half the context", MODEL, {"sequence": half})

    def _of_training(self, dtype: str) -> Iterator[Change]:
        now, network = self.settings, self.network
        if other := ONE_KERNEL.get(now.optimizer):
            yield Change("fused update", "nothing (fused=True)", TIME, {"optimizer": other})
        if now.accumulate == 1 and not now.in_backward and now.zero_grad in ("", "end") and now.optimizer != "muon":
            settings: dict[str, Any] = {"in_backward": True, "accumulate": 1}
            if now.optimizer in ONE_KERNEL.values():  # torch's own, one weight at a time
                settings["optimizer"] = now.optimizer.removesuffix("-fused")
            cost = "a hook a weight; no clipping by the norm of all gradients"
            yield Change("update in backward", cost, TIME, settings)
        if (micro := self._micro_batch()) and not now.in_backward:
            passes = now.batch // micro
            alters, cost = UPDATE if network.norms else TIME, f"{passes} passes an update"
            yield Change(f"accumulation, {passes:,} × {micro:,}", cost, alters, {"accumulate": passes})
        if network.blocks and not now.checkpoint:
            yield Change(f"checkpointing of {network.blocks} blocks", self._again, TIME, {"checkpoint": True})
        if now.precision == "float32" and dtype == "float32":
            yield Change("bfloat16 autocast", "products of 8 significant bits", ROUNDING, {"precision": "bfloat16"})
        if other := EIGHT_BIT.get(now.optimizer):
            yield Change("8-bit Adam", "moments rounded to 8 bits (bitsandbytes)", ROUNDING, {"optimizer": other})
        if network.tokens and network.blocks and not now.rank:
            settings = {"rank": RANK, "in_backward": False}
            yield Change(f"LoRA {RANK}", partial(self._trained, settings), MODEL, settings)
            settings = settings | {"four_bit": True, "weights": "bfloat16", "precision": "float32"}
            yield Change(f"QLoRA {RANK}", partial(self._trained, settings), MODEL, settings)

    def _micro_batch(self) -> int:
        """The next smaller micro-batch, or the largest that fits the card; 0 if there is none."""
        now = self.settings
        smaller = [n for n in range(now.batch // now.accumulate - 1, 0, -1) if now.batch % n == 0]
        if self.card is None or not smaller or (found := self.verdict(self.ledger)) is None or found.state == FITS:
            return next(iter(smaller), 0)
        step = self.network.step(replace(now, accumulate=2, in_backward=False))
        return next((n for n in smaller if found.holds(step.at(n).peak_bytes)), smaller[-1])

    def _again(self) -> str:
        """What checkpointing costs: the forward pass of the blocks once more."""
        tape = self.at(replace(self.settings, checkpoint=True)).tape
        flops = tape.event_flops[:, 0] + tape.event_flops[:, 1] * self.ledger.batch
        again = flops[tape.recomputed].sum()
        twice = "; batch norms count each batch twice" if self.network.norms else ""
        return f"{100 * (again / (flops.sum() - again)):.0f} % more arithmetic{twice}"

    def _trained(self, settings: dict[str, Any]) -> str:
        model = self.network.changed(replace(self.settings, **settings))
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        share = trained / sum(p.numel() for p in self.network.model.parameters())
        rest = ", the rest in 4 bits" if settings.get("four_bit") else ""
        return f"trains {100 * share:.2f} % as many parameters{rest}"

    def singles(self) -> list[Help]:
        """Every change by itself; what cannot be traced is a note."""
        found = [one for change in self.changes() for one in self._if_traced(change)]
        if self.settings.trains and isinstance(self.card, Device):
            if self.card.link is None:
                self.notes.append(
                    f"Left out, offload: it depends on the link to the host, and the catalogue has no confirmed one of "
                    f"{self.card.name}."
                )
            else:
                schedule = simulate(self.ledger, self.card, "all", precision=self.ledger.precision)
                cost = "copies over the link to the host"
                found.append(Help((), "offload of all maps", cost, TIME, int(schedule.peak_bytes), None, COMPUTED))
        return found

    # -- together --------------------------------------------------------------------------------------------------

    def sets(self, singles: Sequence[Help]) -> list[Help]:
        """Sets of changes, traced: the cheapest that fits the card; without a card, the pair that seems to save most.

        Nothing where the step fits as it is. Of a set the effect is first guessed from those of its members, role by
        role; those that may fit are then traced from the cheapest on, until one fits.
        """
        before = self.verdict(self.ledger)
        if before is not None and before.state == FITS:
            return []
        price: dict[tuple[Change, ...], tuple[int, int, int]] = {}
        for count in range(2, (2 if before is None else LARGEST_SET) + 1):
            for those in combinations([one for one in singles if one.changes], count):
                changes = tuple(one.changes[0] for one in those)
                touched = [name for change in changes for name in change.settings]
                if len(touched) == len(set(touched)):
                    price[changes] = max(one.alters for one in changes), count, self._guessed(those)
        if before is None:
            gentle = [changes for changes, (alters, *_) in price.items() if alters <= ROUNDING]
            return self._tried(sorted(gentle, key=lambda changes: price[changes][2])[:1])
        limit = min((one.price for one in singles if one.fits), default=(len(ALTERS), 0, 0))
        hopeful = [changes for changes, at in price.items() if at < limit and before.holds(at[2])]
        hopeful.sort(key=price.__getitem__)
        if len(hopeful) > TRIED:  # at the last, the one that seems to save most
            hopeful = [*hopeful[: TRIED - 1], min(hopeful, key=lambda changes: price[changes][2])]
        return self._tried(hopeful)

    def _guessed(self, those: Sequence[Help]) -> int:
        """The peak with several changes at once, if each did to a role's bytes in a phase what it does alone."""
        now = _roles(self.ledger)
        alone = np.array([one.roles for one in those])
        scaled = now * np.prod(alone / np.maximum(now, 1), axis=0)
        return int(np.where(now > 0, scaled, alone.max(axis=0)).sum(axis=1).max())

    def _tried(self, sets: Sequence[tuple[Change, ...]]) -> list[Help]:
        found: list[Help] = []
        for changes in sets:
            found += self._if_traced(*changes)
            if found and found[-1].fits:
                break
        return found


def _roles(ledger: Ledger) -> Int64:
    """(phases, roles) bytes at the peak of each phase."""
    phase = ledger.tape.event_phase
    found = np.zeros((len(PHASES), ledger.matrix.shape[1]), dtype=np.int64)
    for code in np.unique(phase):
        found[code] = ledger.matrix[np.argmax(np.where(phase == code, ledger.total, -1))]
    return found
