// SPDX-License-Identifier: BSD-3-Clause
// Functions of single elements on contiguous memory, with up to two numbers a and b, and their
// gradients. `out` may be any of the inputs. NaN stays NaN.
#pragma once

#include <cstddef>

namespace modtree::kernels {

#define MODTREE_DECLARE_MAP(name)                                                                  \
  void name(const float *x, float *out, std::ptrdiff_t n, float a, float b);                       \
  void name(const double *x, double *out, std::ptrdiff_t n, double a, double b);
#define MODTREE_DECLARE_PAIR_MAP(name)                                                             \
  void name(const float *x, const float *y, float *out, std::ptrdiff_t n, float a, float b);       \
  void name(const double *x, const double *y, double *out, std::ptrdiff_t n, double a, double b);

MODTREE_DECLARE_MAP(clamp)        // x limited to [a, b]
MODTREE_DECLARE_MAP(hardswish)    // x min(max(x + 3, 0), 6) / 6
MODTREE_DECLARE_MAP(hardsigmoid)  // min(max(x + 3, 0), 6) / 6
MODTREE_DECLARE_MAP(softplus)     // log(1 + exp(a x)) / a, and x where a x > b
MODTREE_DECLARE_MAP(threshold)    // b where x <= a
MODTREE_DECLARE_MAP(hardshrink)   // 0 where |x| <= a
MODTREE_DECLARE_MAP(softshrink)   // x moved by a towards 0
MODTREE_DECLARE_MAP(leaky_relu)   // a x where x <= 0
MODTREE_DECLARE_MAP(sign)         // -1, 0 or 1; 0 for NaN
// What an element of a loss is of the difference x - y: x^2 / 2 up to a, and the straight line on
// from there, over b.
MODTREE_DECLARE_PAIR_MAP(huber)

// The first argument is the gradient of the result, the second x; of hardsigmoid its result.
MODTREE_DECLARE_PAIR_MAP(between)  // g where a < x < b, else 0
MODTREE_DECLARE_PAIR_MAP(hardswish_backward)
MODTREE_DECLARE_PAIR_MAP(hardsigmoid_backward)
MODTREE_DECLARE_PAIR_MAP(softplus_backward)
MODTREE_DECLARE_PAIR_MAP(threshold_backward)
MODTREE_DECLARE_PAIR_MAP(shrink_backward)  // 0 where |x| <= a
MODTREE_DECLARE_PAIR_MAP(leaky_relu_backward)

}  // namespace modtree::kernels
