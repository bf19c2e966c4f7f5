"""Offload to host memory: when the copy hides behind the computation, and what that does to memory and time.

`simulate` gives the two-stream `schedule` of a traced step (`simulation`) under the policies of vDNN (`policies`), on
PyTorch's step or a framework's of 2016 (`work`).
"""

from course_utils.techniques.offload.policies import ALGORITHMS, POLICIES, WINDOW, link_of, simulate, simulate_work
from course_utils.techniques.offload.schedule import BACK, OUT, REASONS, Copy, Schedule, Stall
from course_utils.techniques.offload.simulation import run
from course_utils.techniques.offload.work import Work, layerwise_2016, network_wide_2016, pytorch_step

__all__ = [
    "ALGORITHMS", "BACK", "OUT", "POLICIES", "REASONS", "WINDOW", "Copy", "Schedule", "Stall", "Work",
    "layerwise_2016", "link_of", "network_wide_2016", "pytorch_step", "run", "simulate", "simulate_work",
]  # fmt: skip
