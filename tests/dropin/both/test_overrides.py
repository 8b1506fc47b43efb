# SPDX-License-Identifier: BSD-3-Clause
"""Subclasses that override, patches of the class and of instances, and taking them back."""

from __future__ import annotations

import copy
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

#: Method -> what reaches it on a child, whose parent is walked.
REACHED_BY = {
    "train": lambda parent: parent.eval(),
    "_apply": lambda parent: parent.double(),
    "state_dict": lambda parent: parent.state_dict(),
    "_save_to_state_dict": lambda parent: parent.state_dict(),
    "_load_from_state_dict": lambda parent: parent.load_state_dict(parent.state_dict()),
    "forward": lambda parent: parent(torch.ones(2)),
    "__call__": lambda parent: parent(torch.ones(2)),
    "_call_impl": lambda parent: parent(torch.ones(2)),
    "apply": lambda parent: parent.apply(lambda module: None),
    "children": lambda parent: parent.apply(lambda module: None),
    "named_modules": lambda parent: list(parent.modules()),
    "_get_name": lambda parent: repr(parent[0]),
    "extra_repr": lambda parent: repr(parent),
    "named_parameters": lambda parent: list(parent[0].parameters()),
    "parameters": lambda parent: parent[0].zero_grad(),
    "buffers": lambda parent: list(parent[0].buffers()),
    "named_buffers": lambda parent: list(parent[0].buffers()),
    "named_children": lambda parent: list(parent[0].children()),
    "__setattr__": lambda parent: setattr(parent[0], "name", 1),
    "__delattr__": lambda parent: delattr(parent[0], "extra"),
    "__getattr__": lambda parent: parent[0].weight,
}
DUNDER = [name for name in REACHED_BY if name.startswith("__")]
#: torch reaches the children of a Sequential by the class.
ON_INSTANCES = [name for name in REACHED_BY if name not in (*DUNDER, "named_modules")]


def child(cls=nn.Linear):
    made = cls(2, 2)
    made.extra = 1
    return made


def recorder(log, name, original):
    def method(self, *args, **kwargs):
        log.append(name)
        return original(self, *args, **kwargs)

    return method


@pytest.mark.parametrize("name", REACHED_BY)
def test_an_override_is_reached_and_reaches_super(name):
    log = []

    class Own(nn.Linear):
        pass

    def method(self, *args, **kwargs):
        log.append(name)
        return getattr(super(Own, self), name)(*args, **kwargs)

    setattr(Own, name, method)
    tree = nn.Sequential(child(Own))
    log.clear()
    REACHED_BY[name](tree)
    assert log and set(log) == {name}


@pytest.mark.parametrize(
    ("of", "name"),
    [
        pytest.param(of, name, id=f"{of.__name__}-{name}")
        for of in (nn.Module, nn.Linear)
        for name in REACHED_BY
        if of is nn.Linear or name not in vars(nn.Linear)
    ],
)
def test_a_patch_of_the_class_is_seen_and_can_be_taken_back(of, name):
    log = []
    made_before = nn.Sequential(child())
    standing = name in vars(of)
    with patch.object(of, name, recorder(log, name, getattr(of, name))):
        for tree in (made_before, nn.Sequential(child())):
            log.clear()
            REACHED_BY[name](tree)
            assert log and set(log) == {name}
    log.clear()
    for tree in (nn.Sequential(child()), nn.Sequential(child())):
        REACHED_BY[name](tree)
    assert log == [] and (name in vars(of)) == standing


@pytest.mark.parametrize("name", ON_INSTANCES)
def test_a_patch_of_an_instance(name):
    log = []
    tree = nn.Sequential(child())
    original = getattr(tree[0], name)
    setattr(tree[0], name, lambda *args, **kwargs: (log.append(name), original(*args, **kwargs))[1])
    REACHED_BY[name](tree)
    assert log and set(log) == {name}
    delattr(tree[0], name)
    log.clear()
    tree[0].extra = 1
    REACHED_BY[name](tree)
    assert log == []


def test_dunder_methods_of_an_instance_are_not_reached():
    tree = nn.Sequential(child())
    for name in DUNDER:
        tree[0].__dict__[name] = None
    assert tree(torch.ones(2)).shape == (2,) and tree[0].weight.shape == (2, 2)


def test_super_under_a_patched_module():
    class Own(nn.Module):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)

        def __delattr__(self, name):
            super().__delattr__(name)

    log = []
    names = ("__setattr__", "__delattr__", "__getattr__", "__init__")
    with pytest.MonkeyPatch.context() as patches:
        for name in names:
            original = getattr(nn.Module, name)
            patches.setattr(nn.Module, name, recorder(log, name, original))
        own = Own()
        own.layer = nn.ReLU()
        assert isinstance(own.layer, nn.ReLU)
        del own.layer
    assert set(log) == set(names)
    log.clear()
    own = Own()
    own.layer = nn.ReLU()
    del own.layer
    assert log == [] and not hasattr(own, "layer")


def test_native_slots_return(under_dropin):
    class Own(nn.Linear):
        pass

    own = Own(2, 2)
    with patch.object(Own, "__getattr__", lambda self, name: 7, create=True):
        assert own.anything == 7 and own.weight == 7
    assert own.weight.shape == (2, 2) and not hasattr(own, "anything")
    if under_dropin:
        assert "__getattr__" not in vars(Own) and own.state_dict().keys() == {"weight", "bias"}


class Forwarding(nn.Module):
    """What it has not is its inner module's."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.asked = []

    def __getattr__(self, name):
        if name != "asked" and "asked" in self.__dict__:
            self.asked.append(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


def test_getattr_that_forwards():
    outer = Forwarding(nn.Linear(3, 2))
    assert outer.in_features == 3 and outer.weight is outer.inner.weight
    assert outer.asked[-4:] == ["in_features", "weight", "inner"]
    assert list(dict(outer.named_parameters())) == ["inner.weight", "inner.bias"]
    asked = len(outer.asked)
    assert outer.training and outer._modules and outer.forward and outer.parameters
    assert len(outer.asked) == asked
    copied = copy.deepcopy(outer)
    assert type(copied) is Forwarding and copied.inner is not outer.inner
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'nothing'"):
        outer.nothing  # noqa: B018


def test_getattribute():
    log = []

    class Own(nn.Linear):
        def __getattribute__(self, name):
            log.append(name)
            return super().__getattribute__(name)

    own = Own(2, 2)
    log.clear()
    assert own.weight.shape == (2, 2) and log[0] == "weight"
    with pytest.raises(AttributeError):
        nn.Module.__getattribute__(own, "weight")
    assert nn.Module.__getattribute__(own, "_parameters") is own._parameters


def test_property_that_raises_attribute_error():
    class Own(nn.Module):
        @property
        def broken(self):
            return self.missing_inside

    with pytest.raises(AttributeError):
        Own().broken  # noqa: B018


def test_wrappers_that_are_no_modules():
    class Wrapper:
        def __init__(self, module):
            self.module = module

        def __getattr__(self, name):
            if name.startswith("__") or "module" not in self.__dict__:
                raise AttributeError(name)
            return getattr(self.module, name)

    wrapper = Wrapper(nn.Linear(2, 2))
    assert len(list(wrapper.parameters())) == 2 and wrapper.eval() is wrapper.module
    copied = copy.deepcopy(wrapper)
    assert type(copied) is Wrapper and copied.weight is not wrapper.weight
