// SPDX-License-Identifier: BSD-3-Clause
// The error function and its kin on contiguous memory, to about 2 ulp. `out` may be the input.
#pragma once

#include <cstddef>

namespace modtree::kernels {

void erf(const float *x, float *out, std::ptrdiff_t n);
void erf(const double *x, double *out, std::ptrdiff_t n);
void erfinv(const float *x, float *out, std::ptrdiff_t n);
void erfinv(const double *x, double *out, std::ptrdiff_t n);
// log(|gamma(x)|), by the C library.
void lgamma(const float *x, float *out, std::ptrdiff_t n);
void lgamma(const double *x, double *out, std::ptrdiff_t n);
// The derivative of lgamma.
void digamma(const float *x, float *out, std::ptrdiff_t n);
void digamma(const double *x, double *out, std::ptrdiff_t n);

// log(exp(x) + exp(y)), without overflow.
void logaddexp(const float *x, const float *y, float *out, std::ptrdiff_t n);
void logaddexp(const double *x, const double *y, double *out, std::ptrdiff_t n);
// The remainder of the division with the sign of x: exact, as C's fmod.
void fmod(const float *x, const float *y, float *out, std::ptrdiff_t n);
void fmod(const double *x, const double *y, double *out, std::ptrdiff_t n);
// The same with the sign of y.
void remainder(const float *x, const float *y, float *out, std::ptrdiff_t n);
void remainder(const double *x, const double *y, double *out, std::ptrdiff_t n);

}  // namespace modtree::kernels
