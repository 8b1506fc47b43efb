// SPDX-License-Identifier: BSD-3-Clause
// Softmax and log-softmax of `rows` contiguous rows of `n` values. `out` may be `x`.
//
// A row with a NaN or +inf, or of nothing but -inf, becomes NaN, as in torch; other -inf entries
// get 0 (log: -inf).
#pragma once

#include <cstddef>

namespace modtree::kernels {

void softmax(const float *x, float *out, std::ptrdiff_t rows, std::ptrdiff_t n);
void softmax(const double *x, double *out, std::ptrdiff_t rows, std::ptrdiff_t n);
void log_softmax(const float *x, float *out, std::ptrdiff_t rows, std::ptrdiff_t n);
void log_softmax(const double *x, double *out, std::ptrdiff_t rows, std::ptrdiff_t n);

// Gradients of the input, from the result `y` and its gradient `g`: y (g - sum(g y)), and g -
// exp(y) sum(g). `out` may be `g` or `y`.
void softmax_backward(const float *g, const float *y, float *out, std::ptrdiff_t rows,
                      std::ptrdiff_t n);
void softmax_backward(const double *g, const double *y, double *out, std::ptrdiff_t rows,
                      std::ptrdiff_t n);
void log_softmax_backward(const float *g, const float *y, float *out, std::ptrdiff_t rows,
                          std::ptrdiff_t n);
void log_softmax_backward(const double *g, const double *y, double *out, std::ptrdiff_t rows,
                          std::ptrdiff_t n);

}  // namespace modtree::kernels
