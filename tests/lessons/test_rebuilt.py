"""What `RebuildCheck` says of a network that was built another way, each property by itself, on a small network."""

import pytest
import torch
from torch import nn

from classroom.questions.core import Outcome, Slip
from lessons.one_by_one import checks as one_by_one
from lessons.one_by_one import graded
from lessons.pooling import checks as pooling
from lessons.shared.originals import pooled, pooled_late
from lessons.shared.rebuilt import Original, RebuildCheck, judge, record
from lessons.stride import checks as stride


def look(make, original, batch):
    return judge(record(make, original, batch), original, batch)


def build(pool=None, width=4, out=3):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), pool or nn.Identity(), nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, out),
    )  # fmt: skip


class Forward(nn.Module):
    """The network with something done to its output."""

    def __init__(self, change):
        super().__init__()
        self.inner, self.change = build(nn.MaxPool2d(2)), change

    def forward(self, x):
        return self.change(self.inner(x))


class FirstFour(Forward):
    """Right for four pictures; of a larger batch it looks at no more, and needs as little memory."""

    def forward(self, x):
        return nn.functional.pad(self.inner(x[:4]), (0, 0, 0, len(x) - 4))


def linear(pool):
    return nn.Sequential(*(layer for layer in build(pool) if not isinstance(layer, nn.ReLU)))


def in_place():
    network = build()
    network[1].inplace = network[4].inplace = True
    return network


def frozen():
    network = build(nn.MaxPool2d(2))
    network[0].requires_grad_(False)
    return network


def raising():
    raise ValueError("no such layer")


ORIGINAL = Original(build, (1, 16, 16), 3, share=0.8)
CHECK = RebuildCheck(
    "rebuilt",
    ORIGINAL,
    {"another output": Slip("five classes", lambda: build(nn.MaxPool2d(2), out=5), "Keep the classes.")},
    [Slip("unchanged", build, "Nothing was changed.")],
    "Well pooled.",
)
JUDGED = {
    "right": (lambda: build(nn.MaxPool2d(2)), Outcome.CORRECT, "Well pooled."),
    "right in another way": (lambda: build(nn.AvgPool2d(4)), Outcome.CORRECT, "Well pooled."),
    "a class": (type("Net", (Forward,), {"__init__": lambda self: Forward.__init__(self, lambda y: y)}),
                Outcome.CORRECT, "Well pooled."),
    "not attempted": (..., Outcome.NOT_ATTEMPTED, "Replace the dots in `rebuilt`"),
    "dots returned": (lambda: ..., Outcome.NOT_ATTEMPTED, "Replace the dots"),
    "dots in the network": (lambda: nn.Sequential(...), Outcome.NOT_ATTEMPTED, "Replace the dots"),
    "the network, not the function": (build(), Outcome.WRONG, "and no function"),
    "no return": (lambda: None, Outcome.WRONG, "returned a NoneType, not a network. Is there a `return`?"),
    "a list": (lambda: [build()], Outcome.WRONG, "returned a list, not a network."),
    "raises": (raising, Outcome.CRASHED, "no such layer"),
    "raises in forward": (lambda: Forward(lambda y: {}["x"]), Outcome.CRASHED, "running the network raised KeyError"),
    "misfit": (lambda: nn.Sequential(build(), nn.Linear(7, 3)), Outcome.WRONG, "Two layers do not fit each other."),
    "no tensor": (lambda: Forward(lambda y: (y, y)), Outcome.WRONG, "The network returned a tuple, not a tensor."),
    "its own slip": (lambda: build(nn.MaxPool2d(2), out=5), Outcome.WRONG, "Keep the classes. It is (24, 5) and"),
    "other kernels": (lambda: build(nn.MaxPool2d(2), width=2), Outcome.WRONG, "The parameters are not the original's."),
    "frozen": (frozen, Outcome.WRONG, "Not everything is trained any more. (Without a gradient: 0.weight, 0.bias.)"),
    "cut off": (lambda: Forward(torch.Tensor.detach), Outcome.WRONG, "Not everything is trained any more."),
    "four images alone": (lambda: FirstFour(lambda y: y), Outcome.WRONG, "Some images of the batch do not count"),
    "slip by its peak": (build, Outcome.WRONG, "Nothing was changed. It is 100 % of the original; at most 80 % is"),
    "risen": (lambda: build(nn.MaxPool2d(1)), Outcome.WRONG, "The peak has risen. It is "),
    "as high, another way": (in_place, Outcome.WRONG, "The peak is as high as it was. It is 100 %"),
    "no activation": (lambda: linear(nn.MaxPool2d(2)), Outcome.WRONG, "Keep a ReLU behind every convolution."),
    "images pooled": (lambda: nn.Sequential(nn.AvgPool2d(2), build()), Outcome.WRONG, "the images as they are"),
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGED)
def test_each_network_is_judged_by_what_it_is(name):
    answer, outcome, words = JUDGED[name]
    feedback = CHECK(answer)
    assert (feedback.question, feedback.outcome) == ("rebuilt", outcome), feedback.message
    assert words in feedback.message


def test_a_map_of_another_size_is_named_where_none_may_be():
    full = Original(build, (1, 16, 16), 3, share=1.0, full_size=True)
    assert look(lambda: build(nn.MaxPool2d(2)), full, batch=8).other_side == 8
    assert not look(build, full, batch=8).other_side


@pytest.mark.parametrize("other", [nn.Tanh, nn.GELU, nn.LeakyReLU])
def test_another_activation_is_no_relu(other):
    def pooled():
        network = build(nn.MaxPool2d(2))
        network[1] = other()
        return network

    feedback = CHECK(pooled)
    assert feedback.outcome is Outcome.WRONG
    assert "fewer ReLUs than convolutions" in feedback.message
    assert not look(pooled, ORIGINAL, 8).holds["activations kept"]


def test_a_relu_may_be_written_as_a_function():
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = build(nn.MaxPool2d(2))
            self.inner[1] = nn.Identity()
            self.first, self.rest = self.inner[0], self.inner[2:]

        def forward(self, x):
            return self.rest(self.first(x).clamp(min=0))

    assert look(Written, ORIGINAL, 8).holds["activations kept"]


def test_a_bottleneck_without_a_1_by_1_is_none():
    def narrow():
        return one_by_one._chain(((3, 16), (3, 16), (3, 16), (3, 64)))

    feedback = one_by_one.bottleneck(narrow)
    assert "Parameters of shape (1, 1): 0, where 1 are asked" in feedback.message
    assert "parameters kept: no" in graded.bottleneck.lines(narrow)


class Thrown(nn.Module):
    """The layers of `pooled` or `wide`, and something done to the maps behind the first of them."""

    def __init__(self, layers, throw):
        super().__init__()
        self.first, self.rest, self.throw = layers[0], nn.Sequential(*layers[1:]), throw

    def forward(self, x):
        return self.rest(self.throw(self.first(x)))


def without_pools(network, stride=1):
    layers = [layer for layer in network if not isinstance(layer, nn.MaxPool2d)]
    layers[0].stride = (stride, stride)
    return layers


THROWN = {
    "a corner": (stride.strided, lambda: Thrown(without_pools(pooled()), lambda x: x[..., :4, :4])),
    "every eighth place": (stride.strided, lambda: Thrown(without_pools(pooled()), lambda x: x[..., ::8, ::8])),
    "a stride of 8": (stride.strided, lambda: nn.Sequential(*without_pools(pooled(), stride=8))),
    "a row": (stride.strided, lambda: Thrown(without_pools(pooled()), lambda x: x[:, :, 0, :16].reshape(-1, 16, 4, 4))),
    "late pools, a corner": (
        pooling.pooled_well, lambda: Thrown(without_pools(pooled_late()), lambda x: x[..., :4, :4])
    ),
    "half of it doubled": (
        one_by_one.bottleneck,
        lambda: Thrown(list(one_by_one._chain(((1, 16), (3, 16), (3, 16), (3, 16), (3, 64)))),
                       lambda x: torch.cat([x[..., :16], x[..., :16]], -1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", THROWN)
def test_every_value_of_the_images_has_to_count(name):
    check, make = THROWN[name]
    feedback = check(make)
    assert feedback.outcome is Outcome.WRONG
    assert ("Something is thrown away" in feedback.message) == (name != "half of it doubled"), feedback
    assert not check.look(make).holds["every value counts"]


def test_one_row_of_a_map_is_no_map_of_its_sides():
    """A global average behind the row is what is left of its height."""
    layers = list(one_by_one._chain(((1, 16), (3, 16), (3, 16), (3, 64))))
    feedback = one_by_one.bottleneck(lambda: Thrown(layers, lambda x: x.mean(2, keepdim=True)))
    assert "The maps have become smaller" in feedback.message
