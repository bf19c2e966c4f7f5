"""Claims of lesson 07, batch size. Those about time rest on published times, `lessons.shared.published`."""

from __future__ import annotations

from classroom.claims import PARTLY, RIGHT, SOME, WRONG, Finding, by_cases, claim
from course_utils import networks
from course_utils.units import format_bytes
from lessons.shared import digits
from lessons.shared.published import CAFFE2, published
from lessons.shared.sources import DATAGURU, SYNCED, traced

DEAR = 0.2  # more time for each sample than this, as a share, and a batch is a last resort
HALF = 0.45  # of the memory saved, and it is halved: within a tenth
# Images a card -> per cent of wrong answers, ResNet-50 on ImageNet: Wu and He, "Group Normalization" (2018).
BATCH_NORM_ERROR = {32: 23.6, 2: 34.7}
ROUNDING = 1e-6  # gradients that differ by a smaller share of the largest value differ by rounding in float32


def dearer(batch: int, than: int = 128) -> float:
    """How much more time a sample takes at one batch than at another, as a share: Inception, Titan X, Caffe2 notes."""
    times = {row.batch: row.per_sample_ms for row in published("GoogLeNet", source=CAFFE2)}
    return times[batch] / times[than] - 1


@claim(26, SYNCED, "A smaller batch may cost speed and accuracy.")
def _smaller_batch() -> Finding:
    extra, difference = dearer(16), digits.difference_of_halves()
    measured = max(difference, ROUNDING)
    (most, before), (least, after) = BATCH_NORM_ERROR.items()
    return Finding(
        by_cases((extra > 0.05, after > before)),
        f"Inception on a Titan X, batch 16: {extra:.0%} more time per image than at 128 ({CAFFE2}). ResNet-50, which "
        f"has batch norm, on ImageNet: {before} % errors with {most} images a card, {after} % with {least} (Wu and He, "
        "2018). Without batch norm no value of the gradient of two halves differs from the whole batch's by more than "
        f"{measured:.0e} of the largest value",
        "It says may, so one case of each is enough. Neither cost is certain: time can be looked up, and without batch "
        "norm the gradients of smaller pieces add up to the same update. A smaller batch for each update is another "
        "training.",
    )


@claim(79, DATAGURU, "A batch of 64 needs half the memory of a batch of 128.")
def _half_the_batch() -> Finding:
    told, saved, counted = [], [], []
    builders = {"AlexNet": networks.alexnet, "VGG-16": networks.vgg16, "ResNet-50": networks.resnet50}
    for name, builder in builders.items():
        large, small = (traced(builder).at(batch) for batch in (128, 64))
        peak, wide = (
            1 - small.peak_bytes / large.peak_bytes,
            1 - small.network_wide_bytes() / large.network_wide_bytes(),
        )
        saved.append(min(peak, wide))
        told.append(
            f"{name}: PyTorch's peak {format_bytes(large.peak_bytes)} to {format_bytes(small.peak_bytes)}, {peak:.0%} "
            "less"
        )
        counted.append(f"{wide:.0%}")
    return Finding(
        by_cases(share > HALF for share in saved),
        f"{'; '.join(told)}. As a paper of 2016 counts, every map kept and two buffers for gradients, "
        f"{', '.join(counted[:-1])} and {counted[-1]} less",
        "Half the maps. Parameters, their gradients and the optimizer's state stay. So it holds where maps are nearly "
        "all of the peak.",
        rule=f"a network's memory is halved if both counts save over {HALF:.0%}; right if each of the three is, partly "
        "right if one is",
        kind=SOME,
    )


@claim(80, DATAGURU, "Convolutions are tuned for batches of 64 and more; 32 is a last resort.")
def _at_least_64() -> Finding:
    at_64, at_32, at_16 = (dearer(batch) for batch in (64, 32, 16))
    return Finding(
        RIGHT if at_32 > DEAR else PARTLY if at_64 < at_32 else WRONG,
        f"Inception on a Titan X, time per image against batch 128 ({CAFFE2}): 64 costs {at_64:.0%} more, "
        f"32 {at_32:.0%}, 16 {at_16:.0%}",
        f"Larger is faster, with no cliff at 64 in these figures of 2017: 32 costs less than {DEAR:.0%} more.",
    )
