"""Start processes that talk to one another, wait for them, bring back what each returned, leave none behind.

Each process is `python -m lessons.many_gpus.distributed.launch FOLDER RANK`: a fresh interpreter, so that nothing
depends on how a notebook or a platform starts processes. They meet over a file in a scratch folder, on this machine's
loopback. torchrun does the same for scripts, on many machines, and is what to use outside this course.
"""

from __future__ import annotations

import datetime
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_utils.units import CourseError, require_whole

LOOPBACK = {"linux": "lo", "darwin": "lo0"}  # elsewhere gloo finds it by the machine's name
GRACE = 5.0  # seconds that the others get once a process has failed; they wait for it in vain


def run(function: Callable[..., Any], processes: int = 2, timeout: float = 120.0, **arguments: Any) -> list[Any]:
    """Call a function in so many processes at once; what each returned, by rank.

    Inside, `torch.distributed` is ready: `get_rank()`, `get_world_size()`, and collectives over gloo.

    Args:
        function: of a module that can be imported; what it returns can be pickled.
        processes: how many, 1 or more.
        timeout: seconds until all are ended and an error is raised.
        arguments: of the function, the same for every process; they can be pickled.

    Raises:
        CourseError: the function is none a process could import, a process failed (with its last line), or the time is
            over.
    """
    module, name = getattr(function, "__module__", "__main__"), getattr(function, "__qualname__", "")
    if module == "__main__" or not name.isidentifier():
        raise CourseError("processes can only run a function that they can import: put it into a .py file of its own")
    require_whole("processes", processes)
    with tempfile.TemporaryDirectory(prefix="course-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        with (folder / "job.pkl").open("wb") as file:
            pickle.dump((module, name, arguments, processes, timeout), file)
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(processes):
                with (folder / f"error{rank}.txt").open("wb") as errors:
                    started.append(_start(folder, rank, errors))
            _wait(started, timeout, f"{module}.{name}", folder)
            return [pickle.loads((folder / f"result{rank}.pkl").read_bytes()) for rank in range(processes)]
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                process.wait()


def _start(folder: Path, rank: int, errors: Any) -> subprocess.Popen[bytes]:
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    environment["CUDA_VISIBLE_DEVICES"] = ""  # gloo exchanges what lies in host memory
    if sys.platform in LOOPBACK:
        environment.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
    command = [sys.executable, "-m", "lessons.many_gpus.distributed.launch", str(folder), str(rank)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env=environment
    )


def _wait(started: list[subprocess.Popen[bytes]], timeout: float, name: str, folder: Path) -> None:
    """Until all are through.

    Raises:
        CourseError: one failed, or the time is over.
    """
    end = time.monotonic() + timeout
    failed: list[int] = []
    while True:
        codes = [process.poll() for process in started]
        if all(code == 0 for code in codes):
            return
        if not failed and any(code not in (None, 0) for code in codes):
            end = min(end, time.monotonic() + GRACE)
        failed = [rank for rank, code in enumerate(codes) if code not in (None, 0)]
        if None not in codes or time.monotonic() > end:
            break
        time.sleep(0.02)
    if not failed:
        raise CourseError(f"{name}: not finished after {timeout:g} seconds, so its processes were ended")
    told = {rank: _last_line(folder / f"error{rank}.txt") for rank in failed}
    rank = next((rank for rank in failed if "onnection" not in told[rank]), failed[0])  # the cause, not who missed it
    raise CourseError(f"{name}: process {rank} of {len(started)} failed: {told[rank]}")


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return re.sub(r"^\[rank\d+\]: ", "", lines[-1]) if lines else "it said nothing"


def _child(folder: Path, rank: int) -> None:
    """What a process does: meet the others, call the function, leave the result."""
    import importlib

    import torch
    import torch.distributed as dist

    with (folder / "job.pkl").open("rb") as file:
        module, name, arguments, processes, timeout = pickle.load(file)
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "meet"), processes)  # type: ignore[attr-defined]
    wait = datetime.timedelta(seconds=timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=processes, timeout=wait)
    try:
        result = getattr(importlib.import_module(module), name)(**arguments)
        dist.barrier()
    finally:
        dist.destroy_process_group()
    unfinished = folder / f"result{rank}.tmp"
    unfinished.write_bytes(pickle.dumps(result))
    unfinished.replace(folder / f"result{rank}.pkl")


if __name__ == "__main__":
    _child(Path(sys.argv[1]), int(sys.argv[2]))
