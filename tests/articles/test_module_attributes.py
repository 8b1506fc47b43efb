# SPDX-License-Identifier: BSD-3-Clause
"""Attributes of a module, as articles print them from torch's file (2020 and 2025): the
code runs as overrides in a class of a user's.
"""

# ruff: noqa: UP006, UP007, UP032, UP037, UP045, SIM118, N806, F821
from __future__ import annotations

from collections import OrderedDict
from typing import Any, Union

import pytest
from helpers.article_names import names_of
from helpers.support import raises


def with_setattr_of_2020(impl):
    names = names_of(impl)
    torch, Module, Parameter, Tensor = names.torch, names.Module, names.Parameter, names.Tensor

    class Written(Module):
        def __setattr__(self, name: str, value: Union[Tensor, "Module"]):
            def remove_from(*dicts_or_sets):
                for d in dicts_or_sets:
                    if name in d:
                        if isinstance(d, dict):
                            del d[name]
                        else:
                            d.discard(name)

            params = self.__dict__.get("_parameters")
            if isinstance(value, Parameter):
                if params is None:
                    raise AttributeError("cannot assign parameters before Module.__init__() call")
                remove_from(
                    self.__dict__,
                    self._buffers,
                    self._modules,
                    self._non_persistent_buffers_set,
                )
                self.register_parameter(name, value)
            elif params is not None and name in params:
                if value is not None:
                    raise TypeError(
                        "cannot assign '{}' as parameter '{}' "
                        "(torch.nn.Parameter or None expected)".format(torch.typename(value), name)
                    )
                self.register_parameter(name, value)
            else:
                modules = self.__dict__.get("_modules")
                if isinstance(value, Module):
                    if modules is None:
                        raise AttributeError("cannot assign module before Module.__init__() call")
                    remove_from(
                        self.__dict__,
                        self._parameters,
                        self._buffers,
                        self._non_persistent_buffers_set,
                    )
                    modules[name] = value
                elif modules is not None and name in modules:
                    if value is not None:
                        raise TypeError(
                            "cannot assign '{}' as child module '{}' "
                            "(torch.nn.Module or None expected)".format(torch.typename(value), name)
                        )
                    modules[name] = value
                else:
                    buffers = self.__dict__.get("_buffers")
                    if buffers is not None and name in buffers:
                        if value is not None and not isinstance(value, torch.Tensor):
                            raise TypeError(
                                "cannot assign '{}' as buffer '{}' "
                                "(torch.Tensor or None expected)".format(
                                    torch.typename(value), name
                                )
                            )
                        buffers[name] = value
                    else:
                        object.__setattr__(self, name, value)

        def __delattr__(self, name):
            if name in self._parameters:
                del self._parameters[name]
            elif name in self._buffers:
                del self._buffers[name]
                self._non_persistent_buffers_set.discard(name)
            elif name in self._modules:
                del self._modules[name]
            else:
                object.__delattr__(self, name)

        def __dir__(self):
            module_attrs = dir(self.__class__)
            attrs = list(self.__dict__.keys())
            parameters = list(self._parameters.keys())
            modules = list(self._modules.keys())
            buffers = list(self._buffers.keys())
            keys = module_attrs + attrs + parameters + modules + buffers

            # Eliminate attrs that are not legal Python variable names
            keys = [key for key in keys if not key[0].isdigit()]

            return sorted(keys)

        def __getattr__(self, name: str) -> Union[Tensor, "Module"]:
            if "_parameters" in self.__dict__:
                _parameters = self.__dict__["_parameters"]
                if name in _parameters:
                    return _parameters[name]
            if "_buffers" in self.__dict__:
                _buffers = self.__dict__["_buffers"]
                if name in _buffers:
                    return _buffers[name]
            if "_modules" in self.__dict__:
                modules = self.__dict__["_modules"]
                if name in modules:
                    return modules[name]
            raise ModuleAttributeError(
                "'{}' object has no attribute '{}'".format(type(self).__name__, name)
            )

    return Written


class ModuleAttributeError(AttributeError):
    """What torch 1.7 raised for a missing attribute."""


def with_init_of_2021(impl):
    torch, Module = names_of(impl).torch, impl.nn.Module

    class Written(Module):
        def __init__(self) -> None:
            """
            Initializes internal Module state, shared by both nn.Module and ScriptModule.
            """
            torch._C._log_api_usage_once("python.nn_module")

            self.training = True
            self._parameters: Dict[str, Optional[Parameter]] = OrderedDict()
            self._buffers: Dict[str, Optional[Tensor]] = OrderedDict()
            self._non_persistent_buffers_set: Set[str] = set()
            self._backward_hooks: Dict[int, Callable] = OrderedDict()
            self._is_full_backward_hook = None
            self._forward_hooks: Dict[int, Callable] = OrderedDict()
            self._forward_pre_hooks: Dict[int, Callable] = OrderedDict()
            self._state_dict_hooks: Dict[int, Callable] = OrderedDict()
            self._load_state_dict_pre_hooks: Dict[int, Callable] = OrderedDict()
            self._modules: Dict[str, Optional["Module"]] = OrderedDict()

    return Written


def with_setattr_of_2025(impl):
    names = names_of(impl)
    torch, Module, Parameter, Buffer = names.torch, names.Module, names.Parameter, names.Buffer
    Tensor = names.Tensor
    _global_module_registration_hooks = impl.module._global_module_registration_hooks
    _global_buffer_registration_hooks = impl.module._global_buffer_registration_hooks

    class Written(Module):
        def __init__(self, *args, **kwargs) -> None:
            """Initialize internal Module state."""
            torch._C._log_api_usage_once("python.nn_module")

            super().__setattr__("training", True)
            super().__setattr__("_parameters", {})
            super().__setattr__("_buffers", {})
            super().__setattr__("_non_persistent_buffers_set", set())
            super().__setattr__("_backward_pre_hooks", OrderedDict())
            super().__setattr__("_backward_hooks", OrderedDict())
            super().__setattr__("_is_full_backward_hook", None)
            super().__setattr__("_forward_hooks", OrderedDict())
            super().__setattr__("_forward_hooks_with_kwargs", OrderedDict())
            super().__setattr__("_forward_hooks_always_called", OrderedDict())
            super().__setattr__("_forward_pre_hooks", OrderedDict())
            super().__setattr__("_forward_pre_hooks_with_kwargs", OrderedDict())
            super().__setattr__("_state_dict_hooks", OrderedDict())
            super().__setattr__("_state_dict_pre_hooks", OrderedDict())
            super().__setattr__("_load_state_dict_pre_hooks", OrderedDict())
            super().__setattr__("_load_state_dict_post_hooks", OrderedDict())
            super().__setattr__("_modules", {})

        def __setattr__(self, name: str, value: Union[Tensor, "Module"]) -> None:
            def remove_from(*dicts_or_sets) -> None:
                for d in dicts_or_sets:
                    if name in d:
                        if isinstance(d, dict):
                            del d[name]
                        else:
                            d.discard(name)

            params = self.__dict__.get("_parameters")
            if isinstance(value, Parameter):
                if params is None:
                    raise AttributeError("cannot assign parameters before Module.__init__() call")
                remove_from(
                    self.__dict__,
                    self._buffers,
                    self._modules,
                    self._non_persistent_buffers_set,
                )
                self.register_parameter(name, value)
            elif params is not None and name in params:
                if value is not None:
                    raise TypeError(f"cannot assign {value!r} as parameter '{name}'")
                self.register_parameter(name, value)
            else:
                modules = self.__dict__.get("_modules")
                if isinstance(value, Module):
                    if modules is None:
                        raise AttributeError("cannot assign module before Module.__init__() call")
                    remove_from(
                        self.__dict__,
                        self._parameters,
                        self._buffers,
                        self._non_persistent_buffers_set,
                    )
                    for hook in _global_module_registration_hooks.values():
                        output = hook(self, name, value)
                        if output is not None:
                            value = output
                    modules[name] = value
                elif modules is not None and name in modules:
                    if value is not None:
                        raise TypeError(f"cannot assign {value!r} as child module '{name}'")
                    for hook in _global_module_registration_hooks.values():
                        output = hook(self, name, value)
                        if output is not None:
                            value = output
                    modules[name] = value
                else:
                    buffers = self.__dict__.get("_buffers")
                    if isinstance(value, Buffer) or buffers is not None and name in buffers:
                        # The article has a comment here.
                        if value is not None and not isinstance(value, torch.Tensor):
                            raise TypeError(f"cannot assign {value!r} as buffer '{name}'")
                        if isinstance(value, Buffer):
                            persistent = value.persistent
                        else:
                            persistent = name not in self._non_persistent_buffers_set
                        self.register_buffer(name, value, persistent)
                    else:
                        super().__setattr__(name, value)

        def register_buffer(
            self, name: str, tensor: Tensor | None, persistent: bool = True
        ) -> None:
            if persistent is False and isinstance(self, torch.jit.ScriptModule):
                raise RuntimeError("ScriptModule does not support non-persistent buffers")

            if "_buffers" not in self.__dict__:
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            elif not isinstance(name, str):
                raise TypeError(f"buffer name should be a string. Got {torch.typename(name)}")
            elif "." in name:
                raise KeyError('buffer name can\'t contain "."')
            elif name == "":
                raise KeyError('buffer name can\'t be empty string ""')
            elif hasattr(self, name) and name not in self._buffers:
                raise KeyError(f"attribute '{name}' already exists")
            elif tensor is not None and not isinstance(tensor, torch.Tensor):
                raise TypeError(f"cannot assign {tensor!r} object to buffer '{name}'")
            else:
                for hook in _global_buffer_registration_hooks.values():
                    output = hook(self, name, tensor)
                    if output is not None:
                        tensor = output
                self._buffers[name] = tensor
                if persistent:
                    self._non_persistent_buffers_set.discard(name)
                else:
                    self._non_persistent_buffers_set.add(name)

        def __getattr__(self, name: str) -> Any:
            _parameters = self.__dict__.get("_parameters")
            if _parameters is not None and name in _parameters:
                return _parameters[name]
            _buffers = self.__dict__.get("_buffers")
            if _buffers is not None and name in _buffers:
                return _buffers[name]
            _modules = self.__dict__.get("_modules")
            if _modules is not None and name in _modules:
                return _modules[name]
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    return Written


WRITTEN = [with_setattr_of_2020, with_setattr_of_2025]


@pytest.fixture(params=WRITTEN, ids=["2020", "2025"])
def Written(request, impl):  # noqa: N802
    return request.param(impl)


def fill(m, impl):
    """Assignments of all kinds, over each other too."""
    lib, nn = impl.lib, impl.nn
    m.weight = nn.Parameter(lib.ones(2))
    m.child = nn.Linear(2, 2) if impl.name != "modtree-torch" else nn.Identity()
    m.register_buffer("mean", lib.zeros(2))
    m.register_buffer("hidden", lib.zeros(2), persistent=False)
    m.plain = "text"
    m.mean = lib.ones(2)
    m.hidden = None
    m.weight = None
    m.weight = nn.Parameter(lib.ones(3))
    m.plain_then_module = 1
    m.plain_then_module = nn.Identity()
    m.module_then_parameter = nn.Identity()
    m.module_then_parameter = nn.Parameter(lib.ones(1))
    m.buffer_then_module = None
    del m.buffer_then_module
    m.register_buffer("buffer_then_module", lib.ones(1), persistent=False)
    m.buffer_then_module = nn.Identity()
    m.gone = nn.Parameter(lib.ones(1))
    del m.gone
    m.register_buffer("gone", lib.ones(1), persistent=False)
    del m.gone
    m.gone = 5
    del m.gone
    return m


def registries(m):
    return {
        "parameters": {k: tuple(p.shape) for k, p in m._parameters.items()},
        "buffers": {k: b if b is None else b.tolist() for k, b in m._buffers.items()},
        "modules": {k: type(c).__name__ for k, c in m._modules.items()},
        "hidden": m._non_persistent_buffers_set,
        "state": list(m.state_dict()),
        "plain": m.plain,
    }


def test_assignments_as_written(impl, Written):
    assert registries(fill(Written(), impl)) == registries(fill(impl.nn.Module(), impl))


def test_refusals_as_written(impl, Written):
    lib, nn = impl.lib, impl.nn
    m = fill(Written(), impl)
    for name, value in (("weight", lib.ones(2)), ("weight", 1), ("child", 1), ("mean", "text")):
        with raises(TypeError, f"'{name}'"):
            setattr(m, name, value)
    with pytest.raises(AttributeError, match="object has no attribute 'nothing'"):
        m.nothing  # noqa: B018
    bare = Written.__new__(Written)
    with raises(AttributeError, "cannot assign parameters before Module.__init__() call"):
        bare.weight = nn.Parameter(lib.ones(1))
    with raises(AttributeError, "cannot assign module before Module.__init__() call"):
        bare.child = nn.Identity()


def test_names_as_written(impl):
    written = fill(with_setattr_of_2020(impl)(), impl)
    written.add_module("0", impl.nn.Identity())
    ours = fill(impl.nn.Module(), impl)
    assert {n for n in dir(written) if not n.startswith("__")} == set(
        n for n in dir(ours) if not n.startswith("__")
    )
    with pytest.raises(ModuleAttributeError):
        written.nothing  # noqa: B018


def test_registration_hooks_as_written(impl):
    Written = with_setattr_of_2025(impl)
    seen = []
    handles = [
        impl.module.register_module_module_registration_hook(
            lambda m, name, child: seen.append(name)
        ),
        impl.module.register_module_buffer_registration_hook(
            lambda m, name, tensor: impl.lib.full((1,), 7.0)
        ),
    ]
    m = Written()
    m.child = impl.nn.Identity()
    m.child = None
    m.mean = impl.nn.Buffer(impl.lib.zeros(1), persistent=False)
    for handle in handles:
        handle.remove()
    assert seen == ["child", "child"]
    assert m.mean.tolist() == [7.0]
    assert m._non_persistent_buffers_set == {"mean"}
    for name, error in (("a.b", KeyError), ("", KeyError), ("child", None), ("_buffers", KeyError)):
        if error is None:
            m._modules[name] = impl.nn.Identity()
            error = KeyError
        with pytest.raises(error):
            m.register_buffer(name, None)


def test_registries_of_2021(impl):
    m = with_init_of_2021(impl)()
    assert type(m._parameters) is OrderedDict
    m.weight = impl.nn.Parameter(impl.lib.ones(2))
    m.register_buffer("mean", impl.lib.zeros(2), persistent=False)
    m.child = impl.nn.Identity()
    m.child, m.other = None, m.child
    m.weight = None
    m.weight = impl.nn.Parameter(impl.lib.ones(3))
    assert [tuple(p.shape) for p in m.parameters()] == [(3,)]
    assert list(m._modules.items())[0] == ("child", None)
    assert [k for k, _ in m.named_modules()] == ["", "other"]
    assert m.double().weight.dtype == impl.lib.float64
    assert not m.eval().other.training
    # Of what came later, the article's constructor knows nothing.
    for act, name in ((m.state_dict, "_state_dict_pre_hooks"), (m, "_backward_pre_hooks")):
        with pytest.raises(AttributeError, match=name):
            act()
    later = set(vars(impl.nn.Module())) - set(vars(m))
    for name in later:
        setattr(m, name, OrderedDict())
    assert list(m.state_dict()) == ["weight"]
    m.forward = lambda x: x
    m.register_forward_hook(lambda m, args, out: out + 1)
    assert m(1) == 2


def test_a_module_made_without_the_constructor_works(impl):
    m = fill(with_setattr_of_2025(impl)(), impl)
    assert list(m.__dict__)[:17] == list(impl.nn.Module().__dict__)
    m.forward = lambda x: x + 1
    seen = []
    m.register_forward_hook(lambda m, args, out: seen.append(out))
    assert m(1) == 2
    assert seen == [2]
    m.eval()
    assert [c.training for c in m.modules()] == [False] * len(list(m.modules()))


def test_parameters_register_and_other_tensors_do_not(impl):
    torch, nn = impl.lib, impl.nn
    module = nn.Module()

    # Parameters register themselves.
    module.weight = nn.Parameter(torch.randn(3, 4))
    assert [repr(p).split("\n")[0] for p in module.parameters()] == ["Parameter containing:"]

    # Other tensors do not.
    module.cache = torch.randn(3, 4)
    assert list(module.parameters()) == [module.weight]
    assert "cache" in module.__dict__

    # A name is in one place only.
    module.fc = nn.Module()
    module.fc = nn.Parameter(torch.randn(10))
    assert "fc" not in module._modules
    assert "fc" in module._parameters
