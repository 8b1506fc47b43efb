// SPDX-License-Identifier: BSD-3-Clause
// Convolutions whose windows are not copied one by one: for each column of the kernel there is one
// copy of the image, shifted so that the elements that neighbouring windows see, also those of the
// next row of windows, are neighbours. A row of the matrix of windows is then a piece of a copy.
// Copies of large images are made of some rows at a time, a strip.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/convolution.h"
#include "kernels/scratch.h"
#include "kernels/tile_product.h"

namespace modtree::kernels {

// Some images of one group, as such copies. Where windows of one element see all of the images and
// nothing else, these are used where they are.
template <class T>
class ShiftedImages {
public:
  // For up to `images` images and `rows` of their rows of windows, which so many threads make.
  // Strips have whole vectors of `lanes` windows.
  ShiftedImages(const Convolution<T> &a, std::ptrdiff_t lanes, std::ptrdiff_t images,
                std::ptrdiff_t rows, std::ptrdiff_t threads);

  static bool are_as_they_are(const Convolution<T> &a);

  std::ptrdiff_t image_stride() const {
    return (as_it_is_ ? a_.groups : 1) * a_.channels * channel_stride_;
  }
  // Where window 0 of image 0 has an element; window `n` has it `n` values on.
  std::ptrdiff_t place(std::ptrdiff_t channel, std::ptrdiff_t row, std::ptrdiff_t column) const {
    return channel * channel_stride_ + column * copy_stride_ +
           row_of(row * a_.rows.dilation) * a_.columns.out;
  }
  // How many images are made at a time, and how many of their rows of windows.
  std::ptrdiff_t at_a_time() const;
  std::ptrdiff_t strip() const { return rows_.out; }
  // The channels of `group` of `count` images from `first` on, as rows of windows from `row` on see
  // them.
  const T *make(std::ptrdiff_t group, std::ptrdiff_t first, std::ptrdiff_t count,
                std::ptrdiff_t row);

private:
  // The rows are taken apart by their remainders modulo the stride.
  std::ptrdiff_t row_of(std::ptrdiff_t padded_row) const {
    return padded_row % parts_ * part_ + padded_row / parts_;
  }
  // Of one channel of one image, the copy for one column of the kernel.
  void copy(const T *from, std::ptrdiff_t row, std::ptrdiff_t column, T *to) const;

  const Convolution<T> &a_;
  std::ptrdiff_t images_, threads_;
  bool as_it_is_;
  // As they are on a strip.
  WindowAxis rows_;
  std::ptrdiff_t parts_, part_, copy_stride_, channel_stride_;
  std::vector<WindowRange> inside_;
  Room<T> memory_;
  T *values_;
  // So many channels have the zeros that all strips have.
  std::ptrdiff_t zeros_ = 0;
};

// Some images of a convolution, with one set of instructions.
template <class T>
class RowRun {
public:
  // True if this is the faster way: not with many outputs, for which panels pay off, and not where
  // too many values of the vectors would belong to none of the windows.
  static bool fits(const Convolution<T> &a, const TileKernels<T> &tiles);

  // How many rows of windows each of about `pieces` pieces of an image has, with copies of its own;
  // all of them where copies would be mostly rows that two pieces need.
  static std::ptrdiff_t rows_for(const Convolution<T> &a, const TileKernels<T> &tiles,
                                 std::ptrdiff_t pieces);

  // For up to `images` images and `rows` of their rows of windows at a time. With more than one
  // thread, what can be is shared out.
  RowRun(const Convolution<T> &a, const TileKernels<T> &tiles, std::ptrdiff_t images,
         std::ptrdiff_t rows, std::ptrdiff_t threads);

  // The images [first, last) of `group`, all rows of windows or [first_row, last_row).
  void some_images(std::ptrdiff_t group, std::ptrdiff_t first, std::ptrdiff_t last);
  void some_rows(std::ptrdiff_t group, std::ptrdiff_t first, std::ptrdiff_t last,
                 std::ptrdiff_t first_row, std::ptrdiff_t last_row);

private:
  struct Block;
  // The vectors of windows [first, last) of some images, which have `windows` ones in `x`.
  void some_vectors(std::ptrdiff_t group, const T *x, T *y, std::ptrdiff_t windows,
                    std::ptrdiff_t first, std::ptrdiff_t last) const;
  void multiply_aside(TileProduct<T> p, const Block &block, std::ptrdiff_t rows) const;

  const Convolution<T> &a_;
  const TileKernels<T> tiles_;
  std::ptrdiff_t threads_;
  ShiftedImages<T> images_;
  // Windows of an image, values of a window and how many of them are taken at a time.
  std::ptrdiff_t windows_, depth_, part_;
  // Of each element of a window, in window 0.
  std::vector<std::ptrdiff_t> places_;
};

}  // namespace modtree::kernels
