// SPDX-License-Identifier: BSD-3-Clause
#include "bind/bind_install.h"

#include <cstring>
#include <string>

#include "python/installed.h"
#include "tensor/numpy_family.h"
#include "tensor/object.h"

namespace modtree {

namespace {

// What follows from an object, beside that native code can find it; checks it, too.
void adopt(const char *name, const py::object &value) {
  if (std::strcmp(name, "Tensor") == 0) {
    adopt_tensor_class(value);
  } else if (std::strcmp(name, "Size") == 0) {
    adopt_size_class(value);
  } else if (std::strcmp(name, "Parameter") == 0) {
    adopt_parameter_class(value);
  } else if (std::strcmp(name, "numpy_family") == 0) {
    adopt_numpy_family(value);
  }
}

}  // namespace

void install(const py::dict &objects) {
  for (const auto &[key, value] : objects) {
    const char *name = PyUnicode_AsUTF8(key.ptr());
    if (!name) {
      throw py::error_already_set();
    }
    PyObject **cell = installed_cell(name);
    if (!cell) {
      throw py::type_error("_install: native code uses nothing of the name '" + std::string(name) +
                           "'");
    }
    const auto owned = py::reinterpret_borrow<py::object>(value);
    adopt(name, owned);
    *cell = owned.inc_ref().ptr();
  }
}

}  // namespace modtree
