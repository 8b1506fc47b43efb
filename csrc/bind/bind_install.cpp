// SPDX-License-Identifier: BSD-3-Clause
#include <pybind11/pybind11.h>

#include <string>

#include "bind/bind_tensor.h"
#include "python/installed.h"
#include "tensor/numpy_family.h"
#include "tensor/object.h"

namespace modtree {

namespace {

// What follows from an object, beside that native code can find it; checks it, too.
void adopt(const std::string &name, const py::object &value) {
  if (name == "Tensor") {
    adopt_tensor_class(value);
  } else if (name == "Size") {
    adopt_size_class(value);
  } else if (name == "Parameter") {
    adopt_parameter_class(value);
  } else if (name == "numpy_family") {
    adopt_numpy_family(value);
  }
}

void install(const py::kwargs &objects) {
  for (const auto &[key, value] : objects) {
    const auto name = key.cast<std::string>();
    PyObject **cell = installed_cell(name.c_str());
    if (!cell) {
      throw py::type_error("_install: native code uses nothing of the name '" + name + "'");
    }
    const auto owned = py::reinterpret_borrow<py::object>(value);
    adopt(name, owned);
    *cell = owned.inc_ref().ptr();
  }
}

}  // namespace

void bind_install(py::module_ &m) {
  m.def("_install", &install,
        "Gives objects of modtree's Python modules to native code, by the names under which that "
        "uses them.");
  m.def("_first_not_installed", &first_not_installed,
        "The first of the names that nothing was installed for, or None.");
}

}  // namespace modtree
