// SPDX-License-Identifier: BSD-3-Clause
// `_metadata` of a state dict: a compact record while no Python code is involved, a real
// OrderedDict when somebody asks.
#pragma once

#include <cstdint>
#include <vector>

#include "module/object.h"
#include "python/type_cache.h"

namespace modtree {

// Which modules a walk visited, in order: parent, name and version of each. Holds exact strs and
// ints only: the collector does not look into a capsule.
class MetadataRecord {
public:
  explicit MetadataRecord(PyObject *root_prefix) : root_prefix_(Py_NewRef(root_prefix)) {}
  MetadataRecord(const MetadataRecord &) = delete;
  MetadataRecord &operator=(const MetadataRecord &) = delete;
  ~MetadataRecord();

  // Borrows; the root comes first, with any parent and a null name. Returns the number of the
  // module.
  std::uint32_t add(std::uint32_t parent, PyObject *name, PyObject *version);

  // A new OrderedDict; null on error. `inner`, if given, receives the dict of every module in order
  // (new references).
  PyObject *make(std::vector<PyObject *> *inner = nullptr) const;

private:
  struct Entry {
    std::uint32_t parent;
    PyObject *name;
    PyObject *version;
  };
  PyObject *root_prefix_;
  std::vector<Entry> entries_;
};

// The `_version` of the classes that one walk meets, where it is a plain int.
class ClassVersions {
public:
  // New reference; null without an error for any other value. May run user code the first time.
  PyObject *find(PyTypeObject *type) {
    PyObject *version;  // borrowed from the class, which has it as long as its tag is the same
    return known_.find(type, &version) ? Py_NewRef(version) : look_up(type);
  }

private:
  PyObject *look_up(PyTypeObject *type);

  TypeCache<PyObject *, 4> known_;
};

// A capsule that owns the record; null on error (the record is deleted).
PyObject *new_record_capsule(MetadataRecord *record);

// The OrderedDict of a record in its capsule; throws on error.
py::object make_state_metadata(py::handle capsule);

// {'version': version}: new reference, null on error.
PyObject *new_local_metadata(PyObject *version);

// `module._version`: new reference, null on error. *plain: it is an int found without running
// Python code.
PyObject *module_version(PyObject *module, bool *plain);

}  // namespace modtree
