"""Recomputation: the trace of a checkpointed chain equals both witnesses to the byte, training is the same bit for bit,
and the segments proposed are as good as any."""

from __future__ import annotations

import itertools
import random
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import awkward_nets
import numpy as np
import pytest
import torch
from amount import by_turns
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import LARGE, Case, blank, live_storages_timeline, mem_tracker_timeline
from small_nets import on_meta, operators
from torch import nn
from torch.utils.checkpoint import checkpoint

from course_utils import networks
from course_utils.machine.speed import predict_step
from course_utils.memory import ROLES
from course_utils.networks import BasicBlock, Inception
from course_utils.trace import TraceError, training_step
from course_utils.units import GIB, KIB, CourseError
from lessons.shared.recompute import Chain, checkpointed, evenly
from lessons.shared.recompute.cuts import Costs
from lessons.shared.recompute.real import parts

SHAPE = (3, 8, 8)


def blocks(inplace: bool = False) -> nn.Sequential:
    """Ten parts, among them everything that is hard to run twice: batch norm, dropout, branches, work in place."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace),
        nn.Sequential(BasicBlock(8, 8, 1), nn.Dropout2d(0.3)),  # opened: two parts
        Inception(8, (4, 4, 8, 4, 4, 4)),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(20 * 16, 5),
    )


def tanhs(n: int) -> nn.Sequential:
    """A dense layer and n equal ones that keep their output and nothing else."""
    return nn.Sequential(nn.Linear(64, 64), *(nn.Tanh() for _ in range(n)))


def random_chain(draw: random.Random, between: int) -> Chain:
    """A convolution, so many layers of random kinds and widths, and a head; nothing works in place."""
    layers: list[nn.Module] = [nn.Conv2d(3, 4, 3, padding=1)]
    width = 4
    for _ in range(between):
        kinds = [nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.AvgPool2d, nn.BatchNorm2d, nn.Dropout, nn.Tanh]
        kind = draw.choice(kinds)
        if kind is nn.Conv2d:
            wider = draw.choice((2, 8, 16))
            layers.append(nn.Conv2d(width, wider, 3, padding=1))
            width = wider
        else:
            argument = {nn.MaxPool2d: (2,), nn.AvgPool2d: (2,), nn.BatchNorm2d: (width,)}.get(kind, ())
            layers.append(kind(*argument))
    head = (nn.Flatten(), nn.LazyLinear(5))
    net = nn.Sequential(*layers, *head)
    net(torch.empty(1, 3, 16, 16))
    return Chain(on_meta(lambda: net), (3, 16, 16), 5, target="cpu")


def every_way(parts: int, first: int = 0) -> Iterator[tuple[tuple[int, int], ...]]:
    """All sets of segments of a chain that do not overlap."""
    yield ()
    for start in range(first, parts):
        for end in range(start + 1, parts + 1):
            for rest in every_way(parts, end):
                yield ((start, end), *rest)


def laminar(n: int, forbidden: frozenset[int] = frozenset()) -> st.SearchStrategy[tuple[tuple[int, int], ...]]:
    """Segments of n parts, apart or nested, none of which begins at a forbidden place."""

    def build(cuts: list[int], inner: list[bool]) -> tuple[tuple[int, int], ...]:
        edges = sorted({cut for cut in cuts if cut not in forbidden})
        chosen = list(itertools.pairwise(edges))[::2] if len(edges) > 3 else list(itertools.pairwise(edges))
        nested = [(a + 1, b) for (a, b), deep in zip(chosen, inner, strict=False) if deep and b - a > 1]
        return (*chosen, *((a, b) for a, b in nested if a not in forbidden))

    return st.builds(build, st.lists(st.integers(0, n), max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))


class TestExactness:
    """Whole timelines, byte for byte."""

    PLANS: ClassVar = {
        "three": lambda net: evenly(net, 3),
        "every part": lambda net: evenly(net, len(parts(net))),
        "nested": lambda net: [(0, len(parts(net)) - 2), (1, 4), (4, len(parts(net)) - 3), (4, 5)],
        "the whole": lambda net: [(0, len(parts(net)))],
    }

    @pytest.mark.parametrize(
        ("name", "plan", "batch", "optimizer"),
        [
            ("alexnet", "three", 256, "momentum"),
            ("alexnet", "nested", 1, "adam"),
            ("vgg16", "three", 128, "momentum"),
            ("googlenet", "nested", 2, "sgd"),
            ("resnet50", "three", 128, "sgd"),
            ("kaggle_mlp", "the whole", 256, "adam"),
        ],
    )
    def test_large_networks_equal_mem_tracker(self, name: str, plan: str, batch: int, optimizer: str) -> None:
        network, shape, classes = LARGE[name]

        def build() -> nn.Module:
            net = network()
            return checkpointed(net, self.PLANS[plan](net))

        step = training_step(on_meta(build), shape, classes, optimizer, target="cpu")
        assert step.affine, step.why
        timeline, peak = mem_tracker_timeline(Case(build, shape, classes, optimizer), batch)
        assert operators(step.at(batch)) == timeline
        assert step.at(batch).peak_bytes == peak

    @pytest.mark.parametrize(
        ("plan", "optimizer", "accumulate", "statistics", "inplace"),
        [
            ("three", "adam", 1, True, True),
            ("nested", "sgd", 2, True, False),
            ("every part", "sgd", 1, False, False),
        ],
    )
    def test_blocks_equal_both_witnesses(
        self, plan: str, optimizer: str, accumulate: int, statistics: bool, inplace: bool
    ) -> None:
        def build() -> nn.Module:
            net = blocks(inplace)
            return checkpointed(net, self.PLANS[plan](net), keep_statistics=statistics)

        step = training_step(on_meta(build), SHAPE, 5, optimizer, target="cpu", accumulate=accumulate)
        assert step.affine, step.why
        for batch in (2, 19):
            case = Case(build, SHAPE, 5, optimizer, accumulate=accumulate)
            timeline, peak = mem_tracker_timeline(case, batch)
            assert operators(step.at(batch)) == timeline
            assert step.at(batch).peak_bytes == peak
        assert operators(step.at(2)) == live_storages_timeline(replace(case, build=blank(build)), 2)

    def test_autocast_equals_mem_tracker(self) -> None:
        def build() -> nn.Module:
            net = networks.small_cnn(size=8)
            return checkpointed(net, [(0, 3), (3, 7)])

        step = training_step(on_meta(build), SHAPE, 10, "momentum", "bfloat16", target="cpu")
        timeline, peak = mem_tracker_timeline(Case(build, SHAPE, 10, "momentum", precision="bfloat16"), 7)
        assert operators(step.at(7)) == timeline
        assert step.at(7).peak_bytes == peak

    @settings(max_examples=6, deadline=None)
    @given(laminar(10, frozenset({2})))
    def test_any_segments_equal_real_tensors(self, segments: tuple[tuple[int, int], ...]) -> None:
        def build() -> nn.Module:
            return checkpointed(blocks(inplace=True), segments)

        step = training_step(on_meta(build), SHAPE, 5, "sgd", target="cpu")
        assert operators(step.at(3)) == live_storages_timeline(Case(build, SHAPE, 5), 3)


class TestWhatTheTraceSays:
    """Roles, layers and marks of what runs again."""

    NETS: ClassVar = {
        "vgg16": (networks.vgg16, (3, 224, 224), 1000, [(0, 9), (10, 20), (12, 15)]),
        "googlenet": (networks.googlenet, (3, 224, 224), 1000, [(0, 8), (8, 13)]),
        "blocks": (blocks, SHAPE, 5, [(0, 4), (5, 8)]),
    }

    @pytest.mark.parametrize("target", ["cuda", "cpu"])
    @pytest.mark.parametrize("name", NETS)
    def test_the_backward_pass_is_the_plain_one_and_what_runs_again_ran_before(self, name: str, target: str) -> None:
        build, shape, classes, segments = self.NETS[name]
        chain = Chain(on_meta(build), shape, classes, target=target)
        plain, again = (chain.step(plan).at(8).tape for plan in ((), segments))

        def operators_of(tape, phase, recomputed):  # type: ignore[no-untyped-def]
            # By an operator of its own torch 2.11 makes the tensor of the random state that a checkpoint keeps.
            named = np.array(tape.event_ops) != "empty"
            chosen = (tape.event_phase == phase) & (tape.recomputed == recomputed) & named
            return [(tape.event_ops[e], tape.layer_names[tape.event_layer[e]]) for e in np.flatnonzero(chosen)]

        assert operators_of(again, 0, False) == operators_of(plain, 0, False)
        # As the plain step's, though a branching block's parts may come back in another order.
        assert Counter(operators_of(again, 1, False)) == Counter(operators_of(plain, 1, False))
        ran = operators_of(again, 1, True)
        assert ran
        assert not plain.recomputed.any()
        assert set(ran) <= set(operators_of(plain, 0, False))
        names = list(chain.names)
        inside = {names[i] for first, last in segments for i in range(first, last)}
        assert {next(n for n in names if layer == n or layer.startswith(f"{n}.")) for _, layer in ran} <= inside

        def made(tape, role):  # type: ignore[no-untyped-def]
            chosen = (tape.role == ROLES.index(role)) & (np.array(tape.event_ops)[tape.birth] != "empty")
            return Counter((tape.layer_names[tape.layer[s]], int(tape.per_sample[s])) for s in np.flatnonzero(chosen))

        assert made(again, "gradient maps") == made(plain, "gradient maps")
        assert made(again, "weight gradients") == made(plain, "weight gradients")

    @pytest.mark.parametrize("device", ["P100", "T4"])
    def test_the_time_that_is_added_is_that_of_what_runs_again(self, device: str) -> None:
        chain = Chain(on_meta(networks.vgg16), (3, 224, 224), 1000)
        plain, again = (predict_step(chain.step(plan).at(64), device) for plan in ((), chain.evenly(6)))
        assert plain.recomputed_seconds == 0
        assert again.total_seconds - plain.total_seconds == pytest.approx(again.recomputed_seconds)
        assert 0 < again.recomputed_seconds < plain.by_phase()["forward"]

    def test_an_error_names_its_layer_in_either_pass(self) -> None:
        class OnlyOnce(nn.Module):
            calls = 0

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.calls += 1
                if self.calls > self.allowed:
                    raise ValueError("no more")
                return x.tanh()

        for allowed, doing in ((0, "forward"), (1, "backward")):
            net = nn.Sequential(nn.Linear(4, 4), OnlyOnce(), nn.Tanh(), nn.Linear(4, 5))
            net[1].allowed = allowed
            with pytest.raises(TraceError, match=rf"1 \(OnlyOnce\) fails in the {doing} pass .*no more"):
                training_step(checkpointed(net, [(0, 3)]), (4,), 5)


class TestTraining:
    """Real steps: the same bits."""

    def train(self, net: nn.Module, steps: int = 2) -> dict[str, torch.Tensor]:
        torch.manual_seed(3)
        x, y = torch.randn(6, *SHAPE), torch.randint(5, (6,))
        for _ in range(steps):
            net.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
        gradients = {f"{name}.grad": parameter.grad for name, parameter in net.named_parameters()}
        return {**gradients, **dict(net.named_buffers())}

    def make(self, inplace: bool = False) -> nn.Sequential:
        torch.manual_seed(5)
        return blocks(inplace)

    def differing(self, segments: Sequence[tuple[int, int]] = ((0, 5), (5, 9)), **options: bool) -> set[str]:
        plain = self.train(self.make())
        again = self.train(checkpointed(self.make(), segments, **options))
        assert plain.keys() == again.keys()
        return {name for name in plain if not torch.equal(plain[name], again[name])}

    @settings(max_examples=8, deadline=None)
    @given(laminar(10, frozenset({2})), st.booleans())
    def test_gradients_and_statistics_are_those_of_the_chain_bit_for_bit(self, segments, inplace) -> None:  # type: ignore[no-untyped-def]
        plain, again = self.train(self.make(inplace)), self.train(checkpointed(self.make(inplace), segments))
        assert plain.keys() == again.keys()
        assert all(torch.equal(plain[name], again[name]) for name in plain)

    def test_without_care_statistics_move_twice_and_gradients_do_not(self) -> None:
        differ = self.differing(keep_statistics=False)
        assert {name.rpartition(".")[2] for name in differ} == {"running_mean", "running_var", "num_batches_tracked"}

    def test_without_the_random_state_dropout_drops_other_values(self) -> None:
        assert any(name.endswith(".grad") for name in self.differing(preserve_rng_state=False))

    def test_what_the_lesson_says_of_one_layer_as_a_segment_without_care(self) -> None:
        convolution, norm, dropout = (
            self.differing([(part, part + 1)], preserve_rng_state=False, keep_statistics=False) for part in (0, 1, 4)
        )
        assert not convolution
        assert norm == {f"1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
        assert {f"{name}.grad" for name, _ in self.make().named_parameters()} <= dropout

    def test_what_the_lesson_says_of_the_older_way(self) -> None:
        """It runs a segment to its end again, and gives no gradients to one whose input needs none."""
        ran = []
        segment, head = nn.Sequential(nn.Tanh(), nn.Linear(4, 4)), nn.Linear(4, 1)
        segment[1].register_forward_hook(lambda *_: ran.append(reentrant))
        trained = {}
        for reentrant in (False, True):
            for needs in (True, False):
                segment.zero_grad()
                x = torch.randn(3, 4, requires_grad=needs)
                with warnings.catch_warnings(action="ignore"):
                    head(checkpoint(segment, x, use_reentrant=reentrant)).sum().backward()
                trained[reentrant, needs] = segment[1].weight.grad is not None
        assert trained == {(False, True): True, (False, False): True, (True, True): True, (True, False): False}
        assert Counter(ran) == {False: 2, True: 3}  # of two steps each; without a gradient nothing runs again

    @pytest.mark.parametrize("layer", [nn.ReLU, nn.LeakyReLU, nn.SiLU, nn.Dropout])
    def test_torch_refuses_a_segment_that_begins_in_place(self, layer: type[nn.Module]) -> None:
        segment, x = nn.Sequential(layer(inplace=True), nn.Linear(4, 4)), torch.randn(3, 4, requires_grad=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            checkpoint(segment, 1 * x, use_reentrant=False).sum().backward()

    def test_the_layers_are_shared_and_put_back(self) -> None:
        net = self.make()
        again = checkpointed(net, [(0, 5)])
        self.train(again)
        assert list(dict(again.named_parameters())) == list(dict(net.named_parameters()))
        assert all(a is b for a, b in zip(net.parameters(), again.parameters(), strict=True))
        assert (net[1].momentum, int(net[1].num_batches_tracked)) == (0.1, 2)
        net.eval(), again.eval()
        x = torch.randn(2, *SHAPE)
        assert torch.equal(net(x), again(x))


class TestSegments:
    """Which segments are accepted, made, and proposed."""

    @pytest.mark.parametrize(
        ("segments", "words"),
        [
            ([(0, 3), (1, 5)], "overlap"),
            ([(0, 3), (0, 3)], "overlap"),
            ([(0, 11)], "not .first, last. with 0 ≤ first < last ≤ 10"),
            ([(3, 3)], "not .first, last."),
            ([(-1, 3)], "not .first, last."),
            ([(2, 5)], "begins with 2, which works in place"),
        ],
    )
    def test_what_cannot_be_is_refused_in_one_line(self, segments: list[tuple[int, int]], words: str) -> None:
        with pytest.raises(CourseError, match=words):
            checkpointed(blocks(inplace=True), segments)

    def test_only_a_chain_can_be_cut(self) -> None:
        with pytest.raises(CourseError, match=r"no nn\.Sequential"):
            checkpointed(awkward_nets.branching_cnn(), [])
        with pytest.raises(CourseError, match="checkpointed already"):
            Chain(checkpointed(blocks(), [(0, 3)]), SHAPE, 5)

    @given(st.integers(1, 10), st.booleans())
    def test_even_segments_are_even_and_leave_the_last_out(self, count: int, inplace: bool) -> None:
        net = blocks(inplace)
        segments = evenly(net, count)
        assert all(a[1] == b[0] for a, b in itertools.pairwise(segments))
        if count > 1:
            assert segments[0][0] == 0
            assert segments[-1][1] < 10
        if not inplace:
            lengths = [b - a for a, b in [*segments, (segments[-1][1] if segments else 0, 10)]]
            assert len(segments) == count - 1
            assert max(lengths) - min(lengths) <= 1
        checkpointed(net, segments)

    def test_more_segments_than_parts_are_refused(self) -> None:
        for count in (0, 11, True, 2.0):
            with pytest.raises(CourseError, match="from 1 to 10"):
                evenly(blocks(), count)  # type: ignore[arg-type]

    @pytest.mark.parametrize("n", [6, 16])
    def test_equal_layers_in_even_segments_follow_n_over_k_plus_k(self, n: int) -> None:
        """Tanh keeps its output alone: n / k maps of a segment, k inputs of segments, two maps of the loss."""
        chain = self.equal(n)
        for k in [k for k in range(1, n + 1) if n % k == 0]:
            segments = [(1 + i * (n // k), 1 + (i + 1) * (n // k)) for i in range(k - 1)]
            assert self.maps(chain, segments) == pytest.approx(n // k + k + 2, abs=0.01)

    @pytest.mark.parametrize("n", [6, 36])
    def test_unequal_segments_of_equal_layers_need_the_root_of_2n(self, n: int) -> None:
        chain = self.equal(n)
        segments = chain.least_peak(1024)
        lengths = [b - a for a, b in segments]
        assert lengths == sorted(lengths, reverse=True)
        assert self.maps(chain, segments) == pytest.approx((2 * n) ** 0.5 + 2, abs=1.01)

    @staticmethod
    def equal(n: int) -> Chain:
        return Chain(on_meta(partial(tanhs, n)), (64,), 64, optimizer="sgd", target="cpu")

    @staticmethod
    def maps(chain: Chain, segments: Sequence[tuple[int, int]], batch: int = 1024) -> float:
        """The peak in maps of one layer, above weights, input and labels."""
        fixed = 4 * (64 * 64 + 64) + batch * (4 * 64 + 8)
        return (chain.step(segments).at(batch).peak_bytes - fixed) / (batch * 4 * 64)

    @pytest.mark.parametrize(
        ("build", "shape"),
        [
            (partial(tanhs, 5), (64,)),
            (partial(networks.small_cnn, size=8), SHAPE),
        ],
        ids=["equal layers", "small_cnn"],
    )
    def test_the_least_peak_is_that_of_an_exhaustive_search(self, build, shape) -> None:  # type: ignore[no-untyped-def]
        chain = Chain(on_meta(build), shape, None, optimizer="sgd", target="cpu")
        peaks = []
        for cuts in itertools.product([False, True], repeat=len(chain.names) - 1):
            edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(chain.names)]
            peaks.append(chain.step(list(itertools.pairwise(edges))[:-1]).at(64).peak_bytes)
        assert chain.step(chain.least_peak(64)).at(64).peak_bytes <= min(peaks)

    @pytest.mark.parametrize(("seed", "between"), by_turns([(0, 3), (3, 2), (4, 2), (1, 3), (5, 2), (6, 2), (2, 3)], 0))
    def test_in_random_chains_no_segments_at_all_are_lower(self, seed: int, between: int) -> None:
        chain = random_chain(random.Random(seed), between)  # 233 ways with three layers between, 89 with two
        peaks = {way: chain.step(way).at(16).peak_bytes for way in every_way(len(chain.names))}
        best = chain.least_peak(16)
        assert chain.step(best).at(16).peak_bytes == pytest.approx(min(peaks.values()), abs=KIB)

    @pytest.mark.parametrize(("name", "batch", "at_most"), [("VGG-16", 256, 10.9), ("ResNet-50", 64, 1.82)])
    def test_as_low_as_hill_climbing_over_traces_came(self, name: str, batch: int, at_most: float) -> None:
        """`at_most`: GiB that a search over traced steps found, which knew nothing of the model."""
        network = networks.NETWORKS[name]
        chain = Chain(on_meta(network.build), network.input_shape, network.classes)
        assert chain.step(chain.least_peak(batch)).at(batch).peak_bytes <= at_most * GIB

    def test_vgg16_comes_down_to_the_working_set_of_one_layer(self) -> None:
        """The floor: three maps of 224 × 224 in the backward pass of conv1_2, and what stays whatever is recomputed."""
        network = networks.NETWORKS["VGG-16"]
        chain = Chain(on_meta(network.build), network.input_shape, network.classes, target="cpu")
        ledger = chain.step(chain.least_peak(128)).at(128)
        parameters = 138_357_544
        fixed, one_map = 4 * (3 * parameters + 128 * 3 * 224 * 224), 4 * 128 * 64 * 224 * 224
        assert ledger.peak_bytes - fixed == pytest.approx(3 * one_map, rel=1e-3)

    def test_no_segment_of_the_best_cuts_of_resnet_can_go(self) -> None:
        """Left out, or made one with the next, it raises the peak."""
        network = networks.NETWORKS["ResNet-50"]
        chain = Chain(on_meta(network.build), network.input_shape, network.classes)
        best = chain.least_peak(64)
        least = chain.step(best).at(64).peak_bytes
        for i in range(len(best)):
            ways = [(*best[:i], *best[i + 1 :])]
            if i + 1 < len(best):
                ways.append((*best[:i], (best[i][0], best[i + 1][1]), *best[i + 2 :]))
            assert all(chain.step(way).at(64).peak_bytes > least for way in ways)

    @pytest.mark.parametrize(("name", "lowest"), [("VGG-16", 0.78), ("GoogLeNet", 0.35)])
    def test_less_memory_takes_more_time_and_stays_below_the_limit(self, name: str, lowest: float) -> None:
        network = networks.NETWORKS[name]
        chain = Chain(on_meta(network.build), network.input_shape, network.classes)
        plain = chain.step().at(64)
        assert chain.cheapest(64, plain.peak_bytes) == ()
        times = []
        for share in (0.9, 0.8, lowest):
            ledger = chain.step(chain.cheapest(64, share * plain.peak_bytes)).at(64)
            assert ledger.peak_bytes <= share * plain.peak_bytes
            times.append(predict_step(ledger, "P100").total_seconds)
        assert predict_step(plain, "P100").total_seconds < times[0]
        assert times == sorted(times)
        with pytest.raises(CourseError, match=r"with recomputation it needs .* take a smaller batch"):
            chain.cheapest(64, plain.by_role()["parameters"])

    def test_even_segments_are_never_better_than_those_proposed(self) -> None:
        network = networks.NETWORKS["GoogLeNet"]
        chain = Chain(on_meta(network.build), network.input_shape, network.classes)
        even = min(chain.step(chain.evenly(k)).at(64).peak_bytes for k in (4, 6, 9))
        assert chain.step(chain.least_peak(64)).at(64).peak_bytes < even

    def test_a_step_that_recomputes_already_says_nothing_of_the_chain(self) -> None:
        chain = self.equal(6)
        ledger = chain.step([(1, 4)]).at(4)
        with pytest.raises(CourseError, match="recomputes already"):
            Costs.of(ledger, chain.names, [True] * 7, predict_step(ledger, "P100").seconds)
