"""What a trace refuses: one line each, naming the layer where there is one, and the cause."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from small_nets import Net, chain
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

from course_utils import networks
from course_utils.trace import LeakError, TraceError, training_step
from course_utils.trace.runs import STEPS
from course_utils.units import CourseError

# -- what is refused ---------------------------------------------------------------------------------------------------


@torch.library.custom_op("course_tests::without_meta_kernel", mutates_args=())
def without_meta_kernel(x: Tensor) -> Tensor:
    """An operator that says nothing of the shape it returns."""
    return x.clone()


class FailsBackward(torch.autograd.Function):
    """A layer whose author left the backward pass for later."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise ValueError("not written yet\nsecond line")


def grows(net: Any, x: Tensor) -> Tensor:
    net.__dict__.setdefault("all", []).append(net.a(x).detach())
    return chain(net, x)


def generator_inside() -> nn.Module:
    """It has a tensor among its own."""
    net = Net(chain)
    table = torch.ones(3)
    net.numbers = (table[i] for i in range(3))
    return net


class Wrapped(Tensor):
    """A weight of eight bits that says it has 32."""

    @staticmethod
    def __new__(cls, values: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(cls, values.shape, dtype=torch.float32)

    def __init__(self, values: Tensor) -> None:
        self.values = values

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(one.values.float() if isinstance(one, cls) else one for one in args), **kwargs or {})


class HoldsOne(Net):
    """A tensor as an attribute, made by a function of the network."""

    def __init__(self, make: Callable[[Any], Tensor], run: Callable[[Any, Tensor], Any] = chain) -> None:
        super().__init__(run)
        self.one = make(self)


class KeepsGradients(torch.optim.SGD):
    """Last step's gradients are its state."""

    def step(self, closure: Any = None) -> None:
        super().step()
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["last"] = parameter.grad


class Unscaled(torch.optim.SGD):
    """The update of a loop with a GradScaler."""

    def step(self, closure: Any = None) -> None:
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(1))
        scaler.unscale_(self)
        super().step()
        scaler.update()


def bent(net: Any, x: Tensor) -> Tensor:
    q = net.a(x).view(-1, 1, 1, 16)
    mixed: Tensor = flex_attention(q, q, q)
    return chain(net, x) + mixed.sum()


def mixing_in(constant: Tensor) -> Callable[[Any, Tensor], Tensor]:
    return lambda net, x: chain(net, x) * constant


def by_item(net: Any, x: Tensor) -> Tensor:
    return chain(net, x) * x.sum().item()


def by_mask(net: Any, x: Tensor) -> Tensor:
    return chain(net, x) + x[x > 0].sum()


def by_numpy(net: Any, x: Tensor) -> Tensor:
    return chain(net, x) + float(x.detach().numpy().sum())


def by_sign(net: Any, x: Tensor) -> Tensor:
    return chain(net, x) if x.sum() > 0 else -chain(net, x)


def packed(net: Any, x: Tensor) -> Tensor:
    rows = nn.utils.rnn.pack_padded_sequence(x, [2] * len(x), batch_first=True)
    out: Tensor = net.c(net.a(rows.data))
    return out


def jagged(net: Any, x: Tensor) -> Tensor:
    nested = torch.nested.nested_tensor_from_jagged(net.a(x), torch.arange(len(x) + 1))
    out: Tensor = net.c(nested.values())
    return out


def ctc(out: Tensor, y: Tensor) -> Tensor:
    return F.ctc_loss(out[None].log_softmax(-1), y[:, None], (1,) * len(out), (1,) * len(out))


plain = partial(Net, chain)
VALUES = "it depends on the values of its data, and a trace has only shapes"
FORWARD_OF_NET = r"^Net \(Net\) fails in the forward pass on input_shape=\(8,\): "
# name -> builder, positional arguments, options, what the message must match
REFUSED: dict[str, tuple[Callable[[], Any], tuple[Any, ...], dict[str, Any], str]] = {
    "layers that do not fit": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(17, 5)),
        ((8,),),
        {},
        r"^2 \(Linear\) fails in the forward pass on input_shape=\(8,\): .*\[2, 16\] X \[17, 5\]",
    ),
    "wrong channels": (
        networks.alexnet,
        ((1, 224, 224),),
        {},
        r"^conv1 \(Conv2d\) fails in the forward pass on input_shape=\(1, 224, 224\): .*channel",
    ),
    "too small a picture": (
        networks.alexnet,
        ((3, 20, 20),),
        {},
        r"^pool2 \(MaxPool2d\) fails .* Output size is too small",
    ),
    "the batch in the shape": (plain, ((4, 9),), {}, r"^a \(Linear\) fails .*input_shape=\(4, 9\)"),
    "unknown optimizer": (
        plain,
        ((8,),),
        {"optimizer": "rmsprop"},
        "^unknown optimizer 'rmsprop': choose one of sgd, momentum, adam, adamw, None$",
    ),
    "unknown precision": (
        plain,
        ((8,),),
        {"precision": "int8"},
        "^unknown precision 'int8': choose one of float32, bfloat16, float16$",
    ),
    "unknown target": (plain, ((8,),), {"target": "tpu"}, "^unknown target 'tpu': choose one of cuda, cpu$"),
    "no parameters": (nn.ReLU, ((8,),), {}, "^ReLU has no trainable parameters, so there is nothing to train$"),
    "all frozen": (lambda: plain().requires_grad_(False), ((8,),), {}, "^Net has no trainable parameters"),
    "no module": (lambda: chain, ((8,),), {}, "^module must be an nn.Module, got function$"),
    "a list as shape": (plain, ([8],), {}, r"^input_shape must be a tuple of whole numbers .* got \[8\]$"),
    "an empty dimension": (plain, ((0,),), {}, r"^input_shape must be a tuple .* got \(0,\)$"),
    "other classes": (plain, ((8,), 10), {}, r"^Net returns shape \(batch, 5\), but classes=10$"),
    "a tuple returned": (
        partial(Net, lambda net, x: (chain(net, x), 1)),
        ((8,),),
        {},
        r"^Net must return one tensor, got tuple: pick what to train on with criterion=lambda out, y: \.\.\.$",
    ),
    "no meta kernel": (
        partial(Net, lambda net, x: chain(net, without_meta_kernel(x))),
        ((8,),),
        {},
        FORWARD_OF_NET + "operator course_tests::without_meta_kernel has no meta kernel",
    ),
    "item()": (partial(Net, by_item), ((8,),), {}, FORWARD_OF_NET + VALUES),
    "item() under autocast": (
        partial(Net, by_item),
        ((8,),),
        {"precision": "bfloat16"},
        FORWARD_OF_NET + VALUES,
    ),
    "a decision on values": (partial(Net, by_sign), ((8,),), {}, FORWARD_OF_NET + VALUES),
    "a boolean mask": (partial(Net, by_mask), ((8,),), {}, FORWARD_OF_NET + VALUES),
    "a boolean mask under autocast": (
        partial(Net, by_mask),
        ((8,),),
        {"precision": "bfloat16"},
        FORWARD_OF_NET + VALUES,
    ),
    "numpy": (partial(Net, by_numpy), ((8,),), {}, FORWARD_OF_NET + VALUES),
    "a leak": (partial(Net, grows), ((8,),), {}, r"^Net leaves more tensors behind with every step \(made in a\)"),
    "a tensor of elsewhere": (
        partial(Net, mixing_in(torch.ones(5))),
        ((8,),),
        {},
        FORWARD_OF_NET + r".* create that one with device=x\.device$",
    ),
    "shapes still open": (lambda: nn.Sequential(nn.LazyLinear(5)), ((8,),), {}, r"^0\.weight has no shape yet"),
    "no copy": (generator_inside, ((8,),), {}, "^Net cannot be copied: cannot pickle 'generator' object$"),
    "two inputs": (
        lambda: nn.Bilinear(8, 8, 5),
        ((8,),),
        {},
        r"^Bilinear \(Bilinear\) fails .* missing 1 required positional argument: 'input2'$",
    ),
    "a criterion that does not fit": (
        plain,
        ((8,),),
        {"criterion": F.mse_loss},
        r"^the criterion fails on an output of shape \(2, 5\) and y of shape \(2,\): ",
    ),
    "a loss for each sample": (
        plain,
        ((8,),),
        {"criterion": partial(F.cross_entropy, reduction="none")},
        "^Net: the criterion must return one number that depends on parameters$",
    ),
    "a loss of nothing": (
        plain,
        ((8,),),
        {"criterion": lambda out, y: F.cross_entropy(out.detach(), y)},
        "^Net: the criterion must return one number that depends on parameters$",
    ),
    "a backward that fails": (
        partial(Net, lambda net, x: net.c(FailsBackward.apply(net.a(x)))),
        ((8,),),
        {},
        r"^Net \(Net\) fails in the backward pass .*: not written yet$",
    ),
    "overwritten in place": (
        partial(Net, lambda net, x: net.c(torch.sigmoid(net.a(x)).mul_(2))),
        ((8,),),
        {},
        "^Net .* fails in the backward pass .* modified by an inplace operation",
    ),
    "compiled by torch.jit": (
        lambda: nn.Sequential(nn.Linear(8, 8), torch.jit.script(nn.Linear(8, 5))),
        ((8,),),
        {},
        "^1 is compiled by torch.jit, whose operators nothing can watch: trace the module that it was made from$",
    ),
    "compiled as a whole": (
        lambda: torch.jit.trace(nn.Linear(8, 5), torch.ones(1, 8)),
        ((8,),),
        {"target": "cpu"},
        "is compiled by torch.jit",
    ),
    "sparse gradients": (
        lambda: nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(24, 5)),
        ((3,),),
        {"input_dtype": torch.int64},
        "sparse tensors, whose storages cannot be followed: build an embedding with sparse=False",
    ),
    "a sparse tensor": (
        partial(HoldsOne, lambda net: torch.eye(5).to_sparse(), lambda net, x: chain(net, x) @ net.one),
        ((8,),),
        {},
        r"^HoldsOne cannot be copied: a tensor of shape \(5, 5\) is sparse, .* trace the step with a plain tensor",
    ),
    "a sparse tensor of a loss": (
        plain,
        ((8,),),
        {"criterion": partial(lambda graph, out, y: F.cross_entropy(out @ graph, y), torch.eye(5).to_sparse_csr())},
        r"^Net cannot be copied: a tensor of shape \(5, 5\) is sparse",
    ),
    "a quantized tensor": (
        partial(HoldsOne, lambda net: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)),
        ((8,),),
        {"target": "cpu"},
        r"^HoldsOne cannot be copied: a tensor of shape \(4,\) is quantized",
    ),
    "a tensor that holds another": (
        partial(HoldsOne, lambda net: Wrapped(torch.ones(16, 8, dtype=torch.int8))),
        ((8,),),
        {},
        r"^HoldsOne cannot be copied: a tensor of shape \(16, 8\) is a Wrapped, which holds others",
    ),
    "a weight's transpose, made before": (
        partial(HoldsOne, lambda net: net.a.weight.t(), lambda net, x: chain(net, x @ net.one @ net.one.t())),
        ((8,),),
        {},
        r"^HoldsOne .* a tensor was computed before the step \(TBackward0\): compute it in the forward pass$",
    ),
    "flex_attention": (
        partial(Net, bent),
        ((8,),),
        {},
        FORWARD_OF_NET + "flex_attention has kernels for a card alone",
    ),
    "an optimizer that keeps gradients": (
        plain,
        ((8,),),
        {"optimizer": partial(KeepsGradients, lr=0.1)},
        "^the optimizer keeps gradients for its next step, which nothing can follow: keep copies$",
    ),
    "a GradScaler": (
        plain,
        ((8,),),
        {"optimizer": partial(Unscaled, lr=0.1), "precision": "float16"},
        "^the optimizer fails: its GradScaler looks at values, .*: leave it out",
    ),
    "nested tensors": (
        partial(Net, lambda net, x: chain(net, torch.nested.nested_tensor([x[0], x[1]]).to_padded_tensor(0.0))),
        ((8,),),
        {"target": "cpu"},
        FORWARD_OF_NET,
    ),
    "packed sequences": (
        partial(Net, packed),
        ((2, 8),),
        {"target": "cpu"},
        FORWARD_OF_NET.replace("8", "2, 8").replace(",\\)", "\\)")
        + "packed sequences have the lengths .* trace the padded rows$",
    ),
    "jagged tensors": (
        partial(Net, jagged),
        ((8,),),
        {},
        FORWARD_OF_NET + "nested tensors have .* pad them to one length$",
    ),
    "CTC": (
        plain,
        ((8,),),
        {"criterion": ctc},
        "^the criterion fails .*: the CTC loss looks at the lengths of its rows",
    ),
    "an optimizer that wants a closure": (
        plain,
        ((8,),),
        {"optimizer": torch.optim.LBFGS},
        "^the optimizer fails: .*closure",
    ),
    "an error without words": (
        partial(Net, lambda net, x: (_ for _ in ()).throw(RuntimeError())),
        ((8,),),
        {},
        FORWARD_OF_NET + "RuntimeError$",
    ),
    "letters as numbers": (
        lambda: nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(7 * 16, 5)),
        ((7,),),
        {},
        r"^0 \(Embedding\) fails .* torch\.float32",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line_that_names_the_cause(name: str) -> None:
    build, args, options, message = REFUSED[name]
    with pytest.raises(TraceError, match=message) as caught:
        training_step(build(), *args, **options)
    assert isinstance(caught.value, CourseError)
    assert "\n" not in str(caught.value)
    assert torch.get_default_device().type == "cpu"
    assert gc.isenabled()


def test_a_batch_that_the_network_cannot_take_is_refused_when_asked_for() -> None:
    step = training_step(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 5)), (8,))
    assert step.affine
    with pytest.raises(TraceError, match=r"1 \(BatchNorm1d\) fails .* Expected more than 1 value per channel"):
        step.at(1)


def test_a_store_of_fixed_length_is_traced_once_it_is_full() -> None:
    def remembering(length: int) -> Net:
        store: deque[Tensor] = deque(maxlen=length)

        def run(net: Net, x: Tensor) -> Tensor:
            store.append(net.a(x).detach().mean(0))
            return chain(net, x)

        return Net(run)

    full, empty = (training_step(remembering(length), (8,)).at(4) for length in (STEPS - 2, 0))
    assert full.total[0] - empty.total[0] == (STEPS - 2) * 16 * 4
    with pytest.raises(LeakError, match=f"or let it store {STEPS - 2} at most for the trace$"):
        training_step(remembering(STEPS - 1), (8,))
