"""Steps of language models: a stack made of a few traced layers is the stack traced whole, storage by storage."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from amount import share
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.machine.speed import predict_step
from course_utils.memory import ROLE, Ledger, StepTrace
from course_utils.techniques.fine_tuning import fused
from course_utils.trace import training_step
from course_utils.units import CourseError
from lessons.shared import language_steps
from lessons.shared.language_models import SHAPES, Options
from lessons.shared.language_steps import FORMATS, kept_bytes, language_step
from lessons.shared.stacked import NotAlike, deepened

SMALL = {
    "GPT-2": replace(SHAPES["GPT-2"], vocabulary=60, hidden=32, heads=4, kv_heads=4, inner=128, positions=32),
    "Llama": replace(SHAPES["TinyLlama-1.1B"], vocabulary=60, hidden=32, heads=4, kv_heads=2, inner=48, positions=32),
}
OPTIONS = st.builds(
    Options, attention=st.sampled_from(["eager", "fused"]), dropout=st.sampled_from([0.0, 0.1]),
    recompute=st.sampled_from(["none", "selective", "full"]), group=st.integers(1, 2),
    logits=st.sampled_from(["float32", "model"]), pieces=st.sampled_from([0, 2]),
)  # fmt: skip


def whole(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> StepTrace:
    """The step traced with all its layers."""
    with monkeypatch.context() as patch:
        patch.setattr(language_steps, "SHORT", 1000)
        return language_step.__wrapped__(*arguments)


def storages(ledger: Ledger) -> Counter[tuple[Any, ...]]:
    """Those that have bytes: name of the layer, role, bytes, birth, death."""
    tape = ledger.tape
    names = [tape.layer_names[code] for code in tape.layer]
    lives = zip(names, tape.role.tolist(), ledger.size.tolist(), tape.birth.tolist(), tape.death.tolist(), strict=True)
    return Counter(life for life in lives if life[2])


@settings(max_examples=share(12), deadline=None)
@given(
    family=st.sampled_from(list(SMALL)), options=OPTIONS, numbers=st.sampled_from(FORMATS),
    optimizer=st.sampled_from(["sgd", "adamw"]), more=st.integers(1, 2), keep=st.booleans(),
)  # fmt: skip
def test_a_stack_of_a_few_layers_repeated_is_the_stack(
    family: str, options: Options, numbers: str, optimizer: str, more: int, keep: bool
) -> None:
    group = options.group if options.recompute == "full" else 1
    shape = replace(SMALL[family], layers=(5 + more) * group)
    with pytest.MonkeyPatch.context() as patch:
        real = whole(patch, shape, 24, options, numbers, optimizer, None, keep)
    made = language_step.__wrapped__(shape, 24, options, numbers, optimizer, None, keep)
    for batch in (1, 2, 7):
        one, other = made.at(batch), real.at(batch)
        assert one.tape.event_ops == other.tape.event_ops
        assert storages(one) == storages(other)
        np.testing.assert_array_equal(one.matrix, other.matrix)
        assert list(one.layers) == list(other.layers)
        assert one.by_layer().equals(other.by_layer())
        assert one.allocated_bytes() == other.allocated_bytes()
        assert_same_work(one, other)


def assert_same_work(one: Ledger, other: Ledger) -> None:
    """The same arithmetic and traffic in each event, and so the same predicted time."""
    np.testing.assert_array_equal(one.tape.event_flops, other.tape.event_flops)
    np.testing.assert_array_equal(one.tape.event_traffic, other.tape.event_traffic)
    times = [predict_step(step, "H100 SXM").seconds for step in (one, other)]
    np.testing.assert_array_equal(*times)


@pytest.mark.parametrize(
    ("layers", "optimizer", "options"),
    [
        (12, "adamw", Options(dropout=0.1)), (48, "adamw", Options("eager", recompute="full", pieces=2)),
        (12, "momentum", Options(recompute="selective")), (12, fused, Options(pieces=2)),
    ],
)  # fmt: skip
def test_a_deep_stacks_update_moves_the_bytes_of_all_its_layers(
    layers: int, optimizer: Any, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = replace(SMALL["GPT-2"], layers=layers)
    asked = (shape, 24, options, "bfloat16", optimizer)
    made, real = language_step.__wrapped__(*asked), whole(monkeypatch, *asked)
    for batch in (1, 4):
        assert_same_work(made.at(batch), real.at(batch))


def test_where_the_update_of_the_deep_stack_is_not_told_no_time_is_predicted() -> None:
    few = language_step(SMALL["GPT-2"], 24, layers=5).tape
    assert few is not None
    deep = deepened(few, 9)
    assert Ledger("", deep, 2).peak_bytes > Ledger("", few, 2).peak_bytes
    with pytest.raises(CourseError, match="bytes must be 0 or more"):
        predict_step(Ledger("", deep, 2), "H100 SXM")
    with pytest.raises(NotAlike, match="update"):
        deepened(few, 9, update=[("add_", 4)])


def test_an_operator_outside_the_layers_that_works_on_all_of_them_is_noticed() -> None:
    class Gathered(torch.nn.Module):
        def __init__(self, gathers: bool) -> None:
            super().__init__()
            self.layers, self.gathers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(5)), gathers

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = [x]
            for layer in self.layers:
                found.append(layer(found[-1]))
            return torch.stack(found[1:]).sum(0) if self.gathers else found[-1]

    with torch.device("meta"):
        alone, gathered = (training_step(Gathered(gathers), (8,), 8, "sgd").tape for gathers in (False, True))
    assert alone is not None
    assert gathered is not None
    deepened(alone, 7)
    with pytest.raises(NotAlike, match="outside the layers"):
        deepened(gathered, 7)


def test_layers_that_are_not_alike_are_noticed() -> None:
    class Growing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(*(torch.nn.Linear(8 * 2**i, 16 * 2**i) for i in range(5)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)  # type: ignore[no-any-return]

    with torch.device("meta"):
        tape = training_step(Growing(), (8,), 256, "adamw").tape
    assert tape is not None
    with pytest.raises(NotAlike):
        deepened(tape, 7)


def test_a_learned_position_more_is_a_parameter_more_and_only_there() -> None:
    longer = language_step(SMALL["GPT-2"], 48).at(2).by_role()["parameters"]
    assert longer - language_step(SMALL["GPT-2"], 32).at(2).by_role()["parameters"] == 16 * 32 * 2
    assert (
        language_step(SMALL["Llama"], 48).at(2).by_role()["parameters"]
        == (language_step(SMALL["Llama"], 32).at(2).by_role()["parameters"])
    )


def test_what_is_kept_is_what_the_layers_save() -> None:
    ledger = language_step(SMALL["GPT-2"], 24).at(3)
    first = int(np.flatnonzero(ledger.phases == "backward")[0])
    freed = (ledger.tape.birth < first) & (ledger.tape.death == first) & (ledger.tape.role == ROLE["feature maps"])
    saved = ledger.by_layer()["saved feature maps"].sum()
    assert kept_bytes(ledger) == saved - ledger.size[freed].sum()


def test_an_unknown_model_or_format_is_one_line() -> None:
    with pytest.raises(CourseError, match="no language model 'GPT-9'"):
        language_step("GPT-9")
    with pytest.raises(CourseError, match="unknown format 'int4'"):
        language_step("GPT-2", 1024, None, "int4")


def test_a_softmax_told_its_format_by_place_runs_under_autocast() -> None:
    """`F.softmax(x, dim, dtype=float32)` reaches the dispatcher with its format as third argument."""
    kept = [
        kept_bytes(language_step(SMALL["Llama"], 24, Options("eager"), numbers, layers=2).at(3))
        for numbers in ("mixed", "bfloat16")
    ]
    assert kept[0] > kept[1] > 0
