"""`course trace`: what it says is what the library says, bad input is one line, and the page needs nothing else."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from classroom import cli
from course_utils import trace_command as command
from course_utils.machine.hardware import device
from course_utils.memory import ROLE
from course_utils.techniques.capacity import fit, largest_batch
from course_utils.trace import training_step
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

def norms():
    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 10))

number = 3
"""
NET = ["own_nets:net", "--input", "3,32,32", "--classes", "10", "--batch", "64"]


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


def test_in_a_process_of_its_own_it_prints_roles_layers_verdict_and_what_would_help(own: Path) -> None:
    page = own / "page.html"
    done = run(own, *NET, "--card", "RTX 4090", "--html", str(page))
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout
    helps = ("checkpointing of 4 blocks", "8-bit Adam", "accumulation, 2 × 32", "a batch of 32", "bfloat16")
    for words in ("feature maps", "blocks.0.conv", "RTX 4090: It fits", "Batches up to about", *helps):
        assert words in said
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 1
    assert not re.search(r"(src|href)=\"?https?:|<script|@import", text)
    assert "RTX 4090: It fits" in text


def test_in_a_process_of_its_own_bad_input_is_one_line_and_no_traceback(own: Path) -> None:
    done = run(own, "own_nets:broken", "--input", "3,32,32")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "course: own_nets:broken raised RuntimeError: no weights here: it is called without arguments\n"
    )


def test_what_is_said_is_what_the_library_says(own: Path) -> None:
    report = command.make_report(options(*NET, "--optimizer", "adam", "--card", "T4"))
    module = __import__("own_nets").net()
    step = training_step(module, (3, 32, 32), 10, optimizer="adam")
    ledger = step.at(64)
    assert report.verdict == fit(ledger, device("T4"))
    assert report.batches == largest_batch(step, device("T4"))
    peaks = {one.name: one.peak_bytes for one in report.helps}
    assert peaks["a batch of 32"] == step.at(32).peak_bytes
    assert peaks["bfloat16"] == training_step(module, (3, 32, 32), 10, "adam", "bfloat16").at(64).peak_bytes
    assert (
        peaks["accumulation, 2 × 32"] == training_step(module, (3, 32, 32), 10, "adam", accumulate=2).at(32).peak_bytes
    )
    assert {one.name for one in report.helps if one.known == command.COMPUTED} == {"8-bit Adam", "offload of all maps"}
    assert [one.peak_bytes for one in report.helps] == sorted(peaks.values())
    said = "\n".join(command.lines(report))
    assert f"Net, batch 64, adam, float32: {format_bytes(ledger.peak_bytes)} at the peak" in said
    for one in report.helps:
        assert re.search(rf"{one.name} .*{format_bytes(one.peak_bytes)} .*{one.known}", said)


def test_checkpointed_blocks_are_those_that_a_reader_would_write(own: Path) -> None:
    """Traced through torch's own checkpoint, and the model forgets it afterwards."""
    model = __import__("own_nets").net()
    blocks = command.blocks_of(model)
    assert blocks == list(model.blocks)

    class ByHand(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, x: torch.Tensor) -> Any:
            x = self.net.stem(x)
            for block in self.net.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return self.net.head(x.mean((2, 3)))

    def trace(model: nn.Module, **settings: Any) -> Any:
        return training_step(model, (3, 32, 32), 10, **settings)

    settings = {"optimizer": "sgd", "precision": "float32"}
    plain = trace(model, **settings).at(64).peak_bytes
    changed = command._checkpointed(model, blocks, trace, settings).at(64).peak_bytes
    assert changed == trace(ByHand(), **settings).at(64).peak_bytes < plain
    assert all("forward" not in vars(block) for block in blocks)
    assert trace(model, **settings).at(64).peak_bytes == plain


def test_eight_bit_state_is_a_byte_a_value_and_a_scale_a_block() -> None:
    step = training_step(nn.Linear(1000, 500, bias=True), (1000,), 500, optimizer="adam")
    ledger = step.at(8)
    found = command.eight_bit_state(ledger)
    state = ledger.tape.role == ROLE["optimizer state"]
    weight, values = 2, 1000 * 500  # moments; the bias of 500 values stays in 32 bits
    assert ledger.size[state].sum() - found.size[state].sum() == weight * (3 * values - 4 * -(-values // 256))
    assert (found.size[~state] == ledger.size[~state]).all()


def test_a_builder_that_looks_at_numbers_is_built_for_real(own: Path) -> None:
    model = command.build("own_nets:looks_at_numbers")
    assert next(model.parameters()).device.type == "cpu"
    assert next(command.build("own_nets:net").parameters()).device.type == "meta"


def test_batch_norms_and_what_is_not_known_are_said(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", "own_nets:norms", "--input", "3", "--batch", "8", "--card", "RTX 4090"]) == 0
    said = capsys.readouterr().out
    assert "The network has batch norms: a smaller or an accumulated batch is another update." in said
    assert "Not known, offload of all maps: nobody confirmed the link of RTX 4090" in said


def test_what_the_trace_assumes_is_printed(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assumed = training_step(command.build("own_nets:attends"), (3, 8), optimizer="adamw").assumptions
    assert assumed
    assert cli.main(["trace", "own_nets:attends", "--input", "3,8", "--batch", "8"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for what in assumed:
        assert f"Assumed: {what}." in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["own_nets"], "names no builder: write PACKAGE.MODULE:BUILDER"),
        (["no_such_file:net"], "cannot import no_such_file (ModuleNotFoundError: No module named 'no_such_file')"),
        (["falls_over:net"], "cannot import falls_over (SystemExit: enough)"),
        (["own_nets:nett"], "own_nets has no 'nett': did you mean net"),
        (["own_nets:number"], "own_nets:number is no function that builds a network, but of type int"),
        (["own_nets:nothing"], "own_nets:nothing returned no nn.Module, but a NoneType"),
        (["own_nets:net"], "--input is missing"),
        (["own_nets:net", "--input", "3,x"], "--input must be whole numbers with commas, such as 3,224,224; got '3,x'"),
        (["own_nets:net", "--input", "5,32,32"], "stem (Conv2d) fails in the forward pass"),
        ([*NET, "--card", "rtx409"], "no device called 'rtx409': did you mean RTX 4090"),
        ([*NET, "--card", "-3"], "--card must be a name or more than 0 GiB, got '-3'"),
        ([*NET[:-1], "0"], "batch must be a whole number of 1 or more, got 0"),
        ([], "give either PACKAGE.MODULE:BUILDER or --hf CONFIG.json"),
        ([*NET, "--hf", "config.json"], "give either PACKAGE.MODULE:BUILDER or --hf CONFIG.json"),
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
    report = command.make_report(
        options("--hf", "config.json", "--sequence", "128", "--batch", "4", "--precision", "bfloat16", "--card", "16")
    )
    assert report.ledger.name == "GPT2LMHeadModel"
    assert {"a batch of 2", "accumulation, 2 × 2", "checkpointing of 2 blocks", "8-bit Adam"} == {
        one.name for one in report.helps
    }
