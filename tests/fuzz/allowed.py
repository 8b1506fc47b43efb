# SPDX-License-Identifier: BSD-3-Clause
"""What may differ: each entry names its row of docs/compat.md by the beginning of the row's first
column.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from .outcomes import Outcome, lines
from .program import Step, find_arguments
from .world import World


class Avoided(NamedTuple):
    """A step that is left out, also inside hooks, because torch's world would not be the same after
    it.
    """

    row: str
    applies: Callable[[World, Step, dict[str, Any]], bool]


class Allowed(NamedTuple):
    """A difference that is seen in the outcomes. The program ends there: its worlds are no longer
    the same.
    """

    row: str
    applies: Callable[[World, Step, str, Outcome, Outcome], bool]


# -- containers ------------------------------------------------------------------------------------


def names(m: Any) -> list[str]:
    return list(m._modules)


def numbered(m: Any) -> bool:
    return names(m) == [str(i) for i in range(len(names(m)))]


def is_list(w: World, m: Any) -> bool:
    return isinstance(m, w.impl.nn.ModuleList)


def deletes_beside_names(w: World, step: Step, a: dict[str, Any]) -> bool:
    return (
        step.name in ("delete_item", "pop_item", "delete_slice", "pop_slice")
        and any(not key.isdigit() for key in names(a["m"]))
        and not is_list(w, a["m"])
    )


def deletes_in_an_odd_list(w: World, step: Step, a: dict[str, Any]) -> bool:
    return (
        step.name in ("delete_item", "pop_item", "delete_slice", "pop_slice")
        and is_list(w, a["m"])
        and not numbered(a["m"])
    )


def appends_over(w: World, step: Step, a: dict[str, Any]) -> bool:
    """A number that is taken. ``insert`` at the end appends."""
    if step.name == "append":
        count = 1
    elif step.name == "extend":
        count = max(len(a["modules"]), 1)
    elif step.name == "insert":
        count = 1 if a["index"] == len(a["m"]) else 0
    else:
        return False
    taken, n = names(a["m"]), len(a["m"])
    return any(str(n + i) in taken for i in range(count))


def inserts_oddly(w: World, step: Step, a: dict[str, Any]) -> bool:
    return step.name == "insert" and not numbered(a["m"]) and a["index"] != len(a["m"])


def inserts_true(w: World, step: Step, a: dict[str, Any]) -> bool:
    return step.name == "insert" and a["index"] is True


def inserts_from_the_end(w: World, step: Step, a: dict[str, Any]) -> bool:
    index = a.get("index")
    return step.name == "insert" and is_list(w, a["m"]) and type(index) is int and index < 0


def inserts_beyond(w: World, step: Step, a: dict[str, Any]) -> bool:
    index = a.get("index")
    return (
        step.name == "insert"
        and is_list(w, a["m"])
        and (type(index) is not int or index > len(a["m"]))
    )


def inserts_no_module(w: World, step: Step, a: dict[str, Any]) -> bool:
    return (
        step.name == "insert"
        and is_list(w, a["m"])
        and not isinstance(a["value"], (w.impl.nn.Module, type(None)))
    )


def extends_partly(w: World, step: Step, a: dict[str, Any]) -> bool:
    return step.name == "extend" and a["how"] == "dict"


def multiplies_partly(w: World, step: Step, a: dict[str, Any]) -> bool:
    return (
        step.name == "multiply"
        and a["how"] == "*="
        and "0" in a["m"]._modules
        and not numbered(a["m"])
    )


def has_bfloat16(w: World, step: Step, a: dict[str, Any]) -> bool:
    return a.get("method") == "bfloat16" and w.leaves == "numpy"


def global_hook_with_both_flags(w: World, step: Step, a: dict[str, Any]) -> bool:
    options = a.get("options", {})
    return step.name == "hook_globally" and bool(
        options.get("always_call") and options.get("with_kwargs")
    )


AVOIDED = [
    Avoided("a global hook with `with_kwargs` and `always_call`", global_hook_with_both_flags),
    Avoided("`del s[i]`, `s.pop(i)` by position when an entry", deletes_beside_names),
    Avoided("`del l[i]`, `l.pop(i)` of a ModuleList", deletes_in_an_odd_list),
    Avoided(
        "`append`, `extend`, `+=`, `insert` at the end, when the number is taken", appends_over
    ),
    Avoided("`insert` when the names are not", inserts_oddly),
    Avoided("`insert(True, m)`, or at a 0-d tensor", inserts_true),
    Avoided("`ModuleList.insert` at a negative index", inserts_from_the_end),
    Avoided("`ModuleList.insert` beyond either end", inserts_beyond),
    Avoided("`ModuleList.insert` of something that is no module", inserts_no_module),
    Avoided("`extend`, `+=` of which one entry is refused", extends_partly),
    Avoided("`s *= n` when only some of the entries are numbered", multiplies_partly),
    Avoided("bfloat16 and the float8 dtypes", has_bfloat16),
]


# -- differences that are seen ---------------------------------------------------------------------


def raised(outcome: Outcome) -> tuple[Any, str]:
    return outcome.raised or (None, "")


def missing_key(w: World, step: Step, label: str, theirs: Outcome, ours: Outcome) -> bool:
    mine = raised(ours)[0]
    return (
        label == "exception type"
        and raised(theirs)[0] is AttributeError
        and mine is not None
        and issubclass(mine, KeyError)
        and issubclass(mine, AttributeError)
    )


def no_tensor_for_a_legacy_hook(
    w: World, step: Step, label: str, theirs: Outcome, ours: Outcome
) -> bool:
    """torch looks for the tensor with ``[0]`` or among the values of a dict."""
    kind, text = raised(theirs)
    return (kind is TypeError and "is not subscriptable" in text) or kind in (
        StopIteration,
        IndexError,
    )


def names_the_cycle(w: World, step: Step, label: str, theirs: Outcome, ours: Outcome) -> bool:
    return "RecursionError" in repr((theirs[:2], ours[:2])) and any(
        w.reaches(child, m)
        for m in w.modules
        for child in list((w.children(m) or {}).values())
        if child is not None
    )


def keeps_the_message(w: World, step: Step, label: str, theirs: Outcome, ours: Outcome) -> bool:
    return label == "message" and raised(ours)[1] == "lost getter"


def reads_a_flag_at_the_call(
    w: World, step: Step, label: str, theirs: Outcome, ours: Outcome
) -> bool:
    """Overrides of what a walk calls get the flag as it was given, or its truth."""
    return step.name == "walk_by_position" and label.startswith("events")


def makes_shapeless_bfloat16(
    w: World, step: Step, label: str, theirs: Outcome, ours: Outcome
) -> bool:
    shapeless = "Attempted to use an uninitialized parameter" in raised(theirs)[1]
    return step.arguments.get("method") == "bfloat16" and shapeless


def copies_were_not_tried(w: World, step: Step, label: str, theirs: Outcome, ours: Outcome) -> bool:
    """A load that fails anyway: only torch finds out what else a copy refuses."""
    if label != "message" or not raised(theirs)[1].startswith("Error(s) in loading state_dict"):
        return False
    said = lines(raised(ours)[1])
    more = [line for line in lines(raised(theirs)[1]) if line not in said]
    return bool(more) and all(line.startswith("While copying the parameter") for line in more)


def half_loaded(w: World, step: Step, label: str, theirs: Outcome, ours: Outcome) -> bool:
    """A load that fails where Python code takes part, or that ends in an exception of such code."""
    if step.name not in ("load", "save_and_load", "look_closely") or theirs.raised is None:
        return False
    if label == "events":  # of a setter or a registration hook, where nothing is written
        return lines(theirs.raised[1]) == lines(raised(ours)[1])
    if not label[-1] == "]":
        return False
    loads = w.impl.nn.Module._load_from_state_dict
    return theirs.raised[0] is not RuntimeError or any(
        type(m)._load_from_state_dict is not loads
        or vars(m).get("_load_state_dict_pre_hooks")
        or vars(m).get("_load_state_dict_post_hooks")
        for m in w.below(w.modules[step.arguments["m"]])
    )


def loads_while_modules_come_and_go(
    w: World, step: Step, label: str, theirs: Outcome, ours: Outcome
) -> bool:
    kind, text = raised(theirs)
    loads = step.name in ("load", "save_and_load")
    return loads and kind is RuntimeError and "changed size during iteration" in text


def mutates_while_it_runs(w: World, step: Step, label: str, theirs: Outcome, ours: Outcome) -> bool:
    kind, text = raised(theirs)
    return (
        kind is RuntimeError
        and "OrderedDict mutated during iteration" in text
        and not step.name.startswith(REGISTERING)
    )


def registration_hook_mutates(
    w: World, step: Step, label: str, theirs: Outcome, ours: Outcome
) -> bool:
    kind, text = raised(theirs)
    return (
        kind is RuntimeError
        and "OrderedDict mutated during iteration" in text
        and step.name.startswith(REGISTERING)
    )


REGISTERING = (
    "add_module",
    "register",
    "set_",
    "grow",
    "move",
    "new_container",
    "append",
    "extend",
    "update",
    "use_dict",
)


def views_stay_behind(w: World, step: Step, label: str, theirs: Outcome, ours: Outcome) -> bool:
    return (
        w.leaves == "numpy"
        and step.arguments.get("method") == "share_memory"
        and label.endswith("[6]")
    )


def swaps_a_shared_gradient(
    w: World, step: Step, label: str, theirs: Outcome, ours: Outcome
) -> bool:
    return (
        w.leaves == "numpy" and "Couldn't swap" in raised(theirs)[1] and "grad" in raised(theirs)[1]
    )


def assigns_the_registry(w: World, step: Step, label: str, theirs: Outcome, ours: Outcome) -> bool:
    if step.name not in ("delete_item", "pop_item", "delete_slice", "pop_slice"):
        return False
    m = w.modules[step.arguments["m"]]
    return type(m).__setattr__ is not w.impl.nn.Module.__setattr__


def refuses_the_other_kind(theirs: Outcome, ours: Outcome) -> bool:
    kind, text = raised(theirs)
    return kind is RuntimeError and "Cannot use both regular" in text and ours.raised is None


def kind_of_backward_hook_changes(
    w: World, step: Step, label: str, theirs: Outcome, ours: Outcome
) -> bool:
    return (
        step.name == "hook_backward"
        and refuses_the_other_kind(theirs, ours)
        and not w.modules[step.arguments["m"]]._backward_hooks
    )


def kind_of_global_backward_hook_changes(
    w: World, step: Step, label: str, theirs: Outcome, ours: Outcome
) -> bool:
    return (
        step.name == "hook_backward_globally"
        and refuses_the_other_kind(theirs, ours)
        and not w.impl.module._global_backward_hooks
    )


def keeps_the_form_of_a_removed_hook(
    w: World, step: Step, label: str, theirs: Outcome, ours: Outcome
) -> bool:
    """The first events that differ are calls of one hook, ours with kwargs."""
    pairs = zip(theirs.events, ours.events, strict=False)
    a, b = next(((a, b) for a, b in pairs if a != b), ((), ()))
    if len(a) != 4 or len(b) != 4 or a[:3] != b[:3]:
        return False
    return b[3][:-1] == a[3] and b[3][-1][0] == "dict"


ALLOWED = [
    Allowed("a `with_kwargs` hook removed by an earlier hook", keeps_the_form_of_a_removed_hook),
    Allowed("`_modules` after a deletion by position", assigns_the_registry),
    Allowed("full and legacy backward hooks on one module", kind_of_backward_hook_changes),
    Allowed("the same for global hooks", kind_of_global_backward_hook_changes),
    Allowed("a gradient that two parameters hold", swaps_a_shared_gradient),
    Allowed("`share_memory()` of NumPy tensors", views_stay_behind),
    Allowed("a registration hook that adds or removes one", registration_hook_mutates),
    Allowed("an `always_call` hook that removes itself", mutates_while_it_runs),
    Allowed("a `load_state_dict` that raises", half_loaded),
    Allowed("a copy that a library refuses, in a load that fails anyway", copies_were_not_tried),
    Allowed("load hooks that add or remove modules beside", loads_while_modules_come_and_go),
    Allowed(
        "a legacy backward hook on a module whose output holds no tensor",
        no_tensor_for_a_legacy_hook,
    ),
    Allowed(
        "`apply`, `_apply`, `train`, `state_dict` of a tree that contains itself", names_the_cycle
    ),
    Allowed(
        "`m.bfloat16()` of a module with uninitialized torch tensors", makes_shapeless_bfloat16
    ),
    Allowed("flags of walks and whole-tree methods", reads_a_flag_at_the_call),
    Allowed("an AttributeError inside a property", keeps_the_message),
    Allowed("a missing key of a ParameterDict, read or popped", missing_key),
]
SEEN: Counter[str] = Counter()


def avoided(world: World, step: Step) -> bool:
    try:
        arguments = find_arguments(world, step)
    except Exception:  # an override that fails
        return False
    if arguments.get("m", world) is None:
        return False
    for entry in AVOIDED:
        with contextlib.suppress(
            Exception
        ):  # an override that fails, an internal attribute that is gone
            if entry.applies(world, step, arguments):
                SEEN[entry.row] += 1
                return True
    return False


def allowed(w: World, step: Step, label: str, theirs: Outcome, ours: Outcome) -> bool:
    for entry in ALLOWED:
        if entry.applies(w, step, label, theirs, ours):
            SEEN[entry.row] += 1
            return True
    return False
