"""Models of transformers as they are, small ones: skipped where the library, an extra, is not installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles import Case, live_storages_timeline
from small_nets import operators
from torch import Tensor, nn

from course_utils.trace import TraceError
from course_utils.trace.huggingface import training_step

transformers = pytest.importorskip("transformers", reason='the extra "zoo" is not installed')

SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 60,
}  # fmt: skip


def gpt2(**options: Any) -> nn.Module:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60, "n_positions": 64}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **options)).train()


def llama(**options: Any) -> nn.Module:
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, **options)
    return transformers.LlamaForCausalLM(config).train()


def bert(**options: Any) -> nn.Module:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, **options)).train()


def checkpointed() -> nn.Module:
    model = llama(use_cache=False)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


class Loop(nn.Module):
    """The step of the ordinary loop, with `out` alive through backward."""

    def __init__(self, build: Callable[[], nn.Module], mask: bool) -> None:
        super().__init__()
        self.inner, self.mask, self.kept = build(), mask, []

    def forward(self, ids: Tensor) -> Tensor:
        self.kept.clear()
        batch = {"attention_mask": self.ones} if self.mask else {}
        out = self.inner(input_ids=ids, labels=ids, **batch)
        self.kept.append(out)
        return out.loss


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("build", [gpt2, llama, bert, checkpointed, lambda: llama(attn_implementation="eager")])
def test_equals_the_ordinary_loop_on_real_tensors(build: Callable[[], nn.Module], mask: bool) -> None:
    step = training_step(build(), 12, "sgd", target="cpu", mask=mask)
    assert step.affine, step.why

    def make(batch: int) -> nn.Module:
        loop = Loop(build, mask)
        loop.ones = torch.ones(batch, 12, dtype=torch.int64)
        return loop

    for batch in (3,):
        real = live_storages_timeline(
            Case(
                lambda batch=batch: make(batch), (12,), 60, criterion=lambda loss, y: loss,
                make_input=lambda *shape: torch.randint(60, shape), make_target=lambda batch: torch.zeros(0),
            ),
            batch,
        )  # fmt: skip
        held = real[0][1] - operators(step.at(batch))[0][1]  # a mask that the loop holds counts from the start
        assert [(op, size - held) for op, size in real] == operators(step.at(batch))


def test_masks_are_followed_under_autocast_too() -> None:
    """transformers makes a whole mask for fake tensors, which no real step has; then no flash attention would run."""
    for build in (checkpointed, gpt2):
        ops = training_step(build(), 12, precision="bfloat16").at(3).tape.event_ops
        assert "_scaled_dot_product_flash_attention" in ops


def test_evaluation_mode_is_noticed() -> None:
    with pytest.warns(UserWarning, match="evaluation mode"):
        step = training_step(gpt2().eval(), 12)
    assert any("model.train()" in what for what in step.assumptions)


def test_what_a_batch_holds_follows_from_the_model() -> None:
    vit = transformers.ViTConfig(**{**SIZES, "image_size": 16, "patch_size": 8})
    step = training_step(transformers.ViTForImageClassification(vit).train())
    assert step.at(2).timeline()["input"][0] == 2 * (4 * 3 * 16 * 16 + 8)
    classify = transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES)).train()
    step = training_step(classify, 12)
    assert step.at(2).timeline()["input"][0] == 2 * 8 * (12 + 1)
    assert step.at(2, sequence=20).timeline()["input"][0] == 2 * 8 * (20 + 1)


def test_what_cannot_be_told_is_refused_with_the_way_out() -> None:
    with pytest.raises(TraceError, match="say how many a sample has, with sequence="):
        training_step(gpt2())
    with pytest.raises(TraceError, match="give it one, with mask=True"):
        training_step(gpt2(pad_token_id=0), 12)
    assert training_step(gpt2(pad_token_id=0), 12, mask=True).affine
    with pytest.raises(TraceError, match="inputs="):
        training_step(transformers.BertModel(transformers.BertConfig(**SIZES)), 12)
    with pytest.raises(TraceError, match="must be a model of transformers, got Linear"):
        training_step(nn.Linear(2, 2), 12)
