# SPDX-License-Identifier: BSD-3-Clause
"""What methods of modtree's Module take beside torch's arguments holds on the native class too."""

from __future__ import annotations

import copy
import inspect
import re

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


def tied():
    net = nn.Module()
    net.a = nn.Linear(2, 2)
    net.b = nn.Linear(2, 2)
    net.b.weight = net.a.weight
    net.register_buffer("x", torch.ones(2))
    net.a.register_buffer("y", net.x)
    return net


def keeps_ties_when_moved():
    net = tied().to("meta", preserve_ties=True)
    assert net.a.weight is net.b.weight and net.a.weight.is_meta and net.x is net.a.y
    assert net.to_empty(device="cpu", preserve_ties=True) is net
    assert net.a.weight is net.b.weight and not net.a.weight.is_meta and net.x is net.a.y


def keeps_ties_of_buffers_in_a_cast():
    net = tied().to(dtype=torch.float64, preserve_ties=True)
    assert net.x is net.a.y and net.x.dtype is torch.float64
    net.to(torch.float32, preserve_ties=False)
    assert net.x is not net.a.y


def keeps_ties_of_a_module_alone():
    net = tied()
    net._apply(lambda tensor: tensor.to("meta"), preserve_ties=True)
    assert net.a.weight is net.b.weight
    net.a.to_empty(device="cpu", recurse=False, preserve_ties=True)
    assert net.b.weight.is_meta and not net.a.weight.is_meta


def keeps_ties_below_a_class_with_its_own_apply():
    class Seen(nn.Module):
        def _apply(self, fn):
            return super()._apply(fn)

        def to(self, *args, **kwargs):
            return super().to(*args, **kwargs)

    net = Seen()
    net.inner = tied()
    net.to("meta", preserve_ties=True)
    assert net.inner.a.weight is net.inner.b.weight


def renames_keys():
    net, other = nn.Linear(2, 2), nn.Linear(2, 2)
    saved = {f"module.{key}": value for key, value in other.state_dict().items()}
    net.load_state_dict(saved, rename={"module.": ""})
    net.load_state_dict(saved, rename=[(re.compile("^module[.]"), "")])
    assert torch.equal(net.weight, other.weight)


def loads_what_fits():
    net = nn.Linear(2, 2)
    report = net.load_state_dict({"bias": torch.ones(2), "more": torch.ones(2)}, partial=True)
    assert net.bias.tolist() == [1, 1] and list(report.skipped) == ["more"]


def runs_dry():
    net = nn.Linear(2, 2)
    before = copy.deepcopy(net.state_dict())
    report = net.load_state_dict({"bias": torch.ones(2), "weight": torch.ones(3)}, dry_run=True)
    assert not report.is_complete
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


def clones_states():
    net = nn.Linear(2, 2)
    assert net.state_dict(clone=True)["weight"].data_ptr() != net.weight.data_ptr()


OPTIONS = [
    keeps_ties_when_moved,
    keeps_ties_of_buffers_in_a_cast,
    keeps_ties_of_a_module_alone,
    keeps_ties_below_a_class_with_its_own_apply,
    renames_keys,
    loads_what_fits,
    runs_dry,
    clones_states,
]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_modtree(option, under_dropin):
    if not under_dropin:
        pytest.skip("torch has no such option")
    option()


def test_to_is_torchs_function():
    assert list(inspect.signature(nn.Module.to).parameters) == ["self", "args", "kwargs"]
    assert list(inspect.signature(nn.Module.to_empty).parameters) == ["self", "device", "recurse"]
    assert "def to(self, *args, **kwargs):" in inspect.getsource(nn.Module.to)
    with pytest.raises(TypeError, match="to_empty.* missing 1 required keyword-only argument"):
        nn.Linear(2, 2).to_empty()
    with pytest.raises(TypeError, match="received an invalid combination of arguments"):
        nn.Linear(2, 2).to("cpu", other=True)


def test_every_option_is_tried(under_dropin):
    if not under_dropin:
        pytest.skip("torch has no such option")
    import modtree as mt

    tried = inspect.getsource(inspect.getmodule(tied))
    for name in dir(mt.nn.Module):
        ours = getattr(mt.nn.Module, name)
        if name.startswith("__") or not callable(ours) or not hasattr(nn.Module, name):
            continue
        try:
            parameters = inspect.signature(ours).parameters
            more = set(parameters) - set(inspect.signature(getattr(nn.Module, name)).parameters)
        except (TypeError, ValueError):
            continue
        for option in more - {"module"}:  # the older spelling of a parameter's name
            assert f"{option}=" in tried, f"{name}({option}=...)"
