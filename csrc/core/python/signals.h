// SPDX-License-Identifier: BSD-3-Clause
// Native loops that may be long look at signals, and let other threads run, as a loop in Python
// does.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

// Lets other threads have the GIL, of which one may be about to send a signal, then runs the
// handlers of the signals that have come. -1 with the error that a handler has raised. Runs user
// code, and is called without an error set.
[[gnu::noinline]] inline int handle_signals() {
  PyThreadState *thread = PyEval_SaveThread();
  PyEval_RestoreThread(thread);
  return PyErr_CheckSignals();
}

// The steps of one loop, counted.
class SignalCheck {
public:
  static constexpr long kSteps = 4096;  // a millisecond at most, where a step runs no Python code

  explicit SignalCheck(long steps = kSteps) : steps_(steps), left_(steps) {}

  // To be called in each round: every so many rounds user code runs, so the caller must own
  // references to what it uses afterwards. -1 with the error that a handler has raised.
  int step() { return --left_ > 0 ? 0 : look(); }

  // In two parts, for loops that have to make themselves ready first: where is_due(), look()
  // follows.
  bool is_due() { return --left_ <= 0; }
  int look() {
    left_ = steps_;
    return handle_signals();
  }

  // So many steps were, or will be, taken without a call.
  void spend(long count) { left_ -= count; }
  bool is_spent() const { return left_ <= 0; }

private:
  const long steps_;
  long left_;
};

// The steps of a loop without references, which must end before user code runs: so many take a few
// hundredths of a second. The loop that goes on owns what it uses and looks at signals.
constexpr long kStepsWithoutReferences = long{1} << 20;

}  // namespace modtree
