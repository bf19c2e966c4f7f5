"""CITATION.cff is what the format asks for and says what the library says; the licences cover what the README says."""

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, ValidationError

import course_utils

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# The part of the format's own schema (citation-file-format 1.2.0, schema.json) that speaks of the keys used here.
TEXT = {"type": "string", "minLength": 1}
CITATION = Draft7Validator(
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["authors", "cff-version", "message", "title"],
        "properties": {
            **dict.fromkeys(("message", "title", "abstract", "version"), TEXT),
            "cff-version": {"const": "1.2.0"},
            "type": {"enum": ["dataset", "software"]},
            "license": {"enum": ["MIT", "CC-BY-4.0"]},
            "keywords": {"type": "array", "items": TEXT, "minItems": 1, "uniqueItems": True},
            "authors": {
                "type": "array",
                "minItems": 1,
                "uniqueItems": True,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["name"],
                    "properties": {"name": TEXT},
                },
            },
        },
    }
)


def read() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return found


def test_the_citation_has_the_form_that_is_asked_for() -> None:
    CITATION.validate(read())


@pytest.mark.parametrize(
    "change", [{"authors": []}, {"version": 0.1}, {"cff-version": 1.2}, {"title": ""}, {"year": 1}]
)
def test_a_citation_of_another_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CITATION.validate(read() | change)


def test_the_citation_agrees_with_the_library() -> None:
    said = read()
    assert said["version"] == course_utils.__version__
    assert said["authors"] == PROJECT["authors"]
    assert said["license"] == PROJECT["license"]
    assert f"# {said['title']}\n" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_texts_licence_is_whole_and_linked() -> None:
    notice, text = (ROOT / "LICENSE-CONTENT").read_text(encoding="utf-8").split("=" * 71 + "\n\n", 1)
    assert "https://creativecommons.org/licenses/by/4.0/legalcode\n" in notice
    # Of the text as two independent repositories carry it, so that nobody's editor changes a word of it.
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "f5b745ef98087f531e719ee8ca6a96809444573ecc7173c6fa68eaad39b3cc3f"
    )


def test_the_readme_says_which_licence_covers_what() -> None:
    licences = (ROOT / "README.md").read_text(encoding="utf-8").split("## Licences")[1].split("\n## ")[0]
    for file in ("LICENSE", "LICENSE-CONTENT", "CITATION.cff"):
        assert f"({file})" in licences
        assert (ROOT / file).is_file()
