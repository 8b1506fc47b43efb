# SPDX-License-Identifier: BSD-3-Clause
"""Operations on chains of nested modules, on a thread with a small stack: native recursion would
crash this process.

    python tests/isolated/deep.py modtree|modtree-torch DEPTH [operation ...]

Prints one JSON line before and after each operation; ``tests/module/test_deep.py`` reads them.
"""

from __future__ import annotations

import copy
import gc
import json
import pathlib
import pickle
import sys
import threading
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from helpers.implementations import implementation  # noqa: E402
from helpers.util import chain, param, tensor  # noqa: E402

# CPython 3.13 itself lets 10,000 deallocations nest (50 before), for which half a megabyte is not
# enough.
STACK = (512 if sys.version_info < (3, 13) else 4096) * 1024
DEEP = int(sys.argv[2])  # where the result does not grow with the square of the depth
NAMED = DEEP * 8 // 100  # where it does: every name spells the whole path


class Deep:
    """The operations; each gives something to compare, or raises AssertionError."""

    def __init__(self, impl):
        self.impl = impl

    def make(self, depth, exposed=False):
        m = chain(self.impl, depth)
        bottom = last(m)
        bottom.w = param(self.impl)
        bottom.register_buffer("b", tensor(self.impl))
        if exposed:
            for x in walk_down(m):
                assert x.__dict__ is not None
        return m, bottom

    # -- walks -------------------------------------------------------------------------------------

    def modules(self):
        m, _ = self.make(DEEP)
        assert sum(1 for _ in m.modules()) == DEEP
        assert sum(1 for _ in m.modules(remove_duplicate=False)) == DEEP

    def parameters(self):
        m, bottom = self.make(DEEP)
        (p,) = m.parameters()
        (b,) = m.buffers()
        assert p is bottom.w and b is bottom.b

    def named_parameters(self):
        m, bottom = self.make(NAMED)
        for flag in (True, False):
            ((name, p),) = m.named_parameters(remove_duplicate=flag)
            assert p is bottom.w and name == "c." * (NAMED - 1) + "w"
        ((name, b),) = m.named_buffers("p")
        assert b is bottom.b and len(name) == 2 * NAMED + 1

    def named_modules(self):
        m, _ = self.make(NAMED)
        for depth, (name, _) in enumerate(m.named_modules()):
            assert len(name) == max(0, 2 * depth - 1)
        assert depth == NAMED - 1

    def named_members(self):
        m, _ = self.make(NAMED)
        assert len(list(m._named_members(lambda x: [("x", None)]))) == 0

    def half_a_walk(self):
        m, _ = self.make(DEEP)
        walk = m.modules()
        for _ in range(DEEP // 2):
            next(walk)
        del m
        walk.close()

    def exposed_modules(self):
        m, _ = self.make(DEEP, exposed=True)
        assert sum(1 for _ in m.modules()) == DEEP
        m.eval()
        assert not last(m).training

    # -- whole tree --------------------------------------------------------------------------------

    def train(self):
        m, bottom = self.make(DEEP)
        assert m.eval() is m and not bottom.training
        m.train()
        assert bottom.training

    def apply(self):
        m, bottom = self.make(DEEP)
        seen = []
        m.apply(seen.append)
        assert len(seen) == DEEP and seen[0] is bottom and seen[-1] is m

    def convert(self):
        m, bottom = self.make(DEEP)
        m.double()
        assert bottom.w.dtype == self.impl.lib.float64
        m._apply(lambda t: t)
        m.to(self.impl.lib.float32)
        assert bottom.b.dtype == self.impl.lib.float32

    def requires_grad(self):
        m, bottom = self.make(DEEP)
        m.requires_grad_(False)
        m.zero_grad()
        assert not bottom.w.requires_grad

    def state_dict(self):
        m, bottom = self.make(NAMED)
        state = m.state_dict()
        path = "c." * (NAMED - 1)
        assert list(state) == [path + "w", path + "b"] and len(state._metadata) == NAMED
        assert m.load_state_dict(state).missing_keys == []
        m.load_state_dict(state, assign=True)
        result = m.load_state_dict({}, strict=False)
        assert result.missing_keys == list(state)

    def repr(self):
        m, _ = self.make(1500)
        assert repr(m).count("\n") == 2 * 1500 - 2

    def paths(self):
        m, bottom = self.make(DEEP)
        path = ".".join(["c"] * (DEEP - 1))
        assert m.get_submodule(path) is bottom
        assert m.get_parameter(path + ".w") is bottom.w
        assert m.get_buffer(path + ".b") is bottom.b
        m.set_submodule(path, new := self.impl.nn.Module())
        assert last(m) is new

    # -- copies ------------------------------------------------------------------------------------

    def deepcopy(self):
        self.copied(copy.deepcopy)

    def pickle(self):
        self.copied(lambda m: pickle.loads(pickle.dumps(m)))

    def copied(self, duplicate):
        m, _ = self.make(NAMED)
        try:
            new = duplicate(m)
        except RecursionError:
            return
        assert sum(1 for _ in new.modules()) == NAMED

    # -- death -------------------------------------------------------------------------------------

    def death(self):
        m, bottom = self.make(DEEP)
        del m
        assert bottom.w is not None

    def death_of_exposed(self):
        m, _ = self.make(DEEP, exposed=True)
        del m

    def death_through_plain_attributes(self):
        m = self.impl.nn.Module()
        for i in range(DEEP):
            outer = self.impl.nn.Module()
            outer.__dict__["x"] = m
            if i % 3 == 0:
                outer.y = [m]
            m = outer
        del m, outer

    def death_by_collector(self):
        m, bottom = self.make(DEEP)
        bottom.up = m
        del m, bottom
        gc.collect()

    def death_of_containers(self):
        m = self.impl.nn.Sequential()
        for _ in range(DEEP // 10):
            m = self.impl.nn.Sequential(m)
        del m

    def death_of_subclasses(self):
        class Own(self.impl.nn.Module):
            __slots__ = ("s",)

        m = Own()
        for _ in range(DEEP):
            outer = Own()
            outer.child = outer.s = m
            m = outer
        del m, outer

    def death_by_rebinding(self):
        m, _ = self.make(DEEP)
        m._modules = {}
        m2, _ = self.make(DEEP)
        m2.c = None
        m3, _ = self.make(DEEP)
        m3.__init__()
        m4, _ = self.make(DEEP)
        m4._modules.clear()

    def death_of_a_copy(self):
        m, _ = self.make(DEEP)
        new = copy.copy(m)
        del m
        assert sum(1 for _ in new.modules()) == DEEP

    def exception_at_the_bottom(self):
        m, bottom = self.make(DEEP)

        def fn(x):
            if x is bottom:
                raise LookupError("bottom")

        try:
            m.apply(fn)
        except LookupError:
            return
        raise AssertionError("no error")


def walk_down(m):
    while m is not None:
        yield m
        m = m._modules.get("c")


def last(m):
    *_, bottom = walk_down(m)
    return bottom


OPERATIONS = [
    n for n, f in vars(Deep).items() if not n.startswith("_") and n not in ("make", "copied")
]


def run(kind, operations):
    warnings.simplefilter("error")
    deep = Deep(implementation(kind))
    for name in operations:
        print(json.dumps({"start": name}), flush=True)
        try:
            getattr(deep, name)()
            outcome = "ok"
        except BaseException as error:
            outcome = f"{type(error).__name__}: {str(error)[:300]}"
        print(json.dumps({"done": name, "outcome": outcome}), flush=True)


if __name__ == "__main__":
    threading.stack_size(STACK)
    thread = threading.Thread(target=run, args=(sys.argv[1], sys.argv[3:] or OPERATIONS))
    thread.start()
    thread.join()
