# SPDX-License-Identifier: BSD-3-Clause
"""Parameters and buffers that are computed from others each time they are read."""

from __future__ import annotations

import contextlib
import copy
import copyreg
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from modtree.core.containers import ModuleDict, ModuleList
from modtree.core.module import Module
from modtree.core.undo import NUMBERS, modes_kept_on_error, undone_on_error
from modtree.nn.utils._library import family_of, is_tensor, no_grad
from modtree.nn.utils._originals import (
    CHANGES_BACK,
    check_computed,
    check_like,
    exchange,
    memory_kept_on_error,
    parameter_as,
    register,
)

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache_enabled = 0
# The module is kept with its value, so that no other one gets its id meanwhile.
_cache: dict[tuple[int, str], tuple[Any, Any]] = {}


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Within it, each parametrized tensor is computed once and kept until the outermost ends.

    Nothing notices that an original has changed meanwhile. It holds for all threads.

    Example:
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        >>> with nn.utils.parametrize.cached():
        ...     layer.weight is layer.weight
        True
    """
    global _cache, _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache = {}


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what it is computed from: ``original``, or
    ``original0``, ``original1``, ... where ``right_inverse`` gives several.

    Args:
        modules: The parametrizations, in the order in which they are applied.
        original: The parameter or buffer that is parametrized.
        unsafe: The result may have another dtype or shape.

    Raises:
        ValueError: There are no modules, or what one of them returns does not fit. The original is
            as before.
    """

    original: Any
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        family = family_of(original)
        before = family.detach(original)
        new = self._inverted(original)
        self.is_tensor = is_tensor(new)
        self.ntensors = 1 if self.is_tensor else len(new)
        with memory_kept_on_error([original] if self.is_tensor else []):
            if self.is_tensor:
                self._keep_one(original, new)
            else:
                self._keep_several(original, new)
            if not unsafe:
                check_computed(self(), before)

    def _inverted(self, original: Any) -> Any:
        """What the original was computed from, as far as the parametrizations can tell."""
        new = original
        with no_grad(original):
            for module in reversed(self._chain()):
                if hasattr(module, "right_inverse"):
                    with contextlib.suppress(NotImplementedError):
                        new = module.right_inverse(new)
        if not is_tensor(new) and not isinstance(new, Sequence):
            raise ValueError(
                f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        return new

    def _keep_one(self, original: Any, new: Any) -> None:
        for what in ("dtype", "device"):
            old, got = getattr(original, what), getattr(new, what)
            if old != got:
                raise ValueError(
                    f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                    f"original.{what}: {old}\nright_inverse(original).{what}: {got}"
                )
        with no_grad(original):
            exchange(original, new)
        register(self, "original", original)

    def _keep_several(self, original: Any, new: Sequence[Any]) -> None:
        for i, tensor in enumerate(new):
            if not is_tensor(tensor):
                raise ValueError(
                    f"'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                    f"tuple...). Got element {i} of the sequence with type "
                    f"{type(tensor).__name__}."
                )
            register(self, f"original{i}", parameter_as(tensor, original))

    def _chain(self) -> list[Any]:
        """The parametrizations. An original that is parametrized itself makes this list the parent
        of more than them.
        """
        children: Any = self._modules
        chain: list[Any] = []
        while (key := str(len(chain))) in children:
            chain.append(children[key])
        return chain

    def _originals(self) -> list[Any]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Any) -> None:
        """Calls ``right_inverse`` of the parametrizations, the last one first, and makes the
        originals what they return.

        Args:
            value: The value that the parametrized tensor shall have.

        Raises:
            RuntimeError: A parametrization has no ``right_inverse``.
            ValueError: What it returns does not fit the originals.
        """
        chain = self._chain()
        with no_grad(self._originals()[0]), _inverses_undone_on_error(chain):
            for module in reversed(chain):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                value = module.right_inverse(value)
            values = self._by_name(value)
            plain = [name for name in values if not is_parametrized(self, name)]
            with memory_kept_on_error([getattr(self, name) for name in plain]):
                for name, new in values.items():
                    if name in plain:
                        exchange(getattr(self, name), new)
                    else:
                        setattr(self, name, new)

    def _by_name(self, value: Any) -> dict[str, Any]:
        """The names of the originals, and what they shall become."""
        if self.is_tensor:
            if not is_tensor(value):
                raise ValueError(
                    f"`right_inverse` should return a tensor. Got {type(value).__name__}"
                )
            if value.dtype != self.original.dtype:
                raise ValueError(
                    f"The tensor returned by `right_inverse` has dtype {value.dtype} while "
                    f"`original` has dtype {self.original.dtype}"
                )
            return {"original": value}
        if not isinstance(value, Sequence):
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}."
            )
        if len(value) != self.ntensors:
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. "
                f"Got a sequence of length {len(value)}."
            )
        for i, (original, new) in enumerate(zip(self._originals(), value, strict=True)):
            if not is_tensor(new):
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors. Got element {i} of type "
                    f"{type(new).__name__}."
                )
            if new.dtype != original.dtype:
                raise ValueError(
                    f"Tensor {i} returned by `right_inverse` has dtype {new.dtype} while "
                    f"`original{i}` has dtype {original.dtype}"
                )
        return {f"original{i}": new for i, new in enumerate(value)}

    def forward(self) -> Any:
        """The parametrized tensor."""
        first, *others = self._chain()
        value = first(*self._originals())
        for module in others:
            value = module(value)
        return value


# -- the class of a parametrized module ------------------------------------------------------------


def _refuse_state(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(): save that, "
        "and load it into a module that is parametrized in the same way"
    )


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    """A copy past ``__getstate__``, which refuses."""
    done = memo.get(id(self))
    if done is not None:
        return done
    replica = memo[id(self)] = self.__new__(type(self))
    Module.__setstate__(replica, copy.deepcopy(Module.__getstate__(self), memo))
    for slot in copyreg._slotnames(type(self)):  # type: ignore[attr-defined]
        if hasattr(self, slot):
            setattr(replica, slot, copy.deepcopy(getattr(self, slot), memo))
    return replica


def _property(name: str) -> property:
    def value(self: Any) -> Any:
        try:
            parametrization = self.parametrizations[name]
        except (AttributeError, KeyError):
            # The class was derived from, and the module made a plain one again: a registry has it.
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            ) from None
        if not _cache_enabled:
            return parametrization()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = (self, parametrization())
        return _cache[key][1]

    def set_value(self: Any, new: Any) -> None:
        self.parametrizations[name].right_inverse(new)

    return property(value, set_value)


# The classes below, as opposed to those that programs derive from them or assign.
_made_here: weakref.WeakSet[type] = weakref.WeakSet()


def _class_of(module: Any, names: Sequence[str]) -> type:
    """A class for the module on which these names are computed; the one that it had before the
    first parametrization for none.

    Always a new class: copies of the module have the old one and keep their parametrizations.
    """
    base = type_before_parametrizations(module)
    if not names:
        return base
    members: dict[str, Any] = {name: _property(name) for name in names}
    members["__getstate__"] = _refuse_state
    if not hasattr(base, "__deepcopy__"):
        members["__deepcopy__"] = _deepcopy
    cls = type(f"Parametrized{base.__name__}", (base,), members)
    _made_here.add(cls)
    return cls


# -- functions -------------------------------------------------------------------------------------


def _append(module: Any, name: str, parametrization: Any, unsafe: bool) -> None:
    """One more parametrization of a tensor that has some."""
    if not unsafe:
        before = getattr(module, name)
        after = parametrization(before)
        check_computed(after, before)
        if hasattr(parametrization, "right_inverse"):
            with contextlib.suppress(NotImplementedError):
                back = parametrization.right_inverse(after)
                if not is_tensor(back):
                    raise ValueError(
                        f"parametrization.right_inverse must return a tensor. Got: "
                        f"{type(back).__name__}"
                    )
                check_like(back, before, CHANGES_BACK, (f"module.{name}", "returned"))
    parametrizations = module.parametrizations[name]
    with undone_on_error(parametrizations, str(len(parametrizations)), "unsafe"):
        parametrizations.append(parametrization)
        parametrizations.unsafe |= unsafe


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Makes ``module.tensor_name`` the result of ``parametrization(original)``, computed at each
    read.

    The original moves to ``module.parametrizations.tensor_name.original``. A parametrization with a
    method ``right_inverse(value)`` says what the original becomes, first and at each assignment to
    ``module.tensor_name``; it may return several tensors, which are ``original0``, ``original1``,
    ... and the arguments of the parametrization. A tensor can have several parametrizations, which
    are applied in the order of their registration. The class of the module becomes a subclass of
    its own.

    Args:
        module: Changed in place and returned.
        tensor_name: A parameter, a buffer, or what is parametrized already.
        parametrization: A module that computes the tensor.
        unsafe: Do not check that dtype and shape stay.

    Raises:
        ValueError: There is no such tensor, or dtype or shape changes.
        KeyError: The name is that of an attribute of ``ModuleDict``, such as ``keys``. Nothing has
            changed.

    Example:
        >>> class Symmetric(nn.Module):
        ...     def forward(self, x):
        ...         return x.triu() + x.triu(1).T
        >>> layer = nn.Linear(3, 3)
        >>> layer = nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
        >>> bool((layer.weight == layer.weight.T).all())
        True
        >>> [name for name, _ in layer.named_parameters()]
        ['bias', 'parametrizations.weight.original']
    """
    with (
        modes_kept_on_error(*parametrization.modules()),
        _inverses_undone_on_error([parametrization]),
    ):
        parametrization.train(module.training)
        if is_parametrized(module, tensor_name):
            _append(module, tensor_name, parametrization, unsafe)
        else:
            _register_first(module, tensor_name, parametrization, unsafe)
    return module


def _register_first(module: Any, tensor_name: str, parametrization: Any, unsafe: bool) -> None:
    """The first parametrization of a tensor."""
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    parametrized = is_parametrized(module)
    children: Any = module.parametrizations if parametrized else ModuleDict()
    if hasattr(children, tensor_name):
        raise KeyError(
            f"attribute '{tensor_name}' already exists: ModuleDict has it, in which "
            f"parametrizations are kept by name; rename the tensor to parametrize it"
        )
    cls = _class_of(module, [*children, tensor_name])
    original = getattr(module, tensor_name)
    if family_of(original).immutable:
        family_of(original).library("register_parametrization")  # says why it does not
    with (
        undone_on_error(module, tensor_name, "parametrizations", "__class__"),
        undone_on_error(children, tensor_name),
        memory_kept_on_error([original]),
    ):
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        module.__class__ = cls
        if not parametrized:
            module.register_module("parametrizations", children)
        children[tensor_name] = parametrizations


@contextlib.contextmanager
def _inverses_undone_on_error(chain: Iterable[Any]) -> Iterator[None]:
    """When the block raises, what ``right_inverse`` of our parametrizations sets is as before."""
    with contextlib.ExitStack() as undo:
        for each in chain:
            undo.enter_context(undone_on_error(each, *getattr(each, "_set_by_right_inverse", ())))
        yield


@contextlib.contextmanager
def all_undone_on_error(
    module: Any, names: Sequence[str], is_hook: Callable[[Any], bool] | None = None
) -> Iterator[contextlib.ExitStack]:
    """When the block raises, the tensors of these names have the parametrizations that they had
    before it. What is entered into the stack ends with the block.
    """
    changed = (*names, "parametrizations", "__class__")
    with contextlib.ExitStack() as undo:
        undo.enter_context(undone_on_error(module, *changed, is_hook=is_hook))
        if is_parametrized(module):
            children = module.parametrizations
            undo.enter_context(undone_on_error(children, *names))
            for name in names:
                if name in children:
                    own = children[name]
                    entries = (*own._parameters, *own._buffers, "unsafe")
                    undo.enter_context(undone_on_error(own, *entries, among=NUMBERS))
        yield undo


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module has a parametrized tensor; one of this name, if one is given."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Makes a parametrized tensor a plain parameter or buffer again, the last of the module.

    Args:
        module: Changed in place and returned.
        tensor_name: The tensor's name.
        leave_parametrized: It keeps the value that was computed; else it becomes the original
            again.

    Raises:
        ValueError: It has no parametrization, or several originals and ``leave_parametrized`` is
            False.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    everything: Any = module.parametrizations
    parametrizations = everything[tensor_name]
    if not parametrizations.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    if parametrizations.is_tensor:
        tensor, changed = parametrizations.original, [parametrizations.original]
    else:
        tensor, changed = getattr(module, tensor_name), []
        family = family_of(tensor)
        if family.requires_grad(tensor):
            tensor = family.make_parameter(tensor, True)
    cls = _class_of(module, [name for name in everything if name != tensor_name])
    chain = parametrizations._chain()
    kinds = tuple(kind for each in chain if (kind := getattr(each, "_hook_kind", None)))
    with (
        undone_on_error(
            module,
            tensor_name,
            "parametrizations",
            "__class__",
            is_hook=lambda hook: isinstance(hook, kinds) and hook.name == tensor_name,
        ),
        undone_on_error(everything, tensor_name),
        memory_kept_on_error(changed),
    ):
        if changed and leave_parametrized:
            with no_grad(tensor):
                exchange(tensor, getattr(module, tensor_name))
        del everything[tensor_name]
        module.__class__ = cls
        register(module, tensor_name, tensor)
        if not everything:
            delattr(module, "parametrizations")
        for parametrization in chain:
            if hasattr(parametrization, "_removed_from"):
                parametrization._removed_from(module, tensor_name)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before the first parametrization, or that was assigned to it
    since.
    """
    cls = type(module)
    return cls.__bases__[0] if cls in _made_here else cls


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Gives a module the parametrizations of another; the two share them and the originals.

    Args:
        from_module: What has them.
        to_module: Changed in place and returned. Tensors that it lacks are made.
        tensor_name: Only those of this tensor.
    """
    if not is_parametrized(from_module):
        return to_module
    target: Any = to_module
    source: Any = from_module.parametrizations
    names = list(source) if tensor_name is None else [tensor_name]
    with all_undone_on_error(to_module, names) as undo:
        for name in names:
            _transfer(from_module, target, name, undo)
    return to_module


def _transfer(source: Any, target: Any, name: str, undo: contextlib.ExitStack) -> None:
    """The parametrizations and the originals of one tensor."""
    parametrizations = source.parametrizations[name]
    if not hasattr(target, name):
        value = getattr(source, name)
        setattr(target, name, family_of(value).make_parameter(value, True))
    if not is_parametrized(target, name):
        undo.enter_context(memory_kept_on_error([getattr(target, name)]))
    for parametrization in parametrizations._chain():
        undo.enter_context(modes_kept_on_error(*parametrization.modules()))
        register_parametrization(target, name, parametrization)
    kept = ("_parameters", "_buffers")
    originals = {k: v for table in kept for k, v in getattr(parametrizations, table).items()}
    for key, original in originals.items():
        setattr(target.parametrizations[name], key, original)
