# SPDX-License-Identifier: BSD-3-Clause
"""Modules that know more of those below them than their registries say."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any

from modtree.editing.walking import describe, is_scripted, registry

_SHARDED = {"FullyShardedDataParallel", "FSDPModule"}
#: Classes of torch that noted the parameters below them when they were made.
_NOTE_PARAMETERS = {"DistributedDataParallel", *_SHARDED}


def _has_base(module: Any, names: set[str]) -> bool:
    return any(cls.__name__ in names for cls in type(module).__mro__)


def is_sharded(module: Any) -> bool:
    """True if a wrapper computes with other tensors than the registered parameters."""
    return _has_base(module, _SHARDED)


def calls_unseen(module: Any) -> bool:
    """True if a module may use those below it without a call that runs hooks."""
    return is_scripted(module) or _graph_of(module) is not None


def _graph_of(module: Any) -> Any:
    """The graph of a module of torch.fx."""
    graph = getattr(module, "graph", None)
    return graph if type(graph).__module__.startswith("torch.fx") else None


def warn_of_wrappers(model: Any, paths: Iterable[str]) -> None:
    """UserWarning if parameters came or went below a wrapper that keeps a list of them.

    Args:
        model: The root.
        paths: Where parameters came or went.
    """
    if "torch.distributed" not in sys.modules:
        return
    warned: set[str] = set()
    for path in paths:
        at, before = model, ""
        for name in path.split("."):
            kinds = {cls.__name__ for cls in type(at).__mro__} & _NOTE_PARAMETERS
            if kinds and before not in warned:
                warned.add(before)
                warnings.warn(
                    f"{describe(before)} is a {kinds.pop()}, which noted the parameters below it "
                    f"when it was made: it does not see those that {path!r} got. Change the model "
                    f"first, and wrap it after that",
                    stacklevel=2,
                )
            at = registry(at, "_modules").get(name)
            if at is None:
                break
            before = f"{before}.{name}" if before else name


def refuse_compiled(parent: Any, name: str, path: str) -> None:
    """Checks that a place is not that of the module which torch.compile was given: the compiled
    code would go on with the old one.

    Raises:
        ValueError: It is.
    """
    if name == "_orig_mod" and _has_base(parent, {"OptimizedModule"}):
        raise ValueError(
            f"{path!r} is the module that torch.compile was given, whose call is compiled: compile "
            f"another module, or change what is below it"
        )


def refuse_graph_target(model: Any, path: str) -> None:
    """Checks that no graph of torch.fx calls what is at a path, before it gets another one.

    Raises:
        ValueError: A graph does.
    """
    parts = path.split(".")
    at = model
    for i, name in enumerate(parts):
        graph = _graph_of(at)
        if graph is not None:
            target = ".".join(parts[i:])
            for node in graph.nodes:
                used = str(node.target)
                if node.op in ("call_module", "get_attr") and (
                    used == target or used.startswith(target + ".")
                ):
                    raise ValueError(
                        f"{path!r} is used by the graph of {describe('.'.join(parts[:i]))}, at "
                        f"the node {node.name!r}: change the graph first, or replace the module"
                    )
        at = registry(at, "_modules").get(name)
        if at is None:
            return
