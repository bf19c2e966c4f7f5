"""Each lesson asks for a GPU the same way, and reads well with a recording and without one."""

import ast
from pathlib import Path

import pytest
import torch
from made_recordings import made, timing

from classroom import ROOT
from classroom.authoring import read_cells
from classroom.notebooks import topics
from course_utils import recordings
from course_utils.machine.card import Contest, Context, RealStep
from course_utils.machine.measure import Measurement
from course_utils.recordings import Recording
from lessons.shared.beside import beside_trace

LESSONS = {topic: folder / "lesson.py" for topic, folder in topics(ROOT).items()}
ROWS = {"01": 1, "03": 2, "04": 3, "05": 3, "06": 3, "07": 2, "08": 4}  # of the table, by what `recording` holds
FIXED = ("ships no recording", "No GPU recording", "recording from a GPU is not part")


def codes(lesson):
    cells = read_cells(LESSONS[lesson].read_text(encoding="utf-8"), lesson)
    return [cell for cell in cells if cell.kind == "code"]


ASKING = [lesson for lesson in LESSONS if "01" <= lesson[:2] <= "08"]  # after their imports alone; later ones need more


@pytest.fixture
def recording():
    """What a GPU might have given: a step that fits, and one that ran out of memory."""
    whole = made()
    steps = [("VGG-16", 16, "float32"), ("VGG-16", 128, "float32"), ("VGG-16", 128, "float16"),
             ("ResNet-50", 64, "float32"), ("GoogLeNet", 16, "float32"), ("GoogLeNet", 128, "float32"),
             ("52 M dense net", 128, "float32"), ("52 M dense net", 128, "float16")]  # fmt: skip
    for network, batch, precision in steps:
        fits = (network, batch, precision) != ("VGG-16", 128, "float32")
        memory = Measurement("Card X", 2**30, 2**30, 0) if fits else None
        took = timing(0.016) if fits else None
        whole.add(RealStep(network, batch, precision, "momentum", "kept", memory, took, took))
    whole.add(Context(True, 1000 * 2**20, 0, 0))
    whole.add(Contest(4, 10, 1, timing(1e-3), timing(2e-3), timing(3e-3)))
    return Recording(Path("card.json"), whole)


def run(lesson, source, monkeypatch):
    """What the cell that asks for a GPU gives, run after the lesson's imports alone."""
    monkeypatch.setattr(recordings, "gpu", lambda: source)
    imports, *others = codes(lesson)
    (asking,) = [cell for cell in others if "gpu()" in cell.text]
    assert asking.options["tags"] == ["nbval-ignore-output"]
    namespace, threads = {}, torch.get_num_threads()
    try:
        exec(imports.text, namespace)
    finally:
        torch.set_num_threads(threads)
    *body, last = ast.parse(asking.text).body
    exec(compile(ast.Module(body, []), lesson, "exec"), namespace)
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([last], []), lesson, "exec"), namespace)
        return None
    return eval(compile(ast.Expression(last.value), lesson, "eval"), namespace)


@pytest.mark.parametrize("lesson", LESSONS)
def test_no_words_are_fixed_about_a_recording(lesson):
    text = " ".join(LESSONS[lesson].read_text(encoding="utf-8").replace("\n# ", " ").split())
    assert not [words for words in FIXED if words in text]


@pytest.mark.parametrize("lesson", ASKING)
def test_without_a_recording_the_cell_says_so(lesson, monkeypatch, capsys):
    assert run(lesson, None, monkeypatch) is None
    assert (
        recordings.NO_RECORDING in " ".join(capsys.readouterr().out.split()) or lesson[:2] == "03"
    )  # shown as Markdown


@pytest.mark.parametrize("lesson", ASKING)
def test_with_a_recording_the_cell_shows_what_it_holds(lesson, recording, monkeypatch, capsys):
    table = run(lesson, recording, monkeypatch)
    said = " ".join(capsys.readouterr().out.split())
    assert recording.sentence() in said or lesson[:2] == "03"
    if lesson[:2] in ROWS:
        assert len(table) == ROWS[lesson[:2]]
    else:
        assert "context, libraries loaded: 1,000.00 MiB" in said


def test_rows_beside_the_trace(recording):
    first, second = beside_trace(recording, "VGG-16")
    assert first["batch"] == 16
    assert (first["allocated"], first["time a sample"]) == ("1.00 GiB", "1 ms")
    assert first["difference"].startswith("-")  # 16 images take more than a GiB
    assert (second["batch"], second["allocated"], second["difference"]) == (128, "out of memory", "")
    assert beside_trace(None, "VGG-16") == []
    assert beside_trace(recording, "VGG-16", "bfloat16") == []
