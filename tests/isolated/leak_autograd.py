# SPDX-License-Identifier: BSD-3-Clause
"""Steps of training, with the collector off: graphs are freed by reference counts alone."""

import gc

from leak_common import implementation_asked_for, no_leak, raising

lib = implementation_asked_for().lib
x = lib.ones(3, requires_grad=True)
w = lib.ones(3, requires_grad=True)


class Double(lib.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x * 2
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, g):
        ctx.saved_tensors  # noqa: B018
        return g * 2


def step():
    y = (x * w).tanh().exp().reshape(3, 1).expand(3, 2).sum()
    y.backward()


def inplace():
    y = x * 1
    y[0] += 1
    y[1:].mul_(w[1:])
    y.sum().backward()


def function():
    Double.apply(x * w).sum().backward()


def twice():
    (first,) = lib.autograd.grad((x**3 * w).sum(), x, create_graph=True)
    first.sum().backward()


def hooks():
    y = x * w
    handle = y.register_hook(lambda g: g * 2)
    y.retain_grad()
    y.sum().backward()
    handle.remove()


def unused():
    Double.apply(x * w).exp()


def failing():
    y = (x * w).exp()
    y.register_hook(lambda g: 1 / 0)
    y.sum().backward()


def modified():
    y = (x * w).exp()
    y.add_(1)
    y.sum().backward()


gc.disable()
no_leak("step", step, x, w)
no_leak("in place", inplace, x, w)
no_leak("function", function, x, w)
no_leak("twice", twice, x, w)
no_leak("hooks", hooks, x, w)
no_leak("unused", unused, x, w)
no_leak("error in a hook", raising(failing, ZeroDivisionError), x, w)
no_leak("changed in place", raising(modified, RuntimeError), x, w)
