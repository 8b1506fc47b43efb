# SPDX-License-Identifier: BSD-3-Clause
"""Models, and checkpoints of them that do not fit any more: what an advice about a failed load is
tried on.
"""

from __future__ import annotations

import copy
import random
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import modtree
from modtree import nn

__all__ = ["EDITS", "HARMS", "MODELS", "calls_in", "follow", "is_seen", "make_case", "wrong_values"]


# -- models ----------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.attn = nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size))


class Transformer(nn.Module):
    def __init__(self, is_tied: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.norm = nn.LayerNorm(4)
        self.lm_head = nn.Linear(4, 10, bias=False)
        if is_tied:
            self.lm_head.weight = self.embed.weight


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(3, 3)
        self.key = nn.Linear(3, 3)
        self.value = nn.Linear(3, 3)
        self.output = nn.Linear(3, 3)


class Numbered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 3, 3)
        self.conv2 = nn.Conv2d(3, 3, 3)
        self.conv3 = nn.Conv2d(3, 3, 3)
        self.fc = nn.Linear(3, 2)


class Entries(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.ParameterList([nn.Parameter(modtree.zeros(2)) for _ in range(3)])
        self.scale = nn.Parameter(modtree.zeros(2))
        self.register_buffer("table", modtree.zeros(2, 3))


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
        self.again = self.encoder
        self.head = nn.Linear(2, 2)


class Branches(nn.Module):
    """Numbers in names, with layers of one kind and shape."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(3), nn.LayerNorm(3)
        self.fc1, self.fc2 = nn.Linear(3, 4), nn.Linear(4, 3)
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.batch_norm = nn.BatchNorm1d(3)


class MultiHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.MultiheadAttention(4, 2) for _ in range(2)])
        self.head = nn.Linear(4, 3)


class Pointwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, 1)
        self.second = nn.Conv1d(3, 4, 1, bias=False)
        self.third = nn.Conv2d(4, 4, 3)
        self.fc = nn.Linear(4, 2)


def conv_bn() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Conv2d(2, 2, 3, bias=False), nn.BatchNorm2d(2), nn.ReLU()]
    return nn.Sequential(*layers)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "equal layers": lambda: nn.Sequential(*(nn.Linear(2, 2) for _ in range(3))),
    "layers and activations": lambda: nn.Sequential(
        nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)
    ),
    "layers of all sizes": lambda: nn.Sequential(
        nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)
    ),
    "no biases": lambda: nn.Sequential(
        nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False)
    ),
    "conv and norm": conv_bn,
    "transformer": Transformer,
    "tied transformer": lambda: Transformer(is_tied=True),
    "attention": Attention,
    "stages": lambda: nn.Sequential(
        *(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)) for _ in range(2))
    ),
    "dict": lambda: nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2), "c": Block()}),
    "numbers in names": Numbered,
    "entries": Entries,
    "shared": Shared,
    "branches": Branches,
    "multi head": MultiHead,
    "pointwise": Pointwise,
    "two alike": lambda: nn.ModuleDict({"student": Block(), "teacher": Block()}),
    "one layer": lambda: nn.Linear(2, 3),
}


def fill(model: nn.Module, rng: random.Random) -> None:
    """Gives all tensors values of which no two are the same."""
    for tensor in (*model.parameters(), *model.buffers()):
        with modtree.no_grad():
            tensor.copy_(modtree.tensor(rng.sample(range(1, 10**6), tensor.numel())).reshape(
                tensor.shape))  # fmt: skip


# -- what programs change in a model ---------------------------------------------------------------

Edit = Callable[[nn.Module, random.Random], None]


def _rows(model: nn.Module) -> list[Any]:
    kinds = (nn.Sequential, nn.ModuleList)
    return [part for part in model.modules() if isinstance(part, kinds) and len(part)]


def _renumber(row: Any, layers: list[nn.Module]) -> None:
    for name in list(row._modules):
        delattr(row, name)
    for i, layer in enumerate(layers):
        row.add_module(str(i), layer)


def _row_edit(change: Callable[[list[nn.Module], random.Random], list[nn.Module]]) -> Edit:
    def edit(model: nn.Module, rng: random.Random) -> None:
        rows = _rows(model)
        if rows:
            row = rng.choice(rows)
            _renumber(row, change(list(row), rng))

    return edit


def _new_like(layers: list[nn.Module], rng: random.Random) -> nn.Module:
    layer = copy.deepcopy(rng.choice(layers))
    for tensor in (*layer.parameters(), *layer.buffers()):
        tensor.is_new = True
    return layer


def _put(layers: list[nn.Module], layer: nn.Module, at: int) -> list[nn.Module]:
    return [*layers[:at], layer, *layers[at:]]


def _insert_everywhere(layers: list[nn.Module], rng: random.Random) -> list[nn.Module]:
    return [part for layer in layers for part in (layer, nn.Identity())]


def _replace(layers: list[nn.Module], rng: random.Random) -> list[nn.Module]:
    at = rng.randrange(len(layers))
    others = [*layers[:at], *layers[at + 1 :]]
    if not others:
        return layers
    return [*layers[:at], nn.Identity(), *layers[at + 1 :], _new_like(others, rng)]


def _wrap_child(model: nn.Module, rng: random.Random) -> None:
    parts = [part for part in model.modules() if part._modules and not isinstance(part, nn.ReLU)]
    if parts:
        part = rng.choice(parts)
        name = rng.choice(list(part._modules))
        part._modules[name] = nn.ModuleDict({"inner": part._modules[name]})


def _rename_child(model: nn.Module, rng: random.Random) -> None:
    parts = [
        part for part in model.modules()
        if part._modules and not isinstance(part, (nn.Sequential, nn.ModuleList))
    ]  # fmt: skip
    if parts:
        part = rng.choice(parts)
        name = rng.choice(list(part._modules))
        children = [("new" if key == name else key, child) for key, child in part._modules.items()]
        part._modules.clear()
        for key, child in children:
            part.add_module(key, child)


def _none_child(model: nn.Module, rng: random.Random) -> None:
    parts = [part for part in model.modules() if part._modules]
    if parts:
        part = rng.choice(parts)
        part._modules[rng.choice(list(part._modules))] = None


def _count_from_one(model: nn.Module, rng: random.Random) -> None:
    rows = [row for row in _rows(model) if isinstance(row, nn.ModuleList)]
    if rows:
        row = rng.choice(rows)
        layers = list(row)
        for name in list(row._modules):
            del row._modules[name]
        for i, layer in enumerate(layers, 1):
            row._modules[str(i)] = layer


def _none_buffer(model: nn.Module, rng: random.Random) -> None:
    parts = [part for part in model.modules() if part._buffers]
    if parts:
        part = rng.choice(parts)
        setattr(part, rng.choice(list(part._buffers)), None)


def _none_bias(model: nn.Module, rng: random.Random) -> None:
    parts = [part for part in model.modules() if part._parameters.get("bias") is not None]
    if parts:
        rng.choice(parts).bias = None


EDITS: dict[str, Edit] = {
    "nothing": lambda model, rng: None,
    "something in front": _row_edit(lambda row, rng: _put(row, nn.Flatten(), 0)),
    "something between": _row_edit(
        lambda row, rng: _put(row, nn.Identity(), rng.randrange(1 + len(row)))
    ),
    "something after each": _row_edit(_insert_everywhere),
    "without what has no values": _row_edit(
        lambda row, rng: [part for part in row if list(part.parameters())] or row
    ),
    "a new layer in front": _row_edit(lambda row, rng: _put(row, _new_like(row, rng), 0)),
    "a new layer somewhere": _row_edit(
        lambda row, rng: _put(row, _new_like(row, rng), rng.randrange(1 + len(row)))
    ),
    "a new layer at the end": _row_edit(lambda row, rng: [*row, _new_like(row, rng)]),
    "the first taken out": _row_edit(lambda row, rng: row[1:]),
    "the last taken out": _row_edit(lambda row, rng: row[:-1]),
    "one taken out": _row_edit(
        lambda row, rng: [part for i, part in enumerate(row) if i != len(row) // 2]
    ),
    "one replaced, one new": _row_edit(_replace),
    "one in front, the last taken out": _row_edit(
        lambda row, rng: _put(row[:-1], _new_like(row, rng), 0)
    ),
    "a wrapped child": _wrap_child,
    "a renamed child": _rename_child,
    "a child that is None": _none_child,
    "numbers from 1": _count_from_one,
    "a buffer that is None": _none_buffer,
    "a bias that is None": _none_bias,
}


# -- what happens to checkpoints -------------------------------------------------------------------

State = dict[str, Any]
Harm = Callable[[State, random.Random], State]


def _keys(change: Callable[[str], str]) -> Harm:
    return lambda state, rng: {change(key): value for key, value in state.items()}


def _values(change: Callable[[str, Any], Any]) -> Harm:
    return lambda state, rng: {key: change(key, value) for key, value in state.items()}


def _without_one(state: State, rng: random.Random) -> State:
    gone = rng.choice(list(state))
    return {key: value for key, value in state.items() if key != gone}


def _without_a_module(state: State, rng: random.Random) -> State:
    gone = rng.choice(list(state)).rpartition(".")[0] + "."
    return {key: value for key, value in state.items() if not key.startswith(gone)}


def _one_renamed(state: State, rng: random.Random) -> State:
    gone = rng.choice(list(state))
    return {key + "_x" if key == gone else key: value for key, value in state.items()}


def _half_prefixed(state: State, rng: random.Random) -> State:
    first = next(iter(state)).partition(".")[0]
    return {
        key if key.partition(".")[0] == first else f"rest.{key}": value
        for key, value in state.items()
    }


def _twice(first: str, second: str) -> Harm:
    def harm(state: State, rng: random.Random) -> State:
        other = {key: value.clone() + 1 for key, value in state.items()}
        return {first + k: v for k, v in state.items()} | {second + k: v for k, v in other.items()}

    return harm


def _without_the_first(state: State, rng: random.Random) -> State:
    shorter = {key.partition(".")[2] or key: value for key, value in state.items()}
    return shorter if len(shorter) == len(state) else state


def _shuffled(state: State, rng: random.Random) -> State:
    return dict(rng.sample(list(state.items()), len(state)))


def _shift_numbers(by: int) -> Harm:
    """The first number of each key."""
    return _keys(lambda key: re.sub(r"\d+", lambda m: str(int(m[0]) + by), key, count=1))


def _adapters(state: State, rng: random.Random) -> State:
    new: State = {}
    for key, value in state.items():
        if key.endswith(".weight") and value.ndim == 2:
            path = key.removesuffix(".weight")
            new[f"base_model.model.{path}.base_layer.weight"] = value
            new[f"base_model.model.{path}.lora_A.default.weight"] = modtree.zeros(1, value.shape[1])
            new[f"base_model.model.{path}.lora_B.default.weight"] = modtree.zeros(value.shape[0], 1)
        else:
            new[f"base_model.model.{key}"] = value
    return new


def _turn(value: Any) -> Any:
    return value.T if value.ndim == 2 else value


def _fused(state: State, rng: random.Random) -> State:
    """As nn.MultiheadAttention has queries, keys and values."""
    new = dict(state)
    for names in (("query", "key", "value"), ("q_proj", "k_proj", "v_proj")):
        for key in state:
            match = re.match(rf"(.*\b){names[0]}\.(weight|bias)$", key)
            parts = [f"{match[1]}{name}.{match[2]}" for name in names] if match else []
            if match and all(part in state for part in parts):
                joined = modtree.cat([new.pop(part) for part in parts])
                new[f"{match[1]}in_proj_{match[2]}"] = joined
    return new


def _split(names: tuple[str, str, str], by: str = "in_proj_") -> Harm:
    def harm(state: State, rng: random.Random) -> State:
        new: State = {}
        for key, value in state.items():
            if by in key and len(value) % 3 == 0:
                for name, part in zip(names, value.chunk(3), strict=True):
                    new[key.replace(by, f"{name}.")] = part.clone()
            else:
                new[key] = value
        return new

    return harm


def _other_fused(state: State, rng: random.Random) -> State:
    """As other programs have them, of which nobody knows the order of rows."""
    return {key.replace("in_proj_", "qkv."): value for key, value in _fused(state, rng).items()}


def _pointwise(state: State, rng: random.Random) -> State:
    """Linear layers as convolutions, and these as linear layers."""
    new: State = {}
    for key, value in state.items():
        if value.ndim == 2 and key.endswith("weight"):
            value = value.reshape(*value.shape, 1, 1)
        elif value.ndim > 2 and value.shape[2:].numel() == 1:
            value = value.reshape(value.shape[:2])
        new[key] = value
    return new


def _moved_to_end(state: State, rng: random.Random) -> State:
    first = next(iter(state))
    return {key: value for key, value in state.items() if key != first} | {first: state[first]}


HARMS: dict[str, Harm] = {
    # Those that the causes know.
    "DataParallel": _keys(lambda key: f"module.{key}"),
    "torch.compile": _keys(lambda key: f"_orig_mod.{key}"),
    "two prefixes": _keys(lambda key: f"module.model.{key}"),
    "a prefix of its own": _keys(lambda key: f"net.{key}"),
    "without the first part": _without_the_first,
    "kernel": _keys(lambda key: re.sub(r"\bweight$", "kernel", key)),
    "gamma and beta": _keys(
        lambda key: re.sub(r"\bbias$", "beta", re.sub(r"\bweight$", "gamma", key))
    ),
    "another name": _keys(lambda key: key.replace("attn", "self_attn")),
    "another name of a row": _keys(lambda key: re.sub("^layers", "h", key)),
    "transposed": _values(lambda key, value: _turn(value)),
    "some transposed": _values(lambda key, value: _turn(value) if "0" in key else value),
    "adapters": _adapters,
    "nested": lambda state, rng: {"state_dict": state, "epoch": 3},
    "nested twice": lambda state, rng: {"checkpoint": {"model": state}, "args": {}},
    "a nested copy": lambda state, rng: {
        "model": state,
        "ema": {key: value.clone() + 1 for key, value in state.items()},
    },  # fmt: skip
    "averages": lambda state, rng: {
        **{f"module.{key}": value for key, value in state.items()},
        "n_averaged": modtree.ones(1),
    },
    "nested averages": lambda state, rng: {"ema": state, "epoch": 3},
    "underscores": _keys(lambda key: key.replace(".", "_")),
    "no separators": _keys(lambda key: key.replace(".", "")),
    "dots before numbers": _keys(lambda key: re.sub(r"(?<=[a-z])(\d+)(?=\.|$)", r".\1", key)),
    "numbers behind underscores": _keys(lambda key: re.sub(r"\.(\d+)", r"_\1", key)),
    "fused": _fused,
    "fused otherwise": _other_fused,
    "split": _split(("q_proj", "k_proj", "v_proj")),
    "split otherwise": _split(("to_q", "to_k", "to_v")),
    "pointwise": _pointwise,
    "half": _values(lambda key, value: value.to(modtree.float64)),
    # Those that they do not.
    "numbers from 1": _shift_numbers(1),
    "numbers from 5": _shift_numbers(5),
    "one lost": _without_one,
    "a module lost": _without_a_module,
    "one renamed": _one_renamed,
    "half of it prefixed": _half_prefixed,
    "a teacher": _twice("student.", "teacher."),
    "a copy of all": _twice("", "ema."),
    "shuffled": _shuffled,
    "sorted": lambda state, rng: dict(sorted(state.items())),
    "reversed": lambda state, rng: dict(reversed(state.items())),
    "slashes": _keys(lambda key: key.replace(".", "/")),
    "upper case": _keys(str.upper),
    "an ending": _keys(lambda key: f"{key}:0"),
    "numbers without dots": _keys(lambda key: re.sub(r"\.(\d+)", r"\1", key)),
    "numbers with zeros": _keys(lambda key: re.sub(r"\b(\d)\b", r"0\1", key)),
    "one more": lambda state, rng: state | {"step": modtree.zeros(1)},
    "more layers": lambda state, rng: state | {f"{key}x": v.clone() for key, v in state.items()},
    "a size of one more": _values(lambda key, value: value.reshape(1, *value.shape)),
    "flat": _values(lambda key, value: value.reshape(-1)),
    "moved": _moved_to_end,
    "odd layers": _keys(lambda key: re.sub(r"\d+", lambda m: str(2 * int(m[0])), key, count=1)),
    "the names of a query": _keys(lambda key: key.replace("query", "wq").replace("key", "wk")),
    "tops": lambda state, rng: dict(list(state.items())[: 1 + len(state) // 2]),
}


def make_case(
    model: str, edit: str, harms: tuple[str, ...], seed: int
) -> tuple[nn.Module, State, State]:
    """A model, a state dict, and what of it is right in the model by the keys of the model."""
    rng = random.Random(seed)
    source = MODELS[model]()
    fill(source, rng)
    target = copy.deepcopy(source)
    EDITS[edit](target, rng)
    right = {
        key: value.detach().clone()
        for key, value in target.state_dict(keep_vars=True).items()
        if not getattr(value, "is_new", False)
    }
    state = dict(source.state_dict())
    for harm in sorted(harms, key=lambda name: "nested" in name):
        state = HARMS[harm](state, rng)
    fill(target, rng)
    return target, state, right


# -- advice ----------------------------------------------------------------------------------------


def calls_in(text: str) -> Iterator[str]:
    """The programs that the text of a failed load suggests."""
    for line in text.splitlines():
        for way in line.split("Try: ")[1:]:
            if "modtree.from_numpy" in way or "nn.utils" in way:
                yield way.removesuffix(".")
                continue
            match = re.search(r"(own = model.state_dict\(\); )?model\.load_state_dict\(", way)
            if match:
                yield match[0] + _balanced(way[match.end() :])
        if "Try: " not in line:
            at = line.find("model.load_state_dict(")
            if at >= 0:
                yield "model.load_state_dict(" + _balanced(line[at + 22 :])


def _balanced(text: str) -> str:
    depth, quote = 1, ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote and text[at - 1] != "\\" else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if not depth:
                return text[: at + 1]
    raise AssertionError(f"no call: {text}")


def follow(call: str, model: nn.Module, state: State) -> None:
    """Runs what a text suggests, as a user would paste it."""
    scope = {"model": model, "state_dict": state, "re": re, "nn": nn, "modtree": modtree}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(call, scope)


def wrong_values(
    model: nn.Module, before: State, right: State, may_be_turned: bool = False
) -> list[str]:
    """The keys whose values are neither right nor what they were before the load.

    Args:
        may_be_turned: A square entry that was transposed when it was saved counts as right: nobody
            can see that.
    """

    def is_right(key: str, value: Any) -> bool:
        fitting = [before[key].numpy()]
        if key in right:
            own = right[key].numpy()
            fitting += [own, own.T] if may_be_turned and own.ndim == 2 else [own]
        return any(np.array_equal(value.numpy(), other) for other in fitting)

    return [key for key, value in model.state_dict().items() if not is_right(key, value)]


def is_seen(model: str, edit: str, seed: int) -> bool:
    """Does a load notice the edit, or give the right model?"""
    target, state, right = make_case(model, edit, (), seed)
    before = {key: value.clone() for key, value in target.state_dict().items()}
    try:
        target.load_state_dict(state)
    except RuntimeError:
        return True
    return not wrong_values(target, before, right)
