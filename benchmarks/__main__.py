"""`python -m benchmarks [NAME ...]`: accuracy and speed against named peers, printed as tables; no name runs all.

    accuracy   the trace, torch's MemTracker and (where it is installed) torchinfo against the CPU allocator's records
    speed      the trace beside MemTracker on the same networks in one run, and the cost of a slider move
    history    the published figures of 2016 beside the network-wide accounting, and the allocator's replay
    offload    the schedule of offload to host memory beside the published figures, and its sensitivity
    gpu_peaks  peaks measured by others on a T4 beside the trace, written down for lesson 13 (needs the extra "zoo")
    gpu_ladder the largest batches that ran on an RTX 3090, and those that failed, beside the verdict (needs timm)
    gpu_layers peaks of single layers, measured by others on an A100 and an H100, beside the trace
    gpu_reserved  what whole steps reserved on an A100 and an MI250, measured by others, beside the replay
    peers      what fitcheck, accelerate and DeepSpeed say of ten language models beside the trace (needs "zoo")
    zoo        models that nobody here wrote, traced and run for real (needs the extra "zoo")
    exactness  the whole product of networks, optimizers and batches against MemTracker (some minutes)
    latency    key press to changed pixels of every explorer, in a real JupyterLab
    times      the predicted time of a step beside published GPU times and steps measured here (quiet machine)
    scratch    what convolutions ask of this GPU besides their tensors, beside the guess of it (needs a GPU)
    grading    a class of 200 graded end to end, and beside nbgrader where it is installed (an hour or so)

The last eight and gpu_ladder run only when named.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks import estimator, gpu_ladder, gpu_layers, gpu_peaks, gpu_reserved, offload, peers, scratch, zoo

HERE = Path(__file__).resolve().parent
QUICK = {
    "accuracy": estimator.accuracy,
    "speed": estimator.speed,
    "history": estimator.history,
    "offload": offload.offload,
    "gpu_layers": gpu_layers.gpu_layers,
    "gpu_reserved": gpu_reserved.gpu_reserved,
}
SLOW = {
    "gpu_ladder": gpu_ladder.gpu_ladder,
    "gpu_peaks": gpu_peaks.gpu_peaks,
    "peers": peers.peers,
    "zoo": zoo.zoo,
    "exactness": estimator.exactness,
    "latency": lambda: subprocess.run([sys.executable, HERE / "latency.py"], check=True),
    "grading": lambda: subprocess.run([sys.executable, HERE / "grading.py"], check=True),
    "scratch": scratch.main,
    "times": lambda: subprocess.run([sys.executable, HERE / "speed.py"], check=True),
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or the quick ones. Returns 2 for an unknown name."""
    known = QUICK | SLOW
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark {unknown[0]!r}: choose from {', '.join(known)}", file=sys.stderr)
        return 2
    estimator.machine()
    for name in names or QUICK:
        known[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
