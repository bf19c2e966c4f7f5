"""The warm parent of sandboxed kernels: it has imported what every kernel needs, and forks one for each submission.

Runs inside a bubblewrap sandbox of its own (`sandbox.sandboxed`) and is trusted: it never runs a line of a
submission. Each child shuts itself in (`_shut_in`, `_become_nobody`) before it becomes an ordinary IPython kernel.

Talks to `provisioner` over one Unix socket: a line of JSON asks for a kernel, closing the connection ends it, and it is
closed here when the kernel has ended. Each kernel has a keeper, which it is forked from and which sees to that.
"""

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from classroom.grading import syscalls

# From Linux's headers: <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>, <linux/capability.h>.
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1, 2, 4, 8, 32, 4096, 16384, 1 << 18,
)  # fmt: skip
MOUNT_ATTR_RDONLY, AT_FDCWD, AT_RECURSIVE, SYS_MOUNT_SETATTR = 1, -100, 0x8000, 442
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
CAPABILITY_VERSION = 0x20080522
NOBODY = 65534


def serve(control: str, *warm: str) -> NoReturn:
    """Import these modules, then fork kernels for whoever connects to the Unix socket at this path, until killed."""
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # each kernel would load its 150 modules, and nobody debugs
    for name in warm:
        with contextlib.suppress(ImportError):
            __import__(name)
    gc.freeze()  # else each kernel would look through all of it for garbage, and so copy it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers: Linux forgets those that have ended
    listener = _listen(Path(control))
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                listener.close()
                _keep(connection)
        connection.close()


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(64)
    return listener


def _keep(connection: socket.socket) -> NoReturn:
    """Fork the kernel that is asked for; end it when whoever asked hangs up, and hang up when it has ended."""
    try:
        signal.signal(signal.SIGCHLD, lambda *_: os._exit(0))  # the kernel has ended
        asked = json.loads(connection.makefile("r").readline())
        libc = ctypes.CDLL(None, use_errno=True)
        _call(libc.prctl, PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # Whoever is to talk to the kernel connects to these: made here, where no kernel can put others in their place.
        folder = Path(asked["sockets"]) / asked["folder"]
        connection_file = json.loads((folder / "kernel.json").read_text())
        ports = [value for key, value in connection_file.items() if key.endswith("_port")]
        given = {f"ipc://k-{port}": _listen(folder / f"k-{port}").detach() for port in ports}
        connection_file["ip"] = "k"
        _call(libc.unshare, CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS)
        ours, theirs = socket.socketpair()
        kernel = os.fork()  # the first process of the new process namespace: when it ends, all in it do
        if kernel == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            ours.close()
            connection.close()
            _become_kernel(libc, asked, theirs, connection_file, given)
        theirs.close()
        if ours.recv(1):  # it is in its user namespace, and has mounted a /proc where it is process 1
            for kind in ("uid_map", "gid_map"):
                Path(f"/proc/1/{kind}").write_text(f"{asked['uid']} {asked['uid']} 1")
            ours.sendall(b"!")
        ours.close()
        connection.recv(1)  # nothing more is sent: whoever asked has hung up
        os.kill(kernel, signal.SIGKILL)
    except Exception as error:  # noqa: BLE001 - said, and the process ends
        print(f"no kernel: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def _become_kernel(
    libc: Any, asked: dict[str, Any], keeper: socket.socket, connection_file: dict[str, Any], given: dict[str, int]
) -> NoReturn:
    _call(libc.prctl, PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.sched_setaffinity(0, asked["processors"])
    limits = _shut_in(libc, asked)
    for name, value in asked["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    _become_nobody(libc, asked["uid"], limits, keeper)
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    last = 2
    for descriptor in (*sorted(given.values()), 4096):
        os.closerange(last + 1, descriptor)
        last = descriptor
    os.chdir(asked["scratch"])
    place = Path(asked["scratch"]) / "kernel.json"
    place.write_text(json.dumps(connection_file))
    _bind_to_given(given)
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance(argv=["-f", str(place), *asked["argv"]])
    os._exit(1)


def _bind_to_given(given: dict[str, int]) -> None:
    """Have ZeroMQ use these listening sockets, by descriptor, where the kernel asks for their addresses."""
    import zmq

    bind = zmq.Socket.bind

    def bind_given(self: Any, address: str) -> Any:
        if address in given:
            self.setsockopt(zmq.USE_FD, given[address])
        return bind(self, address)

    zmq.Socket.bind = bind_given  # type: ignore[method-assign,assignment]


def _shut_in(libc: Any, asked: dict[str, Any]) -> int:
    """Mounts of its own: all it sees read-only, then fresh folders in memory and processes of its own.

    Returns the folder of the system's limits on namespaces, opened before it becomes read-only.
    """
    _call(libc.mount, b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    _call(libc.mount, b"tmpfs", asked["sockets"].encode(), b"tmpfs", 0, b"size=4k,mode=0755")
    read_only = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)  # struct mount_attr
    size = ctypes.c_size_t(ctypes.sizeof(read_only))
    _call(libc.syscall, SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, read_only, size)
    # An empty file takes memory that no size counts, but is counted as one.
    options = f"size={asked['scratch_bytes']},nr_inodes={asked['scratch_files']},mode=1777".encode()
    for volatile in (asked["scratch"], "/dev/shm"):
        _call(libc.mount, b"tmpfs", volatile.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options)
    _call(libc.mount, b"/dev/null", b"/dev/zero", None, MS_BIND, None)  # mapped, it is memory that nobody counts
    _call(libc.mount, b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)
    limits = os.open("/proc/sys/user", os.O_PATH | os.O_DIRECTORY)
    for place in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"):  # what a process of root might write
        if os.path.exists(place):
            _call(libc.mount, place.encode(), place.encode(), None, MS_BIND | MS_REC, None)
            _call(libc.mount, None, place.encode(), None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, None)
    return limits


def _become_nobody(libc: Any, uid: int | None, limits: int, keeper: socket.socket) -> None:
    """Another user, with no capability now, none after exec, none by a set-uid program, and no way to a namespace.

    With a uid, this process is the machine's root and becomes that user, whose processes the system counts by
    themselves. Without one it is an ordinary user's, and becomes "nobody". Either is in a user namespace of its own,
    in which no other can be made; where the system allows root none, it allows none that could be made later.
    """
    inside, own_uid, own_gid = (NOBODY if uid is None else uid), os.geteuid(), os.getegid()
    try:
        _call(libc.unshare, CLONE_NEWUSER)
    except OSError:
        if uid is None:
            raise
    else:
        if uid is None:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{inside} {own_uid} 1")
            Path("/proc/self/gid_map").write_text(f"{inside} {own_gid} 1")
        else:  # another's number can be mapped from outside alone
            keeper.sendall(b"?")
            if not keeper.recv(1):
                raise OSError("the user could not be mapped")
        none_inside = os.open("max_user_namespaces", os.O_WRONLY, dir_fd=limits)  # of this namespace, not the machine
        os.write(none_inside, b"0")
        os.close(none_inside)
    os.close(limits)
    keeper.close()
    for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
        _call(libc.prctl, PR_CAPBSET_DROP, capability, 0, 0, 0)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _call(libc.prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _call(libc.capset, header, nothing)
    _call(libc.prctl, PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of user cleared it
    _call(libc.prctl, PR_SET_DUMPABLE, 1, 0, 0, 0)  # and this, without which its open files cannot be counted
    syscalls.refuse()


def _call(function: Any, *arguments: Any) -> None:
    if function(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function.__name__}{arguments}: {os.strerror(error)}")


if __name__ == "__main__":
    serve(*sys.argv[1:])
