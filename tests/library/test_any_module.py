"""Modules that people bring, layer kinds of torch.nn and operators: the whole timeline against real CPU tensors.

Each case runs at several batches, batch 1 included, and is compared operator by operator. What is known not to agree
is marked, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import awkward_nets
import pytest
import torch
from oracles import Case, live_storages_timeline
from small_nets import Net, chain, operators
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from course_utils.trace import training_step
from lessons.memory.recurrent import rnn_from_cells

pytestmark = pytest.mark.usefixtures("one_thread")


# -- networks that people bring, against real tensors ------------------------------------------------------------------


def checkpointed(net: Any, x: Tensor, **options: Any) -> Tensor:
    out: Tensor = net.c(checkpoint(lambda maps: F.relu(net.b(F.relu(maps))), net.a(x), **options))
    return out


def keeps_a_map(net: Any, x: Tensor) -> Tensor:
    maps = net.a(x)
    net.kept = maps.detach()
    out: Tensor = net.c(net.b(maps))
    return out


class Replaces(Net):
    """Holds tensors in a list and in a buffer, and replaces both in its first step."""

    def __init__(self) -> None:
        super().__init__(chain)
        self.listed = [torch.zeros(3)]
        self.register_buffer("table", torch.zeros(7))

    def forward(self, x: Tensor) -> Tensor:
        if self.listed:
            self.listed, self.table = [], x.new_ones(5)
        out: Tensor = super().forward(x) * self.table
        return out


def keeps_the_graph(net: Any, x: Tensor) -> Tensor:
    net.kept = net.a(x)
    out: Tensor = net.c(net.b(net.kept))
    return out


def makes_a_mask_once(net: Any, x: Tensor) -> Tensor:
    if not hasattr(net, "mask"):
        net.mask = x.new_ones(5, 5)
    out: Tensor = chain(net, x) @ net.mask
    return out


def makes_a_table_once(net: Any, x: Tensor) -> Tensor:
    table = net.__dict__.setdefault("table", {})
    if "mask" not in table:
        table["mask"] = x.new_ones(5, 5)
    out: Tensor = chain(net, x) @ table["mask"]
    return out


class HoldsATensor(Net):
    """A tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__(lambda net, x: chain(net, x) + net.scale[:5])
        self.scale = torch.ones(40)


class SharesStorages(Net):
    """Weights that are a part of larger ones, of two layers, and a buffer too; a row of a long table."""

    def __init__(self) -> None:
        super().__init__(lambda net, x: net.c(F.relu(net.d(net.b(F.relu(net.a(x)))))) + net.row)
        self.d = nn.Linear(16, 16)
        self.b.weight = nn.Parameter(torch.randn(64, 32)[:16, 3:19])
        self.d.weight.data = self.b.weight.data
        self.register_buffer("first", self.b.weight.data)
        self.register_buffer("row", torch.zeros(500, 5)[7])


class Frozen(Net):
    """Layers whose weights need no gradient."""

    def __init__(self, *layers: str) -> None:
        super().__init__(chain)
        for layer in layers:
            getattr(self, layer).requires_grad_(False)


class FrozenBackbone(nn.Module):
    """Pretrained convolutions, pools and norms that are not trained, and a head that is: transfer learning's network.

    `how`: "requires_grad" on their parameters, "no_grad" around their forward pass, "detach" of what they put out, or
    "below" the first layer, which is trained too, so that gradients have to come back through all of them.
    """

    def __init__(self, how: str, evaluation: bool = False) -> None:
        super().__init__()
        self.how = how
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.rest = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(16 * 4, 5))
        for part in (self.first, self.rest):
            part.requires_grad_(how in ("no_grad", "detach"))
            part.train(not evaluation)
        self.first[0].requires_grad_(how == "below")

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.how != "no_grad"):
            maps = self.rest(self.first(x))
        scores: Tensor = self.head(maps.detach() if self.how == "detach" else maps)
        return scores


class WithNorms(nn.Module):
    """Batch norm in training, in evaluation mode, without weights, without statistics, and first of all."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm2d(3)
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.plain, self.bare = nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False)
        self.fresh, self.fixed = nn.BatchNorm2d(4, track_running_stats=False), nn.BatchNorm2d(4).eval()
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.conv(self.first(x))
        maps = self.fixed(self.fresh(self.bare(self.plain(maps))))
        scores: Tensor = self.head(F.relu(maps).mean((2, 3)))
        return scores


class NormsWithoutWeights(nn.Sequential):
    """Norms that only shift and scale: of each sample by itself, of the batch with running statistics and without."""

    def __init__(self) -> None:
        fresh = nn.BatchNorm1d(4, affine=False, track_running_stats=False)
        norms = (nn.InstanceNorm1d(4), nn.BatchNorm1d(4, affine=False), fresh)
        super().__init__(nn.Linear(8, 16), nn.Unflatten(1, (4, 4)), *norms, nn.Flatten(), nn.Linear(16, 5))


class Tokens(nn.Module):
    """Token ids to scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.embedding(tokens).mean(1))
        return scores


PEOPLE_BRING: dict[str, tuple[Case, dict[str, Any]]] = {
    "checkpointing": (Case(partial(Net, partial(checkpointed, use_reentrant=False)), (8,), 5), {}),
    "checkpointing, reentrant": (Case(partial(Net, partial(checkpointed, use_reentrant=True)), (8,), 5), {}),
    "a map kept for the next step": (Case(partial(Net, keeps_a_map), (8,), 5), {}),
    "a map kept with its graph": (Case(partial(Net, keeps_the_graph), (8,), 5), {}),
    "a mask made in the first step": (Case(partial(Net, makes_a_mask_once), (8,), 5), {}),
    "a mask made once, out of sight": (Case(partial(Net, makes_a_table_once), (8,), 5), {}),
    "tensors replaced in the first step": (Case(Replaces, (8,), 5), {}),
    "a tensor held without being a buffer": (Case(HoldsATensor, (8,), 5), {}),
    "tensors that share storages": (Case(SharesStorages, (8,), 5), {}),
    "a constant made in forward": (Case(partial(Net, lambda net, x: chain(net, x) * torch.tensor(2.0)), (8,), 5), {}),
    "zeros made in forward": (Case(partial(Net, lambda net, x: chain(net, x) + torch.zeros(len(x), 5)), (8,), 5), {}),
    "the first layer frozen": (Case(partial(Frozen, "a"), (8,), 5), {}),
    "the middle layer frozen": (Case(partial(Frozen, "b"), (8,), 5), {}),
    "all but the head frozen": (Case(partial(Frozen, "a", "b"), (8,), 5), {}),
    **{
        f"a frozen backbone, {how}": (Case(partial(FrozenBackbone, how), (3, 8, 8), 5), {})
        for how in ("requires_grad", "no_grad", "detach", "below")
    },
    "a frozen backbone in evaluation mode": (Case(partial(FrozenBackbone, "requires_grad", True), (3, 8, 8), 5), {}),
    "a layer that is not used": (Case(partial(Net, lambda net, x: net.c(net.a(x))), (8,), 5), {}),
    "a layer used three times": (Case(partial(Net, lambda net, x: net.c(net.b(net.b(net.b(net.a(x)))))), (8,), 5), {}),
    "all kinds of batch norm": (Case(WithNorms, (3, 6, 6), 5), {}),
    "a loss of one's own": (
        Case(partial(Net, chain), (8,), 5, criterion=F.mse_loss, make_target=lambda batch: torch.randn(batch, 5)),
        {"criterion": F.mse_loss, "target_shape": (5,), "target_dtype": torch.float32},
    ),
    "token ids": (
        Case(Tokens, (7,), 5, make_input=lambda *shape: torch.randint(50, shape)),
        {"input_dtype": torch.int64},
    ),
    "double precision input": (
        Case(lambda: Net(chain).double(), (8,), 5, make_input=partial(torch.randn, dtype=torch.float64)),
        {"input_dtype": torch.float64},
    ),
    "channels last": (
        Case(lambda: awkward_nets.branching_cnn().to(memory_format=torch.channels_last), (3, 8, 8), 5),
        {},
    ),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # reentrant checkpoints, in inference
@pytest.mark.parametrize("optimizer", ["momentum", "adamw", None])
@pytest.mark.parametrize("name", PEOPLE_BRING)
def test_networks_that_people_bring_equal_real_tensors(name: str, optimizer: str | None) -> None:
    case, options = PEOPLE_BRING[name]
    case = replace(case, optimizer=optimizer)
    step = training_step(case.build(), case.input_shape, None, optimizer, target="cpu", **options)
    assert step.affine, step.why
    for batch in (1, 2, 19):
        assert operators(step.at(batch)) == live_storages_timeline(case, batch), batch


def test_moved_to_a_card_tensors_share_no_storage() -> None:
    moved = SharesStorages().double().float()  # copied one by one, as by `.cuda()`
    assert operators(training_step(SharesStorages(), (8,)).at(4)) == operators(training_step(moved, (8,)).at(4))
    on_cpu = [training_step(one, (8,), target="cpu").at(4).by_role()["parameters"] for one in (SharesStorages(), moved)]
    assert on_cpu[0] - on_cpu[1] == 4 * (64 * 32 - 2 * 16 * 16)


def test_a_type_is_changed_within_vmap_on_a_card_too() -> None:
    def squares(net: Net, x: Tensor) -> Tensor:
        rows: Tensor = torch.vmap(lambda row: row.to(torch.float64).pow(2).sum())(net.a(x))
        return chain(net, x) + rows[:, None]

    for target in ("cpu", "cuda"):
        step = training_step(Net(squares), (8,), target=target).at(4)
        assert "_to_copy" in set(step.timeline()["event"])


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["dense", "rnn_from_cells", "checkpointing", "PReLU", "norms", "shared"])
def test_autocast_equals_real_tensors_without_convolutions(name: str, precision: str) -> None:
    build, shape = {
        "dense": (partial(Net, chain), (8,)),
        "rnn_from_cells": (rnn_from_cells, (7, 4)),
        "norms": (NormsWithoutWeights, (8,)),
        "shared": (SharesStorages, (8,)),
        "PReLU": (lambda: nn.Sequential(nn.Linear(8, 16), nn.PReLU(16), nn.Linear(16, 5)), (8,)),
        "checkpointing": (partial(Net, partial(checkpointed, use_reentrant=False)), (8,)),
    }[name]
    step = training_step(build(), shape, None, "adam", precision, "cpu")
    for batch in (1, 2, 19):
        real = live_storages_timeline(Case(build, shape, 5, "adam", precision=precision), batch)
        assert operators(step.at(batch)) == real, batch


# -- layers and operators ----------------------------------------------------------------------------------------------


class Around(nn.Module):
    """A layer between one that has weights and two scores."""

    def __init__(
        self, before: Callable[[], nn.Module], layer: Callable[[], nn.Module], run: Callable[..., Any]
    ) -> None:
        super().__init__()
        self.before, self.layer, self.run = before(), layer(), run

    def forward(self, x: Tensor) -> Tensor:
        out = self.run(self.layer, self.before(x))
        out = (out[0] if isinstance(out, tuple) else out).flatten(1)
        return torch.cat([out[:, :1], out.mean(1, keepdim=True)], 1)


PICTURES = (partial(nn.Conv2d, 3, 8, 3, padding=1), (3, 8, 8))
SIGNALS = (partial(nn.Conv1d, 3, 8, 3, padding=1), (3, 10))
VOLUMES = (partial(nn.Conv3d, 2, 8, 3, padding=1), (2, 4, 4, 4))
TOKENS = (partial(nn.Linear, 16, 16), (6, 16))
ROWS = (partial(nn.Linear, 16, 16), (16,))

LAYERS: dict[str, tuple[Any, Callable[[], nn.Module]]] = {
    **{
        kind.__name__: (PICTURES, kind)
        for kind in (
            *(nn.ReLU, nn.ReLU6, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Hardtanh, nn.Hardsigmoid),
            *(nn.LeakyReLU, nn.Mish, nn.PReLU, nn.RReLU, nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Softplus, nn.Softsign),
            *(nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.Softmax2d, nn.Dropout, nn.Dropout2d, nn.AlphaDropout),
        )
    },
    "GLU": (PICTURES, partial(nn.GLU, 1)),
    "Softmax": (PICTURES, partial(nn.Softmax, 1)),
    "GELU, tanh": (PICTURES, partial(nn.GELU, "tanh")),
    "BatchNorm3d": (VOLUMES, partial(nn.BatchNorm3d, 8)),
    "GroupNorm": (PICTURES, partial(nn.GroupNorm, 2, 8)),
    "InstanceNorm2d": (PICTURES, partial(nn.InstanceNorm2d, 8, affine=True)),
    "LayerNorm": (TOKENS, partial(nn.LayerNorm, 16)),
    "RMSNorm": (TOKENS, partial(nn.RMSNorm, 16)),
    "LocalResponseNorm": (PICTURES, partial(nn.LocalResponseNorm, 3)),
    "MaxPool1d": (SIGNALS, partial(nn.MaxPool1d, 2)),
    "MaxPool3d": (VOLUMES, partial(nn.MaxPool3d, 2)),
    "AvgPool2d": (PICTURES, partial(nn.AvgPool2d, 2)),
    "AvgPool3d": (VOLUMES, partial(nn.AvgPool3d, 2)),
    "AdaptiveMaxPool2d": (PICTURES, partial(nn.AdaptiveMaxPool2d, 3)),
    "AdaptiveAvgPool1d": (SIGNALS, partial(nn.AdaptiveAvgPool1d, 3)),
    "AdaptiveAvgPool2d": (PICTURES, partial(nn.AdaptiveAvgPool2d, 3)),
    "LPPool2d": (PICTURES, partial(nn.LPPool2d, 2, 2)),
    "ConvTranspose1d": (SIGNALS, partial(nn.ConvTranspose1d, 8, 4, 3)),
    "ConvTranspose2d": (PICTURES, partial(nn.ConvTranspose2d, 8, 4, 3, stride=2)),
    "Conv2d, dilated": (PICTURES, partial(nn.Conv2d, 8, 8, 3, dilation=2, padding="same")),
    "Conv2d, depthwise": (PICTURES, partial(nn.Conv2d, 8, 8, 3, groups=8)),
    "Conv2d, reflecting": (PICTURES, partial(nn.Conv2d, 8, 8, 3, padding=1, padding_mode="reflect")),
    "Upsample": (PICTURES, partial(nn.Upsample, scale_factor=2)),
    "Upsample, bilinear": (PICTURES, partial(nn.Upsample, scale_factor=2, mode="bilinear")),
    "PixelShuffle": (PICTURES, partial(nn.PixelShuffle, 2)),
    "ZeroPad2d": (PICTURES, partial(nn.ZeroPad2d, 1)),
    "Linear": (TOKENS, partial(nn.Linear, 16, 7)),
    "TransformerEncoder": (
        TOKENS,
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2),
    ),
    "GRUCell": (ROWS, partial(nn.GRUCell, 16, 8)),
    "LSTMCell": (ROWS, partial(nn.LSTMCell, 16, 8)),
    "weight norm": (ROWS, lambda: nn.utils.parametrizations.weight_norm(nn.Linear(16, 8))),
    "spectral norm": (ROWS, lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(16, 8))),
}


def heads(tokens: Tensor, **options: Any) -> Tensor:
    """Attention of two heads."""
    split = tokens.unflatten(-1, (2, 8)).transpose(1, 2)
    return F.scaled_dot_product_attention(split, split, split, **options).transpose(1, 2).flatten(2)


def no_future(tokens: Tensor) -> Tensor:
    return torch.ones(6, 6, dtype=torch.bool, device=tokens.device).tril()


def shifted(tokens: Tensor) -> Tensor:
    out = torch.zeros_like(tokens)
    out[:, 1:] = tokens[:, :-1]
    return out


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "attention": heads,
    "attention, causal": partial(heads, is_causal=True),
    "attention, dropout": partial(heads, dropout_p=0.2),
    "attention, bool mask": lambda h: heads(h, attn_mask=no_future(h)),
    "attention, float mask": lambda h: heads(h, attn_mask=torch.zeros(6, 6, device=h.device)),
    "attention by hand": lambda h: (h @ h.transpose(1, 2)).masked_fill(~no_future(h), -torch.inf).softmax(-1) @ h,
    "einsum": lambda h: torch.einsum("btd,bsd->bts", h, h),
    "norm": lambda h: h.norm(dim=-1),
    "std": lambda h: h.std(-1),
    "logsumexp": lambda h: h.logsumexp(-1),
    "max": lambda h: h.max(-1)[0],
    "topk": lambda h: h.topk(3, -1)[0],
    "cumsum": lambda h: h.cumsum(1),
    "where": lambda h: torch.where(h > 0, h, 0.0),
    "clamp": lambda h: h.clamp(0, 1),
    "power": lambda h: h**2,
    "cdist": lambda h: torch.cdist(h, h),
    "stack": lambda h: torch.stack([h, -h], 1),
    "split and cat": lambda h: torch.cat(h.split(4, -1)[::-1], -1),
    "repeat": lambda h: h.repeat(1, 2, 1),
    "expand": lambda h: h[:, :1].expand(-1, 6, -1) + h,
    "outer product": lambda h: h[:, :, None] * h[:, None],
    "slice assignment": shifted,
    "contiguous": lambda h: h.transpose(1, 2).contiguous(),
    "half and back": lambda h: h.half().float(),
    "fft": lambda h: torch.fft.rfft(h).abs(),
    "noise": lambda h: h + torch.randn_like(h),
    "interpolate": lambda h: F.interpolate(h, 9, mode="linear"),
    "checkpoint": lambda h: checkpoint(lambda z: (z * z).tanh(), h, use_reentrant=False),
    "gather": lambda h: h.gather(1, torch.zeros(len(h), 2, 16, dtype=torch.int64, device=h.device)),
}


@pytest.mark.parametrize("name", [*LAYERS, *OPERATORS])
def test_layers_and_operators_equal_real_tensors(name: str) -> None:
    if name in OPERATORS:
        (before, shape), layer, run = TOKENS, nn.Identity, lambda layer, maps: OPERATORS[name](maps)
    else:
        ((before, shape), layer), run = LAYERS[name], lambda layer, maps: layer(maps)
    build = partial(Around, before, layer, run)
    step = training_step(build(), shape, 2, "sgd", target="cpu")
    assert step.affine, step.why
    for batch in (1, 3):
        assert operators(step.at(batch)) == live_storages_timeline(Case(build, shape, 2), batch), batch
