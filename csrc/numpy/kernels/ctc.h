// SPDX-License-Identifier: BSD-3-Clause
// Connectionist temporal classification: minus the log probability of all ways to write labels into
// a sequence, with blanks and repetitions, and its gradient.
#pragma once

#include <cstddef>
#include <cstdint>

namespace modtree::kernels {

template <class T>
struct Ctc {
  const T *log_probs;          // (steps, batch, classes)
  const std::int64_t *labels;  // those of sample i begin at starts[i]
  const std::int64_t *starts, *lengths, *used;
  T *losses;    // (batch)
  const T *g;   // (batch), or null: the gradients of the losses
  T *gradient;  // like log_probs, zeros before; or null
  std::ptrdiff_t steps, batch, classes, longest;
  std::int64_t blank;
};

// Infinite losses have no gradient.
void ctc(const Ctc<float> &a);
void ctc(const Ctc<double> &a);

}  // namespace modtree::kernels
