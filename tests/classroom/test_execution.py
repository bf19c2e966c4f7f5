"""A build that is ended from outside."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from multiples import add_topic

from classroom import ROOT

WAITS = """\
# %%
from pathlib import Path
from time import sleep

Path("begun").touch()
sleep(300)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_interrupted_it_says_so_in_one_line_and_leaves_no_kernel(tmp_path):
    (add_topic(tmp_path, "03_waits") / "lesson.py").write_text(WAITS)
    for name in ("notebooks", "classroom"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-m", "classroom.cli", "build", "03"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    building = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        while not (tmp_path / "notebooks" / "begun").exists():
            assert building.poll() is None
            time.sleep(0.05)
        family = psutil.Process(building.pid).children(recursive=True)
        building.send_signal(signal.SIGINT)
        assert building.communicate(timeout=60)[1] == "course: interrupted; files already written are whole\n"
    finally:
        building.kill()
    assert building.returncode == 130
    assert family
    assert not psutil.wait_procs(family, timeout=30)[1]
