# SPDX-License-Identifier: BSD-3-Clause
"""Where and as what the parameters of a layer are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["factory_kwargs"]

_SIMPLE = ("device", "dtype", "memory_format")


def factory_kwargs(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of a layer that go on to functions such as ``empty``: ``device``, ``dtype`` and
    ``memory_format``, and those in a dict ``factory_kwargs`` among them, for a layer that has an
    argument of its own with one of these names.

    Raises:
        TypeError: there are others, or one is given twice.
    """
    if kwargs is None:
        return {}
    unknown = kwargs.keys() - {*_SIMPLE, "factory_kwargs"}
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}")
    result = dict(kwargs.get("factory_kwargs", {}))
    for name in _SIMPLE:
        if name not in kwargs:
            continue
        if name in result:
            raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
        result[name] = kwargs[name]
    return result
