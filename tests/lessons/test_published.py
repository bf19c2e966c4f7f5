"""Published times: every row is whole, on a known device, and findable; a wrong name is told in one line."""

import pytest

from course_utils.machine.hardware import devices
from course_utils.units import CourseError
from lessons.shared.published import (
    CUDNN,
    DIGITS_CPU_MS,
    DIGITS_GPU_MS,
    HIDDEN_LAYER_SECONDS,
    MNIST_EPOCH_SECONDS,
    ON_BOTH,
    OTHER_TIMES,
    OWN_KERNELS,
    RESNET50_MS,
    TIMES,
    XEONS,
    published,
)


def test_every_row_is_of_a_known_device_and_adds_up():
    known = {device.name for device in devices()} | {XEONS}
    for row in TIMES + OTHER_TIMES:
        assert row.device in known, row
        assert row.batch >= 1
        assert row.source
        assert row.library
        assert row.both_ms > (row.forward_ms or 0) > 0 or (row.forward_ms is None and row.both_ms > 0), row
        assert row.seconds == row.both_ms / 1e3
        assert row.per_sample_ms * row.batch == pytest.approx(row.both_ms)


def test_no_time_is_there_twice():
    keys = [(row.source, row.network, row.batch, row.device, row.library) for row in TIMES + OTHER_TIMES]
    assert len(set(keys)) == len(keys)


def test_the_times_of_both_cards_are_those_of_one_table():
    k40 = {row.network.partition(",")[0]: row.both_ms for row in TIMES + OTHER_TIMES if row.device == "Tesla K40"}
    assert k40 == {network: times[0] for network, times in ON_BOTH[CUDNN].items()}
    own = ON_BOTH[OWN_KERNELS]
    assert ON_BOTH[CUDNN].keys() - own.keys() == {"AlexNet"}
    assert all(slow > fast for network in own for slow, fast in zip(own[network], ON_BOTH[CUDNN][network], strict=True))


def test_the_other_fixtures_are_of_one_experiment_each():
    assert list(DIGITS_CPU_MS) == list(DIGITS_GPU_MS) == sorted(DIGITS_CPU_MS)
    assert MNIST_EPOCH_SECONDS.keys() == {"CPU", "GPU"}
    assert RESNET50_MS.keys() <= {device.name for device in devices()}
    assert all(list(ms) == [2**power for power in range(9)] for ms in RESNET50_MS.values())
    speed_ups = [round(cpu / gpu, 2) for cpu, gpu in HIDDEN_LAYER_SECONDS.values()]
    assert speed_ups == [0.81, 0.92, 1.33, 1.24]  # as its source has them


def test_times_are_found_by_network_device_and_source():
    assert [row.both_ms for row in published("GoogLeNet", source="Caffe2 notes, 2017")] == [72.7, 127.5, 233.6, 450.6]
    (cpu,) = published("VGG-16", XEONS)
    assert (cpu.forward_ms, cpu.both_ms, cpu.batch) == (3101.76, 8495.48, 16)


@pytest.mark.parametrize(("network", "device"), [("LeNet", None), ("OverFeat", "B200")])
def test_what_nobody_published_is_one_line(network, device):
    with pytest.raises(CourseError, match=rf"^no published time of '{network}' on .*: *|; there are times of AlexNet"):
        published(network, device)
