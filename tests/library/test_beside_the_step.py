"""What is there beside a step: tensors that nobody declared, what it counts in, and what only a trace would meet.

Each case once gave a wrong figure and said nothing, or changed what belongs to whoever wrote the step.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import enum
import functools
import random
import threading
import weakref
from collections import UserDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_nets import Net, chain
from test_whole_step import BATCH, plain, real, traced
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from course_utils.memory import StepTrace
from course_utils.trace import STANDING, TraceError, training_step

pytestmark = pytest.mark.usefixtures("one_thread")
momentum = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def trace(net: nn.Module, target: str = "cpu", **options: Any) -> StepTrace:
    return training_step(net, (8,), 5, options.pop("optimizer", "momentum"), target=target, **options)


def said(step: StepTrace) -> list[str]:
    return [text for text in step.assumptions if text not in STANDING]


# -- tensors that are there before ---------------------------------------------------------------------------------


class Slots:
    __slots__ = ("table",)

    def __init__(self, table: Tensor) -> None:
        self.table = table


@dataclass(frozen=True)
class Frozen:
    table: Tensor


HOLDERS: dict[str, Callable[[Tensor], Any]] = {
    "a list": lambda table: [table],
    "a tuple": lambda table: (table,),
    "a queue": lambda table: deque([table], maxlen=1),
    "an object with slots": Slots,
    "a frozen dataclass": Frozen,
    "a dictionary of another kind": lambda table: UserDict(table=table),
}


def of(holder: Any) -> Any:
    if isinstance(holder, UserDict):
        return holder["table"]
    return getattr(holder, "table", None) if not isinstance(holder, (list, tuple, deque)) else holder[0]


@pytest.mark.parametrize("name", HOLDERS)
@pytest.mark.parametrize("where", ["the network", "the forward's closure", "the loss's closure"])
def test_a_tensor_counts_whatever_holds_it(name: str, where: str) -> None:
    def build() -> tuple[nn.Module, Callable[..., Tensor], Tensor]:
        table = torch.ones(64, 16)
        held = HOLDERS[name](table)
        if where == "the loss's closure":
            return plain(), lambda out, y: F.cross_entropy(out, y) + of(held).mean(), table
        net = Net(lambda net, x: chain(net, x) + of(net.held if where == "the network" else held).mean())
        if where == "the network":
            net.held = held
        return net, F.cross_entropy, table

    net, loss, _ = build()
    step = trace(net, criterion=loss)
    net, loss, table = build()
    assert traced(step) == real(net, momentum, table, loss=loss)


TABLE = torch.ones(64, 16)


class InItsClass(Net):
    """Reads a table that all of its kind share, and one of the file."""

    own = torch.ones(32, 16)

    def __init__(self) -> None:
        super().__init__(chain)

    def forward(self, x: Tensor) -> Tensor:
        return chain(self, x) + self.own.mean() + TABLE.mean()


def test_tables_of_classes_and_files_count_where_a_step_reads_them() -> None:
    assert traced(trace(InItsClass())) == real(InItsClass(), momentum, InItsClass.own, TABLE)


def test_a_held_tensor_counts_though_no_operator_reads_it() -> None:
    def build() -> tuple[nn.Module, list[Tensor]]:
        tables = [torch.ones(64, 16) for _ in range(3)]
        queue = deque(tables)
        return Net(lambda net, x: chain(net, x) + queue[0].mean()), tables

    step = trace(build()[0])
    net, tables = build()
    assert traced(step) == real(net, momentum, *tables)


def test_a_queue_of_many_steps_fills_before_the_step_is_steady() -> None:
    def run(net: Any, x: Tensor) -> Tensor:
        hidden = F.relu(net.a(x))
        net.kept = getattr(net, "kept", None) or deque(maxlen=6)
        net.kept.append(hidden.detach() + 1)
        out: Tensor = net.c(hidden)
        return out

    assert traced(trace(Net(run))) == real(Net(run), momentum, steps=9)


def test_an_input_that_is_kept_is_there_in_the_next_step_too() -> None:
    def run(net: Any, x: Tensor) -> Tensor:
        net.before, net.now = getattr(net, "now", None), x
        return chain(net, x)

    first, kept = (traced(trace(net))[0][1] for net in (plain(), Net(run)))
    assert kept - first == BATCH * 8 * 4


class Keeping(torch.optim.SGD):
    """Keeps its last gradients in a queue."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, 0.1)
        self.before: deque[Any] = deque(maxlen=1)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.before.append(Slots(torch.cat([p.grad.flatten() for p in self.param_groups[0]["params"]])))
        super().step()


LAST: dict[str, Tensor] = {}


class InAFile(torch.optim.SGD):
    """Keeps them where the file names it."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, 0.1)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        LAST["all"] = torch.cat([p.grad.flatten() for p in self.param_groups[0]["params"]])
        super().step()


@pytest.mark.parametrize("kind", [Keeping, InAFile])
def test_state_of_an_optimizer_counts_wherever_it_is(kind: Any) -> None:
    step = trace(plain(), optimizer=kind)
    assert not LAST
    assert traced(step) == real(plain(), kind, steps=3)
    LAST.clear()


# -- what a step counts in -----------------------------------------------------------------------------------------


class Phase(enum.Enum):
    A = 1
    B = 2


class Counter:
    """Whatever decides the way of a step, of which every second one is longer."""

    __slots__ = ("turn",)

    def __init__(self) -> None:
        self.turn = False


def turns() -> dict[str, Callable[[], tuple[Any, Callable[[Any], bool]]]]:
    """Something, and a function that moves it on and says which way."""

    def by_name(held: dict[str, Any]) -> bool:
        held["phase"] = "long" if held["phase"] == "short" else "short"
        return bool(held["phase"] == "long")

    def by_member(held: dict[str, Any]) -> bool:
        held["phase"] = Phase.B if held["phase"] is Phase.A else Phase.A
        return held["phase"] is Phase.B

    def by_length(held: list[int]) -> bool:
        held.append(0)
        return len(held) % 2 == 0

    def by_turning(held: deque[int]) -> bool:
        held.rotate()
        return bool(held[0])

    def by_array(held: Any) -> bool:
        held += 1
        return bool(held[0] % 2)

    def by_slot(held: Counter) -> bool:
        held.turn = not held.turn
        return held.turn

    def by_tensor(held: Tensor) -> bool:
        held.add_(1)
        return int(held) % 2 == 0

    return {
        "a name": lambda: ({"phase": "short"}, by_name),
        "a member of an enumeration": lambda: ({"phase": Phase.A}, by_member),
        "a list's length": lambda: ([], by_length),
        "a queue that turns": lambda: (deque([0, 1]), by_turning),
        "an array": lambda: (np.zeros(1, int), by_array),
        "a slot": lambda: (Counter(), by_slot),
        "a number in a tensor": lambda: (torch.tensor(0), by_tensor),
    }


@pytest.mark.parametrize("name", turns())
def test_what_decides_a_step_is_said_and_put_back(name: str) -> None:
    held, moves = turns()[name]()
    before = copy.deepcopy(held)
    step = trace(Net(lambda net, x: chain(net, x).square() if moves(held) else chain(net, x)))

    def same(one: Any, other: Any) -> bool:
        return one.turn == other.turn if isinstance(one, Counter) else bool(one == other)

    assert same(held, before)
    assert any(": another after every step" in text for text in said(step)), said(step)


class Masks:
    """Kept in a class, which the step names and nobody makes one of."""

    kept: dict[int, Tensor] = {}  # noqa: RUF012
    asked = 0

    @classmethod
    def get(cls, rows: int) -> Tensor:
        cls.asked += 1
        if rows not in cls.kept:
            cls.kept[rows] = torch.ones(rows, 8)
        return cls.kept[rows]


class Settings(dict[str, Any]):
    """Answers for what it holds as for attributes, as many configurations do."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__  # type: ignore[assignment]


class Once:
    """Makes its mask when it is asked for it first."""

    @functools.cached_property
    def mask(self) -> Tensor:
        return torch.ones(1, 8)


@dataclass
class Progress:
    step: int = 0
    mask: Tensor | None = None


LATER = contextvars.ContextVar[Tensor]("LATER")


def of_a_class(net: Any, x: Tensor) -> Tensor:
    return x * Masks.get(len(x))


def of_settings(net: Any, x: Tensor) -> Tensor:
    net.held.step += 1
    net.held.mask = torch.ones(1, 8)
    return x * net.held.mask


def of_a_tuple(net: Any, x: Tensor) -> Tensor:
    net.held[0].append(len(net.held[0]))
    return x


def of_a_property(net: Any, x: Tensor) -> Tensor:
    return x * net.held.mask


def of_an_array(net: Any, x: Tensor) -> Tensor:
    net.held += 1
    return x


def of_its_context(net: Any, x: Tensor) -> Tensor:
    LATER.set(torch.ones(1, 8))
    return x * LATER.get()


def named_later(net: Any, x: Tensor) -> Tensor:
    global NOT_YET
    NOT_YET = torch.ones(1, 8)
    return x * NOT_YET


KEPT: dict[str, tuple[Callable[[Any, Tensor], Tensor], Callable[[], Any], bool]] = {
    "a class": (of_a_class, lambda: None, True),
    "a dataclass": (of_settings, Progress, True),
    "a configuration": (of_settings, lambda: Settings(step=0, mask=None), True),
    "a namespace": (of_settings, lambda: SimpleNamespace(step=0, mask=None), True),
    "a list in a tuple": (of_a_tuple, lambda: ([],), True),
    "a property": (of_a_property, Once, False),
    "an array": (of_an_array, lambda: np.zeros(1, int), True),
    "a context variable": (of_its_context, lambda: None, False),
    "a name that the file has not yet": (named_later, lambda: None, False),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_a_step_leaves_in_what_it_reaches_is_taken_back(name: str) -> None:
    change, make, counts = KEPT[name]

    def build() -> Any:
        net = Net(lambda net, x: chain(net, change(net, x)))
        net.held = make()
        return net

    net = build()
    step = trace(net)
    owner = net.held
    assert not Masks.kept
    assert not Masks.asked
    assert "NOT_YET" not in globals()
    assert LATER.get(None) is None
    if isinstance(owner, np.ndarray):
        assert not owner.any()
    elif isinstance(owner, tuple):
        assert owner == ([],)
    elif owner is not None:
        assert getattr(owner, "step", 0) == 0
        assert not isinstance(owner, Once) or not vars(owner)
    assert contextvars.copy_context().run(net, torch.randn(4, 8)).shape == (4, 5)
    assert bool(said(step)) == counts, said(step)
    Masks.kept, Masks.asked = {}, 0
    globals().pop("NOT_YET", None)


def test_an_attribute_of_a_function_is_put_back() -> None:
    def masked(x: Tensor) -> Tensor:
        if not hasattr(masked, "mask") or len(masked.mask) != len(x):
            masked.mask = torch.ones(len(x), 8)  # type: ignore[attr-defined]
        return x * masked.mask  # type: ignore[attr-defined]

    step = trace(Net(lambda net, x: chain(net, masked(x))))
    assert traced(step)
    assert not hasattr(masked, "mask")
    assert not said(step)


@pytest.mark.parametrize("make", [lambda: np.random.default_rng(0), lambda: random.Random(0)])
def test_an_own_generator_of_random_numbers_is_noticed_and_put_back(make: Callable[[], Any]) -> None:
    draws, untouched = make(), make()
    step = trace(Net(lambda net, x: chain(net, x).square() if draws.random() < 0.5 else chain(net, x)))
    assert draws.random() == untouched.random()
    assert any("draws random numbers in Python" in text for text in said(step))


def test_a_step_that_sows_torchs_generator_leaves_it_as_it_was() -> None:
    def sown(net: Any, x: Tensor) -> Tensor:
        torch.manual_seed(7)
        return chain(net, F.dropout(x))

    net, before = Net(sown), torch.get_rng_state()
    assert not said(trace(net))
    assert torch.equal(before, torch.get_rng_state())


def test_an_iterator_that_a_step_takes_the_next_of_is_said() -> None:
    turn = iter([False, True] * 100)
    step = trace(Net(lambda net, x: chain(net, x).square() if next(turn) else chain(net, x)))
    assert any(text.startswith("turn, an iterator") for text in said(step))


class StartsOnce(Net):
    """Sets its offset from its first batch, as flows do."""

    def __init__(self) -> None:
        super().__init__(chain)
        self.register_buffer("started", torch.tensor(0))
        self.register_buffer("offset", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        if not self.started:
            self.offset.copy_(x.detach().repeat(64, 1).mean(0))
            self.started.fill_(1)
        return chain(self, x - self.offset)


class Ring(Net):
    """Writes into a buffer where a pointer says."""

    def __init__(self) -> None:
        super().__init__(chain)
        self.register_buffer("ring", torch.zeros(16, 8192))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.a(x)
        place = int(self.place)
        self.ring[:, place : place + len(x)] = hidden.detach().T
        self.place[0] = (place + len(x)) % 4096
        out: Tensor = self.c(hidden) + self.ring.mean()
        return out


@pytest.mark.parametrize("kind", [StartsOnce, Ring])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_buffer_that_counts_goes_on_counting(kind: Any, precision: str) -> None:
    step = trace(kind(), precision=precision)
    if precision == "float32":
        assert traced(step) == real(kind(), momentum, steps=3)
    assert [text for text in said(step) if "place: another" in text] == said(step)
    assert bool(said(step)) == (kind is Ring)


def test_counts_that_nobody_looks_at_are_not_worth_a_word() -> None:
    def run(net: Any, x: Tensor) -> Tensor:
        return chain(net, net.norm(x))

    def build() -> nn.Module:
        net = Net(run)
        net.norm = nn.BatchNorm1d(8)
        return net

    step = trace(build())
    assert not said(step)
    assert traced(step) == real(build(), momentum)


def test_a_scaler_of_the_loss_is_as_it_was() -> None:
    def build() -> tuple[Any, Callable[..., Tensor]]:
        scaler = torch.amp.GradScaler("cpu")
        return scaler, lambda out, y: scaler.scale(F.cross_entropy(out, y))

    scaler, loss = build()
    step = trace(plain(), criterion=loss)
    assert traced(step) == real(plain(), momentum, loss=build()[1])
    assert scaler.scale(torch.ones(1)) == 65536


# -- what it hears, and what only a trace meets --------------------------------------------------------------------

ASKS: dict[str, Callable[[Tensor], bool]] = {
    "as text": lambda x: str(x.device).startswith("cuda"),
    "compared": lambda x: x.device != torch.device("cpu"),
    "among others": lambda x: x.device not in (torch.device("cpu"),),
    "by the type's name": lambda x: x.type().startswith("torch.cuda"),
    "of torch": lambda x: torch.cuda.is_available(),
}


@pytest.mark.parametrize("name", ASKS)
def test_however_a_step_asks_it_hears_of_its_target(name: str) -> None:
    def run(net: Any, x: Tensor) -> Tensor:
        return chain(net, x).square() if ASKS[name](x) else chain(net, x)

    assert traced(trace(Net(run), "cuda")) == traced(trace(Net(lambda net, x: chain(net, x).square()), "cuda"))
    assert traced(trace(Net(run))) == real(Net(lambda net, x: chain(net, x)), momentum)
    assert not torch.cuda.is_available() or torch.cuda.device_count()


def swallows(x: Tensor) -> bool:
    try:
        return float(x.sum()) > 0
    except RuntimeError:
        return False


def suppresses(x: Tensor) -> bool:
    with contextlib.suppress(Exception):
        return float(x.detach().numpy().sum()) > 0
    return False


@pytest.mark.parametrize("asks", [swallows, suppresses])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_error_that_only_a_trace_meets_is_not_swallowed(asks: Callable[[Tensor], bool], target: str) -> None:
    with pytest.raises(TraceError, match=r"^the step goes on after an error that only a trace meets: it depends on"):
        trace(Net(lambda net, x: chain(net, x).square() if asks(x) else chain(net, x)), target)


class AsksBackwards(torch.autograd.Function):
    """Keeps in its backward pass what a card would not need."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient.exp().sin() if gradient.is_cuda else gradient * 2


def test_the_backward_pass_hears_of_the_target_too() -> None:
    def asked(net: Any, x: Tensor) -> Tensor:
        return F.relu(net.b(x)) if x.is_cuda else net.b(x)

    def twice(net: Any, x: Tensor) -> Tensor:
        hidden = checkpoint(asked, net, AsksBackwards.apply(net.a(x)), use_reentrant=False)
        out: Tensor = net.c(hidden)
        return out

    assert traced(trace(Net(twice))) == real(Net(twice), momentum)
    assert {"exp", "sin"} <= {name for name, _ in traced(trace(Net(twice), "cuda"))}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_owners_own_parameters_are_left_alone(target: str) -> None:
    net = plain()
    reached = weakref.ref(net)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, y) + sum(p.square().sum() for p in reached().parameters())  # type: ignore[union-attr]

    with pytest.raises(TraceError, match=r"it meets a parameter of shape \(\d+, \d+\) that the trace has no copy of"):
        trace(net, target, criterion=loss)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_an_error_that_every_step_meets_is_its_own_affair() -> None:
    def run(net: Any, x: Tensor) -> Tensor:
        try:
            x = x + net.missing
        except AttributeError:
            x = x * 2
        return chain(net, x)

    step = trace(Net(run))
    assert not said(step)
    assert traced(step) == real(Net(run), momentum)


def test_what_another_thread_computes_is_refused() -> None:
    def run(net: Any, x: Tensor) -> Tensor:
        hidden: list[Tensor] = []
        worker = threading.Thread(target=lambda: hidden.append(F.relu(net.a(x))))
        worker.start()
        worker.join()
        out: Tensor = net.c(hidden[0])
        return out

    with pytest.raises(TraceError, match="was computed in another thread, where no trace sees it"):
        trace(Net(run))


HERE = torch.device("cpu")


def test_a_device_that_is_the_cpu_here_is_named_where_a_step_copies_to_it() -> None:
    step = trace(Net(lambda net, x: chain(net, x.to(HERE))), "cuda")
    assert [text for text in said(step) if text.startswith("HERE is the CPU here, and the step copies to it")]
    assert not said(trace(Net(lambda net, x: chain(net, x.to(HERE)))))


def test_a_step_may_copy_a_layer_under_autocast() -> None:
    def copies(net: Any, x: Tensor) -> Tensor:
        out: Tensor = net.c(F.relu(copy.deepcopy(net.a)(x)))
        return out

    assert trace(Net(copies), precision="bfloat16").at(BATCH).peak_bytes


@torch.compile
def compiled(x: Tensor) -> Tensor:
    return F.gelu(x)


def test_a_compiled_function_in_a_closure_is_traced_as_eager() -> None:
    step = trace(Net(lambda net, x: net.c(compiled(net.a(x)))))
    assert traced(step) == real(Net(lambda net, x: net.c(F.gelu(net.a(x)))), momentum)
    assert any(text.startswith("compiled, but traced as eager") for text in said(step))

