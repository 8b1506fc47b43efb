// SPDX-License-Identifier: BSD-3-Clause
// Products of matrices against plain loops in double precision, with each set of instructions that
// this machine has.
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "check.h"
#include "kernels/matrix_product.h"
#include "kernels/thread_count.h"
#include "samples.h"

namespace {

using namespace modtree::kernels;
using Index = std::ptrdiff_t;

// How a matrix lies in memory: `row` and `column` are strides for one of (rows, columns).
struct Layout {
  Index row, column, size;
};

Layout by_rows(Index rows, Index columns) { return {columns, 1, rows * columns}; }
Layout by_columns(Index rows, Index columns) { return {1, rows, rows * columns}; }
Layout apart(Index rows, Index columns) { return {2 * columns + 1, 2, rows * (2 * columns + 1)}; }
using Lay = Layout (*)(Index, Index);

template <class T>
struct Sample {
  Sample(Index rows, Index columns, Lay lay, std::uint32_t seed)
      : layout(lay(rows, columns)),
        memory(values<T>(layout.size, seed)) {}
  StridedMatrix<const T> matrix() const { return {memory.data(), layout.row, layout.column}; }
  double at(Index i, Index j) const {
    return static_cast<double>(
        memory[static_cast<std::size_t>(i * layout.row + j * layout.column)]);
  }

  Layout layout;
  std::vector<T> memory;
};

template <class T>
void check_product(Isa isa, Index rows, Index depth, Index columns, Lay lay_a, Lay lay_b,
                   bool with_bias) {
  const Sample<T> a(rows, depth, lay_a, 1), b(depth, columns, lay_b, 2);
  const auto bias = values<T>(columns, 3);
  // Rows of the result lie apart; what is between them is left alone.
  const Index stride = columns + 3;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> out(static_cast<std::size_t>(rows * stride), nan);
  matrix_product_with(isa, MatrixProduct<T>{a.matrix(),
                                            b.matrix(),
                                            with_bias ? bias.data() : nullptr,
                                            {out.data(), stride, 1},
                                            rows,
                                            depth,
                                            columns});
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < stride; ++j) {
      const T got = out[static_cast<std::size_t>(i * stride + j)];
      if (j >= columns) {
        CHECK(std::isnan(got));
        continue;
      }
      double sum = with_bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0.0;
      for (Index k = 0; k < depth; ++k) {
        sum += a.at(i, k) * b.at(k, j);
      }
      const double tolerance =
          (sizeof(T) == 4 ? 1e-6 : 1e-14) * (1.0 + std::sqrt(static_cast<double>(depth)) * 4.0);
      CHECK(std::fabs(static_cast<double>(got) - sum) <= tolerance);
    }
  }
}

template <class T>
void check_products(Isa isa) {
  struct Size {
    Index rows, depth, columns;
  };
  const Lay lays[] = {by_rows, by_columns, apart};
  for (const Size &s : {Size{1, 5, 7}, Size{3, 0, 4}, Size{8, 48, 48}, Size{17, 33, 50},
                        Size{130, 20, 9}, Size{9, 20, 130}, Size{5, 100, 63}, Size{70, 100, 3},
                        Size{31, 1700, 33}, Size{33, 1, 49}, Size{600, 3, 70}, Size{4, 257, 1}}) {
    for (const Lay lay_a : lays) {
      for (const Lay lay_b : lays) {
        check_product<T>(isa, s.rows, s.depth, s.columns, lay_a, lay_b, false);
        check_product<T>(isa, s.rows, s.depth, s.columns, lay_a, lay_b, true);
      }
    }
  }
}

// Some rows and columns of a product by themselves, and any number of threads, give the same bits.
template <class T>
void check_bits(Isa isa) {
  const Index rows = 150, depth = 900, columns = 170;
  for (const Lay lay_a : {by_rows, by_columns}) {
    for (const Lay lay_b : {by_rows, by_columns}) {
      const Sample<T> a(rows, depth, lay_a, 4), b(depth, columns, lay_b, 5);
      MatrixProduct<T> p{a.matrix(), b.matrix(), nullptr, {}, rows, depth, columns};
      std::vector<T> whole(static_cast<std::size_t>(rows * columns));
      p.out = {whole.data(), columns, 1};
      set_thread_count(1);
      matrix_product_with(isa, p);
      for (const Index threads : {2, 3}) {
        std::vector<T> out(whole.size(), std::numeric_limits<T>::quiet_NaN());
        p.out.values = out.data();
        set_thread_count(threads);
        matrix_product_with(isa, p);
        CHECK(out == whole);
      }
      const Index first_row = 21, first_column = 40, some_rows = 40, some_columns = 25;
      std::vector<T> out(static_cast<std::size_t>(some_rows * some_columns));
      MatrixProduct<T> part = p;
      part.a.values += first_row * part.a.row;
      part.b.values += first_column * part.b.column;
      part.rows = some_rows;
      part.columns = some_columns;
      part.out = {out.data(), some_columns, 1};
      matrix_product_with(isa, part);
      for (Index i = 0; i < some_rows; ++i) {
        for (Index j = 0; j < some_columns; ++j) {
          CHECK(out[static_cast<std::size_t>(i * some_columns + j)] ==
                whole[static_cast<std::size_t>((first_row + i) * columns + first_column + j)]);
        }
      }
    }
  }
  set_thread_count(1);
}

// Many products at once, whose matrices lie in any order.
template <class T>
void check_many() {
  const Index rows = 9, depth = 20, columns = 33, count = 70;
  const auto a = values<T>(count * rows * depth, 6), b = values<T>(2 * depth * columns, 7);
  std::vector<ProductOffsets> offsets;
  for (Index i = 0; i < count; ++i) {
    offsets.push_back(
        {(count - 1 - i) * rows * depth, i % 2 * depth * columns, i * rows * columns});
  }
  std::vector<T> out(static_cast<std::size_t>(count * rows * columns)), one(out.size());
  MatrixProduct<T> p{{a.data(), depth, 1},
                     {b.data(), columns, 1},
                     nullptr,
                     {out.data(), columns, 1},
                     rows,
                     depth,
                     columns};
  for (const Index threads : {1, 3}) {
    set_thread_count(threads);
    matrix_products(MatrixProducts<T>{p, offsets.data(), count});
    for (const ProductOffsets &at : offsets) {
      MatrixProduct<T> single = p;
      single.a.values += at.a;
      single.b.values += at.b;
      single.out.values = one.data() + at.out;
      matrix_product(single);
    }
    CHECK(out == one);
  }
  set_thread_count(1);
}

template <class T>
void check_all() {
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (isa <= detect_isa()) {
      check_products<T>(isa);
      check_bits<T>(isa);
    }
  }
  check_many<T>();
}

}  // namespace

int main() {
  check_all<float>();
  check_all<double>();
}
