// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/convolution.h"

#include <algorithm>
#include <vector>

#include "kernels/scratch.h"
#include "kernels/tile_product.h"

namespace modtree::kernels {
namespace {

// Rows of a panel and bytes of all panels that are worked on at a time: in the second cache.
constexpr std::ptrdiff_t kDepth = 512;
constexpr std::ptrdiff_t kPanelBytes = 1 << 19;
// Bytes of the padded images that are made at a time.
constexpr std::ptrdiff_t kImageBytes = 1 << 20;

std::ptrdiff_t reach(const WindowAxis &axis) {
  return (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
}

// Some images of one group with the zeros around them, as far as windows see them. The columns of
// an image are taken apart by their remainders modulo the stride, so that neighbouring windows find
// an element in neighbouring places. Where windows of one element see nothing but the images, these
// are used where they are.
template <class T>
class PaddedImages {
public:
  // Room behind the last value, to read as many whole vectors as a panel has.
  static constexpr std::ptrdiff_t kSlack = kMostColumns<T>;

  explicit PaddedImages(const Convolution<T> &a)
      : a_(a),
        as_it_is_(a.rows.padding == 0 && a.columns.padding == 0 && a.rows.kernel == 1 &&
                  a.columns.kernel == 1 && reach(a.rows) <= a.rows.size &&
                  reach(a.columns) <= a.columns.size),
        height_(as_it_is_ ? a.rows.size : reach(a.rows)),
        parts_(as_it_is_ ? 1 : std::min(a.columns.stride, reach(a.columns))),
        part_(as_it_is_ ? a.columns.size : (reach(a.columns) + parts_ - 1) / parts_),
        values_(as_it_is_ ? 0 : at_a_time() * a.channels * plane() + kSlack) {}

  bool has_slack() const { return !as_it_is_; }
  std::ptrdiff_t width() const { return parts_ * part_; }
  std::ptrdiff_t plane() const { return height_ * width(); }
  std::ptrdiff_t image_stride() const {
    return (as_it_is_ ? a_.groups * a_.channels : a_.channels) * plane();
  }
  // From one window to the next.
  std::ptrdiff_t step() const { return as_it_is_ ? a_.columns.stride : 1; }
  // Where a padded row has its element `c`.
  std::ptrdiff_t column(std::ptrdiff_t c) const { return c % parts_ * part_ + c / parts_; }
  // How many images are made at a time.
  std::ptrdiff_t at_a_time() const {
    const std::ptrdiff_t bytes = a_.channels * plane() * static_cast<std::ptrdiff_t>(sizeof(T));
    return std::clamp<std::ptrdiff_t>(bytes > 0 ? kImageBytes / bytes : 1, 1,
                                      std::max<std::ptrdiff_t>(a_.images, 1));
  }

  // The channels of `group` of `count` images from `first` on.
  const T *make(std::ptrdiff_t group, std::ptrdiff_t first, std::ptrdiff_t count) {
    const std::ptrdiff_t size = a_.rows.size * a_.columns.size;
    const T *from = a_.x + (first * a_.groups + group) * a_.channels * size;
    if (as_it_is_) {
      return from;
    }
    const std::ptrdiff_t rows = std::min(a_.rows.size, height_ - a_.rows.padding);
    const std::ptrdiff_t columns =
        std::min(a_.columns.size, reach(a_.columns) - a_.columns.padding);
    if (rows <= 0 || columns <= 0) {
      return values_.data();
    }
    for (std::ptrdiff_t image = 0; image < count; ++image) {
      for (std::ptrdiff_t channel = 0; channel < a_.channels; ++channel) {
        const T *source = from + (image * a_.groups * a_.channels + channel) * size;
        T *target =
            values_.data() + (image * a_.channels + channel) * plane() + a_.rows.padding * width();
        for (std::ptrdiff_t row = 0; row < rows; ++row) {
          take_apart(source + row * a_.columns.size, columns, target + row * width());
        }
      }
    }
    return values_.data();
  }

private:
  void take_apart(const T *__restrict from, std::ptrdiff_t columns, T *__restrict to) const {
    for (std::ptrdiff_t part = 0; part < std::min(parts_, columns); ++part) {
      T *__restrict target = to + column(part + a_.columns.padding);
      const T *__restrict source = from + part;
      const std::ptrdiff_t n = (columns - part + parts_ - 1) / parts_;
      if (parts_ == 1) {
        std::copy_n(source, n, target);
      } else if (parts_ == 2) {
        for (std::ptrdiff_t i = 0; i < n; ++i) {
          target[i] = source[2 * i];
        }
      } else {
        for (std::ptrdiff_t i = 0; i < n; ++i) {
          target[i] = source[parts_ * i];
        }
      }
    }
  }

  const Convolution<T> &a_;
  bool as_it_is_;
  std::ptrdiff_t height_, parts_, part_;
  Zeros<T> values_;
};

// The source of one panel's columns, the windows [first, first + columns), counted through all
// images.
template <class T>
std::ptrdiff_t find_pieces(const Convolution<T> &a, const PaddedImages<T> &images,
                           std::ptrdiff_t first, std::ptrdiff_t columns, Piece *pieces) {
  const std::ptrdiff_t width = a.columns.out, windows = a.rows.out * width;
  std::ptrdiff_t image = first / windows, row = first % windows / width, column = first % width;
  std::ptrdiff_t count = 0;
  while (columns > 0) {
    const std::ptrdiff_t n = std::min(columns, width - column);
    pieces[count++] = {image * images.image_stride() + row * a.rows.stride * images.width() +
                           column * images.step(),
                       n};
    columns -= n;
    column = 0;
    if (++row == a.rows.out) {
      row = 0;
      ++image;
    }
  }
  return count;
}

// One convolution with one set of instructions.
template <class T>
class Run {
public:
  Run(const Convolution<T> &a, const TileKernels<T> &tiles)
      : a_(a),
        tiles_(tiles),
        images_(a),
        windows_(a.rows.out * a.columns.out),
        depth_(a.channels * a.rows.kernel * a.columns.kernel),
        panel_size_(std::clamp<std::ptrdiff_t>(depth_, 1, kDepth) * tiles.columns()),
        at_a_time_(panels_at_a_time()),
        // Copies of whole vectors may end behind the last panel.
        memory_(at_a_time_ * panel_size_ + tiles.columns() + kLine<T>),
        panels_(at_line(memory_.data())) {
    for (std::ptrdiff_t r = 0; r < a.rows.kernel; ++r) {
      for (std::ptrdiff_t c = 0; c < a.columns.kernel; ++c) {
        offsets_.push_back(r * a.rows.dilation * images_.width() +
                           images_.column(c * a.columns.dilation));
      }
    }
  }

  void all() {
    const std::ptrdiff_t step = images_.at_a_time();
    for (std::ptrdiff_t group = 0; group < a_.groups; ++group) {
      for (std::ptrdiff_t first = 0; first < a_.images; first += step) {
        const std::ptrdiff_t count = std::min(step, a_.images - first);
        some_images(group, images_.make(group, first, count),
                    a_.y + (first * a_.groups + group) * a_.outputs * windows_, count * windows_);
      }
    }
  }

private:
  std::ptrdiff_t panels_at_a_time() const {
    const std::ptrdiff_t all = images_.at_a_time() * windows_;
    const std::ptrdiff_t bytes = panel_size_ * static_cast<std::ptrdiff_t>(sizeof(T));
    return std::clamp<std::ptrdiff_t>(kPanelBytes / bytes, 1,
                                      (all + tiles_.columns() - 1) / tiles_.columns());
  }

  // Everything of `group` for the windows of some images.
  void some_images(std::ptrdiff_t group, const T *x, T *y, std::ptrdiff_t total) {
    const std::ptrdiff_t step = at_a_time_ * tiles_.columns();
    for (std::ptrdiff_t first = 0; first < total; first += step) {
      const std::ptrdiff_t last = std::min(total, first + step);
      std::ptrdiff_t from = 0;
      do {
        const std::ptrdiff_t to = std::min(depth_, from + kDepth);
        make_panels(x, first, last, from, to);
        for (std::ptrdiff_t row = 0; row < a_.outputs; row += tiles_.rows) {
          multiply(group, row, y, first, last, from, to);
        }
        from = to;
      } while (from < depth_);
    }
  }

  std::ptrdiff_t vectors_for(std::ptrdiff_t columns) const {
    return (columns + tiles_.lanes - 1) / tiles_.lanes;
  }

  // Of the windows [first, last), the rows [from, to).
  void make_panels(const T *x, std::ptrdiff_t first, std::ptrdiff_t last, std::ptrdiff_t from,
                   std::ptrdiff_t to) {
    Piece pieces[kMostColumns<T>];
    PanelFill<T> fill{};
    fill.x = x;
    fill.plane = images_.plane();
    fill.taps = static_cast<std::ptrdiff_t>(offsets_.size());
    fill.offsets = offsets_.data();
    fill.first = from;
    fill.last = to;
    fill.pieces = pieces;
    fill.step = images_.step();
    fill.longest = images_.has_slack() ? a_.columns.out : 0;
    fill.panel = panels_;
    for (std::ptrdiff_t i = first; i < last; i += tiles_.columns()) {
      const std::ptrdiff_t columns = std::min(tiles_.columns(), last - i);
      fill.count = find_pieces(a_, images_, i, columns, pieces);
      fill.width = vectors_for(columns) * tiles_.lanes;
      tiles_.fill(fill);
      fill.panel += panel_size_;
    }
  }

  // The products of a tile's rows, from `row` on, with all panels.
  void multiply(std::ptrdiff_t group, std::ptrdiff_t row, T *y, std::ptrdiff_t first,
                std::ptrdiff_t last, std::ptrdiff_t from, std::ptrdiff_t to) {
    const std::ptrdiff_t output = group * a_.outputs + row;
    TileProduct<T> p{};
    p.a = a_.weight + output * depth_ + from;
    p.a_stride = depth_;
    p.depth = to - from;
    p.more = from > 0;
    p.start = a_.bias ? a_.bias + output : nullptr;
    p.panel = panels_;
    const std::ptrdiff_t rows = std::min(tiles_.rows, a_.outputs - row);
    for (std::ptrdiff_t i = first; i < last; i += tiles_.columns()) {
      const std::ptrdiff_t columns = std::min(tiles_.columns(), last - i);
      const std::ptrdiff_t image = i / windows_, window = i % windows_;
      T *out = y + (image * a_.groups * a_.outputs + row) * windows_ + window;
      if (columns % tiles_.lanes == 0 && window + columns <= windows_) {
        p.out = out;
        p.out_stride = windows_;
        tiles_.products(p, rows, vectors_for(columns));
      } else {
        multiply_aside(p, out, rows, columns, windows_ - window);
      }
      p.panel += panel_size_;
    }
  }

  // Through a tile of its own: what is not whole vectors of one image, in which `left` columns are
  // left.
  void multiply_aside(TileProduct<T> p, T *out, std::ptrdiff_t rows, std::ptrdiff_t columns,
                      std::ptrdiff_t left) {
    T tile[kMostRows * kMostColumns<T>];
    p.out = tile;
    p.out_stride = vectors_for(columns) * tiles_.lanes;
    const auto exchange = [&](bool into_tile) {
      for (std::ptrdiff_t row = 0; row < rows; ++row) {
        T *there = out + row * windows_, *here = tile + row * p.out_stride;
        std::ptrdiff_t n = std::min(left, columns);
        for (std::ptrdiff_t done = 0; done < columns;) {
          std::copy_n(into_tile ? there : here + done, n, into_tile ? here + done : there);
          done += n;
          there += a_.groups * a_.outputs * windows_ + n - windows_;
          n = std::min(windows_, columns - done);
        }
      }
    };
    if (p.more) {
      exchange(true);
    }
    tiles_.products(p, rows, vectors_for(columns));
    exchange(false);
  }

  const Convolution<T> &a_;
  const TileKernels<T> tiles_;
  PaddedImages<T> images_;
  std::ptrdiff_t windows_, depth_, panel_size_, at_a_time_;
  Zeros<T> memory_;
  T *panels_;
  // Of the elements of a window.
  std::vector<std::ptrdiff_t> offsets_;
};

template <class T>
void convolve(Isa isa, const Convolution<T> &a) {
  if (a.images > 0 && a.outputs > 0 && a.rows.out * a.columns.out > 0) {
    Run<T>(a, tile_kernels(isa, T())).all();
  }
}

}  // namespace

double convolution_scratch(std::ptrdiff_t channels, const WindowAxis &rows,
                           const WindowAxis &columns) {
  const auto span = [](const WindowAxis &axis) {
    return static_cast<double>(axis.out - 1) * static_cast<double>(axis.stride) +
           static_cast<double>(axis.kernel - 1) * static_cast<double>(axis.dilation) + 1.0;
  };
  return rows.out > 0 && columns.out > 0
             ? static_cast<double>(channels) * span(rows) * span(columns)
             : 0.0;
}

void convolution(const Convolution<float> &a) { convolve(isa(), a); }
void convolution(const Convolution<double> &a) { convolve(isa(), a); }
void convolution_with(Isa isa, const Convolution<float> &a) { convolve(isa, a); }
void convolution_with(Isa isa, const Convolution<double> &a) { convolve(isa, a); }

}  // namespace modtree::kernels
