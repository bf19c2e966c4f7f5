"""Does it fit: the verdict and what decided it, the largest batch, and which card to take."""

import ast
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_steps import made_step
from torch import nn

from classroom import PACKAGES, ROOT
from course_utils import networks
from course_utils.allocator import OutOfMemory
from course_utils.machine.hardware import device, devices
from course_utils.memory import ROLE
from course_utils.techniques.capacity import (
    ALLOCATOR,
    CANNOT,
    CONTEXT,
    CONTEXT_BYTES,
    FITS,
    NO,
    TENSORS,
    TIGHT,
    WORKSPACE,
    Batches,
    cheapest,
    demand,
    fit,
    largest_batch,
    on_cards,
    smallest,
)
from course_utils.techniques.offload.work import WORKSPACE_SHARE
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, CourseError

STEP = made_step(name="net")


def card(gib, **changes):
    return replace(device("RTX 4090"), memory_gb=gib, usable_gb=None, **changes)


def convolved(step, share=1):
    """The made step with convolutions that read the map before them, and so may want scratch memory."""
    tape = step.tape
    maps = np.flatnonzero(tape.role == ROLE["feature maps"])
    uses = np.array([(tape.birth[index], index, 1) for index in maps], dtype=np.int64)
    tape = replace(tape, uses=uses)
    return replace(step, tape=tape, trace_at=lambda batch: tape)


def test_a_step_asks_for_tensors_gaps_scratch_and_context():
    ledger = STEP.at(64)
    asked = demand(ledger)
    assert asked.tensors == ledger.requests.least_bytes >= ledger.peak_bytes
    assert asked.least == asked.tensors + CONTEXT_BYTES
    assert asked.safe == ledger.reserved_bytes() + CONTEXT_BYTES >= asked.least
    assert demand(ledger, 0).least == asked.tensors
    wanting = demand(convolved(STEP).at(64))
    largest = max(STEP.at(64).size[STEP.tape.role == ROLE["feature maps"]])
    assert wanting.workspace == int(WORKSPACE_SHARE * largest) > 0 == asked.workspace
    assert wanting.safe > asked.safe
    assert wanting.tensors == asked.tensors
    assert demand(STEP.at(64, workspace=2**30)).workspace == 0  # counted among the tensors, since it was given
    assert demand(STEP.at(64, workspace=2**30)).tensors > asked.tensors


def test_the_verdict_changes_where_the_four_bounds_are():
    """Tensors and context to the byte; from `safe` on everything fits; in between a replay decides."""
    for step in (STEP, convolved(STEP)):
        ledger = step.at(64)
        asked = demand(ledger)
        found = [
            fit(ledger, room) for room in (asked.tensors - 1, asked.tensors, asked.least - 1, asked.least, asked.safe)
        ]
        decided = [(one.state, one.decided) for one in found]
        assert decided[:3] == [(NO, TENSORS), (NO, CONTEXT), (NO, CONTEXT)]
        assert decided[3][0] == TIGHT
        assert decided[4] == (FITS, "")
        assert [one.spare_bytes for one in found][2:4] == [-1, 0]


def test_each_of_the_four_can_decide():
    ledger = convolved(STEP).at(64)
    asked = demand(ledger)
    states = {}
    for room in range(asked.tensors - 2**28, asked.safe + 2**28, 2**26):
        verdict = fit(ledger, room)
        states[verdict.decided] = verdict
    assert set(states) == {TENSORS, CONTEXT, ALLOCATOR, WORKSPACE, ""}
    for decided, verdict in states.items():
        assert decided in {"", TENSORS, CONTEXT} or decided in verdict.words
        word = "fits" if not decided else "does not fit" if verdict.state == NO else f"tight, the {decided} decides"
        assert word in verdict.sentence
    left = states[WORKSPACE].card_bytes - CONTEXT_BYTES
    ledger.requests.replay(left)  # gets through with the tensors alone
    with pytest.raises(OutOfMemory):
        asked.scratch.replay(left)
    with pytest.raises(OutOfMemory):
        ledger.requests.replay(states[ALLOCATOR].card_bytes - CONTEXT_BYTES)


ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
LAYERS = st.lists(st.tuples(st.just("layer"), st.integers(1, 2**24), st.integers(1, 2**22)), min_size=1, max_size=6)


@settings(deadline=None)
@given(LAYERS, st.integers(1, 200), st.floats(0, 3), st.floats(1, 3))
def test_a_larger_card_says_no_only_where_a_smaller_one_does(layers, batch, share, times):
    """And fits where nothing is ever given back; in between best fit may be lucky on the smaller one."""
    asked = demand(made_step(layers).at(batch))
    room = CONTEXT_BYTES + share * asked.tensors
    smaller, larger = asked.on(room), asked.on(times * room)
    assert (larger.state == NO) <= (smaller.state == NO)
    assert (smaller.state == NO) == (smaller.spare_bytes < 0)
    if times * room >= asked.safe:
        assert larger.state == FITS


@settings(deadline=None, max_examples=40)
@given(LAYERS, st.floats(0.6, 4))
def test_the_largest_batches_are_where_the_verdict_changes(layers, gib):
    step = made_step(layers)
    found = largest_batch(step, gib * GIB)
    assert 0 <= found.fits <= found.tight
    verdicts = {
        batch: fit(step.at(batch), gib * GIB).state for batch in {found.tight, found.tight + 1, found.fits} - {0}
    }
    assert verdicts.pop(found.tight + 1) == NO
    assert NO not in verdicts.values()
    if found.fits:
        assert verdicts[found.fits] == FITS
        if found.fits < found.tight:
            assert fit(step.at(found.fits + 1), gib * GIB).state == TIGHT


def test_a_batch_that_is_shown_is_never_contradicted():
    """A tight batch below the largest found, between two probes, lowers it, for good."""
    step = made_step()
    step._largest[12 * GIB, CONTEXT_BYTES] = (10_000, 20_000)  # as if every probe had been lucky
    assert fit(step.at(150), 12 * GIB).state != FITS
    found = largest_batch(step, 12 * GIB, seen=150)
    assert found.fits < 150
    assert fit(step.at(found.fits), 12 * GIB).state == FITS
    assert largest_batch(step, 12 * GIB) == found


def test_the_largest_batches_in_words():
    assert Batches(0, 0).words == "No batch fits."
    assert Batches(1200, 1200).words == "Largest batch that fits: 1,200."
    assert Batches(116, 145).words == (
        "Batches up to about 116 fit; up to 145 it depends on how blocks fall and what workspace they leave."
    )
    assert Batches(0, 3).words.startswith("No batch surely fits; up to 3 ")


def test_a_card_is_a_device_or_bytes():
    ledger = STEP.at(64)
    by_name, by_bytes = fit(ledger, device("Tesla M40")), fit(ledger, 12 * GIB)
    assert (by_name.card, by_bytes.card) == ("Tesla M40", "12 GiB card")
    assert replace(by_name, card="") == replace(by_bytes, card="")
    assert fit(ledger, 24 * GIB, name="mine").card == "mine"


def test_lesson_03_s_step_runs_where_it_would_reserve_more():
    """VGG-16, batch 128: 12 GiB are less than it would reserve, enough for its tensors, not for scratch memory too."""
    with torch.device("meta"):
        module = networks.vgg16()
    step = training_step(module, (3, 224, 224), 1000)
    ledger = step.at(128)
    assert ledger.reserved_bytes() > 14 * GIB
    assert ledger.requests.replay(12 * GIB - CONTEXT_BYTES).reserved <= 12 * GIB - CONTEXT_BYTES
    assert (fit(ledger, 12 * GIB).state, fit(ledger, 12 * GIB).decided) == (TIGHT, WORKSPACE)
    found = largest_batch(step, 12 * GIB, seen=128)
    assert found.fits < 128 <= found.tight < step.largest_batch(12 * GIB)


def test_of_two_dies_a_program_has_one_and_of_a_b200_what_is_usable():
    names = ("Tesla K80", "Tesla K40", "B200")
    k80, k40, b200 = on_cards(STEP, 32, [device(name) for name in names])
    assert k80.largest_batch == k40.largest_batch
    assert b200.verdict.spare_bytes == 179 * GIB - demand(STEP.at(32)).least


def test_bfloat16_needs_a_card_that_computes_in_it():
    step = training_step(nn.Linear(10, 5), (10,), 5, precision="bfloat16")
    states = {fit.device.name: fit.state for fit in on_cards(step, 8, devices())}
    assert {name for name, state in states.items() if state == CANNOT} == {
        item.name for item in devices() if not item.bfloat16
    }
    assert {state for name, state in states.items() if device(name).bfloat16} == {FITS}


def test_memory_that_does_not_grow_has_no_largest_batch():
    step = made_step([("a", 100, 0)], sample=0)
    assert on_cards(step, 4, [card(4)])[0].largest_batch is None


def test_the_smallest_and_the_cheapest_card():
    offers = [
        card(24, name="a", launch_usd=900),
        card(12, name="b", launch_usd=None),
        card(12, name="c", launch_usd=1500),
        card(48, name="d", launch_usd=700),
        card(2, name="e", launch_usd=10),
    ]
    fits = on_cards(STEP, 32, offers)
    assert smallest(fits).device.name == "c"  # of the two with 12 GiB the one with a price
    assert cheapest(fits).device.name == "d"
    assert cheapest(fits[1:2]) is None
    assert smallest(fits[4:]) is None is cheapest(fits[4:])


def test_the_context_assumed_is_among_those_seen():
    assert 200e6 < CONTEXT_BYTES < 1000e6
    assert CONTEXT_BYTES == 512 * MIB


def test_a_batch_below_one_is_one_line():
    with pytest.raises(CourseError, match="batch must be a whole number of 1 or more, got 0"):
        on_cards(STEP, 0, devices())


def test_no_other_room_compares_bytes_with_a_card():
    """A comparison with `memory_bytes` or a limit in it stands in `capacity`, or is about something else."""
    allowed = {
        "course_utils/techniques/capacity.py": "the verdict itself",
        "course_utils/memory.py": "the exact bound for tensors that it searches below",
        "lessons/hardware/claims.py": "devices with each other",
        "course_utils/figures/bars.py": "where a line is drawn",
        "lessons/shared/batch_lines.py": "where a line is drawn",
        "lessons/offload/schedule_lanes.py": "where a line is drawn",
        "lessons/memory/explorer.py": "where a line is crossed",
        "lessons/offload/search.py": "frameworks of 2016, which planned every address",
        "course_utils/techniques/recompute/chain.py": "a search below the bytes it is given",
        "classroom/grading/sandbox.py": "a process of the host",
    }
    words = {"memory_bytes", "limit_bytes", "card_bytes", "room_bytes"}
    found = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        # Checks compare the learner's own quantities, a lesson's pages and answers say what they compare.
        if path.name in ("checks.py", "behaviour.py", "judge.py", "lesson.py", "exercise.py", "answers.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            orders = isinstance(node, ast.Compare) and any(isinstance(op, ORDERS) for op in node.ops)
            takes = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
            if not orders and not takes:
                continue
            names = {getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(node)}
            if names & words:
                found.add(name)
    assert found == set(allowed), sorted(found ^ set(allowed))
