// SPDX-License-Identifier: BSD-3-Clause
// Asks for memory before it is needed. A hint: no address is wrong, and nothing is read.
#pragma once

#include <cstddef>

#if defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
#include <xmmintrin.h>
#endif

namespace modtree {

inline void prefetch(const void *address) {
#if defined(__GNUC__) || defined(__clang__)
  __builtin_prefetch(address);
  // A function that does nothing else has no effect in GCC's eyes, which leaves its calls out.
  asm volatile("" : : "r"(address));
#elif defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
  _mm_prefetch(static_cast<const char *>(address), _MM_HINT_T0);
#elif defined(_MSC_VER) && defined(_M_ARM64)
  __prefetch(address);
#else
  static_cast<void>(address);
#endif
}

// The first bytes of an object, which are in one cache line or in two.
inline void prefetch_head(const void *object, std::size_t bytes) {
  prefetch(object);
  prefetch(static_cast<const char *>(object) + bytes - 1);
}

}  // namespace modtree
