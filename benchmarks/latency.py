"""How fast the explorers answer: from a key press to changed pixels, in headless Chromium.

    python benchmarks/latency.py [--presses 24] [--explorer stride --explorer "memory, VGG-16"]   a real JupyterLab
    python benchmarks/latency.py --site build/site [--presses 24]                                 pages without a kernel

Prints one row an explorer: median, 90th percentile and worst of the presses, in milliseconds. A press is timed in the
page, from the keydown event to the first message after the frame in which the new picture was painted. The time of the
kernel's part (reading, layout, SVG) is printed beside it. Presses come at random moments, 20 to 60 ms after the last
picture. Each press goes forth or back by one, so that after the first two nothing is traced anew. On a page it is the
last slider's key, or the last list's if it has no slider, and beside the times stand kilobytes: of the views loaded
before the first move, and of all.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nbformat

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import lab

# What is called, and the name before the slider whose keys are pressed.
EXPLORERS = {
    "memory, AlexNet": ("memory", "memory_explorer('AlexNet', batch=100)", "batch"),
    "memory, VGG-16": ("memory", "memory_explorer('VGG-16', batch=100)", "batch"),
    "memory, ResNet-50": ("memory", "memory_explorer('ResNet-50', batch=100)", "batch"),
    "who wins": ("why_gpus", "who_wins_explorer()", "inputs"),
    "hardware": ("hardware", "hardware_explorer()", "batch"),
    "stride": ("stride", "stride_explorer()", "batch"),
    "squeeze": ("one_by_one", "squeeze_explorer()", "batch"),
    "pool": ("pooling", "pool_explorer()", "batch"),
    "batch": ("batch_size", "batch_explorer()", "batch"),
    "half": ("half_precision", "half_explorer()", "batch"),
    "offload": ("offload", "offload_explorer()", "batch"),
    "recompute": ("recompute", "recompute_explorer()", "batch"),
    "transformer": ("transformers", "transformer_explorer()", "sequence"),
    "one card": ("one_card", "one_card_explorer()", "sequence"),
    "cards, ResNet-50": ("many_gpus", "cards_explorer('ResNet-50')", "cards"),
}

LAB_PICTURE, PAGE_PICTURE = ".widget-html-content:has(svg[role=img])", ".course-figure"
WATCH = """where => {
  const picture = document.querySelector(`.course-explorer ${where}`);
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
  }).observe(picture, {childList: true, subtree: true, attributes: true});
}"""

KERNEL = """import time
def _inside(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from _inside(child)
_control = next(each for each in _inside(explorer) if getattr(each, "description", "") == {control!r})
_what = "index" if hasattr(_control, "index") else "value"
_first = getattr(_control, _what)
def _once(step):
    began = time.perf_counter()
    setattr(_control, _what, _first + step)
    return 1000 * (time.perf_counter() - began)
_once(1), _once(0)
print(sorted(_once(i % 2) for i in range(1, 12))[5])
_once(0)"""


def measure(topic: str, call: str, control: str, presses: int) -> tuple[list[float], float]:
    """Milliseconds of each press on an explorer's control, and the kernel's median for the same change."""
    cells = [f"from lessons.{topic}.explorer import *\nexplorer = {call}", "explorer", KERNEL.format(control=control)]
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
            page.evaluate(WATCH, LAB_PICTURE)
            lab.slider(page, control).focus()  # no drop-down list: JupyterLab takes the keys of one that is focused
            return _press(page, ("ArrowRight", "ArrowLeft"), presses), inside


def _press(page: Any, keys: tuple[str, str], presses: int) -> list[float]:
    """Press the two keys in turns on what is focused, at any moment between two frames, as a person would.

    Pressed as soon as a picture is painted, each key would wait for a whole frame.
    """
    pauses = random.Random(0)
    for i in range(presses + 2):
        page.wait_for_timeout(pauses.uniform(20, 60))
        page.keyboard.press(keys[i % 2])
        page.wait_for_function("count => window.waits.length > count", arg=i)
    return [float(wait) for wait in page.evaluate("() => window.waits")][2:]  # the first two warm up


def on_pages(site: Path, presses: int) -> Iterator[tuple[str, str, list[float], float, float]]:
    """Of each lesson's page: its name, the control, milliseconds of each press, kB before the first move, kB of all."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with lab.browser() as page:
        for path in sorted((site / "notebooks").glob("*.html")):
            page.goto(f"http://127.0.0.1:{server.server_port}/notebooks/{path.name}")
            if not page.locator("[data-book]").count():
                continue
            page.wait_for_selector("[data-ready]", state="attached")
            first = _loaded(page)
            page.evaluate(WATCH, PAGE_PICTURE)
            labels = page.locator(".course-controls label")
            sliders = labels.filter(has=page.locator("input"))
            label = (sliders if sliders.count() else labels).last
            control = label.locator("input, select")
            control.focus()
            at_end = control.evaluate("one => Number(one.max ?? one.length - 1) === Number(one.value)")
            right, left = ("ArrowRight", "ArrowLeft") if sliders.count() else ("ArrowDown", "ArrowUp")
            page.wait_for_load_state("networkidle")
            waits = _press(page, (left, right) if at_end else (right, left), presses)
            page.wait_for_load_state("networkidle")  # the other parts come after the first move
            yield path.stem, label.locator("span").inner_text(), waits, first, _loaded(page)
    server.shutdown()


def _loaded(page: Any) -> float:
    """Kilobytes of views loaded so far."""
    entries = "performance.getEntriesByType('resource').filter(one => one.name.includes('/explorers/'))"
    return float(page.evaluate(f"() => {entries}.reduce((all, one) => all + one.encodedBodySize, 0)")) / 1000


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing is printed between the rows."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Explorer latency, key press to changed pixels.")
    parser.add_argument("--presses", type=int, default=24)
    parser.add_argument("--explorer", action="append", choices=EXPLORERS, metavar="NAME", help=", ".join(EXPLORERS))
    parser.add_argument("--site", type=Path, metavar="DIR", help="a built site, in place of the lab")
    arguments = parser.parse_args()
    if arguments.presses < 12:
        parser.error("--presses must be 12 or more, for a median that means something")
    if reason := lab.missing():
        parser.exit(2, f"{reason}\n")
    times = ("median ms", "90 % ms", "worst ms")
    if arguments.site:
        _heads("page", (*times, "first kB", "all kB"), arguments.presses)
        for name, control, waits, first, whole in on_pages(arguments.site, arguments.presses):
            _row(name, control, waits, first, whole)
        return
    _heads("explorer", (*times, "kernel ms"), arguments.presses)
    for name in arguments.explorer or EXPLORERS:
        topic, call, control = EXPLORERS[name]
        waits, inside = measure(topic, call, control, arguments.presses)
        _row(name, control, waits, inside)


def _heads(what: str, heads: Sequence[str], presses: int) -> None:
    print(f"{what:<18}{'control':<12}{''.join(f'{head:>11}' for head in heads)}   {presses} presses")


def _row(name: str, control: str, waits: Sequence[float], *more: float) -> None:
    ninth = statistics.quantiles(waits, n=10)[-1]
    figures = (statistics.median(waits), ninth, max(waits), *more)
    print(f"{name:<18}{control:<12}{''.join(f'{figure:>11.1f}' for figure in figures)}", flush=True)


if __name__ == "__main__":
    main()
