"""A CPU that several lessons compare cards with."""

from __future__ import annotations

from course_utils.machine.hardware import Device

# A CPU for figures that have to come out the same everywhere: the host of cnn-benchmarks, two Xeon E5-2630 v3 of 2014.
# It is no GPU and not in the catalogue; where a lesson can, it measures the learner's own instead. The arithmetic rate
# is what that host reached. Bandwidth and launch cost are assumptions: no source has either for this host.
REFERENCE_CPU = Device(
    name="two 8-core Xeons",
    year=2014,
    dies=1,
    memory_gb=64,
    bandwidth_gb_s=88.5,
    float32_tflops=0.174,
    sources="cnn-benchmarks (jcjohnson on GitHub); DeepLearningCourse (MICS-Lab on GitHub)",
    derived=(
        "float32_tflops: what it reached, VGG-16, batch 16, forward and backward in 8,495 ms; its peak is 1.2, "
        "16 cores x 32 operations x 2.4 GHz; bandwidth_gb_s: assumed, 0.75 of 2 x 59 GB/s; launch_seconds: assumed, "
        "half of the 4.42 µs that MICS-Lab measured on another CPU for two operators on one number"
    ),
    measured=True,
    launch_seconds=2.2e-6,
)
