"""Fine-tuning and serving on one card: stacks extended exactly, methods traced, real LoRA, 4 bits, caches counted."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils.machine.hardware import device
from course_utils.memory import ROLE, Ledger
from course_utils.techniques.fine_tuning import NF4, FourBit, LoRA, dequantised, eight_bit_state, quantised
from course_utils.units import GIB, CourseError
from lessons.one_card import checks as one_card
from lessons.one_card import fine_tuning, graded, serving
from lessons.one_card import judge as adapters
from lessons.one_card.answers import RIGHT
from lessons.one_card.fine_tuning import (
    METHODS,
    Method,
    prepared,
    short_tape,
    step,
)
from lessons.shared import stacked
from lessons.shared.language_models import SHAPES, Options
from lessons.shared.replay.steps import named_inputs, record_steps, run
from lessons.shared.stacked import between, deepened

SMALL = replace(
    SHAPES["Llama-3-8B"], name="small", hidden=64, heads=4, kv_heads=2, inner=96, vocabulary=320, layers=3, parameters=0
)
GPT = replace(SHAPES["GPT-2"], hidden=64, heads=4, kv_heads=4, inner=256, vocabulary=320)
DEEPER = 7


def same_step(one: Ledger, other: Ledger) -> bool:
    """Whether two steps have the same bytes of each role at each event, and ask the same of an allocator."""
    return (
        one.tape.event_ops == other.tape.event_ops
        and np.array_equal(one.layers, other.layers)
        and np.array_equal(one.matrix, other.matrix)
        and np.array_equal(one.tape.event_flops, other.tape.event_flops)
        and one.allocated_bytes() == other.allocated_bytes()
        and one.reserved_bytes() == other.reserved_bytes()
    )


class TestStacks:
    @pytest.mark.parametrize(
        ("method", "batch", "recompute"),
        [
            ("full", 2, True), ("8-bit AdamW", 2, True), ("step in backward", 1, False),
            ("state on the CPU + step in backward", 2, True),
            ("head alone", 2, True), ("LoRA", 1, True), ("LoRA", 2, False), ("4-bit base and LoRA", 2, True),
        ],
    )  # fmt: skip
    def test_a_stack_is_the_model_traced_whole(self, method, batch, recompute):
        short, whole = (
            short_tape(SMALL, METHODS[method], 64, batch, recompute, "bfloat16", layers)
            for layers in (stacked.SHORT, DEEPER)
        )
        assert same_step(Ledger("", deepened(short, DEEPER), batch), Ledger("", whole, batch))

    def test_an_optimizer_that_makes_temporaries_makes_those_of_every_layer(self):
        """As torch's default does on a GPU: one for each weight at once, in the order of the parameters."""
        default = Method(optimizer="AdamW, torch's default")
        short, whole = (
            short_tape(SMALL, default, 64, 2, True, "bfloat16", layers) for layers in (stacked.SHORT, DEEPER)
        )
        found, right = Ledger("", deepened(short, DEEPER), 2), Ledger("", whole, 2)
        assert np.array_equal(found.matrix, right.matrix)
        assert found.allocated_bytes() == right.allocated_bytes()

    @pytest.mark.parametrize(
        ("shape", "dtype"), [(GPT, "bfloat16"), (SMALL, "float32"), (replace(SMALL, tied=True), "bfloat16")]
    )
    def test_also_of_another_family_format_or_head(self, shape, dtype):
        short, whole = (
            short_tape(shape, METHODS["full"], 64, 3, True, dtype, layers) for layers in (stacked.SHORT, DEEPER)
        )
        assert same_step(Ledger("", deepened(short, DEEPER), 3), Ledger("", whole, 3))

    @pytest.mark.parametrize("method", ["full", "4-bit base and LoRA"])
    def test_a_sequence_between_two_is_that_sequence_traced(self, method):
        tapes = {s: short_tape(SMALL, METHODS[method], s, 2, True, "bfloat16") for s in (128, 256, 1024)}
        found = Ledger("", between((128, tapes[128]), (256, tapes[256]), 1024), 2)
        whole = Ledger("", tapes[1024], 2)
        assert np.array_equal(found.matrix, whole.matrix)
        assert found.allocated_bytes() == whole.allocated_bytes()
        with pytest.raises(CourseError, match="traced size alone"):
            found.tape.event_flops  # noqa: B018 - the refusal

    def test_what_does_not_repeat_is_refused(self):
        tape = short_tape(SMALL, METHODS["full"], 64, 2, False, "bfloat16")
        with pytest.raises(CourseError, match="5 layers or more"):
            deepened(tape, 4)
        other = short_tape(SMALL, METHODS["LoRA"], 64, 2, False, "bfloat16")
        with pytest.raises(CourseError, match="not the same one"):
            between((64, tape), (128, other), 96)
        odd = replace(tape, fixed=tape.fixed + 1)
        with pytest.raises(CourseError, match="not affine"):
            between((64, tape), (67, odd), 65)
        four = short_tape(SMALL, METHODS["full"], 64, 2, False, "bfloat16", layers=4)
        with pytest.raises(CourseError, match="not every layer"):
            deepened(four, 8)


class TestMethods:
    def test_a_model_of_eight_billion(self):
        """By hand: N = 8,030,261,248 weights in 2 bytes, their gradients, two moments; all of it lives at the end."""
        n = 8_030_261_248
        full = step("Llama-3-8B", "full")
        assert full.by_role()[["parameters", "weight gradients", "optimizer state"]].tolist() == [2 * n, 2 * n, 4 * n]
        lora = step("Llama-3-8B", "LoRA").by_role()
        adapters = fine_tuning.trainable_bytes(SHAPES["Llama-3-8B"])
        assert adapters == 2 * 32 * 16 * (2 * 8192 + 2 * 5120 + 3 * 18_432)
        assert lora["parameters"] == 2 * n + adapters
        assert lora["optimizer state"] == 2 * adapters
        exact = step("Llama-3-8B", Method("lora", fine_tuning.WIDE)).by_role()
        assert exact["parameters"] == 2 * n + 2 * adapters
        assert exact["optimizer state"] == 4 * adapters
        quarter = step("Llama-3-8B", "4-bit base and LoRA").by_role()["parameters"]
        in_layers = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14_336)
        assert quarter == 2 * (n - in_layers) + in_layers // 2 + 4 * in_layers // 64 + adapters

    def test_the_eighth_of_adams_state(self):
        n = 8_030_261_248
        small = 65 * 4096  # the norms' weights are of 4,096 values: not below the least
        state = step("Llama-3-8B", "8-bit AdamW").by_role()["optimizer state"]
        assert state == 2 * n + 2 * 4 * n // 256
        assert small < n
        assert sum(t.numel() * t.element_size() for t in eight_bit_state(torch.empty(100))) == 800

    def test_a_gradient_used_at_once_goes_at_once(self):
        """As a real step does, whose hook sets each gradient to None: the most bytes of gradients at a time."""
        model = prepared(SMALL.build().float(), Method())
        ids = torch.randint(SMALL.vocabulary, (2, 32))
        alive: list[int] = []

        def hook(weight):
            alive.append(sum(p.grad.numel() * 4 for p in model.parameters() if p.grad is not None))
            weight.grad = None

        for weight in model.parameters():
            weight.register_post_accumulate_grad_hook(hook)
        model(ids, ids).loss.backward()
        tape = short_tape(SMALL, METHODS["step in backward"], 32, 2, False, "float32")
        counted = Ledger("", tape, 2).matrix[:, ROLE["weight gradients"]]
        assert counted.max() == max(alive)
        assert counted[-1] == 0

    def test_lora_keeps_no_fewer_maps_and_a_kept_copy_is_worse_than_lora(self):
        maps = {name: step("Llama-3-8B", name, recompute=False).by_role()["feature maps"] for name in ("full", "LoRA")}
        assert maps["LoRA"] > 0.9 * maps["full"]
        peaks = {
            base: step("TinyLlama-1.1B", Method("lora", base), 512, 8, False).peak_bytes for base in fine_tuning.BASES
        }
        assert peaks["4 bits"] < peaks["16 bits"] < peaks["4 bits, copies kept"] < peaks["4 bits, rest in float32"]

    def test_lora_of_a_rank_beside_some_products(self):
        """Of h by k, rank · (h + k) values: queries and projection are 64 by 64, keys and values 64 by 32."""
        chosen = Method("lora", rank=5, beside=("q", "k", "v", "project"))
        trained = [p.numel() for p in prepared(SMALL.build(), chosen).parameters() if p.requires_grad]
        assert sum(trained) == 3 * 5 * (2 * 128 + 2 * 96)
        names = {fine_tuning.kept_name("small", method, True, True, "float32") for method in (chosen, Method("lora"))}
        assert len(names) == 2

    @pytest.mark.parametrize(
        ("method", "batch"), [("LoRA", 1), ("LoRA", 4), ("state on the CPU + step in backward", 1)]
    )
    def test_the_longest_sequence_fits_and_the_next_does_not(self, method, batch):
        room = 20 * GIB
        longest = fine_tuning.longest_sequence("Llama-3-8B", method, room, batch)
        assert step("Llama-3-8B", method, longest, batch).peak_bytes <= room
        assert step("Llama-3-8B", method, longest + 1, batch).peak_bytes > room
        assert fine_tuning.longest_sequence("Llama-3-8B", "full", room) == 0
        assert fine_tuning.longest_sequence("TinyLlama-1.1B", "LoRA", 1e15) == 2048

    def test_what_cannot_be(self):
        for options in ({"trained": "none"}, {"base": "3 bits"}, {"optimizer": "Lion"}):
            with pytest.raises(CourseError, match="unknown"):
                Method(**options)
        with pytest.raises(CourseError, match="cannot be trained"):
            Method(base="4 bits")
        with pytest.raises(CourseError, match="one weight at a time"):
            Method(optimizer="AdamW, torch's default", in_backward=True)
        for options in ({"model": "GPT-5"}, {"method": "magic"}, {"dtype": "int3"}, {"sequence": 1}, {"batch": 0}):
            with pytest.raises(CourseError):
                step(**options)


class TestRealModels:
    def test_lora_changes_nothing_at_first_and_little_is_trained(self):
        torch.manual_seed(0)
        model = SMALL.build()
        ids = torch.randint(SMALL.vocabulary, (2, 16))
        before = model(ids)
        prepared(model, METHODS["LoRA"])
        assert torch.equal(model(ids), before)
        trained = [p for p in model.parameters() if p.requires_grad]
        assert 4 * sum(p.numel() for p in trained) == fine_tuning.trainable_bytes(SMALL, value_bytes=4)
        model(ids, ids).loss.backward()
        assert all(p.grad is None for p in model.parameters() if not p.requires_grad)

    @settings(deadline=None, max_examples=20)
    @given(st.integers(1, 8), st.integers(0, 1000))
    def test_four_bits_are_near_the_weight_and_half_a_byte_each(self, blocks, seed):
        weight = torch.randn(blocks, 64, generator=torch.Generator().manual_seed(seed))
        packed, scales = quantised(weight)
        assert packed.nbytes == weight.numel() // 2
        assert scales.nbytes == weight.numel() // 16
        wide = dequantised(packed, scales, tuple(weight.shape), torch.float32)
        largest_gap = max(b - a for a, b in pairwise(NF4)) / 2
        assert ((wide - weight).abs() <= largest_gap * scales[:, None] * 1.0001).all()

    @pytest.mark.parametrize("keeps", [True, False])
    def test_four_bits_multiply_and_pass_gradients_as_their_wide_copy_does(self, keeps):
        torch.manual_seed(0)
        linear = nn.Linear(64, 32, bias=False)
        layer = FourBit(linear, keeps)
        wide = dequantised(layer.packed, layer.scales, layer.shape, torch.float32)
        x = torch.randn(5, 64, requires_grad=True)
        (layer(x) ** 2).sum().backward()
        ours, x.grad = x.grad, None
        ((x @ wide.t()) ** 2).sum().backward()
        assert torch.allclose(ours, x.grad)
        assert FourBit(linear.bfloat16(), keeps)(x).dtype == torch.float32  # as it came in

    def test_a_weight_of_odd_size_is_refused(self):
        with pytest.raises(CourseError, match="whole number of blocks"):
            quantised(torch.randn(3, 5))

    @pytest.mark.parametrize("lora", [True, False])
    def test_the_trace_of_a_step_is_what_is_alive_in_a_real_one(self, lora):
        """Counted operator by operator on the CPU, in float32: nothing of the tensors is left out."""
        from course_utils.trace import training_step

        def build():
            layers = [nn.Linear(64, 64, bias=False) for _ in range(4)]
            if lora:
                layers = [LoRA(one, 64, 64, 4, one.weight) for one in layers]
            return nn.Sequential(*layers, nn.Linear(64, 10))

        net, x, y = build(), torch.randn(32, 64), torch.randint(10, (32,))
        traced = training_step(build(), (64,), 10, "sgd", target="cpu").at(32).peak_bytes
        values = named_inputs(dict(net.named_parameters()), {}, [(x, y)])
        values = {name: value.detach() for name, value in values.items()}
        assert run(record_steps(lambda: net, [(x, y)], 10), values).replayed.peak == traced


class TestAdapters:
    def test_what_else_goes_wrong_is_told(self):
        class Half(nn.Module):
            """Adapts layers with a bias alone."""

            def __init__(self, layer, rank):
                super().__init__()
                self.layer = layer
                self.down = nn.Linear(layer.in_features, rank, bias=False)
                self.up = nn.Linear(rank, layer.out_features, bias=False)
                nn.init.zeros_(self.up.weight)

            def forward(self, x):
                y = self.layer(x)
                return y if self.layer.bias is None else y + self.up(self.down(x))

        class Prints(Half):
            def forward(self, x):
                self.layer(x)

        class Moves(Half):
            def forward(self, x):
                self.layer.weight.data += 0.001
                return super().forward(x)

        class Falls(Half):
            def __init__(self, layer, rank):
                raise RuntimeError("no layer today")

        for wrong, words in {
            Half: "2 of 3 layers learn", Prints: "Is there a `return`?", Moves: "trained again",
            Falls: "no layer today", 3: "and no class", nn.Linear: "raised",
        }.items():  # fmt: skip
            assert words in one_card.adapt_layer(wrong).message
            assert graded.adapt_layer.lines(wrong) != graded.adapt_layer.lines(RIGHT["adapt_layer"][0])

    def test_all_right_answers_train_what_may_be_trained(self):
        for answer in RIGHT["adapt_layer"]:
            for rank in (1, 7):
                seen = adapters.judge(adapters.record(answer, rank), rank)
                assert seen.trained == seen.allowed == (64 * rank, 80 * rank, 50 * rank)
                assert all(seen.holds.values())


class TestServing:
    @pytest.mark.parametrize("name", ["Llama-3-8B", "TinyLlama-1.1B", "GPT-2", "SmolLM2-135M"])
    def test_cache_and_weights_are_those_of_the_model(self, name):
        shape = SHAPES[name]
        with torch.device("meta"):
            model = shape.build(layers=2).to(torch.bfloat16).eval()
            kept: list = []
            model(torch.zeros(3, 100, dtype=torch.int64), cache=kept)
        held = sum(part.nbytes for pair in kept for part in pair)
        assert serving.cache_bytes(shape, 100, 3) == held * shape.layers // 2

    def test_by_hand(self):
        """Llama-3-8B: 32 layers, 8 of 32 heads of 128 values: 128 KiB a token; four times that for all heads."""
        shape = SHAPES["Llama-3-8B"]
        assert serving.cache_bytes(shape, 1) == 128 * 1024
        assert serving.cache_bytes(shape, 1, kv_heads=32) == 512 * 1024

    def test_decoding_is_bound_by_bandwidth_and_a_prompt_by_arithmetic(self):
        shape, card = SHAPES["Llama-3-8B"], device("RTX 4090")
        one, many, prompt = serving.decode(shape, 0), serving.decode(shape, 1024, 64), serving.prefill(shape, 2048)
        assert one.intensity == 1  # two operations for each weight of two bytes
        assert one.intensity < many.intensity < card.ridge("float16") < prompt.intensity
        assert one.tokens_per_second(card) == pytest.approx(card.reached_bytes_per_s() / one.traffic)
        assert prompt.seconds(card) == pytest.approx(prompt.flops / card.reached_flops_per_s("float16"))
        assert serving.decode(shape, 0, weight_bits=4).seconds(card) == pytest.approx(one.seconds(card) / 4)

    @pytest.mark.parametrize(("users", "context"), [(1, 8192), (32, 2048), (146, 2048), (147, 2048), (400, 512)])
    def test_the_parts_of_a_step_add_up_by_hand(self, users, context):
        """Llama-3-8B on an RTX 4090: 110.55 TFLOP/s and 756 GB/s are expected.

        Its layers have products of 4096 by 4096 (two), 1024 (two) and 14336 (three), its head one of 128,256. A token
        has 32 heads of 128 values, which are multiplied with each key and each value, of which 8 heads are kept.
        """
        values = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14_336) + 4096 * 128_256 + 65 * 4096  # and norms, by count
        reads, computes = 2 * values / 756e9, users * 2 * values / 110.55e12
        attends = users * context * 32 * (2 * 8 * 128 * 2) / 756e9
        attention_computes = users * context * 32 * (2 * 32 * 128 * 2) / 110.55e12
        assert attention_computes < attends / 30
        assert (computes > reads) == (users > 146)
        step = serving.decode(SHAPES["Llama-3-8B"], context, users)
        assert step.seconds(device("RTX 4090")) == pytest.approx(max(reads, computes) + attends)
        one_roof = max(reads + attends, computes + attention_computes)  # what it would be if nothing ran in turn
        assert (step.seconds(device("RTX 4090")) > 1.001 * one_roof) == (users > 146)

    def test_published_times_are_a_part_of_the_weights_and_one_of_the_cache(self):
        """llama.cpp on an RTX 4090, Llama-3-8B: a token's time over the cache's tokens is a line for either format.

        GPU-Benchmarks-on-LLM-Inference, May 2024, tg 512, 1024, 4096 and 8192: half of them are in the cache.
        """
        published = {"16 bits": (54.84, 54.34, 52.63, 50.88), "Q4_K_M": (130.58, 127.74, 119.44, 110.66)}
        lines = {}
        for bits, rates in published.items():
            times = 1 / np.array(rates)
            lines[bits] = np.polyfit((256, 512, 2048, 4096), times, 1)
            assert np.polyval(lines[bits], (256, 512, 2048, 4096)) == pytest.approx(times, rel=0.01)
        assert lines["16 bits"][0] == pytest.approx(lines["Q4_K_M"][0], rel=0.05)  # the cache is the same
        assert lines["16 bits"][1] > 2 * lines["Q4_K_M"][1]  # the weights are not
        ours = serving.decode(SHAPES["Llama-3-8B"], 0).seconds(device("RTX 4090"))
        assert lines["16 bits"][1] == pytest.approx(ours, rel=0.1)

    def test_arithmetic_is_torchs_own_count(self):
        from torch.utils.flop_counter import FlopCounterMode

        shape = replace(SMALL, parameters=sum(p.numel() for p in SMALL.build().parameters()))
        model = shape.build(Options(attention="eager")).eval()
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(2, 32, dtype=torch.int64))
        norms = (2 * shape.layers + 1) * shape.hidden  # are no products
        ours = serving.prefill(shape, 32, 2)
        masked = 2 * serving._attention_flops(shape, 32, 16)  # eager attention computes the masked half too
        assert counter.get_total_flops() == ours.flops + masked - 2 * 2 * 32 * norms

    def test_what_is_written_is_the_same_with_a_cache(self):
        torch.manual_seed(0)
        model = SMALL.build().eval()
        prompt = torch.randint(SMALL.vocabulary, (2, 10))
        cache, ids = [], prompt
        with torch.no_grad():
            for number in range(6):
                whole, read = model(ids), model(ids[:, -1:] if number else ids, cache=cache)
                torch.testing.assert_close(read[:, -1], whole[:, -1])
                ids = torch.cat((ids, whole[:, -1:].argmax(-1)), 1)
        held = sum(part.numel() * part.element_size() for pair in cache for part in pair)
        assert held == serving.cache_bytes(SMALL, 15, 2, 4)
