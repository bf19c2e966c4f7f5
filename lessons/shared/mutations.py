"""What a learner may have thought: each likely change of a right answer's text, with the thought in words.

A term is left out or counted twice, a factor is forgotten, one argument is taken for another, brackets are missing, a
quotient is rounded the other way, a list is cut one place further on. `mutations` gives all such changes of a solution;
each has words that complete "Every result is what comes out …" and name the thought, in the question's own words: its
parameters, names that its text quotes, and what its author calls the other terms. A change of a changed text is two
thoughts at once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

LIKELY, LESS, PAIR = 1, 2, 3  # of several thoughts that give the same results, the first kind is told
FEW = 4  # different values of an argument in all cases: it may be taken for one of them throughout
Change = tuple[str, str, int]  # the text that takes a part's place, the thought, how likely
ROUNDED = {"math.floor": "rounded down", "math.ceil": "rounded up", "round": "rounded to the nearest"}
COMPARED: dict[type[ast.cmpop], tuple[str, str, str]] = {  # as it is, with ties decided otherwise, the other way round
    ast.Lt: ("<", "<=", ">"), ast.LtE: ("<=", "<", ">="), ast.Gt: (">", ">=", "<"), ast.GtE: (">=", ">", "<="),
}  # fmt: skip
OTHER_CALLS = {
    "max": (("min", "the smaller in place of the larger"), ("sum", "the sum in place of the larger")),
    "min": (("max", "the larger in place of the smaller"),),
    "sum": (("max", "the largest in place of the sum"), ("len", "the number in place of the sum")),
    "any": (("all", "all in place of any"),),
    "all": (("any", "any in place of all"),),
}
RETURNED = {
    "[*{}][0]": "first", "[*{}][1]": "second", "[*{}][-1]": "last", "len({})": "number", "sum({})": "sum",
    "max({})": "largest", "min({})": "smallest", "sorted({})": "order", "list({})": "whole",
}  # fmt: skip
OF_LISTS = {
    "{}[1:]": "without the first of {}", "{}[:-1]": "without the last of {}", "{}[:1]": "with the first of {} alone",
    "{}[-1:]": "with the last of {} alone", "{}[::-1]": "with {} from back to front", "sorted({})": "with {} sorted",
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """A changed text, what was thought, and how likely that is."""

    source: str
    words: str
    kind: int = LIKELY


class Words:
    """What the parts of a solution are called.

    Args:
        tree: the solution.
        known: names that its readers know besides its parameters.
        terms: the author's words for other parts of it, by their text; by "left of a + b" for an operand there alone.
    """

    def __init__(self, tree: ast.AST, known: Sequence[str], terms: Mapping[str, str]) -> None:
        own = [one.arg for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for one in node.args.args]
        self.known = list(dict.fromkeys([*own, *known]))
        self.terms = terms
        self.names = {one: terms.get(one, f"`{one}`") for one in [*self.known, *filter(str.isidentifier, terms)]}
        self.values = {
            node.targets[0].id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }

    def parts(self, node: ast.AST, within: tuple[str, ...] = ()) -> list[str]:
        """The names that a part of the text is told by."""
        if (text := ast.unparse(node)) in self.terms:
            return [self.terms[text]]
        if isinstance(node, ast.Name):
            if node.id in self.known:
                return [f"`{node.id}`"]
            inside = self.values.get(node.id) if node.id not in within else None
            return [] if inside is None else self.parts(inside, (*within, node.id))
        if isinstance(node, ast.Constant):
            return [repr(node.value)] if isinstance(node.value, str) else []
        return list(dict.fromkeys(word for one in ast.iter_child_nodes(node) for word in self.parts(one, within)))

    def of(self, node: ast.AST) -> str:
        """What a part of the text is called; "" for what has no name."""
        parts = self.parts(node)
        if not parts or len(parts) > 3:
            return ""
        return parts[0] if len(parts) == 1 else f"the term of {', '.join(parts[:-1])} and {parts[-1]}"

    def side(self, node: ast.BinOp, side: str, number: str = "") -> str:
        """What an operand is called there; a number that has no name goes into the words for one."""
        operand = getattr(node, side)
        said = self.terms.get(f"{side} of {ast.unparse(node)}") or self.of(operand)
        if not said and number and isinstance(operand, ast.Constant) and isinstance(operand.value, int | float):
            return number.format(f"{operand.value:,}") if operand.value > 1 or "added" in number else ""
        return said


def mutations(
    source: str,
    known: Sequence[str],
    terms: Mapping[str, str],
    values: Mapping[str, Sequence[Any]],
    wanted: Callable[[str], bool] = bool,
) -> Iterator[Mutation]:
    """All changes of a solution's text that words are found for.

    Args:
        source: the text.
        known: names that its readers know besides its parameters.
        terms: the author's words for other parts of it; see `Words`.
        values: of each parameter, what the cases give.
        wanted: of these words alone.
    """
    tree = ast.parse(source)
    words = Words(tree, known, terms)
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for one, said, kind in _of_arguments(values, read):
        if wanted(said):
            yield Mutation(_taken(source, one), said, kind)
    for place, node in enumerate(ast.walk(tree)):
        for text, said, kind in _changes(node, words):
            if "  " not in f"{said} " and wanted(said) and (changed := _replaced(source, place, text)):
                yield Mutation(changed, said, kind)
    for text, said in _results(values, words):
        head = source[: source.index(":\n") + 2]
        if wanted(said):
            yield Mutation(f"{head}    return {text}\n", said, LESS)


def _replaced(source: str, place: int, text: str) -> str:
    """The source with a text in the place of one of its nodes, counted as `ast.walk` does; "" if there is none."""
    tree = ast.parse(source)
    node: Any = list(ast.walk(tree))[place]
    try:
        other: Any = ast.parse(text).body[0]
        if not isinstance(node, ast.stmt):
            other = other.value
        node.__class__ = other.__class__
        vars(node).clear()
        vars(node).update(vars(other))
        return ast.unparse(ast.fix_missing_locations(tree))
    except (SyntaxError, IndexError, AttributeError, TypeError):
        return ""


def _changes(node: ast.AST, words: Words) -> Iterator[Change]:
    """Every change that is likely at a node."""
    name, text = words.of, ast.unparse
    match node:
        case ast.BinOp():
            yield from _of_operation(node, words)
        case ast.UnaryOp(op=ast.Not()):
            yield text(node.operand), f"with {name(node)} the other way round", LIKELY
        case ast.UnaryOp(op=ast.USub(), operand=ast.BinOp(op=ast.FloorDiv(), left=above, right=below)):  # rounds up
            yield from _rounded(f"-({text(above)}) / ({text(below)})", name(node) or "the quotient", "math.ceil")
        case ast.Compare(ops=[op], comparators=[right]) if type(op) in COMPARED:
            _, tie, other = COMPARED[type(op)]
            what = " and ".join(filter(None, (name(node.left), name(right))))
            yield f"{text(node.left)} {tie} {text(right)}", f"with a tie between {what} decided the other way", LIKELY
            yield f"{text(node.left)} {other} {text(right)}", f"with {what} compared the other way round", LIKELY
        case ast.BoolOp(values=[one, other]):
            yield text(one), f"without the condition on {name(other)}", LIKELY
            yield text(other), f"without the condition on {name(one)}", LIKELY
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            if (what := words.terms.get(repr(value), "")) and "unit" not in what:
                yield f"{2 * value!r}", f"with twice {what}", LIKELY
                half = value / 2
                yield f"{int(half) if half == int(half) else half!r}", f"with half of {what}", LIKELY
            if value in (1e9, 1e12):
                yield f"2 ** {30 if value == 1e9 else 40}", "with binary units", LIKELY
                yield f"{value / 1000!r}", "with a unit a thousand times too small", LIKELY
            if value == 1024:
                yield "1000", "with decimal units", LIKELY
        case ast.Dict(keys=keys, values=[*values]) if all(isinstance(one, ast.Constant) for one in values):
            given = {text(key): ast.literal_eval(one) for key, one in zip(keys, values, strict=True) if key is not None}
            for by, size in ((-1, "few"), (1, "many")):
                for key in given:
                    moved = {**given, key: given[key] + by}
                    yield _table(moved), f"with one too {size} for {key}", LIKELY
                yield _table({k: n + by for k, n in given.items()}), f"with one too {size} for every entry", LIKELY
        case ast.Call():
            yield from _of_call(node, words)
        case ast.IfExp():
            if (asked := name(node.test)) and not isinstance(node.test, ast.Name):  # else it is an argument's
                for branch in (node.body, node.orelse):
                    yield text(branch), f"with {name(branch) or 'the same'} whatever {asked} is", LIKELY
            if text(node.orelse) == "0":
                yield f"{text(node.body)} if {text(node.test)} else -1", "with -1 in place of 0", LIKELY
        case ast.If(test=test, body=body):
            lines = "\n".join(f"    {line}" for line in "\n".join(map(text, body)).splitlines())
            yield f"if False:\n{lines}", f"without the case that depends on {name(test)}", LIKELY
            match body[0]:
                case ast.Assign(targets=[target], value=ast.BinOp(op=ast.Add(), right=added)) if not node.orelse:
                    always = f"{text(node)}\nelse:\n    {text(target)} = {text(target)} + {text(added)}"
                    yield always, f"with {name(added)} whatever {name(test)} is", LIKELY
        case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper)) if what := name(value):
            begin, end = (text(bound) if bound else "" for bound in (lower, upper))
            for cut in dict.fromkeys((f":{end}", f"{begin}:")):
                if cut != f"{begin}:{end}":
                    yield f"{text(value)}[{cut}]", f"with all of {what} where a part is meant", LIKELY
            for shift, where in (("+ 1", "further on"), ("- 1", "earlier")):
                for cut in ([f"{begin} {shift}:{end}"] if begin else []) + ([f"{begin}:{end} {shift}"] if end else []):
                    yield f"{text(value)}[{cut}]", f"with {what} cut one place {where}", LIKELY
        case ast.Subscript() if what := name(node.value):
            for shift, where in (("+ 1", "further on"), ("- 1", "earlier")):
                entry = f"{text(node.value)}[{text(node.slice)} {shift}]"
                yield entry, f"with the entry of {what} one place {where}", LESS
        case ast.ListComp() | ast.GeneratorExp() | ast.DictComp():
            for test in (test for each in node.generators for test in each.ifs):
                yield text(node).replace(f" if {text(test)}", ""), f"without the condition on {name(test)}", LIKELY
        case ast.AugAssign(op=ast.Add(), target=target, value=value):
            yield f"{text(target)} += 0", f"without {name(value)}", LIKELY
            yield f"{text(target)} += 2 * ({text(value)})", f"with {name(value)} counted twice", LIKELY
            yield f"{text(target)} = {text(value)}", f"with the last of {name(value)} in place of the sum", LIKELY
        case ast.Return(value=ast.expr() as value):
            yield from ((f"return {new}", said, kind) for new, said, kind in _of_result(value, words))
        case ast.Name(ctx=ast.Load()) if what := name(node):
            for other, said in words.names.items():
                if other != node.id:
                    yield other, f"with {said} in place of {what} in one place", LESS


def _of_operation(node: ast.BinOp, words: Words) -> Iterator[Change]:
    a, b = f"({ast.unparse(node.left)})", f"({ast.unparse(node.right)})"
    left, right, name = words.side(node, "left"), words.side(node, "right"), words.of
    match node.op:
        case ast.Add() | ast.Sub():
            sign, other = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
            taken = "subtracted in place of added" if sign == "+" else "added in place of subtracted"
            first, last = (words.side(node, side, "the {} that is added") for side in ("left", "right"))
            yield f"{a} {other} {b}", f"with {right} {taken}", LIKELY
            yield a, f"without {last}", LIKELY
            if sign == "+":
                yield b, f"without {first}", LIKELY
                yield f"{a} * {b}", f"with {left} and {right} multiplied in place of added", LIKELY
            else:
                yield b, f"with {right} alone in place of the difference", LIKELY
                yield f"{b} - {a}", f"with {left} and {right} exchanged in their difference", LIKELY
            for text, said in ((f"2 * {a} {sign} {b}", first), (f"{a} {sign} 2 * {b}", last)):
                yield text, f"with {said} counted twice", LIKELY
            for text, said in ((f"{a} / 2 {sign} {b}", first), (f"{a} {sign} {b} / 2", last)):
                yield text, f"with half of {said}", LESS
            for beside, over, what in ((a, node.right, left), (b, node.left, right)):
                match over:
                    case ast.Call(func=ast.Name(id="max"), args=[one, two]):
                        for alone, rest in ((one, two), (two, one)):
                            text = f"max({beside} + {ast.unparse(alone)}, {ast.unparse(rest)})"
                            yield text, f"with {what} added to {name(alone)} alone", LIKELY
            match (node.left, node.right):
                case (ast.BinOp(op=ast.Pow(), left=one), ast.BinOp(op=ast.Pow(), left=two)) if sign == "-":
                    difference = f"({ast.unparse(one)} - {ast.unparse(two)})"
                    yield f"{difference} ** 2", "with the square of a difference in place of one of squares", LIKELY
                    yield difference, "without the squares", LIKELY
        case ast.Mult():
            yield f"{a} + {b}", f"with {left} and {right} added in place of multiplied", LIKELY
            yield f"{a} / {b}", f"with a division by {right}", LIKELY
            for kept, side, other in ((b, "left", right), (a, "right", left)):
                factor = getattr(node, side)
                once = isinstance(factor, ast.Constant) and factor.value == 2 and not words.side(node, side)
                if isinstance(factor, ast.Constant) and isinstance(factor.value, int) and words.side(node, side):
                    yield f"{kept} * {2 * factor.value}", f"with twice {words.side(node, side)}", LIKELY
                without = f"without {words.side(node, side, 'a factor of {}')}"
                yield kept, f"with {other} counted once" if once and other else without, LIKELY
            factors = _factors(node)
            for i, one in enumerate(factors):
                if not isinstance(one, ast.Constant):
                    yield f"{a} * {b} * ({ast.unparse(one)})", f"with {name(one)} squared", LESS
                for j, two in enumerate(factors[:i]):
                    others = [f"({ast.unparse(each)})" for k, each in enumerate(factors) if k not in (i, j)]
                    if others and name(one) and name(two):
                        text = " * ".join((f"({ast.unparse(two)} + {ast.unparse(one)})", *others))
                        yield text, f"with {name(two)} and {name(one)} added in place of multiplied", LESS
        case ast.Div() | ast.FloorDiv():
            below = words.side(node, "right", "{}")
            yield a, f"without the division by {below}", LIKELY
            yield f"{a} * {b}", f"with a multiplication by {right} in place of the division", LIKELY
            yield f"{a} - {b}", f"with {right} subtracted from {left} in place of dividing", LIKELY
            yield f"{b} / {a}", f"with {left} divided by {right} the other way round", LIKELY
            if not isinstance(node.left, ast.Constant):
                yield f"1 / {b}", f"without {left}", LIKELY
                yield "1", f"with 1 in place of {name(node)}", LESS
            if isinstance(node.op, ast.FloorDiv):
                yield from _rounded(f"{a} / {b}", name(node) or "the quotient", "math.floor")
            else:
                yield f"{a} // {b}", f"with the quotient of {left} and {right} rounded down", LIKELY
        case ast.Pow():
            if b == "(2)":
                yield a, f"with {left} not squared", LIKELY
                yield f"2 * {a}", f"with {left} doubled in place of squared", LIKELY
                match node.left:
                    case ast.BinOp(op=ast.Div(), left=above, right=under):
                        text = f"({ast.unparse(above)}) / ({ast.unparse(under)}) ** 2"
                        yield text, f"with the square of {name(under)} alone", LIKELY
            elif (a, b) == ("(10)", "(9)"):
                yield "2 ** 30", "with binary units", LIKELY
            elif isinstance(node.left, ast.Constant):
                yield b, f"with {right} in place of its power of {node.left.value!r}", LIKELY
    if isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
        yield from _without_brackets(node, words)


def _without_brackets(node: ast.BinOp, words: Words) -> Iterator[Change]:
    op = {ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//"}[type(node.op)]
    for inner, other, first in ((node.left, node.right, True), (node.right, node.left, False)):
        match inner:
            case ast.BinOp(op=ast.Add() | ast.Sub(), left=one, right=two):
                sign = "+" if isinstance(inner.op, ast.Add) else "-"
                a, b, c = (f"({ast.unparse(part)})" for part in (one, two, other))
                names = (words.side(inner, "left"), words.side(inner, "right", "{}"))
                said = f"without the brackets around {' and '.join(filter(None, names))}"
                if first:
                    yield from (
                        (text, said, LIKELY) for text in (f"{a} {sign} {b} {op} {c}", f"{a} {op} {c} {sign} {b}")
                    )
                else:
                    yield f"{c} {op} {a} {sign} {b}", said, LIKELY


def _of_call(node: ast.Call, words: Words) -> Iterator[Change]:
    called, given = ast.unparse(node.func), ", ".join(map(ast.unparse, node.args))
    what = " and ".join(filter(None, map(words.of, node.args[:2])))
    if called in ROUNDED:
        yield from _rounded(given, what or "the quotient", called)
    for other, said in OTHER_CALLS.get(called, ()):
        if not node.keywords:
            several = other == "sum" and len(node.args) > 1
            yield f"sum([{given}])" if several else f"{other}({given})", f"with {said} of {what}", LIKELY
    match node:
        case ast.Call(func=ast.Name(id="min" | "max"), args=[one, two], keywords=[]):
            for kept, left_out in ((one, two), (two, one)):
                said = "the rule that nothing is below 0" if ast.unparse(left_out) == "0" else words.of(left_out)
                yield ast.unparse(kept), f"without {said}", LIKELY
        case ast.Call(func=ast.Name(id="sorted"), args=[one]):
            yield f"list({ast.unparse(one)})", "without sorting", LIKELY
            yield f"{ast.unparse(node)}[::-1]", "with the order the other way round", LIKELY
            yield f"sorted({ast.unparse(one)})", "with another order", LESS
        case ast.Call(func=ast.Name(id="range")):
            for by, size in (("+ 1", "many"), ("- 1", "few")):
                yield f"{ast.unparse(node)[:-1]} {by})", f"with one round too {size}", LESS


def _rounded(quotient: str, what: str, now: str) -> Iterator[Change]:
    """A quotient that is rounded in one way rounded in the others, or not."""
    yield quotient, f"without rounding {what}", LIKELY
    for call, said in ROUNDED.items():
        if call != now:
            yield f"{call}({quotient})", f"with {what} {said}", LIKELY
    yield f"math.floor({quotient} + 0.5)", f"with {what} rounded to the nearest", LIKELY
    if now != "math.floor":
        yield f"math.floor({quotient}) + 1", f"with {what} rounded down and one added", LIKELY


def _of_result(value: ast.expr, words: Words) -> Iterator[Change]:
    text = ast.unparse(value)
    yield from ((f"{call}({text})", f"with the result {said}", LIKELY) for call, said in ROUNDED.items())
    yield f"max(0, {text})", "with 0 for whatever is below 0", LIKELY
    yield f"abs({text})", "without the sign", LIKELY
    yield f"1 / ({text})", "upside down", LIKELY
    yield f"1 - ({text})", "with 1 minus the result", LIKELY
    if text == "0":
        yield "-1", "with -1 in place of 0", LIKELY
    yield from (
        (local, f"with {words.terms[local]} as the answer", LESS) for local in words.values if local in words.terms
    )
    match value:
        case ast.Tuple(elts=[one, two]) | ast.List(elts=[one, two]):
            yield f"{ast.unparse(two)}, {ast.unparse(one)}", "with the two results exchanged", LIKELY


def _of_arguments(values: Mapping[str, Sequence[Any]], read: Set[str]) -> Iterator[tuple[dict[str, str], str, int]]:
    """Arguments left out, taken for one another, or for the same throughout; `read` are those that matter."""

    def number(one: str) -> bool:
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values[one])

    for one, given in values.items():
        if number(one):
            yield {one: "1"}, f"without `{one}`", LIKELY
            yield {one: "0"}, f"with `{one}` taken as 0", LESS
            if all(0 <= value < 1 for value in given):
                yield {one: f"({one} / 100)"}, f"with `{one}` taken as per cent", LIKELY
                yield {one: f"(100 * {one})"}, f"with `{one}` in per cent", LIKELY
        different = list({repr(value): value for value in given}.values())
        if len(different) <= FEW < len(given) and all(isinstance(value, str | bool | int) for value in different):
            small = [value for value in different if not isinstance(value, int) or value < 10]
            yield from (({one: repr(value)}, f"with `{one}` always {value!r}", LIKELY) for value in small)
        if all(isinstance(value, list) for value in given):
            yield from (({one: text.format(one)}, said.format(f"`{one}`"), LIKELY) for text, said in OF_LISTS.items())
        for other in values:
            if other != one and number(one) == number(other) and not isinstance(given[0], str | bool):
                yield {one: other}, f"with `{other}` in place of `{one}`", LESS
                if one < other and {one, other} <= read:
                    yield {one: other, other: one}, f"with `{one}` and `{other}` exchanged", LIKELY


def _results(values: Mapping[str, Sequence[Any]], words: Words) -> Iterator[tuple[str, str]]:
    """An argument, or a part of one, for the whole answer."""
    for one, given in values.items():
        if all(isinstance(value, int | float) for value in given):
            yield one, f"with `{one}` as the answer"
        if all(isinstance(value, list | dict) for value in given):
            yield from (
                (text.format(one), f"with the {what} of `{one}` as the answer") for text, what in RETURNED.items()
            )


def _taken(source: str, others: Mapping[str, str]) -> str:
    """The text with something else wherever these arguments are read."""

    class Taken(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            read = isinstance(node.ctx, ast.Load) and node.id in others
            return ast.parse(others[node.id], mode="eval").body if read else node

    return ast.unparse(Taken().visit(ast.parse(source)))


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _table(values: Mapping[str, Any]) -> str:
    return f"{{{', '.join(f'{key}: {value!r}' for key, value in values.items())}}}"
