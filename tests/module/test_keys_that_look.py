# SPDX-License-Identifier: BSD-3-Clause
"""Names that are compared with a key whose ``__eq__`` looks at the module, or raises."""

from __future__ import annotations

import copy

import pytest
from helpers.util import param


class Stop(BaseException):
    """Not an Exception, as an interrupt is none."""


class Name(str):
    """Equal to nothing; compared, it runs ``action`` first."""

    action = None
    __hash__ = str.__hash__

    def __eq__(self, other):
        if self.action:
            self.action()
        return False


def module_with_key(impl, text, **entries):
    class M(impl.nn.Module):
        def forward(self, x):
            return "class"

    m = M()
    key = Name(text)
    setattr(m, key, "odd")
    for name, value in entries.items():
        setattr(m, name, value)
    return m, key


@pytest.mark.parametrize("had_it", [False, True])
def test_a_write_compared_with_a_key_that_looks_at_the_dict(impl, had_it):
    m, key = module_with_key(impl, "x", **({"x": 1} if had_it else {}))
    key.action = lambda: vars(m)
    m.x = 2
    key.action = None
    assert vars(m)["x"] == m.x == 2


def test_a_delete_compared_with_a_key_that_looks_at_the_dict(impl):
    m, key = module_with_key(impl, "x", x=1)
    key.action = lambda: vars(m)
    del m.x
    key.action = None
    assert not hasattr(m, "x") and "x" not in [k for k in vars(m) if type(k) is str]
    with pytest.raises(AttributeError):
        del m.x


def test_a_parameter_in_the_place_of_an_attribute_compared_with_such_a_key(impl):
    m, key = module_with_key(impl, "x", x=1)
    key.action = lambda: vars(m)
    m.x = parameter = param(impl)
    key.action = None
    assert m.x is parameter and [n for n, _ in m.named_parameters()] == ["x"]


@pytest.mark.parametrize("read", [getattr, lambda m, name: m.__dict__[name], hasattr])
def test_a_read_compared_with_a_key_that_looks_at_the_dict(impl, read):
    m, key = module_with_key(impl, "x", x=1)
    key.action = lambda: vars(m)
    assert read(m, "x")


def test_a_finalizer_that_looks_at_the_dict_has_the_last_word(impl):
    class Last:
        def __del__(self):
            m.x = "finalizer"

    m = impl.nn.Module()
    m.x = Last()
    m.x = 2
    assert m.x == vars(m)["x"] == "finalizer"


def test_forward_of_an_instance_compared_with_a_key_that_looks_at_the_dict(impl):
    m, key = module_with_key(impl, "forward", forward=lambda x: "instance")
    key.action = lambda: vars(m)
    assert m(1) == "instance"


def test_a_name_that_looks_at_the_dict_when_it_is_hashed_or_compared(impl):
    class Looking(str):
        def __hash__(self):
            vars(m)
            return str.__hash__(self)

        def __eq__(self, other):
            vars(m)
            return str.__eq__(self, other)

    for before in ({}, {"x": 1}):
        m = impl.nn.Module()
        for name, value in before.items():
            setattr(m, name, value)
        setattr(m, Looking("x"), 2)
        assert m.x == vars(m)["x"] == 2

        m = impl.nn.Module()
        m.x = 3
        assert getattr(m, Looking("x")) == 3
        m = impl.nn.Module()
        m.x = 3
        delattr(m, Looking("x"))
        assert not hasattr(m, "x") and "x" not in vars(m)
        m = impl.nn.Module()
        m.__setstate__({**vars(impl.nn.Module()), Looking("x"): 1, "y": 2})
        assert vars(m)["x"] == 1 and m.y == 2


# -- keys that raise -------------------------------------------------------------------------------

USES = {
    "read": getattr,
    "hasattr": hasattr,
    "write": lambda m, name: setattr(m, name, 1),
    "delete": delattr,
}


def stop():
    raise Stop


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_a_key_raises_comes_out(impl, use):
    m, key = module_with_key(impl, "x", x=1)
    key.action = stop
    with pytest.raises(Stop):
        use(m, "x")
    key.action = None
    assert m.x == 1


EVERYTHING = {
    **USES,
    "write None": lambda m, name: setattr(m, name, None),
    "write module": lambda m, name: setattr(m, name, type(m)()),
    "register": lambda m, name: m.register_buffer(name, None),
    "walk": lambda m, name: list(m.named_parameters()),
    "parameters": lambda m, name: list(m.parameters()),
    "children": lambda m, name: list(m.children()),
    "train": lambda m, name: m.train(),
    "eval": lambda m, name: m.eval(),
    "zero_grad": lambda m, name: m.zero_grad(),
    "requires_grad_": lambda m, name: m.requires_grad_(),
    "apply": lambda m, name: m.apply(id),
    "convert": lambda m, name: m.float(),
    "call": lambda m, name: m(1),
    "state_dict": lambda m, name: m.state_dict(),
    "load": lambda m, name: m.load_state_dict({name: 1}, strict=False),
    "state": lambda m, name: m.__getstate__(),
    "pickle": lambda m, name: m.__reduce_ex__(2),
    "copy": lambda m, name: copy.copy(m),
    "deepcopy": lambda m, name: copy.deepcopy(m),
    "repr": lambda m, name: repr(m),
    "new state": lambda m, name: type(m)().__setstate__(vars(m)),
}
NAMES = """
    x training forward parameters train state_dict register_parameter register_buffer
    named_parameters named_modules named_children _parameters _buffers _modules
    _non_persistent_buffers_set _forward_hooks _forward_pre_hooks _backward_hooks _state_dict_hooks
    _load_state_dict_pre_hooks _call_impl _compiled_call_impl _save_to_state_dict
    _load_from_state_dict _named_members _version __deepcopy__
""".split()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["__dict__", "_parameters", "_buffers", "_modules"])
def test_no_use_drops_what_a_key_raises(ours, where, name):
    for use in EVERYTHING.values():
        for skipped in range(4):  # comparisons that pass
            m = ours.nn.Module()
            key, left = Name(name), [skipped]
            getattr(m, where)[key] = None
            if where == "__dict__" and name in m.__dict__:
                m.__dict__[name] = m.__dict__.pop(name)  # behind the key, which is met first

            def action(left=left):
                left[0] -= 1
                if left[0] < 0:
                    raise Stop

            key.action = action
            try:
                use(m, name)
            except Stop:
                assert left[0] < 0
            except (AttributeError, KeyError, RuntimeError, TypeError, NotImplementedError):
                assert left[0] >= 0
            else:
                assert left[0] >= 0


def test_forward_of_an_instance_is_not_skipped(impl):
    m, key = module_with_key(impl, "forward", forward=lambda x: "instance")
    key.action = stop
    with pytest.raises(Stop):
        m(1)
    key.action = None
    assert m(1) == "instance"
