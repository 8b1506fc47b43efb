// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/autograd/derivative.h"

#include "python/installed.h"
#include "python/native_section.h"
#include "tensor/autograd/gradient.h"
#include "tensor/autograd/record.h"
#include "tensor/autograd/saved_values.h"
#include "tensor/grad_mode.h"

namespace modtree {

namespace {

constexpr std::size_t kPlaces =
    4 + kMaxArgs;  // needs, g, result, arguments; one in front for the callee

// The arguments of a derivative function.
class Stack {
public:
  Stack() = default;
  Stack(const Stack &) = delete;
  Stack &operator=(const Stack &) = delete;
  ~Stack() {
    for (std::size_t i = 1; i < end_; ++i) {
      Py_DECREF(slots_[i]);
    }
  }
  void push(PyObject *owned) { slots_[end_++] = owned; }
  PyObject *call(PyObject *function, std::size_t first, std::size_t n_positional,
                 PyObject *kwnames) {
    const OutsideNativeSection outside;
    return PyObject_Vectorcall(function, slots_ + 1 + first,
                               n_positional | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
  }

private:
  PyObject *slots_[1 + kPlaces];
  std::size_t end_ = 1;
};

PyObject *output_gradient(NodeObject *node, Gradients &outputs) {
  if (!node->has_many) {
    return Py_NewRef(outputs[0]);
  }
  PyObject *tuple = PyTuple_New(static_cast<Py_ssize_t>(outputs.size()));
  for (std::size_t i = 0; tuple != nullptr && i < outputs.size(); ++i) {
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i),
                     Py_NewRef(outputs[i] == nullptr ? Py_None : outputs[i]));
  }
  return tuple;
}

// Gives the gradients that a function returned for one argument to its edges. Steals `value`.
int distribute(NodeObject *node, std::size_t arg, PyObject *value, const std::vector<bool> &wanted,
               Gradients &results, bool on_tensors) {
  py::object held = py::reinterpret_steal<py::object>(value);
  const bool is_sequence = PyList_Check(value) || PyTuple_Check(value);
  for (std::size_t i = 0; i < node->n_edges; ++i) {
    const Edge &edge = node->edges[i];
    if (edge.arg != arg || !wanted[i]) {
      continue;
    }
    PyObject *item = value;
    if (is_sequence) {
      if (edge.item >= PySequence_Fast_GET_SIZE(value)) {
        PyErr_Format(PyExc_RuntimeError,
                     "Function %U returned %zd gradients for a sequence of at least %d tensors",
                     node->op->backward_name, PySequence_Fast_GET_SIZE(value), edge.item + 1);
        return -1;
      }
      item = PySequence_Fast_GET_ITEM(value, edge.item);
    }
    if (item != Py_None) {
      HeldSpec wanted_spec = output_spec(edge.node, edge.nr);
      results[i] = fit_gradient(Py_NewRef(item), wanted_spec.spec, node, on_tensors);
      if (results[i] == nullptr) {
        return -1;
      }
    }
  }
  return 0;
}

bool wants_argument(NodeObject *node, std::size_t arg, const std::vector<bool> &wanted) {
  for (std::size_t i = 0; i < node->n_edges; ++i) {
    if (node->edges[i].arg == arg && wanted[i]) {
      return true;
    }
  }
  return false;
}

int apply_jointly(NodeObject *node, Stack &stack, PyObject *kwnames,
                  const std::vector<bool> &wanted, Gradients &results, bool on_tensors) {
  OpObject *op = node->op;
  py::object returned =
      py::reinterpret_steal<py::object>(stack.call(op->joint, 0, 3u + node->n_positional, kwnames));
  if (!returned) {
    return -1;
  }
  if (!PyTuple_Check(returned.ptr()) && !PyList_Check(returned.ptr())) {
    PyErr_Format(PyExc_TypeError, "Function %U must return a tuple of gradients, got %s",
                 op->backward_name, Py_TYPE(returned.ptr())->tp_name);
    return -1;
  }
  // The size each time: the list may be the function's own.
  for (std::size_t arg = 0; arg < node->n_positional &&
                            static_cast<Py_ssize_t>(arg) < PySequence_Fast_GET_SIZE(returned.ptr());
       ++arg) {
    PyObject *value = PySequence_Fast_GET_ITEM(returned.ptr(), static_cast<Py_ssize_t>(arg));
    if (value != Py_None &&
        distribute(node, arg, Py_NewRef(value), wanted, results, on_tensors) < 0) {
      return -1;
    }
  }
  return 0;
}

// `source` represents the node on the graph: itself, but for an operation in a CopySlices node.
int apply_op(NodeObject *node, NodeObject *source, Gradients &outputs,
             const std::vector<bool> &wanted, Gradients &results, bool on_tensors) {
  OpObject *op = node->op;
  Stack stack;
  const std::size_t n_args = node->n_args;
  // A function may run a backward of its own through this node, which then drops what it saved.
  const auto kwnames = py::reinterpret_borrow<py::object>(node->kwnames);
  if (op->joint != nullptr) {
    PyObject *needs = PyTuple_New(node->n_positional);
    if (needs == nullptr) {
      return -1;
    }
    for (std::size_t arg = 0; arg < node->n_positional; ++arg) {
      PyTuple_SET_ITEM(needs, static_cast<Py_ssize_t>(arg),
                       Py_NewRef(wants_argument(node, arg, wanted) ? Py_True : Py_False));
    }
    stack.push(needs);
  }
  PyObject *gradient = output_gradient(node, outputs);
  if (gradient == nullptr) {
    return -1;
  }
  stack.push(gradient);
  PyObject *result = saved_result(node, source, on_tensors);
  if (result == nullptr) {
    return -1;
  }
  stack.push(result);
  for (std::size_t i = 0; i < node->n_args; ++i) {
    PyObject *value = node->args[i] == nullptr ? Py_NewRef(Py_None)
                      : on_tensors             ? argument_on_tensors(node, i)
                                               : saved_argument(node, i);
    if (value == nullptr) {
      return -1;
    }
    stack.push(value);
  }
  if (node->n_args != n_args) {
    return check_saved(node);  // a backward that user code ran here has dropped them
  }
  if (op->joint != nullptr) {
    return apply_jointly(node, stack, kwnames.ptr(), wanted, results, on_tensors);
  }
  const int n_positional = static_cast<int>(node->n_positional);
  for (int arg = 0; arg < op->n_functions && arg < n_positional; ++arg) {
    PyObject *function = op->functions[arg];
    if (function == nullptr || !wants_argument(node, static_cast<std::size_t>(arg), wanted)) {
      continue;
    }
    PyObject *value = function == Py_True
                          ? Py_NewRef(gradient)
                          : stack.call(function, 0, 2u + node->n_positional, kwnames.ptr());
    if (value == nullptr) {
      return -1;
    }
    if (value == Py_None) {
      Py_DECREF(value);
    } else if (distribute(node, static_cast<std::size_t>(arg), value, wanted, results, on_tensors) <
               0) {
      return -1;
    }
  }
  return 0;
}

int apply_python(NodeObject *node, Gradients &outputs, Gradients &results, bool on_tensors) {
  py::object args =
      py::reinterpret_steal<py::object>(PyTuple_New(static_cast<Py_ssize_t>(outputs.size())));
  if (!args) {
    return -1;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    PyObject *tensor = gradient_to_tensor(outputs[i], node->outputs[i].is_meta);
    if (tensor == nullptr) {
      return -1;
    }
    PyTuple_SET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i), tensor);
  }
  // The function may run a backward of its own through this node, which then lets go of it.
  const auto target = py::reinterpret_borrow<py::object>(node->target);
  py::object returned =
      py::reinterpret_steal<py::object>(PyObject_Call(target.ptr(), args.ptr(), nullptr));
  if (!returned) {
    return -1;
  }
  PyObject *value = returned.ptr();
  py::object single;
  if (!PyTuple_Check(value)) {
    single = py::reinterpret_steal<py::object>(PyTuple_Pack(1, value));
    value = single.ptr();
  }
  if (value == nullptr || PyTuple_GET_SIZE(value) != node->n_edges) {
    PyErr_Format(PyExc_RuntimeError,
                 "function %U returned an incorrect number of gradients (expected %d, got %zd)",
                 node->name, node->n_edges, value == nullptr ? 0 : PyTuple_GET_SIZE(value));
    return -1;
  }
  for (std::size_t i = 0; i < node->n_edges; ++i) {
    PyObject *item = PyTuple_GET_ITEM(value, static_cast<Py_ssize_t>(i));
    if (item == Py_None || (node->edges[i].node == nullptr && !is_tensor(item))) {
      continue;
    }
    if (node->edges[i].node == nullptr) {
      // Goes nowhere, but the node's hooks see it.
      results[i] = gradient_from_tensor(item, on_tensors);
      continue;
    }
    if (!is_tensor(item)) {
      PyErr_Format(PyExc_TypeError, "function %U must return Tensors or None as gradients, got %s",
                   node->name, Py_TYPE(item)->tp_name);
      return -1;
    }
    HeldSpec wanted_spec = output_spec(node->edges[i].node, node->edges[i].nr);
    PyObject *gradient = gradient_from_tensor(item, on_tensors);
    results[i] =
        gradient == nullptr ? nullptr : fit_gradient(gradient, wanted_spec.spec, node, on_tensors);
    if (results[i] == nullptr) {
      return -1;
    }
  }
  return 0;
}

// Which edges of the operation inside a CopySlices node are wanted.
std::vector<bool> inner_wanted_of(NodeObject *inner, const std::vector<bool> &wanted) {
  std::vector<bool> result(inner->n_edges, false);
  std::size_t place = 1;
  for (std::size_t i = 0; i < inner->n_edges; ++i) {
    const bool is_wanted = inner->edges[i].arg == 0 ? wanted[0] : wanted[place++];
    result[i] = is_wanted && inner->edges[i].node != nullptr;
  }
  return result;
}

// Hands on what the operation inside a CopySlices node gave to its other arguments. Returns the
// gradient of the view itself, borrowed, or null.
PyObject *take_inner_results(NodeObject *inner, Gradients &inner_results, Gradients &results) {
  PyObject *own = nullptr;
  std::size_t place = 1;
  for (std::size_t i = 0; i < inner->n_edges; ++i) {
    if (inner->edges[i].arg == 0) {
      own = inner_results[i];
    } else {
      results[place++] = inner_results.take(i);
    }
  }
  return own;
}

// The view as it is after the operation inside a CopySlices node, on the graph.
py::object changed_view(NodeObject *node) {
  auto held = py::reinterpret_steal<py::object>(as_object(new_node(NodeKind::as_view, 1, 1)));
  if (!held) {
    return held;
  }
  NodeObject *view = as_node(held.ptr());
  view->edges[0].node = as_node(Py_NewRef(as_object(node)));
  view->geometry = new (std::nothrow) ViewGeometry(*node->geometry);
  if (view->geometry == nullptr) {
    PyErr_NoMemory();
    return py::object();
  }
  const auto like = py::reinterpret_steal<py::object>(
      as_object(meta_array(static_cast<int>(view->geometry->dims.size()),
                           view->geometry->dims.data(), dtype_of_num(view->geometry->num)->descr)));
  return like && set_output(view, 0, as_array(like.ptr()), false) == 0 ? held : py::object();
}

// The derivative of the operation inside a CopySlices node.
int apply_inner(NodeObject *node, NodeObject *inner, Gradients &outputs,
                const std::vector<bool> &wanted, Gradients &results) {
  if (inner->kind != NodeKind::op || !inner->keeps_result) {
    return apply_node(inner, outputs, wanted, results, true);
  }
  if (check_saved(inner) < 0) {
    return -1;
  }
  const py::object view = changed_view(node);
  return view ? apply_op(inner, as_node(view.ptr()), outputs, wanted, results, true) : -1;
}

// The same while backward is recorded: the parts are taken and put by operations on tensors.
int apply_copy_slices_on_tensors(NodeObject *node, Gradients &outputs,
                                 const std::vector<bool> &wanted, Gradients &results) {
  const auto held = py::reinterpret_borrow<py::object>(node->target);
  NodeObject *inner = as_node(held.ptr());
  const auto geometry = py::reinterpret_steal<py::object>(geometry_tuple(*node->geometry));
  if (!geometry) {
    return -1;
  }
  Gradients inner_outputs(1);
  inner_outputs[0] = call_installed(installed.base_part, outputs[0], geometry).release().ptr();
  Gradients inner_results(inner->n_edges);
  if (inner_outputs[0] == nullptr ||
      apply_inner(node, inner, inner_outputs, inner_wanted_of(inner, wanted), inner_results) < 0) {
    return -1;
  }
  PyObject *own = take_inner_results(inner, inner_results, results);
  if (wanted[0]) {
    results[0] = call_installed(installed.base_with_part, outputs[0], geometry,
                                own == nullptr ? Py_None : own)
                     .release()
                     .ptr();
  }
  return wanted[0] && results[0] == nullptr ? -1 : 0;
}

int apply_copy_slices(NodeObject *node, Gradients &outputs, const std::vector<bool> &wanted,
                      Gradients &results) {
  NodeObject *inner = as_node(node->target);
  PyObject *whole;
  py::object part =
      py::reinterpret_steal<py::object>(part_of_base(*node->geometry, outputs[0], &whole));
  if (!part) {
    return -1;
  }
  py::object base_gradient = py::reinterpret_steal<py::object>(whole);
  Gradients inner_outputs(1);
  inner_outputs[0] = PyArray_NewCopy(as_array(part.ptr()), NPY_KEEPORDER);
  if (inner_outputs[0] == nullptr) {
    return -1;
  }
  Gradients inner_results(inner->n_edges);
  if (apply_node(inner, inner_outputs, inner_wanted_of(inner, wanted), inner_results, false) < 0) {
    return -1;
  }
  PyObject *own = take_inner_results(inner, inner_results, results);
  if (wanted[0]) {
    py::object zero = py::int_(0);
    const int status = own == nullptr ? PyArray_FillWithScalar(as_array(part.ptr()), zero.ptr())
                                      : PyArray_CopyInto(as_array(part.ptr()), as_array(own));
    if (status < 0) {
      return -1;
    }
    results[0] = base_gradient.release().ptr();
  }
  return 0;
}

bool runs_on_tensors(NodeObject *node) {
  if (node->kind == NodeKind::copy_slices) {
    node = as_node(node->target);
  }
  return node->kind != NodeKind::op || node->op->runs_on_tensors;
}

// True if the derivative of this node depends on the gradient alone.
bool is_linear(NodeObject *node) {
  if (node->kind == NodeKind::copy_slices) {
    node = as_node(node->target);
  }
  return node->kind == NodeKind::as_view || (node->kind == NodeKind::op && !node->saved_something);
}

// The derivative of this node cannot be recorded: computes it on arrays, and results that refuse to
// be derived when they depend on something that could.
int apply_without_graph(NodeObject *node, Gradients &outputs, const std::vector<bool> &wanted,
                        Gradients &results) {
  Gradients arrays(outputs.size());
  py::list inputs;
  bool is_constant = is_linear(node);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] != nullptr) {
      arrays[i] = gradient_from_tensor(outputs[i], false);
      inputs.append(py::handle(outputs[i]));
      is_constant = is_constant && !needs_grad(as_tensor(outputs[i]));
    }
  }
  for (std::size_t i = 0; i < node->n_edges && !is_linear(node); ++i) {
    const Edge &edge = node->edges[i];
    if (edge.node != nullptr && edge.node->kind == NodeKind::accumulate) {
      inputs.append(py::handle(edge.node->target));
    }
  }
  const bool mode = set_grad_enabled(false);
  int status = apply_node(node, arrays, wanted, results, false);
  set_grad_enabled(mode);
  if (status < 0) {
    return -1;
  }
  py::list made;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i] != nullptr) {
      PyObject *array = results[i];
      results[i] = gradient_to_tensor(array, false);
      Py_DECREF(array);
      if (results[i] == nullptr) {
        return -1;
      }
      made.append(py::handle(results[i]));
    }
  }
  if (is_constant) {
    return 0;
  }
  py::object name = py::reinterpret_steal<py::object>(node_name(node));
  const py::object refuse = call_installed(installed.refuse_double_backward, name);
  if (!refuse) {
    return -1;
  }
  NodeObject *recorded =
      record_python(name.ptr(), py::tuple(inputs).ptr(), py::tuple(made).ptr(), refuse.ptr());
  Py_XDECREF(reinterpret_cast<PyObject *>(recorded));
  return recorded == nullptr ? -1 : 0;
}

}  // namespace

HeldSpec output_spec(NodeObject *node, std::uint32_t nr) {
  HeldSpec held;
  OutputSpec &spec = held.spec;
  if (node->kind != NodeKind::accumulate) {
    spec = node->outputs[nr];
    return held;
  }
  PyArrayObject *array = as_tensor(node->target)->array;
  spec.num = PyArray_TYPE(array);
  spec.ndim = PyArray_NDIM(array);
  spec.is_meta = as_tensor(node->target)->is_meta;
  if (spec.ndim > OutputSpec::kInline) {
    spec.more_dims = PyArray_DIMS(array);
    held.array = py::reinterpret_borrow<py::object>(as_object(array));
  } else {
    std::copy(PyArray_DIMS(array), PyArray_DIMS(array) + spec.ndim, spec.inline_dims);
  }
  return held;
}

int apply_node(NodeObject *node, Gradients &outputs, const std::vector<bool> &wanted,
               Gradients &results, bool on_tensors) {
  if (check_saved(node) < 0) {
    return -1;
  }
  if (outputs.all_none() && node->kind != NodeKind::python) {
    return 0;
  }
  if (node->n_outputs > 0 && node->outputs[0].is_meta && node->kind != NodeKind::python) {
    for (std::size_t i = 0; i < node->n_edges; ++i) {
      if (wanted[i]) {
        HeldSpec held = output_spec(node->edges[i].node, node->edges[i].nr);
        if (!held.spec.is_meta) {  // the input was moved to meta
          PyErr_SetString(PyExc_NotImplementedError, "Cannot copy out of meta tensor; no data!");
          return -1;
        }
        PyObject *array = meta_gradient(held.spec);
        results[i] = array == nullptr || !on_tensors ? array : wrap_array(as_array(array), true);
        if (results[i] == nullptr) {
          return -1;
        }
      }
    }
    return 0;
  }
  if (on_tensors && !runs_on_tensors(node)) {
    return apply_without_graph(node, outputs, wanted, results);
  }
  switch (node->kind) {
    case NodeKind::op:
      return apply_op(node, node, outputs, wanted, results, on_tensors);
    case NodeKind::python:
      return apply_python(node, outputs, results, on_tensors);
    case NodeKind::copy_slices:
      return on_tensors ? apply_copy_slices_on_tensors(node, outputs, wanted, results)
                        : apply_copy_slices(node, outputs, wanted, results);
    case NodeKind::as_view:
      if (wanted[0]) {
        results[0] = on_tensors ? scatter_view_on_tensors(*node->geometry, outputs[0])
                                : scatter_view(*node->geometry, outputs[0]);
      }
      return wanted[0] && results[0] == nullptr ? -1 : 0;
    case NodeKind::accumulate:
      break;
  }
  return 0;
}

}  // namespace modtree
