// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/load_findings.h"

#include <utility>

#include "module/class_info.h"
#include "python/call.h"
#include "python/installed.h"
#include "python/owned.h"

namespace modtree {

namespace {

// What an explanation said. Empty where that cannot be told; null when something worse than an
// Exception was raised.
Owned text_or_empty(Owned text) {
  if (text && PyUnicode_Check(text.ptr())) {
    return text;
  }
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
    return Owned();
  }
  PyErr_Clear();
  return steal(PyUnicode_FromString(""));
}

// `head` and the quoted keys: new reference, null on error.
PyObject *key_message(const char *head, PyObject *keys) {
  const Owned quoted = steal(PyList_New(0)), comma = steal(PyUnicode_FromString(", "));
  if (!quoted || !comma) {
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); ++i) {
    const Owned key = borrow(PyList_GET_ITEM(keys, i));
    const Owned shown = steal(PyObject_Format(key.ptr(), nullptr));
    const Owned text = steal(shown ? PyUnicode_FromFormat("\"%U\"", shown.ptr()) : nullptr);
    if (!text || PyList_Append(quoted.ptr(), text.ptr()) < 0) {
      return nullptr;
    }
  }
  const Owned joined = steal(PyUnicode_Join(comma.ptr(), quoted.ptr()));
  return joined ? PyUnicode_FromFormat("%s %U. ", head, joined.ptr()) : nullptr;
}

}  // namespace

int LoadFindings::start() {
  missing_ = steal(PyList_New(0));
  unexpected_ = steal(PyList_New(0));
  errors_ = steal(PyList_New(0));
  return missing_ && unexpected_ && errors_ ? 0 : -1;
}

PyObject *LoadFindings::incompatible_keys() const {
  PyObject *type = need_installed(installed.IncompatibleKeys);
  return type ? PyObject_CallFunctionObjArgs(type, missing(), unexpected(), nullptr) : nullptr;
}

PyObject *LoadFindings::result(PyObject *root) const {
  Owned keys = steal(incompatible_keys());
  PyObject *remember = keys ? need_installed(installed.remember_loaded) : nullptr;
  const Owned none =
      steal(remember ? PyObject_CallFunctionObjArgs(remember, keys.ptr(), root, nullptr) : nullptr);
  return none ? keys.release().ptr() : nullptr;
}

bool LoadFindings::fail(bool strict) const {
  return PyList_GET_SIZE(errors()) != 0 ||
         (strict && (PyList_GET_SIZE(missing()) != 0 || PyList_GET_SIZE(unexpected()) != 0));
}

int LoadFindings::raise(PyObject *root, PyObject *state_dict, bool strict) const {
  const Owned lines = steal(PySequence_List(errors()));
  if (!lines) {
    return -1;
  }
  if (strict) {
    for (const auto &[head, keys] :
         {std::pair<const char *, PyObject *>{"Unexpected key(s) in state_dict:", unexpected()},
          std::pair<const char *, PyObject *>{"Missing key(s) in state_dict:", missing()}}) {
      if (PyList_GET_SIZE(keys) == 0) {
        continue;
      }
      const Owned message = steal(key_message(head, keys));
      if (!message || PyList_Insert(lines.ptr(), 0, message.ptr()) < 0) {
        return -1;
      }
    }
  }
  const Owned explanation = explain(root, state_dict, strict);
  const Owned separator = explanation ? steal(PyUnicode_FromString("\n\t")) : Owned();
  const Owned joined = separator ? steal(PyUnicode_Join(separator.ptr(), lines.ptr())) : Owned();
  const Owned message =
      joined ? steal(PyUnicode_FromFormat("Error(s) in loading state_dict for %s:\n\t%U%U",
                                          type_short_name(Py_TYPE(root)), joined.ptr(),
                                          explanation.ptr()))
             : Owned();
  const Owned error = message ? call(PyExc_RuntimeError, message) : Owned();
  if (error && PyObject_SetAttrString(error.ptr(), "missing_keys", missing()) == 0 &&
      PyObject_SetAttrString(error.ptr(), "unexpected_keys", unexpected()) == 0 &&
      PyObject_SetAttrString(error.ptr(), "error_messages", errors()) == 0) {
    PyErr_SetObject(PyExc_RuntimeError, error.ptr());
  }
  return -1;
}

Owned LoadFindings::explain(PyObject *root, PyObject *state_dict, bool strict) const {
  const Owned none = steal(PyList_New(0));
  return text_or_empty(none ? call_installed(installed.explain_load, root, state_dict,
                                             strict ? missing_ : none, strict ? unexpected_ : none,
                                             errors_)
                            : Owned());
}

void refuse_given(PyObject *root, PyObject *given) {
  // Held: the explanation may run Python.
  const Owned type = borrow(reinterpret_cast<PyObject *>(Py_TYPE(given)));
  const Owned text = text_or_empty(call_installed(installed.explain_given, root, given));
  if (text) {
    PyErr_Format(PyExc_TypeError, "Expected state_dict to be dict-like, got %R.%U", type.ptr(),
                 text.ptr());
  }
}

}  // namespace modtree
