"""What a step changes besides tensors: attributes of modules, and the containers, counters and caches of its functions.

A step is traced from what was there before the first one, at every batch: a cache that grew at another batch, or a
count of steps, would make it another step. And what belongs to whoever wrote the step is left as it was.
"""

import builtins
import copyreg
import functools
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain
from numbers import Number
from operator import is_
from pathlib import PurePath
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from course_utils.trace.copying import ATOMS, ATTRIBUTES, LIBRARIES, MODULES_OWN, UNSET, contents, named, names_in
from course_utils.trace.fakes import is_real

_CACHE = type(functools.lru_cache(lambda: None))
_OF_MODULES = ("_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CONTAINERS = frozenset((dict, OrderedDict, defaultdict, Counter, list, set, deque))
_OF_TENSORS = (nn.Module, Optimizer)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), Enum, torch.dtype, torch.device, range, Number, PurePath)
_HOLD = ("_thread", "argparse", "collections", "queue", "types", "weakref")  # modules of Python's, of kinds that hold
_FEW = 64  # elements of which values are told
_SMALL = 2**16  # of what is put back
_MANY = 2**10  # members of a container that are not walked: data, and no state

Named = tuple[str, Any]
Held = tuple[str, dict[Any, Any], dict[Any, Any]]  # whose a dictionary is, itself, and what was in it


class State:
    """A step's surroundings: modules as they are now, all else as it is when `look` is called, to be put back.

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
        self._dicts: list[Held] = []
        self._tables: list[Held] = []  # those of modules that hardly ever change: of buffers, modules and hooks
        self._made_anew: list[tuple[dict[str, Any], str]] = []  # containers that are attributes of modules
        shared: dict[int, Any] = {}  # copies of containers that modules hold
        waiting: list[Named] = [*(("", function) for function in functions), *numbers]
        for path, child in modules:
            held = vars(child)
            before = self._note(path, held)
            self._tables += [(path, held[name], held[name].copy()) for name in _OF_MODULES]
            waiting.append((type(child).__name__, type(child)))
            for name, value in held.items():
                if type(value) in ATOMS or name in MODULES_OWN or "_hooks" in name or _is_numbers(value):
                    continue
                whose = f"{path}.{name}".lstrip(".")
                if type(value) in _CONTAINERS:
                    before[name] = shared.setdefault(id(value), value.copy())  # itself would hold what is put into it
                    self._made_anew.append((held, name))
                    members = value.values() if isinstance(value, dict) else value
                    waiting += [(whose, one) for one in members] if len(value) <= _MANY else []
                else:
                    waiting.append((whose, value))
        self._roots, self._of_modules = waiting, len(self._dicts)

    def look(self) -> None:
        """Note what the step reaches besides modules, before a run: its owner may have changed it since the last."""
        del self._dicts[self._of_modules :]
        self._lists: list[tuple[str, Any, Any]] = []  # containers of other kinds, arrays and tensors
        self._slots: list[tuple[str, Any, str, Any]] = []
        self._cells: dict[int, tuple[str, CellType, Any]] = {}
        self._globals: list[tuple[dict[str, Any], str, Any]] = []  # what files name, and functions may name anew
        self._classes: list[tuple[type, dict[str, Any]]] = []
        self._caches: list[Any] = []
        self.generators: list[Any] = []
        self.iterators: list[str] = []
        self.on_cpu: dict[str, None] = {}
        self.functions = list(self._walk([*self._roots]))

    def _note(self, whose: str, held: dict[Any, Any]) -> dict[Any, Any]:
        before = dict.copy(held)
        self._dicts.append((whose, held, before))
        return before

    def _walk(self, waiting: list[Named]) -> Iterator[FunctionType]:
        """Every function within reach, each once; what they name is noted."""
        seen: set[int] = set()
        while waiting:
            name, value = waiting.pop()
            kind: Any = type(value)
            if kind in (str, torch.device) and str(value) == "cpu":
                self.on_cpu[name] = None
            if kind in ATOMS or id(value) in seen or isinstance(value, _OF_TENSORS):
                continue
            seen.add(id(value))
            if isinstance(value, FunctionType):
                yield value
                self._note(value.__name__, vars(value))
                waiting += self._note_names(value)
            elif isinstance(value, type):
                waiting += self._note_class(value)
            elif isinstance(value, (MethodType, classmethod, staticmethod)):
                waiting += [(name, value.__func__), (name, getattr(value, "__self__", None))]
            elif isinstance(value, functools.partial):
                waiting += [(name, value.func), *((name, one) for one in value.args), *value.keywords.items()]
            elif isinstance(value, _CACHE):
                self._caches.append(value)
                waiting.append((name, value.__wrapped__))
            elif isinstance(value, _GENERATORS):
                self.generators.append(value)
            elif isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools"):
                self.iterators.append(name)
            else:
                waiting += self._note_members(name, value)

    def _note_members(self, name: str, value: Any) -> Iterator[Named]:
        """What a container or an object holds."""
        kind: Any = type(value)
        if isinstance(value, dict):
            self._note(name, value)
            yield from ((f"{name}.{key}", one) for key, one in (dict.items(value) if len(value) <= _MANY else ()))
        elif isinstance(value, (list, set, deque, bytearray)):
            self._lists.append((name, value, value.copy()))
            yield from ((name, one) for one in (value if len(value) <= _MANY else ()))
        elif isinstance(value, tuple):
            yield from ((name, one) for one in value[:_MANY])
        elif isinstance(value, np.ndarray) and value.size <= _SMALL:
            self._lists.append((name, value, value.copy()))
        elif isinstance(value, Tensor):
            if is_real(value) and value.numel() <= _SMALL:
                self._lists.append((name, value, value.detach().clone()))
            return
        if is_someones(kind) or kind.__module__.partition(".")[0] in ("torch", *_HOLD):
            held = getattr(value, "__dict__", None)
            if type(held) is dict and held is not value:
                self._note(kind.__name__, held)
                yield from ((f"{kind.__name__}.{key}", one) for key, one in held.items())
            for key in _slots(kind):
                one = getattr(value, key, UNSET)
                self._slots.append((kind.__name__, value, key, one))
                yield f"{kind.__name__}.{key}", one
            yield kind.__name__, kind

    def _note_names(self, function: FunctionType) -> Iterator[Named]:
        """What a function names; its counters are noted."""
        code, known = function.__code__, function.__globals__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._cells.setdefault(id(cell), (name, cell, contents(cell)))
        if not code.co_filename.startswith(LIBRARIES):
            of_file = [name for name in names_in(code) if not hasattr(builtins, name)]
            self._globals += [(known, name, known.get(name, UNSET)) for name in of_file]
        for name, one in dict(named(function)).items():
            if not isinstance(one, ModuleType):
                yield name, one
            elif not (getattr(one, "__file__", None) or "<frozen").startswith((*LIBRARIES, "<frozen")):
                self._note(name, vars(one))
                yield from ((f"{name}.{key}", vars(one)[key]) for key in names_in(code, ATTRIBUTES) if key in vars(one))

    def _note_class(self, kind: type) -> Iterator[Named]:
        """What a class holds, and those that it is made from: methods, containers; what a library brings aside."""
        above: Any = type(kind)
        for one in filter(is_someones, (*above.__mro__, *kind.__mro__)):
            attributes = dict(vars(one))
            self._classes.append((one, attributes))
            for name, value in attributes.items():
                yield f"{kind.__name__}.{name}", getattr(value, "fget", getattr(value, "__func__", value))

    def put_back(self) -> None:
        """Let everything be what it was; caches of functions are emptied."""
        for _, one, members in self._altered():  # no others: somebody may read them meanwhile
            _set(one, members)
        anew: dict[int, Any] = {}  # one for those that several modules share
        for held, name in self._made_anew:
            held[name] = anew.setdefault(id(held[name]), held[name].copy())
        for _, one, members in self._lists:
            if isinstance(one, Tensor):
                one.detach().copy_(members)
            elif isinstance(one, np.ndarray):
                one[...] = members
            else:
                base: Any = next(kind for kind in (list, set, deque, bytearray) if isinstance(one, kind))
                base.clear(one)
                (base.update if base is set else base.extend)(one, members)
        for _, one, name, value in self._slots:
            if value is not UNSET:
                object.__setattr__(one, name, value)
            elif hasattr(one, name):
                object.__delattr__(one, name)
        for _, cell, before in self._cells.values():
            if before is not UNSET:
                cell.cell_contents = before
            elif contents(cell) is not UNSET:
                del cell.cell_contents
        for known, name, value in self._globals:
            if value is not UNSET:
                known[name] = value
            else:
                known.pop(name, None)
        for kind, attributes in self._classes:
            changed = [name for name, value in vars(kind).items() if attributes.get(name) is not value]
            for name in changed:
                setattr(kind, name, attributes[name]) if name in attributes else delattr(kind, name)
        for cache in self._caches:
            cache.cache_clear()

    def _altered(self) -> list[Held]:
        """The dictionaries that hold something else."""
        groups = (self._tables, self._dicts)
        return [each for group in groups if not _alike(group) for each in group if not _alike([each])]

    def _places(self) -> Iterator[tuple[str, Any, Any]]:
        """Each place where a value may be another than it was: its name, what is there, and what was."""
        of_classes = [(kind.__name__, dict(vars(kind)), attributes) for kind, attributes in self._classes]
        for whose, held, before in (*self._altered(), *of_classes):
            names = {**before, **dict.copy(held)}
            yield from ((f"{whose}.{n}".lstrip("."), dict.get(held, n, UNSET), before.get(n, UNSET)) for n in names)
        yield from self._lists
        yield from ((f"{whose}.{name}", getattr(one, name, UNSET), value) for whose, one, name, value in self._slots)
        yield from ((name, known.get(name, UNSET), value) for known, name, value in self._globals)
        yield from ((name, contents(cell), before) for name, cell, before in self._cells.values())

    def changed(self) -> dict[str, Any]:
        """What is now where something else was, by names: what of it may decide a step's way."""
        places = ((name, now, before) for name, now, before in self._places() if now is not before)
        told = ((name, _told(now), _told(before)) for name, now, before in places)
        return {name: now for name, now, before in told if now != before}


def _is_numbers(value: Any) -> bool:
    """Whether it is a tuple of whole numbers alone, as most of what a layer holds is: nothing is reached through it."""
    return type(value) is tuple and all(type(one) is int for one in value)


def _alike(group: list[Held]) -> bool:
    """Whether all these dictionaries have the very values they had, in the same order."""
    now, before = [held for _, held, _ in group], [members for _, _, members in group]
    values, values_then = (chain.from_iterable(map(dict.values, each)) for each in (now, before))
    return [*map(len, now)] == [*map(len, before)] and all(map(is_, values, values_then))


def _set(one: dict[Any, Any], members: dict[Any, Any]) -> None:
    """Let a dictionary hold these again, whatever else its own kind does."""
    kind: Any = OrderedDict if isinstance(one, OrderedDict) else dict
    for name in [name for name in dict.keys(one) if name not in members]:
        kind.pop(one, name)
    kind.update(one, members)


def _told(value: Any, inside: bool = False) -> Any:
    """What of a value may decide a step's way: a number or a name, how many there are of what, else only its kind."""
    kind = type(value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Tensor):
        few = is_real(value) and value.numel() <= _FEW
        return value.tolist() if few else (tuple(value.shape), value.dtype)
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, (type, FunctionType, MethodType)):
        return value.__qualname__
    if inside or not isinstance(value, (dict, list, tuple, set, frozenset, deque, bytearray)):
        frozen = is_dataclass(value) and value.__dataclass_params__.frozen  # type: ignore[union-attr]
        return [_told(getattr(value, one.name), True) for one in fields(value)] if frozen else kind
    if isinstance(value, dict):
        return kind, [(key, _told(one, True)) for key, one in dict.items(value)]
    return kind, [_told(one, not isinstance(one, tuple)) for one in value]


@functools.cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(copyreg._slotnames(kind))  # type: ignore[attr-defined]


@functools.cache
def is_someones(kind: Any) -> bool:
    """Whether a class is the learner's or a course's, and no library's."""
    if kind.__module__ in ("builtins", "__main__"):
        return bool(kind.__module__ == "__main__")
    path = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return not path.startswith((*LIBRARIES, "<frozen"))
