"""Claims of lesson 09, offload to CPU memory, and the networks of Rhu et al. (2016), traced, that it is about.

Claims 28, 29, 30 and 35 concern it too: they are with lesson 03, `lessons.memory.claims`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from classroom.claims import PARTLY, RIGHT, WRONG, Finding, by_cases, claim
from course_utils import networks
from course_utils.machine.context import CONTEXT_BYTES
from course_utils.memory import StepTrace
from course_utils.techniques.capacity import spare_bytes
from course_utils.techniques.offload import Schedule
from course_utils.techniques.offload.work import FORWARD, SLOW_SPEED
from course_utils.trace import training_step
from course_utils.units import in_gb
from lessons.offload.published import NETWORKS, ROWS, Runs, sensitivity
from lessons.shared.sources import SYNCED


class TenNetworks(Mapping[str, StepTrace]):
    """The step of each network that Rhu et al. (2016) studied, by the names of `published.NETWORKS`.

    Four architectures, VGG-16 with three batches and deeper in four variants; each is traced when first asked for.
    """

    def __getitem__(self, name: str) -> StepTrace:
        """One traced step."""
        return _step(name)

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(NETWORKS)

    def __len__(self) -> int:
        """How many are traced: VGG-16 counts once."""
        return len(NETWORKS)


@lru_cache(maxsize=len(NETWORKS))
def _step(name: str) -> StepTrace:
    builder, arguments, size, _ = NETWORKS[name]
    with torch.device("meta"):
        module = getattr(networks, builder)(*arguments)
    return training_step(module, (3, size, size), 1000, name=name)


@lru_cache(maxsize=1)
def runs() -> Runs:
    """The schedules of the ten networks on the publication's card, each made when first asked for."""
    return Runs(TenNetworks())


CLAIMED = {"AlexNet": 91, "GoogLeNet": 95}  # percent


@claim(31, SYNCED, "vDNN cuts the average memory of AlexNet by 91 % and that of GoogLeNet by 95 %.")
def _average_saving() -> Finding:
    published = {row.network: row.low for row in ROWS if row.quantity == "average saving, %" and row.batch}
    modelled = {name: runs().average_saving(name, 128, "all", "m") for name in published}
    abstract = ", ".join(f"{name} {percent:.0f}" for name, percent in published.items())
    model = ", ".join(f"{percent:.0f}" for percent in modelled.values())
    return Finding(
        by_cases(percent == published[name] for name, percent in CLAIMED.items()),
        f"the publication's abstract: up to {abstract} %; modelled, dense weights included: {model} %",
        "91 % is OverFeat's. Weights of dense layers never move, so with them counted no schedule comes near that for "
        "AlexNet or OverFeat. It would be explained if the publication counted the other layers alone.",
    )


CLAIMED_LOSS = 18  # percent


@claim(32, SYNCED, "VGG-16 with a batch of 256, which needs 28 GB, trains on a 12 GB card at a loss of 18 %.")
def _vgg_at_256() -> Finding:
    least = runs().get("VGG-16", 256, "all", "m").peak_bytes
    limit = runs().device.memory_bytes
    own = runs().loss("VGG-16", 256, "dyn")
    spanned = sensitivity(TenNetworks())["dyn"]
    inside = spanned.min() <= CLAIMED_LOSS <= spanned.max()
    beside_context = spare_bytes(limit, least) >= 0
    return Finding(
        WRONG if spare_bytes(limit, least, context_bytes=0) < 0 else RIGHT if inside and beside_context else PARTLY,
        f"counted as in 2016, with everything moved: {in_gb(least):.2f} of {in_gb(limit):.2f} GB, and a driver's "
        f"context takes {in_gb(CONTEXT_BYTES):.2f}; vDNN's dynamic policy loses {own:.0f} % in the model, "
        f"{spanned.min():.0f} to {spanned.max():.0f} % as kernels' speed and the link vary",
        "The tensors alone fit, by less than a context of today. The loss is against an imaginary card that holds it "
        "all; how large it is depends on how fast one takes the kernels to be.",
    )


# Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), F(2×2, 3×3).
_INPUT = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
_KERNEL = [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]
_OUTPUT = [[1, 1, 1, 0], [0, 1, -1, -1]]


def winograd(maps: Tensor, weight: Tensor) -> tuple[Tensor, int, int]:
    """A 3×3 convolution with padding 1 by Winograd's algorithm, which keeps transformed tiles to multiply less.

    Args:
        maps: (batch, channels, height, width), height and width even.
        weight: (out channels, channels, 3, 3).

    Returns:
        The output (batch, out channels, height, width), the multiplications of its products, and the values of
        workspace: the transformed tiles of the input.
    """
    to_input, to_kernel, to_output = (torch.tensor(m, dtype=maps.dtype) for m in (_INPUT, _KERNEL, _OUTPUT))
    tiles = F.pad(maps, (1, 1, 1, 1)).unfold(2, 4, 2).unfold(3, 4, 2)  # 4 × 4, overlapping by 2
    tiles = torch.einsum("ij,nctujl,ml->nctuim", to_input, tiles, to_input)
    kernels = torch.einsum("ij,kcjl,ml->kcim", to_kernel, weight, to_kernel)
    products = torch.einsum("kcim,nctuim->nktuim", kernels, tiles)
    out = torch.einsum("ij,nktujl,ml->nktuim", to_output, products, to_output)
    multiplications = tiles.numel() * weight.shape[0]
    return (
        out.permute(0, 1, 2, 4, 3, 5).reshape(len(maps), len(weight), *maps.shape[2:]),
        multiplications,
        tiles.numel(),
    )


def winograd_costs(out: int) -> tuple[float, float]:
    """(times fewer multiplications than directly, workspace in times the input) of Winograd's F(out × out, 3 × 3).

    A tile of (out + 2)² inputs gives out² outputs with one multiplication for each of its values (Lavin and Gray,
    2015, section 4).
    """
    tile = (out + 2) ** 2
    return 9 * out**2 / tile, tile / out**2


@claim(33, SYNCED, "The more workspace a convolution may use, the faster it runs.")
def _workspace_buys_time() -> Finding:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(2, 8, 16, 16, dtype=torch.float64, generator=generator)
    weight = torch.randn(8, 8, 3, 3, dtype=torch.float64, generator=generator)
    direct = F.conv2d(maps, weight, padding=1)
    out, multiplications, workspace = winograd(maps, weight)
    fewer, held = 9 * weight.shape[1] * direct.numel() / multiplications, workspace / maps.numel()
    small, large = winograd_costs(2), winograd_costs(4)
    faster = torch.allclose(out, direct, atol=1e-12) and small == (fewer, held) and fewer > 1
    more_for_less = large[0] > small[0] and large[1] < small[1]
    return Finding(
        WRONG if not faster else PARTLY if more_for_less else RIGHT,
        f"a 3×3 convolution by Winograd's algorithm, with equal results: tiles of 2 × 2 need 1/{fewer:.2f} of the "
        f"multiplications and hold {held:.0f} times the input; tiles of 4 × 4 need 1/{large[0]:.0f} and hold "
        f"{large[1]:.2f} times the input. VGG-A on a Titan X ran {1 / SLOW_SPEED:.1f} times as fast with such "
        "algorithms (convnet-benchmarks, 2016)",
        "Some workspace buys arithmetic; more of it does not always buy more.",
    )


def waits_for_last_reader(schedule: Schedule) -> np.ndarray:
    """(moved,) seconds from the first layer that reads a moved map to the last, beside which its copy may begin."""
    work = schedule.work
    kernel, tensor, wrote = work.uses.T
    written = {(int(k), int(t)) for k, t, w in work.uses if w}
    forward = (work.phase[kernel] == FORWARD) & (wrote == 0)
    first: dict[int, int] = {}
    for k, t in zip(kernel[forward].tolist(), tensor[forward].tolist(), strict=True):
        if (k, t) not in written:  # an activation in place belongs to the layer before it
            first.setdefault(t, k)
    moved = [t for t in np.flatnonzero(schedule.moved).tolist() if t in first]
    return np.array([schedule.begins[work.leaves[t]] - schedule.begins[first[t]] for t in moved])


@claim(34, SYNCED, "In a network with branches offloading has to wait: a map leaves with the last layer that reads it.")
def _last_consumer() -> Finding:
    waits = {name: waits_for_last_reader(runs().get(name, 128, "all")) for name in ("VGG-16", "GoogLeNet")}
    late = {name: wait[wait > 0] for name, wait in waits.items()}
    mean = 1e3 * late["GoogLeNet"].mean() if len(late["GoogLeNet"]) else 0.0
    return Finding(
        RIGHT if len(late["GoogLeNet"]) and not len(late["VGG-16"]) else WRONG,
        f"GoogLeNet, batch 128, Titan X: {len(late['GoogLeNet'])} of {len(waits['GoogLeNet'])} moved maps have later "
        f"readers and wait for them, {mean:.1f} ms on average; VGG-16: {len(late['VGG-16'])} of {len(waits['VGG-16'])}",
        "Not a fault but a rule: a map that left with its first reader would be missing for the next.",
    )
