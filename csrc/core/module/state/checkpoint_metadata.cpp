// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/checkpoint_metadata.h"

#include "module/state/state_path.h"
#include "python/installed.h"
#include "python/owned.h"
#include "python/signals.h"
#include "python/type_text.h"

namespace modtree {

int is_mapping(PyObject *value) {
  if (PyDict_Check(value)) {
    return 1;
  }
  static PyObject *mapping_type = nullptr;
  if (!mapping_type) {
    const Owned abc = steal(PyImport_ImportModule("collections.abc"));
    mapping_type = abc ? PyObject_GetAttrString(abc.ptr(), "Mapping") : nullptr;
  }
  return mapping_type ? PyObject_IsInstance(value, mapping_type) : -1;
}

int CheckpointMetadata::start(PyObject *state_dict) {
  if (PyDict_CheckExact(state_dict)) {
    return 0;
  }
  PyObject *type = need_installed(installed.StateDict);
  if (!type) {
    return -1;
  }
  if (reinterpret_cast<PyObject *>(Py_TYPE(state_dict)) == type) {
    // The record of a native walk needs no checks: it becomes a dict only when a module wants its
    // part.
    const Owned record = steal(PyObject_GetAttr(state_dict, names.metadata_record));
    if (record) {
      owner_ = borrow(state_dict);
      return 0;
    }
    PyErr_Clear();
  }
  metadata_ = steal(PyObject_GetAttr(state_dict, names.metadata));
  if (!metadata_) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
      return -1;
    }
    PyErr_Clear();
    return 0;
  }
  if (metadata_.is_none()) {
    metadata_ = Owned();
    return 0;
  }
  const int good = is_mapping(metadata_.ptr());
  if (good == 0) {
    PyErr_Format(
        PyExc_TypeError,
        "state_dict._metadata must be a mapping from module paths to dicts, got %.200s: %R",
        Py_TYPE(metadata_.ptr())->tp_name, metadata_.ptr());
  }
  return good > 0 ? find_bad_entries() : -1;
}

int CheckpointMetadata::find_bad_entries() {
  if (!PyDict_Check(metadata_.ptr())) {
    return 0;
  }
  Py_ssize_t at = 0;
  PyObject *key, *value;
  SignalCheck signals;
  while (signals.step() == 0 && dict_next_item(metadata_.ptr(), &at, &key, &value)) {
    if (PyDict_Check(value)) {
      continue;
    }
    const Owned held_key = borrow(key), held_value = borrow(value);
    const int good = is_mapping(value);
    if (good == 0 && !bad_) {
      bad_ = steal(PySet_New(nullptr));
    }
    if (good < 0 || (good == 0 && (!bad_ || PySet_Add(bad_.ptr(), key) < 0))) {
      return -1;
    }
  }
  return PyErr_Occurred() ? -1 : 0;
}

PyObject *CheckpointMetadata::get() {
  if (owner_) {
    metadata_ = steal(PyObject_GetAttr(owner_.ptr(), names.metadata));
    owner_ = Owned();
  }
  return metadata_.ptr();
}

PyObject *CheckpointMetadata::local(PyObject *prefix, bool assign) {
  PyObject *metadata = get();
  if (!metadata && PyErr_Occurred()) {
    return nullptr;
  }
  const Owned empty = steal(PyDict_New());
  const Owned key = empty ? steal(metadata_key(prefix)) : Owned();
  if (!key) {
    return nullptr;
  }
  const Owned found =
      metadata ? steal(PyObject_CallMethod(metadata, "get", "OO", key.ptr(), empty.ptr()))
               : borrow(empty.ptr());
  const int good = found ? is_mapping(found.ptr()) : -1;
  if (good <= 0) {
    if (good == 0) {
      const std::string type = type_text(found.ptr());
      PyErr_Format(
          PyExc_TypeError,
          "state_dict._metadata[%R] must be a mapping such as {'version': 1}, got %.200s: %R",
          key.ptr(), type.c_str(), found.ptr());
    }
    return nullptr;
  }
  const int has_flag = PySequence_Contains(found.ptr(), names.assign_to_params_buffers);
  if (has_flag < 0) {
    return nullptr;
  }
  if (!assign && !has_flag) {
    return Py_NewRef(found.ptr());
  }
  const Owned copy = steal(PyDict_New());
  if (!copy || PyDict_Update(copy.ptr(), found.ptr()) < 0) {
    return nullptr;
  }
  const int done = assign ? PyDict_SetItem(copy.ptr(), names.assign_to_params_buffers, Py_True)
                          : PyDict_DelItem(copy.ptr(), names.assign_to_params_buffers);
  return done < 0 ? nullptr : Py_NewRef(copy.ptr());
}

}  // namespace modtree
