"""How jupyter_client starts a kernel in a sandbox: it asks the zygote for one."""

import asyncio
import json
import os
import select
import shutil
import signal
import socket
import tempfile
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

from course_utils.units import MIB, CourseError

PROVISIONER = "course-sandbox"  # what jupyter_client knows `SandboxProvisioner` by, once `register` was called
SETTINGS = "COURSE_SANDBOX"  # environment variable: the request to the zygote as JSON, for the provisioner
LARGEST_MESSAGE = 32 * MIB


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
        self._request = json.loads(os.environ[SETTINGS])
        manager: Any = self.parent
        self._folder = Path(tempfile.mkdtemp(prefix="k", dir=self._request["outside"]))
        manager.transport, manager.ip = "ipc", str(self._folder / "k")  # absolute: a relative one fails in silence
        manager.connection_file = str(self._folder / "kernel.json")
        # A kernel can send a message as large as it likes: one that is larger than this ends the connection.
        manager.context.setsockopt(zmq.MAXMSGSIZE, LARGEST_MESSAGE)
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        self.kernel_spec.interrupt_mode = "message"  # signals do not cross into another process namespace
        return await super().pre_launch(cmd=[], **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Have a kernel forked. Raises CourseError if the zygote is not there."""
        argv = [*cmd, "--HistoryManager.enabled=False", "--log-level=ERROR"]
        assert self._folder is not None
        asked = {**self._request, "folder": self._folder.name, "argv": argv}
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._line.connect(str(self._folder.parent / "control"))
            self._line.sendall(json.dumps(asked).encode() + b"\n")
        except OSError as error:
            raise CourseError(f"the sandbox has ended ({error})") from None
        return self.connection_info

    async def poll(self) -> int | None:
        """None while the kernel lives; 1 when it has ended."""
        ended = self._line is None or select.select([self._line], [], [], 0)[0]  # nothing is ever sent on it
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

    terminate = kill  # a stranger's kernel is asked nothing

    async def cleanup(self, restart: bool = False) -> None:
        """Remove the folder of the sockets."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
