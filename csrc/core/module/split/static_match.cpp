// SPDX-License-Identifier: BSD-3-Clause
// Values that are known, compared with what modules hold now, and with those of another table.
#include "module/split/static_values.h"
#include "python/call.h"
#include "python/compat.h"
#include "python/dict_lookup.h"
#include "python/sequence_items.h"

namespace modtree {

namespace {

using Kind = StaticContainer::Kind;

std::size_t pair_of(int container, const void *now) {
  return reinterpret_cast<std::size_t>(now) * std::size_t{0x9E3779B97F4A7C15} +
         static_cast<std::size_t>(container);
}

std::uint64_t pair_of(int one, int other) {
  return static_cast<std::uint64_t>(one) << 32 | static_cast<std::uint32_t>(other);
}

}  // namespace

// --- with what modules hold now

bool StaticMatch::matches_container(int container, PyObject *now) {
  if (!enter(container, now)) {
    return false;
  }
  while (!waiting_.empty()) {
    const Waiting next = waiting_.back();
    waiting_.pop_back();
    if (!matches_items(values_.containers[static_cast<std::size_t>(next.container)], next.now)) {
      return false;
    }
  }
  return true;
}

// Compares all of a container but its items, which are compared at once or wait.
bool StaticMatch::enter(int container, PyObject *now) {
  const StaticContainer &known = values_.containers[static_cast<std::size_t>(container)];
  Kind kind{};
  if (!static_kind(now, &kind) || kind != known.kind) {
    return false;
  }
  if (known.is_mutable()) {
    object_of_.resize(values_.containers.size());
    PyObject *&object = object_of_[static_cast<std::size_t>(container)];
    if (object) {
      return object == now;
    }
    if (!met_.insert(now)) {
      return false;
    }
    object = now;
  } else if (kind == Kind::tuple &&
             (known.type ? reinterpret_cast<PyObject *>(Py_TYPE(now)) != known.type.ptr()
                         : !PyTuple_CheckExact(now))) {
    return false;
  }
  if (known.is_flat) {
    return matches_items(known, now);
  }
  if (known.is_mutable() || immutable_.insert(pair_of(container, now)).second) {
    waiting_.push_back({container, now});
  }
  return true;
}

bool StaticMatch::matches_item(std::size_t index, PyObject *now) {
  const StaticItem &item = values_.items[index];
  if (++steps_ > kStepsWithoutReferences) {
    return false;
  }
  return item.kind == StaticItem::Kind::container ? enter(item.container, now)
                                                  : item.is_unchanged(now);
}

bool StaticMatch::matches_items(const StaticContainer &container, PyObject *now) {
  switch (container.kind) {
    case Kind::list:
    case Kind::tuple:
      if (Py_SIZE(now) != static_cast<Py_ssize_t>(container.count)) {
        return false;
      }
      for (std::size_t i = 0; i < container.count; ++i) {
        PyObject *item = sequence_item(now, static_cast<Py_ssize_t>(i));
        if (!item || !matches_item(container.first + i, item)) {
          return false;
        }
      }
      return true;
    case Kind::set:
    case Kind::frozenset:
      return PySet_GET_SIZE(now) == static_cast<Py_ssize_t>(container.count) &&
             matches_iterator(container, now);
    default:
      break;
  }
  if (PyDict_GET_SIZE(now) != static_cast<Py_ssize_t>(container.count / 2)) {
    return false;
  }
  if (container.kind == Kind::ordered_dict && container.count > 2) {
    return matches_ordered_dict(container, now);
  }
  Py_ssize_t position = 0;
  PyObject *key, *value;
  std::size_t place = 0;
  for (; place < container.count && dict_next_item(now, &position, &key, &value); place += 2) {
    if (!matches_item(container.first + place, key) ||
        !matches_item(container.first + place + 1, value)) {
      return false;
    }
  }
  return place == container.count;
}

// Equal sets may have another order: that is found by building.
bool StaticMatch::matches_iterator(const StaticContainer &container, PyObject *now) {
  const auto iterator = py::reinterpret_steal<py::object>(PyObject_GetIter(now));
  std::size_t place = 0;
  while (PyObject *item = iterator ? PyIter_Next(iterator.ptr()) : nullptr) {
    PyObject *const held = held_here(item);
    if (place == container.count || !matches_item(container.first + place, held)) {
      return false;
    }
    ++place;
  }
  PyErr_Clear();  // of a set that another thread changes
  return place == container.count;
}

// The order is beside the dict, whose own is that of the first insertions.
bool StaticMatch::matches_ordered_dict(const StaticContainer &container, PyObject *now) {
  std::unordered_map<PyObject *, PyObject *> values;
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (dict_next_item(now, &position, &key, &value)) {
    values.emplace(key, value);
  }
  const auto iterator = py::reinterpret_steal<py::object>(PyObject_GetIter(now));
  std::size_t place = 0;
  while (PyObject *in_order = iterator ? PyIter_Next(iterator.ptr()) : nullptr) {
    const auto found = values.find(held_here(in_order));
    if (place == container.count || found == values.end() ||
        !matches_item(container.first + place, found->first) ||
        !matches_item(container.first + place + 1, found->second)) {
      return false;
    }
    place += 2;
  }
  PyErr_Clear();
  return place == container.count;
}

// --- with another table

int StaticComparison::equal(const StaticItem &one, const StaticItem &other) {
  int equal = equal_items(one, other);
  while (equal > 0 && !waiting_.empty()) {
    const auto [mine, theirs] = waiting_.back();
    waiting_.pop_back();
    const StaticContainer &left = one_.containers[static_cast<std::size_t>(mine)];
    const StaticContainer &right = other_.containers[static_cast<std::size_t>(theirs)];
    if (left.kind == Kind::set || left.kind == Kind::frozenset) {
      equal = equal_sets(left, right);
      continue;
    }
    for (std::size_t i = 0; equal > 0 && i < left.count; ++i) {
      equal = equal_items(one_.items[left.first + i], other_.items[right.first + i]);
    }
  }
  return equal;
}

int StaticComparison::equal_items(const StaticItem &one, const StaticItem &other) {
  if (signals_.step() < 0) {
    return -1;
  }
  const bool is_object = one.kind == StaticItem::Kind::object || one.kind == StaticItem::Kind::weak;
  const bool is_other_object =
      other.kind == StaticItem::Kind::object || other.kind == StaticItem::Kind::weak;
  if (is_object && is_other_object) {
    const py::object left = one.object(), right = other.object();
    if (left.ptr() == right.ptr() || !left || !right) {
      return left && right;
    }
    if (Py_TYPE(left.ptr()) != Py_TYPE(right.ptr()) || !compares_by_value(Py_TYPE(left.ptr()))) {
      return 0;
    }
    const auto equal =
        py::reinterpret_steal<py::object>(PyObject_RichCompare(left.ptr(), right.ptr(), Py_EQ));
    return equal ? PyObject_IsTrue(equal.ptr()) : -1;
  }
  if (one.kind != other.kind) {
    return 0;
  }
  switch (one.kind) {
    case StaticItem::Kind::atom:
      return are_equal_atoms(one.value.ptr(), other.value.ptr());
    case StaticItem::Kind::container:
      return enter(one.container, other.container);
    default:
      return 1;
  }
}

int StaticComparison::enter(int one, int other) {
  const StaticContainer &left = one_.containers[static_cast<std::size_t>(one)];
  const StaticContainer &right = other_.containers[static_cast<std::size_t>(other)];
  if (left.kind != right.kind || left.count != right.count || left.type.ptr() != right.type.ptr()) {
    return 0;
  }
  if (!left.is_mutable()) {
    if (immutable_.insert(pair_of(one, other)).second) {
      waiting_.emplace_back(one, other);
    }
    return 1;
  }
  other_of_.resize(one_.containers.size(), -1);
  one_of_.resize(other_.containers.size(), -1);
  int &theirs = other_of_[static_cast<std::size_t>(one)];
  int &mine = one_of_[static_cast<std::size_t>(other)];
  if (theirs >= 0 || mine >= 0) {
    return theirs == other && mine == one;
  }
  theirs = other;
  mine = one;
  waiting_.emplace_back(one, other);
  return 1;
}

// Each item has its equal in the other set. What a set holds is hashable, so it cannot contain a
// mutable container.
int StaticComparison::equal_sets(const StaticContainer &one, const StaticContainer &other) {
  const NestedCall nested("comparing sets in plain attributes");
  if (!nested.entered()) {
    return -1;
  }
  std::unordered_multimap<std::size_t, std::size_t> theirs;
  for (std::size_t i = other.first; i < other.first + other.count; ++i) {
    theirs.emplace(other_.hash(other_.items[i]), i);
  }
  for (std::size_t i = one.first; i < one.first + one.count; ++i) {
    auto [at, end] = theirs.equal_range(one_.hash(one_.items[i]));
    int equal = 0;
    for (; at != end; ++at) {
      equal = StaticComparison(one_, other_).equal(one_.items[i], other_.items[at->second]);
      if (equal != 0) {
        break;
      }
    }
    if (equal <= 0) {
      return equal;
    }
    theirs.erase(at);
  }
  return 1;
}

}  // namespace modtree
