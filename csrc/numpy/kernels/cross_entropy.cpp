// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cross_entropy.h"

#include <cmath>

#include "kernels/parallel_kernel.h"
#include "kernels/vector_math.h"

namespace modtree::kernels {
namespace {

// The target of a row; `ignored` for anything but a class.
template <class Arguments>
MODTREE_ALWAYS_INLINE std::int64_t target_of(const Arguments &a, std::ptrdiff_t row) {
  const std::int64_t target = read_once(a.targets + row);
  if (target == a.ignored || is_inside(target, a.classes)) {
    return target;
  }
  *a.inside = false;
  return a.ignored;
}

template <class T>
MODTREE_ALWAYS_INLINE void cross_entropy_rows(const CrossEntropy<T> &a, std::ptrdiff_t first,
                                              std::ptrdiff_t last) {
  const std::ptrdiff_t n = a.classes;
  for (std::ptrdiff_t row = first; row < last; ++row) {
    const T *x = a.logits + row * n;
    const T largest = max_value(x, n);
    const double log_sum =
        std::log(block_sum<T>(n, [=](std::ptrdiff_t i) { return exp_approx(x[i] - largest); }));
    // Kept apart from `largest` until the end, which may be so much larger that the sum would round
    // it away.
    a.logsumexp[row] = static_cast<T>(static_cast<double>(largest) + log_sum);
    const std::int64_t target = target_of(a, row);
    if (target == a.ignored) {
      a.loss[row] = 0;
      continue;
    }
    const double at_target = log_sum - static_cast<double>(x[target] - largest);
    double loss = (1.0 - a.smoothing) * at_target;
    if (a.weight) {
      const T *w = a.weight;
      loss *= static_cast<double>(w[target]);
      if (a.smoothing != 0.0) {
        const auto shift = static_cast<T>(log_sum);
        loss += a.smoothing / static_cast<double>(n) * block_sum<T>(n, [=](std::ptrdiff_t i) {
                  return w[i] * (shift - (x[i] - largest));
                });
      }
    } else if (a.smoothing != 0.0) {
      const auto shift = static_cast<T>(log_sum);
      loss += a.smoothing / static_cast<double>(n) *
              block_sum<T>(n, [=](std::ptrdiff_t i) { return shift - (x[i] - largest); });
    }
    a.loss[row] = static_cast<T>(loss);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void cross_entropy_backward_rows(const CrossEntropyBackward<T> &a,
                                                       std::ptrdiff_t first, std::ptrdiff_t last) {
  const std::ptrdiff_t n = a.classes;
  const T *w = a.weight;
  const double share = a.smoothing / static_cast<double>(n);
  const double all_weights =
      w ? block_sum<T>(n, [=](std::ptrdiff_t i) { return w[i]; }) : static_cast<double>(n);
  for (std::ptrdiff_t row = first; row < last; ++row) {
    const T *x = a.logits + row * n;
    T *dx = a.dx + row * n;
    const std::int64_t target = target_of(a, row);
    if (target == a.ignored) {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        dx[i] = 0;
      }
      continue;
    }
    const auto g = static_cast<double>(a.g[row]);
    const double at_target = (1.0 - a.smoothing) * (w ? static_cast<double>(w[target]) : 1.0);
    const auto scale = static_cast<T>(g * (at_target + share * all_weights));
    const auto each = static_cast<T>(g * share);
    const T shift = a.logsumexp[row];
    if (w && a.smoothing != 0.0) {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        dx[i] = scale * exp_approx(x[i] - shift) - each * w[i];
      }
    } else {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        dx[i] = scale * exp_approx(x[i] - shift) - each;
      }
    }
    dx[target] -= static_cast<T>(g * at_target);
  }
}

}  // namespace

MODTREE_DEFINE_PARTS_KERNEL(cross_entropy, CrossEntropy, cross_entropy_rows, a.rows,
                            5 * a.classes + 32)
MODTREE_DEFINE_PARTS_KERNEL(cross_entropy_backward, CrossEntropyBackward,
                            cross_entropy_backward_rows, a.rows, 5 * a.classes + 32)

}  // namespace modtree::kernels
