# SPDX-License-Identifier: BSD-3-Clause
"""A small checkpoint of each format that is not a single file of torch, and mutations of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from helpers.deepspeed_folders import deepspeed_folder
from helpers.foreign_pickles import distributed_folder
from helpers.gguf_files import gguf, text
from helpers.implementations import HAS_TORCH
from helpers.mutated_archives import mutated

import modtree as mt

W = np.arange(12, dtype=np.float32).reshape(3, 4)
#: The rules for folders whose files do not say how they are put together.
RULES = {"megatron": {"*.w": 0, "*": None}}
NAMES = (b"../outside", b"/etc/passwd", b"..", b"__0_0.distcp", b"\0\0", b"a/../../../x")


def write_folders(parent):
    """Writes them, each into a folder of its own, and returns their names."""
    parent = Path(parent)
    boxes = [((0, 0), (2, 4)), ((2, 0), (1, 4))]
    tensors = {"model/w": (W, boxes), "model/b": (np.array(True), [((), ())])}
    distributed_folder(parent / "distributed", tensors, {"epoch": 3, "list": [1, (2, "x")]})
    for stage in (2, 3):
        deepspeed_folder(parent / f"deepspeed_{stage}", stage, 2)
    for rank in range(2):
        place = parent / "megatron" / f"mp_rank_0{rank}"
        place.mkdir(parents=True)
        state = {"model": {"w": mt.from_numpy(W[:2] + rank), "n": mt.ones(2)}, "step": 3}
        mt.save(state, place / "model_optim_rng.pt", format="torch")
    _write_hugging_face(parent)
    quantized = [("q", (1, 32), 8, bytes(34))]
    settings = [("general.architecture", 8, text("llama")), ("flag", 7, b"\1")]
    (parent / "gguf").mkdir()
    (parent / "gguf" / "model.gguf").write_bytes(gguf({"w": W}, settings, raw=quantized))
    for name, write in (("npz", np.savez), ("npz_packed", np.savez_compressed)):
        (parent / name).mkdir()
        write(parent / name / "a.npz", w=W, f=np.asfortranarray(W), b=W > 3, o=np.array([None]))
    if HAS_TORCH:
        _write_dtensors(parent / "dtensors")
    return sorted(path.name for path in parent.iterdir())


def _write_hugging_face(parent):
    trainer, adapter = parent / "trainer", parent / "adapter"
    trainer.mkdir()
    adapter.mkdir()
    state = {"a": mt.from_numpy(W), "b": mt.ones(3)}
    mt.save_file(state, trainer / "model.safetensors", max_shard_size=40)
    mt.save({"state": {0: state}, "param_groups": [{"lr": 1}]}, trainer / "optimizer.pt")
    mt.save({"cpu": mt.zeros(8)}, trainer / "rng_state.pth", format="torch")
    (trainer / "trainer_state.json").write_text('{"global_step": 500, "log_history": [{"a": 1}]}')
    mt.save_file(state, adapter / "adapter_model.safetensors")
    content = {"peft_type": "LORA", "r": 4, "target_modules": ["q", "v"]}
    (adapter / "adapter_config.json").write_text(json.dumps(content))


def _write_dtensors(folder):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

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


def mutate_folder(seed, valid, target):
    """Writes the folder of a number: one of the valid ones, with a file changed or missing."""
    rng = np.random.default_rng(seed)
    names = sorted(path.name for path in Path(valid).iterdir())
    name = names[seed % len(names)]
    shutil.copytree(Path(valid) / name, target)
    files = sorted(path for path in Path(target).rglob("*") if path.is_file())
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
