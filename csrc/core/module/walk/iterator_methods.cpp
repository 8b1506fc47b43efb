// SPDX-License-Identifier: BSD-3-Clause
#include "module/methods.h"

#include "module/torch_facts.h"
#include "module/walk/iterator.h"
#include "module/walk/iterator_steps.h"
#include "python/arguments.h"

namespace modtree {

namespace {

Request request_for(PyObject *self_obj, WalkKind kind, bool named) {
  Request request;
  request.kind = kind;
  request.named = named;
  request.root = py::reinterpret_borrow<py::object>(self_obj);
  request.prefix = py::reinterpret_borrow<py::object>(names.empty);
  return request;
}

PyObject *unnamed_members(WalkKind kind, const char *function, PyObject *self_obj,
                          PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
  const ArgumentNames arguments = {function, {"recurse"}};
  PyObject *values[1] = {};
  if (parse_arguments(arguments, args, count, keywords, values) < 0) {
    return nullptr;
  }
  const int recurse = truth_or(values[0], 1);
  if (recurse < 0) {
    return nullptr;
  }
  Request request = request_for(self_obj, kind, false);
  request.recurse = recurse == 1;
  return new_walk(std::move(request));
}

// Reads prefix, recurse, remove_duplicate from three argument values.
int read_common(PyObject *const *values, Request *request) {
  int recurse = 1, remove_duplicate = 1;
  if (truths_or(values[1], &recurse, values[2], &remove_duplicate) < 0) {
    return -1;
  }
  if (values[0]) {
    request->prefix = py::reinterpret_borrow<py::object>(values[0]);
  }
  request->recurse = recurse == 1;
  request->remove_duplicate = remove_duplicate == 1;
  return 0;
}

PyObject *named_registry(WalkKind kind, const char *function, PyObject *self_obj,
                         PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
  const ArgumentNames arguments = {function, {"prefix", "recurse", "remove_duplicate"}};
  PyObject *values[3] = {};
  Request request = request_for(self_obj, kind, true);
  if (parse_arguments(arguments, args, count, keywords, values) < 0 ||
      read_common(values, &request) < 0) {
    return nullptr;
  }
  return new_walk(std::move(request));
}

}  // namespace

PyObject *module_parameters(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords) {
  return unnamed_members(WalkKind::parameters, "parameters", self_obj, args, count, keywords);
}

PyObject *module_buffers(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                         PyObject *keywords) {
  return unnamed_members(WalkKind::buffers, "buffers", self_obj, args, count, keywords);
}

PyObject *module_named_parameters(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords) {
  return named_registry(WalkKind::parameters, "named_parameters", self_obj, args, count, keywords);
}

PyObject *module_named_buffers(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords) {
  return named_registry(WalkKind::buffers, "named_buffers", self_obj, args, count, keywords);
}

PyObject *module_children(PyObject *self_obj, PyObject *) {
  return new_walk(request_for(self_obj, WalkKind::children, false));
}

PyObject *module_named_children(PyObject *self_obj, PyObject *) {
  return new_walk(request_for(self_obj, WalkKind::children, true));
}

PyObject *module_modules(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                         PyObject *keywords) {
  const ArgumentNames arguments = torch_facts.modules_may_repeat
                                      ? ArgumentNames{"modules", {"remove_duplicate"}}
                                      : ArgumentNames{"modules", {}};
  PyObject *values[1] = {};
  if (parse_arguments(arguments, args, count, keywords, values) < 0) {
    return nullptr;
  }
  const int remove_duplicate = truth_or(values[0], 1);
  if (remove_duplicate < 0) {
    return nullptr;
  }
  Request request = request_for(self_obj, WalkKind::modules, false);
  request.remove_duplicate = remove_duplicate == 1;
  return new_walk(std::move(request));
}

PyObject *module_named_modules(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords) {
  const ArgumentNames arguments = {"named_modules", {"memo", "prefix", "remove_duplicate"}};
  PyObject *values[3] = {};
  if (parse_arguments(arguments, args, count, keywords, values) < 0) {
    return nullptr;
  }
  const int remove_duplicate = truth_or(values[2], 1);
  if (remove_duplicate < 0) {
    return nullptr;
  }
  Request request = request_for(self_obj, WalkKind::modules, true);
  if (values[0] && values[0] != Py_None) {
    request.memo = py::reinterpret_borrow<py::object>(values[0]);
  }
  if (values[1]) {
    request.prefix = py::reinterpret_borrow<py::object>(values[1]);
  }
  request.remove_duplicate = remove_duplicate == 1;
  return new_walk(std::move(request));
}

PyObject *module_named_members(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords) {
  const ArgumentNames arguments = {
      "_named_members", {"get_members_fn", "prefix", "recurse", "remove_duplicate"}, 1};
  PyObject *values[4] = {};
  Request request = request_for(self_obj, WalkKind::members, true);
  if (parse_arguments(arguments, args, count, keywords, values) < 0 ||
      read_common(values + 1, &request) < 0) {
    return nullptr;
  }
  request.get_members_fn = py::reinterpret_borrow<py::object>(values[0]);
  return new_walk(std::move(request));
}

}  // namespace modtree
