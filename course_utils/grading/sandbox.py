"""Where a stranger's code runs: a kernel in a bubblewrap sandbox, reached over Unix sockets.

The kernel sees a read-only system and Python, a copy of the library without the answers, a small scratch folder in
memory, and the folder its sockets are in; no network, no other process, no home, no environment of the teacher's. It
runs as an ordinary user even where the teacher is root. jupyter_client starts it through `SandboxProvisioner`, chosen by
an environment variable, so that nbval is used as it is.

Limits are of two kinds: those the system sets on a process (`Confinement`), and those only somebody outside can see
(all memory, all processes, the size of the socket folder), which `excess` looks at while a run is waited for.
Must never import torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.provisioning import LocalProvisioner

from course_utils.units import GIB, MIB, CourseError, format_bytes

PROVISIONER = "course-sandbox"  # the entry point's name in pyproject.toml
SETTINGS = "COURSE_SANDBOX"  # environment variable: the settings below as JSON, for the provisioner
NOBODY = 65534
SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")


@dataclass(frozen=True)
class Confinement:
    """What one sandbox may take.

    Attributes:
        memory_bytes: resident memory of all its processes together.
        address_bytes: address space of each process: asking for more fails inside, as a MemoryError.
        scratch_bytes: its folders in memory, /tmp and /dev/shm, each.
        file_bytes: the largest file.
        processes: processes and threads of all its processes together.
        cpu_seconds: processor time of each process.
    """

    memory_bytes: int = 3 * GIB
    address_bytes: int = 6 * GIB
    scratch_bytes: int = 64 * MIB
    file_bytes: int = 64 * MIB
    processes: int = 128
    cpu_seconds: int = 600


def why_not() -> str | None:
    """Why no sandbox can be had here, in one line with the way out; None if it can."""
    ways = "run `course grade` in a container or on Linux, or name --no-sandbox for files you trust"
    if sys.platform != "linux":
        return f"sandboxes need Linux; {ways}"
    if shutil.which("bwrap") is None:
        return f"bubblewrap is not installed (Debian, Ubuntu: apt-get install bubblewrap); or {ways}"
    tried = subprocess.run(
        ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    if tried.returncode:
        said = tried.stderr.strip().splitlines() or ["no message"]
        return f"bubblewrap cannot make a sandbox here ({said[-1]}); {ways}"
    return None


def sandboxed(command: Sequence[str], sockets: Path, package: Path, limits: Confinement) -> list[str]:
    """A command line that runs `command` in a sandbox.

    Args:
        command: to run in it, by absolute path.
        sockets: the one folder of this machine it may write to.
        package: folder that holds the copy of `course_utils` it imports.
        limits: what it may take.
    """
    shown = [path for path in SYSTEM if os.path.exists(path)]
    pythons = {str(Path(prefix).resolve()) for prefix in (sys.prefix, sys.base_prefix)} | {sys.prefix, sys.base_prefix}
    pythons = {p for p in pythons if not any(p == s or p.startswith(f"{s}/") for s in shown)}
    # A link such as /lib -> usr/lib stays a link: bound as a folder it would hide what programs expect to find.
    binds = [
        part
        for path in shown
        for part in (
            ("--symlink", os.readlink(path), path) if os.path.islink(path) else ("--ro-bind", path, path)
        )
    ]
    for path in sorted(pythons):
        binds += ["--ro-bind", path, path]
    environment = {
        "HOME": "/tmp", "PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0",
        "PYTHONPATH": "/course", "PYTHONDONTWRITEBYTECODE": "1", "IPYTHONDIR": "/tmp/ipython", "MPLCONFIGDIR": "/tmp/mpl",
        "JUPYTER_PLATFORM_DIRS": "1", "OMP_NUM_THREADS": "2",
    }  # fmt: skip
    size = str(limits.scratch_bytes)
    return [
        "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--uid", str(NOBODY), "--gid", str(NOBODY),
        "--hostname", "course", "--cap-drop", "ALL", "--clearenv",
        *(part for name, value in environment.items() for part in ("--setenv", name, value)),
        "--proc", "/proc", "--dev", "/dev", "--size", size, "--tmpfs", "/dev/shm", "--size", size, "--tmpfs", "/tmp",
        *binds, "--ro-bind", str(package), "/course", "--bind", str(sockets), str(sockets), "--chdir", "/tmp",
        "--", sys.executable, "-I", "-S", "-c", LIMITED, json.dumps(_rlimits(limits)), *command,
    ]  # fmt: skip


# Runs inside the sandbox before anything of the submission's: sets its limits on itself, and becomes the command.
LIMITED = """\
import json, os, resource, sys
for name, value in json.loads(sys.argv[1]).items():
    resource.setrlimit(getattr(resource, name), (value, value))
os.execv(sys.argv[2], sys.argv[2:])
"""


def _rlimits(limits: Confinement) -> dict[str, int]:
    return {
        "RLIMIT_AS": limits.address_bytes,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_CPU": limits.cpu_seconds,
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_NOFILE": 512,
        "RLIMIT_CORE": 0,
    }


def settings(sockets: Path, package: Path, limits: Confinement) -> dict[str, str]:
    """Environment variables that make jupyter_client start its kernels in a sandbox."""
    content = {"sockets": str(sockets), "package": str(package), "limits": asdict(limits)}
    return {"JUPYTER_DEFAULT_PROVISIONER_NAME": PROVISIONER, SETTINGS: json.dumps(content)}


class SandboxProvisioner(LocalProvisioner):
    """Starts a kernel in the sandbox that the environment describes, with sockets in a folder instead of ports."""

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Ask for Unix sockets before the connection file is written, then wrap the command."""
        try:
            given = json.loads(os.environ[SETTINGS])
        except (KeyError, ValueError):
            raise CourseError(f"a sandboxed kernel needs {SETTINGS}; use `course grade`") from None
        manager = self.parent
        folder = Path(given["sockets"])
        manager.transport, manager.ip = "ipc", str(folder / "k")  # absolute: a relative one fails in silence
        manager.connection_file = str(folder / "kernel.json")
        self.kernel_spec.interrupt_mode = "message"  # signals do not cross into another process namespace
        kwargs = await super().pre_launch(**kwargs)
        kwargs["cmd"] = sandboxed(kwargs["cmd"], folder, Path(given["package"]), Confinement(**given["limits"]))
        return kwargs


def excess(processes: Iterable[psutil.Process], sockets: Path, limits: Confinement) -> str | None:
    """What the processes of a sandbox take too much of together, in words; None if nothing."""
    resident = threads = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            with process.oneshot():
                resident += process.memory_info().rss
                threads += process.num_threads()
    if threads > limits.processes:
        return f"it started more than {limits.processes} processes and threads"
    if resident > limits.memory_bytes:
        return f"it used more than {format_bytes(limits.memory_bytes)} of memory"
    with contextlib.suppress(OSError):
        written = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(sockets))
        if written > MIB or len(os.listdir(sockets)) > 64:
            return "it wrote into the folder of its sockets"
    return None
