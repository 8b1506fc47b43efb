# SPDX-License-Identifier: BSD-3-Clause
"""Ways in which programs write classes of modules, and objects of them."""

from __future__ import annotations

import abc
import copy
import functools
import gc
import pickle
import threading
import types
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from outcome import error_of, part, report, seed, state, tree
from torch import nn

T = TypeVar("T")


class Base(nn.Module, abc.ABC):
    kinds: list[str] = []

    def __init_subclass__(cls, kind: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        Base.kinds.append(kind or cls.__name__)

    @abc.abstractmethod
    def size(self) -> int: ...


class Concrete(Base, kind="concrete"):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def size(self) -> int:
        return sum(p.numel() for p in self.parameters())

    @property
    def broken(self) -> int:
        return self.inner.nothing

    @functools.cached_property
    def cached(self) -> torch.Tensor:
        return self.inner.weight.detach() * 2

    @property
    def gain(self) -> float:
        return self.__dict__.get("_gain", 1.0)

    @gain.setter
    def gain(self, value: float) -> None:
        self.__dict__["_gain"] = value


@dataclass(eq=False)
class Data(nn.Module):
    width: int
    name: str = "data"
    sizes: list[int] = field(default_factory=lambda: [1, 2])

    def __post_init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(self.width, self.width)


class Before(nn.Module):
    """Attributes that are there before ``super().__init__()``."""

    limit = 3

    def __init__(self) -> None:
        self.early = 1
        super().__init__()
        self.late = nn.Parameter(torch.ones(1))


class Table(nn.Module, Mapping, Generic[T]):
    def __init__(self, **entries: nn.Module) -> None:
        super().__init__()
        self.entries = nn.ModuleDict(entries)

    def __getitem__(self, key: str) -> nn.Module:
        return self.entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    __hash__ = nn.Module.__hash__
    __eq__ = object.__eq__


class Slots(nn.Module):
    __slots__ = ("special",)


class Guess(nn.Module):
    """An attribute that is nowhere comes from the inner module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)


class Cooperative:
    def __init__(self, tag: str = "none", **rest: Any) -> None:
        super().__init__(**rest)
        self.tag = tag


class Mixed(Cooperative, nn.Linear):
    pass


def classes() -> dict[str, Any]:
    concrete = Concrete()
    concrete.gain = 2.5
    table: Table[nn.Module] = Table(a=nn.Linear(1, 1), b=nn.ReLU())
    slots = Slots()
    slots.special = 4
    slots.usual = 5
    guess = Guess(nn.Linear(3, 2))
    mixed = Mixed(in_features=2, out_features=1, tag="mixed")
    return {
        "abstract": error_of(Base),
        "kinds": Base.kinds,
        "size": concrete.size(),
        # modtree's message names what is missing inside (docs/compat.md).
        "broken": error_of(lambda: concrete.broken).partition(":")[0],
        "cached": [concrete.cached, "cached" in vars(concrete)],
        "gain": [concrete.gain, "gain" in vars(concrete)],
        "early": error_of(Before),
        "data": [error_of(lambda: Data(2)), Data.__doc__],
        "table": [list(table), len(table), str(table["b"]), tree(table)],
        "slots": [slots.special, slots.usual, "special" in vars(slots)],
        "guess": [guess.in_features, error_of(lambda: guess.nothing), tree(guess)],
        "mixed": [mixed.tag, state(mixed), [c.__name__ for c in Mixed.__mro__]],
        "wrong": [
            error_of(lambda: nn.Linear(2)),
            error_of(lambda: nn.Module(3)),
            error_of(lambda: setattr(mixed, "weight", 3)),
            error_of(lambda: nn.Module()(1)),
            error_of(lambda: nn.Linear(1, 1).nothing),
            error_of(lambda: delattr(nn.Linear(1, 1), "nothing")),
            error_of(lambda: nn.Linear(1, 1).get_submodule("x.y")),
        ],
        # modtree's messages say more.
        "wrong names": [
            error_of(lambda: nn.Linear(1, 1).register_buffer("a.b", None))[:36],
            error_of(lambda: nn.Linear(1, 1).add_module("weight", nn.ReLU()))[:36],
        ],
        "dir": sorted(set(dir(concrete)) - set(dir(nn.Module))),
    }


def objects() -> dict[str, Any]:
    dead: list[str] = []
    facts = living(dead)
    gc.collect()
    return {**facts, "dead": sorted(dead)}


def living(dead: list[str]) -> dict[str, Any]:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    weakref.finalize(net[0], dead.append, "gone")
    shallow = copy.copy(net)
    shallow.add_module("more", nn.Tanh())
    net[1].__class__ = nn.Sigmoid
    net[0].forward = types.MethodType(lambda self, x: x + self.bias, net[0])
    outs = [net(torch.ones(1, 2))]
    cycle = Concrete()
    cycle.inner.parent = [cycle]
    weakref.finalize(cycle, dead.append, "cycle")
    del cycle
    pickled = error_of(lambda: pickle.dumps(net))
    return {
        "shallow": [tree(net), tree(shallow)],
        "outs": outs,
        "pickled": pickled.partition(" object")[0].partition("'")[0],
        "entries": sorted(vars(net[0])),
        "registries": [type(vars(net)[k]).__name__ for k in sorted(vars(net))],
        "hash": hash(net) == hash(net),
        "in a set": len({*net.modules(), *net.modules()}),
    }


def threads() -> dict[str, Any]:
    """One model used by several threads, with hooks that come and go."""
    net = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)]).eval()
    x = torch.ones(2, 4)
    expected = net(x)
    lock = threading.Lock()
    count = [0]

    def hook(module: nn.Module, args: Any, out: Any) -> None:
        with lock:
            count[0] += 1

    def work(index: int) -> bool:
        good = True
        for _ in range(20):
            handle = net[index % 4].register_forward_hook(hook)
            with torch.no_grad():
                good &= torch.equal(net(x), expected)
            good &= len(net.state_dict()) == 8 and len(list(net.modules())) == 13
            handle.remove()
        return good

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(work, range(8)))
    return {"answers": answers, "hooked": count[0] >= 160, "left": len(net[0]._forward_hooks)}


def main() -> dict[str, Any]:
    seed()
    return {"classes": part(classes), "objects": part(objects), "threads": part(threads)}


if __name__ == "__main__":
    report(main())
