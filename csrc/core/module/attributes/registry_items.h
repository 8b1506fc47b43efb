// SPDX-License-Identifier: BSD-3-Clause
// The loop over a registry that walks, loads and conversions share.
#pragma once

#include <pybind11/pytypes.h>

#include <cstdint>
#include <utility>

#include "python/compat.h"
#include "python/dict_lookup.h"

namespace modtree {

namespace py = pybind11;

// True if a registry or hook table has no code of its own, so that native code may read its dict.
// One of another class, even a subclass of dict, may answer anything, and is asked as Python code
// would ask it.
inline bool is_plain_table(PyObject *table) {
  return PyDict_CheckExact(table) || PyODict_CheckExact(table);
}

// What a loop asks a table of another class for.
enum class AskFor : std::uint8_t { items, values };

// Loops over a registry whatever mapping it is. For a plain dict it walks in place and sees changes
// of values; growing or shrinking is an error as in a Python loop. Any other mapping (an
// OrderedDict may have another order than its dict) is walked by its own items() iterator.
class RegistryItems {
public:
  RegistryItems() = default;
  RegistryItems(const RegistryItems &) = delete;
  RegistryItems &operator=(const RegistryItems &) = delete;
  RegistryItems(RegistryItems &&other) noexcept
      : mapping_(std::exchange(other.mapping_, nullptr)),
        items_(std::exchange(other.items_, nullptr)),
        pair_(std::exchange(other.pair_, nullptr)),
        asked_for_(other.asked_for_),
        position_(other.position_),
        passed_over_(other.passed_over_),
        size_(other.size_),
        entries_(other.entries_) {}
  RegistryItems &operator=(RegistryItems &&other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(items_, other.items_);
    std::swap(pair_, other.pair_);
    std::swap(asked_for_, other.asked_for_);
    std::swap(position_, other.position_);
    std::swap(passed_over_, other.passed_over_);
    std::swap(size_, other.size_);
    std::swap(entries_, other.entries_);
    return *this;
  }
  ~RegistryItems() { reset(); }

  // Borrows nothing afterwards: keeps the mapping alive. -1 on error.
  // Where only the values are wanted, `ask_for` says so, and the keys of a table of another class
  // are null.
  int start(PyObject *mapping, AskFor ask_for = AskFor::items) {
    Py_XINCREF(mapping);  // before the end of the old one, which may run code that puts another in
                          // the place of this one
    reset();
    if (!mapping) {
      return 0;
    }
    if (!PyDict_CheckExact(mapping)) {
      const int started = start_iterator(mapping, ask_for);
      Py_DECREF(mapping);
      return started;
    }
    mapping_ = mapping;
    position_ = passed_over_ = 0;
    size_ = PyDict_GET_SIZE(mapping);
    return 0;
  }

  // Begins behind what next() gives before `position`; the dict must not have changed since.
  void skip_to(Py_ssize_t position) {
    PyObject *key, *value;
    Py_ssize_t next = position_;
    while (position_ < position && dict_next(mapping_, &next, &key, &value)) {
      pass(next);
    }
  }

  // What next() would give, if that is not an error and the key is a plain str; false otherwise.
  // pass() then goes behind it. `*far`: the value some places later, or null.
  bool peek(Py_ssize_t *position, PyObject **key, PyObject **value, int places,
            PyObject **far) const {
    *position = position_;
    return mapping_ && PyDict_GET_SIZE(mapping_) == size_ && left() > 0 &&
           dict_next_str(mapping_, position, key, value, places, far);
  }
  void pass(Py_ssize_t position) {
    passed_over_ += position - position_ - 1;
    position_ = position;
  }

  // Readies peek_entry() for the items that are left; how many these are, where they are those of a
  // plain dict.
  Py_ssize_t ready_entries() {
    entries_ = mapping_ ? DictEntries(mapping_) : DictEntries();
    return mapping_ ? left() : 0;
  }
  // The same as peek() in a few instructions; false also where items were removed, and where the
  // table is of another kind than that of ready_entries(). pass_entry() then goes behind it.
  bool peek_entry(PyObject **key, PyObject **value, int places, PyObject **far) const {
    const DictEntry *entries = entries_.of(mapping_);
    // There are at least as many entries as items.
    if (!entries || PyDict_GET_SIZE(mapping_) != size_ || position_ >= size_) {
      return false;
    }
    const DictEntry *entry = entries + position_;
    *key = entry->key;
    *value = entry->value;
    *far = position_ + places < size_ ? entry[places].value : nullptr;
    return *value != nullptr;
  }
  void pass_entry() { ++position_; }

  // True for a plain dict of which next() would give nothing more.
  bool at_end() const {
    Py_ssize_t position = position_;
    PyObject *key, *value;
    return mapping_ && PyDict_GET_SIZE(mapping_) == size_ &&
           !dict_next(mapping_, &position, &key, &value);
  }

  // The value of a plain dict that comes some places later, or null: for prefetching. Borrowed.
  PyObject *ahead(int places) const {
    return mapping_ ? dict_value_ahead(mapping_, position_, places) : nullptr;
  }

  // 1 and borrowed key and value (valid until user code runs), 0 at the end, -1 with RuntimeError
  // when the dict changed size.
  int next(PyObject **key, PyObject **value) {
    if (mapping_) {
      if (PyDict_GET_SIZE(mapping_) != size_) {
        raise_changed_size();
        return -1;
      }
      Py_ssize_t position = position_;
      if (!dict_next(mapping_, &position, key, value)) {
        return 0;
      }
      pass(position);
      if (left() < 0) {
        raise_changed_keys();
        return -1;
      }
      return 1;
    }
    return items_ ? next_of_iterator(key, value) : 0;
  }

  void reset() { take(); }

  // What the loop owns, which it leaves: the end of it may run user code.
  struct Owned {
    py::object mapping, items, pair;
  };
  Owned take() {
    return {py::reinterpret_steal<py::object>(std::exchange(mapping_, nullptr)),
            py::reinterpret_steal<py::object>(std::exchange(items_, nullptr)),
            py::reinterpret_steal<py::object>(std::exchange(pair_, nullptr))};
  }

  int traverse(visitproc visit, void *arg) const {
    Py_VISIT(mapping_);
    Py_VISIT(items_);
    Py_VISIT(pair_);
    return 0;
  }

private:
  int start_iterator(PyObject *mapping, AskFor ask_for);
  int next_of_iterator(PyObject **key, PyObject **value);
  int raise_changed_size();
  int raise_changed_keys();
  // Items that may still come: more means that keys were removed and added.
  Py_ssize_t left() const { return size_ - (position_ - passed_over_); }

  PyObject *mapping_ = nullptr;
  PyObject *items_ = nullptr;  // iterator of the mapping's items() or values()
  PyObject *pair_ = nullptr;   // its last item, which owns what next() lent
  AskFor asked_for_ = AskFor::items;
  Py_ssize_t position_ = 0;
  Py_ssize_t passed_over_ = 0;  // places before it from which items were removed
  Py_ssize_t size_ = 0;
  DictEntries entries_;
};

}  // namespace modtree
