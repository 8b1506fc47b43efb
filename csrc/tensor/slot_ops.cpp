// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/slot_ops.h"

#include <cstring>
#include <string>

namespace modtree {

namespace {

constexpr const char *kSlotNames[kSlotOps] = {
    "add",
    "sub",
    "mul",
    "true_divide",
    "floor_divide",
    "remainder",
    "pow",
    "matmul",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "lt",
    "le",
    "eq",
    "ne",
    "gt",
    "ge",
    "neg",
    "abs",
    "bitwise_not",
    "getitem",
    "setitem",
    "clone",
    "convert",
    "copy",
    "fill",
};
OpObject *g_ops[kSlotOps] = {};

}  // namespace

OpObject *slot_op(int index) {
  if (g_ops[index] == nullptr) {
    PyErr_Format(PyExc_RuntimeError, "the operation '%s' is not defined: import modtree first",
                 kSlotNames[index]);
  }
  return g_ops[index];
}

void set_slot_op(const char *name, py::object op) {
  if (Py_TYPE(op.ptr()) != op_type) {
    throw py::type_error("expected an Op");
  }
  for (int i = 0; i < kSlotOps; ++i) {
    if (std::strcmp(kSlotNames[i], name) == 0) {
      g_ops[i] = reinterpret_cast<OpObject *>(op.release().ptr());  // kept for ever
      return;
    }
  }
  throw py::value_error(std::string("no operator has the operation ") + name);
}

py::list slot_op_names() {
  py::list names;
  for (const char *name : kSlotNames) {
    names.append(py::str(name));
  }
  return names;
}

}  // namespace modtree
