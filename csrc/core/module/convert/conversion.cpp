// SPDX-License-Identifier: BSD-3-Clause
#include "module/convert/conversion.h"

#include <structmember.h>

#include <cstddef>
#include <string_view>

#include "family/family.h"
#include "python/native_section.h"
#include "python/new_type.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

// Which tensors get the dtype; the device is for all.
enum class Scope : std::uint8_t { all, floating, inexact };

struct ConversionObject {
  PyObject_HEAD PyObject *device;
  PyObject *dtype;
  PyObject *memory_format;
  vectorcallfunc vectorcall;
  Scope scope;
  bool non_blocking;
  bool hint;
};

// Converts each tensor once. `done` maps id(tensor) to (tensor, replacement); the tensor is kept so
// that its id stays its own.
struct KeepTiesObject {
  PyObject_HEAD PyObject *fn;
  PyObject *done;
};

PyTypeObject *conversion_type = nullptr;
PyTypeObject *keep_ties_type = nullptr;

// 1 when the dtype is for this tensor, 0 when not, -1 on error.
int takes_dtype(const ConversionObject *self, TensorFamily *family, PyObject *tensor) {
  if (self->dtype == Py_None || self->scope == Scope::all) {
    return 1;
  }
  const int floating = family->is_floating_point(tensor);
  return floating != 0 || self->scope == Scope::floating ? floating : family->is_complex(tensor);
}

// memory_format is for 4-D and 5-D tensors only; -1 on error.
int takes_memory_format(const ConversionObject *self, TensorFamily *family, PyObject *tensor) {
  if (self->memory_format == Py_None) {
    return 0;
  }
  const auto shape = py::reinterpret_steal<py::object>(family->shape(tensor));
  const Py_ssize_t dims = shape ? PyObject_Size(shape.ptr()) : -1;
  return dims < 0 ? -1 : dims == 4 || dims == 5;
}

// A meta tensor has nothing to copy: says what to do instead.
void add_hint() {
  if (!PyErr_ExceptionMatches(PyExc_NotImplementedError)) {
    return;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const auto text =
      py::reinterpret_steal<py::object>(value ? PyObject_Str(value) : PyUnicode_FromString(""));
  if (!text || PyUnicode_Find(text.ptr(), py::str("meta tensor").ptr(), 0, PY_SSIZE_T_MAX, 1) < 0) {
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  PyErr_Format(PyExc_NotImplementedError,
               "%U Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() when "
               "moving module from meta to a different "
               "device. It leaves no tensor of the module with its values, also none that has some "
               "now: load all of them after it.",
               text.ptr());
}

// Names what torch asks of the value first.
void raise_no_tensor(const ConversionObject *self, PyObject *value) {
  const char *asked = self->scope == Scope::floating   ? "is_floating_point"
                      : self->memory_format != Py_None ? "dim"
                                                       : "to";
  auto name = py::reinterpret_steal<py::object>(PyUnicode_FromString(asked));
  if (self->scope == Scope::all && PyUnicode_Check(self->device)) {  // m.cpu(), m.cuda(1)
    const Py_ssize_t size = PyUnicode_GET_LENGTH(self->device);
    const Py_ssize_t colon = PyUnicode_FindChar(self->device, ':', 0, size, 1);
    name = py::reinterpret_steal<py::object>(
        PyUnicode_Substring(self->device, 0, colon < 0 ? size : colon));
  }
  if (name) {
    PyErr_Format(PyExc_AttributeError,
                 "'%.200s' object has no attribute '%U': only tensors can be moved or cast",
                 Py_TYPE(value)->tp_name, name.ptr());
  }
}

PyObject *conversion_vectorcall(PyObject *self_obj, PyObject *const *args, size_t nargsf,
                                PyObject *keywords) {
  if (PyVectorcall_NARGS(nargsf) != 1 || keywords) {
    PyErr_SetString(PyExc_TypeError, "a conversion takes one tensor");
    return nullptr;
  }
  const auto *self = reinterpret_cast<ConversionObject *>(self_obj);
  PyObject *tensor = args[0];
  TensorFamily *family;
  const int is_tensor = family_of(tensor, &family);
  if (is_tensor <= 0) {
    if (is_tensor == 0) {
      raise_no_tensor(self, tensor);
    }
    return nullptr;
  }
  const int with_dtype = takes_dtype(self, family, tensor);
  const int with_format = with_dtype < 0 ? -1 : takes_memory_format(self, family, tensor);
  if (with_format < 0) {
    return nullptr;
  }
  PyObject *dtype = with_dtype ? self->dtype : Py_None;
  PyObject *memory_format = with_format ? self->memory_format : Py_None;
  if (dtype == Py_None && self->device == Py_None && memory_format == Py_None) {
    return Py_NewRef(tensor);
  }
  PyObject *result = family->to(tensor, self->device, dtype, self->non_blocking, memory_format);
  if (!result && self->hint) {
    add_hint();
  }
  return result;
}

PyObject *conversion_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *keywords[] = {"scope",         "device", "dtype", "non_blocking",
                                   "memory_format", "hint",   nullptr};
  const char *scope;
  PyObject *device = Py_None, *dtype = Py_None, *memory_format = Py_None;
  int non_blocking = 0, hint = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|OOpOp:Conversion",
                                   const_cast<char **>(keywords), &scope, &device, &dtype,
                                   &non_blocking, &memory_format, &hint)) {
    return nullptr;
  }
  const std::string_view wanted(scope);
  if (wanted != "all" && wanted != "floating" && wanted != "inexact") {
    PyErr_Format(PyExc_ValueError, "scope must be 'all', 'floating' or 'inexact', got '%s'", scope);
    return nullptr;
  }
  auto *self = reinterpret_cast<ConversionObject *>(type->tp_alloc(type, 0));
  if (self) {
    self->device = Py_NewRef(device);
    self->dtype = Py_NewRef(dtype);
    self->memory_format = Py_NewRef(memory_format);
    self->vectorcall = entry<conversion_vectorcall>;
    self->scope = wanted == "all"        ? Scope::all
                  : wanted == "floating" ? Scope::floating
                                         : Scope::inexact;
    self->non_blocking = non_blocking != 0;
    self->hint = hint != 0;
  }
  return reinterpret_cast<PyObject *>(self);
}

int conversion_tp_traverse(PyObject *self_obj, visitproc visit, void *arg) {
  auto *self = reinterpret_cast<ConversionObject *>(self_obj);
  Py_VISIT(Py_TYPE(self_obj));
  Py_VISIT(self->device);
  Py_VISIT(self->dtype);
  Py_VISIT(self->memory_format);
  return 0;
}

int conversion_tp_clear(PyObject *self_obj) {
  auto *self = reinterpret_cast<ConversionObject *>(self_obj);
  // None, not null: a call after the collector broke a cycle must still find values.
  Py_XSETREF(self->device, Py_NewRef(Py_None));
  Py_XSETREF(self->dtype, Py_NewRef(Py_None));
  Py_XSETREF(self->memory_format, Py_NewRef(Py_None));
  return 0;
}

void conversion_tp_dealloc(PyObject *self_obj) {
  const NativeSection in_section;
  PyObject_GC_UnTrack(self_obj);
  auto *self = reinterpret_cast<ConversionObject *>(self_obj);
  PyTypeObject *type = Py_TYPE(self_obj);
  Py_XDECREF(self->device);
  Py_XDECREF(self->dtype);
  Py_XDECREF(self->memory_format);
  type->tp_free(self_obj);
  Py_DECREF(type);
}

PyMemberDef conversion_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ConversionObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot conversion_slots[] = {
    {Py_tp_doc, const_cast<char *>("Conversion(scope, device=None, dtype=None, non_blocking=False, "
                                   "memory_format=None, hint=False)\n--\n\n"
                                   "A callable that moves and casts one tensor.")},
    {Py_tp_new, reinterpret_cast<void *>(entry<conversion_tp_new>)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void *>(conversion_tp_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(unfailing_entry<conversion_tp_clear>)},
    {Py_tp_dealloc, reinterpret_cast<void *>(conversion_tp_dealloc)},
    {Py_tp_members, conversion_members},
    {0, nullptr},
};

PyType_Spec conversion_spec = {
    "modtree._C.Conversion",
    sizeof(ConversionObject),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    conversion_slots,
};

// --- KeepTies

PyObject *keep_ties_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *keywords[] = {"fn", nullptr};
  PyObject *fn;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:KeepTies", const_cast<char **>(keywords),
                                   &fn)) {
    return nullptr;
  }
  auto *self = reinterpret_cast<KeepTiesObject *>(type->tp_alloc(type, 0));
  if (!self) {
    return nullptr;
  }
  self->fn = Py_NewRef(fn);
  self->done = PyDict_New();
  if (!self->done) {
    Py_CLEAR(self);
  }
  return reinterpret_cast<PyObject *>(self);
}

PyObject *keep_ties_tp_call(PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  auto *self = reinterpret_cast<KeepTiesObject *>(self_obj);
  if (!self->fn) {
    PyErr_SetString(PyExc_RuntimeError, "the conversion was collected");
    return nullptr;
  }
  const auto fn = py::reinterpret_borrow<py::object>(self->fn);
  return PyObject_Call(fn.ptr(), args, kwargs);
}

int keep_ties_tp_traverse(PyObject *self_obj, visitproc visit, void *arg) {
  auto *self = reinterpret_cast<KeepTiesObject *>(self_obj);
  Py_VISIT(Py_TYPE(self_obj));
  Py_VISIT(self->fn);
  Py_VISIT(self->done);
  return 0;
}

int keep_ties_tp_clear(PyObject *self_obj) {
  auto *self = reinterpret_cast<KeepTiesObject *>(self_obj);
  Py_CLEAR(self->fn);
  Py_CLEAR(self->done);
  return 0;
}

void keep_ties_tp_dealloc(PyObject *self_obj) {
  const NativeSection in_section;
  PyObject_GC_UnTrack(self_obj);
  PyTypeObject *type = Py_TYPE(self_obj);
  keep_ties_tp_clear(self_obj);
  type->tp_free(self_obj);
  Py_DECREF(type);
}

PyType_Slot keep_ties_slots[] = {
    {Py_tp_doc, const_cast<char *>(
                    "KeepTies(fn)\n--\n\nMakes Module._apply call `fn` once per distinct tensor.")},
    {Py_tp_new, reinterpret_cast<void *>(entry<keep_ties_tp_new>)},
    {Py_tp_call, reinterpret_cast<void *>(entry<keep_ties_tp_call>)},
    {Py_tp_traverse, reinterpret_cast<void *>(keep_ties_tp_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(unfailing_entry<keep_ties_tp_clear>)},
    {Py_tp_dealloc, reinterpret_cast<void *>(keep_ties_tp_dealloc)},
    {0, nullptr},
};

PyType_Spec keep_ties_spec = {
    "modtree._C.KeepTies", sizeof(KeepTiesObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    keep_ties_slots,
};

}  // namespace

void make_conversion_types(py::handle m) {
  conversion_type = new_type(m, "Conversion", &conversion_spec);
  keep_ties_type = new_type(m, "KeepTies", &keep_ties_spec);
}

bool is_keep_ties(PyObject *fn) { return Py_IS_TYPE(fn, keep_ties_type); }

PyObject *new_keep_ties(PyObject *fn) {
  return PyObject_CallOneArg(reinterpret_cast<PyObject *>(keep_ties_type), fn);
}

int find_converted(PyObject *keep_ties, PyObject *tensor, PyObject **replacement) {
  *replacement = nullptr;
  const auto id = py::reinterpret_steal<py::object>(PyLong_FromVoidPtr(tensor));
  PyObject *done = reinterpret_cast<KeepTiesObject *>(keep_ties)->done;
  if (!id || !done) {
    return done ? -1 : 0;
  }
  PyObject *entry = dict_get(done, id.ptr());
  if (!entry) {
    return PyErr_Occurred() ? -1 : 0;
  }
  *replacement = Py_NewRef(PyTuple_GET_ITEM(entry, 1));
  return 1;
}

int remember_converted(PyObject *keep_ties, PyObject *tensor, PyObject *replacement) {
  PyObject *done = reinterpret_cast<KeepTiesObject *>(keep_ties)->done;
  // A parameter whose storage was replaced is its own replacement, and may be met under either
  // name.
  for (PyObject *key : {tensor, replacement}) {
    const auto id = py::reinterpret_steal<py::object>(PyLong_FromVoidPtr(key));
    const auto entry = py::reinterpret_steal<py::object>(PyTuple_Pack(2, key, replacement));
    if (!id || !entry || !done || PyDict_SetItem(done, id.ptr(), entry.ptr()) < 0) {
      return -1;
    }
  }
  return 0;
}

}  // namespace modtree
