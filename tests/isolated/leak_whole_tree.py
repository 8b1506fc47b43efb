# SPDX-License-Identifier: BSD-3-Clause
"""Whole-tree operations, state dicts, calls with hooks, copies, repr."""

import copy
import pickle

from leak_common import implementation_asked_for, no_leak, raising, small_tree

impl = implementation_asked_for()
m = small_tree(impl)
left, w = m.left, m.left.weight


class Net(impl.nn.Module):
    def forward(self, x, k=None):
        return x


net, value = Net(), object()


def fail(*args):
    raise LookupError("fail")


def with_hooks():
    handles = [
        net.register_forward_pre_hook(lambda *a: None),
        net.register_forward_hook(lambda *a: None, with_kwargs=True),
        net.register_forward_hook(lambda *a: None, always_call=True),
    ]
    assert net(value, k=value) is value
    for handle in handles:
        handle.remove()


def hooks_left_behind():
    own = Net()
    own.handle = own.register_forward_hook(lambda *a: own)
    own(value)
    own.register_state_dict_pre_hook(lambda *a: own)
    own.state_dict()


def failing_call():
    with net.register_forward_hook(fail):
        net(value)


state = m.state_dict()
no_leak("train", lambda: (m.train(), m.eval()), m, left)
no_leak("train(3)", raising(lambda: m.train(3), ValueError), m)
no_leak("apply", lambda: m.apply(lambda x: None), m, left)
no_leak("failing apply", raising(lambda: m.apply(fail), LookupError), m, left)
no_leak("_apply", lambda: m._apply(lambda t: t), m, w)
no_leak("failing _apply", raising(lambda: m._apply(fail), LookupError), m, w)
no_leak("casts", lambda: (m.double(), m.float()), m, left)
no_leak("requires_grad_", lambda: m.requires_grad_(False), m, w)
no_leak("zero_grad", lambda: m.zero_grad(), m, w)
no_leak("state_dict", lambda: m.state_dict(), m, left, w)
no_leak("keep_vars", lambda: m.state_dict(keep_vars=True, prefix="p."), m, left, w)
no_leak("load", lambda: m.load_state_dict(state), m, left)
no_leak("load missing", lambda: m.load_state_dict({"x": 3}, strict=False), m, left)
no_leak("load fails", raising(lambda: m.load_state_dict({"x": 3}), RuntimeError), m, left)
no_leak("call", lambda: net(value, k=value), net, value)
no_leak("call with hooks", with_hooks, net, value, Net)
no_leak("hooks left behind", hooks_left_behind, Net, value)
no_leak("failing hook", raising(failing_call, LookupError), net, value)
no_leak("failing call", raising(lambda: net(1, 2, 3), TypeError), net)
no_leak("repr", lambda: repr(m), m, left)
no_leak("copy", lambda: copy.copy(m), m, left, w)
no_leak("deepcopy", lambda: copy.deepcopy(m), m, left, w)
no_leak("pickle", lambda: pickle.loads(pickle.dumps(m)), m, left, w)
