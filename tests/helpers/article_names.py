# SPDX-License-Identifier: BSD-3-Clause
"""The names that code in articles about ``torch.nn.Module`` finds in the file that it is from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class _Library:
    """A tensor library under the name `torch`: of what only torch's own internals have, the answers
    that they give in a program without tracing and scripting.
    """

    _C = SimpleNamespace(
        _log_api_usage_once=lambda event: None,
        _get_tracing_state=lambda: None,
    )
    jit = SimpleNamespace(ScriptModule=())

    def __init__(self, lib: Any) -> None:
        self._lib = lib

    def __getattr__(self, name: str) -> Any:
        if name == "typename":
            return lambda value: f"{type(value).__module__}.{type(value).__qualname__}"
        return getattr(self._lib, name)


def names_of(impl: Any) -> SimpleNamespace:
    """``torch``, ``nn``, ``Module``, ``Parameter``, ``Buffer``, ``Tensor``."""
    return SimpleNamespace(
        torch=impl.lib if impl.leaves == "torch" else _Library(impl.lib),
        nn=impl.nn,
        Module=impl.nn.Module,
        Parameter=impl.nn.Parameter,
        Buffer=impl.nn.Buffer,
        Tensor=impl.lib.Tensor,
    )
