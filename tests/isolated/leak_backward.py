# SPDX-License-Identifier: BSD-3-Clause
"""Passes through hooks of modules, tensors and nodes leave nothing behind, also when hooks replace
gradients or raise.
"""

from __future__ import annotations

from leak_common import implementation_asked_for, no_leak, raising

impl = implementation_asked_for()
lib, nn = impl.lib, impl.nn


class Stop(Exception):
    pass


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(lib.tensor([2.0, 3.0]))

    def forward(self, x, *rest):
        return x * self.w, "text", x


def stop(*args):
    raise Stop


x = lib.tensor([1.0, 2.0], requires_grad=True)
two = lib.tensor([2.0, 2.0])
plain, hooked, constant, legacy, failing, failing_early, wrong = (Scale() for _ in range(7))
hooked.register_full_backward_hook(lambda m, gi, go: (gi[0] * two, None))
hooked.register_full_backward_pre_hook(lambda m, go: [go[0] * two, None, go[2]])
constant.register_full_backward_hook(lambda m, gi, go: gi)
legacy.register_backward_hook(lambda m, gi, go: (gi[0], None))
failing.register_full_backward_hook(stop)
failing_early.register_full_backward_pre_hook(stop)
wrong.register_full_backward_hook(lambda m, gi, go: (two[0], None))


def through(module, source=x):
    def run():
        source.grad = module.w.grad = None
        module(source, "text")[0].sum().backward()

    return run


def of_tensors():
    x.grad = None
    y = x * two
    with x.register_hook(lambda g: g * two), y.register_hook(lambda g: (y, None)[1]):
        y.retain_grad()
        y.sum().backward()


def of_nodes():
    y = x * two
    with y.grad_fn.register_hook(lambda gi, go: gi), y.grad_fn.register_prehook(lambda go: go):
        lib.autograd.grad(y.sum(), x)


def after_accumulation():
    leaf = lib.tensor([1.0, 2.0], requires_grad=True)
    leaf.register_post_accumulate_grad_hook(lambda t: t)
    (leaf * two).sum().backward()


def written_in_place():
    hooked(x)[0].add_(two)


def twice():
    (g,) = lib.autograd.grad(hooked(x, "text")[0].sum(), x, create_graph=True)
    if g.requires_grad:
        g.sum().backward()


def never_backward():
    hooked(x, "text")


no_leak("no hooks", through(plain), plain, x)
no_leak("hooks", through(hooked), hooked, x, two)
no_leak("no inputs", through(constant, two), constant, two)
no_leak("legacy", through(legacy), legacy, x)
no_leak("raises", raising(through(failing), Stop), failing, x)
no_leak("raises early", raising(through(failing_early), Stop), failing_early, x)
no_leak("wrong", raising(through(wrong), RuntimeError), wrong, x, two)
no_leak("tensors", of_tensors, x, two)
no_leak("nodes", of_nodes, x, two)
no_leak("accumulated", after_accumulation, two)
no_leak("in place", raising(written_in_place, RuntimeError), hooked, x)
no_leak("twice", twice, hooked, x)
no_leak("never", never_backward, hooked, x)
