// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/autograd/backward_hooks.h"

#include <algorithm>

#include "python/compat.h"
#include "tensor/autograd/gradient.h"
#include "tensor/autograd/history.h"
#include "tensor/slot_ops.h"

namespace modtree {

namespace {

// The hooks of a table as they are now: hooks may add and remove hooks.
py::object snapshot(PyObject *table) {
  return table == nullptr || PyDict_Size(table) == 0
             ? py::object()
             : py::reinterpret_steal<py::object>(PyDict_Values(table));
}

bool is_meta_output(NodeObject *node, std::size_t nr) {
  return output_spec(node, static_cast<std::uint32_t>(nr)).spec.is_meta;
}

py::object name_of(PyObject *hook) {
  py::object name = py::reinterpret_steal<py::object>(PyObject_GetAttrString(hook, "__name__"));
  if (!name) {
    PyErr_Clear();
    name = py::str("unknown");
  }
  return name;
}

// A gradient that a hook returned in place of `old`; `wanted` is null where nothing takes it. New
// reference.
PyObject *checked(PyObject *hook, PyObject *value, PyObject *old, OutputSpec *wanted,
                  bool on_tensors) {
  const py::object name = name_of(hook);
  if (old == nullptr) {
    PyErr_Format(PyExc_RuntimeError,
                 "can't replace a None gradient with a non-None value: hook '%S' must return None "
                 "for a gradient that did "
                 "not arrive",
                 name.ptr());
    return nullptr;
  }
  if (!is_tensor(value)) {
    PyErr_Format(PyExc_TypeError,
                 "expected Variable, but hook returned '%s': '%S' must return Tensors or None",
                 Py_TYPE(value)->tp_name, name.ptr());
    return nullptr;
  }
  // Where nothing takes it, what it replaces says what it has to be.
  PyArrayObject *before = is_tensor(old) ? as_tensor(old)->array : as_array(old);
  OutputSpec spec{};
  if (wanted != nullptr) {
    spec = *wanted;
  } else {
    spec.num = PyArray_TYPE(before);
    spec.ndim = PyArray_NDIM(before);
    if (spec.ndim > OutputSpec::kInline) {
      spec.more_dims = PyArray_DIMS(before);
    } else {
      std::copy(PyArray_DIMS(before), PyArray_DIMS(before) + spec.ndim, spec.inline_dims);
    }
  }
  TensorObject *tensor = as_tensor(value);
  if (!same_shape(tensor->array, spec)) {
    PyErr_Format(PyExc_RuntimeError, "hook '%S' has changed the size of value", name.ptr());
    return nullptr;
  }
  if (PyArray_TYPE(tensor->array) != spec.num) {
    PyErr_Format(PyExc_RuntimeError, "hook '%S' has changed the type of value (was %S got %S)",
                 name.ptr(), reinterpret_cast<PyObject *>(dtype_of_num(spec.num)),
                 reinterpret_cast<PyObject *>(dtype_or_none(tensor->array)));
    return nullptr;
  }
  return gradient_from_tensor(value, on_tensors);
}

int run_table(NodeObject *node, std::uint32_t nr, PyObject *table, PyObject *&gradient,
              bool on_tensors) {
  const py::object hooks = snapshot(table);
  for (Py_ssize_t i = 0; hooks && i < PyList_GET_SIZE(hooks.ptr()); ++i) {
    PyObject *hook = PyList_GET_ITEM(hooks.ptr(), i);
    // A gradient that did not arrive is None for its hooks.
    py::object tensor =
        py::reinterpret_steal<py::object>(gradient_to_tensor(gradient, is_meta_output(node, nr)));
    py::object result = py::reinterpret_steal<py::object>(
        tensor ? PyObject_CallOneArg(hook, tensor.ptr()) : nullptr);
    if (!result) {
      return -1;
    }
    if (!result.is_none()) {
      HeldSpec wanted = output_spec(node, nr);
      PyObject *replaced = checked(hook, result.ptr(), gradient, &wanted.spec, on_tensors);
      if (replaced == nullptr) {
        return -1;
      }
      Py_SETREF(gradient, replaced);
    }
  }
  return hooks || !PyErr_Occurred() ? 0 : -1;
}

// The gradients as a tuple of tensors and Nones.
py::object as_tuple(NodeObject *node, Gradients &gradients, bool are_outputs) {
  py::object tuple =
      py::reinterpret_steal<py::object>(PyTuple_New(static_cast<Py_ssize_t>(gradients.size())));
  for (std::size_t i = 0; tuple && i < gradients.size(); ++i) {
    bool is_meta = false;
    if (gradients[i] != nullptr && (are_outputs || node->edges[i].node != nullptr)) {
      is_meta = are_outputs ? is_meta_output(node, i)
                            : output_spec(node->edges[i].node, node->edges[i].nr).spec.is_meta;
    }
    PyObject *tensor = gradient_to_tensor(gradients[i], is_meta);
    if (tensor == nullptr) {
      return py::object();
    }
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), tensor);
  }
  return tuple;
}

// Takes over the tuple that a hook of a node returned.
int replace_all(NodeObject *node, PyObject *hook, PyObject *value, Gradients &gradients,
                bool are_outputs, bool on_tensors) {
  if (!PyTuple_Check(value)) {
    PyErr_Format(
        PyExc_TypeError,
        "expected tuple, but hook returned '%s': '%S' must return None or %zu gradients in a tuple",
        Py_TYPE(value)->tp_name, name_of(hook).ptr(), gradients.size());
    return -1;
  }
  if (static_cast<std::size_t>(PyTuple_GET_SIZE(value)) != gradients.size()) {
    PyErr_Format(PyExc_RuntimeError,
                 "hook '%S' has returned an incorrect number of values (got %zd, but expected %zu)",
                 name_of(hook).ptr(), PyTuple_GET_SIZE(value), gradients.size());
    return -1;
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    PyObject *item = PyTuple_GET_ITEM(value, static_cast<Py_ssize_t>(i));
    PyObject *replaced = nullptr;
    if (item != Py_None) {
      const bool is_taken = are_outputs || node->edges[i].node != nullptr;
      HeldSpec wanted = are_outputs ? output_spec(node, static_cast<std::uint32_t>(i))
                        : is_taken  ? output_spec(node->edges[i].node, node->edges[i].nr)
                                    : HeldSpec{};
      replaced = checked(hook, item, gradients[i], is_taken ? &wanted.spec : nullptr, on_tensors);
      if (replaced == nullptr) {
        return -1;
      }
    }
    PyObject *old = gradients[i];
    gradients[i] = replaced;
    Py_XDECREF(old);
  }
  return 0;
}

int keep_retained(NodeObject *node, Gradients &outputs, bool on_tensors) {
  for (std::size_t i = 0; node->hooks != nullptr && i < node->hooks->retained.size(); ++i) {
    const auto &entry = node->hooks->retained[i];
    const py::object tensor = referent_of(entry.tensor);
    PyObject *gradient = outputs[entry.nr];
    if (!tensor || gradient == nullptr) {
      continue;
    }
    if (accumulate_grad(as_tensor(tensor.ptr()), Py_NewRef(gradient), on_tensors) < 0) {
      return -1;
    }
  }
  return 0;
}

// True if the array may become somebody's grad without a copy: nobody else holds it or its memory.
bool is_ours_alone(PyObject *array) {
  return is_sole_reference(array) && PyArray_CheckExact(array) &&
         PyArray_BASE(as_array(array)) == nullptr && PyArray_ISWRITEABLE(as_array(array));
}

}  // namespace

int run_tensor_hooks(NodeObject *node, Gradients &outputs, bool on_tensors) {
  if (node->kind == NodeKind::accumulate) {
    LeafExtra *extra = as_tensor(node->target)->extra;
    if (extra == nullptr || extra->hooks == nullptr) {
      return 0;
    }
    auto table = py::reinterpret_borrow<py::object>(extra->hooks);
    return run_table(node, 0, table.ptr(), outputs[0], on_tensors);
  }
  for (std::size_t i = 0; node->hooks != nullptr && i < node->hooks->tensor_tables.size(); ++i) {
    const std::uint32_t nr = node->hooks->tensor_tables[i].nr;
    auto table = py::reinterpret_borrow<py::object>(node->hooks->tensor_tables[i].table);
    if (run_table(node, nr, table.ptr(), outputs[nr], on_tensors) < 0) {
      return -1;
    }
  }
  return keep_retained(node, outputs, on_tensors);
}

int run_pre_hooks(NodeObject *node, Gradients &outputs, bool on_tensors) {
  const py::object hooks = snapshot(node->hooks == nullptr ? nullptr : node->hooks->pre);
  for (Py_ssize_t i = 0; hooks && i < PyList_GET_SIZE(hooks.ptr()); ++i) {
    PyObject *hook = PyList_GET_ITEM(hooks.ptr(), i);
    const py::object gradients = as_tuple(node, outputs, true);
    const auto result = py::reinterpret_steal<py::object>(
        gradients ? PyObject_CallOneArg(hook, gradients.ptr()) : nullptr);
    if (!result || (!result.is_none() &&
                    replace_all(node, hook, result.ptr(), outputs, true, on_tensors) < 0)) {
      return -1;
    }
  }
  return 0;
}

bool has_post_hooks(NodeObject *node) {
  return node->hooks != nullptr && node->hooks->post != nullptr &&
         PyDict_Size(node->hooks->post) > 0;
}

int run_post_hooks(NodeObject *node, Gradients &inputs, Gradients &outputs, bool on_tensors) {
  const py::object hooks = snapshot(node->hooks == nullptr ? nullptr : node->hooks->post);
  for (Py_ssize_t i = 0; hooks && i < PyList_GET_SIZE(hooks.ptr()); ++i) {
    PyObject *hook = PyList_GET_ITEM(hooks.ptr(), i);
    const py::object grad_inputs = as_tuple(node, inputs, false);
    const py::object grad_outputs = as_tuple(node, outputs, true);
    if (!grad_inputs || !grad_outputs) {
      return -1;
    }
    const auto result = py::reinterpret_steal<py::object>(
        PyObject_CallFunctionObjArgs(hook, grad_inputs.ptr(), grad_outputs.ptr(), nullptr));
    if (!result || (!result.is_none() &&
                    replace_all(node, hook, result.ptr(), inputs, false, on_tensors) < 0)) {
      return -1;
    }
  }
  return 0;
}

int run_post_accumulate_hooks(TensorObject *leaf) {
  const py::object hooks =
      snapshot(leaf->extra == nullptr ? nullptr : leaf->extra->post_accumulate_hooks);
  for (Py_ssize_t i = 0; hooks && i < PyList_GET_SIZE(hooks.ptr()); ++i) {
    PyObject *hook = PyList_GET_ITEM(hooks.ptr(), i);
    const auto result = py::reinterpret_steal<py::object>(
        PyObject_CallOneArg(hook, reinterpret_cast<PyObject *>(leaf)));
    if (!result) {
      return -1;
    }
    if (result.is_none() || result.is(py::handle(reinterpret_cast<PyObject *>(leaf)))) {
      continue;
    }
    if (is_tensor(result.ptr())) {
      PyErr_Format(PyExc_RuntimeError,
                   "Tensor post accumulate grad hooks should return None. What '%S' returned "
                   "cannot take the place of a "
                   "gradient that has been added already; register_hook() can replace it before",
                   name_of(hook).ptr());
    } else {
      PyErr_Format(PyExc_TypeError,
                   "expected Variable, but hook returned '%s': '%S' must return None",
                   Py_TYPE(result.ptr())->tp_name, name_of(hook).ptr());
    }
    return -1;
  }
  return 0;
}

int accumulate_grad(TensorObject *tensor, PyObject *gradient, bool on_tensors) {
  py::object held = py::reinterpret_steal<py::object>(gradient);
  // The tensor may get another one while user code runs.
  const auto held_grad = py::reinterpret_borrow<py::object>(tensor->grad);
  PyObject *grad = held_grad.ptr();
  if (on_tensors) {
    PyObject *args[2] = {grad, gradient};
    OpObject *op = slot_op(kAdd);
    const auto fresh = py::reinterpret_steal<py::object>(
        op == nullptr     ? nullptr
        : grad == nullptr ? PyObject_CallMethod(gradient, "clone", nullptr)
                          : op_call(op, args, 2, nullptr));
    return fresh ? assign_grad(tensor, fresh.ptr()) : -1;
  }
  if (grad == nullptr) {
    PyObject *array = held.release().ptr();
    if (!tensor->is_meta && !is_ours_alone(array)) {
      PyObject *copy = PyArray_NewCopy(as_array(array), NPY_KEEPORDER);
      Py_DECREF(array);
      if (copy == nullptr) {
        return -1;
      }
      array = copy;
    }
    PyObject *fresh = wrap_array(as_array(array), tensor->is_meta);
    if (fresh == nullptr) {
      return -1;
    }
    if (tensor->grad != nullptr) {
      Py_DECREF(fresh);  // user code that ran here has set one: that counts as later
    } else {
      tensor->grad = fresh;
    }
    return 0;
  }
  if (tensor->is_meta) {
    return bump_version(as_tensor(grad));
  }
  // In place, so that holders of the old grad see the sum, also when that is on a graph itself.
  const auto held_array = py::reinterpret_borrow<py::object>(as_object(as_tensor(grad)->array));
  PyObject *array = held_array.ptr();
  if (PyArray_ISWRITEABLE(as_array(array))) {
    return add_in_place(array, gradient) < 0 ? -1 : bump_version(as_tensor(grad));
  }
  PyObject *sum = add_gradients(Py_NewRef(array), false, gradient, false);
  const auto fresh =
      py::reinterpret_steal<py::object>(sum == nullptr ? nullptr : wrap_array(as_array(sum)));
  return fresh ? assign_grad(tensor, fresh.ptr()) : -1;
}

}  // namespace modtree
