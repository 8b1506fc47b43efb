// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/autograd/saved_values.h"

#include "python/installed.h"
#include "tensor/autograd/history.h"

namespace modtree {

int saved_hooks_depth = 0;

namespace {

// `saved` by value, with the version that its cell has now: user code that runs here may make the
// node drop what it saved.
int raise_modified(NodeObject *node, SavedVersion saved, std::uint32_t found) {
  const auto value = py::reinterpret_borrow<py::object>(
      saved.arg == kResult ? node->result : node->args[saved.arg]);
  py::object name = py::reinterpret_steal<py::object>(node_name(node));
  if (!name) {
    return -1;
  }
  PyObject *shape = Py_None;
  py::object held;
  if (value && PyArray_Check(value.ptr())) {
    held = py::reinterpret_steal<py::object>(PyObject_GetAttrString(value.ptr(), "shape"));
    shape = held ? held.ptr() : Py_None;
  }
  PyErr_Format(PyExc_RuntimeError,
               "one of the variables needed for gradient computation has been modified by an "
               "inplace operation: the "
               "%s of %U, of shape %S, is at version %u; expected version %u instead. Change a "
               "clone instead, or change "
               "it after backward()",
               saved.arg == kResult ? "result" : "input", name.ptr(), shape, found, saved.version);
  return -1;
}

// A tensor over a saved array with the history it had.
PyObject *revive(PyObject *array, NodeObject *source, std::uint32_t nr) {
  if (source != nullptr && source->kind == NodeKind::accumulate && source->target != nullptr &&
      as_object(as_tensor(source->target)->array) == array) {
    return Py_NewRef(source->target);
  }
  PyObject *tensor = wrap_array(as_array(Py_NewRef(array)));
  if (tensor != nullptr && source != nullptr) {
    set_history(as_tensor(tensor), source, nr);
  }
  return tensor;
}

const Edge *edge_of(NodeObject *node, std::size_t arg, std::size_t item) {
  for (std::size_t i = 0; i < node->n_edges; ++i) {
    if (node->edges[i].arg == arg && node->edges[i].item == item) {
      return &node->edges[i];
    }
  }
  return nullptr;
}

}  // namespace

int pack_saved(PyObject **value, PyObject *original) {
  if (saved_hooks_depth == 0) {
    return 0;
  }
  const auto plain = py::reinterpret_borrow<py::object>(*value);
  py::object packed = call_installed(installed.pack_saved, plain, original);
  if (!packed) {
    return -1;
  }
  if (packed.is_none()) {  // the hooks are of another thread
    return 0;
  }
  PyObject *old = *value;
  *value = packed.release().ptr();
  Py_DECREF(old);
  return 1;
}

PyObject *saved_argument(NodeObject *node, std::size_t arg) {
  // Owned: a hook may make the node drop it.
  auto held = py::reinterpret_borrow<py::object>(node->args[arg]);
  if ((node->packed >> arg & 1u) != 0) {
    held = call_installed(installed.unpack_saved, held);
  }
  return held.release().ptr();
}

int check_saved(NodeObject *node) {
  if (node->released && node->saved_something) {
    PyErr_SetString(PyExc_RuntimeError, "Trying to backward through the graph a second time (or "
                                        "directly access saved tensors after they have "
                                        "already been freed). Saved intermediate values of the "
                                        "graph are freed when you call .backward() or "
                                        "autograd.grad(). Specify retain_graph=True if you need to "
                                        "backward through the graph a second time");
    return -1;
  }
  for (std::size_t i = 0; i < node->n_versions; ++i) {
    if (node->versions[i].cell->version != node->versions[i].version) {
      return raise_modified(node, node->versions[i], node->versions[i].cell->version);
    }
  }
  return 0;
}

PyObject *argument_on_tensors(NodeObject *node, std::size_t arg) {
  // Owned: a backward that user code runs here may make the node drop it.
  const auto held = py::reinterpret_steal<py::object>(saved_argument(node, arg));
  PyObject *value = held.ptr();
  if (value == nullptr) {
    return nullptr;
  }
  if (node->stand_ins >> arg & 1u) {
    return Py_NewRef(value);
  }
  const Edge *edge = edge_of(node, arg, 0);
  if (PyArray_Check(value)) {
    return revive(value, edge == nullptr ? nullptr : edge->node, edge == nullptr ? 0 : edge->nr);
  }
  if (edge == nullptr || !(PyList_CheckExact(value) || PyTuple_CheckExact(value))) {
    return Py_NewRef(value);
  }
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
  PyObject *list = PyList_New(count);
  for (Py_ssize_t k = 0; list != nullptr && k < count; ++k) {
    PyObject *item = PySequence_Fast_GET_ITEM(value, k);
    edge = edge_of(node, arg, static_cast<std::size_t>(k));
    PyObject *tensor = !PyArray_Check(item) ? Py_NewRef(item)
                                            : revive(item, edge == nullptr ? nullptr : edge->node,
                                                     edge == nullptr ? 0 : edge->nr);
    if (tensor == nullptr) {
      Py_CLEAR(list);
      break;
    }
    PyList_SET_ITEM(list, k, tensor);
  }
  return list;
}

PyObject *saved_result(NodeObject *node, NodeObject *source, bool on_tensors) {
  auto held = py::reinterpret_borrow<py::object>(node->result == nullptr ? Py_None : node->result);
  if (node->packed_result && node->result != nullptr) {
    held = call_installed(installed.unpack_saved, held);
    if (!held) {
      return nullptr;
    }
  }
  PyObject *result = held.ptr();
  if (!on_tensors || node->op->record != nullptr) {
    return Py_NewRef(result);
  }
  if (PyArray_Check(result)) {
    return revive(result, source, 0);
  }
  if (!node->has_many || !PyTuple_Check(result)) {
    return Py_NewRef(result);
  }
  PyObject *tensors = PyTuple_New(PyTuple_GET_SIZE(result));
  for (Py_ssize_t i = 0; tensors != nullptr && i < PyTuple_GET_SIZE(result); ++i) {
    PyObject *item = PyTuple_GET_ITEM(result, i);
    PyObject *tensor =
        PyArray_Check(item) && is_float_category(dtype_or_none(as_array(item))->category)
            ? revive(item, source, static_cast<std::uint32_t>(i))
            : Py_NewRef(item);
    if (tensor == nullptr) {
      Py_CLEAR(tensors);
      break;
    }
    PyTuple_SET_ITEM(tensors, i, tensor);
  }
  return tensors;
}

}  // namespace modtree
