"""Whether an answer is plain: nothing in its text leads to what judges it, or to what other answers run in.

What a network is like is judged in the process of the code that is judged, which must not reach the judge. The rule
lists what is allowed, and what nobody thought of is not plain: names of the cell itself, of the set-up cells and
built-in ones that compute; imports for computing; attributes without underscores and without a way to the interpreter;
setting attributes of what is its own. An answer that is not plain may be right all the same: `mark` holds its points.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from classroom import PACKAGES

LISTS = tomllib.loads(Path(__file__).with_name("plain.toml").read_text(encoding="utf-8"))
BUILTINS, MODULES, DUNDERS, CHANGING, REACHING = (
    frozenset(LISTS[name].split()) for name in ("builtins", "modules", "dunders", "changing", "reaching")
)
REACHING |= sys.stdlib_module_names - {"array", "chunk", "copy", "math", "random", "select", "time", "trace"}
REACHING_PREFIXES = ("_", "set_", "register_", "cache_")
SAFE_SETTERS = frozenset({"set_grad_enabled"})
PARTS = {module: frozenset(names.split()) for module, names in LISTS["parts"].items()}
JUDGES = frozenset({"check", "checks", "graded"})
# What a name is that nobody has bound yet, or that was deleted: an answer may not even bind these.
OTHERS = (
    {*dir(builtins)} - BUILTINS - {"copyright", "credits", "dir", "help", "input", "license"}
) | {"In", "Out", "exit", "get_ipython", "quit"}  # fmt: skip
# Where IPython may cut a line and Python does not: a comment up to one of these would end there, and code follow.
OTHER_LINE_ENDS = re.compile("\r(?!\n)|[\v\f\x1c-\x1e\x85\u2028\u2029]")
SETTABLE = frozenset({"grad", "inplace", "padding", "requires_grad", "stride"})  # of any object

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def reaches(source: str, known: Collection[str], taken: Collection[str] = ()) -> str:
    """The first thing in an answer that is not plain, as the words after "it …", or "".

    Args:
        source: the text of the answer cell.
        known: names it may use beside its own: those the set-up cells give (`given_names`).
        taken: names that it may not bind but by an import: those of the set-up.
    """
    tree = parsed(source)
    if tree is None:
        return "is no plain Python"
    if OTHER_LINE_ENDS.search(source):
        return "separates lines by something other than a newline"
    try:
        _Look(frozenset(known), frozenset(taken), tree).visit(tree)
    except _Unusual as found:
        return str(found)
    except (RecursionError, ValueError):
        return "is nested too deeply"
    return ""


def parsed(source: str) -> ast.Module | None:
    """The syntax tree of a text; None if it is no Python, or more than Python can read."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def bound_names(source: str) -> frozenset[str]:
    """The names that a cell binds at its top level; none if it is no plain Python."""
    tree = parsed(source)
    return frozenset(_bindings(tree.body) if tree else ())


def given_names(source: str) -> frozenset[str]:
    """The names that a set-up cell gives: all it binds but modules that an answer may not import by itself."""
    tree = parsed(source) or ast.Module([], [])
    imported = [alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    barred = {(alias.asname or alias.name).split(".")[0] for alias in imported if alias.name not in MODULES}
    return frozenset(_bindings(tree.body) - barred)


def borrows(source: str, setup: Collection[str]) -> str:
    """What of the course's own library an answer names, in an import or a text, and no set-up cell does; or "".

    Units and their error, in which nothing is computed, are free.
    """
    free = {"course_utils.units"}.union(*(_named(cell) for cell in setup))
    return next((name for name in sorted(_named(source)) if name not in free), "")


def _named(source: str) -> set[str]:
    """Modules of the library that a cell names; where parts are imported, with each part."""
    found: set[str] = set()
    for node in ast.walk(parsed(source) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            within = [] if node.module == "course_utils.units" else [f".{alias.name}" for alias in node.names]
            found |= {f"{node.module}{part}" for part in within or [""]}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value.strip():
            found.add(node.value.strip())
    return {name for name in found if name.split(".")[0] in PACKAGES}


class _Unusual(Exception):
    """Says what is not plain."""


def _own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """These nodes and all in them, without the insides of functions, classes and comprehensions."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _Comprehension):
            waiting += [walrus for walrus in ast.walk(node) if isinstance(walrus, ast.NamedExpr)]
        elif not isinstance(node, _Function | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _bound_by(node: ast.AST) -> str:
    """The name that a node binds by itself, or ""."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            return node.name or ""
        case ast.Name(ctx=ast.Store() | ast.Del()):
            return node.id
        case ast.alias():
            return (node.asname or node.name).split(".")[0]
        case ast.MatchMapping():
            return node.rest or ""
        case ast.arg():
            return node.arg
    return ""


def _bindings(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that a scope with these nodes binds."""
    return {*map(_bound_by, _own_nodes(nodes))} - {""}


def _arguments(function: _Function) -> set[str]:
    return {part.arg for part in ast.iter_child_nodes(function.args) if isinstance(part, ast.arg)}


class _Look(ast.NodeVisitor):
    """Walks through an answer and raises _Unusual at the first thing that is not plain."""

    def __init__(self, known: frozenset[str], taken: frozenset[str], tree: ast.Module) -> None:
        self.known = known
        self.bound = _bindings(tree.body)
        imports = _bindings([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)])
        names = set(map(_bound_by, ast.walk(tree)))
        for name in sorted(names):  # by an assignment a class gets a special method as well
            if name.startswith("__") and name not in DUNDERS:
                raise _Unusual(f"defines `{name}`")
        barred = names & (OTHERS | JUDGES | (taken - known))
        for name in sorted(barred | ((self.bound - imports) & taken)):
            raise _Unusual(f"gives `{name}` another meaning")
        self.scopes: list[set[str]] = []  # of the functions and comprehensions around, the names they bind
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        self.classes = {node.name for node in classes}
        methods = [part for node in classes for part in node.body if isinstance(part, ast.FunctionDef)]
        # What the cell's own classes call by a leading underscore is theirs.
        self.private = {m.name for m in methods if m.name.startswith("_") and not m.name.startswith("__")}
        loads = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        self.private |= {
            node.attr
            for node in loads
            if isinstance(node.ctx, ast.Store) and _is_self(node.value) and not node.attr.startswith("__")
        }
        # Who calls a method by the name of its class might give it anything in place of self.
        self.lent = {n.attr for n in loads if isinstance(n.ctx, ast.Load) and not self._own(n.value)}
        self.lent |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        self.method = ""  # the method around, if its first argument is self

    def _own(self, value: ast.AST | None) -> bool:
        """Whether an expression is self, or super() with nothing but a class of the cell and self."""
        return _is_self(value) or self._is_super(value)

    def _is_super(self, value: ast.AST | None) -> bool:
        if not isinstance(value, ast.Call) or _name(value.func) != "super" or value.keywords:
            return False
        classes = [one for one in value.args[:1] if isinstance(one, ast.Name) and one.id in self.classes]
        return not value.args or (len(value.args) == 2 and bool(classes) and _is_self(value.args[1]))

    # -- names -----------------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        """Names of the cell itself, of the set-up, or harmless built-in ones."""
        name = node.id
        if isinstance(node.ctx, ast.Store) or any(name in scope for scope in self.scopes):
            return
        if name == "getattr" and name not in self.bound and self._plain_getattr(node):
            return
        if name in JUDGES or name not in self.bound | self.known | BUILTINS:
            raise _Unusual(f"uses `{name}`")

    def _plain_getattr(self, node: ast.Name) -> bool:
        match self.parents.get(node):
            case ast.Call(func=function, args=[value, ast.Constant(value=str(name)), *_]) if function is node:
                self._allow_attribute(name, value)
                return True
        return False

    def visit_Global(self, node: ast.Global) -> None:
        """The cell's own."""
        if not self.bound.issuperset(node.names):
            raise _Unusual(f"keeps `{node.names[0]}` from one call to the next")

    # -- attributes and imports ------------------------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """No way out of the answer, no setting of what belongs to others."""
        named = self.parents.get(node)
        of_a_name = node.attr == "__class__" and isinstance(named, ast.Attribute) and named.attr == "__name__"
        read = isinstance(node.ctx, ast.Load)
        if not (read and (node.attr == "__name__" or of_a_name)):
            self._allow_attribute(node.attr, node.value)
        mine = _is_self(node.value) and self.method and self.method not in self.lent
        if not (read or mine or node.attr in SETTABLE):
            raise _Unusual(f"sets `{ast.unparse(node)}`")
        self.generic_visit(node)

    def _allow_attribute(self, name: str, value: ast.AST | None) -> None:
        if (name == "__init__" and self._is_super(value)) or (name in self.private and self._own(value)):
            return
        if name in REACHING or (name.startswith(REACHING_PREFIXES) and name not in SAFE_SETTERS):
            raise _Unusual(f"uses `.{name}`")

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        """A pattern reads the attributes that it names."""
        for name in node.kwd_attrs:
            self._allow_attribute(name, None)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        """Modules for computing."""
        for alias in node.names:
            if alias.name not in MODULES:
                raise _Unusual(f"imports `{alias.name}`")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Parts of modules for computing."""
        module = node.module or ""
        for alias in node.names:
            part = alias.name in PARTS.get(module, ())
            if node.level or alias.name == "*" or not (part or module in MODULES):
                raise _Unusual(f"imports `{alias.name}` from `{module}`")
            if not part:
                self._allow_attribute(alias.name, None)

    # -- functions and classes -------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """A function or a method: a scope of its own."""
        if getattr(node, "type_params", None):
            raise _Unusual("uses type parameters")
        positional = [*node.args.posonlyargs, *node.args.args]
        first = positional[0].arg if positional else ""
        if "self" in (_arguments(node) - {first}) | _bindings(node.body) or (
            node.name == "__init__" and first != "self"
        ):
            raise _Unusual("gives `self` another meaning")
        for outside in (*node.decorator_list, *filter(None, [node.returns]), node.args):
            self.visit(outside)
        before = self.method
        if first == "self":
            self.method = node.name if isinstance(self.parents[node], ast.ClassDef) else ""
        self._within(_arguments(node) | _bindings(node.body), node.body)
        self.method = before

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A scope of its own."""
        if "self" in _arguments(node):
            raise _Unusual("gives `self` another meaning")
        self.visit(node.args)
        self._within(_arguments(node) | _bindings([node.body]), [node.body])

    def _within(self, names: set[str], nodes: Iterable[ast.AST]) -> None:
        """Visit what is in a scope that binds these names."""
        self.scopes.append(names)
        for node in nodes:
            self.visit(node)
        self.scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """No metaclass."""
        if node.keywords or getattr(node, "type_params", None):
            raise _Unusual(f"gives class `{node.name}` a keyword")
        self.generic_visit(node)

    def visit_ListComp(self, node: _Comprehension) -> None:
        """A scope of its own."""
        self._within(_bindings([generator.target for generator in node.generators]), ast.iter_child_nodes(node))

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    # -- changes ---------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        """No change of what is not the cell's own; `super` for a class of its own; `type` of one thing."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in CHANGING:
            self._changes(function.value, ast.unparse(function))
        name = _name(function)
        if name == "super" and not self._is_super(node):
            raise _Unusual("gives `super` arguments")
        if name == "type" and len(node.args) + len(node.keywords) > 1:
            raise _Unusual("makes a class by `type`")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Items may be set in what is the cell's own."""
        if not isinstance(node.ctx, ast.Load):
            self._changes(node.value, ast.unparse(node))
        self.generic_visit(node)

    def _changes(self, target: ast.AST, shown: str) -> None:
        root = target
        while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
            root = root.func if isinstance(root, ast.Call) else root.value
        if isinstance(root, ast.Name) and not any(root.id in names for names in (self.bound, *self.scopes)):
            raise _Unusual(f"changes what outlives the call (`{shown}`)")

    def _odd(self, node: ast.AST) -> None:
        raise _Unusual(f"uses `{type(node).__name__.lower()}`")

    visit_TryStar = visit_AsyncFunctionDef = visit_AsyncFor = visit_AsyncWith = visit_Await = visit_TypeAlias = _odd


def _is_self(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
