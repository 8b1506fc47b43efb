# SPDX-License-Identifier: BSD-3-Clause
"""Operations that copy and pickle modules and state dicts, and go on with what comes out."""

from __future__ import annotations

import copy
import io
import pickle

from .kinds import BLOB, BLOB_SLOT, BOOL, MODULE, MODULE_SLOT, SAVED, SAVED_SLOT, Choice, Number
from .program import operation


@operation("copies", 3)
def shallow_copy(w, m=MODULE, slot=MODULE_SLOT):
    return w.keep(copy.copy(m), slot)


@operation("copies", 4)
def deep_copy(w, m=MODULE, slot=MODULE_SLOT, several=BOOL, other=MODULE):
    if several:
        first, second = copy.deepcopy((m, other))
        w.keep(second, (slot + 1) % len(w.modules))
        return w.keep(first, slot)
    return w.keep(copy.deepcopy(m), slot)


class Pickler(pickle.Pickler):
    """Writes what programs make on the fly (classes, hooks, modules without a file) by its place in
    the world.
    """

    def __init__(self, file, world, protocol):
        super().__init__(file, protocol)
        self.world = world

    def persistent_id(self, obj):
        if isinstance(obj, type) and obj in self.world.classes:
            return "class", self.world.classes.index(obj)
        if (
            callable(obj)
            and getattr(obj, "__module__", "").startswith("fuzz")
            and hasattr(obj, "__closure__")
        ):
            self.world.functions.append(obj)
            return "function", len(self.world.functions) - 1
        return None


class Unpickler(pickle.Unpickler):
    def __init__(self, file, world):
        super().__init__(file)
        self.world = world

    def persistent_load(self, pid):
        kind, index = pid
        return self.world.classes[index] if kind == "class" else self.world.functions[index]


@operation("copies", 4)
def pickled(w, m=MODULE, slot=MODULE_SLOT, protocol=Number(2, 5)):
    file = io.BytesIO()
    Pickler(file, w, protocol).dump(m)
    file.seek(0)
    return w.keep(Unpickler(file, w).load(), slot)


@operation("copies", 2)
def take_state(w, m=MODULE, slot=BLOB_SLOT):
    state = m.__getstate__()
    w.blobs[slot] = state
    return [sorted(state), [(k, state[k]) for k in sorted(state)]]


@operation("copies", 2)
def give_state(w, m=MODULE, state=BLOB, how=Choice("whole", "without hooks", "empty", "old")):
    if state is None or "_load_hook" in m.__dict__:
        return  # torch cannot copy the handle of a lazy module whose tables are gone
    state = dict(state)
    if how == "without hooks":
        state = {k: v for k, v in state.items() if "hooks" not in k}
    elif how == "empty":
        state = {}
    elif how == "old":
        state.pop("_non_persistent_buffers_set", None)
        state.pop("_is_full_backward_hook", None)
    if not w.cycles and any(w.reaches(c, m) for c in state.get("_modules", {}).values()):
        return
    m.__setstate__(state)


@operation("copies", 1)
def new_from_state(w, slot=MODULE_SLOT, m=MODULE):
    made = type(m).__new__(type(m))
    made.__setstate__(m.__getstate__())
    return w.keep(made, slot)


@operation("copies", 1)
def reduce(w, m=MODULE, protocol=Number(2, 4)):
    function, args, *rest = m.__reduce_ex__(protocol)
    return [function.__name__, args]


@operation("copies", 2)
def copy_saved(w, sd=SAVED, slot=SAVED_SLOT, how=Choice("copy", "deepcopy", "pickle")):
    if how == "pickle":
        w.saved[slot] = pickle.loads(pickle.dumps(sd))
    else:
        w.saved[slot] = getattr(copy, how)(sd)
    return w.saved[slot]


@operation("copies", 1)
def replicate(w, m=MODULE, slot=MODULE_SLOT):
    return w.keep(m._replicate_for_data_parallel(), slot)
