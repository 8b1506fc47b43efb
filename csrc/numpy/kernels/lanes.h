// SPDX-License-Identifier: BSD-3-Clause
// Vectors of a given size as values, for loops that compilers do not turn into vector code by
// themselves. With GCC and Clang they are vector registers of the instruction set that the caller
// is built for; elsewhere an array.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/dispatch.h"

// Loops over vectors in registers: those that are picked by an index that is not constant would go
// through memory.
#if defined(__clang__)
#define MODTREE_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define MODTREE_UNROLL _Pragma("GCC unroll 16")
#else
#define MODTREE_UNROLL
#endif

#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)
#define MODTREE_HAS_SHUFFLES 1
#endif

namespace modtree::kernels {

template <class T, int kBytes>
struct Lanes {
  static constexpr int kCount = kBytes / static_cast<int>(sizeof(T));

#if defined(__GNUC__) || defined(__clang__)
  typedef T Values __attribute__((vector_size(kBytes)));
  typedef T InMemory __attribute__((vector_size(kBytes), aligned(alignof(T)), may_alias));
  Values values;

  // From and to any address. Not with memcpy: of 32 bytes, GCC 12 makes two halves that go through
  // the stack.
  MODTREE_ALWAYS_INLINE void load(const T *from) {
    values = *reinterpret_cast<const InMemory *>(from);
  }
  MODTREE_ALWAYS_INLINE void store(T *to) const { *reinterpret_cast<InMemory *>(to) = values; }

  MODTREE_ALWAYS_INLINE void fill(T value) { values = Values{} + value; }
  MODTREE_ALWAYS_INLINE void add(const Lanes &other) { values += other.values; }
  // += a * b; one instruction where the instruction set has it.
  MODTREE_ALWAYS_INLINE void add_product(T a, const Lanes &b) { values += a * b.values; }
  MODTREE_ALWAYS_INLINE void add_product(const Lanes &a, const Lanes &b) {
    values += a.values * b.values;
  }
#else
  T values[kCount];

  void load(const T *from) { std::memcpy(&values, from, sizeof(values)); }
  void store(T *to) const { std::memcpy(to, &values, sizeof(values)); }
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
  void add_product(const Lanes &a, const Lanes &b) {
    for (int i = 0; i < kCount; ++i) {
      values[i] += a.values[i] * b.values[i];
    }
  }
#endif

  // Of all values: those of one half are added to those of the other, then of the halves of the
  // half, and so on.
  MODTREE_ALWAYS_INLINE T sum() const {
    if constexpr (kCount == 2) {
      return values[0] + values[1];
    } else {
      Half low = half<0>(std::make_integer_sequence<int, kCount / 2>());
      low.add(half<kCount / 2>(std::make_integer_sequence<int, kCount / 2>()));
      return low.sum();
    }
  }

  // a[0], b[0], a[1], b[1], ..., as many as there is room for.
  MODTREE_ALWAYS_INLINE void interleave_low(const Lanes &a, const Lanes &b) {
    interleave<0>(a, b, std::make_integer_sequence<int, kCount>());
  }
  // What then remains.
  MODTREE_ALWAYS_INLINE void interleave_high(const Lanes &a, const Lanes &b) {
    interleave<kCount / 2>(a, b, std::make_integer_sequence<int, kCount>());
  }

private:
  using Half = Lanes<T, kBytes / 2>;

  template <int kFirst, int... kPlaces>
  MODTREE_ALWAYS_INLINE Half half(std::integer_sequence<int, kPlaces...>) const {
    Half part;
#ifdef MODTREE_HAS_SHUFFLES
    part.values = __builtin_shufflevector(values, values, (kFirst + kPlaces)...);
#else
    ((part.values[kPlaces] = values[kFirst + kPlaces]), ...);
#endif
    return part;
  }

  template <int kFirst, int... kPlaces>
  MODTREE_ALWAYS_INLINE void interleave(const Lanes &a, const Lanes &b,
                                        std::integer_sequence<int, kPlaces...>) {
#ifdef MODTREE_HAS_SHUFFLES
    values = __builtin_shufflevector(a.values, b.values,
                                     (kFirst + kPlaces / 2 + kPlaces % 2 * kCount)...);
#else
    ((values[kPlaces] = (kPlaces % 2 == 0 ? a : b).values[kFirst + kPlaces / 2]), ...);
#endif
  }
};

}  // namespace modtree::kernels
