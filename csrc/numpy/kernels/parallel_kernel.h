// SPDX-License-Identifier: BSD-3-Clause
// Kernels (dispatch.h) whose work is shared out among threads (parallel.h): the pieces are made
// outside of the functions for the instruction sets, as what is called there must be built for
// them.
#pragma once

#include <cstddef>

#include "kernels/dispatch.h"
#include "kernels/parallel.h"

#define MODTREE_DEFINE_PARTS_KERNEL_OF(T, name, Arguments, body, count, work)                      \
  namespace {                                                                                      \
  MODTREE_DEFINE_KERNEL_OF(name##_parts,                                                           \
                           (const Arguments<T> &a, std::ptrdiff_t first, std::ptrdiff_t last),     \
                           body, (a, first, last))                                                 \
  }                                                                                                \
  void name(const Arguments<T> &a) {                                                               \
    parallel_for(                                                                                  \
        count, static_cast<double>(work),                                                          \
        [&](std::ptrdiff_t first, std::ptrdiff_t last) { name##_parts(a, first, last); });         \
  }

// Like MODTREE_DEFINE_STRUCT_KERNEL. `body(a, first, last)` does the parts [first, last) of `count`
// ones, each of which takes `work` simple operations; the last two are expressions of `a`.
#define MODTREE_DEFINE_PARTS_KERNEL(name, Arguments, body, count, work)                            \
  MODTREE_DEFINE_PARTS_KERNEL_OF(float, name, Arguments, body, count, work)                        \
  MODTREE_DEFINE_PARTS_KERNEL_OF(double, name, Arguments, body, count, work)

// Like MODTREE_DEFINE_KERNEL. `share` is parallel_for or parallel_values, `count` and `work` are
// what it takes, and `piece` is what `args` become for [first, last).
#define MODTREE_DEFINE_SHARED_KERNEL(name, params, body, args, share, count, work, piece)          \
  namespace {                                                                                      \
  MODTREE_DEFINE_KERNEL(name##_piece, params, body, args)                                          \
  }                                                                                                \
  MODTREE_DEFINE_SHARING(name, params(float), share, count, work, piece)                           \
  MODTREE_DEFINE_SHARING(name, params(double), share, count, work, piece)

#define MODTREE_DEFINE_SHARING(name, params, share, count, work, piece)                            \
  void name params {                                                                               \
    share(count, static_cast<double>(work),                                                        \
          [&](std::ptrdiff_t first, std::ptrdiff_t last) { name##_piece piece; });                 \
  }
