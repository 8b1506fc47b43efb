# SPDX-License-Identifier: BSD-3-Clause
"""Functions on tensors that layers are made of, under torch's names and with torch's arguments.

They take :class:`modtree.Tensor` and run in NumPy and in small native kernels. For a module with torch leaves, ``forward``
calls torch's own functions.
"""

from __future__ import annotations

from .activation import *  # noqa: F403
from .activation import __all__ as _activation
from .basic import *  # noqa: F403
from .basic import __all__ as _basic
from .channel_dropout import *  # noqa: F403
from .channel_dropout import __all__ as _channel_dropout
from .class_loss import *  # noqa: F403
from .class_loss import __all__ as _class_loss
from .convolution import *  # noqa: F403
from .convolution import __all__ as _convolution
from .distance import *  # noqa: F403
from .distance import __all__ as _distance
from .loss import *  # noqa: F403
from .loss import __all__ as _loss
from .multi_head import multi_head_attention_forward
from .multi_loss import *  # noqa: F403
from .multi_loss import __all__ as _multi_loss
from .normalization import *  # noqa: F403
from .normalization import __all__ as _normalization
from .padding import *  # noqa: F403
from .padding import __all__ as _padding
from .pooling import *  # noqa: F403
from .pooling import __all__ as _pooling
from .sampling import *  # noqa: F403
from .sampling import __all__ as _sampling
from .sequence_loss import *  # noqa: F403
from .sequence_loss import __all__ as _sequence_loss
from .sparse import *  # noqa: F403
from .sparse import __all__ as _sparse
from .vision import *  # noqa: F403
from .vision import __all__ as _vision

__all__ = [
    *_activation,
    *_basic,
    *_class_loss,
    *_distance,
    *_loss,
    *_multi_loss,
    *_sampling,
    *_sequence_loss,
    *_sparse,
    "multi_head_attention_forward",
    *_convolution,
    *_channel_dropout,
    *_normalization,
    *_padding,
    *_pooling,
    *_vision,
]
