# SPDX-License-Identifier: BSD-3-Clause
"""What the hints of ``modtree.check`` say is done: the finding is gone, no value has changed."""

from __future__ import annotations

import re

import pytest
from helpers.seen_models import models

import modtree as mt

#: What stands before the program in a hint, and behind it.
_BEFORE = ("right where it is meant; ", "right for mixed precision; else ")
_BEHIND = re.compile(
    r" (registers|holds|gives|makes|lets|removes|ties|switches)\b|[;,] (if|or|where|made|what)\b"
)


def program(hint):
    for text in _BEFORE:
        hint = hint.removeprefix(text)
    return hint[: _BEHIND.search(hint).start()]


def values(model):
    """All values that the model has, wherever they are."""
    found = []

    def look(value):
        if hasattr(value, "tolist") and hasattr(value, "dtype"):
            if not value.is_meta:
                found.append((id(value), str(value.detach().tolist())))
        elif isinstance(value, dict):
            for part in value.values():
                look(part)
        elif isinstance(value, (list, tuple, set)):
            for part in value:
                look(part)
        elif hasattr(value, "_parameters"):
            look(dict(vars(value)))

    look(model)
    return sorted({text for _, text in found})


def follow(finding, model, impl, **more):
    owners = {
        name: found
        for name, found in model.named_modules()
        if name != finding.path and (not name or finding.path.startswith(f"{name}."))
    }
    owner = owners.get(max(owners, key=len, default=""), model)
    scope = {"self": owner, "model": model, "nn": impl.nn, **more}
    exec(program(finding.hint), scope)


def module(impl, **attributes):
    made = impl.nn.Module()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def in_plain_attributes(impl):
    lib, kinds = impl.lib, models(impl)
    p = [impl.nn.Parameter(lib.ones(2) * i) for i in range(4)]
    model = module(impl, mask=lib.ones(2), many=[lib.ones(2) * 3, lib.ones(2) * 4])
    model.mixed = {"a": [lib.ones(1) * 5, (lib.ones(1) * 6, 3)]}
    model.scales, model.pair, model.by_name = [p[0]], (p[1], "x"), {"x": p[2]}
    model.__dict__["direct"] = p[3]
    model.heads, model.named = [kinds.Scale(2)], {"x": kinds.Scale(2)}
    model.some = (kinds.Scale(2), 3)
    model.__dict__["child"] = kinds.Scale(2)
    return module(impl, inner=model)


def with_names(impl):
    class Model(impl.nn.Module):
        head = None

        @property
        def wrong(self):
            raise ValueError

    model = Model()
    model._modules["head"] = models(impl).Scale(2)
    model._modules["wrong"] = models(impl).Scale(3)
    model._modules["a.b"] = models(impl).Scale(4)
    model._buffers[""] = impl.lib.zeros(1)
    model.inner = models(impl).Scale(5)
    model.inner.__dict__["weight"] = 3
    model.twice = models(impl).Scale(6)
    model.twice._buffers["weight"] = impl.lib.ones(2)
    return model


def with_gradients(impl):
    lib = impl.lib
    model = impl.nn.Module()
    model.register_buffer("trained", lib.ones(2).requires_grad_())
    model.register_buffer("computed", lib.ones(2).requires_grad_() * 2)
    model.inner = models(impl).Scale(2)
    model.inner._parameters["weight"] = model.inner.weight * 2
    return model


def in_two_dtypes(impl):
    kinds = models(impl)
    return impl.nn.Sequential(kinds.Scale(2), kinds.Scale(2).double())


def over_one_memory(impl):
    base, nn = impl.lib.ones(6, 2), impl.nn
    return module(
        impl,
        a=nn.Parameter(base[:4]),
        inner=module(impl, b=nn.Parameter(base[3:])),
        c=nn.Parameter(impl.lib.ones(3)),
    )


def in_two_modes(impl):
    model = models(impl).Stack(2, 2).eval()
    model.layers[1].train()
    return model


@pytest.mark.parametrize(
    "make",
    [in_plain_attributes, with_names, with_gradients, in_two_dtypes, over_one_memory, in_two_modes],
)
def test_what_a_hint_says_is_done(impl, make):
    model = make(impl)
    before = values(model)
    findings = mt.check(model)
    assert findings
    done = 0
    while findings:
        finding = findings[0]
        follow(finding, model, impl)
        left = mt.check(model)
        assert (finding.path, finding.kind) not in [(f.path, f.kind) for f in left], finding
        assert len(left) < len(findings), (str(finding), str(left))
        assert values(model) == before, finding
        findings, done = left, done + 1
    assert done


def test_a_tensor_that_keeps_a_graph(impl):
    model = module(impl, kept=impl.lib.ones(2).requires_grad_() * 2)
    (finding,) = mt.check(model)
    exec(program(finding.hint), {"self": model})
    assert mt.check(model) == []


def test_ties_are_made_again(impl):
    kinds = models(impl)
    model = impl.nn.Sequential(kinds.Scale(2), kinds.Scale(2), kinds.Scale(2))
    model[1].weight = model[2].weight = model[0].weight
    (finding,) = mt.check(model)
    state = {name: value.clone() * 3 for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    assert model[1].weight is not model[0].weight
    exec(finding.hint.split("; ", 1)[1].partition(" ties")[0], {"model": model})
    assert model[2].weight is model[1].weight is model[0].weight
    assert model[0].weight.tolist() == state["0.weight"].tolist()


def test_one_memory_that_is_to_be_one_parameter(impl):
    base = impl.lib.ones(4)
    model = module(impl, a=impl.nn.Parameter(base), inner=module(impl, b=impl.nn.Parameter(base)))
    (finding,) = mt.check(model)
    exec(finding.hint.partition("to be one, ")[2].partition(" makes")[0], {"model": model})
    assert model.inner.b is model.a


def test_what_is_reached_already_is_not_to_be_registered(impl):
    """Neither modules around what is in the tree, nor views of its memory."""
    kinds = models(impl)
    model = module(impl, inner=kinds.Scale(2), other=kinds.Scale(2))
    model.around = [impl.nn.Sequential(model.inner)]
    twin = kinds.Scale(2)
    twin.weight = model.other.weight
    model.__dict__["twin"] = twin
    assert mt.check(model) == []
    twin.more = impl.nn.Parameter(impl.lib.ones(1))
    (finding,) = mt.check(model)
    assert finding.path == "twin"
    model.__dict__.pop("twin")
    model.view = model.inner.weight.detach()[:1]
    (finding,) = mt.check(model)
    assert "make it of inner.weight in forward" in finding.hint
    assert "register_buffer" not in finding.hint


def test_hooks_are_removed(impl):
    model = models(impl).Stack(2, 1)
    handle = model.register_forward_hook(lambda *args: None)
    (finding,) = mt.check(model)
    assert "call remove() on the handle" in finding.hint
    handle.remove()
    assert mt.check(model) == []


# -- meta ------------------------------------------------------------------------------------------


def with_a_table(lib, device=None):
    model = lib.nn.Sequential(lib.nn.Linear(2, 2, device=device), lib.nn.Module())
    model[1].register_buffer("table", lib.arange(3, device=device) + 0, persistent=False)
    return model


def test_a_buffer_that_no_load_gives_values(lib):
    """Neither does assign=True, and to_empty() would take the weights."""
    source, model = with_a_table(lib), with_a_table(lib, "meta")
    model.load_state_dict(source.state_dict(), assign=True)
    (finding,) = mt.check(model)
    assert (finding.path, finding.kind) == ("1.table", "left-on-meta")
    assert "1 of 3 tensors is on meta" in finding.message
    assert "to_empty" not in finding.hint and "load_state_dict" not in finding.hint
    code = finding.hint.partition(",")[0]
    exec(code, {"self": model[1], "tensor": source[1].table.clone()})
    assert mt.check(model) == []
    assert model[0].weight.tolist() == source[0].weight.tolist()
    assert model[1].table.tolist() == [0, 1, 2] and "1.table" not in model.state_dict()


def test_entries_that_a_load_gives_values(lib):
    source = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.Linear(2, 2))
    model = lib.nn.Sequential(source[0], lib.nn.Linear(2, 2, device="meta"))
    weights = source[0].weight.tolist()
    (finding,) = mt.check(model)
    assert "2 of 4 tensors are on meta" in finding.message and "to_empty" not in finding.hint
    state = {key: value for key, value in source.state_dict().items() if key.startswith("1.")}
    exec(program(finding.hint), {"model": model, "state_dict": state})
    assert mt.check(model) == []
    assert model[0].weight.tolist() == weights
    assert model[1].weight.tolist() == source[1].weight.tolist()


def test_both_kinds_are_two_findings(lib):
    model = with_a_table(lib, "meta")
    model[1].register_buffer("real", lib.ones(1))
    assert [finding.path for finding in mt.check(model)] == ["0.weight", "1.table"]
