# SPDX-License-Identifier: BSD-3-Clause
"""Functions on tensors that layers are made of, under torch's names and with torch's arguments.

They take :class:`modtree.Tensor` and run in NumPy and in small native kernels. Tensors of torch and
jax run in the functions of their library.
"""

from __future__ import annotations

from modtree import _imports
from modtree.nn.functional.activation import *
from modtree.nn.functional.basic import *
from modtree.nn.functional.convolution import *
from modtree.nn.functional.dropout import *
from modtree.nn.functional.loss import *
from modtree.nn.functional.margin_loss import *
from modtree.nn.functional.multi_head import *
from modtree.nn.functional.normalization import *
from modtree.nn.functional.padding import *
from modtree.nn.functional.pooling import *
from modtree.nn.functional.sampling import *
from modtree.nn.functional.sequence_loss import *
from modtree.nn.functional.sparse import *
from modtree.nn.functional.unpooling import *
from modtree.nn.functional.vision import *
from modtree.numpy.ops.overridable import overridable_all

# The functions that the files of this folder list. Checkers see what is imported above.
globals()["__all__"] = sorted(
    name
    for name, value in list(globals().items())
    if getattr(value, "__module__", "").startswith(f"{__name__}.") and not name.startswith("_")
)
overridable_all(globals(), globals()["__all__"], elsewhere="")

_imports.answer_for_missing(__name__)
