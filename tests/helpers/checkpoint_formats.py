# SPDX-License-Identifier: BSD-3-Clause
"""A small checkpoint of each format, each in a folder of its own, and mutations of them."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import lzma
import pickle
import shutil
import struct
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from helpers.deepspeed_folders import deepspeed_folder, split_folder
from helpers.foreign_pickles import distributed_folder, torch_file
from helpers.gguf_files import gguf, text
from helpers.implementations import HAS_TORCH
from helpers.mutated_archives import mutated, with_changed_pickle, with_small_number

import modtree as mt

W = np.arange(12, dtype=np.float32).reshape(3, 4)
STATE = {"a": mt.from_numpy(W), "b": mt.ones(3)}
#: The rules for folders whose files do not say how they are put together.
RULES = {"megatron": {"*.w": 0, "*": None}}
NAMES = (b"../outside", b"/etc/passwd", b"..", b"__0_0.distcp", b"\0\0", b"a/../../../x")
#: What is said of files of these formats, and never read.
NAMED_ONLY = {"other", "tarred"}
#: What safetensors files do not hold: one of the commands refuses it.
NOT_IN_SAFETENSORS = {"optimizer"}


def write_folders(parent, formats=None):
    """Writes folders of these formats, or of all that can be made here, and returns their names."""
    parent = Path(parent)
    for name in FORMATS if formats is None else formats:
        if HAS_TORCH or name not in MADE_BY_TORCH:
            FORMATS[name](parent, name)
    return sorted(path.name for path in parent.iterdir())


def _distributed(parent, name):
    boxes = [((0, 0), (2, 4)), ((2, 0), (1, 4))]
    tensors = {"model/w": (W, boxes), "model/b": (np.array(True), [((), ())])}
    distributed_folder(parent / name, tensors, {"epoch": 3, "list": [1, (2, "x")]})


def _deepspeed(parent, name):
    for stage in (1, 2, 3):
        deepspeed_folder(parent / f"{name}_{stage}", stage, 2)
        split_folder(parent / f"{name}_{stage}_split", stage, ranks=1)


def _megatron(parent, name):
    for rank in range(2):
        place = parent / name / f"mp_rank_0{rank}"
        place.mkdir(parents=True)
        state = {"model": {"w": mt.from_numpy(W[:2] + rank), "n": mt.ones(2)}, "step": 3}
        mt.save(state, place / "model_optim_rng.pt", format="torch")


def _hugging_face(parent, name):
    for ending in ("safetensors", "bin"):
        folder = parent / f"{name}_{ending}"
        folder.mkdir()
        stem = "model" if ending == "safetensors" else "pytorch_model"
        mt.save_file(STATE, folder / "whole.safetensors")
        options = {"max_shard_size": 40, "format": None if ending == "safetensors" else "torch"}
        mt.checkpoints.convert(folder / "whole.safetensors", folder / f"{stem}.{ending}", **options)
        (folder / "whole.safetensors").unlink()


def _trainer(parent, name):
    folder = parent / name
    folder.mkdir()
    mt.save_file(STATE, folder / "model.safetensors", max_shard_size=40)
    mt.save({"state": {0: STATE}, "param_groups": [{"lr": 1}]}, folder / "optimizer.pt")
    mt.save({"cpu": mt.zeros(8)}, folder / "rng_state.pth", format="torch")
    (folder / "trainer_state.json").write_text('{"global_step": 500, "log_history": [{"a": 1}]}')


def _adapter(parent, name):
    content = json.dumps({"peft_type": "LORA", "r": 4, "target_modules": ["q", "v"]})
    for ending in ("safetensors", "bin"):
        folder = parent / f"{name}_{ending}"
        folder.mkdir()
        (folder / "adapter_config.json").write_text(content)
        mt.checkpoints.convert(_saved(STATE), folder / f"adapter_model.{ending}")


def _saved(value):
    file = io.BytesIO()
    mt.save(value, file)
    return file.getvalue()


def _safetensors(parent, name):
    (parent / name).mkdir()
    mt.save_file({**STATE, "tie": STATE["a"]}, parent / name / "model.safetensors")


def _gguf(parent, name):
    quantized = [("q", (1, 32), 8, bytes(34))]
    settings = [("general.architecture", 8, text("llama")), ("flag", 7, b"\1")]
    content = gguf({"w": W}, settings, raw=quantized)
    _write(parent / name / "model.gguf", content)


def _npz(parent, name):
    for kind, write in (("plain", np.savez), ("packed", np.savez_compressed)):
        (parent / f"{name}_{kind}").mkdir()
        arrays = {"w": W, "f": np.asfortranarray(W), "b": W > 3, "o": np.array([None])}
        write(parent / f"{name}_{kind}" / "a.npz", **arrays)


def _own(parent, name):
    run = {"model": {**STATE, "tie": STATE["a"]}, "optimizer": {"lr": 1}, "epoch": 3}
    _write(parent / f"{name}_run" / "run.ckpt", _saved(run))
    _write(parent / f"{name}_state" / "state.pt", _saved(STATE))


def _archive(parent, name):
    _write(parent / f"{name}_run" / "run.pt", torch_file({"model": STATE, "epoch": 3}))
    _write(parent / f"{name}_state" / "state.pt", torch_file(STATE))


def _packed(parent, name):
    """A checkpoint in what must be unpacked first."""
    content, file, other = torch_file(STATE), io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as opened:
        entry = tarfile.TarInfo("model.pt")
        entry.size = len(content)
        opened.addfile(entry, io.BytesIO(content))
    with zipfile.ZipFile(other, "w") as opened:
        opened.writestr("model.pt", content)
    packed = {"gzip": gzip.compress(content), "xz": lzma.compress(content)}
    packed |= {"tar": file.getvalue(), "zip": other.getvalue()}
    packed["tgz"] = gzip.compress(file.getvalue())
    for kind, data in packed.items():
        _write(parent / f"{name}_{kind}" / "model.pt", data)


def _other(parent, name):
    """What is found where a checkpoint was expected."""
    pages = {"page": b"<!DOCTYPE html><html><body>Log in"}
    pages["bucket"] = b"<?xml version='1.0'?>\n<Error><Code>AccessDenied</Code></Error>"
    pages["pointer"] = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7\nsize 26843\n"
    pages["array"] = b"\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"
    pages["encrypted"] = b"Salted__" + bytes(range(64))
    pages["text"] = torch_file(STATE).replace(b"\n", b"\r\n")
    for kind, data in pages.items():
        _write(parent / f"{name}_{kind}" / "model.safetensors", data)


def _tar_of_torch(parent, name):
    """The form of torch before 0.1.10, by its layout: an archive of pickles."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as opened:
        parts = {"storages": pickle.dumps(1, 2) + struct.pack("<q", 2) + bytes(8)}
        parts |= {"tensors": pickle.dumps(0, 2), "pickle": pickle.dumps({"w": 1}, 2)}
        parts |= {"sys_info": pickle.dumps({"protocol_version": 1000, "little_endian": True}, 2)}
        for entry_name, data in parts.items():
            entry = tarfile.TarInfo(entry_name)
            entry.size = len(data)
            opened.addfile(entry, io.BytesIO(data))
    _write(parent / name / "model.pth.tar", file.getvalue())


def _write(path, data):
    path.parent.mkdir()
    path.write_bytes(data)


# -- behind addresses ------------------------------------------------------------------------------


def _addresses(parent, name):
    """Files of other formats, to be served."""
    _write(parent / f"{name}_archive" / "model.pt", torch_file({"model": STATE, "epoch": 3}))
    _write(parent / f"{name}_pickle" / "model.pkl", _saved(STATE))
    _safetensors(parent, f"{name}_safetensors")
    _gguf(parent, f"{name}_gguf")
    (parent / f"{name}_npz").mkdir()
    np.savez(parent / f"{name}_npz" / "a.npz", w=W, b=W > 3)
    (parent / f"{name}_index").mkdir()
    mt.save_file(STATE, parent / f"{name}_index" / "model.safetensors", max_shard_size=40)


# -- made by torch ---------------------------------------------------------------------------------


def _model():
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).eval()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


def _namespace():
    import torch

    namespace = argparse.Namespace(lr=1, weight=torch.ones(2), parts=[{"a": 1}, (2, "x")])
    namespace.itself = namespace
    return namespace


def _objects(kind):
    import torch

    model, optimizer = _model()
    if kind == "whole":
        return model
    if kind == "optimizer":
        return optimizer
    if kind == "run":
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        return {**parts, "args": _namespace()}
    return {
        "coo": torch.eye(2).to_sparse(),
        "csr": torch.eye(2).to_sparse_csr(),
        "q": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        "nested": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
        "half": torch.zeros(2, dtype=torch.complex32),
        "objects": np.array([1, None], object),
    }


KINDS = ("whole", "run", "tensors", "optimizer")


def _of_torch(parent, name):
    """An archive of torch.save(): a whole module, a run, or objects that are not plain tensors."""
    import torch

    file = io.BytesIO()
    torch.save(_objects(name), file)
    _write(parent / name / "file.pt", file.getvalue())


def _legacy(parent, name):
    import torch

    for kind in KINDS:
        file = io.BytesIO()
        torch.save(_objects(kind), file, _use_new_zipfile_serialization=False)
        _write(parent / f"{name}_{kind}" / "file.pth.tar", file.getvalue())


def _script(parent, name):
    import torch

    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(_model()[0], torch.ones(1, 2)), file)
    _write(parent / name / "script.pt", file.getvalue())


def _pickles(parent, name):
    value = {"model": _model()[0], "args": argparse.Namespace(a=1, b=np.ones(2), c={1, 2})}
    for protocol in (0, 2, 5):
        _write(parent / f"{name}_{protocol}" / "file.pkl", pickle.dumps(value, protocol))


def _dtensors(parent, name):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    folder = parent / name
    folder.mkdir()
    for rank in range(2):
        dist.init_process_group("fake", rank=rank, world_size=2, store=FakeStore())
        try:
            mesh = DeviceMesh("cpu", [0, 1])
            part = torch.arange(4.0).reshape(2, 2) + rank
            value = DTensor.from_local(part, mesh, [Shard(0)], run_check=False)
            torch.save({"w": value, "n": torch.ones(2)}, folder / f"model_rank_{rank}.pt")
        finally:
            dist.destroy_process_group()


def _sharded_tensors(parent, name):
    import torch
    import torch.distributed as dist
    from torch.distributed._shard.metadata import ShardMetadata
    from torch.distributed._shard.sharded_tensor import (
        Shard,
        ShardedTensor,
        ShardedTensorMetadata,
        TensorProperties,
    )
    from torch.testing._internal.distributed.fake_pg import FakeStore

    folder = parent / name
    folder.mkdir()
    places = [ShardMetadata([2 * rank, 0], [2, 2], f"rank:{rank}/cpu") for rank in range(2)]
    facts = ShardedTensorMetadata(places, torch.Size([4, 2]), TensorProperties())
    for rank in range(2):
        dist.init_process_group("fake", rank=rank, world_size=2, store=FakeStore())
        try:
            shards = [Shard(torch.arange(4.0).reshape(2, 2) + rank, places[rank])]
            make = ShardedTensor._init_from_local_shards_and_global_metadata
            state = {"w": make(shards, facts), "n": torch.ones(2)}
            torch.save({"model": state, "step": 3}, folder / f"model_rank{rank}.pt")
        finally:
            dist.destroy_process_group()


def _written(state):
    """The bytes of a safetensors file."""
    with tempfile.TemporaryDirectory() as folder:
        mt.save_file(state, Path(folder) / "a.safetensors")
        return (Path(folder) / "a.safetensors").read_bytes()


def _archives(parent, name):
    files = {"config.yaml": b"a: 1", "model.safetensors": _written(STATE), "b.pt": b"x" * 40}
    for kind in ("stored", "deflated", "tar", "gz"):
        folder = parent / f"{name}_{kind}"
        folder.mkdir()
        if kind in ("stored", "deflated"):
            with zipfile.ZipFile(folder / "a.zip", "w", 8 * (kind == "deflated")) as archive:
                for inner, content in files.items():
                    archive.writestr(inner, content)
            continue
        with tarfile.open(folder / "a.nemo", "w" if kind == "tar" else "w:gz") as archive:
            for inner, content in files.items():
                entry = tarfile.TarInfo(inner)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def _export(parent, name):
    import torch

    folder = parent / name
    folder.mkdir()
    program = torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),))
    torch.export.save(program, folder / "a.pt2")


def _parts(parent, name):
    folder = parent / name
    (folder / "unet").mkdir(parents=True)
    mt.save_file(STATE, folder / "unet" / "weights.safetensors")
    moments = {"exp_avg": mt.ones(3), "step": mt.tensor(3.0)}
    state = {"state": {0: moments}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    mt.save(state, folder / "optimizer.pt", format="torch")
    (folder / "history.pkl").write_bytes(pickle.dumps({"losses": W, "epoch": 3}))


def _numbered(parent, name):
    for ending in ("safetensors", "gguf"):
        folder = parent / f"{name}_{ending}"
        folder.mkdir()
        for number, key in enumerate("ab", 1):
            settings = [("split.count", 4, struct.pack("<I", 2))]
            data = gguf({key: W}, settings) if ending == "gguf" else _written({key: W})
            (folder / f"model-0000{number}-of-00002.{ending}").write_bytes(data)


def _offsets(parent, name):
    folder = parent / name
    folder.mkdir()
    for rank in range(2):
        places = json.dumps({"w": {"saved_offsets": [3 * rank, 0]}})
        path = folder / f"shard-0000{rank + 1}-model-00001-of-00001.safetensors"
        mt.save_file({"w": W.copy()}, path, {"DCP_SHARDING_INFO": places})


def _arrays(parent, name):
    folder = parent / name
    folder.mkdir()
    run = {"net": {"a.w": W, "a.codes": W.astype(np.int8), "a.scale": np.float32(2)}, "epoch": 3}
    (folder / "run.pkl").write_bytes(pickle.dumps({**run, "history": W.T}))


FORMATS = {
    "archives": _archives,
    "export": _export,
    "parts": _parts,
    "numbered": _numbered,
    "offsets": _offsets,
    "arrays": _arrays,
    "distributed": _distributed,
    "dtensors": _dtensors,
    "sharded-tensors": _sharded_tensors,
    "deepspeed": _deepspeed,
    "megatron": _megatron,
    "hugging-face": _hugging_face,
    "trainer": _trainer,
    "adapter": _adapter,
    "safetensors": _safetensors,
    "gguf": _gguf,
    "npz": _npz,
    "own": _own,
    "archive": _archive,
    "whole": _of_torch,
    "run": _of_torch,
    "tensors": _of_torch,
    "optimizer": _of_torch,
    "script": _script,
    "legacy": _legacy,
    "tarred": _tar_of_torch,
    "pickles": _pickles,
    "packed": _packed,
    "other": _other,
    "http": _addresses,
    "memory": _addresses,
}
MADE_BY_TORCH = {"export", "dtensors", "sharded-tensors", *KINDS, "script", "legacy", "pickles"}


def format_of(name):
    """The format of a folder."""
    return name.partition("_")[0]


def mutate_folder(seed, valid, target):
    """Writes the folder of a number: one of the valid ones, with a file changed or missing."""
    rng = np.random.default_rng(seed)
    names = sorted(path.name for path in Path(valid).iterdir())
    name = names[seed % len(names)]
    shutil.copytree(Path(valid) / name, target)
    files = sorted(path for path in Path(target).rglob("*") if path.is_file())
    if rng.integers(3) == 0:  # a small change, which much of it survives
        path = files[rng.integers(len(files))]
        path.write_bytes(_with_other_number(rng, path.read_bytes()))
        return name
    for _ in range(rng.integers(1, 3)):
        path = files[rng.integers(len(files))]
        data = path.read_bytes() if path.exists() else b""
        kind = rng.integers(8)
        if kind == 0:
            path.unlink(missing_ok=True)
        elif kind == 1:
            path.write_bytes(files[rng.integers(len(files))].read_bytes() if data else b"x")
        elif kind == 2 and data:
            path.write_bytes(_with_name(rng, data))
        elif kind < 6 and data:
            path.write_bytes(_changed(rng, data))
        elif data:
            path.write_bytes(_with_number(rng, data))
        files = [path for path in files if path.exists()] or files
        if not any(path.exists() for path in files):
            break
    return name


def _with_other_number(rng, data):
    """A number in a pickle, also one in an archive, or a digit in text."""
    if data.startswith(b"PK"):
        try:
            return with_changed_pickle(data, lambda content: with_small_number(rng, content))
        except (zipfile.BadZipFile, StopIteration):  # changed before, or of another kind
            return _with_number(rng, data)
    if data.startswith(b"\x80"):
        return with_small_number(rng, data)
    digits = [at for at, code in enumerate(data) if code in b"0123456789"]
    if not digits:
        return _with_number(rng, data)
    at = digits[rng.integers(len(digits))]
    return data[:at] + str(rng.integers(10)).encode() + data[at + 1 :]


def _changed(rng, data):
    """A file of torch or a pickle with changes where its form has fields; of others, anywhere."""
    if data.startswith(b"PK") and b"data.pkl" not in data:
        return _with_number(rng, data)
    try:
        return mutated(int(rng.integers(1 << 30)), [data])
    except Exception:  # zipfile cannot read it, because it was changed before
        return _with_number(rng, data)


def _with_name(rng, data):
    """A name of a file in the place of another."""
    for known in (b"__0_0.distcp", b"__1_0.distcp", b"global_step7", b"model-00001-of-00002"):
        if known in data and rng.integers(2):
            new = NAMES[rng.integers(len(NAMES))]
            new = new[: len(known)].ljust(len(known), b"/") if rng.integers(2) else new
            return data.replace(known, new)
    return data[: rng.integers(len(data) + 1)]


def _with_number(rng, data):
    """Eight bytes that are a large number, or a changed byte."""
    at = int(rng.integers(len(data)))
    if rng.integers(2):
        return data[:at] + bytes([rng.integers(256)]) + data[at + 1 :]
    number = (0, 1, -1, 1 << 31, 1 << 40, (1 << 63) - 1)[rng.integers(6)]
    packed = number.to_bytes(8, "little", signed=True)[: int(rng.choice([2, 4, 8]))]
    return data[:at] + packed + data[at + len(packed) :]
