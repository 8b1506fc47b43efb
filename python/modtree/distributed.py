# SPDX-License-Identifier: BSD-3-Clause
"""Several processes: there is one, and programs that ask before they join others run alone."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NoReturn

from modtree import _imports

__all__ = [
    "ProcessGroup",
    "ReduceOp",
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "get_backend",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "new_group",
    "recv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
]


class ReduceOp(enum.Enum):
    """What a reduction over processes would do."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


class ProcessGroup:
    """A group of processes, for annotations and ``isinstance``: there is none."""


class group:  # noqa: N801
    """Where the group of all processes would be."""

    WORLD = None


def is_available() -> bool:
    """False: processes are not joined here."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """False."""
    return False


def is_nccl_available() -> bool:
    """False."""
    return False


def is_gloo_available() -> bool:
    """False."""
    return False


def is_mpi_available() -> bool:
    """False."""
    return False


def get_rank(group: Any = None) -> int:
    """0: the only process is the first one."""
    return 0


def get_world_size(group: Any = None) -> int:
    """1"""
    return 1


def init_process_group(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError: ask :func:`is_available` first."""
    raise RuntimeError(
        "modtree.distributed.init_process_group: modtree runs in one process; ask "
        "modtree.distributed.is_available() before, or train torch's tensors under modtree.dropin"
    )


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        """Raises ValueError, as where no group of processes was made."""
        raise ValueError(
            f"modtree.distributed.{name}: Default process group has not been initialized, and "
            f"cannot be: modtree runs in one process; ask modtree.distributed.is_initialized() "
            f"before"
        )

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


all_gather = _refusal("all_gather")
all_gather_object = _refusal("all_gather_object")
all_reduce = _refusal("all_reduce")
barrier = _refusal("barrier")
broadcast = _refusal("broadcast")
broadcast_object_list = _refusal("broadcast_object_list")
destroy_process_group = _refusal("destroy_process_group")
gather = _refusal("gather")
get_backend = _refusal("get_backend")
new_group = _refusal("new_group")
recv = _refusal("recv")
reduce = _refusal("reduce")
reduce_scatter = _refusal("reduce_scatter")
scatter = _refusal("scatter")
send = _refusal("send")

_imports.answer_for_missing(__name__)
