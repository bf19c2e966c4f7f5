"""The guide's page in a browser: what is chosen is answered, every answer has an address, nobody is asked."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import lab
import pytest

from website.guide import page, read
from website.guide.models import MODELS
from website.guide.steps import FUSED, HALF, LORA, Way

needs_a_browser = pytest.mark.skipif(bool(lab.missing()), reason=lab.missing())


def test_sphinx_is_given_one_document_and_the_answers_beside_it(tmp_path: Path) -> None:
    document = tmp_path / page.write(tmp_path)
    text = document.read_text(encoding="utf-8")
    assert text.startswith("# What fits")
    read_by_search = text.rpartition("````")[2]
    assert all(word in read_by_search for word in ("Llama-2-7B", "QLoRA", "RTX 3090"))
    assert {path.stem for path in (tmp_path / "_static" / "guide").iterdir()} == set(read.guide().models)


@needs_a_browser
def test_the_page_answers_in_the_words_of_the_guide(tmp_path: Path) -> None:
    table = read.guide()
    parts = page.write_parts(tmp_path / "guide", table)
    assert max(path.stat().st_size for path in parts) < 300_000
    alone = tmp_path / "index.html"
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    html = page.fragment(table)
    alone.write_text(f'<!doctype html><meta charset="utf-8">{view}<main>{html}</main>', encoding="utf-8")
    address = alone.as_uri()
    with lab.browser(390, 800) as tab:
        asked: list[str] = []
        errors: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        for key, way, card in (
            ("gpt_2", Way(LORA, FUSED, False, 512), "T4"), ("gpt_2", Way(HALF, "adamw-8bit", True, 1024), "H200 SXM"),
            ("resnet_50", Way("full, float32", "momentum", True, 384), "RTX 2080"),
        ):  # fmt: skip
            answer = table.answer(MODELS[key], way, card)
            chosen = {
                "model": key, "method": way.method, "optimizer": way.optimizer, "checkpoint": str(int(way.checkpoint)),
                "length": str(way.length), "card": card,
            }  # fmt: skip
            tab.goto("about:blank")
            tab.goto(f"{address}#{urlencode(chosen)}")
            tab.wait_for_selector(".answer p")
            assert tab.inner_text(".answer p >> nth=0") == answer.sentence
            assert tab.inner_text("code") == answer.command
            assert {name: tab.input_value(f"select[name={name}]") for name in chosen} == chosen
        other = table.answer(MODELS["resnet_50"], way, "H100 SXM")
        tab.select_option("select[name=card]", "H100 SXM")
        assert tab.inner_text(".answer p >> nth=0") == other.sentence
        assert "card=H100+SXM" in tab.url
        for typed, wanted, missing in (
            ("VGG 16 mixed precision, rtx3090, warped", ("vgg_16", "full, mixed precision", "0", "RTX 3090"), "warped"),
            ("Llama-2 7B QLoRA 2048 tokens on a 3090", ("llama_2_7b", "QLoRA", "1", "RTX 3090"), ""),
        ):  # fmt: skip
            tab.fill("input[name=asked]", typed)
            found = [tab.input_value(f"select[name={name}]") for name in ("model", "method", "checkpoint", "card")]
            assert tuple(found) == wanted
            assert tab.inner_text("output") == (f"Not in this guide: {missing}." if missing else "")
        assert tab.input_value("select[name=length]") == "2048"
        assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert not errors
        assert all(url.startswith(("file:", "about:")) for url in asked)
