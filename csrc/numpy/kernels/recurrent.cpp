// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/recurrent.h"

#include <cstring>
#include <vector>

#include "kernels/parallel_kernel.h"
#include "kernels/vector_math.h"

namespace modtree::kernels {
namespace {

// One function for each loop, and one transcendental function in each loop: GCC does not vectorize
// more than that at a time.
template <class T>
MODTREE_ALWAYS_INLINE void add_sigmoid(T *__restrict gates, const T *__restrict y,
                                       std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    gates[i] = sigmoid_approx(gates[i] + y[i]);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void add_tanh(T *__restrict gates, const T *__restrict y, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    gates[i] = tanh_approx(gates[i] + y[i]);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void lstm_rows(const LstmCell<T> &a, std::ptrdiff_t first,
                                     std::ptrdiff_t last) {
  const std::ptrdiff_t n = a.size;
  for (std::ptrdiff_t row = first; row < last; ++row) {
    const T *__restrict y = a.from_hidden + row * 4 * n;
    const T *__restrict before = a.c_before + row * n;
    T *__restrict gates = a.gates + row * 4 * n;
    T *__restrict c = a.c + row * n;
    T *__restrict h = a.h + row * n;
    if (a.gates != a.from_input) {
      std::memcpy(gates, a.from_input + row * 4 * n, static_cast<std::size_t>(4 * n) * sizeof(T));
    }
    add_sigmoid(gates, y, 2 * n);
    add_tanh(gates + 2 * n, y + 2 * n, n);
    add_sigmoid(gates + 3 * n, y + 3 * n, n);
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      c[i] = gates[n + i] * before[i] + gates[i] * gates[2 * n + i];
    }
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      h[i] = tanh_approx(c[i]) * gates[3 * n + i];
    }
  }
}

// A parameter for each part of a row of gates: the compiler is to know that they do not overlap.
// `dbefore` holds tanh(c) at first.
template <class T>
MODTREE_ALWAYS_INLINE void lstm_backward_row(const T *__restrict dh, const T *__restrict dc,
                                             const T *__restrict gates, const T *__restrict before,
                                             T *__restrict dinput, T *__restrict dforget,
                                             T *__restrict dcell, T *__restrict doutput,
                                             T *__restrict dbefore, std::ptrdiff_t n) {
  const T one = 1;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const T input = gates[i], forget = gates[n + i], cell = gates[2 * n + i],
            output = gates[3 * n + i];
    const T squashed = dbefore[i];
    const T g = dh[i];
    const T state = dc[i] + g * output * (one - squashed * squashed);
    dinput[i] = state * cell * input * (one - input);
    dforget[i] = state * before[i] * forget * (one - forget);
    dcell[i] = state * input * (one - cell * cell);
    doutput[i] = g * squashed * output * (one - output);
    dbefore[i] = state * forget;
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void lstm_backward_rows(const LstmCellBackward<T> &a, std::ptrdiff_t first,
                                              std::ptrdiff_t last) {
  const std::ptrdiff_t n = a.size;
  const std::vector<T> zeros(a.dh && a.dc ? 0 : static_cast<std::size_t>(n));
  for (std::ptrdiff_t row = first; row < last; ++row) {
    const T *dh = a.dh ? a.dh + row * n : zeros.data();
    const T *dc = a.dc ? a.dc + row * n : zeros.data();
    const T *__restrict c = a.c + row * n;
    T *__restrict dbefore = a.dc_before + row * n;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      dbefore[i] = tanh_approx(c[i]);
    }
    T *dgates = a.dgates + row * 4 * n;
    lstm_backward_row(dh, dc, a.gates + row * 4 * n, a.c_before + row * n, dgates, dgates + n,
                      dgates + 2 * n, dgates + 3 * n, dbefore, n);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void new_gate(T *__restrict fresh, const T *__restrict reset,
                                    const T *__restrict y, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    fresh[i] = tanh_approx(fresh[i] + reset[i] * y[i]);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void gru_rows(const GruCell<T> &a, std::ptrdiff_t first,
                                    std::ptrdiff_t last) {
  const std::ptrdiff_t n = a.size;
  for (std::ptrdiff_t row = first; row < last; ++row) {
    const T *__restrict y = a.from_hidden + row * 3 * n;
    const T *__restrict before = a.h_before + row * n;
    T *__restrict gates = a.gates + row * 3 * n;
    T *__restrict h = a.h + row * n;
    if (a.gates != a.from_input) {
      std::memcpy(gates, a.from_input + row * 3 * n, static_cast<std::size_t>(3 * n) * sizeof(T));
    }
    add_sigmoid(gates, y, 2 * n);
    new_gate(gates + 2 * n, gates, y + 2 * n, n);
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      h[i] = gates[2 * n + i] + gates[n + i] * (before[i] - gates[2 * n + i]);
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void
gru_backward_row(const T *__restrict g, const T *__restrict gates, const T *__restrict y,
                 const T *__restrict before, T *__restrict dx_reset, T *__restrict dx_update,
                 T *__restrict dx_fresh, T *__restrict dy_reset, T *__restrict dy_update,
                 T *__restrict dy_fresh, T *__restrict dbefore, std::ptrdiff_t n) {
  const T one = 1;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const T reset = gates[i], update = gates[n + i], fresh = gates[2 * n + i];
    const T dfresh = g[i] * (one - update) * (one - fresh * fresh);
    const T dreset = dfresh * y[2 * n + i] * reset * (one - reset);
    const T dupdate = g[i] * (before[i] - fresh) * update * (one - update);
    dx_reset[i] = dreset;
    dy_reset[i] = dreset;
    dx_update[i] = dupdate;
    dy_update[i] = dupdate;
    dx_fresh[i] = dfresh;
    dy_fresh[i] = dfresh * reset;
    dbefore[i] = g[i] * update;
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void gru_backward_rows(const GruCellBackward<T> &a, std::ptrdiff_t first,
                                             std::ptrdiff_t last) {
  const std::ptrdiff_t n = a.size;
  for (std::ptrdiff_t row = first; row < last; ++row) {
    T *dx = a.dfrom_input + row * 3 * n;
    T *dy = a.dfrom_hidden + row * 3 * n;
    gru_backward_row(a.dh + row * n, a.gates + row * 3 * n, a.from_hidden + row * 3 * n,
                     a.h_before + row * n, dx, dx + n, dx + 2 * n, dy, dy + n, dy + 2 * n,
                     a.dh_before + row * n, n);
  }
}

}  // namespace

MODTREE_DEFINE_PARTS_KERNEL(lstm_cell, LstmCell, lstm_rows, a.batch, 20 * a.size)
MODTREE_DEFINE_PARTS_KERNEL(lstm_cell_backward, LstmCellBackward, lstm_backward_rows, a.batch,
                            12 * a.size)
MODTREE_DEFINE_PARTS_KERNEL(gru_cell, GruCell, gru_rows, a.batch, 20 * a.size)
MODTREE_DEFINE_PARTS_KERNEL(gru_cell_backward, GruCellBackward, gru_backward_rows, a.batch,
                            12 * a.size)

}  // namespace modtree::kernels
