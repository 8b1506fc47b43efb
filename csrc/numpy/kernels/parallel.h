// SPDX-License-Identifier: BSD-3-Clause
// Work that is shared out among threads. The threads are made when the first large piece of work
// comes, and never touch Python.
//
// A piece of work must give the same bits wherever it begins: callers split along outputs that do
// not depend on each other, so that results do not depend on the number of threads.
#pragma once

#include <cstddef>

#include "kernels/thread_count.h"

namespace modtree::kernels {

// A piece of work is worth a thread from so much on, in simple operations on one value (a load, an
// addition and a store), of which a core does a few in a nanosecond.
constexpr std::ptrdiff_t kLeastWork = 1 << 16;

// Calls body(context, first, last) for pieces of [0, count), on this thread and others, and returns
// when all are done. No piece but the last has fewer than `grain` parts. Throws what a piece has
// thrown; then others may be left out. Work that begins inside a piece, or while another
// thread's work is shared out, is done by the thread that has it.
void share_out(std::ptrdiff_t count, std::ptrdiff_t grain,
               void (*body)(void *context, std::ptrdiff_t first, std::ptrdiff_t last),
               void *context);

// The same for body(first, last).
template <class Body>
void share_out(std::ptrdiff_t count, std::ptrdiff_t grain, const Body &body) {
  share_out(
      count, grain,
      [](void *context, std::ptrdiff_t first, std::ptrdiff_t last) {
        (*static_cast<const Body *>(context))(first, last);
      },
      const_cast<Body *>(&body));
}

// body(first, last) for pieces of [0, count), each part of which takes `work` simple operations.
template <class Body>
void parallel_for(std::ptrdiff_t count, double work, const Body &body) {
  if (count <= 0) {
    return;
  }
  const double grain = work > 0.0 ? static_cast<double>(kLeastWork) / work : 1.0;
  if (grain * 2.0 > static_cast<double>(count) || thread_count() == 1) {
    body(std::ptrdiff_t{0}, count);
  } else {
    share_out(count, grain > 1.0 ? static_cast<std::ptrdiff_t>(grain) : 1, body);
  }
}

// Values of one row or array are shared out in multiples of this: what compilers do to values at
// the end of a loop that do not fill a vector then happens only at the end of the whole.
constexpr std::ptrdiff_t kValueBlock = 1024;

// body(first, last) for pieces of `n` values whose beginnings are multiples of kValueBlock.
template <class Body>
void parallel_values(std::ptrdiff_t n, double work, const Body &body) {
  const std::ptrdiff_t blocks = (n + kValueBlock - 1) / kValueBlock;
  parallel_for(blocks, work * static_cast<double>(kValueBlock),
               [&](std::ptrdiff_t first, std::ptrdiff_t last) {
                 body(first * kValueBlock, last == blocks ? n : last * kValueBlock);
               });
}

}  // namespace modtree::kernels
