"""What articles say, beside the guide: each number judged. `articles.csv` names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from course_utils.units import GB
from website.guide.measured import rows
from website.guide.read import Guide
from website.guide.steps import HALF, MIXED

ARTICLES = Path(__file__).with_name("articles.csv")
NEAR = 0.5 * GB  # articles give whole gigabytes
USUAL = 2048  # tokens at most that are meant where an article does not say how many


@dataclass(frozen=True)
class Said:
    """One number of an article, beside the guide's.

    Attributes:
        title, address: of the article.
        says: what it calls the model.
        model: the guide's, by key.
        method: "full", or one of `steps.METHODS`.
        gb: what it says, 10**9 bytes.
        low, high: bytes that the guide finds at batch 1: the least and the most over checkpointing, optimizers, and
            lengths of the article's or up to USUAL tokens; of "full", over both formats.
    """

    title: str
    address: str
    says: str
    model: str
    method: str
    gb: float
    low: int
    high: int

    @property
    def judgement(self) -> str:
        """Within what the guide finds, or by how much too little or too much."""
        if self.gb * GB < self.low - NEAR:
            return f"too little: the least that we find is {self.low / GB:,.1f}"
        if self.gb * GB > self.high + NEAR:
            return f"too much: the most that we find is {self.high / GB:,.1f}"
        return "within what we find"


def said(guide: Guide) -> Iterator[Said]:
    """Every number of the articles on a model that the table has."""
    for row in rows(ARTICLES):
        if row["model"] not in guide.models:
            continue
        model = guide.models[row["model"]]
        methods = (MIXED, HALF) if row["method"] == "full" else (row["method"],)
        found = [
            guide.kept(model, way)["batches"]["1"]
            for way in guide.ways(model)
            if way.method in methods and (way.length == int(row["length"]) if row["length"] else way.length <= USUAL)
        ]
        asked = [reserved or blocks for _, blocks, reserved in found]
        yield Said(
            row["title"], row["address"], row["says"], row["model"], row["method"], float(row["gb"]), min(asked),
            max(asked),
        )  # fmt: skip
