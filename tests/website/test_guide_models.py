"""The field guide's models are as published, and its steps are those of `course trace`."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from course_utils.memory import StepTrace
from course_utils.techniques.capacity import demand
from course_utils.trace_command.names import resolved
from course_utils.units import CourseError
from lessons.shared.language_models import SHAPES
from lessons.shared.stacked import SHORT
from website.guide import models
from website.guide.decoders import Decoder, Experts, Latent, Mixture
from website.guide.models import MODELS, TEXT, Model
from website.guide.steps import FUSED, HALF, LORA, MIXED, QLORA, Way, network, step, ways

SMALL = replace(
    SHAPES["TinyLlama-1.1B"], vocabulary=96, hidden=64, layers=SHORT + 2, heads=4, kv_heads=2, inner=128, positions=4096
)


def small(**differs: object) -> Model:
    decoder = Decoder(SMALL, **differs)  # type: ignore[arg-type]
    apart = decoder.experts.dense if decoder.experts else 0
    return Model("small", TEXT, decoder.build, 0, "", (512, 2048), layers=SMALL.layers, apart=apart)


LATENT_AND_EXPERTS = small(latent=Latent(32, 32, 16, 8, 16), experts=Experts(2, 1, 64, 64, 1))


# -- The models -------------------------------------------------------------------------------------------------------


def parameters(model: Model, layers: int | None = None) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in model.make(layers).parameters())


@pytest.mark.parametrize("kind", ["language", "vision", "diffusion"])
def test_parameters_are_as_published(kind: str) -> None:
    for model in (one for one in MODELS.values() if one.kind == kind):
        if model.layers:  # of equal layers: two counts are a straight line
            one, two = (parameters(model, model.apart + more) for more in (1, 2))
            found = one + (model.layers - model.apart - 1) * (two - one)
        else:
            found = parameters(model)
        assert round(found, -model.rounded) == model.parameters, model.name
    assert parameters(MODELS["qwen3_0_6b"]) == MODELS["qwen3_0_6b"].parameters  # whole


def test_every_model_has_a_builder_of_its_own_that_the_command_finds() -> None:
    assert len(MODELS) == len({model.name for model in MODELS.values()}) >= 40
    for key in MODELS:
        assert re.fullmatch(r"[a-z]\w*", key)
        assert callable(resolved(f"website.guide.models:{key}", "builder"))
    with pytest.raises(CourseError, match="no model 'gpt5'"):
        models.model("gpt5")


def test_a_mixture_that_chooses_every_expert_is_their_weighted_sum() -> None:
    torch.manual_seed(0)
    mixture, x = Mixture(16, Experts(3, 3, 8, 8)), torch.randn(2, 5, 16)
    shares = mixture.router(x).softmax(-1)
    whole = sum(shares[..., i, None] * expert(x) for i, expert in enumerate(mixture.experts))
    assert mixture.shared is not None
    torch.testing.assert_close(mixture(x), whole + mixture.shared(x))


@pytest.mark.parametrize("model", [small(head=32, normed=True), LATENT_AND_EXPERTS], ids=["normed", "latent"])
def test_no_token_sees_what_comes_after_it(model: Model) -> None:
    torch.manual_seed(0)
    built: nn.Module = model.make(None).eval()
    for part in built.modules():
        if isinstance(part, Mixture):  # an even load moves tokens from expert to expert
            part.forward = lambda x: x  # type: ignore[method-assign]
    ids = torch.randint(96, (1, 16))
    other = ids.clone()
    other[:, 9:] = (other[:, 9:] + 1) % 96
    torch.testing.assert_close(built(ids)[:, :9], built(other)[:, :9])
    assert not torch.allclose(built(ids)[:, 9:], built(other)[:, 9:])


# -- Steps ------------------------------------------------------------------------------------------------------------


def same(one: StepTrace, other: StepTrace, batch: int) -> None:
    first, second = one.at(batch), other.at(batch)
    assert first.tape.event_ops == second.tape.event_ops
    assert (first.total == second.total).all()
    assert demand(first).tensors == demand(second).tensors


@pytest.mark.parametrize(
    ("model", "way"),
    [
        (small(), Way(HALF, "adamw", False, 2048)), (small(), Way(QLORA, "adamw-8bit", True, 2048)),
        (small(head=32, normed=True), Way(MIXED, FUSED, True, 512)), (LATENT_AND_EXPERTS, Way(LORA, FUSED, True, 2048)),
    ],
    ids=lambda one: one.method if isinstance(one, Way) else "",
)  # fmt: skip
def test_layers_counted_are_layers_traced_and_the_step_is_that_of_course_trace(model: Model, way: Way) -> None:
    whole = network(model, way.length).step(way.settings())
    ours = step(model, way)
    for batch in (1, 3):
        same(ours, whole, batch)


def test_ways_are_told_apart() -> None:
    for model in MODELS.values():
        found = ways(model)
        assert len(found) == len(set(found))
        assert {way.length for way in found} == set(model.lengths)
    assert len(ways(small())) == 2 * 2 * (3 + 3 + 2 + 2)
