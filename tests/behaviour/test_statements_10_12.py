# SPDX-License-Identifier: BSD-3-Clause
"""Sections 10 and 11 of docs/behaviour.md: parameters, buffers, initialization; and of section 12
what is not parametrization, pruning or func.

Lazy modules (10.21 to 10.27) have tests of their own: tests/module/test_lazy.py.
"""

from __future__ import annotations

import copy
import importlib
import math
import pickle

import pytest
from helpers.statements import (
    Statements,
    said,
    warned,
)

pytest.importorskip("torch")

statement = Statements()


def kinds(t):
    """The uninitialized tensors of the leaves' library, and its parameters."""
    return importlib.import_module(f"{t.lib.__name__}.nn.parameter")


def dtype_of(x):
    return str(x.dtype).rpartition(".")[2]


# -- 10 --------------------------------------------------------------------------------------------


@statement("10.1")
def _(t):
    empty = t.nn.Parameter()
    data = t.lib.ones(2)
    data.note = 1
    p = t.nn.Parameter(data)
    with t.lib.no_grad():
        q = t.nn.Parameter(p, requires_grad=True)
    return (
        tuple(empty.shape),
        dtype_of(empty),
        p.data_ptr() == data.data_ptr(),
        hasattr(p, "note"),
        q is not p and q.requires_grad and q.is_leaf,
        t.nn.Parameter(p * 2).grad_fn,
    )


@statement("10.2")
def _(t):
    class Own(t.lib.Tensor):
        pass

    class Sub(type(t.nn.Parameter(t.lib.ones(1)))):
        pass

    own = t.lib.Tensor._make_subclass(Own, t.lib.ones(2))
    p = t.nn.Parameter(own)
    sub = Sub(t.lib.ones(1))
    return (
        type(p).__name__,
        p is not own and p._is_param,
        isinstance(p, t.nn.Parameter),
        said(lambda: t.nn.Parameter(sub), "requires that detach() returns an instance of the same"),
        type(Sub(t.nn.Parameter(t.lib.ones(1)))).__name__,
        said(lambda: t.nn.Parameter([1.0]), "detach"),
    )


@statement("10.3")
def _(t):
    integers = t.lib.tensor([1])
    return (
        said(lambda: t.nn.Parameter(integers), "floating point and complex dtype can require"),
        dtype_of(t.nn.Parameter(integers, requires_grad=False)),
        t.nn.Parameter(t.lib.tensor([1j])).requires_grad,
    )


@statement("10.4")
def _(t):
    x = t.lib.ones(1)
    before = isinstance(x, t.nn.Parameter)
    x._is_param = True
    m = t.nn.Module()
    m.x = x
    return before, isinstance(x, t.nn.Parameter), list(m._parameters), x.requires_grad


@statement("10.5")
def _(t):
    p = t.nn.Parameter(t.lib.ones(2, 2))
    made = [p + 1, p.clone(), p.detach(), p[0], p.data, p.T]
    return [type(x).__name__ for x in made]


@statement("10.6")
def _(t):
    return repr(t.nn.Parameter(t.lib.tensor([1.0, 2.0])))


@statement("10.7")
def _(t):
    p = t.nn.Parameter(t.lib.ones(2))
    return hash(p) == hash(p), len({p, t.nn.Parameter(p)}), (p == t.nn.Parameter(p)).tolist()


@statement("10.8")
def _(t):
    p = t.nn.Parameter(t.lib.ones(2), requires_grad=False)
    p.note = "kept"
    q, again = pickle.loads(pickle.dumps((p, p)))
    return q is again, q.note, q.requires_grad, q.tolist(), type(q) is type(p)


@statement("10.9")
def _(t):
    p = t.nn.Parameter(t.lib.ones(2))
    p.note = 1
    (p * 2).sum().backward()
    deep, flat = copy.deepcopy(p), copy.copy(p)
    a, b = copy.deepcopy([p, p])
    buffer = t.lib.ones(2)
    buffer.note = 1
    return (
        deep.grad,
        hasattr(deep, "note"),
        deep.data_ptr() == p.data_ptr(),
        a is b,
        flat.data_ptr() == p.data_ptr(),
        flat.note,
        copy.deepcopy(buffer).note,
    )


@statement("10.10")
def _(t):
    data = t.lib.ones(2, requires_grad=True)
    b = t.nn.Buffer(data, persistent=False)
    return (
        type(b) is t.lib.Tensor,
        b.requires_grad,
        b.persistent,
        b._is_buffer,
        hasattr(data, "persistent"),
        b.data_ptr() == data.data_ptr(),
        tuple(t.nn.Buffer().shape),
    )


@statement("10.11")
def _(t):
    b = t.nn.Buffer(t.lib.ones(2))
    made = [b.float(), copy.copy(b), copy.deepcopy(b), pickle.loads(pickle.dumps(b))]
    made += [b.clone(), b.detach(), b.double()]
    return [isinstance(x, t.nn.Buffer) for x in made]


@statement("10.12")
def _(t):
    p, b = t.nn.Parameter(t.lib.ones(1)), t.nn.Buffer(t.lib.ones(1))
    made = t.nn.Buffer(p), t.nn.Parameter(b)
    return (
        [isinstance(x, t.nn.Parameter) for x in made],
        [isinstance(x, t.nn.Buffer) for x in made],
        made[0].requires_grad,
        said(lambda: t.nn.Buffer([1]), "detach"),
    )


@statement("10.13")
def _(t):
    k = kinds(t)
    p, b = k.UninitializedParameter(), k.UninitializedBuffer(persistent=False)
    return (
        isinstance(p, t.nn.Parameter),
        isinstance(b, t.nn.Buffer),
        [isinstance(x, k.UninitializedTensorMixin) for x in (p, b)],
        [k.is_lazy(x) for x in (p, b, t.lib.ones(1), 5)],
        [x.requires_grad for x in (p, b)],
        b.persistent,
    )


@statement("10.14")
def _(t):
    p = kinds(t).UninitializedParameter(device="meta", dtype=t.lib.float64)
    p.requires_grad = False
    return (
        list(p.size()),
        p.ndim,
        tuple(p.data.shape),
        dtype_of(p),
        p.device.type,
        p.requires_grad,
        p.grad,
        p.is_leaf,
        p.is_meta,
    )


@statement("10.15")
def _(t):
    p = kinds(t).UninitializedParameter()
    return (
        said(lambda: p.shape, "Can't access the shape of an uninitialized parameter or buffer"),
        said(p.share_memory_, "Can't share memory on an uninitialized parameter or buffer"),
    )


@statement("10.16")
def _(t):
    p = kinds(t).UninitializedParameter()
    allowed = ("is_complex", "is_floating_point", "half", "float", "double", "char", "short")
    allowed += ("int", "long", "cpu", "get_device", "size", "__hash__")
    refused = ("dim", "numel", "detach", "clone", "requires_grad_", "zero_", "type", "exp")
    text = "Attempted to use an uninitialized parameter in"
    return (
        [said(getattr(p, n)) for n in allowed],
        said(lambda: p.to(t.lib.float64)),
        [said(getattr(p, n), text) for n in refused],
        [
            said(f, text)
            for f in (
                lambda: p == 1,
                lambda: p + 1,
                lambda: 1 * p,
                lambda: -p,
                lambda: p @ p,
                lambda: p[0],
                lambda: t.lib.empty_like(p),
                lambda: t.lib.cat([p, p]),
                lambda: t.lib.exp(p),
                lambda: t.nn.init.ones_(p),
            )
        ],
    )


@statement("10.17")
def _(t):
    m = t.nn.Module()
    p = m.p = kinds(t).UninitializedParameter()
    m.double()
    seen = m.p is p, dtype_of(p), m.to(t.lib.float16).p is p, m.zero_grad()
    bad = [
        said(f)[0]
        for f in (
            lambda: m.type(t.lib.float32),
            m.requires_grad_,
            lambda: m.to_empty(device="cpu"),
            m.share_memory,
            m.state_dict,
        )
    ]
    m.to("meta")
    return seen, bad, kinds(t).is_lazy(m.p), p is m.p


@statement("10.18")
def _(t):
    p = kinds(t).UninitializedParameter(dtype=t.lib.float64)
    b = kinds(t).UninitializedBuffer()
    p.note = 1
    made = p.materialize((2, 3)), b.materialize((4,), dtype=t.lib.float16)
    return (
        made,
        [type(x).__name__ for x in (p, b)],
        [tuple(x.shape) for x in (p, b)],
        [dtype_of(x) for x in (p, b)],
        p.note,
        p.requires_grad,
        b._is_buffer,
        hasattr(p, "materialize"),
        said(lambda: kinds(t).UninitializedParameter().materialize((2,), device="meta"))[0],
    )


@statement("10.19")
def _(t):
    return repr(kinds(t).UninitializedParameter()), repr(kinds(t).UninitializedBuffer())


@statement("10.20")
def _(t):
    p = kinds(t).UninitializedParameter(False, dtype=t.lib.float64)
    q = copy.deepcopy(p)
    return (
        kinds(t).is_lazy(q),
        q.requires_grad,
        dtype_of(q),
        pickle.loads(pickle.dumps(p)).requires_grad,
    )


# -- 11 --------------------------------------------------------------------------------------------


@statement("11.1")
def _(t):
    skip = t.nn.utils.skip_init

    class Layer(t.nn.Module):
        def __init__(self, n, device=None, dtype=None):
            super().__init__()
            self.w = t.nn.Parameter(t.lib.ones(n, device=device, dtype=dtype), requires_grad=False)
            self.again = self.w
            t.nn.init.uniform_(self.w)

    t.lib.manual_seed(0)
    before = t.lib.rand(1).item()
    t.lib.manual_seed(0)
    m = skip(Layer, 3, dtype=t.lib.float64)
    return (
        t.lib.rand(1).item() == before,
        m.w.is_meta,
        tuple(m.w.shape),
        dtype_of(m.w),
        m.w.requires_grad,
        m.w is m.again,
        skip(Layer, n=2, device="meta").w.is_meta,
        said(lambda: skip(int), "Expected a Module; got"),
        said(lambda: skip(m))[0],
        said(lambda: skip(t.nn.Module), "Module must support a 'device' arg"),
    )


INIT = [
    ("uniform_", ()),
    ("normal_", ()),
    ("trunc_normal_", ()),
    ("constant_", (5.0,)),
    ("ones_", ()),
    ("zeros_", ()),
    ("eye_", ()),
    ("xavier_uniform_", ()),
    ("xavier_normal_", ()),
    ("kaiming_uniform_", ()),
    ("kaiming_normal_", ()),
    ("orthogonal_", ()),
    ("sparse_", (0.5,)),
]


@statement("11.2")
def _(t):
    x = t.lib.empty(4, 4, device="meta")
    t.lib.manual_seed(0)
    before = t.lib.rand(1).item()
    t.lib.manual_seed(0)
    same = [getattr(t.nn.init, n)(x, *a) is x for n, a in INIT if n != "sparse_"]
    return same, t.lib.rand(1).item() == before


@statement("11.3")
def _(t):
    init, lib = t.nn.init, t.lib
    w = t.nn.Parameter(lib.ones(4, 4))
    same = [getattr(init, n)(w, *a) is w and w.grad_fn is None for n, a in INIT]
    flat, cube = lib.ones(3), lib.ones(3, 3, 3, 3, 3, 3)
    zeros = (init.sparse_(lib.ones(4, 3), 0.5) == 0).sum(0).tolist()
    ortho = init.orthogonal_(lib.ones(3, 5), gain=2)
    return (
        same,
        said(lambda: init.uniform_(lib.tensor([1])))[0],
        warned(lambda: init.trunc_normal_(lib.ones(4), 9.0), "mean is more than 2 std from [a, b]"),
        [
            said(lambda n=n: getattr(init, n)(flat))
            for n in ("eye_", "orthogonal_", "xavier_normal_")
        ],
        [said(lambda x=x: init.dirac_(x)) for x in (flat, cube)],
        said(lambda: init.dirac_(lib.ones(3, 3, 3), 2), "dim 0 must be divisible by groups"),
        init.dirac_(lib.ones(4, 2, 3), 2).tolist(),
        said(lambda: init.sparse_(flat, 0.5)),
        said(lambda: init.kaiming_normal_(w, mode="bad"))[0],
        said(lambda: init.kaiming_normal_(w, mode="FAN_OUT")),
        warned(lambda: init.kaiming_uniform_(lib.ones(0, 3)), "zero-element tensors is a no-op"),
        said(lambda: init.xavier_uniform_(lib.ones(0, 0)))[0],
        zeros,
        [round(v, 4) + 0.0 for row in (ortho @ ortho.T).tolist() for v in row],
        init.eye_(lib.ones(2, 3)).tolist(),
    )


@statement("11.4")
def _(t):
    fans = t.nn.init._calculate_fan_in_and_fan_out
    return fans(t.lib.ones(2, 3, 4, 5)), said(
        lambda: fans(t.lib.ones(3)),
        "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions",
    )


@statement("11.5")
def _(t):
    gain = t.nn.init.calculate_gain
    names = ("linear", "conv1d", "conv_transpose3d", "sigmoid", "tanh", "relu", "selu")
    return (
        [(gain(n), type(gain(n)).__name__) for n in names],
        [gain("leaky_relu", p) for p in (None, 0.2, 3)],
        [said(lambda p=p: gain("leaky_relu", p), "not a valid number") for p in (True, "x")],
        [
            said(lambda n=n: gain(n), "Unsupported nonlinearity")
            for n in ("gelu", "ReLU", "identity")
        ],
        gain("relu", "ignored"),
    )


@statement("11.6")
def _(t):
    names = ("uniform", "normal", "constant", "eye", "xavier_uniform", "kaiming_normal", "sparse")
    extra = {"constant": (1,), "sparse": (0.5,)}
    w = t.lib.ones(2, 2)
    return [warned(lambda n=n: getattr(t.nn.init, n)(w, *extra.get(n, ())))[0] for n in names]


@statement("11.7")
def _(t):
    library = importlib.import_module("torch" if t.is_torch else "modtree")
    library.manual_seed(0)
    m = library.nn.Linear(16, 8)
    library.manual_seed(0)
    w = library.nn.init.kaiming_uniform_(library.empty(8, 16), a=math.sqrt(5))
    b = library.empty(8).uniform_(-0.25, 0.25)
    return bool((m.weight == w).all()), bool((m.bias == b).all())


# -- 12 --------------------------------------------------------------------------------------------


@statement("12.26")
def _(t):
    join = t.nn.utils.parameters_to_vector
    a, b = t.nn.Parameter(t.lib.ones(2, 2)), t.nn.Parameter(t.lib.zeros(1))
    v = join(iter([a, b]))
    v.sum().backward()
    return v.tolist(), a.grad.tolist(), said(lambda: join([]))[0]


@statement("12.27")
def _(t):
    fill = t.nn.utils.vector_to_parameters
    a, b = t.nn.Parameter(t.lib.ones(2, 2)), t.nn.Parameter(t.lib.zeros(1))
    vector = t.lib.arange(7).float()
    fill(vector, iter([a, b]))
    seen = a.tolist(), b.tolist(), a.data_ptr() == vector.data_ptr()
    return seen, said(lambda: fill([1], [a]))[0], said(lambda: fill(t.lib.ones(2), [a]))[0]


@statement("12.28")
def _(t):
    clip = t.nn.utils.clip_grad_norm_
    a, b = t.nn.Parameter(t.lib.ones(2)), t.nn.Parameter(t.lib.ones(1))
    a.grad, b.grad = t.lib.tensor([3.0, 0.0]), t.lib.tensor([4.0])
    total = clip(iter([a, b]), 1.0).item()
    seen = total, [round(v, 5) for v in (*a.grad.tolist(), *b.grad.tolist())]
    whole = clip(a, 5.0, "inf").item()
    a.grad = t.lib.tensor([float("nan"), 1.0])
    return (
        seen,
        round(whole, 5),
        said(lambda: clip([a], 1.0, error_if_nonfinite=True))[0],
        [v != v for v in (clip([a], 1.0), a.grad.tolist())[1]],
        clip([t.nn.Parameter(t.lib.ones(1))], 1.0).item() if t.leaves == "torch" else 0.0,
        warned(lambda: clip(iter(()), 1.0))[0],
    )


@statement("12.29")
def _(t):
    a = t.nn.Parameter(t.lib.ones(2))
    a.grad = t.lib.tensor([3.0, -4.0])
    return t.nn.utils.clip_grad_value_([a], 1.5), a.grad.tolist()


@statement("12.30")
def _(t):
    u = t.nn.utils
    a = t.nn.Parameter(t.lib.ones(2))
    a.grad = t.lib.tensor([3.0, 4.0])
    total = u.get_total_norm([a.grad])
    u.clip_grads_with_norm_([a], 1.0, total)
    return total.item(), [round(v, 5) for v in a.grad.tolist()]


@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("number", statement.programs)
def test_statements(number, kind):
    statement.compare(number, kind)
