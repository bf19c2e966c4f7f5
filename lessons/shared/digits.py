"""Small real training on real data: scikit-learn's 1,797 handwritten digits, 8 × 8 pixels, bundled with the package.

What claims need (`gap`, `memorised`, `difference_of_halves`) is full-batch and takes a second or less; `compare` trains
convolutional variants side by side for the lessons on techniques.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd
import torch
from torch import Tensor, nn

from course_utils.machine.measure import autocast, measure_step
from course_utils.networks import mlp
from course_utils.trace import PRECISIONS, training_step
from course_utils.units import CourseError, require_one_of

CLASSES = 10


@lru_cache(maxsize=1)
def load() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(training images, labels, test images, labels): (1297, 64), (1297,), (500, 64), (500,), values 0 to 1."""
    from sklearn.datasets import load_digits  # takes two seconds, and most lessons train nothing

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32) / 16
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


def gap(share: float, steps: int = 100) -> float:
    """Training accuracy minus test accuracy of a dense network (64-64-10) trained on a share of the digits."""
    x, y, test_x, test_y = load()
    count = round(share * len(x))
    model = _seeded((64, 64, CLASSES))
    train(model, x[:count], y[:count], steps)
    return accuracy(model, x[:count], y[:count]) - accuracy(model, test_x, test_y)


def memorised(units: int) -> float:
    """Training accuracy on labels drawn at random, of a dense network with one hidden layer of `units`."""
    x = load()[0][:200]
    y = torch.randint(CLASSES, (len(x),), generator=torch.Generator().manual_seed(1))
    model = _seeded((64, units, CLASSES))
    train(model, x, y, steps=200)
    return accuracy(model, x, y)


def difference_of_halves() -> float:
    """Largest difference between the gradient of a batch of 256 and the mean of the gradients of its two halves.

    It is given as a share of the largest value of the whole batch's gradient.
    """
    x, y = load()[0][:256], load()[1][:256]
    model = _seeded((64, 64, CLASSES))

    def gradient(rows: slice) -> list[Tensor]:
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        return list(torch.autograd.grad(loss, list(model.parameters())))

    whole, first, second = gradient(slice(0, 256)), gradient(slice(0, 128)), gradient(slice(128, 256))
    furthest = max(float((w - (a + b) / 2).abs().max()) for w, a, b in zip(whole, first, second, strict=True))
    return furthest / max(float(w.abs().max()) for w in whole)


def images(side: int = 16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(training images, labels, test images, labels): the digits enlarged to (n, 1, side, side), values 0 to 1.

    Enlarged by bilinear interpolation: nothing is added to see, but maps take memory as those of larger images do.
    """
    x, y, test_x, test_y = load()

    def enlarge(flat: Tensor) -> Tensor:
        small = flat.view(-1, 1, 8, 8)
        if side == 8:
            return small
        return nn.functional.interpolate(small, size=(side, side), mode="bilinear", align_corners=False)

    return enlarge(x), y, enlarge(test_x), test_y


def only(classes: Sequence[int], side: int = 16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`images(side)` of some of the ten digits alone, their labels unchanged.

    Raises:
        CourseError: no image is one of them.
    """
    x, y, test_x, test_y = images(side)
    wanted = torch.tensor(sorted(set(classes)), dtype=y.dtype)
    mine, test_mine = torch.isin(y, wanted), torch.isin(test_y, wanted)
    if not mine.any() or not test_mine.any():
        raise CourseError(f"no digit is one of {list(classes)}: choose among 0 to 9")
    return x[mine], y[mine], test_x[test_mine], test_y[test_mine]


@dataclass(frozen=True)
class Variant:
    """One way to train: a network, and how it is fed.

    Attributes:
        build: makes the network, from (n, 1, side, side) to (n, 10); called once a seed, with torch seeded.
        batch: images that go through the network at once.
        accumulate: such batches whose gradients are added up before each update.
        precision: "float32", or "bfloat16"/"float16" for autocast with float32 weights, float16 with loss scaling.
        pure: without autocast and loss scaling: weights, gradients, optimizer state and images in `precision` too.
    """

    build: Callable[[], nn.Module]
    batch: int = 64
    accumulate: int = 1
    precision: str = "float32"
    pure: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and images."""
        return PRECISIONS[self.precision] if self.pure else torch.float32

    @property
    def autocast(self) -> str:
        """The precision of autocast; "float32" without it."""
        return "float32" if self.pure else self.precision


def compare(
    variants: Mapping[str, Variant],
    epochs: int = 4,
    seeds: Sequence[int] = (0, 1, 2),
    side: int = 16,
    rate: float = 3e-3,
    data: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,
) -> pd.DataFrame:
    """Train every variant on the digits, on the CPU, and tell memory, time and accuracy together.

    The variants take turns, so that whatever else the machine does hits them alike.

    Args:
        variants: name -> variant.
        epochs: times that every training image is seen.
        seeds: a training for each, of weights and order of images.
        side: of the images, in pixels.
        rate: learning rate of Adam.
        data: (training images, labels, test images, labels) of that side; by default `images(side)`, all digits.

    Returns:
        One row a variant: "traced peak" and "measured peak" (bytes of a step with Adam on the CPU, of all the
        batches that are accumulated in it), "epoch seconds" (median), "accuracy" (mean over the seeds, share of the
        test images), "lowest" and
        "highest" (over the seeds).

    Raises:
        CourseError: no variants or seeds, an unknown precision, or a batch, accumulation or epoch count below 1.
    """
    if not variants or not seeds or epochs < 1:
        raise CourseError("compare needs a variant, a seed and an epoch, at least one of each")
    for name, variant in variants.items():
        require_one_of("precision", variant.precision, PRECISIONS)
        if variant.batch < 1 or variant.accumulate < 1:
            raise CourseError(f"batch and accumulate of {name!r} must be 1 or more")
    data = images(side) if data is None else data
    shares: dict[str, list[float]] = {name: [] for name in variants}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for seed in seeds:
        for name, variant in variants.items():
            with one_thread():
                share, times = _train_variant(variant, data, epochs, seed, rate)
            shares[name].append(share)
            seconds[name] += times
    rows = []
    for name, variant in variants.items():
        shape, precision, dtype = (1, side, side), variant.autocast, variant.dtype
        with torch.device("meta"):
            module = variant.build().to(dtype)
        step = training_step(
            module, shape, CLASSES, "adam", precision, "cpu", accumulate=variant.accumulate, input_dtype=dtype,
            name=name,
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            measured = measure_step(
                variant.build().to(dtype), shape, CLASSES, variant.batch, "adam", "cpu", precision=precision,
                accumulate=variant.accumulate, input_dtype=dtype,
            )  # fmt: skip
        own = pd.Series(shares[name])
        rows.append(
            {
                "variant": name,
                "traced peak": step.at(variant.batch).peak_bytes,
                "measured peak": measured.peak_bytes,
                "epoch seconds": pd.Series(seconds[name]).median(),
                "accuracy": own.mean(),
                "lowest": own.min(),
                "highest": own.max(),
            }
        )
    return pd.DataFrame(rows).set_index("variant")


@contextmanager
def one_thread() -> Iterator[None]:
    """Networks as small as these gain nothing from a second thread, and on a busy machine two wait for each other.

    It also makes the sums, and so the accuracies, independent of how many cores there are.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def learned(
    build: Callable[[], nn.Module],
    epochs: Sequence[int],
    seed: int = 0,
    side: int = 16,
) -> list[float]:
    """Share of the test images that are right after each of these numbers of epochs.

    One training as `compare` does it: batches of 64, Adam at 3e-3, one thread.

    Raises:
        CourseError: the epochs are not whole numbers of 1 or more that rise.
    """
    if not epochs or list(epochs) != sorted({int(epoch) for epoch in epochs}) or epochs[0] < 1:
        raise CourseError(f"epochs must be whole numbers of 1 or more that rise, such as [3, 30], got {list(epochs)}")
    data, found = images(side), list[float]()

    def look(epoch: int, model: nn.Module) -> None:
        if epoch in epochs:
            found.append(accuracy(model, *data[2:]))

    with one_thread():
        _train_variant(Variant(build), data, epochs[-1], seed, 3e-3, look)
    return found


def _train_variant(
    variant: Variant,
    data: tuple[Tensor, Tensor, Tensor, Tensor],
    epochs: int,
    seed: int,
    rate: float,
    look: Callable[[int, nn.Module], None] = lambda _epoch, _model: None,
) -> tuple[float, list[float]]:
    """(share of test images that are right, seconds of each epoch). Torch's own random state is left as it was.

    `look` is called with the network after each epoch; it must draw nothing at random and change nothing.
    """
    x, y, test_x, test_y = data
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = variant.build().to(variant.dtype)
        x = x.to(variant.dtype)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        scaler = torch.amp.GradScaler("cpu", enabled=variant.autocast == "float16")
        times = []
        for epoch in range(1, epochs + 1):
            order = torch.randperm(len(x))
            started = time.perf_counter()
            # Whole updates only: the few images that would make a smaller one are left for the next epoch's order.
            for update in order[: len(x) - len(x) % (variant.batch * variant.accumulate)].view(
                -1, variant.accumulate, variant.batch
            ):
                for rows in update:
                    with autocast("cpu", variant.autocast):
                        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
                    scaler.scale(loss / variant.accumulate).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
            times.append(time.perf_counter() - started)
            look(epoch, model)
        model.eval()
        return accuracy(model.float(), test_x, test_y), times
