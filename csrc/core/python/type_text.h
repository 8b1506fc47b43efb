// SPDX-License-Identifier: BSD-3-Clause
// The names of types for messages.
#pragma once

#include <pybind11/pytypes.h>

#include <string>

namespace modtree {

// `tp_name` as a text of its own. Where a message is made with the repr or str of an object in
// front of it, that may rename or end the class, and with it the characters that tp_name points to.
inline std::string type_text(PyObject *object) { return Py_TYPE(object)->tp_name; }

// The part behind the last dot.
inline std::string short_type_text(const void *object) {
  const std::string name = Py_TYPE(static_cast<const PyObject *>(object))->tp_name;
  return name.substr(name.rfind('.') + 1);
}

}  // namespace modtree
