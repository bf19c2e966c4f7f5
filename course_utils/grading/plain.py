"""Whether an answer is plain: it cannot reach what judges it, nor behave otherwise when it is looked at again.

What a network is like is judged where its code runs, so code written for that could forge the verdict. The rule lists
what is allowed, and what nobody thought of is not plain. Allowed are: names of the cell itself, of the set-up cells and
some built-in ones; imports for computing; attributes without underscores and without a way to the interpreter; setting
attributes of a network that is made, or that nothing reads; nothing that remembers from one call to the next; where
there are classes, nothing that tells a tensor with values from one without.

It reads text and runs nothing. An answer that is not plain may be right all the same: `mark` holds its points for the
teacher. Must never import torch.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator

BUILTINS = frozenset(
    "abs all any bool callable classmethod complex dict divmod enumerate filter float frozenset int isinstance "
    "issubclass len list map max min object pow print property range repr reversed round set slice sorted staticmethod "
    "str sum super tuple zip Exception AssertionError IndexError KeyError NotImplementedError RuntimeError TypeError "
    "ValueError ZeroDivisionError".split()
)
# For what only has to leave others alone: more of what computes.
OTHER_BUILTINS = BUILTINS | frozenset(
    "bin bytearray bytes chr format hasattr hash hex id iter next oct ord type ArithmeticError LookupError "
    "NameError OverflowError RecursionError StopIteration".split()
)
OTHER_MODULES = frozenset("bisect collections decimal fractions heapq itertools numpy random re statistics".split())
# Modules by name, and of some only a part: others of their functions set something or remember.
MODULES = frozenset(
    "__future__ collections.abc math torch torch.amp torch.autograd.graph torch.nn torch.nn.functional "
    "torch.optim torch.utils.checkpoint typing".split()
)
PARTS = {
    "collections": {"OrderedDict", "namedtuple"},
    "contextlib": {"nullcontext"},
    "copy": {"copy", "deepcopy"},
    "course_utils.units": {"GIB", "KIB", "MIB", "CourseError", "format_bytes"},
    "dataclasses": {"dataclass", "field", "replace"},
    "functools": {"partial", "reduce"},
    "itertools": {*"accumulate batched chain combinations pairwise permutations product zip_longest".split()},
    "torch": {"Tensor", "nn", "optim"},
    "torch.nn": {"functional"},
    "torch.utils": {"checkpoint"},
}
JUDGES = ("check", "checks", "graded")
# Names of attributes that lead to the interpreter, to files, or to what holds for all of torch; modules of the standard
# library stand about in others. `tests/test_plain.py` follows all other attributes of the modules that may be imported.
REACHING = (sys.stdlib_module_names - set("array chunk copy math random select time trace".split())) | frozenset(
    "ag_frame attrgetter bltns classes compile compiler cpp_extension cr_frame ctypeslib data distributed export f2py "
    "f_back f_builtins f_code f_globals f_locals fromfile func fx fx_traceback gi_code gi_frame gi_yieldfrom hub "
    "import_module jit library load memmap methodcaller mp ops overrides package profiler resize_ resize_as_ save "
    "savez serialization stdlib_re tb_frame tb_next testing tofile update_wrapper wraps".split()
)
REACHING_PREFIXES = ("_", "set_", "register_", "cache_")
SAFE_SETTERS = frozenset({"set_grad_enabled"})
# Where there are classes: what tells a network that is run from one that is traced on shapes.
REVEALING = frozenset(
    "cond data_ptr decode device format format_map item layout numpy storage tolist type typename untyped_storage "
    "while_loop".split()
)
REVEALING_PREFIXES = ("get_", "is_")
REVEALS_NOTHING = frozenset({"is_contiguous", "is_floating_point"})
REVEALING_NAMES = frozenset({"float", "np", "numpy", "repr", "str"})
DUNDERS = frozenset("__init__ __call__ __len__ __iter__ __getitem__ __enter__ __exit__ __post_init__".split())
SETTABLE = frozenset({"grad", "inplace", "requires_grad"})  # of any object
CHANGING = frozenset(
    "add append clear discard extend insert move_to_end pop popitem remove reverse setdefault sort update".split()
)
LAZY_CALLS = frozenset({"enumerate", "filter", "map", "reversed", "zip"})
LAZY_METHODS = frozenset(
    "buffers children modules named_buffers named_children named_modules named_parameters parameters".split()
)
CONSUMERS = LAZY_CALLS | frozenset("all any dict frozenset list max min reduce set sorted sum tuple".split())
LAYER_LISTS = frozenset({"nn.ModuleList", "torch.nn.ModuleList"})

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_FRESH = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp)


def unusual(source: str, known: Collection[str], taken: Collection[str] = ()) -> str:
    """The first thing in an answer that is not plain, as the words after "it …", or "".

    Only of such an answer can be told from outside what it is like. `reaches` asks less.

    Args:
        source: the text of the answer cell.
        known: names it may use beside its own: those the set-up cells bind.
        taken: names that it may not bind but by an import: those of the set-up and of other questions.
    """
    return _first_unusual(source, known, taken, alone=False)


def reaches(source: str, known: Collection[str], taken: Collection[str] = ()) -> str:
    """The first thing by which an answer may bend what later ones run in, or ""; arguments as for `unusual`.

    What it remembers by itself, or sees of a tensor, harms no other.
    """
    return _first_unusual(source, known, taken, alone=True)


def _first_unusual(source: str, known: Collection[str], taken: Collection[str], alone: bool) -> str:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "is no plain Python"
    try:
        _Look(frozenset(known), frozenset(taken), tree, alone).visit(tree)
    except _Unusual as found:
        return str(found)
    except RecursionError:
        return "is nested too deeply"
    return ""


def bound_names(source: str) -> frozenset[str]:
    """The names that a cell binds at its top level; none if it is no plain Python."""
    try:
        return frozenset(_bindings(ast.parse(source).body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


class _Unusual(Exception):
    """Says what is not plain."""


def _own_nodes(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """These nodes and all in them, without the insides of functions, classes and comprehensions."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _Comprehension):
            waiting += [walrus for walrus in ast.walk(node) if isinstance(walrus, ast.NamedExpr)]
        elif not isinstance(node, _Function | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _bindings(nodes: Collection[ast.AST]) -> set[str]:
    """The names that a scope with these nodes binds."""
    found: set[str] = set()
    for node in _own_nodes(list(nodes)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
    return found


def _first(function: ast.FunctionDef | ast.Lambda) -> str:
    named = [*function.args.posonlyargs, *function.args.args]
    return named[0].arg if named else ""


def _arguments(function: _Function) -> set[str]:
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return {argument.arg for argument in named if argument is not None}


class _Look(ast.NodeVisitor):
    """Walks through an answer and raises _Unusual at the first thing that is not plain.

    Where it stands `alone`, it may do with what is its own as it likes.
    """

    def __init__(self, known: frozenset[str], taken: frozenset[str], tree: ast.Module, alone: bool) -> None:
        self.known, self.alone = known, alone
        self.modules = MODULES | OTHER_MODULES if alone else MODULES
        self.bound = _bindings(tree.body)
        imports = _bindings([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)])
        for name in sorted((self.bound & {*JUDGES}) | ((self.bound - imports) & taken)):
            raise _Unusual(f"gives `{name}` another meaning")
        self.scopes: list[set[str]] = []  # of the functions and comprehensions around, the names they bind
        self.fresh: list[set[str]] = []  # of them, those that are lists and the like, made here
        self.own: set[str] | None = None  # in an `__init__`, the attributes of self that it makes lists and such
        self.classes = not alone and any(isinstance(node, ast.ClassDef) for node in ast.walk(tree))
        self.inside_forward = False
        loads = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
        self.read = {node.attr for node in loads}
        # Who calls a forward by its name might give it anything in place of self.
        self.forwards = not any(node.attr == "forward" and ast.unparse(node.value) != "super()" for node in loads)
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        constant = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
        lasting = [node for node in tree.body if not isinstance(node, constant) and not _is_constant(node)]
        self.remembering = set() if alone else _bindings(lasting)  # top-level names for more than constants

    @property
    def networks(self) -> bool:
        """Whether a function is around, in a cell that has classes: it may be a part of a network."""
        return self.classes and bool(self.scopes)

    # -- names -----------------------------------------------------------------------------------------------------

    def _where(self, name: str) -> str:
        """Whose name it is: "local", "free" (of a function around), or "global"."""
        for depth, scope in enumerate(reversed(self.scopes)):
            if name in scope:
                return "free" if depth else "local"
        return "global"

    def visit_Name(self, node: ast.Name) -> None:
        """Names of the cell itself, of the set-up, or harmless built-in ones."""
        name = node.id
        if isinstance(node.ctx, ast.Store) or self._where(name) != "global":
            return
        if name in JUDGES or name not in self.bound | self.known | (OTHER_BUILTINS if self.alone else BUILTINS):
            raise _Unusual(f"uses `{name}`")
        if self.scopes and name in self.remembering:
            raise _Unusual(f"keeps `{name}` from one call to the next")
        if self.networks and name in REVEALING_NAMES:
            raise _Unusual(f"looks at values (`{name}`) inside a network")

    def visit_Global(self, node: ast.Global) -> None:
        """Not plain: something is kept from one call to the next, and perhaps not the cell's own."""
        if not self.alone or not self.bound.issuperset(node.names):
            raise _Unusual(f"keeps `{node.names[0]}` from one call to the next")

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        """Plain in a function of functions; in a class something is kept."""
        if self.classes:
            raise _Unusual(f"keeps `{node.names[0]}` from one call to the next")

    # -- attributes and imports ------------------------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """No way out of the answer, no setting of what belongs to others."""
        self._allow_attribute(node.attr, node)
        if not isinstance(node.ctx, ast.Load):
            of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            unread = self.inside_forward and node.attr not in self.read
            if not (of_self and (self.own is not None or unread)) and node.attr not in SETTABLE:
                raise _Unusual(f"sets `{ast.unparse(node)}`")
        self.generic_visit(node)

    def _allow_attribute(self, name: str, node: ast.AST) -> None:
        value = getattr(node, "value", None)
        if name == "__init__" and isinstance(value, ast.Call) and ast.unparse(value) == "super()":
            return
        if name in REACHING or (name.startswith(REACHING_PREFIXES) and name not in SAFE_SETTERS):
            raise _Unusual(f"uses `.{name}`")
        if self.networks and name not in REVEALS_NOTHING:
            parent = self.parents.get(node)
            passed_on = isinstance(parent, ast.keyword) and parent.arg == "device"
            if (name in REVEALING or name.startswith(REVEALING_PREFIXES)) and not passed_on:
                raise _Unusual(f"looks at values or devices (`.{name}`) inside a network")

    def visit_Import(self, node: ast.Import) -> None:
        """Modules for computing."""
        for alias in node.names:
            if alias.name not in self.modules:
                raise _Unusual(f"imports `{alias.name}`")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Parts of modules for computing."""
        module = node.module or ""
        for alias in node.names:
            part = alias.name in PARTS.get(module, ())
            if node.level or alias.name == "*" or not (part or module in self.modules):
                raise _Unusual(f"imports `{alias.name}` from `{module}`")
            if not part:
                self._allow_attribute(alias.name, alias)

    # -- functions and classes -------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """A function or a method: a scope of its own; its defaults may not remember anything."""
        if node.name.startswith("__") and node.name not in DUNDERS:
            raise _Unusual(f"defines `{node.name}`")
        if getattr(node, "type_params", ()):
            raise _Unusual("uses type parameters")
        first = _first(node)
        if "self" in (_arguments(node) - {first}) | _bindings(node.body) or (
            node.name == "__init__" and first != "self"
        ):
            raise _Unusual("gives `self` another meaning")
        for outside in (*node.decorator_list, *filter(None, [node.returns])):
            self.visit(outside)
        self._function(node, node.body, node.name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A scope of its own."""
        self._function(node, [node.body], "lambda")

    def _function(self, node: ast.FunctionDef | ast.Lambda, body: Collection[ast.AST], name: str) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            if not _is_constant(default) and not self.alone:
                self._keeps(default)
            self.visit(default)
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg) and argument.annotation is not None:
                self.visit(argument.annotation)
        before = self.own, self.inside_forward
        in_class = isinstance(self.parents.get(node), ast.ClassDef)
        self.own = _made_of_self(body) if in_class and name == "__init__" else None
        self.inside_forward = in_class and name == "forward" and self.forwards and _first(node) == "self"
        self.scopes.append(_arguments(node) | _bindings(body))
        self.fresh.append(_made_here(body) - _arguments(node))
        for child in body:
            self.visit(child)
        self.scopes.pop()
        self.fresh.pop()
        self.own, self.inside_forward = before

    def _keeps(self, default: ast.AST) -> None:
        """A default that is a name or an attribute is as plain as that; a list would be the same at every call."""
        if not isinstance(default, ast.Name | ast.Attribute):
            raise _Unusual(f"keeps the default `{ast.unparse(default)}` from one call to the next")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Methods, and constants; whatever else a class holds would be shared by all networks."""
        for child in (*node.bases, *node.decorator_list):
            self.visit(child)
        if node.keywords:
            raise _Unusual(f"gives class `{node.name}` a keyword")
        for statement in node.body:
            if not (self.alone or isinstance(statement, ast.FunctionDef) or _is_constant(statement)):
                raise _Unusual(f"keeps something in class `{node.name}`: `{ast.unparse(statement).splitlines()[0]}`")
            self.visit(statement)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        """Lazy: plain where it is used up at once."""
        self._lazy(node)
        self._comprehension(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        """A scope of its own."""
        self._comprehension(node)

    visit_SetComp = visit_DictComp = visit_ListComp  # type: ignore[assignment]

    def _comprehension(self, node: _Comprehension) -> None:
        self.scopes.append(_bindings([generator.target for generator in node.generators]))
        self.fresh.append(set())
        self.generic_visit(node)
        self.scopes.pop()
        self.fresh.pop()

    # -- what remembers --------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        """No change of what outlives the call."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in CHANGING:
            self._changes(function.value, ast.unparse(function))
        name = _name(function)
        if name == "super" and node.args:
            raise _Unusual("gives `super` arguments")
        if self.classes and any(keyword.arg == "out" for keyword in node.keywords):
            raise _Unusual("writes into a tensor by `out=`")
        if name in LAZY_CALLS or (isinstance(function, ast.Attribute) and function.attr in LAZY_METHODS):
            self._lazy(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Items may be set in what was made in the same call."""
        if not isinstance(node.ctx, ast.Load):
            self._changes(node.value, ast.unparse(node))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """`+=` changes a list in place: where there are classes, numbers and lists made in the same call."""
        if self.networks and isinstance(node.target, ast.Name) and node.target.id not in self.fresh[-1]:
            raise _Unusual(f"changes `{node.target.id}` in place")
        self.generic_visit(node)

    def _changes(self, target: ast.AST, shown: str) -> None:
        root = target
        while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
            root = root.func if isinstance(root, ast.Call) else root.value
        if not isinstance(root, ast.Name) or not self.scopes:
            if self.scopes:
                return  # of something without a name: nobody else has it
            if isinstance(root, ast.Name) and root.id in self.bound:
                return  # at the top level, the cell's own
        elif self.own is not None and ast.unparse(target) in self.own:
            return
        elif self._where(root.id) == "global":
            if self.alone and root.id in self.bound:
                return
        elif not self.classes or (isinstance(target, ast.Name) and root.id in self.fresh[-1]):
            return
        raise _Unusual(f"changes what outlives the call (`{shown}`)")

    def _lazy(self, node: ast.AST) -> None:
        """In classes, an iterator kept somewhere would remember how far it is."""
        parent = self.parents.get(node)
        used = isinstance(parent, ast.Starred | ast.For | ast.comprehension)
        if isinstance(parent, ast.Call):
            by = ast.unparse(parent.func)
            used = by in LAYER_LISTS or (by in CONSUMERS - self.bound and self._where(by) == "global")
        if self.networks and not used:
            raise _Unusual(f"keeps an iterator (`{ast.unparse(node)}`)")

    def visit_Try(self, node: ast.Try) -> None:
        """In a network, an error would tell what a tensor is."""
        if self.networks:
            raise _Unusual("catches errors inside a network")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """In a network, a formatted text would tell what a tensor is; a text that stands by itself is a comment."""
        alone = isinstance(self.parents.get(node), ast.Expr)
        if self.networks and not alone and isinstance(node.value, str | bytes) and {*"%{"} & {*str(node.value)}:
            raise _Unusual("looks at values (a text that is filled in) inside a network")

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        """As other texts that are filled in."""
        if self.networks:
            raise _Unusual("looks at values (an f-string) inside a network")
        self.generic_visit(node)

    def _odd(self, node: ast.AST) -> None:
        raise _Unusual(f"uses `{type(node).__name__.lower()}`")

    visit_TryStar = visit_Match = visit_AsyncFunctionDef = visit_AsyncFor = visit_AsyncWith = visit_Await = _odd
    visit_Yield = visit_YieldFrom = visit_TypeAlias = _odd


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_constant(node: ast.AST) -> bool:
    """Whether a statement or an expression holds constants alone, such as a docstring, `N = 3` or `pass`."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return all(isinstance(t, ast.Name) for t in targets) and (node.value is None or _is_constant(node.value))
    if isinstance(node, ast.Expr):
        return _is_constant(node.value)
    plain = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.expr_context, ast.Pass)
    return all(isinstance(part, plain) for part in ast.walk(node))


def _made_here(body: Collection[ast.AST]) -> set[str]:
    """Names that only ever stand for a number, or a list, dict or set, made in this scope."""
    fresh: set[str] = set()
    other: set[str] = set()
    for node in _own_nodes(list(body)):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            pairs = [pair for target in targets for pair in _pairs(target, node.value)]
            for name, value in pairs:
                by_name = isinstance(value, ast.Call) and ast.unparse(value.func) in ("list", "dict", "set")
                made = isinstance(value, (*_FRESH, ast.Constant)) or by_name
                (fresh if made else other).add(name)
    assigned = fresh | other
    return fresh - other - (_bindings(body) - assigned)


def _made_of_self(body: Collection[ast.AST]) -> set[str]:
    """Attributes, such as "self.layers", that an `__init__` assigns a list made there, or an object of a class."""
    found = set()
    for node in _own_nodes(list(body)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("self."):
            by_class = isinstance(node.value, ast.Call) and _name(node.value.func)[:1].isupper()
            if isinstance(node.value, _FRESH) or by_class:
                found.add(ast.unparse(node.targets[0]))
    return found


def _pairs(target: ast.AST, value: ast.AST | None) -> list[tuple[str, ast.AST | None]]:
    """(name, value) of an assignment; a value that is unpacked otherwise than side by side is None."""
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if isinstance(target, ast.Tuple | ast.List):
        values = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else None
        return [pair for i, one in enumerate(target.elts) for pair in _pairs(one, values[i] if values else None)]
    return [("", None)] if not isinstance(target, ast.Starred) else _pairs(target.value, None)
