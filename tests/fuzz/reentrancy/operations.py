# SPDX-License-Identifier: BSD-3-Clause
"""What a round does while its triggers are armed: every method of modules and containers,
operations on tensors, backward passes.
"""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import pickle
import random
from collections.abc import Callable
from typing import Any

import triggers
from triggers import Stop, fire, state
from world import SHAPES, World

import modtree
from modtree import _C, nn

Operation = Callable[[World, random.Random], Any]

# Switches of the process, other devices, files, and what would wait or take all memory.
NOT_CALLED = {
    "cuda",
    "xpu",
    "ipu",
    "mtia",
    "compile",
    "save",
    "load",
    "seed",
    "manual_seed",
    "initial_seed",
    "set_rng_state",
    "set_printoptions",
    "set_default_dtype",
    "set_default_tensor_type",
    "set_float32_matmul_precision",
    "use_deterministic_algorithms",
    "set_grad_enabled",
    "__init_subclass__",
    "__subclasshook__",
    "__class__",
    "__new__",
    "annotations",
    "Any",
}


def callables(owner: Any) -> list[str]:
    names = [n for n in dir(owner) if n not in NOT_CALLED and not n.startswith("_set_")]
    return [
        n
        for n in names
        if callable(getattr(owner, n, None)) and not isinstance(getattr(owner, n), type)
    ]


FUNCTIONS = [(modtree, n) for n in callables(modtree)]
FUNCTIONS += [(nn.functional, n) for n in callables(nn.functional)]
FUNCTIONS += [(modtree.linalg, n) for n in callables(modtree.linalg)]
METHODS = callables(modtree.Tensor)
MODULE_METHODS = callables(nn.Module)
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
CONTAINER_METHODS = {c: [n for n in callables(c) if n in vars(c)] for c in CONTAINERS}


def consume(result: Any) -> Any:
    """Iterators are walked some steps, firing at each."""
    if hasattr(result, "__next__"):
        for _ in itertools.islice(result, 12):
            fire("step")
    return result


# -- arguments -------------------------------------------------------------------------------------


def argument(w: World, rng: random.Random, deep: bool = True) -> Any:
    chance = rng.random()
    if chance < 0.4:
        return w.tensor(rng)
    if chance < 0.5:
        return w.a_list(rng)
    if chance < 0.6:
        return rng.choice((-2, -1, 0, 1, 2, 3, 0.5, True, None))
    if chance < 0.75:
        kind = rng.choice((triggers.Number, triggers.FireInt, triggers.FireFloat))
        return kind(rng.choice((-1, 0, 1, 2)))
    if chance < 0.8 and deep:
        return tuple(argument(w, rng, False) for _ in range(rng.randrange(4)))
    return rng.choice(
        (
            lambda: triggers.ArrayLike([1.0, 2.0]),
            lambda: triggers.steps(w.a_list(rng)),
            lambda: triggers.FireTuple((0, 1)),
            lambda: triggers.FireList([triggers.Number(1), triggers.Number(2)]),
            lambda: [triggers.Number(rng.randrange(3)), triggers.FireInt(1)],
            lambda: slice(triggers.Number(0), triggers.Number(2)),
            lambda: triggers.Text("mean"),
            lambda: rng.choice((modtree.float32, modtree.int64, modtree.float64, modtree.bool)),
            lambda: w.module(rng),
            triggers.Dying,
            lambda: fire_function,
            lambda: w.tensor(rng).numpy(),
            lambda: w.name(rng),
            lambda: {"a": w.tensor(rng)},
        )
    )()


def fire_function(*args: Any, **kwargs: Any) -> Any:
    fire("function")
    return args[0] if args else None


KEYWORDS = {
    "dim": lambda w, rng: rng.choice((0, 1, -1, triggers.Number(0), (0, triggers.Number(1)))),
    "out": lambda w, rng: w.tensor(rng),
    "keepdim": lambda w, rng: rng.choice((True, triggers.Number(1))),
    "dtype": lambda w, rng: rng.choice((modtree.float64, modtree.int64, "float32")),
    "alpha": lambda w, rng: triggers.Number(2),
    "requires_grad": lambda w, rng: triggers.Number(1),
    "axis": lambda w, rng: triggers.FireInt(0),
}


def keywords(w: World, rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.7:
        return {}
    name = rng.choice(list(KEYWORDS))
    return {(triggers.Text(name) if rng.random() < 0.2 else name): KEYWORDS[name](w, rng)}


def arguments(w: World, rng: random.Random) -> list[Any]:
    return [argument(w, rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3)))]


def arguments_of_a_function(w: World, rng: random.Random) -> list[Any]:
    """Mostly what gets as far as the computation."""
    if rng.random() < 0.3:
        return arguments(w, rng)
    first = modtree.ones(rng.choice(SHAPES[:3]), requires_grad=rng.random() < 0.5)
    if rng.random() < 0.3:
        first = w.tensor(rng)
    rest = rng.choice(((), (), (first,), (modtree.ones(2, 2),), (rng.choice((0, 1)),)))
    return [first, *rest] if rng.random() < 0.7 else [first, *rest, argument(w, rng)]


# -- modules ---------------------------------------------------------------------------------------


def any_module_method(w, rng):
    m = w.module(rng)
    name = rng.choice(MODULE_METHODS)
    state.note(f"    .{name}")
    return getattr(m, name)(*arguments(w, rng))


def a_method_of_its_class(w, rng):
    m = w.module(rng)
    names = next((v for k, v in CONTAINER_METHODS.items() if isinstance(m, k)), MODULE_METHODS)
    name = rng.choice(names)
    state.note(f"    .{name}")
    return getattr(m, name)(*[container_argument(w, rng) for _ in range(rng.choice((0, 1, 1, 2)))])


def container_argument(w, rng):
    return rng.choice(
        (
            lambda: w.module(rng),
            lambda: nn.Identity(),
            lambda: triggers.Number(rng.choice((-1, 0, 1))),
            lambda: rng.choice((-1, 0, 1, 2)),
            lambda: triggers.steps([nn.Identity(), w.module(rng)]),
            lambda: triggers.FireList([nn.Identity(), nn.Identity()]),
            lambda: triggers.OwnMapping({"a": nn.Identity(), "b": w.module(rng)}),
            lambda: triggers.FireDict({"a": nn.Identity(), "0": w.module(rng)}),
            lambda: [("a", nn.Identity()), triggers.FireTuple(("b", nn.Identity()))],
            lambda: slice(triggers.Number(0), triggers.Number(1)),
            lambda: w.name(rng),
            lambda: w.new_parameter(),
            lambda: w.tensor(rng),
        )
    )()


def walk(w, rng):
    name = rng.choice(
        (
            "modules",
            "named_modules",
            "children",
            "named_children",
            "parameters",
            "named_parameters",
            "buffers",
            "named_buffers",
        )
    )
    state.note(f"    .{name}")
    m = w.module(rng)
    if name == "named_modules" and rng.random() < 0.4:
        memo = triggers.FireSet() if rng.random() < 0.5 else set()
        return m.named_modules(memo, triggers.Text("pre"), triggers.Number(1))
    if name.startswith("named_") and name != "named_children" and rng.random() < 0.4:
        return getattr(m, name)(prefix=w.name(rng), remove_duplicate=rng.random() < 0.5)
    return getattr(m, name)()


def named_members(w, rng):
    def members(module):
        fire("members")
        return rng.choice(
            (lambda: module._parameters.items(), lambda: triggers.steps([("x", w.tensor(rng))]))
        )()

    return w.module(rng)._named_members(members, prefix=w.name(rng))


def train(w, rng):
    return w.module(rng).train(rng.random() < 0.5)


def apply(w, rng):
    return w.module(rng).apply(fire_function)


def convert(w, rng):
    m = w.module(rng)
    return rng.choice(
        (
            lambda: m.double(),
            lambda: m.float(),
            lambda: m.half(),
            lambda: m.to(modtree.float64),
            lambda: m.to("meta"),
            lambda: m.to_empty(device="cpu"),
            lambda: m._apply(lambda t: (fire("convert"), t.double())[1]),
            lambda: m._apply(lambda t: (fire("convert"), t.clone())[1], triggers.Number(1)),
            lambda: m._apply(_C.KeepTies(lambda t: (fire("convert"), t.double())[1])),
            lambda: m.requires_grad_(rng.random() < 0.5),
            lambda: m.zero_grad(triggers.Number(rng.randrange(2))),
        )
    )()


def save(w, rng):
    m = w.module(rng)
    if rng.random() < 0.4:
        destination = rng.choice(
            (triggers.FireDict, triggers.FireOrderedDict, triggers.OwnMapping, dict)
        )()
        w.dicts.append(destination)
        return m.state_dict(
            destination=destination, prefix=w.name(rng), keep_vars=triggers.Number(1)
        )
    w.dicts.append(m.state_dict(keep_vars=rng.random() < 0.5, clone=rng.random() < 0.3))
    return w.dicts[-1]._metadata if rng.random() < 0.5 else None


def load(w, rng):
    m = w.module(rng)
    entries = dict(rng.choice(w.dicts)) if w.dicts and rng.random() < 0.3 else dict(m.state_dict())
    if rng.random() < 0.3:
        entries = {**{w_key(rng): w.tensor(rng)}, **entries}
    if rng.random() < 0.3:
        entries["a.b.c"] = triggers.DyingTensor([1.0, 2.0])
    if rng.random() < 0.4:
        kind = rng.choice((triggers.FireDict, triggers.FireOrderedDict, triggers.OwnMapping))
        entries = kind(entries)
    w.dicts.append(entries)
    if rng.random() < 0.2:
        missing = triggers.FireList()
        w.lists.append(missing)
        return m._load_from_state_dict(entries, w.name(rng), {}, True, missing, missing, missing)
    return m.load_state_dict(
        entries, strict=triggers.Number(rng.randrange(2)), assign=rng.random() < 0.4
    )


def w_key(rng):
    text = rng.choice(("a", "a.weight", "b.p", "weight", "0.bias", "x"))
    return rng.choice((triggers.Key(text), triggers.Text(text)))


def call(w, rng):
    m = w.module(rng)
    x = rng.choice((modtree.ones(2, 2, requires_grad=True), w.tensor(rng)))
    result = m(x, **({triggers.Text("input"): 1} if rng.random() < 0.05 else {}))
    if isinstance(result, modtree.Tensor):
        w.graph.append(result)
        if rng.random() < 0.5:
            result.sum().backward()
    return None


def attributes(w, rng):
    m, name = w.module(rng), w.name(rng)
    return rng.choice(
        (
            lambda: getattr(m, name),
            lambda: hasattr(m, name),
            lambda: setattr(m, name, w.value(rng)),
            lambda: delattr(m, name),
            lambda: m.register_buffer(name, w.tensor(rng), persistent=triggers.Number(0)),
            lambda: m.register_parameter(name, rng.choice(w.params)),
            lambda: m.add_module(name, w.module(rng)),
            lambda: m.get_submodule(triggers.Text("a.b")),
            lambda: m.get_parameter("a.p"),
            lambda: m.set_submodule("a.x", nn.Module()),
            lambda: dir(m),
            lambda: m.__dict__,
            lambda: vars(m),
            lambda: object.__setattr__(m, name, 1),
            lambda: nn.Module.__getattr__(m, name),
            lambda: nn.Module.__setattr__(m, name, w.value(rng)),
        )
    )()


def copies(w, rng):
    m = rng.choice((w.module(rng), w.tensor(rng), w.module(rng)))
    return rng.choice(
        (
            lambda: copy.copy(m),
            lambda: copy.deepcopy(m),
            lambda: copy.deepcopy(m, triggers.FireDict()),
            lambda: pickle.loads(pickle.dumps(m)),
            lambda: m.__getstate__(),
            lambda: m.__setstate__(triggers.FireDict(m.__dict__)),
            lambda: pickle.dumps(m, 5),
            lambda: modtree.save(m.state_dict(), io.BytesIO()),
        )
    )()


def text(w, rng):
    m = w.module(rng)
    return rng.choice((repr, str, dir, hash, len, list, bool))(m)


def new_module(w, rng):
    w.modules.append(w.new_module())
    if rng.random() < 0.3:
        w.modules.append(nn.Sequential(*[w.module(rng) for _ in range(2)]))


# -- tensors ---------------------------------------------------------------------------------------


def a_function(w, rng):
    owner, name = rng.choice(FUNCTIONS)
    state.note(f"    {owner.__name__}.{name}")
    return keep(w, getattr(owner, name)(*arguments_of_a_function(w, rng), **keywords(w, rng)))


def a_tensor_method(w, rng):
    name = rng.choice(METHODS)
    state.note(f"    Tensor.{name}")
    return keep(
        w, getattr(w.tensor(rng), name)(*arguments_of_a_function(w, rng)[1:], **keywords(w, rng))
    )


def keep(w: World, result: Any) -> Any:
    if isinstance(result, modtree.Tensor) and len(w.graph) < 12 and result.numel() < 100:
        w.graph.append(result)
    return result


def list_argument(w, rng):
    """Functions of a list of tensors that is in the hands of the triggers."""
    shape = rng.choice(SHAPES[:3])
    items = [modtree.ones(shape, requires_grad=rng.random() < 0.5) for _ in range(3)]
    if rng.random() < 0.4:
        items[1] = triggers.DyingTensor(items[1].detach().numpy())
    if rng.random() < 0.3:
        items = triggers.FireList(items)
    w.lists.append(items)
    name = rng.choice(
        (
            "cat",
            "stack",
            "hstack",
            "vstack",
            "meshgrid",
            "broadcast_tensors",
            "concat",
        )
    )
    state.note(f"    {name}")
    given = triggers.steps(items) if rng.random() < 0.1 else items
    if name in ("cat", "stack") and rng.random() < 0.4:
        out = {"out": w.tensor(rng)} if rng.random() < 0.5 else {}
        return keep(w, getattr(modtree, name)(given, dim=triggers.Number(0), **out))
    if name in ("meshgrid", "broadcast_tensors"):
        return getattr(modtree, name)(*given)
    return keep(w, getattr(modtree, name)(given))


def good_call(w, rng):
    """Calls that get as far as the computation."""
    t = modtree.ones(2, 2, requires_grad=rng.random() < 0.6)
    u = w.tensor(rng)
    n = triggers.Number
    w.lists.append([t, t])
    return keep(
        w,
        rng.choice(
            (
                lambda: t + n(1),
                lambda: n(2) * t,
                lambda: t + u,
                lambda: t**2,
                lambda: modtree.einsum("ij,jk->ik", w.lists[-1]),
                lambda: modtree.einsum(triggers.Text("ij,jk->ik"), t, t),
                lambda: modtree.add(t, t, alpha=n(2)),
                lambda: modtree.add(u, u, out=u),
                lambda: modtree.where(t > 0, t, u),
                lambda: t[n(0)],
                lambda: t[triggers.FireList([n(0), n(1)])],
                lambda: t[n(0), triggers.FireInt(1)],
                lambda: t[[0, 1], triggers.steps([0])],
                lambda: u.__setitem__(n(0), n(3)),
                lambda: u.__setitem__(triggers.FireTuple((0,)), w.lists[-1][0]),
                lambda: t.sum(dim=(n(0), n(1))),
                lambda: t.sum(triggers.FireList([0])),
                lambda: t.reshape(n(1), n(-1)),
                lambda: t.reshape(triggers.FireTuple((4,))),
                lambda: t.view(triggers.FireList([4])),
                lambda: t.permute(n(1), n(0)),
                lambda: modtree.zeros(n(2), n(2)),
                lambda: modtree.zeros(triggers.FireList([2, 2])),
                lambda: modtree.full((n(2),), n(3)),
                lambda: modtree.tensor(triggers.FireList([[1.0, n(2)], triggers.FireList([1, 2])])),
                lambda: modtree.tensor(triggers.ArrayLike([1.0])),
                lambda: modtree.tensor([t[0], u]),
                lambda: modtree.as_tensor(w.lists[-1]),
                lambda: t.split(triggers.FireList([1, 1])),
                lambda: t.index_put((modtree.tensor([0]),), t[0]),
                lambda: nn.functional.linear(t, t, t[0]),
                lambda: nn.functional.softmax(t, dim=n(1)),
                lambda: nn.functional.layer_norm(t, triggers.FireList([2])),
                lambda: nn.functional.cross_entropy(t, modtree.tensor([0, 1])),
                lambda: nn.functional.conv1d(t[None], t[None], padding=n(1)),
                lambda: nn.functional.max_pool2d(t[None, None], n(1)),
                lambda: nn.functional.dropout(t, p=triggers.FireFloat(0.5)),
                lambda: nn.functional.embedding(modtree.tensor([0, 1]), t),
                lambda: t.to(u),
                lambda: t.type_as(u),
                lambda: t.add_(u),
                lambda: t.copy_(u),
                lambda: u.copy_(t, n(1)),
                lambda: t.backward(u),
                lambda: t.clone().mul_(u).add_(t),
                lambda: modtree._C.wrap(triggers.ArrayLike([1.0])),
                lambda: modtree._C._result_type(u, n(1)),
            )
        )(),
    )


def backward(w, rng):
    roots = [t.sum() for t in (*w.graph, *w.params) if t.requires_grad and t.is_floating_point()]
    if not roots:
        return None
    w.lists.append(roots)
    leaves = [t for t in (*w.tensors, *w.params) if t.requires_grad]
    w.lists.append(leaves)
    keep_graph = rng.random() < 0.6
    grads = [modtree.ones(()) for _ in roots]
    w.lists.append(grads)
    return rng.choice(
        (
            lambda: roots[0].backward(retain_graph=keep_graph),
            lambda: modtree.autograd.backward(roots, grads, retain_graph=keep_graph),
            lambda: modtree.autograd.backward(
                roots, retain_graph=triggers.Number(1), inputs=leaves
            ),
            lambda: modtree.autograd.grad(
                roots, leaves, allow_unused=True, retain_graph=keep_graph
            ),
            lambda: modtree.autograd.grad(
                roots, leaves, grads, create_graph=True, allow_unused=True
            ),
            lambda: roots[-1].backward(create_graph=True),
        )
    )()


def graph(w, rng):
    t = w.tensor(rng)
    node = t.grad_fn
    if node is None:
        return repr(t)
    seen = 0
    while node is not None and seen < 5:
        seen += 1
        node.name(), node.metadata, repr(node), node._saved_result
        following = [n for n, _ in node.next_functions if n is not None]
        node = rng.choice(following) if following else None
    return None


def optimizer_step(w, rng):
    params = [p for p in w.params if p.requires_grad and p.is_leaf]
    kind = rng.choice((modtree.optim.SGD, modtree.optim.Adam, modtree.optim.RMSprop))
    optimizer = kind(triggers.steps(params) if rng.random() < 0.3 else params, lr=0.1)
    for p in params:
        p.grad = modtree.ones_like(p)
    return optimizer.step()


def attribute_of_a_tensor(w, rng):
    t = w.tensor(rng)
    return rng.choice(
        (
            lambda: setattr(t, "grad", w.tensor(rng)),
            lambda: setattr(t, "data", w.tensor(rng)),
            lambda: setattr(t, "requires_grad", triggers.Number(1)),
            lambda: getattr(t, w.name(rng)),
            lambda: setattr(t, w.name(rng), triggers.Dying()),
            lambda: delattr(t, "grad"),
            lambda: delattr(t, "tag"),
            lambda: t.__dict__,
            lambda: setattr(t, "__dict__", {}),
            lambda: setattr(t, "__class__", triggers.DyingTensor),
            lambda: t.__setstate__(t.__reduce_ex__(2)),
        )
    )()


OPERATIONS: list[Operation] = [
    any_module_method,
    a_method_of_its_class,
    a_method_of_its_class,
    walk,
    walk,
    walk,
    named_members,
    train,
    train,
    apply,
    convert,
    convert,
    save,
    save,
    load,
    load,
    call,
    call,
    call,
    attributes,
    attributes,
    attributes,
    attributes,
    copies,
    copies,
    text,
    new_module,
    a_function,
    a_function,
    a_tensor_method,
    a_tensor_method,
    list_argument,
    list_argument,
    good_call,
    good_call,
    good_call,
    backward,
    backward,
    graph,
    optimizer_step,
    attribute_of_a_tensor,
]

ON_TENSORS = OPERATIONS[OPERATIONS.index(a_function) :]

# What user code that is changed under its feet may see. MemoryError: a shape made of the values of
# a tensor.
SENSIBLE = (
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    ArithmeticError,
    StopIteration,
    MemoryError,
    ImportError,
    BufferError,
    pickle.PickleError,
    copy.Error,
    Stop,
)


def run_one(w: World, rng: random.Random, favourite: Operation | None = None) -> None:
    operation = favourite if favourite and rng.random() < 0.7 else rng.choice(OPERATIONS)
    state.note(f"  {operation.__name__}")
    state.group = "tensors" if operation in ON_TENSORS else "tree"
    consume(operation(w, rng))


def drop(w: World) -> None:
    for pool in vars(w).values():
        if isinstance(pool, list):
            with contextlib.suppress(Exception):
                pool.clear()
