// SPDX-License-Identifier: BSD-3-Clause
// GELU on contiguous memory: x * Phi(x), exact or in its tanh form. `out` may be `x`.
#pragma once

#include <cstddef>

namespace modtree::kernels {

void gelu(const float *x, float *out, std::ptrdiff_t n);
void gelu(const double *x, double *out, std::ptrdiff_t n);
void gelu_tanh(const float *x, float *out, std::ptrdiff_t n);
void gelu_tanh(const double *x, double *out, std::ptrdiff_t n);

// g times the derivative at x. `out` may be `g` or `x`.
void gelu_backward(const float *g, const float *x, float *out, std::ptrdiff_t n);
void gelu_backward(const double *g, const double *x, double *out, std::ptrdiff_t n);
void gelu_tanh_backward(const float *g, const float *x, float *out, std::ptrdiff_t n);
void gelu_tanh_backward(const double *g, const double *x, double *out, std::ptrdiff_t n);

}  // namespace modtree::kernels
