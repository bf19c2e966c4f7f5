"""The site in a real browser: every page fits and can be read by everybody, every explorer says what the lab says.

`make test` builds one lesson's pages; `make site-test` the whole course, which takes some minutes.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import lab
import nbformat
import pytest
from amount import THOROUGH
from axe import barriers
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from classroom import ROOT
from classroom.explorer import Explorer
from classroom.notebooks import topics
from classroom.predict import predict, reveal
from website.build import build
from website.flipbook import choose, has_explorer, page_of
from website.pages import Site, lesson

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(lab.missing()), reason=f"browser tests: {lab.missing()}"),
]
SHOWN = [] if THOROUGH else ["00"]
WIDTHS, THEMES = (390, 800, 1100, 1440), ("light", "dark")
DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"  # scripts saw the size
FIRST_BYTES = 300_000  # of an explorer's views before its first move
CORNERS = 24  # settings of an explorer that are compared
TOPICS = [(name, folder.name) for name, folder in topics(ROOT).items() if has_explorer(folder.name)]
TOPICS = TOPICS if THOROUGH else TOPICS[:1]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site of SHOWN."""
    folder = tmp_path_factory.mktemp("site")
    build(ROOT, folder / "out", folder / "work", SHOWN)
    return folder / "out"


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """Its address on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def tab() -> Iterator[Any]:
    with lab.browser() as page:
        page.emulate_media(reduced_motion="reduce", color_scheme="light")
        yield page


def pages(site: Path) -> list[str]:
    """All pages; of a small site those of each kind."""
    found = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if "_static" not in path.parts)
    kinds = {"index.html", "docs/measured.html", "field-guide.html", "search.html"}
    return found if THOROUGH else [path for path in found if path in kinds or path.startswith("notebooks/")]


def test_every_link_leads_somewhere_within_the_site_or_says_where(site: Path) -> None:
    parsed = {path: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser") for path in site.rglob("*.html")}
    wrong, seen = [], 0
    for path, page in parsed.items():
        if "_static" in path.parts:
            continue
        for tag in page.select("[href], [src]"):
            target = tag.get("href") or tag.get("src")
            if re.match(r"(https?|mailto|data):", target):
                outside = tag.name != "a" and not target.startswith("data:")  # which is in the page itself
                wrong += [f"{path}: {target} is loaded from elsewhere"] if outside else []
                continue
            file, anchor = urldefrag(target.partition("?")[0] if "#" not in target else target)
            there = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            seen += 1
            if not there.exists():
                wrong.append(f"{path}: {target}")
            elif anchor and there in parsed and not parsed[there].find(id=unquote(anchor)):
                wrong.append(f"{path}: {target} has no such place")
    assert seen > 100
    assert wrong == []


def test_every_page_fits_each_width_in_both_themes_and_can_be_read_by_everybody(
    site: Path, served: str, tab: Any
) -> None:
    requests: list[str] = []
    faults: list[str] = []
    tab.on("request", lambda one: requests.append(one.url))
    tab.on("pageerror", lambda error: faults.append(str(error)))
    for path in pages(site):
        tab.goto(f"{served}/{path}")
        tab.wait_for_load_state("networkidle")
        loaded = "performance.getEntriesByType('resource').filter(one => one.responseStatus >= 400)"
        faults += [f"{path}: {url}" for url in tab.evaluate(f"{loaded}.map(one => one.name)")]
        for theme, width in product(THEMES, WIDTHS):
            tab.emulate_media(color_scheme=theme)
            tab.set_viewport_size({"width": width, "height": 900})
            tab.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)
            tab.evaluate(DRAWN)
            beyond = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            faults += [f"{path} at {width} is {beyond} pixels too wide"] if beyond > 0 else []
            if width in (390, 1440) if THOROUGH else (width, theme) in ((390, "dark"), (1440, "light")):
                faults += [f"{path}, {width}, {theme}: {line}" for line in barriers(tab)]
    assert faults == []
    assert [url for url in requests if not url.startswith((served, "data:", "blob:"))] == []


def test_the_browsers_test_sees_what_is_wrong(served: str, tab: Any) -> None:
    tab.emulate_media(color_scheme="light")
    tab.goto(f"{served}/index.html")
    tab.evaluate("document.querySelector('article h1').innerHTML += '<b style=\"color:#bbb\">pale</b><img src=x>'")
    assert {line.split(":")[0] for line in barriers(tab)} == {"color-contrast", "image-alt"}


def test_a_dark_page_is_printed_dark_on_white(served: str, tab: Any) -> None:
    tab.emulate_media(color_scheme="dark")
    tab.goto(f"{served}/index.html")
    seen = [tab.evaluate("document.documentElement.dataset.theme")]
    for event in ("beforeprint", "afterprint"):
        seen.append(
            tab.evaluate("name => (dispatchEvent(new Event(name)), document.documentElement.dataset.theme)", event)
        )
    tab.emulate_media(color_scheme="light")
    assert seen == ["dark", "light", "dark"]


def test_the_search_finds_the_guide_by_a_model_that_it_covers(served: str, tab: Any) -> None:
    tab.goto(f"{served}/search.html?q=Llama")
    tab.locator("#search-results a[href^='field-guide.html']").first.wait_for()


def test_the_guides_contents_list_every_table_of_it(served: str, tab: Any) -> None:
    tab.goto(f"{served}/field-guide.html")
    listed = [one.strip() for one in tab.locator(".page-toc a").all_text_contents()]
    assert listed == [one.strip("# \n") for one in tab.locator("article h2").all_text_contents()]
    assert len(listed) == 4


# -- explorers ---------------------------------------------------------------------------------------------------------


def move(tab: Any, name: str, label: str, labels: Sequence[str]) -> bool:
    """Set a control of the page's explorer to what it writes as `label`; whether in one move."""
    control = tab.locator(".course-controls label").filter(has=tab.get_by_text(name, exact=True))
    if control.locator("select").count():
        if control.locator("option:checked").text_content() != label:  # else no hand would move it
            control.locator("select").select_option(label=label)
        return True
    slider = control.locator("input")
    if int(slider.get_attribute("max")) == len(labels) - 1:
        slider.fill(str(labels.index(label)))
        return True
    slider.focus()
    while (now := slider.get_attribute("aria-valuetext")) != label:
        slider.press("ArrowRight" if _number(now) < _number(label) else "ArrowLeft")
    return False


def _number(label: str) -> float:
    return float(label.replace(",", ""))


# Whatever was painted before, element by element and in their order.
SAME_PICTURE = """html => {
  const lab = document.createElement('div');
  lab.innerHTML = html;
  return lab.querySelector('svg').isEqualNode(document.querySelector('.course-figure svg'));
}"""


def words(tab: Any) -> list[str]:
    """The lines under an explorer's controls, once they are those of its setting."""
    tab.wait_for_function("() => document.querySelector('.course-explorer').dataset.settled !== 'no'")
    return [line for line in tab.locator(".course-words").inner_text().split("\n") if line]


def in_the_lab(explorer: Explorer) -> list[str]:
    """The lines that the lab's explorer shows."""
    said = re.sub(r"</?p[^>]*>|</?b>", "", explorer.words.value)
    return [unescape(line) for line in said.split("<br>")]


def set_to(explorer: Explorer, wanted: Mapping[str, str]) -> None:
    """Move each control of the lab's explorer, one after the other."""
    for control, label in wanted.items():
        choose(explorer.controls[control], label)


def settings(labels: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """First and last of each control in all combinations, or so many evenly spaced; the last control always moves."""
    ends = [list(dict.fromkeys((one[0], one[-1]))) for one in labels]
    every = list(product(*ends))
    return every[:: max(1, math.ceil(len(every) / CORNERS) | 1)]


@pytest.mark.parametrize(("name", "topic"), TOPICS, ids=[name for name, _ in TOPICS])
def test_an_explorer_says_on_the_page_what_it_says_in_the_lab(
    name: str, topic: str, site: Path, served: str, tab: Any
) -> None:
    loaded: list[str] = []

    def note(response: Any) -> None:
        if "/explorers/" in response.url:
            loaded.append(response.url)

    tab.set_viewport_size({"width": 1200, "height": 900})
    tab.on("response", note)
    tab.goto(f"{served}/notebooks/{name}.html")
    tab.wait_for_selector("[data-ready]", state="attached")
    sizes = [(site / url.removeprefix(f"{served}/")).stat().st_size for url in loaded]
    assert 0 < sum(sizes) <= FIRST_BYTES
    tab.remove_listener("response", note)
    book = tab.evaluate("JSON.parse(document.querySelector('[data-book]').dataset.book)")
    explorer = page_of(topic).make()
    controls = {control: labels for control, labels, _ in book["controls"]}
    in_a_thread = ThreadPoolExecutor(1)  # where no loop runs, a picture that is completed later is whole at once
    compared = 0
    for wanted in settings(list(controls.values())):
        try:
            in_a_thread.submit(set_to, explorer, dict(zip(controls, wanted, strict=True))).result()
        except ValueError:  # a value that is not offered here
            continue
        moves = []
        for (control, labels), label in zip(controls.items(), wanted, strict=True):
            moves.append(move(tab, control, label, labels))
            words(tab)  # each move is shown
        said, lab_said = words(tab), in_the_lab(explorer)
        if not all(moves):  # then the last move is another than the lab's
            said, lab_said = ([line for line in one if not line.startswith("Last move")] for one in (said, lab_said))
        assert said == lab_said
        alt = tab.locator(".course-figure svg").get_attribute("aria-label")
        assert alt == BeautifulSoup(explorer.figure.value, "html.parser").svg["aria-label"]
        assert tab.evaluate(SAME_PICTURE, explorer.figure.value)
        compared += 1
    assert compared >= 4


def test_an_explorer_works_from_a_disk_too_by_keyboard_alone(site: Path, tab: Any) -> None:
    tab.goto((site / "notebooks" / "00_start_here.html").as_uri())
    tab.wait_for_selector("[data-ready]", state="attached")
    slider = tab.get_by_role("slider", name="batch")
    before = tab.locator(".course-words").inner_text()
    slider.focus()
    slider.press("ArrowLeft")
    tab.wait_for_function("was => document.querySelector('.course-words').innerText !== was", arg=before)
    words_now = tab.locator(".course-words").inner_text()
    assert "Last move, batch 128 to 112: the peak falls by " in words_now
    assert slider.get_attribute("aria-valuetext") == "112"
    assert tab.locator(".course-words").get_attribute("role") == "status"  # which is read out as it changes


# -- predictions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def guessed(tmp_path: Path) -> Path:
    """A page with a question, a cell between, and its answer."""
    guess = predict('How "much" is 2 < 3?', "MiB")
    answer = reveal(guess, {"by hand": 1568, "trace": 1600}, "trace", [(98, "Those are the parameters.")])
    bundles = [{kind: one._repr_mimebundle_()[kind] for kind in ("text/html", "text/plain")} for one in (guess, answer)]
    cells = [new_markdown_cell("# Small")]
    cells += [new_code_cell("x", outputs=[new_output("execute_result", bundle)]) for bundle in bundles]
    (tmp_path / "lessons" / "small").mkdir(parents=True)
    (tmp_path / "lessons" / "small" / "lesson.py").touch()
    (tmp_path / "lessons" / "contents.txt").write_text("00 small\n")
    (tmp_path / "notebooks").mkdir()
    nbformat.write(new_notebook(cells=cells), tmp_path / "notebooks" / "00_small.ipynb")
    made = lesson(Site(tmp_path, tmp_path / "source", ["00_small"]), "00_small", set())
    html = "".join(cell.outputs[0].data["text/html"] for cell in made.cells[1:])
    script = (ROOT / "website/static/predict.js").read_text(encoding="utf-8")
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><html lang=en><meta charset=utf-8><title>x</title><script>{script}</script>{html}")
    return page


def test_an_answer_opens_with_the_labs_words_once_a_guess_is_there(guessed: Path, tab: Any) -> None:
    tab.goto(guessed.as_uri())
    said, answer = tab.locator(".course-reveal > p"), tab.locator(".course-answer")
    assert said.inner_text() == "Enter your guess above first; then this shows: by hand, trace."
    link = said.get_by_role("link", name="your guess").get_attribute("href")
    assert "is 2 < 3?" in tab.locator(link).inner_text()  # its own question, which need not be the last one above
    assert not answer.is_visible()
    field = tab.get_by_label("your guess")
    for text, why in (("", "Write a number first."), ("much", "'much' is not a number")):
        field.fill(text)
        field.press("Enter")
        assert why in tab.locator("form [role=status]").inner_text()
        assert not answer.is_visible()
    field.fill("100")
    field.press("Enter")
    guess = predict('How "much" is 2 < 3?', "MiB")
    in_lab = reveal(guess, {"by hand": 1568, "trace": 1600}, "trace", [(98, "Those are the parameters.")])
    guess.number = 100.0
    assert (
        said.inner_text() == in_lab.words() == "Your guess, 100 MiB, is 16.0 times too small. Those are the parameters."
    )
    assert answer.is_visible()
    tab.reload()  # the guess stays in the browser
    assert said.inner_text() == in_lab.words()
    tab.get_by_role("button", name="Forget it").click()
    assert not answer.is_visible()
    tab.reload()
    assert tab.get_by_label("your guess").input_value() == ""
    assert not tab.locator(".course-answer").is_visible()
