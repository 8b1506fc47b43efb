# SPDX-License-Identifier: BSD-3-Clause
"""Folders of Hugging Face: both kinds of index, a Trainer's, and adapters of peft."""

from __future__ import annotations

import argparse
import importlib
import json
import pickle

import numpy as np
import pytest
from helpers.command_line import CommandLine
from helpers.foreign_pickles import distributed_folder
from helpers.needs import needs

import modtree as mt
from modtree import nn, optim
from modtree.checkpoints import convert, open_checkpoint, verify


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def trainer_folder(folder, model, shards=None):
    folder.mkdir()
    optimizer = optim.AdamW(model.parameters(), lr=0.5)
    model(mt.ones(1, 3)).sum().backward()
    optimizer.step()
    mt.save_file(model, folder / "model.safetensors", max_shard_size=shards)
    for name, value in {
        "optimizer.pt": optimizer.state_dict(),
        "scheduler.pt": {"base_lrs": [0.5], "last_epoch": 3},
        "rng_state_0.pth": {"cpu": mt.zeros(8, dtype=mt.uint8)},
        "rng_state_1.pth": {"cpu": mt.ones(8, dtype=mt.uint8)},
    }.items():
        mt.save(value, folder / name, format="torch")
    (folder / "training_args.bin").write_bytes(pickle.dumps(argparse.Namespace(lr=0.5)))
    (folder / "trainer_state.json").write_text('{"global_step": 500, "epoch": 2.5}')
    (folder / "config.json").write_text('{"architectures": ["Net"], "model_type": "net"}')
    return folder


def test_every_part_of_a_trainers_folder_is_shown(model, tmp_path, capsys):
    folder = trainer_folder(tmp_path / "checkpoint-500", model)
    done = CommandLine(capsys)("inspect", folder)
    assert done.lines[1:9] == [
        "* model          a state dict, 4 tensors, 104 B",
        "  optimizer      an optimizer: 1 group, state of 4 parameters, lr 0.5, step 1, "
        "12 tensors, 224 B",
        "  scheduler      a dict: base_lrs, last_epoch",
        "  rng_state_0    random states: cpu, 1 tensor, 8 B",
        "  rng_state_1    random states: cpu, 1 tensor, 8 B",
        "  training_args  ‹argparse.Namespace lr=0.5›",
        "  trainer_state  at step 500, epoch 2.5",
        "  config         Net, type net",
    ]
    assert done.lines[0].endswith("checkpoint-500: trainer, 4 entries in model")


@pytest.mark.parametrize("shards", [None, 40])
def test_the_model_and_each_other_part_is_read(shards, model, tmp_path):
    folder = trainer_folder(tmp_path / "run", model, shards)
    state = mt.load_file(folder)
    assert all((state[key] == value).all() for key, value in model.state_dict().items())
    assert state._metadata == model.state_dict()._metadata
    assert mt.load_file(folder, at="rng_state_1")["cpu"].tolist() == [1] * 8
    assert mt.load_file(folder, at="optimizer.state")["0.exp_avg"].shape == (4, 3)
    assert mt.load(folder, foreign="stand-in")["trainer_state"]["global_step"] == 500
    with pytest.raises(pickle.UnpicklingError, match='pass foreign="stand-in"'):
        mt.load(folder)
    problems = verify(folder, model)
    assert problems == [] and "not compared with the model: optimizer" in problems.notes[1]


def test_a_damaged_part_leaves_the_others(model, tmp_path, capsys):
    folder = trainer_folder(tmp_path / "run", model)
    data = (folder / "optimizer.pt").read_bytes()
    (folder / "optimizer.pt").write_bytes(data[: len(data) // 2])
    (folder / "config.json").write_text("{")
    assert len(mt.load_file(folder)) == 4
    assert [problem.file for problem in verify(folder)] == [
        str(folder / "optimizer.pt"),
        str(folder / "config.json"),
    ]
    assert "optimizer      ‹cannot be read: " in CommandLine(capsys)("inspect", folder).out


def test_shards_of_a_trainers_folder_are_verified(model, tmp_path):
    folder = trainer_folder(tmp_path / "run", model, 40)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["metadata"]["total_size"] = 7
    index.write_text(json.dumps(content))
    (problem,) = verify(folder)
    assert problem.kind == "index" and "its total_size is 7" in problem.message


def test_a_model_of_several_ranks_in_a_trainers_folder(tmp_path):
    whole = np.arange(6, dtype=np.float32).reshape(3, 2)
    boxes = [((0, 0), (2, 2)), ((2, 0), (1, 2))]
    (tmp_path / "trainer_state.json").write_text("{}")
    distributed_folder(tmp_path / "pytorch_model_fsdp_0", {"model/w": (whole, boxes)})
    distributed_folder(tmp_path / "optimizer_0", {"optimizer/state/w/exp_avg": (whole, boxes)})
    assert np.array_equal(mt.load_file(tmp_path)["w"].numpy(), whole)
    assert list(mt.load_file(tmp_path, at="optimizer")) == ["optimizer.state.w.exp_avg"]
    assert verify(tmp_path) == []


def test_ties_and_views_of_the_model_stay(tmp_path):
    whole = mt.arange(6.0)
    folder = tmp_path / "run"
    folder.mkdir()
    mt.save_file({"a": whole, "b": whole, "c": whole[2:4], "x": 3}, folder / "model.safetensors")
    (folder / "trainer_state.json").write_text("{}")
    state = mt.load_file(folder)
    assert state["a"] is state["b"] and state["c"].tolist() == [2, 3] and state["x"] == 3
    convert(folder, tmp_path / "out.pt")
    assert mt.load_file(tmp_path / "out.pt")["c"].tolist() == [2, 3]


def test_a_folder_without_a_model_names_its_parts(model, tmp_path):
    folder = trainer_folder(tmp_path / "run", model)
    (folder / "model.safetensors").unlink()
    with pytest.raises(mt.CheckpointError, match="no model; its parts are optimizer, scheduler"):
        mt.load_file(folder)
    assert len(mt.load_file(folder, at="optimizer.state")) == 12


CONFIG = {
    "peft_type": "LORA",
    "base_model_name_or_path": "org/base",
    "r": 4,
    "lora_alpha": 8,
    "target_modules": ["q_proj", "v_proj"],
    "task_type": "CAUSAL_LM",
}


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_an_adapter_says_what_it_belongs_to(ending, tmp_path, capsys):
    state = {"base_model.model.q_proj.lora_A.weight": mt.ones(4, 2)}
    path = tmp_path / f"adapter_model.{ending}"
    if ending == "bin":
        mt.save(state, path, format="torch")
    else:
        mt.save_file(state, path)
    (tmp_path / "adapter_config.json").write_text(json.dumps(CONFIG))
    done = CommandLine(capsys)("inspect", tmp_path)
    line = (
        "LORA adapter of the base model org/base, rank 4, alpha 8, on q_proj, v_proj, for CAUSAL_LM"
    )
    assert done.lines[2] == f"  adapter_config  {line}"
    assert list(mt.load_file(tmp_path)) == list(state)
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.format == "adapter"
    assert verify(tmp_path) == []


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_folder_with_either_index(name, model, tmp_path):
    convert_to = {"format": "torch"} if name.endswith("bin") else {}
    mt.save_file(model, tmp_path / "one.safetensors")
    folder = tmp_path / "folder"
    folder.mkdir()
    convert(tmp_path / "one.safetensors", folder / name, max_shard_size=40, **convert_to)
    assert (folder / f"{name}.index.json").exists() and not (folder / name).exists()
    state = mt.load_file(folder)
    assert all((state[key] == value).all() for key, value in model.state_dict().items())
    assert verify(folder) == []


# -- made by the libraries -------------------------------------------------------------------------


def tiny_llama():
    transformers = importlib.import_module("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=32,
    )
    return transformers.LlamaForCausalLM(config)


@needs("accelerate")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_folder_of_the_trainer_itself(tmp_path, torch, transformers):
    net = tiny_llama()
    row = {"input_ids": torch.ones(4, dtype=torch.long), "labels": torch.ones(4, dtype=torch.long)}
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=2, save_steps=2, report_to=[], use_cpu=True
    )
    transformers.Trainer(net, arguments, train_dataset=[row] * 4).train()
    folder = tmp_path / "checkpoint-2"
    state = mt.load_file(folder)
    assert all(
        (value.numpy() == net.state_dict()[key].numpy()).all() for key, value in state.items()
    )
    with open_checkpoint(folder) as checkpoint:
        parts = {part.name: part.text for part in checkpoint.parts()}
    assert list(parts)[:4] == ["model", "optimizer", "scheduler", "rng_state"]
    assert "an optimizer: 2 groups" in parts["optimizer"]
    assert "TrainingArguments" in parts["training_args"] and "at step 2" in parts["trainer_state"]
    assert verify(folder) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_folder_of_peft_itself(tmp_path, peft):
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    peft.get_peft_model(tiny_llama(), config).save_pretrained(tmp_path)
    assert len(mt.load_file(tmp_path)) == 8
    with open_checkpoint(tmp_path) as checkpoint:
        assert "LORA adapter, rank 4, alpha 8" in checkpoint.parts()[1].text
    assert verify(tmp_path) == []
