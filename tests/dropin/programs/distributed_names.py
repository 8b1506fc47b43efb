# SPDX-License-Identifier: BSD-3-Clause
"""Names of torch.distributed that were at other places in older versions."""

from __future__ import annotations

try:
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
except ImportError:  # before torch 2.6
    from torch.distributed._composable.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
try:
    from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor
except ImportError:  # before torch 2.5
    from torch.distributed._tensor import Replicate, Shard, distribute_module, distribute_tensor

__all__ = [
    "FSDPModule",
    "MixedPrecisionPolicy",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "fully_shard",
]
