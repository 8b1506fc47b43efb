// SPDX-License-Identifier: BSD-3-Clause
#include "module/foreign.h"

#include "family/family.h"
#include "python/installed.h"

namespace modtree {

namespace {

int warn(PyObject *function, PyObject *parent, PyObject *name, PyObject *child) {
  return call_installed(function, parent, name, child) ? 0 : -1;
}

}  // namespace

int warn_of_foreign_child(ModuleObject *module, PyObject *name, PyObject *child) {
  return warn(installed.warn_of_foreign_child, as_object(module), name, child);
}

int warn_of_foreign_parent(PyObject *parent, PyObject *name, PyObject *child) {
  const int foreign = is_foreign_module(parent);
  return foreign > 0 ? warn(installed.warn_of_foreign_parent, parent, name, child) : foreign;
}

}  // namespace modtree
