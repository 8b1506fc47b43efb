# SPDX-License-Identifier: BSD-3-Clause
"""Constructing a module without computing values for its parameters."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from modtree.core.module import Module

M = TypeVar("M", bound=Module)


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """Constructs ``module_cls(*args, **kwargs)`` with parameters and buffers of unspecified values.

    For modules that are loaded from a state dict right away: they are built on the ``meta`` device,
    where initialization costs nothing, and then get storage on ``device``. Dtypes and
    ``requires_grad`` are those of the constructor; no random numbers are drawn. Tensors that the
    constructor ties are no longer tied.

    Args:
        module_cls: a Module class whose constructor has a parameter named ``device``.
        *args: its arguments.
        **kwargs: its keyword arguments; ``device`` (``"cpu"`` when missing) is where the result
            lives.

    Raises:
        RuntimeError: it is no Module class, or its constructor has no ``device``.

    Example:
        >>> saved = nn.Linear(768, 768).state_dict()
        >>> layer = nn.utils.skip_init(nn.Linear, 768, 768)
        >>> layer.load_state_dict(saved)
        <All keys matched successfully>
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError(
            f"Module must support a 'device' arg to skip initialization: the constructor of "
            f"{module_cls.__name__} names none"
        )
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=device)
