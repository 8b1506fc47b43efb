// SPDX-License-Identifier: BSD-3-Clause
// A value of a module that a trace takes as a constant: kept so that a change of it is seen.
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace modtree {

namespace py = pybind11;

// How a structure keeps what it cannot compare by contents.
enum class Keep : std::uint8_t {
  strong,  // so that a module can be built of it
  weak,    // where the library allows weak references: the structure is a key of a cache, and what
           // it was made of may die
};

// Numbers, strings and None are compared by value, lists, tuples and dicts of them by their items,
// all others by identity. Sets are among the others.
class StaticValue {
public:
  StaticValue() = default;

  // Looks into containers. Throws error_already_set. Runs no user code but the collector.
  static StaticValue of(PyObject *value, Keep keep) { return of(value, keep, 0); }

  // True only where a comparison would find `now` equal without user code. Runs no user code.
  bool is_unchanged(PyObject *now) const {
    return (value_.ptr() == now && kind_ <= Kind::object && now) || is_equal_now(now);
  }
  // Also asks __eq__ of hashable objects that have one: 1 or 0, or -1 with an error set.
  int equals(const StaticValue &other) const;
  std::size_t hash() const;
  bool is_nothing() const { return kind_ == Kind::nothing; }

  // The value itself; null where it was kept weakly and has died.
  py::object value() const;

  int traverse(visitproc visit, void *arg) const;

private:
  enum class Kind : std::uint8_t { nothing, atom, object, weak, list, tuple, dict };

  static constexpr int kDeepest = 6;
  static constexpr Py_ssize_t kMostItems = 256;

  static StaticValue of(PyObject *value, Keep keep, int depth);
  bool is_equal_now(PyObject *now) const;

  Kind kind_ = Kind::nothing;
  py::object value_;                // not of a container that is kept weakly
  std::vector<StaticValue> items_;  // of a dict: keys and values in turn
};

}  // namespace modtree
