// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/slot_ops.h"

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
    "alias",
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

PyObject *call_slot(int index, PyObject *const *args, Py_ssize_t nargs) {
  OpObject *op = slot_op(index);
  return op == nullptr ? nullptr : op_call(op, args, nargs, nullptr);
}

void keep_if_slot_op(OpObject *op) {
  for (int i = 0; i < kSlotOps; ++i) {
    if (!g_ops[i] && PyUnicode_CompareWithASCIIString(op->name, kSlotNames[i]) == 0) {
      Py_INCREF(op);  // kept for ever
      g_ops[i] = op;
    }
  }
}

}  // namespace modtree
