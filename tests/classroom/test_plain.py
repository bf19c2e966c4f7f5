"""The rule of what is plain: solutions and ordinary right answers are, and no way to a judge or to a memory is."""

from __future__ import annotations

import ast
import dis
import functools
import importlib
import inspect
import multiprocessing
import operator
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Hashable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import CodeType, ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager
from right_answers import GRADED, RIGHT

from classroom.grading import plain
from classroom.grading.graft import kind_of, setup_texts
from classroom.grading.plain import bound_names, given_names, reaches
from classroom.grading.sandbox import WARM, to_warm
from classroom.notebooks import read_notebook
from classroom.questions.graded import GradedProperties

ROOT = Path(__file__).resolve().parents[2]
# Imported at the top of the modules of right answers; a learner's cell would import them itself.
IMPORTED = {"CourseError", "F", "checkpoint", "checkpoint_sequential", "itertools", "math", "nn", "torch", "AtOnce"}


def answers() -> dict[str, tuple[str, frozenset[str]]]:
    """Of each question, the solution's answer and the names that its set-up cells bind."""
    found = {}
    for path in sorted((ROOT / "solutions").glob("*.ipynb")):
        cells = [cell for cell in read_notebook(path).cells if cell.cell_type == "code"]
        known = frozenset[str]().union(*(given_names(cell.source) for cell in cells if not kind_of(cell)[0]))
        found |= {kind_of(cell)[1]: (cell.source, known) for cell in cells if kind_of(cell)[0] == "answer"}
    return found


ANSWERS = answers()
INSIDE = [name for name in RIGHT if isinstance(GRADED[name], GradedProperties)]
HELD = {"by_editing": "lessons.shared.originals"}  # in a notebook the network is given, and nothing imported


@pytest.mark.parametrize("question", ANSWERS)
def test_every_solution_is_plain(question: str) -> None:
    assert reaches(*ANSWERS[question]) == ""


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
    assert HELD.get(name, "") in reaches(source, known)
    assert bool(reaches(source, known)) == (name in HELD)


def test_there_are_enough_of_them() -> None:
    assert len(right_answers()) > 30


# -- what is not plain -------------------------------------------------------------------------------------------------

STATEMENTS = [
    "import sys",
    "import classroom.grading",
    "from lessons.shared import rewrites",
    "from torch import *",
    "from torch import hub",
    "from functools import wraps",
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
    "match torch:\n    case object(__dict__=d):\n        pass",
    "class Meta(type):\n    def __instancecheck__(cls, other):\n        return True",
    "class Keyed(object, metaclass=type):\n    pass",
    "def evil(x: exec('1')):\n    return x",
    "global seen",
]
HARMLESS = {"array", "copy", "math", "random", "select", "time"}  # modules


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
            assert reaches(text, known | {"torch", "nn"}), text


NETWORK = """
class Net(nn.Module):
    def __init__(self):
        {made}
        self.a = nn.Linear(3, 3)

    def _both(self, x):
        self._seen = x.shape
        return self.a(self.a(x))

    def forward(self, x):
        {body}
        return self._both(x)
"""
SUPER = "super().__init__()"
# What learners write, and what was held before the judge looked at the run itself: (made in __init__, body of forward).
HARMLESS_NETWORKS = [
    (SUPER, "pass"),
    ("super(Net, self).__init__()", "pass"),
    (SUPER, "match x.dim():\n            case 2:\n                x = x + 0"),
    (SUPER, "assert x.dim() == 2, f'{x.shape} has {x.dim()} dimensions'"),
    (SUPER, "print(x.shape, self.__class__.__name__, type(x).__name__)"),
    (SUPER, "x = functools.reduce(lambda y, layer: layer(y), [self.a, self.a], x)"),
    (SUPER, "layers = iter([self.a])\n        x = next(layers)(x)"),
    (SUPER, "x = getattr(self, 'a')(x)"),
    (SUPER, "for p in self.parameters():\n            p.data.mul_(1)"),
    (SUPER, "self.means = []\n        self.means.append(x.mean().item())"),
    (SUPER, "try:\n            x = x.view(3, -1)\n        except RuntimeError:\n            pass"),
    (SUPER + "\n        self.calls = 0", "self.calls += 1"),
]  # fmt: skip
# By these an answer could reach its judge or others: (made in __init__, body of forward).
REACHING_NETWORKS = [
    (SUPER, "Net.forward(torch, x)\n        self.allclose = x"),
    (SUPER, "self.late = x\n        [Net][0].forward(torch, x)"),
    (SUPER, "self.late = x\n        getattr(Net, 'forward')(torch, x)"),
    (SUPER, "getattr(torch, '_C')"),
    (SUPER, "getattr(torch, 'al' + 'lclose')"),
    (SUPER, "setattr(torch, 'allclose', x)"),
    (SUPER, "self.__class__.__base__"),
    (SUPER, "type('Net', (), {})"),
    (SUPER, "super(nn.Module, self).forward(x)"),
    (SUPER, "super(Net, torch).forward(x)"),
    (SUPER, "inspect.getmembers(torch)"),
    (SUPER, "[0 for inspect in [inspect]]"),
    (SUPER, "[0 for exec in exec('x = 1')]"),
    (SUPER, "[0 for check in [check]]"),
    (SUPER, "x._backward_hooks"),
    (SUPER, "KNOWN.append(1)"),
    ("self.a.register_forward_hook(print)", "pass"),
    ("nn.Module.__init__(self)", "pass"),
]  # fmt: skip
GIVEN = {"nn", "torch", "functools", "KNOWN"}


@pytest.mark.parametrize(("made", "body"), HARMLESS_NETWORKS)
def test_a_network_may_remember_count_and_look_at_values(made: str, body: str) -> None:
    assert reaches(NETWORK.format(made=made, body=body), GIVEN) == ""


@pytest.mark.parametrize(("made", "body"), REACHING_NETWORKS)
def test_no_network_that_reaches_its_judge_is_plain(made: str, body: str) -> None:
    assert reaches(NETWORK.format(made=made, body=body), GIVEN, GIVEN | {"inspect", "check"})


@pytest.mark.parametrize("name", ["exec", "get_ipython", "open", "__import__", "check", "inspect"])
@pytest.mark.parametrize("way", ["if 0:\n    {0} = 1", "{0} = 1\ndel {0}", "import math as {0}\ndel {0}"])
def test_a_name_that_is_bound_but_for_show_is_not_the_cells_own(name: str, way: str) -> None:
    assert reaches(way.format(name) + f"\n{name}('1')", (), {"inspect", "check"})


SPECIAL = [
    "__eq__ = max", "__eq__: object = max", "for __eq__ in [max]: pass", "import math as __eq__", "(__eq__ := max)",
    "def __eq__(self, other): return True", "with max as __eq__: pass", "match max:\n        case __eq__: pass",
]  # fmt: skip


@pytest.mark.parametrize("way", SPECIAL)
def test_a_special_method_is_one_however_a_class_gets_it(way: str) -> None:
    assert reaches(f"class Own:\n    {way}", ()) == "defines `__eq__`"


BESIDE = [
    "net = Net()\nprint(net(torch.randn(2, 3)).shape)\nprint(sum(p.numel() for p in net.parameters()))\n",  # below
    "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n",
    "from torch.utils.checkpoint import checkpoint\n",
    "WIDTH = 3\n",
    "from operator import add, itemgetter\nimport copy\n",
    "if __name__ == '__main__':\n    print(Net())\n",
    "def other_question(n):\n    return n\n",  # several answers in one cell
]


@pytest.mark.parametrize("beside", BESIDE)
def test_what_learners_write_beside_an_answer_is_plain(beside: str) -> None:
    network = NETWORK.format(made=SUPER, body="pass")
    text = f"{network}\n{beside}" if "Net()" in beside else f"{beside}\n{network}"
    assert reaches(text, {"nn", "torch"}, {"nn", "torch"}) == ""


LINE_ENDS = [chr(code) for code in range(0x3000) if len(f"a{chr(code)}b".splitlines()) == 2]


@pytest.mark.parametrize("end", [end for end in LINE_ENDS if end != "\n"], ids=ascii)
@pytest.mark.parametrize("start", ["%pwd", "!ls", "len?", "x"])
def test_no_comment_ends_for_ipython_where_it_goes_on_for_python(start: str, end: str) -> None:
    source = f"# notes{end}{start}{end}import os\ndef f():\n    return 1\n"
    assert reaches(source, set())


PIECES = [*LINE_ENDS, *"x? '();\\", "\r\n", "# ", "%pwd", "!ls", "x = 1", '"\"\"', ">>> ", "... "]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_what_ipython_compiles_of_plain_text_is_that_text(source: str) -> None:
    if not reaches(source, {"x"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = TransformerManager().transform_cell(source)
        assert ast.dump(ast.parse(compiled)) == ast.dump(ast.parse(source))


def test_what_an_answer_does_with_its_own_bends_nothing() -> None:
    table = "TABLE = {1: 2}\ndef one(n):\n    TABLE[n] = TABLE.setdefault(n, 0) + 1\n    return float(repr(TABLE[n]))"
    counter = "calls = 0\ndef one(n):\n    global calls\n    calls += 1"
    for source in (table, counter):
        assert reaches(source, {"nn"}) == ""
    assert reaches(table, {"TABLE"}, {"TABLE"}) == "gives `TABLE` another meaning"
    assert reaches("KNOWN.append(1)\ndef one(n):\n    KNOWN.append(n)", {"KNOWN"})
    assert reaches("def one(n):\n    global torch\n    torch = None", {"torch"}, {"torch"})


def test_modules_of_a_set_up_that_an_answer_may_not_import_are_not_given() -> None:
    setup = "import inspect\nimport math\nfrom torch import nn\nimport pandas as pd\nX = 1"
    assert given_names(setup) == {"math", "nn", "X"}
    assert bound_names("import inspect\nX = 1") == {"inspect", "X"}
    assert given_names("%time x") == bound_names("%time x") == frozenset()


@functools.cache
def allowed(attribute: str) -> bool:
    return not reaches(f"torch.{attribute}", {"torch"})


# That lead to the interpreter, to files, or to other processes.
NAMED = {"eval", "exec", "open", ".open", "__import__", "get_type_hints"} | {
    *("subprocess", "ctypes", "pickle", "socket", "multiprocessing", "mmap", "shutil", "urllib"),
    *("threading", ".system", ".popen", ".Popen", ".check_output", ".fork"),
}
FILES = re.compile(r"file|f(ile)?_?(name|path)")
# What namedtuple and dataclass evaluate they made themselves, of names that they have looked at.
FROM_NAMES = {"namedtuple", "dataclass"}


def names_in(code: CodeType) -> set[str]:
    """The names that code reads; those of attributes with a dot before them."""
    found = {
        f".{one.argval}" if one.opname in ("LOAD_ATTR", "LOAD_METHOD") else str(one.argval)
        for one in dis.get_instructions(code)
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
    }
    return found.union(*(names_in(one) for one in code.co_consts if isinstance(one, CodeType)))


def leads_to(function: object) -> set[str]:
    """What of NAMED is in a function's code, and if it is of the standard library in what that calls of its module."""
    found: set[str] = set()
    waiting, seen = [inspect.unwrap(function)], set[int]()  # type: ignore[arg-type]
    while waiting:
        one = waiting.pop()
        one = getattr(one, "__func__", one)
        if id(one) in seen or not inspect.isfunction(one):
            continue
        seen.add(id(one))
        names = names_in(one.__code__)
        found |= names & NAMED
        home = vars(sys.modules.get(one.__module__ or "", sys))
        if (one.__module__ or "").split(".")[0] in sys.stdlib_module_names:
            kinds = [vars(kind) for kind in home.values() if isinstance(kind, type)]
            called = {name.removeprefix(".") for name in names}
            waiting += [room[name] for room in (home, *kinds) for name in called if name in room]
    return found


def takes_a_file(function: object) -> bool:
    """By the name of an argument; where Python knows none, by the first words of its documentation."""
    try:
        return any(FILES.fullmatch(name) for name in inspect.signature(function).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return bool(re.search(r"\bfile(name)?\b", str(getattr(function, "__doc__", ""))[:300]))


def given_modules() -> set[str]:
    """Modules of ours that set-up cells give to answers."""
    found = set()
    for path in sorted((ROOT / "solutions").glob("*.ipynb")):
        for text in setup_texts(read_notebook(path)):
            nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
            names = {(f"{node.module}.{one.name}", one.asname or one.name) for node in nodes for one in node.names}
            found |= {name for name, called in names if called not in plain.JUDGES and name.startswith("lessons.")}
    return {name for name in found if (ROOT / f"{name.replace('.', '/')}.py").exists()}


# What torch imports of itself as it is used: other names lead to these from then on.
LATER = [
    *("torch._dynamo", "torch._inductor.codecache", "torch.distributed.run", "torch.distributed.tensor"),
    *("torch.export", "torch.onnx", "torch.profiler", "torch.utils.benchmark", "torch.utils.collect_env"),
    "torch.utils.cpp_extension",
]


def test_no_attribute_leads_from_what_may_be_imported_to_the_interpreter() -> None:
    """In a process of its own: what it reaches must not depend on what other tests imported."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        fresh.submit(follow_every_attribute).result()


def follow_every_attribute() -> None:
    """Follows each attribute that is allowed, of modules and classes, from module to module, as a kernel has them."""
    for name in (*to_warm(WARM), *LATER):
        importlib.import_module(name)
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
    assert given_modules() == {"lessons.batch_size.judge", "lessons.offload.judge", "lessons.one_card.judge"}
    waiting = [importlib.import_module(name) for name in sorted(plain.MODULES | given_modules())]
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
            if callable(found) and not isinstance(found, type):
                assert name in FROM_NAMES or not leads_to(found), path
                assert not takes_a_file(found), path
            if isinstance(found, ModuleType | type) and id(found) not in seen:
                seen.add(id(found))
                paths[id(found)] = path
                waiting.append(found)
                top = found.__name__.partition(".")[0] if isinstance(found, ModuleType) else ""
                assert top not in sys.stdlib_module_names - HARMLESS, path
    assert len(seen) > 1000


def test_words_are_one_line_that_names_what_is_not_plain() -> None:
    assert reaches("import os", ()) == "imports `os`"
    assert reaches("x = eval('1')", ()) == "uses `eval`"
    assert reaches("%time x", ()) == "is no plain Python"
    assert reaches("check = None", ()) == "gives `check` another meaning"
    assert reaches("def other(): pass", {"other"}, {"other"}) == "gives `other` another meaning"
    assert reaches("(" * 5000 + ")" * 5000, ()) == "is no plain Python"
    assert reaches("x = " + "-" * 50_000 + "1", ())
