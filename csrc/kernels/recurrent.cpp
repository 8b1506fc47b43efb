// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/recurrent.h"

#include "kernels/vector_math.h"

namespace modtree::kernels {
namespace {

template <class T>
MODTREE_ALWAYS_INLINE void lstm_rows(const LstmCell<T> &a) {
  const std::ptrdiff_t n = a.size;
  for (std::ptrdiff_t row = 0; row < a.batch; ++row) {
    const T *__restrict x = a.from_input + row * 4 * n;
    const T *__restrict y = a.from_hidden + row * 4 * n;
    const T *__restrict before = a.c_before + row * n;
    T *__restrict gates = a.gates + row * 4 * n;
    T *__restrict c = a.c + row * n;
    T *__restrict h = a.h + row * n;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      const T input = sigmoid_approx(x[i] + y[i]);
      const T forget = sigmoid_approx(x[n + i] + y[n + i]);
      const T cell = tanh_approx(x[2 * n + i] + y[2 * n + i]);
      const T output = sigmoid_approx(x[3 * n + i] + y[3 * n + i]);
      gates[i] = input;
      gates[n + i] = forget;
      gates[2 * n + i] = cell;
      gates[3 * n + i] = output;
      const T state = forget * before[i] + input * cell;
      c[i] = state;
      h[i] = output * tanh_approx(state);
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void lstm_backward_rows(const LstmCellBackward<T> &a) {
  const std::ptrdiff_t n = a.size;
  const T one = 1;
  for (std::ptrdiff_t row = 0; row < a.batch; ++row) {
    const T *dh = a.dh ? a.dh + row * n : nullptr;
    const T *dc = a.dc ? a.dc + row * n : nullptr;
    const T *__restrict gates = a.gates + row * 4 * n;
    const T *__restrict before = a.c_before + row * n;
    const T *__restrict c = a.c + row * n;
    T *__restrict dgates = a.dgates + row * 4 * n;
    T *__restrict dbefore = a.dc_before + row * n;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      const T input = gates[i], forget = gates[n + i], cell = gates[2 * n + i], output = gates[3 * n + i];
      const T squashed = tanh_approx(c[i]);
      const T g = dh ? dh[i] : static_cast<T>(0);
      const T state = (dc ? dc[i] : static_cast<T>(0)) + g * output * (one - squashed * squashed);
      dgates[i] = state * cell * input * (one - input);
      dgates[n + i] = state * before[i] * forget * (one - forget);
      dgates[2 * n + i] = state * input * (one - cell * cell);
      dgates[3 * n + i] = g * squashed * output * (one - output);
      dbefore[i] = state * forget;
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void gru_rows(const GruCell<T> &a) {
  const std::ptrdiff_t n = a.size;
  for (std::ptrdiff_t row = 0; row < a.batch; ++row) {
    const T *__restrict x = a.from_input + row * 3 * n;
    const T *__restrict y = a.from_hidden + row * 3 * n;
    const T *__restrict before = a.h_before + row * n;
    T *__restrict gates = a.gates + row * 3 * n;
    T *__restrict h = a.h + row * n;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      const T reset = sigmoid_approx(x[i] + y[i]);
      const T update = sigmoid_approx(x[n + i] + y[n + i]);
      const T fresh = tanh_approx(x[2 * n + i] + reset * y[2 * n + i]);
      gates[i] = reset;
      gates[n + i] = update;
      gates[2 * n + i] = fresh;
      h[i] = fresh + update * (before[i] - fresh);
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void gru_backward_rows(const GruCellBackward<T> &a) {
  const std::ptrdiff_t n = a.size;
  const T one = 1;
  for (std::ptrdiff_t row = 0; row < a.batch; ++row) {
    const T *__restrict g = a.dh + row * n;
    const T *__restrict gates = a.gates + row * 3 * n;
    const T *__restrict y = a.from_hidden + row * 3 * n;
    const T *__restrict before = a.h_before + row * n;
    T *__restrict dx = a.dfrom_input + row * 3 * n;
    T *__restrict dy = a.dfrom_hidden + row * 3 * n;
    T *__restrict dbefore = a.dh_before + row * n;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      const T reset = gates[i], update = gates[n + i], fresh = gates[2 * n + i];
      const T dfresh = g[i] * (one - update) * (one - fresh * fresh);
      const T dreset = dfresh * y[2 * n + i] * reset * (one - reset);
      const T dupdate = g[i] * (before[i] - fresh) * update * (one - update);
      dx[i] = dreset;
      dy[i] = dreset;
      dx[n + i] = dupdate;
      dy[n + i] = dupdate;
      dx[2 * n + i] = dfresh;
      dy[2 * n + i] = dfresh * reset;
      dbefore[i] = g[i] * update;
    }
  }
}

}  // namespace

MODTREE_DEFINE_KERNEL(lstm_cell, (const LstmCell<float> &a), lstm_rows, (a))
MODTREE_DEFINE_KERNEL(lstm_cell, (const LstmCell<double> &a), lstm_rows, (a))
MODTREE_DEFINE_KERNEL(lstm_cell_backward, (const LstmCellBackward<float> &a), lstm_backward_rows, (a))
MODTREE_DEFINE_KERNEL(lstm_cell_backward, (const LstmCellBackward<double> &a), lstm_backward_rows, (a))
MODTREE_DEFINE_KERNEL(gru_cell, (const GruCell<float> &a), gru_rows, (a))
MODTREE_DEFINE_KERNEL(gru_cell, (const GruCell<double> &a), gru_rows, (a))
MODTREE_DEFINE_KERNEL(gru_cell_backward, (const GruCellBackward<float> &a), gru_backward_rows, (a))
MODTREE_DEFINE_KERNEL(gru_cell_backward, (const GruCellBackward<double> &a), gru_backward_rows, (a))

}  // namespace modtree::kernels
