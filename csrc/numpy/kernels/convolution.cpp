// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/convolution.h"

#include <algorithm>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/row_convolution.h"
#include "kernels/scratch.h"
#include "kernels/tile_product.h"

namespace modtree::kernels {
namespace {

// The most rows of a panel and the bytes of all panels that are worked on at a time: in the second
// cache.
constexpr std::ptrdiff_t kDepth = 768;
constexpr std::ptrdiff_t kPanelBytes = 1 << 19;
// Bytes of the padded images that are made at a time, for each thread.
constexpr std::ptrdiff_t kImageBytes = 1 << 20;
// Where all panels together have no more bytes they may be shared by threads.
constexpr std::ptrdiff_t kSharedBytes = 1 << 23;
// Simple operations that take as long as one copied value.
constexpr double kCopyWork = 1.0;

// Some images of one group with the zeros around them, as far as windows see them. The columns of
// an image are taken apart by their remainders modulo the stride, so that neighbouring windows find
// an element in neighbouring places. Where windows of one element see nothing but the images, these
// are used where they are.
template <class T>
class PaddedImages {
public:
  // Room behind the last value, to read as many whole vectors as a panel has.
  static constexpr std::ptrdiff_t kSlack = kMostColumns<T>;

  // For up to `images` images, which so many threads make.
  PaddedImages(const Convolution<T> &a, std::ptrdiff_t images, std::ptrdiff_t threads)
      : a_(a),
        images_(images),
        threads_(threads),
        as_it_is_(a.rows.padding == 0 && a.columns.padding == 0 && a.rows.kernel == 1 &&
                  a.columns.kernel == 1 && reach(a.rows) <= a.rows.size &&
                  reach(a.columns) <= a.columns.size),
        height_(as_it_is_ ? a.rows.size : reach(a.rows)),
        parts_(as_it_is_ ? 1 : std::min(a.columns.stride, reach(a.columns))),
        part_(as_it_is_ ? a.columns.size : (reach(a.columns) + parts_ - 1) / parts_),
        values_(as_it_is_ ? 0 : at_a_time() * a.channels * plane() + kSlack) {
    if (!as_it_is_) {
      T *end = values_.data() + at_a_time() * a.channels * plane();
      std::fill(end, end + kSlack, T(0));
    }
  }

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
    return std::clamp<std::ptrdiff_t>(bytes > 0 ? threads_ * kImageBytes / bytes : 1, 1,
                                      std::max<std::ptrdiff_t>(images_, 1));
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
    const auto make_planes = [&](std::ptrdiff_t first_plane, std::ptrdiff_t last_plane) {
      for (std::ptrdiff_t i = first_plane; i < last_plane; ++i) {
        const std::ptrdiff_t image = i / a_.channels, channel = i % a_.channels;
        const T *source = from + (image * a_.groups * a_.channels + channel) * size;
        T *target = values_.data() + i * plane();
        if (i >= zeros_) {
          std::fill(target, target + plane(), T(0));
        }
        target += a_.rows.padding * width();
        for (std::ptrdiff_t row = 0; row < rows && columns > 0; ++row) {
          take_apart(source + row * a_.columns.size, columns, target + row * width());
        }
      }
    };
    if (threads_ > 1) {
      parallel_for(count * a_.channels, kCopyWork * static_cast<double>(plane()), make_planes);
    } else {
      make_planes(0, count * a_.channels);
    }
    zeros_ = std::max(zeros_, count * a_.channels);
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
  std::ptrdiff_t images_, threads_;
  bool as_it_is_;
  std::ptrdiff_t height_, parts_, part_;
  Room<T> values_;
  // So many planes have their zeros.
  std::ptrdiff_t zeros_ = 0;
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

// Some images of a convolution, with one set of instructions.
template <class T>
class Run {
public:
  // For up to `images` images at a time. With more than one thread, what can be is shared out.
  Run(const Convolution<T> &a, const TileKernels<T> &tiles, std::ptrdiff_t images,
      std::ptrdiff_t threads)
      : a_(a),
        tiles_(tiles),
        threads_(threads),
        images_(a, images, threads),
        windows_(a.rows.out * a.columns.out),
        depth_(a.channels * a.rows.kernel * a.columns.kernel),
        parts_(std::max<std::ptrdiff_t>((depth_ + kDepth - 1) / kDepth, 1)),
        part_((depth_ + parts_ - 1) / parts_),
        panel_size_(std::max<std::ptrdiff_t>(part_, 1) * tiles.columns()) {
    for (std::ptrdiff_t r = 0; r < a.rows.kernel; ++r) {
      for (std::ptrdiff_t c = 0; c < a.columns.kernel; ++c) {
        offsets_.push_back(r * a.rows.dilation * images_.width() +
                           images_.column(c * a.columns.dilation));
      }
    }
  }

  // The images [first, last) of `group`.
  void some_images(std::ptrdiff_t group, std::ptrdiff_t first, std::ptrdiff_t last) {
    for (const std::ptrdiff_t step = images_.at_a_time(); first < last; first += step) {
      const std::ptrdiff_t count = std::min(step, last - first);
      const T *x = images_.make(group, first, count);
      T *y = a_.y + (first * a_.groups + group) * a_.outputs * windows_;
      const std::ptrdiff_t panels = panels_for(count * windows_);
      if (threads_ == 1) {
        some_panels(group, x, y, count * windows_, 0, panels);
      } else if (panels < 4 * threads_ && shared_size(panels) <= kSharedBytes) {
        shared_panels(group, x, y, count * windows_, panels);
      } else {
        parallel_for(panels, panel_work(),
                     [&](std::ptrdiff_t first_panel, std::ptrdiff_t last_panel) {
                       some_panels(group, x, y, count * windows_, first_panel, last_panel);
                     });
      }
    }
  }

private:
  // Memory for `count` panels, from a line of the cache on. Copies of whole vectors may end behind
  // the last one.
  class Panels {
  public:
    Panels(std::ptrdiff_t count, std::ptrdiff_t size)
        : memory_(count * size + kMostColumns<T> + kLine<T>),
          values_(at_line(memory_.data())) {}
    T *data() { return values_; }

  private:
    Room<T> memory_;
    T *values_;
  };

  std::ptrdiff_t panels_for(std::ptrdiff_t windows) const {
    return (windows + tiles_.columns() - 1) / tiles_.columns();
  }
  double panel_work() const {
    return static_cast<double>(depth_) * static_cast<double>(tiles_.columns()) *
           (kCopyWork + kMultiplyWork * static_cast<double>(a_.outputs));
  }
  // Bytes of panels that have all rows.
  double shared_size(std::ptrdiff_t panels) const {
    return static_cast<double>(panels * tiles_.columns()) * static_cast<double>(depth_) *
           static_cast<double>(sizeof(T));
  }

  // Everything for the panels [first, last) of the `windows` windows of some images.
  void some_panels(std::ptrdiff_t group, const T *x, T *y, std::ptrdiff_t windows,
                   std::ptrdiff_t first, std::ptrdiff_t last) const {
    const std::ptrdiff_t bytes = panel_size_ * static_cast<std::ptrdiff_t>(sizeof(T));
    const std::ptrdiff_t step = std::clamp<std::ptrdiff_t>(
        kPanelBytes / bytes, 1, std::max<std::ptrdiff_t>(last - first, 1));
    Panels panels(step, panel_size_);
    for (; first < last; first += step) {
      const std::ptrdiff_t stop = std::min(first + step, last);
      for (std::ptrdiff_t part = 0; part < parts_; ++part) {
        const std::ptrdiff_t from = part * part_, to = std::min(depth_, from + part_);
        for (std::ptrdiff_t i = first; i < stop; ++i) {
          make_panel(x, windows, i, from, to, panels.data() + (i - first) * panel_size_);
        }
        for (std::ptrdiff_t row = 0; row < a_.outputs; row += tiles_.rows) {
          for (std::ptrdiff_t i = first; i < stop; ++i) {
            multiply(group, row, y, windows, i, from, to,
                     panels.data() + (i - first) * panel_size_);
          }
        }
      }
    }
  }

  // The same for all windows where there are few: first all rows of all panels are made, then
  // threads have different rows of the result.
  void shared_panels(std::ptrdiff_t group, const T *x, T *y, std::ptrdiff_t windows,
                     std::ptrdiff_t count) const {
    // Copies of whole vectors that end behind a panel must not end in the next one, which another
    // thread may have made already.
    const std::ptrdiff_t stride = panel_size_ + kMostColumns<T>;
    Panels panels(count * parts_, stride);
    parallel_for(count * parts_, kCopyWork * static_cast<double>(panel_size_),
                 [&](std::ptrdiff_t first, std::ptrdiff_t last) {
                   for (std::ptrdiff_t i = first; i < last; ++i) {
                     const std::ptrdiff_t from = i % parts_ * part_;
                     make_panel(x, windows, i / parts_, from, std::min(depth_, from + part_),
                                panels.data() + i * stride);
                   }
                 });
    const std::ptrdiff_t tiles = (a_.outputs + tiles_.rows - 1) / tiles_.rows;
    const double work = kMultiplyWork * static_cast<double>(depth_) *
                        static_cast<double>(tiles_.columns() * tiles_.rows);
    parallel_for(tiles * count, work, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
      for (std::ptrdiff_t i = first; i < last; ++i) {
        const std::ptrdiff_t row = i / count * tiles_.rows, panel = i % count;
        for (std::ptrdiff_t part = 0; part < parts_; ++part) {
          const std::ptrdiff_t from = part * part_;
          multiply(group, row, y, windows, panel, from, std::min(depth_, from + part_),
                   panels.data() + (panel * parts_ + part) * stride);
        }
      }
    });
  }

  std::ptrdiff_t vectors_for(std::ptrdiff_t columns) const {
    return (columns + tiles_.lanes - 1) / tiles_.lanes;
  }

  // Of panel `number`, the rows [from, to).
  void make_panel(const T *x, std::ptrdiff_t windows, std::ptrdiff_t number, std::ptrdiff_t from,
                  std::ptrdiff_t to, T *panel) const {
    Piece pieces[kMostColumns<T>];
    const std::ptrdiff_t first = number * tiles_.columns();
    const std::ptrdiff_t columns = std::min(tiles_.columns(), windows - first);
    PanelFill<T> fill{};
    fill.x = x;
    fill.plane = images_.plane();
    fill.taps = static_cast<std::ptrdiff_t>(offsets_.size());
    fill.offsets = offsets_.data();
    fill.first = from;
    fill.last = to;
    fill.pieces = pieces;
    fill.count = find_pieces(a_, images_, first, columns, pieces);
    fill.step = images_.step();
    fill.longest = images_.has_slack() ? std::min(a_.columns.out, tiles_.columns()) : 0;
    fill.panel = panel;
    fill.width = vectors_for(columns) * tiles_.lanes;
    tiles_.fill(fill);
  }

  // The products of a tile's rows, from `row` on, with the rows [from, to) of panel `number`.
  void multiply(std::ptrdiff_t group, std::ptrdiff_t row, T *y, std::ptrdiff_t windows,
                std::ptrdiff_t number, std::ptrdiff_t from, std::ptrdiff_t to,
                const T *panel) const {
    const std::ptrdiff_t output = group * a_.outputs + row, first = number * tiles_.columns();
    TileProduct<T> p{};
    p.a = a_.weight + output * depth_ + from;
    p.a_stride = depth_;
    p.depth = to - from;
    p.more = from > 0;
    p.start = a_.bias ? a_.bias + output : nullptr;
    p.panel = panel;
    const std::ptrdiff_t rows = std::min(tiles_.rows, a_.outputs - row);
    const std::ptrdiff_t columns = std::min(tiles_.columns(), windows - first);
    const std::ptrdiff_t image = first / windows_, window = first % windows_;
    T *out = y + (image * a_.groups * a_.outputs + row) * windows_ + window;
    if (columns % tiles_.lanes == 0 && window + columns <= windows_) {
      p.out = out;
      p.out_stride = windows_;
      tiles_.products(p, rows, vectors_for(columns));
    } else {
      multiply_aside(p, out, rows, columns, windows_ - window);
    }
  }

  // Through a tile of its own: what is not whole vectors of one image, in which `left` columns are
  // left.
  void multiply_aside(TileProduct<T> p, T *out, std::ptrdiff_t rows, std::ptrdiff_t columns,
                      std::ptrdiff_t left) const {
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
  std::ptrdiff_t threads_;
  PaddedImages<T> images_;
  // Panels have the rows in parts_ parts of part_ rows.
  std::ptrdiff_t windows_, depth_, parts_, part_, panel_size_;
  // Of the elements of a window.
  std::vector<std::ptrdiff_t> offsets_;
};

// Panels of two vectors instead of three, where all of them end with an image then: others go
// through a tile of their own.
template <class T>
TileKernels<T> fitting(TileKernels<T> tiles, std::ptrdiff_t windows) {
  if (windows <= 16 * tiles.lanes && windows % (3 * tiles.lanes) != 0 &&
      windows % (2 * tiles.lanes) == 0) {
    tiles.vectors = std::min<std::ptrdiff_t>(tiles.vectors, 2);
  }
  return tiles;
}

template <class T>
void convolve(Isa isa, const Convolution<T> &a) {
  const std::ptrdiff_t windows = a.rows.out * a.columns.out, items = a.groups * a.images;
  if (items == 0 || a.outputs == 0 || windows == 0) {
    return;
  }
  const TileKernels<T> all_tiles = tile_kernels(isa, T()), tiles = fitting(all_tiles, windows);
  const double one = kMultiplyWork * static_cast<double>(a.outputs) *
                     static_cast<double>(a.channels) * static_cast<double>(windows) *
                     static_cast<double>(a.rows.kernel * a.columns.kernel);
  const double enough = one * static_cast<double>(items) / static_cast<double>(kLeastWork);
  const std::ptrdiff_t threads = enough < 2.0 ? 1 : thread_count();
  // Images of a group one after the other, done by as few runs as there are threads: each has
  // memory of its own.
  const auto run_all = [&](auto &run, std::ptrdiff_t first, std::ptrdiff_t last) {
    while (first < last) {
      const std::ptrdiff_t group = first / a.images, image = first % a.images;
      const std::ptrdiff_t count = std::min(last - first, a.images - image);
      run.some_images(group, image, image + count);
      first += count;
    }
  };
  const bool by_rows = RowRun<T>::fits(a, all_tiles);
  const auto run_items = [&](std::ptrdiff_t first, std::ptrdiff_t last, std::ptrdiff_t each) {
    const std::ptrdiff_t images = std::min(a.images, last - first);
    if (by_rows) {
      RowRun<T> run(a, all_tiles, images, a.rows.out, each);
      run_all(run, first, last);
    } else {
      Run<T> run(a, tiles, images, each);
      run_all(run, first, last);
    }
  };
  // Few images: threads take pieces of them, some rows of windows, each with copies of its own, so
  // that no thread waits for another's or reads what another core has written.
  const auto wanted =
      static_cast<std::ptrdiff_t>(std::min(enough, static_cast<double>(2 * threads)));
  const std::ptrdiff_t rows = by_rows && threads > 1 && items < wanted
                                  ? RowRun<T>::rows_for(a, all_tiles, (wanted + items - 1) / items)
                                  : a.rows.out;
  const std::ptrdiff_t pieces = (a.rows.out + rows - 1) / rows;
  if (pieces > 1 && items * pieces >= threads) {
    share_out(items * pieces, 1, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
      RowRun<T> run(a, all_tiles, 1, rows, 1);
      for (; first < last; ++first) {
        const std::ptrdiff_t item = first / pieces, row = first % pieces * rows;
        run.some_rows(item / a.images, item % a.images, item % a.images + 1, row,
                      std::min(row + rows, a.rows.out));
      }
    });
  } else if (threads > 1 && (items >= 2 * threads || a.groups > 1)) {
    const auto least = static_cast<std::ptrdiff_t>(static_cast<double>(kLeastWork) / one);
    share_out(items, std::max({items / (2 * threads), least, std::ptrdiff_t{1}}),
              [&](std::ptrdiff_t first, std::ptrdiff_t last) { run_items(first, last, 1); });
  } else {
    run_items(0, items, threads);
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
