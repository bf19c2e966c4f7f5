"""Calls all that some modules of the library offer on the inputs of an exercise's questions, in a process of its own.

    python tests/reachable.py TOPIC MODULE ...

prints a line of JSON for each callable whose results are right: the question and its name.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import io
import itertools
import json
import os
import random
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from classroom import PACKAGES
from classroom.questions.core import equal
from classroom.questions.functions import Check
from classroom.questions.graded import Graded

SECONDS = 0.05  # of the processor for one call
MOST_ORDERS = 6  # of its arguments
MEMORY = 4 * 2**30  # bytes of address space
REFUSED = (
    "subprocess.", "os.fork", "os.exec", "os.posix_spawn", "os.system", "os.kill", "os.remove", "os.rename", "os.mkdir",
    "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "shutil.", "socket.", "tempfile.", "webbrowser.",
)  # fmt: skip
Found = tuple[str, Callable[..., Any]]


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Let nothing that is tried start or change anything outside of this process."""
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if event.startswith(REFUSED) or writes:
        raise PermissionError(event)


CALLING = [False]


def too_long(*_: object) -> None:
    if CALLING[0]:  # Python may hear of a signal only after the call that it was to end
        raise TimeoutError


def offered(module: str) -> Iterator[Found]:
    """What a module offers: functions, classes, methods, also of its objects, and what is in its lists."""
    for name, value in list(vars(importlib.import_module(module)).items()):
        parts = list(value.items()) if isinstance(value, dict) else []
        parts = list(enumerate(value)) if isinstance(value, list | tuple) else parts
        for key, one in [(None, value), *parts]:
            shown = f"{module}.{name}" if key is None else f"{module}.{name}[{key!r}]"
            ours = getattr(one, "__module__", "") == module
            if callable(one) and ours:
                yield shown, one
            if isinstance(one, type) and ours:
                for own_name in [own_name for own_name in vars(one) if not own_name.startswith("__")]:
                    yield from of_an_object(shown, one, own_name)
            elif str(getattr(type(one), "__module__", "")).split(".")[0] in PACKAGES:
                methods = [method for method in dir(type(one)) if not method.startswith("__")]
                methods += vars(one) if hasattr(one, "__dict__") else []
                yield from ((f"{shown}.{m}", getattr(one, m)) for m in methods if callable(getattr(one, m, None)))


def of_an_object(shown: str, kind: type, name: str) -> Iterator[Found]:
    """An attribute of a class that can be called, or of objects made from the first arguments, called with the rest."""
    static = inspect.getattr_static(kind, name)
    if isinstance(static, staticmethod | classmethod):
        yield f"{shown}.{name}", getattr(kind, name)
    elif callable(static):
        for count in range(3):
            yield f"{shown}(…{count}).{name}", lambda *a, n=count: getattr(kind(*a[:n]), name)(*a[n:])
    else:
        yield f"{shown}(…).{name}", lambda *a: getattr(kind(*a), name)


def result(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What a call gives; itself an error if it raises one, or takes too long."""
    CALLING[0] = True
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 50 * SECONDS)
    try:
        return function(*copy.deepcopy(arguments))
    except BaseException as error:  # noqa: BLE001 - whatever there is in a library
        return error
    finally:
        CALLING[0] = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def fits(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True


def orders(arguments: tuple[Any, ...]) -> Iterator[tuple[int, ...]]:
    """Orders of a few arguments, the given one first; of many, that alone."""
    return itertools.islice(itertools.permutations(range(len(arguments))), MOST_ORDERS)


def ordered(arguments: tuple[Any, ...], order: tuple[int, ...]) -> tuple[Any, ...]:
    """Arguments in another order; those that it does not name stay behind."""
    return (*(arguments[i] for i in order), *arguments[len(order) :])


def equals(
    function: Callable[..., Any], cases: list[tuple[Any, ...]], truth: list[Any], order: tuple[int, ...], slow: set[int]
) -> bool:
    """Whether a callable is right for all cases, with arguments in this order; the first case decides most."""
    for case, right in zip(cases, truth, strict=True):
        try:
            got = result(function, ordered(case, order))
            if isinstance(got, TimeoutError):
                slow.add(id(function))
            if not equal(got, right):
                return False
        except Exception:  # noqa: BLE001 - a result that cannot be compared
            return False
    return True


def scan(check: Check, graded: Graded, known: list[Found], slow: set[int]) -> Iterator[dict[str, Any]]:
    """What of all this is a right answer."""
    cases = [*graded.draw(random.Random("reachable")), *check.cases]
    truth = [check.reference(*copy.deepcopy(case)) for case in cases]
    for name, function in known:
        for order in orders(cases[0]):
            if id(function) in slow or not fits(function, ordered(cases[0], order)):
                break
            if not equals(function, cases, truth, order, slow):
                continue
            yield {"question": check.question, "name": name}
            break


def main(topic: str, modules: list[str]) -> None:
    checks, graded = (importlib.import_module(f"lessons.{topic}.{room}") for room in ("checks", "graded"))
    questions = [value for value in vars(checks).values() if isinstance(value, Check)]
    known = [found for module in modules for found in offered(module)]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, too_long)
    sys.addaudithook(refuse)
    slow = set[int]()  # what was once too slow to be tried again
    with contextlib.redirect_stdout(io.StringIO()):  # some of what is tried prints
        found = [one for check in questions for one in scan(check, getattr(graded, check.question), known, slow)]
    sys.__stdout__.write("".join(f"{json.dumps(one)}\n" for one in [{"tried": len(known), "slow": len(slow)}, *found]))  # type: ignore[union-attr]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2:])
