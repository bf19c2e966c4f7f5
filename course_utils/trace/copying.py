"""What a step reaches, copied without data: the network, and whatever its loss and its hooks hold on to.

A function that names the network, a parameter, an optimizer or another network, in a closure or as a global, is made
anew with their copies in these places; whatever reaches none of them is shared, not copied.
"""

import copy
import copyreg
import dis
import functools
import gc
import sysconfig
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import course_utils
from course_utils.trace.refusals import check_dense

# Most of what a module holds: flags and numbers, which are not copied, and lists of hooks that it does not have.
ATOMS = (type(None), bool, int, float, str)
MODULES_OWN = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}
LIBRARIES = (
    *map(sysconfig.get_path, ("purelib", "platlib", "stdlib")),
    *(str(Path(file).parent) for file in (torch.__file__, course_utils.__file__)),
)
COMPUTED = "course_computed_by"  # attribute of what stands for a tensor that has a grad_fn: its name
MARK = "course_marks_gradients"  # attribute of a function that is no hook of the network's
_COMPILED = "_torchdynamo_orig_callable"  # attribute of a function that torch.compile made: what of
GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")  # instructions that read or write a name of their file
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")  # or read one of whatever
UNSET = object()  # stands for what is not there
_PLAIN = (dict, list, tuple, set, OrderedDict, defaultdict, deque)


def held(value: Any) -> Iterable[Any]:
    """What a value holds on to: members and attributes of any kind, and what a function closes over or names."""
    if type(value) in (tuple, list):
        return value  # type: ignore[no-any-return]
    if isinstance(value, (Tensor, type, ModuleType)):
        return ()
    if isinstance(value, FunctionType):
        return [one for _, one in named(value)]
    return gc.get_referents(value)


def contents(cell: CellType) -> Any:
    """What a cell of a closure holds; UNSET if it is not filled yet, or emptied."""
    try:
        return cell.cell_contents
    except ValueError:
        return UNSET


def named(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function closes over, its defaults, and the globals that it names, if no library brings it."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if (one := contents(cell)) is not UNSET:
            yield name, one
    yield from (("", one) for one in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    if not function.__code__.co_filename.startswith((*LIBRARIES, "<frozen")):
        names = names_in(function.__code__)
        yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)


@functools.lru_cache(maxsize=4096)
def names_in(code: CodeType, instructions: tuple[str, ...] = GLOBALS) -> tuple[str, ...]:
    """The names of these instructions in code, and in the functions within it."""
    own = (step.argval for step in dis.get_instructions(code) if step.opname in instructions)
    inner = (name for one in code.co_consts if isinstance(one, CodeType) for name in names_in(one, instructions))
    return tuple(dict.fromkeys([*own, *inner]))


def reached(value: Any, kinds: type | tuple[type, ...], through_functions: bool = True) -> Iterator[Any]:
    """Everything of these kinds that a value holds on to, itself included, each once."""
    waiting, seen = [value], set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, kinds):
            yield value
        if through_functions or not isinstance(value, FunctionType):
            waiting += [part for part in held(value) if type(part) not in ATOMS]


def _is_bare(value: Any) -> bool:
    """Whether a container holds flags, numbers and names alone, as most of a module's do: the sizes of a window."""
    return all(type(one) in ATOMS for one in held(value))


def _members(module: nn.Module) -> list[tuple[str, Any]]:
    """What a module holds besides parameters, other modules, flags, numbers and empty lists of hooks."""
    return [
        (name, value)
        for name, value in vars(module).items()
        if type(value) not in ATOMS and (type(value) not in _PLAIN or (value and name not in MODULES_OWN))
    ]


def is_compiled(module: nn.Module) -> bool:
    """Whether a module is what torch.compile makes of another, its `_orig_mod`."""
    return type(module).__name__ == "OptimizedModule" and type(module).__module__.startswith("torch._dynamo")


def _in_lists(members: list[tuple[str, Any]]) -> Iterator[Tensor]:
    """The tensors that a module holds in lists, objects and the like, those of torch.nn's own aside."""
    for name, value in members:
        own = name.endswith("_hooks") or name in MODULES_OWN
        if not (own or isinstance(value, (Tensor, FunctionType, nn.Module)) or _is_bare(value)):
            yield from reached(value, Tensor, through_functions=False)


def hooks_of(module: nn.Module) -> Iterator[Any]:
    """The hooks of a module, and of its own parameters."""
    for name, value in vars(module).items():
        if name.endswith("_hooks") and isinstance(value, dict):
            yield from value.values()
    for parameter in module._parameters.values():
        if parameter is not None:
            yield from (parameter._backward_hooks or {}).values()
            yield from (getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values()


class OnShapes:
    """Makes copies whose tensors have shapes and no data, one of each thing."""

    def __init__(
        self,
        empty: Callable[[Tensor], Tensor],
        stays: Callable[[Tensor], Tensor | None] = lambda tensor: None,
        marked: Callable[[Tensor], None] | None = None,
    ) -> None:
        self.empty = empty  # makes what stands for a tensor
        self.stays = stays  # what stands for one outside of networks that keeps its values, itself or a copy; else None
        self.marked = marked  # called with every parameter that has hooks, once it has its gradient, before these run
        self._hooked: set[int] = set()  # parameters whose hooks are copied
        self.memo: dict[int, Any] = {}
        self.originals: list[Any] = []  # kept, so that no other thing takes their ids
        self.networks: dict[str, nn.Module] = {}  # copies of networks found besides the first, by name
        self.tensors: list[tuple[str, Tensor]] = []  # found besides parameters, buffers, attributes: names, stand-ins
        self.optimizers: list[Optimizer] = []
        self.computed = False  # whether a tensor was the result of an operator that autograd would go back through
        self.compiled = False  # whether something was compiled, of which the copy is not

    def tell(self, original: Any, twin: Any) -> Any:
        """Let something stand for an original."""
        self.memo[id(original)] = twin
        self.originals.append(original)
        return twin

    def module(self, module: nn.Module) -> nn.Module:
        """The copy of a network, with all its hooks."""
        for tensor in (*module.parameters(), *module.buffers()):
            self._stand_in(tensor)
        children = {child: _members(child) for child in module.modules()}
        for child, members in children.items():
            for _, value in members:
                if isinstance(value, Tensor):
                    self._stand_in(value)
            found = [tensor for tensor in _in_lists(members) if id(tensor) not in self.memo]
            self.tensors += [(type(child).__name__, self._stand_in(tensor)) for tensor in found]
        twin = self._deepcopy(module, list(children))
        self.originals.append(module)
        self._again(children)
        return twin

    def still_there(self, modules: Iterable[tuple[str, nn.Module]], functions: Iterable[Any]) -> list[Tensor]:
        """Of the tensors found besides, those that the copied modules and functions hold still."""
        if not self.tensors:
            return []
        kept = {id(one) for _, child in modules for one in _in_lists(_members(child))}
        kept |= {id(one) for one in reached(list(functions), Tensor)}
        return [tensor for _, tensor in self.tensors if id(tensor) in kept]

    def _stand_in(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self.memo:
            check_dense(tensor)
            twin = self.empty(tensor)
            if isinstance(tensor, nn.Parameter) and twin is not tensor:
                twin = nn.Parameter(twin, requires_grad=tensor.requires_grad)
            self.tell(tensor, twin)
            by = vars(tensor).get(COMPUTED, "") if tensor.grad_fn is None else type(tensor.grad_fn).__name__
            if by:
                self.computed, vars(twin)[COMPUTED] = True, by
            if twin is not tensor:
                for name, value in vars(tensor).items():  # such as a gradient in another precision
                    setattr(twin, name, self._stand_in(value) if isinstance(value, Tensor) else self(value, name))
        return self.memo[id(tensor)]  # type: ignore[no-any-return]

    def _deepcopy(self, module: nn.Module, children: list[nn.Module]) -> nn.Module:
        """`copy.deepcopy` in a quarter of its time, which was a tenth of a trace."""
        memo = self.memo
        for child in reversed(children):  # those within others first
            kind: Any = type(child)
            self.compiled |= vars(child).get("_compiled_call_impl") is not None
            if is_compiled(child):
                memo[id(child)], self.compiled = copy.deepcopy(child._orig_mod, memo), True
            plain = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__getstate__ is nn.Module.__getstate__
            state = child.__getstate__() if plain and kind.__new__ is object.__new__ else None
            if not isinstance(state, dict) or hasattr(kind, "__deepcopy__") or id(child) in memo:
                continue
            twin = memo[id(child)] = kind.__new__(kind)
            twin.__setstate__({name: _copied(name, value, memo) for name, value in state.items()})
        return copy.deepcopy(module, memo)

    def _again(self, children: dict[nn.Module, list[tuple[str, Any]]]) -> None:
        """Functions that modules hold, and hooks of theirs and of parameters, on the copies of what they reach."""
        for child, members in children.items():
            if is_compiled(child):
                continue
            twin = self.memo[id(child)]
            for name, value in members:
                if isinstance(value, FunctionType):
                    vars(twin)[name] = self(value, name)
                elif name.endswith("_hooks") and isinstance(value, dict):
                    vars(twin)[name] = type(value)((key, self._hook(hook)) for key, hook in value.items())
            for parameter in child._parameters.values():
                hooks = () if parameter is None else (parameter._backward_hooks or {}).values()
                later = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
                if id(parameter) in self._hooked or not (hooks or later):
                    continue
                self._hooked.add(id(parameter))
                standing = self.memo[id(parameter)]
                if self.marked is not None:
                    standing.register_post_accumulate_grad_hook(self.marked)
                for hook in hooks:
                    standing.register_hook(self._hook(hook))
                for hook in (one for one in later.values() if not hasattr(one, MARK)):
                    standing.register_post_accumulate_grad_hook(self._hook(hook))

    def _hook(self, hook: Any) -> Any:
        """What a hook keeps for itself is kept by its copy, so that the original is as it was."""
        made = self(hook)
        return copy.deepcopy(hook, self.memo) if made is hook and not isinstance(hook, FunctionType) else made

    def __call__(self, value: Any, name: str = "") -> Any:
        """The copy of anything; the thing itself if it reaches no tensor, network or optimizer."""
        if isinstance(value, FunctionType) and hasattr(value, _COMPILED):
            value, self.compiled = getattr(value, _COMPILED), True
        if id(value) in self.memo:
            return self.memo[id(value)]
        if isinstance(value, Tensor):
            check_dense(value)
            kept = self.stays(value)
            twin = self._stand_in(value) if kept is None else self.tell(value, kept)
            self.tensors.append((name or f"a tensor of shape {tuple(value.shape)}", twin))
            return twin
        if isinstance(value, nn.Module):
            twin = self.module(value)
            self.networks[name or type(value).__name__] = twin
            return twin
        if isinstance(value, Optimizer):
            return self._optimizer(value)
        kinds = (Tensor, nn.Module, Optimizer, FunctionType)
        if all(isinstance(one, FunctionType) and not hasattr(one, _COMPILED) for one in reached(value, kinds)):
            return value
        return self._holder(value, name)

    def _holder(self, value: Any, name: str) -> Any:
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return MethodType(self(value.__func__), self(value.__self__, name))
        if isinstance(value, functools.partial):
            keywords = {key: self(one, key) for key, one in value.keywords.items()}
            return functools.partial(self(value.func), *map(self, value.args), **keywords)
        if isinstance(value, (tuple, set, frozenset)):
            made = [self(one, name) for one in value]
            return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
        try:
            twin = copy.copy(value)
        except Exception:  # noqa: BLE001 - anything may refuse to be copied; what it holds is then met as it is
            return value
        if twin is value or getattr(twin, "__dict__", None) is getattr(value, "__dict__", self):
            return value  # all of its kind share one
        self.tell(value, twin)
        if isinstance(value, dict):
            twin.clear()
            twin.update((self(key), self(one, key if isinstance(key, str) else name)) for key, one in value.items())
        elif isinstance(value, (list, deque)):
            twin.clear()
            twin.extend(self(one, name) for one in value)
        for key in (*getattr(value, "__dict__", ()), *copyreg._slotnames(type(value))):  # type: ignore[attr-defined]
            if hasattr(value, key):
                object.__setattr__(twin, key, self(getattr(value, key), key))  # a frozen one's too
        return twin

    def _function(self, function: FunctionType) -> Any:
        names = dict(named(function))
        cells = tuple(CellType() for _ in function.__closure__ or ())
        twin = FunctionType(function.__code__, dict(function.__globals__), function.__name__, None, cells)
        self.tell(function, twin)
        twin.__dict__.update(function.__dict__)
        twin.__defaults__, twin.__kwdefaults__ = self(function.__defaults__), self(function.__kwdefaults__)
        inside = function.__code__.co_freevars
        for name, cell in zip(inside, cells, strict=True):
            if name in names:
                cell.cell_contents = self(names[name], name)
        for name in names:
            if name and name not in inside and name in twin.__globals__:
                twin.__globals__[name] = self(names[name], name)
        return twin

    def _optimizer(self, optimizer: Optimizer) -> Optimizer:
        twin: Any = self.tell(optimizer, object.__new__(type(optimizer)))
        self.optimizers.append(twin)
        for name, value in vars(optimizer).items():
            if name == "step":  # a scheduler's, which would run the original's
                continue
            made = self(value, name)
            vars(twin)[name] = copy.copy(made) if made is value and isinstance(value, _PLAIN) else made
        twin.param_groups = [dict(group) for group in twin.param_groups]
        return twin  # type: ignore[no-any-return]


def _copied(name: str, value: Any, memo: dict[int, Any]) -> Any:
    if type(value) in ATOMS or (type(value) is tuple and _is_bare(value)):
        return value
    if type(value) in (dict, list, set, OrderedDict) and not value:
        return memo.setdefault(id(value), type(value)())
    if name.endswith("_hooks"):
        return copy.copy(value)
    try:
        return copy.deepcopy(value, memo)
    except Exception:
        if next(reached(value, (Tensor, nn.Module)), None) is not None:
            raise
        return value  # such as a configuration that answers for attributes that it has not
