// SPDX-License-Identifier: BSD-3-Clause
#include "module/foreign.h"

#include "family/family.h"
#include "python/call.h"

namespace modtree {

namespace {

int warn(const char *function, PyObject *parent, PyObject *name, PyObject *child) {
  const py::object warn = import_attribute("modtree._module.foreign", function);
  return warn && call(warn, parent, name, child) ? 0 : -1;
}

}  // namespace

int warn_of_foreign_child(ModuleObject *module, PyObject *name, PyObject *child) {
  return warn("warn_of_child", as_object(module), name, child);
}

int warn_of_foreign_parent(PyObject *parent, PyObject *name, PyObject *child) {
  const int foreign = is_foreign_module(parent);
  return foreign > 0 ? warn("warn_of_parent", parent, name, child) : foreign;
}

}  // namespace modtree
