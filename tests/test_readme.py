"""The README: short, its pictures and numbers those of today, its links and commands right; other documents' links."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from torch import Tensor, nn

from classroom.hours import stated, total
from course_utils.networks import vgg16
from course_utils.trace_command import trace_command
from docs import picture
from lessons.memory.ladder import ladder
from website.links import filled as with_links
from website.links import read_address

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MEASURED = (ROOT / "docs/measured.md").read_text(encoding="utf-8")
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
STATED = stated(ROOT)
MOST_WORDS, MOST_BYTES = 700, 2_000_000


def read_words(text: str) -> list[str]:
    """The words before the licence that a reader sees: no tags, no targets of links, no rules of tables."""
    text = text.split("\n## Licences")[0]
    text = re.sub(r"<!--.*?-->|<[^>]+>", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return [word for word in text.replace("|", " ").split() if re.search(r"\w", word)]


def section(title: str) -> str:
    """A section of the README by its heading."""
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_it_is_short_with_an_adopters_links_too() -> None:
    assert len(read_words(README)) <= MOST_WORDS
    adopted = with_links(README, read_address("https://github.com/owner/name"), "main", "https://hub.example.edu")
    assert len(read_words(adopted)) <= MOST_WORDS
    assert len(read_words("# One two\n<!-- a b -->\n[three four](five)\n|six|\n|---|\n## Licences\nno")) == 5


def test_the_first_screen_says_what_for_whom_and_at_what_price() -> None:
    first = README.split("\n## Lessons")[0]
    for word in (
        "After this course you can",
        picture.MOVIES[False],
        "git clone ",
        "make lab",
        "2 GB",
        "minutes",
        "CPU build",
    ):
        assert word in first
    assert f" <!-- hours -->{total(ROOT)}<!-- /hours -->" in first  # at a line's start it would end the paragraph


def test_the_table_has_every_lesson_with_the_minutes_it_states() -> None:
    rows = re.findall(
        r"^\|(\w+)\|\[(.+?)\]\(notebooks/(\w+)\.ipynb\)\|(\d+)(?:\+\[(\d+)\]\(exercises/(\w+)\.ipynb\))?\|",
        README,
        re.M,
    )
    said = {
        topic: (number, title, int(lesson), int(exercise or 0)) for number, title, topic, lesson, exercise, _ in rows
    }
    assert said == {topic: (topic.split("_")[0], one.title, one.lesson, one.exercise) for topic, one in STATED.items()}
    assert list(said) == list(STATED)
    assert all(exercise in ("", topic) for _, _, topic, _, _, exercise in rows)


def test_signposts_lead_to_lessons_on_their_subject() -> None:
    titles = {topic.split("_")[0]: one.title for topic, one in STATED.items()}
    for asked, number, subject in (
        ("Out of memory today?", "03", "memory"),
        ("A language model?", "13", "Transformers"),
        ("Buying hardware?", "02", "hardware"),
    ):
        answer = section("Lessons").split(asked)[1].split("?")[0]
        assert number in answer
        assert subject in titles[number]


def test_the_numbers_that_stay_are_those_of_the_tables() -> None:
    lines = [line for line in section("What was measured").splitlines() if line.startswith("- ")]
    assert len(lines) == 5
    numbers = [number for line in lines for number in re.findall(r"(?<![\w-])\d[\d,.]*\b", line)]
    assert len(numbers) >= 7
    assert not [
        number for number in numbers if not re.search(rf"(?<![\d,.]){re.escape(number)}(?![\d,]|\.\d)", MEASURED)
    ]
    in_lab, on_site = MEASURED.split("## From key press to picture")[1].split("\nOn the site")
    for where, table in (("on the site", on_site), ("in JupyterLab", in_lab)):
        medians = [int(row) for row in re.findall(r"^\| .+? \| (\d+) ms \|", table, re.M)]
        assert len(medians) == 15
        assert f"at most {max(medians)} ms {where}" in "\n".join(lines)


def test_the_verdicts_beside_a_card_are_those_that_the_benchmark_wrote_down() -> None:
    found = ladder()
    for kind in ("ran", "failed"):
        counts = [found[key] for key in (kind, f"{kind} fits", f"{kind} tight", f"{kind} no")]
        assert f"| {kind} | {' | '.join(map(str, counts))} |" in MEASURED
    assert f"{found['met']} of {found['networks']} networks" in MEASURED
    assert f"{100 * found['failed fits'] / found['failed']:.1f} %" in MEASURED


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


@pytest.fixture(scope="module")
def frames() -> list[picture.Frame]:
    return picture.story(picture.memory_explorer())


@pytest.fixture(scope="module")
def heard(frames: list[picture.Frame]) -> list[list[str]]:
    return picture.played(frames)


@pytest.mark.parametrize("dark", [False, True])
def test_the_film_says_what_the_explorer_says_today(dark: bool, heard: list[list[str]]) -> None:
    assert picture.kept(ROOT / picture.MOVIES[dark]) == heard, "the explorer changed: run `make picture`"


def test_the_film_shows_each_verdict(heard: list[list[str]]) -> None:
    titles = [said[0] for said in heard]
    for verdict in (" fits the ", " is tight on the ", " more than the "):
        assert any(verdict in title for title in titles), verdict


def test_the_scale_stays_while_the_picture_grows(heard: list[list[str]]) -> None:
    assert len({tuple(word for word in said if word.isdigit()) for said in heard}) == 1


@pytest.mark.parametrize("dark", [False, True])
def test_the_film_is_smooth_short_and_small(dark: bool, frames: list[picture.Frame]) -> None:
    file = ROOT / picture.MOVIES[dark]
    assert file.stat().st_size <= MOST_BYTES
    durations = []
    with Image.open(file) as image:
        corners = set()
        for i in range(image.n_frames):
            image.seek(i)
            image.load()
            durations.append(image.info["duration"])
            corners.add(image.convert("RGB").getpixel((2, 2)))
    assert durations == [frame.milliseconds for frame in frames]
    assert 5 <= sum(durations) / 1000 <= 8
    assert sorted(durations)[len(durations) // 2] <= 100, "ten pictures a second while it moves"
    [(red, green, blue)] = corners  # of the paper, in every frame
    assert max(red, green, blue) < 40 if dark else min(red, green, blue) > 215
    with Image.open(ROOT / picture.STILLS[dark]) as still:
        assert still.size == image.size
        assert still.convert("RGB").getpixel((2, 2)) == (red, green, blue)


def test_the_readme_shows_it_with_its_words_as_alternative_text(
    frames: list[picture.Frame], heard: list[list[str]]
) -> None:
    assert picture.filled(README, frames, heard) == README, "run `make picture`"
    alt = re.search(r'<img [^>]*alt="([^"]+)"', README)
    assert alt is not None
    assert any(said[0] in alt[1] for said in heard)
    with pytest.raises(picture.CourseError, match="has no lines"):
        picture.filled("# nothing", frames, heard)


# ---------------------------------------------------------------------------------------------------------------------
# Links, code, commands


def anchor(heading: str) -> str:
    """The name that forges give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + [
        source for pair in re.findall(r'srcset="([^"]+)"|src="([^"]+)"', text) for source in pair if source
    ]
    for target in targets:
        if "://" in target:
            continue
        path, _, name = target.partition("#")
        led = (document.parent / path).resolve() if path else document
        assert led.exists(), target
        if name:
            headings = re.findall(r"^#+ (.+)$", led.read_text(encoding="utf-8"), re.M)
            assert name in map(anchor, headings), target


def test_the_code_on_a_model_of_ones_own_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(code.strip().splitlines()) <= 10
    exec(compile(code, "README.md", "exec"), {"model": vgg16()})
    assert capsys.readouterr().out.startswith(("It fits", "It is tight", "It does not fit"))


class Tagger(nn.Module):
    """Takes tokens with their labels and returns an object with a loss, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 5)

    def forward(self, tokens: Tensor, labels: Tensor) -> SimpleNamespace:
        scores: Tensor = self.head(self.embed(tokens))
        return SimpleNamespace(loss=nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten()))


def test_the_code_of_the_page_on_tracing_runs() -> None:
    page = (ROOT / "docs/trace.md").read_text(encoding="utf-8")
    images, _transformers, anything = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(compile(images, "trace.md", "exec"), {"model": vgg16()})
    names: dict[str, Any] = {"model": Tagger()}
    exec(compile(anything, "trace.md", "exec"), names)
    assert names["step"].at(2).peak_bytes > 2 * 1024 * 8 * 4  # at least the embedded tokens


def test_the_command_on_a_model_of_ones_own_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_module.py").write_text(
        "from course_utils.networks import alexnet as build_model\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    own, _ = re.findall(r"^course trace (.+)$", section("Trace your own model"), re.M)
    assert trace_command(shlex.split(own)) == 0
    assert "RTX 4090" in capsys.readouterr().out


def test_code_of_ones_own_runs_with_permissions_not_rights() -> None:
    for document in DOCUMENTS:
        assert not re.search(r"\b(your|its|their) rights\b", document.read_text(encoding="utf-8")), document.name


def test_what_the_commands_name_is_there() -> None:
    first = README.split("\n## Lessons")[0]
    for file in ("environment.yml", "constraints.txt", ".devcontainer/install.sh"):
        assert file in first
        assert (ROOT / file).is_file()
    environment = (ROOT / "environment.yml").read_text(encoding="utf-8")
    [name] = re.findall(r"conda activate ([\w-]+)", first)
    assert f"\nname: {name}\n" in environment


def test_windows_has_every_step_that_others_have() -> None:
    first = README.split("\n## Lessons")[0]
    assert r".venv\Scripts\course lab" in first
    assert ".venv/bin/" not in README, "a form for some systems only; in JupyterLab's terminal `course` is found"
