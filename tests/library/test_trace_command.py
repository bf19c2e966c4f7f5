"""`course trace`: what it says is what the library says, bad input is one line, and the page needs nothing else."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import lab
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from classroom import cli
from course_utils import trace_command as command
from course_utils.machine.context import context, known_context
from course_utils.machine.hardware import device
from course_utils.memory import ROLE, StepTrace
from course_utils.techniques.capacity import FITS, NO, demand, fit, largest_batch
from course_utils.techniques.fine_tuning import FourBit, LoRA, adapt, eight_bit
from course_utils.trace import Spec, training_step
from course_utils.trace_command import changes
from course_utils.trace_command.builders import build
from course_utils.trace_command.changes import COMPUTED, Workbench
from course_utils.units import GIB, CourseError, format_bytes

OWN = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU()
    def forward(self, x):
        return x + self.act(self.norm(self.conv(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, 16, 3, padding=1), nn.ModuleList([Block() for _ in range(4)])
        self.head = nn.Linear(16, 10)
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))

def net():
    return Net()

def looks_at_numbers():
    assert torch.ones(3).sum().item() == 3
    return nn.Linear(3, 10)

def broken():
    raise RuntimeError("no weights here\\nand a second line")

def nothing():
    return None

def attends():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(3 * 8, 10))

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)
    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))

class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.layers = nn.Embedding(320, 64), nn.ModuleList([Layer() for _ in range(3)])
        self.head = nn.Linear(64, 320)
    def forward(self, x, y=None):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        x = self.head(x)
        return x if y is None else (x, nn.functional.cross_entropy(x.flatten(0, 1), y.flatten()))

def language():
    return Language()

def pooled():
    return nn.Sequential(nn.Embedding(320, 64), nn.Flatten(), nn.Linear(16 * 64, 10))

def rebuilt(model, x):
    return (model(x) - x).square().mean()

def halves():
    return nn.Sequential(nn.Linear(4096, 4096, False), nn.Linear(4096, 4096, False)).bfloat16()

def adam_of(parameters):
    return torch.optim.Adam(parameters, foreach=False)

def square():
    return nn.Linear(3, 3)

def talks():
    print("I am being built")
    return nn.Linear(3, 10)

def lazy():
    return nn.Sequential(nn.LazyLinear(10))

unbuilt = lazy()

def shapeless():
    return nn.Sequential(nn.LazyBatchNorm1d(affine=False), nn.Linear(3, 10))

def leaves():
    raise SystemExit("no such option")

def wants(size):
    return nn.Linear(size, 10)

class Two(nn.Linear):
    def forward(self, x):
        return super().forward(x), x

def two():
    return Two(3, 10)

def last():
    return nn.Conv1d(3, 3, 1)

def norms():
    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 10))

number = 3
"""
NET = ["own_nets:net", "--input", "3,32,32", "--classes", "10", "--batch", "64"]
LANGUAGE = ["own_nets:language", "--input", "int64:16", "--batch", "8"]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_nets.py").write_text(OWN)
    (tmp_path / "falls_over.py").write_text("import sys\nsys.exit('enough')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("own_nets", "falls_over"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def options(*arguments: str) -> argparse.Namespace:
    return command.parser().parse_args(arguments)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "classroom.cli", "trace", *arguments]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)


def bench_of(*arguments: str) -> Workbench:
    given = options(*arguments)
    return Workbench(command.network_of(given), command.settings_of(given), command.card_of(given.card), context())


def test_in_a_process_of_its_own_it_prints_roles_layers_verdict_and_what_would_help(own: Path) -> None:
    written = own / "page.html"
    done = run(own, *NET, "--card", "RTX 4090", "--html", str(written))
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout
    helps = ("checkpointing of 4 blocks", "8-bit Adam", "accumulation, 2 × 32", "a batch of 32", "bfloat16 autocast")
    for words in ("feature maps", "blocks.0.conv", "RTX 4090: It fits", "atch that fits", *helps):
        assert words in said
    text = written.read_text(encoding="utf-8")
    assert text.count("<svg") == 1
    assert not re.search(r"(src|href)=\"?https?:|<script|@import", text)
    assert "RTX 4090: It fits" in text
    assert "<title>net</title>" in text


@pytest.mark.browser
@pytest.mark.skipif(bool(lab.missing()), reason=lab.missing())
def test_the_page_fits_a_phone(own: Path) -> None:
    report = command.make_report(options(*LANGUAGE, "--card", "0.004", "--context", "0"))
    (own / "page.html").write_text(report.page(command.card_of("0.004")), encoding="utf-8")
    with lab.browser(width=400) as shown:
        shown.goto((own / "page.html").as_uri())
        wide = "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > 400)"
        assert shown.evaluate("document.documentElement.scrollWidth") == 400
        assert shown.evaluate(f"{wide}.length") == 0
        assert len(report.helps) > 5


def test_in_a_process_of_its_own_bad_input_is_one_line_and_no_traceback(own: Path) -> None:
    done = run(own, "own_nets:broken", "--input", "3,32,32")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "course: own_nets:broken raised RuntimeError: no weights here\n"


def test_what_a_builder_prints_is_no_part_of_the_answer(own: Path) -> None:
    done = run(own, "own_nets:talks", "--input", "3", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["name"] == "talks"
    assert "I am being built" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_a_reader_who_has_had_enough_is_no_error(own: Path) -> None:
    line = f"{sys.executable} -m classroom.cli trace {' '.join(NET)} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=own, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("141", "")


def test_what_is_said_is_what_the_library_says(own: Path) -> None:
    report = command.make_report(options(*NET, "--optimizer", "adam", "--card", "T4"))
    module = build("own_nets:net")
    step = training_step(module, (3, 32, 32), 10, optimizer="adam")
    ledger = step.at(64)
    assert report.verdict == fit(ledger, device("T4"))
    assert report.batches == largest_batch(step, device("T4"))
    assert report.parameters == (sum(p.numel() for p in module.parameters()),) * 2
    said = "\n".join(report.lines())
    assert f"net, batch 64, adam, float32 weights: {format_bytes(ledger.peak_bytes)} at the peak" in said
    assert f"{format_bytes(ledger.allocated_bytes())} allocated and {format_bytes(ledger.reserved_bytes())} res" in said
    for one in report.helps:
        if one.peak_bytes >= ledger.peak_bytes:
            assert re.search(rf"Saves nothing here: .*{one.name}", said)
            continue
        assert re.search(rf"{one.name} .*{format_bytes(one.peak_bytes)} .*{one.known}.*{re.escape(one.cost)}", said)


def by_hand(name: str) -> StepTrace:
    """Each change as a reader would write it into the step of `own_nets:net`, or of `own_nets:language`."""
    net, text = build("own_nets:net"), build("own_nets:language")
    image: dict[str, Any] = {"input_shape": (3, 32, 32), "classes": 10, "optimizer": "adamw"}
    tokens = Spec((16,), torch.int64)
    words: dict[str, Any] = {
        "inputs": (tokens, Spec((16,), torch.int64)), "loss": lambda model, batch: model(*batch)[1],
        "keep_output": True, "optimizer": "adamw",
    }  # fmt: skip

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> Any:
            x = self.net.stem(x)
            for block in self.net.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return self.net.head(x.mean((2, 3)))

    if name.startswith("accumulation"):
        return training_step(net, **image, accumulate=4)
    if name == "update in backward":
        for parameter in text.parameters():
            optimizer = torch.optim.AdamW([parameter])

            def update(weight: Any, optimizer: torch.optim.Optimizer = optimizer) -> None:
                optimizer.step()
                optimizer.zero_grad()

            parameter.register_post_accumulate_grad_hook(update)
        return training_step(text, **words | {"optimizer": lambda parameters: []})
    if "LoRA" in name:
        text.requires_grad_(False)
        text = text.bfloat16() if name == "QLoRA 16" else text
        for layer in text.layers:
            for part in ("up", "down"):
                linear = getattr(layer, part)
                base = FourBit(linear) if name == "QLoRA 16" else linear
                with torch.device("meta"):
                    setattr(layer, part, LoRA(base, linear.in_features, linear.out_features, 16, linear.weight))
        return training_step(text.float() if name == "QLoRA 16" else text, **words)  # 4 bits are no floating point
    return {
        "checkpointing of 4 blocks": lambda: training_step(Checkpointed(), **image),
        "bfloat16 autocast": lambda: training_step(net, **image, precision="bfloat16"),
        "bfloat16 weights": lambda: training_step(net.bfloat16(), **image, input_dtype=torch.bfloat16),
        "8-bit Adam": lambda: training_step(net, **image | {"optimizer": eight_bit}),
        "a batch of 32": lambda: training_step(net, **image),
    }[name]()


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("checkpointing of 4 blocks", 64), ("bfloat16 autocast", 64), ("bfloat16 weights", 64), ("8-bit Adam", 64),
        ("a batch of 32", 32), ("accumulation, 4 × 16", 16), ("LoRA 16", 8), ("QLoRA 16", 8),
        ("update in backward", 8),
    ],
)  # fmt: skip
def test_each_saving_is_that_of_the_step_with_this_change_written_by_hand(own: Path, name: str, batch: int) -> None:
    bench = bench_of(*(LANGUAGE if "LoRA" in name or "backward" in name else NET))
    wanted = name.replace("4 × 16", "2 × 32")
    change = next(one for one in bench.changes() if one.name == wanted)
    if wanted != name:
        change = replace(change, settings={"accumulate": 4})
    assert bench.with_changes(change).peak_bytes == by_hand(name).at(batch).peak_bytes
    assert bench.at(bench.settings).peak_bytes == bench.ledger.peak_bytes  # the network is as it was


def test_an_update_in_backward_leaves_no_gradient_to_the_update(own: Path) -> None:
    bench = bench_of(*LANGUAGE)
    ledger = bench.at(replace(bench.settings, in_backward=True))
    gradients = ledger.matrix[:, ROLE["weight gradients"]]
    assert 0 < gradients.max() < bench.ledger.matrix[:, ROLE["weight gradients"]].max()
    assert gradients[-1] == 0


@pytest.mark.parametrize("share", [0.95, 0.75, 0.6, 0.45, 0.3])
def test_the_set_of_changes_named_first_fits_and_none_that_costs_less_does(own: Path, share: float) -> None:
    """Beside all sets of up to two, traced one by one."""
    bench = bench_of(*NET, "--batch", "4096")
    bench.taken, bench.card = known_context(0), int(share * demand(bench.ledger).tensors)
    assert bench.verdict(bench.ledger).state == NO  # type: ignore[union-attr]
    singles = bench.singles()
    found = [one for one in (*singles, *bench.sets(singles)) if one.fits]
    first = min(found, key=lambda one: one.price)
    settings = replace(bench.settings, **{k: v for one in first.changes for k, v in one.settings.items()})
    ledger = bench.at(settings)
    assert fit(ledger, bench.card, taken=known_context(0)).state == FITS
    assert ledger.peak_bytes == first.peak_bytes
    for pair in combinations(bench.changes(), 2):
        if not set(pair[0].settings) & set(pair[1].settings) and max(one.alters for one in pair) < first.alters:
            assert not bench.with_changes(*pair).fits


def test_without_a_card_one_pair_is_traced(own: Path) -> None:
    bench = bench_of(*NET)
    singles = bench.singles()
    (pair,) = bench.sets(singles)
    assert len(pair.changes) == 2
    assert pair.peak_bytes <= min(one.peak_bytes for one in singles if one.alters <= changes.ROUNDING)


def test_the_json_says_what_the_text_says(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["trace", *NET, "--card", "0.06", "--context", "0"]
    assert cli.main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert cli.main(line) == 0
    said = capsys.readouterr().out
    assert found["card"]["state"] == NO
    assert sum(found["roles_bytes"].values()) == found["peak_bytes"]
    for role, count in found["roles_bytes"].items():
        assert not count or re.search(rf"{role} +{format_bytes(count)} ", said)
    for count in ("peak_bytes", "allocated_bytes", "reserved_bytes"):
        assert format_bytes(found[count]) in said
    assert found["card"]["sentence"] in said
    assert f"{found['parameters']:,} parameters" in said
    for one in (*found["changes"], found["cheapest"]):
        if one["saves_bytes"] <= 0:
            continue
        name = re.escape(" + ".join(one["changes"]))
        cells = rf"{format_bytes(one['peak_bytes'])} +{format_bytes(one['saves_bytes'])} +{one['known']}"
        assert re.search(rf"{name} +{cells} +{one['verdict'] or ''}", said)
    assert f"The gentlest way that makes it fit: {' + '.join(found['cheapest']['changes'])} (" in said


def test_an_update_of_less_than_a_512th_is_lost_in_bfloat16() -> None:
    weight = torch.arange(1, 2, 2**-7, dtype=torch.bfloat16)
    assert torch.equal(weight + (weight.double() / 513).bfloat16(), weight)
    assert not torch.equal(weight + (weight.double() / 500).bfloat16(), weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eight_bit_state_is_a_byte_a_value_and_a_scale_a_block_whatever_the_weights(dtype: torch.dtype) -> None:
    """By hand: two moments of 500,000 values and 1,954 blocks; the bias of 500 values keeps both in 32 bits."""
    step = training_step(nn.Linear(1000, 500).to(dtype), (1000,), 500, optimizer=eight_bit, input_dtype=dtype)
    assert step.at(8).by_role()["optimizer state"] == 2 * (500_000 + 4 * 1954) + 2 * 4 * 500


def test_eight_bit_adam_of_half_precision_weights(own: Path) -> None:
    """The review's two layers of 4096²: 2 × 2 moments × 4096² values × (1 + 4 / 256) bytes."""
    line = ["own_nets:halves", "--input", "4096", "--batch", "2"]
    bench = bench_of(*line, "--optimizer", "adamw-8bit")
    assert bench.ledger.by_role()["optimizer state"] == 68_157_440
    names = {one.name for one in bench_of(*line).changes()}
    assert names.isdisjoint({"bfloat16 autocast", "bfloat16 weights"})
    assert "halves, batch 2, adamw, bfloat16 weights: " in command.make_report(options(*line)).lines()[0]


def test_a_language_model_of_ones_own(own: Path) -> None:
    """Of logits, of the model's own loss and of a loss written by hand; labels of tokens or of samples."""
    told = {loss: bench_of(*LANGUAGE, "--loss", loss).ledger for loss in ("tokens", "returned")}
    assert told["tokens"].peak_bytes == told["returned"].peak_bytes == bench_of(*LANGUAGE).ledger.peak_bytes
    labels = told["tokens"].by_role()["input"]
    assert labels == 2 * 8 * 16 * 8  # ids and labels of 8 bytes
    pooled = bench_of("own_nets:pooled", "--input", "int64:16", "--classes", "10", "--batch", "8").ledger
    assert pooled.by_role()["input"] == 8 * 17 * 8
    rebuilt = bench_of("own_nets:square", "--input", "3", "--loss", "own_nets:rebuilt", "--batch", "8").ledger
    function = __import__("own_nets").rebuilt
    step = training_step(nn.Linear(3, 3), inputs=Spec((3,)), loss=function, optimizer="adamw")
    assert rebuilt.peak_bytes == step.at(8).peak_bytes


def test_state_of_every_optimizer(own: Path) -> None:
    """By hand, in float32 values of the weights: N in all, of them H in the matrices of the blocks."""
    model = build("own_nets:language")
    n = sum(p.numel() for p in model.parameters())
    h = sum(p.numel() for p in model.layers.parameters() if p.dim() == 2)

    def state(name: str) -> int:
        return int(bench_of(*LANGUAGE, "--optimizer", name).ledger.matrix[-1][ROLE["optimizer state"]])

    steps = len(list(model.parameters()))  # which a fused update counts on the card
    values = {"sgd": 0, "momentum": n, "adam": 2 * n, "adamw-fused": 2 * n + steps, "adamw-cpu": 0, "lion": n}
    values |= {"muon": h + 2 * (n - h), "own_nets:adam_of": 2 * n}
    assert {name: state(name) // 4 for name in values} == values


def test_a_fused_update_of_a_network_with_buffers_on_meta(own: Path) -> None:
    line = ["own_nets:norms", "--input", "3", "--batch", "8", "--optimizer", "adamw-fused"]
    ledger = bench_of(*line).ledger
    assert ledger.by_role()["optimizer state"] == 4 * (2 * (6 + 40) + 4)  # moments, and a count for each parameter


def test_where_gradients_are_cleared(own: Path) -> None:
    """In Lightning's order the last step's live through the forward pass."""
    ledger = bench_of(*LANGUAGE, "--zero-grad", "before-backward").ledger
    n = sum(p.numel() for p in build("own_nets:language").parameters())
    assert ledger.matrix[0][ROLE["weight gradients"]] == 4 * n
    assert bench_of(*LANGUAGE).ledger.matrix[0][ROLE["weight gradients"]] == 0
    with pytest.raises(CourseError, match="leave out --zero-grad"):
        bench_of(*LANGUAGE, "--zero-grad", "never", "--in-backward")


def test_trained_parameters_are_those_of_the_adapters(own: Path) -> None:
    given = options(*LANGUAGE, "--qlora", "4")
    network, settings = command.network_of(given), command.settings_of(given)
    every, trained = command.counted(network.changed(settings), settings)
    n = sum(p.numel() for p in network.model.parameters())
    assert trained == 3 * 2 * 4 * (64 + 256)
    assert every == n + trained
    with pytest.raises(CourseError, match="there are none"):
        adapt(nn.Linear(3, 3))


def test_a_builder_that_looks_at_numbers_is_built_for_real(own: Path) -> None:
    model = build("own_nets:looks_at_numbers")
    assert next(model.parameters()).device.type == "cpu"
    assert next(build("own_nets:net").parameters()).device.type == "meta"


def test_batch_norms_and_what_is_left_out_are_said(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", "own_nets:norms", "--input", "3", "--batch", "8", "--card", "RTX 4090"]) == 0
    said = capsys.readouterr().out
    assert "The network has batch norms: a smaller or an accumulated batch is another update." in said
    assert "accumulation, 2 × 4 " in said
    assert "Left out, offload: it depends on the link to the host" in said
    report = command.make_report(options(*NET, "--card", "T4"))
    assert [one.name for one in report.helps if one.known == COMPUTED] == ["offload of all maps"]


def test_what_the_trace_assumes_and_why_is_printed(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assumed = training_step(build("own_nets:attends"), (3, 8), optimizer="adamw").assumptions
    assert assumed
    assert cli.main(["trace", "own_nets:attends", "--input", "3,8", "--batch", "8"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for what in assumed:
        assert f"Assumed: {what}." in said
    report = replace(command.make_report(options("own_nets:square", "--input", "3")), why="it says so")
    assert "This batch was traced by itself: it says so." in report.lines()
    assert report.as_json()["why"] == "it says so"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["own_nets"], "names no builder: write PACKAGE.MODULE:NAME"),
        (["no_such_file:net"], "cannot import no_such_file (ModuleNotFoundError: No module named 'no_such_file')"),
        (["falls_over:net"], "cannot import falls_over (SystemExit: enough)"),
        (["own_nets:nett"], "own_nets has no 'nett': did you mean net"),
        (["own_nets:number"], "own_nets:number is no function that builds a network, but of type int"),
        (["own_nets:nothing"], "own_nets:nothing must return an nn.Module, got NoneType"),
        (["own_nets:net"], "--input is missing"),
        (["own_nets:net", "--input", "3,x"], "--input must be whole numbers above 0 with commas, such as 3,224,224"),
        (["own_nets:net", "--input", "int7:3"], "--input has no dtype 'int7': choose one of float32"),
        (["own_nets:net", "--input", "5,32,32"], "stem (Conv2d) fails in the forward pass"),
        (["own_nets:language", "--input", "16"], "language reads token ids: write --input int64:16"),
        ([*NET, "--precision", "bf16"], "invalid choice: 'bf16'"),
        (["own_nets:square", "--input", "3,3"], "for another loss write --loss MODULE:FUNCTION of (model, x)"),
        (["own_nets:net", "--sequence", "16"], "--sequence is for --hf: leave it out, or, for a network that reads"),
        (["own_nets:net", "--input", "int64:0"], "--input must be whole numbers above 0 with commas"),
        (["own_nets:net", "--input", "9" * 5000], "--input must be whole numbers above 0 with commas"),
        (["own_nets:lazy", "--input", "3"], "lazy has layers that have no shape yet"),
        (["own_nets:unbuilt", "--input", "3"], "unbuilt has layers that have no shape yet"),
        (["own_nets:shapeless", "--input", "3"], "shapeless has layers that have no shape yet"),
        (["own_nets:leaves", "--input", "3"], "own_nets:leaves raised SystemExit: no such option"),
        ([*NET, "--optimizer", ""], "no optimizer is called ''"),
        (["own_nets:wants", "--input", "3"], "'size': it is called without arguments"),
        (["own_nets:two", "--input", "3"], "got tuple; for another loss write --loss MODULE:FUNCTION of (model, x)"),
        (
            ["own_nets:last", "--input", "3,7", "--classes", "7"],
            "cross entropy takes them second; for another loss write --loss MODULE:FUNCTION of (model, x)",
        ),
        ([*LANGUAGE, "--classes", "7", "--loss", "tokens"], "leave it out with --loss tokens"),
        ([*LANGUAGE, "--lora", "0"], "--lora must be a whole number of 1 or more, got 0"),
        ([*NET, "--inference", "--optimizer", "adam"], "--inference trains nothing: leave out --optimizer"),
        ([*NET, "--optimizer", "none", "--zero-grad", "never"], "--inference trains nothing: leave out --zero-grad"),
        (["own_nets:pooled", "--input", "int64:16"], "write --loss returned if model(x, y) returns the loss"),
        ([*LANGUAGE, "--loss", "mean"], "'mean' names no loss, which is one of classes, tokens, returned or your own"),
        ([*LANGUAGE, "--optimizer", "adamm"], "no optimizer is called 'adamm': choose one of sgd, momentum, adam"),
        ([*NET, "--optimizer", "own_nets:number"], "is no function of a list of parameters, but of type int"),
        ([*NET, "--optimizer", "muon"], "muon is for the matrices of repeated blocks, and there are none"),
        ([*NET, "--lora", "8"], "LoRA and 4-bit weights are for linear layers in repeated blocks, and there are none"),
        ([*LANGUAGE, "--lora", "8", "--qlora", "8"], "give either --lora or --qlora, not both"),
        ([*NET, "--in-backward", "--optimizer", "adam-fused"], "adam-fused cannot be traced within the backward pass"),
        ([*NET, "--accumulate", "3"], "--accumulate must divide the batch, and 3 does not divide 64"),
        ([*NET, "--inference", "--checkpoint"], "--inference trains nothing: leave out --checkpoint"),
        (["own_nets:square", "--input", "3", "--checkpoint"], "square has no list of blocks to checkpoint"),
        ([*NET, "--card", "rtx409"], "no device called 'rtx409': did you mean RTX 4090"),
        ([*NET, "--card", "4090"], "no card has 4,090 GiB: did you mean RTX 4090?"),
        ([*NET, "--card", "-3"], "--card must be a name or more than 0 GiB, got '-3'"),
        ([*NET, "--context", "-1"], "--context must be 0 GiB or more, got -1"),
        ([*NET[:-1], "1" + 20 * "0"], "--batch must be at most 10,000,000, got 100,000"),
        ([*NET[:-1], "0"], "--batch must be a whole number of 1 or more, got 0"),
        ([], "give either PACKAGE.MODULE:BUILDER or --hf CONFIG.json"),
        ([*NET, "--hf", "config.json"], "give either PACKAGE.MODULE:BUILDER or --hf CONFIG.json"),
        (["--hf", "none.json", "--sequence", "8"], "there is no file none.json"),
        (["--hf", "none.json", "--input", "8"], "--input is for a builder"),
        ([*NET, "--html", "own_nets.py/x.html"], "cannot write own_nets.py/x.html"),
    ],
)
def test_bad_input_is_one_line(
    own: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert cli.main(["trace", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("course: ")
    assert error.count("\n") == 1
    assert message in error


def test_a_card_is_a_name_or_so_many_gib() -> None:
    assert command.card_of(None) is None
    assert command.card_of("rtx 4090") == device("RTX 4090")
    assert command.card_of("24") == command.card_of("24 GiB") == 24 * GIB
    with pytest.raises(CourseError):
        command.card_of("nan")


def test_a_transformer_by_its_config(own: Path) -> None:
    pytest.importorskip("transformers")
    (own / "config.json").write_text(
        '{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 64, "n_head": 2}'
    )
    line = ["--hf", "config.json", "--sequence", "128", "--batch", "4"]
    report = command.make_report(options(*line, "--precision", "bfloat16", "--card", "16"))
    assert report.ledger.name == "GPT2LMHeadModel"
    assert {one.name for one in report.helps} == {
        "fused update", "update in backward", "accumulation, 2 × 2", "checkpointing of 2 blocks", "8-bit Adam",
        "LoRA 16", "QLoRA 16", "bfloat16 weights", "a batch of 2", "64 tokens",
    }  # fmt: skip
    served = command.make_report(options(*line, "--inference", "--weights", "bfloat16"))
    assert served.cache_bytes == 2 * 2 * 64 * 128 * 2  # keys and values, layers, width, tokens, bytes
    assert served.ledger.peak_bytes > 4 * served.cache_bytes + 2 * served.parameters[0]
    assert served.parameters[1] == 0
