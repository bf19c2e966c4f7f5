"""A pytest plugin for nbval: kernels are forked from a process that has imported what every notebook imports first.

Each is a process of its own, as always; it is only spared the seconds that torch and its company take to load.
"""

from __future__ import annotations

import multiprocessing
import os
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

NAME = "forked"
# Dynamo is what fake tensors and optimizers load.
PRELOADED = [
    "ipykernel.kernelapp", "IPython", "ipywidgets", "matplotlib.pyplot", "pandas", "sklearn.datasets", "torch",
    "torch._dynamo",
]  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Have jupyter_client fork kernels, where there is a fork."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        multiprocessing.set_forkserver_preload(PRELOADED)
        factory = KernelProvisionerFactory.instance()
        entry = EntryPoint(NAME, f"{__name__}:ForkingProvisioner", KernelProvisionerFactory.GROUP_NAME)
        factory.provisioners[NAME], factory.default_provisioner_name = entry, NAME


class ForkingProvisioner(LocalProvisioner):
    """Starts a kernel by a fork in place of a command."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        self.process = Forked(cmd[cmd.index("-f") :], str(kwargs["cwd"]), dict(kwargs["env"]))
        self.pid = self.process.pid
        return self.connection_info


class Forked:
    """A kernel's process, with what jupyter_client uses of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], folder: str, environment: dict[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        self.process = context.Process(target=_become_kernel, args=(arguments, folder, environment))
        self.process.start()
        self.pid = self.process.pid
        self.terminate, self.kill, self.wait = self.process.terminate, self.process.kill, self.process.join

    def poll(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _become_kernel(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    import pandas as pd
    from ipykernel.kernelapp import launch_new_instance

    pd.set_option("display.max_columns", 20)  # as pandas has it when it is imported in a kernel, not in a terminal
    launch_new_instance(argv=arguments)
