// SPDX-License-Identifier: BSD-3-Clause
// Indices in memory that others may write while a kernel runs: each is read once, checked where it
// is used, and what is out of range is left out and noted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace modtree::kernels {

// Stays true as long as every index was in range.
using Inside = std::atomic<bool>;

// Not read again, whatever the compiler makes of the uses.
template <class T>
T read_once(const T *place) {
  return *static_cast<const volatile T *>(place);
}

inline bool is_inside(std::int64_t index, std::ptrdiff_t limit) {
  return static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(limit);
}

}  // namespace modtree::kernels
