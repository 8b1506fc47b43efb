# SPDX-License-Identifier: BSD-3-Clause
"""The table of what differs between versions of torch: how it is found, and what native code makes
of it. No other torch than the one at hand is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections import OrderedDict
from types import ModuleType

import pytest
from helpers.limits import HANGS_AFTER

torch = pytest.importorskip("torch")


import modtree  # noqa: E402
from modtree import _C  # noqa: E402
from modtree.torch import facts  # noqa: E402

NEWEST = {fact.name: fact.newest for fact in facts.FACTS}

#: torch's file of Module as far as the table looks at it: before everything in it, ...
OLD = """
class Module:
    def __init__(self):
        self.__dict__["_modules"] = OrderedDict()
    def __setattr__(self, name, value):
        self._buffers[name] = value
    def register_buffer(self, name, tensor, persistent=True):
        return isinstance(tensor, Tensor)
    def _apply(self, fn, recurse=True):
        def compute(tensor):
            return tensor
        return compute(fn)
    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        return [hook(self) for hook in self._state_dict_hooks]
    def _load_from_state_dict(self, state_dict, prefix, *rest):
        if len(param.shape) == 0 and len(input_param.shape) == 1:
            return input_param[0]
    def modules(self):
        return self.named_modules()
    def zero_grad(self, set_to_none=True):
        warnings.warn(
            "Calling .zero_grad() from a module")
"""

#: ... and what made each fact true.
CHANGES = {
    "ordered_registries": ("= {}", "= OrderedDict()"),  # in the other direction
    "buffer_class": ("self._buffers[name] = value", "self.register_buffer(name, value)"),
    "patches_take_persistent": (
        "self._buffers[name] = value",
        "getattr(self.register_buffer, '__func__', None) is Module.register_buffer",
    ),
    "state_dict_post_hooks": ("hook(self) for", "getattr(hook, '_from_public_api') for"),
    "swaps_fake": ("return compute(fn)", "FakeTensor = 1; return compute(fn), FakeTensor"),
    "keeps_data_of_fake": (
        "def compute(tensor):\n            return tensor",
        "FakeTensor = 1\n        def compute(tensor):\n            return tensor, FakeTensor",
    ),
    "tensor_like_buffers": ("Tensor)", "Tensor) or hasattr(tensor, '__torch_function__')"),
    "scalars_from_one": (".shape) == 1:", ".shape) == 1 and input_param.shape[0] == 1:"),
    "warns_at_caller": ('a module")', 'a module", stacklevel=2)'),
    "modules_may_repeat": ("modules(self):", "modules(self, remove_duplicate=True):"),
}


#: What else is found with one, as it was built on that.
ALSO = {"keeps_data_of_fake": {"swaps_fake"}, "patches_take_persistent": {"buffer_class"}}


def file_of(source):
    file = ModuleType("torch.nn.modules.module")
    vars(file)["OrderedDict"] = OrderedDict
    exec(source, vars(file))  # noqa: S102
    return file


def found_in(source):
    found = facts.facts_of(file_of(source))
    return {name: value for name, value in found.items() if name != "swaps_without_grad"}


def test_an_old_file_has_nothing_of_it():
    everything = dict.fromkeys(CHANGES, False)
    assert found_in(OLD) == {**everything, "ordered_registries": True}


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "ordered_registries"])
def test_each_fact_is_found(name):
    old, new = CHANGES[name]
    assert old in OLD
    found = found_in(OLD.replace(old, new))
    expected = {name, "ordered_registries"} | ALSO.get(name, set())
    assert {fact for fact, value in found.items() if value} == expected


def test_registries_of_a_new_module():
    assert not found_in(OLD.replace(*reversed(CHANGES["ordered_registries"])))["ordered_registries"]


def test_lines_of_warnings():
    lines = facts.warning_lines(file_of(OLD))
    assert lines == {
        "Calling .zero_grad() from a module": OLD.splitlines().index("        warnings.warn(") + 1
    }


def test_what_cannot_be_looked_at_is_as_in_the_newest_torch():
    patched = file_of(OLD)
    for name in ("__setattr__", "register_buffer", "_apply", "state_dict", "modules", "zero_grad"):
        setattr(patched.Module, name, lambda *args: None)
    patched.Module._load_from_state_dict = property(lambda self: None)
    found = facts.facts_of(patched)
    assert found == {**NEWEST, "ordered_registries": True}


def test_this_torch_is_the_newest_kind():
    assert facts.facts_of(torch.nn.modules.module) == NEWEST


def test_conversions_are_known():
    codes = [c for c in torch.nn.Module.to.__code__.co_consts if hasattr(c, "co_freevars")]
    assert any((c.co_freevars, c.co_names) in facts.CONVERSIONS for c in codes)


# -- what native code makes of it ------------------------------------------------------------------


@pytest.fixture
def with_facts():
    """Sets facts; the rest is as in the newest torch."""

    def use(**changed):
        _C._set_torch_facts(facts.native_facts({**NEWEST, **changed}))

    yield use
    _C._set_torch_facts(facts.native_facts(NEWEST))


class TensorLike:
    __torch_function__ = None


def module():
    made = modtree.nn.Module()
    made.register_buffer("b", torch.zeros(()))
    return made


def test_unknown_facts_are_refused():
    with pytest.raises(KeyError):
        _C._set_torch_facts({})
    with pytest.raises(KeyError):
        _C._set_torch_facts({**facts.native_facts(NEWEST), "more": True})


def test_ordered_registries(with_facts):
    with_facts(ordered_registries=True)
    m = modtree.nn.Sequential(modtree.nn.Module(), module())
    m.weight = torch.nn.Parameter(torch.ones(2))
    m._modules.move_to_end("0")
    assert {type(m.__dict__[k]) for k in ("_parameters", "_buffers", "_modules")} == {OrderedDict}
    assert [name for name, _ in m.named_children()] == ["1", "0"]
    assert list(m.state_dict()) == ["weight", "1.b"]
    assert type(modtree.nn.Module()._parameters) is OrderedDict
    assert type(modtree.nn.Module().__getstate__()["_modules"]) is OrderedDict


def test_modules_without_remove_duplicate(with_facts):
    assert len(list(module().modules(remove_duplicate=False))) == 1
    with_facts(modules_may_repeat=False)
    m = module()
    assert list(m.modules()) == [m]
    with pytest.raises(TypeError, match="unexpected keyword argument 'remove_duplicate'"):
        m.modules(remove_duplicate=False)
    with pytest.raises(TypeError):
        m.modules(False)


def test_buffers_must_be_tensors(with_facts):
    m, like = module(), TensorLike()
    m.b = like
    assert m.b is like
    with_facts(tensor_like_buffers=False)
    m = module()
    with pytest.raises(TypeError, match="as buffer 'b'"):
        m.b = like
    with pytest.raises(TypeError, match="object to buffer 'c'"):
        m.register_buffer("c", like)
    m.b = torch.ones(1)
    m.b = None


def test_no_buffer_class(with_facts):
    """An assignment goes past ``register_buffer`` then, and only known names are buffers."""

    class Counting(modtree.nn.Module):
        calls = 0

        def register_buffer(self, *args, **kwargs):
            type(self).calls += 1
            super().register_buffer(*args, **kwargs)

    with_facts(buffer_class=False)
    m = Counting()
    m.register_buffer("b", torch.zeros(1), persistent=False)
    m.b = torch.ones(1)
    assert Counting.calls == 1 and m.b.item() == 1 and list(m.state_dict()) == []
    m.c = torch.nn.Buffer(torch.ones(1))
    assert list(m._buffers) == ["b"]
    with pytest.raises(TypeError, match=r"\(torch.Tensor or None expected\)"):
        m.b = 3


def test_a_patch_of_register_buffer_is_asked_for_persistent(with_facts, monkeypatch):
    original, calls = modtree.nn.Module.register_buffer, []

    def patched(self, *args):
        calls.append(args[2:])
        return original(self, *args)

    monkeypatch.setattr(modtree.nn.Module, "register_buffer", patched)
    m = modtree.nn.Module()
    with_facts(patches_take_persistent=False)
    with pytest.raises(RuntimeError, match="Registering a non-persistent buffer"):
        m.b = torch.nn.Buffer(torch.ones(1), persistent=False)
    m.b = torch.nn.Buffer(torch.ones(1))
    with_facts()
    m.c = torch.nn.Buffer(torch.ones(1), persistent=False)
    assert calls == [(), (False,)]


def test_no_state_dict_post_hooks(with_facts):
    m = module()
    m.register_state_dict_post_hook(lambda *args: {"other": 1})
    with pytest.raises(RuntimeError):
        m.state_dict()
    with_facts(state_dict_post_hooks=False)
    assert m.state_dict() == {"other": 1}


def test_scalars_from_any_vector(with_facts):
    state = {"b": torch.arange(3.0) + 5}
    with pytest.raises(RuntimeError, match="size mismatch for b"):
        module().load_state_dict(state)
    with_facts(scalars_from_one=False)
    m = module()
    m.load_state_dict(state)
    assert m.b.item() == 5


# -- under the drop-in -----------------------------------------------------------------------------


def run(tmp_path, change, program):
    """A program whose torch file was changed before the drop-in looked at it."""
    start = textwrap.dedent("""\
        import modtree.dropin
        from modtree.torch.dropin import _checks
        check = _checks.check
        def change_and_check(file):
            change(file)
            return check(file)
        _checks.check = change_and_check
        def change(file):
    """)
    text = start + textwrap.indent(textwrap.dedent(change), "    ") + textwrap.dedent(program)
    (tmp_path / "program.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_a_torch_of_before(tmp_path):
    change = """\
        del file._has_any_global_hook, file._global_forward_hooks_with_kwargs
        exec("def modules(self):\\n for _, m in self.named_modules(): yield m", vars(file))
        file.Module.modules = vars(file).pop("modules")
    """
    program = """
        import torch
        from torch import nn
        file = nn.modules.module
        assert modtree.dropin.is_active() and not hasattr(file, "_global_forward_hooks_with_kwargs")
        m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        m(torch.ones(3, 2)).sum().backward()
        m.zero_grad()
        m.load_state_dict(m.state_dict())
        print(len(list(m.modules())), type(m.modules).__name__)
        try:
            m.modules(remove_duplicate=False)
        except TypeError as error:
            print(error)
    """
    done = run(tmp_path, change, program)
    expected = "modules() got an unexpected keyword argument 'remove_duplicate'"
    assert done.stdout.splitlines() == ["3 BoundMethod", expected] and done.stderr == ""


def test_warnings_name_torchs_file(tmp_path):
    change = """\
        exec(
            compile(
                "def zero_grad(self, set_to_none=True):\\n"
                " if self._is_replica:\\n"
                "  warnings.warn('Calling .zero_grad() from a module')\\n",
                file.__file__,
                "exec",
            ),
            vars(file),
        )
        file.Module.zero_grad = vars(file).pop("zero_grad")
    """
    program = """
        import warnings
        from torch import nn
        m = nn.Linear(2, 2)
        m._is_replica = True
        for _ in range(2):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                m.zero_grad()
            (warning,) = seen
            print(warning.filename == nn.modules.module.__file__, warning.lineno)
            print(warning.category.__name__, str(warning.message)[:30])
    """
    done = run(tmp_path, change, program)
    assert done.stdout.splitlines() == ["True 3", "UserWarning Calling .zero_grad() from a mo"] * 2


def test_a_torch_of_later(tmp_path):
    """A new option of a method is torch's own to do, and one warning says so."""
    change = """\
        exec(
            "def train(self, mode=True, deep=True):\\n"
            " self.training = mode\\n"
            " for m in self.children() if deep else (): m.train(mode)\\n"
            " return self",
            vars(file),
        )
        file.Module.train = vars(file).pop("train")
    """
    program = """
        from torch import nn
        m = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
        m.train(False, deep=False)
        print([k.training for k in m.modules()])
        m.eval()
        print([k.training for k in m.modules()], type(m.train).__name__)
    """
    done = run(tmp_path, change, program)
    assert done.stdout.splitlines() == ["[False, True, True]", "[False, False, False] method"]
    assert done.stderr.count("UserWarning: modtree.dropin does not know everything in this") == 1
    assert "Module.train takes (self mode deep), not (self mode)" in done.stderr
