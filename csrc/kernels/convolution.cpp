// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/convolution.h"

#include <algorithm>

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

// Some images of one group with the zeros around them, as far as windows see them. Where nothing is
// around them they are used where they are.
template <class T>
class PaddedImages {
public:
  // Room behind the last value, to read whole vectors of every second one.
  static constexpr std::ptrdiff_t kSlack = 64;

  explicit PaddedImages(const Convolution<T> &a)
      : a_(a),
        as_it_is_(a.rows.padding == 0 && a.columns.padding == 0 && reach(a.rows) <= a.rows.size &&
                  reach(a.columns) <= a.columns.size),
        height_(as_it_is_ ? a.rows.size : reach(a.rows)),
        width_(as_it_is_ ? a.columns.size : reach(a.columns)),
        values_(as_it_is_ ? 0 : at_a_time() * a.channels * height_ * width_ + kSlack) {}

  bool has_slack() const { return !as_it_is_; }
  std::ptrdiff_t width() const { return width_; }
  std::ptrdiff_t plane() const { return height_ * width_; }
  std::ptrdiff_t image_stride() const {
    return (as_it_is_ ? a_.groups * a_.channels : a_.channels) * plane();
  }
  // How many images are made at a time.
  std::ptrdiff_t at_a_time() const {
    const std::ptrdiff_t bytes =
        a_.channels * height_ * width_ * static_cast<std::ptrdiff_t>(sizeof(T));
    return std::clamp<std::ptrdiff_t>(bytes > 0 ? kImageBytes / bytes : 1, 1,
                                      std::max<std::ptrdiff_t>(a_.images, 1));
  }

  // The channels of `group` of `count` images from `first` on.
  MODTREE_ALWAYS_INLINE const T *make(std::ptrdiff_t group, std::ptrdiff_t first,
                                      std::ptrdiff_t count) {
    const std::ptrdiff_t size = a_.rows.size * a_.columns.size;
    const T *from = a_.x + (first * a_.groups + group) * a_.channels * size;
    if (as_it_is_) {
      return from;
    }
    const std::ptrdiff_t rows = std::min(a_.rows.size, height_ - a_.rows.padding);
    const std::ptrdiff_t columns = std::min(a_.columns.size, width_ - a_.columns.padding);
    if (rows <= 0 || columns <= 0) {
      return values_.data();
    }
    for (std::ptrdiff_t image = 0; image < count; ++image) {
      for (std::ptrdiff_t channel = 0; channel < a_.channels; ++channel) {
        const T *source = from + (image * a_.groups * a_.channels + channel) * size;
        T *target = values_.data() + (image * a_.channels + channel) * plane() +
                    a_.rows.padding * width_ + a_.columns.padding;
        for (std::ptrdiff_t row = 0; row < rows; ++row) {
          std::copy_n(source + row * a_.columns.size, columns, target + row * width_);
        }
      }
    }
    return values_.data();
  }

private:
  const Convolution<T> &a_;
  bool as_it_is_;
  std::ptrdiff_t height_, width_;
  Zeros<T> values_;
};

// Where the columns of a panel come from: pieces of rows of windows.
struct Piece {
  std::ptrdiff_t offset, count;
};

template <std::ptrdiff_t kColumns>
struct Pieces {
  Piece list[kColumns];
  std::ptrdiff_t count = 0;

  // The windows [first, first + columns), counted through all images.
  template <class T>
  void find(const Convolution<T> &a, const PaddedImages<T> &images, std::ptrdiff_t first,
            std::ptrdiff_t columns) {
    const std::ptrdiff_t width = a.columns.out, windows = a.rows.out * width;
    std::ptrdiff_t image = first / windows, row = first % windows / width, column = first % width;
    count = 0;
    while (columns > 0) {
      const std::ptrdiff_t n = std::min(columns, width - column);
      list[count++] = {image * images.image_stride() + row * a.rows.stride * images.width() +
                           column * a.columns.stride,
                       n};
      columns -= n;
      column = 0;
      if (++row == a.rows.out) {
        row = 0;
        ++image;
      }
    }
  }
};

// Copies every kStride-th value, whole vectors at a time: what lies behind `n` is overwritten by
// what comes next.
template <int kStride, int kLanes, class T>
MODTREE_ALWAYS_INLINE void copy_vectors(const T *from, T *to, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; i += kLanes) {
    T values[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      values[lane] = from[kStride * (i + lane)];
    }
    std::copy_n(values, kLanes, to + i);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void copy_values(const T *__restrict from, T *__restrict to, std::ptrdiff_t n,
                                       std::ptrdiff_t stride) {
  if (stride == 1) {
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      to[i] = from[i];
    }
  } else {
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      to[i] = from[stride * i];
    }
  }
}

// Calls visit(first value of the windows' element) for the rows [first, last) of the matrix of
// columns.
template <class T, class Visit>
MODTREE_ALWAYS_INLINE void for_each_element(const Convolution<T> &a, const PaddedImages<T> &images,
                                            const T *x, std::ptrdiff_t first, std::ptrdiff_t last,
                                            Visit visit) {
  const std::ptrdiff_t size = a.rows.kernel * a.columns.kernel;
  std::ptrdiff_t channel = first / size, r = first % size / a.columns.kernel,
                 c = first % a.columns.kernel;
  for (std::ptrdiff_t k = first; k < last; ++k) {
    visit(x + channel * images.plane() + r * a.rows.dilation * images.width() +
          c * a.columns.dilation);
    if (++c == a.columns.kernel) {
      c = 0;
      if (++r == a.rows.kernel) {
        r = 0;
        ++channel;
      }
    }
  }
}

// One panel: (last - first) rows of `width` columns, of which the pieces fill the first; the others
// are whatever is there.
template <int kLanes, class T, std::ptrdiff_t kColumns>
MODTREE_ALWAYS_INLINE void make_panel(const Convolution<T> &a, const PaddedImages<T> &images,
                                      const T *x, const Pieces<kColumns> &pieces,
                                      std::ptrdiff_t first, std::ptrdiff_t last,
                                      std::ptrdiff_t width, T *panel) {
  const auto fill = [&](auto copy) {
    for_each_element(a, images, x, first, last, [&](const T *element) {
      T *to = panel;
      for (std::ptrdiff_t i = 0; i < pieces.count; ++i) {
        copy(element + pieces.list[i].offset, to, pieces.list[i].count);
        to += pieces.list[i].count;
      }
      panel += width;
    });
  };
  const std::ptrdiff_t stride = a.columns.stride;
  if (images.has_slack() && stride == 1) {
    fill([](const T *from, T *to, std::ptrdiff_t n) { copy_vectors<1, kLanes>(from, to, n); });
  } else if (images.has_slack() && stride == 2) {
    fill([](const T *from, T *to, std::ptrdiff_t n) { copy_vectors<2, kLanes>(from, to, n); });
  } else {
    fill([=](const T *from, T *to, std::ptrdiff_t n) { copy_values(from, to, n, stride); });
  }
}

// How panels are cut.
template <class T, class Tile>
struct PanelSizes {
  std::ptrdiff_t depth, rows, size, at_a_time;

  PanelSizes(const Convolution<T> &a, std::ptrdiff_t images)
      : depth(a.channels * a.rows.kernel * a.columns.kernel),
        rows(std::clamp<std::ptrdiff_t>(depth, 1, kDepth)),
        size(rows * kPanelColumns<T, Tile>) {
    const std::ptrdiff_t all = images * a.rows.out * a.columns.out;
    const std::ptrdiff_t wanted = (all + kPanelColumns<T, Tile> - 1) / kPanelColumns<T, Tile>;
    const std::ptrdiff_t bytes = size * static_cast<std::ptrdiff_t>(sizeof(T));
    at_a_time = std::clamp<std::ptrdiff_t>(kPanelBytes / bytes, 1, wanted);
  }
};

// The products of one panel that belongs to the windows [first, first + columns).
template <class T, class Tile>
MODTREE_ALWAYS_INLINE void panel_rows(const Convolution<T> &a, TileProduct<T> p, T *y,
                                      std::ptrdiff_t first, std::ptrdiff_t columns,
                                      std::ptrdiff_t vectors, std::ptrdiff_t rows) {
  constexpr std::ptrdiff_t kColumns = kPanelColumns<T, Tile>;
  const std::ptrdiff_t windows = a.rows.out * a.columns.out;
  const std::ptrdiff_t image_stride = a.groups * a.outputs * windows;
  const std::ptrdiff_t image = first / windows, window = first % windows;
  const std::ptrdiff_t width = vectors * kVectorColumns<T, Tile>;
  // What is not whole vectors of one image goes through a tile of its own.
  const bool direct = columns == width && window + columns <= windows;
  T tile[Tile::kRows * kColumns];
  const auto exchange = [&](bool into_tile) {
    for (std::ptrdiff_t row = 0; row < rows; ++row) {
      std::ptrdiff_t done = 0, place = image * image_stride + row * windows + window;
      for (std::ptrdiff_t left = windows - window; done < columns; left = windows) {
        const std::ptrdiff_t n = std::min(left, columns - done);
        T *there = y + place, *here = tile + row * width + done;
        std::copy_n(into_tile ? there : here, n, into_tile ? here : there);
        done += n;
        place += image_stride + n - windows;
      }
    }
  };
  if (!direct && p.more) {
    exchange(true);
  }
  p.out = direct ? y + image * image_stride + window : tile;
  p.out_stride = direct ? windows : width;
  panel_products<T, Tile>(p, rows, vectors);
  if (!direct) {
    exchange(false);
  }
}

// Everything of `group` for the windows of some images.
template <class T, class Tile>
MODTREE_ALWAYS_INLINE void group_products(const Convolution<T> &a, const PaddedImages<T> &images,
                                          const T *x, std::ptrdiff_t group, T *y,
                                          std::ptrdiff_t total, const PanelSizes<T, Tile> &sizes,
                                          T *panels) {
  constexpr std::ptrdiff_t kLanes = kVectorColumns<T, Tile>, kColumns = kPanelColumns<T, Tile>;
  const std::ptrdiff_t depth = sizes.depth, at_a_time = sizes.at_a_time;
  const T *weight = a.weight + group * a.outputs * depth;
  Pieces<kColumns> pieces;
  for (std::ptrdiff_t first = 0; first < total; first += at_a_time * kColumns) {
    const std::ptrdiff_t last = std::min(total, first + at_a_time * kColumns);
    std::ptrdiff_t from = 0;
    do {
      const std::ptrdiff_t to = std::min(depth, from + kDepth);
      for (std::ptrdiff_t i = first; i < last; i += kColumns) {
        const std::ptrdiff_t columns = std::min(kColumns, last - i);
        const std::ptrdiff_t width = (columns + kLanes - 1) / kLanes * kLanes;
        pieces.find(a, images, i, columns);
        make_panel<kLanes>(a, images, x, pieces, from, to, width,
                           panels + (i - first) / kColumns * sizes.size);
      }
      for (std::ptrdiff_t row = 0; row < a.outputs; row += Tile::kRows) {
        const std::ptrdiff_t rows = std::min<std::ptrdiff_t>(Tile::kRows, a.outputs - row);
        TileProduct<T> p{};
        p.a = weight + row * depth + from;
        p.a_stride = depth;
        p.depth = to - from;
        p.more = from > 0;
        p.start = a.bias ? a.bias + group * a.outputs + row : nullptr;
        for (std::ptrdiff_t i = first; i < last; i += kColumns) {
          const std::ptrdiff_t columns = std::min(kColumns, last - i);
          p.panel = panels + (i - first) / kColumns * sizes.size;
          panel_rows<T, Tile>(a, p, y + row * a.rows.out * a.columns.out, i, columns,
                              (columns + kLanes - 1) / kLanes, rows);
        }
      }
      from = to;
    } while (from < depth);
  }
}

template <class T, class Tile>
MODTREE_ALWAYS_INLINE void convolve(const Convolution<T> &a) {
  const std::ptrdiff_t windows = a.rows.out * a.columns.out;
  if (a.images == 0 || a.outputs == 0 || windows == 0) {
    return;
  }
  PaddedImages<T> images(a);
  const std::ptrdiff_t step = images.at_a_time();
  const PanelSizes<T, Tile> sizes(a, step);
  // A copy of whole vectors may end behind the last panel.
  Zeros<T> panels(sizes.at_a_time * sizes.size + kVectorColumns<T, Tile>);
  for (std::ptrdiff_t group = 0; group < a.groups; ++group) {
    for (std::ptrdiff_t first = 0; first < a.images; first += step) {
      const std::ptrdiff_t count = std::min(step, a.images - first);
      const T *x = images.make(group, first, count);
      T *y = a.y + (first * a.groups + group) * a.outputs * windows;
      group_products<T, Tile>(a, images, x, group, y, count * windows, sizes, panels.data());
    }
  }
}

#ifdef MODTREE_KERNELS_X86
template <class T>
__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))) void
convolve_avx512(const Convolution<T> &a) {
  convolve<T, WideTile>(a);
}
template <class T>
__attribute__((target("avx2,fma"))) void convolve_avx2(const Convolution<T> &a) {
  convolve<T, MiddleTile>(a);
}
#endif

template <class T>
void convolve_with(Isa isa, const Convolution<T> &a) {
#ifdef MODTREE_KERNELS_X86
  switch (isa) {
    case Isa::avx512:
      return convolve_avx512(a);
    case Isa::avx2:
      return convolve_avx2(a);
    case Isa::baseline:
      break;
  }
#else
  static_cast<void>(isa);
#endif
  convolve<T, NarrowTile>(a);
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

void convolution(const Convolution<float> &a) { convolve_with(isa(), a); }
void convolution(const Convolution<double> &a) { convolve_with(isa(), a); }
void convolution_with(Isa isa, const Convolution<float> &a) { convolve_with(isa, a); }
void convolution_with(Isa isa, const Convolution<double> &a) { convolve_with(isa, a); }

}  // namespace modtree::kernels
