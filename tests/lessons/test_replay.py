"""A record replayed: the same program on the same values, another result on others; none that is no program."""

import base64
import contextlib
import copy
import json
import re
import zlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from lessons.shared.replay import form
from lessons.shared.replay.form import Constant, Freed, Mark, Operator, Record, Ref, Refused, from_text, to_text
from lessons.shared.replay.recorder import Recorder
from lessons.shared.replay.replayer import replay, slopes
from lessons.shared.replay.steps import run as run_steps

SIDE = 4
UNARY = (
    torch.relu, torch.tanh, torch.neg, torch.Tensor.t, torch.Tensor.clone, lambda x: x[1:].sum(0).expand(SIDE, SIDE),
    lambda x: x.softmax(0), lambda x: x.flip(1), lambda x: x.reshape(2, -1).mean(0).repeat(2).view(SIDE, SIDE).mul(2),
    lambda x: x.double().cumsum(0).float(), lambda x: x.masked_fill(x > 0, 0.5),
    lambda x: nn.functional.dropout(x, 0.3),
    lambda x: x.clone().add_(1), lambda x: torch.where(x > 0, x, 2 * x), lambda x: x * torch.tensor([1.0, 2, 3, 4]),
    lambda x: nn.functional.layer_norm(x, (SIDE,)), lambda x: x[torch.tensor([0, 0, 3, 1])], torch.zeros_like,
)  # fmt: skip
BINARY = (torch.add, torch.mul, torch.mm, torch.maximum, lambda x, y: torch.cat([x[:2], y[2:]]))
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(UNARY), st.integers(0, 99))
    | st.tuples(st.sampled_from(BINARY), st.integers(0, 99), st.integers(0, 99)),
    min_size=1, max_size=12,
)  # fmt: skip


def run(program, x, y):
    """The last tensor of a program that works on the tensors there are; earlier ones are let go of now and then."""
    tensors = [x, y]
    for function, *places in program:
        tensors.append(function(*(tensors[place % len(tensors)] for place in places)))
        if len(tensors) > 5:
            del tensors[2]
    return tensors[-1]


def drawn(seed):
    """Random values for `x` and `y`."""
    return {
        name: torch.randn(SIDE, SIDE, generator=torch.Generator().manual_seed(seed + i)) for i, name in enumerate("xy")
    }


def recorded(work, values):
    """A record of `work(**values)`, and what it returned."""
    recorder = Recorder(values)
    with recorder:
        out = work(**values)
        recorder.mark("out", out)
    return recorder.record, out


@settings(deadline=None, max_examples=60)
@given(PROGRAMS, st.integers(0, 2**20))
def test_a_program_replayed_on_its_own_values_gives_its_own_result(program, seed):
    # A draw is replayed as another one, from the same numbered state.
    program = [one for one in program if one[0] is not UNARY[11]] or [(torch.neg, 0)]
    values = drawn(seed)
    record, out = recorded(lambda x, y: run(program, x, y), values)
    assert from_text(to_text(record)) == record
    assert torch.equal(replay(record, values).handed["out"], out)


@settings(deadline=None, max_examples=40)
@given(PROGRAMS, st.integers(0, 2**20))
def test_a_program_replayed_on_other_values_gives_what_it_would_give_there(program, seed):
    program = [one for one in program if one[0] is not UNARY[11]] or [(torch.neg, 0)]
    record, _ = recorded(lambda x, y: run(program, x, y), drawn(seed))
    others = drawn(seed + 7)
    assert torch.equal(replay(record, others).handed["out"], run(program, **others))


@settings(deadline=None, max_examples=40)
@given(PROGRAMS, st.integers(0, 2**20))
def test_slopes_are_those_of_autograd(program, seed):
    program = [one for one in program if one[0] is not UNARY[11]] or [(torch.neg, 0)]
    values = drawn(seed)
    record, out = recorded(lambda x, y: run(program, x, y), values)
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    weights = torch.arange(1.0, 1 + out.numel()).view(out.shape)
    again = run(program, **leaves)
    if again.requires_grad:
        (again * weights).sum().backward()
    for name, slope in slopes(record, values, "out", weights).items():
        wanted = leaves[name].grad
        assert torch.allclose(slope, torch.zeros_like(slope) if wanted is None else wanted, rtol=1e-4, atol=1e-5)


def set_back(x, y):
    state = torch.get_rng_state()
    one, two = torch.rand(SIDE), torch.rand(SIDE)
    torch.set_rng_state(state)
    return torch.stack([one, two, torch.rand(SIDE)])


def set_back_of_its_own(x, y):
    own = torch.Generator().manual_seed(3)
    one, two = torch.rand(SIDE, generator=own), torch.rand(SIDE, generator=own)
    return torch.stack([one, two, torch.rand(SIDE, generator=own.manual_seed(3))])


@pytest.mark.parametrize("work", [set_back, set_back_of_its_own])
def test_the_same_state_draws_the_same_and_another_seed_another(work):
    record, _ = recorded(work, drawn(0))
    (one, two, again), (other, *_) = (replay(record, drawn(0), seed).handed["out"] for seed in (5, 9))
    assert torch.equal(one, again)
    assert not torch.equal(one, two)
    assert not torch.equal(one, other)


def test_what_is_copied_past_the_operators_is_a_copy_on_other_values_too():
    record, _ = recorded(lambda x, y: copy.deepcopy(y) + x, drawn(0))
    others = drawn(3)
    assert torch.equal(replay(record, others).handed["out"], others["y"] + others["x"])


def test_what_a_checkpoint_computes_again_draws_the_same():
    def work(x, y):
        x.requires_grad_()
        checkpoint(lambda one: nn.functional.dropout(one).exp(), x, use_reentrant=False).sum().backward()
        return x.grad

    record, _ = recorded(work, drawn(0))
    draws = [one.draw for one in record.entries if isinstance(one, Operator) and one.draw is not None]
    assert len(draws) == 2
    assert draws[0] == draws[1]
    others = drawn(3)
    kept = replay(record, others).handed["out"] != 0
    assert torch.allclose(replay(record, others).handed["out"][kept], 2 * (2 * others["x"][kept]).exp())


def test_bytes_are_counted_as_storages_live():
    def work(x, y):
        big = torch.cat([x] * 10)
        small = big[:1].sum()
        view = big[3]
        del big
        small = small + view.sum()
        del view
        return small * torch.ones(2)

    record, _ = recorded(work, drawn(0))
    found = replay(record, drawn(1))
    matrix, number = 4 * SIDE**2, 4
    assert found.given == 2 * matrix
    # Both inputs, ten of one, three numbers: the first sum, that of the view, and their sum.
    assert found.peak == 12 * matrix + 3 * number
    assert found.alive["out"] < 3 * matrix


def test_memory_that_nobody_wrote_into_is_no_number():
    record, _ = recorded(lambda x, y: torch.empty(3) + 0 * x[0, 0], drawn(0))
    assert replay(record, drawn(0)).handed["out"].isnan().all()


REFUSED = {
    "from NumPy": (lambda x, y: torch.from_numpy(y.numpy().repeat(9, 0).repeat(9, 1)) * 1, "made by no operator"),
    "an operator of no list": (lambda x, y: torch.linalg.inv(x), "none of the operators"),
    "another shape on other values": (lambda x, y: x[x > 0].clone(), "on other values"),
    "sparse": (lambda x, y: x.to_sparse() * 2, "of another kind"),
    "complex": (lambda x, y: torch.complex(x, y), "of another kind"),
}


def test_what_is_selected_by_value_may_be_looked_at_and_counts_as_it_was_recorded():
    def work(x, y):
        chosen = (x[x > 0] * 2).exp().div_(3)
        assert float(chosen.sum()) >= 0
        del chosen
        return x + y

    record, _ = recorded(work, drawn(0))
    for seed in range(1, 9):
        values = drawn(seed)
        found = replay(record, values)
        assert torch.equal(found.handed["out"], values["x"] + values["y"])
        sizes = {one.name: one.bytes - found.given for one in found.ran}
        chosen = 4 * int((drawn(0)["x"] > 0).sum())
        assert sizes["mul"] >= 2 * chosen
        assert found.operators == replay(record, drawn(0)).operators
    assert found.ran[-1].bytes == found.given + 4 * SIDE**2  # the selection has gone


BY_SELECTION = {
    "handed out": lambda x, y: x[x > 0] * 2,
    "added up": lambda x, y: x + x[x > 0].sum(),
    "written": lambda x, y: x.clone().index_put_((x > 0,), x[x > 0] * 2),
    "without repetitions": lambda x, y: (4 * x).int().unique(),
    "scattered": lambda x, y: x.clone().masked_scatter_(y > 0, x[x > 0].repeat(16)),
}


@pytest.mark.parametrize("name", BY_SELECTION)
def test_what_comes_of_a_selection_by_value_is_not_handed_out(name):
    record, _ = recorded(BY_SELECTION[name], drawn(0))

    def all_of_it():
        for seed in range(1, 9):
            replay(record, drawn(seed))

    with pytest.raises(Refused, match="a mask and its sum have one size"):
        all_of_it()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_replayed_is_named(name):
    work, words = REFUSED[name]

    def all_of_it():
        record, _ = recorded(work, drawn(0))
        for seed in range(1, 9):
            replay(record, drawn(seed))

    with pytest.raises(Refused, match=re.escape(words)):
        all_of_it()


def test_one_call_that_does_it_all_is_named_as_such():
    with pytest.raises(Refused, match="several operators in one call"):
        form.operator("torch_nn::_linear_cross_entropy_batch_chunked")
    with pytest.raises(Refused, match="none of torch's own operators"):
        form.operator("mine::all_of_it")


def test_a_number_may_be_looked_at():
    def work(x, y):
        assert not torch.isnan(x).any()
        assert x.abs().max() < 100
        return x + 1

    record, _ = recorded(work, drawn(0))
    others = drawn(8)
    assert torch.equal(replay(record, others).handed["out"], others["x"] + 1)


# -- forged ------------------------------------------------------------------------------------------------------------

X = Ref(1, "torch.float32", (SIDE, SIDE), (SIDE, 1), 0)
MADE = replace(X, storage=3)
ADD = Operator("aten::add.Tensor", (X, X), {}, (MADE,))
INPUTS = {"x": X, "y": replace(X, storage=2)}


def relu(ref, out, name="aten::relu"):
    return Operator(name, (ref,), {}, (out,))


HUGE = 2**20
LABELS = Ref(5, "torch.int64", (4,), (1,), 0)
ONE = replace(X, size=(), stride=())
NOTHING = replace(MADE, size=(0,), stride=(1,))
FORGED = {
    "a storage nobody made": (relu(replace(X, storage=9), MADE),),
    "a dead storage": (ADD, Freed((3,)), Mark("out", MADE)),
    "an output of another size": (relu(X, Ref(3, "torch.float32", (SIDE,), (1,), 0)),),
    "an output of another dtype": (relu(X, replace(MADE, dtype="torch.float64")),),
    "an output in place of an input": (relu(X, X),),
    "an input in place of an output": (relu(X, MADE, "aten::relu_"),),
    "two outputs in one": (ADD, relu(X, MADE)),
    "no output": (replace(ADD, made=()),),
    "beyond the end, by size": (relu(replace(X, size=(SIDE + 1, SIDE)), MADE),),
    "beyond the end, by offset": (relu(replace(X, offset=1), MADE),),
    "beyond the end, by stride": (relu(replace(X, stride=(SIDE, 2)), MADE),),
    "beyond the end, by dtype": (relu(replace(X, dtype="torch.float64"), MADE),),
    "an operator of no list": (Operator("aten::set_.source_Storage", (X, X), {}, (X,)),),
    "a file": (Operator("aten::from_file", ("/etc/passwd", False, 9), {}, (MADE,)),),
    "memory of another size": (Operator("aten::resize_", (X, [HUGE]), {}, (X,)),),
    "an operator of others": (Operator("profiler::_record_function_enter_new", ("x",), {}, ()),),
    "a way out of aten": (Operator("aten::__class__", (), {}, ()),),
    "no operator": (Operator("aten::nothing_at_all", (), {}, ()),),
    "another overload": (Operator("aten::add.Nothing", (X, X), {}, (MADE,)),),
    "arguments of another kind": (Operator("aten::add.Tensor", (X, "y"), {}, (MADE,)),),
    "an argument of no name": (Operator("aten::add.Tensor", (X, X), {"out_": X}, (MADE,)),),
    "a huge tensor": (Operator("aten::zeros", ([HUGE, HUGE],), {}, (Ref(3, "torch.float32", (1,), (1,), 0),)),),
    "a huge range": (Operator("aten::arange", (2**36,), {}, (Ref(3, "torch.int64", (2**36,), (1,), 0),)),),
    "a huge repetition": (Operator("aten::repeat", (X, [HUGE, HUGE]), {}, (MADE,)),),
    "many constants": (Constant(Ref(3, "torch.float32", (2000,), (1,), 0), (0.0,) * 2000),),
    "a constant for an input": (Constant(Ref(1, "torch.float32", (16,), (1,), 0), (0.0,) * 16),),
    "a constant of another size": (Constant(Ref(3, "torch.float32", (9,), (1,), 0), (0.0,) * 3),),
    "a number that is read": (Operator("aten::_local_scalar_dense", (ONE,), {}, ()),),
    "a draw of no state": (Operator("aten::rand_like", (X,), {}, (MADE,)),),
    "indices of no pool": (
        Operator("aten::max_pool2d_with_indices_backward",
                 (replace(X, size=(1, 4, 4), stride=(16, 4, 1)),) * 2 + ([2, 2], [2, 2], [0, 0], [1, 1], False,
                  Ref(4, "torch.int64", (1, 4, 4), (16, 4, 1), 0)), {}, (MADE,)),
    ),
    "a gradient of another convolution": (
        Operator("aten::convolution_backward",
                 (*(replace(X, size=(1, 1, 4, 4), stride=(16, 16, 4, 1)),) * 2,
                  replace(X, size=(1, 1, 3, 3), stride=(9, 9, 3, 1)), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
                  [True, True, False]), {}, (MADE, replace(MADE, storage=4), None)),
    ),
    "a gradient of another border": (
        Operator("aten::reflection_pad2d_backward",
                 (*(replace(X, size=(1, 4, 4), stride=(16, 4, 1)),) * 2, [1, 1, 1, 1]), {}, (MADE,)),
    ),
    "labels beyond the classes": (
        Operator("aten::full", ([4], 9), {"dtype": torch.int64}, (LABELS,)),
        Operator("aten::nll_loss_backward", (ONE, X, LABELS, None, 1,
                 -100, ONE), {}, (MADE,)),
    ),
    "rows beyond an embedding": (
        Operator("aten::full", ([4], HUGE), {"dtype": torch.int64}, (LABELS,)),
        Operator("aten::embedding_dense_backward", (X, LABELS, 4, -1, False), {}, (MADE,)),
    ),
    "an attribute of an operator": (Operator("aten::cat.overloads", (), {}, ()),),
    "a number for a layout in memory": (Operator("aten::empty.memory_format", ([4],), {"memory_format": 4}, (MADE,)),),
    "a number for a dtype": (Operator("aten::_to_copy", (X,), {"dtype": 99}, (MADE,)),),
    "a size that overflows": (Operator("aten::constant_pad_nd", (X, [0, 2**33]), {}, (MADE,)),),
    "a side that overflows": (Operator("aten::tril_indices", (2**33, 2**33), {}, (MADE,)),),
    "statistics of nobody": (
        Operator("aten::_native_batch_norm_legit.no_stats", (X, None, None, False, 0.1, 1e-5), {}, (MADE, MADE, MADE)),
    ),
    "a triangle that is written elsewhere": (Operator("aten::tril.out", (X,), {"out": X}, (X,)),),
    "whole numbers divided by 0": (
        Operator("aten::full", ([4], 9), {"dtype": torch.int64}, (LABELS,)),
        Operator("aten::smooth_l1_loss_backward", (LABELS, LABELS, LABELS, 0, 0.0), {}, (MADE,)),
    ),
    "bytes for truths": (relu(replace(X, dtype="torch.bool", size=(64,), stride=(1,)), MADE),),
    "memory that an operator makes larger": (
        Operator("aten::empty.memory_format", ([0],), {}, (NOTHING,)),
        Operator("aten::add.out", (X, X), {"out": NOTHING}, (MADE,)),
    ),
    "memory that nobody wrote into": (
        Operator("aten::empty.memory_format", ([0],), {}, (NOTHING,)),
        Operator("aten::empty.out", ([SIDE, SIDE],), {"out": NOTHING}, (MADE,)),
    ),
    "memory that adds up": tuple(
        Operator("aten::zeros", ([2**26],), {}, (Ref(n, "torch.float32", (2**26,), (1,), 0),)) for n in range(3, 20)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_record_that_is_no_program_is_refused(name):
    record = Record(INPUTS, FORGED[name])
    with pytest.raises(Refused):
        replay(from_text(to_text(record)), drawn(0))


def test_strides_are_no_sizes_and_lead_no_further_than_these_may():
    made = Ref(3, "torch.float32", (2, 2), (2**14, 2**14 + 1), 0)
    near = Operator("aten::new_empty_strided", (X, [2, 2], [2**14, 2**14 + 1]), {}, (made,))
    replay(from_text(to_text(Record(INPUTS, (near, Mark("out", made))))), drawn(0))
    far = Operator("aten::new_empty_strided", (X, [9], [2**26]), {}, (made,))
    with pytest.raises(Refused, match="no forward pass"):
        replay(from_text(to_text(Record(INPUTS, (far,)))), drawn(0))


def test_what_is_forged_differs_from_a_program_in_that_alone():
    out = replay(from_text(to_text(Record(INPUTS, (ADD, Mark("out", MADE))))), drawn(0)).handed["out"]
    assert torch.equal(out, 2 * drawn(0)["x"])


@pytest.mark.parametrize(
    "inputs",
    [
        {"x": X, "y": replace(X, storage=2, stride=(2**20, 1))},
        {"x": X, "y": replace(X, storage=2, offset=9)},
        {"x": X},
        {**INPUTS, "z": X},
        {"x": X, "y": X},
        {**INPUTS, "y": replace(X, size=(16,), stride=(1,))},
    ],
)
def test_other_inputs_than_were_given_are_refused(inputs):
    with pytest.raises(Refused):
        replay(Record(inputs, (ADD,)), drawn(0))


@pytest.mark.parametrize(
    "names", [["end 1", "returned 1 Tensor"], ["returned 1 Tensor"], ["returned 1 Tensor", "end 1", "end 1"]]
)
def test_a_step_hands_out_what_it_does_in_its_order(names):
    record = Record(INPUTS, (ADD, *(Mark(name, None) for name in names)))
    with pytest.raises(Refused, match="in this order"):
        run_steps(record, drawn(0))
    assert run_steps(Record(INPUTS, (ADD, Mark("returned 1 Tensor", None), Mark("end 1", None))), drawn(0)).each


@given(st.permutations([2, 3, 4]), st.integers(0, 9), st.integers(0, 2), st.integers(1, 3))
def test_a_tensor_is_whole_if_it_shows_each_value_once(order, offset, place, times):
    tensor = torch.empty(2, 3, 4).permute([order.index(n) for n in (2, 3, 4)])
    ref = Ref(1, "torch.float32", tuple(tensor.shape), tuple(tensor.stride()), 0)
    stride = tuple(step * (times if i == place else 1) for i, step in enumerate(ref.stride))
    assert ref.whole
    assert replace(ref, offset=offset, stride=stride).whole == (offset == 0 and times == 1)


def packed(data):
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return f"{form.RECORD}{base64.b64encode(zlib.compress(text)).decode()}"


ENTRY = ["do", "aten::relu", [{"t": [1, "float32", [4, 4], [4, 1], 0]}], {}, [], None]
TEXTS = {
    "nothing": "", "no record": "can be replayed: yes", "no base64": "replay1:!!", "no zlib": "replay1:AAAA",
    "no JSON": packed(b"{"), "cut off": packed([{}, [ENTRY] * 9])[:-12], "a bomb": packed(b" " * (form.MOST_JSON + 9)),
    "deep": packed(b"[" * 100_000), "a number": packed(1), "a pair of numbers": packed([1, 2]),
    "many entries": packed([{}, [["free"]] * (form.MOST_ENTRIES + 1)]), "no kind": packed([{}, [["eval", "1"]]]),
    "no text": packed([{}, [["do", 1, [], {}, [], None]]]), "too short": packed([{}, [ENTRY[:-1]]]),
    "a negative size": packed([{"x": {"t": [1, "float32", [-4], [1], 0]}}, []]),
    "a negative offset": packed([{"x": {"t": [1, "float32", [4], [1], -1]}}, []]),
    "a fraction of a size": packed([{"x": {"t": [1, "float32", [4.5], [1], 0]}}, []]),
    "a size that is true": packed([{"x": {"t": [1, "float32", [True], [1], 0]}}, []]),
    "sizes and strides of two lengths": packed([{"x": {"t": [1, "float32", [4, 4], [1], 0]}}, []]),
    "an unknown dtype": packed([{"x": {"t": [1, "quint8", [4], [1], 0]}}, []]),
    "nine dimensions": packed([{"x": {"t": [1, "float32", [1] * 9, [1] * 9, 0]}}, []]),
    "a huge tensor": packed([{"x": {"t": [1, "float32", [2**39], [1], 0]}}, []]),
    "an unknown constant": packed([{}, [["do", "aten::relu", [{"c": "torch.ops"}], {}, [], None]]]),
    "a device": packed([{}, [["do", "aten::relu", [{"c": "cuda"}], {}, [], None]]]),
    "an object": packed([{}, [["do", "aten::relu", [{"x": 1}], {}, [], None]]]),
    "texts for a constant": packed([{}, [["constant", {"t": [1, "float32", [1], [1], 0]}, ["1"]]]]),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_no_record_is_refused(name):
    with pytest.raises(Refused):
        from_text(TEXTS[name])


@settings(deadline=None, max_examples=200)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["do", "aten::relu", "free", "mark"]),
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.sampled_from(["t", "c", "x"]), inner, max_size=2),
    max_leaves=20,
))  # fmt: skip
def test_whatever_the_text_holds_it_is_a_record_or_refused(data):
    try:
        record = from_text(packed([{}, [data]]))
    except Refused:
        return
    with pytest.raises(Refused):
        replay(record, drawn(0))


@settings(deadline=None, max_examples=60)
@given(PROGRAMS, st.data())
def test_a_record_with_one_number_changed_is_refused_or_a_program(program, data):
    """No change of a number in a record brings the replayer to fall, or to read what is not its own."""
    values = drawn(0)
    record, _ = recorded(lambda x, y: run(program, x, y), values)
    places = json.loads(zlib.decompress(base64.b64decode(to_text(record).removeprefix(form.RECORD))))

    def numbers(part, way=()):
        pairs = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for key, value in pairs:
            if type(value) is int:
                yield (*way, key)
            yield from numbers(value, (*way, key))

    *way, last = data.draw(st.sampled_from(list(numbers(places))))
    part = places
    for key in way:
        part = part[key]
    part[last] = data.draw(st.sampled_from([-1, 0, 1, 2, 3, 5, 16, 17, 2**20, 2**31, 2**39]))
    with contextlib.suppress(Refused):
        replay(from_text(packed(places)), values)
