"""Wrong answers that nobody thought of: a right answer with one or two things changed.

Learners leave out a term, take one argument for another, are off by one, round, or compare with `<` for `<=`. Each such
change of a right answer's text is a mutant. A question's inputs are good if they tell from the truth every mutant that
anything tells from it.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator

OTHER_OPERATORS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub, ast.Mult), ast.Sub: (ast.Add,), ast.Mult: (ast.Div, ast.Add), ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div,), ast.Mod: (ast.FloorDiv,), ast.Pow: (ast.Mult,), ast.LShift: (ast.RShift,),
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.And: (ast.Or,), ast.Or: (ast.And,),
}  # fmt: skip
OTHER_FUNCTIONS = {
    "min": ("max",), "max": ("min", "sum"), "sum": ("max", "len"), "floor": ("ceil",), "ceil": ("floor",),
    "any": ("all",), "all": ("any",), "sorted": ("list",), "round": ("int",),
}  # fmt: skip
Edit = Callable[[ast.AST], None]  # made in place, in a copy of the tree


def mutants(source: str, most: int, seed: int = 0) -> list[str]:
    """Texts with one change, all there are, and then with two, at random, until there are `most`, or no more."""
    tree = ast.parse(source)
    places = [(place, edit) for place, node in enumerate(ast.walk(tree)) for edit in _edits(node, tree)]
    texts = dict.fromkeys(text for place, edit in places if (text := _edited(tree, [(place, edit)])))
    texts.pop(ast.unparse(tree), None)
    draw = random.Random(seed)
    for _ in range(4 * most):
        if len(texts) >= most or len(places) < 2:
            break
        if text := _edited(tree, draw.sample(places, 2)):
            texts[text] = None
    texts.pop(ast.unparse(tree), None)
    return list(texts)[:most]


def _edited(tree: ast.AST, edits: list[tuple[int, Edit]]) -> str:
    """The text after these edits; "" if they leave none that compiles."""
    changed = copy.deepcopy(tree)
    nodes = list(ast.walk(changed))
    try:
        for place, edit in edits:
            edit(nodes[place])
        text = ast.unparse(ast.fix_missing_locations(changed))
        compile(text, "mutant", "exec")
    except (SyntaxError, ValueError, LookupError, AttributeError, TypeError):  # the second's place is gone
        return ""
    return text


def _edits(node: ast.AST, tree: ast.AST) -> Iterator[Edit]:
    """Every change that can be made at a node."""
    if isinstance(node, ast.BinOp):
        yield from (_put(op=other()) for other in OTHER_OPERATORS.get(type(node.op), ()))
        yield from (lambda n: _become(n, n.left), lambda n: _become(n, n.right))
        if isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Mod | ast.Pow):
            yield _swap_operands
    elif isinstance(node, ast.UnaryOp):
        yield lambda n: _become(n, n.operand)
    elif isinstance(node, ast.BoolOp):
        yield from (_put(op=other()) for other in OTHER_OPERATORS[type(node.op)])
        for i in range(len(node.values)):
            yield lambda n, i=i: _become(n, n.values[i])
    elif isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in OTHER_OPERATORS.get(type(op), ()):
                yield lambda n, i=i, other=other: n.ops.__setitem__(i, other())
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield _put(value=not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        number = node.value
        yield from (_put(value=other) for other in {number + 1, number - 1, 2 * number, number / 2, 0, 1})
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for other in OTHER_FUNCTIONS.get(name, ()):
            key = "attr" if isinstance(node.func, ast.Attribute) else "id"
            yield lambda n, key=key, other=other: setattr(n.func, key, other)
        for i in range(len(node.args)):
            yield lambda n, i=i: _become(n, n.args[i])
            if len(node.args) > 1:
                yield lambda n, i=i: n.args.pop(i)
        if name == "range":
            yield from (lambda n: _more(n, 1), lambda n: _more(n, -1))
        for i in range(len(node.keywords)):
            yield lambda n, i=i: n.keywords.pop(i)
    elif isinstance(node, ast.IfExp):
        yield from (lambda n: _become(n, n.body), lambda n: _become(n, n.orelse))
    elif isinstance(node, ast.Slice):
        yield from (_put(lower=None), _put(upper=None), _put(step=None))
    elif isinstance(node, ast.comprehension):
        for i in range(len(node.ifs)):
            yield lambda n, i=i: n.ifs.pop(i)
    elif isinstance(node, ast.If | ast.While):
        yield from (_put(test=ast.Constant(False)), lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test)))
    elif isinstance(node, ast.Return) and node.value is not None:
        for name in ("int", "round", "abs"):
            yield lambda n, name=name: setattr(n, "value", ast.Call(ast.Name(name), [n.value], []))
        yield lambda n: setattr(n, "value", ast.Call(ast.Name("max"), [ast.Constant(0), n.value], []))
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield from (_put(id=other) for other in _parameters(tree) if node.id in _parameters(tree) and other != node.id)
    for body in ("body", "orelse"):
        statements = getattr(node, body, None)
        if isinstance(statements, list) and len(statements) > 1:
            for i in range(len(statements)):
                yield lambda n, i=i, body=body: getattr(n, body).pop(i)


def _put(**fields: object) -> Edit:
    def edit(node: ast.AST) -> None:
        for name, value in fields.items():
            setattr(node, name, value)

    return edit


def _become(node: ast.AST, other: ast.AST) -> None:
    """Put another node in the place of this one, which everything above refers to."""
    node.__class__ = other.__class__  # type: ignore[assignment]
    vars(node).clear()
    vars(node).update(vars(other))


def _swap_operands(node: ast.AST) -> None:
    if not isinstance(node, ast.BinOp):
        raise TypeError
    node.left, node.right = node.right, node.left


def _more(node: ast.AST, by: int) -> None:
    if not isinstance(node, ast.Call):
        raise TypeError
    last = min(len(node.args), 2) - 1
    node.args[last] = ast.BinOp(node.args[last], ast.Add(), ast.Constant(by))


def _parameters(tree: ast.AST) -> list[str]:
    return list(dict.fromkeys(a.arg for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) for a in n.args.args))
