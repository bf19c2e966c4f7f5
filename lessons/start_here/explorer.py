"""The explorer of lesson 00 on a page without a kernel: lesson 03's, with a card small enough to be in the way."""

from __future__ import annotations

from functools import partial

from classroom.explorer import Page
from lessons.memory.explorer import memory_explorer

# All that the lesson asks: which batch fits. And where else it could be asked.
PAGE = Page(
    partial(memory_explorer, "AlexNet", batch=256, card_gib=2),
    {
        "network": ("AlexNet", "VGG-16"),
        "card": ("2 GiB", "4 GiB", "6 GiB", "8 GiB"),
        "batch": (1, 16, 32, 64, 96, 128, 160, 192, 224, 240, 256, 288, 320, 384, 448, 512),
    },
)
