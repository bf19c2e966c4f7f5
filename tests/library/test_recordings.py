"""Recordings: what is written is read back, every fault is one line, an interruption loses nothing."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
import typing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_recordings import made, timing
from torch import nn

from benchmarks.speed import recorded_ceilings
from classroom.cli import main
from course_utils import networks, recordings
from course_utils.machine import card
from course_utils.machine.card import RealStep
from course_utils.machine.measure import Measurement, peak_above
from course_utils.machine.speed import predict_step
from course_utils.machine.timing import Timing, time_transfer
from course_utils.networks import NETWORKS, Network
from course_utils.recordings import Recording, making, schema
from course_utils.recordings.reading import Live, gpu, load, sentence
from course_utils.recordings.schema import Contents, RecordingError, Transfer, as_json, read, write
from course_utils.trace import training_step
from course_utils.units import CourseError

TINY = replace(
    making.QUICK,
    networks={"small dense net": making.QUICK.networks["small dense net"]},
    precisions=("float32",),
    optimizers=("momentum",),
    sides=(8,),
    copies=(4096,),
    contest=((4,), (3,), (2,)),
    ways=(),
    workspaces=(),
    seconds=1e-4,
)

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


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, one_thread):
    """A real recording, of this CPU and tiny."""
    out = tmp_path_factory.mktemp("recorded") / "cpu.json"
    making.record(out, "cpu", making.QUICK, command="course record --device cpu --quick")
    return out


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
    except RecordingError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("format"), "a.json is no recording: it has no format number"),
        (lambda d: d.update(format=2), "a.json has format 2, and this course reads 1: record anew"),
        (lambda d: d.update(format=math.nan), "a.json has format nan, and this course reads 1"),
        (lambda d: d.update(format="1"), "a.json has format '1', and this course reads 1"),
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
    with pytest.raises(RecordingError) as error:
        read(path)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "\x00", "[" * 100_000])
def test_what_is_no_recording_is_one_line(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordingError, match=r"a\.json is no"):
        read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RecordingError, match=r"a\.json is no JSON"):
        read(path)
    with pytest.raises(RecordingError, match="cannot be read: No such file"):
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
    load()


# ---------------------------------------------------------------------------------------------------------------------
# Making one


def test_a_recording_of_this_cpu_in_small(recorded):
    whole = read(recorded)
    assert whole.complete
    assert whole.provenance.device == "cpu"
    assert whole.provenance.quick
    assert whole.provenance.torch == torch.__version__
    assert {product.side for product in whole.products} == set(making.QUICK.sides)
    assert len(whole.launches) == 2
    assert len(whole.contests) == math.prod(len(each) for each in making.QUICK.contest)
    made_of = {(step.network, step.precision, step.optimizer, step.way) for step in whole.steps}
    for network in making.QUICK.networks:
        for precision in making.QUICK.precisions:
            for optimizer in making.QUICK.optimizers:
                assert (network, precision, optimizer, "kept") in made_of
    assert {("small CNN", "float32", "momentum", way) for way in ("save_on_cpu", "checkpoint")} <= made_of
    assert {workspace.benchmark for workspace in whole.workspaces} == {False, True}
    assert whole.transfers == whole.contexts == []  # of a GPU alone
    assert [skipped.item for skipped in whole.skipped] == ["maps of small CNN, batch 4: save_on_cpu, pinned"]


def test_a_recorded_step_is_the_step_measured_live(recorded):
    network = making.QUICK.networks["small dense net"]
    live = card.measure_one(network, 4, device="cpu", seconds=1e-4)
    (step,) = Recording(recorded, read(recorded)).sweep("small dense net", [4])
    assert type(step) is type(live)
    assert step.memory == live.memory  # to the byte, the time is another
    assert live.step.median > 0


BLOCKED = ("pandas", "psutil", "matplotlib", "ipywidgets", "sklearn", "tqdm", "rich", "nbformat", "PIL", "IPython")
WITHOUT = f"""
import sys
from importlib.machinery import PathFinder
class Bare:
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in {BLOCKED} else PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Bare()
from classroom.cli import main
sys.exit(main(sys.argv[1:]))
"""


def program(*arguments, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return [sys.executable, "-c", WITHOUT, *map(str, arguments)], {"env": environment, "text": True, **options}


def test_it_runs_where_nothing_but_torch_and_numpy_is_installed(tmp_path):
    command, options = program("record", "--device", "cpu", "--quick", "--out", tmp_path / "a.json")
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, **options)
    assert done.returncode == 0, done.stderr
    assert "steps measured" in done.stdout
    assert "1/" in done.stderr  # a line an item in place of the bar
    assert read(tmp_path / "a.json").complete


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without telling it")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_from_outside_it_keeps_what_there_is(tmp_path, how):
    out = tmp_path / "a.json"
    command, options = program("record", "--device", "cpu", "--out", out)  # the whole plan, too long for a test
    running = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, **options)
    try:
        assert any("1/" in line for line in iter(running.stderr.readline, ""))  # a CUDA build may warn first
        time.sleep(0.5)
        running.send_signal(how)
        _, said = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 130
    assert f"interrupted; what was measured so far is in {out}" in said
    assert "Traceback" not in said
    assert not read(out).complete
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_interrupted_in_mid_item_everything_before_is_kept(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(card, "measure_contest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        making.record(tmp_path / "a.json", "cpu", plan=TINY)
    whole = read(tmp_path / "a.json")
    assert not whole.complete
    assert len(whole.products) == len(whole.copies) == 1
    assert whole.contests == whole.steps == []
    assert "interrupted" in Recording(Path("a.json"), whole).sentence()


def test_what_fails_is_written_down_and_the_rest_goes_on(tmp_path, monkeypatch):
    def fails(*arguments):
        raise RuntimeError("cuBLAS is in a bad mood\nand says more")

    monkeypatch.setattr(card, "measure_contest", fails)
    whole = making.record(tmp_path / "a.json", "cpu", plan=TINY)
    assert whole.complete
    assert [(each.item, each.reason) for each in whole.skipped] == [
        ("contests of CPU and device", "cuBLAS is in a bad mood")
    ]
    assert whole.steps


def test_one_way_that_fails_does_not_cost_the_others(monkeypatch, tmp_path):
    real = card.OnItsWay.forward

    def forward(self, x):
        if self.way == "save_on_cpu":
            raise RuntimeError("no")
        return real(self, x)

    monkeypatch.setattr(card.OnItsWay, "forward", forward)
    plan = replace(TINY, ways=(("small dense net", 8),))  # a batch that no sweep measures, so plain is measured too
    whole = making.record(tmp_path / "a.json", "cpu", plan=plan)
    assert [step.way for step in whole.steps if step.batch == 8] == ["kept", "checkpoint"]
    assert [each.item for each in whole.skipped] == [
        f"maps of small dense net, batch 8: {way}" for way in ("save_on_cpu", "save_on_cpu, pinned")
    ]


def test_running_out_of_memory_is_recorded_as_such_and_ends_the_sweep(monkeypatch, tmp_path):
    real = card.measure_step

    def small(module, shape, classes, batch, *arguments, **options):
        if batch > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return real(module, shape, classes, batch, *arguments, **options)

    monkeypatch.setattr(card, "measure_step", small)
    whole = making.record(tmp_path / "a.json", "cpu", plan=replace(TINY, first_batches=(1, 2, 4, 8)))
    assert [(step.batch, step.out_of_memory) for step in whole.steps] == [(1, False), (2, False), (4, True)]
    assert whole.steps[-1].step is whole.steps[-1].per_sample_s is None
    assert read(tmp_path / "a.json") == whole


def test_other_errors_are_not_taken_for_lack_of_memory(monkeypatch):
    def fails(*arguments, **options):
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(card, "measure_step", fails)
    with pytest.raises(RuntimeError, match="shapes"):
        card.measure_one(TINY.networks["small dense net"], 2, device="cpu")


def test_without_time_nothing_is_measured_and_all_is_named(tmp_path):
    whole = making.record(tmp_path / "a.json", "cpu", minutes=1e-9, plan=TINY)
    todo = [item.name for item in making.items(TINY, "cpu", None)]
    assert [each.item for each in whole.skipped] == todo
    assert whole.steps == []


def test_a_sweep_stops_before_a_batch_that_would_take_too_long():
    entries = list(making.sweep(TINY, "small dense net", (1, 2, 4), "float32", "sgd", "cpu", time.monotonic()))
    assert [type(each) for each in entries] == [RealStep, recordings.schema.Skipped]
    assert entries[1].reason == "batch 2 and above: no time left"


def test_the_plan_covers_every_network_precision_and_optimizer_and_begins_with_what_matters():
    names = [item.name for item in making.items(making.FULL, "cuda", None)]
    assert len(names) == len(set(names))
    for network in NETWORKS:
        for precision in ("float32", "bfloat16", "float16"):
            for optimizer in ("sgd", "momentum", "adam", "adamw"):
                assert f"steps of {network}, {precision}, {optimizer}" in names
    assert names[:4] == ["context", "ceilings", "transfers", "contests of CPU and device"]
    assert set(making.FULL.networks) == set(NETWORKS)
    assert making.BUDGET_SECONDS + 60 <= 8 * 60


def test_wrong_requests_are_one_line(tmp_path, monkeypatch, capsys):
    taken = tmp_path / "taken.json"
    taken.write_text("mine", encoding="utf-8")
    with pytest.raises(CourseError, match=r"is there already: move it away or choose another name with --out"):
        making.record(taken, "cpu", plan=TINY)
    assert taken.read_text(encoding="utf-8") == "mine"
    with pytest.raises(CourseError, match="there is no folder"):
        making.record(tmp_path / "no" / "a.json", "cpu", plan=TINY)
    with pytest.raises(CourseError, match="unknown device 'tpu': choose one of cuda, cpu"):
        making.record(tmp_path / "a.json", "tpu", plan=TINY)
    with pytest.raises(CourseError, match="minutes must be above 0, got -1"):
        making.record(tmp_path / "a.json", "cpu", minutes=-1, plan=TINY)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    assert main(["record"]) == 2
    assert capsys.readouterr().err.startswith("course: this machine shows PyTorch no GPU: add --device cpu --quick")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["taken.json"]


# ---------------------------------------------------------------------------------------------------------------------
# One measurement each


def branching():
    """A Sequential whose maps are saved in several places."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 3))


@pytest.mark.parametrize("way", ["save_on_cpu", "checkpoint"])
def test_every_way_gives_the_same_gradients(way):
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    gradients = []
    for kept in ("kept", way):
        model = card.OnItsWay(branching(), kept)
        model(x).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_the_convolutions_of_a_network_with_the_maps_they_get():
    found = card.convolutions(NETWORKS["AlexNet"])
    assert len(found) == 5
    assert [first for *_, first in found] == [True, False, False, False, False]
    name, layer, shape, _ = found[1]
    assert (layer.in_channels, layer.kernel_size, shape[0]) == (64, (5, 5), 64)
    assert name in dict(NETWORKS["AlexNet"].build().named_modules())
    assert len(card.convolutions(NETWORKS["VGG-16"])) == 13
    assert not found[0][1]._forward_pre_hooks


def test_scratch_memory_is_what_stands_above_the_tensors():
    network = Network("net", networks.small_cnn, (3, 32, 32), 10)
    for entry in card.measure_workspaces(network, 4, benchmark=False, device="cpu"):
        assert entry.network == "net"
        assert min(entry.forward_bytes, entry.backward_bytes, entry.first_bytes) >= 0
    pointwise = Network("dense", lambda: nn.Sequential(nn.Linear(4, 4)), (4,), 4)
    assert list(card.measure_workspaces(pointwise, 4, benchmark=False, device="cpu")) == []


def test_a_peak_is_counted_above_what_stood_before():
    held = torch.zeros(2**18)
    count = peak_above(lambda: [torch.empty(2**20, dtype=torch.uint8) for _ in range(3)], "cpu")
    assert 3 * 2**20 <= count < 3 * 2**20 + 4096
    assert held.nbytes == 2**20
    assert peak_above(lambda: None, "cpu") == 0


def test_contests_are_between_the_cpu_and_the_device():
    contest = card.measure_contest(4, 3, 2, device="cpu", seconds=1e-4)
    assert (contest.inputs, contest.units, contest.batch) == (4, 3, 2)
    assert min(each.median for each in (contest.cpu, contest.device, contest.transferred)) > 0


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
    whole.add(card.Workspace("VGG-16", "conv1_1", 16, False, 1, 2, 3))
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
    with pytest.raises(RecordingError, match=r"card\.json has no transfers to device, not pinned"):
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
    ceilings = recorded_ceilings(recording)
    assert ceilings.flops_per_s == {"float32": 2 * 2000**3 / 2e-3, "bfloat16": 2 * 2000**3 / 1e-3}
    assert ceilings.bytes_per_s == 2 * 10**9 / 4e-3  # of the large copy: the small one fits a cache
    assert ceilings.launch_seconds == 5e-6
    made_of = ceilings.as_device("Card X")
    assert (made_of.name, made_of.measured, made_of.bfloat16) == ("Card X", True, True)
    ledger = training_step(networks.small_cnn(), (3, 32, 32), 10).at(8)
    assert predict_step(ledger, made_of).total_seconds > 0
    assert "Card X" in made_of.sources
    with pytest.raises(CourseError, match=r"card\.json has no ceilings"):
        recorded_ceilings(Recording(Path("card.json"), made()))


def test_the_rest_is_read_by_what_it_is(recording):
    assert recording.context().context_bytes == 1000 - 400 - 100
    assert recording.crossover() == []
    with pytest.raises(RecordingError, match=r"card\.json has no context"):
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


def test_load_gives_the_newest_complete_recording_of_a_gpu(tmp_path):
    assert load(tmp_path) is None
    write(made(device="cpu"), tmp_path / "cpu.json")
    write(made(quick=True), tmp_path / "quick.json")
    assert load(tmp_path) is None
    write(made(complete=False, date="2026-09-01T00:00:00+00:00"), tmp_path / "partial.json")
    assert load(tmp_path).path.name == "partial.json"
    write(made(date="2026-02-01T00:00:00+00:00"), tmp_path / "old.json")
    write(made(date="2026-08-01T00:00:00+00:00"), tmp_path / "new.json")
    assert load(tmp_path).path.name == "new.json"
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RecordingError, match=r"bad\.json is no recording"):
        load(tmp_path)


def test_without_a_gpu_lessons_get_the_recording_or_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu(tmp_path) is None
    write(made(), tmp_path / "a.json")
    assert isinstance(gpu(tmp_path), Recording)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert isinstance(gpu(tmp_path), Live)


def test_live_and_recorded_answer_the_same_questions_with_the_same_types(recorded, monkeypatch):
    monkeypatch.setattr("course_utils.recordings.reading.NETWORKS", making.QUICK.networks)
    live, there = Live("cpu", 1e-4), Recording(recorded, read(recorded))
    for question in ("sweep", "crossover", "transfer", "context", "sentence"):
        one, other = (typing.get_type_hints(getattr(kind, question)) for kind in (Live, Recording))
        assert one == other, question
    (step,), (recorded_step,) = live.sweep("small dense net", [4]), there.sweep("small dense net", [4])
    assert step.memory == recorded_step.memory
    assert [step.batch for step in live.sweep("small dense net", (4, 2))] == [2, 4]
    with pytest.raises(CourseError, match="unknown network 'LeNet': choose one of small CNN"):
        live.sweep("LeNet", [4])
    assert "Measured here" in sentence(live)


# ---------------------------------------------------------------------------------------------------------------------
# On a GPU

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; none is visible to PyTorch")


@pytest.mark.gpu
@needs_gpu
def test_a_quick_recording_of_a_gpu_has_every_section(tmp_path):
    whole = making.record(tmp_path / "a.json", "cuda", making.QUICK)
    assert read(tmp_path / "a.json") == whole
    assert [(each.item, each.reason) for each in whole.skipped] == []
    for section in schema.SECTIONS.values():
        assert getattr(whole, section) or section == "skipped", section
    assert whole.provenance.name == torch.cuda.get_device_name()
    assert whole.provenance.cuda == torch.version.cuda
    assert whole.provenance.memory_bytes == torch.cuda.get_device_properties(0).total_memory
    assert {(each.pinned, each.direction) for each in whole.transfers} == {
        (pinned, direction) for pinned in (True, False) for direction in schema.DIRECTIONS
    }
    assert {step.way for step in whole.steps} == set(card.WAYS)
    assert load(tmp_path) is None  # quick trials are not for lessons
    assert recorded_ceilings(Recording(tmp_path / "a.json", whole)).as_device().measured


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_that_runs_out_of_memory_is_free_again_afterwards():
    network = Network(
        "wide",
        lambda: nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (3, 256, 256),
        64,
    )
    a_map = 4 * 64 * 256 * 256
    too_many = torch.cuda.get_device_properties(0).total_memory // a_map + 1
    step = card.measure_one(network, too_many)
    assert step.out_of_memory
    card.free("cuda")
    assert torch.cuda.memory_allocated() < 64 * 2**20
    assert not card.measure_one(network, 1, seconds=1e-3).out_of_memory


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("way", [way for way in card.WAYS if way != "kept"])
def test_on_a_gpu_maps_that_are_not_kept_lower_the_peak(way):
    layers = [layer for _ in range(8) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())]
    network = Network("deep", lambda: nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), (16, 64, 64), 16)
    kept, moved = (card.measure_one(network, 64, way=each, seconds=1e-3) for each in ("kept", way))
    assert moved.memory.peak_bytes < kept.memory.peak_bytes


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_a_peak_is_counted_in_blocks_of_the_allocator():
    count = peak_above(lambda: torch.empty(3 * 2**20 + 1, dtype=torch.uint8, device="cuda"), "cuda")
    assert count == card._allocated(torch.empty(3 * 2**20 + 1, dtype=torch.uint8), "cuda") == 3 * 2**20 + 512
    assert peak_above(lambda: None, "cuda") == 0


@pytest.mark.gpu
@needs_gpu
def test_the_context_is_what_the_driver_counts_beside_the_allocator():
    with_libraries = Live().context()
    assert with_libraries.reserved_bytes == torch.cuda.memory_reserved()
    whole = torch.cuda.get_device_properties(0).total_memory
    assert 2**20 < with_libraries.context_bytes < whole


@pytest.mark.gpu
@needs_gpu
def test_transfers_reach_their_target():
    for pinned in (True, False):
        for direction in schema.DIRECTIONS:
            to_host = direction == "to host"
            assert all(time_transfer(size, pinned, to_host, 1e-3).median > 0 for size in (4096, 2**24))


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_the_peak_is_the_trace_and_at_most_the_workspace_measured():
    network = NETWORKS["AlexNet"]
    with torch.backends.cudnn.flags(enabled=True, benchmark=False):
        memory = card.measure_one(network, 16, seconds=1e-3).memory
        entries = card.measure_workspaces(network, 16, benchmark=False)
        scratch = [max(each.forward_bytes, each.backward_bytes) for each in entries]
    traced = training_step(network.build(), network.input_shape, network.classes).at(16).peak_bytes
    room = 64 * 2**20  # what cuBLAS keeps differs from card to card
    assert traced - room <= memory.peak_bytes <= traced + max(scratch) + room
    assert memory.reserved_bytes >= memory.peak_bytes
