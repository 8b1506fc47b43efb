// SPDX-License-Identifier: BSD-3-Clause
#include "module/attributes/append.h"

#include <array>

#include "module/attributes/name_facts.h"
#include "module/attributes/reading.h"
#include "module/class_info.h"
#include "module/globals.h"
#include "python/once.h"
#include "python/signals.h"

namespace modtree {

namespace {

// The name of the entry at a position, interned. The names of long lists are made once.
py::object numbered_name(Py_ssize_t position) {
  static std::array<PyObject *, 1024> made{};
  const auto make = [position] {
    PyObject *name = PyUnicode_FromFormat("%zd", position);
    if (name) {
      PyUnicode_InternInPlace(&name);
    }
    return name;
  };
  const auto place = static_cast<std::size_t>(position);
  return place < made.size() ? py::reinterpret_borrow<py::object>(fill_once(&made[place], make))
                             : py::reinterpret_steal<py::object>(make());
}

// The registry of a container to which Module's own methods append, or null: without an error where
// a class, an instance or a hook has a say. Runs no user code when the class was met before and the
// registry is there.
py::object plain_children(ModuleObject *container) {
  const ClassInfo info = class_info(Py_TYPE(container));
  if (info.overrides(Virtual::modules_) || overrides(container, info, Virtual::add_module) ||
      Py_TYPE(container)->tp_getattro != module_tp_getattro || container->state.exposed ||
      !container->state.initialized || has_entries(global_hooks.module_registration)) {
    return py::object();
  }
  PyObject *children = require(container, Slot::modules);
  return py::reinterpret_borrow<py::object>(children && PyDict_CheckExact(children) ? children
                                                                                    : nullptr);
}

// True if is_free() certainly runs no user code and can find nothing but children.
bool holds_only_children(ModuleObject *container, PyObject *children, PyObject *name) {
  const ModuleState &state = container->state;
  return !container->dict && !state.parameters && !state.buffers && has_only_strs(children) &&
         name_facts.find(type_version(Py_TYPE(container)), name) == NameFacts::kPlain;
}

// True if the container has nothing under the name in any place that a read would look at.
bool is_free(ModuleObject *container, PyObject *name) {
  return is_plain_name(Py_TYPE(container), name) && has_instance_attribute(container, name) == 0 &&
         registry_contains(container, Slot::parameters, name) == 0 &&
         registry_contains(container, Slot::buffers, name) == 0 &&
         registry_contains(container, Slot::modules, name) == 0;
}

}  // namespace

std::int64_t append_children(const py::object &container, const py::tuple &modules,
                             std::int64_t first) {
  if (!is_module(container.ptr())) {
    return 0;
  }
  ModuleObject *module = as_module(container.ptr());
  const Py_ssize_t count = PyTuple_GET_SIZE(modules.ptr());
  SignalCheck signals;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (signals.step() < 0) {
      throw py::error_already_set();
    }
    PyObject *child = PyTuple_GET_ITEM(modules.ptr(), i);
    if (child != Py_None && !is_module(child)) {
      return i;
    }
    const py::object children = plain_children(module);
    if (!children) {
      if (PyErr_Occurred()) {
        throw py::error_already_set();
      }
      return i;
    }
    const Py_ssize_t position = PyDict_GET_SIZE(children.ptr());
    if (position != first + i) {
      return i;
    }
    const py::object name = numbered_name(position);
    if (!name) {
      throw py::error_already_set();
    }
    // Comparing names runs user code in a dict with keys other than strs, and that may change all
    // that was asked so far. Nothing runs between the second look and the store.
    const bool is_simple = holds_only_children(module, children.ptr(), name.ptr());
    const bool is_taken =
        is_simple ? dict_find_str(children.ptr(), name.ptr()) != nullptr
                  : !is_free(module, name.ptr()) || !plain_children(module).is(children);
    if (PyErr_Occurred()) {
      throw py::error_already_set();
    }
    if (is_taken) {
      return i;
    }
    if (PyDict_SetItem(children.ptr(), name.ptr(), child) < 0) {
      throw py::error_already_set();
    }
  }
  return count;
}

}  // namespace modtree
