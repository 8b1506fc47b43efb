# SPDX-License-Identifier: BSD-3-Clause
"""Modules on several devices, and in two processes."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jax_nets import Net, assert_untouched, batch, snapshot

import modtree as mt
import modtree.jax as mj

HERE = Path(__file__).parent
HAS_ORBAX = importlib.util.find_spec("orbax") is not None


def run(folder: Path, processes: int, devices: int) -> dict[str, Any]:
    """What the worker writes, on so many processes with so many devices each."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)])}
    if HAS_ORBAX:
        env["WITH_ORBAX"] = "1"
    workers = [
        subprocess.Popen(
            [sys.executable, str(HERE / "sharded_worker.py"), str(folder)]
            + [str(number) for number in (processes, i, port, devices)],
            env=env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=600)
        assert worker.returncode == 0, errors[-3000:]
    return json.loads((folder / "result.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("alone") / "run", 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "devices"), [(1, 8), (2, 4)])
def test_same_digits_on_eight_devices(
    tmp_path: Path, alone: dict[str, Any], processes: int, devices: int
) -> None:
    found = run(tmp_path / "run", processes, devices)
    np.testing.assert_allclose(found["losses"], alone["losses"], rtol=1e-5)
    for name, value in alone["final"].items():
        np.testing.assert_allclose(found["final"][name], value, rtol=1e-5, atol=1e-6)
    assert found["shardings"]["layers.0.w"] == str(P("model", None))
    assert found["shardings"]["layers.1.w"] == str(P(None, "model"))
    assert found["parts"] in (4, None)
    assert found["same"] and found["equal"] and found["orbax"] is (True if HAS_ORBAX else None)
    assert len(found["files"]) == processes + 1
    assert "model.safetensors.index.json" in found["files"]


def mesh() -> Any:
    return jax.make_mesh((1,), ("model",))


def test_rules_and_marks() -> None:
    model = Net()
    model.layers[0].w.requires_grad = False
    model.layers[1].w = model.layers[0].w
    assert mj.shard(model, mesh(), {"layers.1.w": P("model"), "**.w": P()}) is model
    assert model.layers[0].w is model.layers[1].w
    assert model.layers[0].w.sharding == NamedSharding(mesh(), P("model"))
    assert not model.layers[0].w.requires_grad and model.layers[0].b.requires_grad
    assert model.norm.count.sharding == NamedSharding(mesh(), P())
    assert mj.jit(model)(batch()).shape == (4, 3)
    for kind in (jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit):
        other = jax.make_mesh((1,), ("model",), (kind,))
        mj.jit(lambda m, other=other: mj.shard(m, other, {"**.b": P("model")}))(model)
        assert model.layers[0].b.sharding.is_equivalent_to(NamedSharding(other, P("model")), 1)


def test_rules_that_do_not_fit_are_named() -> None:
    model = Net()
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"no parameter or buffer matches 'layer\.\*\.w'"):
        mj.shard(model, mesh(), {"layer.*.w": P()})
    with pytest.raises(ValueError, match=r"layers\.0\.b: .* does not fit the shape \[3\]"):
        mj.shard(model, mesh(), {"**.w": P(), "**.b": P(None, "model")})
    assert_untouched(model, before)
    mj.shard(model, mesh(), {"layer.*.w": P()}, strict=False)


def test_meta_modules_get_shardings() -> None:
    meta = mj.shard(mj.eval_shape(lambda: Net()), mesh(), {"**.w": P("model")})
    assert meta.layers[0].w.sharding == NamedSharding(mesh(), P("model"))
    assert meta.norm.mean.sharding == NamedSharding(mesh(), P())


@pytest.mark.parametrize("format", ["safetensors", "orbax"])
def test_save_and_load_in_one_process(tmp_path: Path, format: str) -> None:
    if format == "orbax" and not HAS_ORBAX:
        pytest.skip("needs orbax")
    model, other = mj.shard(Net(), mesh()), mj.shard(Net(), mesh())
    model.layers[0].w = model.layers[0].w + 1
    model.layers[1].w = model.layers[0].w
    other.layers[1].w = other.layers[0].w
    for _ in range(2):
        mj.save_sharded(model, tmp_path / "saved", format=format)
    mj.load_sharded(other, tmp_path / "saved")
    for name, value in mj.state(model).items():
        np.testing.assert_array_equal(mj.state(other)[name], value)
        assert mj.state(other)[name].sharding.is_equivalent_to(value.sharding, value.ndim)
    assert other.layers[1].w is other.layers[0].w
    assert all(p.requires_grad for p in other.parameters())
    if format == "safetensors":
        saved = mt.load_file(tmp_path / "saved")
        assert saved.keys() == model.state_dict().keys()
        assert jnp.array_equal(np.asarray(saved["norm.mean"]), model.norm.mean)


def test_a_save_takes_the_place_of_whatever_checkpoint_is_there(tmp_path: Path) -> None:
    model = Net()
    mt.save_file(Net(), tmp_path / "model.safetensors")
    for size in (None, 40):
        mt.save_file({"old": mt.ones(20), "older": mt.ones(20)}, tmp_path, max_shard_size=size)
        (tmp_path / "config.json").write_text("{}")
        mj.save_sharded(model, tmp_path)
        assert mt.load_file(tmp_path).keys() == model.state_dict().keys()
        names = ["config.json", "model-00001-of-00001.safetensors", "model.safetensors.index.json"]
        assert sorted(os.listdir(tmp_path)) == names


def test_a_save_that_fails_leaves_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mj.save_sharded(Net(), tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    model = Net()
    model.layers[0].w = model.layers[0].w + 1
    monkeypatch.setattr("modtree.jax._sharding.publish_shards", None)
    with pytest.raises(TypeError):
        mj.save_sharded(model, tmp_path)
    assert before.items() <= {file: file.read_bytes() for file in tmp_path.iterdir()}.items()
    monkeypatch.undo()
    mj.save_sharded(model, tmp_path)
    assert {*tmp_path.iterdir()} == {*before}


def test_a_folder_that_orbax_did_not_write_stays(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1")
    with pytest.raises(mt.CheckpointError, match="holds other files.*overwrite=True"):
        mj.save_sharded(Net(), tmp_path, format="orbax")
    with pytest.raises(FileExistsError):
        mj.save_sharded(Net(), tmp_path / "data.csv", format="orbax", overwrite=True)
    assert os.listdir(tmp_path) == ["data.csv"]


def test_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'safetensors' or 'orbax', got 'x'"):
        mj.save_sharded(Net(), tmp_path, format="x")
