"""Run a command as an ordinary user where the tests run as root, as they do in a container."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

UID = 60_990
ROOT = Path(__file__).resolve().parents[1]
BECOME = "import os, sys; os.setgroups([]); os.setgid({0}); os.setuid({0}); os.execvp(sys.argv[1], sys.argv[1:])"


def why_not() -> str:
    """Why it cannot be done, in words; empty if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root can become somebody else; other tests ran as an ordinary user already"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    tried = subprocess.run(
        as_ordinary(["bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"]),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"an ordinary user can have no namespace here: {tried.stderr.strip()[-200:]}" if tried.returncode else ""


def as_ordinary(command: list[str], folder: Path | None = None) -> list[str]:
    """The command line. Python and the course are seen even below a home that is closed; `folder` may be written to."""
    needed = {Path(sys.prefix), Path(sys.base_prefix), Path(os.path.realpath(sys.base_prefix)), ROOT}
    binds: list[str] = []
    for path in sorted(needed | ({folder} if folder else set())):
        closed = [parent for parent in reversed(path.parents) if parent.exists() and not parent.stat().st_mode & 0o001]
        if closed:
            below = [parent for parent in reversed(path.parents) if closed[0] in parent.parents]
            if str(closed[0]) not in binds:
                binds += ["--perms", "0755", "--tmpfs", str(closed[0])]
            for parent in below:
                binds += ["--perms", "0755", "--dir", str(parent)]
            binds += ["--bind", str(path), str(path)]
    become = [sys.executable, "-c", BECOME.format(UID)]
    return ["bwrap", "--dev-bind", "/", "/", *binds, "--cap-add", "ALL", "--", *become, *command]


def give(folder: Path) -> None:
    """Make the ordinary user the owner of a folder and of all in it."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, UID, UID, follow_symlinks=False)
