# SPDX-License-Identifier: BSD-3-Clause
"""Files that hold more than tensors and plain containers: read whole, with stand-ins, and nothing
of them is executed. The files are made by torch itself.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib
import io
import json
import pickle
import random
import re

import numpy as np
import pytest
from helpers.implementations import HAS_TORCH, needs_torch

import modtree as mt
from modtree.checkpoints import convert, load_file, open_checkpoint, verify
from modtree.cli import main
from modtree.files.pickled.stand_in import StandIn

torch = importlib.import_module("torch") if HAS_TORCH else None
pytestmark = [needs_torch, pytest.mark.filterwarnings("ignore")]
forms = pytest.mark.parametrize("zipped", [True, False], ids=["archive", "before 1.6"])


class Config:
    def __init__(self):
        self.lr = 0.1
        self.layers = [1, 2]
        self.weight = torch.ones(3)


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit('executed')",)


def module_class():
    class Net(torch.nn.Module):
        __qualname__ = "Net"

        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 3)
            self.tied = torch.nn.Linear(2, 3)
            self.tied.weight = self.fc.weight
            self.norm = torch.nn.BatchNorm1d(3)
            self.register_buffer("kept", torch.ones(1))
            self.register_buffer("passing", torch.zeros(1), persistent=False)
            self.register_parameter("nothing", None)
            self.note = {"of": torch.zeros(5)}

    return Net


Net = module_class() if HAS_TORCH else None


def saved(obj, path, zipped=True):
    torch.save(obj, path, _use_new_zipfile_serialization=zipped)
    return str(path)


def output(capsys, *words):
    status = main(list(map(str, words)))
    return status, capsys.readouterr().out


# -- objects beside tensors ------------------------------------------------------------------------

OBJECTS = {
    "a namespace": (lambda: argparse.Namespace(lr=1, n="x"), "‹argparse.Namespace lr=1 n='x'›"),
    "a date": (lambda: datetime.date(2024, 5, 6), "‹datetime.date 2024-05-06›"),
    "a time": (
        lambda: datetime.datetime(2024, 5, 6, 7, 8, 9, 10),
        "‹datetime.datetime 2024-05-06 07:08:09.000010›",
    ),
    "a function": (lambda: torch.nn.functional.relu, "‹torch.nn.functional.relu›"),
    "a partial": (
        lambda: functools.partial(torch.nn.functional.relu, inplace=True),
        "‹functools.partial (‹torch.nn.functional.relu›, (), {'inplace': True}, None)›",
    ),
    "a class": (lambda: argparse.Namespace, "‹argparse.Namespace›"),
    "an error": (lambda: ValueError("x"), "‹builtins.ValueError 'x'›"),
    "a device": (lambda: torch.device("cuda", 1), "device(type='cuda', index=1)"),
    "a dtype": (lambda: torch.quint8, "‹torch.quint8›"),
    "a layout": (lambda: torch.sparse_coo, "‹torch.sparse_coo›"),
    "a scheme": (lambda: torch.per_tensor_affine, "‹torch.per_tensor_affine›"),
    "objects": (lambda: np.array([1, None], object), "‹array of dtype 'O8' [2]›"),
    "a storage": (lambda: torch.ones(2).untyped_storage(), "‹torch.UntypedStorage of 8 values›"),
    "complex32": (
        lambda: torch.zeros(2, 3, dtype=torch.complex32),
        "‹tensor of complex32 [2, 3]›",
    ),
    "a bomb": (Bomb, "‹builtins.exec \"raise SystemExit('executed')\"›"),
}


@forms
@pytest.mark.parametrize("case", OBJECTS)
def test_an_object_beside_tensors_is_shown(case, zipped, tmp_path, capsys):
    make, text = OBJECTS[case]
    path = saved({"w": torch.arange(3.0), "x": make()}, tmp_path / "file.pt", zipped)
    status, shown = output(capsys, "inspect", path)
    assert status == 0 and text in shown and re.search(r"w +\[3\] +float32 +12 B", shown)
    assert verify(path) == []
    assert load_file(path)["w"].tolist() == [0, 1, 2]
    assert mt.load(path, foreign="stand-in")["w"].tolist() == [0, 1, 2]
    assert not mt.compare(path, path)
    if case != "a device":
        convert(path, tmp_path / "new.safetensors")
        assert load_file(tmp_path / "new.safetensors").keys() == {"w"}


def test_a_device_cannot_be_said_in_json(tmp_path):
    path = saved({"w": torch.ones(1), "on": torch.device("cpu")}, tmp_path / "file.pt")
    with pytest.raises(mt.CheckpointError, match="no DeviceRecord"):
        convert(path, tmp_path / "new.safetensors")
    convert(path, tmp_path / "new.pt")
    assert mt.load(tmp_path / "new.pt")["on"] == mt.device("cpu")


class WithKeywords:
    def __new__(cls, *, size):
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (), {"size": 3}


def test_keywords_of_a_call(tmp_path):
    (tmp_path / "file.pkl").write_bytes(pickle.dumps({"k": WithKeywords(size=1), "w": np.ones(1)}))
    made = mt.load(tmp_path / "file.pkl", foreign="stand-in")["k"]
    assert made.pairs == {"size": 3} and made.kind.endswith("WithKeywords")


def test_what_a_stand_in_has(tmp_path):
    path = saved({"config": Config(), "w": torch.ones(1)}, tmp_path / "file.pt")
    config = mt.load(path, foreign="stand-in")["config"]
    assert type(config) is StandIn and config.kind.endswith("test_foreign_objects.Config")
    assert config.attributes["lr"] == 0.1 and config.state["layers"] == [1, 2]
    assert type(config.attributes["weight"]) is mt.Tensor
    assert config.attributes["weight"].tolist() == [1, 1, 1]


def test_load_says_how_many_tensors_could_be_read(tmp_path):
    path = saved({"w": [torch.ones(1)] * 2 + [torch.zeros(1)], "c": Bomb()}, tmp_path / "file.pt")
    for file in (path, io.BytesIO((tmp_path / "file.pt").read_bytes())):
        with pytest.raises(pickle.UnpicklingError) as caught:
            mt.load(file)
        assert "the file contains __builtin__.exec" in str(caught.value)
        assert (
            'The 2 tensors in it can be read, and nothing is run: pass foreign="stand-in"'
            in str(caught.value)
        )


def test_arguments_of_load(tmp_path):
    path = saved({"w": torch.ones(1)}, tmp_path / "file.pt")
    with pytest.raises(ValueError, match="foreign is 'stand-in' or None, got 'all'"):
        mt.load(path, foreign="all")
    with pytest.raises(ValueError, match="runs nothing of a file"):
        mt.load(path, foreign="stand-in", weights_only=False)


# -- tensors that are not plain --------------------------------------------------------------------


def tensors():
    eye = torch.eye(3)
    nested = [torch.ones(2), torch.ones(3)]
    return {
        "coo": (eye.to_sparse(), "sparse COO tensor of float32 [3, 3]", ["indices", "values"]),
        "csr": (
            eye.to_sparse_csr(),
            "sparse CSR tensor of float32 [3, 3]",
            ["crow_indices", "col_indices", "values"],
        ),
        "csc": (
            eye.to_sparse_csc(),
            "sparse CSC tensor of float32 [3, 3]",
            ["ccol_indices", "row_indices", "values"],
        ),
        "quantized": (
            torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8),
            "quantized tensor of qint8 [2, 3]",
            ["int_repr"],
        ),
        "channels": (
            torch.quantize_per_channel(
                torch.ones(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.quint8
            ),
            "quantized tensor of quint8 [2, 3]",
            ["int_repr", "scales", "zero_points"],
        ),
        "nested": (
            torch.nested.nested_tensor(nested),
            "nested tensor of 2 tensors, float32",
            ["buffer", "sizes", "strides", "offsets"],
        ),
    }


@forms
@pytest.mark.parametrize("case", ["coo", "csr", "csc", "quantized", "channels", "nested"])
def test_a_tensor_that_is_not_plain_is_read_in_parts(case, zipped, tmp_path, capsys):
    tensor, text, parts = tensors()[case]
    path = saved({"t": tensor, "w": torch.ones(1)}, tmp_path / "file.pt", zipped)
    assert f"‹{text}›" in output(capsys, "inspect", path)[1]
    with open_checkpoint(path) as checkpoint:
        tensors_of = [key for key in checkpoint.entries if key != "w"]
        assert tensors_of == [f"t.{part}" for part in parts]
        assert repr(checkpoint.in_parts["t"]) == f"‹{text}›"
        if case == "quantized":
            assert checkpoint.array("t.int_repr").tolist() == [[10] * 3] * 2
        if case == "coo":
            assert checkpoint.array("t.indices").tolist() == [[0, 1, 2]] * 2
    convert(path, tmp_path / "new.safetensors")
    assert list(load_file(tmp_path / "new.safetensors"))[: len(parts)] == tensors_of


def test_tensors_that_are_not_plain_in_a_tuple_are_compared(tmp_path, capsys):
    """As state dicts of quantized models have them."""
    paths = []
    for scale, value in ((0.1, 1.0), (0.2, 1.0), (0.1, 2.0)):
        quantized = torch.quantize_per_tensor(torch.full((3,), value), scale, 0, torch.qint8)
        state = {"packed": (quantized, torch.ones(2)), "w": torch.ones(1)}
        paths.append(saved(state, tmp_path / f"{scale}_{value}.pt"))
    assert output(capsys, "diff", paths[0], paths[0])[0] == 0
    assert "packed.0.scale: 0.1 -> 0.2" in output(capsys, "diff", paths[0], paths[1])[1]
    assert "packed.0.int_repr" in output(capsys, "diff", paths[0], paths[2])[1]


def test_a_parameter_that_is_not_plain(tmp_path):
    sparse = torch.nn.Parameter(torch.eye(3).to_sparse())
    path = saved({"p": sparse, "w": torch.ones(1)}, tmp_path / "file.pt")
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.entries) == ["p.0.indices", "p.0.values", "w"]


def test_a_tensor_of_a_class_of_its_own_is_read(tmp_path):
    path = saved({"t": torch.arange(2.0).as_subclass(Sub)}, tmp_path / "file.pt")
    assert load_file(path)["t"].tolist() == [0, 1]
    with pytest.raises(pickle.UnpicklingError, match="test_foreign_objects.Sub"):
        mt.load(path)


Sub = type("Sub", (torch.Tensor,), {"__module__": __name__}) if HAS_TORCH else None


# -- whole modules ---------------------------------------------------------------------------------


@pytest.fixture(params=["archive", "before 1.6", "pickle"])
def whole(request, tmp_path):
    model = Net()
    path = tmp_path / "whole.pth.tar"
    if request.param == "pickle":
        path.write_bytes(pickle.dumps(model))
    else:
        saved(model, path, request.param == "archive")
    return str(path), model


def test_a_whole_module_is_its_state_dict(whole, tmp_path, capsys):
    path, model = whole
    expected = model.state_dict()
    found = load_file(path)
    assert sorted(found) == sorted(expected)
    assert all(found[key].tolist() == value.tolist() for key, value in expected.items())
    assert verify(path) == [] and verify(path, model) == []
    saved(expected, tmp_path / "state.pt")
    assert not mt.compare(path, tmp_path / "state.pt")
    convert(path, tmp_path / "new.safetensors")
    with open_checkpoint(tmp_path / "new.safetensors") as checkpoint:
        assert checkpoint.ties == {"tied.weight": "fc.weight"}
    model.load_state_dict(mt.to_torch(load_file(tmp_path / "new.safetensors")))
    assert "= fc.weight" in output(capsys, "inspect", path)[1]


@pytest.mark.parametrize("protocol", range(6))
def test_a_whole_module_in_a_pickle_of_each_protocol(protocol, tmp_path):
    model = torch.nn.Linear(2, 3)
    (tmp_path / "net.pkl").write_bytes(pickle.dumps(model, protocol))
    assert load_file(tmp_path / "net.pkl")["weight"].tolist() == model.weight.tolist()


def test_what_is_not_a_state_dict_says_which_call_reads_it(tmp_path):
    path = saved(argparse.Namespace(a=1), tmp_path / "file.pt")
    message = """holds ‹argparse.Namespace a=1› where a state dict belongs; modtree.load(path, """
    with pytest.raises(mt.CheckpointError, match=re.escape(message + 'foreign="stand-in") reads')):
        open_checkpoint(path)


def test_the_classes_of_a_whole_module_need_not_be_there(tmp_path):
    data = pickle.dumps(Net(), 2).replace(b"test_foreign_objects", b"module_that_is_absent")
    (tmp_path / "net.pkl").write_bytes(data)
    assert "fc.weight" in load_file(tmp_path / "net.pkl")


def test_an_archive_of_torchscript_is_its_state_dict(tmp_path, capsys):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).eval()
    traced = torch.jit.trace(model, torch.ones(1, 2))
    torch.jit.save(traced, tmp_path / "script.pt")
    found = load_file(tmp_path / "script.pt")
    expected = model.state_dict()
    assert sorted(found) == sorted(expected)
    assert all(found[key].tolist() == value.tolist() for key, value in expected.items())
    assert verify(tmp_path / "script.pt", model) == []
    assert (
        "script.pt: torchscript, 7 entries" in output(capsys, "inspect", tmp_path / "script.pt")[1]
    )


@pytest.mark.parametrize("protocol", range(6))
def test_plain_pickles(protocol, tmp_path):
    path = tmp_path / "plain.pkl"
    value = {"w": np.arange(3.0), "n": argparse.Namespace(a=1), "t": mt.ones(2)}
    path.write_bytes(pickle.dumps(value, protocol))
    found = load_file(path)
    assert found["w"].tolist() == [0, 1, 2] and found["t"].tolist() == [1, 1]
    assert repr(found["n"]) == "‹argparse.Namespace a=1›"


def test_damage_is_said_of_damage_alone(tmp_path):
    path = tmp_path / "net.pt"
    saved(Net(), path)
    data = path.read_bytes()
    for cut in (len(data) // 2, len(data) - 10):
        path.write_bytes(data[:cut])
        (problem,) = verify(path)
        assert problem.kind == "damaged" and "damaged" in problem.message


# -- training checkpoints --------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    return str(tmp_path / "run.ckpt"), training(tmp_path / "run.ckpt", 1e-3)


def training(path, lr):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.5}]
    optimizer = torch.optim.AdamW(groups, lr=lr)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    content = {
        "model": model.state_dict(),
        "ema": {key: value + 1 for key, value in model.state_dict().items()},
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "rng": {"python": random.getstate(), "torch": torch.get_rng_state()},
        "callbacks": {"best": {"score": torch.tensor(0.5)}},
        "hyper_parameters": argparse.Namespace(lr=lr),
        "epoch": 3,
    }
    saved(content, path)
    return content


def test_each_part_has_a_line(run, capsys):
    path, _ = run
    status, text = output(capsys, "inspect", path)
    assert status == 0
    lines = [re.sub(r"  +", "  ", line).strip() for line in text.splitlines()]
    assert lines[1:10] == [
        "* model  a state dict, 4 tensors, 52 B",
        "ema  a state dict, 4 tensors, 52 B",
        "optimizer  an optimizer: 2 groups, state of 4 parameters, lr 0.001, 0.5, step 1, "
        "12 tensors, 120 B",
        "scheduler  a dict: step_size, gamma, base_lrs, last_epoch, _step_count, _is_initial and "
        "2 more",
        f"rng  random states: python, torch, 1 tensor, {lines[5].rpartition(', ')[2]}",
        "callbacks  a dict: best, 1 tensor, 4 B",
        "hyper_parameters  ‹argparse.Namespace lr=0.001›",
        "epoch  3",
        "* model:",
    ]
    found = json.loads(output(capsys, "inspect", path, "--json")[1])[0]["parts"]
    assert [part["name"] for part in found][:3] == ["model", "ema", "optimizer"]
    assert found[1] == {"name": "ema", "text": "a state dict", "tensors": 4, "nbytes": 52}


def test_at_opens_one_part(run, tmp_path, capsys):
    path, content = run
    ema = load_file(path, at="ema")
    assert ema["0.bias"].tolist() == content["ema"]["0.bias"].tolist()
    convert(path, tmp_path / "ema.safetensors", at="ema")
    assert not mt.compare(tmp_path / "ema.safetensors", path, at=(None, "ema"))
    assert load_file(path, at="callbacks.best")["score"].item() == 0.5
    assert load_file(path, at="optimizer.state.0").keys() == {"step", "exp_avg", "exp_avg_sq"}
    status, text = output(capsys, "inspect", path, "--at", "optimizer")
    assert status == 0 and re.search(r"exp_avg +\[3, 2\] +float32", text)
    status, text = output(capsys, "convert", path, tmp_path / "new.pt", "--at", "ema")
    assert "left out, beside 'ema': model, optimizer, scheduler, rng, callbacks" in text
    with pytest.raises(mt.CheckpointError, match="it has no part 'emma': there is model, ema, opt"):
        load_file(path, at="emma")
    with pytest.raises(mt.CheckpointError, match="holds one state dict, and no part 'ema'"):
        load_file(tmp_path / "ema.safetensors", at="ema")


def test_a_part_without_tensors_is_its_values(run, tmp_path, capsys):
    path, _ = run
    assert load_file(path, at="epoch") == {"epoch": 3}
    assert load_file(path, at="hyper_parameters") == {"lr": 1e-3}
    assert load_file(path, at="scheduler")["gamma"] == 0.1
    lines = output(capsys, "inspect", path, "--at", "hyper_parameters")[1].splitlines()
    assert lines[-2:] == ["* hyper_parameters:", "  lr  0.001"]
    convert(path, tmp_path / "epoch.pt", at="epoch")
    assert mt.load(tmp_path / "epoch.pt") == {"epoch": 3}
    saved({"model": {"w": torch.ones(1)}, "none": Config}, path)
    with pytest.raises(mt.CheckpointError, match="its part 'none' has nothing that can be written"):
        convert(path, tmp_path / "none.pt", at="none")


def test_lists_of_optimizers_and_schedulers_have_a_line(run, tmp_path, capsys):
    _, content = run
    lists = {"optimizer_states": [content["optimizer"]], "lr_schedulers": [content["scheduler"]]}
    saved({"state_dict": content["model"], **lists}, tmp_path / "lightning.ckpt")
    text = output(capsys, "inspect", tmp_path / "lightning.ckpt")[1]
    assert "  a list of 1: an optimizer: 2 groups, state of 4 parameters, lr 0.001, 0.5," in text
    assert "  a list of 1: a dict: step_size, gamma, base_lrs," in text
    assert load_file(tmp_path / "lightning.ckpt", at="lr_schedulers.0")["step_size"] == 10


def test_groups_of_an_optimizer_have_rows(run, tmp_path, capsys):
    path, _ = run
    lines = output(capsys, "inspect", path, "--at", "optimizer")[1].splitlines()
    rows = [re.sub("  +", "  ", line).strip() for line in lines]
    assert rows[0].endswith("torch, 13 entries in optimizer")
    assert rows[rows.index("param_groups  -") + 1 :][:2] == ["0  -", "lr  0.001"]
    assert main(["convert", path, str(tmp_path / "o.safetensors"), "--at", "optimizer"]) == 2
    assert "has no tuple: a target that ends in .pt holds it" in capsys.readouterr().err
    assert main(["convert", path, str(tmp_path / "o.pt"), "--at", "optimizer"]) == 0


def test_the_advice_on_torchscript_names_what_reads_it(tmp_path):
    script = torch.jit.trace(torch.nn.Linear(2, 3), torch.ones(1, 2))
    torch.jit.save(script, tmp_path / "script.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"load it with torch.jit.load\(path\):"):
        mt.load(tmp_path / "script.pt")


def test_a_diff_of_optimizers_says_which_values_differ(run, tmp_path, capsys):
    path, _ = run
    training(tmp_path / "other.ckpt", 2e-3)
    found = mt.compare(path, tmp_path / "other.ckpt", at="optimizer")
    assert found.others == {f"param_groups.0.{name}": (1e-3, 2e-3) for name in ("lr", "initial_lr")}
    assert found.left_out["a"][:2] == ["model", "ema"]
    status, text = output(capsys, "diff", path, tmp_path / "other.ckpt", "--at", "optimizer")
    assert status == 1 and "  param_groups.0.lr: 0.001 -> 0.002" in text
    assert text.count("not compared: model, ema, scheduler") == text.count("not compared") == 1
    assert mt.compare(path, path, at=("model", "ema")).values.keys() == load_file(path).keys()
    with pytest.raises(TypeError, match="neither side is a path"):
        mt.compare({}, {}, at="ema")


def test_verify_compares_one_part_with_a_model(run, capsys):
    path, content = run
    assert verify(path, content["ema"], at="ema") == []
    problems = verify(path, content["model"])
    assert problems == [] and problems.notes == [
        "it names 1 class or function that is not imported: "
        'modtree.load(path, foreign="stand-in") reads it with stand-ins',
        "not compared with the model: ema, optimizer, scheduler, rng, callbacks, "
        "hyper_parameters, epoch",
    ]


def test_an_object_in_itself_is_taken_up_once(tmp_path):
    trainer = argparse.Namespace(weight=torch.ones(2), name="x")
    trainer.callbacks = [argparse.Namespace(trainer=trainer, best=torch.zeros(1))]
    path = saved({"trainer": trainer}, tmp_path / "file.pt")
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.entries) == ["trainer.weight", "trainer.callbacks.0.best"]


def test_many_references_take_little_time(tmp_path):
    """2 ** 60 leaves, for whoever follows each reference."""
    value = argparse.Namespace(w=1)
    plain = [1]
    for _ in range(60):
        value = argparse.Namespace(a=value, b=value)
        plain = [plain, plain]
    path = saved({"w": torch.ones(1), "x": value, "y": plain}, tmp_path / "file.pt")
    assert main(["inspect", path]) == 0 and main(["verify", path]) == 0
    assert not mt.compare(path, path)
    other = saved({"w": torch.ones(1), "x": value, "y": plain}, tmp_path / "other.pt")
    assert not mt.compare(path, other)
    convert(path, tmp_path / "new.pt")


def test_one_tuple_as_the_argument_of_many_calls(tmp_path):
    """A hundred thousand calls with a tuple of a hundred thousand items."""
    count = 100_000
    large = b"(" + b"N" * count + b"tq\0"
    calls = b"cabsent\nname\n0" + b"cbuiltins\nrange\nh\0cabsent\nname\n\x86R0" * count
    (tmp_path / "file.pkl").write_bytes(b"\x80\x02" + large + b"0" + calls + b"N.")
    with pytest.raises(pickle.UnpicklingError, match="it copies more than it holds"):
        mt.load(tmp_path / "file.pkl", foreign="stand-in")
