"""The committed notebooks: what the source gives, and true today. nbval runs every lesson and solution, strictly."""

import re
from collections import defaultdict
from itertools import takewhile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from nbval_run import ROOT, in_one_notebook, nbval

from classroom.authoring import plan
from classroom.execution import execute
from classroom.new_lesson import new_lesson
from classroom.notebooks import outline, read_notebook, topics
from classroom.questions.core import Outcome
from course_utils.files import write_whole
from course_utils.machine.hardware import DEVICES_FILE, devices

PLANS = {topic: plan(topic, ROOT) for topic in topics(ROOT)}
NOTEBOOKS = [(folder, topic) for topic, made in PLANS.items() for folder in made]
EXECUTED = [(folder, topic) for folder, topic in NOTEBOOKS if folder != "exercises"]
EXERCISES = [topic for topic, made in PLANS.items() if "exercises" in made]


def committed(folder, topic):
    return read_notebook(ROOT / folder / f"{topic}.ipynb")


def planned(folder, topic):
    return PLANS[topic][folder].notebook


def place(folder, topic, cell):
    """Where the author wrote a cell, as an editor opens it."""
    file, line = PLANS[topic][folder].lines[cell.id]
    return f"{file}:{line}"


def question_cells(notebook, kind):
    return [cell for cell in notebook.cells if cell.metadata.get("course", {}).get("kind") == kind]


@pytest.mark.parametrize(("folder", "topic"), NOTEBOOKS)
def test_a_notebook_is_what_its_source_gives(folder, topic):
    same = outline(committed(folder, topic)) == outline(planned(folder, topic))
    assert same, f"{folder}/{topic}.ipynb differs from its source; run `course build {topic[:2]}`"


@pytest.mark.parametrize(("folder", "topic"), NOTEBOOKS)
def test_no_notebook_lies_around_without_a_source(folder, topic):
    there = {path.stem for path in (ROOT / folder).glob("*.ipynb")}
    given = {t for f, t in NOTEBOOKS if f == folder}
    assert not there - given, f"delete {folder}/{min(there - given)}.ipynb, or write its lessons/ folder"
    assert not given - there, f"{folder}/{min(given - there)}.ipynb is missing; run `course build`"


# Code that a reader types later: it stays open, however long.
TYPED_LATER = re.compile(
    "class (ViT|Mine|Remembering|InPlaceLoss)[(]|# Change |"
    "def (network|digits_net|saved_by_autograd|squeezed_vgg16|digit_net|vgg16_in_order|train|trained|share_read)[(]"
    "|torch.manual_seed|mine = nn.Sequential"
)


@pytest.mark.parametrize("topic", sorted({topic for folder, topic in NOTEBOOKS if folder == "notebooks"}))
def test_long_code_is_folded_and_no_answer_stands_open_below_its_guess(topic):
    for cell in planned("notebooks", topic).cells:
        if cell.cell_type == "code" and not cell.metadata.get("jupyter", {}).get("source_hidden"):
            where = place("notebooks", topic, cell)
            lines = [line for line in cell.source.splitlines() if line.strip()]
            assert len(lines) <= 12 or TYPED_LATER.match(lines[0]), (
                f"{where}: {len(lines)} lines of code stay open, at most 12 may; write `# %% folded=true`, or if "
                f"readers type this code later, add its first words to TYPED_LATER in {Path(__file__).name}"
            )
            opened = re.search(r"^reveal\(", cell.source, re.MULTILINE)
            assert not opened, f"{where}: this reveal shows its answer below the guess; write `# %% folded=true`"


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
    build = f"run `course build {topic.split('_')[0]}`"
    assert all(cell.execution_count is not None for cell in codes), f"{folder}/{topic}.ipynb was not run; {build}"
    failed = [cell.id for cell in codes for output in cell.outputs if output.output_type == "error"]
    assert not failed, f"{folder}/{topic}.ipynb, cell {failed[0]}: its error was saved; mend it, then {build}"
    found = compared[f"{folder}.{topic}.ipynb"]
    again = (
        f"{folder}/{topic}.ipynb: outputs are not what they were. If the new ones are right, {build}; if they vary "
        'from run to run or by processor, give the cell tags=["nbval-ignore-output"], or print what does not vary.\n'
    )
    assert not any(found), again + "\n".join(found)[:6000]
    assert len(found) == len(codes), f"{folder}/{topic}.ipynb: nbval ran {len(found)} of {len(codes)} cells; {build}"


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
        asked = len(question_cells(planned("exercises", topic), "question"))
        assert len(checks) == asked, f"{topic}: {asked} questions, {len(checks)} checks ran: give each one `check=`"
        for cell in checks:
            said = cell.outputs[0].get("data", {}).get("text/plain", "") if len(cell.outputs) == 1 else ""
            assert said.startswith(f"{Outcome.NOT_ATTEMPTED.value.capitalize()}: "), (
                f"exercise {topic}, {cell.id}: with the dots still in, the check must say *not attempted* and nothing "
                f"else; it says {said[:200]!r} in {len(cell.outputs)} outputs. Does code outside of the answer use it?"
            )

    def test_solved_every_check_is_content_and_every_question_is_graded(self, topic):
        solution = committed("solutions", topic)
        for cell in question_cells(solution, "check"):
            said = cell.outputs[0].data["text/plain"]
            assert said.startswith("Correct: "), f"{topic}, {cell.id}: the check refuses your own solution: {said}"
        for cell in question_cells(solution, "graded"):
            said = "".join(output.get("text", "") for output in cell.outputs)
            assert said.strip(), f"{topic}, {cell.id}: this graded cell prints nothing, so it cannot be marked"
            wrong = re.search("not attempted|crashed|changed", said)
            assert not wrong, f"{topic}, {cell.id}: your own solution is {wrong[0] if wrong else ''}: {said[:300]}"

    def test_it_asks_what_a_lesson_s_exercise_may_ask(self, topic):
        questions = question_cells(planned("exercises", topic), "question")
        text = "\n".join(cell.source for cell in questions)
        points = sum(cell.metadata.course.points for cell in questions)
        minutes = sum(map(int, re.findall(r"about (\d+) minutes?\*", text)))
        for count, least, most, what in (
            (len(questions), 3, 6, "questions"), (points, 10, 20, "points"), (minutes, 30, 60, "minutes")
        ):  # fmt: skip
            asked = f"exercise {topic} has {count} {what}: write questions for {least} to {most} {what} in all"
            assert least <= count <= most, asked

    def test_the_lesson_says_how_long_it_takes(self, topic):
        questions = question_cells(planned("exercises", topic), "question")
        minutes = sum(int(re.search(r"about (\d+) minutes?\*", cell.source)[1]) for cell in questions)
        cells = planned("notebooks", topic).cells
        opening = "\n".join(cell.source for cell in takewhile(lambda cell: cell.cell_type == "markdown", cells))
        last = [cell.source for cell in cells if cell.cell_type == "markdown"][-1]
        lesson = f"lessons/{topic.split('_', 1)[1]}/lesson.py"
        asked = f"{lesson}: write `About 20 minutes, and {{minutes}} for the exercise.` before the first code"
        assert re.search(rf"\b{minutes}\s+for\s+the\s+exercise", opening), asked
        assert re.search(rf"\b{minutes}\s+minutes", last), f"{lesson}: write `{{questions}}` into the last text"

    def test_no_answer_is_given_away(self, topic):
        exercise, solution = planned("exercises", topic), planned("solutions", topic)
        handed_out = "\n".join(cell.source for cell in exercise.cells)
        for cell in question_cells(solution, "answer"):
            stub = set(cell.metadata.course.stub.splitlines())
            solving = [line.strip() for line in cell.source.splitlines() if line not in stub]
            question = cell.metadata.course.question
            assert solving, f"{topic}, {question}: nothing is between `# BEGIN SOLUTION` and `# END SOLUTION`"
            told = [line for line in solving if re.search(r"\w", line) and line not in ("x = images", "return x")]
            given = [line for line in told if line in handed_out]
            assert not given, f"{topic}, {question}: the exercise as handed out holds the solution's line `{given[0]}`"


def test_the_folder_of_a_new_lesson_keeps_to_all_that(tmp_path, monkeypatch):
    write_whole(tmp_path / "lessons" / "contents.txt", "")
    new_lesson("15", "sparsity", tmp_path)
    monkeypatch.setitem(PLANS, "15_sparsity", plan("15_sparsity", tmp_path))
    rules = TestExercises()
    rules.test_it_asks_what_a_lesson_s_exercise_may_ask("15_sparsity")
    rules.test_the_lesson_says_how_long_it_takes("15_sparsity")
    rules.test_no_answer_is_given_away("15_sparsity")
    test_long_code_is_folded_and_no_answer_stands_open_below_its_guess("15_sparsity")
    for folder in ("notebooks", "solutions"):
        test_texts_keep_the_course_voice(folder, "15_sparsity")


def test_what_a_new_lesson_lacks_is_said_with_its_place(tmp_path, monkeypatch):
    write_whole(tmp_path / "lessons" / "contents.txt", "")
    lesson = new_lesson("15", "sparsity", tmp_path) / "lesson.py"
    whole = lesson.read_text()
    long = "# %%\n" + "".join(f"x{i} = {i}\n" for i in range(13)) + "\n# %% [markdown]\n# {questions}\n"
    folded = test_long_code_is_folded_and_no_answer_stands_open_below_its_guess
    told = TestExercises().test_the_lesson_says_how_long_it_takes
    for text, test, said in (
        (whole + long, folded, "lesson.py:.* 13 lines .*folded"),
        (whole.replace("# %% folded=true", "# %%", 1), folded, "lesson.py:.* reveal .*folded=true"),
        (whole.replace("{minutes} for", "30 for the lesson, for"), told, "About 20"),
        (whole.replace("{questions}", ""), told, "{questions}"),
    ):
        lesson.write_text(text)
        monkeypatch.setitem(PLANS, "15_sparsity", plan("15_sparsity", tmp_path))
        with pytest.raises(AssertionError, match=said):
            test("15_sparsity")


@pytest.mark.parametrize(("folder", "topic"), EXECUTED)
def test_texts_keep_the_course_voice(folder, topic):
    for cell in planned(folder, topic).cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"`[^`]*`|<!--|!\[", "", cell.source)
            found = re.search(r"\b(simply|just|obviously)\b|[a-z]!(\s|$)", prose, re.IGNORECASE)
            assert not found, f"{place(folder, topic, cell)}: write it without {found[0] if found else ''!r}"


@pytest.mark.parametrize(("folder", "topic"), EXECUTED)
def test_what_a_text_folds_it_closes(folder, topic):
    for cell in planned(folder, topic).cells:
        if cell.cell_type == "markdown":
            folds, closes = (len(re.findall(tag, cell.source)) for tag in ("<details", "</details>"))
            assert folds == closes, f"{place(folder, topic, cell)}: {folds} of <details>, {closes} of </details>"


WIDE = 98  # characters of a printed line that JupyterLab shows whole in a window of 1100 x 800


@pytest.mark.parametrize(("folder", "topic"), EXECUTED)
def test_a_printed_line_fits_a_narrow_window(folder, topic):
    """But for graded cells: what they print, `course check` and `course grade` compare, and no learner reads."""
    for cell in committed(folder, topic).cells:
        if cell.metadata.get("course", {}).get("kind") != "graded":
            for output in cell.get("outputs", []):
                shown = output.get("data", {})
                alone = shown["text/plain"] if [*shown] == ["text/plain"] else ""  # else a page or picture is shown
                longest = max((output.get("text", "") + alone).splitlines(), key=len, default="")
                said = f"{len(longest)} characters in a line, {WIDE} fit a narrow window: print {longest!r} in two"
                assert len(longest) <= WIDE, f"{place(folder, topic, cell)}: {said}"


def test_a_cell_that_lists_every_device_says_what_it_reads():
    catalogue = DEVICES_FILE.relative_to(ROOT).as_posix()
    for folder, topic in EXECUTED:
        for cell in committed(folder, topic).cells:
            lists = all(device.name in str(cell.get("outputs")) for device in devices())
            said = f'{place(folder, topic, cell)}: add reads="{catalogue}" to its first line'
            assert not lists or catalogue in cell.metadata.get("reads", {}), said


UNREAD = re.compile(r"<style.*?</style>|<(?!/)[^>]*>", re.DOTALL)  # a tag and its style, which nobody reads


def test_per_cent_is_written_in_one_way_wherever_a_learner_reads_it():
    """As `units.as_written` and `format_share` do: with a space. Code may say `:.0%` where those follow."""
    found = []
    for folder, topic in NOTEBOOKS:
        for cell in committed(folder, topic).cells:
            texts = [cell.source] if cell.cell_type == "markdown" else []
            for output in cell.get("outputs", []):
                kinds = output.get("data", {})
                texts += [output.get("text", ""), *(kinds[kind] for kind in kinds if kind.startswith("text/"))]
            read = UNREAD.sub(" ", "\n".join(texts))
            near = [read[max(0, match.start() - 30) : match.end()] for match in re.finditer(r"\d%", read)]
            found += [f"{place(folder, topic, cell)}: {words!r}, and {len(near) - 1} more" for words in near[:1]]
    assert not found, "\n".join(["write `{100 * share:.0f} %`, or `format_share`:", *found])
