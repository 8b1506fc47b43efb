// SPDX-License-Identifier: BSD-3-Clause
// Memory that a kernel works in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace modtree::kernels {

// Zeros. No std::vector: what sizes ask for may be more than there is, and of AddressSanitizer's
// operators only the one that does not throw leaves that to its caller.
template <class T>
class Zeros {
public:
  explicit Zeros(std::ptrdiff_t size)
      : size_(size),
        values_(new(std::nothrow) T[static_cast<std::size_t>(size)]()) {
    if (!values_) {
      throw std::bad_alloc();
    }
  }
  T *data() { return values_.get(); }
  const T *data() const { return values_.get(); }
  void clear() { std::fill(data(), data() + size_, T(0)); }

private:
  std::ptrdiff_t size_;
  std::unique_ptr<T[]> values_;
};

// The same without values; none where the size is 0.
template <class T>
class Room {
public:
  explicit Room(std::ptrdiff_t size)
      : values_(size == 0 ? nullptr : new(std::nothrow) T[static_cast<std::size_t>(size)]) {
    if (!values_ && size != 0) {
      throw std::bad_alloc();
    }
  }
  T *data() { return values_.get(); }
  const T *data() const { return values_.get(); }

private:
  std::unique_ptr<T[]> values_;
};

// The same on the stack where it is small.
template <class T, std::ptrdiff_t kBytes>
class SmallRoom {
public:
  explicit SmallRoom(std::ptrdiff_t size)
      : large_(size > kSmall ? size : 0),
        values_(size > kSmall ? large_.data() : small_) {}
  SmallRoom(const SmallRoom &) = delete;
  SmallRoom &operator=(const SmallRoom &) = delete;
  T *data() { return values_; }

private:
  static constexpr std::ptrdiff_t kSmall = kBytes / static_cast<std::ptrdiff_t>(sizeof(T));
  Room<T> large_;
  T *values_;
  T small_[kSmall];
};

// The first place from `values` on where a line of the cache begins; up to kLine values on.
template <class T>
constexpr std::ptrdiff_t kLine = 64 / static_cast<std::ptrdiff_t>(sizeof(T));

template <class T>
T *at_line(T *values) {
  const auto address = reinterpret_cast<std::uintptr_t>(values);
  return values + (64 - address % 64) % 64 / sizeof(T);
}

}  // namespace modtree::kernels
