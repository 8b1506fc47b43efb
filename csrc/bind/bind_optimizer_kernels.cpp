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

void sgd_step(const py::array &param, const py::object &grad, const py::object &momentum_buffer,
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

void adam_step(const py::array &param, const py::object &grad, const py::object &exp_avg,
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

void rmsprop_step(const py::array &param, const py::object &grad, const py::object &square_avg,
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

void bind_optimizer_kernels(py::module_ &m) {
  m.def("sgd_step", &sgd_step, py::arg("param"), py::arg("grad"), py::arg("momentum_buffer"),
        py::kw_only(), py::arg("lr"), py::arg("momentum") = 0.0, py::arg("dampening") = 0.0,
        py::arg("weight_decay") = 0.0, py::arg("nesterov") = false, py::arg("maximize") = false,
        py::arg("first") = false,
        "One step of SGD in place; `first`: the buffer has no value yet. The buffer is None "
        "without momentum.");
  m.def("adam_step", &adam_step, py::arg("param"), py::arg("grad"), py::arg("exp_avg"),
        py::arg("exp_avg_sq"), py::arg("max_exp_avg_sq"), py::kw_only(), py::arg("step"),
        py::arg("lr"), py::arg("beta1"), py::arg("beta2"), py::arg("eps"),
        py::arg("weight_decay") = 0.0, py::arg("decoupled") = false, py::arg("maximize") = false,
        "Step number `step` (from 1) of Adam in place, or of AdamW (decoupled); max_exp_avg_sq is "
        "None without amsgrad.");
  m.def("rmsprop_step", &rmsprop_step, py::arg("param"), py::arg("grad"), py::arg("square_avg"),
        py::arg("grad_avg"), py::arg("momentum_buffer"), py::kw_only(), py::arg("lr"),
        py::arg("alpha"), py::arg("eps"), py::arg("weight_decay") = 0.0, py::arg("momentum") = 0.0,
        py::arg("maximize") = false,
        "One step of RMSprop in place; grad_avg is None unless centered, momentum_buffer without "
        "momentum.");
}

}  // namespace modtree
