# SPDX-License-Identifier: BSD-3-Clause
"""Python code and native code that call each other until the C stack of a thread ends, where the
recursion limit would allow more: a RecursionError, and no crash.

    python tests/isolated/c_stack.py modtree|modtree-torch [operation ...]

Prints one JSON line before and after each operation; ``tests/module/test_deep.py`` reads them.
"""

from __future__ import annotations

import copy
import json
import pathlib
import pickle
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from helpers.implementations import implementation  # noqa: E402

STACK = 512 * 1024


class Nested:
    """Operations that never end by themselves."""

    def __init__(self, impl):
        self.lib, self.nn = impl.lib, impl.nn


class Modules(Nested):
    def module(self, **methods):
        """A module of a class with these methods, which has itself as a child."""
        m = type("Own", (self.nn.Module,), methods)()
        m._modules["c"] = m
        return m

    def train(self):
        self.module(train=lambda m, mode=True: self.nn.Module.train(m, mode)).train()

    def eval(self):
        self.module(train=lambda m, mode=True: m.eval()).eval()

    def apply(self):
        self.module(apply=lambda m, fn: self.nn.Module.apply(m, fn)).apply(id)

    def conversion(self):
        self.module(_apply=lambda m, fn, recurse=True: self.nn.Module._apply(m, fn)).double()

    def zero_grad(self):
        self.module(parameters=lambda m, recurse=True: m.zero_grad()).zero_grad()

    def state_dict(self):
        own = self.module(state_dict=lambda m, **kw: self.nn.Module.state_dict(m, **kw))
        own.state_dict()

    def state_dict_hook(self):
        m = self.nn.Module()
        m._register_state_dict_hook(lambda *_: m.state_dict())
        m.state_dict()

    def load_state_dict(self):
        self.module(_load_from_state_dict=lambda m, *_: m.load_state_dict({})).load_state_dict({})

    def walk(self):
        own = self.module(named_modules=lambda m, *a, **kw: iter(list(m.modules())))
        list(own.named_modules())

    def repr(self):
        repr(self.module(extra_repr=lambda m: repr(m)))

    def copy(self):
        copy.copy(self.module(__setstate__=lambda m, state: copy.copy(m)))

    def pickle(self):
        pickle.dumps(self.module(__getstate__=lambda m: pickle.dumps(m)))

    def call(self):
        self.module(forward=lambda m, x: m(x))(1)

    def overridden_call(self):
        own = self.module(
            __call__=lambda m, x: self.nn.Module.__call__(m, x), forward=lambda m, x: m(x)
        )
        own(1)

    def hook(self):
        m = self.module(forward=lambda m, x: x)
        m.register_forward_hook(lambda m, args, out: m(*args))
        m(1)

    def getattr(self):
        _ = self.module(__getattr__=lambda m, name: m.missing).missing

    def getattribute(self):
        def look(m, name):
            found = self.nn.Module.__getattribute__(m, "_modules")
            return found if name == "_modules" else found["c"].missing

        _ = self.module(__getattribute__=look).missing

    def property(self):
        _ = self.module(missing=property(lambda m: m.missing)).missing

    def setattr(self):
        def write(m, name, value):
            self.nn.Module.__setattr__(m, name, value)
            m.x = value

        self.module(__setattr__=write).x = 1

    def delattr(self):
        def delete(m, name):
            m.x = 1
            del m.x

        del self.module(__delattr__=delete).x

    def construction(self):
        def init(m):
            self.nn.Module.__init__(m)
            m.c = type(m)()

        type("Own", (self.nn.Module,), {"__init__": init})()

    def registration(self):
        own = self.module(register_parameter=lambda m, name, value: setattr(m, name, value))
        own.w = self.nn.Parameter(self.lib.ones(1))


class Tensors(Nested):
    def tensor(self, function):
        def come_back(cls, func, types, args=(), kwargs=None):
            return function(args[0])

        body = {"__torch_function__": classmethod(come_back)}
        function(self.lib.ones(1).as_subclass(type("Own", (self.lib.Tensor,), body)))

    def operator(self):
        self.tensor(lambda t: t + t)

    def operation(self):
        self.tensor(self.lib.exp)

    def method(self):
        self.tensor(lambda t: t.sum())

    def tensor_attribute(self):
        self.tensor(lambda t: t.shape)

    def truth(self):
        self.tensor(bool)

    def item(self):
        self.tensor(lambda t: t[0])

    def array(self):
        class Array:
            def __array__(self, *args, **kwargs):
                return lib.tensor(Array())

        lib = self.lib
        lib.tensor(Array())

    def backward(self):
        leaf = self.lib.ones(1, requires_grad=True)
        leaf.register_post_accumulate_grad_hook(lambda _: again())

        def again():
            with self.lib.enable_grad():
                (leaf * 2).sum().backward()

        again()


def run(operation, outcomes):
    try:
        operation()
    except RecursionError as error:
        outcomes.append(str(error))
    except BaseException as error:
        outcomes.append(f"{type(error).__name__}: {error}")
    else:
        outcomes.append("ended")


def main(name, *operations):
    impl = implementation(name)
    sys.setrecursionlimit(100_000)
    threading.stack_size(STACK)
    for operation in operations:
        print(json.dumps({"start": operation}), flush=True)
        nested = (Modules if hasattr(Modules, operation) else Tensors)(impl)
        found = []
        thread = threading.Thread(target=run, args=(getattr(nested, operation), found))
        thread.start()
        thread.join()
        print(json.dumps({"done": operation, "outcome": found[0]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
