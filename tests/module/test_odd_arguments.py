# SPDX-License-Identifier: BSD-3-Clause
"""Every method of Module with arguments that nobody should give: the outcomes are torch's."""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict, UserDict
from typing import Any

import pytest
from helpers.implementations import implementation, needs_torch
from helpers.support import raises
from helpers.util import names, param, tensor

import modtree

# -- what torch takes and what it refuses ----------------------------------------------------------


def test_getattr_by_hand_with_a_name_that_is_no_string(impl):
    m = impl.nn.Module()
    for name in (3, None, (1,)):
        with raises(AttributeError, f"has no attribute '{name}'"):
            m.__getattr__(name)
    with raises(TypeError, "unhashable"):
        m.__getattr__([])


def test_a_state_may_be_any_mapping_or_pairs(impl):
    state = impl.nn.Module().__getstate__() | {"plain": 1}
    for given in (UserDict(state), OrderedDict(state), list(state.items())):
        m = impl.nn.Module.__new__(impl.nn.Module)
        m.__setstate__(given)
        assert m.plain == 1 and m.training and names(m.named_modules()) == [""]


def test_requires_grad_looks_at_its_argument_when_there_is_a_parameter(impl):
    m = impl.nn.Module()
    assert m.requires_grad_(None) is m
    m.w = param(impl)
    with raises(TypeError, "must be bool, not"):
        m.requires_grad_(None)


def test_saving_needs_a_prefix_that_is_a_string(impl):
    with pytest.raises(TypeError):
        impl.nn.Module()._save_to_state_dict({}, None, False)


def test_set_submodule_looks_at_the_path_first(impl):
    with pytest.raises(AttributeError, match="NoneType"):
        impl.nn.Module().set_submodule(None, None)


def test_names_of_the_arguments_of_the_warning_for_legacy_hooks(impl):
    with pytest.warns(FutureWarning, match="does not take as input"):
        impl.nn.Module()._maybe_warn_non_full_backward_hook(
            inputs=1, result=tensor(impl), grad_fn=None
        )


# -- where we differ -------------------------------------------------------------------------------


class Undecided:
    def __bool__(self) -> bool:
        raise LookupError("undecided")


def test_flags_are_read_at_the_call(ours):
    m = ours.nn.Module()
    for method in (m.parameters, m.named_parameters, m.buffers, m.named_buffers):
        with raises(LookupError, "undecided"):
            method(recurse=Undecided())
    with raises(LookupError, "undecided"):
        m.state_dict(keep_vars=Undecided())
    with raises(LookupError, "undecided"):
        m.zero_grad(Undecided())


def test_special_methods_take_no_keywords(ours):
    m = ours.nn.Module()
    for name, keywords in (
        ("__setattr__", {"name": "x", "value": 1}),
        ("__delattr__", {"name": "x"}),
        ("__getattr__", {"name": "x"}),
        ("__setstate__", {"state": {}}),
    ):
        with raises(TypeError, "takes no keyword arguments"):
            getattr(m, name)(**keywords)
    m.__setattr__("x", 1)
    assert m.x == 1


# -- all methods -----------------------------------------------------------------------------------

# Conversions depend on devices and dtypes, which differ by library; the rest is covered above or
# not called with such values.
LEFT_OUT = {
    "to",
    "to_empty",
    "type",
    "bfloat16",
    "cuda",
    "xpu",
    "ipu",
    "mtia",
    "share_memory",
    "compile",
    "T_destination",
    "_repr_html_",  # which notebooks ask for
    "register_state_dict_post_hook",  # docs/compat.md
}
METHODS = [
    name
    for name, value in vars(modtree.nn.Module).items()
    if callable(value) and not name.startswith("__") and name not in LEFT_OUT
] + [
    name
    for name, value in vars(modtree._C.ModuleBase).items()
    if callable(value) and not name.startswith("__") and name not in LEFT_OUT
]
# The library says what is wrong with a text as index.
STORED_INTO_A_TENSOR = {"destination=a parameter", "(a parameter)"}
# Sensible values for the other arguments of a call, by the name of the parameter.
OTHERS: dict[str, Any] = {
    "name": "n",
    "hook": print,
    "fn": print,
    "state_dict": {},
    "prefix": "",
    "target": "child",
    "destination": {},
    "keep_vars": False,
    "local_metadata": {},
    "strict": True,
    "missing_keys": (),
    "unexpected_keys": (),
    "error_msgs": (),
    "inputs": (),
    "result": (),
    "get_members_fn": lambda module: module._parameters.items(),
}


def odd_values(impl: Any) -> dict[str, Any]:
    return {
        "None": None,
        "True": True,
        "1": 1,
        "2.5": 2.5,
        "''": "",
        "'w'": "w",
        "'child'": "child",
        "'child.w'": "child.w",
        "'new'": "new",
        "'a.b'": "a.b",
        "'forward'": "forward",
        "'training'": "training",
        "b'w'": b"w",
        "[]": [],
        "{}": {},
        "{'w': 1}": {"w": 1},
        "[1]": [1],
        "object()": object(),
        "a type": int,
        "a function": len,
        "a module": impl.nn.Module(),
        "a parameter": param(impl),
        "a set": set(),
    }


def make(impl: Any) -> Any:
    m = impl.nn.Module()
    m.w, m.child, m.plain = param(impl), impl.nn.Module(), 1
    m.child.w = param(impl)
    m.register_buffer("b", tensor(impl))
    return m


def calls(method: str, oracle: Any, impl: Any):
    """(label, positional, keywords): each value in the place of each argument, too few and too many
    arguments.
    """
    yield "nothing", (), {}
    yield "nine arguments", tuple(range(9)), {}
    yield "unknown keyword", (), {"unknown": 1}
    parameters = list(inspect.signature(getattr(oracle.nn.Module, method)).parameters.values())[1:]
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = [p.name for p in named if p.default is p.empty]
    for label, value in odd_values(impl).items():
        yield f"({label})", (value,), {}
        for p in named:
            others = {n: OTHERS.get(n) for n in required if n != p.name}
            yield f"{p.name}={label}", (), others | {p.name: value}


def kind_of(value: Any, module: Any) -> Any:
    if value is module:
        return "self"
    if type(value).__name__ in ("Walk", "generator"):
        return [kind_of(x, module) for x in value]
    if isinstance(value, tuple):
        return tuple(kind_of(x, module) for x in value)
    kind = type(value).__name__
    return {"StateDict": "OrderedDict", "Size": "tuple"}.get(kind, kind)


def outcomes(impl: Any, method: str) -> dict[str, Any]:
    found = {}
    for label, args, kwargs in calls(method, implementation("torch"), impl):
        m = make(impl)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                outcome = kind_of(getattr(m, method)(*args, **kwargs), m)
            except Exception as e:
                outcome = f"{type(e).__name__} raised"
        warned = [(w.category, str(w.message)[:36]) for w in caught]
        left = [names(m.named_parameters()), names(m.named_buffers()), names(m.named_children())]
        hooks = {k: len(v) for k, v in m.__dict__.items() if "hooks" in k}
        found[label] = outcome, warned, left, hooks, "plain" in m.__dict__
    return found


@needs_torch
@pytest.mark.parametrize("method", sorted(set(METHODS)))
def test_outcomes_are_those_of_torch(ours, method):
    oracle = implementation("torch")
    if not hasattr(oracle.nn.Module, method):
        pytest.fail(f"torch's Module does not have {method}: add it to LEFT_OUT")
    expected, got = outcomes(oracle, method), outcomes(ours, method)
    different = {k for k, v in got.items() if v != expected[k]} - STORED_INTO_A_TENSOR
    assert not {k: (got[k], expected[k]) for k in different}
