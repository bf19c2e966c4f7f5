"""Lesson 02's explorer at every corner: words and picture agree with the reading, nothing crashes."""

import itertools
import re
from dataclasses import replace

import pytest
from drawn import assert_well_laid, canvas, paths, words_of
from torch import nn

from course_utils.figures import Picture
from course_utils.machine.hardware import device, devices
from course_utils.networks import NETWORKS, Network
from course_utils.techniques import capacity
from course_utils.techniques.capacity import ALLOCATOR, FITS, NO, TENSORS, TIGHT, demand, fit, largest_batch, on_cards
from course_utils.units import GIB, CourseError, format_bytes
from lessons.hardware import explorer as explorers
from lessons.hardware.cards import CardBar, cards
from lessons.hardware.explorer import INFERENCE, hardware_explorer, sentences


def conv():
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5)
    )


class Still(nn.Module):
    """A network whose memory does not depend on the batch but for its input and one number."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(nn.Linear(200, 5).weight.detach())

    def forward(self, x):
        return x @ self.weight.T


OWN = {
    "mine": Network("mine", conv, (3, 224, 224), 5),
    "dense": Network("dense", Still, (200,), 5),
    "broken": Network("broken", lambda: nn.Linear(7, 5), (200,), 5),
}


@pytest.fixture
def explorer():
    return hardware_explorer("mine", batch=64, networks=OWN)


def shown(explorer):
    """The words on the screen without their markup."""
    return re.sub(r"<br>", "\n", re.sub(r"<(?!br>)[^>]*>", "", explorer.words.value)).replace("&#x27;", "'")


def as_picture(explorer):
    return Picture(explorer.figure.value, "", 0, bytes)


def assert_agrees(explorer):
    """Picture and words are those of the reading."""
    step, batch = explorer.step, explorer.batch.value
    fits, asked = on_cards(step, batch, devices()), demand(step.at(batch))
    picture, words = as_picture(explorer), shown(explorer)
    assert_well_laid(picture)
    texts = [text.text for text in words_of(picture)]
    assert f"tensors {format_bytes(asked.tensors)}" in texts
    assert f"with context {format_bytes(asked.least)}" in texts
    for one in fits:
        assert any(text.startswith(one.device.name) for text in texts)
    for state, colour in (("fits", "#0072b2"), ("tight", "#d55e00")):
        assert len(paths(picture, fill=colour)) == sum(fit.state == state for fit in fits)
    assert words.startswith(f"{step.name}, batch {batch:,}: {format_bytes(asked.tensors)} of tensors")
    assert not re.search(r"\b(nan|inf|None)\b", words)
    good = [fit.device for fit in fits if fit.state == FITS]
    if good:
        assert f"{len(good)} of {len(fits)} cards ha" in words
        prices = [item.launch_usd for item in good if item.launch_usd]
        assert (f"({min(prices):,.0f} dollars in" if prices else "no price of any of them") in words
    else:
        assert "No card" in words


def test_the_screen_shows_the_reading(explorer):
    assert_agrees(explorer)
    step = explorer.step
    said = sentences(step, 64, demand(step.at(64)), on_cards(step, 64, devices()))
    assert shown(explorer) == "\n".join(said)


def test_the_courses_networks_at_the_corners_of_every_control():
    for network, optimizer, precision in itertools.product(NETWORKS, ("sgd", INFERENCE), ("float32", "bfloat16")):
        if precision == "bfloat16" and network in ("GoogLeNet", "ResNet-50"):
            continue  # as the others, and traced four times as slowly
        explorer = hardware_explorer(network, 1, None if optimizer == INFERENCE else optimizer, precision)
        for batch in (1, 512):
            explorer.batch.value = batch
            assert_agrees(explorer)


def test_every_control_changes_picture_or_words(explorer):
    for name, value in {"batch": 65, "optimizer": "adam", "precision": "bfloat16", "network": "dense"}.items():
        before = (explorer.figure.value, explorer.words.value)
        getattr(explorer, name).value = value
        assert (explorer.figure.value, explorer.words.value) != before, name
        assert_agrees(explorer)


def test_a_batch_no_card_holds():
    explorer = hardware_explorer("mine", batch=100_000, networks=OWN)
    assert_agrees(explorer)
    assert "no card holds it" in explorer.figure.value
    b200 = next(fit for fit in on_cards(explorer.step, 100_000, devices()) if fit.device.name == "B200")
    assert shown(explorer).endswith(
        f"B200, the largest that does not hold it, lacks {format_bytes(-b200.verdict.spare_bytes)}; "
        f"batches up to {b200.largest_batch:,} fit it."
    )
    assert fit(explorer.step.at(b200.largest_batch), b200.device).state == FITS
    found = largest_batch(explorer.step, b200.device)
    assert found.fits == b200.largest_batch < found.tight
    assert fit(explorer.step.at(found.fits + found.stride), b200.device).state != FITS


def test_what_is_said_of_a_tight_card_and_of_one_without_a_price(explorer):
    step, batch = explorer.step, 64
    asked = demand(step.at(batch))
    titan, h100 = device("GTX Titan"), device("H100 SXM")
    verdict = fit(step.at(batch), titan)
    gaps = replace(verdict, state=TIGHT, decided=ALLOCATOR)
    tight = capacity.CardFit(titan, TIGHT, gaps, 80)
    lacking = replace(verdict, state=NO, decided=TENSORS, card_bytes=verdict.tensor_bytes + verdict.context_bytes - GIB)
    fits, short = capacity.CardFit(h100, FITS, verdict, 90), capacity.CardFit(titan, NO, lacking, 0)
    said = sentences(step, batch, asked, [tight])
    assert said[1] == "No card surely holds it; on GTX Titan it is tight: its tensors fit, not all else."
    assert said[2] == f"On GTX Titan (orange): {gaps.sentence}"
    said = sentences(step, batch, asked, [fits, short])
    assert said[1] == (
        "1 of 2 cards has room. The smallest is H100 SXM (no confirmed price); no price of any of them is confirmed."
    )
    assert said[2].startswith("GTX Titan, the largest that does not hold it, lacks 1.00 GiB, and not even one sample")
    assert sentences(step, batch, asked, [fits])[2].startswith("Every card that computes in this precision holds it")
    cannot = capacity.CardFit(titan, capacity.CANNOT, verdict, 90)
    assert sentences(step, batch, asked, [cannot])[2] == "None of them computes in bfloat16: take float16."


def test_a_combination_is_traced_once_and_a_move_of_the_batch_traces_nothing(explorer, monkeypatch):
    calls = []

    def count(*arguments, **settings):
        calls.append(arguments[3])
        return real(*arguments, **settings)

    real = explorers.training_step
    monkeypatch.setattr(explorers, "training_step", count)
    for batch in range(2, 30):
        explorer.batch.value = batch
    assert calls == []
    for optimizer in ("adam", "momentum", "adam", INFERENCE):
        explorer.optimizer.value = optimizer
    assert calls == ["adam", None]


def test_what_cannot_be_traced_is_one_line_over_the_old_picture(explorer):
    picture = explorer.figure.value
    explorer.network.value = "broken"
    assert 'role="alert"' in explorer.words.value
    assert "\n" not in shown(explorer)
    assert explorer.figure.value == picture
    explorer.network.value = "mine"
    assert "alert" not in explorer.words.value


def test_a_device_of_ones_own_is_drawn_too():
    own = replace(device("RTX 3090"), name="my laptop", memory_gb=6)
    explorer = hardware_explorer("mine", networks=OWN, more_devices=[own])
    assert "my laptop" in explorer.figure.value
    assert f"of {len(devices()) + 1} cards" in shown(explorer)


def test_the_saved_notebook_carries_a_still(explorer):
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/html"].startswith('<div class="course-picture">')
    assert bundle["text/plain"].startswith("mine, batch 64:")
    assert bundle["image/png"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"network": "LeNet"}, "unknown network 'LeNet': choose one of mine, dense, broken"),
        ({"optimizer": "lion"}, "unknown optimizer 'lion': choose one of sgd, momentum, adam, adamw, None"),
        ({"precision": "int8"}, "unknown precision 'int8'"),
        ({"batch": 0}, "batch must be a whole number of 1 or more, got 0"),
    ],
)
def test_wrong_starts_are_refused_in_one_line(wrong, message):
    with pytest.raises(CourseError, match=re.escape(message)):
        hardware_explorer(**{"network": "mine", "networks": OWN, **wrong})


# -- the picture by itself -------------------------------------------------------------------------------------------


def test_bars_end_where_their_memory_is_and_lines_cross_there():
    bars = [CardBar("a", 2 * GIB, "fits", ("x",)), CardBar("b", 32 * GIB, "too small", ("",))]
    picture = cards(bars, {"needs": 8 * GIB}, "title", ("notes",))
    assert_well_laid(picture)
    (filled,), (outline,) = paths(picture, fill="#0072b2"), paths(picture, stroke="var(--faint)")[:1]
    left, two = filled[0][0][0], filled[0][1][0]
    thirty_two = outline[0][1][0]
    line = paths(picture, stroke="var(--ink)")[-1][0][0][0]
    assert (line - two) == pytest.approx(thirty_two - line, abs=0.2)  # 8 is midway between 2 and 32, by doublings
    assert left < two < line < thirty_two < canvas(picture)[0]


@pytest.mark.parametrize("need", [1, 2**20, GIB, 2**45])
def test_a_need_beyond_the_axis_stands_at_its_end(need):
    assert_well_laid(cards([CardBar("a", 4 * GIB, "tight", ())], {"tensors": need, "with gaps": 2 * need}))


def test_what_cannot_be_drawn_is_one_line():
    bar = CardBar("a", GIB, "fits", ())
    for arguments, message in (
        (([], {}), "needs a card"),
        (([bar], {"x": 0}), "bytes above 0"),
        (([CardBar("a", float("nan"), "fits", ())], {}), "bytes above 0"),
        (([bar], {"x": 1}, "", ("notes",)), "needs 1 notes for every card"),
    ):
        with pytest.raises(CourseError, match=message):
            cards(*arguments)
