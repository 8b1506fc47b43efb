// SPDX-License-Identifier: BSD-3-Clause
#include "module/hook_snapshot.h"

#include <utility>

#include "module/globals.h"
#include "module/hooked_call.h"

namespace modtree {

namespace {

// Tables that flag hooks by id; each may be null.
struct FlagTables {
  py::object with_kwargs;
  py::object always_called;
};

// 1 if the id is in the table, -1 on error.
int has_flag(PyObject *table, PyObject *id) {
  return may_give_entries(table) ? PySequence_Contains(table, id) : 0;
}

int add_hook(HookSnapshot &hooks, PyObject *id, PyObject *function, const FlagTables &flags,
             bool is_global) {
  // Owned before the tables of flags are asked, which may run Python.
  Hook hook{py::reinterpret_borrow<py::object>(id), py::reinterpret_borrow<py::object>(function)};
  hook.is_global = is_global;
  const int with_kwargs = has_flag(flags.with_kwargs.ptr(), id);
  const int always_call = with_kwargs < 0 ? -1 : has_flag(flags.always_called.ptr(), id);
  if (always_call < 0) {
    return -1;
  }
  hook.with_kwargs = with_kwargs == 1;
  hook.always_call = always_call == 1;
  hooks.add(std::move(hook));
  return 0;
}

// Owned at once: looking for the next table may run code that replaces this one.
py::object own_table(PyObject *table) { return py::reinterpret_borrow<py::object>(table); }

// `table` is owned by the caller.
int add_hooks(HookSnapshot &hooks, PyObject *table, const FlagTables &flags, bool is_global) {
  Py_ssize_t position = 0;
  PyObject *id, *function;
  // One entry has no order, so the order that an OrderedDict keeps beside its dict does not matter.
  if (is_plain_table(table) && PyDict_GET_SIZE(table) == 1 &&
      dict_next_item(table, &position, &id, &function)) {
    return add_hook(hooks, id, function, flags, is_global);
  }
  const auto items = py::reinterpret_steal<py::object>(
      is_plain_table(table) ? items_at_once(table) : PyMapping_Items(table));
  if (!items) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.ptr()); ++i) {
    PyObject *pair = PyList_GET_ITEM(items.ptr(), i);
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
      PyErr_SetString(PyExc_TypeError, "a hook table's items() must give (id, hook) pairs");
      return -1;
    }
    if (add_hook(hooks, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), flags, is_global) <
        0) {
      return -1;
    }
  }
  return 0;
}

// The table of the module that flags hooks, or null where it flags none. -1 on error.
template <Slot slot>
int own_flags(ModuleObject *module, py::object *flags) {
  PyObject *table;
  py::object keep;
  if (registry(module, slot, &table, &keep) < 0) {
    return -1;
  }
  if (may_give_entries(table)) {
    *flags = own_table(table);
  }
  return 0;
}

// The hooks of one table of the module, with the flags that two others give them.
template <Slot slot, Slot with_kwargs, Slot always_called>
int add_own_hooks(ModuleObject *module, HookSnapshot &hooks) {
  PyObject *table;
  py::object keep;
  if (registry(module, slot, &table, &keep) < 0) {
    return -1;
  }
  if (!may_give_entries(table)) {
    return 0;
  }
  const py::object held = own_table(table);
  // If there are global hooks, torch lists it without asking for its truth.
  if (const int has_hooks = hooks.size() == 0 ? table_has_hooks(table) : 1; has_hooks <= 0) {
    return has_hooks;
  }
  FlagTables flags;
  if (own_flags<with_kwargs>(module, &flags.with_kwargs) < 0) {
    return -1;
  }
  if constexpr (always_called != with_kwargs) {  // pre-hooks have one table of flags
    if (own_flags<always_called>(module, &flags.always_called) < 0) {
      return -1;
    }
  }
  return add_hooks(hooks, held.ptr(), flags, false);
}

}  // namespace

int collect_pre_hooks(ModuleObject *module, HookSnapshot &hooks) {
  if (has_entries(global_hooks.forward_pre)) {
    const py::object table = own_table(global_hooks.forward_pre);
    if (add_hooks(hooks, table.ptr(), FlagTables{}, true) < 0) {
      return -1;
    }
  }
  return add_own_hooks<Slot::forward_pre_hooks, Slot::forward_pre_hooks_with_kwargs,
                       Slot::forward_pre_hooks_with_kwargs>(module, hooks);
}

int collect_forward_hooks(ModuleObject *module, HookSnapshot &hooks) {
  if (has_entries(global_hooks.forward)) {
    const FlagTables flags{own_table(global_hooks.forward_with_kwargs),
                           own_table(global_hooks.forward_always_called)};
    const py::object table = own_table(global_hooks.forward);
    if (add_hooks(hooks, table.ptr(), flags, true) < 0) {
      return -1;
    }
  }
  return add_own_hooks<Slot::forward_hooks, Slot::forward_hooks_with_kwargs,
                       Slot::forward_hooks_always_called>(module, hooks);
}

}  // namespace modtree
