// SPDX-License-Identifier: BSD-3-Clause
// Activations on contiguous memory and their gradients. `out` may be any of the inputs.
#pragma once

#include <cstddef>

namespace modtree::kernels {

void sigmoid(const float *x, float *out, std::ptrdiff_t n);
void sigmoid(const double *x, double *out, std::ptrdiff_t n);
// x sigmoid(x)
void silu(const float *x, float *out, std::ptrdiff_t n);
void silu(const double *x, double *out, std::ptrdiff_t n);

// g times the derivative: of sigmoid and tanh from their result y, of silu and relu from their
// input x.
void sigmoid_backward(const float *g, const float *y, float *out, std::ptrdiff_t n);
void sigmoid_backward(const double *g, const double *y, double *out, std::ptrdiff_t n);
void tanh_backward(const float *g, const float *y, float *out, std::ptrdiff_t n);
void tanh_backward(const double *g, const double *y, double *out, std::ptrdiff_t n);
void silu_backward(const float *g, const float *x, float *out, std::ptrdiff_t n);
void silu_backward(const double *g, const double *x, double *out, std::ptrdiff_t n);
// 0 where x <= 0; a NaN in x lets g through, as in torch.
void relu_backward(const float *g, const float *x, float *out, std::ptrdiff_t n);
void relu_backward(const double *g, const double *x, double *out, std::ptrdiff_t n);

}  // namespace modtree::kernels
