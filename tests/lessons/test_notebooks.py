"""The committed notebooks: what the source gives, and true today. nbval runs every lesson and solution, strictly."""

import re
from collections import defaultdict
from xml.etree import ElementTree

import pytest
from nbval_run import ROOT, in_one_notebook, nbval

from classroom.authoring import plan
from classroom.execution import execute
from classroom.new_lesson import new_lesson
from classroom.notebooks import outline, read_notebook, topics
from classroom.questions.core import Outcome
from course_utils.files import write_whole

PLANS = {topic: plan(topic, ROOT) for topic in topics(ROOT)}
NOTEBOOKS = [(folder, topic) for topic, made in PLANS.items() for folder in made]
EXECUTED = [(folder, topic) for folder, topic in NOTEBOOKS if folder != "exercises"]
EXERCISES = [topic for topic, made in PLANS.items() if "exercises" in made]


def committed(folder, topic):
    return read_notebook(ROOT / folder / f"{topic}.ipynb")


def planned(folder, topic):
    return PLANS[topic][folder].notebook


def question_cells(notebook, kind):
    return [cell for cell in notebook.cells if cell.metadata.get("course", {}).get("kind") == kind]


@pytest.mark.parametrize(("folder", "topic"), NOTEBOOKS)
def test_a_notebook_is_what_its_source_gives(folder, topic):
    same = outline(committed(folder, topic)) == outline(planned(folder, topic))
    assert same, f"{folder}/{topic}.ipynb differs from its source; run `course build {topic[:2]}`"


@pytest.mark.parametrize(("folder", "topic"), NOTEBOOKS)
def test_no_notebook_lies_around_without_a_source(folder, topic):
    assert {path.stem for path in (ROOT / folder).glob("*.ipynb")} == {t for f, t in NOTEBOOKS if f == folder}


# Code that a reader types later: it stays open, however long.
TYPED_LATER = re.compile(
    "def (network|digits_net|saved_by_autograd|squeezed_vgg16|digit_net|vgg16_in_order|trained|share_read)[(]"
    "|torch.manual_seed|mine = nn.Sequential|P, batch ="
)


@pytest.mark.parametrize("topic", sorted({topic for folder, topic in NOTEBOOKS if folder == "notebooks"}))
def test_long_code_is_folded_and_no_answer_stands_open_below_its_guess(topic):
    for cell in planned("notebooks", topic).cells:
        if cell.cell_type == "code" and not cell.metadata.get("jupyter", {}).get("source_hidden"):
            lines = [line for line in cell.source.splitlines() if line.strip()]
            assert len(lines) <= 12 or TYPED_LATER.match(lines[0]), cell.source
            assert not re.search(r"^reveal\(", cell.source, re.MULTILINE)


def topics_of_tests_with(fixture, request):
    """Those that this run asks about: all, or one with `make test TOPIC=04`."""
    return {item.callspec.params["topic"] for item in request.session.items if fixture in item.fixturenames}


@pytest.fixture(scope="module")
def compared(tmp_path_factory, request):
    """What nbval finds of each cell of each executed notebook, "" where nothing differs; each has its own kernel."""
    report = tmp_path_factory.mktemp("nbval") / "cells.xml"
    asked = topics_of_tests_with("compared", request)
    paths = [f"{folder}/{topic}.ipynb" for folder, topic in EXECUTED if topic in asked]
    ran = nbval(*paths, "-p", "warm_kernels", f"--junitxml={report}")
    assert report.exists(), ran.stdout[-6000:] + ran.stderr[-2000:]
    found = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        found[case.get("classname")].append("\n".join(f"{part.tag}: {part.text}" for part in case))
    return found


@pytest.mark.parametrize(("folder", "topic"), EXECUTED)
def test_nbval_finds_every_output_unchanged(folder, topic, compared):
    # nbval passes a notebook without outputs in silence, so the notebook has to be an executed one.
    codes = [cell for cell in committed(folder, topic).cells if cell.cell_type == "code"]
    assert all(cell.execution_count is not None for cell in codes)
    assert not [cell.id for cell in codes for output in cell.outputs if output.output_type == "error"]
    found = compared[f"{folder}.{topic}.ipynb"]
    assert not any(found), "\n".join(found)[:6000]
    assert len(found) == len(codes)


@pytest.fixture(scope="module")
def unsolved(request):
    """All exercises executed as they are handed out, one after the other in one kernel.

    Their set-up cells run in a kernel of their own in the solutions.
    """
    asked = topics_of_tests_with("unsolved", request)
    cells = {topic: planned("exercises", topic).cells for topic in EXERCISES if topic in asked}
    return execute(in_one_notebook(cells), ROOT / "exercises", "all")


@pytest.mark.parametrize("topic", EXERCISES)
class TestExercises:
    def test_unsolved_it_runs_through_and_nothing_is_attempted(self, topic, unsolved):
        own = [cell for cell in unsolved.cells if cell.id.startswith(f"{topic}-")]
        checks = [cell for cell in own if cell.metadata.get("course", {}).get("kind") == "check"]
        assert len(checks) == len(question_cells(planned("exercises", topic), "question"))
        for cell in checks:
            (output,) = cell.outputs
            assert output.data["text/plain"].startswith(f"{Outcome.NOT_ATTEMPTED.value.capitalize()}: ")

    def test_solved_every_check_is_content_and_every_question_is_graded(self, topic):
        solution = committed("solutions", topic)
        for cell in question_cells(solution, "check"):
            assert cell.outputs[0].data["text/plain"].startswith("Correct: ")
        for cell in question_cells(solution, "graded"):
            (output,) = cell.outputs
            assert output.text.strip()
            assert not re.search("not attempted|crashed|changed", output.text)

    def test_it_asks_what_a_lesson_s_exercise_may_ask(self, topic):
        questions = question_cells(planned("exercises", topic), "question")
        text = "\n".join(cell.source for cell in questions)
        points = sum(cell.metadata.course.points for cell in questions)
        minutes = sum(map(int, re.findall(r"about (\d+) minutes?\*", text)))
        assert 3 <= len(questions) <= 6, "an exercise has 3 to 6 questions"
        assert 10 <= points <= 20, "an exercise has 10 to 20 points in all"
        assert 30 <= minutes <= 60, "an exercise takes 30 to 60 minutes in all"

    def test_the_lesson_says_how_long_it_takes(self, topic):
        questions = question_cells(planned("exercises", topic), "question")
        minutes = sum(int(re.search(r"about (\d+) minutes?\*", cell.source)[1]) for cell in questions)
        first, *_, last = [cell.source for cell in planned("notebooks", topic).cells if cell.cell_type == "markdown"]
        assert re.search(rf"\b{minutes}\s+for\s+the\s+exercise", first), "write `{minutes} for the exercise` first"
        assert re.search(rf"\b{minutes}\s+minutes", last), "write `{questions}` into the last text"

    def test_no_answer_is_given_away(self, topic):
        exercise, solution = planned("exercises", topic), planned("solutions", topic)
        handed_out = "\n".join(cell.source for cell in exercise.cells)
        for cell in question_cells(solution, "answer"):
            stub = set(cell.metadata.course.stub.splitlines())
            solving = [line.strip() for line in cell.source.splitlines() if line not in stub]
            assert solving
            told = [line for line in solving if re.search(r"\w", line) and line not in ("x = images", "return x")]
            assert not [line for line in told if line in handed_out]


def test_the_folder_of_a_new_lesson_keeps_to_all_that(tmp_path, monkeypatch):
    write_whole(tmp_path / "lessons" / "contents.txt", "")
    new_lesson("15", "sparsity", tmp_path)
    monkeypatch.setitem(PLANS, "15_sparsity", plan("15_sparsity", tmp_path))
    rules = TestExercises()
    rules.test_it_asks_what_a_lesson_s_exercise_may_ask("15_sparsity")
    rules.test_the_lesson_says_how_long_it_takes("15_sparsity")
    rules.test_no_answer_is_given_away("15_sparsity")


@pytest.mark.parametrize(("folder", "topic"), EXECUTED)
def test_texts_keep_the_course_voice(folder, topic):
    for cell in planned(folder, topic).cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"`[^`]*`|<!--|!\[", "", cell.source)
            found = re.search(r"\b(simply|just|obviously)\b|[a-z]!(\s|$)", prose, re.IGNORECASE)
            assert not found, f"{cell.id}: {found[0] if found else ''}"
