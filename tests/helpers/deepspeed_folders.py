# SPDX-License-Identifier: BSD-3-Clause
"""Folders of DeepSpeed, by the documented layout of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

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


#: What a model of two model-parallel ranks has, and how DeepSpeed says that it is split.
SPLIT_WEIGHTS = {
    "embedding.weight": np.arange(30, dtype=np.float32).reshape(10, 3),  # of which 2 are padding
    "1.up.weight": np.arange(24, dtype=np.float32).reshape(8, 3) + 100,  # two blocks
    "1.down.weight": np.arange(12, dtype=np.float32).reshape(2, 6) + 200,
    "1.norm.weight": np.arange(3, dtype=np.float32) + 300,
    "1.mean.weight": np.arange(3, dtype=np.float32) + 400,
    "1.query.bias": np.arange(6, dtype=np.float32) + 500,
}
INFO = {
    "universal_checkpoint_version": 0.2,
    "original_vocab_size": 8,
    "vocabulary_parameter_patterns": ["^embedding\\.weight$"],
    "tp_replicated_parameter_patterns": [r"\d+.norm.weight"],
    "parameter_to_average_patterns": [r"\d+.mean.weight"],
    "parameter_with_row_parallelism_patterns": [r"\d+.down.weight"],
    "parameter_with_2_sub_params_cat_dim_0": [r"\d+.up.weight"],
}


class Part(NamedTuple):
    """What a model-parallel rank has."""

    weights: Any = WEIGHTS
    groups: Any = GROUPS
    frozen: Any = FROZEN
    buffers: Any = BUFFERS
    rank: int = 0
    info: Any = None


WHOLE_MODEL = Part()


def split_folder(folder, stage, change=None, info=INFO, ranks=2):
    """Writes a folder of two model-parallel ranks."""
    for rank in range(2):
        gate, up = (np.split(half, 2)[rank] for half in np.split(SPLIT_WEIGHTS["1.up.weight"], 2))
        weights = {
            "embedding.weight": np.split(SPLIT_WEIGHTS["embedding.weight"], 2)[rank],
            "1.up.weight": np.concatenate([gate, up]),
            "1.down.weight": np.split(SPLIT_WEIGHTS["1.down.weight"], 2, axis=1)[rank],
            "1.norm.weight": SPLIT_WEIGHTS["1.norm.weight"],
            "1.mean.weight": SPLIT_WEIGHTS["1.mean.weight"] + (1, -1)[rank],
            "1.query.bias": np.split(SPLIT_WEIGHTS["1.query.bias"], 2)[rank],
        }
        part = Part(weights, [list(weights)], {}, {}, rank, info)
        deepspeed_folder(folder, stage, ranks, change=change, part=part)
    return Path(folder)


def deepspeed_folder(folder, stage, ranks=2, padded=True, change=None, part=WHOLE_MODEL):
    """Writes a folder with one step.

    Args:
        folder: Where.
        stage: Of ZeRO.
        ranks: How many.
        padded: Whether vectors have the padding of their last rank.
        change: Changes the states of a file: called with its name and them.
        part: What the model-parallel rank has.
    """
    step = Path(folder) / "global_step7"
    step.mkdir(parents=True, exist_ok=True)
    (Path(folder) / "latest").write_text("global_step7")
    weights, frozen = part.weights, part.frozen
    half = {key: value.astype(np.float16) for key, value in {**weights, **frozen}.items()}
    ties = {"tied": "0.weight"} if "0.weight" in weights else {}
    files = {}
    for rank in range(ranks):
        model_rank = f"mp_rank_{part.rank:02}"
        name = f"zero_pp_rank_{rank}_{model_rank}_optim_states.pt"
        files[name] = {"optimizer_state_dict": _optimizer(part, stage, rank, ranks, padded)}
        if stage == 3 or not rank:
            empty = {key: np.zeros(0, np.float16) for key in half} if stage == 3 else half
            head = f"zero_pp_rank_{rank}_" if stage == 3 else ""
            tied = {key: empty[kept] for key, kept in ties.items()}
            files[f"{head}{model_rank}_model_states.pt"] = {
                "module": {**empty, **part.buffers, **tied},
                "buffer_names": list(part.buffers),
                "param_shapes": [
                    {key: mt.Size(weights[key].shape) for key in group} for group in part.groups
                ],
                "frozen_param_shapes": _frozen_shapes(frozen, stage),
                "frozen_param_fragments": {
                    key: _part(value, rank, ranks) if stage == 3 else value
                    for key, value in frozen.items()
                },
                "shared_params": ties,
                **({} if part.info is None else {"universal_checkpoint_info": part.info}),
                "lr_scheduler": {"last_epoch": 3},
                "ds_version": "0.16.0",
                "epoch": 2,
            }
    for name, states in files.items():
        if change is not None:
            change(name, states)
        mt.save(_tensors(states), step / name, format="torch")
    return Path(folder)


def _frozen_shapes(frozen, stage):
    return {key: mt.Size(value.shape) for key, value in frozen.items()} if stage > 1 else None


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


def _optimizer(part, stage, rank, ranks, padded):
    weights, groups = part.weights, part.groups
    state = {"zero_stage": stage, "partition_count": ranks, "loss_scaler": 1.0}
    if stage == 3:
        parts = [[_part(weights[key], rank, ranks) for key in group] for group in groups]
        return {**state, "fp32_flat_groups": [np.concatenate(vectors) for vectors in parts]}
    vectors = []
    for group in groups:
        flat = np.concatenate([weights[key].reshape(-1) for key in group])
        each = -(-flat.size // (2 * ranks)) * 2
        whole = np.pad(flat, (0, each * ranks - flat.size)) if padded else flat
        vectors.append(whole[rank * each : (rank + 1) * each])
    counts = [ranks] * len(groups)
    return {**state, "partition_count": counts, "single_partition_of_fp32_groups": vectors}
