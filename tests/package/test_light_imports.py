# SPDX-License-Identifier: BSD-3-Clause
"""What is loaded by programs that use a part: the core stands alone, the NumPy side waits until it
is asked for.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import textwrap

import pytest
from helpers.implementations import needs_torch
from helpers.needs import needs

import modtree as mt
from modtree import nn

NUMPY_SIDE = ("numpy", "autograd", "nn", "optim", "utils", "func")


def loaded(program: str, *arguments: str) -> set[str]:
    """The modules that are loaded at the end of a program."""
    end = "\nimport json, sys; sys.stderr.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program) + end, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def of_numpy_side(modules: set[str]) -> set[str]:
    names = {f"modtree.{name}" for name in NUMPY_SIDE}
    return {m for m in modules if ".".join(m.split(".")[:2]) in names}


def test_import_modtree_loads_no_operation_layer_or_optimizer():
    modules = loaded("import modtree; modtree.__version__; dir(modtree)")
    assert of_numpy_side(modules) == set() and "modtree.core" not in modules


def test_the_core_alone():
    modules = loaded("""
        from modtree.core.containers import Sequential
        from modtree.core.lazy import LazyModuleMixin
        from modtree.core.module import Module

        PATHS = ["", "body", "body.0", "body.1"]

        class Net(Module):
            def __init__(self):
                super().__init__()
                self.body = Sequential(Module(), Module())

            def forward(self, x):
                return x + 1

        net = Net().eval()
        assert net(1) == 2 and [n for n, _ in net.named_modules()] == PATHS
        net.load_state_dict(net.state_dict())
        repr(net)
    """)
    assert of_numpy_side(modules) == set() and "torch" not in modules
    above = ("numpy", "torch.dropin", "files", "inspection", "cli")
    assert {f"modtree.{name}" for name in above} & modules == set()


@needs_torch
def test_the_drop_in_loads_the_core_and_the_family_of_torch():
    modules = loaded("""
        import modtree.dropin
        import copy, io, pickle, torch

        net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).double()
        net(torch.ones(2, 2).double()).sum().backward()
        net.load_state_dict(copy.deepcopy(net).state_dict())
        pickle.loads(pickle.dumps(net)).zero_grad()
        torch.save(net.state_dict(), io.BytesIO())
    """)
    ours = {m for m in modules if m.partition(".")[0] == "modtree"}
    assert "modtree.torch.family" in ours
    assert of_numpy_side(ours) == set() and len(ours) < 45, sorted(ours)


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    "form", ["safetensors", "torch", "modtree", pytest.param("old", marks=needs("torch")), "ckpt"]
)
def test_the_command_line_loads_neither_the_numpy_side_nor_torch(form, tmp_path):
    path, other = str(tmp_path / "model.pt"), str(tmp_path / "other.pt")
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    state = model.state_dict()
    state["_extra_state"] = {"seen": mt.ones(2), "size": mt.Size((2, 3))}
    if form == "safetensors":
        path = str(tmp_path / "model.safetensors")
        mt.save_file(model, path)
    elif form == "old":
        torch = importlib.import_module("torch")
        torch.save(mt.to_torch(state), path, _use_new_zipfile_serialization=False)
    else:
        mt.save(
            {"model": state, "epoch": 3} if form == "ckpt" else state,
            path,
            format="torch" if form == "ckpt" else form,
        )
    for command in (
        ["inspect", path],
        ["verify", path, "--finite"],
        ["diff", path, path],
        ["convert", path, other],
        ["convert", path, other, "--dtype", "float64"],
        ["convert", path, f"{other}.safetensors", "--match", "[01]*"],
    ):
        modules = loaded("import sys\nfrom modtree.cli import main\nmain(sys.argv[1:])", *command)
        assert of_numpy_side(modules) == set() and "torch" not in modules, command
        assert "modtree.numpy.family" not in modules
    assert mt.load_file(other)["0.weight"].tolist() == model[0].weight.tolist()


@needs_torch
def test_models_of_torch_are_seen_and_written_without_the_numpy_side(tmp_path):
    modules = loaded(
        """
        import sys, torch
        import modtree as mt

        net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
        assert not mt.check(net, torch.ones(1, 2))
        assert "Sequential" in str(mt.summary(net, (1, 2)))
        mt.to_svg(net)
        mt.save_file(net, sys.argv[1])
        assert not mt.compare(net, sys.argv[1]) and not mt.checkpoints.verify(sys.argv[1])
        """,
        str(tmp_path / "model.safetensors"),
    )
    assert of_numpy_side(modules) == set()


@needs_torch
def test_models_of_torch_are_changed_and_observed_without_the_numpy_side():
    modules = loaded("""
        import torch
        import modtree as mt

        net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
        repr(mt.find(net, torch.nn.Linear))
        with mt.edit(net) as edit:
            edit.replace("1", torch.nn.GELU)
            edit.insert("0", torch.nn.Identity())
        mt.find_parameters(net, "**.bias").requires_grad_(False)
        mt.param_groups(net, {"**.weight": {"lr": 0.1}})
        with mt.capture(net, "1", grads=True) as acts, mt.intervene(net, {"2": None}):
            net(torch.ones(1, 2)).sum().backward()
        assert acts["1"].shape == (1, 3)
        edit.undo()
    """)
    assert of_numpy_side(modules) == set()
    above = ("torch.dropin", "files", "inspection", "cli")
    assert {f"modtree.{name}" for name in above} & modules == set()


@needs_torch
def test_training_with_torch_is_resumed_without_the_numpy_side():
    modules = loaded("""
        import sys
        import torch
        import modtree as mt

        def make(*sizes):
            net = torch.nn.Sequential(*map(torch.nn.Linear, sizes, sizes[1:]))
            return net, torch.optim.Adam(net.parameters())

        net, optimizer = make(2, 3, 4)
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        state = mt.optimizer_state(optimizer, net)
        net, optimizer = make(2, 3, 5)
        report = mt.load_optimizer_state(optimizer, state, model=net, partial=True)
        assert report.loaded == ["0.weight", "0.bias"] and len(report.skipped) == 2
        assert "modtree.inspection" not in sys.modules
        try:
            mt.load_optimizer_state(optimizer, state, model=net, rename={"": "net."})
        except ValueError as error:
            assert "rename={'net.': ''}" in str(error)
    """)
    assert of_numpy_side(modules) == set()
    above = ("torch.dropin", "files", "editing", "cli")
    assert {f"modtree.{name}" for name in above} & modules == set()
    of_inspection = {name for name in modules if name.startswith("modtree.inspection.")}
    explaining = "modtree.inspection.load_failures"  # which the error needs
    assert of_inspection == {name for name in modules if name.startswith(explaining)}


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    "name",
    """numpy.ops.attention numpy.ops.ctc numpy.ops.einsum numpy.ops.linalg_functions numpy.ops.scan
    numpy.tensor.creation numpy.tensor.engine numpy.tensor.module_tap numpy.tensor.parameter
    autograd.saved distributions numpy.family files.pickled.tensors nn.functional.loss optim.adam
    random utils.data""".split(),
)
def test_whichever_part_is_imported_first(name):
    loaded(f"""
        import modtree.{name}

        y = modtree.nn.Linear(2, 3)(modtree.ones(1, 2)).sum()
        y.backward()
    """)


def test_threads_that_are_the_first_to_need_the_numpy_side():
    loaded("""
        import threading
        import numpy as np
        import modtree
        from modtree.files.checkpoint.base import tensor_of

        begin, made = threading.Barrier(4), []

        def make(how):
            begin.wait()
            made.append(how())

        ways = [
            lambda: modtree.zeros(2),
            lambda: tensor_of(np.zeros(2)),
            lambda: modtree.nn.Linear(2, 2)(modtree.ones(1, 2)).sum(),
            lambda: modtree.linalg.norm(modtree.ones(2)),
        ]
        threads = [threading.Thread(target=make, args=(way,)) for way in ways]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 4 and all(type(t) is modtree.Tensor for t in made)
    """)


def test_every_public_name_is_there():
    program = """
        import modtree
        from modtree import *

        missing = [name for name in modtree.__all__ if not hasattr(modtree, name)]
        assert missing == [] and set(modtree.__all__) <= set(dir(modtree))
        assert {name for name in modtree.__all__ if name not in globals()} == set()
    """
    assert of_numpy_side(loaded(program))
