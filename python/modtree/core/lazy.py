# SPDX-License-Identifier: BSD-3-Clause
"""Modules that find out the shapes of their parameters in their first call."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from modtree.core.families import family_of, is_lazy
from modtree.core.module import Module
from modtree.core.undo import undone_on_error

if TYPE_CHECKING:
    _Base = Module
else:
    _Base = object


class LazyModuleMixin(_Base):
    """Makes a module class lazy: parameters start without a shape, and the first call gives them
    one.

    It comes before the module class in the bases. The constructor registers
    :class:`UninitializedParameter` or :class:`UninitializedBuffer` objects, and
    ``initialize_parameters``, which gets the arguments of the first call, materializes them::

        class LazyScale(nn.modules.lazy.LazyModuleMixin, Scale):
            cls_to_become = Scale

            def __init__(self):
                super().__init__(0)
                self.weight = nn.UninitializedParameter()

            def initialize_parameters(self, input):
                self.weight.materialize((input.shape[-1],))
                nn.init.ones_(self.weight)

    After that the module is one of ``cls_to_become``, from the ``forward`` of the first call on;
    where that is None it keeps its class. Loading a state dict gives uninitialized entries the
    shapes of what is loaded. Until everything has a shape, a model cannot be given to an optimizer;
    it can be converted (``model.to(...)``), copied, pickled and saved.
    """

    #: The class of the module once it is initialized; None keeps it.
    cls_to_become: type[Module] | None = None

    # Plain attributes that initialize_parameters() sets.
    _inferred: tuple[str, ...] = ()

    # Asked by native code where the class changed while pre-hooks ran.
    _calls_forward_of_new_class = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Gives shapes and values to what has none; to be overridden.

        It gets the arguments of the first call. It is also called where a state dict gave all
        shapes before.
        """
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}: it gives shapes "
            f"to parameters and buffers by self.weight.materialize(shape)"
        )

    def has_uninitialized_params(self) -> bool:
        """True if a parameter or buffer of the module itself does not have a shape yet."""
        return any(is_lazy(tensor) for _, tensor in _own_tensors(self))

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any = None) -> None:
        """The pre-hook of the first call."""
        with _undone_on_error(module), _left_lazy_on_error(module):
            module.initialize_parameters(*args, **(kwargs or {}))
            if module.has_uninitialized_params():
                left = [name for name, tensor in _own_tensors(module) if is_lazy(tensor)]
                raise RuntimeError(
                    f"module {self._get_name()} has not been fully initialized: "
                    f"initialize_parameters left {', '.join(left)} without a shape"
                )
            _take_library(module, (*args, *(kwargs or {}).values()))
            module._initialize_hook.remove()
            module._load_hook.remove()
            del module._initialize_hook, module._load_hook
            if module.cls_to_become is not None:
                module.__class__ = module.cls_to_become

    def _lazy_load_hook(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: list[str]
    ) -> None:
        """The load pre-hook: entries take the shapes of what will be loaded into them."""
        for name, tensor in list(_own_tensors(self)):
            given = state_dict.get(prefix + name)
            if given is not None and is_lazy(tensor) and not is_lazy(given):
                tensor.materialize(given.shape)
                family = family_of(given)
                if family is not None and family.immutable:
                    _take_library(self, (given,))

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Entries without a shape are stored as they are, all else as by any module."""
        lazy = {name: tensor for name, tensor in _own_tensors(self) if is_lazy(tensor)}
        if not lazy:
            super()._save_to_state_dict(destination, prefix, keep_vars)
            return
        for name, tensor in _own_tensors(self):
            is_hidden = name not in self._parameters and name in self._non_persistent_buffers_set
            if tensor is not None and not is_hidden:
                kept = keep_vars or name in lazy
                destination[prefix + name] = tensor if kept else tensor.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + "_extra_state"] = self.get_extra_state()

    def _replicate_for_data_parallel(self) -> NoReturn:
        raise RuntimeError(
            f"Modules with uninitialized parameters can't be used with `DataParallel`. Call the "
            f"{type(self).__name__} once to initialize it"
        )


# No method, as below: the module may be of another class already.
def _undone_on_error(module: Any) -> contextlib.AbstractContextManager[None]:
    """When the block raises, the module waits for its first call as before."""
    names = (*module._parameters, *module._buffers, *getattr(module, "_inferred", ()))
    hooks = ("_infer_parameters", "_lazy_load_hook")
    return undone_on_error(
        module,
        *names,
        "_initialize_hook",
        "_load_hook",
        "__class__",
        is_hook=lambda hook: getattr(hook, "__name__", None) in hooks,
    )


@contextlib.contextmanager
def _left_lazy_on_error(module: Any) -> Iterator[None]:
    """When the block raises, what had no shape has none again."""
    lazy = [
        (tensor, type(tensor), tensor.data) for _, tensor in _own_tensors(module) if is_lazy(tensor)
    ]
    try:
        yield
    except BaseException:
        for tensor, cls, data in lazy:
            if not is_lazy(tensor):
                tensor.data = data
                tensor.__class__ = cls
        raise


def _take_library(module: Any, inputs: tuple[Any, ...]) -> None:
    """Tensors of the module become those of the library of the first input: what had no shape did
    not know it.
    """
    family = next((found for found in map(family_of, inputs) if found is not None), None)
    if family is None:
        return
    for registry in (module._parameters, module._buffers):
        for name, tensor in list(registry.items()):
            if family_of(tensor) not in (None, family) and not is_lazy(tensor):
                registry[name] = family.converted(tensor)


# No method: the hooks may run when the module is of another class already.
def _own_tensors(module: Any) -> Iterator[tuple[str, Any]]:
    return itertools.chain(module._parameters.items(), module._buffers.items())
