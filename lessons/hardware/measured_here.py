"""Times of one thread of this machine: JPEGs decoded, training steps.

Each is the best of many by the thread's own clock, which stands still while other programs run.
"""

from __future__ import annotations

import io
import random
import sys
import time
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

clock = time.perf_counter if sys.platform == "win32" else time.thread_time  # there its ticks are of 16 ms
SIDE = 224
WIDTH, HEIGHT = 500, 375
MEAN, DEVIATION = torch.tensor([124.0, 116.0, 104.0]).view(3, 1, 1), torch.tensor([58.0, 57.0, 57.0]).view(3, 1, 1)


def photograph() -> bytes:
    """A JPEG of 500 x 375 pixels that compresses as a photograph does: soft colours and a grain."""
    drawn = np.random.default_rng(0)
    soft = Image.fromarray(drawn.integers(0, 256, (24, 32, 3), dtype=np.uint8))
    pixels = np.asarray(soft.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), dtype=np.float32)
    grainy = (pixels + drawn.normal(0, 20, (HEIGHT, WIDTH, 1))).clip(0, 255).astype(np.uint8)
    stored = io.BytesIO()
    Image.fromarray(grainy).save(stored, "JPEG", quality=90)
    return stored.getvalue()


def as_input(jpeg: bytes) -> Tensor:
    """Decoded, a random part of it enlarged or shrunk to 224 x 224, flipped or not, normalized."""
    image = Image.open(io.BytesIO(jpeg)).convert("RGB")
    width, height = random.randint(SIDE // 2, image.width), random.randint(SIDE // 2, image.height)
    left, top = random.randint(0, image.width - width), random.randint(0, image.height - height)
    image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return (torch.from_numpy(np.array(image)).permute(2, 0, 1).float() - MEAN) / DEVIATION


def decoded_a_second(runs: int = 150, images: int = 4) -> float:
    """Images in a second of one thread: the best of so many runs of so many images."""
    jpeg, best, threads = photograph(), float("inf"), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(runs):
            started = clock()
            for _ in range(images):
                as_input(jpeg)
            best = min(best, clock() - started)
    finally:
        torch.set_num_threads(threads)
    return images / best


def best_steps(networks: Sequence[nn.Module], x: Tensor, y: Tensor, rounds: int = 400) -> list[float]:
    """Seconds of each network's fastest training step with Adam on a batch; they take turns. Changes their weights.

    Where torch has one thread: of others the clock knows nothing.
    """
    optimizers = [torch.optim.Adam(one.parameters(), lr=1e-4) for one in networks]
    best = [float("inf")] * len(networks)
    for _ in range(rounds):
        for i, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
            started = clock()
            nn.functional.cross_entropy(network(x), y).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            best[i] = min(best[i], clock() - started)
    return best
