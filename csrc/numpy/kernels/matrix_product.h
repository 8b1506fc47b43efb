// SPDX-License-Identifier: BSD-3-Clause
// Products of matrices, for processors whose tiles (tile_product.h) are wide. A value of the result
// is a sum over `depth` in an order that does not depend on the number of threads; nor on those of
// rows and columns, unless there are only a few (dot_products.h).
#pragma once

#include <cstddef>

#include "kernels/dispatch.h"

namespace modtree::kernels {

// Element (i, j) is values[i * row + j * column].
template <class T>
struct StridedMatrix {
  T *values;
  std::ptrdiff_t row, column;
};

// out (rows, columns) = a (rows, depth) * b (depth, columns) + bias (columns). `bias` may be null.
// Values of a row of `out` are neighbours (its `column` is 1), and it overlaps nothing.
template <class T>
struct MatrixProduct {
  StridedMatrix<const T> a, b;
  const T *bias;
  StridedMatrix<T> out;
  std::ptrdiff_t rows, depth, columns;
};

void matrix_product(const MatrixProduct<float> &p);
void matrix_product(const MatrixProduct<double> &p);

// How many values the matrices of another product are behind those of the first.
struct ProductOffsets {
  std::ptrdiff_t a, b, out;
};

// `count` products of one shape, each at its offsets.
template <class T>
struct MatrixProducts {
  MatrixProduct<T> first;
  const ProductOffsets *offsets;
  std::ptrdiff_t count;
};

void matrix_products(const MatrixProducts<float> &p);
void matrix_products(const MatrixProducts<double> &p);

// The same with the given instructions, which this machine has to have.
void matrix_product_with(Isa isa, const MatrixProduct<float> &p);
void matrix_product_with(Isa isa, const MatrixProduct<double> &p);

}  // namespace modtree::kernels
