# SPDX-License-Identifier: BSD-3-Clause
"""The name of each parameter of an optimizer, and of a saved state of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from modtree.core import families
from modtree.core.loading.mismatch import Shape, shape_of
from modtree.core.loading.rename import Rename, rename_function, rename_keys

#: Ends of the names of buffers that normalizations have, in models that are gone.
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
#: Entries of states that have an element for each of the parameter.
_ELEMENTWISE = ("exp_avg", "momentum_buffer", "square_avg", "sum", "prev", "ax", "variance")
#: Those of which two make one, where they lack a dimension each, as in transformers' Adafactor.
_FACTORS = ("exp_avg_sq_row", "exp_avg_sq_col")


class OwnParameter(NamedTuple):
    """A parameter of an optimizer.

    Attributes:
        tensor: The parameter.
        number: Its first place among those of all groups.
        group: The number of its group.
        aliases: Its other names in the model.
    """

    tensor: Any
    number: int
    group: int
    aliases: tuple[str, ...]


class SavedParameter(NamedTuple):
    """A parameter of a saved state.

    Attributes:
        key: Its key in the state.
        group: The number of its group.
        shape: Its shape when it was saved, where that is known.
    """

    key: Any
    group: int
    shape: Shape


# -- of an optimizer -------------------------------------------------------------------------------


def names_by_group(optimizer: Any, model: Any) -> list[list[str]]:
    """The names of the parameters of each group: those that the optimizer got with them, else those
    of the model.

    Raises:
        ValueError: There are neither, or a parameter is not in the model.
    """
    by_id: dict[int, str] = {}
    for name, tensor in _named_parameters(model):
        by_id.setdefault(id(tensor), name)
    found = []
    for i, group in enumerate(optimizer.param_groups):
        names = group.get("param_names")
        if names is None and model is None:
            raise ValueError(
                "the optimizer does not know the names of its parameters: pass model=, or make "
                "the optimizer of model.named_parameters()"
            )
        if names is None:
            for place, tensor in enumerate(group["params"]):
                if id(tensor) not in by_id:
                    raise ValueError(
                        f"parameter {place} of group {i} of the optimizer, of shape "
                        f"{list(shape_of(tensor) or ())}, is not in the model: pass the model that "
                        f"the optimizer was made for"
                    )
            names = [by_id[id(tensor)] for tensor in group["params"]]
        found.append(list(names))
    return found


def own_parameters(optimizer: Any, model: Any) -> dict[str, OwnParameter]:
    """The parameters of an optimizer by name.

    Raises:
        ValueError: See :func:`names_by_group`; or two parameters have one name.
    """
    places = [
        (name, tensor, i)
        for i, names in enumerate(names_by_group(optimizer, model))
        for name, tensor in zip(names, optimizer.param_groups[i]["params"], strict=True)
    ]
    aliases: dict[int, list[str]] = {}
    for name, tensor in (*_named_parameters(model), *((name, p) for name, p, _ in places)):
        aliases.setdefault(id(tensor), []).append(name)
    found: dict[str, OwnParameter] = {}
    first: dict[int, str] = {}
    for number, (name, tensor, i) in enumerate(places):
        if first.setdefault(id(tensor), name) != name:
            continue  # the optimizer has it twice
        if name not in found:
            others = dict.fromkeys(other for other in aliases[id(tensor)] if other != name)
            found[name] = OwnParameter(tensor, number, i, tuple(others))
        elif found[name].tensor is not tensor:
            raise ValueError(f"two parameters of the optimizer have the name {name!r}")
    return found


def _named_parameters(model: Any) -> Iterator[tuple[str, Any]]:
    """All names, so that a tied parameter has several."""
    if model is not None:
        yield from model.named_parameters(remove_duplicate=False)


# -- of a saved state ------------------------------------------------------------------------------


def saved_parameters(
    state_dict: Mapping[str, Any], names: Any, model: Any, rename: Rename | None
) -> dict[str, SavedParameter]:
    """The parameters of a saved state by the names that they have now.

    Args:
        state_dict: The state of an optimizer.
        names: The state dict of the model, saved beside it; or the names in the order of the state.
        model: The model that is there now, or None.
        rename: What becomes of the names.

    Raises:
        ValueError: The names are not known, or do not tell which parameter is which.
    """
    groups = state_dict["param_groups"]
    beside = names if isinstance(names, Mapping) else {}
    if all("param_names" in group for group in groups):
        known = [name for group in groups for name in group["param_names"]]
    elif all(isinstance(key, str) for group in groups for key in group["params"]):
        known = [key for group in groups for key in group["params"]]  # as torch.distributed has it
    elif isinstance(names, Mapping):
        known = _of_model(state_dict, names, model, rename)
    elif names is not None:
        known = _listed(names)
    else:
        raise ValueError(
            "the saved state does not have the names of its parameters: pass names=, the state "
            "dict of the model that was saved beside it, or a list of the names in their order. "
            "modtree.optimizer_state(optimizer, model) saves them with the state"
        )
    keys = [(key, i) for i, group in enumerate(groups) for key in group["params"]]
    if len(known) != len(keys):
        raise ValueError(
            f"the saved state has {len(keys)} parameters, and there are {len(known)} names"
        )
    found: dict[str, SavedParameter] = {}
    for name, (key, i) in zip(known, keys, strict=True):
        if name in found and found[name].key != key:
            raise ValueError(f"two parameters of the saved state have the name {name!r}")
        found[name] = SavedParameter(key, i, shape_of(beside.get(name)))
    return found if rename is None else dict(rename_keys(found, rename))


def _listed(names: Iterable[Any]) -> list[str]:
    if isinstance(names, str):
        raise TypeError(f"names takes a state dict or a list of names, got the str {names!r}")
    listed = list(names)
    for name in listed:
        if not isinstance(name, str):
            raise TypeError(
                "names takes a state dict or a list of names, got one with "
                f"{type(name).__name__} in it"
            )
    return listed


def _of_model(
    state_dict: Mapping[str, Any], saved_model: Mapping[str, Any], model: Any, rename: Any
) -> list[str]:
    """The names of a model's parameters in its order, which is that of an optimizer that got
    ``model.parameters()``.
    """
    groups = state_dict["param_groups"]
    if len(groups) > 1:
        raise ValueError(
            f"the saved state has {len(groups)} groups and no names, so that the order of the "
            "model does not tell which parameter is which: pass names=, a list of the names, group "
            "after group"
        )
    keys = groups[0]["params"]
    advice = "pass names=, a list of the names in the order in which the optimizer got them"
    candidates = _candidates(saved_model, model, rename)
    names = next((found for found in candidates if len(found) == len(keys)), None)
    if names is None:
        raise ValueError(
            f"the saved state has {len(keys)} parameters, and the model saved beside it "
            f"{len(candidates[0])} that may be parameters: {advice}"
        )
    if not hasattr(saved_model, "_metadata") and _is_sorted_only(names, model):
        raise ValueError(
            "the state dict of the model is sorted by name, as some files are, so that the order "
            f"of its parameters may be lost: {advice}"
        )
    for name, key in zip(names, keys, strict=True):
        entry = state_dict["state"].get(key)
        shape = shape_of(saved_model[name])
        if isinstance(entry, Mapping) and not may_be_of(entry, shape):
            raise ValueError(
                f"the order of the model saved beside the state is not that of the optimizer: "
                f"{name!r} has the shape {list(shape or ())}, and the state at its place that of "
                f"another: {advice}"
            )
    return list(names)


def _candidates(
    saved_model: Mapping[str, Any], model: Any, rename: Rename | None
) -> list[dict[str, str | None]]:
    """What may be the parameters among the entries of a state dict, with the names that they have
    now: without what is one parameter with another now, and without what was one in the file.
    """
    new_name = (lambda key: key) if rename is None else rename_function(rename)
    buffers = (
        {name for name, _ in model.named_buffers(remove_duplicate=False)}
        if model is not None
        else set()
    )
    names = {
        key: new_name(key)
        for key, value in saved_model.items()
        if type(key) is str and families.family_of(value) and not key.endswith(_BUFFERS)
    }
    names = {key: new for key, new in names.items() if new not in buffers}
    own = {name: id(tensor) for name, tensor in _named_parameters(model)}
    tied_now = {
        own.get(new or "", id(saved_model[key])): key for key, new in reversed(names.items())
    }
    tied_then = {id(saved_model[key]): key for key in reversed(names)}
    return [
        {key: new for key, new in names.items() if key in first}
        for first in (set(tied_now.values()), set(tied_then.values()))
    ]


def _is_sorted_only(names: Mapping[str, str | None], model: Any) -> bool:
    """True if the names are sorted, and the model has them in another order."""
    if list(names) != sorted(names):
        return False
    places = {name: i for i, (name, _) in enumerate(_named_parameters(model))}
    found = [places[new] for new in names.values() if new in places]
    return found != sorted(found)


def shapes_in(entry: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """The shapes of the tensors of a parameter's state that have dimensions."""
    shapes = (shape_of(value) for name, value in entry.items() if name != "step")
    return [shape for shape in shapes if shape]


def may_be_of(entry: Mapping[str, Any], shape: Shape) -> bool:
    """True if this may be the state of a parameter of this shape. Tensors are of its shape, or
    factors, which lack a dimension or have the size 1 in it.
    """
    shapes = shapes_in(entry)
    if shape is None or shape in shapes or "func_evals" in entry:
        return True
    if not shapes:
        return shape == () or all(shape_of(entry.get(name)) is None for name in _ELEMENTWISE)
    rows, columns = (shape_of(entry.get(name)) for name in _FACTORS)
    if rows and columns:
        return (*rows, columns[-1]) == shape and (*rows[:-1], columns[-1]) == columns
    alike = [found for found in shapes if len(found) == len(shape)]
    return tuple(map(max, *alike, *[(0,) * len(shape)])) == shape if alike else False
