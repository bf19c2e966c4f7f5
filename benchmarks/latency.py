"""How fast the explorer answers: from a key press to changed pixels, in a real JupyterLab in headless Chromium.

    python benchmarks/latency.py [--presses 24] [--network VGG-16 --network ResNet-50]

Prints one row a network: median, 90th percentile and worst of the presses, in milliseconds. A press is timed in the
page, from the keydown event to the first message after the frame in which the new skyline was painted. The time of the
kernel's part (reading, layout, SVG) is printed beside it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import lab

WATCH = """() => {
  const picture = document.querySelector('.course-explorer svg[role=img]').parentElement;
  window.pressed = null; window.waits = [];
  document.addEventListener('keydown', () => { window.pressed = performance.now(); }, true);
  new MutationObserver(() => {
    const from = window.pressed;
    if (from === null) return;
    window.pressed = null;
    requestAnimationFrame(() => {  // runs before the paint; its message arrives after it
      const channel = new MessageChannel();
      channel.port1.onmessage = () => window.waits.push(performance.now() - from);
      channel.port2.postMessage(null);
    });
  }).observe(picture, {childList: true, subtree: true});
}"""

KERNEL = """import time
def _once(batch):
    began = time.perf_counter()
    explorer.batch.value = batch
    return 1000 * (time.perf_counter() - began)
print(sorted(_once(64 + i) for i in range(11))[5])"""


def measure(network: str, presses: int) -> tuple[list[float], float]:
    """Milliseconds of each press on the batch slider, and the kernel's median for the same change."""
    cells = [
        f"from course_utils.explorers import memory_explorer\nexplorer = memory_explorer({network!r}, batch=100)",
        "explorer",
        KERNEL,
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata=kernel)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "notebooks"
        root.mkdir()
        nbformat.write(notebook, root / "latency.ipynb")
        with lab.server(root, Path(folder) / "server") as address, lab.browser() as page:
            lab.open_notebook(page, address, "latency.ipynb")
            lab.run_all(page)
            if wrong := lab.error_outputs(page):
                raise SystemExit(f"the explorer failed: {wrong[0]}")
            inside = float(page.locator(".jp-OutputArea-output pre").last.inner_text())
            return _press(page, presses), inside


def _press(page: Any, presses: int) -> list[float]:
    page.evaluate(WATCH)
    lab.slider(page, "batch").focus()
    for i in range(presses + 2):
        page.keyboard.press("ArrowRight" if i % 2 else "ArrowLeft")
        page.wait_for_function("count => window.waits.length > count", arg=i)
    return [float(wait) for wait in page.evaluate("() => window.waits")][2:]  # the first two warm up


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Explorer latency, key press to changed pixels.")
    parser.add_argument("--presses", type=int, default=24)
    parser.add_argument("--network", action="append", help="a name of course_utils.networks.NETWORKS, repeatable")
    arguments = parser.parse_args()
    if arguments.presses < 12:
        parser.error("--presses must be 12 or more, for a median that means something")
    if reason := lab.missing():
        parser.exit(2, f"{reason}\n")
    heads = ("median ms", "90 % ms", "worst ms", "kernel ms")
    print(f"{'network':<16}{''.join(f'{head:>11}' for head in heads)}   {arguments.presses} presses")
    for network in arguments.network or ["AlexNet", "VGG-16", "ResNet-50"]:
        waits, inside = measure(network, arguments.presses)
        ninth = statistics.quantiles(waits, n=10)[-1]
        row = (statistics.median(waits), ninth, max(waits), inside)
        print(f"{network:<16}{''.join(f'{figure:>11.1f}' for figure in row)}", flush=True)


if __name__ == "__main__":
    main()
