// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/array_view.h"

#include "python/native_section.h"
#include "python/new_type.h"

namespace modtree {

namespace {

// The base of a view. No attribute and no traversal leads to what it holds.
struct KeptMemory {
  PyObject_HEAD PyObject *array;  // owned ndarray
  // Owned weak reference to the owner of the memory, or null: as long as there is one, NumPy does
  // not resize that array, not even with refcheck=False.
  PyObject *lock;
};

PyTypeObject *g_kept_type = nullptr;
PyTypeObject *g_exported_type = nullptr;

// Objects of both types that have died: one is made for each array that goes out.
#if defined(MODTREE_NO_FREE_LISTS) || defined(Py_GIL_DISABLED)
constexpr int kMostFree = 0;
#else
constexpr int kMostFree = 16;
#endif
KeptMemory *g_free[kMostFree + 1];
int g_free_count = 0;

KeptMemory *as_kept(PyObject *object) { return reinterpret_cast<KeptMemory *>(object); }

// What the memory of the array belongs to; borrowed, null where that is the array. One that is
// written back into another when it ends has memory and a base.
PyObject *memory_base(PyArrayObject *array) {
  return PyArray_CHKFLAGS(array, NPY_ARRAY_OWNDATA) ? nullptr : PyArray_BASE(array);
}

PyArrayObject *next_below(PyArrayObject *array) {
  PyObject *base = memory_base(array);
  if (base == nullptr) {
    return nullptr;
  }
  return PyArray_Check(base) ? reinterpret_cast<PyArrayObject *>(base) : array_under(base);
}

// Steals `lock`. New reference, null on error.
PyObject *new_kept(PyTypeObject *type, PyArrayObject *array, PyObject *lock) {
  PyObject *kept;
  if (kMostFree > 0 && g_free_count > 0) {
    kept = PyObject_Init(reinterpret_cast<PyObject *>(g_free[--g_free_count]), type);
  } else if ((kept = type->tp_alloc(type, 0)) == nullptr) {
    Py_XDECREF(lock);
    return nullptr;
  }
  as_kept(kept)->lock = lock;
  as_kept(kept)->array = Py_NewRef(reinterpret_cast<PyObject *>(array));
  return kept;
}

void kept_tp_dealloc(PyObject *self) {
  const NativeSection in_section;
  PyTypeObject *type = Py_TYPE(self);
  PyObject *lock = as_kept(self)->lock, *array = as_kept(self)->array;
  if (g_free_count < kMostFree) {
    g_free[g_free_count++] = as_kept(self);
  } else {
    type->tp_free(self);
  }
  Py_DECREF(type);
  // Last: user code may own what the memory belongs to.
  Py_XDECREF(lock);
  Py_XDECREF(array);
}

int exported_bf_getbuffer(PyObject *self, Py_buffer *view, int flags) {
  auto *array = reinterpret_cast<PyArrayObject *>(as_kept(self)->array);
  return PyBuffer_FillInfo(view, self, PyArray_DATA(array), PyArray_NBYTES(array),
                           !PyArray_ISWRITEABLE(array), flags);
}

// What keeps the memory of the array already, below it; borrowed, null where nothing does. It is
// taken again, so that arrays which go out and in do not become a chain.
PyObject *kept_below(PyArrayObject *array) {
  PyObject *base = memory_base(array);
  while (base != nullptr && PyArray_Check(base)) {
    base = memory_base(reinterpret_cast<PyArrayObject *>(base));
  }
  return base != nullptr && Py_TYPE(base) == g_kept_type ? base : nullptr;
}

// New reference, null on error.
PyObject *keep_memory(PyArrayObject *array, bool locks) {
  if (PyObject *kept = kept_below(array)) {
    return Py_NewRef(kept);
  }
  PyObject *lock = nullptr;
  if (locks) {
    auto *owner = reinterpret_cast<PyObject *>(owner_of_memory(array));
    if ((lock = PyWeakref_NewRef(owner, nullptr)) == nullptr) {
      return nullptr;
    }
  }
  return new_kept(g_kept_type, array, lock);
}

// New reference, null on error.
PyObject *view_over(PyArrayObject *array, PyArray_Descr *descr, bool locks) {
  PyObject *kept = keep_memory(array, locks);
  if (kept == nullptr) {
    return nullptr;
  }
  Py_INCREF(descr);  // stolen, also on failure
  PyObject *view = PyArray_NewFromDescr(
      &PyArray_Type, descr, PyArray_NDIM(array), PyArray_DIMS(array), PyArray_STRIDES(array),
      PyArray_DATA(array), PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE, nullptr);
  if (view == nullptr) {
    Py_DECREF(kept);
    return nullptr;
  }
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject *>(view), kept) < 0) {  // steals kept
    Py_CLEAR(view);
  }
  return view;
}

PyType_Slot kMemorySlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void *>(kept_tp_dealloc)},
    {Py_tp_doc, const_cast<char *>("Keeps the memory of a tensor for the arrays over it.")},
    {0, nullptr},
};

PyType_Spec kMemorySpec = {"modtree._C.Memory", sizeof(KeptMemory), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                               Py_TPFLAGS_IMMUTABLETYPE,
                           kMemorySlots};

PyType_Slot kExportedSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void *>(kept_tp_dealloc)},
    {Py_bf_getbuffer, reinterpret_cast<void *>(unfailing_entry<exported_bf_getbuffer>)},
    {Py_tp_doc, const_cast<char *>("The bytes of a tensor, for a pickle.")},
    {0, nullptr},
};

PyType_Spec kExportedSpec = {"modtree._C.MemoryBytes", sizeof(KeptMemory), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                                 Py_TPFLAGS_IMMUTABLETYPE,
                             kExportedSlots};

}  // namespace

PyObject *shown_bytes(PyArrayObject *array) { return new_kept(g_exported_type, array, nullptr); }

PyObject *shown_view(PyArrayObject *array) { return view_over(array, PyArray_DESCR(array), false); }

PyObject *taken_view(PyArrayObject *array, PyArray_Descr *descr) {
  descr = descr == nullptr ? PyArray_DESCR(array) : descr;
  if (PyDataType_ELSIZE(descr) != PyArray_ITEMSIZE(array)) {
    PyErr_SetString(PyExc_TypeError, "the dtype of an array was changed while it was read");
    return nullptr;
  }
  return view_over(array, descr, true);
}

PyArrayObject *array_under(PyObject *base) {
  return Py_TYPE(base) == g_kept_type ? reinterpret_cast<PyArrayObject *>(as_kept(base)->array)
                                      : nullptr;
}

PyArrayObject *owner_of_memory(PyArrayObject *array) {
  while (PyArrayObject *below = next_below(array)) {
    array = below;
  }
  return array;
}

void make_array_view_type(py::handle m) {
  g_kept_type = new_type(m, "Memory", &kMemorySpec);
  g_exported_type = new_type(m, "MemoryBytes", &kExportedSpec);
}

}  // namespace modtree
