"""Times that others measured and published, as fixtures: what a lesson shows where no GPU is at hand.

Each row names its publication; no number here is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from course_utils.units import CourseError


@dataclass(frozen=True)
class PublishedTime:
    """Milliseconds of a forward and backward pass in float32; no update, input on the device.

    Attributes:
        source: the publication.
        network: as `course_utils.networks` or the benchmarks name it.
        batch: samples in the batch.
        device: a name of the catalogue, or XEONS.
        library: what ran it.
        forward_ms: the forward pass alone; None if only the sum was published.
        both_ms: forward and backward.
    """

    source: str
    network: str
    batch: int
    device: str
    library: str
    forward_ms: float | None
    both_ms: float

    @property
    def seconds(self) -> float:
        """Forward and backward, in seconds."""
        return self.both_ms / 1e3

    @property
    def per_sample_ms(self) -> float:
        """Milliseconds of forward and backward for each sample of the batch."""
        return self.both_ms / self.batch


XEONS = "two 8-core Xeons"  # Intel Xeon E5-2630 v3, the host of cnn-benchmarks
JOHNSON = "cnn-benchmarks, 2016-17"  # jcjohnson on GitHub, README; K40 and CPU from its first revisions, totals
SOUMITH = "convnet-benchmarks, 2016"  # soumith on GitHub, README, Torch with cuDNN R4 in float32
# caffe2/python/convnet_benchmarks.py in facebookarchive/caffe2 has them: Inception, as it defines it, is GoogLeNet.
CAFFE2 = "Caffe2 notes, 2017"


def _johnson(network: str, device: str, rows: Iterable[tuple[str, float, float]]) -> list[PublishedTime]:
    return [PublishedTime(JOHNSON, network, 16, device, library, forward, both) for library, forward, both in rows]


TIMES: tuple[PublishedTime, ...] = (
    *_johnson("AlexNet, two columns", "Tesla K40", [("cuDNN 5.0", 18.32, 61.48)]),
    *_johnson("AlexNet, two columns", "Titan X (Maxwell)", [("cuDNN 4.0", 8.03, 25.94), ("cuDNN 5.1", 7.09, 21.85)]),
    *_johnson("AlexNet, two columns", "GTX 1080", [("cuDNN 5.1", 7.00, 20.74)]),
    *_johnson("AlexNet, two columns", "Titan X (Pascal)", [("cuDNN 5.1", 5.04, 14.56)]),
    *_johnson("VGG-16", XEONS, [("Torch", 3101.76, 8495.48)]),
    *_johnson("VGG-16", "Tesla K40", [("cuDNN 5.0", 265.77, 920.21)]),
    *_johnson("VGG-16", "Titan X (Maxwell)", [("cuDNN 4.0", 111.99, 338.69), ("cuDNN 5.1", 62.30, 192.78)]),
    *_johnson("VGG-16", "GTX 1080", [("cuDNN 5.1", 59.37, 182.79)]),
    *_johnson("VGG-16", "Titan X (Pascal)", [("cuDNN 5.1", 41.59, 128.62)]),
    *_johnson("GoogLeNet", "Titan X (Maxwell)", [("cuDNN 4.0", 21.04, 70.45), ("cuDNN 5.1", 19.29, 61.98)]),
    *_johnson("GoogLeNet", "GTX 1080", [("cuDNN 5.0", 16.08, 56.16)]),
    *_johnson("GoogLeNet", "Titan X (Pascal)", [("cuDNN 5.1", 12.06, 39.14)]),
    *_johnson("ResNet-50", XEONS, [("Torch", 2477.61, 6627.25)]),
    *_johnson("ResNet-50", "Tesla K40", [("cuDNN 5.0", 129.21, 449.90)]),
    *_johnson("ResNet-50", "Titan X (Maxwell)", [("cuDNN 4.0", 62.03, 178.84), ("cuDNN 5.1", 55.75, 159.62)]),
    *_johnson("ResNet-50", "GTX 1080", [("cuDNN 5.1", 50.64, 149.82)]),
    *_johnson("ResNet-50", "Titan X (Pascal)", [("cuDNN 5.1", 35.03, 103.58)]),
    *_johnson("ResNet-101", XEONS, [("Torch", 4414.91, 11306.24)]),
    *_johnson("ResNet-101", "Tesla K40", [("cuDNN 5.0", 220.92, 797.89)]),
    *_johnson("ResNet-101", "Titan X (Maxwell)", [("cuDNN 4.0", 108.96, 298.90), ("cuDNN 5.1", 87.76, 247.49)]),
    *_johnson("ResNet-101", "GTX 1080", [("cuDNN 5.1", 77.59, 225.80)]),
    *_johnson("ResNet-101", "Titan X (Pascal)", [("cuDNN 5.1", 53.38, 156.44)]),
    PublishedTime(SOUMITH, "AlexNet", 128, "Titan X (Maxwell)", "cuDNN 4.0", 27, 80),
    PublishedTime(SOUMITH, "OverFeat", 128, "Titan X (Maxwell)", "cuDNN 4.0", 94, 268),
    PublishedTime(SOUMITH, "VGG-A", 64, "Titan X (Maxwell)", "cuDNN 4.0", 162, 528),
    PublishedTime(SOUMITH, "GoogLeNet", 128, "Titan X (Maxwell)", "cuDNN 4.0", 130, 470),
    *(
        PublishedTime(CAFFE2, "GoogLeNet", batch, "Titan X (Maxwell)", "cuDNN", None, both)
        for batch, both in ((16, 72.7), (32, 127.5), (64, 233.6), (128, 450.6))
    ),
)

# The other networks that the same README times on the Xeons: apart from TIMES, whose networks `benchmarks/speed.py`
# predicts. The GTX 1080's 8 GB do not hold ResNet-200's 16 images.
OTHER_TIMES: tuple[PublishedTime, ...] = (
    *_johnson("VGG-19", XEONS, [("Torch", 3609.78, 9849.23)]),
    *_johnson("VGG-19", "Tesla K40", [("cuDNN 5.0", 325.18, 1129.65)]),
    *_johnson("VGG-19", "Titan X (Maxwell)", [("cuDNN 4.0", 139.01, 418.22), ("cuDNN 5.1", 73.66, 225.14)]),
    *_johnson("VGG-19", "GTX 1080", [("cuDNN 5.1", 68.95, 210.39)]),
    *_johnson("VGG-19", "Titan X (Pascal)", [("cuDNN 5.1", 48.09, 147.32)]),
    *_johnson("ResNet-18", XEONS, [("Torch", 847.46, 2195.78)]),
    *_johnson("ResNet-18", "Tesla K40", [("cuDNN 5.0", 51.07, 168.30)]),
    *_johnson("ResNet-18", "Titan X (Maxwell)", [("cuDNN 4.0", 21.54, 63.80), ("cuDNN 5.1", 16.87, 51.42)]),
    *_johnson("ResNet-18", "GTX 1080", [("cuDNN 5.1", 14.62, 43.94)]),
    *_johnson("ResNet-18", "Titan X (Pascal)", [("cuDNN 5.1", 10.14, 31.54)]),
    *_johnson("ResNet-34", XEONS, [("Torch", 1530.01, 3965.21)]),
    *_johnson("ResNet-34", "Tesla K40", [("cuDNN 5.0", 95.11, 303.80)]),
    *_johnson("ResNet-34", "Titan X (Maxwell)", [("cuDNN 4.0", 40.12, 116.11), ("cuDNN 5.1", 27.33, 80.23)]),
    *_johnson("ResNet-34", "GTX 1080", [("cuDNN 5.1", 24.50, 72.09)]),
    *_johnson("ResNet-34", "Titan X (Pascal)", [("cuDNN 5.1", 17.01, 51.59)]),
    *_johnson("ResNet-152", XEONS, [("Torch", 6572.17, 16872.78)]),
    *_johnson("ResNet-152", "Tesla K40", [("cuDNN 5.0", 319.80, 1146.73)]),
    *_johnson("ResNet-152", "Titan X (Maxwell)", [("cuDNN 4.0", 150.90, 419.54), ("cuDNN 5.1", 124.04, 345.45)]),
    *_johnson("ResNet-152", "GTX 1080", [("cuDNN 5.1", 109.32, 314.30)]),
    *_johnson("ResNet-152", "Titan X (Pascal)", [("cuDNN 5.1", 75.45, 217.91)]),
    *_johnson("ResNet-200", XEONS, [("Torch", 8666.43, 22425.16)]),
    *_johnson("ResNet-200", "Tesla K40", [("cuDNN 5.0", 428.03, 1485.24)]),
    *_johnson("ResNet-200", "Titan X (Maxwell)", [("cuDNN 4.0", 203.52, 559.87), ("cuDNN 5.1", 169.62, 553.42)]),
    *_johnson("ResNet-200", "Titan X (Pascal)", [("cuDNN 5.1", 104.74, 296.51)]),
)

# Both cards with the same libraries, in one month on one machine: the README at 0367b1f (July 2016); later ones leave
# the K40 out. Forward and backward, 16 images, ms: K40, Titan X (Maxwell). AlexNet is there with cuDNN alone.
CUDNN, OWN_KERNELS = "cuDNN", "Torch's own kernels"
ON_BOTH: dict[str, dict[str, tuple[float, float]]] = {
    CUDNN: {
        "AlexNet": (61.48, 23.71),
        "VGG-16": (920.21, 262.42),
        "VGG-19": (1129.65, 323.40),
        "ResNet-18": (168.30, 53.84),
        "ResNet-34": (303.80, 91.94),
        "ResNet-50": (449.90, 171.02),
        "ResNet-101": (797.89, 260.12),
        "ResNet-152": (1146.73, 366.97),
        "ResNet-200": (1485.24, 493.82),
    },
    OWN_KERNELS: {
        "VGG-16": (1231.01, 587.97),
        "VGG-19": (1475.02, 709.88),
        "ResNet-18": (308.91, 150.76),
        "ResNet-34": (571.37, 274.69),
        "ResNet-50": (769.79, 382.36),
        "ResNet-101": (1373.07, 662.42),
        "ResNet-152": (1982.23, 959.42),
        "ResNet-200": (2578.20, 1298.65),
    },
}


@dataclass(frozen=True)
class PublishedHalves:
    """Training in float32 and in halves, timed by others: forward and backward, an image.

    Attributes:
        source: the publication, and what ran there.
        network: as `course_utils.networks` names it.
        batch: images in the batch.
        device: as published; of the catalogue but for the GTX 1080 Ti and RTX 2080 Ti.
        full_ms: milliseconds an image in float32, or in `full`.
        half_ms: milliseconds an image in halves.
        full: the arithmetic of the other row.
    """

    source: str
    network: str
    batch: int
    device: str
    full_ms: float
    half_ms: float
    full: str = "float32"

    @property
    def times(self) -> float:
        """How many times as fast halves were."""
        return self.full_ms / self.half_ms


SAKO = "deep-learning-benchmark, 2017-19"  # u39kun on GitHub, README at 1e7459b: everything in halves, no autocast
# NVIDIA/DeepLearningExamples on GitHub, ResNet-50 v1.5 for PyTorch, README at 291f0d0: images a second on one GPU under
# automatic mixed precision, with the memory format that tensor cores like (channels last; the other rows without); the
# V100 has 16 GB, the A100 80 GB. Batches of float32 and TF32 as in its configs.yml at 097c7ff; mixed, both have 256.
NVIDIA = "NVIDIA, DeepLearningExamples, 2021"

HALVES: tuple[PublishedHalves, ...] = (
    PublishedHalves(f"{SAKO}, PyTorch 0.3", "VGG-16", 16, "GTX 1080 Ti", 131.9 / 16, 117.6 / 16),
    PublishedHalves(f"{SAKO}, PyTorch 0.3", "VGG-16", 16, "V100", 83.5 / 16, 58.8 / 16),
    PublishedHalves(f"{SAKO}, PyTorch 1.0", "VGG-16", 16, "RTX 2080 Ti", 95.5 / 16, 68.1 / 16),
    PublishedHalves(NVIDIA, "ResNet-50", 112, "V100", 1e3 / 367, 1e3 / 1200),
    PublishedHalves(NVIDIA, "ResNet-50", 256, "A100", 1e3 / 938, 1e3 / 2470, "TF32"),
)

# Whole training steps, images a second on one GPU. lambdal/deeplearning-benchmark on GitHub, pytorch/, throughput at
# 0551cb7 and batches (here float32's) at 08d77c4: NVIDIA's code, random images, the A100 a PCIe card. The runs in
# pytorch/results/{3090_v1,4090_v1,LambdaCloud_V100_16GB_v1,LambdaCloud_A100_40GB_PCIe_v1} are of October to December
# 2022. The H100: the first SXM5 card of pytorch-train-throughput-v2-*.csv at 079f30d, of September 2024, batch as in
# scripts/config_v2/config_pytorch_80GB.sh.
# ceshine/apex_pytorch_cifar_experiment on GitHub, README at 7d071a7: 10 epochs of CIFAR-10 from start to end, Wide
# ResNet 28-10, in Colab (T4) and Kaggle (P100); mixed precision is Apex's O1.
LAMBDA = "Lambda, deeplearning-benchmark, 2022"
LAMBDA_2024 = "Lambda, deeplearning-benchmark, 2024"
# The same program in June 2021, the mean of epoch 0: pytorch/results/{A4000,A5000}/PyTorch_resnet50_{FP32,AMP} at
# b177e19 and aeb58df; the batches are float32's. Another run of the A4000, two days before, differs by 0.1 %.
LAMBDA_2021 = "Lambda, deeplearning-benchmark, 2021"
LAMBDA_2020 = "Lambda, deeplearning-benchmark, 2020"
CESHINE = "Ceshine Lee, apex_pytorch_cifar_experiment, 2019"


def _minutes_of_cifar(device: str, full: float, half: float) -> PublishedHalves:
    return PublishedHalves(CESHINE, "Wide ResNet", 128, device, full * 60e3 / 500_000, half * 60e3 / 500_000)


# ResNet-50 in PyTorch on CIFAR-10, the highest of several batches ("such as 256"), images a second; "FP32" taken to be
# PyTorch's default. The image size is not named; the same page's RTX 3090 (489, 836) and 4090 (699, 1,224) are 3 to
# 8 % below Lambda's at 224 x 224. blog.youkuaiyun.com/ai_hpc_trivia/article/details/155024856.
CSDN = "ai_hpc_trivia on CSDN, 2025, CIFAR-10, image size not named"

TRAINED: tuple[PublishedHalves, ...] = (
    PublishedHalves(LAMBDA, "ResNet-50", 128, "V100", 1e3 / 369, 1e3 / 833),
    PublishedHalves(LAMBDA, "ResNet-50", 224, "RTX 3090", 1e3 / 513, 1e3 / 905, "TF32"),
    PublishedHalves(LAMBDA_2021, "ResNet-50", 152, "RTX A4000", 1e3 / 255.13, 1e3 / 455.67, "TF32"),
    PublishedHalves(LAMBDA_2021, "ResNet-50", 224, "RTX A5000", 1e3 / 405.83, 1e3 / 703.55, "TF32"),
    PublishedHalves(LAMBDA, "ResNet-50", 224, "RTX 4090", 1e3 / 721, 1e3 / 1301, "TF32"),
    PublishedHalves(LAMBDA, "ResNet-50", 360, "A100", 1e3 / 882, 1e3 / 1396, "TF32"),
    PublishedHalves(LAMBDA_2024, "ResNet-50", 640, "H100 SXM", 1e3 / 1895, 1e3 / 2791, "TF32"),
    PublishedHalves(CSDN, "ResNet-50", 256, "RTX 5090", 1e3 / 1076, 1e3 / 1822, "TF32"),
    _minutes_of_cifar("T4", 57 + 17 / 60, 31 + 14 / 60),
    _minutes_of_cifar("P100", 47 + 1 / 60, 47 + 34 / 60),
)

# Two transformers of the same throughput CSVs at 0551cb7, in float32 (or TF32) and in mixed precision, by card: BERT
# base on SQuAD in sequences a second, Transformer-XL base in tokens. The V100 there has 16 GB and 300 W. The A4000 and
# the A5000 as in LAMBDA_2021, the last line of PyTorch_{bert_base_squad,transformerxlbase}_{FP32,FP16}.
TRANSFORMERS: dict[str, dict[str, tuple[float, float]]] = {
    "BERT base": {
        "V100": (42, 189),
        "RTX A4000": (46.49, 102.10),
        "RTX A5000": (70.27, 147.07),
        "RTX 3090": (85, 172),
        "RTX 4090": (137, 297),
        "H100 SXM": (408, 812),
    },
    "Transformer-XL base": {
        "V100": (6920, 18493),
        "RTX A4000": (6253.75, 11431.17),
        "RTX A5000": (8172.88, 18810.33),
        "RTX 3090": (12101, 22863),
        "RTX 4090": (22750, 40427),
        "H100 SXM": (45697, 62259),
    },
}
# Cards that were timed more than once, ResNet-50, images a second in float32 (or TF32) and mixed: by LAMBDA; by the
# same program in March and October 2020 (pytorch-train-throughput-fp{32,16}.csv at 000bc82, where the V100 has 32 GB;
# days in results/); by CSDN; by NVIDIA, whose A100 is another product.
TIMED_AGAIN: dict[str, dict[str, tuple[float, float]]] = {
    LAMBDA: {"V100": (369, 833), "RTX 3090": (513, 905), "RTX 4090": (721, 1301), "A100": (882, 1396)},
    LAMBDA_2020: {"V100": (368, 828), "RTX 3090": (471, 796), "A100": (744, 1120)},
    CSDN: {"RTX 3090": (489, 836), "RTX 4090": (699, 1224)},
    NVIDIA: {"V100": (367, 1200), "A100 SXM, 80 GB": (938, 2470)},
}

# ResNet-50 in TensorFlow 2.0 on five cards, a T4 among them, batch 64: mixed precision "roughly results in a x2
# performance increase". iww.inria.fr/sed-sophia/gpu-benchmarks-on-nef; the figures there are pictures.
NEF, NEF_TIMES = "Inria, GPU benchmarks on Nef, 2020", 2

# A small convolutional network for handwritten digits, inference, milliseconds by batch: one Xeon E5-2650 v3 against a
# GTX 1080 Ti. "paddle_notes" (sidgoyal78 on GitHub, 2018), recognize_digits.
DIGITS_SOURCE = "paddle_notes, 2018"
DIGITS_CPU_MS = {1: 1.29664, 2: 2.30658, 8: 3.84233, 32: 10.4951, 64: 20.8305, 128: 26.2213, 256: 49.6337}
DIGITS_GPU_MS = {1: 2.66379, 2: 2.81712, 8: 2.85527, 32: 2.39371, 64: 2.39629, 128: 2.1023, 256: 2.4629}

# ResNet-50 forward in float32, average latency in milliseconds by batch: PyTorch in NVIDIA's container 21.03; the V100
# in a DGX-1, the T4's host is not named. DeepLearningExamples on GitHub at 291f0d0, resnet50v1.5/README.md of PyTorch,
# "Inference performance results".
RESNET50_MS = {
    "V100": {1: 10.37, 2: 10.24, 4: 10.46, 8: 11.5, 16: 16.07, 32: 29.37, 64: 55.4, 128: 109.26, 256: 214.48},
    "T4": {1: 10.7, 2: 11.26, 4: 12.73, 8: 22.41, 16: 39.77, 32: 77.62, 64: 152.73, 128: 309.26, 256: 635.98},
}

# Training one hidden layer of 50 units with AdamW in R's torch, 200 epochs: seconds on a CPU and by CUDA, by batch; the
# machine is not named. Documentation of brulee (tidymodels), R/training_efficiency.R at 77ae6e9.
HIDDEN_LAYER_SECONDS = {128: (90.09, 111.54), 512: (26.22, 28.61), 2048: (11.07, 8.31), 8192: (4.42, 3.57)}

# An epoch of MNIST with one hidden layer of 128 units, in seconds, NumPy's interface on a Core i9-10885H against a
# Quadro RTX 5000. "GPU overhead: why our MNIST model trains faster on CPU" (indepth.dev), which also gives a launch
# 5 to 15 µs.
MNIST_SOURCE = "indepth.dev, GPU overhead"
MNIST_EPOCH_SECONDS = {"CPU": 4.4, "GPU": 6.5}


# Dollars for an hour of one GPU, on demand, as lists of prices had them on the day. They change from week to week.
@dataclass(frozen=True)
class Rental:
    """What an hour of one GPU cost: device (of the catalogue or lesson 02), its GiB, provider, dollars, when seen."""

    device: str
    memory_gb: int
    provider: str
    usd_per_hour: float
    seen: str
    source: str


RECEIPTS = "datareceipts/data-receipts on GitHub, 109-gpu-pricing"
# carsonpo/gpus on GitHub, costs/runpod.md at 5cf8734: both tiers of one seller on one day. What they are: Secure runs
# in "data centers by our trusted partners" (docs.runpod.io, FAQ), Community on "third-party hosts renting out their own
# hardware" (vendors.json of RECEIPTS).
RUNPOD = "carsonpo/gpus on GitHub, costs/runpod.md"
# Dollars a GB and month there: of a running machine, of a stopped one, and in a volume that needs no machine.
STORAGE_USD = {"running": 0.10, "stopped": 0.20, "network": 0.07}
COMMUNITY, SECURE = "RunPod Community", "RunPod Secure"
RENTALS = (
    Rental("RTX 3090", 24, "OpenRelay", 0.18, "2026-09-20", "openrelay.inc/pricing"),
    Rental("RTX 4090", 24, "OpenRelay", 0.29, "2026-09-20", "openrelay.inc/pricing"),
    Rental("RTX A4000", 16, COMMUNITY, 0.17, "2025-07-13", RUNPOD),
    Rental("RTX A5000", 24, COMMUNITY, 0.16, "2025-07-13", RUNPOD),
    Rental("V100", 16, COMMUNITY, 0.19, "2025-07-13", RUNPOD),
    Rental("RTX 3090", 24, COMMUNITY, 0.22, "2025-07-13", RUNPOD),
    Rental("RTX 4090", 24, COMMUNITY, 0.34, "2025-07-13", RUNPOD),
    Rental("RTX 5090", 32, COMMUNITY, 0.69, "2025-07-13", RUNPOD),
    Rental("H100 SXM", 80, COMMUNITY, 2.69, "2025-07-13", RUNPOD),
    Rental("RTX A4000", 16, SECURE, 0.29, "2025-07-13", RUNPOD),
    Rental("RTX A5000", 24, SECURE, 0.26, "2025-07-13", RUNPOD),
    Rental("RTX 3090", 24, SECURE, 0.43, "2025-07-13", RUNPOD),
    Rental("RTX 4090", 24, SECURE, 0.69, "2025-07-13", RUNPOD),
    Rental("RTX 5090", 32, SECURE, 0.89, "2025-07-13", RUNPOD),
    Rental("H100 SXM", 80, SECURE, 2.99, "2025-07-13", RUNPOD),
    Rental("RTX 5090", 32, "Vast.ai, the cheapest", 0.9081, "2026-05-27", "gpu.fund"),
    Rental("A100", 40, "OpenRelay", 0.80, "2026-09-20", "openrelay.inc/pricing"),
    Rental("A100", 40, "AWS, an eighth of p4d.24xlarge", 2.7447, "2026-11-09", RECEIPTS),
    Rental("H100 SXM", 80, "OpenRelay", 2.60, "2026-09-20", "openrelay.inc/pricing"),
    Rental("H100 SXM", 80, COMMUNITY, 2.69, "2026-11-09", RECEIPTS),
    Rental("H100 SXM", 80, "AWS, an eighth of p5.48xlarge", 6.88, "2026-11-09", RECEIPTS),
    Rental("H100 SXM", 80, "Azure, an eighth of ND96isr", 12.29, "2026-11-09", RECEIPTS),
    Rental("H200 SXM", 141, "Akash, from", 4.45, "2026-09-20", "akash.network/pricing/gpus"),
    Rental("B200", 180, "Akash, from", 5.00, "2026-09-20", "akash.network/pricing/gpus"),
)


@dataclass(frozen=True)
class Lent:
    """GPUs that a service lends for nothing: device (of the catalogue), how many, hours a week, who says so, when."""

    device: str
    cards: int
    service: str
    hours_a_week: float
    seen: str
    source: str


# The hours by the first. The cards by Kaggle's own program, pull requests 1192 (the P100 is retired; who asks for one
# gets another) and 1198 ("single T4 is not supported"), both of September 2026.
FREE_GPUS = "GitHub: loganthorneloe/free-gpus; Kaggle/kaggle-cli, pull requests 1192 and 1198"
LENT = (Lent("T4", 2, "Kaggle", 30, "2026-11-23", FREE_GPUS),)
# The machine around them, as a run there wrote it down: cpu_count 2, cpu_count_logical 4, at 2 GHz, memory 31.4 GiB,
# two T4s. huggingface.co/Femboyuwu2000/working at f70ff28, wandb/run-20240408_184716-rbc2gze0/files.
KAGGLE_CORES = 2
KAGGLE_CORES_SOURCE = "a run's wandb-metadata.json, Femboyuwu2000/working on Hugging Face, 2024-04"


@dataclass(frozen=True)
class Used:
    """What people asked for a used card: device (of the catalogue or lesson 02), dollars from and to, who wrote it."""

    device: str
    low_usd: int
    high_usd: int
    seen: str
    source: str


# Guides of 2026, in the month that they name. A computer with a card of 700 cost 1,200 (local-llm.net).
USED = (
    Used("RTX 3060", 150, 180, "2026", "craftrigs.pages.dev, rtx-4060-ti-16gb-vs-rtx-3060-12gb-for-llms"),
    Used("RTX 3060", 220, 280, "2026-05", "convly.ai, rtx-4060-ti-16gb-vs-rtx-3060-12gb-for-ai"),
    Used("RTX 3060", 280, 320, "2026", "specpicks.com, best-budget-gpu-local-llm-inference-2026"),
    Used("RTX 3090", 500, 800, "2026", "local-llm.net, rtx-3090-best-value-2026"),
    Used("RTX 3090", 700, 1000, "2026-02", "insiderllm.com, rtx-4090-vs-used-rtx-3090-local-ai"),
    Used("RTX 3090", 800, 950, "2026-03", "compute-market.com, rtx-3090-vs-rtx-4090-for-ai-2026"),
    Used("RTX 3090", 500, 700, "2026-05", "bestllmfor.com, rtx-3090-still-worth-it"),
)


def published(network: str, device: str | None = None, source: str | None = None) -> list[PublishedTime]:
    """The published times of a network, on one device or by one publication if named, in the order of batch.

    Raises:
        CourseError: nobody published such a time here; the message lists the networks.
    """
    rows = [
        row for row in TIMES if row.network == network and device in (None, row.device) and source in (None, row.source)
    ]
    if not rows:
        known = ", ".join(sorted({row.network for row in TIMES}))
        raise CourseError(f"no published time of {network!r} on {device or 'any device'}; there are times of {known}")
    return sorted(rows, key=lambda row: row.batch)
