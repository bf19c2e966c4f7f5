"""A real JupyterLab on a free loopback port, and a headless Chromium to drive it: for browser tests and benchmarks.

Nothing of the user's is touched: configuration, data and settings live in temporary folders, and every process that was
started is ended, kernels included.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from classroom.lab import environment, jupyterlab

REPOSITORY = Path(__file__).resolve().parents[1]
START_SECONDS = 90
CELLS_SECONDS = 240
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]


def chromium() -> str | None:
    """The system's Chromium (or Chrome), None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return os.environ.get("COURSE_CHROMIUM") or next((path for path in map(shutil.which, names) if path), None)


def missing() -> str:
    """Why no browser test can run here, "" if it can."""
    try:
        import jupyterlab  # noqa: F401
        from playwright.sync_api import sync_playwright  # noqa: F401
    except ImportError as error:
        return f"needs {error.name}: pip install -e '.[lab,test]'"
    return "" if chromium() else "needs Chromium on the PATH (or COURSE_CHROMIUM=/its/path)"


@contextmanager
def server(root: Path, scratch: Path) -> Iterator[str]:
    """JupyterLab over the folder `root` as `course lab` starts it; gives its address, ends all kernels.

    What it writes lies under `scratch`. Its settings are those that learners begin with, and no others.
    """
    runtime = scratch / "runtime"
    variables = {
        **environment(os.environ),
        "JUPYTER_CONFIG_DIR": str(scratch / "config"),
        "JUPYTER_DATA_DIR": str(scratch / "data"),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTERLAB_SETTINGS_DIR": str(scratch / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(scratch / "workspaces"),
        "IPYTHONDIR": str(scratch / "ipython"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")])),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"]
    options += ["--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True"]
    scratch.mkdir(parents=True, exist_ok=True)
    log = scratch / "server.log"
    with log.open("wb") as output:
        command = jupyterlab(root, options)
        process = subprocess.Popen(command, env=variables, stdout=output, stderr=subprocess.STDOUT, cwd=root)
    try:
        yield _address(process, runtime, log)
    finally:
        _end(process)


def _address(process: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        for file in runtime.glob("jpserver-*.json"):
            try:
                return str(json.loads(file.read_text(encoding="utf-8"))["url"])
            except ValueError:  # half written
                pass
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    own = psutil.Process(process.pid)
    try:
        family = [*own.children(recursive=True), own]
    except psutil.NoSuchProcess:
        family = []
    for member in family:
        try:
            member.terminate()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(family, timeout=5)
    for member in alive:
        member.kill()
    process.wait(timeout=10)


@contextmanager
def browser(width: int = 1400, height: int = 1000) -> Iterator[Any]:
    """A page of a headless Chromium (a playwright Page)."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        engine = playwright.chromium.launch(executable_path=chromium(), headless=True, args=ARGUMENTS)
        try:
            page = engine.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(120_000)
            yield page
        finally:
            engine.close()


IDLE = """() => {
  const panel = window.jupyterapp?.shell.currentWidget;
  return panel?.sessionContext?.session?.kernel?.status === 'idle' && panel.context.isReady;
}"""


def open_notebook(page: Any, address: str, name: str) -> None:
    """Open a notebook of the server's folder and wait until its kernel is idle."""
    page.goto(f"{address}lab/tree/{name}?reset")
    page.wait_for_function(IDLE, timeout=START_SECONDS * 1000)


def run_all(page: Any) -> None:
    """Run every cell and wait until the last one has finished and the kernel is idle."""
    page.set_default_timeout(CELLS_SECONDS * 1000)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(IDLE, timeout=CELLS_SECONDS * 1000)
    page.set_default_timeout(120_000)


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for what no page shows. Raises AssertionError."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it has not come"
        time.sleep(0.1)


def error_outputs(page: Any) -> list[str]:
    """What went wrong in any cell: error outputs, and lines of a traceback in any other output."""
    outputs: list[dict[str, Any]] = page.evaluate(
        """() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells
              .flatMap(cell => cell.outputs ?? [])"""
    )
    wrong = [f"{output['ename']}: {output['evalue']}" for output in outputs if output["output_type"] == "error"]
    shown = page.locator(".jp-OutputArea-output").all_inner_texts()
    signs = ("Traceback (most recent call last)", "Error displaying widget")
    return wrong + [text for text in shown if any(sign in text for sign in signs)]


def slider(page: Any, name: str) -> Any:
    """The handle of an explorer's slider, by the name in front of it."""
    row = page.locator(".course-explorer .widget-slider").filter(has=page.locator(".widget-label", has_text=name))
    return row.locator(".noUi-handle").first


def set_theme(page: Any, dark: bool) -> None:
    """Switch JupyterLab to its light or dark theme and wait until it is drawn."""
    theme = "JupyterLab Dark" if dark else "JupyterLab Light"
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
    page.wait_for_function(f"() => document.body.dataset.jpThemeLight === '{str(not dark).lower()}'")
