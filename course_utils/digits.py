"""Small real training on real data: scikit-learn's 1,797 handwritten digits, 8 × 8 pixels, bundled with the package.

Seeded and full-batch, a second or less each on two cores. Must never import matplotlib or ipywidgets.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from course_utils.networks import mlp

CLASSES = 10


@lru_cache(maxsize=1)
def load() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(training pictures, labels, test pictures, labels): (1297, 64), (1297,), (500, 64), (500,), values 0 to 1."""
    pictures, labels = load_digits(return_X_y=True)
    x = torch.tensor(pictures, dtype=torch.float32) / 16
    y = torch.tensor(labels, dtype=torch.int64)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    return x[500:], y[500:], x[:500], y[:500]


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int = 100, rate: float = 0.01) -> None:
    """Full-batch Adam, in place."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of right answers, 0 to 1."""
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())


def _seeded(sizes: tuple[int, ...]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return mlp(sizes)


def gap(share: float) -> float:
    """Training accuracy minus test accuracy of a dense network (64-128-10) trained on a share of the digits."""
    x, y, test_x, test_y = load()
    count = round(share * len(x))
    model = _seeded((64, 64, CLASSES))
    train(model, x[:count], y[:count])
    return accuracy(model, x[:count], y[:count]) - accuracy(model, test_x, test_y)


def memorised(units: int) -> float:
    """Training accuracy on labels drawn at random, of a dense network with one hidden layer of `units`."""
    x = load()[0][:200]
    y = torch.randint(CLASSES, (len(x),), generator=torch.Generator().manual_seed(1))
    model = _seeded((64, units, CLASSES))
    train(model, x, y, steps=200)
    return accuracy(model, x, y)


def difference_of_halves() -> float:
    """Largest difference between the gradient of a batch of 256 and the mean of the gradients of its two halves."""
    x, y = load()[0][:256], load()[1][:256]
    model = _seeded((64, 64, CLASSES))

    def gradient(rows: slice) -> list[Tensor]:
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        return list(torch.autograd.grad(loss, list(model.parameters())))

    whole, first, second = gradient(slice(0, 256)), gradient(slice(0, 128)), gradient(slice(128, 256))
    return max(float((w - (a + b) / 2).abs().max()) for w, a, b in zip(whole, first, second, strict=True))
