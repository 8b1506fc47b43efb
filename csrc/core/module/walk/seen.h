// SPDX-License-Identifier: BSD-3-Clause
// The memo of a walk: which objects it has met.
#pragma once

#include <pybind11/pytypes.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include "module/walk/pointer_set.h"
#include "python/prefetch.h"

namespace modtree {

// A growing list of references, as lean as a walk needs it at every step.
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

// Behaves as a Python set that only grows. While every member is compared by identity it is a set
// of addresses (each member kept alive: an address must not be used again during the walk); a real
// set takes over when user code has to see it or a member defines __eq__ or __hash__.
//
// Every member is owned. So an object that is held only by the registry in which it was found is
// not a member, which is known without a table. Members are entered into the table when the first
// object comes that has another holder as well, which may be this set.
class SeenSet {
public:
  SeenSet() = default;
  SeenSet(const SeenSet &) = delete;
  SeenSet &operator=(const SeenSet &) = delete;
  ~SeenSet() { clear(); }

  // Uses the caller's set (any object with `in` and `.add`) from now on.
  void adopt(PyObject *set) {
    Py_INCREF(set);
    Py_XSETREF(set_, set);
  }

  // 1 when `object` is new (and is a member from now on, if `remember`), 0 when it was seen, -1 on
  // error. `only_here`: the one counted reference to it is that through which the caller found it.
  int visit(PyObject *object, bool by_identity, bool remember, bool only_here) {
    if (by_identity && !set_) {
      if (only_here) {
        if (remember) {
          add_new(object);
        }
        return 1;
      }
      if (in_table_ < owned_.size()) {
        fill_table();
      }
      if (!remember) {
        return !pointers_.contains(object);
      }
      if (!pointers_.insert(object)) {
        return 0;
      }
      add_new(object);
      in_table_ = owned_.size();
      return 1;
    }
    return visit_set(object, remember);
  }

  // Room for the members of a small tree.
  void reserve() { owned_.make_room(32); }

  // Adds an object that is compared by identity and is not a member yet. Only while
  // holds_addresses().
  void add_new(PyObject *object) {
    owned_.push(object);
    Py_INCREF(object);
  }

  // The same with the caller's reference, where make_room() has made room.
  void take_new(PyObject *object) noexcept { owned_.push_into_room(object); }
  void make_room(std::size_t count) { owned_.make_room(count); }

  // Of what add_new() was called for. Only while holds_addresses().
  std::size_t size() const { return owned_.size(); }

  // While it does, visiting what is compared by identity runs no user code.
  bool holds_addresses() const { return !set_; }

  // The members as a Python set that the walk goes on using; borrowed, null on error.
  PyObject *as_set();

  void clear();
  int traverse(visitproc visit, void *arg) const;

private:
  int visit_set(PyObject *object, bool remember);
  void fill_table();

  ReferenceList owned_;       // the members in the order of the walk, which is kinder to the
                              // cache than the table's
  std::size_t in_table_ = 0;  // so many of the first of them are in the table
  PointerSet pointers_;
  PyObject *set_ = nullptr;
};

}  // namespace modtree
