// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/methods.h"

#include "python/installed.h"
#include "python/native_section.h"
#include "tensor/array_view.h"
#include "tensor/autograd/backward.h"
#include "tensor/autograd/history.h"
#include "tensor/create.h"
#include "tensor/guarded.h"
#include "tensor/override.h"
#include "tensor/parameter_pickle.h"
#include "tensor/value_methods.h"

namespace modtree {

namespace {

PyObject *new_ref(PyObject *obj) {
  Py_INCREF(obj);
  return obj;
}

// --- about gradients

PyObject *get_requires_grad(PyObject *self, void *) {
  return PyBool_FromLong(needs_grad(as_tensor(self)));
}

int put_requires_grad(PyObject *self, PyObject *value, void *) {
  if (value == nullptr || !PyBool_Check(value)) {
    PyErr_SetString(PyExc_RuntimeError, "requires_grad must be a bool");
    return -1;
  }
  if (value == Py_True && as_tensor(self)->grad_fn != nullptr) {
    PyErr_SetString(PyExc_RuntimeError,
                    "you can only change requires_grad flags of leaf variables");
    return -1;
  }
  return set_requires_grad(as_tensor(self), value == Py_True);
}

PyObject *get_grad_fn(PyObject *self, void *) {
  bool error;
  NodeObject *node = current_grad_fn(as_tensor(self), &error);
  if (error) {
    return nullptr;
  }
  return node == nullptr ? Py_NewRef(Py_None) : named_node(node);
}

PyObject *get_is_leaf(PyObject *self, void *) {
  bool error;
  NodeObject *node = current_grad_fn(as_tensor(self), &error);
  if (error) {
    return nullptr;
  }
  Py_XDECREF(reinterpret_cast<PyObject *>(node));
  return PyBool_FromLong(node == nullptr);
}

PyObject *get_grad(PyObject *self, void *) {
  TensorObject *tensor = as_tensor(self);
  if (tensor->grad == nullptr && tensor->grad_fn != nullptr && !tensor->retains_grad &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. "
                   "It is None: call "
                   "retain_grad() on this tensor before backward(), or look at the leaf",
                   1) < 0) {
    return nullptr;
  }
  return Py_NewRef(tensor->grad == nullptr ? Py_None : tensor->grad);
}

int put_grad(PyObject *self, PyObject *value, void *) {
  return assign_grad(as_tensor(self), value);
}

PyObject *get_output_nr(PyObject *self, void *) {
  return PyLong_FromUnsignedLong(as_tensor(self)->output_nr);
}

PyObject *get_retains_grad(PyObject *self, void *) {
  return PyBool_FromLong(as_tensor(self)->retains_grad);
}

PyObject *get_base(PyObject *self, void *) {
  PyObject *base = as_tensor(self)->base;
  return Py_NewRef(base == nullptr ? Py_None : base);
}

PyObject *tensor_is_view(PyObject *self, PyObject *) {
  return PyBool_FromLong(as_tensor(self)->base != nullptr);
}

PyObject *tensor_retain_grad(PyObject *self, PyObject *) {
  TensorObject *tensor = as_tensor(self);
  if (!needs_grad(tensor)) {
    PyErr_SetString(PyExc_RuntimeError, "can't retain_grad on Tensor that has requires_grad=False");
    return nullptr;
  }
  if (!tensor->retains_grad && retain_grad(tensor) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject *tensor_hook_table(PyObject *self, PyObject *) { return tensor_hooks(as_tensor(self)); }

PyObject *tensor_post_accumulate_table(PyObject *self, PyObject *) {
  return post_accumulate_hooks(as_tensor(self));
}

// --- about values

PyObject *tensor_detach(PyObject *self, PyObject *) { return tensor_alias(as_tensor(self)); }

PyObject *tensor_as_subclass(PyObject *self, PyObject *cls) {
  if (!PyType_Check(cls)) {
    PyErr_Format(PyExc_TypeError, "as_subclass() takes a subclass of Tensor, got %.200s",
                 Py_TYPE(cls)->tp_name);
    return nullptr;
  }
  return slot_guard(static_cast<PyObject *>(nullptr),
                    [&] { return as_subclass(self, reinterpret_cast<PyTypeObject *>(cls)); });
}

PyObject *tensor_size(PyObject *obj, PyObject *const *args, Py_ssize_t nargs) {
  if (nargs == 0 || (nargs == 1 && args[0] == Py_None)) {
    return size_of_array(as_tensor(obj)->array);
  }
  if (nargs > 1) {
    PyErr_Format(PyExc_TypeError, "size() takes at most 1 argument, got %zd", nargs);
    return nullptr;
  }
  Py_ssize_t dim = PyNumber_AsSsize_t(args[0], PyExc_IndexError);
  if (dim == -1 && PyErr_Occurred()) {
    return nullptr;
  }
  PyArrayObject *array =
      as_tensor(obj)->array;  // not before: an __index__ may have given the tensor another one
  Py_ssize_t ndim = PyArray_NDIM(array);
  if (dim < -ndim || dim >= ndim) {
    PyErr_Format(PyExc_IndexError,
                 "Dimension out of range (expected to be in range of [%zd, %zd], but got %zd)",
                 -std::max<Py_ssize_t>(ndim, 1), std::max<Py_ssize_t>(ndim, 1) - 1, dim);
    return nullptr;
  }
  return PyLong_FromSsize_t(PyArray_DIM(array, static_cast<int>(dim < 0 ? dim + ndim : dim)));
}

PyObject *tensor_dim(PyObject *self, PyObject *) {
  return PyLong_FromLong(PyArray_NDIM(as_tensor(self)->array));
}

PyObject *tensor_numel(PyObject *self, PyObject *) {
  return PyLong_FromSsize_t(PyArray_SIZE(as_tensor(self)->array));
}

PyObject *tensor_element_size(PyObject *self, PyObject *) {
  return PyLong_FromSsize_t(PyArray_ITEMSIZE(as_tensor(self)->array));
}

PyObject *tensor_is_floating_point(PyObject *self, PyObject *) {
  const int num = PyArray_TYPE(as_tensor(self)->array);
  return PyBool_FromLong(PyTypeNum_ISFLOAT(num) || PyTypeNum_ISUSERDEF(num));
}

PyObject *tensor_is_complex(PyObject *self, PyObject *) {
  return PyBool_FromLong(PyTypeNum_ISCOMPLEX(PyArray_TYPE(as_tensor(self)->array)));
}

PyObject *tensor_is_contiguous(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *keywords) {
  if (nargs > 0 || keywords != nullptr) {
    return with_arguments("is_contiguous", self, args, nargs, keywords);
  }
  TensorObject *tensor = as_tensor(self);
  return PyBool_FromLong(tensor->is_meta || PyArray_IS_C_CONTIGUOUS(tensor->array));
}

PyObject *tensor_data_ptr(PyObject *self, PyObject *) {
  TensorObject *tensor = as_tensor(self);
  return PyLong_FromVoidPtr(tensor->is_meta ? nullptr : PyArray_DATA(tensor->array));
}

PyObject *tensor_item(PyObject *obj, PyObject *) {
  TensorObject *self = as_tensor(obj);
  if (self->is_meta) {
    PyErr_SetString(PyExc_RuntimeError, "item() cannot be called on meta tensors: no values");
    return nullptr;
  }
  if (PyArray_SIZE(self->array) != 1) {
    PyErr_Format(PyExc_RuntimeError, "a Tensor with %zd elements cannot be converted to Scalar",
                 PyArray_SIZE(self->array));
    return nullptr;
  }
  PyObject *item = PyArray_GETITEM(self->array, PyArray_BYTES(self->array));
  if (item == nullptr || !PyTypeNum_ISUSERDEF(PyArray_TYPE(self->array))) {
    return item;
  }
  PyObject *number = PyNumber_Float(item);  // of a scalar of ml_dtypes
  Py_DECREF(item);
  return number;
}

PyObject *tensor_requires_grad_(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames) {
  Py_ssize_t total = nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
  PyObject *flag = total == 0 ? Py_True : args[0];
  if (total > 1 ||
      (kwnames != nullptr && total == 1 &&
       PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "requires_grad") != 0)) {
    PyErr_SetString(PyExc_TypeError, "requires_grad_() takes one argument: requires_grad");
    return nullptr;
  }
  if (!PyBool_Check(flag)) {
    PyErr_Format(PyExc_TypeError, "requires_grad_(): argument 'requires_grad' must be bool, not %s",
                 Py_TYPE(flag)->tp_name);
    return nullptr;
  }
  return set_requires_grad(as_tensor(self), flag == Py_True) < 0 ? nullptr : new_ref(self);
}

PyObject *tensor_detach_(PyObject *obj, PyObject *) {
  TensorObject *self = as_tensor(obj);
  return drop_history(self) < 0 ? nullptr : new_ref(obj);
}

const char *cast_name(int num) {
  switch (num) {
    case NPY_FLOAT32:
      return "float";
    case NPY_FLOAT64:
      return "double";
    case NPY_FLOAT16:
      return "half";
    case NPY_INT64:
      return "long";
    case NPY_INT32:
      return "int";
    case NPY_INT16:
      return "short";
    case NPY_INT8:
      return "char";
    case NPY_UINT8:
      return "byte";
    case NPY_BOOL:
      return "bool";
    case NPY_COMPLEX64:
      return "cfloat";
    default:
      return "cdouble";
  }
}

template <int kNum>
PyObject *tensor_cast_to(PyObject *obj, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *keywords) {
  return nargs > 0 || keywords != nullptr
             ? with_arguments(cast_name(kNum), obj, args, nargs, keywords)
             : tensor_cast(obj, kNum);
}

PyObject *get_shape(PyObject *self, void *) { return size_of_array(as_tensor(self)->array); }
PyObject *get_dtype(PyObject *self, void *) {
  PyArrayObject *array = as_tensor(self)->array;
  DTypeObject *dtype = dtype_of(array);
  if (dtype == nullptr) {
    PyErr_Format(PyExc_RuntimeError,
                 "the array inside this tensor was given the dtype %S, which no tensor has. Change "
                 "an array of its own: tensor.numpy()",
                 reinterpret_cast<PyObject *>(PyArray_DESCR(array)));
  }
  return Py_XNewRef(reinterpret_cast<PyObject *>(dtype));
}
PyObject *get_ndim(PyObject *self, void *) { return tensor_dim(self, nullptr); }
PyObject *get_array(PyObject *self, void *) { return new_ref(as_object(as_tensor(self)->array)); }
PyObject *get_array_view(PyObject *self, void *) { return shown_view(as_tensor(self)->array); }

// What numpy() gives, where no class or mode has a say in whether it may.
PyObject *get_plain_view(PyObject *self_obj, void *) {
  TensorObject *self = as_tensor(self_obj);
  const bool is_plain =
      (Py_TYPE(self_obj) == tensor_type || Py_TYPE(self_obj) == plain_parameter_type) &&
      active_modes == 0 && !self->is_meta && !needs_grad(self);
  return is_plain ? shown_view(self->array) : Py_NewRef(Py_None);
}

PyObject *get_is_meta(PyObject *self, void *) { return PyBool_FromLong(as_tensor(self)->is_meta); }
PyObject *get_false(PyObject *, void *) { Py_RETURN_FALSE; }

PyObject *get_device(PyObject *self, void *) {
  PyObject *device = as_tensor(self)->is_meta ? installed.meta_device : installed.cpu_device;
  return Py_XNewRef(need_installed(device));
}

// A handle with a version of its own: changes through `data` are not seen by a graph.
PyObject *get_data(PyObject *self, void *) {
  TensorObject *tensor = as_tensor(self);
  Py_INCREF(tensor->array);
  return wrap_array(tensor->array, tensor->is_meta);
}
int put_data(PyObject *self, PyObject *value, void *) { return swap_array(as_tensor(self), value); }

PyObject *get_version(PyObject *self, void *) {
  VersionCell *cell = as_tensor(self)->cell;
  return PyLong_FromUnsignedLong(cell == nullptr ? 0 : cell->version);
}

// kTensorMethods, which needs the functions that look into it.
const PyMethodDef *method_table();

template <PyCFunction kMethod, int kAlias = 0>
constexpr PyCFunction plain = guarded<method_table, kMethod, kAlias>;

template <FastMethod kMethod>
PyCFunction fast() {
  return as_method(guarded_fast<method_table, kMethod>);
}

template <KeywordMethod kMethod>
PyCFunction keywords() {
  return as_method(guarded_keywords<method_table, kMethod>);
}

// backward() takes a tuple and a dict.
PyObject *guarded_backward(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *result = nullptr;
  if (is_overridden(self) && slot_guard(true, [&] {
        const auto kwnames = py::reinterpret_steal<py::object>(
            kwargs == nullptr ? nullptr : PySequence_Tuple(kwargs));
        std::vector<PyObject *> all;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
          all.push_back(PyTuple_GET_ITEM(args, i));
        }
        for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames.ptr()); ++i) {
          all.push_back(PyDict_GetItem(kwargs, PyTuple_GET_ITEM(kwnames.ptr(), i)));
        }
        return call_native_override("backward", self, all.data(), PyTuple_GET_SIZE(args),
                                    kwnames.ptr(), &result);
      })) {
    return result;
  }
  return tensor_backward(self, args, kwargs);
}

constexpr int kFast = METH_FASTCALL;
constexpr int kFastKw = METH_FASTCALL | METH_KEYWORDS;

PyMethodDef kTensorMethods[] = {
    {"__torch_function__", as_method(entry<tensor_torch_function>),
     METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "__torch_function__($type, func, types, args=(), kwargs=None)\n--\n\n"
     "What a function does when a tensor of this class is among its arguments: what it does with "
     "plain tensors, and gives results of this class."},
    {"as_subclass", entry<tensor_as_subclass>, METH_O,
     "as_subclass($self, cls, /)\n--\n\nThe same memory as a tensor of another class."},
    {"detach", plain<tensor_detach>, METH_NOARGS,
     "detach($self)\n--\n\nA new handle of the same memory that needs no gradient."},
    {"detach_", plain<tensor_detach_>, METH_NOARGS,
     "detach_($self)\n--\n\nCuts this tensor off its graph, in place."},
    {"size", fast<tensor_size>(), kFast,
     "size($self, dim=None, /)\n--\n\nThe shape, or the extent of one dimension."},
    {"dim", plain<tensor_dim>, METH_NOARGS, "dim($self)\n--\n\nNumber of dimensions."},
    {"ndimension", plain<tensor_dim, 1>, METH_NOARGS,
     "ndimension($self)\n--\n\nThe same as dim()."},
    {"numel", plain<tensor_numel>, METH_NOARGS, "numel($self)\n--\n\nNumber of elements."},
    {"nelement", plain<tensor_numel, 1>, METH_NOARGS,
     "nelement($self)\n--\n\nThe same as numel()."},
    {"element_size", plain<tensor_element_size>, METH_NOARGS,
     "element_size($self)\n--\n\nBytes of one element."},
    {"is_floating_point", plain<tensor_is_floating_point>, METH_NOARGS,
     "is_floating_point($self)\n--\n\nTrue if the dtype is a floating one, not complex."},
    {"is_complex", plain<tensor_is_complex>, METH_NOARGS,
     "is_complex($self)\n--\n\nTrue if the dtype is complex."},
    {"is_contiguous", keywords<tensor_is_contiguous>(), kFastKw,
     "is_contiguous($self, *, memory_format=None)\n--\n\n"
     "True if the memory is in C order, or in that of the format, without gaps."},
    {"data_ptr", plain<tensor_data_ptr>, METH_NOARGS,
     "data_ptr($self)\n--\n\nAddress of the first element."},
    {"item", plain<tensor_item>, METH_NOARGS,
     "item($self)\n--\n\nThe only element as a Python number."},
    {"requires_grad_", keywords<tensor_requires_grad_>(), kFastKw,
     "requires_grad_($self, requires_grad=True)\n--\n\nSets requires_grad and returns self."},
    {"zero_", plain<tensor_zero_>, METH_NOARGS, "zero_($self)\n--\n\nFills with zeros, in place."},
    {"copy_", keywords<tensor_copy_>(), kFastKw,
     "copy_($self, other, non_blocking=False)\n--\n\nTakes over the values of src, converted."},
    {"clone", keywords<tensor_clone>(), kFastKw,
     "clone($self, *, memory_format=None)\n--\n\nA copy with memory of its own."},
    {"float", keywords<tensor_cast_to<NPY_FLOAT32>>(), kFastKw,
     "float($self, memory_format=None)\n--\n\nAs float32."},
    {"double", keywords<tensor_cast_to<NPY_FLOAT64>>(), kFastKw,
     "double($self, memory_format=None)\n--\n\nAs float64."},
    {"half", keywords<tensor_cast_to<NPY_FLOAT16>>(), kFastKw,
     "half($self, memory_format=None)\n--\n\nAs float16."},
    {"long", keywords<tensor_cast_to<NPY_INT64>>(), kFastKw,
     "long($self, memory_format=None)\n--\n\nAs int64."},
    {"int", keywords<tensor_cast_to<NPY_INT32>>(), kFastKw,
     "int($self, memory_format=None)\n--\n\nAs int32."},
    {"short", keywords<tensor_cast_to<NPY_INT16>>(), kFastKw,
     "short($self, memory_format=None)\n--\n\nAs int16."},
    {"char", keywords<tensor_cast_to<NPY_INT8>>(), kFastKw,
     "char($self, memory_format=None)\n--\n\nAs int8."},
    {"byte", keywords<tensor_cast_to<NPY_UINT8>>(), kFastKw,
     "byte($self, memory_format=None)\n--\n\nAs uint8."},
    {"bool", keywords<tensor_cast_to<NPY_BOOL>>(), kFastKw,
     "bool($self, memory_format=None)\n--\n\nAs bool."},
    {"cfloat", keywords<tensor_cast_to<NPY_COMPLEX64>>(), kFastKw,
     "cfloat($self, memory_format=None)\n--\n\nAs complex64."},
    {"cdouble", keywords<tensor_cast_to<NPY_COMPLEX128>>(), kFastKw,
     "cdouble($self, memory_format=None)\n--\n\nAs complex128."},
    {"backward", as_method(entry<guarded_backward>), METH_VARARGS | METH_KEYWORDS,
     "backward($self, gradient=None, retain_graph=None, create_graph=False, inputs=None)\n--\n\n"
     "Adds the gradients of this tensor, weighted by `gradient` (1 for a tensor of one element), "
     "to the grad of the leaves it was "
     "computed from, or of `inputs` only."},
    {"retain_grad", plain<tensor_retain_grad>, METH_NOARGS,
     "retain_grad($self)\n--\n\nKeeps the gradient of a tensor that is not a leaf in its grad."},
    {"_is_view", entry<tensor_is_view>, METH_NOARGS, nullptr},
    {"_hook_table", entry<tensor_hook_table>, METH_NOARGS, nullptr},
    {"_post_accumulate_table", entry<tensor_post_accumulate_table>, METH_NOARGS, nullptr},
    {"_convert", as_method(entry<tensor_convert>), kFast, nullptr},
    {"_reduce_parameter", entry<tensor_reduce_parameter>, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

const PyMethodDef *method_table() { return kTensorMethods; }

PyGetSetDef kTensorGetSet[] = {
    guarded_attribute<get_shape>("shape", "The extents, a modtree.Size."),
    guarded_attribute<get_dtype>("dtype", "The type of the elements."),
    guarded_attribute<get_device>("device", "Where the values are: 'cpu', or 'meta' for nowhere."),
    guarded_attribute<get_ndim>("ndim", "Number of dimensions."),
    guarded_attribute<get_is_meta>("is_meta",
                                   "True if it has only a shape and a dtype, without values."),
    guarded_attribute<get_false>("is_cuda", nullptr),
    guarded_attribute<get_false>("is_sparse", nullptr),
    guarded_attribute<get_false>("is_quantized", nullptr),
    guarded_attribute<get_false>("is_mps", nullptr),
    guarded_attribute<get_requires_grad, put_requires_grad>(
        "requires_grad", "True if gradients are wanted for this tensor."),
    guarded_attribute<get_is_leaf>("is_leaf", "True unless a recorded operation made it."),
    guarded_attribute<get_grad, put_grad>("grad", "The gradient, or None."),
    guarded_attribute<get_grad_fn>("grad_fn", "The operation that made it, or None."),
    guarded_attribute<get_output_nr>("output_nr", "Which output of grad_fn it is."),
    guarded_attribute<get_retains_grad>("retains_grad",
                                        "True if the gradient of this non-leaf is kept."),
    guarded_attribute<get_base>("_base", "The tensor that this one is a view of, or None."),
    guarded_attribute<get_data, put_data>("data",
                                          "The same memory without gradients; may be replaced."),
    guarded_attribute<get_version>("_version", "Counts changes in place."),
    {"_array", entry<get_array>, nullptr, "The ndarray inside: for reading and for its values.",
     nullptr},
    {"_array_view", entry<get_array_view>, nullptr, "An ndarray over its memory, for user code.",
     nullptr},
    {"_plain_view", entry<get_plain_view>, nullptr, "What numpy() gives, or None: it has to ask.",
     nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

PyMethodDef *tensor_methods() { return kTensorMethods; }
PyGetSetDef *tensor_getset() { return kTensorGetSet; }

}  // namespace modtree
