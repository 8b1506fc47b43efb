# SPDX-License-Identifier: BSD-3-Clause
"""Functions on tensors that layers are made of, under torch's names and with torch's arguments.

They take :class:`modtree.Tensor` and run in NumPy and in small native kernels. For a module with
torch leaves, ``forward`` calls torch's own functions.
"""

from __future__ import annotations

from modtree import _imports
from modtree._ops.distance import pdist
from modtree._ops.overridable import overridable_all
from modtree.nn.functional.activation import *  # noqa: F403
from modtree.nn.functional.activation import __all__ as _activation
from modtree.nn.functional.basic import *  # noqa: F403
from modtree.nn.functional.basic import __all__ as _basic
from modtree.nn.functional.convolution import *  # noqa: F403
from modtree.nn.functional.convolution import __all__ as _convolution
from modtree.nn.functional.dropout import *  # noqa: F403
from modtree.nn.functional.dropout import __all__ as _dropout
from modtree.nn.functional.linear_loss import *  # noqa: F403
from modtree.nn.functional.linear_loss import __all__ as _linear_loss
from modtree.nn.functional.loss import *  # noqa: F403
from modtree.nn.functional.loss import __all__ as _loss
from modtree.nn.functional.margin_loss import *  # noqa: F403
from modtree.nn.functional.margin_loss import __all__ as _margin_loss
from modtree.nn.functional.multi_head import multi_head_attention_forward
from modtree.nn.functional.normalization import *  # noqa: F403
from modtree.nn.functional.normalization import __all__ as _normalization
from modtree.nn.functional.padding import *  # noqa: F403
from modtree.nn.functional.padding import __all__ as _padding
from modtree.nn.functional.pooling import *  # noqa: F403
from modtree.nn.functional.pooling import __all__ as _pooling
from modtree.nn.functional.sampling import *  # noqa: F403
from modtree.nn.functional.sampling import __all__ as _sampling
from modtree.nn.functional.sequence_loss import *  # noqa: F403
from modtree.nn.functional.sequence_loss import __all__ as _sequence_loss
from modtree.nn.functional.sparse import *  # noqa: F403
from modtree.nn.functional.sparse import __all__ as _sparse
from modtree.nn.functional.unpooling import *  # noqa: F403
from modtree.nn.functional.unpooling import __all__ as _unpooling
from modtree.nn.functional.vision import *  # noqa: F403
from modtree.nn.functional.vision import __all__ as _vision

__all__ = [
    *_activation,
    *_basic,
    *_linear_loss,
    *_loss,
    *_margin_loss,
    *_sampling,
    *_sequence_loss,
    *_sparse,
    "multi_head_attention_forward",
    "pdist",
    *_convolution,
    *_dropout,
    *_normalization,
    *_padding,
    *_pooling,
    *_unpooling,
    *_vision,
]
overridable_all(globals(), __all__)

_imports.answer_for_missing(__name__)
