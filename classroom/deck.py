"""How a lesson looks when it is presented live, by jupyterlab-slideshow: large text, and little code.

Its styles are in a notebook's metadata, as jupyterlab-fonts defines them. Those that begin with & act in no deck, too.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

METADATA_KEY = "@deathbeds/jupyterlab-fonts"
LAYER_KEY, LAYER = "jupyterlab-slideshow", {"layer": "slide"}
PRESENTING = "body[data-jp-deck-mode='presenting'] &"  # & is the notebook's panel
HIDE_CODE, HIDE_OUTPUT, HIDE_CELL = "remove-input", "remove-output", "remove-cell"  # Jupyter Book's names for these
NOTES = "speaker-notes"  # the tag of a cell that only the speaker sees
CODE_LINES, CODE_COLUMNS = 8, 100  # code that is longer, or wider, is read in the notebook, not in a lecture

STYLE: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("deck.toml").read_text(encoding="utf-8"))


def is_short(cell: NotebookNode) -> bool:
    """Whether a cell's code is shown in a lecture too."""
    lines = cell.source.strip().splitlines()
    folded = cell.metadata.get("jupyter", {}).get("source_hidden", False)
    asked_away = folded or HIDE_CODE in cell.metadata.get("tags", [])
    return not asked_away and 0 < len(lines) <= CODE_LINES and max(map(len, lines)) <= CODE_COLUMNS


def live_style(cells: Sequence[NotebookNode]) -> dict[str, Any]:
    """The value of a notebook's metadata key METADATA_KEY: STYLE, and without the code that is not short."""
    rules = {
        ", ".join(part if part[:1] == "&" else f"{PRESENTING} {part}".rstrip() for part in key.split(", ")): value
        for key, value in STYLE.items()
    }
    long = [cell.id for cell in cells if cell.cell_type == "code" and not is_short(cell)]
    if hidden := [f'{PRESENTING} .jp-Cell[data-jpf-cell-id="{identity}"] .jp-Cell-inputWrapper' for identity in long]:
        rules[", ".join(hidden)] = {"display": "none"}
    return {"styles": {":root": rules}}


def join_slides(cells: Sequence[NotebookNode]) -> None:
    """Mark the cells that continue a slide as its layers, in place: they come with it.

    At a cell without a slide type the space bar would stop, though the cell is on the screen already. The last slide's
    cells stay as they are: the extension would put its layers on the first slide.
    """
    kinds = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in cells]
    last = max((i for i, kind in enumerate(kinds) if kind in ("slide", "subslide")), default=0)
    for cell, kind in zip(cells[1:last], kinds[1:last], strict=True):
        if kind is None:
            cell.metadata[LAYER_KEY] = dict(LAYER)
