// SPDX-License-Identifier: BSD-3-Clause
#include "module/walk/pointer_set.h"

namespace modtree {

bool PointerSet::contains(const void *pointer) const {
  const void *const *slots = table();
  for (std::size_t i = home(pointer, capacity_); slots[i]; i = (i + 1) & (capacity_ - 1)) {
    if (slots[i] == pointer) {
      return true;
    }
  }
  return false;
}

void PointerSet::erase(const void *pointer) {
  const void **slots = table();
  const std::size_t mask = capacity_ - 1;
  std::size_t hole = home(pointer, capacity_);
  while (slots[hole] != pointer) {
    if (!slots[hole]) {
      return;
    }
    hole = (hole + 1) & mask;
  }
  // Close the gap: move back every later entry of the run whose home is not behind the hole.
  for (std::size_t i = (hole + 1) & mask; slots[i]; i = (i + 1) & mask) {
    const std::size_t distance_from_home = (i - home(slots[i], capacity_)) & mask;
    const std::size_t distance_from_hole = (i - hole) & mask;
    if (distance_from_home >= distance_from_hole) {
      slots[hole] = slots[i];
      hole = i;
    }
  }
  slots[hole] = nullptr;
  --size_;
}

void PointerSet::grow() {
  const std::size_t capacity = capacity_ * 2;
  std::unique_ptr<const void *[]> slots(new const void *[capacity]());
  for_each([&](const void *pointer) { place(slots.get(), capacity, pointer); });
  heap_ = std::move(slots);
  capacity_ = capacity;
}

}  // namespace modtree
