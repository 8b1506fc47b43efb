// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/dtype.h"

#include <array>
#include <cstring>

#include "python/installed.h"
#include "python/native_section.h"
#include "python/new_type.h"

namespace modtree {

PyTypeObject *dtype_type = nullptr;
bool any_stored_dtype = false;

namespace {

struct DTypeInfo {
  int num;
  const char *name;
  const char *alias;  // second public name, or null
  const char *type_name;
  const char *scalar_name;
  DTypeCategory category;
  bool is_signed;
};

using C = DTypeCategory;

constexpr std::array<DTypeInfo, 14> kTable{{
    {NPY_BOOL, "bool", nullptr, "BoolTensor", "Bool", C::boolean, false},
    {NPY_UINT8, "uint8", nullptr, "ByteTensor", "Byte", C::integral, false},
    {NPY_INT8, "int8", nullptr, "CharTensor", "Char", C::integral, true},
    {NPY_INT16, "int16", "short", "ShortTensor", "Short", C::integral, true},
    {NPY_INT32, "int32", "int", "IntTensor", "Int", C::integral, true},
    {NPY_INT64, "int64", "long", "LongTensor", "Long", C::integral, true},
    {NPY_UINT16, "uint16", nullptr, "UInt16Tensor", "UInt16", C::integral, false},
    {NPY_UINT32, "uint32", nullptr, "UInt32Tensor", "UInt32", C::integral, false},
    {NPY_UINT64, "uint64", nullptr, "UInt64Tensor", "UInt64", C::integral, false},
    {NPY_FLOAT16, "float16", "half", "HalfTensor", "Half", C::floating, true},
    {NPY_FLOAT32, "float32", "float", "FloatTensor", "Float", C::floating, true},
    {NPY_FLOAT64, "float64", "double", "DoubleTensor", "Double", C::floating, true},
    {NPY_COMPLEX64, "complex64", "cfloat", "ComplexFloatTensor", "ComplexFloat", C::complex, true},
    {NPY_COMPLEX128, "complex128", "cdouble", "ComplexDoubleTensor", "ComplexDouble", C::complex,
     true},
}};

// Dtypes that NumPy has only with the package ml_dtypes, which is imported when the first of them
// is used: until then they have no descr, and no array can be of them.
struct StoredInfo {
  const char *name;  // there and here
  const char *type_name;
  const char *scalar_name;
  int size;
  bool is_signed;
};

constexpr std::array<StoredInfo, 6> kStored{{
    {"bfloat16", "BFloat16Tensor", "BFloat16", 2, true},
    {"float8_e4m3fn", "Float8_e4m3fnTensor", "Float8_e4m3fn", 1, true},
    {"float8_e4m3fnuz", "Float8_e4m3fnuzTensor", "Float8_e4m3fnuz", 1, true},
    {"float8_e5m2", "Float8_e5m2Tensor", "Float8_e5m2", 1, true},
    {"float8_e5m2fnuz", "Float8_e5m2fnuzTensor", "Float8_e5m2fnuz", 1, true},
    {"float8_e8m0fnu", "Float8_e8m0fnuTensor", "Float8_e8m0fnu", 1, false},
}};
constexpr int kUnbound = -2;  // the number of a dtype without a descr; no array has it

constexpr int kNums = NPY_NTYPES_LEGACY;
DTypeObject *g_by_num[kNums] = {};
DTypeObject *g_stored[kStored.size()] = {};
DTypeObject *g_no_dtype = nullptr;  // see dtype_or_none()
int g_default_float = NPY_FLOAT32;

DTypeObject *as_dtype(PyObject *obj) { return reinterpret_cast<DTypeObject *>(obj); }

PyObject *dtype_tp_repr(PyObject *self) {
  return PyUnicode_FromFormat("modtree.%U", as_dtype(self)->name);
}

std::size_t stored_index(const DTypeObject *dtype) {
  std::size_t i = 0;
  while (i < kStored.size() && g_stored[i] != dtype) {
    ++i;
  }
  return i;
}

bool is_bound(const DTypeObject *dtype) { return dtype->descr != nullptr; }

// Gives a dtype of ml_dtypes its descr. False with TypeError set where the package is not there.
bool bind_stored(DTypeObject *dtype) {
  if (is_bound(dtype)) {
    return true;
  }
  py::object home = py::reinterpret_steal<py::object>(PyImport_ImportModule("ml_dtypes"));
  py::object kind =
      home ? py::reinterpret_steal<py::object>(PyObject_GetAttr(home.ptr(), dtype->name))
           : py::object();
  PyArray_Descr *descr = nullptr;
  if (!kind || PyArray_DescrConverter(kind.ptr(), &descr) != NPY_SUCCEED || descr == nullptr) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError,
                 "%U is not available: NumPy has no such dtype without the package ml_dtypes (pip "
                 "install ml_dtypes). Use modtree.float32, or convert the values with .float() "
                 "before they come here",
                 dtype->name);
    return false;
  }
  if (is_bound(dtype)) {  // while Python ran
    Py_DECREF(descr);
    return true;
  }
  dtype->num = descr->type_num;
  dtype->descr = descr;
  any_stored_dtype = true;
  return true;
}

DTypeObject *stored_by_name(const char *name) {
  for (std::size_t i = 0; i < kStored.size(); ++i) {
    if (std::strcmp(kStored[i].name, name) == 0) {
      return g_stored[i];
    }
  }
  return nullptr;
}

// The dtype of a descr of ml_dtypes; null, without an error, for every other.
DTypeObject *stored_of_descr(PyArray_Descr *descr) {
  if (!PyTypeNum_ISUSERDEF(descr->type_num)) {
    return nullptr;
  }
  for (DTypeObject *stored : g_stored) {
    if (!bind_stored(stored)) {
      PyErr_Clear();
      return nullptr;
    }
    if (stored->num == descr->type_num) {
      return stored;
    }
  }
  return nullptr;
}

Py_hash_t dtype_tp_hash(PyObject *self) {
  if (stored_index(as_dtype(self)) < kStored.size()) {
    return PyObject_Hash(as_dtype(self)->name);  // with a descr or without
  }
  return PyObject_Hash(reinterpret_cast<PyObject *>(as_dtype(self)->descr));
}

PyObject *dtype_tp_richcompare(PyObject *self, PyObject *other, int op) {
  if (op != Py_EQ && op != Py_NE) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  bool equal = self == other;
  if (!equal && Py_TYPE(other) != dtype_type) {
    if (!PyArray_DescrCheck(other)) {
      Py_RETURN_NOTIMPLEMENTED;
    }
    auto *descr = reinterpret_cast<PyArray_Descr *>(other);
    equal = stored_index(as_dtype(self)) < kStored.size()
                ? reinterpret_cast<PyObject *>(stored_of_descr(descr)) == self
                : PyArray_EquivTypes(as_dtype(self)->descr, descr);
  }
  return PyBool_FromLong((op == Py_EQ) == equal);
}

PyObject *dtype_reduce(PyObject *self, PyObject *) {
  PyObject *getter = need_installed(installed.dtype_by_name);
  return getter ? Py_BuildValue("O(O)", getter, as_dtype(self)->name) : nullptr;
}

PyObject *dtype_copy(PyObject *self, PyObject *) {
  Py_INCREF(self);
  return self;
}

PyObject *dtype_deepcopy(PyObject *self, PyObject *) {
  Py_INCREF(self);
  return self;
}

PyObject *dtype_get_name(PyObject *self, void *) {
  PyObject *name = as_dtype(self)->name;
  Py_INCREF(name);
  return name;
}

PyObject *dtype_get_type_name(PyObject *self, void *) {
  PyObject *name = as_dtype(self)->type_name;
  Py_INCREF(name);
  return name;
}

// NumPy looks for this attribute: it makes `np.zeros(3, dtype=modtree.float32)` work.
PyObject *dtype_get_dtype(PyObject *self, void *) {
  if (!bind_stored(as_dtype(self))) {
    return nullptr;
  }
  PyObject *descr = reinterpret_cast<PyObject *>(as_dtype(self)->descr);
  Py_INCREF(descr);
  return descr;
}

PyObject *dtype_get_itemsize(PyObject *self, void *) {
  if (const std::size_t i = stored_index(as_dtype(self)); i < kStored.size()) {
    return PyLong_FromLong(kStored[i].size);
  }
  return PyLong_FromSsize_t(PyDataType_ELSIZE(as_dtype(self)->descr));
}

PyObject *dtype_get_is_floating_point(PyObject *self, void *) {
  return PyBool_FromLong(as_dtype(self)->category == C::floating);
}

PyObject *dtype_get_is_complex(PyObject *self, void *) {
  return PyBool_FromLong(as_dtype(self)->category == C::complex);
}

PyObject *dtype_get_is_signed(PyObject *self, void *) {
  return PyBool_FromLong(as_dtype(self)->is_signed);
}

void dtype_tp_dealloc(PyObject *self) {
  const NativeSection in_section;
  PyTypeObject *type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<PyObject *>(as_dtype(self)->descr));
  Py_XDECREF(as_dtype(self)->name);
  Py_XDECREF(as_dtype(self)->type_name);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef kDtypeMethods[] = {
    {"__reduce__", entry<dtype_reduce>, METH_NOARGS, nullptr},
    {"__copy__", entry<dtype_copy>, METH_NOARGS, nullptr},
    {"__deepcopy__", entry<dtype_deepcopy>, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef kDtypeGetSet[] = {
    {"name", entry<dtype_get_name>, nullptr, "The name without the package: 'float32'.", nullptr},
    {"dtype", entry<dtype_get_dtype>, nullptr, "The NumPy dtype.", nullptr},
    {"itemsize", entry<dtype_get_itemsize>, nullptr, "Bytes of one element.", nullptr},
    {"is_floating_point", entry<dtype_get_is_floating_point>, nullptr, nullptr, nullptr},
    {"is_complex", entry<dtype_get_is_complex>, nullptr, nullptr, nullptr},
    {"is_signed", entry<dtype_get_is_signed>, nullptr, nullptr, nullptr},
    {"_type_name", entry<dtype_get_type_name>, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot kDtypeSlots[] = {
    {Py_tp_repr, reinterpret_cast<void *>(entry<dtype_tp_repr>)},
    {Py_tp_hash, reinterpret_cast<void *>(entry<dtype_tp_hash>)},
    {Py_tp_richcompare, reinterpret_cast<void *>(entry<dtype_tp_richcompare>)},
    {Py_tp_dealloc, reinterpret_cast<void *>(dtype_tp_dealloc)},
    {Py_tp_methods, kDtypeMethods},
    {Py_tp_getset, kDtypeGetSet},
    {Py_tp_doc, const_cast<char *>("The type of a tensor's elements; the objects of this class "
                                   "are modtree.float32 and its siblings.")},
    {0, nullptr},
};

PyType_Spec kDtypeSpec = {
    "modtree.dtype", sizeof(DTypeObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, kDtypeSlots};

DTypeObject *find_by_name(const char *name) {
  for (const DTypeInfo &info : kTable) {
    if (std::strcmp(info.name, name) == 0 ||
        (info.alias != nullptr && std::strcmp(info.alias, name) == 0)) {
      return g_by_num[info.num];
    }
  }
  return nullptr;
}

// A dtype object of another library whose text is "<library>.<our name>".
DTypeObject *find_by_text(PyObject *obj) {
  py::object text = py::reinterpret_steal<py::object>(PyObject_Str(obj));
  const char *chars = text ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (chars == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const char *dot = std::strrchr(chars, '.');
  if (dot == nullptr) {
    return PyUnicode_Check(obj) ? stored_by_name(chars) : nullptr;
  }
  DTypeObject *found = find_by_name(dot + 1);
  return found == nullptr ? stored_by_name(dot + 1) : found;
}

}  // namespace

DTypeObject *dtype_of_num(int type_num) {
  if (type_num >= 0 && type_num < kNums) {
    return g_by_num[type_num];
  }
  if (PyTypeNum_ISUSERDEF(type_num)) {
    for (DTypeObject *stored : g_stored) {
      if (stored->num == type_num) {
        return stored;
      }
    }
  }
  return nullptr;
}

DTypeObject *dtype_or_none(PyArrayObject *array) {
  DTypeObject *dtype = dtype_of(array);
  return dtype == nullptr ? g_no_dtype : dtype;
}

const char *scalar_type_name(int type_num) {
  for (const DTypeInfo &info : kTable) {
    if (info.num == type_num) {
      return info.scalar_name;
    }
  }
  for (std::size_t i = 0; i < kStored.size(); ++i) {
    if (g_stored[i]->num == type_num) {
      return kStored[i].scalar_name;
    }
  }
  return "unsupported";
}

int default_float_num() { return g_default_float; }

int default_complex_num() {
  return g_default_float == NPY_FLOAT64 ? NPY_COMPLEX128 : NPY_COMPLEX64;
}

DTypeObject *dtype_from_object(PyObject *obj) {
  if (Py_TYPE(obj) == dtype_type) {
    return bind_stored(as_dtype(obj)) ? as_dtype(obj) : nullptr;
  }
  if (obj == reinterpret_cast<PyObject *>(&PyFloat_Type)) {
    return g_by_num[NPY_FLOAT64];
  }
  if (PyArray_DescrCheck(obj) || PyType_Check(obj) || PyUnicode_Check(obj)) {
    PyArray_Descr *descr = nullptr;
    if (PyArray_DescrConverter(obj, &descr) == NPY_SUCCEED && descr != nullptr) {
      DTypeObject *found = stored_of_descr(descr);
      for (const DTypeInfo &info : kTable) {
        DTypeObject *candidate = g_by_num[info.num];
        if (found == nullptr && PyArray_EquivTypes(candidate->descr, descr)) {
          found = candidate;
        }
      }
      Py_DECREF(descr);
      if (found != nullptr) {
        return found;
      }
    }
    PyErr_Clear();
  }
  if (!PyArray_DescrCheck(obj) && !PyType_Check(obj)) {
    if (DTypeObject *found = find_by_text(obj)) {
      return bind_stored(found) ? found : nullptr;
    }
  }
  PyErr_Clear();
  PyErr_Format(PyExc_TypeError, "expected a dtype such as modtree.float32, got %R", obj);
  return nullptr;
}

void make_dtypes(py::handle m) {
  dtype_type = new_type(m, "dtype", &kDtypeSpec);
  for (const DTypeInfo &info : kTable) {
    auto *self = reinterpret_cast<DTypeObject *>(dtype_type->tp_alloc(dtype_type, 0));
    if (self == nullptr) {
      throw py::error_already_set();
    }
    self->descr = PyArray_DescrFromType(info.num);
    self->name = PyUnicode_InternFromString(info.name);
    self->type_name = PyUnicode_InternFromString(info.type_name);
    self->num = info.num;
    self->category = info.category;
    self->is_signed = info.is_signed;
    g_by_num[info.num] = self;
    py::handle obj(reinterpret_cast<PyObject *>(self));
    m.attr(("_dtype_" + std::string(info.name)).c_str()) = obj;
  }
  py::dict names;
  for (const DTypeInfo &info : kTable) {
    py::handle obj(reinterpret_cast<PyObject *>(g_by_num[info.num]));
    names[info.name] = obj;
    if (info.alias != nullptr) {
      names[info.alias] = obj;
    }
    PyObject_DelAttrString(m.ptr(), ("_dtype_" + std::string(info.name)).c_str());
  }
  m.attr("_dtypes") = names;  // every public name -> its object
  py::dict stored;
  for (std::size_t i = 0; i < kStored.size(); ++i) {
    auto self = py::reinterpret_steal<py::object>(dtype_type->tp_alloc(dtype_type, 0));
    if (!self) {
      throw py::error_already_set();
    }
    DTypeObject *dtype = g_stored[i] = as_dtype(self.ptr());
    dtype->name = PyUnicode_InternFromString(kStored[i].name);
    dtype->type_name = PyUnicode_InternFromString(kStored[i].type_name);
    dtype->num = kUnbound;
    dtype->category = C::floating;
    dtype->is_signed = kStored[i].is_signed;
    stored[kStored[i].name] = self;
    Py_INCREF(self.ptr());  // immortal, as the others are
  }
  m.attr("_stored_dtypes") = stored;
  g_no_dtype = as_dtype(dtype_type->tp_alloc(dtype_type, 0));
  if (g_no_dtype == nullptr) {
    throw py::error_already_set();
  }
  g_no_dtype->descr = PyArray_DescrFromType(NPY_VOID);
  g_no_dtype->name = PyUnicode_InternFromString("none");
  g_no_dtype->type_name = Py_NewRef(g_no_dtype->name);
  g_no_dtype->num = NPY_VOID;
}

void set_default_dtype(py::handle obj) {
  DTypeObject *found = dtype_from_object(obj.ptr());
  if (found == nullptr) {
    throw py::error_already_set();
  }
  if (found->category != C::floating || stored_index(found) < kStored.size()) {
    PyErr_Format(PyExc_TypeError,
                 "only floating-point types are supported as the default type, got %S",
                 reinterpret_cast<PyObject *>(found));
    throw py::error_already_set();
  }
  g_default_float = found->num;
}

}  // namespace modtree
