// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/matrix_product.h"

#include <algorithm>

#include "kernels/dot_products.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"
#include "kernels/tile_product.h"

namespace modtree::kernels {
namespace {

// The most rows of a panel, which stays in the second cache while all rows of `a` go by.
constexpr std::ptrdiff_t kDepth = 768;
// Bytes of the panels that are made at a time.
constexpr std::ptrdiff_t kPanelBytes = 1 << 21;
// Copies of up to so many bytes are on the stack: the products of many small matrices would do
// little but ask for memory.
constexpr std::ptrdiff_t kSmallBytes = 1 << 13;
// Rows of `a` that are copied at a time, where it has to be copied.
constexpr std::ptrdiff_t kCopiedRows = 512;
// Rows of a piece of work; a multiple of kAside.
constexpr std::ptrdiff_t kPieceRows = 64;
// Rows that go through a tile of their own at a time: those of a transposed result fill a line of
// the cache.
constexpr std::ptrdiff_t kAside = 16;
// Simple operations that take as long as one multiplication or one copied value.
constexpr double kMultiplyWork = 0.05;
constexpr double kCopyWork = 1.0;
// How much faster rows are copied than columns.
constexpr double kCopyOfRows = 0.3;

template <class T>
StridedMatrix<T> transposed(const StridedMatrix<T> &m) {
  return {m.values, m.column, m.row};
}

// One product with one set of instructions. Rows of `a` are read where they are, or from a copy
// where their values are not neighbours; columns of `b` are copied into panels. Where that copies
// less, the transposed product is computed instead.
template <class T>
class ProductRun {
public:
  ProductRun(const MatrixProduct<T> &p, const TileKernels<T> &tiles)
      : tiles_(tiles),
        a_(p.a),
        b_(p.b),
        out_(p.out),
        bias_(p.bias),
        rows_(p.rows),
        depth_(p.depth),
        columns_(p.columns),
        transposed_(copies(p, true) < copies(p, false)) {
    if (transposed_) {
      a_ = transposed(p.b);
      b_ = transposed(p.a);
      out_ = transposed(out_);
      std::swap(rows_, columns_);
    }
    copy_a_ = a_.column != 1 && depth_ != 1;
    parts_ = std::max<std::ptrdiff_t>((depth_ + kDepth - 1) / kDepth, 1);
    part_ = std::max<std::ptrdiff_t>((depth_ + parts_ - 1) / parts_, 1);
    panel_size_ = part_ * tiles_.columns();
  }

  void run() const {
    const std::ptrdiff_t panels = (columns_ + tiles_.columns() - 1) / tiles_.columns();
    const std::ptrdiff_t bytes = panel_size_ * static_cast<std::ptrdiff_t>(sizeof(T));
    const std::ptrdiff_t group = std::clamp<std::ptrdiff_t>(kPanelBytes / bytes, 1, panels);
    const std::ptrdiff_t step = copy_a_ ? std::min(rows_, kCopiedRows) : rows_;
    SmallRoom<T, kSmallBytes> memory(group * panel_size_ + kLine<T>);
    SmallRoom<T, kSmallBytes> copies(copy_a_ ? step * part_ : 0);
    T *made = at_line(memory.data());
    for (std::ptrdiff_t part = 0; part < parts_; ++part) {
      const Part of{part * part_, std::min(depth_, (part + 1) * part_)};
      for (std::ptrdiff_t first = 0; first < panels; first += group) {
        const Panels some{first, std::min(panels, first + group), made};
        make_panels(of, some);
        for (std::ptrdiff_t row = 0; row < rows_; row += step) {
          const std::ptrdiff_t stop = std::min(rows_, row + step);
          multiply(of, some, row, stop,
                   copy_a_
                       ? copied(of, row, stop, copies.data())
                       : StridedMatrix<const T>{a_.values + row * a_.row + of.first, a_.row, 1});
        }
      }
    }
  }

private:
  // The rows [first, last) of panels.
  struct Part {
    std::ptrdiff_t first, last;
    std::ptrdiff_t depth() const { return last - first; }
  };
  struct Panels {
    std::ptrdiff_t first, last;
    T *values;
  };

  // Values that are copied on the way, in copies of columns.
  static double copies(const MatrixProduct<T> &p, bool turned) {
    const auto a = turned ? transposed(p.b) : p.a, b = turned ? transposed(p.a) : p.b;
    const auto rows = static_cast<double>(turned ? p.columns : p.rows);
    const auto columns = static_cast<double>(turned ? p.rows : p.columns);
    const auto depth = static_cast<double>(p.depth);
    return (a.column == 1 ? 0.0 : rows * depth) +
           depth * columns * (b.column == 1 ? kCopyOfRows : 1.0) + (turned ? rows * columns : 0.0);
  }

  // Columns of a panel with the number `number`, and with those that fill its last vector.
  std::ptrdiff_t columns_of(std::ptrdiff_t number) const {
    return std::min(tiles_.columns(), columns_ - number * tiles_.columns());
  }
  std::ptrdiff_t vectors_of(std::ptrdiff_t columns) const {
    return (columns + tiles_.lanes - 1) / tiles_.lanes;
  }

  void make_panels(const Part &of, const Panels &some) const {
    const double work =
        kCopyWork * static_cast<double>(of.depth()) * static_cast<double>(tiles_.columns());
    parallel_for(some.last - some.first, work, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
      for (std::ptrdiff_t i = first; i < last; ++i) {
        make_panel(of, some.first + i, some.values + i * panel_size_);
      }
    });
  }

  void make_panel(const Part &of, std::ptrdiff_t number, T *panel) const {
    const std::ptrdiff_t columns = columns_of(number), width = vectors_of(columns) * tiles_.lanes;
    const T *from = b_.values + of.first * b_.row + number * tiles_.columns() * b_.column;
    if (b_.column == 1) {
      for (std::ptrdiff_t k = 0; k < of.depth(); ++k) {
        std::copy_n(from + k * b_.row, columns, panel + k * width);
      }
    } else if (b_.row == 1) {
      tiles_.transpose({from, b_.column, nullptr, panel, width, columns, of.depth()});
    } else {
      for (std::ptrdiff_t k = 0; k < of.depth(); ++k) {
        for (std::ptrdiff_t j = 0; j < columns; ++j) {
          panel[k * width + j] = from[k * b_.row + j * b_.column];
        }
      }
    }
    if (columns < width) {
      for (std::ptrdiff_t k = 0; k < of.depth(); ++k) {
        std::fill(panel + k * width + columns, panel + (k + 1) * width, T(0));
      }
    }
  }

  // The rows [row, stop) of `a`, as far as the part goes, with values that are neighbours.
  StridedMatrix<const T> copied(const Part &of, std::ptrdiff_t row, std::ptrdiff_t stop,
                                T *to) const {
    const std::ptrdiff_t depth = of.depth();
    const T *from = a_.values + row * a_.row + of.first * a_.column;
    parallel_for((stop - row + kAside - 1) / kAside,
                 kCopyWork * static_cast<double>(kAside * depth),
                 [&](std::ptrdiff_t first, std::ptrdiff_t last) {
                   first *= kAside;
                   last = std::min(last * kAside, stop - row);
                   if (a_.row == 1) {
                     tiles_.transpose({from + first, a_.column, nullptr, to + first * depth, depth,
                                       depth, last - first});
                   } else {
                     for (std::ptrdiff_t i = first; i < last; ++i) {
                       for (std::ptrdiff_t k = 0; k < depth; ++k) {
                         to[i * depth + k] = from[i * a_.row + k * a_.column];
                       }
                     }
                   }
                 });
    return {to, depth, 1};
  }

  // The products of the rows [row, stop), which `a` has, with some panels.
  void multiply(const Part &of, const Panels &some, std::ptrdiff_t row, std::ptrdiff_t stop,
                const StridedMatrix<const T> &a) const {
    const std::ptrdiff_t each = (stop - row + kPieceRows - 1) / kPieceRows;
    const double work = kMultiplyWork * static_cast<double>(of.depth()) *
                        static_cast<double>(tiles_.columns() * std::min(stop - row, kPieceRows));
    parallel_for((some.last - some.first) * each, work,
                 [&](std::ptrdiff_t first, std::ptrdiff_t last) {
                   for (std::ptrdiff_t i = first; i < last; ++i) {
                     const std::ptrdiff_t from = i % each * kPieceRows;
                     multiply_rows(of, some.first + i / each, some.values + i / each * panel_size_,
                                   {a.values + from * a.row, a.row, 1}, row + from,
                                   std::min(row + from + kPieceRows, stop));
                   }
                 });
  }

  void multiply_rows(const Part &of, std::ptrdiff_t number, const T *panel,
                     const StridedMatrix<const T> &a, std::ptrdiff_t row,
                     std::ptrdiff_t stop) const {
    const std::ptrdiff_t column = number * tiles_.columns(), columns = columns_of(number);
    TileProduct<T> p{};
    p.a = a.values;
    p.a_stride = a.row;
    p.depth = of.depth();
    p.panel = panel;
    p.more = of.first > 0 || (bias_ != nullptr && !transposed_);
    T *out = out_.values + row * out_.row + column * out_.column;
    if (of.first == 0 && p.more) {
      for (std::ptrdiff_t i = 0; i < stop - row; ++i) {
        std::copy_n(bias_ + column, columns, out + i * out_.row);
      }
    }
    if (!transposed_ && columns % tiles_.lanes == 0) {
      p.out = out;
      p.out_stride = out_.row;
      tiles_.products(p, stop - row, vectors_of(columns));
      return;
    }
    for (; row < stop; row += kAside) {
      const std::ptrdiff_t rows = std::min(kAside, stop - row);
      multiply_aside(p, row, rows, out, columns);
      p.a += rows * p.a_stride;
      out += rows * out_.row;
    }
  }

  // Through a tile of its own: what is not whole vectors, or is to be transposed.
  void multiply_aside(TileProduct<T> p, std::ptrdiff_t row, std::ptrdiff_t rows, T *out,
                      std::ptrdiff_t columns) const {
    T tile[kAside * kMostColumns<T>];
    const std::ptrdiff_t width = vectors_of(columns) * tiles_.lanes;
    p.out = tile;
    p.out_stride = width;
    if (transposed_) {
      if (p.more) {
        tiles_.transpose({out, out_.column, nullptr, tile, width, columns, rows});
      }
      tiles_.products(p, rows, vectors_of(columns));
      tiles_.transpose({tile, width, p.more || bias_ == nullptr ? nullptr : bias_ + row, out,
                        out_.column, rows, columns});
      return;
    }
    for (std::ptrdiff_t i = 0; i < rows && p.more; ++i) {
      std::copy_n(out + i * out_.row, columns, tile + i * width);
    }
    tiles_.products(p, rows, vectors_of(columns));
    for (std::ptrdiff_t i = 0; i < rows; ++i) {
      std::copy_n(tile + i * width, columns, out + i * out_.row);
    }
  }

  const TileKernels<T> tiles_;
  StridedMatrix<const T> a_, b_;
  StridedMatrix<T> out_;
  const T *bias_;
  std::ptrdiff_t rows_, depth_, columns_;
  // Rows and columns are exchanged; `a_` is copied.
  bool transposed_, copy_a_;
  // Panels have the rows in parts_ parts of part_ rows.
  std::ptrdiff_t parts_, part_, panel_size_;
};

// A product whose right side are a few vectors, `b` of (depth, vectors), which it copies where
// their values are not neighbours.
template <class T>
void multiply_vectors(Isa isa, const MatrixProduct<T> &p, const StridedMatrix<const T> &a,
                      StridedMatrix<const T> b, const StridedMatrix<T> &out, bool turned) {
  const std::ptrdiff_t vectors = std::min(p.rows, p.columns);
  SmallRoom<T, kSmallBytes> copies(b.row == 1 ? 0 : vectors * p.depth);
  if (b.row != 1) {
    for (std::ptrdiff_t j = 0; j < vectors; ++j) {
      for (std::ptrdiff_t k = 0; k < p.depth; ++k) {
        copies.data()[j * p.depth + k] = b.values[k * b.row + j * b.column];
      }
    }
    b = {copies.data(), 1, p.depth};
  }
  dot_products(isa, DotProducts<T>{a.values, a.row, b.values, b.column, p.bias, turned ? 1 : 0,
                                   turned ? 0 : 1, out.values, out.row, out.column,
                                   std::max(p.rows, p.columns), vectors, p.depth});
}

template <class T>
void multiply_with(Isa isa, const MatrixProduct<T> &p) {
  if (p.rows <= 0 || p.columns <= 0) {
    return;
  }
  const bool are_dots = are_worth_dots(std::min(p.rows, p.columns), p.depth);
  if (are_dots && p.columns <= p.rows && p.a.column == 1) {
    multiply_vectors(isa, p, p.a, p.b, p.out, false);
  } else if (are_dots && p.rows <= p.columns && p.b.row == 1) {
    multiply_vectors(isa, p, transposed(p.b), transposed(p.a), transposed(p.out), true);
  } else {
    ProductRun<T>(p, tile_kernels(isa, T())).run();
  }
}

template <class T>
void multiply_all(const MatrixProducts<T> &p) {
  const MatrixProduct<T> &shape = p.first;
  const auto some = [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    for (std::ptrdiff_t i = first; i < last; ++i) {
      MatrixProduct<T> one = shape;
      one.a.values += p.offsets[i].a;
      one.b.values += p.offsets[i].b;
      one.out.values += p.offsets[i].out;
      multiply_with(isa(), one);
    }
  };
  // Few products share out their own rows and columns.
  if (p.count < 2 * thread_count()) {
    some(0, p.count);
    return;
  }
  parallel_for(p.count,
               kMultiplyWork * static_cast<double>(shape.rows) * static_cast<double>(shape.depth) *
                   static_cast<double>(shape.columns),
               some);
}

}  // namespace

void matrix_product(const MatrixProduct<float> &p) { multiply_with(isa(), p); }
void matrix_product(const MatrixProduct<double> &p) { multiply_with(isa(), p); }
void matrix_products(const MatrixProducts<float> &p) { multiply_all(p); }
void matrix_products(const MatrixProducts<double> &p) { multiply_all(p); }
void matrix_product_with(Isa isa, const MatrixProduct<float> &p) { multiply_with(isa, p); }
void matrix_product_with(Isa isa, const MatrixProduct<double> &p) { multiply_with(isa, p); }

}  // namespace modtree::kernels
