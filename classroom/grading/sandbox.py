"""Where a stranger's code runs: a kernel in a sandbox, reached over Unix sockets.

bubblewrap makes a first sandbox, in which a warm parent (`zygote`) forks a kernel for each submission and shuts it in
once more, so that kernels see neither each other nor it. jupyter_client starts kernels there through `provisioner`,
chosen by an environment variable: nbval is used as it is. What only somebody outside can see of what a kernel takes,
`Sandbox.excess` looks at while a run is waited for.
"""

import contextlib
import glob
import itertools
import json
import os
import re
import shutil
import site
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from classroom import PACKAGES, ROOT
from classroom.grading.library import copy_without_answers, write_checks
from classroom.grading.own_time import child_of
from classroom.grading.provisioner import PROVISIONER, SETTINGS
from course_utils.units import GIB, MIB, CourseError, format_bytes

SCRATCH = "/scratch"  # home, temporary and working folder of a kernel
SOCKETS = "/sockets"  # where the zygote, and no kernel, sees the folder of sockets
FIRST_UID = 61_000  # where the teacher is root, kernels run as users from here on, whom nobody else is
LONGEST_TMPDIR = 75  # bytes: names of sockets may have 107, and ours end in course-XXXXXXXX/s/kXXXXXXXX/k-1
SEAT = "course-processor"  # beginning of the names of abstract sockets, of which whoever has one has a processor
SYSTEM = (
    "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/bin",
    "/usr/sbin", "/usr/share/zoneinfo", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime",
)  # fmt: skip
PARTS = ("bin", "lib", "lib64", "share/zoneinfo", "pyvenv.cfg")  # of a Python's folder
# What the warm parent imports, as it takes long: always, and by what an exercise imports. torch loads its compiler with
# the first optimizer or dispatch mode (2.5 s).
ALWAYS_WARM = (
    "ipykernel.kernelapp", "ipykernel.debugger", "IPython.core.oinspect", "IPython.extensions.storemagic",
    "classroom.questions.functions", "classroom.questions.graded",
)  # fmt: skip
WARM = {
    "numpy": ("numpy",), "pandas": ("pandas",), "sklearn": ("sklearn.datasets",),
    "torch": ("torch", "torch._dynamo", "torch.profiler"), "course_utils.trace": ("course_utils.trace",),
}  # fmt: skip
SETTLE_SECONDS = 60.0  # for processes that were killed to be gone: on a busy machine a fork bomb took more than 10
OLDEST_LINUX = (5, 12)  # the first with mount_setattr
NAMESPACES = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
WAYS_OUT = "run `course grade` on Linux or in a container, or name --no-sandbox for files you trust"


@dataclass(frozen=True)
class Confinement:
    """What one submission's kernel may take."""

    memory_bytes: int = 3 * GIB  # resident memory of all its processes together
    address_bytes: int = 8 * GIB  # address space of each process: asking for more fails inside, as a MemoryError
    scratch_bytes: int = 64 * MIB  # of each of its folders in memory, the scratch folder and /dev/shm
    scratch_files: int = 10_000  # in each of them
    file_bytes: int = 64 * MIB
    processes: int = 128  # and threads of all its processes together
    descriptors: int = 2048  # open files and sockets of them all; each may hold memory of Linux's
    cpu_seconds: int = 600  # of each process

    def rlimits(self) -> dict[str, int]:
        """The limits that the system sets on a process, by their names in `resource`."""
        return {
            "RLIMIT_AS": self.address_bytes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_CPU": self.cpu_seconds,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_NOFILE": min(512, self.descriptors),
            "RLIMIT_CORE": 0,
        }


def why_not() -> str | None:
    """Why no sandbox can be had here, in one line with the ways out; None if one can."""
    if sys.platform != "linux":
        return f"sandboxes need Linux; {WAYS_OUT}"
    if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < OLDEST_LINUX:
        return f"sandboxes need Linux {'.'.join(map(str, OLDEST_LINUX))} or later; {WAYS_OUT}"
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST_TMPDIR:
        return f"the folder for temporary files has too long a name for sockets; set TMPDIR=/tmp, or {WAYS_OUT}"
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


def to_warm(imported: Collection[str]) -> list[str]:
    """What the warm parent of kernels that import these modules imports for all of them."""
    keys = [key for key in WARM if any(f"{name}.".startswith(f"{key}.") for name in imported)]
    return [*ALWAYS_WARM, *(name for key in keys for name in WARM[key])]


def _kind() -> list[str]:
    """An ordinary user needs a user namespace; root gives its kernels users of their own instead."""
    return [] if os.geteuid() == 0 else ["--unshare-user"]


class Sandbox:
    """A warm sandbox from which kernels are forked, until it is closed.

    Args:
        names: imports of trusted cells (`library.trusted_imports`): the library is there as far as these lead.
        limits: what each kernel may take.
        hidden: files and folders that must not be seen from inside wherever they lie, such as other submissions.

    Raises CourseError if it cannot be made here.
    """

    def __init__(self, names: Collection[str], limits: Confinement, hidden: Collection[str] = ()) -> None:
        problem = why_not()
        if problem is not None:
            raise CourseError(problem)
        self.limits = limits
        with contextlib.ExitStack() as made:
            try:
                self._start(names, hidden, made)
            except OSError as error:
                raise CourseError(f"the sandbox could not be made: {error.strerror or error}") from None
            self._made = made.pop_all()

    def _start(self, names: Collection[str], hidden: Collection[str], made: contextlib.ExitStack) -> None:
        seat, self._processors = _take_processor()
        made.enter_context(seat)
        home = Path(made.enter_context(tempfile.TemporaryDirectory(prefix="course-", ignore_cleanup_errors=True)))
        self._package, self._sockets = home / "package", home / "s"
        self._package.mkdir(mode=0o755)
        self._sockets.mkdir()
        imported = copy_without_answers(self._package, names)
        command = [sys.executable, "-m", "classroom.grading.zygote", f"{SOCKETS}/control", *to_warm(imported)]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                sandboxed(command, self._sockets, self._package, hidden),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        made.enter_context(process)
        made.callback(process.kill)  # its namespace ends with it, and every process in that
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"ready":
            said = (home / "log").read_text(errors="replace").strip().splitlines() or ["no message"]
            raise CourseError(f"the sandbox did not start ({said[-1][:200]}); {WAYS_OUT}")
        self._bwrap = psutil.Process(process.pid)
        self._own = {process.pid, *(child.pid for child in self._bwrap.children(recursive=True))}
        self._zygote = child_of(child_of(process.pid))  # bubblewrap runs it in a second process of its own

    def close(self) -> None:
        """End all that runs here, and leave no file."""
        self._made.close()

    def environment(self) -> dict[str, str]:
        """Environment variables that make jupyter_client start its kernels here."""
        # Sandboxes are of different processes, and so have different users.
        uid = FIRST_UID + os.getpid() % 4096 if os.geteuid() == 0 else None
        request = {
            "outside": str(self._sockets), "sockets": SOCKETS, "uid": uid, "scratch": SCRATCH,
            "scratch_bytes": self.limits.scratch_bytes, "scratch_files": self.limits.scratch_files,
            "rlimits": self.limits.rlimits(), "processors": self._processors,
        }  # fmt: skip
        return {"JUPYTER_DEFAULT_PROVISIONER_NAME": PROVISIONER, SETTINGS: json.dumps(request)}

    def show_checks(self, true: bool) -> None:
        """Have kernels find checks as they are, which hold answers, or as stubs, from now on."""
        write_checks(self._package, true)

    def settle(self) -> None:
        """Wait until no kernel is left of an earlier run. Raises CourseError if one stays."""
        end = time.monotonic() + SETTLE_SECONDS
        while self.kernel_processes():
            if time.monotonic() > end:
                raise CourseError("a kernel could not be ended; its sandbox is given up")
            time.sleep(0.05)

    def kernel(self) -> int | None:
        """The process of the kernel that runs here now, started by its keeper; None if none is known."""
        return child_of(child_of(self._zygote))

    def kernel_processes(self) -> list[psutil.Process]:
        """All processes of all kernels that run here now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [process for process in self._bwrap.children(recursive=True) if process.pid not in self._own]
        return []

    def excess(self) -> str | None:
        """What the kernels here take too much of together, in words; None if nothing."""
        processes = self.kernel_processes()
        threads, files, memory = (sum(column) for column in zip((0, 0, 0), *map(_taken, processes), strict=True))
        if threads > self.limits.processes:
            return f"it started more than {self.limits.processes} processes and threads"
        if files > self.limits.descriptors:
            return f"it opened more than {self.limits.descriptors} files and sockets"
        # What forked processes share counts once for each above; a look that counts it once takes longer.
        if memory > self.limits.memory_bytes and sum(map(_proportional, processes)) > self.limits.memory_bytes:
            return f"it used more than {format_bytes(self.limits.memory_bytes)} of memory"
        return None


def _take_processor() -> tuple[socket.socket, list[int]]:
    """A processor that no other sandbox of this machine has, as long as the socket is open; all if none is free.

    Kernels keep to it: one that starts a hundred busy processes takes nothing from its neighbours.
    """
    seat, here = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), sorted(os.sched_getaffinity(0))
    for number in here:
        with contextlib.suppress(OSError):
            seat.bind(f"\0{SEAT}-{number}")
            return seat, [number]
    return seat, here


def _taken(process: psutil.Process) -> tuple[int, int, int]:
    """(threads, open files, bytes of memory, swap and page tables too) of a process; of one that hides, its most."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text()
        kib = {name: int(number) * 1024 for name, number in re.findall(r"^(Vm\w+):\s+(\d+) kB", text, re.MULTILINE)}
        threads = int(re.findall(r"^Threads:\s+(\d+)", text, re.MULTILINE)[0])
        if not kib:  # it has ended and holds nothing any more; an ordinary user may not ask what
            return threads, 0, 0
        try:
            files = len(os.listdir(f"/proc/{process.pid}/fd"))
            used = sum(kib.get(name, 0) for name in ("VmRSS", "VmSwap", "VmPTE"))
        except PermissionError:
            files, used = 512, kib.get("VmSize", 0)
        return threads, files, used
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0, 0, 0


def _proportional(process: psutil.Process) -> int:
    """Bytes of memory of a process, pages that several share counted in parts."""
    try:
        used = process.memory_full_info()
        return _taken(process)[2] - int(used.rss - used.pss)
    except psutil.NoSuchProcess:
        return 0
    except psutil.AccessDenied:
        return _taken(process)[2]


def sandboxed(command: list[str], sockets: Path, package: Path, hidden: Collection[str] = ()) -> list[str]:
    """The command line that runs this command, the zygote, in its sandbox.

    `sockets` is the one folder of this machine that it may write to, and no kernel sees; `package` holds the copy of
    the course that it imports; what is `hidden` must not be seen, wherever it lies.
    """
    shown = {path for path in SYSTEM if os.path.exists(path)} | _of_python()
    covered = {path for path in map(os.path.realpath, (*hidden, *_courses())) if _within(path, shown)}
    binds: list[str] = []
    for path in sorted(shown | covered, key=lambda path: (path.count("/"), path)):  # what is in a folder comes after it
        for parent in reversed(Path(path).parents[:-1]):  # bwrap would make them for its own user alone
            if not _within(str(parent), shown):
                binds += ["--perms", "0755", "--dir", str(parent)]
        if path in covered:
            binds += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", os.devnull, path]
        elif os.path.islink(path) and path in SYSTEM:  # a link such as /lib -> usr/lib stays a link
            binds += ["--symlink", os.readlink(path), path]
        else:
            binds += ["--ro-bind", path, path]
    environment = {
        "HOME": SCRATCH, "TMPDIR": SCRATCH, "PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0", "PYTHONPATH": "/course", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE", "PYTHONUSERBASE": site.getuserbase(),
        "IPYTHONDIR": f"{SCRATCH}/ipython", "MPLCONFIGDIR": f"{SCRATCH}/matplotlib", "KINETO_LOG_LEVEL": "99",
    }  # fmt: skip
    return [
        "bwrap", *_kind(), *NAMESPACES, "--die-with-parent", "--new-session", "--hostname", "course",
        "--cap-add", "ALL", "--clearenv",  # the zygote shuts kernels in, and takes every capability from them
        *(part for name, value in environment.items() for part in ("--setenv", name, value)),
        "--proc", "/proc", "--dev", "/dev", "--perms", "0755", "--dir", SCRATCH,
        *binds, "--ro-bind", str(package), "/course", "--bind", str(sockets), SOCKETS, "--chdir", "/",
        "--", *command,
    ]  # fmt: skip


def _of_python() -> set[str]:
    """What Python needs of its own folders: programs, libraries, packages; not what else may lie beside them."""
    prefixes = {way(path) for path in (sys.prefix, sys.base_prefix) for way in (str, os.path.realpath)}
    found = {os.path.join(*path) for path in itertools.product(prefixes, PARTS)}
    found |= {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")}
    return {path for path in found if os.path.exists(path) and not _within(path, SYSTEM)}


def _courses() -> Iterator[str]:
    """Where the library lies with its answers: the one that runs, and any that Python could import."""
    for folder in {str(ROOT), *sys.path}:
        if glob.glob(os.path.join(glob.escape(folder), "solutions", "[0-9][0-9]_*.ipynb")):
            yield folder
        for package in PACKAGES:
            yield from glob.glob(os.path.join(glob.escape(folder), package))


def _within(path: str, folders: Collection[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
