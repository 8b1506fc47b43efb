// SPDX-License-Identifier: BSD-3-Clause
// What LSTM and GRU cells do between their matrix products, for `batch` rows of `size` hidden
// values. Nothing overlaps.
#pragma once

#include <cstddef>

namespace modtree::kernels {

// Gates are rows of 4 size values: input, forget, cell, output, before their activations the sum of
// `from_input` and `from_hidden`. `gates` may be `from_input`. c = forget c_before + input cell, h
// = output tanh(c); `gates` gets the activated ones.
template <class T>
struct LstmCell {
  const T *from_input, *from_hidden, *c_before;
  T *h, *c, *gates;
  std::ptrdiff_t batch, size;
};

// `dh` or `dc` may be null (a zero gradient). `dgates` is the gradient of both sums.
template <class T>
struct LstmCellBackward {
  const T *dh, *dc, *gates, *c_before, *c;
  T *dgates, *dc_before;
  std::ptrdiff_t batch, size;
};

// Rows of 3 size values: reset, update, new; n = tanh(from_input + reset * from_hidden), h = n +
// update (h_before - n). `gates` gets the activated ones.
template <class T>
struct GruCell {
  const T *from_input, *from_hidden, *h_before;
  T *h, *gates;
  std::ptrdiff_t batch, size;
};

template <class T>
struct GruCellBackward {
  const T *dh, *gates, *from_hidden, *h_before;
  T *dfrom_input, *dfrom_hidden, *dh_before;
  std::ptrdiff_t batch, size;
};

void lstm_cell(const LstmCell<float> &a);
void lstm_cell(const LstmCell<double> &a);
void lstm_cell_backward(const LstmCellBackward<float> &a);
void lstm_cell_backward(const LstmCellBackward<double> &a);
void gru_cell(const GruCell<float> &a);
void gru_cell(const GruCell<double> &a);
void gru_cell_backward(const GruCellBackward<float> &a);
void gru_cell_backward(const GruCellBackward<double> &a);

}  // namespace modtree::kernels
