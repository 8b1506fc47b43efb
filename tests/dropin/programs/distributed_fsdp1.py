# SPDX-License-Identifier: BSD-3-Clause
"""The first FSDP and what is used with it: wrapping policies, flat parameters, recomputation."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from distributed_common import Block, Net, batches, in_group, steps
from outcome import report, seed, state, tree
from torch.distributed._composable import replicate
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy

CPU = torch.device("cpu")


def flat(rank: int, **options: Any) -> dict[str, Any]:
    seed(5)
    model = FullyShardedDataParallel(Net(), device_id=CPU, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = steps(model, batches(rank), optimizer)
    norm = model.clip_grad_norm_(1.0)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        whole = state(model)
    with FullyShardedDataParallel.summon_full_params(model):
        names = [name for name, _ in model.named_parameters()]
    return {"losses": losses, "norm": norm, "whole": whole, "names": names, "tree": tree(model)}


def work(rank: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    by_class = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    facts = {
        "by policy": flat(rank, auto_wrap_policy=ModuleWrapPolicy({Block})),
        "by class": flat(rank, auto_wrap_policy=by_class, use_orig_params=True),
    }
    seed(6)
    net = Net()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))
    replicate(net)
    losses = steps(net, batches(rank), torch.optim.SGD(net.parameters(), lr=0.1))
    return {**facts, "replicated": [losses, state(net), tree(net)]}


if __name__ == "__main__":
    report(in_group(work))
