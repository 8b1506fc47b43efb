# SPDX-License-Identifier: BSD-3-Clause
"""HDF5, ONNX and Orbax: read where the library is installed, named with the package where not."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
from helpers.command_line import CommandLine
from helpers.needs import needs

import modtree as mt
from modtree.checkpoints import open_checkpoint, verify

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def hdf5_file(path):
    h5py = importlib.import_module("h5py")
    with h5py.File(path, "w") as file:
        group = file.create_group("dense")
        group.create_dataset("kernel", data=W, compression="gzip")
        group.create_dataset("names", data=np.array([b"a", b"bc"]))
        file.attrs["keras_version"] = "3.0"
        file["soft"] = h5py.SoftLink("/dense")
        file["elsewhere"] = h5py.ExternalLink("/etc/passwd", "/x")
        group.create_dataset("outside", (2,), "f4", external=[("/etc/passwd", 0, 8)])
    return path


@needs("h5py")
def test_an_hdf5_file(tmp_path, capsys):
    path = hdf5_file(tmp_path / "model.h5")
    state = mt.load_file(path)
    assert np.array_equal(state["dense.kernel"].numpy(), W)
    others = {key: str(value) for key, value in state.items() if key != "dense.kernel"}
    assert others["elsewhere"] == "‹link ExternalLink, which is not followed›"
    assert others["dense.outside"] == "‹array in other files, which are not opened›"
    assert verify(path) == []
    done = CommandLine(capsys)("convert", path, tmp_path / "out.safetensors")
    assert "1 entry" in done.out and "neither tensors nor plain: dense.names" in done.out


@needs("h5py")
def test_a_damaged_hdf5_file(tmp_path):
    path = hdf5_file(tmp_path / "model.h5")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(mt.CheckpointError, match="the file is damaged"):
        open_checkpoint(path)


def onnx_file(path, **options):
    onnx = importlib.import_module("onnx")
    helper = onnx.helper
    weights = [onnx.numpy_helper.from_array(W, "w"), onnx.numpy_helper.from_array(W[0], "b")]
    ends = [helper.make_tensor_value_info(name, 1, [1, 2]) for name in ("x", "y")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:], weights))
    onnx.save(model, path, **options)
    return path


@needs("onnx")
@pytest.mark.parametrize("beside", [False, True])
def test_an_onnx_model(beside, tmp_path):
    options = {"save_as_external_data": True, "location": "values.bin", "size_threshold": 0}
    path = onnx_file(tmp_path / "model.onnx", **(options if beside else {}))
    state = mt.load_file(path)
    assert np.array_equal(state["w"].numpy(), W) and np.array_equal(state["b"].numpy(), W[0])
    assert verify(path) == []
    if beside:
        data = path.read_bytes()
        path.write_bytes(data.replace(b"values.bin", b"../ues.bin"))
        with pytest.raises(mt.CheckpointError, match="the model names the file '../ues.bin'"):
            open_checkpoint(path)
        path.write_bytes(data)
        (tmp_path / "values.bin").write_bytes(b"1234")
        with pytest.raises(mt.CheckpointError, match=r"values.bin.*the file is truncated"):
            mt.load_file(path)


TREE = {
    "tree_metadata": {
        "('params', 'w')": {
            "key_metadata": [{"key": "params", "key_type": 2}, {"key": "w", "key_type": 2}],
            "value_metadata": {"value_type": "jax.Array", "write_shape": [2, 3]},
        }
    },
    "use_ocdbt": False,
}


def orbax_folder(folder):
    """The JSON and a zarr array, as the layout is documented."""
    place = folder / "params.w"
    place.mkdir(parents=True)
    (folder / "_CHECKPOINT_METADATA").write_text("{}")
    (folder / "_METADATA").write_text(json.dumps(TREE))
    facts = {"chunks": [2, 3], "compressor": None, "dtype": "<f4", "fill_value": None}
    facts |= {"filters": None, "order": "C", "shape": [2, 3], "zarr_format": 2}
    (place / ".zarray").write_text(json.dumps(facts))
    (place / "0.0").write_bytes(W.tobytes())
    return folder


def test_a_folder_of_orbax(tmp_path):
    folder = orbax_folder(tmp_path / "run")
    state = mt.load_file(folder)
    if importlib.util.find_spec("tensorstore") is None:
        text = "‹jax.Array [2, 3]: pip install tensorstore to read it›"
        assert str(state["params.w"]) == text
    else:
        assert np.array_equal(state["params.w"].numpy(), W)
    assert verify(folder) == []


@needs("orbax.checkpoint", "tensorstore")
@pytest.mark.slow
def test_a_folder_of_orbax_itself(tmp_path):
    ocp = importlib.import_module("orbax.checkpoint")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "run", {"params": {"w": W}, "step": 3})
    state = mt.load_file(tmp_path / "run")
    assert np.array_equal(state["params.w"].numpy(), W) and state["step"].item() == 3


@pytest.mark.parametrize("name", ["../x", "a/b", ".."])
def test_names_in_a_folder_of_orbax_stay_in_it(name, tmp_path):
    folder = orbax_folder(tmp_path / "run")
    content = json.loads(json.dumps(TREE).replace('"key": "w"', f'"key": "{name}"'))
    (folder / "_METADATA").write_text(json.dumps(content))
    if importlib.util.find_spec("tensorstore") is None:
        pytest.skip("without tensorstore no array is opened")
    with pytest.raises(mt.CheckpointError, match="its _METADATA names"):
        open_checkpoint(folder)


def test_a_step_of_orbax_names_the_folder_in_it(tmp_path):
    orbax_folder(tmp_path / "7" / "default")
    (tmp_path / "7" / "_CHECKPOINT_METADATA").write_text("{}")
    with pytest.raises(mt.CheckpointError, match="open the folder default in it"):
        open_checkpoint(tmp_path / "7")


@pytest.mark.parametrize(
    ("name", "content", "package"),
    [
        ("model.h5", b"\x89HDF\r\n\x1a\n" + bytes(90), "h5py"),
        ("model.onnx", b"\x08\x09\x12\x07pytorch", "onnx"),
    ],
)
def test_without_the_library_the_package_is_named(name, content, package, tmp_path):
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(mt.CheckpointError, match=f"pip install {package}"):
        open_checkpoint(tmp_path / name)
