"""What a card does not give to tensors: the reports, and the bounds taken from them."""

import pytest

from course_utils.machine.context import CONTEXT_BYTES, LEAST_BYTES, Context, context, known_context, reports
from course_utils.machine.hardware import device, devices
from course_utils.units import MIB, CourseError


def test_the_bounds_are_bounds_of_what_was_seen():
    sizes = [report.mib for report in reports()]
    assert LEAST_BYTES / MIB <= min(sizes) < LEAST_BYTES / MIB + 16
    lazy = {report.name: report.mib for report in reports() if report.loading == "lazy"}
    above = {name for name, mib in lazy.items() if mib * MIB > CONTEXT_BYTES}
    assert all(name.startswith("RTX 5090") for name in above)
    assert max(mib for name, mib in lazy.items() if name not in above) * MIB <= CONTEXT_BYTES
    for item in devices():
        seen = [report.mib for report in reports() if report.architecture == item.architecture]
        assert context(item).least == LEAST_BYTES
        assert context(item).most == max([CONTEXT_BYTES, *(mib * MIB for mib in seen)])


def test_reports_follow_from_what_their_messages_say():
    for report in reports():
        if report.derived.startswith("mib: 1024 x ("):
            inside, beside = report.derived.removeprefix("mib: 1024 x (").split(") - ")
            held, allocated = (float(part) for part in inside.split(" - "))
            assert report.mib == pytest.approx(1024 * (held - allocated) - float(beside), abs=1), report.name


def test_old_and_new_versions_are_told_apart():
    card = device("RTX 3090")
    assert context(card, "lazy").most == CONTEXT_BYTES < context(card, "eager").most == context(card).most
    assert context() == Context(LEAST_BYTES, CONTEXT_BYTES)
    assert known_context(5) == Context(5, 5)
    with pytest.raises(CourseError, match="a context lies between 0 and more bytes, got 3 to 2"):
        Context(3, 2)
