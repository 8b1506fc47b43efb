# SPDX-License-Identifier: BSD-3-Clause
"""Memory formats: what a tensor says of its order in memory is true, and what is asked for is
made.
"""

from __future__ import annotations

import pytest

import modtree as mt


def image(lib, name):
    return {
        "4-D": lambda: lib.arange(120.0).reshape(2, 3, 4, 5),
        "channels last": lambda: lib.arange(120.0).reshape(2, 4, 5, 3).permute(0, 3, 1, 2),
        "5-D": lambda: lib.arange(240.0).reshape(2, 3, 4, 5, 2),
        "5-D channels last": lambda: (
            lib.arange(240.0).reshape(2, 4, 5, 2, 3).permute(0, 4, 1, 2, 3)
        ),
        "matrix": lambda: lib.arange(6.0).reshape(2, 3),
        "transposed": lambda: lib.arange(6.0).reshape(2, 3).t(),
        "turned": lambda: lib.arange(24.0).reshape(2, 3, 4).transpose(1, 2),
        "permuted": lambda: lib.arange(120.0).reshape(2, 3, 4, 5).permute(3, 1, 0, 2),
        "every second": lambda: lib.arange(1920.0).reshape(4, 6, 8, 10)[::2, ::2, ::2, ::2],
        "expanded": lambda: lib.arange(6.0).reshape(2, 3, 1, 1).expand(2, 3, 4, 5),
        "number": lambda: lib.ones(()),
    }[name]()


IMAGES = [
    "4-D",
    "channels last",
    "5-D",
    "5-D channels last",
    "matrix",
    "transposed",
    "turned",
    "permuted",
] + ["every second", "expanded", "number"]
FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


def facts(t):
    return tuple(t.shape), t.stride(), t.tolist()


FORMAT_CALLS = {
    "is_contiguous": lambda lib, t, f: t.is_contiguous(memory_format=f),
    "contiguous": lambda lib, t, f: facts(t.contiguous(memory_format=f)),
    "contiguous, itself": lambda lib, t, f: t.contiguous(memory_format=f) is t,
    "clone": lambda lib, t, f: facts(t.clone(memory_format=f)),
    "to": lambda lib, t, f: facts(t.to(memory_format=f)),
    "to, itself": lambda lib, t, f: t.to(memory_format=f) is t,
    "to a dtype": lambda lib, t, f: facts(t.to(lib.float64, memory_format=f)),
    "double": lambda lib, t, f: facts(t.double(memory_format=f)),
    "float": lambda lib, t, f: facts(t.float(memory_format=f)),
    "cpu": lambda lib, t, f: facts(t.cpu(memory_format=f)),
    "zeros_like": lambda lib, t, f: facts(lib.zeros_like(t, memory_format=f)),
    "full_like": lambda lib, t, f: facts(lib.full_like(t, 2.0, memory_format=f)),
    "empty": lambda lib, t, f: lib.empty(tuple(t.shape), memory_format=f).stride(),
}


def result_of(lib, call, name, format):
    try:
        return FORMAT_CALLS[call](lib, image(lib, name), getattr(lib, format))
    except (RuntimeError, TypeError) as error:
        return type(error)


@pytest.mark.parametrize("call", FORMAT_CALLS)
@pytest.mark.parametrize("format", FORMATS)
def test_formats_as_in_torch(call, format, torch):
    for name in IMAGES:
        assert result_of(mt, call, name, format) == result_of(torch, call, name, format), name


@pytest.mark.parametrize("name", IMAGES)
def test_the_order_is_kept(lib, name):
    t = image(lib, name)
    expected = t.clone().stride()
    if name not in ("every second", "expanded"):
        assert expected == t.stride()
    for kept in (
        t.double(),
        t.to(lib.float64),
        lib.zeros_like(t),
        lib.rand_like(t),
        lib.full_like(t, 1),
    ):
        assert kept.stride() == expected


def test_channels_last(lib):
    t = image(lib, "4-D")
    assert not t.is_contiguous(memory_format=lib.channels_last) and t.is_contiguous()
    turned = t.contiguous(memory_format=lib.channels_last)
    assert turned.is_contiguous(memory_format=lib.channels_last) and not turned.is_contiguous()
    assert turned.stride() == (60, 1, 15, 3) and turned.tolist() == t.tolist()
    assert turned.contiguous(memory_format=lib.channels_last) is turned
    with pytest.raises(RuntimeError, match="required rank 4 tensor to use channels_last format"):
        lib.ones(2, 3).contiguous(memory_format=lib.channels_last)
    for wrong in ("channels_last", 3, None):
        with pytest.raises(TypeError):
            t.is_contiguous(memory_format=wrong)
        with pytest.raises(TypeError):
            t.contiguous(memory_format=wrong)
    with pytest.raises(TypeError):
        t.is_contiguous(lib.channels_last)


def test_formats_have_gradients(lib):
    t = lib.arange(24.0).reshape(1, 2, 3, 4).requires_grad_()
    scale = lib.arange(24.0).reshape(1, 2, 3, 4)
    for turn in (
        lambda: t.contiguous(memory_format=lib.channels_last),
        lambda: t.clone(memory_format=lib.channels_last),
    ):
        t.grad = None
        (turn() * scale).sum().backward()
        assert t.grad.tolist() == scale.tolist()
    assert lib.zeros_like(t, memory_format=lib.channels_last, requires_grad=True).is_leaf


def test_meta_tensors_are_in_c_order():
    t = mt.ones(2, 3, 4, 5, device="meta").contiguous(memory_format=mt.channels_last)
    assert t.is_contiguous() and not t.is_contiguous(memory_format=mt.channels_last)
