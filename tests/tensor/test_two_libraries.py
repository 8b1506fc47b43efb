# SPDX-License-Identifier: BSD-3-Clause
"""A tensor of torch where one of modtree is needed, and the other way: both are called Tensor, so
messages say whose, and what they advise works.
"""

from __future__ import annotations

import operator
import re

import pytest

torch = pytest.importorskip("torch")

import modtree as mt  # noqa: E402
from modtree import nn  # noqa: E402
from modtree.nn import functional as F  # noqa: E402

OPERATORS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
    *(operator.pow, operator.matmul, operator.lt, operator.le, operator.gt, operator.ge),
    *(operator.iadd, operator.isub, operator.imul, operator.itruediv),
]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


def refused(call, *arguments):
    with pytest.raises((TypeError, ValueError)) as found:
        call(*arguments)
    text = str(found.value)
    assert not re.search(r"'Tensor'|(not|got|type|is) Tensor\b", text), text
    return text


@pytest.mark.parametrize("function", OPERATORS + BITS)
def test_operators_say_whose_operands_they_got(function):
    values = [[1, 2], [3, 1]] if function in BITS else [[1.0, 2.0], [3.0, 1.0]]
    ours, theirs = mt.tensor(values), torch.tensor(values)
    pairs = [(ours, theirs), (theirs, ours)]
    if function not in BITS:
        pairs.append((nn.Parameter(ours), theirs))
    for left, right in pairs:
        text = refused(function, left, right)
        kinds = {f"'{type(each).__module__}.{type(each).__qualname__}'" for each in (left, right)}
        assert all(kind in text for kind in kinds), text
        assert "modtree.from_torch(tensor)" in text and "modtree.to_torch(tensor)" in text
    expected = torch.as_tensor(function(theirs.clone(), theirs)).tolist()
    assert function(ours.clone(), mt.from_torch(theirs)).tolist() == expected
    assert function(mt.to_torch(ours).clone(), theirs).tolist() == expected


def test_equality_can_be_asked_of_any_two():
    assert (mt.ones(2) == torch.ones(2)) is False and (torch.ones(2) != mt.ones(2)) is True


def test_a_class_below_torchs_may_have_a_way():
    class Own(torch.Tensor):
        def __radd__(self, other):
            return "mine"

    assert mt.ones(2) + torch.ones(2).as_subclass(Own) == "mine"


def zeros(*shape):
    return torch.zeros(shape, dtype=torch.long)


#: Each is called with tensors of torch where those of modtree are needed.
CALLS = {
    "add": (mt.add, mt.ones(2), torch.ones(2)),
    "method": (lambda a, b: a.add_(b), mt.ones(2), torch.ones(2)),
    "matmul": (mt.matmul, torch.ones(2, 2), mt.ones(2, 2)),
    "cat": (lambda a, b: mt.cat([a, b]), mt.ones(2), torch.ones(2)),
    "where": (lambda a, b: mt.where(a > 0, a, b), mt.ones(2), torch.ones(2)),
    "einsum": (lambda a, b: mt.einsum("i,i", a, b), mt.ones(2), torch.ones(2)),
    "equal": (mt.equal, mt.ones(2), torch.ones(2)),
    "allclose": (mt.allclose, mt.ones(2), torch.ones(2)),
    "index_select": (lambda a, i: a.index_select(0, i), mt.ones(2), zeros(1)),
    "gather": (lambda a, i: mt.gather(a, 0, i), mt.ones(2), zeros(2)),
    "scatter": (lambda a, i: a.scatter(0, i, a), mt.ones(2), zeros(2)),
    "masked_fill": (lambda a, m: a.masked_fill(m, 0.0), mt.ones(2), torch.ones(2) > 0),
    "solve": (mt.linalg.solve, mt.eye(2), torch.ones(2, 2)),
    "setitem": (lambda a, b: a.__setitem__(0, b), mt.ones(2), torch.tensor(1.0)),
    "grad": (lambda a, b: setattr(a, "grad", b), mt.ones(2), torch.ones(2)),
    "data": (lambda a, b: setattr(a, "data", b), mt.ones(2), torch.ones(2)),
    "backward": (lambda g: (mt.ones(2, requires_grad=True) * 2).backward(g), torch.ones(2)),
    "F.linear": (F.linear, torch.ones(2, 2), mt.ones(2, 2)),
    "F.linear, weight": (F.linear, mt.ones(2, 2), torch.ones(2, 2)),
    "Linear": (nn.Linear(2, 2), torch.ones(2, 2)),
    "Sequential": (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(2, 2)),
    "Conv2d": (nn.Conv2d(1, 1, 1), torch.ones(1, 1, 2, 2)),
    "BatchNorm1d": (nn.BatchNorm1d(2), torch.ones(2, 2)),
    "LayerNorm": (nn.LayerNorm(2), torch.ones(2, 2)),
    "Embedding": (nn.Embedding(3, 2), zeros(2)),
    "LSTM": (nn.LSTM(2, 2), torch.ones(2, 2)),
    "MultiheadAttention": (lambda a: nn.MultiheadAttention(2, 1)(a, a, a), torch.ones(2, 2)),
    "mse_loss": (F.mse_loss, mt.ones(2), torch.ones(2)),
    "cross_entropy": (F.cross_entropy, mt.ones(2, 2), zeros(2)),
    "BCELoss": (nn.BCELoss(), mt.ones(2), torch.ones(2)),
    "L1Loss": (nn.L1Loss(), torch.ones(2), mt.ones(2)),
    "Normal": (mt.distributions.Normal, torch.ones(2), mt.ones(2)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_tensor_of_torch_is_named_and_the_advice_works(name):
    call, *arguments = CALLS[name]
    text = refused(call, *arguments)
    assert "torch.Tensor" in text and "modtree.from_torch(tensor)" in text, text
    call(*(mt.from_torch(a) if isinstance(a, torch.Tensor) else a for a in arguments))


#: What runs in the library of its tensors, where all of them are of one.
ELSEWHERE = {
    "exp": lambda lib, a: lib.exp(a),
    "add": lambda lib, a: lib.add(a, 2, alpha=3),
    "sum": lambda lib, a: lib.sum(a),
    "norm": lambda lib, a: lib.linalg.norm(a, 1),
    "stack": lambda lib, a: lib.stack([a, a]),
    "topk": lambda lib, a: lib.topk(a, 1)[0],
    "ones_like": lambda lib, a: lib.ones_like(a),
    "relu": lambda lib, a: lib.nn.functional.relu(a),
    "softmax, dtype": lambda lib, a: lib.softmax(a, -1, torch.float64),
    "softmax": lambda lib, a: lib.nn.functional.softmax(a, -1),
    "dropout": lambda lib, a: lib.nn.functional.dropout(a, training=False),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_function_of_tensors_of_torch_alone_is_torchs(name):
    function, tensor = ELSEWHERE[name], torch.tensor([-1.0, 2.0])
    found, expected = function(mt, tensor), function(torch, tensor)
    assert type(found) is torch.Tensor and found.tolist() == expected.tolist()


THEIRS = {
    "exp": (torch.exp, mt.ones(2)),
    "add": (torch.add, torch.ones(2), mt.ones(2)),
    "cat": (lambda a, b: torch.cat([a, b]), torch.ones(2), mt.ones(2)),
    "linear": (torch.nn.functional.linear, torch.ones(2, 2), mt.ones(2, 2)),
    "linear, parameter": (torch.nn.functional.linear, torch.ones(2, 2), nn.Linear(2, 2).weight),
    "Linear": (torch.nn.Linear(2, 2), mt.ones(2, 2)),
    "mse_loss": (torch.nn.functional.mse_loss, torch.ones(2), mt.ones(2)),
    "cross_entropy": (torch.nn.functional.cross_entropy, mt.ones(2, 2), zeros(2)),
    "matmul": (torch.matmul, torch.ones(2, 2), nn.Linear(2, 2).weight),
}


@pytest.mark.parametrize("name", THEIRS)
def test_a_tensor_of_modtree_in_torch_is_named_and_the_advice_works(name):
    call, *arguments = THEIRS[name]
    text = refused(call, *arguments)
    assert "modtree.Tensor" in text and "modtree.to_torch(tensor)" in text, text
    call(*(mt.to_torch(a) if isinstance(a, mt.Tensor) else a for a in arguments))


def test_an_error_of_the_function_itself_stays():
    with pytest.raises(IndexError):
        mt.ones(2)[torch.tensor([5])]
    with pytest.raises(AttributeError, match="'int' object has no attribute"):
        mt.func.grad(lambda x: (1).nothing)(mt.ones(2))
