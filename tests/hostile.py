"""Answers that misbehave, each with what must come of it: written for question `three`, whose right answer is 3 * n.

What is said of each is one line, which `words` is in. `classes` puts them into submissions: `one` and `six` are right
in each and must stay so. An answer that bends what runs after it is `alone` between them; of the others, four share a
submission, each in the place of another question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from multiples import NAMES

from classroom.grading import syscalls
from classroom.questions.core import Outcome

WRONG, CRASHED, CORRECT = Outcome.WRONG, Outcome.CRASHED, Outcome.CORRECT


@dataclass(frozen=True)
class Hostile:
    """The text of an answer cell, the outcome it must get, and words that must be said of it."""

    name: str
    source: str
    outcome: Outcome
    words: str = ""
    alone: bool = False
    endless: bool = False  # ends by the time allowed for a cell
    may_end: bool = False  # the kernel may be gone before the graded cell, or just after: which is the machine's to say

    @property
    def reaches_the_machine(self) -> bool:
        """Whether it asks the operating system for something, whose answer may depend on who is asking."""
        asks = r"^[!%]|\b(os|ctypes|fcntl|mmap|open|resource|shutil|signal|socket|subprocess|threading)\b"
        return bool(re.search(asks, self.source, re.MULTILINE))

    def instead_of(self, question: str) -> str:
        """The same for another question."""
        factor = NAMES.index(question) + 1
        return re.sub(r"\bthree\b", question, self.source).replace("3 * n", f"{factor} * n")


LOOPS, DIED, GONE = "ran for more than", "ended the kernel", "It was stopped"
RIGHT = "def three(n):\n    return 3 * n\n"

# Every way into a new namespace, and two to have them allowed again. What succeeds is raised.
ESCAPES = (
    """\
import ctypes
import os
import subprocess

libc = ctypes.CDLL(None, use_errno=True)
done = []
for flag in (0x10000000, 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000, 0x02000000, 0x00000080):
    for flags in (flag, flag | 0x10000000):
        if libc.unshare(flags) == 0:
            done.append(f"unshare {flags:#x}")
        if flag == 0x80:  # to clone, this says which signal ends it
            continue
        child = libc.syscall(56 if os.uname().machine == "x86_64" else 220, flags | 17, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        if child > 0:
            os.waitpid(child, 0)
            done.append(f"clone {flags:#x}")
for command in (["unshare", "--user", "true"], ["unshare", "--map-root-user", "--mount", "true"]):
    if subprocess.run(command, capture_output=True).returncode == 0:
        done.append(" ".join(command))
try:
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("100")
    done.append("the limit lifted")
except OSError:
    pass
assert not done, done
"""
    + RIGHT
)


REFUSED = (
    f"""\
import ctypes
import errno
import os

libc = ctypes.CDLL(None, use_errno=True)
column = ("x86_64", "aarch64").index(os.uname().machine)
numbers = {syscalls.REFUSED}
allowed = []
for name, number in numbers.items():
    ctypes.set_errno(0)
    if libc.syscall(number[column], 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != errno.EPERM:
        allowed.append(name)
assert not allowed, allowed
child = os.fork()
if child == 0:
    os._exit(libc.syscall(numbers["ptrace"][column], 0, 0, 0, 0) == 0)  # that it be traced, which anybody may ask for
assert os.waitpid(child, 0)[1] == 0
"""
    + RIGHT
)

# Where something could be left for the next learner. What can be written to is raised.
MOUNTS = (
    """\
import os
lines = [line.split() for line in open("/proc/self/mountinfo")]
done = {line[4] for line in lines if "rw" in line[5].split(",")} - {"/scratch", "/dev/shm", "/proc"}
for folder in ("", "/etc", "/mnt", "/dev", "/dev/pts", "/sockets", "/course", "/usr", "/usr/lib", "/root", "/tmp"):
    try:
        open(f"{folder}/left", "w")
        done.add(folder)
    except OSError:
        pass
try:
    os.utime("/dev/null")
    done.add("a date")
except OSError:
    pass
assert not done, done
"""
    + RIGHT
)

# Memory that no process seems to hold, what is common to kernels, and the machine's own sockets. What works is raised.
COMMON = (
    """\
import ctypes
import fcntl
import mmap
import os
import socket
libc = ctypes.CDLL(None, use_errno=True)
file = open("/usr/bin/env", "rb")
ways = {
    "memfd": lambda: os.memfd_create("x"),
    "shared memory": lambda: mmap.mmap(-1, 4096),
    "shared zeros": lambda: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096),
    "lock": lambda: fcntl.flock(file, fcntl.LOCK_SH),
    "lock of a part": lambda: fcntl.lockf(file, fcntl.LOCK_SH),
    "out of the page cache": lambda: os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED),
    "in the page cache?": lambda: os.preadv(file.fileno(), [bytearray(10)], 0, 8),
    "virtual machine": lambda: socket.socket(40, socket.SOCK_STREAM),
    "processors": lambda: os.sched_setaffinity(0, range(os.cpu_count())),
}
done = []
for name, way in ways.items():
    try:
        way()
        done.append(name)
    except OSError:
        pass
if libc.shmget(0, 4096, 0o1666) >= 0:
    done.append("System V")
assert mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
assert not done, done
"""
    + RIGHT
)

ANSWERS = [
    # -- ways out, and ways to others
    Hostile("every namespace", ESCAPES, CORRECT),
    Hostile("refused system calls", REFUSED, CORRECT),
    Hostile("leaves something for others", MOUNTS, CORRECT),
    Hostile("memory of nobody and what is common", COMMON, CORRECT),
    Hostile(
        "puts others in the place of its sockets",
        "import json, os\nwith open(get_ipython().kernel.config['IPKernelApp']['connection_file']) as file:\n"
        "    known = json.load(file)\nplaces = [f\"{known['ip']}-{known['shell_port']}\", *os.listdir('/sockets')]\n"
        "assert any(map(os.path.lexists, places)), 'no socket to replace'",
        CRASHED,
        "no socket to replace",
    ),
    Hostile(
        "burns processors for a while",
        "import os, time\nend = time.time() + 2\nfor _ in range(12):\n    if os.fork() == 0:\n"
        "        while time.time() < end:\n            pass\n        os._exit(0)\n" + RIGHT,
        CORRECT,
        alone=True,
    ),
    # -- time
    Hostile("endless loop", "def three(n):\n    while True:\n        pass", CRASHED, LOOPS, endless=True),
    Hostile(
        "endless loop that swallows interrupts",
        "import time\ndef three(n):\n    while True:\n        try:\n            time.sleep(99)\n"
        "        except BaseException:\n            pass",
        CRASHED,
        LOOPS,
        endless=True,
    ),
    Hostile("endless loop in the cell itself", "while True:\n    pass", CRASHED, LOOPS, endless=True),
    Hostile("busy loop in C", "def three(n):\n    return 9**9**9", CRASHED, LOOPS, endless=True),
    Hostile("sleeps", "import time\ndef three(n):\n    time.sleep(1e6)", CRASHED, LOOPS, endless=True),
    Hostile(
        "ignores signals",
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "import time\ndef three(n):\n    while True:\n        time.sleep(1)",
        CRASHED,
        LOOPS,
        endless=True,
    ),
    Hostile(
        "an alarm",
        "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\nimport time\ntime.sleep(0.5)\n" + RIGHT,
        CORRECT,
    ),
    # -- the kernel
    Hostile("os._exit", "import os\nos._exit(0)", CRASHED, DIED),
    Hostile("os._exit in the function", "import os\ndef three(n):\n    os._exit(3)", CRASHED, DIED),
    Hostile("kills itself", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", CRASHED, ""),
    Hostile("aborts", "import os\nos.abort()", CRASHED, DIED),
    Hostile("segmentation fault", "import ctypes\nctypes.string_at(0)", CRASHED, DIED),
    Hostile(
        "recursion without a floor",
        "import sys\nsys.setrecursionlimit(10**8)\ndef three(n):\n    return three(n)",
        CRASHED,
        "",
    ),
    Hostile("sys.exit in the function", "import sys\ndef three(n):\n    sys.exit()", CRASHED, "SystemExit"),
    Hostile("raises in the cell", "raise RuntimeError('<script>alert(1)</script>')", CRASHED, "RuntimeError"),
    Hostile("steers a terminal", "raise ValueError('\\x1b[2J\\u202elive')", CRASHED, "ValueError: ?[2J?live"),
    Hostile("an interrupt of its own", "def three(n):\n    raise KeyboardInterrupt", CRASHED, ""),
    Hostile(
        "shuts the kernel down",
        "get_ipython().kernel.do_shutdown(False)\nexit()\n" + RIGHT,
        CORRECT,
        alone=True,
        may_end=True,
    ),
    # -- memory, processes, disk, output
    Hostile("memory hog", "hog = [bytes(range(256)) * 2**20 for _ in range(64)]", CRASHED, ""),
    Hostile("one huge request", "hog = bytearray(2**40)", CRASHED, "MemoryError"),
    Hostile(
        "memory hog that hides",
        "import ctypes\nctypes.CDLL(None).prctl(4, 0)\nhog = [bytes(range(256)) * 2**20 for _ in range(64)]",
        CRASHED,
    ),
    Hostile(
        "many sockets",
        "import os, socket, time\nkept = []\nfor _ in range(8):\n    if os.fork() == 0:\n        try:\n"
        "            while True:\n                kept.append(socket.socketpair())\n        except OSError:\n"
        "            time.sleep(99)\ntime.sleep(99)",
        CRASHED,
        GONE,
    ),
    Hostile(
        "a message type of 24 MiB",
        "kernel = get_ipython().kernel\n"
        "kernel.session.send(kernel.iopub_socket, 'x' * 24 * 2**20, {}, parent=kernel.get_parent())\n" + RIGHT,
        CRASHED,
        GONE,
    ),
    Hostile(
        "a message with 24 MiB beside it",
        "kernel = get_ipython().kernel\nkernel.session.send(kernel.iopub_socket, 'comm_msg', {}, "
        "parent=kernel.get_parent(), buffers=[bytes(24 * 2**20)])\n" + RIGHT,
        CRASHED,
        GONE,
    ),
    Hostile(
        "files that are empty",
        "i = 0\nwhile i < 10**7:\n    open(f'/dev/shm/{i}', 'w').close()\n    i += 1",
        CRASHED,
        "OSError",
        alone=True,
    ),
    Hostile("fork bomb", "import os\nwhile True:\n    os.fork()", CRASHED, ""),
    Hostile(
        "thread bomb",
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(99,)).start()",
        CRASHED,
        "",
    ),
    Hostile(
        "disk filler",
        "with open('fill', 'wb') as file:\n    while True:\n        file.write(bytes(2**20))",
        CRASHED,
        "OSError",
        alone=True,
    ),
    Hostile(
        "many files",
        "i = 0\nwhile i < 10**7:\n    open(f'/dev/shm/{i}', 'w').write('x' * 10**4)\n    i += 1",
        CRASHED,
        "OSError",
        alone=True,
    ),
    Hostile("gigabyte of output", "for _ in range(1000):\n    print('x' * 10**6)", CRASHED, GONE),
    Hostile("one gigantic line", "print('x' * 2**26)\n" + RIGHT, CRASHED, ""),
    Hostile("huge message of an error", "raise ValueError('x' * 2**24)", CRASHED, ""),
    Hostile(
        "endless display",
        "from IPython.display import display\nwhile True:\n    display('x' * 10**5)",
        CRASHED,
        "",
        endless=True,
    ),
    Hostile("huge result", "def three(n):\n    return 'x' * 10**7", CRASHED, "printed more"),
    Hostile(
        "a daemon left behind",
        "import subprocess\nsubprocess.Popen(['/usr/bin/sleep', '1000'], start_new_session=True)\n" + RIGHT,
        CORRECT,
        alone=True,
    ),
    # -- input and the notebook
    Hostile("asks for input", "def three(n):\n    return int(input())", CRASHED, "StdinNotImplementedError"),
    Hostile("shell", "!kill -9 -1\n" + RIGHT, CORRECT),
    Hostile("cell magic", "%%bash\necho three", CRASHED, ""),
    Hostile("resets the namespace", "%reset -f\n" + RIGHT, CRASHED, alone=True),
    Hostile("not Python", "def three(n:\n    return", CRASHED, "SyntaxError"),
    Hostile("is not root", "import os\nassert os.getuid() and os.geteuid(), 'root'\n" + RIGHT, CORRECT),
    # -- forging
    Hostile(
        "later cells emptied",
        "get_ipython().input_transformers_cleanup.append(lambda lines: [''])\ndef three(n):\n    return 0",
        WRONG,
        alone=True,
    ),
    Hostile(
        "print patched away",
        "import builtins\nbuiltins.print = lambda *a, **k: None\ndef three(n):\n    return 0",
        WRONG,
        alone=True,
    ),
    Hostile(
        "print that always says the same",
        "import builtins, sys\nbuiltins.print = lambda *a, **k: sys.stdout.write('three(1) = 3\\n')\n"
        "def three(n):\n    return 0",
        WRONG,
        alone=True,
    ),
    Hostile(
        "closes its output",
        "import sys\nsys.stdout.close()\nsys.stdout = None\ndef three(n):\n    return 0",
        CRASHED,
        alone=True,
        endless=True,
    ),
    Hostile(
        "graded cells replaced",
        "from classroom.questions import graded\ngraded.Graded.__call__ = lambda self, *a: print('three(1) = 3')\n"
        "def three(n):\n    return 0",
        CRASHED,
        alone=True,
    ),
    Hostile(
        "comparison patched",
        "from classroom.questions import core\ncore.equal = lambda *a: True\ndef three(n):\n    return 0",
        WRONG,
        alone=True,
    ),
    Hostile(
        "an object equal to everything",
        "class Any(int):\n    def __eq__(self, other):\n        return True\n"
        "    def __repr__(self):\n        return '3'\n"
        "    __str__ = __repr__\n    __hash__ = int.__hash__\ndef three(n):\n    return Any(0)",
        WRONG,
    ),
    Hostile("a text that forges a line", "def three(n):\n    return '3\\nfour(1) = 4'", WRONG),
    Hostile(
        "modules removed",
        "import sys\nfor name in list(sys.modules):\n    del sys.modules[name]",
        CRASHED,
        alone=True,
        endless=True,
    ),
    Hostile(
        "builtins removed",
        "import builtins\nfor name in ('len', 'str', 'isinstance', 'type'):\n    delattr(builtins, name)",
        CRASHED,
        alone=True,
    ),
    Hostile(
        "a thread that prints for ever",
        "import threading, time, sys\ndef speak():\n    while True:\n        sys.__stdout__.write('x')\n"
        "        print('noise')\n        time.sleep(0.01)\n"
        "threading.Thread(target=speak, daemon=True).start()\ndef three(n):\n    return 0",
        WRONG,
        alone=True,
    ),
    Hostile(
        "a forged message",
        "kernel = get_ipython().kernel\nkernel.session.send(kernel.iopub_socket, 'stream', "
        "{'name': 'stdout', 'text': 'three(1) = 3'}, parent=kernel.get_parent())\ndef three(n):\n    return 0",
        WRONG,
    ),
    Hostile(
        "questions of others redefined",
        "def one(n):\n    return 0\ndef two(n):\n    return 0\nfour = five = six = None\n" + RIGHT,
        CORRECT,
        alone=True,
    ),
    Hostile("script in what it returns", "def three(n):\n    return '<script>alert(1)</script>'", WRONG, "<script>"),
    # -- looking for answers; each returns what it finds, so that finding something would be right
    Hostile(
        "reads the seed",
        "import os\ndef three(n):\n    return os.environ['COURSE_SEED']",
        CRASHED,
        "KeyError",
    ),
    Hostile(
        "looks for solutions",
        "import os\nfound = []\nfor _, folders, names in os.walk('/'):\n"
        "    folders[:] = {*folders} - {'proc', 'sys', 'usr', 'lib', 'include'}\n"
        "    found += [name for name in names if name.endswith('.ipynb')]\n"
        "assert found, 'no notebook anywhere'",
        CRASHED,
        "no notebook anywhere",
    ),
    Hostile(
        "looks for other submissions",
        "import os\nothers = [p for p in os.listdir('/proc') if p.isdigit() and p != str(os.getpid())]\n"
        "assert others, 'nobody else is here'",
        CRASHED,
        "nobody else is here",
    ),
    Hostile("reads the home folder", "import os\nopen(os.path.expanduser('~root/.bashrc'))", CRASHED, "Error"),
    Hostile("reads passwords", "open('/etc/passwd')", CRASHED, "Errno"),
    Hostile("network", "import socket\nsocket.create_connection(('127.0.0.1', 80), 2)", CRASHED, "Error"),
    Hostile(
        "the parent's socket",
        "import glob, socket, os\nfolder = os.path.dirname(os.path.dirname(get_ipython().kernel.config"
        "['IPKernelApp']['connection_file']))\n"
        "socket.socket(socket.AF_UNIX).connect(folder + '/control')",
        CRASHED,
        "",
    ),
    Hostile("writes to the library", "open('/course/classroom/questions/core.py', 'a')", CRASHED, "Errno"),
    Hostile("writes to the system", "open('/usr/x', 'w')", CRASHED, "Errno"),
    Hostile(
        "mounts", "import ctypes\nassert ctypes.CDLL(None).mount(b'x', b'/usr', b'tmpfs', 0, None) == 0", CRASHED, ""
    ),
    Hostile(
        "a link out of its folder",
        "import os\nos.symlink('/proc/1/root/etc/shadow', 'link')\nopen('link')",
        CRASHED,
        "Error",
    ),
    Hostile(
        "searches memory for the answer",
        "import gc\nfound = [o for o in gc.get_objects() if type(o).__name__ == 'Slip' and o.name == 'map_bytes']\n"
        "assert found, 'nothing in memory'",
        CRASHED,
        "nothing in memory",
    ),
    Hostile(
        "searches the stack for the answer",
        "import sys\ndef three(n):\n    frame = sys._getframe()\n    while frame:\n"
        "        for value in frame.f_locals.values():\n            if value == 3 * n and value != n:\n"
        "                return value\n        frame = frame.f_back\n    return 0",
        WRONG,
    ),
]


def classes(answers: Sequence[Hostile] = ANSWERS) -> dict[bool, list[dict[str, Hostile]]]:
    """Submissions for the class with little time for a cell (True) and for the other: question -> hostile answer."""
    made: dict[bool, list[dict[str, Hostile]]] = {}
    for endless in (True, False):
        members = [one for one in answers if one.endless is endless]
        shared = [one for one in members if not one.alone]
        groups = [shared[i : i + 4] for i in range(0, len(shared), 4)]
        made[endless] = [dict(zip(("two", "three", "four", "five"), group, strict=False)) for group in groups]
        made[endless] += [{"three": one} for one in members if one.alone]
    return made


def places(classes: dict[bool, list[dict[str, Hostile]]]) -> dict[str, tuple[bool, int, str]]:
    """Where each answer is, by its name: the class, the number of the submission, the question."""
    return {
        one.name: (endless, number, question)
        for endless, members in classes.items()
        for number, member in enumerate(members)
        for question, one in member.items()
    }
