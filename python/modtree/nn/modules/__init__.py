# SPDX-License-Identifier: BSD-3-Clause
"""The layers under the paths of torch's files.

Programs subclass and test for classes that torch has in ``torch.nn.modules.batchnorm`` and the
like. The files here say which file of this package such a class is in, and hold nothing else.
"""

from __future__ import annotations

from modtree import _imports
from modtree.nn.modules import utils as utils
from modtree.nn.modules.activation import *  # noqa: F403
from modtree.nn.modules.batchnorm import *  # noqa: F403
from modtree.nn.modules.channelshuffle import *  # noqa: F403
from modtree.nn.modules.container import *  # noqa: F403
from modtree.nn.modules.conv import *  # noqa: F403
from modtree.nn.modules.distance import *  # noqa: F403
from modtree.nn.modules.dropout import *  # noqa: F403
from modtree.nn.modules.flatten import *  # noqa: F403
from modtree.nn.modules.fold import *  # noqa: F403
from modtree.nn.modules.instancenorm import *  # noqa: F403
from modtree.nn.modules.lazy import *  # noqa: F403
from modtree.nn.modules.linear import *  # noqa: F403
from modtree.nn.modules.loss import *  # noqa: F403
from modtree.nn.modules.module import Module as Module
from modtree.nn.modules.normalization import *  # noqa: F403
from modtree.nn.modules.padding import *  # noqa: F403
from modtree.nn.modules.pixelshuffle import *  # noqa: F403
from modtree.nn.modules.pooling import *  # noqa: F403
from modtree.nn.modules.rnn import *  # noqa: F403
from modtree.nn.modules.sparse import *  # noqa: F403
from modtree.nn.modules.transformer import *  # noqa: F403
from modtree.nn.modules.upsampling import *  # noqa: F403

_imports.answer_for_missing(__name__)
