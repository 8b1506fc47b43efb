// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/autograd/record.h"

#include <algorithm>
#include <array>

#include "python/once.h"
#include "tensor/autograd/anomaly.h"
#include "tensor/autograd/history.h"
#include "tensor/autograd/saved_values.h"

namespace modtree {

namespace {

bool is_sequence(PyObject *obj) { return PyList_CheckExact(obj) || PyTuple_CheckExact(obj); }
PyObject **items_of(PyObject *sequence) { return PySequence_Fast_ITEMS(sequence); }

// True if the edge of an argument will lead somewhere. A view made under no_grad requires a
// gradient because its base does, but without an edge to it until that is changed (which ends in an
// error).
bool any_has_way(PyObject *arg) {
  if (is_tensor(arg)) {
    TensorObject *tensor = as_tensor(arg);
    return needs_grad(tensor) &&
           (tensor->requires_grad || tensor->view_origin != ViewOrigin::no_grad);
  }
  if (PyTuple_CheckExact(arg)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arg); ++i) {
      if (is_tensor(PyTuple_GET_ITEM(arg, i)) && any_has_way(PyTuple_GET_ITEM(arg, i))) {
        return true;
      }
    }
  }
  return false;
}

// How many tensors an argument is: each may be saved with its version. Lists with tensors have
// become tuples when the arguments were loaded: user code may change a list between this and the
// time when its tensors are noted.
std::size_t count_tensors(PyObject *arg) {
  if (is_tensor(arg)) {
    return 1;
  }
  std::size_t count = 0;
  if (PyTuple_CheckExact(arg)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arg); ++i) {
      count += is_tensor(PyTuple_GET_ITEM(arg, i));
    }
  }
  return count;
}

// How many edges an argument takes: a tensor one, a tuple with a tensor that needs a gradient one
// per tensor.
std::size_t count_edges(PyObject *arg) {
  return is_tensor(arg) || any_needs_grad(&arg, 1) ? count_tensors(arg) : 0;
}

bool is_array_sequence(PyObject *value) {
  return is_sequence(value) && Py_SIZE(value) > 0 && PyArray_Check(items_of(value)[0]);
}

PyObject *stand_in(PyObject *value) {
  if (PyArray_Check(value)) {
    PyArrayObject *array = as_array(value);
    return as_object(meta_array(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_DESCR(array)));
  }
  const auto items = py::reinterpret_steal<py::object>(
      PyList_CheckExact(value) ? tuple_of_list(value) : Py_NewRef(value));
  if (!items) {
    return nullptr;
  }
  const Py_ssize_t count = PyTuple_GET_SIZE(items.ptr());
  PyObject *list = PyList_New(count);
  for (Py_ssize_t i = 0; list != nullptr && i < count; ++i) {
    PyObject *item = PyTuple_GET_ITEM(items.ptr(), i);
    PyObject *copy = PyArray_Check(item) ? stand_in(item) : Py_NewRef(item);
    if (copy == nullptr) {
      Py_CLEAR(list);
      break;
    }
    PyList_SET_ITEM(list, i, copy);
  }
  return list;
}

// Notes the version at which the array of a tensor was saved; a converted copy cannot change.
int save_version(NodeObject *node, PyObject *original, PyObject *value, std::size_t arg) {
  if (!is_tensor(original) || as_object(as_tensor(original)->array) != value) {
    return 0;
  }
  VersionCell *cell = ensure_cell(as_tensor(original));
  if (cell == nullptr) {
    return -1;
  }
  ++cell->refs;
  node->versions[node->n_versions++] = {cell, cell->version, static_cast<std::uint32_t>(arg)};
  return 0;
}

int save_argument(NodeObject *node, std::size_t i, PyObject *original, PyObject *value,
                  const OpObject::Keep &keep, bool is_keyword) {
  const bool is_single = PyArray_Check(value);
  const std::uint32_t bit = 1u << i;
  const auto place = static_cast<int>(i) - node->op->first;
  // The third operand (the weight of lerp), which stays a number in torch.
  if (place >= 2 && !is_tensor(original) && !PyArray_Check(original) && PyNumber_Check(original)) {
    node->args[i] = Py_NewRef(value);
    return 0;
  }
  if (!is_single && !is_array_sequence(value)) {
    node->args[i] = Py_NewRef(value);
    // A number where an array might have been: torch saves it, and a second backward is refused
    // whatever the operand was.
    const bool is_operand = place >= 0 && place < node->op->operands;
    node->saved_something |=
        !is_keyword && is_operand && (keep.arrays & bit) != 0 && PyNumber_Check(value);
    return 0;
  }
  if (is_keyword || (keep.arrays & bit) != 0) {
    node->args[i] = Py_NewRef(value);
    node->saved_something = true;
    const int is_packed = pack_saved(&node->args[i], original);
    if (is_packed != 0) {  // what the hooks keep has no versions
      node->packed |= bit;
      return is_packed < 0 ? -1 : 0;
    }
    if (is_single) {
      return save_version(node, original, value, i);
    }
    for (Py_ssize_t k = 0; PyTuple_CheckExact(original) && k < PyTuple_GET_SIZE(original); ++k) {
      if (k < Py_SIZE(value) &&
          save_version(node, PyTuple_GET_ITEM(original, k), items_of(value)[k], i) < 0) {
        return -1;
      }
    }
    return 0;
  }
  if ((keep.shapes & bit) != 0) {
    node->args[i] = stand_in(value);
    node->stand_ins |= bit;
    return node->args[i] == nullptr ? -1 : 0;
  }
  return 0;
}

int save_result(NodeObject *node, PyObject *wrapped) {
  node->saved_something = true;
  if (is_tensor(wrapped)) {
    PyObject *array = as_object(as_tensor(wrapped)->array);
    node->result = Py_NewRef(array);
    const int is_packed = pack_saved(&node->result, wrapped);
    node->packed_result = is_packed != 0;
    return is_packed != 0 ? std::min(is_packed, 0) : save_version(node, wrapped, array, kResult);
  }
  if (!PyTuple_Check(wrapped)) {
    return 0;
  }
  PyObject *arrays = PyTuple_New(PyTuple_GET_SIZE(wrapped));
  if (arrays == nullptr) {
    return -1;
  }
  node->result = arrays;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(wrapped); ++i) {
    PyObject *item = PyTuple_GET_ITEM(wrapped, i);
    PyObject *value = is_tensor(item) ? as_object(as_tensor(item)->array) : item;
    PyTuple_SET_ITEM(arrays, i, Py_NewRef(value));
  }
  const int is_packed = pack_saved(&node->result, wrapped);
  node->packed_result = is_packed != 0;
  for (Py_ssize_t i = 0; is_packed == 0 && i < PyTuple_GET_SIZE(wrapped); ++i) {
    if (save_version(node, PyTuple_GET_ITEM(wrapped, i), PyTuple_GET_ITEM(arrays, i), kResult) <
        0) {
      return -1;
    }
  }
  return std::min(is_packed, 0);
}

bool is_differentiable(PyObject *wrapped) {
  return is_tensor(wrapped) &&
         is_float_category(dtype_or_none(as_tensor(wrapped)->array)->category);
}

bool holds(PyObject *tuple, PyObject *item) {
  for (Py_ssize_t i = 0; tuple != nullptr && i < PyTuple_GET_SIZE(tuple); ++i) {
    if (PyTuple_GET_ITEM(tuple, i) == item) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool any_needs_grad(PyObject *const *args, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *arg = args[i];
    if (is_tensor(arg)) {
      if (needs_grad(as_tensor(arg))) {
        return true;
      }
    } else if (is_sequence(arg)) {
      for (Py_ssize_t k = 0; k < Py_SIZE(arg); ++k) {
        PyObject *item = items_of(arg)[k];
        if (is_tensor(item) && needs_grad(as_tensor(item))) {
          return true;
        }
      }
    }
  }
  return false;
}

bool has_differentiable_result(PyObject *wrapped) {
  if (!PyTuple_Check(wrapped)) {
    return is_differentiable(wrapped);
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(wrapped); ++i) {
    if (is_differentiable(PyTuple_GET_ITEM(wrapped, i))) {
      return true;
    }
  }
  return false;
}

int require_derivative(OpObject *op) {
  if (op->derivative != OpObject::Derivative::unknown) {
    return 0;
  }
  PyErr_Format(PyExc_RuntimeError,
               "the operation '%U' has no derivative, and an argument requires grad: call it on "
               "tensor.detach(), or under "
               "modtree.no_grad()",
               op->name);
  return -1;
}

namespace {

// The operand that is a number and has a place among the edges, behind those of the tensors;
// kMaxArgs where there is none.
std::size_t number_with_edge(OpObject *op, PyObject *const *originals, Py_ssize_t n_positional) {
  DTypeCategory category;
  for (Py_ssize_t i = 2 - op->number_edges; op->number_edges != 0 && i < n_positional && i < 2;
       ++i) {
    if (number_category(originals[i], &category)) {
      return static_cast<std::size_t>(i);
    }
  }
  return kMaxArgs;
}

NodeObject *make_op_node(OpObject *op, PyObject *const *originals, PyObject *const *values,
                         Py_ssize_t n_positional, Py_ssize_t n_total, PyObject *kwnames,
                         std::size_t n_outputs) {
  // Counted once: making the node may run code that makes further tensors need a gradient.
  std::array<std::size_t, kMaxArgs> counts;
  std::size_t n_edges = 0;
  std::size_t n_versions = 0;
  OpObject::Keep keep{};
  for (Py_ssize_t i = 0; i < n_positional; ++i) {
    const std::size_t count = counts[static_cast<std::size_t>(i)] = count_edges(originals[i]);
    n_edges += count;
    n_versions += count_tensors(originals[i]);
    if (count != 0 && i < op->n_functions && any_needs_grad(originals + i, 1)) {
      OpObject::Keep needed = op->keep[i];
      if (op->n_functions > 1 && !any_has_way(originals[i])) {
        needed.arrays = needed.shapes = 0;  // torch, too, keeps the result nevertheless
      }
      keep.merge(needed);
    }
  }
  if (op->joint != nullptr) {
    keep = op->keep[0];
  }
  for (Py_ssize_t i = n_positional; i < n_total; ++i) {
    n_versions += count_tensors(originals[i]);
  }
  if (n_total > n_positional && any_needs_grad(originals + n_positional, n_total - n_positional)) {
    PyErr_Format(PyExc_RuntimeError,
                 "%U: a tensor that requires grad was passed by keyword; pass it by position",
                 op->name);
    return nullptr;
  }
  const std::size_t number = number_with_edge(op, originals, n_positional);
  n_edges += number < kMaxArgs;
  NodeObject *node = new_node(NodeKind::op, n_edges, n_outputs, static_cast<std::size_t>(n_total),
                              n_versions + n_outputs);
  if (node == nullptr) {
    return nullptr;
  }
  Py_INCREF(reinterpret_cast<PyObject *>(op));
  node->op = op;
  node->kwnames = Py_XNewRef(kwnames);
  node->n_positional = static_cast<std::uint32_t>(n_positional);
  node->keeps_result = keep.result;
  std::size_t place = 0;
  int status = 0;
  for (Py_ssize_t i = 0; status == 0 && i < n_total; ++i) {
    const auto arg = static_cast<std::size_t>(i);
    PyObject *original = originals[i];
    status = save_argument(node, arg, original, values[i], keep, i >= n_positional);
    if (status < 0 || i >= n_positional) {
      continue;
    }
    if (is_tensor(original)) {
      status = set_edge(node, place++, as_tensor(original), arg);
    } else if (counts[arg] != 0) {
      for (Py_ssize_t k = 0; status == 0 && k < PyTuple_GET_SIZE(original); ++k) {
        PyObject *item = PyTuple_GET_ITEM(original, k);
        if (is_tensor(item)) {
          status = set_edge(node, place++, as_tensor(item), arg, static_cast<std::size_t>(k));
        }
      }
    }
  }
  if (number < kMaxArgs) {
    node->edges[place].arg = static_cast<std::uint32_t>(number);
  }
  if (status < 0 || (anomaly_mode.enabled && note_forward(node) < 0)) {
    Py_DECREF(as_object(node));
    return nullptr;
  }
  return node;
}

int attach_results(NodeObject *node, PyObject *wrapped, PyObject *saved) {
  if (saved != nullptr) {
    node->result = Py_NewRef(saved);
    node->saved_something = true;
    const int is_packed = pack_saved(&node->result, saved);
    node->packed_result = is_packed != 0;
    if (is_packed < 0) {
      return -1;
    }
  } else if (node->keeps_result && save_result(node, wrapped) < 0) {
    return -1;
  }
  const bool is_tuple = PyTuple_Check(wrapped);
  node->has_many = is_tuple;
  const std::size_t count = is_tuple ? static_cast<std::size_t>(PyTuple_GET_SIZE(wrapped)) : 1;
  for (std::size_t i = 0; i < count; ++i) {
    PyObject *item = is_tuple ? PyTuple_GET_ITEM(wrapped, static_cast<Py_ssize_t>(i)) : wrapped;
    if (!is_tensor(item)) {
      continue;
    }
    TensorObject *tensor = as_tensor(item);
    if (set_output(node, i, tensor->array, tensor->is_meta) < 0) {
      return -1;
    }
    if (is_differentiable(item)) {
      set_history(tensor, node, static_cast<std::uint32_t>(i));
    }
  }
  return 0;
}

}  // namespace

int record_call(OpObject *op, PyObject *const *originals, PyObject *const *values,
                Py_ssize_t n_positional, Py_ssize_t n_total, PyObject *kwnames, PyObject *wrapped,
                PyObject *saved) {
  if (op->derivative == OpObject::Derivative::none || !has_differentiable_result(wrapped)) {
    return 0;
  }
  if (require_derivative(op) < 0) {
    return -1;
  }
  std::size_t count =
      PyTuple_Check(wrapped) ? static_cast<std::size_t>(PyTuple_GET_SIZE(wrapped)) : 1;
  NodeObject *node = make_op_node(op, originals, values, n_positional, n_total, kwnames, count);
  int status = node == nullptr ? -1 : attach_results(node, wrapped, saved);
  Py_XDECREF(reinterpret_cast<PyObject *>(node));
  return status;
}

int InplaceRecord::begin(OpObject *op, TensorObject *self, PyObject *const *originals,
                         PyObject *const *values, Py_ssize_t n_positional, Py_ssize_t n_total,
                         PyObject *kwnames) {
  if (!grad_enabled() || !is_float_category(dtype_or_none(self->array)->category) ||
      !any_needs_grad(originals, n_total)) {
    return 0;
  }
  if (require_derivative(op) < 0) {
    return -1;
  }
  node_ = make_op_node(op, originals, values, n_positional, n_total, kwnames, 1);
  return node_ == nullptr ? -1 : 0;
}

int InplaceRecord::finish(TensorObject *self) { return bump_version(self) < 0 ? -1 : attach(self); }

int InplaceRecord::attach(TensorObject *self) {
  if (node_ == nullptr) {
    return 0;
  }
  if (node_->keeps_result && save_result(node_, reinterpret_cast<PyObject *>(self)) < 0) {
    return -1;
  }
  return set_output(node_, 0, self->array, self->is_meta) < 0 ? -1 : rebase_history(self, node_);
}

NodeObject *record_python(PyObject *name, PyObject *inputs, PyObject *outputs, PyObject *function,
                          PyObject *changed) {
  const auto n_inputs = static_cast<std::size_t>(PyTuple_GET_SIZE(inputs));
  const auto n_outputs = static_cast<std::size_t>(PyTuple_GET_SIZE(outputs));
  NodeObject *node = new_node(NodeKind::python, n_inputs, n_outputs);
  if (node == nullptr) {
    return nullptr;
  }
  py::object held = py::reinterpret_steal<py::object>(as_object(node));
  node->name = PyUnicode_FromObject(name);  // exact: a class with this name is kept for good
  if (node->name == nullptr) {
    return nullptr;
  }
  node->target = Py_NewRef(function);
  if (anomaly_mode.enabled && note_forward(node) < 0) {
    return nullptr;
  }
  for (std::size_t i = 0; i < n_inputs; ++i) {
    PyObject *input = PyTuple_GET_ITEM(inputs, static_cast<Py_ssize_t>(i));
    node->edges[i].arg = static_cast<std::uint32_t>(i);
    if (is_tensor(input) && set_edge(node, i, as_tensor(input), i) < 0) {
      return nullptr;
    }
  }
  for (std::size_t i = 0; i < n_outputs; ++i) {
    PyObject *output = PyTuple_GET_ITEM(outputs, static_cast<Py_ssize_t>(i));
    if (!is_tensor(output)) {
      continue;
    }
    TensorObject *tensor = as_tensor(output);
    if (set_output(node, i, tensor->array, tensor->is_meta) < 0) {
      return nullptr;
    }
    if (!is_float_category(dtype_or_none(tensor->array)->category)) {
      continue;
    }
    if (!holds(changed, output)) {
      set_history(tensor, node, static_cast<std::uint32_t>(i));
    } else if (tensor->base != nullptr && n_outputs > 1) {
      PyErr_Format(PyExc_RuntimeError,
                   "%U: a function that changes a view in place may have no other outputs: the "
                   "gradient of the view's base "
                   "goes through it",
                   name);
      return nullptr;
    }
    // What changes is argument 0 for the base's history.
    for (std::size_t k = 1; holds(changed, output) && k < n_inputs; ++k) {
      if (PyTuple_GET_ITEM(inputs, static_cast<Py_ssize_t>(k)) == output) {
        std::swap(node->edges[0].arg, node->edges[k].arg);
      }
    }
    if (holds(changed, output) && rebase_history(tensor, node, static_cast<std::uint32_t>(i)) < 0) {
      return nullptr;
    }
  }
  return as_node(held.release().ptr());
}

}  // namespace modtree
