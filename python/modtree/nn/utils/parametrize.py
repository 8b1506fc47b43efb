# SPDX-License-Identifier: BSD-3-Clause
"""Parameters and buffers that are computed from others each time they are read."""

from __future__ import annotations

import contextlib
import copy
import copyreg
from collections.abc import Iterator, Sequence
from typing import Any

from modtree.__future__ import get_swap_module_params_on_conversion
from modtree._module.containers import ModuleDict, ModuleList
from modtree._module.module import Module
from modtree.nn.utils._library import family_of, is_tensor, no_grad

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


# -- originals -------------------------------------------------------------------------------------


def _register(module: Any, name: str, tensor: Any) -> None:
    if family_of(tensor).is_parameter(tensor):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _parameter_as(tensor: Any, like: Any) -> Any:
    """The tensor as a parameter if ``like`` is one, needing gradients where ``like`` does."""
    family = family_of(tensor)
    needed = family_of(like).requires_grad(like)
    if family_of(like).is_parameter(like):
        return family.make_parameter(tensor, needed)
    family.set_requires_grad(tensor, needed)
    return tensor


def _set(tensor: Any, value: Any) -> None:
    """Gives a tensor the memory of another one; the object stays."""
    family = family_of(tensor)
    if get_swap_module_params_on_conversion() or family.must_swap_contents(tensor, value):
        if family.is_parameter(tensor) and not family.is_parameter(value):
            value = family.make_parameter(value, family.requires_grad(tensor))
        family.swap_tensors(tensor, value)
    else:
        tensor.set_(value)


def _check_like(value: Any, like: Any, words: str, names: tuple[str, str]) -> None:
    """Has the value the dtype and the shape of what it stands for?

    Raises:
        ValueError: it has not, in the given words.
    """
    for what in ("dtype", "shape"):
        old, new = getattr(like, what), getattr(value, what)
        if old != new:
            raise ValueError(f"{words.format(what)}\n{names[0]}: {old}\n{names[1]}: {new}")


_CHANGES = (
    "Registering a parametrization may not change the {} of the tensor, unless `unsafe` flag is "
    "enabled."
)
_CHANGES_BACK = (
    "What `right_inverse` of the parametrization returns must have the same {} as the tensor, "
    "unless the `unsafe` flag is enabled."
)


def _check_computed(value: Any, like: Any) -> None:
    if not is_tensor(value):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    _check_like(value, like, _CHANGES, ("unparametrized", "parametrized"))


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
        try:
            if self.is_tensor:
                self._keep_one(original, new)
            else:
                self._keep_several(original, new)
            if not unsafe:
                _check_computed(self(), before)
        except Exception:
            if self.is_tensor:
                with no_grad(original):
                    _set(original, before)
            raise

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
            _set(original, new)
        _register(self, "original", original)

    def _keep_several(self, original: Any, new: Sequence[Any]) -> None:
        for i, tensor in enumerate(new):
            if not is_tensor(tensor):
                raise ValueError(
                    f"'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                    f"tuple...). Got element {i} of the sequence with type "
                    f"{type(tensor).__name__}."
                )
            _register(self, f"original{i}", _parameter_as(tensor, original))

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
        with no_grad(self._originals()[0]):
            for module in reversed(self._chain()):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                value = module.right_inverse(value)
            for name, new in self._by_name(value).items():
                if is_parametrized(self, name):
                    setattr(self, name, new)
                else:
                    _set(getattr(self, name), new)

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
        parametrization = self.parametrizations[name]
        if not _cache_enabled:
            return parametrization()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = (self, parametrization())
        return _cache[key][1]

    def set_value(self: Any, new: Any) -> None:
        self.parametrizations[name].right_inverse(new)

    return property(value, set_value)


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
    return type(f"Parametrized{base.__name__}", (base,), members)


# -- functions -------------------------------------------------------------------------------------


def _append(module: Any, name: str, parametrization: Any, unsafe: bool) -> None:
    """One more parametrization of a tensor that has some."""
    if not unsafe:
        before = getattr(module, name)
        after = parametrization(before)
        _check_computed(after, before)
        if hasattr(parametrization, "right_inverse"):
            with contextlib.suppress(NotImplementedError):
                back = parametrization.right_inverse(after)
                if not is_tensor(back):
                    raise ValueError(
                        f"parametrization.right_inverse must return a tensor. Got: "
                        f"{type(back).__name__}"
                    )
                _check_like(back, before, _CHANGES_BACK, (f"module.{name}", "returned"))
    parametrizations = module.parametrizations[name]
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
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        _append(module, tensor_name, parametrization, unsafe)
        return module
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
    parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
    delattr(module, tensor_name)
    module.__class__ = cls
    if not parametrized:
        module.register_module("parametrizations", children)
    children[tensor_name] = parametrizations
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Has the module a parametrized tensor; one of this name, if one is given?"""
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
    if parametrizations.is_tensor:
        tensor = parametrizations.original
        if leave_parametrized:
            with no_grad(tensor):
                _set(tensor, getattr(module, tensor_name))
    elif leave_parametrized:
        tensor = getattr(module, tensor_name)
        family = family_of(tensor)
        if family.requires_grad(tensor):
            tensor = family.make_parameter(tensor, True)
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    cls = _class_of(module, [name for name in everything if name != tensor_name])
    del everything[tensor_name]
    module.__class__ = cls
    _register(module, tensor_name, tensor)
    if not everything:
        delattr(module, "parametrizations")
    for parametrization in parametrizations._chain():
        if hasattr(parametrization, "_removed_from"):
            parametrization._removed_from(module, tensor_name)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before the first parametrization."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


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
    for name in list(source) if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name):
            value = getattr(from_module, name)
            setattr(to_module, name, family_of(value).make_parameter(value, True))
        for parametrization in source[name]._chain():
            register_parametrization(to_module, name, parametrization)
        kept = ("_parameters", "_buffers")
        originals = {k: v for table in kept for k, v in getattr(source[name], table).items()}
        for key, original in originals.items():
            setattr(target.parametrizations[name], key, original)
    return to_module
