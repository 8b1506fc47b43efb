// SPDX-License-Identifier: BSD-3-Clause
// One step of an optimizer on contiguous arrays of `n` values, in the order of operations of
// torch.optim, so that results agree.
//
// Everything but `grad` is changed in place. Nothing overlaps.
#pragma once

#include <cstddef>

namespace modtree::kernels {

template <class T>
struct SgdStep {
  T *param;
  const T *grad;
  T *momentum_buffer;  // null without momentum
  std::ptrdiff_t n;
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize, first;  // first: the buffer has no value yet
};

template <class T>
struct AdamStep {
  T *param;
  const T *grad;
  T *exp_avg, *exp_avg_sq;
  T *max_exp_avg_sq;  // null without amsgrad
  std::ptrdiff_t n;
  double lr, beta1, beta2, eps, weight_decay;
  double correction1, correction2;  // 1 - beta ** step
  bool decoupled, maximize;         // decoupled: weight decay as in AdamW
};

template <class T>
struct RmspropStep {
  T *param;
  const T *grad;
  T *square_avg;
  T *grad_avg;         // null unless centered
  T *momentum_buffer;  // null without momentum
  std::ptrdiff_t n;
  double lr, alpha, eps, weight_decay, momentum;
  bool maximize;
};

void sgd_step(const SgdStep<float> &a);
void sgd_step(const SgdStep<double> &a);
void adam_step(const AdamStep<float> &a);
void adam_step(const AdamStep<double> &a);
void rmsprop_step(const RmspropStep<float> &a);
void rmsprop_step(const RmspropStep<double> &a);

}  // namespace modtree::kernels
