// SPDX-License-Identifier: BSD-3-Clause
// The operations that C++ calls itself: those behind operators, and those
// that native methods record.
#pragma once

#include "tensor/op.h"

namespace modtree {

enum SlotOp {
  kAdd,
  kSub,
  kMul,
  kTrueDiv,
  kFloorDiv,
  kRemainder,
  kPow,
  kMatmul,
  kAnd,
  kOr,
  kXor,
  kLShift,
  kRShift,
  kLt,
  kLe,
  kEq,
  kNe,
  kGt,
  kGe,
  kNeg,
  kAbs,
  kInvert,
  kGetItem,
  kSetItem,
  kClone,
  kConvert,
  kCopy,
  kFill,
  kAlias,
  kSlotOps,
};

// The operation; null with an error set while modtree.numpy.ops has not filled it in.
OpObject *slot_op(int index);

// Calls it.
PyObject *call_slot(int index, PyObject *const *args, Py_ssize_t nargs);

// Keeps the operation where its name is that of one of these, and the first of that name.
void keep_if_slot_op(OpObject *op);

}  // namespace modtree
