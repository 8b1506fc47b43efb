// SPDX-License-Identifier: BSD-3-Clause
#include "bind/kernel_arrays.h"

#include <cmath>
#include <initializer_list>

#include "kernels/optimizer.h"

namespace modtree {
namespace {

// A step goes value by value, so the arrays may be the same but must not overlap otherwise.
// `buffers`: each may be null.
template <class T>
void check_step(const char *kernel, const Contiguous<T> &grad, T *param,
                std::initializer_list<const T *> buffers) {
  const py::ssize_t bytes = grad.nbytes();
  check_overlap(kernel, "grad", grad.data(), bytes, param, bytes);
  for (const T *buffer : buffers) {
    if (buffer) {
      check_overlap(kernel, "grad", grad.data(), bytes, buffer, bytes);
      check_overlap(kernel, "a buffer", buffer, bytes, param, bytes);
    }
  }
}

void sgd_step(const Array &param, const py::object &grad, const py::object &momentum_buffer,
              double lr, double momentum, double dampening, double weight_decay, bool nesterov,
              bool maximize, bool first) {
  const char *name = "sgd_step";
  with_float(name, param, [&](auto zero) {
    using T = decltype(zero);
    const py::ssize_t n = param.size();
    const auto g = argument<T>(name, "grad", grad, shape_of(param));
    T *values = in_place<T>(name, "param", param, n);
    T *buffer = optional_in_place<T>(name, "momentum_buffer", momentum_buffer, n);
    check_step<T>(name, g, values, {buffer});
    run(kernels::sgd_step, kernels::SgdStep<T>{values, g.data(), buffer, n, lr, momentum, dampening,
                                               weight_decay, nesterov, maximize, first});
  });
}

void adam_step(const Array &param, const py::object &grad, const py::object &exp_avg,
               const py::object &exp_avg_sq, const py::object &max_exp_avg_sq, double step,
               double lr, double beta1, double beta2, double eps, double weight_decay,
               bool decoupled, bool maximize) {
  const char *name = "adam_step";
  with_float(name, param, [&](auto zero) {
    using T = decltype(zero);
    const py::ssize_t n = param.size();
    const auto g = argument<T>(name, "grad", grad, shape_of(param));
    T *values = in_place<T>(name, "param", param, n);
    T *first = in_place<T>(name, "exp_avg", exp_avg, n);
    T *second = in_place<T>(name, "exp_avg_sq", exp_avg_sq, n);
    T *largest = optional_in_place<T>(name, "max_exp_avg_sq", max_exp_avg_sq, n);
    check_step<T>(name, g, values, {first, second, largest});
    run(kernels::adam_step,
        kernels::AdamStep<T>{values, g.data(), first, second, largest, n, lr, beta1, beta2, eps,
                             weight_decay, 1.0 - std::pow(beta1, step), 1.0 - std::pow(beta2, step),
                             decoupled, maximize});
  });
}

void rmsprop_step(const Array &param, const py::object &grad, const py::object &square_avg,
                  const py::object &grad_avg, const py::object &momentum_buffer, double lr,
                  double alpha, double eps, double weight_decay, double momentum, bool maximize) {
  const char *name = "rmsprop_step";
  with_float(name, param, [&](auto zero) {
    using T = decltype(zero);
    const py::ssize_t n = param.size();
    const auto g = argument<T>(name, "grad", grad, shape_of(param));
    T *values = in_place<T>(name, "param", param, n);
    T *square = in_place<T>(name, "square_avg", square_avg, n);
    T *mean = optional_in_place<T>(name, "grad_avg", grad_avg, n);
    T *buffer = optional_in_place<T>(name, "momentum_buffer", momentum_buffer, n);
    check_step<T>(name, g, values, {square, mean, buffer});
    run(kernels::rmsprop_step,
        kernels::RmspropStep<T>{values, g.data(), square, mean, buffer, n, lr, alpha, eps,
                                weight_decay, momentum, maximize});
  });
}

}  // namespace

void bind_optimizer_kernels(Functions &m) {
  m.def<sgd_step>(
      "sgd_step(param, grad, momentum_buffer, *, lr, momentum=0.0, dampening=0.0, "
      "weight_decay=0.0, nesterov=False, maximize=False, first=False)",
      "One step of SGD in place; `first`: the buffer has no value yet. The buffer is None "
      "without momentum.");
  m.def<adam_step>(
      "adam_step(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, *, step, lr, beta1, beta2, eps, "
      "weight_decay=0.0, decoupled=False, maximize=False)",
      "Step number `step` (from 1) of Adam in place, or of AdamW (decoupled); max_exp_avg_sq is "
      "None without amsgrad.");
  m.def<rmsprop_step>(
      "rmsprop_step(param, grad, square_avg, grad_avg, momentum_buffer, *, lr, alpha, eps, "
      "weight_decay=0.0, momentum=0.0, maximize=False)",
      "One step of RMSprop in place; grad_avg is None unless centered, momentum_buffer without "
      "momentum.");
}

}  // namespace modtree
