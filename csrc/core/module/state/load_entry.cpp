// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/load_entry.h"

#include "module/state/replaced_tensors.h"
#include "module/torch_facts.h"
#include "python/owned.h"

namespace modtree {

namespace {

// The shape of a tensor, or of something that only looks like one: new reference, null on error.
PyObject *shape_of(PyObject *value) {
  TensorFamily *family;
  const int is_tensor = family_of(value, &family);
  if (is_tensor < 0) {
    return nullptr;
  }
  return is_tensor ? family->shape(value) : PyObject_GetAttr(value, names.shape);
}

// 1 when the tensor is 0-dimensional and the source has one dimension, from which it takes the
// first element; -1 on error.
int takes_first(PyObject *tensor, PyObject *source) {
  const Owned mine = steal(shape_of(tensor));
  const Owned theirs = mine ? steal(shape_of(source)) : Owned();
  if (!theirs) {
    return -1;
  }
  const Py_ssize_t my_length = PyObject_Size(mine.ptr());
  const Py_ssize_t length = my_length < 0 ? -1 : PyObject_Size(theirs.ptr());
  if (length < 0) {
    return -1;
  }
  if (my_length != 0 || length != 1) {
    return 0;
  }
  if (!torch_facts.scalars_from_one) {
    return 1;
  }
  const Owned size = steal(PySequence_GetItem(theirs.ptr(), 0));
  const long first = size ? PyLong_AsLong(size.ptr()) : -1;
  return first == -1 && PyErr_Occurred() ? -1 : first == 1;
}

PyObject *size_mismatch(PyObject *key, PyObject *tensor, PyObject *source) {
  // As the libraries print them.
  const Owned theirs = steal(shape_of(source));
  const Owned mine = theirs ? steal(shape_of(tensor)) : Owned();
  if (!mine) {
    return nullptr;
  }
  return PyUnicode_FromFormat("size mismatch for %U: copying a param with shape %S from "
                              "checkpoint, the shape in current model is %S.",
                              key, theirs.ptr(), mine.ptr());
}

// What `Parameter` slots get in assign and swap mode: new reference, null on error.
PyObject *as_parameter_like(const LoadEntry &entry, PyObject *value) {
  const int slot_is_parameter = entry.family->is_parameter(entry.tensor);
  if (slot_is_parameter <= 0) {
    return slot_is_parameter < 0 ? nullptr : Py_NewRef(value);
  }
  const int requires_grad = entry.family->requires_grad(entry.tensor);
  // Mostly of the same kind as what it replaces.
  TensorFamily *family = entry.family->is_own_type(value) ? entry.family : nullptr;
  const int is_tensor = requires_grad < 0 ? -1 : family ? 1 : family_of(value, &family);
  const int is_parameter = is_tensor > 0 ? family->is_parameter(value) : is_tensor;
  if (is_tensor < 0 || is_parameter < 0) {
    return nullptr;
  }
  if (!is_parameter) {
    return (is_tensor ? family : entry.family)->make_parameter(value, requires_grad != 0);
  }
  return family->set_requires_grad(value, requires_grad != 0) < 0 ? nullptr : Py_NewRef(value);
}

int swap_in(const LoadEntry &entry, const LoadMode &mode, PyObject *source) {
  const Owned loaded =
      steal(PyObject_CallMethod(entry.family->object.ptr(), "module_load", "OOO", entry.tensor,
                                source, mode.assign ? Py_True : Py_False));
  if (!loaded) {
    return -1;
  }
  if (loaded.ptr() == source || loaded.ptr() == entry.tensor) {
    PyErr_SetString(
        PyExc_RuntimeError,
        "module_load returned one of self or other, please .detach() the result if returning one "
        "of the inputs in module_load");
    return -1;
  }
  const Owned replacement = steal(as_parameter_like(entry, loaded.ptr()));
  if (!replacement) {
    return -1;
  }
  const Owned done = steal(PyObject_CallMethod(entry.family->object.ptr(), "swap_tensors", "OO",
                                               entry.tensor, replacement.ptr()));
  return done ? 0 : -1;
}

// What a module takes with `assign`: a tensor of the library of the one it has. New reference, null
// on error.
PyObject *of_same_library(const LoadEntry &entry, PyObject *source) {
  TensorFamily *family;
  const int is_tensor = family_of(source, &family);
  if (is_tensor < 0) {
    return nullptr;
  }
  if (!is_tensor || family->object.is(entry.family->object)) {
    return Py_NewRef(source);
  }
  return PyObject_CallMethod(entry.family->object.ptr(), "converted", "O", source);
}

}  // namespace

int swaps(const LoadEntry &entry, const LoadMode &mode) {
  const int own = mode.swap ? own_switch(ConversionSwitch::swap) : 0;
  return own == 0 && mode.swap && entry.family
             ? entry.family->conversion_switch(ConversionSwitch::swap)
             : own;
}

int warn_of_meta_copy(PyObject *key) {
  return warn_as_torch(
      ": copying from a non-meta",
      PyUnicode_FromFormat("for %U: copying from a non-meta parameter in the checkpoint to a meta "
                           "parameter in the current model, "
                           "which is a no-op. (Did you mean to pass `assign=True`, which puts the "
                           "tensors of the checkpoint in place "
                           "of those of the module?)",
                           key));
}

int check_entry(const LoadEntry &entry, const LoadMode &mode, py::object *source,
                py::object *message) {
  if (entry.family && entry.family->is_copied_plainly(entry.tensor, source->ptr())) {
    return 1;
  }
  TensorFamily *source_family;
  int is_tensor = family_of(source->ptr(), &source_family);
  if (is_tensor == 0) {
    is_tensor = is_tensor_like(source->ptr());
  }
  if (is_tensor == 0 && entry.family) {
    is_tensor = entry.family->takes_source(source->ptr());
  }
  if (is_tensor <= 0) {
    if (is_tensor == 0) {
      *message = steal(PyUnicode_FromFormat("While copying the parameter named \"%U\", expected "
                                            "torch.Tensor or Tensor-like object from "
                                            "checkpoint but received %R",
                                            entry.key, Py_TYPE(source->ptr())));
    }
    return is_tensor == 0 && *message ? 0 : -1;
  }
  if (!entry.family) {
    const Owned shape = steal(PyObject_GetAttr(entry.tensor, names.shape));
    if (shape) {
      PyErr_Format(PyExc_TypeError,
                   "cannot load '%U': the module holds a %.200s there, which is no tensor of a "
                   "known library",
                   entry.key, Py_TYPE(entry.tensor)->tp_name);
    }
    return -1;
  }
  const int uninitialized = entry.family->is_uninitialized(entry.tensor);
  int same = uninitialized ? uninitialized : entry.family->same_shape(entry.tensor, source->ptr());
  if (same == 0) {
    same = takes_first(entry.tensor, source->ptr());
    if (same > 0) {
      const Owned index = steal(PyLong_FromLong(0));
      *source = steal(index ? PyObject_GetItem(source->ptr(), index.ptr()) : nullptr);
      if (!*source) {
        return -1;
      }
    }
  }
  if (same <= 0) {
    if (same == 0) {
      *message = steal(size_mismatch(entry.key, entry.tensor, source->ptr()));
    }
    return same == 0 && *message ? 0 : -1;
  }
  if (mode.assign) {
    return 1;
  }
  const int is_meta = entry.family->is_meta(entry.tensor);
  if (is_meta <= 0) {
    return is_meta < 0 ? -1 : 1;
  }
  if (family_of(source->ptr(), &source_family) < 0) {
    return -1;
  }
  const int source_is_meta = source_family ? source_family->is_meta(source->ptr()) : 0;
  return source_is_meta < 0 ? -1 : source_is_meta ? 1 : 2;
}

int try_to_store(const LoadEntry &entry, const LoadMode &mode, PyObject *source) {
  if (entry.family->is_immutable()) {
    return replace_entry(entry, mode, source);
  }
  const int swap = swaps(entry, mode);
  if (swap != 0) {
    return swap < 0 ? -1 : swap_in(entry, mode, source);
  }
  if (!mode.assign) {
    return entry.family->copy_into(entry.tensor, source);
  }
  const Owned own = steal(of_same_library(entry, source));
  const Owned value = own ? steal(as_parameter_like(entry, own.ptr())) : Owned();
  return value ? PyObject_SetAttr(entry.module, entry.name, value.ptr()) : -1;
}

bool take_failure(Owned *exception) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) {
    return false;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Owned held_type = steal(type), held_traceback = steal(traceback);
  *exception = steal(value);
  return true;
}

namespace {

// value.size(), or the shape where `size` is something else: new reference, null on error.
PyObject *dimensions_of(PyObject *value) {
  const Owned size = steal(PyObject_GetAttr(value, names.size));
  if (!size) {
    return nullptr;
  }
  return PyCallable_Check(size.ptr()) ? PyObject_CallNoArgs(size.ptr()) : shape_of(value);
}

}  // namespace

PyObject *failure_message(const LoadEntry &entry, const LoadMode &mode, PyObject *source,
                          const Owned &exception) {
  const Owned args = steal(PyObject_GetAttrString(exception.ptr(), "args"));
  const Owned mine = args ? steal(dimensions_of(entry.tensor)) : Owned();
  const Owned theirs = mine ? steal(dimensions_of(source)) : Owned();
  const int swap = theirs ? swaps(entry, mode) : -1;
  if (swap < 0) {
    return nullptr;
  }
  return PyUnicode_FromFormat("While %s the parameter named \"%U\", whose dimensions in the model "
                              "are %S and whose dimensions in the "
                              "checkpoint are %S, an exception occurred : %S.",
                              swap ? "swapping" : "copying", entry.key, mine.ptr(), theirs.ptr(),
                              args.ptr());
}

int store_entry(const LoadEntry &entry, const LoadMode &mode, PyObject *source, Owned *message) {
  if (try_to_store(entry, mode, source) == 0) {
    return 1;
  }
  Owned exception;
  if (!take_failure(&exception)) {
    return -1;
  }
  *message = steal(failure_message(entry, mode, source, exception));
  return *message ? 0 : -1;
}

}  // namespace modtree
