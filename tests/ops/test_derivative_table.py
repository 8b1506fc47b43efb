# SPDX-License-Identifier: BSD-3-Clause
"""The table of operations and the table of derivatives fit together."""

from __future__ import annotations

import numpy as np
import pytest

import modtree as mt
from modtree.numpy.ops.registry import derivatives, derive, ops


def _differentiable():
    return {name for name, d in derivatives.items() if d.joint or any(d.functions)}


def test_every_row_has_a_derivative_or_says_that_it_has_none():
    assert set(ops) - set(derivatives) == set()


def test_there_are_more_than_a_hundred_differentiable_operations():
    assert len(_differentiable()) >= 110


def test_a_second_derivative_of_one_row_is_refused():
    with pytest.raises(ValueError, match="'exp' has a derivative already"):
        derive("exp", lambda g, out, _x: g * out)
    with pytest.raises(KeyError):
        derive("no such operation", lambda g, _out, _x: g)
    assert "no such operation" not in derivatives


HALF = {
    **{
        name: ()
        for name in (
            "exp log sqrt rsqrt tanh sigmoid relu abs square sin cos erf log1p reciprocal neg "
            "sum mean prod var std "
            "amax max norm sort lgamma"
        ).split()
    },
    **{name: (0,) for name in ("cumsum", "cumprod", "softmax", "log_softmax", "logsumexp")},
    "topk": (2,),
    "clamp": (0.4, 0.8),
    "pow": (2.5,),
}


@pytest.mark.parametrize("name,args", HALF.items())
def test_gradients_of_half_precision_stay_in_it(name, args):
    """And are close to what float32 gives."""
    values = np.random.default_rng(0).uniform(0.3, 0.9, 5).astype(np.float16)
    slopes = []
    for kind in (mt.float16, mt.float32):
        x = mt.tensor(values).to(kind).requires_grad_()
        result = getattr(x, name)(*args)
        result = result[0] if isinstance(result, tuple) else result
        assert result.dtype == kind
        (result * result).sum().backward()
        assert x.grad.dtype == kind
        slopes.append(x.grad.float().numpy())
    np.testing.assert_allclose(*slopes, rtol=2e-2, atol=2e-2)
