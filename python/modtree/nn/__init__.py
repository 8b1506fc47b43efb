# SPDX-License-Identifier: BSD-3-Clause
"""Modules, parameters and layers, under torch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modtree import _imports
from modtree.core.containers import Container as Container
from modtree.core.containers import ModuleDict as ModuleDict
from modtree.core.containers import ModuleList as ModuleList
from modtree.core.containers import ParameterDict as ParameterDict
from modtree.core.containers import ParameterList as ParameterList
from modtree.core.containers import Sequential as Sequential
from modtree.core.module import Module as Module
from modtree.nn import functional as functional
from modtree.nn import init as init
from modtree.nn import parameter as parameter
from modtree.nn import utils as utils
from modtree.nn.activation import *
from modtree.nn.attention import MultiheadAttention as MultiheadAttention
from modtree.nn.batchnorm import *
from modtree.nn.convolution import *
from modtree.nn.distance import *
from modtree.nn.dropout import *
from modtree.nn.embedding import *
from modtree.nn.flatten import *
from modtree.nn.lazy_layers import *
from modtree.nn.linear import *
from modtree.nn.loss import *
from modtree.nn.margin_loss import *
from modtree.nn.normalization import *
from modtree.nn.padding import *
from modtree.nn.pooling import *
from modtree.nn.recurrent import *
from modtree.nn.recurrent_cell import *
from modtree.nn.softmax import *
from modtree.nn.transformer import *
from modtree.nn.transformer_layer import *
from modtree.nn.vision import *
from modtree.numpy.tensor.parameter import Buffer as Buffer
from modtree.numpy.tensor.parameter import Parameter as Parameter
from modtree.numpy.tensor.uninitialized import UninitializedBuffer as UninitializedBuffer
from modtree.numpy.tensor.uninitialized import UninitializedParameter as UninitializedParameter

if TYPE_CHECKING:
    from modtree.nn import common_types as common_types
    from modtree.nn import modules as modules
    from modtree.nn import parallel as parallel

# The classes that are imported above, which is what checkers see, and the parts of the package.
globals()["__all__"] = sorted(
    [name for name, value in globals().items() if isinstance(value, type)]
    + ["common_types", "functional", "init", "modules", "parallel", "parameter", "utils"]
)

_imports.answer_for_missing(__name__, ("common_types",))
