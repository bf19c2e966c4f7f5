"""Checks and graded cells: right answers of every kind pass, every slip is refused with its own message."""

import functools
import itertools
import math
import re
from decimal import Decimal

import numpy as np
import pytest
import torch
from amount import by_turns
from hypothesis import example, given
from hypothesis import strategies as st
from own import own
from right_answers import CHECKS, GRADED, RIGHT, SLIPS, UNTOUCHED

from classroom.questions.core import Feedback, Outcome, Slip, as_number, equal
from classroom.questions.functions import Check
from classroom.questions.graded import PRINTS_ALIKE, UNSTEADY, Graded, canonical, is_steady
from course_utils.units import GIB, MIB
from lessons.memory import checks as memory
from lessons.memory import graded as graded_memory
from lessons.memory.answers import largest_by_counting
from lessons.shared.checks import BytesCheck
from lessons.shared.rewrites import Watched

OF_FUNCTIONS = [one for one in SLIPS if isinstance(CHECKS[one[0]], Check)]
OF_BEHAVIOUR = [one for one in SLIPS if one not in OF_FUNCTIONS]  # each is a program that runs a few times: by turns

NESTED = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def answer_id(value) -> str:
    return value.name.replace(" ", "_") if isinstance(value, Slip) else str(value)


@functools.cache
def right_lines(question, seed):
    """What the graded cell prints of the reference with this seed, asked once for all of a question's slips."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_SEED", seed)
        return GRADED[question].lines(RIGHT[question][0])


@pytest.mark.parametrize("question", CHECKS)
def test_every_question_has_a_catalogue(question):
    names = [slip.name for slip in CHECKS[question].slips]
    assert len(names) >= 3, f"{question} needs three slips or more, wrong answers that people give; it has {names}"
    assert len(set(names)) == len(names)
    assert len(RIGHT[question]) >= 2, f"{question} needs two right answers or more, written in different ways"


class TestRightAnswers:
    @pytest.mark.parametrize(
        ("question", "index"), [(q, i) for q, answers in RIGHT.items() for i in range(len(answers))]
    )
    def test_a_right_answer_passes_however_it_is_written(self, question, index, monkeypatch):
        answer = RIGHT[question][index]
        feedback = CHECKS[question](answer)
        assert feedback.outcome is Outcome.CORRECT, feedback
        assert CHECKS[question].takeaway in feedback.message
        for seed in by_turns(("0", "7"), 0):
            monkeypatch.setenv("COURSE_SEED", seed)
            assert GRADED[question].lines(answer) == right_lines(question, seed)


class TestSlips:
    @pytest.mark.parametrize(("question", "slip"), [*OF_FUNCTIONS, *by_turns(OF_BEHAVIOUR, 1)], ids=answer_id)
    def test_a_slip_is_refused_with_its_own_message(self, question, slip):
        feedback = CHECKS[question](own(slip.function))
        assert feedback.outcome is Outcome.WRONG, feedback
        assert slip.message in feedback.message
        others = {other.message for other in CHECKS[question].slips} - {slip.message}
        assert not [other for other in others if other in feedback.message]

    # Those of functions: test_checks_functions.
    @pytest.mark.parametrize(("question", "slip"), by_turns(OF_BEHAVIOUR, 0), ids=answer_id)
    def test_a_slip_earns_no_point_whatever_the_seed(self, question, slip, monkeypatch):
        for seed in by_turns(("0", "1"), 0):
            monkeypatch.setenv("COURSE_SEED", seed)
            shown = GRADED[question].lines(own(slip.function)) != right_lines(question, seed)
            assert shown, f"graded.py draws no input that shows the slip {slip.name!r} with COURSE_SEED={seed}"

    @pytest.mark.parametrize("question", [q for q, check in CHECKS.items() if isinstance(check, Check)])
    def test_slips_can_be_told_apart_on_the_inputs(self, question):
        check = CHECKS[question]
        results = {s.name: [s.function(*case) for case in check.cases] for s in check.slips}
        messages = {s.name: s.message for s in check.slips}
        for name, values in results.items():
            assert not equal(values, check.truth), f"no case of {question} shows the slip {name!r}: add one that does"
        for one, other in itertools.combinations(results, 2):
            apart = messages[one] == messages[other] or not equal(results[one], results[other])
            assert apart, f"no case of {question} tells the slips {one!r} and {other!r} apart: add one that does"


class TestNotAttempted:
    @pytest.mark.parametrize("question", CHECKS)
    def test_dots_are_not_attempted(self, question):
        plain = [..., lambda *_: ..., lambda *_: 4 * ..., lambda *_: [1, ...], lambda *_: {"a": ...}]
        for answer in UNTOUCHED.get(question, plain):
            assert CHECKS[question](answer).outcome is Outcome.NOT_ATTEMPTED
            assert all(line.endswith(": not attempted") for line in GRADED[question].lines(answer))
        assert CHECKS[question]().outcome is Outcome.NOT_ATTEMPTED


UNIT_FACTORS = {"bits": 8, "KiB": 2**-10, "MiB": 2**-20, "GiB": 2**-30, "kB": 1e-3, "MB": 1e-6, "GB": 1e-9}
# Questions answered by one number for each input.
NUMBERS = [q for q in CHECKS if q not in UNTOUCHED and as_number(CHECKS[q].truth[0]) is not None]
IN_BYTES = [q for q, check in CHECKS.items() if isinstance(check, BytesCheck)]


def scaled(question, change):
    """The reference with its result changed."""
    return lambda *arguments: change(own(CHECKS[question].reference)(*arguments))


class TestPlainDiagnoses:
    @pytest.mark.parametrize("unit", UNIT_FACTORS)
    @pytest.mark.parametrize("question", IN_BYTES)
    def test_another_unit_is_named(self, question, unit):
        feedback = CHECKS[question](scaled(question, lambda value: value * UNIT_FACTORS[unit]))
        assert feedback.outcome is Outcome.WRONG
        assert re.search(rf"\b{unit}\b", feedback.message)

    @pytest.mark.parametrize("question", IN_BYTES)
    def test_rounded_mebibytes_are_mebibytes(self, question):
        assert max(CHECKS[question].truth) > 100 * MIB, "no case gives 100 MiB: add one that does, or take a Check"
        assert "in MiB" in CHECKS[question](scaled(question, lambda value: value // 2**20)).message
        assert "in MiB" in CHECKS[question](scaled(question, lambda value: round(value / 2**20))).message

    @pytest.mark.parametrize("question", IN_BYTES)
    def test_decimal_for_binary_is_noticed(self, question):
        assert "decimal unit" in CHECKS[question](scaled(question, lambda value: value / GIB * 1e9)).message
        assert "off by 4.9 %" in CHECKS[question](scaled(question, lambda value: value / 1e6 * 2**20)).message

    @pytest.mark.parametrize("question", NUMBERS)
    def test_what_is_no_number_is_named(self, question):
        check = CHECKS[question]
        for value, words in {
            None: "returned nothing",
            "12": "a text",
            True: "True or False",
            float("nan"): "NaN",
            (1, 2): "a tuple",
        }.items():
            feedback = check(lambda *_, value=value: value)
            assert feedback.outcome is Outcome.WRONG
            assert words in feedback.message, feedback

    @pytest.mark.parametrize("question", NUMBERS)
    def test_a_constant_factor_is_measured(self, question):
        assert (
            "Every number you return is 7 times too large"
            in CHECKS[question](scaled(question, lambda value: 7 * value)).message
        )
        opposite = CHECKS[question](scaled(question, lambda value: -value)).message
        assert "negative" in opposite or "Every result" in opposite  # the terms of a difference
        assert "Every number you return is 0" in CHECKS[question](lambda *_: 0).message

    def test_exchanged_arguments_are_named(self):
        def exchanged(map_values, input_values, largest_map_values, parameters, batch):
            return 4 * (batch * (map_values + input_values + 2 * largest_map_values) + 2 * parameters)

        assert "`largest_map_values` and `parameters` exchanged" in memory.network_wide(exchanged).message

    def test_nothing_but_zeros_is_no_exchange(self):
        check = Check("left", lambda limit, used: max(0, limit - used), [(9, 4), (7, 2)], [], "good")
        assert check(lambda limit, used: 0).message == "Every number you return is 0."

    def test_an_answer_right_in_part_is_told_where_it_fails(self):
        feedback = memory.map_bytes(lambda n, c, h, w, v=4: n * c * h * w * v + (n == 16))
        assert (
            "Right for 4 of 5 inputs, but `map_bytes(16, 8, 6, 6, 2)` returned 9,217, expected 9,216."
            in feedback.message
        )

    def test_an_argument_that_is_changed_is_named(self):
        def answer(events, limit):
            events.sort()
            return largest_by_counting(events, limit)

        feedback = memory.largest_batch(answer)
        assert feedback.outcome is Outcome.WRONG
        assert "changes its argument `events`" in feedback.message
        assert graded_memory.largest_batch.lines(answer) != graded_memory.largest_batch.lines(largest_by_counting)

    @pytest.mark.parametrize("question", CHECKS)
    def test_a_result_given_for_the_function_is_explained(self, question):
        told = {12_345: "is a number, 12,345, and no", "text": "is a text, 'text', and no", None: "is `None` and no"}
        for wrong, words in told.items():
            feedback = CHECKS[question](wrong)
            assert feedback.outcome is Outcome.WRONG
            assert words in feedback.message
            assert GRADED[question].lines(wrong)[0].startswith(f"{question}: crashed")

    def test_another_signature_is_explained(self):
        feedback = memory.map_bytes(lambda batch, channels: 3)
        assert feedback.outcome is Outcome.CRASHED
        assert "takes (batch, channels)" in feedback.message
        assert "batch, channels, height, width" in feedback.message

    def test_structured_results_are_compared_by_content(self):
        check = Check("shapes", lambda n: {"a": [n, 2.0], "b": "x"}, [(1,), (2,)], [], "good")
        assert check(lambda n: {"b": "x", "a": (np.int64(n), 2)}).outcome is Outcome.CORRECT
        assert check(lambda n: {"a": [n, 2], "b": "y"}).outcome is Outcome.WRONG
        assert "Return a dictionary" in check(lambda n: n).message


class TestCrashes:
    def test_the_line_is_named_and_nothing_else(self):
        def divide(events, limit):
            worst = max(events)
            return helper(worst, limit)

        def helper(event, limit):
            return (limit - event[0]) // 0

        feedback = memory.largest_batch(divide)
        assert feedback.outcome is Outcome.CRASHED
        assert re.search(
            r"raised ZeroDivisionError: .+, in line \d+ of your cell: `return \(limit - event", repr(feedback)
        )
        assert "Traceback" not in repr(feedback)
        assert len(repr(feedback).splitlines()) == 1
        lines = graded_memory.largest_batch.lines(divide)
        assert all(line.endswith(": crashed: ZeroDivisionError") for line in lines)

    def test_one_crash_costs_its_own_line_only(self):
        def answer(batch, channels, height, width, value_bytes=4):
            if value_bytes != 4:
                raise SystemExit
            return batch * channels * height * width * value_bytes

        lines, right = graded_memory.map_bytes.lines(answer), graded_memory.map_bytes.lines(RIGHT["map_bytes"][0])
        assert lines[:3] == right[:3]
        assert all(line.endswith(": crashed: SystemExit") for line in lines[3:])
        assert memory.map_bytes(answer).outcome is Outcome.CRASHED

    def test_a_network_that_raises_is_a_crash_with_its_line(self):
        class Broken(Watched):
            def forward(self, images):
                return self.layers(images).view(3, 3)

        feedback = memory.keep_less(Broken)
        assert feedback.outcome is Outcome.CRASHED
        assert "RuntimeError" in feedback.message
        assert "`return self.layers(images).view(3, 3)`" in feedback.message
        assert graded_memory.keep_less.lines(Broken) == ["keep_less: crashed: RuntimeError"]

    def test_a_network_that_returns_nothing_is_told_so(self):
        class Silent(Watched):
            def forward(self, images):
                self.layers(images)

        assert "Is there a `return`?" in memory.keep_less(Silent).message

    def test_a_list_of_what_cpu_gives_is_told_what_that_is_where_it_runs(self):
        class OnHost(Watched):
            def forward(self, images):
                self.maps, x = [], images
                for layer in self.layers:
                    x = layer(x)
                    self.maps.append(x.cpu())
                return x

        assert "`.cpu()` gives a map that is on the CPU as it is" in memory.keep_less(OnHost).message

    def test_a_network_that_keeps_too_much_in_its_own_way_is_told_how_much(self):
        class Halves(Watched):
            def forward(self, images):
                self.halves, x = {}, images
                for i, layer in enumerate(self.layers):
                    x = layer(x)
                    self.halves[i] = x.detach().half()
                return x

        message = memory.keep_less(Halves).message
        assert re.search(r"still too high. It is \d\d % of the original; at most 50 % is asked.", message)
        assert "still holds 21 tensors" in message


class TestGraded:
    def test_what_the_learner_prints_is_dropped(self, capsys):
        def chatty(batch, channels, height, width, value_bytes=4):
            print("here")
            return batch * channels * height * width * value_bytes

        graded_memory.map_bytes(chatty)
        printed = capsys.readouterr().out
        assert printed == "".join(f"{line}\n" for line in graded_memory.map_bytes.lines(RIGHT["map_bytes"][0]))
        assert "here" not in printed

    def test_inputs_follow_the_seed_and_nothing_else(self, monkeypatch):
        def lines():
            return GRADED["map_bytes"].lines(RIGHT["map_bytes"][0])

        monkeypatch.delenv("COURSE_SEED", raising=False)
        first = lines()
        assert lines() == first
        monkeypatch.setenv("COURSE_SEED", "0")
        assert lines() == first
        monkeypatch.setenv("COURSE_SEED", "1")
        assert lines() != first

    def test_the_expected_batches_are_the_ones_counted(self, monkeypatch):
        for seed in range(50):
            monkeypatch.setenv("COURSE_SEED", str(seed))
            lines = GRADED["largest_batch"].lines(own(largest_by_counting))
            assert lines == GRADED["largest_batch"].lines(own(memory.largest_batch.reference))

    @given(st.integers(-(2**53), 2**53))
    def test_equal_numbers_print_alike(self, number):
        kinds = [number, float(number), np.int64(number), np.float64(number), np.array(number), torch.tensor(number)]
        assert {canonical(kind) for kind in kinds} == {str(number)}
        assert all(equal(one, other) for one, other in itertools.product(kinds, kinds))

    @given(st.floats(allow_nan=False, allow_infinity=False, width=32))
    def test_rounding_of_the_last_digits_does_not_show(self, number):
        assert equal(number, number * (1 + 1e-12))
        if abs(number - round(number)) > 1e-3 and abs(number) < 1e5:
            assert canonical(number) == f"{number:.6g}"

    @given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-1, 1))
    @example(123456.5, 1e-6)
    @example(500_000_000.5, 1e-9)
    @example(1e9 + 0.45, -1.0)
    def test_what_is_steady_prints_alike_whatever_rounding_does(self, number, share):
        other = number * (1 + share * PRINTS_ALIKE)
        whole = canonical(number) == str(round(number))
        if is_steady(number) and not (whole and abs(other - number) > 0.1):
            assert canonical(other) == canonical(number)

    def test_boundaries_of_rounding_are_not_steady(self):
        on_it = [123456.5, 0.1234565, -2.500005, 500_000_000.5, 1e9 + 0.45]
        assert not any(map(is_steady, on_it))
        assert not is_steady({"a": [1, (on_it[0],)]})
        assert all(map(is_steady, [123456.4, 1 / 3, 0.0, 3, 10**30, 2.0000000000000004, math.inf, True, "x", None]))

    @pytest.mark.parametrize("question", RIGHT)
    def test_no_right_result_of_the_plain_seed_lies_on_a_boundary(self, question, monkeypatch):
        monkeypatch.setattr(Graded, "tells_unsteady", True)
        assert not [line for line in GRADED[question].lines(RIGHT[question][0]) if UNSTEADY in line]

    @given(NESTED)
    def test_structures_print_by_content(self, value):
        def turned(v):
            if isinstance(v, dict):
                return {k: turned(v[k]) for k in reversed(v)}
            return tuple(map(turned, v)) if isinstance(v, list) else v

        assert canonical(value) == canonical(turned(value))
        assert equal(value, turned(value))

    def test_no_address_is_printed(self):
        assert canonical(object()) == "a object"
        assert canonical([lambda: 0]) == "[a function]"
        assert canonical([True, None, math.inf, {2, 1}]) == "[True, None, inf, {1, 2}]"
        assert canonical([Decimal(3), Decimal("2.50"), Decimal(1) / 3]) == canonical([3, 2.5, 1 / 3])
        assert canonical(Decimal("nan")) == "a Decimal"


class TestFeedback:
    @pytest.mark.parametrize("outcome", Outcome)
    def test_it_reads_the_same_in_text_and_in_a_notebook(self, outcome):
        feedback = Feedback("q", outcome, "use `a < b` & more")
        assert repr(feedback) == f"{outcome.value.capitalize()}: use `a < b` & more"
        page = feedback._repr_html_()
        assert "use <code>a &lt; b</code> &amp; more" in page
        assert f"<strong>{outcome.value.capitalize()}:</strong>" in page
        assert "var(--jp-" in page

    def test_messages_keep_the_course_voice(self):
        texts = [slip.message for _, slip in SLIPS] + [check.takeaway for check in CHECKS.values()]
        for text in texts:
            assert not re.search(r"!|\b(simply|just|obviously)\b", text), text

    def test_the_paper_figures_in_takeaways_are_computed(self):
        vgg16 = memory.network_wide.cases[4]
        assert f"{memory.network_wide.reference(*vgg16) / 1e9:.2f} GB" in memory.network_wide.takeaway
        first = memory.map_bytes.reference(128, 64, 224, 224) / 2**20
        assert f"{first:,.0f} MiB" in memory.map_bytes.takeaway
