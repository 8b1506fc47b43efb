// SPDX-License-Identifier: BSD-3-Clause
#include "bind/kernel_arrays.h"

#include <array>
#include <string>

#include "kernels/recurrent.h"

namespace modtree {
namespace {

// (batch, size) of the state; the gates are rows of `gates` times as many values.
struct CellSizes {
  CellSizes(const char *kernel, const Array &state, py::ssize_t gates) {
    if (state.ndim() != 2) {
      throw py::value_error(std::string(kernel) +
                            ": the state must have shape (batch, size), got " +
                            to_string(shape_of(state)));
    }
    batch = state.shape(0);
    size = state.shape(1);
    state_shape = {batch, size};
    gates_shape = {batch, gates * size};
  }

  py::ssize_t batch, size;
  Shape state_shape, gates_shape;
};

// Arrays to write must be apart from each other and from what is read, except that `gates` may be
// `from_input` itself.
template <class T, std::size_t N>
void check_outputs(const char *kernel, const std::array<const Result<T> *, N> &outputs,
                   const Contiguous<T> &from_input, const Contiguous<T> &from_hidden,
                   const Contiguous<T> &before) {
  for (std::size_t i = 0; i < N; ++i) {
    const Result<T> &out = *outputs[i];
    check_overlap(kernel, "from_input", from_input.data(), from_input.nbytes(), out.data(),
                  out.bytes(), i + 1 == N);
    check_overlap(kernel, "from_hidden", from_hidden.data(), from_hidden.nbytes(), out.data(),
                  out.bytes(), false);
    check_overlap(kernel, "the state", before.data(), before.nbytes(), out.data(), out.bytes(),
                  false);
    for (std::size_t k = 0; k < i; ++k) {
      check_overlap(kernel, "another result", outputs[k]->data(), outputs[k]->bytes(), out.data(),
                    out.bytes(), false);
    }
  }
}

py::tuple lstm_cell(const py::object &from_input, const py::object &from_hidden,
                    const Array &c_before, const Objects<3> &out) {
  const char *name = "lstm_cell";
  return with_float(name, c_before, [&](auto zero) {
    using T = decltype(zero);
    const CellSizes sizes(name, c_before, 4);
    const Contiguous<T> before(c_before);
    const auto x = argument<T>(name, "from_input", from_input, sizes.gates_shape);
    const auto y = argument<T>(name, "from_hidden", from_hidden, sizes.gates_shape);
    const auto h = Result<T>::into(name, out[0], sizes.state_shape);
    const auto c = Result<T>::into(name, out[1], sizes.state_shape);
    const auto gates = Result<T>::into(name, out[2], sizes.gates_shape);
    check_outputs<T, 3>(name, {&h, &c, &gates}, x, y, before);
    run(kernels::lstm_cell, kernels::LstmCell<T>{x.data(), y.data(), before.data(), h.data(),
                                                 c.data(), gates.data(), sizes.batch, sizes.size});
    return tuple_of(h.value(), c.value(), gates.value());
  });
}

py::tuple lstm_cell_backward(const py::object &dh, const py::object &dc, const py::object &gates,
                             const Array &c_before, const py::object &c) {
  const char *name = "lstm_cell_backward";
  return with_float(name, c_before, [&](auto zero) {
    using T = decltype(zero);
    const CellSizes sizes(name, c_before, 4);
    const Contiguous<T> before(c_before);
    const Optional<T> gh(name, "dh", dh, sizes.state_shape), gc(name, "dc", dc, sizes.state_shape);
    const auto active = argument<T>(name, "gates", gates, sizes.gates_shape);
    const auto state = argument<T>(name, "c", c, sizes.state_shape);
    const Result<T> dgates(sizes.gates_shape), dc_before(sizes.state_shape);
    run(kernels::lstm_cell_backward,
        kernels::LstmCellBackward<T>{gh.data(), gc.data(), active.data(), before.data(),
                                     state.data(), dgates.data(), dc_before.data(), sizes.batch,
                                     sizes.size});
    return tuple_of(dgates.value(), dc_before.value());
  });
}

py::tuple gru_cell(const py::object &from_input, const py::object &from_hidden,
                   const Array &h_before, const Objects<2> &out) {
  const char *name = "gru_cell";
  return with_float(name, h_before, [&](auto zero) {
    using T = decltype(zero);
    const CellSizes sizes(name, h_before, 3);
    const Contiguous<T> before(h_before);
    const auto x = argument<T>(name, "from_input", from_input, sizes.gates_shape);
    const auto y = argument<T>(name, "from_hidden", from_hidden, sizes.gates_shape);
    const auto h = Result<T>::into(name, out[0], sizes.state_shape);
    const auto gates = Result<T>::into(name, out[1], sizes.gates_shape);
    check_outputs<T, 2>(name, {&h, &gates}, x, y, before);
    run(kernels::gru_cell, kernels::GruCell<T>{x.data(), y.data(), before.data(), h.data(),
                                               gates.data(), sizes.batch, sizes.size});
    return tuple_of(h.value(), gates.value());
  });
}

py::tuple gru_cell_backward(const py::object &dh, const py::object &gates,
                            const py::object &from_hidden, const Array &h_before) {
  const char *name = "gru_cell_backward";
  return with_float(name, h_before, [&](auto zero) {
    using T = decltype(zero);
    const CellSizes sizes(name, h_before, 3);
    const Contiguous<T> before(h_before);
    const auto g = argument<T>(name, "dh", dh, sizes.state_shape);
    const auto active = argument<T>(name, "gates", gates, sizes.gates_shape);
    const auto y = argument<T>(name, "from_hidden", from_hidden, sizes.gates_shape);
    const Result<T> dx(sizes.gates_shape), dy(sizes.gates_shape), dbefore(sizes.state_shape);
    run(kernels::gru_cell_backward,
        kernels::GruCellBackward<T>{g.data(), active.data(), y.data(), before.data(), dx.data(),
                                    dy.data(), dbefore.data(), sizes.batch, sizes.size});
    return tuple_of(dx.value(), dy.value(), dbefore.value());
  });
}

}  // namespace

void bind_recurrent_kernels(Functions &m) {
  m.def_kernel<lstm_cell>(
      "lstm_cell(from_input, from_hidden, c_before, out=(None, None, None))",
      "One step from the two parts of the gates (batch, 4 * size; input, forget, cell, output): "
      "(h, c, gates). Of the "
      "arrays in out, gates may be from_input.");
  m.def_kernel<lstm_cell_backward>(
      "lstm_cell_backward(dh, dc, gates, c_before, c)",
      "Gradients (of both parts of the gates, of c_before); dh or dc may be None.");
  m.def_kernel<gru_cell>(
      "gru_cell(from_input, from_hidden, h_before, out=(None, None))",
      "One step from the two parts of the gates (batch, 3 * size; reset, update, new): (h, "
      "gates). Of the arrays in "
      "out, gates may be from_input.");
  m.def_kernel<gru_cell_backward>("gru_cell_backward(dh, gates, from_hidden, h_before)",
                                  "Gradients (of from_input, of from_hidden, of h_before).");
}

}  // namespace modtree
