// SPDX-License-Identifier: BSD-3-Clause
#define MODTREE_IMPORT_ARRAY
#include "bind/array.h"
#include "bind/parts.h"
#include "python/checked.h"
#include "tensor/array_view.h"
#include "tensor/autograd/record.h"
#include "tensor/create.h"
#include "tensor/dtype.h"
#include "tensor/fitted.h"
#include "tensor/float_errors.h"
#include "tensor/grad_mode.h"
#include "tensor/numpy_family.h"
#include "tensor/op.h"
#include "tensor/override.h"
#include "tensor/parameter_pickle.h"
#include "tensor/promote.h"
#include "tensor/subscript.h"
#include "tensor/value_methods.h"

namespace modtree {

namespace {

TensorObject *tensor_argument(py::handle value) {
  if (!is_tensor(value.ptr())) {
    throw py::type_error("expected a Tensor");
  }
  return as_tensor(value.ptr());
}

// Borrowed; throws.
DTypeObject *dtype_argument(py::handle value) {
  DTypeObject *found = dtype_from_object(value.ptr());
  if (found == nullptr) {
    throw py::error_already_set();
  }
  return found;
}

py::object dtype_object(DTypeObject *dtype) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(dtype));
}

py::object result_type(const py::tuple &tensors) {
  ResultType type;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors.ptr()); ++i) {
    const py::handle arg = PyTuple_GET_ITEM(tensors.ptr(), i);
    DTypeCategory category;
    if (is_tensor(arg.ptr()) && dtype_of(as_tensor(arg.ptr())->array) != nullptr) {
      type.add_array(as_tensor(arg.ptr())->array);
    } else if (number_category(arg.ptr(), &category)) {
      type.add_number(category);
    } else {
      throw py::type_error("result_type takes tensors and numbers");
    }
  }
  int num = type.result();
  if (num < 0) {
    throw py::type_error("result_type needs at least one argument");
  }
  return dtype_object(dtype_of_num(num));
}

py::object as_dtype(py::handle value) { return dtype_object(dtype_argument(value)); }

py::object get_default_dtype() { return dtype_object(dtype_of_num(default_float_num())); }

py::object promote_types(py::handle a, py::handle b) {
  DTypeObject *first = dtype_argument(a);
  return dtype_object(dtype_of_num(promote_nums(first->num, dtype_argument(b)->num)));
}

py::object fit_number(py::handle number, py::handle dtype) {
  return owned(fitted_number(number.ptr(), dtype_argument(dtype)));
}

void bind_dtypes(Functions &m) {
  m.def<fit_number>("fitted_number(number, dtype, /)",
                    "The number as an element of the dtype; RuntimeError where it does not fit.");
  m.def<as_dtype>("as_dtype(value, /)",
                  "The dtype that a dtype, a NumPy dtype or a name stands for.");
  m.def<get_default_dtype>("get_default_dtype()",
                           "The floating dtype that tensors have when none is said.");
  m.def<set_default_dtype>("set_default_dtype(d, /)", "Sets what get_default_dtype() returns.");
  m.def<promote_types>("_promote_types(type1, type2, /)",
                       "The smallest dtype that both convert to.");
  m.def<result_type>("_result_type(*tensors)",
                     "The dtype of arithmetic on these tensors and numbers.");
}

void bind_grad_mode(Functions &m) {
  m.def<grad_enabled>("is_grad_enabled()", "True if operations of this thread are recorded.");
  m.def<set_grad_enabled>("_set_grad_enabled(mode)", "Returns the old value.");
  m.def<inference_mode>("is_inference_mode_enabled()",
                        "True if this thread is in inference_mode().");
  m.def<set_inference_mode>("_set_inference_mode(mode, /)", "Returns the old value.");
}

py::object subclass_of(const py::object &tensor, const py::type &cls) {
  return owned(as_subclass(tensor.ptr(), reinterpret_cast<PyTypeObject *>(cls.ptr())));
}

bool has_compatible_shallow_copy_type(py::handle tensor, py::handle other) {
  return tensor_argument(tensor)->is_meta == tensor_argument(other)->is_meta;
}

py::object wrap(py::object result, bool shared) {
  return owned(wrap_result(result.release().ptr(), shared));
}

Array shown_array(const Array &array) {
  return py::reinterpret_borrow<Array>(owned(shown_view(as_array(array.ptr()))));
}

Array owner_of_array(const Array &array) {
  return py::reinterpret_borrow<Array>(as_object(owner_of_memory(as_array(array.ptr()))));
}

void bind_create(Functions &m) {
  m.def<from_array>("from_array(array, requires_grad=False)",
                    "A tensor over the memory of an array.");
  m.def<own_array>("own_array(array, requires_grad=False)",
                   "A tensor that holds the array itself, which nobody else does.");
  m.def<shown_array>("shown_view(array, /)", "An array over its memory that user code may get.");
  m.def<owner_of_array>("owner_of(array, /)", "The array that owns the memory.");
  m.def<empty_meta>("empty_meta(shape, dtype, requires_grad=False)", "A tensor without values.");
  m.def<make_subclass>("make_subclass(cls, data, requires_grad=False)",
                       "A tensor of a class, on the memory of another.");
  m.def<subclass_of>("as_subclass(tensor, cls, /)", "The tensor as one of a subclass.");
  m.def<has_compatible_shallow_copy_type>("_has_compatible_shallow_copy_type(tensor, other, /)",
                                          "True if the contents of one can be put into the other.");
  m.def<wrap>("wrap(value, shared=False)",
              "The result of an operation of NumPy as tensors; shared: user code may hold arrays "
              "of it.");
}

void note_change(py::handle tensor) {
  if (bump_version(tensor_argument(tensor)) < 0) {
    throw py::error_already_set();
  }
}

void overwritten(py::handle tensor, py::handle value) {
  TensorObject *target = tensor_argument(tensor);
  InplaceRecord recorded;
  if (begin_fill(recorded, target, value.ptr()) < 0 || recorded.finish(target) < 0) {
    throw py::error_already_set();
  }
}

void need_inplace(py::handle tensor, py::handle value) {
  TensorObject *target = tensor_argument(tensor);
  PyObject *other = value.ptr();
  if (check_inplace(target, any_needs_grad(&other, 1)) < 0) {
    throw py::error_already_set();
  }
}

void bind_changes(Functions &m) {
  m.def<swap_contents>("swap_contents(tensor, other, /)", "Exchanges all but their identity.");
  m.def<note_change>("bump_version(tensor, /)", "Notes that it was changed in place.");
  m.def<overwritten>("overwritten(tensor, value=None)",
                     "Notes that all of its values were replaced: nothing flows back to what they "
                     "were.");
  m.def<need_inplace>("check_inplace(tensor, value=None)",
                      "Raises unless it may be changed in place now.");
}

}  // namespace

void bind_tensor(Functions &functions) {
  const py::handle m = functions.module();
  if (PyArray_ImportNumPyAPI() < 0) {
    throw py::error_already_set();
  }
  make_dtypes(m);
  make_array_view_type(m);
  make_tensor_type(m);
  make_op_type(m);
  add_protocol(m);
  init_float_errors();
  init_numpy_family();
  add_parameter_pickling(m);
  add_index_functions(m);
  bind_dtypes(functions);
  bind_grad_mode(functions);
  bind_create(functions);
  bind_changes(functions);
}

}  // namespace modtree
