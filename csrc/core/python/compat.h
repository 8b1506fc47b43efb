// SPDX-License-Identifier: BSD-3-Clause
// The only place that looks at PY_VERSION_HEX: differences between CPython versions, and private
// API with its fallback.
#pragma once

#include <pybind11/pytypes.h>

#include <cstdint>

#include "python/native_section.h"

namespace modtree {

// type_lookup() for a caller that holds the type and owns the value at once.
inline PyObject *borrowed_type_lookup(PyTypeObject *type, PyObject *name) {
#ifdef Py_GIL_DISABLED
  NativeSection::let_others_in();
  return borrow_owned(_PyType_LookupRef(type, name));
#else
  return _PyType_Lookup(type, name);
#endif
}

// The value of `name` along the MRO of `type`, or null without an error. Uses the type's method
// cache; where that has no answer, user code runs for keys of odd types in the `__dict__` of a
// class, and may take the type away from its object.
inline pybind11::object type_lookup(PyTypeObject *type, PyObject *name) {
  Py_INCREF(type);
#ifdef Py_GIL_DISABLED
  NativeSection::let_others_in();
  auto found = pybind11::reinterpret_steal<pybind11::object>(_PyType_LookupRef(type, name));
#else
  auto found = pybind11::reinterpret_borrow<pybind11::object>(borrowed_type_lookup(type, name));
#endif
  Py_DECREF(type);
  return found;
}

// True if a class along the MRO has an attribute of that name.
inline bool type_has(PyTypeObject *type, PyObject *name) {
  return static_cast<bool>(type_lookup(type, name));
}

// type.__mro__, whatever a metaclass has under that name; null on error. Without the GIL another
// thread may assign to __bases__ meanwhile: there CPython's own descriptor reads it.
inline pybind11::object mro_of(PyTypeObject *type) {
#ifdef Py_GIL_DISABLED
  const auto name =
      pybind11::reinterpret_steal<pybind11::object>(PyUnicode_InternFromString("__mro__"));
  const auto descriptor = name ? type_lookup(&PyType_Type, name.ptr()) : pybind11::object();
  return descriptor ? pybind11::reinterpret_steal<pybind11::object>(
                          Py_TYPE(descriptor.ptr())
                              ->tp_descr_get(descriptor.ptr(), reinterpret_cast<PyObject *>(type),
                                             reinterpret_cast<PyObject *>(&PyType_Type)))
                    : pybind11::object();
#else
  return pybind11::reinterpret_borrow<pybind11::object>(type->tp_mro);
#endif
}

// A state that a type was in: two types, or two states of one, never have the same. 0: the type has
// no version at the moment, and nothing about it may be cached.
#if PY_VERSION_HEX < 0x030B0000
using TypeVersion = std::uint64_t;

// sys._clear_type_cache() makes CPython 3.10 take all version tags back and give them out anew,
// from 1 on. This class has had a tag since it was looked at here the last time, unless that has
// happened.
struct VersionWitness {
  PyTypeObject *type = nullptr;
  PyObject *name = nullptr;
  TypeVersion generation = 0;
};
inline VersionWitness version_witness;

// Called once, before the first type_version(). Throws error_already_set.
inline void init_type_versions() {
  PyType_Slot slots[] = {{0, nullptr}};
  PyType_Spec spec = {"modtree._C._VersionWitness", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots};
  version_witness.type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
  version_witness.name = PyUnicode_InternFromString("__doc__");
  if (!version_witness.type || !version_witness.name) {
    throw pybind11::error_already_set();
  }
}

inline TypeVersion type_version(PyTypeObject *type) {
  if (!PyType_HasFeature(version_witness.type, Py_TPFLAGS_VALID_VERSION_TAG)) {
    ++version_witness.generation;
    _PyType_Lookup(version_witness.type, version_witness.name);
  }
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)
             ? version_witness.generation << 32 | type->tp_version_tag
             : 0;
}
#else
using TypeVersion = unsigned int;

inline void init_type_versions() {}

// The tag of a type that has changed is 0, on which CPython's own bytecode relies as well.
inline TypeVersion type_version(PyTypeObject *type) {
#ifdef Py_GIL_DISABLED
  return _Py_atomic_load_uint(&type->tp_version_tag);
#else
  return type->tp_version_tag;
#endif
}
#endif

// --- borrowed from dicts

// As PyDict_GetItemWithError().
inline PyObject *dict_get(PyObject *dict, PyObject *key) {
#ifdef Py_GIL_DISABLED
  // Waiting for the dict leaves the section, and then it may be replaced where it is kept.
  const auto held = pybind11::reinterpret_borrow<pybind11::object>(dict);
  NativeSection::let_others_in();
  PyObject *value = nullptr;
  PyDict_GetItemRef(dict, key, &value);
  NativeSection::let_others_in();
  return borrow_owned(value);
#else
  return PyDict_GetItemWithError(dict, key);
#endif
}

// As PyDict_Next(), which see. The key and the value may be null.
inline bool dict_next_item(PyObject *dict, Py_ssize_t *position, PyObject **key, PyObject **value) {
#ifdef Py_GIL_DISABLED
  const auto held = pybind11::reinterpret_borrow<pybind11::object>(dict);
  NativeSection::let_others_in();
  PyObject *next_key = nullptr, *next_value = nullptr;
  bool found;
  Py_BEGIN_CRITICAL_SECTION(dict);
  found = PyDict_Next(dict, position, &next_key, &next_value) != 0;
  Py_XINCREF(next_key);
  Py_XINCREF(next_value);
  Py_END_CRITICAL_SECTION();
  NativeSection::let_others_in();
  borrow_owned(next_key);
  borrow_owned(next_value);
  if (key) {
    *key = next_key;
  }
  if (value) {
    *value = next_value;
  }
  return found;
#else
  return PyDict_Next(dict, position, key, value) != 0;
#endif
}

// The items of an exact dict or OrderedDict as a list, as they are at one moment; null on error.
inline PyObject *items_at_once(PyObject *dict) {
#ifdef Py_GIL_DISABLED
  if (!PyDict_CheckExact(dict)) {
    // Its iterators lock it for each item alone, copy() for all of them.
    const auto copy =
        pybind11::reinterpret_steal<pybind11::object>(PyObject_CallMethod(dict, "copy", nullptr));
    return copy ? PyMapping_Items(copy.ptr()) : nullptr;
  }
#endif
  return PyMapping_Items(dict);
}

// True if the hash of the str is already known.
inline bool has_hash(PyObject *name) { return reinterpret_cast<PyASCIIObject *>(name)->hash != -1; }

// Borrowed value, or null. `key` is a str: user code runs only for a key of another type with the
// same hash, or when either is of a subclass of str. What the caller has borrowed from elsewhere
// may be gone after that. What the code raises stays set, so where it finds nothing and goes on,
// the caller asks for an error. With one that is set before, nothing is found.
inline PyObject *dict_get_str(PyObject *dict, PyObject *key) {
  if (PyErr_Occurred()) {
    return nullptr;
  }
#ifdef Py_GIL_DISABLED
  const auto held = pybind11::reinterpret_borrow<pybind11::object>(dict);
  NativeSection::let_others_in();
  PyObject *value = nullptr;
  PyDict_GetItemRef(dict, key, &value);
  NativeSection::let_others_in();
  return borrow_owned(value);
#else
  // That code may replace the dict where it is kept.
  Py_INCREF(dict);
  Py_hash_t hash = reinterpret_cast<PyASCIIObject *>(key)->hash;
  if (hash == -1) {
    hash = PyObject_Hash(key);
  }
  PyObject *value = hash == -1 ? nullptr : _PyDict_GetItem_KnownHash(dict, key, hash);
  if (Py_REFCNT(dict) == 1) {
    value = nullptr;  // it goes with the dict
  }
  Py_DECREF(dict);
  return value;
#endif
}

// The same for the dict of a class. As in CPython's own search along the MRO, what a key raises is
// dropped: it is not the one looked for.
inline PyObject *class_dict_get(PyTypeObject *type, PyObject *name) {
  PyObject *value = dict_get_str(type->tp_dict, name);
  if (!value && PyErr_Occurred()) {
    PyErr_Clear();
  }
  return value;
}

// Whether python/dict_lookup.h may read the tables of dicts, which are not part of CPython's API;
// not in a build with MODTREE_NO_INTERNALS.
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030F0000 && !defined(Py_GIL_DISABLED) &&    \
    !defined(MODTREE_NO_INTERNALS)
#define MODTREE_KNOWS_DICT_TABLES 1
#else
#define MODTREE_KNOWS_DICT_TABLES 0
#endif

// Where the attributes of an object's own are: true and a borrowed dict, or null when there are
// none. False where they are stored otherwise, or the object would first have to make the dict.
inline bool peek_own_dict(PyObject *object, PyObject **dict) {
#if PY_VERSION_HEX < 0x030B0000
  PyObject **place = _PyObject_GetDictPtr(object);
  *dict = place ? *place : nullptr;
  return place != nullptr;
#elif MODTREE_KNOWS_DICT_TABLES
  if (!PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) {
    return false;
  }
  // In front of the object: the dict and, up to 3.12, the values without one, whose count of those
  // that are set lies two bytes in front of them.
  const auto *head = reinterpret_cast<PyObject *const *>(object);
  *dict = head[-3];
#if PY_VERSION_HEX < 0x030C0000
  return *dict || !head[-4] || reinterpret_cast<const unsigned char *>(head[-4])[-2] == 0;
#elif PY_VERSION_HEX < 0x030D0000
  // The lowest bit tells values from a dict.
  if (const auto tagged = reinterpret_cast<std::uintptr_t>(*dict); tagged & 1) {
    *dict = nullptr;
    return reinterpret_cast<const unsigned char *>(tagged + 1)[-2] == 0;
  }
  return true;
#else
  return *dict || !PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_INLINE_VALUES);
#endif
#else
  static_cast<void>(object);
  *dict = nullptr;
  return false;
#endif
}

// True if the reference through which the caller reaches `object` is the only one. It must be a
// counted one: held by a structure of ours, or returned to us. For an argument this proves nothing:
// from 3.14 on the interpreter lends references that it does not count. Never true without the GIL,
// where another thread may be about to take a reference from the same structure.
inline bool is_sole_reference(PyObject *object) {
#ifdef Py_GIL_DISABLED
  static_cast<void>(object);
  return false;
#else
  return Py_REFCNT(object) == 1;
#endif
}

// The same where a second structure of the caller's holds it too.
inline bool has_two_holders(PyObject *object) {
#ifdef Py_GIL_DISABLED
  static_cast<void>(object);
  return false;
#else
  return Py_REFCNT(object) == 2;
#endif
}

// Takes a new empty dict, which refers to nothing, out of the collector's lists. CPython puts a
// dict there again when it gets the first value that has to be visited; from 3.14 on it does not.
inline void untrack_empty_dict(PyObject *dict) {
#if PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED)
  PyObject_GC_UnTrack(dict);
#else
  static_cast<void>(dict);
#endif
}

// A reference to an object to which a borrowed pointer leads that the object takes back when it
// dies: false where it is dying, which only happens without the GIL. share_by_try() comes before.
inline bool try_to_own(PyObject *object) {
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
  return PyUnstable_TryIncRef(object) != 0;
#else
  Py_INCREF(object);
  return true;
#endif
}
inline void share_by_try(PyObject *object) {
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
  PyUnstable_EnableTryIncRef(object);
#else
  static_cast<void>(object);
#endif
}

// True if other threads may run native code of ours where CPython waits for a lock of a dict or a
// class.
#ifdef Py_GIL_DISABLED
constexpr bool kFreeThreaded = true;
#else
constexpr bool kFreeThreaded = false;
#endif

// True if tracebacks show the `__notes__` of exceptions.
constexpr bool kHasExceptionNotes = PY_VERSION_HEX >= 0x030B0000;

// kRunsWithoutGil: the extension leaves the GIL off, on a free-threaded CPython from 3.14 on.
//
// leave_to_collector() makes it the collector's to free an object to which borrowed pointers lead,
// and whose count would be written by several threads. Without the GIL the collector waits for a
// thread that runs native code, until that calls Python code or waits for something; a function
// that is called is held by its frame then, though not yet while names of keywords are compared.
// Nothing with the GIL.
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
constexpr bool kRunsWithoutGil = true;
inline void leave_to_collector(PyObject *object) {
  PyUnstable_Object_EnableDeferredRefcount(object);
}
#else
constexpr bool kRunsWithoutGil = false;
inline void leave_to_collector(PyObject *) {}
#endif

// Lets go of a reference that is not the last.
inline void release_one_of_several(PyObject *object) {
#if PY_VERSION_HEX < 0x030C0000
  Py_SET_REFCNT(object, Py_REFCNT(object) - 1);
#else
  Py_DECREF(object);  // some objects have no count
#endif
}

// The hash of an object that is compared by identity.
inline Py_hash_t hash_pointer(const void *pointer) {
#if PY_VERSION_HEX < 0x030D0000
  return _Py_HashPointer(pointer);
#else
  return Py_HashPointer(pointer);
#endif
}

// 1 and a new reference, 0 (and null) without an error when the attribute is missing, -1 on another
// error.
inline int optional_attr(PyObject *object, PyObject *name, PyObject **value) {
#if PY_VERSION_HEX < 0x030D0000
  return _PyObject_LookupAttr(object, name, value);
#else
  return PyObject_GetOptionalAttr(object, name, value);
#endif
}

// True for versions in which the records behind object's slot wrappers, and the builtin
// object.__new__, are what module/object_methods.cpp takes them for: shared by all classes, and
// writable. Later versions are left alone until somebody has tried them.
constexpr bool kSlotRecordsAreKnown = PY_VERSION_HEX < 0x030F0000;

// 1 and a new reference, 0 (and null) when the key is missing, -1 on error. The caller keeps the
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

// function(*args, **keywords) for an exact Python function, which the caller owns: without the
// search for how to call it, and without a check that it returns a value or sets an error.
inline PyObject *call_function(PyObject *function, PyObject *const *args, std::size_t flagged_count,
                               PyObject *keyword_names) {
  const OutsideNativeSection outside;
#ifndef MODTREE_NO_INTERNALS
  if (vectorcallfunc call = reinterpret_cast<PyFunctionObject *>(function)->vectorcall) {
    return call(function, args, flagged_count, keyword_names);
  }
#endif
  return PyObject_Vectorcall(function, args, flagged_count, keyword_names);
}

// What a weak reference refers to, or null where that has died.
inline pybind11::object referent_of(PyObject *reference) {
#if PY_VERSION_HEX < 0x030D0000
  PyObject *found = PyWeakref_GetObject(reference);
  return pybind11::reinterpret_borrow<pybind11::object>(found == Py_None ? nullptr : found);
#else
  PyObject *found = nullptr;
  if (PyWeakref_GetRef(reference, &found) < 0) {
    PyErr_Clear();  // it is not a weak reference
  }
  return pybind11::reinterpret_steal<pybind11::object>(found);
#endif
}

// True if the weak reference refers to the object, which the caller keeps alive. Runs no user code.
inline bool is_referent(PyObject *reference, PyObject *object) {
#if PY_VERSION_HEX < 0x030D0000
  return PyWeakref_GetObject(reference) == object;
#else
  PyObject *found = nullptr;
  if (PyWeakref_GetRef(reference, &found) <= 0) {
    PyErr_Clear();
    return false;
  }
  // Others hold it too: the caller, or whoever kept it alive until now.
  Py_DECREF(found);
  return found == object;
#endif
}

// True while the interpreter shuts down. Needs no GIL.
inline bool is_finalizing() {
#if PY_VERSION_HEX < 0x030D0000
  return _Py_IsFinalizing() != 0;
#else
  return Py_IsFinalizing() != 0;
#endif
}

}  // namespace modtree
