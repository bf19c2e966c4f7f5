"""Where and when a recording is made; whatever cannot be read (no nvidia-smi, no git) is left empty."""

import os
import platform
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from course_utils import __version__
from course_utils.machine.timing import memory_bytes
from course_utils.recordings.schema import Provenance
from course_utils.units import MIB


def _ask(*command: str) -> str:
    """What a command prints, or nothing if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def ask_driver(*fields: str) -> list[str]:
    """What nvidia-smi says of the first visible GPU, one text a field; empty where it says nothing."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    said = _ask("nvidia-smi", f"--id={visible}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    found = [part.strip() for part in said.splitlines()[0].split(",")] if said else []
    return found if len(found) == len(fields) else [""] * len(fields)


def used_bytes() -> int | None:
    """Bytes of the card in use, by the driver; None if it does not say."""
    used = _number(ask_driver("memory.used")[0])
    return None if used is None else int(used * MIB)


def _number(text: str) -> float | None:
    return float(text) if text.replace(".", "", 1).isdecimal() else None


def _commit() -> str:
    git = ("git", "-C", str(Path(__file__).resolve().parents[2]))
    commit = _ask(*git, "rev-parse", "--short=12", "HEAD")
    changed = _ask(*git, "status", "--porcelain", "--untracked-files=no", "--", "course_utils")
    return f"{commit}-dirty" if commit and changed else commit


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def provenance(device: str, quick: bool, command: str) -> Provenance:
    """Where and when: read before the first measurement, but for clocks and the time it took."""
    on_gpu = device == "cuda"
    return Provenance(
        device=device, quick=quick,
        name=torch.cuda.get_device_name() if on_gpu else _processor(),
        memory_bytes=memory_bytes(device),
        driver=ask_driver("driver_version")[0] if on_gpu else "",
        torch=torch.__version__,
        cuda=(torch.version.cuda or "") if on_gpu else "",
        cudnn=str(torch.backends.cudnn.version() or "") if on_gpu else "",
        python=platform.python_version(), system=platform.platform(), cpu=_processor(), threads=torch.get_num_threads(),
        date=datetime.now(UTC).isoformat(timespec="seconds"), command=command, course=__version__, commit=_commit(),
        tf32_convolutions=torch.backends.cudnn.allow_tf32,
        tf32_products=torch.backends.cuda.matmul.allow_tf32,
    )  # fmt: skip


def with_clocks(where: Provenance) -> Provenance:
    """With the clocks of the GPU, read while a product keeps it busy."""
    matrix = torch.randn(4096, 4096, device="cuda")
    for _ in range(200):
        matrix @ matrix  # queued: the GPU works on them while the driver is asked
    now, limit, memory = map(_number, ask_driver("clocks.sm", "clocks.max.sm", "clocks.mem"))
    torch.cuda.synchronize()
    return replace(where, clock_mhz=now, clock_limit_mhz=limit, memory_clock_mhz=memory)
