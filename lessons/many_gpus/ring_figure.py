"""The ring all-reduce as a row of small tables: what each card holds of each chunk, before and after every step.

A reading (`parallel.ring_states`) goes in.
"""

from __future__ import annotations

from course_utils.figures.scene import FAINT, INK, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import SERIES_COLOURS, SIZE, text_on, write_title
from course_utils.memory import Int64
from course_utils.units import CourseError

CELL = 27.0  # pixels


def ring_steps(states: Int64, title: str = "") -> Picture:
    """Every step of a ring of two to four cards: in each cell, from how many cards the numbers in it are.

    What has arrived in a step is framed.

    Args:
        states: (2p - 1, p, p), from `parallel.ring_states`.
        title: the finding.

    Raises:
        CourseError: a ring of one card, or of more than a page is wide.
    """
    steps, cards, _ = states.shape
    if not 2 <= cards <= 4:
        raise CourseError(f"ring_steps draws rings of two to four cards, got {cards}")
    finished = int((states[-1] == cards).all())
    said = (
        f"{cards} cards and chunks, {steps - 1} steps: in the first {cards - 1} each card adds what arrives to its "
        f"own, in the rest finished chunks go round{', until every card holds all' if finished else ''}"
    )
    scene = Scene(WIDTH, 0, f"{title}. {said}." if title else f"{said}.")
    top = write_title(scene, title) + 34 if title else 44.0
    left = 18 + text_width("card 0", SIZE) + 12
    wide = (WIDTH - left - 8) / steps
    for card in range(cards):
        y = top + 34 + (card + 0.5) * CELL + 0.35 * SIZE
        scene.add(Words(12, y, f"card {card}", SIZE))
    for step in range(steps):
        x0, y0 = left + step * wide + (wide - cards * CELL) / 2, top + 34
        name = "before" if step == 0 else f"step {step}"
        scene.add(Words(x0 + cards * CELL / 2, y0 - 10, name, SIZE, "middle", bold=True))
        for card in range(cards):
            for chunk in range(cards):
                count = int(states[step, card, chunk])
                x, y = x0 + chunk * CELL, y0 + card * CELL
                box = [(x, y), (x + CELL, y), (x + CELL, y + CELL), (x, y + CELL)]
                share = count / cards
                scene.add(
                    Area(box, SERIES_COLOURS[1], share if share < 1 else 1.0), Lines([[*box, box[0]]], FAINT, 0.8)
                )
                ink = text_on(SERIES_COLOURS[1]) if share == 1 else INK  # a tint is the page's, and so is its ink
                scene.add(Words(x + CELL / 2, y + CELL / 2 + 0.35 * SIZE, f"{count}", SIZE, "middle", fill=ink))
        for card in range(cards) if step else ():
            for chunk in range(cards):
                if states[step, card, chunk] != states[step - 1, card, chunk]:
                    x, y = x0 + chunk * CELL + 1, y0 + card * CELL + 1
                    side = CELL - 2
                    frame = [(x, y), (x + side, y), (x + side, y + side), (x, y + side), (x, y)]
                    scene.add(Lines([frame], INK, 2.4))
    for first, last, words in (
        (1, cards - 1, "each adds what arrives"),
        (cards, steps - 1, "finished chunks go round"),
    ):
        begin, end = left + first * wide + 6, left + (last + 1) * wide - 6
        y = top - 4
        if text_width(words, SIZE) < end - begin + 60:
            scene.add(Words((begin + end) / 2, y - 6, words, SIZE, "middle", fill=FAINT))
        scene.add(Lines([[(begin, y + 2), (end, y + 2)]], FAINT))
    bottom = top + 34 + cards * CELL
    told = f"columns: the {cards} chunks; number: how many cards' gradients are in the sum"
    scene.add(Words(left, bottom + 26, told, SIZE, fill=FAINT))
    scene.height = bottom + 38
    return Picture.from_scene(scene)
