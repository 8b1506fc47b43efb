// SPDX-License-Identifier: BSD-3-Clause
// The only place that looks at PY_VERSION_HEX: differences between CPython versions, and private
// API with its fallback.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

// type_lookup() for who holds the type, and owns the value at once.
inline PyObject *borrowed_type_lookup(PyTypeObject *type, PyObject *name) {
  return _PyType_Lookup(type, name);
}

// The value of `name` along the MRO of `type`, or null without an error. Uses the type's method
// cache; where that has no answer, user code runs for keys of odd types in the `__dict__` of a
// class, and may take the type from the object whose it is.
inline pybind11::object type_lookup(PyTypeObject *type, PyObject *name) {
  Py_INCREF(type);
  auto found = pybind11::reinterpret_borrow<pybind11::object>(borrowed_type_lookup(type, name));
  Py_DECREF(type);
  return found;
}

// Has a class along the MRO an attribute of that name?
inline bool type_has(PyTypeObject *type, PyObject *name) {
  return static_cast<bool>(type_lookup(type, name));
}

// The version tag of a type, or 0 when the type has none at the moment (then nothing about it may
// be cached).
inline unsigned int type_version(PyTypeObject *type) {
#if PY_VERSION_HEX < 0x030C0000
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
#else
  return type->tp_version_tag;
#endif
}

// Borrowed value or null without an error. `key` is a str: user code runs only for a key of another
// type with the same hash, or when either is of a subclass of str. What the caller has borrowed
// from elsewhere may be gone after that.
inline PyObject *dict_get_str(PyObject *dict, PyObject *key) {
  // That code may replace the dict where it is kept.
  Py_INCREF(dict);
  Py_hash_t hash = reinterpret_cast<PyASCIIObject *>(key)->hash;
  if (hash == -1) {
    hash = PyObject_Hash(key);
  }
  PyObject *value = hash == -1 ? nullptr : _PyDict_GetItem_KnownHash(dict, key, hash);
  if (!value && PyErr_Occurred()) {
    // A key of another type in this dict, whose __eq__ raised: it is not the one looked for.
    PyErr_Clear();
  }
  if (Py_REFCNT(dict) == 1) {
    value = nullptr;  // it goes with the dict
  }
  Py_DECREF(dict);
  return value;
}

// Is the reference through which the caller reaches `object` the only one? It must be a counted
// one: held by a structure of ours, or returned to us. Of an argument it proves nothing: from 3.14
// on the interpreter lends references that it does not count.
inline bool is_sole_reference(PyObject *object) { return Py_REFCNT(object) == 1; }

// The hash of an object that is compared by identity.
inline Py_hash_t hash_pointer(const void *pointer) {
#if PY_VERSION_HEX < 0x030D0000
  return _Py_HashPointer(pointer);
#else
  return Py_HashPointer(pointer);
#endif
}

// 1 and a new reference, 0 (and null) without an error when there is no such attribute, -1 on
// another error.
inline int optional_attr(PyObject *object, PyObject *name, PyObject **value) {
#if PY_VERSION_HEX < 0x030D0000
  return _PyObject_LookupAttr(object, name, value);
#else
  return PyObject_GetOptionalAttr(object, name, value);
#endif
}

// Are the records behind object's slot wrappers, and the builtin object.__new__, what
// module/object_methods.cpp takes them for: shared by all classes, and writable? Tried with these
// versions; later ones are left alone until somebody has.
constexpr bool kSlotRecordsAreKnown = PY_VERSION_HEX < 0x030E0000;

// 1 and a new reference, 0 (and null) when there is no such key, -1 on error. The caller keeps the
// dict alive.
#if PY_VERSION_HEX < 0x030D0000
inline int dict_pop(PyObject *dict, PyObject *key, PyObject **result) {
  PyObject *value = PyDict_GetItemWithError(dict, key);
  if (!value) {
    *result = nullptr;
    return PyErr_Occurred() ? -1 : 0;
  }
  Py_INCREF(value);
  if (PyDict_DelItem(dict, key) < 0) {
    Py_DECREF(value);
    *result = nullptr;
    return -1;
  }
  *result = value;
  return 1;
}
#else
inline int dict_pop(PyObject *dict, PyObject *key, PyObject **result) {
  return PyDict_Pop(dict, key, result);
}
#endif

}  // namespace modtree
