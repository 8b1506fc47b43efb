# SPDX-License-Identifier: BSD-3-Clause
"""A tree that threads share, and what each thread does to it."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import random
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from history import ABSENT, Hook, Log, Span, now

import modtree as mt
from modtree import _C, nn

try:
    import jax
    import jax.numpy as jnp

    import modtree.jax as mj
except ImportError:  # it is not there for every CPython
    mj = None  # type: ignore[assignment]

CHILDREN = ("a", "b", "c")
PARAMETERS = ("w", "v", "u")
PLAIN = ("note", "count")

running_hooks = threading.local()


class Noting:
    """A hook that says to its thread that it ran."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, *_: Any) -> None:
        running_hooks.ran.add(self.number)


class Leaf(nn.Module):
    def forward(self, x: Any) -> Any:
        return x


class Slots(Leaf):
    """Of a class with a method that walks look for, so that they take the general way."""

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        return super().named_parameters(*args, **kwargs)


class Shared:
    """One tree: cells are the attributes of its children, whose values are numbered."""

    def __init__(self, rng: random.Random) -> None:
        self.root = Leaf()
        self.start: dict[Hashable, int] = {}
        self.numbers = iter(range(1, 1 << 60))
        self.lock = threading.Lock()
        for child in CHILDREN:
            module = rng.choice((Leaf, Leaf, Slots))()
            self.root.add_module(child, module)
            for name in PARAMETERS:
                if rng.random() < 0.7:
                    self.start[child, name] = number = self.number()
                    setattr(module, name, self.parameter(number))
            if rng.random() < 0.3:
                vars(module)  # its registries are in a dict from now on
        self.known: Any = None
        self.root.held = [[0], {0: [0]}, {0}]
        if mj:
            self.arrays = Leaf()
            self.arrays.w = nn.Parameter(jnp.zeros(()))
            self.arrays.register_buffer("calls", jnp.zeros((), jnp.int32))
            self.start["arrays", "w"] = 0
        self.root.loaded = nn.Linear(2, 2)
        self.root.shared = self.root.a

    def number(self) -> int:
        with self.lock:
            return next(self.numbers)

    def parameter(self, number: int) -> Any:
        return nn.Parameter(mt.tensor([float(number)]))


def doubled(module: Any) -> Any:
    module.calls = module.calls + 1
    return module.w * 2


jitted = mj and mj.jit(doubled)


class Changed(Exception):
    """A walk met a dict that another thread has changed."""


@contextlib.contextmanager
def may_change() -> Iterator[None]:
    """Without the GIL a walk may end with what a dict says of a change while it is looped over."""
    try:
        yield
    except RuntimeError as error:
        if "changed" not in str(error) and "mutated" not in str(error):
            raise
        raise Changed from None


class Worker:
    """What one thread does."""

    def __init__(self, shared: Shared, seed: str, steps: int) -> None:
        self.shared = shared
        self.root = shared.root
        self.rng = random.Random(seed)
        self.steps = steps
        self.log = Log()
        self.handles: list[tuple[int, Any]] = []

    def run(self) -> None:
        running_hooks.ran = set()
        for _ in range(self.steps):
            step = self.rng.choice(STEPS)
            self.log.counts[step.__name__] += 1
            try:
                step(self)
            except Changed:
                pass
            except Exception as error:
                self.log.errors.append(f"{step.__name__}: {type(error).__name__}: {error}")

    def cell(self) -> tuple[str, str]:
        return self.rng.choice(CHILDREN), self.rng.choice(PARAMETERS)

    def module(self, child: str) -> Any:
        return getattr(self.root, child)

    # -- cells ---------------------------------------------------------------------------------

    def write(self) -> None:
        child, name = self.cell()
        number = self.shared.number()
        value = self.shared.parameter(number)
        module, begin = self.module(child), now()
        setattr(module, name, value)
        self.log.writes.append(((child, name), Span(begin, now()), number))

    def delete(self) -> None:
        child, name = self.cell()
        module, begin = self.module(child), now()
        try:
            delattr(module, name)
        except AttributeError:
            self.log.reads.append(((child, name), Span(begin, now()), ABSENT))
        else:
            self.log.writes.append(((child, name), Span(begin, now()), ABSENT))

    def read(self) -> None:
        child, name = self.cell()
        module, begin = self.module(child), now()
        value = getattr(module, name, None)
        end = now()
        number = ABSENT if value is None else int(value.item())
        self.log.reads.append(((child, name), Span(begin, end), number))

    def saw(self, path: str, value: Any, span: Span) -> None:
        """A walk gave a value: it was in its cell at some time of the walk."""
        child, _, name = path.rpartition(".")
        if child in CHILDREN and name in PARAMETERS:
            self.log.reads.append(((child, name), span, int(value.item())))

    # -- trees ---------------------------------------------------------------------------------

    def _walk(self, look: Callable[[], list[tuple[str, Any]]]) -> None:
        begin = now()
        with may_change():
            found = look()
        end = now()
        for path, value in found:
            self.saw(path, value, Span(begin, end))

    def walk(self) -> None:
        self._walk(lambda: list(self.root.named_parameters()))

    def walk_values(self) -> None:
        self._walk(lambda: [("", value) for value in self.root.parameters()])

    def walk_modules(self) -> None:
        for module in self.root.modules():
            assert isinstance(module, nn.Module)
        names = [name for name, _ in self.root.named_modules()]
        assert set(names) == {"", *CHILDREN, "loaded"}, names

    def state_dict(self) -> None:
        self._walk(lambda: list(self.root.state_dict().items()))

    def load(self) -> None:
        values = {name: mt.full_like(p, 1.0) for name, p in self.root.loaded.named_parameters()}
        self.root.loaded.load_state_dict(values, assign=self.rng.random() < 0.5)

    def switch(self) -> None:
        with may_change():
            self.root.train(self.rng.random() < 0.5)

    def zero_grad(self) -> None:
        with may_change():
            self.root.zero_grad()

    def convert(self) -> None:
        self.root.loaded.double() if self.rng.random() < 0.5 else self.root.loaded.float()

    def exchange(self) -> None:
        self.root.loaded.weight.data = mt.ones(2, 2)

    def read_values(self) -> None:
        weight = self.root.loaded.weight
        assert len(weight.tolist()) == weight.numpy(force=True).shape[0] == 2
        assert weight[0].sum().item() is not None

    def copy(self) -> None:
        self._walk(lambda: list(copy.deepcopy(self.root).named_parameters()))

    def pickle(self) -> None:
        self._walk(lambda: list(pickle.loads(pickle.dumps(self.root)).named_parameters()))

    def save(self) -> None:
        file = io.BytesIO()
        self._walk(lambda: mt.save(self.root.state_dict(), file) or [])

    def represent(self) -> None:
        assert "Linear" in repr(self.root)

    # -- structures ----------------------------------------------------------------------------

    def split(self) -> None:
        """Takes the tree apart, and makes another one of it."""
        begin = now()
        with may_change():
            weak = self.rng.random() < 0.5
            found = _C._split_modules((self.root, self.root.held), self.shared.known, weak)
        span = Span(begin, now())
        if not weak:  # one that holds its values weakly may lose them to another thread
            self.shared.known = found.structure
        leaves = found.leaves
        for _, path, leaf, _ in found.structure.places:
            if leaf >= 0:
                self.saw(path, leaves[leaf], span)
        if not weak:
            copy = found.structure.make(leaves, None)[0]
            assert type(copy.held) is list and copy.held is not self.root.held

    def change_held(self) -> None:
        first, second, third = self.root.held
        number = self.rng.randrange(5)
        if number == 0:
            first.append(number)
        elif number == 1:
            first.clear()
        elif number == 2:
            second[self.rng.randrange(9)] = [number]
        elif number == 3:
            second.clear()
        else:
            third ^= {self.rng.randrange(9)}

    def jit(self) -> None:
        begin = now()
        value = jitted(self.shared.arrays)
        self.log.reads.append((("arrays", "w"), Span(begin, now()), int(value) // 2))

    def update(self) -> None:
        number, begin = self.shared.number(), now()
        mj.update(self.shared.arrays, {"w": jnp.float32(number)})
        self.log.writes.append((("arrays", "w"), Span(begin, now()), number))

    def flatten(self) -> None:
        begin = now()
        copy = jax.tree.map(lambda x: x + x, self.shared.arrays)
        value = int(copy.w) // 2
        self.log.reads.append((("arrays", "w"), Span(begin, now()), value))

    # -- plain attributes ----------------------------------------------------------------------

    def note(self) -> None:
        setattr(self.module(self.rng.choice(CHILDREN)), self.rng.choice(PLAIN), self.rng.random())

    def read_note(self) -> None:
        name = self.rng.choice(PLAIN)
        value = getattr(self.module(self.rng.choice(CHILDREN)), name, 0.0)
        assert isinstance(value, float)

    def look(self) -> None:
        assert "training" in dir(self.module(self.rng.choice(CHILDREN)))

    # -- calls and hooks -----------------------------------------------------------------------

    def call(self) -> None:
        running_hooks.ran = ran = set()
        x = object()
        begin = now()
        assert self.root.b(x) is x
        self.log.calls.append((Span(begin, now()), frozenset(ran)))

    def call_layer(self) -> None:
        layer = self.root.loaded
        weight = layer.weight
        assert tuple(layer(mt.ones(1, 2, dtype=weight.dtype)).shape) == (1, 2)

    def hook(self) -> None:
        number = self.shared.number()

        module, begin = self.root.b, now()
        register = self.rng.choice((module.register_forward_hook, module.register_forward_pre_hook))
        handle = register(Noting(number))
        self.log.hooks[number] = Hook(Span(begin, now()))
        self.handles.append((number, handle))

    def unhook(self) -> None:
        if self.handles:
            number, handle = self.handles.pop(self.rng.randrange(len(self.handles)))
            begin = now()
            handle.remove()
            self.log.hooks[number].removed = Span(begin, now())


STEPS: tuple[Callable[[Worker], None], ...] = (
    *(Worker.write, Worker.delete, Worker.read, Worker.read, Worker.call, Worker.call),
    *(Worker.walk, Worker.walk_values, Worker.walk_modules, Worker.state_dict, Worker.load),
    *(Worker.switch, Worker.zero_grad, Worker.convert, Worker.copy, Worker.pickle, Worker.save),
    *(Worker.exchange, Worker.read_values),
    *(Worker.split, Worker.split, Worker.change_held),
    *((Worker.jit, Worker.update, Worker.flatten) if mj else ()),
    *(Worker.represent, Worker.note, Worker.read_note, Worker.look, Worker.hook, Worker.unhook),
)


def play(seed: str, threads: int, steps: int) -> tuple[list[Log], dict[Hashable, Any]]:
    """One tree in so many threads, each of which takes so many steps."""
    shared = Shared(random.Random(seed))
    workers = [Worker(shared, f"{seed}.{i}", steps) for i in range(threads)]
    started = [threading.Thread(target=w.run) for w in workers]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return [w.log for w in workers], shared.start
