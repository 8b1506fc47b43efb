# SPDX-License-Identifier: BSD-3-Clause
"""Differentiable functions whose change of volume is known, to make distributions of others."""

from __future__ import annotations

from modtree.distributions.transforms.base import (
    ComposeTransform,
    Transform,
    _InverseTransform,
    identity_transform,
)
from modtree.distributions.transforms.elementwise import (
    AbsTransform,
    AffineTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
)
from modtree.distributions.transforms.joined import (
    CatTransform,
    IndependentTransform,
    ReshapeTransform,
    StackTransform,
)
from modtree.distributions.transforms.vectors import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SoftmaxTransform,
    StickBreakingTransform,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]

for _class in (_InverseTransform, *(globals()[_name] for _name in __all__[:-1])):
    _class.__module__ = __name__  # the name in pickles
