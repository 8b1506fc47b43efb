// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/autograd/gradient.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "python/compat.h"
#include "python/installed.h"
#include "tensor/op_errors.h"
#include "tensor/slot_ops.h"

namespace modtree {

namespace {

PyObject *g_add = nullptr;         // np.add
PyObject *g_add_reduce = nullptr;  // np.add.reduce
PyObject *dims_tuple(const npy_intp *dims, int ndim) {
  PyObject *tuple = PyTuple_New(ndim);
  for (int i = 0; tuple != nullptr && i < ndim; ++i) {
    PyObject *extent = PyLong_FromSsize_t(dims[i]);
    if (extent == nullptr) {
      Py_CLEAR(tuple);
      break;
    }
    PyTuple_SET_ITEM(tuple, i, extent);
  }
  return tuple;
}

// Sums the axes along which a gradient was broadcast. Steals; null without an error when the shapes
// do not go together.
PyArrayObject *sum_to(PyArrayObject *array, OutputSpec &spec) {
  int extra = PyArray_NDIM(array) - spec.ndim;
  // x[0] = y may drop leading dimensions of 1.
  npy_intp *want = spec.dims();
  for (; extra < 0 && *want == 1; ++want) {
    ++extra;
  }
  if (extra < 0) {
    Py_DECREF(array);
    return nullptr;
  }
  npy_intp axes[NPY_MAXDIMS];
  int n_axes = 0;
  for (int i = 0; i < PyArray_NDIM(array); ++i) {
    const npy_intp have = PyArray_DIM(array, i);
    if (i < extra) {
      axes[n_axes++] = i;
    } else if (have != want[i - extra]) {
      if (want[i - extra] != 1) {
        Py_DECREF(array);
        return nullptr;
      }
      axes[n_axes++] = i;
    }
  }
  py::object axis = py::reinterpret_steal<py::object>(dims_tuple(axes, n_axes));
  PyObject *args[2] = {as_object(array), axis.ptr()};
  PyObject *sum = axis ? PyObject_Vectorcall(g_add_reduce, args, 2, nullptr) : nullptr;
  Py_DECREF(array);
  if (sum == nullptr) {
    return nullptr;
  }
  PyArrayObject *whole = as_array(PyArray_FromAny(sum, nullptr, 0, 0, 0, nullptr));
  Py_DECREF(sum);
  if (whole == nullptr) {
    return nullptr;
  }
  PyArray_Dims dims{spec.dims(), spec.ndim};
  PyObject *shaped = PyArray_Newshape(whole, &dims, NPY_CORDER);
  Py_DECREF(whole);
  return as_array(shaped);
}

PyObject *raise_shape(PyArrayObject *array, OutputSpec &spec, NodeObject *node) {
  if (PyErr_Occurred()) {
    return nullptr;
  }
  py::object name = py::reinterpret_steal<py::object>(node_name(node));
  py::object want = py::reinterpret_steal<py::object>(dims_tuple(spec.dims(), spec.ndim));
  py::object have =
      py::reinterpret_steal<py::object>(dims_tuple(PyArray_DIMS(array), PyArray_NDIM(array)));
  if (name && want && have) {
    PyErr_Format(PyExc_RuntimeError,
                 "Function %U returned an invalid gradient: got shape %R but expected shape "
                 "compatible with %R",
                 name.ptr(), have.ptr(), want.ptr());
  }
  return nullptr;
}

// Null with an error set. Steals.
PyObject *cast(PyArrayObject *array, int num) {
  const int have = PyArray_TYPE(array);
  if (have == num) {
    return as_object(array);
  }
  py::object held = py::reinterpret_steal<py::object>(as_object(array));
  if (PyTypeNum_ISCOMPLEX(have) && !PyTypeNum_ISCOMPLEX(num)) {
    held = py::reinterpret_steal<py::object>(PyObject_GetAttrString(held.ptr(), "real"));
    if (!held) {
      return nullptr;
    }
    if (PyArray_TYPE(as_array(held.ptr())) == num) {
      return held.release().ptr();
    }
  }
  PyArray_Descr *descr = dtype_of_num(num)->descr;
  Py_INCREF(descr);
  return PyArray_CastToType(as_array(held.ptr()), descr, 0);
}

PyObject *fit_tensor(PyObject *value, OutputSpec &spec, NodeObject *node) {
  py::object held = py::reinterpret_steal<py::object>(value);
  py::object shape = py::reinterpret_steal<py::object>(dims_tuple(spec.dims(), spec.ndim));
  py::object name = py::reinterpret_steal<py::object>(node_name(node));
  if (!shape || !name) {
    return nullptr;
  }
  return call_installed(installed.fit_gradient, held, shape,
                        reinterpret_cast<PyObject *>(dtype_of_num(spec.num)), name)
      .release()
      .ptr();
}

// True if two elements of the view may share memory (expand, unfold).
bool overlaps(const ViewGeometry &geometry) {
  std::vector<std::pair<npy_intp, npy_intp>> axes;  // stride, steps
  for (std::size_t i = 0; i < geometry.dims.size(); ++i) {
    if (geometry.dims[i] == 0) {
      return false;
    }
    if (geometry.dims[i] > 1) {
      axes.emplace_back(std::abs(geometry.strides[i]), geometry.dims[i] - 1);
    }
  }
  std::sort(axes.begin(), axes.end());
  npy_intp reach = 0;
  for (const auto &axis : axes) {
    if (axis.first <= reach) {
      return true;
    }
    reach += axis.first * axis.second;
  }
  return false;
}

// Zeros in the layout of the base, over a block of its own, and the view's part of it.
PyObject *blank_base(const ViewGeometry &geometry, PyObject **part) {
  auto span = [](const std::vector<npy_intp> &dims, const std::vector<npy_intp> &strides,
                 npy_intp *low, npy_intp *high) {
    *low = *high = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const npy_intp reach = std::max<npy_intp>(dims[i] - 1, 0) * strides[i];
      (reach < 0 ? *low : *high) += reach;
    }
  };
  PyArray_Descr *descr = dtype_of_num(geometry.num)->descr;
  const npy_intp item = PyDataType_ELSIZE(descr);
  npy_intp low, high, view_low, view_high;
  span(geometry.base_dims, geometry.base_strides, &low, &high);
  span(geometry.dims, geometry.strides, &view_low, &view_high);
  view_low += geometry.offset;
  view_high += geometry.offset;
  if (view_low < low || view_high > high) {
    PyErr_SetString(PyExc_RuntimeError, "a view reaches beyond the tensor that it is a view of: it "
                                        "cannot be changed in place while gradients "
                                        "are recorded; change a clone");
    return nullptr;
  }
  npy_intp count = (high - low) / item + 1;
  Py_INCREF(descr);
  PyObject *block = PyArray_Zeros(1, &count, descr, 0);
  if (block == nullptr) {
    return nullptr;
  }
  auto window = [&](const std::vector<npy_intp> &dims, const std::vector<npy_intp> &strides,
                    npy_intp offset) -> PyObject * {
    Py_INCREF(descr);
    PyObject *array = PyArray_NewFromDescr(
        &PyArray_Type, descr, static_cast<int>(dims.size()), dims.data(), strides.data(),
        PyArray_BYTES(as_array(block)) - low + offset, NPY_ARRAY_WRITEABLE, nullptr);
    if (array != nullptr && PyArray_SetBaseObject(as_array(array), Py_NewRef(block)) < 0) {
      Py_CLEAR(array);
    }
    return array;
  };
  PyObject *whole = window(geometry.base_dims, geometry.base_strides, 0);
  *part = whole == nullptr ? nullptr : window(geometry.dims, geometry.strides, geometry.offset);
  if (*part == nullptr) {
    Py_CLEAR(whole);
  }
  Py_DECREF(block);
  return whole;
}

PyObject *ones_like(TensorObject *tensor) {
  PyArrayObject *array = tensor->array;
  PyArray_Descr *descr = PyArray_DESCR(array);
  if (tensor->is_meta) {
    return as_object(meta_array(PyArray_NDIM(array), PyArray_DIMS(array), descr));
  }
  Py_INCREF(descr);
  PyObject *ones = PyArray_Empty(PyArray_NDIM(array), PyArray_DIMS(array), descr, 0);
  py::object one = py::reinterpret_steal<py::object>(PyLong_FromLong(1));
  if (ones != nullptr && (!one || PyArray_FillWithScalar(as_array(ones), one.ptr()) < 0)) {
    Py_CLEAR(ones);
  }
  return ones;
}

}  // namespace

bool same_shape(PyArrayObject *array, OutputSpec &spec) {
  return PyArray_NDIM(array) == spec.ndim &&
         std::equal(spec.dims(), spec.dims() + spec.ndim, PyArray_DIMS(array));
}

PyObject *fit_gradient(PyObject *value, OutputSpec &spec, NodeObject *node, bool on_tensors) {
  if (on_tensors) {
    if (is_tensor(value) && PyArray_TYPE(as_tensor(value)->array) == spec.num &&
        same_shape(as_tensor(value)->array, spec)) {
      return value;
    }
    return fit_tensor(value, spec, node);
  }
  if (!PyArray_Check(value)) {
    PyObject *array = PyArray_FromAny(value, nullptr, 0, 0, 0, nullptr);
    Py_DECREF(value);
    if (array == nullptr) {
      return nullptr;
    }
    value = array;
  }
  PyArrayObject *array = as_array(value);
  if (!PyTypeNum_ISNUMBER(PyArray_TYPE(array)) && PyArray_TYPE(array) != NPY_BOOL) {
    py::object name = py::reinterpret_steal<py::object>(node_name(node));
    PyErr_Format(PyExc_TypeError,
                 "Function %U returned a gradient that is no array of numbers but %s", name.ptr(),
                 Py_TYPE(value)->tp_name);
    Py_DECREF(value);
    return nullptr;
  }
  if (!same_shape(array, spec)) {
    py::object before = py::reinterpret_borrow<py::object>(value);
    array = sum_to(array, spec);
    if (array == nullptr) {
      return raise_shape(as_array(before.ptr()), spec, node);
    }
  }
  return cast(array, spec.num);
}

PyObject *add_gradients(PyObject *a, bool owns_a, PyObject *b, bool on_tensors) {
  PyObject *args[3] = {a, b, a};
  PyObject *sum;
  if (on_tensors) {
    OpObject *op = slot_op(kAdd);
    sum = op == nullptr ? nullptr : op_call(op, args, 2, nullptr);
  } else {
    sum = PyObject_Vectorcall(g_add, args, owns_a && is_sole_reference(a) ? 3 : 2, nullptr);
    if (sum != nullptr && !PyArray_Check(sum)) {
      PyObject *array = PyArray_FromAny(sum, nullptr, 0, 0, 0, nullptr);
      Py_DECREF(sum);
      sum = array;
    }
  }
  Py_DECREF(a);
  return sum;
}

int add_in_place(PyObject *a, PyObject *b) {
  PyObject *args[3] = {a, b, a};
  PyObject *sum = PyObject_Vectorcall(g_add, args, 3, nullptr);
  Py_XDECREF(sum);
  return sum == nullptr ? -1 : 0;
}

PyObject *scatter_view(const ViewGeometry &geometry, PyObject *gradient) {
  PyObject *part;
  PyObject *whole = blank_base(geometry, &part);
  if (whole == nullptr) {
    return nullptr;
  }
  if (overlaps(geometry)) {
    // Gradients of elements that share memory are added up.
    py::object done = py::reinterpret_steal<py::object>(
        PyObject_CallMethod(g_add, "at", "OOO", part, Py_Ellipsis, gradient));
    if (!done) {
      Py_CLEAR(whole);
    }
  } else if (PyArray_CopyInto(as_array(part), as_array(gradient)) < 0) {
    Py_CLEAR(whole);
  }
  Py_DECREF(part);
  return whole;
}

PyObject *geometry_tuple(const ViewGeometry &geometry) {
  auto tuple_of = [](const std::vector<npy_intp> &values) {
    return dims_tuple(values.data(), static_cast<int>(values.size()));
  };
  // "N" takes the references, also of those made before one that failed.
  return Py_BuildValue(
      "(NNNNnn)", tuple_of(geometry.base_dims), tuple_of(geometry.base_strides),
      tuple_of(geometry.dims), tuple_of(geometry.strides), static_cast<Py_ssize_t>(geometry.offset),
      static_cast<Py_ssize_t>(PyDataType_ELSIZE(dtype_of_num(geometry.num)->descr)));
}

PyObject *scatter_view_on_tensors(const ViewGeometry &geometry, PyObject *gradient) {
  const auto tuple = py::reinterpret_steal<py::object>(geometry_tuple(geometry));
  return tuple ? call_installed(installed.base_of_part, gradient, tuple).release().ptr() : nullptr;
}

PyObject *part_of_base(const ViewGeometry &geometry, PyObject *gradient, PyObject **whole) {
  PyObject *part;
  *whole = blank_base(geometry, &part);
  if (*whole == nullptr) {
    return nullptr;
  }
  if (PyArray_CopyInto(as_array(*whole), as_array(gradient)) < 0) {
    Py_CLEAR(*whole);
    Py_CLEAR(part);
  }
  return part;
}

PyObject *meta_gradient(OutputSpec &spec) {
  return as_object(meta_array(spec.ndim, spec.dims(), dtype_of_num(spec.num)->descr));
}

void init_gradient() {
  py::object add = import_attribute("numpy", "add");
  if (!add) {
    throw py::error_already_set();
  }
  g_add_reduce = py::object(add.attr("reduce")).release().ptr();
  g_add = add.release().ptr();
}

PyObject *gradient_to_tensor(PyObject *gradient, bool is_meta) {
  if (gradient == nullptr) {
    Py_RETURN_NONE;
  }
  if (is_tensor(gradient)) {
    return Py_NewRef(gradient);
  }
  return wrap_array(as_array(Py_NewRef(gradient)), is_meta);
}

PyObject *gradient_from_tensor(PyObject *tensor, bool on_tensors) {
  return Py_NewRef(on_tensors ? tensor : as_object(as_tensor(tensor)->array));
}

PyObject *first_gradient(Py_ssize_t i, TensorObject *root, PyObject *given, bool on_tensors) {
  if (given == Py_None) {
    if (PyArray_SIZE(root->array) != 1) {
      PyErr_SetString(PyExc_RuntimeError, "grad can be implicitly created only for scalar outputs");
      return nullptr;
    }
    if (PyTypeNum_ISCOMPLEX(PyArray_TYPE(root->array))) {
      PyErr_Format(PyExc_RuntimeError,
                   "grad can be implicitly created only for real scalar outputs but got %S",
                   reinterpret_cast<PyObject *>(dtype_or_none(root->array)));
      return nullptr;
    }
    PyObject *ones = ones_like(root);
    return ones == nullptr || !on_tensors ? ones : wrap_array(as_array(ones), root->is_meta);
  }
  if (!is_tensor(given)) {
    raise_not_tensor(PyExc_TypeError, "gradients can be either Tensors or None, but got %S", given);
    return nullptr;
  }
  TensorObject *gradient = as_tensor(given);
  if (!PyArray_SAMESHAPE(gradient->array, root->array)) {
    py::object have = py::reinterpret_steal<py::object>(size_of_array(gradient->array));
    py::object want = py::reinterpret_steal<py::object>(size_of_array(root->array));
    if (have && want) {
      PyErr_Format(PyExc_RuntimeError,
                   "Mismatch in shape: grad_output[%zd] has a shape of %S and output[%zd] has a "
                   "shape of %S.",
                   i, have.ptr(), i, want.ptr());
    }
    return nullptr;
  }
  if (PyTypeNum_ISCOMPLEX(PyArray_TYPE(gradient->array)) !=
      PyTypeNum_ISCOMPLEX(PyArray_TYPE(root->array))) {
    PyErr_Format(PyExc_RuntimeError,
                 "For complex Tensors, both grad_output and output are required to have the same "
                 "dtype: grad_output[%zd] "
                 "has %S and output[%zd] has %S",
                 i, reinterpret_cast<PyObject *>(dtype_or_none(gradient->array)), i,
                 reinterpret_cast<PyObject *>(dtype_or_none(root->array)));
    return nullptr;
  }
  if (PyArray_TYPE(gradient->array) == PyArray_TYPE(root->array)) {
    return gradient_from_tensor(given, on_tensors);
  }
  py::object converted = py::reinterpret_steal<py::object>(
      PyObject_CallMethod(given, "to", "O", dtype_or_none(root->array)));
  return converted ? gradient_from_tensor(converted.ptr(), on_tensors) : nullptr;
}

}  // namespace modtree
