"""Reading a picture back from its SVG: its words, its shapes, and whether it is well laid out."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import re
import xml.etree.ElementTree as ET

from course_utils.figures import Picture, scene
from course_utils.figures.scene import Words, overlap
from course_utils.units import CourseError


@contextlib.contextmanager
def one_move(explorer):
    """Several controls of an explorer set as if they were one: it is drawn once, at the end.

    Gives a function that returns the view which then is on the page, or raises what is said there in its place.
    """
    read, became = explorer.view, concurrent.futures.Future()

    def view():
        try:
            became.set_result(read())
        except CourseError as error:
            became.set_exception(error)
        return became.result()

    with explorer.in_one_move():
        yield became.result
    explorer.view = view
    explorer.redraw()
    del explorer.view


def words_of(picture):
    """The texts of an SVG as Words, in pixels."""
    found = []
    for element in ET.fromstring(picture.svg).iter("{http://www.w3.org/2000/svg}text"):
        x, y, size = (float(element.get(name)) / scene.FINE for name in ("x", "y", "font-size"))
        anchor = element.get("text-anchor", "start")
        found.append(Words(x, y, element.text, size, anchor, element.get("font-weight") == "bold", element.get("fill")))
    return found


def canvas(picture):
    _, _, width, height = map(float, ET.fromstring(picture.svg).get("viewBox").split())
    return width / scene.FINE, height / scene.FINE


def corners(data):
    """Points of an SVG path, in pixels, one list a subpath."""
    parts, x, y = [], 0.0, 0.0
    for letter, numbers in re.findall(r"([MHVLZ])([^MHVLZ]*)", data):
        values = [float(number) / scene.FINE for number in numbers.split()]
        if letter == "Z":
            continue
        if letter == "H":
            x = values[0]
        elif letter == "V":
            y = values[0]
        else:
            x, y = values
        if letter == "M":
            parts.append([])
        parts[-1].append((x, y))
    return parts


def paths(picture, **attributes):
    elements = ET.fromstring(picture.svg).iter("{http://www.w3.org/2000/svg}path")
    wanted = {name.replace("_", "-"): value for name, value in attributes.items()}
    return [corners(e.get("d")) for e in elements if wanted.items() <= e.attrib.items()]


def assert_well_laid(picture):
    """Nothing infinite, no text over another, no text off the canvas, the SVG well formed."""
    assert not re.search(r"nan|inf(?!orm)", re.sub(r'aria-label="[^"]*"|>[^<]*<', "", picture.svg), re.IGNORECASE)
    width, height = canvas(picture)
    texts = words_of(picture)
    assert texts
    for text in texts:
        left, top, right, bottom = text.box
        assert left >= -0.5, text
        assert top >= -0.5, text
        assert right <= width + 0.5, text
        assert bottom <= height + 0.5, text
        assert text.size >= 16  # 12 point
    for one, other in itertools.combinations(texts, 2):
        left, top, right, bottom = one.box  # an SVG is written in tenths of a pixel: that much is rounding
        assert not overlap((left + 0.1, top + 0.1, right - 0.1, bottom - 0.1), other.box), (one, other)


def ticks(picture, unit):
    """A function from y to bytes, read off the labels of the vertical axis."""
    labels = [text for text in words_of(picture) if text.anchor == "end" and text.fill == "var(--faint)"]
    marks = [(text.y - 0.35 * text.size, float(text.text)) for text in labels]
    (y0, v0), (y1, v1) = marks[0], marks[-1]
    return lambda y: (v0 + (y - y0) * (v1 - v0) / (y1 - y0)) * unit


def said_by(explorer):
    """The words of an explorer's view, without markup."""
    return re.sub(r"<[^>]*>", "", explorer.words.value.replace("<br>", "\n"))


def drawn_by(explorer):
    """The picture of an explorer's view."""
    return Picture(explorer.figure.value, "", 0, bytes)


def assert_sound(explorer):
    """That a view is well laid out and its words hold numbers; gives the words."""
    said = said_by(explorer)
    assert "alert" not in explorer.words.value, said
    assert_well_laid(drawn_by(explorer))
    assert not re.search(r"\b(nan|inf|None)\b", said)
    return said


def assert_says_how_the_peak_moves(said, before, after):
    """That the first line says which way the peak goes from `before` to `after` bytes."""
    way = "falls" if after < before else "rises" if after > before else "stays"
    assert f": the peak {way} " in said.split("\n")[0]
