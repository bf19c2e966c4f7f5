"""What networks do that nobody here wrote, in miniature: each cause by itself, against real tensors on the CPU.

Of CUDA, what can be witnessed without a card: which operator runs, and what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from oracles import Case, live_storages_timeline
from small_nets import Heads, Net, chain, operators
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from course_utils.memory import Ledger
from course_utils.trace import STANDING, Spec, training_step

pytestmark = pytest.mark.usefixtures("one_thread")


class Around(nn.Module):
    """A layer between a convolution and two scores, all in one dtype and layout."""

    def __init__(self, layer: Callable[[], nn.Module], channels_last: bool = False) -> None:
        super().__init__()
        self.first, self.layer = nn.Conv2d(3, 8, 3), layer()
        self.channels_last = channels_last

    def forward(self, x: Tensor) -> Tensor:
        maps = self.first(x)
        if self.channels_last:
            maps = maps.to(memory_format=torch.channels_last)
        maps = self.layer(maps)
        scores: Tensor = maps.flatten(1)[:, :2] + maps.mean((1, 2, 3))[:, None]
        return scores


class Recurrent(nn.Module):
    """A recurrent layer and a head on its last step."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.layer, self.head = kind(8, 16, **options), nn.LazyLinear(5)
        self.head = nn.Linear(16 * (1 + bool(options.get("bidirectional"))), 5)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.layer(x)[0][:, -1])
        return scores


class Rows(nn.Module):
    """Rows through a norm whose weights are bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.head = nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 5)
        self.to(torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(self.inner(x)).mean(1))
        return scores


class Bags(nn.Module):
    """Bags of token ids to scores."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(50, 16), nn.Linear(16, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.bag(tokens))
        return scores


class Transformer(nn.Module):
    """torch's own encoder and decoder; the mask it counts out is compared with a causal one, value by value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        scores: Tensor = self.head(self.body(x, x, tgt_mask=mask).mean(1))
        return scores


def looks_at_its_mask(net: Any, x: Tensor) -> Tensor:
    """The way is chosen by values that depend on no data."""
    places = torch.arange(5, device=x.device).expand(len(x), 5)
    packed = (torch.diff(places, dim=-1) != 1).cumsum(-1)
    out = chain(net, x)
    return out if bool((packed[:, -1] == 0).all()) else torch.cat([out, out]).relu()[: len(x)]


class LooksAtABuffer(Net):
    """The way is chosen by a buffer's value, which the step changes."""

    def __init__(self) -> None:
        super().__init__(lambda net, x: chain(net, x) if net.count.item() == 3 else chain(net, x).exp())
        self.register_buffer("count", torch.tensor(3))


def overwrites_a_view(net: Any, x: Tensor) -> Tensor:
    """Rows of rows through a dense layer are a view, which the ReLU behind it writes over."""
    return net.c(F.relu(net.a(torch.stack([x, x], 1)), inplace=True).mean(1))


def writes_numbers(net: Any, x: Tensor) -> Tensor:
    """Into rows, one place, what a mask and what a list chose: in whole numbers, and where gradients flow."""
    order, maps = torch.zeros(len(x), 16, dtype=torch.int64, device=x.device), net.a(x).clone()
    order[:, 0], order[0, 1], order[order > 0] = 1, 1, 2
    order[...] = 0
    maps[:, 2:4], maps[0, 0], maps[order < 1] = 0.5, 2, 0
    return net.c(torch.where(order > 0, maps, 1.0))


token_ids = partial(torch.randint, 50)
half_input = partial(torch.randn, dtype=torch.bfloat16)
ON_THE_CPU: dict[str, tuple[Case, dict[str, Any]]] = {
    "grouped-query attention": (Case(partial(Heads, "grouped"), (8, 32), 5), {}),
    "attention with a mask": (Case(partial(Heads, "mask"), (8, 32), 5), {}),
    "attention with a trained bias": (Case(partial(Heads, "trained bias"), (8, 32), 5), {}),
    "attention bound at import": (Case(Heads, (8, 32), 5), {}),
    "layer norm with bfloat16 weights": (
        Case(Rows, (6, 16), 5, make_input=half_input),
        {"input_dtype": torch.bfloat16},
    ),
    "group norm, channels last": (
        Case(partial(Around, partial(nn.GroupNorm, 2, 8), channels_last=True), (3, 8, 8), 2),
        {},
    ),
    "Mish": (Case(partial(Around, nn.Mish), (3, 8, 8), 2), {}),
    "embedding bag": (
        Case(Bags, (7,), 5, make_input=lambda *shape: token_ids(shape)),
        {"input_dtype": torch.int64},
    ),
    "nn.Transformer with a causal mask": (Case(Transformer, (6, 16), 5), {}),
    "a view written in place": (Case(partial(Net, overwrites_a_view), (8,), 5), {}),
    "numbers written": (Case(partial(Net, writes_numbers), (8,), 5), {}),
    "a look at a mask counted out": (Case(partial(Net, looks_at_its_mask), (8,), 5), {}),
    "a look at a buffer": (Case(LooksAtABuffer, (8,), 5), {}),
    "GRU": (Case(partial(Recurrent, nn.GRU, batch_first=True), (4, 8), 5), {}),
    "GRU, two layers, both ways": (
        Case(partial(Recurrent, nn.GRU, batch_first=True, num_layers=2, bidirectional=True), (4, 8), 5),
        {},
    ),
    "RNN": (Case(partial(Recurrent, nn.RNN, batch_first=True), (4, 8), 5), {}),
}


@pytest.mark.parametrize("name", ON_THE_CPU)
def test_equals_real_tensors(name: str) -> None:
    case, options = ON_THE_CPU[name]
    step = training_step(case.build(), case.input_shape, None, "sgd", target="cpu", **options)
    assert step.affine, step.why
    assert STANDING.issuperset(step.assumptions)
    for batch in (1, 3, 16):
        assert operators(step.at(batch)) == live_storages_timeline(case, batch), batch


def test_a_number_that_is_written_needs_no_tensor_on_cuda() -> None:
    def writes(how: Callable[[Tensor], object]) -> Any:
        def forward(net: Any, x: Tensor) -> Tensor:
            maps = net.a(x).clone()
            how(maps)
            return net.c(maps)  # type: ignore[no-any-return]

        return training_step(Net(forward), (8,), 5, "sgd", target="cuda").at(3)

    by_index, by_method = writes(lambda maps: maps.__setitem__((..., 0), 2)), writes(lambda maps: maps[..., 0].fill_(2))
    assert by_index.tape.event_ops == by_method.tape.event_ops
    assert by_index.allocated_bytes() == by_method.allocated_bytes()


def test_a_recurrence_whose_buffers_are_hidden_is_labelled() -> None:
    for kind, target, labelled in ((nn.LSTM, "cpu", True), (nn.LSTM, "cuda", True), (nn.GRU, "cuda", True)):
        step = training_step(Recurrent(kind, batch_first=True), (4, 8), 5, target=target)
        assert any(kind.__name__ in what for what in step.assumptions) == labelled
    # What is left out of the LSTM on a CPU is in one operator's result, and nothing else is.
    case = Case(partial(Recurrent, nn.LSTM, batch_first=True), (4, 8), 5)
    step = training_step(case.build(), (4, 8), 5, "sgd", target="cpu")
    traced, real = operators(step.at(3)), live_storages_timeline(case, 3)
    off = [b[1] - a[1] for a, b in zip(traced, real, strict=False)]
    assert off[0] == 0 < max(off)


def test_a_view_written_in_place_is_labelled_where_it_is_traced_on_fake_tensors() -> None:
    net = Net(lambda net, x: overwrites_a_view(net, F.softplus(x)))  # no operator that is the same on meta tensors
    step = training_step(net, (8,), 5, "sgd", target="cpu")
    assert [what for what in step.assumptions if "a view written in place" in what]
    assert STANDING.issuperset(training_step(Net(chain), (8,), 5, "sgd", target="cpu").assumptions)


# -- CUDA --------------------------------------------------------------------------------------------------------------


def ran(ledger: Ledger) -> set[str]:
    """The attention operators of a step."""
    return {op for op in ledger.tape.event_ops if "attention" in op or op in ("_safe_softmax", "_softmax")}


FLASH = {"_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"}
EFFICIENT = {"_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward"}


@pytest.mark.parametrize(
    ("how", "dtype", "precision", "kernel"),
    [
        ("plain", torch.float32, "float32", EFFICIENT),
        ("plain", torch.float32, "bfloat16", FLASH),
        ("plain", torch.bfloat16, "float32", FLASH),
        ("grouped", torch.bfloat16, "float32", FLASH),
        ("grouped", torch.float32, "bfloat16", FLASH),
        ("grouped", torch.float32, "float32", {"_safe_softmax"}),
        ("mask", torch.float32, "bfloat16", EFFICIENT),
        ("trained bias", torch.float32, "float32", EFFICIENT),
    ],
)
def test_attention_on_cuda_runs_the_kernel_of_its_shapes(
    how: str, dtype: torch.dtype, precision: str, kernel: set[str]
) -> None:
    step = training_step(Heads(how).to(dtype), (8, 32), None, "sgd", precision, input_dtype=dtype)
    assert step.affine, step.why
    assert ran(step.at(3)) == kernel
    assert any("attention" in what for what in step.assumptions)


def test_attention_on_cuda_obeys_torchs_choice_of_kernels() -> None:
    net = Heads().to(torch.float16)
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        step = training_step(net, (8, 32), optimizer="sgd", input_dtype=torch.float16)
    assert ran(step.at(3)) == EFFICIENT
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        step = training_step(net, (8, 32), optimizer="sgd", input_dtype=torch.float16)
    assert ran(step.at(3)) == {"_safe_softmax"}


def test_attention_under_autocast_takes_less_than_in_float32() -> None:
    peaks = [training_step(Heads(), (8, 32), None, "sgd", p).at(500).peak_bytes for p in ("float32", "bfloat16")]
    assert peaks[1] < peaks[0]


def normed_twice(x: Tensor) -> Tensor:
    return F.layer_norm(x, (16,)).softmax(-1).exp()


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_computes_again_under_cudas_autocast_rules(reentrant: bool) -> None:
    """The maps made again have the sizes of those made first."""
    run = lambda net, x: net.c(checkpoint(normed_twice, net.a(x), use_reentrant=reentrant))  # noqa: E731
    tape = training_step(Net(run), (8,), 5, "sgd", "bfloat16").at(7).tape
    first, again = (
        [
            int(tape.fixed[s])
            for s in range(len(tape.birth))
            if 0 < tape.birth[s] < tape.events
            and tape.event_ops[tape.birth[s]] in ("native_layer_norm", "_softmax", "exp")
            and tape.recomputed[tape.birth[s]] == recomputed
        ]
        for recomputed in (False, True)
    )
    per = [
        int(tape.per_sample[s]) for s in range(len(tape.birth)) if tape.event_ops[tape.birth[s] % tape.events] == "exp"
    ]
    assert first == again
    assert per == [4 * 16, 4 * 16]


def test_autocast_of_another_thread_keeps_the_cpus_rules() -> None:
    import threading

    from course_utils.trace import overrides

    seen: list[torch.dtype] = []

    def other() -> None:
        x = torch.ones(2, 4, dtype=torch.bfloat16)
        with torch.autocast("cpu", torch.bfloat16):
            seen.extend([F.layer_norm(x, (4,)).dtype, F.mse_loss(x, x).dtype])
        q = torch.ones(1, 2, 4, 8, requires_grad=True)
        scaled_dot_product_attention(q, q, q).sum().backward()
        assert q.grad is not None

    with overrides.of("cuda"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [torch.bfloat16, torch.float32]


@pytest.mark.parametrize(("dtype", "copies"), [(torch.float16, 0), (torch.bfloat16, 1)])
def test_softmax_with_a_float32_result_makes_no_copy_of_float16(dtype: torch.dtype, copies: int) -> None:
    net = Net(lambda net, x: net.c(net.a(x).softmax(-1, torch.float32).to(dtype))).to(dtype)
    step = training_step(net, (8,), 5, "sgd", input_dtype=dtype)
    tape = step.at(3).tape
    made = [tape.event_ops[tape.birth[s]] for s in range(len(tape.birth)) if tape.per_sample[s] == 4 * 16]
    forward = made[: made.index("_softmax") + 1]
    assert forward == ["_to_copy"] * copies + ["_softmax"]


def test_the_backward_of_softmax_needs_a_temporary_as_large_as_its_gradient() -> None:
    net = Net(lambda net, x: net.c(net.a(x).softmax(-1)))
    tapes = [training_step(net, (8,), 5, "sgd", target=target).at(3).tape for target in ("cuda", "cpu")]
    extra = []
    for tape in tapes:
        event = tape.event_ops.index("_softmax_backward_data")
        born = [int(tape.per_sample[s]) for s in range(len(tape.birth)) if tape.birth[s] == event]
        extra.append(sorted(born))
    assert extra == [[4 * 16, 4 * 16], [4 * 16]]


def test_mish_and_rms_norm_keep_what_one_kernel_keeps_on_cuda() -> None:
    step = training_step(Around(nn.Mish), (3, 8, 8), optimizer="sgd")
    assert "mish_backward" in step.at(2).tape.event_ops
    net = Net(lambda net, x: net.c(F.rms_norm(net.a(x), (16,), net.b.bias)))
    tape = training_step(net, (8,), optimizer="sgd").at(2).tape
    assert "_fused_rms_norm" in tape.event_ops
    assert "pow" not in tape.event_ops


def test_log_sigmoid_keeps_its_buffer_on_the_cpu_alone() -> None:
    net = Net(lambda net, x: net.c(F.logsigmoid(net.a(x))))
    frames = [training_step(net, (8,), 5, "sgd", target=target).at(100).timeline() for target in ("cpu", "cuda")]
    made = [frame["feature maps"][frame["event"] == "log_sigmoid_forward"].item() for frame in frames]
    assert made[0] - made[1] == 4 * 100 * 16


# -- any step ----------------------------------------------------------------------------------------------------------


class Pair(nn.Module):
    """Takes named tensors, gives named results."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        maps = self.embedding(ids)
        if not bool(mask.all()):
            maps = maps.exp()
        return {"logits": self.head(maps)}


def pair_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(**batch)["logits"]
    return F.cross_entropy(logits.flatten(0, 1), batch["ids"].flatten())


def pair_step(batch: int, length: int, optimizer: Callable[..., Any] | None = None) -> Any:
    """The same step in real tensors, as a case of the witness."""
    mask = torch.ones(batch, length, dtype=torch.int64)

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = Pair()

        def forward(self, ids: Tensor) -> Tensor:
            return pair_loss(self.pair, {"ids": ids, "mask": mask})

    return Case(
        Whole, (length,), 5, criterion=lambda loss, y: loss, make_input=lambda *s: token_ids(s),
        make_target=lambda batch: mask,
    )  # fmt: skip


def pair_inputs(length: int | str = 6) -> dict[str, Spec]:
    return {"ids": Spec((length,), torch.int64), "mask": Spec((length,), torch.int64, fill=1)}


def test_named_inputs_and_outputs_equal_real_tensors() -> None:
    step = training_step(Pair(), inputs=pair_inputs(), loss=pair_loss, optimizer="sgd", target="cpu")
    assert step.affine, step.why
    for batch in (1, 3, 16):
        assert operators(step.at(batch)) == live_storages_timeline(pair_step(batch, 6), batch)
    start = step.at(3).timeline()["input"][0]
    assert start == 3 * 6 * 8 * 2


def test_another_sequence_is_traced_anew() -> None:
    options: dict[str, Any] = {"loss": pair_loss, "optimizer": "sgd", "target": "cpu"}
    step = training_step(Pair(), inputs=pair_inputs("sequence"), sizes={"sequence": 6}, **options)
    for length in (6, 1, 9, 40):
        expected = training_step(Pair(), inputs=pair_inputs(length), **options).at(5)
        assert operators(step.at(5, sequence=length)) == operators(expected)
    assert step.at(5, sequence=9).tape is step.at(5, sequence=9).tape


def test_one_spec_in_two_places_is_one_tensor() -> None:
    spec = Spec((8,))
    ledgers = [
        training_step(nn.Bilinear(8, 8, 5), inputs=pair, loss=lambda model, batch: model(*batch).sum()).at(3)
        for pair in ((spec, spec), (spec, Spec((8,))))
    ]
    assert [int(ledger.timeline()["input"][0]) for ledger in ledgers] == [3 * 8 * 4, 3 * 8 * 4 * 2]


def test_an_output_that_stays_alive_costs_what_backward_does_not_keep() -> None:
    """Logits of 4 * 1000 bytes a sample: the loss keeps their log-softmax, not them."""
    steps = [training_step(nn.Linear(8, 1000), (8,), optimizer="sgd", keep_output=keep) for keep in (False, True)]
    for batch in (2, 30):
        dropped, kept = (step.at(batch) for step in steps)
        backward = dropped.phases == "backward"
        assert (kept.total - dropped.total)[backward].tolist() == [4000 * batch] * int(backward.sum())
        assert kept.total[-1] - kept.matrix[-1].sum() == 0


def in_two_groups(parameters: Any) -> torch.optim.Optimizer:
    everything = list(parameters)
    groups = [{"params": [p for p in everything if (p.dim() > 1) == weights]} for weights in (True, False)]
    return torch.optim.AdamW([{**groups[0], "weight_decay": 0.1}, groups[1]])


@pytest.mark.parametrize(
    "make",
    [
        torch.optim.RMSprop,
        torch.optim.Adamax,
        torch.optim.RAdam,
        torch.optim.NAdam,
        in_two_groups,
    ],
)
def test_any_optimizer_equals_its_real_update(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    from unittest import mock

    from oracles import MAKE_OPTIMIZER

    with mock.patch.dict(MAKE_OPTIMIZER, {"theirs": make}):
        real = live_storages_timeline(Case(partial(Net, chain), (8,), 5, "theirs"), 3)
    step = training_step(Net(chain), (8,), 5, make, target="cpu")
    assert operators(step.at(3)) == real


class Own(torch.optim.SGD):
    """Somebody's own, who may make something in a later step: no trace of the second sees it."""


@pytest.mark.parametrize(("make", "labelled"), [(partial(Own, lr=0.1), True), (torch.optim.RMSprop, False)])
def test_an_optimizer_that_is_not_of_torch_is_labelled(make: Any, labelled: bool) -> None:
    step = training_step(Net(chain), (8,), 5, make)
    assert any("as in its second step" in text for text in step.assumptions) == labelled
