# SPDX-License-Identifier: BSD-3-Clause
"""What torch.export needs where it makes objects of its own into modules."""

from __future__ import annotations

from types import ModuleType

from modtree import _C

__all__ = ["give_proxies_the_layout_of_modules"]


def give_proxies_the_layout_of_modules(file: ModuleType) -> None:
    """For ``torch.fx.experimental.proxy_tensor``: it stands proxies in for shared submodules and
    gives each the class of its module, which CPython allows only for objects of the same layout.
    """
    plain = getattr(file, "_AttrProxy", None)
    if isinstance(plain, type) and plain.__bases__ == (object,):
        kept = {k: v for k, v in vars(plain).items() if k not in ("__dict__", "__weakref__")}
        file._AttrProxy = type(plain.__name__, (_C.ModuleBase,), kept)  # type: ignore[attr-defined]
