# SPDX-License-Identifier: BSD-3-Clause
"""The same models of torch tensors on both module systems."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from modtree import nn as mnn


@pytest.fixture(params=["modtree", "torch"])
def kit(request, torch):
    from helpers.torch_models import make_classes

    nn = mnn if request.param == "modtree" else torch.nn
    torch.manual_seed(7)
    return SimpleNamespace(nn=nn, is_torch=nn is torch.nn, **vars(make_classes(nn)))
