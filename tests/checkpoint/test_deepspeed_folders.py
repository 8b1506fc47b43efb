# SPDX-License-Identifier: BSD-3-Clause
"""Folders of DeepSpeed: 32-bit weights of the partitions of ZeRO's ranks."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from helpers.command_line import CommandLine
from helpers.deepspeed_folders import (
    BUFFERS,
    FROZEN,
    INFO,
    SPLIT_WEIGHTS,
    WEIGHTS,
    deepspeed_folder,
    split_folder,
)
from helpers.needs import needs

import modtree as mt
from modtree.checkpoints import convert, open_checkpoint, verify

ALL = {**WEIGHTS, **FROZEN, **BUFFERS}


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_weights_are_put_together(stage, ranks, tmp_path):
    folder = deepspeed_folder(tmp_path / "run", stage, ranks)
    for path in (folder, folder / "global_step7"):
        state = mt.load_file(path)
        assert list(state) == [*ALL, "tied"] and state["tied"] is state["0.weight"]
        for key, array in ALL.items():
            assert np.array_equal(state[key].numpy(), array) and state[key].shape == array.shape
            half = stage == 1 and key in FROZEN  # which is in the module alone
            assert state[key].numpy().dtype == (np.float16 if half else array.dtype)
    assert verify(folder) == []
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.format == "deepspeed"
        assert np.array_equal(checkpoint.part("2.weight", (1, slice(1, 3))), [206, 207])
        assert np.array_equal(checkpoint.part("0.weight", slice(1, 3)), WEIGHTS["0.weight"][1:3])


def test_vectors_without_padding(tmp_path):
    state = mt.load_file(deepspeed_folder(tmp_path / "run", 2, 3, padded=False))
    assert np.array_equal(state["2.weight"].numpy(), WEIGHTS["2.weight"])


@pytest.mark.parametrize("stage", [2, 3])
def test_other_parts_are_shown_and_opened(stage, tmp_path, capsys):
    folder = deepspeed_folder(tmp_path / "run", stage)
    lines = CommandLine(capsys)("inspect", folder).lines
    names = [line.split()[0] for line in lines[2:7]]
    module = ["module"] if stage == 2 else []
    assert lines[1].startswith("* model         a state dict, 7 tensors")
    assert names[: 4 + len(module)] == [*module, "optimizer", "lr_scheduler", "ds_version", "epoch"]
    if module:
        assert mt.load_file(folder, at="module")["0.weight"].dtype is mt.float16
    assert mt.load(folder)["epoch"] == 2


@pytest.mark.parametrize("stage", [1, 3])
def test_it_is_converted(stage, tmp_path):
    folder = deepspeed_folder(tmp_path / "run", stage, 3)
    convert(folder, tmp_path / "out.safetensors", dtype="float16")
    state = mt.load_file(tmp_path / "out.safetensors")
    assert state["tied"] is state["0.weight"] and state["0.weight"].dtype is mt.float16
    assert np.array_equal(state["0.weight"].numpy(), WEIGHTS["0.weight"])


def test_other_steps_are_passed_over(tmp_path, capsys):
    folder = deepspeed_folder(tmp_path / "run", 2)
    (folder / "global_step7").rename(folder / "global_step5")
    deepspeed_folder(folder, 2)
    command = CommandLine(capsys)
    assert "passed over: global_step5/; --at shows one" in command("inspect", folder).lines
    assert "note: not looked at: global_step5/" in command("verify", folder).lines
    assert mt.load_file(folder, at="global_step5")["0.weight"].shape == (3, 4)
    assert "passed over" not in command("inspect", folder / "global_step7").out


def test_a_missing_rank_is_named(tmp_path):
    folder = deepspeed_folder(tmp_path / "run", 2, 3)
    (folder / "global_step7" / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    with pytest.raises(mt.CheckpointError, match="of 3 ranks, and the optim_states of rank 1 are"):
        mt.load_file(folder)


def test_without_files_of_the_optimizer_the_module_is_the_model(tmp_path):
    folder = deepspeed_folder(tmp_path / "run", 2, 1)
    (folder / "global_step7" / "zero_pp_rank_0_mp_rank_00_optim_states.pt").unlink()
    assert mt.load_file(folder)["0.weight"].dtype is mt.float16


@pytest.mark.parametrize(
    ("tag", "reason"),
    [
        ("../outside", "the file latest names the file '../outside'"),
        ("global_step9", "names the folder 'global_step9', which is not there"),
        ("x" * 1000, "does not name a folder"),
        ("", "the file latest names the file ''"),
    ],
)
def test_the_name_of_the_last_step(tag, reason, tmp_path):
    folder = deepspeed_folder(tmp_path / "run", 2)
    (folder / "latest").write_text(tag)
    with pytest.raises(mt.CheckpointError, match=reason):
        mt.load_file(folder)


def longer_shape(name, states):
    if "param_shapes" in states:
        states["param_shapes"][0]["0.weight"] = mt.Size((30, 4))


def no_stage(name, states):
    if "optim" in name:
        states["optimizer_state_dict"]["zero_stage"] = 9


def no_vectors(name, states):
    if "optim" in name:
        states["optimizer_state_dict"] = {"zero_stage": 2, "partition_count": 2}


def many_ranks(name, states):
    if "optim" in name:
        states["optimizer_state_dict"]["partition_count"] = 10**15


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (longer_shape, "the parameters of group 0 have 123 elements, and the 2 ranks have 16"),
        (no_stage, "the stage of ZeRO is 9"),
        (no_vectors, "it has no single_partition_of_fp32_groups"),
        (many_ranks, "the number of ranks is"),
    ],
)
def test_reasons(change, reason, tmp_path):
    folder = deepspeed_folder(tmp_path / "run", 2, change=change)
    with pytest.raises(mt.CheckpointError, match=reason):
        mt.load_file(folder)
    assert reason in verify(folder)[0].message


# -- model-parallel ranks --------------------------------------------------------------------------

WHOLE = {**SPLIT_WEIGHTS, "embedding.weight": SPLIT_WEIGHTS["embedding.weight"][:8]}


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_model_parallel_ranks_are_put_together_as_their_files_say(stage, tmp_path, capsys):
    folder = split_folder(tmp_path / "run", stage)
    state = mt.load_file(folder)
    assert list(state) == list(WHOLE)
    for key, array in WHOLE.items():
        assert np.array_equal(state[key].numpy(), array), key
    assert verify(folder) == []
    with open_checkpoint(folder) as checkpoint:
        assert np.array_equal(checkpoint.part("embedding.weight", slice(4, 8)), WHOLE_ROWS[4:8])
        assert len(checkpoint.entries["1.up.weight"].files) == 4
    convert(folder, tmp_path / "out.safetensors")
    assert np.array_equal(mt.load_file(tmp_path / "out.safetensors")["1.query.bias"].numpy(),
                          WHOLE["1.query.bias"])  # fmt: skip
    lines = CommandLine(capsys)("inspect", folder).lines
    assert lines[0].endswith("deepspeed, 4 files, 6 entries in model")
    assert mt.load_file(folder, at="optimizer.mp_rank_01.rank_0")
    if stage < 3:
        assert mt.load_file(folder, at="module")["1.down.weight"].shape == (2, 6)


WHOLE_ROWS = WHOLE["embedding.weight"]
SPLIT_RULES = {"*.up.weight": (0, 2), "*.down.weight": 1, "*.norm.weight": None, "*.mean.*": None}


@pytest.mark.parametrize("stage", [1, 3])
def test_model_parallel_ranks_are_put_together_by_rules(stage, tmp_path):
    folder = split_folder(tmp_path / "run", stage, info=None)
    with pytest.raises(mt.CheckpointError, match="over 2 model-parallel ranks.*path, join="):
        mt.load_file(folder)
    if stage == 1:
        alone = folder / "global_step7" / "mp_rank_01_model_states.pt"
        assert mt.load_file(alone)["1.down.weight"].shape == (2, 3)
    rules = {**SPLIT_RULES, "embedding.weight": 0, "*.query.bias": 0}
    with open_checkpoint(folder, join=rules) as checkpoint:
        for key in set(WHOLE) - {"1.mean.weight", "embedding.weight"}:
            assert np.array_equal(checkpoint.array(key), WHOLE[key]), key
        assert checkpoint.array("embedding.weight").shape == (10, 3)
        with pytest.raises(mt.CheckpointError, match="values on rank 1 are not those on rank 0"):
            checkpoint.array("1.mean.weight")
    with pytest.raises(mt.CheckpointError, match="join= puts model-parallel ranks together"):
        mt.load_file(deepspeed_folder(tmp_path / "one", 2), join=rules)
    with pytest.raises(mt.CheckpointError, match="join= puts model-parallel ranks together"):
        verify(tmp_path / "one", join=rules)


def test_rules_of_the_caller_come_before_those_of_the_files(tmp_path):
    folder = split_folder(tmp_path / "run", 2)
    state = mt.load_file(folder, join={"embedding.weight": 1})
    assert state["embedding.weight"].shape == (5, 6) and state["1.down.weight"].shape == (2, 6)


@pytest.mark.parametrize(
    ("name", "patterns", "reason"),
    [
        ("tp_replicated_parameter_patterns", ["(a+)+$"], "which is not one of names and digits"),
        ("tp_replicated_parameter_patterns", [".*" * 40 + "x"], "patterns of names take too long"),
        ("tp_replicated_parameter_patterns", [1], "have the pattern 1"),
        ("tp_replicated_parameter_patterns", "abc", "tp_replicated_parameter_patterns are 'abc'"),
        ("tp_replicated_parameter_patterns", ["a"] * 2000, "tp_replicated_parameter_patterns are"),
        ("parameter_with_sub_params", [{"shape": 1}], "split by parameter_with_sub_params"),
    ],
)
def test_patterns_of_names_from_a_stranger(name, patterns, reason, tmp_path):
    folder = split_folder(tmp_path / "run", 2, info={**INFO, name: patterns})
    with pytest.raises(mt.CheckpointError, match=reason):
        mt.load_file(folder)


def test_a_part_without_elements_is_in_no_file(tmp_path):
    def change(name, states):
        if "param_shapes" in states:
            states["param_shapes"][0]["1.query.bias"] = mt.Size((0,))

    folder = split_folder(tmp_path / "run", 3, change)
    assert mt.load_file(folder)["1.query.bias"].shape == (0,)


def test_a_model_parallel_rank_that_is_missing_is_named(tmp_path):
    folder = split_folder(tmp_path / "run", 2)
    (folder / "global_step7" / "mp_rank_01_model_states.pt").unlink()
    with pytest.raises(mt.CheckpointError, match="model_states.pt of model-parallel rank 1 is in"):
        mt.load_file(folder)


# -- made by the library ---------------------------------------------------------------------------

TRAINING = """
import os, sys
import deepspeed, torch

stage, folder = int(sys.argv[1]), sys.argv[2]
model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 2))
model.register_buffer("count", torch.tensor(5))
model[2].bias.requires_grad_(False)
config = {
    "train_batch_size": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_optimization": {"stage": stage},
    "bf16": {"enabled": True},
    "zero_force_ds_cpu_optimizer": False,
}
trained = [p for p in model.parameters() if p.requires_grad]
engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config=config)
engine.backward(engine(torch.ones(2, 3, dtype=torch.bfloat16)).sum())
engine.step()
engine.save_checkpoint(folder, tag="global_step1", client_state={"epoch": 3})
if engine.global_rank == 0:
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    state = get_fp32_state_dict_from_zero_checkpoint(folder)
    torch.save({k: v.detach().clone() for k, v in state.items()}, folder + "/expected.pt")
"""


@needs("deepspeed")
@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_folders_of_the_library(stage, tmp_path):
    (tmp_path / "train.py").write_text(TRAINING)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*launch, tmp_path / "train.py", str(stage), tmp_path / "run"],
        capture_output=True,
        text=True,
        env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = mt.load_file(tmp_path / "run" / "expected.pt")
    state = mt.load_file(tmp_path / "run")
    frozen = {"2.bias"} if stage == 1 else set()  # which the library's own script leaves out
    assert set(state) - set(expected) == frozen
    for key, value in expected.items():
        assert np.array_equal(state[key].float().numpy(), value.float().numpy()), key
    assert verify(tmp_path / "run") == []
    assert mt.load(tmp_path / "run", foreign="stand-in")["epoch"] == 3


def test_the_layers_of_a_pipeline_are_named(tmp_path):
    folder = tmp_path / "global_step5"
    folder.mkdir()
    (tmp_path / "latest").write_text("global_step5")
    mt.save({"module": None, "epoch": 1}, folder / "mp_rank_00_model_states.pt", format="torch")
    assert mt.load_file(tmp_path)["epoch"] == 1
    for i in range(2):
        name = f"layer_0{i}-model_00-model_states.pt"
        mt.save({"w": mt.ones(2)}, folder / name, format="torch")
    with pytest.raises(mt.CheckpointError, match="2 files of their own.* layer_00-model_00-model"):
        mt.load_file(tmp_path)
    assert mt.load_file(tmp_path, at="epoch") == {"epoch": 1}
    assert mt.load_file(folder / "layer_01-model_00-model_states.pt")["w"].tolist() == [1, 1]
    (problem,) = mt.checkpoints.verify(tmp_path)
    assert problem.kind == "not read"
