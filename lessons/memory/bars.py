"""Bars that this lesson draws: parameters and feature maps, layer by layer."""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_utils.figures.scene import FAINT, INK, WIDTH, Area, Lines, Picture, Scene, text_width
from course_utils.figures.style import ROLE_COLOURS, ROW, SIZE, ByteScale, bar_at, beside, write_title
from course_utils.memory import Ledger
from course_utils.units import CourseError, format_bytes

FLOAT32 = 4  # bytes of a parameter


def layer_bars(ledger: Ledger, top: int = 14) -> Picture:
    """Per layer: parameters to the left, feature maps kept for the backward pass to the right, on one scale of bytes.

    Args:
        ledger: the step to read.
        top: how many layers get a row of their own, those with most bytes; the rest share the last row.

    Raises:
        CourseError: top is less than 1.
    """
    if top < 1:
        raise CourseError(f"top must be 1 layer or more, got {top}")
    table = ledger.by_layer()
    sizes = pd.DataFrame({"parameters": table["parameters"] * FLOAT32, "maps": table["saved feature maps"]})
    layers = [str(layer) for layer in table["layer"]]
    kept = sorted(np.argsort(-sizes.max(axis=1).to_numpy(), kind="stable")[:top])
    rows = [(layers[i], float(sizes["parameters"].iloc[i]), float(sizes["maps"].iloc[i])) for i in kept]
    rest = sizes.drop(index=kept).sum()
    if rest.any():
        rows.append((f"{len(sizes) - len(kept)} smaller layers", float(rest["parameters"]), float(rest["maps"])))
    total = sizes.sum()
    first = {
        column: " and ".join(layers[i] for i in np.flatnonzero(sizes[column] == sizes[column].max())[:2])
        for column in sizes
    }
    head = f"{ledger.name}, batch {ledger.batch:,}"
    title = f"{head}: most parameters in {first['parameters']}, the largest feature maps in {first['maps']}"
    said = "; ".join(f"{name}: {format_bytes(own)} and {format_bytes(maps)}" for name, own, maps in rows)
    scene = Scene(WIDTH, 0, f"{title}. Parameters and feature maps per layer. {said}.")
    y = write_title(scene, title) + 24
    names = max(text_width(name, SIZE) for name, _, _ in rows) + 24
    heads = [f"parameters {format_bytes(total['parameters'])}", f"feature maps kept {format_bytes(total['maps'])}"]
    value = text_width("1,023.99 MiB", SIZE) + 12
    longest = (max(own for _, own, _ in rows), max(maps for _, _, maps in rows))
    least = [text_width(head, SIZE, True) + 14 for head in heads]

    def needs(pixels_a_byte: float) -> list[float]:
        """Width of either side: its longest bar with the number beside it, or its heading if that is wider."""
        return [max(pixels_a_byte * size + value, head) for size, head in zip(longest, least, strict=True)]

    room = WIDTH - names - 8
    low, high = 0.0, room / max(*longest, 1.0)
    for _ in range(40):  # the largest scale that both sides have room for
        middle = (low + high) / 2
        low, high = (middle, high) if sum(needs(middle)) <= room else (low, middle)
    scale, zero = ByteScale(1.0, low), names + needs(low)[0]
    scene.add(beside(zero - 10, y, heads[0], end=True, bold=True), beside(zero + 10, y, heads[1], bold=True))
    y += 8
    start = y + ROW / 2
    for name, own, maps in rows:
        y += ROW
        scene.add(beside(12, y, name))
        if own:
            scene.add(Area(bar_at(zero - scale.pixels(own), y, zero), ROLE_COLOURS["parameters"]))
            scene.add(beside(zero - scale.pixels(own) - 7, y, format_bytes(own), end=True, fill=FAINT))
        if maps:
            scene.add(Area(bar_at(zero, y, zero + scale.pixels(maps)), ROLE_COLOURS["feature maps"]))
            scene.add(beside(zero + scale.pixels(maps) + 7, y, format_bytes(maps), fill=FAINT))
    scene.add(Lines([[(zero, start), (zero, y + ROW / 2)]], INK, 1.2))
    scene.height = y + ROW
    return Picture.from_scene(scene)
