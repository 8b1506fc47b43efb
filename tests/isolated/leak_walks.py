# SPDX-License-Identifier: BSD-3-Clause
"""Walks: finished, unfinished, closed, failing, with overrides; repeated ones that remember
names.
"""

from leak_common import implementation_asked_for, no_leak, raising, small_tree

impl = implementation_asked_for()
m = small_tree(impl)
w, left = m.left.weight, m.left

for method in ("parameters", "buffers", "children", "modules"):
    walk = getattr(m, method)
    named = getattr(m, "named_" + method)
    no_leak(method, lambda walk=walk: list(walk()), m, left, w)
    no_leak("named_" + method, lambda named=named: list(named()), m, left, w)
    no_leak("half " + method, lambda named=named: next(named(), None), m, left, w)
    no_leak("unused " + method, lambda named=named: named(), m, left, w)

no_leak("all", lambda: list(m.named_parameters("p", remove_duplicate=False)), m, w)
no_leak("memo", lambda: list(m.named_modules(set(), "p")), m, left)
no_leak("members", lambda: list(m._named_members(lambda x: x._parameters.items())), m, w)
no_leak("bad members", raising(lambda: list(m._named_members(lambda x: [1]))), m, left)


def closed():
    walk = m.named_modules()
    next(walk)
    walk.close()


def changed():
    m.extra = m.left
    names = [n for n, _ in m.named_parameters()]
    del m.extra
    return names + [n for n, _ in m.named_parameters()]


def mutated():
    for _ in m.named_children():
        m._modules.pop("extra", None)
        m._modules["extra2"] = None


def fresh():
    t = small_tree(impl)
    for _ in range(3):
        list(t.named_parameters())
        list(t.named_modules())
    t.left.up = t


no_leak("closed", closed, m, left)
no_leak("changed", changed, m, left, w)
no_leak(
    "mutated", raising(lambda: (mutated(), m._modules.pop("extra2"), mutated()), RuntimeError), m
)
m._modules.pop("extra2", None)
no_leak("fresh trees", fresh, type(m))

m.left.named_modules = lambda memo, prefix, flag: iter([(prefix, m.right), (prefix + "!", 3)])
no_leak("override", lambda: list(m.named_modules()), m, left, m.right)
no_leak("half override", lambda: next(m.named_modules()), m, left)
m.left.named_modules = lambda memo, prefix, flag: 3
no_leak("bad override", raising(lambda: list(m.named_modules()), TypeError), m, left)
del m.left.named_modules
m.left._modules["junk"] = 3
no_leak("junk child", raising(lambda: list(m.named_modules()), AttributeError), m, left)
del m.left._modules["junk"]
m.left.up = m
no_leak("cycle", raising(lambda: m.train(), RecursionError), m, left)
no_leak(
    "cycle names", raising(lambda: list(m.named_modules(remove_duplicate=False)), RecursionError), m
)
