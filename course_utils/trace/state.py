"""What a step changes besides tensors: attributes of modules, and the containers, counters and caches of its functions.

A step is traced from what was there before the first one, at every batch: a cache that grew at another batch, or a
count of steps, would make it another step. And what belongs to whoever wrote the step is left as it was.
"""

import functools
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from course_utils.trace.copying import LIBRARIES, MODULES_OWN, named

_CACHE = type(functools.lru_cache(lambda: None))
_CALLED = (FunctionType, MethodType, functools.partial, _CACHE)
_DICTS, _LISTS = (dict, OrderedDict, defaultdict, Counter), (list, set, deque)  # no kinds of them, which may be frozen
_OF_MODULES = ("_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_NUMBERS = (bool, int, float)
_CONTAINERS = frozenset((*_DICTS, *_LISTS))
_OF_TENSORS = (Tensor, nn.Module, Optimizer, type, ModuleType)


class State:
    """A step's surroundings: modules as they are now, all else as it is at each `look`, to be put back.

    Args:
        modules: every module by its path.
        functions: those that run in the step, besides the modules' methods.

    Attributes:
        functions: all functions that the step may run, those aside that a library brings.
    """

    def __init__(self, modules: Iterable[tuple[str, nn.Module]], functions: Iterable[Any]) -> None:
        self._dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []  # each, and what is in it
        self._made_anew: list[tuple[dict[str, Any], str]] = []  # containers that are attributes of modules
        self._in_dicts: list[tuple[str, dict[Any, Any], Any, Any]] = []  # numbers: whose, where, its name, and each
        shared: dict[int, Any] = {}  # copies of containers that modules hold
        waiting: list[Any] = [*functions]
        kinds: set[type] = set()
        for path, child in modules:
            held = vars(child)
            before = self._note(path, held)
            self._dicts += [(held[name], held[name].copy()) for name in _OF_MODULES]
            kinds.add(type(child))
            for name, value in held.items():
                kind = type(value)
                if kind in _CALLED:
                    waiting.append(value)
                elif kind in _CONTAINERS and name not in MODULES_OWN and not name.endswith("_hooks"):
                    before[name] = shared.setdefault(id(value), value.copy())  # itself would hold what is put into it
                    self._made_anew.append((held, name))
                    waiting += value.values() if isinstance(value, dict) else value
        self._roots, self._kinds = waiting, kinds
        self._of_modules = len(self._dicts), len(self._in_dicts)
        self.look()

    def look(self) -> None:
        """Note what the step reaches besides modules: its owner may have changed it since."""
        dicts, numbers = self._of_modules
        del self._dicts[dicts:], self._in_dicts[numbers:]
        self._lists: list[tuple[Any, Any]] = []
        self._cells: dict[int, tuple[str, CellType, Any]] = {}
        self._globals: list[tuple[dict[str, Any], str, Any]] = []  # what files name, and functions may name anew
        self._classes: list[tuple[type, dict[str, Any]]] = []
        self._caches: list[Any] = []
        of_classes = [value for kind in self._kinds for value in self._of_class(kind)]
        self.functions = list(self._walk([*self._roots, *of_classes]))

    def _note(self, whose: str, held: dict[Any, Any]) -> dict[Any, Any]:
        before = held.copy()
        self._dicts.append((held, before))
        self._in_dicts += [(whose, held, name, n) for name, n in held.items() if type(n) in _NUMBERS]
        return before

    def _walk(self, waiting: list[Any]) -> Iterator[FunctionType]:
        """Every function within reach, each once; what they name is noted."""
        seen: set[int] = set()
        while waiting:
            value = waiting.pop()
            if id(value) in seen or isinstance(value, _OF_TENSORS):
                continue
            seen.add(id(value))
            kind: Any = type(value)
            if isinstance(value, FunctionType):
                yield value
                waiting += self._note_names(value)
            elif isinstance(value, MethodType):
                waiting += [value.__func__, value.__self__]
            elif isinstance(value, functools.partial):
                waiting += [value.func, *value.args, *value.keywords.values()]
            elif isinstance(value, _CACHE):
                self._caches.append(value)
                waiting.append(value.__wrapped__)
            elif kind in _DICTS:
                self._note("", value)
                waiting += value.values()
            elif kind in _LISTS:
                self._lists.append((value, value.copy()))
                waiting += value
            elif _is_someones(kind) and hasattr(value, "__dict__"):
                self._note(kind.__name__, vars(value))
                waiting += [*vars(value).values(), *self._of_class(kind)]

    def _note_names(self, function: FunctionType) -> list[Any]:
        """What a function names; its counters are noted."""
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                self._cells.setdefault(id(cell), (name, cell, cell.cell_contents))
            except ValueError:  # not filled yet
                continue
        names, known = list(named(function)), function.__globals__
        self._globals += [(known, name, one) for name, one in names if name in known and known[name] is one]
        return [one for _, one in names]

    def _of_class(self, kind: type) -> list[Any]:
        """What a class holds, and those that it is made from: methods, containers; what a library brings aside."""
        own = [(one, dict(vars(one))) for one in kind.__mro__ if _is_someones(one)]
        self._classes += own
        values = [value for _, attributes in own for value in attributes.values()]
        return [getattr(value, "fget", getattr(value, "__func__", value)) for value in values]

    def put_back(self) -> None:
        """Let everything be what it was; caches of functions are emptied."""
        for one, members in self._dicts:
            if one or members:  # most of a module's are empty
                one.clear()
                one.update(members)
        anew: dict[int, Any] = {}  # one for those that several modules share
        for held, name in self._made_anew:
            held[name] = anew.setdefault(id(held[name]), held[name].copy())
        for one, members in self._lists:
            one.clear()
            (one.update if isinstance(one, set) else one.extend)(members)
        for _, cell, contents in self._cells.values():
            cell.cell_contents = contents
        for known, name, value in self._globals:
            known[name] = value
        for kind, attributes in self._classes:
            changed = [name for name, value in vars(kind).items() if attributes.get(name) is not value]
            for name in changed:
                setattr(kind, name, attributes[name]) if name in attributes else delattr(kind, name)
        for cache in self._caches:
            cache.cache_clear()

    def _numbers(self) -> Iterator[tuple[str, Any, Any, Any]]:
        """Whose each number that is kept was, its name, what it is and what it was."""
        yield from ((whose, name, held.get(name), n) for whose, held, name, n in self._in_dicts)
        yield from (("", name, known[name], n) for known, name, n in self._globals if type(n) in _NUMBERS)
        for kind, attributes in self._classes:
            numbers = ((name, n) for name, n in attributes.items() if type(n) in _NUMBERS)
            yield from ((kind.__name__, name, getattr(kind, name), n) for name, n in numbers)
        yield from (("", name, cell.cell_contents, n) for name, cell, n in self._cells.values() if type(n) in _NUMBERS)

    def has_counted(self) -> bool:
        """Whether a number is another than at first."""
        return any(now is not before for _, _, now, before in self._numbers())

    def numbers(self) -> dict[str, Any]:
        """The numbers that functions and modules keep, by their names."""
        return {f"{whose}.{name}" if whose else str(name): now for whose, name, now, _ in self._numbers()}


@functools.cache
def _is_someones(kind: Any) -> bool:
    """Whether a class is the learner's or a course's, and no library's."""
    if kind.__module__ in ("builtins", "__main__") or kind.__module__.startswith("course_utils."):
        return bool(kind.__module__ == "__main__")
    path = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return not path.startswith((*LIBRARIES, "<frozen"))
