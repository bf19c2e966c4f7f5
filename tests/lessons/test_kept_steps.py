"""Steps kept for the explorers of lessons 13 and 14 are those that a trace gives, at lengths not traced too."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from course_utils.memory import Tape
from lessons.one_card import fine_tuning
from lessons.one_card import keep as keep_fine_tuning
from lessons.one_card.explorer import MODELS
from lessons.shared import kept_steps, language_steps
from lessons.shared.kept_steps import LENGTHS, KeptSteps, write
from lessons.shared.language_models import ATTENTION, RECOMPUTE, SHAPES, Options
from lessons.shared.language_steps import FORMATS, kept_name, language_step
from lessons.shared.stacked import SHORT, NotAlike
from lessons.transformers import keep
from lessons.transformers.explorer import LOSSES, OFFERED, OPTIMIZERS

NOT_KEPT = {"layer_shapes", "layer_parameters", "count_flops", "uses"}
SAMPLED = 8  # of the steps in a file
BEYOND, BETWEEN = 4096, 1152  # lengths of which none was traced


def assert_the_same(kept: Tape | None, traced: Tape) -> None:
    assert kept is not None
    for name in {field.name for field in fields(Tape)} - NOT_KEPT:
        one, other = getattr(kept, name), getattr(traced, name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other, name)
        else:
            assert one == other, name


@pytest.mark.parametrize("positions", [1024, 8192])
def test_a_step_is_kept_for_every_length(positions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Odd widths, a loss in pieces, scores that grow with the square; positions that end before, or do not."""
    small = replace(
        SHAPES["GPT-2"], name="small", vocabulary=61, hidden=24, heads=3, kv_heads=3, inner=96, positions=positions
    )
    for name, value in (("ATTENTION", ["eager"]), ("RECOMPUTE", ["full"]), ("OPTIMIZERS", ["adamw"])):
        monkeypatch.setattr(keep, name, value)
    monkeypatch.setattr(keep, "LOSSES", {"": 16})
    monkeypatch.setitem(SHAPES, "small", small)
    write(tmp_path / "steps.xz", keep.steps(["small"], ["bfloat16"]))
    kept = KeptSteps(tmp_path / "steps.xz")
    options = Options("eager", recompute="full", pieces=16)
    for length in (BETWEEN, BEYOND):
        traced = language_step(small, length, options, layers=SHORT)
        assert traced.tape is not None
        for single, tape in ((True, traced.at(1).tape), (False, traced.tape)):
            assert_the_same(kept.tape(kept_name(small, options, "bfloat16", "adamw", single), length), tape)
    assert kept.tape("another", BETWEEN) is None
    assert kept.tape(next(iter(kept.names)), BETWEEN + 1) is None
    with pytest.raises(NotAlike, match="no arithmetic"):
        kept.tape(next(iter(kept.names)), BETWEEN).event_flops  # type: ignore[union-attr]  # noqa: B018 - refused
    monkeypatch.setattr(kept_steps, "RELEASE", "1.0")
    assert not KeptSteps(tmp_path / "steps.xz").names
    assert not KeptSteps(tmp_path / "nothing.xz").names


def test_what_is_no_polynomial_or_another_step_is_refused(tmp_path: Path) -> None:
    tape = language_step(SHAPES["GPT-2"], 128, layers=SHORT).tape
    assert tape is not None
    same = dict.fromkeys(LENGTHS, tape)
    for odd, words in (
        (replace(tape, fixed=tape.fixed + 1), "no polynomial"),
        (replace(tape, birth=tape.birth + 1), "another step"),
        (replace(tape, event_ops=("other", *tape.event_ops[1:])), "another step"),
    ):
        with pytest.raises(NotAlike, match=words):
            write(tmp_path / "steps.xz", [("odd", {**same, LENGTHS[1]: odd}, 1024)])
    with pytest.raises(NotAlike, match="no polynomial"):
        write(tmp_path / "steps.xz", [("odd", {**same, LENGTHS[3]: replace(tape, fixed=tape.fixed + 1)}, 1024)])


def some(names: list[str]) -> list[str]:
    return names[:: max(1, len(names) // SAMPLED)]


def test_the_steps_of_lesson_13_are_those_of_a_trace() -> None:
    settings = {
        kept_name(SHAPES[model], options, numbers, optimizer, single): (model, options, numbers, optimizer, single)
        for model, attention, recompute, pieces, numbers, optimizer, single in product(
            OFFERED, ATTENTION, RECOMPUTE, LOSSES.values(), FORMATS, OPTIMIZERS, (True, False)
        )
        for options in (Options(attention, recompute=recompute, pieces=pieces),)
    }
    kept = KeptSteps(language_steps.KEPT)
    if not kept.names:
        pytest.skip("kept with another release of torch: explorers trace")
    assert settings.keys() >= set(kept.names)
    for place, name in enumerate(some(list(kept.names))):
        model, options, numbers, optimizer, single = settings[name]
        length = (BETWEEN, BEYOND)[place % 2]
        traced = language_step(SHAPES[model], length, options, numbers, optimizer, SHORT)
        assert_the_same(kept.tape(name, length), traced.at(1 if single else 2).tape)


def test_the_steps_of_lesson_14_are_those_of_a_trace() -> None:
    settings = {
        fine_tuning.kept_name(model, method, single, recompute, dtype): (model, method, single, recompute, dtype)
        for model, method, single, recompute, dtype in product(
            MODELS, list(keep_fine_tuning.methods()), (True, False), (True, False), fine_tuning.DTYPES
        )
    }
    kept = KeptSteps(fine_tuning.STEPS)
    if not kept.names:
        pytest.skip("kept with another release of torch: explorers trace")
    assert settings.keys() >= set(kept.names)
    for place, name in enumerate(some(list(kept.names))):
        model, method, single, recompute, dtype = settings[name]
        length = BEYOND if place % 2 and SHAPES[model].positions >= BEYOND else BETWEEN  # as far as the model goes
        traced = fine_tuning.short_tape(SHAPES[model], method, length, 1 if single else 2, recompute, dtype)
        assert_the_same(kept.tape(name, length), traced)
