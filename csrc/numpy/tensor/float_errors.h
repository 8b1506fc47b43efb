// SPDX-License-Identifier: BSD-3-Clause
// Silences NumPy's floating point warnings (log of 0, overflow in exp) while an operation of ours
// runs, as torch has none.
#pragma once

#include <pybind11/pytypes.h>

#include <optional>

#include "python/context_variable.h"

namespace modtree {

namespace py = pybind11;

// While one lives, NumPy ignores floating point errors in this thread. Nesting costs one context
// variable read.
//
// NumPy keeps its error state in a context variable. `native` work (no Python code runs) is done
// inside a context of our own, which costs two pointer swaps; work that may run Python sets and
// resets the variable, so that the caller's other context variables stay visible. `np.errstate` per
// operation would cost 500 ns.
class SilenceFloatErrors {
public:
  enum class Work { native, python };
  explicit SilenceFloatErrors(Work work);
  ~SilenceFloatErrors();
  SilenceFloatErrors(const SilenceFloatErrors &) = delete;
  SilenceFloatErrors &operator=(const SilenceFloatErrors &) = delete;

private:
  PyObject *context_ = nullptr;        // entered
  std::optional<ContextScope> scope_;  // of the variable
};

void init_float_errors();

}  // namespace modtree
