"""What a step changes besides tensors: attributes of modules, and the containers, counters and caches of its functions.

A step is traced from what was there before the first one, at every batch: a cache that grew at another batch, or a
count of steps, would make it another step. And what belongs to whoever wrote the step is left as it was.
"""

import copyreg
import functools
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from enum import Enum
from operator import is_
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from course_utils.trace.copying import LIBRARIES, MODULES_OWN, named

_CACHE = type(functools.lru_cache(lambda: None))
_CALLED = (FunctionType, MethodType, functools.partial, _CACHE)
_DICTS, _LISTS = (dict, OrderedDict, defaultdict, Counter), (list, set, deque)  # no kinds of them, which may be frozen
_OF_MODULES = ("_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CONTAINERS = frozenset((*_DICTS, *_LISTS))
_OF_TENSORS = (Tensor, nn.Module, Optimizer, type, ModuleType)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
_PLAIN = (bool, int, float, str, bytes, type(None), Enum, torch.dtype, torch.device)
_COUNTERS = 64  # elements up to which an array may be one

Named = tuple[str, Any]


class State:
    """A step's surroundings: modules as they are now, all else as it is at each `look`, to be put back.

    Args:
        modules: every module by its path.
        functions: those that run in the step, besides the modules' methods.
        numbers: tensors with values that the step may write into, by their names.

    Attributes:
        functions: all functions that the step may run, those aside that a library brings.
        generators: of random numbers, within its reach.
        iterators: names of those that move on when the step takes their next, and cannot be put back.
        on_cpu: names of what is the CPU as a device.
    """

    def __init__(
        self,
        modules: Iterable[tuple[str, nn.Module]],
        functions: Iterable[Any],
        numbers: Iterable[tuple[str, Tensor]] = (),
    ) -> None:
        self._dicts: list[tuple[str, dict[Any, Any], dict[Any, Any]]] = []  # whose, each, and what is in it
        self._made_anew: list[tuple[dict[str, Any], str]] = []  # containers that are attributes of modules
        self._numbers = [(name, tensor, tensor.clone()) for name, tensor in numbers]
        shared: dict[int, Any] = {}  # copies of containers that modules hold
        waiting: list[Named] = [("", function) for function in functions]
        kinds: dict[type, None] = {}
        for path, child in modules:
            held = vars(child)
            before = self._note(path, held)
            self._dicts += [(path, held[name], held[name].copy()) for name in _OF_MODULES]
            kinds[type(child)] = None
            for name, value in held.items():
                kind, whose = type(value), f"{path}.{name}".lstrip(".")
                if kind in _CALLED or isinstance(value, _GENERATORS):
                    waiting.append((whose, value))
                elif kind in _CONTAINERS and name not in MODULES_OWN and not name.endswith("_hooks"):
                    before[name] = shared.setdefault(id(value), value.copy())  # itself would hold what is put into it
                    self._made_anew.append((held, name))
                    waiting += [(whose, one) for one in (value.values() if isinstance(value, dict) else value)]
                elif _moves_on(value) or _is_cpu(value):
                    waiting.append((whose, value))
        self._roots, self._kinds, self._of_modules = waiting, kinds, len(self._dicts)
        self.look()

    def look(self) -> None:
        """Note what the step reaches besides modules: its owner may have changed it since."""
        del self._dicts[self._of_modules :]
        self._lists: list[tuple[str, Any, Any]] = []
        self._slots: list[tuple[str, Any, str, Any]] = []
        self._cells: dict[int, tuple[str, CellType, Any]] = {}
        self._globals: list[tuple[dict[str, Any], str, Any]] = []  # what files name, and functions may name anew
        self._classes: list[tuple[type, dict[str, Any]]] = []
        self._caches: list[Any] = []
        self.generators: list[Any] = []
        self.iterators: list[str] = []
        self.on_cpu: dict[str, None] = {}
        of_classes = [one for kind in self._kinds for one in self._of_class(kind)]
        self.functions = list(self._walk([*self._roots, *of_classes]))

    def _note(self, whose: str, held: dict[Any, Any]) -> dict[Any, Any]:
        before = held.copy()
        self._dicts.append((whose, held, before))
        return before

    def _walk(self, waiting: list[Named]) -> Iterator[FunctionType]:
        """Every function within reach, each once; what they name is noted."""
        seen: set[int] = set()
        while waiting:
            name, value = waiting.pop()
            if _is_cpu(value):
                self.on_cpu[name] = None
            if id(value) in seen or isinstance(value, _OF_TENSORS):
                continue
            seen.add(id(value))
            kind: Any = type(value)
            if isinstance(value, FunctionType):
                yield value
                self._note(value.__name__, vars(value))
                waiting += self._note_names(value)
            elif isinstance(value, MethodType):
                waiting += [(name, value.__func__), (name, value.__self__)]
            elif isinstance(value, functools.partial):
                waiting += [(name, value.func), *((name, one) for one in value.args), *value.keywords.items()]
            elif isinstance(value, _CACHE):
                self._caches.append(value)
                waiting.append((name, value.__wrapped__))
            elif isinstance(value, _GENERATORS):
                self.generators.append(value)
            elif _moves_on(value):
                self.iterators.append(name)
            elif kind in _DICTS:
                self._note(name, value)
                waiting += [(f"{name}.{key}", one) for key, one in value.items()]
            elif kind in _LISTS:
                self._lists.append((name, value, value.copy()))
                waiting += [(name, one) for one in value]
            elif kind is np.ndarray and value.size <= _COUNTERS:
                self._lists.append((name, value, value.copy()))
            elif _is_someones(kind) or (kind.__module__.startswith("torch.") and hasattr(value, "__dict__")):
                waiting += self._note_object(kind, value)

    def _note_object(self, kind: type, value: Any) -> Iterator[Named]:
        """What an object holds."""
        held = getattr(value, "__dict__", {})
        if held:
            self._note(kind.__name__, held)
        slots = {name: getattr(value, name, None) for name in copyreg._slotnames(kind)}  # type: ignore[attr-defined]
        self._slots += [(kind.__name__, value, name, one) for name, one in slots.items()]
        yield from ((f"{kind.__name__}.{name}", one) for name, one in {**held, **slots}.items())
        yield from self._of_class(kind)

    def _note_names(self, function: FunctionType) -> list[Named]:
        """What a function names; its counters are noted."""
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                self._cells.setdefault(id(cell), (name, cell, cell.cell_contents))
            except ValueError:  # not filled yet
                continue
        names, known = list(named(function)), function.__globals__
        self._globals += [(known, name, one) for name, one in names if name in known and known[name] is one]
        return names

    def _of_class(self, kind: type) -> Iterator[Named]:
        """What a class holds, and those that it is made from: methods, containers; what a library brings aside."""
        for one in filter(_is_someones, kind.__mro__):
            attributes = dict(vars(one))
            self._classes.append((one, attributes))
            for name, value in attributes.items():
                yield f"{kind.__name__}.{name}", getattr(value, "fget", getattr(value, "__func__", value))

    def put_back(self) -> None:
        """Let everything be what it was; caches of functions are emptied."""
        for _, one, members in self._dicts:
            if one or members:  # most of a module's are empty
                one.clear()
                one.update(members)
        anew: dict[int, Any] = {}  # one for those that several modules share
        for held, name in self._made_anew:
            held[name] = anew.setdefault(id(held[name]), held[name].copy())
        for _, one, members in self._lists:
            if isinstance(one, np.ndarray):
                one[...] = members
                continue
            one.clear()
            (one.update if isinstance(one, set) else one.extend)(members)
        for _, one, name, value in self._slots:
            object.__setattr__(one, name, value)
        for _, cell, contents in self._cells.values():
            cell.cell_contents = contents
        for known, name, value in self._globals:
            known[name] = value
        for kind, attributes in self._classes:
            changed = [name for name, value in vars(kind).items() if attributes.get(name) is not value]
            for name in changed:
                setattr(kind, name, attributes[name]) if name in attributes else delattr(kind, name)
        for _, tensor, values in self._numbers:
            tensor.copy_(values)
        for cache in self._caches:
            cache.cache_clear()

    def _places(self) -> Iterator[tuple[str, Any, Any]]:
        """Each place where a value may be another than it was: its name, what is there, and what was."""
        dicts = [*self._dicts, *((kind.__name__, vars(kind), attributes) for kind, attributes in self._classes)]
        for whose, held, before in dicts:
            if len(held) != len(before) or not all(map(is_, held.values(), before.values())):
                names = {**before, **held}
                yield from ((f"{whose}.{name}".lstrip("."), held.get(name), before.get(name)) for name in names)
        yield from self._lists
        yield from ((f"{whose}.{name}", getattr(one, name, None), value) for whose, one, name, value in self._slots)
        yield from ((name, known[name], value) for known, name, value in self._globals)
        yield from ((name, cell.cell_contents, contents) for name, cell, contents in self._cells.values())
        yield from self._numbers

    def changed(self) -> dict[str, Any]:
        """What is now where something else was, by names: what of it may decide a step's way."""
        places = ((name, now, before) for name, now, before in self._places() if now is not before)
        told = ((name, _told(now), _told(before)) for name, now, before in places)
        return {name: now for name, now, before in told if now != before}


def _told(value: Any) -> Any:
    """What of a value may decide a step's way: a number or a name, how many there are of what, else only its kind."""
    if isinstance(value, Tensor) and not value.dim() and not value.is_meta and type(value) is Tensor:
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.size <= _COUNTERS else np.ndarray
    kind = type(value)
    if kind in _DICTS:
        return [(key, _plain(one)) for key, one in value.items()]
    return [_plain(one) for one in value] if kind in (*_LISTS, tuple) else _plain(value)


def _plain(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else type(value)


def _moves_on(value: Any) -> bool:
    """Whether a value is an iterator of Python's own, such as a generator."""
    return isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools")


def _is_cpu(value: Any) -> bool:
    return type(value) in (str, torch.device) and str(value) == "cpu"


@functools.cache
def _is_someones(kind: Any) -> bool:
    """Whether a class is the learner's or a course's, and no library's."""
    if kind.__module__ in ("builtins", "__main__"):
        return bool(kind.__module__ == "__main__")
    path = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return not path.startswith((*LIBRARIES, "<frozen"))
