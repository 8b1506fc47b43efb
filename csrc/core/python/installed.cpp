// SPDX-License-Identifier: BSD-3-Clause
#include "python/installed.h"

#include <cstring>

namespace modtree {

Installed installed;

namespace {

constexpr InstalledCell kCells[] = {
#define MODTREE_CELL(name, kind) {#name, &installed.name, InstalledKind::kind},
    MODTREE_INSTALLED(MODTREE_CELL)
#undef MODTREE_CELL
};

// The first name that nothing was installed for; "" when there is none.
const char *first_not_installed() {
  for (const auto &entry : kCells) {
    if (!*entry.cell) {
      return entry.name;
    }
  }
  return "";
}

}  // namespace

const InstalledCell *installed_cell(const char *name) {
  for (const auto &entry : kCells) {
    if (std::strcmp(entry.name, name) == 0) {
      return &entry;
    }
  }
  return nullptr;
}

PyObject *all_installed() {
  auto found = py::reinterpret_steal<py::object>(PyDict_New());
  for (const auto &entry : kCells) {
    PyObject *object = *entry.cell ? *entry.cell : Py_None;
    if (!found || PyDict_SetItemString(found.ptr(), entry.name, object) < 0) {
      return nullptr;
    }
  }
  return found.release().ptr();
}

PyObject *need_installed(PyObject *object) {
  if (!object) {
    PyErr_Format(PyExc_RuntimeError,
                 "modtree is not imported to its end: '%s' is missing. Import modtree, not only "
                 "modtree._C, and use it when that is done",
                 first_not_installed());
  }
  return object;
}

}  // namespace modtree
