// SPDX-License-Identifier: BSD-3-Clause
#define MODTREE_IMPORT_ARRAY
#include "bind/bind_tensor.h"

#include "tensor/autograd/record.h"
#include "tensor/create.h"
#include "tensor/dtype.h"
#include "tensor/float_errors.h"
#include "tensor/grad_mode.h"
#include "tensor/numpy_family.h"
#include "tensor/op.h"
#include "tensor/override.h"
#include "tensor/parameter_pickle.h"
#include "tensor/promote.h"
#include "tensor/slot_ops.h"
#include "tensor/special.h"
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

py::object result_type(const py::args &args) {
  ResultType type;
  for (py::handle arg : args) {
    DTypeCategory category;
    if (is_tensor(arg.ptr())) {
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

// Docs that start with the parameters are what inspect.signature() reads of a builtin; pybind11's
// own first line would stand before it.
void bind_dtypes(py::module_ &m) {
  py::options options;
  options.disable_function_signatures();
  m.def(
      "as_dtype", [](py::handle obj) { return dtype_object(dtype_argument(obj)); },
      "as_dtype(value, /)\n--\n\nThe dtype that a dtype, a NumPy dtype or a name stands for.");
  m.def(
      "get_default_dtype", [] { return dtype_object(dtype_of_num(default_float_num())); },
      "get_default_dtype()\n--\n\nThe floating dtype that tensors have when none is said.");
  m.def("set_default_dtype", &set_default_dtype,
        "set_default_dtype(d, /)\n--\n\nSets what get_default_dtype() returns.");
  m.def(
      "_promote_types",
      [](py::handle a, py::handle b) {
        DTypeObject *first = dtype_argument(a);
        return dtype_object(dtype_of_num(promote_nums(first->num, dtype_argument(b)->num)));
      },
      "_promote_types(type1, type2, /)\n--\n\nThe smallest dtype that both convert to.");
  m.def("_result_type", &result_type,
        "_result_type(*tensors)\n--\n\nThe dtype of arithmetic on these tensors and numbers.");
}

void bind_grad_mode(py::module_ &m) {
  py::options options;
  options.disable_function_signatures();
  m.def("is_grad_enabled", &grad_enabled,
        "is_grad_enabled()\n--\n\nAre operations of this thread recorded?");
  m.def("_set_grad_enabled", &set_grad_enabled, py::arg("mode"),
        "_set_grad_enabled(mode)\n--\n\nReturns the old value.");
  m.def("is_inference_mode_enabled", &inference_mode,
        "is_inference_mode_enabled()\n--\n\nIs this thread in inference_mode()?");
  m.def("_set_inference_mode", &set_inference_mode);
}

void bind_create(py::module_ &m) {
  m.def("from_array", &from_array, py::arg("array"), py::arg("requires_grad") = false);
  m.def("empty_meta", &empty_meta, py::arg("shape"), py::arg("dtype"),
        py::arg("requires_grad") = false);
  m.def("make_subclass", &make_subclass, py::arg("cls"), py::arg("data"),
        py::arg("requires_grad") = false);
  m.def("as_subclass", [](py::object tensor, py::type cls) {
    PyObject *result = as_subclass(tensor.ptr(), reinterpret_cast<PyTypeObject *>(cls.ptr()));
    if (result == nullptr) {
      throw py::error_already_set();
    }
    return py::reinterpret_steal<py::object>(result);
  });
  m.def("_has_compatible_shallow_copy_type", [](py::handle tensor, py::handle other) {
    return tensor_argument(tensor)->is_meta == tensor_argument(other)->is_meta;
  });
  m.def("wrap", [](py::object result) {
    PyObject *wrapped = wrap_result(result.release().ptr());
    if (wrapped == nullptr) {
      throw py::error_already_set();
    }
    return py::reinterpret_steal<py::object>(wrapped);
  });
}

void bind_changes(py::module_ &m) {
  m.def("swap_contents", &swap_contents);
  m.def("_version_of", [](py::handle tensor) -> std::uint32_t {
    VersionCell *cell = tensor_argument(tensor)->cell;
    return cell == nullptr ? 0 : cell->version;
  });
  m.def("bump_version", [](py::handle tensor) {
    if (bump_version(tensor_argument(tensor)) < 0) {
      throw py::error_already_set();
    }
  });
  // All values of `tensor` were replaced: nothing flows back to what they were.
  m.def(
      "overwritten",
      [](py::handle tensor, py::handle value) {
        TensorObject *target = tensor_argument(tensor);
        InplaceRecord recorded;
        if (begin_fill(recorded, target, value.ptr()) < 0 || recorded.finish(target) < 0) {
          throw py::error_already_set();
        }
      },
      py::arg("tensor"), py::arg("value") = py::none());
  // Raises unless `tensor` may be changed in place now.
  m.def(
      "check_inplace",
      [](py::handle tensor, py::handle value) {
        TensorObject *target = tensor_argument(tensor);
        PyObject *other = value.ptr();
        if (check_inplace(target, any_needs_grad(&other, 1)) < 0) {
          throw py::error_already_set();
        }
      },
      py::arg("tensor"), py::arg("value") = py::none());
}

}  // namespace

void bind_tensor(py::module_ &m) {
  if (PyArray_ImportNumPyAPI() < 0) {
    throw py::error_already_set();
  }
  make_dtypes(m);
  make_tensor_type(m);
  make_op_type(m);
  add_protocol(m);
  init_float_errors();
  init_numpy_family();
  add_parameter_pickling(m);
  add_special_functions(m);
  bind_dtypes(m);
  bind_grad_mode(m);
  bind_create(m);
  bind_changes(m);
}

}  // namespace modtree
