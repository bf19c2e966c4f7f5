"""The explorer of lesson 00 on a page without a kernel: lesson 03's, with a card small enough to be in the way."""

from __future__ import annotations

from functools import partial

from classroom.explorer import Page
from lessons.memory.explorer import memory_explorer

# Begins as the lesson's cell does. All that the lesson asks: which batch fits, on this card, on one of 6 GiB, of other
# networks.
PAGE = Page(
    partial(memory_explorer, "GoogLeNet", batch=128, card_gib=8),
    {
        "network": ("GoogLeNet", "AlexNet", "VGG-16"),
        "card": ("2 GiB", "4 GiB", "6 GiB", "8 GiB"),
        "batch": (1, *range(16, 273, 16), 320, 384, 448, 512),
    },
)
