"""What a lesson's cells show in JupyterLab on a desk, a projector, a tablet and a phone: nothing is cut."""

from __future__ import annotations

from typing import Any

SIZES = [(1440, 900), (1100, 800), (800, 800), (390, 844)]

# What sticks out of its cell and cannot be scrolled to, or is cut by what hides it; of a picture, its words too.
STICKS_OUT = """number => {
  const cell = window.jupyterapp.shell.currentWidget.content.widgets[number].node;
  const room = cell.getBoundingClientRect(), found = [];
  const scrolls = node => {
    for (let at = node; at && at !== cell; at = at.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(at).overflowX)) return true;
    return false;
  };
  const tell = (what, node) => found.push(`${what}: ${node.tagName} ${node.textContent.trim().slice(0, 40)}`);
  for (const text of cell.querySelectorAll('svg[role=img] text')) {
    const word = text.getBoundingClientRect(), picture = text.ownerSVGElement.getBoundingClientRect();
    const inside = word.left >= picture.left - 1 && word.right <= picture.right + 1
      && word.top >= picture.top - 1 && word.bottom <= picture.bottom + 1;
    if (word.width && !inside) tell('outside its picture', text);
  }
  for (const node of cell.querySelectorAll('.jp-OutputArea *, .jp-MarkdownOutput *')) {
    if (node.ownerSVGElement) continue;
    const box = node.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    if (box.right > room.right + 2 && !scrolls(node)) tell('sticks out', node);
    if (node.scrollWidth > node.clientWidth + 2 && getComputedStyle(node).overflowX === 'hidden') tell('cut', node);
  }
  return found;
}"""


def what_sticks_out(page: Any, width: int, height: int) -> list[str]:
    """What of the open notebook, which was run, does not fit a window of this size, and in which cell."""
    page.set_viewport_size({"width": width, "height": height})
    cells = page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length")
    found = []
    for number in range(cells):
        page.evaluate("at => window.jupyterapp.shell.currentWidget.content.scrollToItem(at, 'start')", number)
        page.wait_for_function("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found += [f"cell {number} at {width} px {what}" for what in page.evaluate(STICKS_OUT, number)]
    return found
