"""The guide's page in a browser: what is chosen is answered, every answer has an address, nobody is asked."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import lab
import pytest

from website.guide import page, read
from website.guide.models import MODELS
from website.guide.steps import FUSED, HALF, LORA, Way

pytestmark = pytest.mark.skipif(bool(lab.missing()), reason=lab.missing())


def test_the_page_answers_in_the_words_of_the_guide(tmp_path: Path) -> None:
    table = read.guide()
    address = page.write_page(tmp_path, table).as_uri()
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
        assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert not errors
        assert all(url.startswith(("file:", "about:")) for url in asked)
