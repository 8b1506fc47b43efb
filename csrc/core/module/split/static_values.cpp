// SPDX-License-Identifier: BSD-3-Clause
// What counts as a value, and tables of values.
#include "module/split/static_values.h"

#include <cstring>

#include "python/checked.h"
#include "python/compat.h"

namespace modtree {

namespace {

using Kind = StaticContainer::Kind;

// True for types whose values never change, and whose comparison runs no user code.
bool is_atom(PyObject *value) {
  return value == Py_None || value == Py_Ellipsis || PyBool_Check(value) ||
         PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) ||
         PyBytes_CheckExact(value) || PyComplex_CheckExact(value);
}

bool are_same_bits(double one, double other) {
  std::uint64_t bits[2];
  std::memcpy(&bits[0], &one, sizeof one);
  std::memcpy(&bits[1], &other, sizeof other);
  return bits[0] == bits[1];
}

// A tuple of a class that adds names alone, as namedtuple() makes them.
bool is_named_tuple(PyObject *value) {
  const PyTypeObject *type = Py_TYPE(value);
  return PyTuple_Check(value) && type->tp_iter == PyTuple_Type.tp_iter &&
         type->tp_hash == PyTuple_Type.tp_hash &&
         type->tp_richcompare == PyTuple_Type.tp_richcompare && type->tp_dictoffset == 0 &&
         type->tp_basicsize == PyTuple_Type.tp_basicsize;
}

std::size_t mixed(std::size_t hash, std::size_t more) {
  return (hash ^ more) * std::size_t{0x9E3779B97F4A7C15} + (hash >> 29);
}

std::size_t hash_of_atom(PyObject *value) {
  if (PyFloat_CheckExact(value) || PyComplex_CheckExact(value)) {
    return PyFloat_CheckExact(value) ? 1 : 2;  // NaN has the hash of its address
  }
  return static_cast<std::size_t>(PyObject_Hash(value));
}

// Of all but containers.
std::size_t hash_of_object(const StaticItem &item) {
  if (item.kind == StaticItem::Kind::atom) {
    return hash_of_atom(item.value.ptr());
  }
  const py::object object = item.object();
  if (!object) {
    return 3;
  }
  PyTypeObject *type = Py_TYPE(object.ptr());
  return reinterpret_cast<std::size_t>(compares_by_value(type) ? static_cast<void *>(type)
                                                               : object.ptr());
}

bool has_keys(Kind kind) { return kind == Kind::dict || kind == Kind::ordered_dict; }

// The items of a container at one moment as a tuple; of dicts, pairs. Runs user code for keys of
// odd types in an OrderedDict.
py::object contents_of(Kind kind, PyObject *value) {
  const py::object items = has_keys(kind) ? owned(items_at_once(value)) : py::object();
  return owned(PySequence_Tuple(items ? items.ptr() : value));
}

}  // namespace

bool are_equal_atoms(PyObject *one, PyObject *other) {
  if (one == other) {
    return true;
  }
  if (Py_TYPE(one) != Py_TYPE(other)) {
    return false;
  }
  if (PyFloat_CheckExact(one)) {
    return are_same_bits(PyFloat_AS_DOUBLE(one), PyFloat_AS_DOUBLE(other));
  }
  if (PyComplex_CheckExact(one)) {
    return are_same_bits(PyComplex_RealAsDouble(one), PyComplex_RealAsDouble(other)) &&
           are_same_bits(PyComplex_ImagAsDouble(one), PyComplex_ImagAsDouble(other));
  }
  const int equal = PyObject_RichCompareBool(one, other, Py_EQ);
  if (equal < 0) {
    PyErr_Clear();
  }
  return equal > 0;
}

bool compares_by_value(PyTypeObject *type) {
  return type->tp_richcompare && type->tp_richcompare != PyBaseObject_Type.tp_richcompare &&
         type->tp_hash && type->tp_hash != PyObject_HashNotImplemented;
}

bool static_kind(PyObject *value, Kind *kind) {
  if (PyTuple_CheckExact(value) || is_named_tuple(value)) {
    *kind = Kind::tuple;
  } else if (PyList_CheckExact(value)) {
    *kind = Kind::list;
  } else if (PyDict_CheckExact(value)) {
    *kind = Kind::dict;
  } else if (PyODict_CheckExact(value)) {
    *kind = Kind::ordered_dict;
  } else if (PySet_CheckExact(value)) {
    *kind = Kind::set;
  } else if (PyFrozenSet_CheckExact(value)) {
    *kind = Kind::frozenset;
  } else {
    return false;
  }
  return true;
}

bool StaticItem::is_unchanged(PyObject *now) const {
  switch (kind) {
    case Kind::atom:
      return are_equal_atoms(value.ptr(), now);
    case Kind::object:
      return value.ptr() == now;
    case Kind::weak:
      return is_referent(value.ptr(), now);
    default:
      return false;
  }
}

py::object StaticItem::object() const {
  return kind == Kind::weak ? referent_of(value.ptr()) : value;
}

std::size_t StaticValues::hash(const StaticItem &item) const {
  if (item.kind != StaticItem::Kind::container) {
    return hash_of_object(item);
  }
  // One level: what is deeper is compared.
  const StaticContainer &container = containers[static_cast<std::size_t>(item.container)];
  std::size_t result = mixed(static_cast<std::size_t>(container.kind), container.count);
  std::size_t of_set = 0;
  for (std::size_t i = 0; i < container.count; ++i) {
    const StaticItem &inner = items[container.first + i];
    std::size_t more = static_cast<std::size_t>(inner.kind);
    if (inner.kind != StaticItem::Kind::container) {
      more = hash_of_object(inner);
    }
    of_set += mixed(17, more);
    result = mixed(result, more);
  }
  const bool has_order = container.kind != Kind::set && container.kind != Kind::frozenset;
  return has_order ? result : mixed(static_cast<std::size_t>(container.kind), of_set);
}

int StaticValues::traverse(visitproc visit, void *arg) const {
  for (const StaticItem &item : items) {
    Py_VISIT(item.value.ptr());
  }
  for (const StaticContainer &container : containers) {
    Py_VISIT(container.type.ptr());
  }
  return 0;
}

// --- building

StaticItem StaticBuilder::add(PyObject *value) {
  const auto owner = py::reinterpret_borrow<py::object>(value);
  StaticItem item = noted(value);
  for (; filled_ < held_.size(); ++filled_) {
    fill(filled_);
  }
  return item;
}

StaticItem StaticBuilder::noted(PyObject *value) {
  Kind kind{};
  if (is_atom(value) || !static_kind(value, &kind)) {
    StaticItem item{StaticItem::Kind::object, -1, py::reinterpret_borrow<py::object>(value)};
    if (is_atom(value)) {
      item.kind = StaticItem::Kind::atom;
    } else if (keep_ == Keep::weak && PyType_SUPPORTS_WEAKREFS(Py_TYPE(value))) {
      item.kind = StaticItem::Kind::weak;
      item.value = owned(PyWeakref_NewRef(value, nullptr));
    }
    return item;
  }
  const auto next = static_cast<int>(values_.containers.size());
  const auto [known, is_new] = met_.emplace(value, next);
  if (is_new) {
    held_.push_back(py::reinterpret_borrow<py::object>(value));
    py::object type;
    if (kind == Kind::tuple && !PyTuple_CheckExact(value)) {
      type = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(Py_TYPE(value)));
    }
    values_.containers.push_back({kind, true, std::move(type), 0, 0});
  }
  return {StaticItem::Kind::container, known->second, {}};
}

void StaticBuilder::fill(std::size_t container) {
  const Kind kind = values_.containers[container].kind;
  const py::object contents = contents_of(kind, held_[container].ptr());
  const std::size_t first = values_.items.size();
  bool is_flat = true;
  const auto add_item = [&](PyObject *value) {
    check(signals_.step());
    values_.items.push_back(noted(value));
    is_flat = is_flat && values_.items.back().kind != StaticItem::Kind::container;
  };
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(contents.ptr()); ++i) {
    PyObject *item = PyTuple_GET_ITEM(contents.ptr(), i);
    if (has_keys(kind)) {
      add_item(PyTuple_GET_ITEM(item, 0));
      add_item(PyTuple_GET_ITEM(item, 1));
    } else {
      add_item(item);
    }
  }
  StaticContainer &noted_one = values_.containers[container];
  noted_one.is_flat = is_flat;
  noted_one.first = first;
  noted_one.count = values_.items.size() - first;
}

}  // namespace modtree
