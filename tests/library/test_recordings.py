"""The file of a recording and its reading: what is written is read back, every fault is one line."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_recordings import made, timing

from benchmarks.speed import recorded_device
from course_utils import networks, recordings
from course_utils.machine import card
from course_utils.machine.card import RealStep
from course_utils.machine.measure import Measurement
from course_utils.machine.speed import predict_step
from course_utils.machine.timing import Timing
from course_utils.recordings import Recording, schema
from course_utils.recordings.reading import Live, gpu, sentence
from course_utils.recordings.schema import Contents, Transfer, as_json, read, write
from course_utils.trace import training_step
from course_utils.units import CourseError

# ---------------------------------------------------------------------------------------------------------------------
# Made-up contents, of the schema's own types. They stand for no device.


def of(kind, demands=None):
    """A strategy for a type of the schema."""
    demands = demands or {}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(
            kind, **{field.name: of(hints[field.name], field.metadata) for field in dataclasses.fields(kind)}
        )
    if typing.get_origin(kind) is list:
        return st.lists(of(typing.get_args(kind)[0]), max_size=3)
    inner = [each for each in typing.get_args(kind) if each is not type(None)]
    if inner:
        return st.none() | of(inner[0], demands)
    if kind is str:
        return st.sampled_from(demands["choices"]) if "choices" in demands else st.text(max_size=20)
    if kind is bool:
        return st.booleans()
    low = 1 if demands.get("above 0") else 0
    whole = st.integers(low, 2**50)
    return whole if kind is int else st.floats(low * 1e-9, 1e9, allow_nan=False)


steps = st.builds(
    lambda step, memory, time: replace(step, memory=memory, forward=memory and time, step=memory and time),
    of(RealStep), st.none() | of(Measurement), of(Timing),
)  # fmt: skip
contents = of(Contents).flatmap(
    lambda whole: st.builds(lambda some: replace(whole, format=schema.FORMAT, steps=some), st.lists(steps, max_size=3))
)
law = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


# ---------------------------------------------------------------------------------------------------------------------
# The file


@law
@given(contents)
def test_what_is_written_is_read_back(tmp_path, whole):
    path = tmp_path / "a.json"
    write(whole, path)
    assert read(path) == whole
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]  # nothing left beside it


def places(value, path=()):
    """Every place in a JSON, the whole aside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield (*path, key)
        yield from places(each, (*path, key))


@law
@given(contents, st.data())
def test_whatever_is_wrong_in_a_file_is_one_line_that_names_it(tmp_path, whole, data):
    path = tmp_path / "broken.json"
    broken = as_json(whole)
    place = data.draw(st.sampled_from(list(places(broken))))
    holder = broken
    for key in place[:-1]:
        holder = holder[key]
    how = data.draw(st.sampled_from(["drop", "rename", "replace"]))
    if how == "drop" or isinstance(holder, list):
        del holder[place[-1]]
    elif how == "rename":
        holder[f"{place[-1]}_ms"] = holder.pop(place[-1])
    else:
        wrong = st.sampled_from([None, "x", -1, 0, 1.5, 10**400, math.inf, math.nan, [], {}, True, [[]], {"a": 1}])
        holder[place[-1]] = data.draw(wrong)
    path.write_text(json.dumps(broken), encoding="utf-8")
    said = fault_in(path)
    if said is None:
        write(read(path), path)  # a change may leave a right file: it must then be wholly right
    else:
        assert "\n" not in said
        assert "broken.json" in said


def fault_in(path):
    try:
        read(path)
    except CourseError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("format"), "a.json is no recording: it has no format number"),
        (lambda d: d.update(format=1), "a.json has format 1, and this course reads 2: record anew"),
        (lambda d: d.update(format=math.nan), "a.json has format nan, and this course reads 2"),
        (lambda d: d.update(format="2"), "a.json has format '2', and this course reads 2"),
        (lambda d: d["steps"][0].pop("batch"), "a.json, steps[0].batch: is missing"),
        (lambda d: d["steps"][0].update(batch="8"), "a.json, steps[0].batch: must be a whole number, got '8'"),
        (lambda d: d["steps"][0].update(batch=0), "a.json, steps[0].batch: must be above 0"),
        (lambda d: d["steps"][0].update(batch=2.0), "a.json, steps[0].batch: must be a whole number, got 2.0"),
        (lambda d: d["steps"][0].update(batch=10**400), "a.json, steps[0].batch: is no number a recording may hold"),
        (lambda d: d["steps"][0]["step"].update(median_s=math.nan), "median_s: is no number a recording may hold"),
        (lambda d: d["steps"][0].update(way="swap"), "a.json, steps[0].way: must be one of kept, save_on_cpu, "),
        (lambda d: d["steps"][0].update(memory=None), "steps[0]: memory, forward and step must all be given"),
        (lambda d: d["steps"][0]["step"].update(median_s=-1.0), "steps[0].step.median_s: must be 0 or more, got -1.0"),
        (lambda d: d["steps"][0]["step"].update(median=1.0), "steps[0].step.median: unknown; did you mean median_s?"),
        (lambda d: d["provenance"].update(quick="no"), "a.json, provenance.quick: must be true or false, got 'no'"),
        (lambda d: d["provenance"].update(clock_hz=1), "provenance.clock_hz: unknown; did you mean clock_mhz?"),
        (lambda d: d.update(steps={}), "a.json, steps: must be a list, got an object"),
        (lambda d: d.update(provenance=None), "a.json, provenance: must be an object, got null"),
    ],
)
def test_faults_by_name(tmp_path, change, message):
    whole = made()
    whole.add(RealStep("net", 8, "float32", "sgd", "kept", Measurement("X", 3, 4, 1), timing(1.0), timing(2.0)))
    data = as_json(whole)
    change(data)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(CourseError) as error:
        read(path)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "\x00", "[" * 100_000])
def test_what_is_no_recording_is_one_line(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CourseError, match=r"a\.json is no"):
        read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CourseError, match=r"a\.json is no JSON"):
        read(path)
    with pytest.raises(CourseError, match="cannot be read: No such file"):
        read(tmp_path / "b.json")


def kinds(kind=Contents):
    yield kind
    for hint in typing.get_type_hints(kind).values():
        for inner in (hint, *typing.get_args(hint)):
            if dataclasses.is_dataclass(inner):
                yield from kinds(inner)


COUNTS = {"format", "threads", "side", "inputs", "units", "batch", "runs"}


def test_every_number_names_its_unit():
    for kind in set(kinds()):
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if {int, float} & {hints[field.name], *typing.get_args(hints[field.name])}:
                key = schema._key(field)
                assert key in COUNTS or key.endswith(("_s", "_bytes", "_mhz")), f"{kind.__name__}.{key}"


def test_every_kind_of_entry_has_its_list():
    assert set(schema.SECTIONS) == set(typing.get_args(schema.Entry))
    fields = {field.name for field in dataclasses.fields(Contents)}
    assert set(schema.SECTIONS.values()) <= fields


def test_recordings_that_come_with_the_course_are_right():
    for path in Path(recordings.__file__).parent.glob("*.json"):
        assert read(path).complete


# ---------------------------------------------------------------------------------------------------------------------
# Reading one


@pytest.fixture
def recording():
    """Contents made up for the test, with numbers that can be checked by hand."""
    whole = made()
    for batch in (64, 16, 32):
        memory = Measurement("Card X", batch * 100, batch * 110, 50)
        whole.add(RealStep("VGG-16", batch, "float32", "momentum", "kept", memory, timing(0.1), timing(0.01 * batch)))
    whole.add(RealStep("VGG-16", 128, "float32", "momentum", "kept", None, None, None))
    whole.add(
        RealStep(
            "VGG-16", 32, "float32", "momentum", "checkpoint", Measurement("Card X", 9, 9, 1), timing(1.0), timing(2.0)
        )
    )
    for size, seconds in ((10**6, 1e-3), (10**7, 4e-3)):
        whole.add(Transfer(size, True, "to device", timing(seconds)))
    whole.add(schema.Product(1000, "float32", timing(1e-3)))
    whole.add(schema.Product(2000, "float32", timing(2e-3)))
    whole.add(schema.Product(2000, "bfloat16", timing(1e-3)))
    whole.add(schema.MemoryCopy(10**6, timing(1e-6)))
    whole.add(schema.MemoryCopy(10**9, timing(4e-3)))
    whole.add(schema.Launch("issued", timing(5e-6)))
    whole.add(schema.Launch("awaited", timing(2e-5)))
    whole.add(card.Context(False, 300, 0, 100))
    whole.add(card.Context(True, 1000, 400, 100))
    return Recording(Path("card.json"), whole)


def test_steps_are_found_by_what_they_are(recording):
    assert [step.batch for step in recording.sweep("VGG-16", (64, 16, 128, 7))] == [16, 64, 128]
    (step,) = recording.sweep("VGG-16", [32])
    assert step.memory.peak_bytes == 3200
    (step,) = recording.sweep("VGG-16", [32], way="checkpoint")
    assert step.memory.peak_bytes == 9
    fits, fails = recording.sweep("VGG-16", [64, 128])
    assert fits.per_sample_s == pytest.approx(0.01)
    assert fails.out_of_memory
    assert not fits.out_of_memory
    assert recording.sweep("VGG-16", [32], "float16") == []


def test_transfers_between_recorded_sizes_lie_on_the_line(recording):
    assert recording.transfer(10**6) == pytest.approx(1e-3)
    assert recording.transfer(4 * 10**6) == pytest.approx(2e-3)
    assert recording.transfer(10**8) == pytest.approx(4e-2)
    assert recording.transfer(1) == pytest.approx(1e-3)  # no less than the smallest
    with pytest.raises(CourseError, match=r"card\.json has no transfers to device, not pinned"):
        recording.transfer(1, pinned=False)


@given(st.lists(st.integers(1, 2**40), min_size=2, max_size=2, unique=True))
def test_more_bytes_never_take_less_time(sizes):
    whole = made()
    for size in (2**12, 2**20, 2**28):
        whole.add(Transfer(size, True, "to device", timing(1e-5 + size / 1e10)))
    small, large = sorted(sizes)
    found = Recording(Path("a.json"), whole)
    assert found.transfer(small) <= found.transfer(large) * (1 + 1e-9)


def test_the_ceilings_make_a_device_to_predict_for(recording):
    made_of = recorded_device(recording)
    assert (made_of.name, made_of.measured, made_of.bfloat16) == ("Card X", True, True)
    assert made_of.flops_per_s() == 2 * 2000**3 / 2e-3
    assert made_of.reached_bytes_per_s() == 2 * 10**9 / 4e-3  # of the large copy: the small one fits a cache
    assert made_of.launch_seconds == 5e-6
    ledger = training_step(networks.small_cnn(), (3, 32, 32), 10).at(8)
    assert predict_step(ledger, made_of).total_seconds > 0
    assert "Card X" in made_of.sources
    with pytest.raises(CourseError, match=r"card\.json has no ceilings"):
        recorded_device(Recording(Path("card.json"), made()))


def test_the_rest_is_read_by_what_it_is(recording):
    assert recording.context().context_bytes == 1000 - 400 - 100
    assert recording.crossover() == []
    with pytest.raises(CourseError, match=r"card\.json has no context"):
        Recording(Path("card.json"), made()).context()


def test_the_sentence_says_where_the_numbers_are_from(recording):
    said = sentence(recording)
    assert said == (
        "Recorded on Card X (driver 1.2, CUDA 12.8) with torch 2.11.0 on 5 March 2026 by `course record`, "
        "course 0.1.0 (abc)."
    )
    assert "not everything is in it" in Recording(Path("a"), made(complete=False)).sentence()
    assert "quick trial" in Recording(Path("a"), made(quick=True)).sentence()
    assert sentence(None) == recordings.NO_RECORDING
    assert "`course record`" in recordings.NO_RECORDING


def test_without_a_gpu_lessons_get_the_newest_complete_recording_of_one(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu(tmp_path) is None
    write(made(device="cpu"), tmp_path / "cpu.json")
    write(made(quick=True), tmp_path / "quick.json")
    assert gpu(tmp_path) is None
    write(made(complete=False, date="2026-09-01T00:00:00+00:00"), tmp_path / "partial.json")
    assert gpu(tmp_path).path.name == "partial.json"
    write(made(date="2026-02-01T00:00:00+00:00"), tmp_path / "old.json")
    write(made(date="2026-08-01T00:00:00+00:00"), tmp_path / "new.json")
    assert gpu(tmp_path).path.name == "new.json"
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    with pytest.raises(CourseError, match=r"bad\.json is no recording"):
        gpu(tmp_path)


def test_without_a_gpu_lessons_get_the_recording_or_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu(tmp_path) is None
    write(made(), tmp_path / "a.json")
    assert isinstance(gpu(tmp_path), Recording)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert isinstance(gpu(tmp_path), Live)
