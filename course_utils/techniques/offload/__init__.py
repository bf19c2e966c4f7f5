"""Offload to host memory: when the copy hides behind the computation, and what that does to memory and time.

`simulate` gives the two-stream `schedule` of a traced step (`simulation`, on the kernels and tensors of `work`) under a
policy of `policies`. What frameworks of 2016 made of it is in lesson 09.
"""

from course_utils.techniques.offload.policies import WINDOW, link_of, simulate, simulate_work
from course_utils.techniques.offload.schedule import BACK, OUT, Schedule
from course_utils.techniques.offload.simulation import run
from course_utils.techniques.offload.work import Work, pytorch_step

__all__ = ["BACK", "OUT", "WINDOW", "Schedule", "Work", "link_of", "pytorch_step", "run", "simulate", "simulate_work"]
