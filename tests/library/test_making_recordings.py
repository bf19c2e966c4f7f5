"""Making a recording: a real one in small, each measurement, interruptions that lose nothing, all of it on a GPU."""

from __future__ import annotations

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
from torch import nn

from benchmarks.speed import recorded_device
from classroom.cli import main
from course_utils import recordings
from course_utils.machine import card
from course_utils.machine.card import RealStep
from course_utils.machine.measure import peak_above
from course_utils.machine.timing import time_transfer
from course_utils.networks import NETWORKS, Network
from course_utils.recordings import Recording, making, schema
from course_utils.recordings.reading import Live, gpu, sentence
from course_utils.recordings.schema import read
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
    seconds=1e-4,
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, one_thread):
    """A real recording, of this CPU and tiny."""
    out = tmp_path_factory.mktemp("recorded") / "cpu.json"
    making.record(out, "cpu", making.QUICK, command="course record --device cpu --quick")
    return out


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
    sweep = next(item for item in making.items(TINY, "cpu", None) if item.name.startswith("steps of"))
    entries = list(sweep.run(time.monotonic()))
    assert [type(each) for each in entries] == [RealStep, recordings.schema.Skipped]
    assert entries[1].reason == "batch 4 and above: no time left"


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
def test_a_quick_recording_of_a_gpu_has_every_section(tmp_path, monkeypatch):
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
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu(tmp_path) is None  # quick trials are not for lessons
    assert recorded_device(Recording(tmp_path / "a.json", whole)).measured


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
    assert count == 3 * 2**20 + 512
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
