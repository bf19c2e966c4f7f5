"""Explorers: a few controls, one picture, three sentences. One module a question; `base` is what they share.

Each is one call in a notebook cell, `memory_explorer()`. A cell whose last value is an explorer is tagged
`nbval-ignore-output`: the bytes of a PNG differ between versions of matplotlib and Pillow.
"""

from course_utils.explorers.batch_size import batch_explorer
from course_utils.explorers.half_precision import half_explorer
from course_utils.explorers.hardware import hardware_explorer
from course_utils.explorers.many_gpus import cards_explorer
from course_utils.explorers.memory import memory_explorer
from course_utils.explorers.offload import offload_explorer
from course_utils.explorers.one_by_one import squeeze_explorer
from course_utils.explorers.one_card import one_card_explorer
from course_utils.explorers.plan import plan_explorer
from course_utils.explorers.pooling import pool_explorer
from course_utils.explorers.recompute import recompute_explorer
from course_utils.explorers.stride import stride_explorer
from course_utils.explorers.transformers import transformer_explorer
from course_utils.explorers.why_gpus import who_wins_explorer

__all__ = [
    "batch_explorer", "cards_explorer", "half_explorer", "hardware_explorer", "memory_explorer", "offload_explorer",
    "one_card_explorer", "plan_explorer", "pool_explorer", "recompute_explorer", "squeeze_explorer",
    "stride_explorer", "transformer_explorer", "who_wins_explorer",
]  # fmt: skip
