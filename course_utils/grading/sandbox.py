"""Where a stranger's code runs: a kernel in a sandbox, reached over Unix sockets.

bubblewrap makes a first sandbox, with a read-only system and Python, a copy of the library without the answers, no
network, no home and nothing of the teacher's environment. In it waits a warm parent (`zygote`), which forks a kernel
for each submission and shuts it in once more, so that kernels see neither each other nor it. jupyter_client starts
kernels there through `SandboxProvisioner`, chosen by an environment variable: nbval is used as it is.

Limits are of two kinds: those the system sets on a process, and those only somebody outside can see (all memory, all
processes), which `Sandbox.excess` looks at while a run is waited for. Must never import torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import zmq
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

from course_utils.units import GIB, MIB, CourseError, format_bytes

PROVISIONER = "course-sandbox"  # what jupyter_client knows `SandboxProvisioner` by, once `register` was called
SETTINGS = "COURSE_SANDBOX"  # environment variable: the request to the zygote as JSON, for the provisioner
SCRATCH = "/scratch"  # home, temporary and working folder of a kernel
LARGEST_MESSAGE = 32 * MIB
FIRST_UID = 61_000  # where the teacher is root, kernels run as users from here on, whom nobody else is
SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/lib32",
    "/bin",
    "/sbin",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
)
NAMESPACES = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
WAYS_OUT = "run `course grade` on Linux or in a container, or name --no-sandbox for files you trust"


@dataclass(frozen=True)
class Confinement:
    """What one submission's kernel may take.

    Attributes:
        memory_bytes: resident memory of all its processes together.
        address_bytes: address space of each process: asking for more fails inside, as a MemoryError.
        scratch_bytes: its folders in memory, the scratch folder and /dev/shm, each.
        file_bytes: the largest file.
        processes: processes and threads of all its processes together.
        cpu_seconds: processor time of each process.
    """

    memory_bytes: int = 3 * GIB
    address_bytes: int = 8 * GIB
    scratch_bytes: int = 64 * MIB
    file_bytes: int = 64 * MIB
    processes: int = 128
    cpu_seconds: int = 600

    def rlimits(self) -> dict[str, int]:
        """The limits that the system sets on a process, by their names in `resource`."""
        return {
            "RLIMIT_AS": self.address_bytes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_CPU": self.cpu_seconds,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_NOFILE": 512,
            "RLIMIT_CORE": 0,
        }


def why_not() -> str | None:
    """Why no sandbox can be had here, in one line with the ways out; None if one can."""
    if sys.platform != "linux":
        return f"sandboxes need Linux; {WAYS_OUT}"
    if shutil.which("bwrap") is None:
        return f"bubblewrap is not installed (on Debian and Ubuntu: apt-get install bubblewrap); or {WAYS_OUT}"
    tried = subprocess.run(
        ["bwrap", *_kind(), *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "true"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    if tried.returncode:
        said = tried.stderr.strip().splitlines() or ["no message"]
        return f"bubblewrap cannot make a sandbox here ({said[-1]}); {WAYS_OUT}"
    return None


def _kind() -> list[str]:
    """An ordinary user needs a user namespace; root gives its kernels users of their own instead."""
    return [] if os.geteuid() == 0 else ["--unshare-user"]


def copy_without_answers(target: Path) -> None:
    """Copy the library so that nothing in it knows an answer: checks of topics become stubs that do nothing.

    Their true text is sent after the last graded cell, when marks are decided (`batch`).
    """
    source = Path(__file__).resolve().parents[1]
    ignored = shutil.ignore_patterns("__pycache__", "recordings")
    shutil.copytree(source, target / "course_utils", ignore=ignored)
    for module in topic_checks(target / "course_utils"):
        module.write_text(STUB, encoding="utf-8")


STUB = '''"""The check is not needed for a mark."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *answer: None
'''


def topic_checks(package: Path) -> list[Path]:
    """The modules of `checks/` that hold answers: those of topics, which have graded cells in a module of that name."""
    graded = package / "grading" / "graded"
    return sorted(
        path for path in (package / "checks").glob("*.py") if path.stem != "__init__" and (graded / path.name).exists()
    )


class Sandbox:
    """A warm sandbox from which kernels are forked, for a `with` statement. `slot` keeps the users of several apart.

    Raises CourseError if it cannot be made here.
    """

    def __init__(self, limits: Confinement | None = None, slot: int = 0) -> None:
        self.limits = limits or Confinement()
        self.uid = FIRST_UID + slot if os.geteuid() == 0 else None

    def __enter__(self) -> Self:
        problem = why_not()
        if problem is not None:
            raise CourseError(problem)
        self._home = Path(tempfile.mkdtemp(prefix="course-"))
        self._home.chmod(0o700)
        package, self.sockets = self._home / "package", self._home / "s"
        package.mkdir(mode=0o755)
        self.sockets.mkdir(mode=0o755)
        copy_without_answers(package)
        command = [sys.executable, "-m", "course_utils.grading.zygote", str(self.sockets / "control")]
        with (self._home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                sandboxed(command, self.sockets, package),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != b"ready":
            said = (self._home / "log").read_text(errors="replace").strip().splitlines() or ["no message"]
            self.__exit__(None, None, None)
            raise CourseError(f"the sandbox did not start ({said[-1]}); {WAYS_OUT}")
        self._own = {self._process.pid, *(child.pid for child in psutil.Process(self._process.pid).children(True))}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # its namespace ends with it, and every process in that
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """Environment variables that make jupyter_client start its kernels here."""
        request = {
            "sockets": str(self.sockets), "uid": self.uid, "scratch": SCRATCH,
            "scratch_bytes": self.limits.scratch_bytes, "rlimits": self.limits.rlimits(),
        }  # fmt: skip
        return {"JUPYTER_DEFAULT_PROVISIONER_NAME": PROVISIONER, SETTINGS: json.dumps(request)}

    def settle(self, seconds: float = 10.0) -> None:
        """Wait until no kernel is left of an earlier run. Raises CourseError if one stays."""
        end = time.monotonic() + seconds
        while self.kernel_processes():
            if time.monotonic() > end:
                raise CourseError("a kernel could not be ended; its sandbox is given up")
            time.sleep(0.05)

    def kernel_processes(self) -> list[psutil.Process]:
        """All processes of all kernels that run here now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [p for p in psutil.Process(self._process.pid).children(recursive=True) if p.pid not in self._own]
        return []

    def excess(self) -> str | None:
        """What the kernels here take too much of together, in words; None if nothing."""
        resident = threads = 0
        processes = self.kernel_processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied), process.oneshot():
                resident += process.memory_info().rss
                threads += process.num_threads()
        if threads > self.limits.processes:
            return f"it started more than {self.limits.processes} processes and threads"
        # What forked processes share counts once for each above; a look that counts it once takes longer.
        if resident > self.limits.memory_bytes and _proportional(processes) > self.limits.memory_bytes:
            return f"it used more than {format_bytes(self.limits.memory_bytes)} of memory"
        return None


def _proportional(processes: list[psutil.Process]) -> int:
    """Bytes of memory of these processes, pages that several share counted once."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += process.memory_full_info().pss
    return total


def sandboxed(command: list[str], sockets: Path, package: Path) -> list[str]:
    """A command line that runs the zygote in its sandbox.

    Args:
        command: to run in it, by absolute path.
        sockets: the one folder of this machine it may write to; each kernel gets a folder in it.
        package: folder that holds the copy of `course_utils` it imports.
    """
    shown = [path for path in SYSTEM if os.path.exists(path)]
    pythons = {str(Path(prefix).resolve()) for prefix in (sys.prefix, sys.base_prefix)} | {sys.prefix, sys.base_prefix}
    pythons = {path for path in pythons if not _within(path, shown)}
    binds = []
    for path in shown:  # a link such as /lib -> usr/lib stays a link
        binds += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
    for path in (*sorted(pythons), str(sockets)):
        for parent in reversed(Path(path).parents[:-1]):  # bwrap would make them for its own user alone
            if not _within(str(parent), shown):
                binds += ["--perms", "0755", "--dir", str(parent)]
    for path in sorted(pythons):
        binds += ["--ro-bind", path, path]
    environment = {
        "HOME": SCRATCH, "TMPDIR": SCRATCH, "PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0", "PYTHONPATH": "/course", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE",
        "IPYTHONDIR": f"{SCRATCH}/ipython", "MPLCONFIGDIR": f"{SCRATCH}/matplotlib", "KINETO_LOG_LEVEL": "99",
    }  # fmt: skip
    return [
        "bwrap", *_kind(), *NAMESPACES, "--die-with-parent", "--new-session", "--hostname", "course",
        "--cap-add", "ALL", "--clearenv",  # the zygote shuts kernels in, and takes every capability from them
        *(part for name, value in environment.items() for part in ("--setenv", name, value)),
        "--proc", "/proc", "--dev", "/dev", "--dir", "/mnt", "--perms", "0755", "--dir", SCRATCH,
        *binds, "--ro-bind", str(package), "/course", "--bind", str(sockets), str(sockets), "--chdir", "/",
        "--", *command,
    ]  # fmt: skip


def _within(path: str, folders: list[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def register() -> None:
    """Make `SandboxProvisioner` known to jupyter_client in this process."""
    place = f"{__name__}:{SandboxProvisioner.__name__}"
    entry = EntryPoint(PROVISIONER, place, KernelProvisionerFactory.GROUP_NAME)
    KernelProvisionerFactory.instance().provisioners[PROVISIONER] = entry


class SandboxProvisioner(KernelProvisionerBase):
    """Asks the zygote that the environment names for a kernel, with sockets in a folder instead of ports."""

    _line: socket.socket | None = None  # held open as long as the kernel is to live
    _folder: Path | None = None

    @property
    def has_process(self) -> bool:
        """Whether a kernel was started and is not known to have ended."""
        return self._line is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Write the connection file, for Unix sockets in a folder of this kernel's own."""
        try:
            self._request = json.loads(os.environ[SETTINGS])
        except (KeyError, ValueError):
            raise CourseError(f"a sandboxed kernel needs {SETTINGS}; use `course grade`") from None
        manager: Any = self.parent
        self._folder = Path(tempfile.mkdtemp(prefix="k", dir=self._request["sockets"]))
        manager.transport, manager.ip = "ipc", str(self._folder / "k")  # absolute: a relative one fails in silence
        manager.connection_file = str(self._folder / "kernel.json")
        # A kernel can send a message as large as it likes: one that is larger than this ends the connection.
        manager.context.setsockopt(zmq.MAXMSGSIZE, LARGEST_MESSAGE)
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        self.kernel_spec.interrupt_mode = "message"  # signals do not cross into another process namespace
        return await super().pre_launch(cmd=["-f", manager.connection_file], **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Have a kernel forked. Raises CourseError if the zygote is not there."""
        argv = [*cmd, "--HistoryManager.enabled=False", "--log-level=ERROR"]
        asked = {
            "folder": str(self._folder), "argv": argv,
            **{name: self._request[name] for name in ("uid", "scratch", "scratch_bytes", "rlimits")},
        }  # fmt: skip
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._line.connect(str(Path(self._request["sockets"]) / "control"))
            self._line.sendall(json.dumps(asked).encode() + b"\n")
        except OSError as error:
            raise CourseError(f"the sandbox has ended ({error})") from None
        self._line.setblocking(False)
        return self.connection_info

    async def poll(self) -> int | None:
        """None while the kernel lives; 1 when it has ended."""
        if self._line is None:
            return 1
        try:
            ended = not self._line.recv(1)
        except BlockingIOError:
            return None
        except OSError:
            ended = True
        return 1 if ended else None

    async def wait(self) -> int | None:
        """Wait until the kernel has ended."""
        while await self.poll() is None:
            await asyncio.sleep(0.05)
        await self.kill()
        return 1

    async def send_signal(self, signum: int) -> None:
        """End the kernel for signals that ask for that; interrupts go by message."""
        if signum in (signal.SIGKILL, signal.SIGTERM):
            await self.kill()

    async def kill(self, restart: bool = False) -> None:
        """Hang up: the zygote then ends the kernel and all it started."""
        if self._line is not None:
            self._line.close()
            self._line = None

    async def terminate(self, restart: bool = False) -> None:
        """As `kill`: a stranger's kernel is asked nothing."""
        await self.kill()

    async def cleanup(self, restart: bool = False) -> None:
        """Remove the folder of the sockets."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
