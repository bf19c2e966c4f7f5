"""Pictures: colours every eye tells apart, labels that never collide, bytes to scale, the same picture each time."""

from __future__ import annotations

import base64
import io
import itertools
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from amount import every_pair
from drawn import assert_well_laid, corners, paths, ticks, words_of
from hypothesis import given, settings
from hypothesis import strategies as st
from made_steps import VGG, made_step, roomy
from PIL import Image
from torch import nn

from course_utils import figures, networks
from course_utils.figures import ROLE_COLOURS, scene, side_by_side, skyline, style
from course_utils.figures.scene import Area, Lines, Picture, Scene, Words, text_width, wrap
from course_utils.figures.skyline import describe, finding
from course_utils.figures.style import axis_top
from course_utils.machine.context import context, known_context
from course_utils.memory import ROLES
from course_utils.techniques.capacity import TIGHT, card_name, demand, fit, largest_batch
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, CourseError, format_bytes
from lessons.memory.bars import layer_bars
from lessons.shared.batch_lines import batch_lines

# ---------------------------------------------------------------------------------------------------------------------
# Colours

# Full red-, green- and blue-blindness on linear RGB: Machado, Oliveira, Fernandes, "A physiologically-based model for
# simulation of color vision deficiency" (2009), severity 1.0.
SIGHT = {
    "normal": np.eye(3),
    "red-blind": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "green-blind": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "blue-blind": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = np.array([[0.412456, 0.357576, 0.180438], [0.212673, 0.715152, 0.072175], [0.019334, 0.119192, 0.950304]])


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIE L*a*b* (D65) of linear RGB."""
    ratio = TO_XYZ @ np.clip(rgb, 0, 1) / (0.95047, 1.0, 1.08883)
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(one, other):
    """CIEDE2000, after Sharma, Wu, Dalal (2005)."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    chroma = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(chroma**7 / (chroma**7 + 25**7)))
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = np.degrees(np.arctan2(b1, a1)) % 360, np.degrees(np.arctan2(b2, a2)) % 360
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    dh = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2))
    lm, cm = (l1 + l2) / 2, (c1 + c2) / 2
    hm = h1 + h2 if c1 * c2 == 0 else (h1 + turn / 2) % 360
    t = 1 - 0.17 * np.cos(np.radians(hm - 30)) + 0.24 * np.cos(np.radians(2 * hm))
    t += 0.32 * np.cos(np.radians(3 * hm + 6)) - 0.2 * np.cos(np.radians(4 * hm - 63))
    sl = 1 + 0.015 * (lm - 50) ** 2 / np.sqrt(20 + (lm - 50) ** 2)
    sc, sh = 1 + 0.045 * cm, 1 + 0.015 * cm * t
    rt = -2 * np.sqrt(cm**7 / (cm**7 + 25**7)) * np.sin(np.radians(60 * np.exp(-(((hm - 275) / 25) ** 2))))
    return np.sqrt(((l2 - l1) / sl) ** 2 + ((c2 - c1) / sc) ** 2 + (dh / sh) ** 2 + rt * (c2 - c1) / sc * dh / sh)


def test_the_colour_difference_agrees_with_published_pairs():
    # Sharma et al., table 1, pairs 1, 13 and 25.
    assert difference((50, 2.6772, -79.7751), (50, 0, -82.7485)) == pytest.approx(2.0425, abs=1e-4)
    assert difference((50, 2.5, 0), (73, 25, -18)) == pytest.approx(27.1492, abs=1e-4)
    assert difference((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387)) == pytest.approx(1.2644, abs=1e-4)


@pytest.mark.parametrize("sight", SIGHT)
def test_every_two_roles_are_told_apart(sight):
    seen = {role: lab(np.array(SIGHT[sight]) @ linear(colour)) for role, colour in ROLE_COLOURS.items()}
    close = {pair: difference(seen[pair[0]], seen[pair[1]]) for pair in itertools.combinations(ROLES, 2)}
    assert min(close.values()) >= 14, min(close, key=close.get)


def test_in_grey_bands_that_touch_differ_in_lightness_and_no_two_roles_are_equal():
    lightness = [lab(linear(ROLE_COLOURS[role]))[0] for role in ROLES]
    assert min(abs(low - high) for low, high in itertools.pairwise(lightness)) >= 12
    assert min(np.diff(sorted(lightness))) >= 5
    # The input's band is often thinner than a pixel: then its two neighbours touch.
    at = ROLES.index("input")
    assert abs(lightness[at - 1] - lightness[at + 1]) >= 12


@pytest.mark.parametrize("role", ROLES)
def test_words_on_a_band_are_readable(role):
    one, other = (style.luminance(colour) + 0.05 for colour in (ROLE_COLOURS[role], style.text_on(ROLE_COLOURS[role])))
    assert max(one, other) / min(one, other) >= 4.5  # WCAG 2, level AA


# ---------------------------------------------------------------------------------------------------------------------
# The scene and its painters

numbers = st.floats(0, 900, allow_nan=False)
polygons = st.lists(st.tuples(numbers, st.one_of(numbers, st.sampled_from([0.0, 10.0, 20.0]))), min_size=3, max_size=40)


@given(polygons)
def test_a_path_keeps_every_corner_and_drops_only_what_changes_nothing(points):
    kept = corners(scene._path(points, close=True))[0]
    whole = [tuple(point) for point in (np.rint(10 * np.array(points)) / 10).tolist()]
    assert kept[0] == pytest.approx(whole[0])
    assert kept[-1] == pytest.approx(whole[-1])
    remaining = iter(whole)
    assert all(any(np.allclose(corner, point) for point in remaining) for corner in kept)  # a subsequence
    assert polygon_area(kept) == pytest.approx(polygon_area(whole), abs=1e-6 * 900**2)


def polygon_area(points):
    x, y = np.array(points).T
    return 0.5 * float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))


def sample_scene():
    drawn = Scene(200, 100, "a sample")
    drawn.add(Area([(10, 10), (90, 10), (90, 60), (10, 60)], "#0e6b51"), Lines([[(0, 80), (200, 80)]], dashed=True))
    drawn.add(Words(100, 95, "5 < 6 & $x$", anchor="middle"))
    return drawn


def test_both_painters_draw_the_same_shapes():
    drawn = sample_scene()
    pixels = np.asarray(Image.open(io.BytesIO(scene.to_png(drawn, scale=1))).convert("RGB")).astype(int)
    assert pixels.shape == (100, 200, 3)
    assert pixels[30, 50].tolist() == pytest.approx([0x0E, 0x6B, 0x51], abs=3)
    assert pixels[30, 150].tolist() == [255, 255, 255]
    assert (pixels[82:98, 40:160] < 128).any()  # the words
    assert paths(Picture.from_scene(drawn), fill="#0e6b51") == [[[(10, 10), (90, 10), (90, 60), (10, 60)]]]
    assert words_of(Picture.from_scene(drawn))[0].text == "5 < 6 & $x$"


def test_a_picture_is_the_same_each_time():
    made = [skyline(made_step(name="made").at(32), 8 * GIB) for _ in range(2)]
    assert made[0].svg == made[1].svg
    assert made[0].png == made[1].png
    assert b"Software" not in made[0].png
    assert Image.open(io.BytesIO(made[0].png)).info == {}


class _Shown(HTMLParser):
    """What is left of HTML where style, SVG and empty attributes are stripped, as JupyterLab does unless it trusts."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.images = [], "", 0

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            self.images += 1
        elif tag not in ("svg", "path", "text"):
            self.open.append((tag, bool(dict(attributes).get("hidden"))))

    def handle_endtag(self, tag):
        if tag not in ("svg", "path", "text"):
            self.open.pop()

    def handle_data(self, data):
        if not any(hidden or tag == "style" for tag, hidden in self.open):
            self.text += data.strip()


def test_a_png_keeps_each_colour_of_the_scene_in_the_smallest_area():
    drawn = Scene(400, 300, "areas")
    for i, colour in enumerate([*ROLE_COLOURS.values(), *style.SERIES_COLOURS]):
        drawn.add(Area([(20 + 25 * i, 20), (24 + 25 * i, 20), (24 + 25 * i, 24), (20 + 25 * i, 24)], colour))
    for i in range(90):  # shades that would take the palette
        shade = f"#{2 * i:02x}{255 - i:02x}{60 + i:02x}"
        drawn.add(Area([(0, 50 + i), (400, 50 + i), (400, 51 + i), (0, 51 + i)], shade))
    pixels = np.asarray(Image.open(io.BytesIO(scene.to_png(drawn))).convert("RGB"))
    there = {"#" + bytes(colour.tolist()).hex() for colour in np.unique(pixels.reshape(-1, 3), axis=0)}
    assert there >= {*ROLE_COLOURS.values(), *style.SERIES_COLOURS}


def test_a_title_writes_per_cent_and_minus_in_the_one_way():
    drawn = Scene(960, 300, "title")
    style.write_title(drawn, "VGG-16: -33%, not −50 %")
    assert [words.text for words in drawn.words()] == ["VGG-16: −33 %, not −50 %"]


def test_a_band_with_next_to_nothing_of_the_peak_is_named_without_a_share():
    ledger = made_step([("weights", 4 * GIB, 8), ("map", 8, 2 * GIB)]).at(1)
    assert ledger.by_role()["feature maps"] < 0.005 * ledger.peak_bytes
    texts = [words.text for words in words_of(skyline(ledger))]
    assert "feature maps" in texts
    assert "33 % of the peak" in texts
    assert "0 % of the peak" not in texts


def test_a_bracket_marks_a_part_of_the_peak():
    ledger = made_step(VGG).at(64)
    part = ledger.peak_bytes // 3
    picture = skyline(ledger, 24 * GIB, part=("a part", part))
    assert_well_laid(picture)
    assert "a part: 33 % of the peak" in [words.text for words in words_of(picture)]
    to_bytes = ticks(picture, GIB)
    (bracket,) = [part for path in paths(picture, stroke="var(--ink)", fill="none") for part in path
                  if len(part) == 4 and part[0][0] == part[3][0]]  # fmt: skip
    assert to_bytes(bracket[0][1]) - to_bytes(bracket[3][1]) == pytest.approx(part, rel=0.01)


def test_a_page_that_strips_svg_shows_the_image_and_no_stray_words():
    picture = skyline(made_step().at(8))
    shown = _Shown()
    shown.feed(picture.html)
    assert shown.open == []
    assert shown.images == 1
    assert shown.text == ""
    assert base64.b64encode(picture.png).decode() in picture.html


def test_a_cell_gets_html_png_and_words():
    picture = skyline(made_step().at(8))
    bundle = picture._repr_mimebundle_()
    assert bundle["text/plain"] == picture.alt
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert 'role="img"' in bundle["text/html"]
    assert ET.fromstring(picture.svg).get("aria-label") == picture.alt


def test_words_are_measured_and_wrapped():
    assert text_width("iiii", 16) < text_width("mmmm", 16)
    assert text_width("maps", 16) < text_width("maps", 16, bold=True)
    lines = wrap("the peak of the step is a long sentence", 16, 120)
    assert " ".join(lines) == "the peak of the step is a long sentence"
    assert all(text_width(line, 16) <= 120 for line in lines)
    assert wrap("unbreakable", 16, 10) == ["unbreakable"]


def test_place_takes_the_first_free_place_and_none_if_there_is_none():
    drawn = Scene(100, 40, "")
    drawn.add(Words(0, 20, "taken"))
    assert drawn.place([Words(0, 22, "over"), Words(60, 20, "free")]).x == 60
    assert drawn.place([Words(95, 20, "outside"), Words(0, 20, "over")]) is None
    assert drawn.place([Words(0, 38, "in")], keep_clear=[(0, 20, 100, 40)]) is None
    assert [text.text for text in drawn.words()] == ["taken", "free"]


# ---------------------------------------------------------------------------------------------------------------------
# The skyline


@st.composite
def steps(draw):
    layers = draw(st.lists(st.tuples(st.integers(0, 2**30), st.integers(0, 2**27)), min_size=1, max_size=12))
    named = [(f"layer{i}", parameters, output) for i, (parameters, output) in enumerate(layers)]
    state = draw(st.sampled_from([0.0, 1.0, 2.0]))
    return made_step(named, draw(st.integers(1, 2**20)), state, draw(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(steps(), st.integers(1, 4096), st.one_of(st.none(), st.integers(2**10, 2**40)), st.booleans())
def test_whatever_the_step_labels_never_collide_and_no_role_goes_unnamed(step, batch, limit, ghost):
    ledger = step.at(batch)
    picture = skyline(ledger, limit, before=step.at(2 * batch) if ghost else None)
    assert_well_laid(picture)
    named = {text.text.removesuffix(" ") for text in words_of(picture)}
    for code, role in enumerate(ROLES):
        assert (role in named) == bool(ledger.matrix[:, code].any())


@settings(max_examples=60, deadline=None)
@given(steps(), st.integers(1, 4096))
def test_a_line_to_a_name_beside_the_plot_begins_where_the_band_ends(step, batch):
    assert_lines_begin_at_bands(skyline(step.at(batch)))


def test_a_band_that_ends_before_the_plot_does_is_led_from_there():
    picture = skyline(CORNERS["long names"].at(3))  # its gradients are freed by the last event, a few pixels wide
    axis = max(x for (line,) in paths(picture, stroke="var(--faint)") if len(line) == 3 for x, _ in line)
    assert assert_lines_begin_at_bands(picture)["weight gradients"] < axis - 1


def assert_lines_begin_at_bands(picture):
    """Role -> x where the line to its name begins, for all roles that are led to a name in the column."""
    lines = [line for shape in paths(picture, stroke="var(--faint)") for line in shape if len(line) == 2]
    begins = {}
    for role, colour in ROLE_COLOURS.items():
        for (band, *_), (square, *_) in itertools.pairwise(paths(picture, fill=colour)):
            left, middle = min(x for x, _ in square), np.mean([y for _, y in square[:4]])
            for (x, y), end in lines:
                if end == pytest.approx((left - 2, middle), abs=0.2):
                    side = [corner[1] for corner in band if corner[0] == pytest.approx(x, abs=0.1)]
                    if not side:  # the band is thinner than what is drawn, and has no corner of its own
                        edges = itertools.pairwise(band)
                        side = [y1 for (x1, y1), (x2, y2) in edges if y1 == y2 and min(x1, x2) <= x <= max(x1, x2)]
                        assert side, (role, x)
                        assert max(side) - min(side) <= 0.1, (role, x)
                    assert min(side) - 0.2 <= y <= max(side) + 0.2, (role, x, y)
                    begins[role] = x
    return begins


def test_the_name_of_a_narrow_phase_keeps_off_its_neighbours():
    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(60)))
    net[:-1].requires_grad_(False)
    picture = skyline(training_step(net, input_shape=(8,), criterion=lambda out, y: out.mean(), optimizer="sgd").at(4))
    boxes = [text.box for text in words_of(picture) if text.text in ("forward", "backward", "update")]
    assert len(boxes) == 3
    assert all(after[0] - before[2] > 12 for before, after in itertools.pairwise(sorted(boxes)))


CORNERS = {
    "tiny net": made_step([("a", 4, 8)], sample=4, state=0),
    "no weights": made_step([("pool", 0, 1000), ("pool2", 0, 10)]),
    "inference": made_step(VGG, train=False),
    "vgg": made_step(VGG),
    "nothing but weights": made_step([("dense", 2**30, 0)], sample=1),
    "long names": made_step([(f"features.block{i}.branch_of_some_length.conv", 2**20, 2**22) for i in range(40)]),
    "very deep": made_step([(f"layer{i}", 2**16, 2**18) for i in range(700)]),
}


@pytest.mark.parametrize(("name", "batch", "limit"), every_pair(CORNERS, [1, 100_000], [None, 1, 3 * GIB, 2**50]))
def test_corners(name, batch, limit):
    picture = skyline(CORNERS[name].at(batch), limit, before=CORNERS["vgg"].at(4))
    assert_well_laid(picture)
    assert len(picture.png) > 2000


def test_the_titles_number_and_the_outline_tell_the_same_peak():
    ledger = made_step(name="VGG-16").at(128)
    picture = skyline(ledger, 20 * GIB)
    to_bytes = ticks(picture, GIB)
    (outline,) = paths(picture, stroke="var(--ink)", stroke_width="12")[0:1]
    top = min(y for _, y in outline[0])
    assert to_bytes(top) == pytest.approx(ledger.peak_bytes, rel=0.002)
    assert format_bytes(ledger.peak_bytes) in finding(ledger, fit(ledger, 20 * GIB))
    (named,) = [text.text for text in words_of(picture) if text.text.startswith("peak")]
    assert format_bytes(ledger.peak_bytes) in named


def test_the_peaks_name_keeps_off_the_outline_of_the_step_before():
    """Of VGG-16's head alone, whose peak stands where the outline of the whole climbs steeply."""
    with torch.device("meta"):
        model = networks.vgg16()
    whole = training_step(model, (3, 224, 224), 1000, name="VGG-16").at(64)
    model.requires_grad_(False)
    model.get_submodule("fc8").requires_grad_(True)
    head = training_step(model, (3, 224, 224), 1000, name="VGG-16").at(64)
    assert_peak_off_outline(skyline(head, before=whole))


def test_the_name_of_a_tower_under_a_higher_one_stands_between_roofs_and_outline():
    """As logits do in the middle of layers that keep less than they did: above the tower there is no room."""
    wide, narrow = (
        made_step([*((f"layer{i}", 2**20, size) for i in range(12)), ("head", 2**22, 30 * 2**24)]).at(8)
        for size in (3 * 2**24, 2**23)
    )
    assert_peak_off_outline(skyline(narrow, before=wide))


def assert_peak_off_outline(picture):
    (named,) = [text for text in words_of(picture) if text.text.startswith("peak")]
    left, top, right, bottom = named.box
    ghost = max((part for parts in paths(picture, stroke="var(--ink)", stroke_width="18") for part in parts), key=len)
    for (ax, ay), (bx, by) in itertools.pairwise(ghost):
        crossing = min(ax, bx) < right and max(ax, bx) > left and min(ay, by) < bottom and max(ay, by) > top
        assert not crossing, (named, (ax, ay), (bx, by))


def test_a_bands_area_is_its_bytes():
    """The polygon of a role, read back from the SVG, holds its bytes: events are equally wide within a phase."""
    ledger = made_step(state=2).at(16)
    picture = skyline(ledger)
    to_bytes = ticks(picture, GIB if ledger.peak_bytes > GIB else MIB)
    (part,) = paths(picture, fill=ROLE_COLOURS["optimizer state"])[0]
    thickness = to_bytes(min(y for _, y in part)) - to_bytes(max(y for _, y in part))
    assert thickness == pytest.approx(ledger.matrix[0, ROLES.index("optimizer state")], rel=0.01)
    assert len({x for x, _ in part}) == 2  # a constant band is a rectangle


def test_steps_are_drawn_as_steps():
    for part in paths(skyline(made_step().at(4)), fill=ROLE_COLOURS["feature maps"])[0]:
        assert all(x0 == x1 or y0 == y1 for (x0, y0), (x1, y1) in itertools.pairwise(part))


def test_thinning_many_events_keeps_the_peak():
    ledger = CORNERS["very deep"].at(3)
    assert len(ledger.matrix) > 1000
    picture = skyline(ledger)
    outline = paths(picture, stroke="var(--ink)", stroke_width="12")[0][0]
    assert ticks(picture, MIB)(min(y for _, y in outline)) == pytest.approx(ledger.peak_bytes, rel=0.002)
    assert len(picture.svg) < 40_000


def test_a_limit_in_the_way_is_striped_ringed_and_named():
    ledger = made_step().at(128)
    exactly = ledger.peak_bytes + context().most  # the line is what the context leaves
    over, under = skyline(ledger, ledger.peak_bytes // 2), skyline(ledger, 2 * exactly)
    texts = [text.text for text in words_of(over)]
    assert "over the limit here" in texts
    assert "over the limit here" not in [text.text for text in words_of(under)]
    assert len(paths(over, stroke="var(--paper)", stroke_width="16")) == 1  # the stripes
    assert paths(under, stroke="var(--paper)", stroke_width="16") == []
    exact, above = skyline(ledger, exactly), skyline(ledger, exactly - 1)
    assert "over the limit here" in [text.text for text in words_of(above)]
    assert "over the limit here" not in [text.text for text in words_of(exact)]


def test_a_limit_off_the_scale_is_said_to_be_above():
    texts = [text.text for text in words_of(skyline(made_step().at(1), 141 * GIB))]
    assert "↑ 141 GiB card − context" in texts


def test_findings():
    ledger = made_step([("conv", 8, GIB)], sample=4, state=0, name="net").at(1)
    assert finding(ledger) == "net, batch 1: feature maps are 100 % of the 1.00 GiB at the peak"
    head = "net, batch 1: the peak of 1.00 GiB"
    leaves = "leaves 512.00 MiB"
    assert finding(ledger, fit(ledger, 2 * GIB)) == f"{head} fits the 2 GiB card and {leaves}"
    assert finding(ledger, fit(ledger, GIB / 2)).endswith("is 512.00 MiB more than the 0.5 GiB card holds")
    held = GIB + context().least - 1
    assert finding(ledger, fit(ledger, held, "card")).endswith("more than the card leaves beside the context")
    assert finding(ledger, fit(ledger, 1.25 * GIB)).endswith("is tight on the 1.25 GiB card: the context decides")
    assert finding(ledger, fit(ledger, 2 * GIB, "laptop's card")).startswith(f"{head} fits the laptop's card")
    assert "Limit: 2 GiB card. It fits: the tensors leave 512.00 MiB" in describe(ledger, fit(ledger, 2 * GIB))
    tight = made_step([("conv", 8, 40 * MIB), ("conv", 8, 30 * MIB)], sample=4, state=0, name="net").at(9)
    asked = demand(tight, known_context(0))
    (card,) = [room for room in (asked.least, roomy(asked) - 1) if asked.on(room).state == TIGHT][:1]
    assert finding(tight, asked.on(card, "card")).endswith("is tight on the card: the allocator decides")
    for role, count in ledger.by_role().items():
        assert (f"{role} {format_bytes(count)}" in describe(ledger)) == bool(count)


@given(st.floats(1, 2.0**45), st.floats(1, 2.0**45))
def test_the_axis_has_room_above_the_peak_but_not_too_much(peak, limit):
    top = axis_top(peak, limit)
    assert top >= 1.19 * peak
    assert top <= max(2 * 1.19 * peak, 1.25 * limit) * (1 + 1e-9)
    assert axis_top(peak, None) == pytest.approx(1.19 * peak)


def test_the_axis_stands_still_while_the_peak_nears_the_limit():
    assert len({axis_top(share * 12 * GIB, 12 * GIB) for share in (0.55, 0.7, 0.9, 1.0, 1.04)}) == 1


@given(st.floats(1, 2.0**45), st.floats(100, 400))
def test_ticks_are_round_apart_and_on_the_axis(top, length):
    scale = style.ByteScale(top, length)
    marks = scale.ticks(gap=40)
    assert marks[0][0] == 0
    assert marks[-1][0] <= top * (1 + 1e-9)
    for (low, _), (high, _) in itertools.pairwise(marks):
        assert scale.pixels(high - low) >= 40 * (1 - 1e-6)
    assert all(len(label) <= 6 for _, label in marks)


# ---------------------------------------------------------------------------------------------------------------------
# The other pictures


def test_layer_bars_show_the_largest_layers_to_scale_and_sum_up_the_rest():
    ledger = made_step(name="VGG-16").at(128)
    picture = layer_bars(ledger, top=11)
    assert_well_laid(picture)
    table = ledger.by_layer()
    texts = [text.text for text in words_of(picture)]
    assert texts[0] == "VGG-16, batch 128: most parameters in fc6, the largest feature maps in conv1 and conv2"
    assert f"{len(table) - 11} smaller layers" in texts
    assert f"parameters {format_bytes(4 * table['parameters'].sum())}" in texts
    assert f"feature maps kept {format_bytes(table['saved feature maps'].sum())}" in texts
    widths = {}
    for role in ("parameters", "feature maps"):
        for (part,) in paths(picture, fill=ROLE_COLOURS[role]):
            widths.setdefault(role, []).append(max(x for x, _ in part) - min(x for x, _ in part))
    conv1 = table["saved feature maps"][0]
    fc6 = 4 * table.loc[table["layer"] == "fc6", "parameters"].item()
    assert max(widths["parameters"]) / widths["feature maps"][0] == pytest.approx(fc6 / conv1, rel=0.01)


@pytest.mark.parametrize("name", CORNERS)
@pytest.mark.parametrize("batch", [1, 4096])
def test_layer_bars_at_the_corners(name, batch):
    assert_well_laid(layer_bars(CORNERS[name].at(batch)))


def test_layer_bars_refuse_no_layers():
    with pytest.raises(CourseError, match="top must be 1 layer or more, got 0"):
        layer_bars(made_step().at(1), top=0)


def test_side_by_side_draws_numbers_to_scale():
    rows = {"your guess": 90, "by hand": 1568, "measured": 0.004}
    picture = side_by_side(rows, "MiB", "A finding", hollow="your guess")
    assert_well_laid(picture)
    texts = [text.text for text in words_of(picture)]
    assert {"90 MiB", "1,568 MiB", "0.004 MiB"} <= set(texts)
    assert len(paths(picture, fill="var(--faint)")) == 2  # the guess is an outline
    two = side_by_side(rows, "MiB", hollow=("your guess", "measured"))
    assert len(paths(two, fill="var(--faint)")) == 1
    assert picture.alt == "A finding. your guess: 90 MiB; by hand: 1,568 MiB; measured: 0.004 MiB."


@pytest.mark.parametrize("limit", [0.7, 2.0, 9.0])
def test_side_by_side_has_a_line_that_no_number_crosses_and_rows_in_blue(limit):
    rows = {"short": 0.5, "middle": 1.9, "long": 4.0}
    picture = side_by_side(rows, "times", blue=["long"], limit=("the rule", limit))
    assert_well_laid(picture)
    assert [len(paths(picture, fill=colour)) for colour in ("var(--faint)", style.SERIES_COLOURS[1])] == [2, 1]
    x = next(word for word in words_of(picture) if word.text == "the rule").x
    numbers = [word for word in words_of(picture) if word.text.endswith(" times")]
    assert len(numbers) == 3
    assert not any(word.box[0] < x < word.box[2] for word in numbers)
    assert picture.alt.endswith(f"4 times. Dashed line, the rule, at {limit:.2f} times.".replace(".00", ""))


@pytest.mark.parametrize("rows", [{}, {"a": float("nan")}, {"a": float("inf")}])
def test_side_by_side_refuses_what_is_no_length(rows):
    with pytest.raises(CourseError, match="side_by_side needs finite numbers"):
        side_by_side(rows)


@pytest.mark.parametrize("rows", [{"your guess": -392.0, "trace": 294.0}, {"a": -3.0, "b": -1.5}, {"a": -1e99, "b": 1}])
def test_negative_bars_reach_to_the_left_of_the_same_zero(rows):
    picture = side_by_side(rows, "MiB", hollow="your guess")
    assert_well_laid(picture)
    assert any(text.text.startswith("−") for text in words_of(picture))


def test_side_by_side_of_zeros_is_drawn():
    assert_well_laid(side_by_side({"a": 0.0, "b": 0.0}))


@pytest.mark.parametrize("limit", [None, 1, 4 * GIB, 2**45])
@pytest.mark.parametrize("batches", [range(1, 129), [1, 512], [3, 4, 5000]])
@pytest.mark.parametrize("name", CORNERS)
def test_batch_lines_at_the_corners(name, batches, limit):
    step = CORNERS[name]
    if name == "nothing but weights" and limit is not None:
        limit = 2 * limit
    assert_well_laid(batch_lines(step, batches, limit))


def test_batch_lines_name_the_moments_and_the_largest_batch():
    # Two gigabytes of temporaries in the update against one gigabyte a sample in the backward pass.
    step = made_step([("conv", 8 * GIB, GIB)], sample=4, state=1, name="net")
    card = 70 * GIB
    picture = batch_lines(step, range(1, 65), limit_bytes=card)
    largest = largest_batch(step, card).fits
    assert f"fits up to batch {largest}" in [text.text for text in words_of(picture)]
    assert f"batches up to {largest} fit the {card_name(card)}" in picture.alt
    assert "peak in backward" in [text.text for text in words_of(picture)]


def test_bands_end_in_a_step_where_another_moment_becomes_the_peak():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    step = training_step(net, (3, 32, 32), classes=10, optimizer="adam")
    batches = [1, 2, 64, 4096]
    assert [step.at(batch).peak_phase for batch in batches] == ["update"] * 3 + ["backward"]
    picture = batch_lines(step, batches)
    band, _key = itertools.chain(*paths(picture, fill=ROLE_COLOURS["other"]))
    before, turn = ({y for x, y in band if x == end} for end in sorted({x for x, _ in band})[-2:])
    assert len(before) == 2
    assert before < turn


@pytest.mark.parametrize("batches", [[], [4], [4, 4], [5, 2]])
def test_batch_lines_refuse_batches_out_of_order(batches):
    with pytest.raises(CourseError, match="two or more batch sizes in increasing order"):
        batch_lines(made_step(), batches)


def test_one_colour_a_role_and_no_other_in_every_picture():
    step = made_step(name="net")
    pictures = [skyline(step.at(9), GIB), layer_bars(step.at(9))]
    pictures.append(batch_lines(step, [1, 9]))
    known = {*ROLE_COLOURS.values(), style.DARK_TEXT, style.LIGHT_TEXT, *(theme[-1] for theme in scene.THEME.values())}
    for picture in pictures:
        assert set(re.findall(r"#[0-9a-f]{6}", picture.svg)) <= known


def test_what_figures_offers_exists():
    assert all(hasattr(figures, name) for name in figures.__all__)


def test_pictures_need_neither_torch_nor_widgets():
    program = "import sys, course_utils.figures; print({'torch', 'ipywidgets', 'matplotlib.pyplot'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
