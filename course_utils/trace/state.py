"""What a step changes besides tensors: attributes of modules, and the containers, counters and caches of its functions.

A step is traced from what was there before the first one, at every batch: a cache that grew at another batch, or a
count of steps, would make it another step. And what belongs to whoever wrote the step is left as it was.
"""

import functools
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from course_utils.trace.copying import ATOMS, LIBRARIES, MODULES_OWN, named

_MUTABLE = (dict, list, set, deque)
_CACHE = type(functools.lru_cache(lambda: None))
_CALLED = (FunctionType, MethodType, functools.partial, _CACHE)
_NUMBERS = (bool, int, float)
_TENSORS_AND_THEIR_OWNERS = (Tensor, nn.Module, Optimizer, type, ModuleType)


class State:
    """A step's surroundings, as they are now, to be put back.

    Args:
        modules: every module by its path.
        functions: those that run in the step, besides the modules' methods.
    """

    def __init__(self, modules: Iterable[tuple[str, nn.Module]], functions: Iterable[Any]) -> None:
        self._modules = [(path, child, dict(vars(child)), dict(child._buffers)) for path, child in modules]
        self._containers: dict[int, tuple[Any, Any]] = {}  # each with its members
        self._objects: list[tuple[Any, dict[str, Any]]] = []  # each with its attributes
        self._cells: dict[int, tuple[str, CellType, Any]] = {}
        self._globals: list[tuple[dict[str, Any], str, Any]] = []  # numbers of files
        self._caches: list[Any] = []
        functions = [*functions]
        for _, _, attributes, _ in self._modules:
            for name, value in attributes.items():
                if type(value) in ATOMS:
                    continue
                if isinstance(value, _CALLED):
                    functions.append(value)
                elif isinstance(value, _MUTABLE) and name not in MODULES_OWN and not name.endswith("_hooks"):
                    self._note_container(value)
        self.functions = list(self._walk([*functions, *_methods(child for _, child, _, _ in self._modules)]))

    def _note_container(self, value: Any) -> None:
        self._containers.setdefault(id(value), (value, value.copy()))

    def _walk(self, waiting: list[Any]) -> Iterator[FunctionType]:
        """Every function within reach, each once; what they name is noted."""
        seen: set[int] = set()
        while waiting:
            value = waiting.pop()
            if id(value) in seen or isinstance(value, _TENSORS_AND_THEIR_OWNERS):
                continue
            seen.add(id(value))
            kind: Any = type(value)
            if isinstance(value, FunctionType):
                yield value
                for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                    self._note_cell(name, cell)
                known = value.__globals__
                for name, one in named(value):
                    waiting.append(one)
                    if type(one) in _NUMBERS and known.get(name) is one:
                        self._globals.append((known, name, one))
            elif isinstance(value, MethodType):
                waiting += [value.__func__, value.__self__]
            elif isinstance(value, functools.partial):
                waiting += [value.func, *value.args, *value.keywords.values()]
            elif isinstance(value, _CACHE):
                self._caches.append(value)
                waiting.append(value.__wrapped__)
            elif isinstance(value, _MUTABLE):
                self._note_container(value)
                waiting += value.values() if isinstance(value, dict) else value
            elif _is_someones(kind) and hasattr(value, "__dict__"):
                self._objects.append((value, dict(vars(value))))
                waiting += [*vars(value).values(), *_of_class(kind)]

    def _note_cell(self, name: str, cell: CellType) -> None:
        try:
            self._cells.setdefault(id(cell), (name, cell, cell.cell_contents))
        except ValueError:  # not filled yet
            return

    def put_back(self) -> None:
        """Let everything be what it was; caches of functions are emptied."""
        for _, child, attributes, buffers in self._modules:
            vars(child).clear()
            vars(child).update(attributes)
            child._buffers.clear()
            child._buffers.update(buffers)
        for one, attributes in self._objects:
            vars(one).clear()
            vars(one).update(attributes)
        for container, members in self._containers.values():
            container.clear()
            (container.extend if isinstance(container, (list, deque)) else container.update)(members)
        for _, cell, contents in self._cells.values():
            cell.cell_contents = contents
        for known, name, number in self._globals:
            known[name] = number
        for cache in self._caches:
            cache.cache_clear()

    def _numbers(self) -> Iterator[tuple[str, str, Any, Any]]:
        """Whose each number that is kept was, its name, what it is and what it was."""
        for path, child, attributes, _ in self._modules:
            now = vars(child)
            yield from ((path, name, now.get(name), n) for name, n in attributes.items() if type(n) in _NUMBERS)
        for one, attributes in self._objects:
            now, kind = vars(one), type(one).__name__
            yield from ((kind, name, now.get(name), n) for name, n in attributes.items() if type(n) in _NUMBERS)
        for container, members in self._containers.values():
            if isinstance(members, dict):
                pairs = ((str(key), n) for key, n in members.items() if type(n) in _NUMBERS)
                yield from (("", key, container.get(key), n) for key, n in pairs)
        yield from (("", name, known[name], n) for known, name, n in self._globals)
        yield from (("", name, cell.cell_contents, n) for name, cell, n in self._cells.values() if type(n) in _NUMBERS)

    def has_counted(self) -> bool:
        """Whether a number is another than at first."""
        return any(now is not before for _, _, now, before in self._numbers())

    def numbers(self) -> dict[str, Any]:
        """The numbers that functions and modules keep, by their names."""
        return {f"{path}.{name}" if path else name: now for path, name, now, _ in self._numbers()}


def _methods(modules: Iterable[nn.Module]) -> list[Any]:
    """What the modules' classes hold, those aside that a library brings."""
    return [function for kind in {type(module) for module in modules} for function in _of_class(kind)]


def _of_class(kind: type) -> list[Any]:
    own = [one for one in kind.__mro__ if _is_someones(one)]
    values = [value for one in own for value in vars(one).values()]
    return [getattr(value, "fget", getattr(value, "__func__", value)) for value in values]


@functools.cache
def _is_someones(kind: Any) -> bool:
    """Whether a class is the learner's or a course's, and no library's."""
    if kind.__module__ in ("builtins", "__main__") or kind.__module__.startswith("course_utils."):
        return bool(kind.__module__ == "__main__")
    path = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return not path.startswith((*LIBRARIES, "<frozen"))
