// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/row_convolution.h"

#include <algorithm>
#include <numeric>

#include "kernels/parallel.h"

namespace modtree::kernels {
namespace {

// Bytes of the copies that are made at a time, for each thread: in the second cache. Strips of
// fewer rows of windows would be mostly the rows that two of them have.
constexpr std::ptrdiff_t kCopyBytes = 1 << 18, kLeastRows = 8;
// With more outputs panels are copied; the second where rows are whole vectors or halves, which
// rarely cross two cache lines.
constexpr std::ptrdiff_t kFewOutputs = 64, kFewOutputsOfLines = 256;
// The most rows of the matrix of windows that are multiplied at a time: what a tile reads of copies
// and weight stays in the first cache.
constexpr std::ptrdiff_t kDepth = 320;

std::ptrdiff_t vectors_for(std::ptrdiff_t values, std::ptrdiff_t lanes) {
  return (values + lanes - 1) / lanes;
}

std::ptrdiff_t part_of(std::ptrdiff_t depth) {
  const std::ptrdiff_t parts = std::max<std::ptrdiff_t>((depth + kDepth - 1) / kDepth, 1);
  return std::max<std::ptrdiff_t>((depth + parts - 1) / parts, 1);
}

// So many rows of windows are whole vectors.
template <class T>
std::ptrdiff_t whole_rows(const Convolution<T> &a, std::ptrdiff_t lanes) {
  return lanes / std::gcd(lanes, a.columns.out);
}

// So many rows of `a`, or fewer, whose copies take about kCopyBytes.
template <class T>
WindowAxis strip_of(const Convolution<T> &a, std::ptrdiff_t lanes, std::ptrdiff_t most) {
  WindowAxis rows = a.rows;
  rows.out = most;
  const double row_bytes = static_cast<double>(a.channels * a.columns.kernel * a.columns.out) *
                           static_cast<double>(a.rows.stride) * sizeof(T);
  if (row_bytes * static_cast<double>(most) <= static_cast<double>(kCopyBytes)) {
    return rows;
  }
  const std::ptrdiff_t whole = whole_rows(a, lanes);
  const auto wanted = std::max(
      static_cast<std::ptrdiff_t>(static_cast<double>(kCopyBytes) / row_bytes), kLeastRows);
  const std::ptrdiff_t strips = (rows.out + wanted - 1) / wanted;
  const std::ptrdiff_t each = (rows.out + strips - 1) / strips;
  rows.out = std::min(rows.out, (each + whole - 1) / whole * whole);
  return rows;
}

}  // namespace

template <class T>
bool ShiftedImages<T>::are_as_they_are(const Convolution<T> &a) {
  const auto is_whole = [](const WindowAxis &axis) {
    return axis.kernel == 1 && axis.padding == 0 && axis.out == axis.size &&
           (axis.stride == 1 || axis.out == 1);
  };
  return is_whole(a.rows) && is_whole(a.columns);
}

template <class T>
ShiftedImages<T>::ShiftedImages(const Convolution<T> &a, std::ptrdiff_t lanes,
                                std::ptrdiff_t images, std::ptrdiff_t rows, std::ptrdiff_t threads)
    : a_(a),
      images_(images),
      threads_(threads),
      as_it_is_(are_as_they_are(a)),
      rows_(as_it_is_ ? a.rows : strip_of(a, lanes, rows)),
      parts_(std::min(rows_.stride, reach(rows_))),
      part_((reach(rows_) + parts_ - 1) / parts_),
      copy_stride_(parts_ * part_ * a.columns.out),
      channel_stride_(a.columns.kernel * copy_stride_),
      // A vector that begins with an image's last windows may end behind the last value.
      memory_(as_it_is_ ? 0
                        : at_a_time() * a.channels * channel_stride_ + kMostColumns<T> + kLine<T>),
      values_(at_line(memory_.data())) {
  for (std::ptrdiff_t column = 0; column < a.columns.kernel; ++column) {
    inside_.push_back(windows_inside(a.columns, column));
  }
  if (!as_it_is_) {
    T *end = values_ + at_a_time() * a.channels * channel_stride_;
    std::fill(end, end + kMostColumns<T>, T(0));
  }
}

template <class T>
std::ptrdiff_t ShiftedImages<T>::at_a_time() const {
  const std::ptrdiff_t bytes =
      a_.channels * channel_stride_ * static_cast<std::ptrdiff_t>(sizeof(T));
  const std::ptrdiff_t most = std::clamp<std::ptrdiff_t>(
      bytes > 0 ? threads_ * kCopyBytes / bytes : 1, 1, std::max<std::ptrdiff_t>(images_, 1));
  // As many each time.
  const std::ptrdiff_t times = std::max<std::ptrdiff_t>((images_ + most - 1) / most, 1);
  return std::max<std::ptrdiff_t>((images_ + times - 1) / times, 1);
}

template <class T>
const T *ShiftedImages<T>::make(std::ptrdiff_t group, std::ptrdiff_t first, std::ptrdiff_t count,
                                std::ptrdiff_t row) {
  const std::ptrdiff_t size = a_.rows.size * a_.columns.size;
  const T *from = a_.x + (first * a_.groups + group) * a_.channels * size;
  if (as_it_is_) {
    return from;
  }
  // Where another strip has left values, a strip at the edge of the image has rows of zeros.
  const std::ptrdiff_t shift = row * rows_.stride - rows_.padding;
  const bool is_edge = rows_.out < a_.rows.out && (shift < 0 || shift + reach(rows_) > rows_.size);
  const auto make_channels = [&](std::ptrdiff_t first_channel, std::ptrdiff_t last_channel) {
    for (std::ptrdiff_t i = first_channel; i < last_channel; ++i) {
      const std::ptrdiff_t image = i / a_.channels, channel = i % a_.channels;
      T *target = values_ + i * channel_stride_;
      if (i >= zeros_ || is_edge) {
        std::fill(target, target + channel_stride_, T(0));
      }
      for (std::ptrdiff_t column = 0; column < a_.columns.kernel; ++column) {
        copy(from + (image * a_.groups * a_.channels + channel) * size, row, column,
             target + column * copy_stride_);
      }
    }
  };
  if (threads_ > 1) {
    parallel_for(count * a_.channels, static_cast<double>(channel_stride_), make_channels);
  } else {
    make_channels(0, count * a_.channels);
  }
  zeros_ = std::max(zeros_, count * a_.channels);
  return values_;
}

template <class T>
void ShiftedImages<T>::copy(const T *__restrict from, std::ptrdiff_t window_row,
                            std::ptrdiff_t column, T *__restrict to) const {
  const WindowRange range = inside_[static_cast<std::size_t>(column)];
  // The strip's rows [above, above + rows) are the image's from `shift + above` on.
  const std::ptrdiff_t shift = window_row * rows_.stride - rows_.padding;
  const std::ptrdiff_t above = std::max<std::ptrdiff_t>(-shift, 0);
  const std::ptrdiff_t rows = std::min(rows_.size - shift, reach(rows_)) - above;
  const std::ptrdiff_t n = range.last - range.first, width = a_.columns.out;
  if (rows <= 0 || n <= 0) {
    return;
  }
  const std::ptrdiff_t stride = a_.columns.stride, step = a_.columns.size;
  from += column * a_.columns.dilation - a_.columns.padding + range.first * stride +
          (shift + above) * step;
  if (parts_ == 1 && stride == 1 && width == step) {
    // All rows at once. What their edges get from the rows before and after is made zero again.
    to += above * width;
    const std::ptrdiff_t count = (rows - 1) * width + n;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      to[range.first + i] = from[i];
    }
    for (std::ptrdiff_t i = 0; i < range.first; ++i) {
      for (std::ptrdiff_t row = 0; row < rows; ++row) {
        to[row * width + i] = T(0);
      }
    }
    for (std::ptrdiff_t i = range.last; i < width; ++i) {
      for (std::ptrdiff_t row = 0; row < rows; ++row) {
        to[row * width + i] = T(0);
      }
    }
    return;
  }
  for (std::ptrdiff_t row = 0; row < rows; ++row, from += step) {
    T *__restrict target = to + row_of(row + above) * width + range.first;
    if (stride == 1) {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        target[i] = from[i];
      }
    } else if (stride == 2) {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        target[i] = from[2 * i];
      }
    } else {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        target[i] = from[stride * i];
      }
    }
  }
}

// Some vectors of windows, as one tile has them: those of them that are the vector's own are `own`
// ones from `first` on, and belong to `out`.
template <class T>
struct RowRun<T>::Block {
  T *out[3];
  std::ptrdiff_t first[3], own[3], count;
};

template <class T>
bool RowRun<T>::fits(const Convolution<T> &a, const TileKernels<T> &tiles) {
  const std::ptrdiff_t windows = a.rows.out * a.columns.out;
  const bool has_lines = windows % tiles.lanes == 0 && 2 * a.columns.out % tiles.lanes == 0;
  if (a.outputs > (has_lines ? kFewOutputsOfLines : kFewOutputs) ||
      4 * vectors_for(windows, tiles.lanes) * tiles.lanes > 5 * windows) {
    return false;
  }
  return !ShiftedImages<T>::are_as_they_are(a) || windows >= tiles.lanes;
}

template <class T>
std::ptrdiff_t RowRun<T>::rows_for(const Convolution<T> &a, const TileKernels<T> &tiles,
                                   std::ptrdiff_t pieces) {
  const std::ptrdiff_t each = (a.rows.out + pieces - 1) / pieces;
  if (each < kLeastRows || ShiftedImages<T>::are_as_they_are(a)) {
    return a.rows.out;
  }
  const std::ptrdiff_t whole = whole_rows(a, tiles.lanes);
  return std::min((each + whole - 1) / whole * whole, a.rows.out);
}

template <class T>
RowRun<T>::RowRun(const Convolution<T> &a, const TileKernels<T> &tiles, std::ptrdiff_t images,
                  std::ptrdiff_t rows, std::ptrdiff_t threads)
    : a_(a),
      tiles_(tiles),
      threads_(threads),
      images_(a, tiles.lanes, images, rows, threads),
      windows_(a.rows.out * a.columns.out),
      depth_(a.channels * a.rows.kernel * a.columns.kernel),
      part_(part_of(depth_)) {
  places_.reserve(static_cast<std::size_t>(depth_));
  for (std::ptrdiff_t channel = 0; channel < a.channels; ++channel) {
    for (std::ptrdiff_t row = 0; row < a.rows.kernel; ++row) {
      for (std::ptrdiff_t column = 0; column < a.columns.kernel; ++column) {
        places_.push_back(images_.place(channel, row, column));
      }
    }
  }
}

template <class T>
void RowRun<T>::some_images(std::ptrdiff_t group, std::ptrdiff_t first, std::ptrdiff_t last) {
  some_rows(group, first, last, 0, a_.rows.out);
}

template <class T>
void RowRun<T>::some_rows(std::ptrdiff_t group, std::ptrdiff_t first, std::ptrdiff_t last,
                          std::ptrdiff_t first_row, std::ptrdiff_t last_row) {
  const std::ptrdiff_t step = images_.at_a_time(), strip = images_.strip(), each = tiles_.vectors;
  const double work = kMultiplyWork * static_cast<double>(depth_) *
                      static_cast<double>(tiles_.columns() * a_.outputs);
  for (; first < last; first += step) {
    const std::ptrdiff_t count = std::min(step, last - first);
    for (std::ptrdiff_t row = first_row; row < last_row; row += strip) {
      const T *x = images_.make(group, first, count, row);
      T *y = a_.y + (first * a_.groups + group) * a_.outputs * windows_ + row * a_.columns.out;
      const std::ptrdiff_t windows = std::min(strip, last_row - row) * a_.columns.out;
      const std::ptrdiff_t vectors = count * vectors_for(windows, tiles_.lanes);
      if (threads_ == 1) {
        some_vectors(group, x, y, windows, 0, vectors);
        continue;
      }
      parallel_for((vectors + each - 1) / each, work,
                   [&](std::ptrdiff_t first_tile, std::ptrdiff_t last_tile) {
                     some_vectors(group, x, y, windows, first_tile * each,
                                  std::min(last_tile * each, vectors));
                   });
    }
  }
}

template <class T>
void RowRun<T>::some_vectors(std::ptrdiff_t group, const T *x, T *y, std::ptrdiff_t windows,
                             std::ptrdiff_t first, std::ptrdiff_t last) const {
  const std::ptrdiff_t lanes = tiles_.lanes, vectors = vectors_for(windows, lanes);
  while (first < last) {
    // Two tiles of two vectors rather than one of three and one of one.
    const std::ptrdiff_t left = last - first;
    Block block{};
    block.count = left == tiles_.vectors + 1 ? left / 2 : std::min(left, tiles_.vectors);
    TileProduct<T> p{};
    p.a_stride = depth_;
    p.panel = x;
    bool whole = true;
    for (std::ptrdiff_t v = 0; v < block.count; ++v) {
      const std::ptrdiff_t image = (first + v) / vectors, window = (first + v) % vectors * lanes;
      const std::ptrdiff_t start = std::max<std::ptrdiff_t>(std::min(window, windows - lanes), 0);
      p.vectors[v] = image * images_.image_stride() + start;
      block.out[v] = y + image * a_.groups * a_.outputs * windows_ + window;
      block.first[v] = window - start;
      block.own[v] = std::min(lanes, windows - window);
      whole = whole && block.own[v] == lanes;
      p.outs[v] = block.out[v] - block.out[0];
    }
    for (std::ptrdiff_t from = 0; from < std::max<std::ptrdiff_t>(depth_, 1); from += part_) {
      p.depth = std::min(part_, depth_ - from);
      p.places = places_.data() + from;
      p.more = from > 0;
      for (std::ptrdiff_t row = 0; row < a_.outputs; row += tiles_.rows) {
        const std::ptrdiff_t output = group * a_.outputs + row;
        const std::ptrdiff_t rows = std::min(tiles_.rows, a_.outputs - row);
        p.a = a_.weight + output * depth_ + from;
        p.start = a_.bias ? a_.bias + output : nullptr;
        if (whole) {
          p.out = block.out[0] + row * windows_;
          p.out_stride = windows_;
          tiles_.products(p, rows, block.count);
        } else {
          Block at_row = block;
          for (std::ptrdiff_t v = 0; v < block.count; ++v) {
            at_row.out[v] += row * windows_;
          }
          multiply_aside(p, at_row, rows);
        }
      }
    }
    first += block.count;
  }
}

// Through a tile of its own: windows that are the vector's before are not written, as another
// thread may write them.
template <class T>
void RowRun<T>::multiply_aside(TileProduct<T> p, const Block &block, std::ptrdiff_t rows) const {
  T tile[kMostRows * kMostColumns<T>];
  const std::ptrdiff_t lanes = tiles_.lanes, width = block.count * lanes;
  const auto exchange = [&](bool into_tile) {
    for (std::ptrdiff_t row = 0; row < rows; ++row) {
      for (std::ptrdiff_t v = 0; v < block.count; ++v) {
        T *there = block.out[v] + row * windows_;
        T *here = tile + row * width + v * lanes + block.first[v];
        std::copy_n(into_tile ? there : here, block.own[v], into_tile ? here : there);
      }
    }
  };
  if (p.more) {
    std::fill_n(tile, rows * width, T(0));
    exchange(true);
  }
  p.out = tile;
  p.out_stride = width;
  for (std::ptrdiff_t v = 0; v < block.count; ++v) {
    p.outs[v] = v * lanes;
  }
  tiles_.products(p, rows, block.count);
  exchange(false);
}

template class ShiftedImages<float>;
template class ShiftedImages<double>;
template class RowRun<float>;
template class RowRun<double>;

}  // namespace modtree::kernels
