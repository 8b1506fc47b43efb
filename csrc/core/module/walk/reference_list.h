// SPDX-License-Identifier: BSD-3-Clause
// A growing list of references, as lean as a walk needs it at every step.
#pragma once

#include <pybind11/pytypes.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include "python/prefetch.h"

namespace modtree {

class ReferenceList {
public:
  ReferenceList() = default;
  ReferenceList(const ReferenceList &) = delete;
  ReferenceList &operator=(const ReferenceList &) = delete;
  ~ReferenceList() { clear(); }

  std::size_t size() const { return static_cast<std::size_t>(end_ - items_.get()); }
  PyObject *operator[](std::size_t index) const { return items_[index]; }
  PyObject *const *begin() const { return items_.get(); }
  PyObject *const *end() const { return end_; }

  // Takes the reference over. May throw std::bad_alloc, before anything has changed.
  void push(PyObject *object) {
    if (end_ == limit_) {
      make_room(1);
    }
    push_into_room(object);
  }
  // Only where there is room.
  void push_into_room(PyObject *object) noexcept { *end_++ = object; }

  // Room for so many more. May throw std::bad_alloc.
  void make_room(std::size_t count) {
    const std::size_t used = size();
    const auto room = static_cast<std::size_t>(limit_ - end_);
    if (room >= count) {
      return;
    }
    const std::size_t capacity = std::max(used + count, 2 * (used + room));
    std::unique_ptr<PyObject *[]> items(new PyObject *[capacity]);
    std::copy(begin(), end(), items.get());
    items_ = std::move(items);
    end_ = items_.get() + used;
    limit_ = items_.get() + capacity;
  }

  // Lets go of all. Runs user code, which finds the list empty.
  void clear() {
    const std::unique_ptr<PyObject *[]> items = std::move(items_);
    PyObject *const *const end = end_;
    end_ = limit_ = nullptr;
    constexpr std::ptrdiff_t kAhead = 24;
    PyObject *const *item = items.get();
    for (; end - item > kAhead; ++item) {
      prefetch(item[kAhead]);
      Py_DECREF(*item);
    }
    for (; item < end; ++item) {
      Py_DECREF(*item);
    }
  }

private:
  std::unique_ptr<PyObject *[]> items_;
  PyObject **end_ = nullptr;
  PyObject **limit_ = nullptr;
};

}  // namespace modtree
