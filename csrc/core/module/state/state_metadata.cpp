// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/state_metadata.h"

#include "module/class_info.h"
#include "module/name_cache.h"
#include "module/state/state_path.h"
#include "python/signals.h"

namespace modtree {

namespace {

constexpr const char *kCapsuleName = "modtree._C.MetadataRecord";

void delete_record(PyObject *capsule) {
  delete static_cast<MetadataRecord *>(PyCapsule_GetPointer(capsule, kCapsuleName));
}

// The `_version` of a class where it is a plain int, or empty.
py::object int_version(PyTypeObject *type) {
  py::object version = type_lookup(type, names.version_);
  return version && PyLong_CheckExact(version.ptr()) ? version : py::object();
}

}  // namespace

MetadataRecord::~MetadataRecord() {
  for (const Entry &entry : entries_) {
    Py_XDECREF(entry.name);
    Py_DECREF(entry.version);
  }
  Py_DECREF(root_prefix_);
}

std::uint32_t MetadataRecord::add(std::uint32_t parent, PyObject *name, PyObject *version) {
  entries_.push_back(Entry{parent, Py_XNewRef(name), Py_NewRef(version)});
  return static_cast<std::uint32_t>(entries_.size() - 1);
}

PyObject *MetadataRecord::make(std::vector<PyObject *> *inner) const {
  auto result = py::reinterpret_steal<py::object>(new_ordered_dict());
  if (!result) {
    return nullptr;
  }
  // A parent precedes its children, so its prefix is known.
  std::vector<py::object> prefixes(entries_.size());
  SignalCheck signals;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (signals.step() < 0) {
      return nullptr;
    }
    const Entry &entry = entries_[i];
    prefixes[i] = py::reinterpret_steal<py::object>(
        entry.name ? make_name(NameForm::prefix, prefixes[entry.parent].ptr(), entry.name)
                   : Py_NewRef(root_prefix_));
    if (!prefixes[i]) {
      return nullptr;
    }
    const auto key = py::reinterpret_steal<py::object>(metadata_key(prefixes[i].ptr()));
    const auto local = py::reinterpret_steal<py::object>(new_local_metadata(entry.version));
    if (!key || !local || PyObject_SetItem(result.ptr(), key.ptr(), local.ptr()) < 0) {
      return nullptr;
    }
    if (inner) {
      // The owner of a name that two modules share keeps only the later dict: the caller takes its
      // own reference.
      inner->push_back(Py_NewRef(local.ptr()));
    }
  }
  return result.release().ptr();
}

PyObject *new_record_capsule(MetadataRecord *record) {
  PyObject *capsule = PyCapsule_New(record, kCapsuleName, delete_record);
  if (!capsule) {
    delete record;
  }
  return capsule;
}

py::object make_state_metadata(py::handle capsule) {
  const auto *record =
      static_cast<MetadataRecord *>(PyCapsule_GetPointer(capsule.ptr(), kCapsuleName));
  py::object result = py::reinterpret_steal<py::object>(record ? record->make() : nullptr);
  if (!result) {
    throw py::error_already_set();
  }
  return result;
}

PyObject *new_local_metadata(PyObject *version) {
  PyObject *local = PyDict_New();
  if (local && PyDict_SetItem(local, names.version, version) < 0) {
    Py_CLEAR(local);
  }
  return local;
}

PyObject *ClassVersions::look_up(PyTypeObject *type) {
  const TypeVersion tag = type_version(type);
  py::object version = int_version(type);
  if (version) {
    known_.store(type, tag, version.ptr());
  }
  return version.release().ptr();
}

PyObject *module_version(PyObject *module, bool *plain) {
  *plain = false;
  const ClassInfo info = class_info_of(module);
  if (info.is_module() && !info.overrides(Virtual::getattribute) &&
      !instance_overrides(as_module(module), Virtual::version)) {
    if (py::object found = int_version(Py_TYPE(module))) {
      *plain = true;
      return found.release().ptr();
    }
  }
  return PyErr_Occurred() ? nullptr : PyObject_GetAttr(module, names.version_);
}

}  // namespace modtree
