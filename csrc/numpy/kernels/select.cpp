// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/select.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/strict_math.h"

namespace modtree::kernels {
namespace {

// Unsigned numbers in the order of the values: the two zeros are one, and so are all NaN.
MODTREE_ALWAYS_INLINE std::uint32_t ordered(float x) {
  const auto bits = bits_as<std::uint32_t>(x + 0.0f);
  const std::uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return x != x ? 0xffffffffu : key;
}

MODTREE_ALWAYS_INLINE std::uint64_t ordered(double x) {
  constexpr std::uint64_t kSign = 0x8000000000000000;
  const auto bits = bits_as<std::uint64_t>(x + 0.0);
  const std::uint64_t key = bits & kSign ? ~bits : bits | kSign;
  return x != x ? ~std::uint64_t{0} : key;
}

// A value and its index, comparable as a whole: one number for float.
template <class T>
struct Item;

template <>
struct Item<float> {
  std::uint64_t both;
  Item() = default;
  Item(float x, bool largest, std::ptrdiff_t i)
      : both((static_cast<std::uint64_t>(largest ? ~ordered(x) : ordered(x)) << 32) |
             static_cast<std::uint64_t>(i)) {}
  std::int64_t index() const { return static_cast<std::int64_t>(both & 0xffffffffu); }
  bool operator<(const Item &other) const { return both < other.both; }
  static Item last() {
    Item item;
    item.both = ~std::uint64_t{0};
    return item;
  }
};

template <>
struct Item<double> {
  std::uint64_t key, place;
  Item() = default;
  Item(double x, bool largest, std::ptrdiff_t i)
      : key(largest ? ~ordered(x) : ordered(x)),
        place(static_cast<std::uint64_t>(i)) {}
  std::int64_t index() const { return static_cast<std::int64_t>(place); }
  bool operator<(const Item &other) const {
    return key < other.key || (key == other.key && place < other.place);
  }
  static Item last() {
    Item item;
    item.key = item.place = ~std::uint64_t{0};
    return item;
  }
};

// The k first items of a row into the front of `items`, in no order: what cannot be among them is
// dropped at once, and the rest whenever `items` is full.
template <class T>
void keep_first(const T *x, std::ptrdiff_t n, std::ptrdiff_t stride, std::ptrdiff_t k, bool largest,
                std::vector<Item<T>> &items) {
  const auto room = static_cast<std::size_t>(2 * k + 32);
  const auto split = static_cast<std::ptrdiff_t>(k - 1);
  items.clear();
  Item<T> limit = Item<T>::last();
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const Item<T> item(x[i * stride], largest, i);
    if (item < limit) {
      items.push_back(item);
      if (items.size() == room) {
        std::nth_element(items.begin(), items.begin() + split, items.end());
        items.resize(static_cast<std::size_t>(k));
        limit = items[static_cast<std::size_t>(split)];
      }
    }
  }
  if (items.size() > static_cast<std::size_t>(k)) {
    std::nth_element(items.begin(), items.begin() + split, items.end());
    items.resize(static_cast<std::size_t>(k));
  }
}

// body(first, last) for pieces of all columns of all rows.
template <class T, class Body>
void over_columns(const Select<T> &a, Body body) {
  parallel_for(a.outer * a.inner, 8.0 * static_cast<double>(a.n) + 64.0, body);
}

template <class T>
void top_rows(const Select<T> &a) {
  if (a.k == 0) {
    return;
  }
  over_columns(a, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    std::vector<Item<T>> items;
    items.reserve(static_cast<std::size_t>(2 * a.k + 32));
    for (std::ptrdiff_t i = first; i < last; ++i) {
      const std::ptrdiff_t row = i / a.inner, column = i % a.inner;
      const T *x = a.x + row * a.n * a.inner + column;
      keep_first(x, a.n, a.inner, a.k, a.largest, items);
      std::sort(items.begin(), items.end());
      std::int64_t *to = a.indices + row * a.k * a.inner + column;
      for (std::ptrdiff_t j = 0; j < a.k; ++j) {
        to[j * a.inner] = items[static_cast<std::size_t>(j)].index();
      }
    }
  });
}

}  // namespace

void top_indices(const Select<float> &a) { top_rows(a); }
void top_indices(const Select<double> &a) { top_rows(a); }

}  // namespace modtree::kernels
