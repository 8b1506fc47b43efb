# SPDX-License-Identifier: BSD-3-Clause
"""Values of OmegaConf are shown as what they hold; the classes here have its names."""

from __future__ import annotations

import pickle
import sys
import types

import numpy as np
import pytest


@pytest.fixture
def made(monkeypatch):
    """Makes a configuration of dicts and lists."""
    classes = {}
    monkeypatch.setitem(sys.modules, "omegaconf", types.ModuleType("omegaconf"))
    for home, name in (("dictconfig", "DictConfig"), ("listconfig", "ListConfig"),
                       ("nodes", "AnyNode")):  # fmt: skip
        module = types.ModuleType(f"omegaconf.{home}")
        kind = classes[name] = type(name, (), {"__module__": module.__name__})
        setattr(module, name, kind)
        monkeypatch.setitem(sys.modules, module.__name__, module)

    def make(value, parent=None):
        name = {dict: "DictConfig", list: "ListConfig"}.get(type(value), "AnyNode")
        node = classes[name]()
        node._parent = parent
        if isinstance(value, dict):
            node._content = {key: make(inner, node) for key, inner in value.items()}
        elif isinstance(value, list):
            node._content = [make(inner, node) for inner in value]
        else:
            node._val = value
        return node

    return make


def test_a_configuration_is_shown_as_what_it_holds(made, cli, tmp_path):
    settings = made({"lr": 0.1, "net": {"width": 64, "acts": ["relu", "gelu"]}})
    run = {"state_dict": {"a.w": np.ones(2)}, "settings": settings}
    (tmp_path / "run.pkl").write_bytes(pickle.dumps(run))
    assert "  settings    {'lr': 0.1, 'net': a dict of 2}" in cli("inspect", "run.pkl").lines
    lines = cli("inspect", "run.pkl", "--at", "settings.net").lines
    assert lines[-2:] == ["  width  64", "  acts   ['relu', 'gelu']"]


def test_one_that_holds_itself_is_shown(made, cli, tmp_path):
    node = made(1)
    node._val = node
    run = {"state_dict": {"a.w": np.ones(2)}, "settings": node}
    (tmp_path / "run.pkl").write_bytes(pickle.dumps(run))
    assert cli("inspect", "run.pkl").status == cli("verify", "run.pkl").status == 0
