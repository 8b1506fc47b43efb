// SPDX-License-Identifier: BSD-3-Clause
// Plain attributes and hooks of modules, which a trace takes as constants: kept so that a change of
// them is seen, and so that new modules get containers of their own.
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "module/walk/pointer_set.h"
#include "python/signals.h"

namespace modtree {

namespace py = pybind11;

// How a structure keeps what it cannot compare by contents.
enum class Keep : std::uint8_t {
  strong,  // so that a module can be built of it
  weak,    // where the library allows weak references: the structure is a key of a cache, and what
           // it was made of may die
};

// Numbers, strings and None are compared by value and type, all that is not a container by identity
// or, where it is hashable, by a comparison of its own.
struct StaticItem {
  enum class Kind : std::uint8_t { nothing, atom, object, weak, container };
  Kind kind = Kind::nothing;
  int container = -1;  // an index of StaticValues::containers
  py::object value;    // of an atom or an object; `weak`: a weak reference to the object

  // Compares all but containers. Runs no user code.
  bool is_unchanged(PyObject *now) const;
  // The atom or object; null where it was kept weakly and has died.
  py::object object() const;
};

// A container, by its items. The object itself is not kept.
struct StaticContainer {
  enum class Kind : std::uint8_t { list, dict, ordered_dict, set, tuple, frozenset };
  Kind kind;
  bool is_flat;              // without a container in it
  py::object type;           // of a named tuple; null: that of the kind
  std::size_t first, count;  // of StaticValues::items; of dicts keys and values in turn

  bool is_mutable() const { return kind < Kind::tuple; }
};

// All values of one structure. A container that is met twice is noted once: lists, dicts and sets
// are equal where they are shared alike, too.
struct StaticValues {
  std::vector<StaticItem> items;
  std::vector<StaticContainer> containers;

  // A number that equal values of two tables share.
  std::size_t hash(const StaticItem &item) const;
  int traverse(visitproc visit, void *arg) const;
};

// Adds values to a table.
class StaticBuilder {
public:
  StaticBuilder(StaticValues *values, Keep keep) : values_(*values), keep_(keep) {}

  // Runs user code. Throws error_already_set.
  StaticItem add(PyObject *value);

private:
  StaticItem noted(PyObject *value);
  void fill(std::size_t container);

  StaticValues &values_;
  const Keep keep_;
  std::unordered_map<PyObject *, int> met_;  // owned by held_
  std::vector<py::object> held_;             // the objects of the containers
  std::size_t filled_ = 0;
  SignalCheck signals_;
};

// Compares the values of a table with what modules hold now. Runs no user code, if the collector
// does not run either, and gives up after many steps: then the values are only known by building.
class StaticMatch {
public:
  explicit StaticMatch(const StaticValues &values) : values_(values) {}

  bool is_unchanged(const StaticItem &item, PyObject *now) {
    return item.kind == StaticItem::Kind::container ? matches_container(item.container, now)
                                                    : item.is_unchanged(now);
  }

private:
  struct Waiting {
    int container;
    PyObject *now;
  };

  bool matches_container(int container, PyObject *now);
  bool enter(int container, PyObject *now);
  bool matches_items(const StaticContainer &container, PyObject *now);
  bool matches_item(std::size_t index, PyObject *now);
  bool matches_iterator(const StaticContainer &container, PyObject *now);
  bool matches_ordered_dict(const StaticContainer &container, PyObject *now);

  const StaticValues &values_;
  std::vector<PyObject *> object_of_;          // of each mutable container
  PointerSet met_;                             // these objects
  std::unordered_set<std::size_t> immutable_;  // pairs that were compared
  std::vector<Waiting> waiting_;
  long steps_ = 0;
};

// Compares the values of two tables.
class StaticComparison {
public:
  StaticComparison(const StaticValues &one, const StaticValues &other) : one_(one), other_(other) {}

  // 1 or 0, or -1 with an error set: __eq__ of hashable objects that have one is asked.
  int equal(const StaticItem &one, const StaticItem &other);

private:
  int equal_items(const StaticItem &one, const StaticItem &other);
  int enter(int one, int other);
  int equal_sets(const StaticContainer &one, const StaticContainer &other);

  const StaticValues &one_, &other_;
  std::vector<int> other_of_, one_of_;           // the mutable container that is in the same place
  std::unordered_set<std::uint64_t> immutable_;  // pairs that were compared
  std::vector<std::pair<int, int>> waiting_;
  SignalCheck signals_;
};

// Makes the values of a table anew: containers of their own, around the very objects.
class StaticMaker {
public:
  // None takes the place of what has died where `dead_is_none`; else that is a RuntimeError.
  StaticMaker(const StaticValues &values, bool dead_is_none)
      : values_(values),
        dead_is_none_(dead_is_none) {}

  // Runs user code. Throws error_already_set.
  py::object make(const StaticItem &item);

private:
  void make_all();
  void make_immutable(int container);
  void fill(int container);
  py::object item(std::size_t index) const;

  const StaticValues &values_;
  const bool dead_is_none_;
  std::vector<py::object> made_;  // empty until the first container is asked for
};

// The kind of a container whose items are compared; false for other values.
bool static_kind(PyObject *value, StaticContainer::Kind *kind);
// True for atoms of one type and value. Floats are compared bit by bit, so that 0.0 is not -0.0.
bool are_equal_atoms(PyObject *one, PyObject *other);
// True for a type with a comparison of its own that says what its values are, as hashable ones do.
bool compares_by_value(PyTypeObject *type);

}  // namespace modtree
