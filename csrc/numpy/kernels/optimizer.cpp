// SPDX-License-Identifier: BSD-3-Clause
// Compiled without -ffast-math and without contraction to fused multiply-add: every instruction set
// gives the same bits.
#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/parallel_kernel.h"

namespace modtree::kernels {
namespace {

// torch.lerp: from the nearer end.
template <class T>
MODTREE_ALWAYS_INLINE T lerp(T a, T b, T weight) {
  return weight < static_cast<T>(0.5) ? a + weight * (b - a)
                                      : b - (b - a) * (static_cast<T>(1) - weight);
}

// The gradient with weight decay; without it not even 0 times an infinite parameter.
template <class T>
MODTREE_ALWAYS_INLINE T decayed(T grad, T decay, T param) {
  return decay == static_cast<T>(0) ? grad : grad + decay * param;
}

template <class T>
MODTREE_ALWAYS_INLINE void sgd_loop(const SgdStep<T> &a) {
  T *__restrict param = a.param;
  T *__restrict buffer = a.momentum_buffer;
  const T *__restrict grad = a.grad;
  const auto sign = static_cast<T>(a.maximize ? -1 : 1);
  const auto decay = static_cast<T>(a.weight_decay), lr = static_cast<T>(-a.lr);
  const auto momentum = static_cast<T>(a.momentum), fresh = static_cast<T>(1.0 - a.dampening);
  if (!buffer) {
    for (std::ptrdiff_t i = 0; i < a.n; ++i) {
      const T g = decayed(sign * grad[i], decay, param[i]);
      param[i] = param[i] + lr * g;
    }
    return;
  }
  const T keep = a.first ? static_cast<T>(0) : momentum;
  const T add = a.first ? static_cast<T>(1) : fresh;
  if (a.first) {
    for (std::ptrdiff_t i = 0; i < a.n; ++i) {
      buffer[i] = 0;
    }
  }
  for (std::ptrdiff_t i = 0; i < a.n; ++i) {
    const T g = decayed(sign * grad[i], decay, param[i]);
    const T b = buffer[i] * keep + add * g;
    buffer[i] = b;
    param[i] = param[i] + lr * (a.nesterov ? g + momentum * b : b);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void adam_loop(const AdamStep<T> &a) {
  T *__restrict param = a.param;
  T *__restrict mean = a.exp_avg;
  T *__restrict square = a.exp_avg_sq;
  T *__restrict largest = a.max_exp_avg_sq;
  const T *__restrict grad = a.grad;
  const auto sign = static_cast<T>(a.maximize ? -1 : 1);
  const auto shrink = static_cast<T>(a.decoupled ? 1.0 - a.lr * a.weight_decay : 1.0);
  const auto decay = static_cast<T>(a.decoupled ? 0.0 : a.weight_decay);
  const auto new1 = static_cast<T>(1.0 - a.beta1), new2 = static_cast<T>(1.0 - a.beta2);
  const auto beta2 = static_cast<T>(a.beta2), eps = static_cast<T>(a.eps);
  const auto root2 = static_cast<T>(std::sqrt(a.correction2));
  const auto step = static_cast<T>(-(a.lr / a.correction1));
  if (!largest) {
    for (std::ptrdiff_t i = 0; i < a.n; ++i) {
      const T p = param[i] * shrink;
      const T g = decayed(sign * grad[i], decay, p);
      const T m = lerp(mean[i], g, new1);
      const T s = square[i] * beta2 + new2 * g * g;
      mean[i] = m;
      square[i] = s;
      param[i] = p + step * m / (std::sqrt(s) / root2 + eps);
    }
    return;
  }
  for (std::ptrdiff_t i = 0; i < a.n; ++i) {
    const T p = param[i] * shrink;
    const T g = decayed(sign * grad[i], decay, p);
    const T m = lerp(mean[i], g, new1);
    const T s = square[i] * beta2 + new2 * g * g;
    const T l = largest[i] > s || largest[i] != largest[i] ? largest[i] : s;
    mean[i] = m;
    square[i] = s;
    largest[i] = l;
    param[i] = p + step * m / (std::sqrt(l) / root2 + eps);
  }
}

template <bool centered, bool with_momentum, class T>
MODTREE_ALWAYS_INLINE void rmsprop_loop_as(const RmspropStep<T> &a) {
  T *__restrict param = a.param;
  T *__restrict square = a.square_avg;
  T *__restrict mean = a.grad_avg;
  T *__restrict buffer = a.momentum_buffer;
  const T *__restrict grad = a.grad;
  const auto sign = static_cast<T>(a.maximize ? -1 : 1);
  const auto decay = static_cast<T>(a.weight_decay), momentum = static_cast<T>(a.momentum);
  const auto alpha = static_cast<T>(a.alpha), fresh = static_cast<T>(1.0 - a.alpha);
  const auto eps = static_cast<T>(a.eps), lr = static_cast<T>(-a.lr);
  for (std::ptrdiff_t i = 0; i < a.n; ++i) {
    const T g = decayed(sign * grad[i], decay, param[i]);
    const T s = square[i] * alpha + fresh * g * g;
    square[i] = s;
    T variance = s;
    if (centered) {
      const T m = lerp(mean[i], g, fresh);
      mean[i] = m;
      variance = s - m * m;
    }
    const T scale = std::sqrt(variance) + eps;
    if (with_momentum) {
      const T b = buffer[i] * momentum + g / scale;
      buffer[i] = b;
      param[i] = param[i] + lr * b;
    } else {
      param[i] = param[i] + lr * g / scale;
    }
  }
}

// One loop for each kind: with the questions inside it would not be vectorized.
template <class T>
MODTREE_ALWAYS_INLINE void rmsprop_loop(const RmspropStep<T> &a) {
  if (a.grad_avg && a.momentum_buffer) {
    rmsprop_loop_as<true, true>(a);
  } else if (a.grad_avg) {
    rmsprop_loop_as<true, false>(a);
  } else if (a.momentum_buffer) {
    rmsprop_loop_as<false, true>(a);
  } else {
    rmsprop_loop_as<false, false>(a);
  }
}

template <class T>
SgdStep<T> piece_of(SgdStep<T> a, std::ptrdiff_t first) {
  a.param += first;
  a.grad += first;
  a.momentum_buffer = moved(a.momentum_buffer, first);
  return a;
}

template <class T>
AdamStep<T> piece_of(AdamStep<T> a, std::ptrdiff_t first) {
  a.param += first;
  a.grad += first;
  a.exp_avg += first;
  a.exp_avg_sq += first;
  a.max_exp_avg_sq = moved(a.max_exp_avg_sq, first);
  return a;
}

template <class T>
RmspropStep<T> piece_of(RmspropStep<T> a, std::ptrdiff_t first) {
  a.param += first;
  a.grad += first;
  a.square_avg += first;
  a.grad_avg = moved(a.grad_avg, first);
  a.momentum_buffer = moved(a.momentum_buffer, first);
  return a;
}

// step(arguments of a piece) for pieces of all values.
template <class Arguments, class Step>
void in_pieces(const Arguments &a, double work, Step step) {
  parallel_values(a.n, work, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    Arguments piece = piece_of(a, first);
    piece.n = last - first;
    step(piece);
  });
}

}  // namespace

#define STEP_KERNEL_OF(T, name, Arguments, work)                                                   \
  void name(const Arguments<T> &a) {                                                               \
    in_pieces(a, work, [](const Arguments<T> &piece) { name##_piece(piece); });                    \
  }
#define STEP_KERNEL(name, Arguments, loop, work)                                                   \
  namespace {                                                                                      \
  MODTREE_DEFINE_STRUCT_KERNEL(name##_piece, Arguments, loop)                                      \
  }                                                                                                \
  STEP_KERNEL_OF(float, name, Arguments, work)                                                     \
  STEP_KERNEL_OF(double, name, Arguments, work)

STEP_KERNEL(sgd_step, SgdStep, sgd_loop, 2.0)
STEP_KERNEL(adam_step, AdamStep, adam_loop, 6.0)
STEP_KERNEL(rmsprop_step, RmspropStep, rmsprop_loop, 6.0)

}  // namespace modtree::kernels
