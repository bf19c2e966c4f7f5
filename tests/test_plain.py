"""The rule of what is plain: solutions and ordinary right answers are, and no way to a judge or to a memory is."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import operator
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Hashable
from pathlib import Path
from types import ModuleType

import pytest
from right_answers import GRADED, RIGHT

from course_utils.grading import plain
from course_utils.grading.graded import GradedProperties
from course_utils.grading.graft import kind_of
from course_utils.grading.plain import bound_names, reaches, unusual
from course_utils.notebook_files import read_notebook

ROOT = Path(__file__).resolve().parents[1]
# Imported at the top of the modules of right answers; a learner's cell would import them itself.
IMPORTED = {"CourseError", "F", "checkpoint", "checkpoint_sequential", "itertools", "math", "nn", "torch", "AtOnce"}


def answers() -> dict[str, tuple[str, frozenset[str]]]:
    """Of each question, the solution's answer and the names that its set-up cells bind."""
    found = {}
    for path in sorted((ROOT / "solutions").glob("*.ipynb")):
        cells = [cell for cell in read_notebook(path).cells if cell.cell_type == "code"]
        known = frozenset[str]().union(*(bound_names(cell.source) for cell in cells if not kind_of(cell)[0]))
        found |= {kind_of(cell)[1]: (cell.source, known) for cell in cells if kind_of(cell)[0] == "answer"}
    return found


ANSWERS = answers()
INSIDE = [name for name in RIGHT if isinstance(GRADED[name], GradedProperties)]
# Right, and held all the same: what each does is what a forger would do as well.
HELD = {
    "KeepsMeans": "`self.means`",  # reads numbers in a forward
    "outside_in_numpy": "`.numpy`",
    "by_editing": "course_utils.checks",
}


@pytest.mark.parametrize("question", ANSWERS)
def test_every_solution_is_plain(question: str) -> None:
    assert unusual(*ANSWERS[question]) == ""


def right_answers() -> list[tuple[str, str, str]]:
    found = []
    for question in INSIDE:
        for answer in RIGHT[question]:
            if inspect.isfunction(answer) or inspect.isclass(answer):
                source = textwrap.dedent(inspect.getsource(answer))
                if source.startswith(("def ", "class ")):
                    found.append((question, answer.__name__, source))
    return found


@pytest.mark.parametrize(("question", "name", "source"), right_answers())
def test_right_answers_of_other_kinds_are_plain(question: str, name: str, source: str) -> None:
    known = ANSWERS[question][1] | IMPORTED
    assert HELD.get(name, "") in unusual(source, known)
    assert bool(unusual(source, known)) == (name in HELD)


def test_there_are_enough_of_them() -> None:
    assert len(right_answers()) > 30


# -- what is not plain -------------------------------------------------------------------------------------------------

STATEMENTS = [
    "import sys",
    "import course_utils.grading",
    "from course_utils.checks import rewrites",
    "from torch import *",
    "from torch import hub",
    "from functools import wraps",
    "from collections import defaultdict",
    "get_ipython().kernel",
    "exec('x = 1')",
    "setattr(torch, 'allclose', max)",
    "vars(torch)['allclose'] = max",
    "globals()",
    "().__class__.__base__.__subclasses__()",
    "torch.allclose = lambda *a, **k: True",
    "torch.Tensor.__eq__ = None",
    "torch.nn.functional.cross_entropy = None",
    "torch.os.system('true')",
    "torch.library",
    "torch.set_default_dtype(torch.float16)",
    "torch.nn.modules.module.register_module_forward_hook(print)",
    "del torch.allclose",
    "(torch.allclose, x) = 1, 2",
    "for torch.allclose in [1]:\n    pass",
    "with open('/proc/self/maps') as torch.maps:\n    pass",
    "yield 1",
    "match torch:\n    case object(__dict__=d):\n        pass",
    "class Meta(type):\n    def __instancecheck__(cls, other):\n        return True",
    "class Seen(object):\n    seen = []",
    "class Keyed(object, metaclass=type):\n    pass",
    "def late(seen=[]):\n    return seen",
    "def evil(x: exec('1')):\n    return x",
    "global seen",
]
HARMLESS = {"array", "copy", "math", "random", "select", "time"}  # modules
# What may make an answer's own verdict doubtful, and bends nothing for others.
OWN = [
    "from collections import defaultdict",
    "def late(seen=[]):\n    return seen",
    "class Seen(object):\n    seen = []",
]


def bodies(tree: ast.AST) -> list[list[ast.stmt]]:
    return [node.body for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("question", INSIDE)
def test_no_statement_to_the_judge_is_plain_anywhere_in_a_solution(question: str, statement: str) -> None:
    source, known = ANSWERS[question]
    for number, body in enumerate(bodies(ast.parse(source))):
        for place in range(len(body) + 1):
            tree = ast.parse(source)
            bodies(tree)[number][place:place] = ast.parse(statement).body
            text = ast.unparse(tree)
            assert unusual(text, known | {"torch", "nn"}), text
            assert bool(reaches(text, known | {"torch", "nn"})) == (statement not in OWN), text


NETWORK = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        {made}

    def forward(self, x):
        {body}
        return self.a(x)
"""
# What could tell the network that is compared from the one that is traced: (made in __init__, body of forward).
TELLING = [
    ("", "if x.is_meta:\n            return self.b(x)"),
    ("", "if x.device.type == 'meta':\n            return self.b(x)"),
    ("", "if 'meta' in str(x):\n            return self.b(x)"),
    ("", "if 'meta' in f'{x}':\n            return self.b(x)"),
    ("", "if 'meta' in '%s' % x:\n            return self.b(x)"),
    ("", "if 'meta' in '{}'.format(x):\n            return self.b(x)"),
    ("", "if torch.typename(x) == 'torch.FloatTensor':\n            return self.b(x)"),
    ("", "if x.sum().item() == 0:\n            return self.b(x)"),
    ("", "if float(x.sum()) == 0:\n            return self.b(x)"),
    ("", "if x.detach().numpy().any():\n            return self.b(x)"),
    ("", "try:\n            bool(x.sum())\n        except RuntimeError:\n            return self.b(x)"),
    ("", "if isinstance(x, type(torch.empty(0, device='meta'))):\n            return self.b(x)"),
    ("self.calls = 0", "self.calls += 1\n        if self.calls > 1:\n            return self.b(x)"),
    ("self.calls = []", "self.calls.append(1)"),
    ("self.calls = []", "list.append(self.calls, 1)"),
    ("self.calls = []", "calls = self.calls\n        calls.append(1)"),
    ("self.calls = []", "calls = self.calls\n        calls += [1]"),
    ("self.calls = []\n        calls = KNOWN\n        calls.append(1)", "pass"),
    ("self.calls = {}", "self.calls[1] = 1"),
    ("self.calls = nn.ModuleList()", "self.calls.append(nn.ReLU())"),
    ("self.calls = torch.zeros(0)", "self.calls.resize_(len(self.calls) + 1)"),
    ("self.calls = (i for i in range(9))", "for i in self.calls:\n            break"),
    ("self.calls = self.parameters()", "for i in self.calls:\n            break"),
    ("self.calls = zip((1, 2), (3, 4))", "for i in self.calls:\n            break"),
    ("KNOWN.append(1)", "pass"),
    ("self.calls = KNOWN\n        self.calls.append(1)", "pass"),
    ("", "KNOWN[0] += 1"),
    ("", "self.late = x\n        self.forward(self.late)"),
    ("", "self.allclose = x\n        Net.forward(torch, x)"),
    ("", "torch.add(x, 1, out=x)"),
    ("", "if np.random.rand() < 0.5:\n            return self.b(x)"),
    ("self.a.register_forward_hook(print)", "pass"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "body"), TELLING)
def test_no_network_that_could_tell_when_it_is_measured_is_plain(made: str, body: str) -> None:
    known = {"nn", "torch", "np", "KNOWN"}
    assert unusual(NETWORK.format(made=made or "pass", body=body), known)
    assert not unusual(NETWORK.format(made="pass", body="pass"), known)


PLAIN = [
    "net = Net()\nprint(net(torch.randn(2, 3)).shape)\n",  # tried out below
    "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n",
    "from torch.utils.checkpoint import checkpoint\n",
    "WIDTH = 3\n",
]


@pytest.mark.parametrize("before", PLAIN)
def test_what_learners_write_beside_an_answer_is_plain(before: str) -> None:
    layers = "self.c = nn.ModuleList()\n        self.c.append(nn.ReLU())"
    network = NETWORK.format(made=layers, body="x = torch.zeros(3)")
    text = f"{network}\n{before}" if "Net()" in before else f"{before}\n{network}"
    assert unusual(text, {"nn", "torch"}, {"nn", "torch", "other_question"}) == ""


def test_what_an_answer_does_with_its_own_bends_nothing() -> None:
    table = "TABLE = {1: 2}\ndef one(n):\n    TABLE[n] = TABLE.setdefault(n, 0) + 1\n    return float(repr(TABLE[n]))"
    counter = "calls = 0\ndef one(n):\n    global calls\n    calls += 1"
    for source in (table, counter):
        assert reaches(source, {"nn"}) == ""
    assert unusual(table, ()) == "changes what outlives the call (`TABLE[n]`)"
    assert reaches(table, {"TABLE"}, {"TABLE"}) == "gives `TABLE` another meaning"
    assert reaches("KNOWN.append(1)\ndef one(n):\n    KNOWN.append(n)", {"KNOWN"})
    assert reaches("def one(n):\n    global torch\n    torch = None", {"torch"}, {"torch"})


@functools.cache
def allowed(attribute: str) -> bool:
    return not reaches(f"torch.{attribute}", {"torch"})


def test_no_attribute_leads_from_what_may_be_imported_to_the_interpreter() -> None:
    """Follows each attribute that is allowed, of modules and classes, from module to module."""
    forbidden = {
        *(
            eval,
            exec,
            compile,
            open,
            getattr,
            setattr,
            delattr,
            vars,
            globals,
            locals,
            input,
            __import__,
            sys._getframe,
        ),
        *(functools.wraps, functools.update_wrapper, operator.attrgetter, operator.methodcaller, os.system, os._exit),
        *(importlib.import_module, subprocess.Popen, subprocess.run, signal.signal, pickle.load, pickle.loads),
    }
    waiting = [importlib.import_module(name) for name in sorted(plain.MODULES | plain.OTHER_MODULES)]
    seen, paths = {id(module) for module in waiting}, {id(module): module.__name__ for module in waiting}
    while waiting:
        place = waiting.pop()
        for name in dir(place):
            if not allowed(name):
                continue
            try:
                with warnings.catch_warnings(action="ignore"):
                    found = getattr(place, name)
            except Exception:  # noqa: BLE001, S112 - some of torch's attributes raise what they like
                continue
            path = f"{paths[id(place)]}.{name}"
            assert not (isinstance(found, Hashable) and callable(found) and found in forbidden), path
            if isinstance(found, ModuleType | type) and id(found) not in seen:
                seen.add(id(found))
                paths[id(found)] = path
                waiting.append(found)
                top = found.__name__.partition(".")[0] if isinstance(found, ModuleType) else ""
                assert top not in sys.stdlib_module_names - HARMLESS, path
    assert len(seen) > 1000


def test_words_are_one_line_that_names_what_is_not_plain() -> None:
    assert unusual("import os", ()) == "imports `os`"
    assert unusual("x = eval('1')", ()) == "uses `eval`"
    assert unusual("%time x", ()) == "is no plain Python"
    assert unusual("check = None", ()) == "gives `check` another meaning"
    assert unusual("def other(): pass", (), {"other"}) == "gives `other` another meaning"
    assert unusual("(" * 5000 + ")" * 5000, ()) == "is no plain Python"
    assert unusual("x = " + "-" * 50_000 + "1", ())
