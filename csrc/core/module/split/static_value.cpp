// SPDX-License-Identifier: BSD-3-Clause
#include "module/split/static_value.h"

#include "module/attributes/registry_items.h"
#include "python/dict_lookup.h"

namespace modtree {

namespace {

// Is it of a type whose values never change, and whose comparison runs no user code?
bool is_atom(PyObject *value) {
  return value == Py_None || value == Py_Ellipsis || PyBool_Check(value) ||
         PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) ||
         PyBytes_CheckExact(value) || PyComplex_CheckExact(value);
}

bool are_equal_atoms(PyObject *one, PyObject *other) {
  if (one == other) {
    return true;
  }
  if (Py_TYPE(one) != Py_TYPE(other)) {
    return false;
  }
  const int equal = PyObject_RichCompareBool(one, other, Py_EQ);
  if (equal < 0) {
    PyErr_Clear();
  }
  return equal > 0;
}

// Has the type a comparison of its own that says what its values are, as hashable ones do?
bool compares_by_value(PyTypeObject *type) {
  return type->tp_richcompare && type->tp_richcompare != PyBaseObject_Type.tp_richcompare &&
         type->tp_hash && type->tp_hash != PyObject_HashNotImplemented;
}

std::size_t mixed(std::size_t hash, std::size_t more) {
  return (hash ^ more) * std::size_t{0x9E3779B97F4A7C15} + (hash >> 29);
}

}  // namespace

StaticValue StaticValue::of(PyObject *value, Keep keep, int depth) {
  StaticValue result;
  result.kind_ = is_atom(value) ? Kind::atom : Kind::object;
  if (result.kind_ == Kind::object && depth < kDeepest) {
    if (PyList_CheckExact(value) && PyList_GET_SIZE(value) <= kMostItems) {
      result.kind_ = Kind::list;
    } else if (PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) <= kMostItems) {
      result.kind_ = Kind::tuple;
    } else if (is_plain_table(value) && PyDict_GET_SIZE(value) <= kMostItems) {
      result.kind_ = Kind::dict;
    }
  }
  if (result.kind_ == Kind::object && keep == Keep::weak &&
      PyType_SUPPORTS_WEAKREFS(Py_TYPE(value))) {
    result.kind_ = Kind::weak;
    result.value_ = py::reinterpret_steal<py::object>(PyWeakref_NewRef(value, nullptr));
    if (!result.value_) {
      throw py::error_already_set();
    }
    return result;
  }
  const bool is_container = result.kind_ >= Kind::list;
  if (!is_container || keep == Keep::strong) {
    result.value_ = py::reinterpret_borrow<py::object>(value);
  }
  const auto owner = py::reinterpret_borrow<py::object>(value);
  const auto add = [&](PyObject *item) {
    const auto owned = py::reinterpret_borrow<py::object>(item);
    result.items_.push_back(of(item, keep, depth + 1));
  };
  if (result.kind_ == Kind::list) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i) {
      add(PyList_GET_ITEM(value, i));
    }
  } else if (result.kind_ == Kind::tuple) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
      add(PyTuple_GET_ITEM(value, i));
    }
  } else if (result.kind_ == Kind::dict) {
    const auto copy = py::reinterpret_steal<py::object>(PyDict_Copy(value));
    if (!copy) {
      throw py::error_already_set();
    }
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (dict_next_item(copy.ptr(), &position, &key, &item)) {
      add(key);
      add(item);
    }
  }
  return result;
}

bool StaticValue::is_equal_now(PyObject *now) const {
  switch (kind_) {
    case Kind::nothing:
      return false;
    case Kind::atom:
      return are_equal_atoms(value_.ptr(), now);
    case Kind::object:
      return value_.ptr() == now;
    case Kind::weak:
      return is_referent(value_.ptr(), now);
    case Kind::list:
    case Kind::tuple: {
      const bool is_list = kind_ == Kind::list;
      if (!(is_list ? PyList_CheckExact(now) : PyTuple_CheckExact(now)) ||
          Py_SIZE(now) != static_cast<Py_ssize_t>(items_.size())) {
        return false;
      }
      for (std::size_t i = 0; i < items_.size(); ++i) {
        const auto place = static_cast<Py_ssize_t>(i);
        if (!items_[i].is_unchanged(is_list ? PyList_GET_ITEM(now, place)
                                            : PyTuple_GET_ITEM(now, place))) {
          return false;
        }
      }
      return true;
    }
    case Kind::dict: {
      if (!is_plain_table(now) ||
          PyDict_GET_SIZE(now) != static_cast<Py_ssize_t>(items_.size() / 2)) {
        return false;
      }
      Py_ssize_t position = 0;
      PyObject *key, *value;
      for (std::size_t i = 0; dict_next_item(now, &position, &key, &value); i += 2) {
        if (!items_[i].is_unchanged(key) || !items_[i + 1].is_unchanged(value)) {
          return false;
        }
      }
      return true;
    }
  }
  return false;
}

py::object StaticValue::value() const {
  return kind_ == Kind::weak ? referent_of(value_.ptr()) : value_;
}

int StaticValue::equals(const StaticValue &other) const {
  const bool is_object = kind_ == Kind::object || kind_ == Kind::weak;
  const bool is_other_object = other.kind_ == Kind::object || other.kind_ == Kind::weak;
  if (is_object && is_other_object) {
    const py::object one = value(), two = other.value();
    if (one.ptr() == two.ptr() || !one || !two) {
      return one && two;
    }
    if (Py_TYPE(one.ptr()) != Py_TYPE(two.ptr()) || !compares_by_value(Py_TYPE(one.ptr()))) {
      return 0;
    }
    const auto equal =
        py::reinterpret_steal<py::object>(PyObject_RichCompare(one.ptr(), two.ptr(), Py_EQ));
    return equal ? PyObject_IsTrue(equal.ptr()) : -1;
  }
  if (kind_ != other.kind_ || items_.size() != other.items_.size()) {
    return 0;
  }
  if (kind_ == Kind::atom) {
    return are_equal_atoms(value_.ptr(), other.value_.ptr());
  }
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const int equal = items_[i].equals(other.items_[i]);
    if (equal <= 0) {
      return equal;
    }
  }
  return 1;
}

std::size_t StaticValue::hash() const {
  auto result = static_cast<std::size_t>(kind_ == Kind::weak ? Kind::object : kind_);
  if (kind_ == Kind::atom) {
    const Py_hash_t hash = PyObject_Hash(value_.ptr());
    return mixed(result, static_cast<std::size_t>(hash));
  }
  for (const StaticValue &item : items_) {
    result = mixed(result, item.hash());
  }
  return result;
}

int StaticValue::traverse(visitproc visit, void *arg) const {
  Py_VISIT(value_.ptr());
  for (const StaticValue &item : items_) {
    if (const int result = item.traverse(visit, arg)) {
      return result;
    }
  }
  return 0;
}

}  // namespace modtree
