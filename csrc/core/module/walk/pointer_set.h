// SPDX-License-Identifier: BSD-3-Clause
// A set of pointers that only grows: what a walk has seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace modtree {

// Open addressing with linear probing; the first few entries live in the object, so a small walk
// allocates nothing.
class PointerSet {
public:
  PointerSet() = default;
  PointerSet(const PointerSet &) = delete;
  PointerSet &operator=(const PointerSet &) = delete;
  PointerSet(PointerSet &&other) noexcept { swap(other); }
  PointerSet &operator=(PointerSet &&other) noexcept {
    swap(other);
    return *this;
  }

  void swap(PointerSet &other) noexcept {
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(heap_, other.heap_);
    std::swap(inline_, other.inline_);
  }

  // True when `pointer` (not null) was not in the set before.
  bool insert(const void *pointer) {
    if ((size_ + 1) * 2 > capacity_) {
      grow();
    }
    if (!place(table(), capacity_, pointer)) {
      return false;
    }
    ++size_;
    return true;
  }

  bool contains(const void *pointer) const;
  void erase(const void *pointer);
  std::size_t size() const { return size_; }

  // Calls visit(const void *) for every member; the order is unspecified.
  template <class Visit>
  void for_each(Visit visit) const {
    const void *const *slots = table();
    for (std::size_t i = 0; i < capacity_; ++i) {
      if (slots[i]) {
        visit(slots[i]);
      }
    }
  }

private:
  static constexpr std::size_t kInlineCapacity = 16;

  static std::size_t home(const void *pointer, std::size_t capacity) {
    // Objects are 16-byte aligned, and those that are made one after the other are next to each
    // other: keeping that order makes a walk touch the table in order too. The upper bits set
    // blocks of memory apart.
    const auto bits = reinterpret_cast<std::uintptr_t>(pointer);
    return static_cast<std::size_t>((bits >> 4) ^ (bits >> 16)) & (capacity - 1);
  }

  static bool place(const void **slots, std::size_t capacity, const void *pointer) {
    std::size_t i = home(pointer, capacity);
    while (slots[i]) {
      if (slots[i] == pointer) {
        return false;
      }
      i = (i + 1) & (capacity - 1);
    }
    slots[i] = pointer;
    return true;
  }

  const void **table() { return heap_ ? heap_.get() : inline_; }
  const void *const *table() const { return heap_ ? heap_.get() : inline_; }
  void grow();

  std::size_t size_ = 0;
  std::size_t capacity_ = kInlineCapacity;
  std::unique_ptr<const void *[]> heap_;
  const void *inline_[kInlineCapacity] = {};
};

}  // namespace modtree
