// SPDX-License-Identifier: BSD-3-Clause
// Vectors of a given size as values, for loops that compilers do not turn into vector code by
// themselves. With GCC and Clang they are vector registers of the instruction set that the caller
// is built for; elsewhere an array.
#pragma once

#include <cstddef>
#include <cstring>

#include "kernels/dispatch.h"

namespace modtree::kernels {

template <class T, int kBytes>
struct Lanes {
  static constexpr int kCount = kBytes / static_cast<int>(sizeof(T));

#if defined(__GNUC__) || defined(__clang__)
  typedef T Values __attribute__((vector_size(kBytes)));
  Values values;

  MODTREE_ALWAYS_INLINE void fill(T value) { values = Values{} + value; }
  MODTREE_ALWAYS_INLINE void add(const Lanes &other) { values += other.values; }
  // += a * b; one instruction where the instruction set has it.
  MODTREE_ALWAYS_INLINE void add_product(T a, const Lanes &b) { values += a * b.values; }
#else
  T values[kCount];

  void fill(T value) {
    for (T &v : values) {
      v = value;
    }
  }
  void add(const Lanes &other) {
    for (int i = 0; i < kCount; ++i) {
      values[i] += other.values[i];
    }
  }
  void add_product(T a, const Lanes &b) {
    for (int i = 0; i < kCount; ++i) {
      values[i] += a * b.values[i];
    }
  }
#endif

  // From and to any address.
  MODTREE_ALWAYS_INLINE void load(const T *from) { std::memcpy(&values, from, sizeof(values)); }
  MODTREE_ALWAYS_INLINE void store(T *to) const { std::memcpy(to, &values, sizeof(values)); }
};

}  // namespace modtree::kernels
