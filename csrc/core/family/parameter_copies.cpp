// SPDX-License-Identifier: BSD-3-Clause
#include "family/parameter_copies.h"

#include "python/interned.h"
#include "python/owned.h"

namespace modtree {

ParameterCopies::ParameterCopies(py::handle description) {
  if (description.is_none()) {
    return;
  }
  parameter_type_ = description.attr("parameter_type");
  make_ = description.attr("make");
  memory_format_ = description.attr("memory_format");
  plain_types_ = description.attr("plain_types");
  // A dict of our own, which nobody changes while it is walked.
  deciding_ = steal(PyDict_Copy(py::dict(description.attr("deciding")).ptr()));
  clone_names_ = steal(Py_BuildValue("(s)", "memory_format"));
  if (!deciding_ || !clone_names_) {
    throw py::error_already_set();
  }
}

bool ParameterCopies::compare() const {
  auto *type = reinterpret_cast<PyTypeObject *>(parameter_type_.ptr());
  Py_ssize_t position = 0;
  PyObject *name, *value;
  while (dict_next_item(deciding_.ptr(), &position, &name, &value)) {
    if (type_lookup(type, name).ptr() != value) {
      return false;
    }
  }
  return Py_TYPE(type)->tp_call == PyType_Type.tp_call;
}

bool ParameterCopies::is_as_described() {
  auto *type = reinterpret_cast<PyTypeObject *>(parameter_type_.ptr());
  TypeVersion version = type_version(type);
  if (version != 0 && version == known_version_) {
    return known_answer_;
  }
  // A lookup gives the class a version. It is read before the rest, as user code may run there.
  type_lookup(type, names.deepcopy);
  version = type_version(type);
  const bool answer = compare();
  known_version_ = version;
  known_answer_ = answer;
  return answer;
}

PyObject *ParameterCopies::copy(PyObject *parameter) {
  if (!parameter_type_ || !is_as_described()) {
    return nullptr;
  }
  // Read by their names, so that patches of these and modes see them as they see torch's.
  const auto data = steal(PyObject_GetAttr(parameter, names.data));
  PyObject *arguments[] = {nullptr, data.ptr(), memory_format_.ptr()};
  const auto clone =
      data
          ? steal(PyObject_VectorcallMethod(names.clone, arguments + 1,
                                            1 | PY_VECTORCALL_ARGUMENTS_OFFSET, clone_names_.ptr()))
          : Owned();
  const auto requires_grad =
      clone ? steal(PyObject_GetAttr(parameter, names.requires_grad)) : Owned();
  if (!requires_grad) {
    return nullptr;
  }
  // The constructor makes something else of other classes.
  const auto type =
      py::reinterpret_borrow<Owned>(reinterpret_cast<PyObject *>(Py_TYPE(clone.ptr())));
  const int is_plain = PySequence_Contains(plain_types_.ptr(), type.ptr());
  if (is_plain < 0) {
    return nullptr;
  }
  return is_plain ? PyObject_CallFunctionObjArgs(make_.ptr(), parameter_type_.ptr(), clone.ptr(),
                                                 requires_grad.ptr(), nullptr)
                  : PyObject_CallFunctionObjArgs(parameter_type_.ptr(), clone.ptr(),
                                                 requires_grad.ptr(), nullptr);
}

}  // namespace modtree
