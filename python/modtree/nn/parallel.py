# SPDX-License-Identifier: BSD-3-Clause
"""Wrappers of a model for several devices or processes, of which there is one."""

from __future__ import annotations

from typing import Any

from modtree import _imports
from modtree.core.module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """Calls the module inside: there are no devices to split a batch over. Names in state dicts
    start with "module.", as torch's do.

    Args:
        module: The module.
        device_ids: Accepted.
        output_device: Accepted.
        dim: Accepted.
    """

    def __init__(
        self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.dim = dim
        self.module = module
        self.device_ids: list[Any] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


class DistributedDataParallel(Module):
    """Raises ValueError when it is made: processes are not joined here.

    Args:
        module: The module.
        args: Options.
        kwargs: Options.
    """

    def __init__(self, module: Any, *args: Any, **kwargs: Any) -> None:
        raise ValueError(
            "modtree.nn.parallel.DistributedDataParallel: Default process group has not been "
            "initialized, and cannot be: modtree runs in one process; ask "
            "modtree.distributed.is_initialized() before"
        )


_imports.answer_for_missing(__name__)
