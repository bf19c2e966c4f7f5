"""Files that are odd or broken, each with the points it must get and the one line that must be said of it.

`make` gets the exercise with a right answer to question `one` (1 point), and makes the bytes that are handed in.
"""

from __future__ import annotations

import base64
import json
import random
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from classroom.notebooks import as_notebook, to_text

SCRIPTS = (
    "<script>window.ran = 1</script><img src='http://127.0.0.1:9/x.png' onerror='window.ran = 1'>"
    "<svg onload='window.ran = 1'></svg><iframe srcdoc='<script>parent.ran = 1</script>'></iframe>"
    "<style>@import url(http://127.0.0.1:9/x.css); body { display: none }</style>"
)
RAISES = f"def one(n):\n    raise ValueError({SCRIPTS!r})"
Make = Callable[[NotebookNode], bytes]


@dataclass(frozen=True)
class Broken:
    """What is handed in under the learner's name, and what must come of it."""

    learner: str
    make: Make
    points: int = 0
    words: str = ""  # of the problem, a note, a flag or the diagnosis of `one`


def text(notebook: NotebookNode) -> bytes:
    return to_text(notebook).encode()


def changed(change: Callable[[Any], object], **dumps: Any) -> Make:
    """The notebook's JSON, after a change in place."""

    def make(notebook: NotebookNode) -> bytes:
        content = json.loads(to_text(notebook))
        change(content)
        return json.dumps(content, **dumps).encode()

    return make


def one(content: Any) -> Any:
    """The answer cell of question `one` in a notebook's JSON."""
    return next(cell for cell in content["cells"] if cell.get("id") == "answer-one")


def two(content: Any) -> Any:
    """The answer cell of question `two`."""
    return next(cell for cell in content["cells"] if cell.get("id") == "answer-two")


def older(notebook: NotebookNode, version: int) -> bytes:
    down = nbformat.convert(notebook, version)
    return nbformat.versions[version].writes_json(down).encode()


def attachments(content: Any) -> None:
    """100 MB of pictures beside the text."""
    picture = base64.b64encode(random.Random(0).randbytes(750_000)).decode()  # 1 MB as text
    files = {f"{i}.png": {"image/png": picture} for i in range(100)}
    content["cells"].append({"cell_type": "markdown", "metadata": {}, "source": "x", "attachments": files})


def injections(content: Any) -> None:
    """Script and style wherever a notebook can hold some."""
    outputs = [
        {"output_type": "display_data", "metadata": {}, "data": {"text/html": SCRIPTS, "application/javascript": "1"}},
        {"output_type": "stream", "name": "stdout", "text": SCRIPTS},
    ]
    one(content)["outputs"] = outputs
    one(content)["source"] = RAISES
    content["cells"] += [
        {"cell_type": "markdown", "metadata": {}, "source": SCRIPTS},
        {"cell_type": "code", "id": f"answer-{SCRIPTS}", "metadata": {}, "outputs": outputs, "source": "x = 1"},
    ]
    content["metadata"]["title"] = SCRIPTS


def nothing_but(**source: str) -> Make:
    return changed(lambda content: one(content).update(source))


def first_version(**of_each_cell: Any) -> Make:
    """The notebook's code cells in format 1."""

    def make(notebook: NotebookNode) -> bytes:
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        cells = [{"cell_type": "code", "code": source, **of_each_cell} for source in code]
        return json.dumps({"nbformat": 1, "cells": cells}).encode()

    return make


def third_version(notebook: NotebookNode) -> bytes:
    content = json.loads(older(notebook, 3))
    content["metadata"]["name"] = ["no", "text"]
    return json.dumps(content).encode()


SPACED = "def two(n):" + "\n" * 400_000 + "    return n"
BYTES = """class Tabs:
    TAB = f"{b'\t'}"

def two(n, tab=f"{b'\t'}"):
    return n
"""  # no text can be made of the last one's tree by Python 3.11
IMPORTED = "import numpy as np\nfrom fractions import Fraction\n"
MALFORMED = [  # what converters of old formats, or readers of answers, fail with or never end at
    Broken("version 1, unknown cell", lambda n: b'{"nbformat": 1, "cells": [{"cell_type": "x"}]}', 0, "no notebook"),
    Broken("version 1, infinity", first_version(prompt_number=float("inf")), 0, "no notebook"),
    Broken("version 3, a name of no text", third_version, 1),
    Broken("empty dictionaries", changed(lambda c: c["metadata"].update(x=[{}] * 2**22), separators=(",", ":")), 1),
    Broken("empty lines", nothing_but(source="\n" * 400_000), 0, "its answer cell is missing or empty"),
    Broken("empty lines in an answer", changed(lambda c: two(c).update(source=SPACED)), 1),
    Broken("an endless sum", nothing_but(source="one = " + "1+" * 10**6 + "1"), 0, "has answers of more than 1.00 MiB"),
    Broken("an f-string of bytes", changed(lambda c: two(c).update(source=BYTES)), 1),
]
FILES = [
    # -- right, and must not be refused
    Broken("version 2", lambda n: older(n, 2), 1),
    Broken("version 3", lambda n: older(n, 3), 1),
    Broken("version 4.0", changed(lambda c: (c.update(nbformat_minor=0), [x.pop("id") for x in c["cells"]])), 1),
    Broken("version 5", changed(lambda c: c.update(nbformat=5, nbformat_minor=9)), 1),
    Broken("byte order mark", lambda n: b"\xef\xbb\xbf" + text(n), 1),
    Broken("UTF-16", lambda n: text(n).decode().encode("utf-16"), 1),
    Broken("DOS line ends", lambda n: text(n).replace(b"\n", b"\r\n"), 1),
    Broken("sources not in lines", changed(lambda c: [x.update(source="".join(x["source"])) for x in c["cells"]]), 1),
    Broken("no metadata", changed(lambda c: (c.pop("metadata"), [x.pop("metadata") for x in c["cells"]])), 1),
    Broken("100 MB of attachments", changed(attachments), 1),
    Broken("thousands of cells", changed(lambda c: c["cells"].extend([c["cells"][1] | {"id": "x"}] * 5000)), 1),
    Broken("thousands of answers", changed(lambda c: c["cells"].extend([one(c)] * 3000)), 1, "3001 cells claim it"),
    Broken("another kernel", changed(lambda c: c["metadata"].update(kernelspec={"name": "../../bash"})), 1),
    Broken("a float", nothing_but(source="def one(n):\n    return float(n)"), 1),
    Broken("float noise", nothing_but(source="def one(n):\n    return n * 0.1 * 3 / 0.3"), 1),
    Broken("an array's integer", nothing_but(source=f"{IMPORTED}def one(n):\n    return np.int64(n)"), 1),
    Broken("an array of no dimension", nothing_but(source=f"{IMPORTED}def one(n):\n    return np.array(n)"), 1),
    # -- no notebook, or none of this exercise
    Broken("empty", lambda n: b"", 0, "is empty; save the notebook"),
    Broken("white space", lambda n: b" \n\t", 0, "is empty; save the notebook"),
    Broken("truncated", lambda n: text(n)[:-200], 0, "is damaged: not valid JSON"),
    Broken("invalid JSON", lambda n: text(n).replace(b":", b"=", 1), 0, "is damaged: not valid JSON (line 2)"),
    Broken("null bytes", lambda n: text(n).replace(b"def", b"\x00def"), 0, "is damaged: not valid JSON"),
    Broken("binary", lambda n: random.Random(0).randbytes(5000), 0, "is not a text file"),
    Broken("Latin-1", lambda n: text(n).replace(b"Multiples", b"\xe9t\xe9"), 0, "is not a text file"),
    Broken("conflict", lambda n: b"<<<<<<< HEAD\n" + text(n), 0, "conflict markers of git"),
    Broken("deep", lambda n: b"[" * 200_000, 0, "is damaged"),
    Broken("deep cells", lambda n: b'{"nbformat": 4, "cells": ' + b"[" * 900 + b"]" * 900 + b"}", 0, "no notebook"),
    Broken("a list", lambda n: b"[1, 2]", 0, "is JSON but no notebook"),
    Broken("cells that are none", changed(lambda c: c.update(cells=None)), 0, "is JSON but no notebook"),
    Broken("version of a text", changed(lambda c: c.update(nbformat="4")), 0, "is JSON but no notebook"),
    Broken("another exercise", changed(lambda c: c["metadata"]["course"].update(topic="02_other")), 0, "02_other, not"),
    Broken("the solution", changed(lambda c: c["metadata"]["course"].update(kind="solution")), 0, "the solution of"),
    Broken("no answer cells", changed(lambda c: c.update(cells=c["cells"][:1])), 0, "is it the right one?"),
    Broken(
        "a topic of many lines", changed(lambda c: c["metadata"]["course"].update(topic="x\n" * 10**6)), 0, "not 01"
    ),
    *MALFORMED,
    # -- one answer is broken
    Broken("null bytes in an answer", nothing_but(source="def one(n):\n    return n\x00"), 0, "null bytes"),
    Broken("half a character", nothing_but(source="def one(n):\n    return n, '\ud800'"), 0, ""),
    Broken("an endless line", nothing_but(source="one = " + "(" * 10**5), 0, ""),
    Broken("injections", changed(injections), 0, "ValueError: <script>"),
    # -- names that lead elsewhere, or into a spreadsheet or a page
    Broken("=cmd()", text, 1),
    Broken("$(touch x)", text, 1),
    Broken("-rf", text, 1),
    Broken("<img src=x onerror='window.ran = 1'>", text, 1),
    Broken("two\nlines", lambda n: b"", 0, "two?lines.ipynb is empty"),
    Broken("\udcff\udcfe of no encoding", text, 1),
    Broken("x" * 240, text, 1),
    Broken("\u202ename from the right", text, 1),
]


def named(learner: str) -> str:
    """What a learner's name becomes: no line ends, nothing that cannot be written or that turns the writing round."""
    return re.sub("[\n\udcff\udcfe\u202e]", "?", learner)


def put(folder: Path, notebook: NotebookNode) -> None:
    """Hand all of them in, and what is no plain file beside them."""
    for file in FILES:
        (folder / f"{file.learner}.ipynb").write_bytes(file.make(as_notebook(notebook)))
    (folder / "a link.ipynb").symlink_to("/etc/passwd")
    (folder / "a link that goes round.ipynb").symlink_to(folder / "a link that goes round.ipynb")
    (folder / "a folder.ipynb").mkdir()
    (folder / "two files").mkdir()
    for name, text_of in (("a.ipynb", b""), ("b.ipynb", text(notebook))):
        (folder / "two files" / name).write_bytes(text_of)
    (folder / "no file").mkdir()


BESIDE = {  # by learner: points and words for what `put` adds
    "a link": (0, "it is a link"),
    "a link that goes round": (0, "it is a link"),
    "a folder.ipynb": (0, "no notebook was handed in"),
    "two files": (1, "2 notebooks were handed in"),
    "no file": (0, "no notebook was handed in"),
}


def put_in_zip(path: Path, notebook: NotebookNode, others: dict[str, NotebookNode], largest: int) -> None:
    """A platform's zip that holds other submissions, and entries that a careless reader would be hurt by."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (learner, other) in enumerate(others.items(), start=100):
            archive.writestr(f"{learner}_{number}_assignsubmission_file_/01.ipynb", text(other))
        archive.writestr("../../../climber_13_assignsubmission_file_/01.ipynb", text(notebook))
        archive.writestr("/root_14_assignsubmission_file_/01.ipynb", text(notebook))
        archive.writestr("bomb_15_assignsubmission_file_/01.ipynb", b" " * (largest + 1))
        link = zipfile.ZipInfo("link_16_assignsubmission_file_/01.ipynb")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("twice_17_assignsubmission_file_/1.ipynb", text(notebook))
        archive.writestr("twice_17_assignsubmission_file_/2.ipynb", b"")


IN_ZIP = {
    "climber": (1, ""),
    "root": (1, ""),
    "bomb": (0, "more than"),
    "link": (0, "it is a link"),
    "twice": (0, "2 notebooks were handed in"),
}
