"""Explorers and predict-first widgets at every corner: words and picture agree with the reading, nothing crashes."""

from __future__ import annotations

import itertools
import re
from html import unescape

import pytest
from drawn import assert_well_laid, one_move, words_of
from hypothesis import given
from hypothesis import strategies as st
from made_steps import VGG, made_step
from torch import nn

from classroom.explorer import FAINT
from classroom.predict import how_far, predict, read_number, reveal
from course_utils.figures import Picture
from course_utils.machine.speed import predict_step
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import NO, fit, largest_batch
from course_utils.units import GIB, CourseError, format_bytes, format_seconds
from lessons.memory import explorer as explorers
from lessons.memory.explorer import memory_explorer, sentences, time_sentence


def conv(inputs=3):
    return nn.Sequential(
        nn.Conv2d(inputs, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )


OWN = {
    "mine": Network("mine", conv, (3, 64, 64), 5),
    "dense": Network("dense", lambda: nn.Linear(50, 10), (50,), 10),
    "picky": Network("picky", lambda: nn.Sequential(nn.MaxPool2d(100), conv()), (3, 224, 224), 5),
}


@pytest.fixture
def explorer():
    return memory_explorer("mine", batch=64, size=64, card_gib=4, networks=OWN)


def shown(explorer):
    """The picture and the words on the screen, words without their markup."""
    return explorer.figure.value, unescape(re.sub(r"<br>", "\n", re.sub(r"<(?!br>)[^>]*>", "", explorer.words.value)))


def as_picture(explorer):
    return Picture(explorer.figure.value, "", 0, bytes)


# ---------------------------------------------------------------------------------------------------------------------
# What it says


def test_sentences_when_it_fits():
    step = made_step(name="net")
    ledger = step.at(32)
    state, culprit, way_out = sentences(step, ledger, 12 * GIB)
    peak = format_bytes(ledger.peak_bytes)
    assert state.startswith(
        f"Batch 32 on a 12 GiB card: peak {peak}, in the backward phase, layer {ledger.peak_layer}."
    )
    assert state.endswith(fit(ledger, 12 * GIB).sentence)
    assert "It fits: the tensors leave " in state
    assert re.fullmatch(r"Feature maps are \d\d % of it; .* GiB of parameters, .* stay whatever the batch\.", culprit)
    assert way_out == largest_batch(step, 12 * GIB).words


def test_sentences_when_feature_maps_break_the_budget():
    step = made_step(name="net")
    state, culprit, _ = sentences(step, step.at(256), 8 * GIB)
    over = format_bytes(step.at(256).requests.least_bytes - 8 * GIB)
    assert f"Batch 256 on an 8 GiB card: peak {format_bytes(step.at(256).peak_bytes)}" in state
    assert f"the tensors alone are {over} too much. Memory runs out in the forward phase, layer conv2." in state
    assert culprit.startswith(
        f"Feature maps break the budget: {format_bytes(step.at(256).by_role()['feature maps'])}, "
    )


def test_sentences_when_parameters_alone_are_too_much():
    step = made_step(name="net")
    _, culprit, way_out = sentences(step, step.at(4), GIB, "my card")
    assert culprit.startswith("Parameters, optimizer state and weight gradients alone take 1.5")
    assert culprit.endswith("more than the card has room for.")
    assert way_out.startswith(f"No batch fits: one sample alone needs {format_bytes(step.at(1).peak_bytes)},")


def test_sentences_when_memory_does_not_grow():
    step = made_step([("a", 100, 0)], sample=0, name="net")
    assert "does not grow with the batch" in sentences(step, step.at(1), GIB)[2]


@pytest.mark.parametrize("card", explorers.CARDS_GIB)
@pytest.mark.parametrize("batch", [1, 7, 512])
def test_what_is_said_of_the_batch_shown_and_of_the_largest_is_one_verdict(card, batch):
    step = made_step(VGG)
    state, _, way_out = sentences(step, step.at(batch), card * GIB)
    found = largest_batch(step, card * GIB)
    assert way_out == found.words
    assert fit(step.at(found.tight + 1), card * GIB).state == NO
    assert ("It does not fit" in state) == (batch > found.tight)
    if (batch <= found.fits and batch % found.stride == 0) or batch == found.some:
        assert "It fits" in state
    if batch > found.some and batch % found.stride == 0:
        assert "It fits" not in state


# ---------------------------------------------------------------------------------------------------------------------
# The explorer


def test_the_screen_shows_the_reading(explorer):
    picture, words = shown(explorer)
    ledger = explorer.step.at(64)
    assert format_bytes(ledger.peak_bytes) in picture
    assert words == "\n".join(sentences(explorer.step, ledger, 4 * GIB))


def test_every_control_changes_picture_or_words(explorer):
    moves = {
        "batch": 65,
        "size": 112,
        "optimizer": "adam",
        "precision": "bfloat16",
        "card": 141,
        "device": "A100",
        "network": "dense",
    }
    for name, value in moves.items():
        before = shown(explorer)
        getattr(explorer, name).value = value
        assert shown(explorer) != before, name
        assert_well_laid(as_picture(explorer))


def test_it_says_what_the_last_move_did(explorer):
    step = explorer.step
    explorer.batch.value = 65
    change = format_bytes(step.at(65).peak_bytes - step.at(64).peak_bytes)
    assert shown(explorer)[1].endswith(f"Last move, batch 64 to 65: the peak rises by {change}.")
    explorer.batch.value = 64
    assert shown(explorer)[1].endswith(f"Last move, batch 65 to 64: the peak falls by {change}.")
    explorer.card.value = 24
    assert "Last move" not in shown(explorer)[1]


def test_a_combination_is_traced_once(explorer, monkeypatch):
    calls = []

    def count(*arguments, **settings):
        calls.append(settings)
        return real(*arguments, **settings)

    real = explorers.training_step
    monkeypatch.setattr(explorers, "training_step", count)
    for batch in range(1, 30):
        explorer.batch.value = batch
    explorer.card.value = 80
    explorer.device.value = "A100"
    explorer.device.value = "operators"
    assert calls == []
    explorer.optimizer.value = "adam"
    explorer.optimizer.value = "momentum"
    explorer.optimizer.value = "adam"
    assert [call["optimizer"] for call in calls] == ["adam"]


def test_a_network_that_cannot_take_the_picture_says_so_in_one_line(explorer):
    explorer.size.value = 224
    explorer.network.value = "picky"
    picture = explorer.figure.value
    explorer.size.value = 32
    words = shown(explorer)[1]
    assert 'role="alert"' in explorer.words.value
    assert "Traceback" not in words
    assert "\n" not in words
    assert "MaxPool2d" in words
    assert explorer.figure.value == picture
    assert FAINT in explorer.figure._dom_classes
    assert explorer._repr_mimebundle_()["text/plain"] == words
    explorer.keep.value = True  # nothing to keep
    explorer.size.value = 256
    assert FAINT not in explorer.figure._dom_classes
    assert "alert" not in explorer.words.value


def test_the_picture_size_is_off_where_there_are_no_pictures(explorer):
    assert not explorer.size.disabled
    explorer.network.value = "dense"
    assert explorer.size.disabled
    assert "alert" not in explorer.words.value


def test_a_kept_outline_stays_while_the_batch_moves(explorer):
    kept = f"kept: {format_bytes(explorer.step.at(64).peak_bytes)}"
    explorer.keep.value = True
    explorer.batch.value = 200
    assert kept in [text.text for text in words_of(as_picture(explorer))]
    explorer.keep.value = False
    assert kept not in [text.text for text in words_of(as_picture(explorer))]


def test_with_a_device_picture_and_words_tell_its_time(explorer):
    explorer.device.value = "GTX 1080"
    picture, words = shown(explorer)
    time = predict_step(explorer.step.at(64), "GTX 1080")
    whole = format_seconds(time.total_seconds)
    assert f"alive over the {whole} predicted for GTX 1080" in picture
    assert words.splitlines()[-1] == time_sentence(time)
    assert time_sentence(time).startswith(f"Predicted on GTX 1080: {whole} a step, ")
    explorer.device.value = "operators"
    assert "redicted" not in "".join(shown(explorer))


def test_a_device_brings_its_card_and_another_can_be_chosen_after_it(explorer):
    explorer.device.value = "GTX 1080"
    assert explorer.card.value == 8
    assert "on an 8 GiB card" in shown(explorer)[1]
    explorer.card.value = 24
    assert "on a 24 GiB card" in shown(explorer)[1]
    explorer.device.value = "operators"
    assert explorer.card.value == 24
    assert memory_explorer("mine", size=64, networks=OWN, device="B200").card.value == 179
    assert memory_explorer("mine", size=64, networks=OWN, device="B200", card_gib=12).card.value == 12


def test_a_kept_outline_keeps_the_device_it_was_kept_on(explorer):
    explorer.device.value = "Tesla K40"
    explorer.keep.value = True
    explorer.device.value = "V100"
    ledger = explorer.step.at(64)
    slow, fast = (predict_step(ledger, name).total_seconds for name in ("Tesla K40", "V100"))
    texts = [text.text for text in words_of(as_picture(explorer))]
    assert f"kept: {format_bytes(ledger.peak_bytes)}, {format_seconds(slow)}" in texts
    assert any(format_seconds(fast) in text for text in texts)
    explorer.device.value = "operators"
    assert f"kept: {format_bytes(ledger.peak_bytes)}" in [text.text for text in words_of(as_picture(explorer))]


def test_what_a_device_cannot_compute_is_one_line(explorer):
    explorer.precision.value = "bfloat16"
    explorer.keep.value = True  # kept without a device
    explorer.device.value = "T4"
    assert shown(explorer)[1] == "T4 does not compute in bfloat16: choose float16 or float32"
    explorer.precision.value = "float32"
    assert shown(explorer)[1].startswith("the outline kept has no time: T4 does not compute in bfloat16")
    explorer.keep.value = False
    assert "alert" not in explorer.words.value


@pytest.mark.parametrize("network", NETWORKS)
def test_time_at_the_corners_of_every_device(network):
    explorer = memory_explorer(network, 1, device="GTX Titan")
    explorer.keep.value = True
    for name, batch in itertools.product(("GTX Titan", "Tesla K80", "B200"), (1, 512)):
        explorer.device.value, explorer.batch.value = name, batch
        assert "alert" not in explorer.words.value
        assert_well_laid(as_picture(explorer))
        assert f"Predicted on {name}: " in explorer.words.value
        assert not re.search(r"\b(nan|inf|None)\b", explorer.words.value)


def test_the_saved_notebook_carries_a_still_beside_the_live_view(explorer):
    bundle = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    said = sentences(explorer.step, explorer.step.at(64), 4 * GIB)
    assert bundle["text/plain"] == "\n".join(said)
    assert bundle["text/html"].startswith('<div class="course-picture">')
    assert said[0] in bundle["text/html"]
    assert bundle["image/png"]


def test_the_courses_networks_at_the_corners_of_every_control():
    refused = []
    settings = [(32, "sgd", "float32"), (512, "adamw", "float16")]
    for network, (size, optimizer, precision) in itertools.product(NETWORKS, settings):
        explorer = memory_explorer(network, 1, size, optimizer, precision)
        for batch, card in itertools.product((1, 512), (4, 141)):
            with one_move(explorer):
                explorer.batch.value, explorer.card.value = batch, card
            if "alert" in explorer.words.value:
                refused.append((network, size))
            else:
                assert_well_laid(as_picture(explorer))
                assert f"Batch {batch}" in explorer.words.value
                assert f"{card} GiB card" in explorer.words.value
                assert not re.search(r"\b(nan|inf|None)\b", explorer.words.value)
    assert {size for _, size in refused} <= {32}  # only pictures too small for a network's pools


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"network": "LeNet"}, "unknown network 'LeNet': choose one of mine, dense, picky"),
        ({"optimizer": "lion"}, "unknown optimizer 'lion': choose one of sgd, momentum, adam, adamw"),
        ({"precision": "int8"}, "unknown precision 'int8'"),
        ({"batch": 0}, "batch must be a whole number of 1 or more, got 0"),
        ({"size": 12.5}, "size must be a whole number of 1 or more, got 12.5"),
        ({"device": "K40"}, "unknown device 'K40': choose one of operators, GTX Titan"),
        ({"card_gib": 0}, "card_gib must be more than 0 GiB, got 0"),
    ],
)
def test_wrong_starts_are_refused_in_one_line(wrong, message):
    with pytest.raises(CourseError, match=re.escape(message)):
        memory_explorer(**{"network": "mine", "networks": OWN, **wrong})


def test_unusual_starts_are_offered_too():
    explorer = memory_explorer("mine", batch=3000, size=50, card_gib=5.5, networks=OWN)
    assert (explorer.batch.value, explorer.size.value, explorer.card.value) == (3000, 50, 5.5)
    assert "5.5 GiB card" in explorer.words.value


# ---------------------------------------------------------------------------------------------------------------------
# Predict and reveal


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1568", 1568), (" 1,568 ", 1568), ("1 568", 1568), ("1,568,000.5", 1568000.5), ("12.5", 12.5), ("12,5", 12.5),
        ("1.5e3", 1500), (".5", 0.5), ("0", 0), ("+3", 3), ("1_000", 1000),
        ("-392", -392), ("−1,568", -1568),
    ],
)  # fmt: skip
def test_numbers_as_people_write_them(text, number):
    assert read_number(text) == number


@pytest.mark.parametrize("text", ["ninety", "90 MiB", "--3", "nan", "inf", "1e999", "1.2.3", "", "1,2,3"])
def test_what_is_no_number_is_refused_in_one_line(text):
    with pytest.raises(CourseError, match=r"is not a number: write one such as 12\.5"):
        read_number(text)


@given(st.integers(0, 10**12))
def test_thousands_separators_do_not_matter(number):
    assert read_number(f"{number:,}") == read_number(str(number)) == number


@pytest.mark.parametrize(
    ("guess", "answer", "words"),
    [
        (90, 1568, "Your guess, 90 MiB, is 17.4 times too small."),
        (3000, 1500, "Your guess, 3,000 MiB, is 2.0 times too large."),
        (1500, 1568, "Your guess, 1,500 MiB, is 4.3 % too small."),
        (1568, 1568, "Your guess, 1,568 MiB, is exact."),
        (0, 1568, "Your guess, 0 MiB, is 1,568 MiB too small."),
        (5, 0, "Your guess, 5 MiB, is 5 MiB too large."),
        (1, 50_000, "Your guess, 1 MiB, is 50,000 times too small."),
        (1e90, 1, "Your guess, 1e+90 MiB, is 1e+90 times too large."),
        (-392, 294, "Your guess, -392 MiB, is 686 MiB too small."),
    ],
)
def test_how_far_off_in_words(guess, answer, words):
    assert how_far(guess, answer, "MiB") == words


def test_percent_are_told_in_points():
    assert how_far(50, 45.459, "%") == "Your guess, 50 %, is 4.5 points too large."


@pytest.fixture
def question():
    return predict("How much does it need?", unit="MiB")


def test_the_answer_is_hidden_until_a_number_was_entered(question):
    answer = reveal(question, {"by hand": 1568, "measured here": 1572.5})
    assert "Enter your guess above first" in answer.content.value
    assert "1,568" not in answer.content.value
    assert "1,568" not in answer._repr_mimebundle_()["text/plain"]
    question.field.value = "90"
    assert "17.4 times too small" in answer.content.value
    texts = [text.text for text in words_of(answer.picture())]
    assert {"90 MiB", "1,568 MiB", "1,572.50 MiB"} <= set(texts)
    assert_well_laid(answer.picture())


def test_an_answer_made_after_the_guess_is_shown_at_once(question):
    question.field.value = "90"
    assert "17.4 times too small" in reveal(question, {"trace": 1568.0}).content.value


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("10505", "both"),
        ("10650", ""),
        ("1500", "parameters"),
        ("1640", "parameters"),
        ("-390", "shrinks"),
        ("10300", ""),
        ("3000", ""),
    ],
)
def test_a_guess_is_answered_with_the_thought_behind_it(question, number, said):
    thoughts = [
        (1550.0, "Those are the parameters alone."),
        (-392.0, "A pool shrinks what follows."),
        (10_510.0, "You counted both."),
    ]
    answer = reveal(question, {"trace": 10_300.0, "by hand": 10_200.0}, thoughts=thoughts)
    question.field.value = number
    assert [one for _, one in thoughts if one in answer.words()] == [one for _, one in thoughts if said and said in one]
    assert_well_laid(answer.picture())


def test_who_is_right_hears_of_no_wrong_thought(question):
    question.field.value = "100"
    assert reveal(question, {"trace": 101.0}, thoughts=[(100.0, "A slip.")]).words().endswith("too small.")


def test_a_guess_out_of_this_world_is_drawn_too(question):
    question.field.value = "1e99"
    assert_well_laid(reveal(question, {"trace": 1568.0}).picture())


def test_the_guess_is_compared_with_the_row_named(question):
    question.field.value = "100"
    assert "2.0 times too small" in reveal(question, {"a": 400.0, "b": 200.0}, against="b").words()
    assert "4.0 times too small" in reveal(question, {"a": 400.0, "b": 200.0}).words()


def test_an_invalid_entry_gets_one_line_and_the_field_stays_open(question):
    question.field.value = "ninety"
    assert "&#x27;ninety&#x27; is not a number" in question.line.value
    assert question.number is None
    assert not question.field.disabled
    question.field.value = "<b>"
    assert "<b>" not in question.line.value.replace("<b>Predict", "")
    question.field.value = ""
    question.button.click()
    assert "Write a number first" in question.line.value
    question.field.value = "12,5"
    assert question.number == 12.5


def test_the_first_guess_stands(question):
    question.field.value = "90"
    question.field.value = "1568"
    question.button.click()
    assert question.number == 90
    assert question.field.disabled
    assert "90 MiB" in question.line.value


def test_a_reader_without_a_kernel_can_unfold_the_answer(question):
    html = reveal(question, {"by hand": 1568})._repr_mimebundle_()["text/html"]
    assert html.startswith("<details><summary>")
    assert "1,568 MiB" in html
    asked = question._repr_mimebundle_()
    assert asked["text/plain"] == "Predict. How much does it need? (MiB)"
    assert "How much does it need?" in asked["text/html"]


@pytest.mark.parametrize(
    ("rows", "against", "message"),
    [
        ({}, None, "reveal needs rows and thoughts with finite numbers"),
        ({"a": float("nan")}, None, "reveal needs rows and thoughts with finite numbers"),
        ({"a": 1.0}, "b", "reveal compares with one of a, got 'b'"),
    ],
)
def test_reveal_refuses_what_it_cannot_show(question, rows, against, message):
    with pytest.raises(CourseError, match=message):
        reveal(question, rows, against)


def test_reveal_needs_a_prediction():
    with pytest.raises(CourseError, match=r"needs what predict\(\.\.\.\) returned as its first argument, got float"):
        reveal(90.0, {"a": 1.0})
