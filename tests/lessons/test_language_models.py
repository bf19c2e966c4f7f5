"""The transformers of lessons 13 and 14: published parameter counts, and options that change memory, never results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils.trace import Spec, training_step
from course_utils.units import CourseError
from lessons.shared.language_models import SHAPES, Cache, Options, Output, Shape

SMALL = {
    "gpt2": replace(SHAPES["GPT-2"], vocabulary=50, hidden=32, layers=3, heads=4, kv_heads=4, inner=128, positions=32),
    "llama": replace(
        SHAPES["TinyLlama-1.1B"], vocabulary=50, hidden=32, layers=3, heads=4, kv_heads=2, inner=48, positions=32
    ),
}
# The counts that the model pages give (number of values in the published weights, what is tied once).
PUBLISHED = {
    "GPT-2": 124_439_808,
    "GPT-2 medium": 354_823_168,
    "GPT-2 large": 774_030_080,
    "GPT-2 XL": 1_557_611_200,
    "SmolLM2-135M": 134_515_008,
    "SmolLM2-360M": 361_821_120,
    "TinyLlama-1.1B": 1_100_048_384,
    "Llama-3.2-1B": 1_235_814_400,
    "Qwen2.5-1.5B": 1_543_714_304,
    "SmolLM2-1.7B": 1_711_376_384,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-3-8B": 8_030_261_248,
}


def made(shape: Shape, **options: Any) -> nn.Module:
    torch.manual_seed(1)
    return shape.build(Options(**options))


def ids(batch: int = 2, sequence: int = 12) -> torch.Tensor:
    return torch.randint(50, (batch, sequence), generator=torch.Generator().manual_seed(2))


def step(shape: Shape, **options: Any) -> tuple[float, dict[str, torch.Tensor]]:
    model, tokens = made(shape, **options), ids()
    torch.manual_seed(3)
    out: Output = model(tokens, tokens)
    out.loss.backward()
    return out.loss.item(), {name: p.grad.clone() for name, p in model.named_parameters()}


def traced(shape: Shape, batch: int, sequence: int, layers: int | None = None, **options: Any) -> Any:
    with torch.device("meta"):
        model = shape.build(Options(**options), layers).to(torch.bfloat16)
    return training_step(
        model, inputs=Spec(("sequence",), torch.int64), sizes={"sequence": sequence}, keep_output=True,
        loss=lambda model, tokens: model(tokens, tokens).loss, optimizer="adamw",
    ).at(batch)  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_are_as_published(name: str) -> None:
    with torch.device("meta"):
        model = SHAPES[name].build()
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name] == SHAPES[name].parameters


@pytest.mark.parametrize("family", SMALL)
@pytest.mark.parametrize(
    "options",
    [
        {"attention": "eager"}, {"attention": "eager", "recompute": "selective"}, {"recompute": "selective"},
        {"recompute": "full"}, {"recompute": "full", "group": 2}, {"attention": "eager", "recompute": "full"},
        {"pieces": 5}, {"logits": "model"},
    ],
    ids=str,
)  # fmt: skip
def test_options_change_no_result(family: str, options: dict[str, Any]) -> None:
    plain, changed = step(SMALL[family]), step(SMALL[family], **options)
    assert changed[0] == pytest.approx(plain[0], rel=1e-5)
    for name, gradient in plain[1].items():
        torch.testing.assert_close(changed[1][name], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_what_is_computed_again_drops_the_same(recompute: str) -> None:
    plain = step(SMALL["gpt2"], attention="eager", dropout=0.3)
    again = step(SMALL["gpt2"], attention="eager", dropout=0.3, recompute=recompute)
    assert again[0] == plain[0]
    for name, gradient in plain[1].items():
        torch.testing.assert_close(again[1][name], gradient)


@pytest.mark.parametrize("family", SMALL)
@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_a_token_at_a_time_behind_a_cache_is_the_whole_at_once(family: str, attention: str) -> None:
    model, tokens = made(SMALL[family], attention=attention).eval(), ids()
    cache: Cache = []
    with torch.no_grad():
        parts = [model(tokens[:, :5], cache=cache)]
        parts += [model(tokens[:, i : i + 1], cache=cache) for i in range(5, tokens.shape[1])]
        torch.testing.assert_close(torch.cat(parts, 1), model(tokens), rtol=1e-4, atol=1e-5)
    assert cache[0][0].shape == (2, SMALL[family].kv_heads, tokens.shape[1], 8)


@pytest.mark.parametrize("family", SMALL)
@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_no_token_sees_what_comes_after_it(family: str, attention: str) -> None:
    model, tokens = made(SMALL[family], attention=attention).eval(), ids()
    other = tokens.clone()
    other[:, 7:] = (other[:, 7:] + 1) % 50
    torch.testing.assert_close(model(tokens)[:, :7], model(other)[:, :7])
    assert not torch.allclose(model(tokens)[:, 7:], model(other)[:, 7:])


def test_the_loss_is_that_of_the_next_token() -> None:
    model, tokens = made(SMALL["llama"]), ids()
    out: Output = model(tokens, tokens)
    logits = model(tokens)
    by_hand = -torch.log_softmax(logits, -1)[:, :-1].gather(2, tokens[:, 1:, None]).mean()
    torch.testing.assert_close(out.loss, by_hand)
    assert out.logits is not None
    assert out.logits.shape == (2, 12, 50)


@settings(max_examples=12, deadline=None)
@given(
    batch=st.integers(2, 5), sequence=st.integers(8, 96), heads=st.sampled_from([1, 2, 4, 8]), width=st.integers(1, 4)
)
def test_a_layer_keeps_what_the_formula_says(batch: int, sequence: int, heads: int, width: int) -> None:
    """sbh(34 + 5as/h) of Korthikanti and others (2022), and mean and 1/σ of its two norms, which the paper leaves out:
    what a second layer adds to the maps that are alive when the backward pass begins."""
    hidden = 16 * width * heads
    shape = replace(SMALL["gpt2"], hidden=hidden, heads=heads, kv_heads=heads, inner=4 * hidden, positions=128)

    def kept(layers: int) -> int:
        ledger = traced(shape, batch, sequence, layers, attention="eager", dropout=0.1)
        return int(ledger.by_layer()["saved feature maps"].sum())

    formula = sequence * batch * (34 * hidden + 5 * heads * sequence)
    assert kept(3) - kept(2) == formula + 2 * 2 * 4 * sequence * batch


@pytest.mark.parametrize("family", SMALL)
def test_each_option_saves_what_it_is_for(family: str) -> None:
    shape = SMALL[family]
    kept = {
        what: int(traced(shape, 2, 32, **options).by_layer()["saved feature maps"].sum())
        for what, options in {
            "eager": {"attention": "eager"},
            "selective": {"attention": "eager", "recompute": "selective"},
            "fused": {},
            "full": {"recompute": "full"},
            "pieces": {"recompute": "full", "pieces": 4},
        }.items()
    }
    assert kept["eager"] > kept["fused"] > kept["selective"] > kept["full"] > kept["pieces"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"attention": "flash"}, "unknown attention 'flash'"), ({"recompute": "all"}, "unknown recompute"),
        ({"logits": "bfloat16"}, "unknown logits"), ({"dropout": 1.0}, "dropout must be"),
        ({"group": 0}, "group must be"), ({"pieces": -1}, "pieces 0 or more"),
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(CourseError, match=told):
        Options(**options)


def test_too_long_a_text_is_refused() -> None:
    model = made(SMALL["llama"]).eval()
    with pytest.raises(CourseError, match="32 positions, got 33 tokens"):
        model(ids(1, 33))
    cache: Cache = []
    model(ids(1, 4), cache=cache)
    with pytest.raises(CourseError, match="one token at a time"):
        model(ids(1, 2), cache=cache)
