"""The explorer of lesson 11 at its corners: words agree with the reading, the pictures are well laid out."""

from __future__ import annotations

import itertools
import math
import re

import pytest
from amount import every_pair
from drawn import assert_well_laid, one_move, paths, words_of

from course_utils.figures import role_bars
from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine import hardware
from course_utils.units import CourseError, format_bytes
from lessons.many_gpus import explorer as many_gpus
from lessons.many_gpus.card_lanes import card_lanes
from lessons.many_gpus.explorer import cards_explorer
from lessons.many_gpus.links_figure import link_rates
from lessons.many_gpus.ring_figure import ring_steps
from lessons.shared.parallel import SCHEMES, STAGES, UNITS, ring_states

CORNERS = every_pair(("Tesla K40", "B200"), ("InfiniBand QDR", "NVLink 5"), (1, 2, 8), (2, 1024))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_corner_says_what_is_read(scheme):
    for network in ("AlexNet", "52 M dense net", "GoogLeNet"):
        explorer = cards_explorer(network, scheme=scheme, cards=1)
        for device, link, cards, batch in CORNERS:
            with one_move(explorer) as moved:
                explorer.device.value, explorer.link.value = device, link
                explorer.cards.value, explorer.batch.value = cards, batch
            if network == "52 M dense net" and scheme == STAGES and cards == 8:
                with pytest.raises(CourseError, match="too few for 8 stages"):
                    moved()
                continue
            view, found = moved(), explorer.readings()
            chosen = found[scheme]
            assert_well_laid(view.picture)
            words = " ".join(view.sentences)
            assert not re.search(r"\b(nan|inf|None)\b|-\d", words), words
            assert f"{chosen.speed_up:.2f} times as many samples a second" in words
            assert format_bytes(chosen.peak_bytes) in words
            assert ("too much" in words) == (chosen.peak_bytes > chosen.device.memory_bytes)
            assert ("sends nothing" in words) == (not chosen.sent_bytes)
            best = max(step.speed_up for step in found.values() if step)
            assert (cards == 1 or "No other scheme" in words) == (best < 1.02 * chosen.speed_up or cards == 1)
            assert view.number == pytest.approx(chosen.speed_up, abs=0.006)


def test_a_move_of_anything_but_the_network_traces_nothing(monkeypatch):
    explorer = cards_explorer("AlexNet")
    monkeypatch.setattr(many_gpus, "training_step", lambda *_, **__: pytest.fail("traced again"))
    for scheme, cards in itertools.product(SCHEMES, (1, 3)):
        explorer.scheme.value, explorer.cards.value = scheme, cards
        assert "alert" not in explorer.words.value


def test_it_says_what_the_last_move_did_and_saves_a_still():
    explorer = cards_explorer("52 M dense net", batch=128)
    explorer.scheme.value = UNITS
    assert re.search(
        r"Last move, scheme data parallel to split by units: the speed-up rises by \d", explorer.words.value
    )
    bundle = explorer._repr_mimebundle_()
    assert bundle["image/png"]
    assert bundle["text/plain"] == "\n".join(explorer.view().sentences)
    explorer.cards.value = 8
    explorer.scheme.value = STAGES
    assert "too few for 8 stages" in explorer.words.value


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"network": "LeNet"}, "unknown network 'LeNet': choose one of AlexNet"),
        ({"scheme": "magic"}, "unknown scheme 'magic': choose one of data parallel"),
        ({"cards": 9}, "unknown number of cards 9: choose one of 1, 2"),
        ({"batch": 3}, "unknown batch 3: choose one of 2, 4"),
        ({"link": "string"}, "no link called 'string'"),
    ],
)
def test_a_start_that_no_control_can_take_is_one_line(wrong, message):
    with pytest.raises(CourseError, match=re.escape(message)):
        cards_explorer(**wrong)


def test_what_no_picture_can_show_is_refused():
    for draw in (lambda: ring_steps(ring_states(5)), lambda: card_lanes({}), lambda: role_bars({}),
                 lambda: link_rates({}), lambda: link_rates(dict.fromkeys("abcde", hardware.peers()))):  # fmt: skip
        with pytest.raises(CourseError):
            draw()
    for cards in (2, 3, 4):
        assert_well_laid(ring_steps(ring_states(cards), "A ring"))
    with pytest.raises(CourseError, match="0 bytes or more"):
        role_bars({"one": {"input": -1.0}})


@pytest.mark.parametrize("rows", [{"one": hardware.peers()[:1]}, {"all": hardware.peers(), "none": []},
                                  {"links": hardware.peers()[3:5], "memory": hardware.devices()}])  # fmt: skip
def test_rates_of_links_stand_in_their_order_and_each_is_written(rows):
    picture = link_rates(rows, "A title")
    assert_well_laid(picture)
    texts = [words.text for words in words_of(picture)]
    names = [item.name for items in rows.values() for item in items]
    assert [text for text in texts if text in names] == names
    marks = [(w.x, math.log10(float(w.text.replace(",", "")))) for w in words_of(picture)
             if w.anchor == "middle" and re.fullmatch(r"[\d,.]+", w.text)]  # fmt: skip
    (x0, v0), (x1, v1) = marks[0], marks[-1] if len(marks) > 1 else (marks[0][0] + 1, marks[0][1])
    for items, colour in zip(rows.values(), SERIES_COLOURS, strict=False):
        dots = [part for path in paths(picture, fill=colour) for part in path]
        assert len(dots) == len(items)
        for item, dot in zip(items, dots, strict=True):
            rate = item.bytes_per_s if isinstance(item, hardware.Link) else item.reached_bytes_per_s()
            x = (min(x for x, _ in dot) + max(x for x, _ in dot)) / 2
            if len(marks) > 1:
                assert v0 + (x - x0) * (v1 - v0) / (x1 - x0) == pytest.approx(math.log10(rate / 1e9), abs=0.01)
    for item in hardware.peers():
        if item.name in names and item.practical_gb_s is not None:
            assert f"{item.name} {item.bytes_per_s / 1e9:.3g} (measured {item.practical_gb_s:g})" in picture.alt
