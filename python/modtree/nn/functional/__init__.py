# SPDX-License-Identifier: BSD-3-Clause
"""Functions on tensors that layers are made of, under torch's names and with torch's arguments.

They take :class:`modtree.Tensor` and run in NumPy and in small native kernels. For a module with torch leaves, ``forward``
calls torch's own functions.
"""

from __future__ import annotations

from .basic import *  # noqa: F403
from .basic import __all__ as _basic
from .multi_head import multi_head_attention_forward

__all__ = [*_basic, "multi_head_attention_forward"]
