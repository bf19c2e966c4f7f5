"""`training_step`: what it leaves alone, whose name each tensor carries, every batch from two, and what it refuses.

That the bytes are right for the course's networks is tests/library/test_exactness.py; here are the networks that people
bring.
"""

from __future__ import annotations

import copy
import gc
import random
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import awkward_nets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import Case, blank, live_storages_timeline
from small_nets import Net, chain, on_meta, operators
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from course_utils import networks
from course_utils.memory import ROLE, ROLES, StepTrace, Tape
from course_utils.trace import TraceError, training_step
from course_utils.trace.copying import OnShapes
from course_utils.trace.inputs import LARGE_BATCH
from lessons.memory.recurrent import rnn_from_cells

# -- what is left alone ------------------------------------------------------------------------------------------------


def small_but_complete() -> nn.Module:
    """Running statistics, dropout, a part in evaluation mode, frozen weights, gradients, a hook, plain attributes."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(), nn.BatchNorm2d(8),
        nn.Flatten(), nn.Linear(8 * 6 * 6, 5),
    )  # fmt: skip
    net[4].eval()
    net[0].bias.requires_grad_(False)
    net[6].weight.grad = torch.full_like(net[6].weight, 3.0)
    net.scale = torch.ones(3)
    net.note = ["kept"]
    net[1].register_forward_hook(lambda module, x, out: None)
    return net


def everything(value: Any, seen: dict[int, int]) -> Any:
    """What an object holds, however deep; what was met before by the place where it was."""
    if isinstance(value, weakref.ref):
        return "a weak reference"
    atoms = (type(None), bool, int, float, str, type, torch.dtype, torch.Size)
    if isinstance(value, atoms) or (callable(value) and not isinstance(value, nn.Module)):
        return value
    if id(value) in seen:
        return f"met as {seen[id(value)]}"
    seen[id(value)] = len(seen)
    if isinstance(value, Tensor):
        return type(value), tuple(value.shape), value.requires_grad
    if isinstance(value, dict):
        return type(value), [(key, everything(one, seen)) for key, one in value.items()]
    if isinstance(value, (list, tuple, set)):
        return type(value), [everything(one, seen) for one in value]
    return type(value), everything(vars(value), seen)


class Tangled(nn.Module):
    """Parts in several places, a part that knows the whole, and state of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.lstm, self.attention = nn.Linear(8, 8), nn.LSTM(8, 8), nn.MultiheadAttention(8, 2)
        self.b = nn.Linear(8, 8)
        self.b.weight = self.a.weight
        self.again, self.b.__dict__["whole"] = self.a, self
        self.shared: list[int] = []
        self.lists = {"one": self.shared, "two": self.shared, "part": [self.a], "set": {1}}


@pytest.mark.parametrize("build", [small_but_complete, Tangled, networks.googlenet])
def test_a_copy_is_what_deepcopy_makes(build: Callable[[], nn.Module]) -> None:
    net = build()
    quick, plain = OnShapes(lambda tensor: tensor.detach().clone()).module(net), copy.deepcopy(net)
    assert everything(quick, {}) == everything(plain, {})
    mine, theirs = (
        {id(one) for child in whole.modules() for one in vars(child).values() if isinstance(one, (dict, list, set))}
        for whole in (net, quick)
    )
    assert not mine & theirs


def fingerprint(net: nn.Module) -> Any:
    """Everything of a module that a trace could touch, values and identities."""
    return {
        "state": {
            name: (id(t), t.numpy().tobytes(), t._version) for name, t in net.state_dict(keep_vars=False).items()
        },
        "parameters": [(id(p), p.requires_grad, p._version, p.device.type) for p in net.parameters()],
        "gradients": [None if p.grad is None else (id(p.grad), p.grad.numpy().tobytes()) for p in net.parameters()],
        "training": [child.training for child in net.modules()],
        "hooks": [(len(c._forward_hooks), len(c._forward_pre_hooks), len(c._backward_hooks)) for c in net.modules()],
        "attributes": [
            sorted((name, id(value)) for name, value in vars(c).items() if not isinstance(value, bool))
            for c in net.modules()
        ],
    }


@pytest.mark.parametrize("optimizer", ["adam", None])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_the_module_and_the_process_are_left_untouched(optimizer: str | None, precision: str, target: str) -> None:
    net = small_but_complete()
    # A state_dict's tensors are new objects each time; what counts is what they point at.
    before = fingerprint(net)
    world = (
        torch.random.get_rng_state().numpy().tobytes(), random.getstate(), np.random.get_state()[1].tobytes(),
        torch.is_grad_enabled(), gc.isenabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"),
        F.scaled_dot_product_attention,
    )  # fmt: skip
    training_step(net, (3, 8, 8), 5, optimizer, precision, target).at(5)
    after = fingerprint(net)
    for what in before:
        if what == "state":
            assert [v[1:] for v in before[what].values()] == [v[1:] for v in after[what].values()]
        else:
            assert before[what] == after[what], what
    assert world == (
        torch.random.get_rng_state().numpy().tobytes(), random.getstate(), np.random.get_state()[1].tobytes(),
        torch.is_grad_enabled(), gc.isenabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"),
        F.scaled_dot_product_attention,
    )  # fmt: skip
    assert not torch.nn.modules.module._global_forward_hooks
    out = net(torch.ones(2, 3, 8, 8))  # and it still runs and learns
    out.sum().backward()
    assert net[6].weight.grad is not None


def test_autocast_rules_of_cuda_do_not_outlive_the_trace() -> None:
    """bfloat16 on "cuda" lends CPU autocast CUDA's rules: after the trace layer norm keeps bfloat16 again."""
    training_step(awkward_nets.encoder_block(), (9, 64), precision="bfloat16", target="cuda")
    with torch.autocast("cpu", torch.bfloat16):
        assert nn.LayerNorm(4)(torch.ones(2, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_a_trace_that_fails_leaves_no_trace_either() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.Linear(17, 5))
    before = fingerprint(net)
    with pytest.raises(TraceError):
        training_step(net, (8,), precision="bfloat16")
    assert fingerprint(net)["hooks"] == before["hooks"]
    assert gc.isenabled()
    assert torch.is_grad_enabled()
    assert torch.ones(2).device.type == "cpu"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_nothing_of_the_networks_size_is_allocated(precision: str) -> None:
    """By the CPU allocator's own records; the parameters of the traced networks take 553 MB and 244 MB."""
    cases = [(on_meta(networks.vgg16), (3, 224, 224)), (blank(networks.alexnet)(), (3, 224, 224))]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as records:
        for net, shape in cases:
            training_step(net, shape, 1000, "adam", precision).at(128)
    sizes: list[int] = []

    def collect(events: Any) -> None:
        for event in events:
            if event.tag.name == "Allocation":
                sizes.append(event.extra_fields.alloc_size)
            collect(event.children)

    assert records.profiler is not None
    collect(records.profiler.kineto_results.experimental_event_tree())
    assert sum(size for size in sizes if size > 0) < 2**20


# -- names -------------------------------------------------------------------------------------------------------------


def kept(tape: Tape, role: str) -> list[int]:
    """Storages of a role that are alive when zero_grad comes."""
    return [i for i in range(len(tape.role)) if tape.role[i] == ROLE[role] and tape.death[i] >= tape.events - 1]


@pytest.mark.parametrize(
    ("build", "shape", "layers"),
    [
        (networks.alexnet, (3, 224, 224), 8),
        (networks.vgg16, (3, 224, 224), 16),
        (networks.resnet50, (3, 224, 224), 54 + 53),  # convolutions and the dense layer, and their batch norms
        (networks.googlenet, (3, 224, 224), 58),
        (awkward_nets.encoder_block, (9, 64), 7),
        (awkward_nets.branching_cnn, (3, 16, 16), 5),
        (rnn_from_cells, (7, 4), 2),
    ],
)
def test_every_weight_gradient_stands_under_its_own_layer(
    build: Callable[[], nn.Module], shape: tuple[int, ...], layers: int
) -> None:
    net = on_meta(build)
    expected = {
        path: Counter(4 * p.numel() for p in child.parameters(recurse=False))
        for path, child in net.named_modules()
        if list(child.parameters(recurse=False))
    }
    assert len(expected) == layers
    for precision in ("float32", "bfloat16"):
        ledger = training_step(net, shape, precision=precision, optimizer="sgd").at(4)
        tape = ledger.tape
        found: dict[str, Counter[int]] = {}
        for i in kept(tape, "weight gradients"):
            if tape.fixed[i] == 0:
                continue  # a sum written over its first part, as CUDA does
            found.setdefault(tape.layer_names[tape.layer[i]], Counter())[int(tape.fixed[i])] += 1
        assert found == expected


BACKWARD_OF = {
    "convolution_backward": nn.Conv2d,
    "native_batch_norm_backward": nn.BatchNorm2d,
    "threshold_backward": nn.ReLU,
    "max_pool2d_with_indices_backward": nn.MaxPool2d,
}


@pytest.mark.parametrize(
    ("build", "modules"),
    [
        (networks.alexnet, 5 + 7 + 3),
        (networks.vgg16, 13 + 15 + 5),
        (networks.resnet50, 53 + 53 + 49 + 1),
        (networks.googlenet, 57 + 57 + 13),
    ],
)
def test_every_gradient_map_stands_under_its_own_layer(build: Callable[[], nn.Module], modules: int) -> None:
    """Each layer has one backward operator of its kind, and the map it makes is as large as the layer's own input."""
    net, batch = on_meta(build), 4
    kinds = {path: type(child) for path, child in net.named_modules() if type(child) in BACKWARD_OF.values()}
    assert len(kinds) == modules
    inputs: dict[str, int] = {}
    handles = [
        child.register_forward_pre_hook(lambda child, args, path=path: inputs.update({path: 4 * args[0].numel()}))
        for path, child in net.named_modules()
        if path in kinds
    ]
    net(torch.empty(batch, 3, 224, 224, device="meta"))
    for handle in handles:
        handle.remove()

    tape = training_step(net, (3, 224, 224), optimizer="sgd", target="cpu").at(batch).tape
    seen: dict[str, int] = {}
    for event, (op, phase) in enumerate(zip(tape.event_ops, tape.event_phase, strict=True)):
        if phase != 1 or op not in BACKWARD_OF:
            continue
        layer = tape.layer_names[tape.event_layer[event]]
        assert kinds[layer] is BACKWARD_OF[op]
        assert layer not in seen, f"{layer} has two {op}"
        made = [i for i in range(len(tape.birth)) if tape.birth[i] == event and tape.role[i] == ROLE["gradient maps"]]
        assert all(tape.layer[i] == tape.event_layer[event] for i in made)
        seen[layer] = int(sum(tape.fixed[i] + batch * tape.per_sample[i] for i in made))
    first = "conv1" if "conv1" in kinds else "conv1_1"
    assert seen == {**inputs, first: 0}  # the picture itself needs no gradient


def test_the_loss_and_the_network_itself_have_names() -> None:
    step = training_step(Net(chain), (8,), name="mine")
    frame = step.at(4).timeline()
    assert step.name == "mine"
    assert set(frame.loc[frame["event"].str.contains("log_softmax|nll_loss"), "layer"]) == {"loss"}
    assert set(frame.loc[frame["event"].isin(["relu", "threshold_backward"]), "layer"]) == {"mine"}
    assert training_step(Net(chain), (8,)).name == "Net"


def test_a_shared_weight_belongs_to_the_layer_that_owns_it_first() -> None:
    layers = training_step(awkward_nets.shared_weights(), (64,), optimizer="sgd").at(3).by_layer().set_index("layer")
    assert layers.loc["shared", "parameters"] == 64 * 64 + 64
    assert layers.loc["tied", "parameters"] == 64
    assert layers.loc["shared", "weight gradients"] == 4 * (64 * 64 + 64)
    assert layers.loc["tied", "weight gradients"] == 4 * 64


# -- every batch from two ----------------------------------------------------------------------------------------------

AFFINE: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "alexnet": (networks.alexnet, (3, 224, 224)),
    "resnet50": (networks.resnet50, (3, 224, 224)),
    "encoder_block": (awkward_nets.encoder_block, (9, 64)),
    "rnn_from_cells": (rnn_from_cells, (7, 4)),
    "shared_weights": (awkward_nets.shared_weights, (64,)),
    "inplace_cnn": (awkward_nets.inplace_cnn, (3, 16, 16)),
    "branching_cnn": (awkward_nets.branching_cnn, (3, 16, 16)),
}


@cache
def affine_step(name: str, target: str) -> StepTrace:
    build, shape = AFFINE[name]
    return training_step(on_meta(build), shape, optimizer="momentum", target=target)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(AFFINE)), st.sampled_from(["cuda", "cpu"]), st.integers(2, 10**4) | st.integers(2, 40))
def test_a_batch_read_from_two_traces_is_the_batch_traced(name: str, target: str, batch: int) -> None:
    step = affine_step(name, target)
    assert step.affine
    read, traced = step.tape, step.trace_at(batch)
    assert read is not None
    assert (read.fixed + batch * read.per_sample).tolist() == traced.fixed.tolist()
    assert replace(step, tape=None).at(batch).peak_bytes == step.at(batch).peak_bytes
    for array in ("role", "birth", "death", "is_map", "event_phase"):
        assert getattr(read, array).tolist() == getattr(traced, array).tolist(), array
    assert read.event_ops == traced.event_ops
    for tape in (read, traced):
        assert len(tape.layer_names) == len(set(tape.layer_names))
    names = [[tape.layer_names[i] for i in (*tape.layer, *tape.event_layer)] for tape in (read, traced)]
    assert names[0] == names[1]
    for figure in ("event_traffic", "event_flops"):
        lines = getattr(read, figure)
        assert (lines[:, 0] + batch * lines[:, 1]).tolist() == getattr(traced, figure)[:, 0].tolist(), figure
    shapes = {layer: tuple(a + b * batch for a, b in shape) for layer, shape in read.layer_shapes.items()}
    assert shapes == {layer: tuple(a for a, _ in shape) for layer, shape in traced.layer_shapes.items()}


NOT_AFFINE: dict[str, tuple[Callable[[Any, Tensor], Tensor], str]] = {
    "gram matrix": (lambda net, x: net.c((net.a(x) @ net.a(x).T) @ net.a(x)), "more than one dimension"),
    "all pairs": (lambda net, x: chain(net, x) + (x[:, None] - x[None]).abs().mean((1, 2))[:, None], "more than one"),
    "another path below 33": (lambda net, x: chain(net, x) if len(x) < 33 else net.c(net.a(x)), "other operators"),
    "the first sixteen": (lambda net, x: chain(net, x) + chain(net, x[:16]).sum(), "whole rows"),
    "every other": (lambda net, x: chain(net, x) + chain(net, x[::2]).sum(), "whole rows"),
    "twenty at most": (lambda net, x: chain(net, x) + chain(net, x[: min(len(x), 20)]).sum(), "whole rows"),
    "padded to even": (lambda net, x: chain(net, F.pad(x, (0, 0, 0, len(x) % 2)))[: len(x)], "whole rows"),
    "four pieces": (lambda net, x: torch.cat([chain(net, part) for part in x.chunk(4)]), "other operators"),
    "microbatches of 8": (lambda net, x: torch.cat([chain(net, part) for part in x.split(8)]), "other operators"),
}


@pytest.mark.parametrize("name", NOT_AFFINE)
def test_a_network_that_is_not_affine_is_noticed_and_still_exact(name: str) -> None:
    run, why = NOT_AFFINE[name]
    step = training_step(Net(run), (8,), 5, "momentum", target="cpu")
    assert not step.affine
    assert step.tape is None
    assert why in step.why
    assert "\n" not in step.why
    for batch in (1, 2, 5, 16, 17, 32, 33, 40):
        real = live_storages_timeline(Case(partial(Net, run), (8,), 5, "momentum"), batch)
        assert operators(step.at(batch)) == real, batch


def test_a_network_that_takes_some_batches_only() -> None:
    run = lambda net, x: chain(net, x.reshape(-1, 4, 8).reshape(-1, 8))  # noqa: E731
    step = training_step(Net(run), (8,), target="cpu")
    assert not step.affine
    assert operators(step.at(12)) == live_storages_timeline(Case(partial(Net, run), (8,), 5, "momentum"), 12)
    with pytest.raises(TraceError, match="invalid for input of size 24"):
        step.at(3)


def test_half_precision_halves_maps_and_keeps_weights() -> None:
    full, half = (
        training_step(networks.kaggle_mlp(), (9000,), None, "momentum", precision, "cuda").at(1000)
        for precision in ("float32", "float16")
    )
    for ledger in (full, half):
        assert ledger.timeline()["parameters"].iloc[0] == 4 * 52_136_032
    maps = [ledger.by_layer().set_index("layer").loc["relu1", "saved feature maps"] for ledger in (full, half)]
    assert maps == [4 * 1000 * 4000, 2 * 1000 * 4000]


def test_the_first_trace_of_a_process_equals_the_second() -> None:
    """Parts of torch are imported in the middle of the first one; the frames of that import hold on to tensors."""
    code = """
import torch
from course_utils import networks
from course_utils.trace import training_step
with torch.device("meta"):
    net = networks.alexnet()
first, second = (training_step(net, (3, 224, 224), target="cpu") for _ in range(2))
assert first.affine, first.why
assert first.at(8).timeline().equals(second.at(8).timeline())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_inference_needs_no_parameters() -> None:
    step = training_step(nn.ReLU(), (8,), optimizer=None, target="cpu")
    assert step.at(10).peak_bytes == 2 * 4 * 8 * 10


def test_the_second_batch_traced_is_odd_and_shares_no_divisor_with_anything() -> None:
    """Padding and pairing hide between two batches that divide by the same number."""
    assert all(LARGE_BATCH % n for n in range(2, LARGE_BATCH))


# -- what reads and writes what ----------------------------------------------------------------------------------------


def named_uses(tape: Tape) -> list[tuple[str, list[str], list[str]]]:
    """Of each event that touches maps: its operator, the maps it reads and those it writes, named by who made them."""
    made_by = [
        f"{ROLES[tape.role[s]]} of {tape.layer_names[tape.layer[s]]} by {tape.event_ops[tape.birth[s]]}"
        for s in range(len(tape.birth))
    ]
    maps = {ROLE["feature maps"], ROLE["input"]}
    found: dict[int, tuple[str, list[str], list[str]]] = {}
    for event, storage, written in tape.uses.tolist():
        if tape.role[storage] in maps:
            row = found.setdefault(event, (tape.event_ops[event], [], []))
            row[1 + written].append(made_by[storage])
    return [found[event] for event in sorted(found)]


def test_uses_name_every_map_an_operator_reads_and_writes() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))
    tape = training_step(net, (3, 8, 8), 5).at(4).tape
    conv, pool, fc = "feature maps of 0 by convolution", "feature maps of 2 by max_pool2d_with_indices", "addmm"
    scores = "feature maps of 4 by addmm"
    uses = named_uses(tape)
    assert uses[:4] == [
        ("convolution", ["input of input by start"], [conv]),
        ("relu_", [], [conv]),
        ("max_pool2d_with_indices", [conv], [pool, pool]),  # maps and indices
        (fc, [pool], [scores]),
    ]
    assert uses[-3:] == [
        ("max_pool2d_with_indices_backward", [conv, pool], []),  # its input and the indices
        ("threshold_backward", [conv], []),
        ("convolution_backward", ["input of input by start"], []),
    ]


def test_nothing_is_used_before_it_is_born_or_after_it_died() -> None:
    for build, shape in ((awkward_nets.branching_cnn, (3, 16, 16)), (awkward_nets.shared_weights, (64,))):
        tape = training_step(build(), shape, 10).at(3).tape
        event, storage, _ = tape.uses.T
        assert len(event) > 20
        assert (tape.birth[storage] <= event).all()
        assert (event < tape.death[storage]).all()
