# SPDX-License-Identifier: BSD-3-Clause
"""Taking a prefix off the names of a state dict."""

from __future__ import annotations

from typing import Any


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Renames, in place, every key that starts with ``prefix`` to what follows it.

    A wrapper module that holds the real one as a child saves it under such a prefix. Renamed keys
    move to the end; the versions in ``state_dict._metadata`` are renamed too, so that the real
    module loads them as its own.

    Args:
        state_dict: what ``wrapper.state_dict()`` returned.
        prefix: with its dot: ``"module."``.

    Example:
        >>> sd = nn.ModuleDict({"module": nn.Linear(2, 2)}).state_dict()
        >>> nn.utils.consume_prefix_in_state_dict_if_present(sd, "module.")
        >>> list(sd)
        ['weight', 'bias']
    """
    if not prefix:
        return
    _strip(state_dict, prefix)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        root = prefix.removesuffix(".")
        if root in metadata:
            metadata[""] = metadata.pop(root)
        _strip(metadata, prefix)


def _strip(table: dict[str, Any], prefix: str) -> None:
    for key in [key for key in table if key.startswith(prefix)]:
        table[key[len(prefix) :]] = table.pop(key)
