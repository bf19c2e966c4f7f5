"""Where the claims of the lessons were published, and the traces that several of them read."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import nn

from course_utils.memory import StepTrace
from course_utils.trace import training_step

DETTMERS = "Dettmers, Which GPU for deep learning (2014)"
SYNCED = "Zhu, Synced (2017), on Rhu et al. (2016)"
MATHWORKS = "MathWorks, All About GPUs (2020)"
EXCHANGE = "Data Science Stack Exchange, question 19220"
DATAGURU = "DataGuru Caffe course, lesson 13, after Dettmers (2016)"
HF_BLOG = "Hugging Face blog, Visualize and understand GPU memory in PyTorch (2024)"
NANOTRON = "Hugging Face space nanotron/predict_memory, discussion 1"
COOKBOOK = "EleutherAI/cookbook, calc_transformer_mem.py"
ACCELERATE = "Hugging Face Accelerate, estimate-memory"
LITGPT = "LitGPT, tutorials and config hub (2024)"
TORCHTUNE = "torchtune, README (2025)"
FLASH = "Dao-AILab/flash-attention, README"
ZERO_GRAD = "PyTorch 1.13 documentation, Optimizer.zero_grad (2022)"
# Where they are to be read; the rest has no address that we could check.
ADDRESSES = {
    DETTMERS: "https://timdettmers.wordpress.com/2014/08/14/which-gpu-for-deep-learning/",
    MATHWORKS: "https://explore.mathworks.com/All-About-GPUs",
    EXCHANGE: "https://datascience.stackexchange.com/questions/19220",
    ACCELERATE: "https://huggingface.co/docs/accelerate/usage_guides/model_size_estimator",
    TORCHTUNE: "https://github.com/pytorch/torchtune",
    FLASH: "https://github.com/Dao-AILab/flash-attention",
    ZERO_GRAD: "https://docs.pytorch.org/docs/1.13/generated/torch.optim.Optimizer.zero_grad.html",
}
# In the order of the table: five texts that have a table of their own, then pages of today and of 2022.
SOURCES = (
    DETTMERS, SYNCED, MATHWORKS, EXCHANGE, DATAGURU,
    HF_BLOG, NANOTRON, COOKBOOK, ACCELERATE, FLASH, LITGPT, TORCHTUNE, ZERO_GRAD,
)  # fmt: skip


@lru_cache(maxsize=32)
def traced(
    builder: Callable[..., nn.Module], size: int = 224, classes: int = 1000, layers: int | None = None
) -> StepTrace:
    """The training step of one of `course_utils.networks`, kept for the next claim that asks.

    Args:
        builder: of the network.
        size: side of its square images, in pixels.
        classes: it tells apart; a builder that cannot choose has 1,000.
        layers: for builders that take a depth.
    """
    with torch.device("meta"):
        module = builder(*([] if layers is None else [layers]), **({} if classes == 1000 else {"classes": classes}))
    return training_step(module, (3, size, size), classes, name=builder.__name__)
