# SPDX-License-Identifier: BSD-3-Clause
"""Mixed precision under the path that torch had first; it is always off."""

from __future__ import annotations

from typing import Any

from modtree import amp
from modtree.amp import custom_bwd, custom_fwd

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):  # noqa: N801
    """:class:`modtree.amp.autocast` for "cuda".

    Args:
        enabled: False keeps it silent.
        dtype: The dtype that was wished for.
        cache_enabled: Accepted.
    """

    _stacklevel = 3

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """:class:`modtree.amp.GradScaler` for "cuda".

    Args:
        init_scale: Accepted, like the following three.
        growth_factor: Accepted.
        backoff_factor: Accepted.
        growth_interval: Accepted.
        enabled: Warn that nothing is scaled.
    """

    _stacklevel = 3

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
