# SPDX-License-Identifier: BSD-3-Clause
"""Folders of DeepSpeed, by the documented layout of its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import modtree as mt

WEIGHTS = {
    "0.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "0.bias": np.arange(3, dtype=np.float32) + 100,
    "2.weight": np.arange(10, dtype=np.float32).reshape(2, 5) + 200,
    "scale": np.array(7, np.float32),
}
FROZEN = {"frozen.weight": np.arange(7, dtype=np.float32) + 300}
BUFFERS = {"running_mean": np.arange(3, dtype=np.float32), "count": np.array(5)}
GROUPS = [["0.weight", "0.bias"], ["2.weight", "scale"]]


def deepspeed_folder(folder, stage, ranks=2, padded=True, change=None):
    """Writes a folder with one step.

    Args:
        folder: Where.
        stage: Of ZeRO.
        ranks: How many.
        padded: Whether vectors have the padding of their last rank.
        change: Changes the states of a file: called with its name and them.
    """
    step = Path(folder) / "global_step7"
    step.mkdir(parents=True)
    (Path(folder) / "latest").write_text("global_step7")
    half = {key: value.astype(np.float16) for key, value in {**WEIGHTS, **FROZEN}.items()}
    files = {}
    for rank in range(ranks):
        name = f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        files[name] = {"optimizer_state_dict": _optimizer(stage, rank, ranks, padded)}
        if stage == 3 or not rank:
            empty = {key: np.zeros(0, np.float16) for key in half} if stage == 3 else half
            head = f"zero_pp_rank_{rank}_" if stage == 3 else ""
            files[f"{head}mp_rank_00_model_states.pt"] = {
                "module": {**empty, **BUFFERS, "tied": empty["0.weight"]},
                "buffer_names": list(BUFFERS),
                "param_shapes": [
                    {key: mt.Size(WEIGHTS[key].shape) for key in group} for group in GROUPS
                ],
                "frozen_param_shapes": _frozen_shapes(stage),
                "frozen_param_fragments": {
                    key: _part(value, rank, ranks) if stage == 3 else value
                    for key, value in FROZEN.items()
                },
                "shared_params": {"tied": "0.weight"},
                "lr_scheduler": {"last_epoch": 3},
                "ds_version": "0.16.0",
                "epoch": 2,
            }
    for name, states in files.items():
        if change is not None:
            change(name, states)
        mt.save(_tensors(states), step / name, format="torch")
    return Path(folder)


def _frozen_shapes(stage):
    return {key: mt.Size(value.shape) for key, value in FROZEN.items()} if stage > 1 else None


def _tensors(value):
    if isinstance(value, np.ndarray):
        return mt.from_numpy(np.array(value))
    if isinstance(value, dict):
        return {key: _tensors(item) for key, item in value.items()}
    return [_tensors(item) for item in value] if type(value) is list else value


def _part(array, rank, ranks):
    flat = array.reshape(-1)
    each = -(-flat.size // ranks)
    return np.pad(flat, (0, each * ranks - flat.size))[rank * each : (rank + 1) * each]


def _optimizer(stage, rank, ranks, padded):
    state = {"zero_stage": stage, "partition_count": ranks, "loss_scaler": 1.0}
    if stage == 3:
        parts = [[_part(WEIGHTS[key], rank, ranks) for key in group] for group in GROUPS]
        return {**state, "fp32_flat_groups": [np.concatenate(part) for part in parts]}
    vectors = []
    for group in GROUPS:
        flat = np.concatenate([WEIGHTS[key].reshape(-1) for key in group])
        each = -(-flat.size // (2 * ranks)) * 2
        whole = np.pad(flat, (0, each * ranks - flat.size)) if padded else flat
        vectors.append(whole[rank * each : (rank + 1) * each])
    counts = [ranks] * len(GROUPS)
    return {**state, "partition_count": counts, "single_partition_of_fp32_groups": vectors}
