"""What moves: policies by kind of layer, and a window of tensors in flight.

Rhu et al., "vDNN: virtualized deep neural networks for scalable, memory-efficient neural network design" (MICRO-49,
2016). Its search among them is in lesson 09.
"""

import numpy as np

from course_utils.machine import hardware
from course_utils.machine.hardware import Device, Link
from course_utils.memory import Ledger
from course_utils.techniques.offload.schedule import Schedule
from course_utils.techniques.offload.simulation import run
from course_utils.techniques.offload.work import BACKWARD, FORWARD, Bools, Work, pytorch_step
from course_utils.units import KIB, CourseError, require_one_of, require_whole

POLICIES = ("none", "all", "conv", "windowed")
ALGORITHMS = ("m", "p")
MINIMUM_BYTES = KIB  # smaller tensors are not worth a copy; torchtune draws the line at the same place
WINDOW = 5  # tensors in flight of the policy "windowed"; torchtune's stash has as many


def simulate(
    ledger: Ledger,
    device: Device | str,
    policy: str = "all",
    algorithm: str = "p",
    link: Link | str | None = None,
    *,
    window: int = WINDOW,
    prefetch: bool = True,
    precision: str = "float32",
) -> Schedule:
    """The schedule of one training step with offload to host memory.

    Args:
        ledger: the step at one batch, `training_step(...).at(batch)`.
        device: a Device, or the name of one in the catalogue.
        policy: "none" moves nothing; "all" every map that the backward pass needs; "conv" only those a convolution
            reads, whose long kernels hide the copy; "windowed" moves what "all" does and lets `window` tensors be in
            flight, where the others let none.
        algorithm: of the convolutions: "p", the fastest, or "m", slower and without workspace.
        link: between host and device, a Link or its name; None takes the device's own.
        window: tensors in flight of the policy "windowed", 1 or more.
        prefetch: whether tensors are brought back ahead of use, or each only when a kernel waits for it.
        precision: of the arithmetic.

    Raises:
        CourseError: an unknown policy, algorithm, device or link, or what `link_of` raises.
    """
    device = hardware.device(device) if isinstance(device, str) else device
    rate = link_of(device, link).bytes_per_s
    work = pytorch_step(ledger, device, precision)
    return simulate_work(work, policy, algorithm, rate, latency=device.launch_seconds, window=window, prefetch=prefetch)


def link_of(device: Device, link: Link | str | None) -> Link:
    """The link given, by name or not, or the device's own. Raises CourseError if none is given and that is unknown."""
    found = hardware.link(link) if isinstance(link, str) else link or device.link
    if found is None:
        names = ", ".join(item.name for item in hardware.links())
        raise CourseError(f"nobody confirmed the link of {device.name}: give one, such as {names}")
    return found


def simulate_work(
    work: Work,
    policy: str,
    algorithm: str,
    bytes_per_s: float,
    *,
    latency: float = hardware.LAUNCH_SECONDS,
    window: int = WINDOW,
    prefetch: bool = True,
    every: int = 1,
) -> Schedule:
    """`simulate` on kernels and tensors at hand, for many policies of one step; of what they move, one in `every`.

    Raises CourseError for an unknown policy or algorithm, or a window or `every` below 1.
    """
    require_one_of("policy", policy, POLICIES)
    require_one_of("algorithm", algorithm, ALGORITHMS)
    if policy == "windowed" and window < 1:
        raise CourseError(f"window must be 1 or more tensors, got {window!r}; 0 is policy 'all'")
    fast = np.full(work.kernels, algorithm == "p")
    in_flight = window if policy == "windowed" else 0
    return run(work, moved(work, policy, every), fast, bytes_per_s, latency, in_flight, policy, algorithm, prefetch)


def moved(work: Work, policy: str, every: int = 1) -> Bools:
    """(S,) the tensors that a policy moves: of each `every` in a row, as they are made, the middle one.

    Micro-batches are counted one by one, so that each moves the same. Raises CourseError for `every` below 1.
    """
    require_whole("every", every)
    chosen: Bools = work.movable & (work.size >= MINIMUM_BYTES) & (policy != "none")
    if policy == "conv":
        chosen = chosen & work.feeds_convolution
    tensors = np.flatnonzero(chosen)
    tensors = tensors[np.argsort(work.birth[tensors], kind="stable")]
    begins = 1 + np.flatnonzero((work.phase[:-1] == BACKWARD) & (work.phase[1:] == FORWARD))  # later micro-batches
    part = np.searchsorted(begins, work.leaves[tensors], side="right")
    taken = np.zeros_like(chosen)
    for one in np.unique(part):
        taken[tensors[part == one][every // 2 :: every]] = True
    return taken
