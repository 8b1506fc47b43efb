// SPDX-License-Identifier: BSD-3-Clause
#include "python/installed.h"

#include <cstring>

namespace modtree {

Installed installed;

namespace {

const struct {
  const char *name;
  PyObject **cell;
} kCells[] = {
#define MODTREE_CELL(name) {#name, &installed.name},
    MODTREE_INSTALLED(MODTREE_CELL)
#undef MODTREE_CELL
};

}  // namespace

PyObject **installed_cell(const char *name) {
  for (const auto &entry : kCells) {
    if (std::strcmp(entry.name, name) == 0) {
      return entry.cell;
    }
  }
  return nullptr;
}

const char *first_not_installed() {
  for (const auto &entry : kCells) {
    if (!*entry.cell) {
      return entry.name;
    }
  }
  return nullptr;
}

PyObject *need_installed(PyObject *object) {
  if (!object) {
    const char *name = first_not_installed();
    PyErr_Format(PyExc_RuntimeError,
                 "modtree is not imported to its end: '%s' is missing. Import modtree, not only "
                 "modtree._C, and use it when that is done",
                 name ? name : "");
  }
  return object;
}

}  // namespace modtree
