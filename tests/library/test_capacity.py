"""Does it fit: the verdict and what decided it, the largest batch, and which card to take."""

import ast
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_steps import made_step, roomy

from classroom import PACKAGES, ROOT
from course_utils import networks
from course_utils.allocator import ROUND, OutOfMemory
from course_utils.machine.context import Context, context, known_context
from course_utils.machine.hardware import device
from course_utils.memory import ROLE
from course_utils.techniques.capacity import (
    ALLOCATOR,
    CONTEXT,
    FITS,
    NO,
    REPLAY_PERCENT,
    TENSORS,
    TIGHT,
    WORKSPACE,
    Batches,
    CardFit,
    cheapest,
    demand,
    fit,
    largest_batch,
    room_for_tensors,
    smallest,
)
from course_utils.techniques.offload.work import WORKSPACE_SHARE
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, CourseError, format_bytes
from lessons.transformers.peaks import T4_PEAKS

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


def surely(room):
    """What a replay must get through in: so that with its error on top it is no more than the room."""
    near = int(room / (1 + REPLAY_PERCENT / 100))
    return max(size for size in range(near - 2, near + 3) if 100 * size + size * REPLAY_PERCENT <= 100 * room)


def rounded(size):
    return -(-int(size) // ROUND) * ROUND


def test_a_step_asks_for_tensors_gaps_scratch_and_context():
    ledger = STEP.at(64)
    asked = demand(ledger)
    assert asked.tensors == ledger.requests.least_bytes >= ledger.peak_bytes
    assert asked.least == asked.tensors + context().least
    reserved = roomy(asked) - context().most
    assert surely(reserved) >= ledger.reserved_bytes() > surely(reserved - 1)
    assert roomy(asked) >= asked.least
    assert demand(ledger, known_context(0)).least == asked.tensors
    wanting = demand(convolved(STEP).at(64))
    largest = max(STEP.at(64).size[STEP.tape.role == ROLE["feature maps"]])
    assert max(wanting.scratch.alive - asked.scratch.alive) == rounded(WORKSPACE_SHARE * largest) > 0 == asked.workspace
    assert max(wanting.tensors, sum(wanting.fullest)) == wanting.scratch.least_bytes  # no moment asks for more
    assert roomy(wanting) > roomy(asked)
    assert wanting.tensors == asked.tensors


def test_the_verdict_changes_where_the_four_bounds_are():
    """Tensors and context to the byte; from `safe` on everything fits; in between a replay decides."""
    for step in (STEP, convolved(STEP)):
        ledger = step.at(64)
        asked = demand(ledger)
        found = [
            fit(ledger, room) for room in (asked.tensors - 1, asked.tensors, asked.least - 1, asked.least, roomy(asked))
        ]
        decided = [(one.state, one.decided) for one in found]
        assert decided[:3] == [(NO, TENSORS), (NO, CONTEXT), (NO, CONTEXT)]
        assert decided[3][0] == TIGHT
        assert decided[4] == (FITS, "")
        assert [one.spare_bytes for one in found][2:4] == [-1, 0]
        assert found[4].limit_bytes == room_for_tensors(roomy(asked)) == roomy(asked) - context().most


def test_each_of_the_four_can_decide():
    ledger = convolved(STEP).at(64)
    asked = demand(ledger)
    states = {}
    for room in range(asked.tensors - 2**28, roomy(asked) + 2**28, 2**26):
        verdict = fit(ledger, room)
        states[verdict.decided] = verdict
    assert set(states) == {TENSORS, CONTEXT, ALLOCATOR, WORKSPACE, ""}
    for decided, verdict in states.items():
        assert decided in {"", TENSORS, CONTEXT} or decided in verdict.words
        word = "fits" if not decided else "does not fit" if verdict.state == NO else f"tight, the {decided} decides"
        assert word in verdict.sentence
    left = states[WORKSPACE].card_bytes - states[WORKSPACE].beside
    ledger.requests.replay(surely(left))  # gets through with the tensors alone
    with pytest.raises(OutOfMemory):
        asked.scratch.replay(surely(left))
    with pytest.raises(OutOfMemory):
        ledger.requests.replay(surely(states[ALLOCATOR].card_bytes - states[ALLOCATOR].beside))


STATES = st.tuples(st.floats(0.5, 3), st.sampled_from([0, 2**20, 300 * MIB]), st.sampled_from([0, 2**20, GIB]))


@settings(deadline=None)
@given(STATES)
def test_what_decided_is_what_it_would_fit_without(drawn):
    """A counterfactual for each verdict, and the figures of the sentence are those of the verdict."""
    share, least, more = drawn
    ledger = convolved(STEP).at(16)
    taken = Context(least, least + more)
    asked = demand(ledger, taken)
    held = int(share * asked.tensors)
    verdict = fit(ledger, held, taken=taken)
    if verdict.state == NO:
        assert (fit(ledger, held, taken=known_context(0)).state == NO) == (verdict.decided == TENSORS)
        assert (verdict.decided == TENSORS) == (asked.tensors > held)
    elif verdict.state == FITS:
        asked.scratch.replay(surely(held - taken.most))
    elif verdict.decided == CONTEXT:
        assert fit(ledger, held, taken=known_context(taken.least)).state == FITS
    elif verdict.decided == WORKSPACE:
        assert replace(asked, scratch=asked.requests, context=known_context(verdict.beside)).on(held).state == FITS
        wanted, then = asked.fullest
        assert then <= asked.tensors  # the peak may be at another moment
        assert format_bytes(held - verdict.beside - then) in verdict.sentence
        assert ("less than" in verdict.sentence) == (wanted + then + verdict.beside > held)
    else:
        assert replace(asked, scratch=asked.requests, context=known_context(taken.least)).on(held).state == TIGHT
    if verdict.decided != WORKSPACE and verdict.decided not in (TENSORS, CONTEXT):
        assert format_bytes(verdict.spare_bytes) in verdict.sentence


ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
LAYERS = st.lists(st.tuples(st.just("layer"), st.integers(1, 2**24), st.integers(1, 2**22)), min_size=1, max_size=6)


@settings(deadline=None)
@given(LAYERS, st.integers(1, 200), st.floats(0, 3), st.floats(1, 3))
def test_a_larger_card_says_no_only_where_a_smaller_one_does(layers, batch, share, times):
    """And fits where nothing is ever given back; in between best fit may be lucky on the smaller one."""
    asked = demand(made_step(layers).at(batch))
    held = context().least + share * asked.tensors
    smaller, larger = asked.on(held), asked.on(times * held)
    assert (larger.state == NO) <= (smaller.state == NO)
    assert (smaller.state == NO) == (smaller.spare_bytes < 0)
    if times * held >= roomy(asked):
        assert larger.state == FITS


def looked_at(step, held):
    """The definition, batch by batch: up to which all fit, which is the last to fit, and the last that is not *no*."""
    states = {}
    batch = 1
    while (state := fit(step.at(batch), held).state) != NO:
        states[batch] = state
        batch += 1
    fitting = [batch for batch, state in states.items() if state == FITS]
    every = next((batch - 1 for batch in range(1, len(states) + 2) if states.get(batch) != FITS), 0)
    return every, max(fitting, default=0), len(states)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.just("layer"), st.integers(1, 2**24), st.integers(2**22, 2**25)), min_size=1, max_size=6),
       st.floats(0.4, 2))  # fmt: skip
def test_the_largest_batches_are_those_that_looking_at_each_finds(layers, gib):
    step = made_step(layers)
    found = largest_batch(step, gib * GIB)
    every, some, tight = looked_at(step, gib * GIB)
    assert found.tight == tight
    if found.stride == 1:
        assert (found.fits, found.some) == (every, some)
    else:
        assert all(fit(step.at(batch), gib * GIB).state == FITS for batch in {found.fits, found.some} - {0})
        assert found.fits <= found.some <= some
    assert found == largest_batch(made_step(layers), gib * GIB)


def test_a_larger_batch_may_fit_where_a_smaller_does_not_and_both_are_said():
    """VGG-16 on 11 GiB, each batch from 64 on replayed; whatever was asked before."""
    step = training_step(networks.vgg16(), (3, 224, 224), 1000)
    for batch in (115, 64, 103):
        fit(step.at(batch), 11 * GIB)
    found = largest_batch(step, 11 * GIB)
    states = {batch: fit(step.at(batch), 11 * GIB).state for batch in range(64, found.tight + 2)}
    assert states[found.tight + 1] == NO != states[found.tight]
    assert {states[batch] for batch in range(64, found.fits + 1)} == {FITS}
    assert states[found.fits + 1] == TIGHT
    assert found.some == max(batch for batch, state in states.items() if state == FITS) > found.fits
    assert found.stride == 1
    assert found.words.startswith(f"All batches up to {found.fits} fit, some up to {found.some}; ")


def test_the_largest_batches_in_words():
    depends = "it depends on the context, on how blocks fall and on workspace."
    assert Batches(0, 0, 0).words == "No batch fits."
    assert Batches(1200, 1200, 1200).words == "Largest batch that fits: 1,200."
    assert Batches(116, 116, 145).words == f"Largest batch that fits: 116; up to 145 {depends}"
    assert Batches(102, 115, 131).words == f"All batches up to 102 fit, some up to 115; up to 131 {depends}"
    assert Batches(0, 0, 3).words == f"No batch surely fits; up to 3 {depends}"
    assert Batches(0, 2, 2).words == "Not all batches fit, some up to 2."
    assert Batches(64, 64, 72, 8).words == f"Largest batch that fits: 64 (every 8th was tried); up to 72 {depends}"


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
    assert ledger.requests.replay(room_for_tensors(12 * GIB)).reserved <= room_for_tensors(12 * GIB)
    assert (fit(ledger, 12 * GIB).state, fit(ledger, 12 * GIB).decided) == (TIGHT, WORKSPACE)
    found = largest_batch(step, 12 * GIB)
    assert found.fits < 128 <= found.tight < step.largest_batch(12 * GIB)


def test_of_two_dies_a_program_has_one_and_of_a_b200_what_is_usable():
    seen = replace(device("Tesla K40"), usable_gb=device("Tesla K80").usable_gb)
    k80, of_its_size, k40 = (largest_batch(STEP, one).fits for one in (device("Tesla K80"), seen, device("Tesla K40")))
    assert k80 == of_its_size < k40
    verdict = fit(STEP.at(32), device("B200"))
    assert verdict.spare_bytes == 179 * GIB - context(device("B200")).most - demand(STEP.at(32)).tensors


def test_memory_that_does_not_grow_has_no_largest_batch():
    with pytest.raises(CourseError):
        largest_batch(made_step([("a", 100, 0)], sample=0), card(4))


def test_the_smallest_and_the_cheapest_card():
    offers = [
        card(24, name="a", launch_usd=900),
        card(12, name="b", launch_usd=None),
        card(12, name="c", launch_usd=1500),
        card(48, name="d", launch_usd=700),
        card(2, name="e", launch_usd=10),
    ]
    verdicts = [fit(STEP.at(32), offer) for offer in offers]
    fits = [CardFit(offer, one.state, one, None) for offer, one in zip(offers, verdicts, strict=True)]
    assert smallest(fits).device.name == "c"  # of the two with 12 GiB the one with a price
    assert cheapest(fits).device.name == "d"
    assert cheapest(fits[1:2]) is None
    assert smallest(fits[4:]) is None is cheapest(fits[4:])


def test_no_other_room_compares_bytes_with_a_card():
    """A comparison with `memory_bytes` or a limit in it stands in `capacity`, or is about something else."""
    allowed = {
        "course_utils/techniques/capacity.py": "the verdict itself",
        "course_utils/memory.py": "the exact bound for tensors that it searches below",
        "lessons/hardware/claims.py": "devices with each other",
        "lessons/offload/schedule_lanes.py": "where a line is drawn",
        "lessons/memory/explorer.py": "where a line is crossed",
        "lessons/offload/search.py": "frameworks of 2016, which planned every address",
        "lessons/shared/recompute/chain.py": "a search below the bytes it is given",
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


def test_a_replay_errs_by_as_much_as_is_allowed_for():
    """Of what 20 steps reserved on a T4, in the mean."""
    rows = json.loads(T4_PEAKS.read_text(encoding="utf-8"))["rows"]
    errors = [abs(row["traced_reserved_bytes"] / row["max_memory_reserved_bytes"] - 1) for row in rows]
    assert len(errors) == 20
    assert round(100 * sum(errors) / len(errors)) == REPLAY_PERCENT
