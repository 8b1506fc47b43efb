// SPDX-License-Identifier: BSD-3-Clause
// The rows of the registry of operations that C++ calls itself: those behind operators, and those
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
  kSlotOps,
};

// The row; null with an error set while modtree._ops has not filled it in.
OpObject *slot_op(int index);

// Fills in the row behind a name. Throws for a name that no operator has.
void set_slot_op(const char *name, py::object op);

// Every name that wants a row.
py::list slot_op_names();

}  // namespace modtree
