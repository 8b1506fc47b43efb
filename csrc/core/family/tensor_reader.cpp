// SPDX-License-Identifier: BSD-3-Clause
#include "family/tensor_reader.h"

#include <limits>

#include "python/call.h"
#include "python/interned.h"
#include "python/loaded_library.h"
#include "python/owned.h"

namespace modtree {

namespace {

PyTypeObject *as_type(py::handle type) {
  if (!PyType_Check(type.ptr())) {
    throw py::type_error("a tensor class must be a class");
  }
  return reinterpret_cast<PyTypeObject *>(type.ptr());
}

// In the order of TensorAttribute.
constexpr std::array<PyObject * Names::*, kTensorAttributes> kAttributeNames = {
    &Names::shape, &Names::is_meta, &Names::requires_grad,
    &Names::grad,  &Names::grad_fn, &Names::dtype,
};

// A question that is answered by True or False; -1 on error.
int ask(py::handle function, PyObject *argument) {
  const Owned answer = call(function, argument);
  return answer ? PyObject_IsTrue(answer.ptr()) : -1;
}

// The number that a function answers with: false on error.
bool ask_number(py::handle function, py::handle argument, std::size_t *number) {
  const Owned answer = call(function, argument);
  *number = answer ? PyLong_AsSize_t(answer.ptr()) : 0;
  return answer && !PyErr_Occurred();
}

// True if the instance has an entry under the name of a method. Such an entry takes precedence over
// a method, but not over the attributes, which are data descriptors.
bool has_own_method(PyObject *tensor, PyObject *name) {
  if (lacks_own_attribute(tensor, name)) {
    return false;
  }
  const Owned method = steal(PyObject_GetAttr(tensor, name));
  PyErr_Clear();
  return !method || !PyCFunction_Check(method.ptr()) ||
         PyCFunction_GET_SELF(method.ptr()) != tensor;
}

}  // namespace

TensorReader::TensorReader(py::handle tensor_type, py::handle parameter_type,
                           py::handle description) {
  if (description.is_none()) {
    return;
  }
  classes_[0].type = as_type(tensor_type);
  classes_[1].type = as_type(parameter_type);
  attributes_ = steal(PyDict_Copy(py::dict(description.attr("attributes")).ptr()));
  if (!attributes_) {
    throw py::error_already_set();
  }
  int8_ = description.attr("int8");
  uint8_ = description.attr("uint8");
  is_neg_ = description.attr("is_neg");
  is_conj_ = description.attr("is_conj");
  untyped_storage_ = description.attr("untyped_storage");
  storage_nbytes_ = description.attr("storage_nbytes");
  storage_address_ = description.attr("storage_address");
  find_modes(description.attr("library"), description.attr("modes"));
  const py::object function_modes = description.attr("function_modes");
  for (const Mode &mode : modes_) {
    if (mode.function.is(function_modes)) {
      count_function_modes_ = mode.count;
    }
  }
  const char *transforms = PyUnicode_AsUTF8(py::object(description.attr("transforms")).ptr());
  const char *library = PyUnicode_AsUTF8(py::object(description.attr("library")).ptr());
  if (!transforms || !library) {
    throw py::error_already_set();
  }
  sizes_.find(library);
  grads_.find(library);
  transforms_ =
      reinterpret_cast<const void *const *(*)()>(find_in_loaded_library(library, transforms));
  if (find_attributes()) {
    find_table(description.attr("exchange"));
  }
}

void TensorReader::find_table(py::handle capsule) {
  if (!PyCapsule_IsValid(capsule.ptr(), dlpack::kTableName)) {
    return;
  }
  auto *header = static_cast<const dlpack::TableHeader *>(
      PyCapsule_GetPointer(capsule.ptr(), dlpack::kTableName));
  while (header && header->version.major > dlpack::kMajorVersion) {
    header = header->previous;
  }
  if (!header || header->version.major != dlpack::kMajorVersion) {
    return;
  }
  const auto *table = reinterpret_cast<const dlpack::Table *>(header);
  // The specification has it that a table lives as long as the process.
  table_ = table->dltensor_from_py_object_no_sync ? table : nullptr;
}

PyObject *TensorReader::descriptor(PyObject *name, PyTypeObject *type) const {
  PyObject *found = dict_get(attributes_.ptr(), name);
  if (!found && PyErr_Occurred()) {
    throw py::error_already_set();
  }
  if (!found || !Py_IS_TYPE(found, type)) {
    return nullptr;
  }
  // What CPython checks whenever a descriptor is used.
  PyTypeObject *owner = PyDescr_TYPE(found);
  return PyType_IsSubtype(classes_[0].type, owner) != 0 &&
                 PyType_IsSubtype(classes_[1].type, owner) != 0
             ? found
             : nullptr;
}

bool TensorReader::find_attributes() {
  for (std::size_t i = 0; i < kTensorAttributes; ++i) {
    PyObject *found = descriptor(names.*kAttributeNames[i], &PyGetSetDescr_Type);
    const PyGetSetDef *definition =
        found ? reinterpret_cast<PyGetSetDescrObject *>(found)->d_getset : nullptr;
    if (!definition || !definition->get) {
      return false;
    }
    getters_[i] = Getter{definition->get, definition->closure};
    if (static_cast<TensorAttribute>(i) == TensorAttribute::grad) {
      set_grad_ = Setter{definition->set, definition->closure};
    }
  }
  PyObject *method = descriptor(names.detach, &PyMethodDescr_Type);
  const PyMethodDef *definition =
      method ? reinterpret_cast<PyMethodDescrObject *>(method)->d_method : nullptr;
  if (definition && definition->ml_flags == METH_NOARGS) {
    detach_ = definition->ml_meth;
  }
  return set_grad_.function != nullptr;
}

void TensorReader::find_modes(py::handle library, py::handle modes) {
  const char *path = PyUnicode_AsUTF8(library.ptr());
  const Owned pairs = path ? steal(PyDict_Items(py::dict(borrow(modes.ptr())).ptr())) : Owned();
  if (!pairs) {
    throw py::error_already_set();
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(pairs.ptr()); ++i) {
    PyObject *pair = PyList_GET_ITEM(pairs.ptr(), i);
    const char *symbol = PyUnicode_AsUTF8(PyTuple_GET_ITEM(pair, 0));
    if (!symbol) {
      throw py::error_already_set();
    }
    modes_.push_back(
        Mode{reinterpret_cast<std::int64_t (*)()>(find_in_loaded_library(path, symbol)),
             borrow(PyTuple_GET_ITEM(pair, 1))});
  }
}

bool TensorReader::compare(PyTypeObject *type) const {
  Py_ssize_t position = 0;
  PyObject *name, *value;
  while (dict_next_item(attributes_.ptr(), &position, &name, &value)) {
    if (type_lookup(type, name).ptr() != value) {
      return false;
    }
  }
  return type->tp_getattro == PyObject_GenericGetAttr;
}

bool TensorReader::look_at(Class *of) {
  // A lookup gives the class a version. It is read before the rest, as user code may run there.
  type_lookup(of->type, names.shape);
  const TypeVersion version = type_version(of->type);
  const bool answer = compare(of->type);
  of->answer = answer;
  of->is_known_plain = answer && version != 0;
  of->version = version;
  return answer;
}

void TensorReader::compare_grad(PyObject *tensor, bool gave_none) {
  // A mode may say what it likes.
  if (count_function_modes_ && count_function_modes_() == 0 && is_known_plain(tensor) &&
      sizes_.knows_layout(tensor)) {
    grads_.compare(TensorSizes::tensor_of(tensor), gave_none);
  }
}

bool TensorReader::has_no_mode() const {
  for (const Mode &mode : modes_) {
    if (mode.count) {
      if (mode.count() != 0) {
        return false;
      }
      continue;
    }
    const Owned count = steal(PyObject_CallNoArgs(mode.function.ptr()));
    if (!count || PyLong_AsLong(count.ptr()) != 0) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

bool TensorReader::is_readable(PyObject *tensor) {
  return table_ && is_plain(tensor) && has_no_mode();
}

bool TensorReader::fill(PyObject *tensor, dlpack::Tensor *out) {
  if (expects_meta_) {
    const Owned is_meta = steal(get(TensorAttribute::is_meta, tensor));
    if (is_meta.ptr() != Py_False) {
      PyErr_Clear();
      return false;
    }
  }
  expects_meta_ = table_->dltensor_from_py_object_no_sync(tensor, out) != 0;
  if (expects_meta_) {
    PyErr_Clear();
    return false;
  }
  return out->ndim >= 0 && out->ndim <= TensorFacts::kMaxDims && out->byte_offset == 0 &&
         (out->ndim == 0 || (out->shape && out->strides));
}

Read TensorReader::read(PyObject *tensor, TensorFacts *facts) {
  dlpack::Tensor found;
  if (!is_readable(tensor) || !fill(tensor, &found)) {
    return Read::unknown;
  }
  facts->dtype = found.dtype;
  facts->device = found.device;
  facts->ndim = found.ndim;
  std::copy(found.shape, found.shape + found.ndim, facts->shape);
  std::copy(found.strides, found.strides + found.ndim, facts->strides);
  facts->data = static_cast<const std::byte *>(found.data);
  return Read::done;
}

int TensorReader::same_shape(PyObject *tensor, PyObject *other, bool *any_meta) {
  if (!is_readable(tensor) || !is_plain(other)) {
    return -1;
  }
  if (sizes_.knows_layout(tensor) && sizes_.knows_layout(other)) {
    TensorSizes::Sizes mine, theirs;
    if (sizes_.read(tensor, &mine) && sizes_.read(other, &theirs)) {
      *any_meta = sizes_.is_meta(mine) || sizes_.is_meta(theirs);
      return mine.equal(theirs);
    }
  }
  TensorFacts facts, others;
  *any_meta = false;
  if (read(tensor, &facts) != Read::done || read(other, &others) != Read::done) {
    return -1;
  }
  return facts.has_shape_of(others);
}

bool TensorReader::has_requires_grad(PyObject *tensor, bool flag) const {
  // A function transform refuses the call, whatever it would do.
  if (!transforms_ || *transforms_() || !has_no_mode() ||
      has_own_method(tensor, names.requires_grad_)) {
    return false;
  }
  const Owned current = steal(get(TensorAttribute::requires_grad, tensor));
  PyErr_Clear();
  return current.ptr() == (flag ? Py_True : Py_False);
}

bool TensorReader::has_told_dtype(PyObject *tensor, const TensorFacts &facts) const {
  const bool is_int = facts.dtype.code == dlpack::kInt;
  if (facts.dtype.bits != 8 || (!is_int && facts.dtype.code != dlpack::kUInt)) {
    return true;
  }
  const Owned dtype = steal(get(TensorAttribute::dtype, tensor));
  PyErr_Clear();
  return dtype.is(is_int ? int8_ : uint8_);
}

int TensorReader::is_as_stored(PyObject *tensor, const TensorFacts &facts) const {
  const int is_neg = ask(is_neg_, tensor);
  if (is_neg != 0 || facts.dtype.code != dlpack::kComplex) {
    return is_neg < 0 ? -1 : !is_neg;
  }
  const int is_conj = ask(is_conj_, tensor);
  return is_conj < 0 ? -1 : !is_conj;
}

int TensorReader::is_within_storage(PyObject *tensor, const TensorFacts &facts) const {
  // The distance from the first element to the end of the last one.
  std::int64_t reach = 1;
  for (int i = 0; i < facts.ndim; ++i) {
    if (facts.shape[i] == 0) {
      return 1;
    }
    const std::int64_t steps = facts.shape[i] - 1;
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 32;  // in bytes
    if (facts.strides[i] < 0 || (steps != 0 && facts.strides[i] > (kMost - reach) / steps)) {
      return 0;
    }
    reach += steps * facts.strides[i];
  }
  std::size_t size, address;
  const Owned storage = call(untyped_storage_, tensor);
  if (!storage || !ask_number(storage_nbytes_, storage, &size) ||
      !ask_number(storage_address_, storage, &address)) {
    return -1;
  }
  const auto begin = reinterpret_cast<std::size_t>(facts.data);
  const std::size_t bytes = static_cast<std::size_t>(reach) * (facts.dtype.bits / 8U);
  return begin != 0 && begin >= address && begin - address <= size &&
         bytes <= size - (begin - address);
}

Read TensorReader::read_values(PyObject *tensor, TensorFacts *facts) {
  const Read done = read(tensor, facts);
  if (done != Read::done || facts->device.type != dlpack::kCpu || facts->dtype.lanes != 1 ||
      facts->dtype.bits % 8 != 0 || !has_told_dtype(tensor, *facts)) {
    return done == Read::error ? done : Read::unknown;
  }
  const int as_stored = is_as_stored(tensor, *facts);
  const int within = as_stored <= 0 ? as_stored : is_within_storage(tensor, *facts);
  if (within < 0 && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
    PyErr_Clear();  // there is a storage, but without memory
    return Read::unknown;
  }
  return within < 0 ? Read::error : within ? Read::done : Read::unknown;
}

}  // namespace modtree
