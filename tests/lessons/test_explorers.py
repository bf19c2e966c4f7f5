"""The explorers of all lessons by one measure: at their corners, when a control moves, where no kernel runs.

What is measured: words and picture agree with the reading, nothing overlaps, what the words advise is tried and helps,
a reading that is there is not traced again, and a start that no control can take is refused in one line. What only a
browser can tell, keys and speech, is measured of all of them in tests/classroom/test_browser.py; what the sentences of
one lesson say in its special cases, in test_explorer_words.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from amount import every_pair
from drawn import assert_well_laid, one_move
from test_plan import TITAN_X, problem

from classroom import ROOT
from classroom.explorer import FAINT, Explorer, View
from course_utils.machine import hardware
from course_utils.machine.speed import predict_step
from course_utils.networks import NETWORKS
from course_utils.techniques.capacity import FITS, NO, TIGHT, demand, fit, room_for_tensors
from course_utils.techniques.offload import simulate
from course_utils.trace.tracer import Tracer
from course_utils.units import CourseError, format_bytes, format_seconds
from lessons.batch_size.explorer import batch_explorer
from lessons.capstone.explorer import plan_explorer
from lessons.capstone.plan import Plan
from lessons.half_precision.explorer import OFFERED as HALVED
from lessons.half_precision.explorer import half_explorer
from lessons.half_precision.precision import Halving, speed_up
from lessons.hardware.explorer import hardware_explorer, on_todays
from lessons.many_gpus.explorer import cards_explorer
from lessons.memory.explorer import memory_explorer
from lessons.offload.explorer import MOVES, offload_explorer
from lessons.offload.explorer import OFFERED as MOVED
from lessons.offload.fits import fit_of
from lessons.one_by_one.explorer import SQUEEZED, squeeze_explorer
from lessons.one_card.explorer import EACH, WITHIN, one_card_explorer
from lessons.one_card.fine_tuning import step as fine_tuning_step
from lessons.pooling.explorer import NETWORK_NAMES, pool_explorer
from lessons.recompute.explorer import LEAST_TIME, LOWEST, NOTHING, recompute_explorer, segments_of
from lessons.shared.language_steps import kept_step
from lessons.shared.parallel import SCHEMES, STAGES
from lessons.stride.explorer import LAYERS, stride_explorer
from lessons.transformers.explorer import transformer_explorer
from lessons.why_gpus.crossover import batch_times
from lessons.why_gpus.explorer import ON_THE_CARD, who_wins_explorer
from lessons.why_gpus.hidden_layer import hidden_layer_step
from lessons.why_gpus.machine import XEONS

Reads = Callable[[Any], Sequence[str]]


@dataclass(frozen=True)
class Case:
    """One explorer, and what is known of it.

    Attributes:
        make: what the lesson calls.
        reads: what its words must hold at its present settings, from the reading.
        tried: by the name of a control, the values of its corners; its first and last if not given.
        helps: whether a view is better than the one whose advice it follows.
        refused: what a setting that cannot be says, as a pattern; "" if there is none.
        impossible: such a setting.
        still: controls of which a move traces nothing.
        searched: where the words say that nothing lowers the number, the controls that they mean.
        wrong: starts that no control can take, and what is said of them.
    """

    make: Callable[..., Any]
    reads: Reads
    tried: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    helps: Callable[[View, View], bool] = lambda before, after: (after.number or 0) < (before.number or 0)
    refused: str = ""
    impossible: Mapping[str, Any] = field(default_factory=dict)
    still: Sequence[str] = ("batch",)
    searched: Sequence[str] = ()
    wrong: Sequence[tuple[Mapping[str, Any], str]] = ()


def _fits(_before: View, after: View) -> bool:
    return "It fits" in after.sentences[0]


def who_wins(explorer: Any) -> list[str]:
    gpu = batch_times(
        hidden_layer_step(explorer.inputs.value, explorer.units.value), explorer.gpu.value,
        link=None if explorer.link.value == ON_THE_CARD else explorer.link.value, ahead=True,
    )  # fmt: skip
    cpu = batch_times(hidden_layer_step(explorer.inputs.value, explorer.units.value, "cpu"), XEONS)
    slow, fast = (float(times.at(explorer.batch.value)) for times in (cpu, gpu))
    return [f"Batch {explorer.batch.value:,}: CPU {format_seconds(slow)} a step, GPU {format_seconds(fast)}: "]


def hardware_words(explorer: Any) -> list[str]:
    step, batch = explorer.step, explorer.batch.value
    asked, fits = demand(step.at(batch)), on_todays(step, batch, hardware.devices())
    good = [one.device for one in fits if one.state == FITS]
    prices = [one.launch_usd for one in good if one.launch_usd]
    cheapest = f"({min(prices):,.0f} dollars in" if prices else "no price of any of them"
    held = [f"{len(good)} of {len(fits)} cards hold", cheapest] if good else ["No card"]
    return [f"{step.name}, batch {batch:,}: {format_bytes(asked.tensors)} of tensors", *held]


def more_hold(before: View, after: View) -> bool:
    def count(view: View) -> int:
        found = re.match(r"(\d+) of", view.sentences[1])
        return int(found[1]) if found else 0

    return count(after) > count(before)


def memory(explorer: Any) -> list[str]:
    ledger = explorer.step.at(explorer.batch.value)
    verdict = fit(ledger, explorer.limit_bytes)
    share = int(ledger.by_role().max()) / ledger.peak_bytes
    return [f"Batch {ledger.batch:,} on a", f"peak {format_bytes(ledger.peak_bytes)}", verdict.sentence] + (
        [f"{100 * share:.0f} % of it"] if verdict.state != NO else []
    )


def change(explorer: Any) -> list[str]:
    old, new = explorer.change.peaks(explorer.batch.value)
    way = "falls" if new < old else "rises" if new > old else "stays"
    return [f"Batch {explorer.batch.value}, ", f"{explorer.what}: the peak {way} ", format_bytes(old)]


def accumulated(explorer: Any) -> list[str]:
    card = hardware.device(explorer.device.value)
    cut = explorer.steps.cut(explorer.micro.value, explorer.wanted.value // explorer.micro.value, card)
    return [f"the peak is {format_bytes(cut.peak_bytes)}. ", explorer.steps.fit(cut, card).sentence]


def halved(explorer: Any) -> list[str]:
    found = Halving(*(step.at(explorer.batch.value) for step in explorer.steps))
    card, precision = hardware.device(explorer.device.value), explorer.precision.value
    said = [f"Batch {explorer.batch.value} in {precision}: peak {format_bytes(found.half.peak_bytes)}"]
    if abs(found.saved) > 0.005:
        said.append(f" {'less' if found.saved > 0 else 'more'} than in float32")
    states = {fit(ledger, card).state for ledger in (found.full, found.half)}
    alike = {FITS: "Both fit", NO: "Neither fits"}
    said.append("In halves it " if len(states) == 2 else alike.get(*states, "Both are tight"))
    if precision == "bfloat16" and not card.bfloat16:
        return [*said, f"The {card.name} has no bfloat16 arithmetic"]
    times = speed_up(found, card, precision)
    return said if abs(times - 1) < 0.005 else [*said, f"{times:.2f} times as fast"]


def moved(explorer: Any) -> list[str]:
    """The fastest that fits is looked for among all that its controls can be set to."""
    ledger = explorer._step(explorer.network.value, explorer.precision.value).at(explorer.batch.value)
    card, link = hardware.device(explorer.device.value), explorer.link.value
    every = {
        name: simulate(ledger, card, policy, link=link, window=window, precision=explorer.precision.value)
        for name, (policy, window) in MOVES.items()
    }
    found = every[explorer.moves.value]
    fitting = [one.total_seconds for one in every.values() if fit_of(ledger, one, card).state == FITS]
    said = [f"{format_seconds(found.total_seconds)} a step", format_bytes(found.peak_bytes)]
    said.append(fit_of(ledger, found, card).sentence)
    if not fitting:
        return [*said, "No choice here fits"]
    if fit_of(ledger, every["nothing"], card).state == FITS:
        return [*said, "Nothing has to move"]
    tight = [one.total_seconds for one in every.values() if fit_of(ledger, one, card).state == TIGHT]
    faster = ["; faster, but tight: "] if tight and min(tight) * 1.0005 < min(fitting) else []
    if fit_of(ledger, found, card).state == FITS and found.total_seconds <= min(fitting) * 1.0005:
        return [*said, "Nothing here that fits is faster", *faster]
    return [*said, "Fastest that fits: ", f"{format_seconds(min(fitting))} a step", *faster]


def recomputed(explorer: Any) -> list[str]:
    card, batch, chain = hardware.device(explorer.device.value), explorer.batch.value, explorer.chain
    plain, cut = chain.step(), chain.step(segments_of(chain, explorer.rule.value, batch, card))
    extra = predict_step(cut.at(batch), card).total_seconds / predict_step(plain.at(batch), card).total_seconds - 1
    return [
        f"Batch {batch:,} on the {card.name}: peak {format_bytes(cut.at(batch).peak_bytes)}",
        fit(cut.at(batch), card).sentence, f", {100 * extra:+.1f} %.".replace("-", "−"),
    ]  # fmt: skip


def on_many(explorer: Any) -> list[str]:
    found = explorer.readings()
    chosen = found[explorer.scheme.value]
    said = [f"{chosen.speed_up:.2f} times as many samples a second", format_bytes(chosen.peak_bytes)]
    room = room_for_tensors(chosen.device)
    said.append("to spare" if chosen.peak_bytes <= room else "too much")
    fitting = [one.speed_up for one in found.values() if one and one.peak_bytes <= room]
    if chosen.cards > 1 and fitting:
        best = max(fitting)
        said.append("No other" if chosen.speed_up * 1.02 > best and chosen.peak_bytes <= room else f"{best:.2f} times")
    return said


def planned(explorer: Any) -> list[str]:
    found = explorer._problem.evaluate(explorer.plan)
    every = [one for one in explorer._all if one.state == FITS]
    fastest = found.state == FITS and found.seconds <= min(one.seconds for one in every)
    least = format_seconds(min(one.seconds for one in every))
    return [
        f": {format_bytes(found.tensor_bytes)} at the peak, in {found.peak}. ", found.verdict.sentence,
        "No combination here that fits is faster" if fastest else f"({least}",
    ]  # fmt: skip


def language(explorer: Any) -> list[str]:
    ledger = kept_step(*explorer._step).at(explorer.batch.value)
    card = hardware.device(explorer.device.value)
    return [f"peak {format_bytes(ledger.peak_bytes)}", fit(ledger, card).sentence]


def tuned(explorer: Any) -> list[str]:
    ledger = fine_tuning_step(
        explorer.model.value, explorer.method, explorer.sequence.value, explorer.batch.value,
        explorer.recompute.value == EACH, explorer.precision.value, kept=True,
    )  # fmt: skip
    card = hardware.device(explorer.device.value)
    return [f"tokens: peak {format_bytes(ledger.peak_bytes)}", fit(ledger, card).sentence]


def plans() -> Explorer:
    return plan_explorer(problem().changed(device=replace(TITAN_X, memory_gb=0.545)))


UNKNOWN = ({"network": "LeNet"}, "unknown network 'LeNet': choose one of ")
CASES = {
    "why_gpus": Case(
        who_wins_explorer, who_wins, still=("batch", "inputs", "units", "GPU", "link"),
        wrong=[
            ({"inputs": 1}, "inputs must be a whole number of 2 or more, got 1"),
            ({"batch": 0}, "batch must be a whole number of 1 or more, got 0"),
            ({"gpu": "Voodoo"}, "no device called 'Voodoo'"), ({"link_name": "ISA"}, "no link called 'ISA'"),
        ],
    ),
    "hardware": Case(
        hardware_explorer, hardware_words,
        {"network": list(NETWORKS), "optimizer": ["sgd", "none (inference)"], "precision": ["float32"]},
        helps=more_hold,
        wrong=[
            UNKNOWN, ({"optimizer": "lion"}, "unknown optimizer 'lion': choose one of sgd, momentum, adam, adamw, N"),
            ({"precision": "int8"}, "unknown precision 'int8'"), ({"batch": 0}, "batch must be a whole number of 1"),
        ],
    ),
    "memory": Case(
        memory_explorer, memory, {"network": list(NETWORKS), "axis": ["operators", "GTX Titan", "B200"]}, _fits,
        refused="input_shape|does not compute in float16", impossible={"image": 32, "network": "AlexNet"},
        still=("batch", "card"),
        wrong=[
            UNKNOWN, ({"optimizer": "lion"}, "unknown optimizer 'lion': choose one of sgd, momentum, adam, adamw"),
            ({"precision": "int8"}, "unknown precision 'int8'"), ({"batch": 0}, "batch must be a whole number of 1"),
            ({"size": 12.5}, "size must be a whole number of 1 or more, got 12.5"),
            ({"device": "K40"}, "unknown device 'K40': choose one of operators, GTX Titan"),
            ({"card_gib": 0}, "card_gib must be more than 0 GiB, got 0"),
        ],
    ),
    "stride": Case(
        stride_explorer, change, {"network": list(LAYERS)},
        wrong=[
            UNKNOWN, ({"layer": "conv9"}, "unknown layer 'conv9' of VGG-16"),
            ({"stride": 5}, "stride must be 1, 2, 3 or 4, got 5"), ({"batch": 0}, "batch must be a whole number of 1"),
        ],
    ),
    "one_by_one": Case(
        squeeze_explorer, change, {"network": list(SQUEEZED)},
        wrong=[
            ({"network": "ResNet-50"}, "unknown network 'ResNet-50': choose one of VGG-16, AlexNet"),
            ({"layer": "conv1_1"}, "unknown layer 'conv1_1'"), ({"channels": 5}, "unknown channels 5"),
            ({"narrow": 3}, "unknown narrow 3"), ({"batch": 0}, "batch must be a whole number of 1"),
        ],
    ),
    "pooling": Case(
        pool_explorer, change,
        {"network": list(NETWORK_NAMES), "precision": ["float32"],
         "put there": ["max pool", "average pool", "nothing"]},
        refused="nothing is left of the maps",  # four times smaller three or five times: nothing is left
        impossible={"place": "every pool", "size": 4},
        wrong=[
            UNKNOWN, ({"place": "pool9"}, "unknown place 'pool9'"), ({"size": 5}, "unknown size 5"),
            ({"kind": "median pool"}, "unknown kind 'median pool': choose one of max pool, average pool"),
            ({"precision": "int8"}, "unknown precision 'int8'"), ({"batch": True}, "batch must be a whole number of 1"),
        ],
    ),
    "batch_size": Case(
        batch_explorer, accumulated,
        {"network": list(NETWORKS), "batch": [8, 96, 1024], "device": ["GTX 980", "H200 SXM"],
         "optimizer": ["sgd", "adamw"]},
        _fits, still=("batch", "micro-batch", "device"),
        wrong=[
            UNKNOWN, ({"optimizer": "lion"}, "unknown optimizer 'lion'"),
            ({"batch": 2.5}, "batch must be a whole number of 2 or more, got 2.5"),
            ({"batch": 1}, "the wanted batch must be 2 or more, got 1"), ({"micro": 5}, "micro must be one of 2, 4, 8"),
            ({"device": "Voodoo 2"}, "no device called 'Voodoo 2'"),
        ],
    ),
    "half_precision": Case(
        half_explorer, halved,
        {"network": list(HALVED), "optimizer": ["sgd", "adamw"], "device": ["GTX 980", "P100", "T4", "B200"]},
        helps=lambda _, after: "has no bfloat16" not in after.sentences[2], still=("batch", "device", "precision"),
        wrong=[
            UNKNOWN, ({"optimizer": "lion"}, "unknown optimizer 'lion'"),
            ({"precision": "float32"}, "unknown precision 'float32': choose one of float16, bfloat16"),
            ({"batch": 1}, "unknown batch 1: choose one of 2, 4, 8"),
            ({"device": "P1000"}, "no device called 'P1000': did you mean"),
        ],
    ),
    "offload": Case(
        offload_explorer, moved,
        {"network": list(MOVED), "batch": [8, 128, 192, 512], "moves": list(MOVES),
         "device": ["T4", "GTX 980", "H100 SXM"]},
        helps=lambda _, after: after.sentences[2].startswith(("Nothing here that fits is faster", "Nothing has to")),
        still=("batch", "moves", "device", "link"),
        wrong=[
            UNKNOWN, ({"moves": "some"}, "unknown choice of what moves 'some': choose one of nothing, what"),
            ({"precision": "int8"}, "unknown precision 'int8'"), ({"link": "USB"}, "no link called"),
            ({"batch": 3}, "unknown batch 3: choose one of 8, 16"), ({"device": "P1000"}, "no device called 'P1000'"),
        ],
    ),
    "recompute": Case(
        recompute_explorer, recomputed,
        {"network": ["VGG-16", "GoogLeNet", "AlexNet", "52 M dense net"], "batch": [2, 512],
         "recompute": [NOTHING, "4 even segments", LOWEST, LEAST_TIME], "device": ["GTX 980", "B200"]},
        refused="take a smaller batch", impossible={"recompute": LEAST_TIME, "batch": 512, "device": "GTX 980"},
        still=("device",),
        wrong=[
            UNKNOWN, ({"rule": "4 even segment"}, "unknown rule '4 even segment': choose one of none: keep all"),
            ({"batch": 3}, "unknown batch 3: choose one of 2, 8"), ({"device": "Voodoo 2"}, "no device called"),
        ],
    ),
    "many_gpus": Case(
        cards_explorer, on_many,
        {"network": ["AlexNet", "VGG-16", "52 M dense net", "GoogLeNet"], "cards": [1, 2, 8],
         "scheme": list(SCHEMES)},
        helps=lambda before, after: "to spare" in after.sentences[0] and (
            (after.number or 0) >= (before.number or 0) or "too much" in before.sentences[0]
        ),
        refused="too few for 8 stages", impossible={"network": "52 M dense net", "scheme": STAGES, "cards": 8},
        still=("batch a card", "cards", "scheme", "link", "device"),
        wrong=[
            UNKNOWN, ({"scheme": "magic"}, "unknown scheme 'magic': choose one of data parallel"),
            ({"cards": 9}, "unknown number of cards 9: choose one of 1, 2"),
            ({"batch": 3}, "unknown batch 3: choose one of 2, 4"), ({"link": "string"}, "no link called 'string'"),
        ],
    ),
    "capstone": Case(
        plans, planned, {"recompute": [1, 12]}, still=("batch", "precision", "offload", "recompute"),
        helps=lambda _, after: "No combination here that fits is faster." in after.sentences,
    ),
    "transformers": Case(
        transformer_explorer, language,
        {"model": ["GPT-2", "GPT-2 XL", "Llama-3.2-1B", "Llama-3-8B"], "card": ["T4", "B200"], "numbers": ["bfloat16"],
         "sequence": [128, 1024, 8192], "batch": [1, 8, 128]},
        still=("batch", "card", "sequence", "attention", "recompute", "loss", "optimizer"),
        searched=("attention", "recompute", "loss", "optimizer"),
        wrong=[
            ({"model": "GPT-5"}, "unknown model 'GPT-5'"), ({"sequence": 100}, "unknown sequence 100"),
            ({"batch": 3}, "unknown batch 3"), ({"attention": "flash"}, "unknown attention 'flash'"),
            ({"recompute": "all"}, "unknown recompute 'all'"), ({"numbers": "int8"}, "unknown format 'int8'"),
            ({"device": "Voodoo 2"}, "no device called"),
        ],
    ),
    "one_card": Case(
        one_card_explorer, tuned,
        {"model": ["TinyLlama-1.1B", "Llama-3-8B"], "sequence": [128, 2048], "batch": [1, 64],
         "train": ["all weights", "the head alone", "LoRA", "LoRA, base in 4 bits"], "weights": ["bfloat16"],
         "optimizer": ["AdamW", "8-bit AdamW", "AdamW, state on the CPU", "AdamW, torch's default"],
         "card": ["GTX 1080", "RTX 4090", "B200"]},
        refused="one weight at a time|takes sequences of",
        impossible={"update": WITHIN, "optimizer": "AdamW, torch's default"},
        still=("batch", "card", "sequence", "optimizer", "train", "update"),
        searched=("train", "optimizer", "update", "recompute"),
        wrong=[
            ({"model": "GPT-5"}, "unknown model 'GPT-5'"), ({"trained": "nothing"}, "unknown trained 'nothing'"),
            ({"optimizer": "Lion"}, "unknown optimizer 'Lion'"), ({"sequence": 3}, "unknown sequence 3"),
            ({"batch": 3}, "unknown batch 3"), ({"device": "GTX 980"}, "has less than 8 GiB: choose a larger card"),
        ],
    ),
}  # fmt: skip


def test_every_explorer_is_measured() -> None:
    files = ROOT.glob("lessons/*/explorer.py")
    there = {path.parent.name for path in files if re.search(r"^def \w+_explorer\(", path.read_text("utf-8"), re.M)}
    assert there == set(CASES), "each explorer needs a Case in this file, by the name of its lesson's folder"


every_explorer = pytest.mark.parametrize("name", CASES)


def values_of(control: Any) -> list[Any]:
    """What a control can be set to: all its options, or the ends of its slide."""
    return list(control._options_values) if hasattr(control, "options") else [control.min, control.max]


def ends(control: Any) -> list[Any]:
    found = values_of(control)
    return [found[0], found[-1]]


def set_to(explorer: Any, setting: Mapping[str, Any]) -> View:
    """The view of settings, or what is said in its place as a CourseError; a position stands for what is there then."""
    with one_move(explorer) as shown:
        for name, value in setting.items():
            control = explorer.controls[name]
            control.value = values_of(control)[value.place] if isinstance(value, Place) else value
    view: View = shown()
    return view.whole() if view.whole is not None else view


@dataclass(frozen=True)
class Place:
    """The first or the last of what a control offers when it is set: another network has other layers."""

    place: int


@every_explorer
def test_at_its_corners_it_says_what_is_read_and_its_advice_helps(name: str) -> None:
    case = CASES[name]
    explorer = case.make()
    dependent = {"layer", "1×1 before", "place", "micro-batch"}
    choices = {
        control: case.tried.get(control, (Place(0), Place(-1)) if control in dependent else ends(widget))
        for control, widget in explorer.controls.items()
    }
    advised = 0
    for values in every_pair(*choices.values()):
        setting = dict(zip(choices, values, strict=True))
        try:
            view = set_to(explorer, setting)
        except CourseError as error:
            if not case.refused or not re.search(case.refused, str(error)):
                raise
            continue
        words = " ".join(view.sentences)
        assert not re.search(r"\b(nan|inf|None)\b|(?<!\w) -\d", words), words
        assert_well_laid(view.picture)
        for said in case.reads(explorer):
            assert said in words, (setting, said, words)
        if view.advised:
            advised += 1
            after = set_to(explorer, view.advised)
            assert case.helps(view, after), (setting, view.sentences, view.advised, after.sentences)
        elif re.search("lowers (it|the peak)", words):
            for control in case.searched:
                for value in values_of(explorer.controls[control]):
                    set_to(explorer, setting)
                    try:
                        assert set_to(explorer, {control: value}).number >= view.number, (setting, control, value)
                    except CourseError:
                        continue
    assert advised or name in ("why_gpus", "recompute")


@every_explorer
def test_every_control_changes_picture_or_words_and_only_the_first_time_is_traced(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    explorer = case.make()
    traces: list[str] = []
    run = Tracer.run
    monkeypatch.setattr(Tracer, "run", lambda tracer, batch: traces.append(tracer.name) or run(tracer, batch))
    for control, widget in explorer.controls.items():
        before, start = (explorer.figure.value, explorer.words.value), widget.value
        others = [value for value in (*case.tried.get(control, ()), *values_of(widget)) if value != start]
        if not others:  # the only processor
            continue
        other = others[0] if hasattr(widget, "options") else start + 1
        widget.value = other
        assert (explorer.figure.value, explorer.words.value) != before, control
        assert not (control in case.still and traces), (control, traces)
        widget.value = start
        traces.clear()
        widget.value = other
        widget.value = start
        assert traces == [], f"{control} is traced again"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.refused])
def test_what_cannot_be_is_one_line_over_the_old_picture_and_the_next_move_draws_again(name: str) -> None:
    case = CASES[name]
    explorer = case.make()
    start = {control: explorer.controls[control].value for control in case.impossible}
    picture = explorer.figure.value
    with pytest.raises(CourseError, match=case.refused) as refused:
        set_to(explorer, case.impossible)
    assert "\n" not in str(refused.value)
    assert (explorer.figure.value, FAINT in explorer.figure._dom_classes) == (picture, True)
    assert 'role="alert"' in explorer.words.value
    assert explorer._repr_mimebundle_()["text/plain"] == str(refused.value)
    set_to(explorer, start)
    assert FAINT not in explorer.figure._dom_classes
    assert "alert" not in explorer.words.value


@every_explorer
def test_its_still_reads_without_a_kernel(name: str) -> None:
    explorer = CASES[name].make()
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/plain"].split("\n") == list(explorer.view().sentences)
    assert bundle["image/png"]
    html = bundle["text/html"]
    parts = [html.index(part) for part in ("<p>", 'class="course-picture"', "Run this cell (Shift+Enter) to move it.")]
    assert parts == sorted(parts)


@pytest.mark.parametrize(
    ("name", "start", "message"), [(name, *wrong) for name, case in CASES.items() for wrong in case.wrong]
)
def test_a_start_that_no_control_can_take_is_refused_in_one_line(name: str, start: Any, message: str) -> None:
    with pytest.raises(CourseError, match=re.escape(message)) as refused:
        CASES[name].make(**start)
    assert "\n" not in str(refused.value)


def test_the_plans_of_another_start_are_refused_too() -> None:
    for start, message in (
        (Plan(24, 2), "the control 'batch' does not offer 2: it has 24 at once, 2 × 12"),
        (Plan(24, segments=3), "the control 'recompute' does not offer 3: it has nothing, 12 even segments"),
        (Plan(24, algorithm="m"), "the controls cannot show slow convolutions: leave algorithm, changes and every"),
    ):
        with pytest.raises(CourseError, match=re.escape(message)):
            plan_explorer(problem(), start)
