// SPDX-License-Identifier: BSD-3-Clause
// Structures and splits as objects of Python.
#include <utility>

#include "module/split/snapshot.h"
#include "module/split/structure.h"
#include "python/call.h"
#include "python/checked.h"
#include "python/native_section.h"
#include "python/new_type.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

// Owns its structure, which nobody else does: a ModuleSplit owns the object.
// - places: what places() gave, which is asked for often; null until then.
struct StructureObject {
  PyObject_HEAD Structure structure;
  py::object places;
};

struct SplitObject {
  PyObject_HEAD py::object structure;
  SplitValues values;
};

PyTypeObject *structure_type = nullptr;
PyTypeObject *split_type = nullptr;

StructureObject *as_structure(PyObject *object) {
  return reinterpret_cast<StructureObject *>(object);
}
SplitObject *as_split(PyObject *object) { return reinterpret_cast<SplitObject *>(object); }
bool is_structure(PyObject *object) { return Py_TYPE(object) == structure_type; }

const Structure &structure_of(PyObject *split) {
  return as_structure(as_split(split)->structure.ptr())->structure;
}

// --- structures

py::object new_structure() {
  py::object made = owned(structure_type->tp_alloc(structure_type, 0));
  new (&as_structure(made.ptr())->structure) Structure();
  new (&as_structure(made.ptr())->places) py::object();
  return made;
}

int structure_tp_traverse(PyObject *self_obj, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self_obj));
  Py_VISIT(as_structure(self_obj)->places.ptr());
  return as_structure(self_obj)->structure.traverse(visit, arg);
}

int structure_tp_clear(PyObject *self_obj) {
  Structure old;
  std::swap(old, as_structure(self_obj)->structure);
  const py::object places = std::move(as_structure(self_obj)->places);
  return 0;
}

void structure_tp_dealloc(PyObject *self_obj) {
  const NativeSection in_section;
  PyObject_GC_UnTrack(self_obj);
  PyTypeObject *type = Py_TYPE(self_obj);
  as_structure(self_obj)->structure.~Structure();
  as_structure(self_obj)->places.~object();
  type->tp_free(self_obj);
  Py_DECREF(type);
}

Py_hash_t structure_tp_hash(PyObject *self_obj) {
  const auto hash = static_cast<Py_hash_t>(as_structure(self_obj)->structure.hash);
  return hash == -1 ? -2 : hash;
}

PyObject *structure_tp_richcompare(PyObject *self_obj, PyObject *other, int operation) {
  if (!is_structure(other) || (operation != Py_EQ && operation != Py_NE)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  const int equal = slot_guard(
      -1, [&] { return as_structure(self_obj)->structure.equals(as_structure(other)->structure); });
  return equal < 0 ? nullptr : PyBool_FromLong((equal > 0) == (operation == Py_EQ));
}

PyObject *structure_tp_repr(PyObject *self_obj) {
  const Structure &structure = as_structure(self_obj)->structure;
  return PyUnicode_FromFormat("<ModuleStructure of %zd modules with %d leaves>",
                              static_cast<Py_ssize_t>(structure.modules.size()),
                              structure.leaf_count);
}

PyObject *structure_places(PyObject *self_obj, void *) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    StructureObject *self = as_structure(self_obj);
    if (!self->places) {
      const Structure &structure = self->structure;
      py::object list = owned(PyList_New(0));
      py::object path;
      int module = -1;
      for (const LeafPlace &place : structure.places) {
        if (place.module != module) {
          module = place.module;
          path = structure.path_of(module);
        }
        const char *format = PyUnicode_GET_LENGTH(path.ptr()) ? "%U.%U" : "%U%U";
        const py::object full = owned(PyUnicode_FromFormat(format, path.ptr(), place.name.ptr()));
        const py::object item = owned(Py_BuildValue("(iOiO)", module, full.ptr(), place.leaf,
                                                    place.is_parameter ? Py_True : Py_False));
        check(PyList_Append(list.ptr(), item.ptr()));
      }
      py::object places = owned(PyList_AsTuple(list.ptr()));
      if (!self->places) {
        self->places = std::move(places);
      }
    }
    return Py_NewRef(self->places.ptr());
  });
}

PyObject *structure_modules(PyObject *self_obj, void *) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    const Structure &structure = as_structure(self_obj)->structure;
    const py::object list = owned(PyList_New(0));
    for (std::size_t i = 0; i < structure.modules.size(); ++i) {
      const ModuleRecord &record = structure.modules[i];
      const py::object path = structure.path_of(static_cast<int>(i));
      const py::object item = owned(Py_BuildValue("(iOOO)", record.root, path.ptr(),
                                                  record.type.ptr(), record.training.ptr()));
      check(PyList_Append(list.ptr(), item.ptr()));
    }
    return PyList_AsTuple(list.ptr());
  });
}

PyObject *structure_roots(PyObject *self_obj, void *) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    const Structure &structure = as_structure(self_obj)->structure;
    const py::object list = owned(PyList_New(0));
    for (const py::object &root : structure.roots) {
      check(PyList_Append(list.ptr(), root.ptr()));
    }
    return PyList_AsTuple(list.ptr());
  });
}

PyObject *structure_constants(PyObject *self_obj, void *) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    const Structure &structure = as_structure(self_obj)->structure;
    const py::object list = owned(PyList_New(0));
    StaticMaker values(structure.values, true);
    for (std::size_t i = 0; i < structure.modules.size(); ++i) {
      const ModuleRecord &record = structure.modules[i];
      const StaticAttribute *attributes = structure.attributes.data() + record.first_attribute;
      for (int k = 0; k < record.attributes; ++k) {
        const StaticAttribute &attribute = attributes[k];
        const py::object value = values.make(attribute.value);
        const py::object item =
            owned(Py_BuildValue("(iOO)", static_cast<int>(i), attribute.name.ptr(), value.ptr()));
        check(PyList_Append(list.ptr(), item.ptr()));
      }
    }
    return PyList_AsTuple(list.ptr());
  });
}

PyObject *structure_leaf_count(PyObject *self_obj, void *) {
  return PyLong_FromLong(as_structure(self_obj)->structure.leaf_count);
}

PyObject *list_of(const std::vector<py::object> &items) {
  PyObject *list = PyList_New(static_cast<Py_ssize_t>(items.size()));
  for (std::size_t i = 0; list && i < items.size(); ++i) {
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(items[i].ptr()));
  }
  return list;
}

PyObject *structure_make(PyObject *self_obj, PyObject *const *args, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "make() takes leaves and known modules");
    return nullptr;
  }
  return slot_guard<PyObject *>(nullptr, [&] {
    return list_of(make_modules(as_structure(self_obj)->structure, args[0], args[1]));
  });
}

PyObject *structure_rebuild(PyObject *self_obj, PyObject *const *args, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "rebuild() takes modules and other values");
    return nullptr;
  }
  return slot_guard<PyObject *>(nullptr, [&] {
    const py::object given = owned(PySequence_Tuple(args[0]));
    std::vector<py::object> modules;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given.ptr()); ++i) {
      modules.push_back(py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(given.ptr(), i)));
    }
    return rebuild_containers(as_structure(self_obj)->structure, modules, args[1]).release().ptr();
  });
}

PyGetSetDef structure_getset[] = {
    {"leaf_count", entry<structure_leaf_count>, nullptr, "How many leaves there are.", nullptr},
    {"places", entry<structure_places>, nullptr,
     "(module, path, leaf, is_parameter) of each entry; leaf is -1 for None.", nullptr},
    {"modules", entry<structure_modules>, nullptr, "(root, path, class, training) of each module.",
     nullptr},
    {"roots", entry<structure_roots>, nullptr, "Where each root is in the containers.", nullptr},
    {"constants", entry<structure_constants>, nullptr,
     "(module, name, value) of each plain attribute; None for a value that has died.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef structure_methods[] = {
    {"make", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry<structure_make>)),
     METH_FASTCALL,
     "make($self, leaves, known, /)\n--\n\nNew modules with these leaves, in pre-order; where "
     "`known` has a module, it takes the place of a new one."},
    {"rebuild",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry<structure_rebuild>)),
     METH_FASTCALL,
     "rebuild($self, modules, others, /)\n--\n\nThe containers around these modules, with other "
     "values in the places without modules."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot structure_slots[] = {
    {Py_tp_doc, const_cast<char *>("What a tree of containers and modules is without its leaves: "
                                   "hashable, and compared at once where nothing has changed.")},
    {Py_tp_traverse, reinterpret_cast<void *>(structure_tp_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(unfailing_entry<structure_tp_clear>)},
    {Py_tp_dealloc, reinterpret_cast<void *>(structure_tp_dealloc)},
    {Py_tp_hash, reinterpret_cast<void *>(entry<structure_tp_hash>)},
    {Py_tp_richcompare, reinterpret_cast<void *>(entry<structure_tp_richcompare>)},
    {Py_tp_repr, reinterpret_cast<void *>(entry<structure_tp_repr>)},
    {Py_tp_getset, structure_getset},
    {Py_tp_methods, structure_methods},
    {0, nullptr},
};

PyType_Spec structure_spec = {
    "modtree._C.ModuleStructure",
    sizeof(StructureObject),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    structure_slots,
};

// --- splits

int split_tp_traverse(PyObject *self_obj, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self_obj));
  const SplitObject *self = as_split(self_obj);
  Py_VISIT(self->structure.ptr());
  Py_VISIT(self->values.leaves.ptr());
  Py_VISIT(self->values.others.ptr());
  for (const py::object &module : self->values.modules) {
    Py_VISIT(module.ptr());
  }
  return 0;
}

void split_tp_dealloc(PyObject *self_obj) {
  const NativeSection in_section;
  PyObject_GC_UnTrack(self_obj);
  PyTypeObject *type = Py_TYPE(self_obj);
  as_split(self_obj)->structure.~object();
  as_split(self_obj)->values.~SplitValues();
  type->tp_free(self_obj);
  Py_DECREF(type);
}

PyObject *split_structure(PyObject *self_obj, void *) {
  return Py_NewRef(as_split(self_obj)->structure.ptr());
}
PyObject *split_leaves(PyObject *self_obj, void *) {
  return Py_NewRef(as_split(self_obj)->values.leaves.ptr());
}
PyObject *split_others(PyObject *self_obj, void *) {
  return Py_NewRef(as_split(self_obj)->values.others.ptr());
}
PyObject *split_get_modules(PyObject *self_obj, void *) {
  return list_of(as_split(self_obj)->values.modules);
}

// Items of a sequence that write_places takes: none of them moves while it does.
py::object as_tuple(PyObject *items) { return owned(PySequence_Tuple(items)); }

PyObject *split_put(PyObject *self_obj, PyObject *leaves) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    const Structure &structure = structure_of(self_obj);
    const py::object given = as_tuple(leaves);
    if (PyTuple_GET_SIZE(given.ptr()) != structure.leaf_count) {
      PyErr_Format(PyExc_ValueError, "the modules have %d leaves, got %zd", structure.leaf_count,
                   PyTuple_GET_SIZE(given.ptr()));
      return nullptr;
    }
    std::vector<int> places;
    std::vector<PyObject *> values;
    for (std::size_t i = 0; i < structure.places.size(); ++i) {
      if (structure.places[i].leaf >= 0) {
        places.push_back(static_cast<int>(i));
        values.push_back(PyTuple_GET_ITEM(given.ptr(), structure.places[i].leaf));
      }
    }
    write_places(structure, as_split(self_obj)->values.modules, places, values, nullptr);
    Py_RETURN_NONE;
  });
}

PyObject *split_marks(PyObject *self_obj, PyObject *name) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    if (!PyUnicode_Check(name)) {
      PyErr_SetString(PyExc_TypeError, "marks() takes a name");
      return nullptr;
    }
    const py::object leaves = as_tuple(as_split(self_obj)->values.leaves.ptr());
    const Py_ssize_t count = PyTuple_GET_SIZE(leaves.ptr());
    py::object bytes = owned(PyBytes_FromStringAndSize(nullptr, count));
    char *flags = PyBytes_AS_STRING(bytes.ptr());
    for (Py_ssize_t i = 0; i < count; ++i) {
      py::object keep;
      PyObject *mark = own_mark(PyTuple_GET_ITEM(leaves.ptr(), i), name, &keep);
      flags[i] = static_cast<char>(!mark ? 0 : mark == Py_True ? 1 : mark == Py_False ? 2 : 3);
    }
    return bytes.release().ptr();
  });
}

PyObject *split_write(PyObject *self_obj, PyObject *const *args, Py_ssize_t count) {
  if (count != 4 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[3])) {
    PyErr_SetString(PyExc_TypeError,
                    "write() takes two tuples of indices, values, and a tuple of names");
    return nullptr;
  }
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    const Structure &structure = structure_of(self_obj);
    const py::object given = as_tuple(args[2]);
    const Py_ssize_t length = PyTuple_GET_SIZE(args[0]);
    std::vector<int> places;
    std::vector<PyObject *> values;
    places.reserve(static_cast<std::size_t>(length));
    values.reserve(static_cast<std::size_t>(length));
    for (Py_ssize_t i = 0; i < length && i < PyTuple_GET_SIZE(args[1]); ++i) {
      const long place = PyLong_AsLong(PyTuple_GET_ITEM(args[0], i));
      const long value = PyLong_AsLong(PyTuple_GET_ITEM(args[1], i));
      if (PyErr_Occurred() || place < 0 || place >= static_cast<long>(structure.places.size()) ||
          value < 0 || value >= PyTuple_GET_SIZE(given.ptr())) {
        if (!PyErr_Occurred()) {
          PyErr_SetString(PyExc_IndexError, "write(): an index is out of range");
        }
        return nullptr;
      }
      places.push_back(static_cast<int>(place));
      values.push_back(PyTuple_GET_ITEM(given.ptr(), value));
    }
    return PyLong_FromLong(
        write_places(structure, as_split(self_obj)->values.modules, places, values, args[3]));
  });
}

PyObject *split_snapshot(PyObject *self_obj, PyObject *) {
  return slot_guard<PyObject *>(
      nullptr, [&] { return take_snapshot(as_split(self_obj)->values.modules).release().ptr(); });
}

PyObject *split_restore(PyObject *self_obj, PyObject *snapshot) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    restore_snapshot(as_split(self_obj)->values.modules, snapshot);
    Py_RETURN_NONE;
  });
}

PyGetSetDef split_getset[] = {
    {"structure", entry<split_structure>, nullptr, "The ModuleStructure.", nullptr},
    {"leaves", entry<split_leaves>, nullptr, "The leaves in the order of the tree, ties once.",
     nullptr},
    {"others", entry<split_others>, nullptr, "The values without modules.", nullptr},
    {"modules", entry<split_get_modules>, nullptr, "The modules in pre-order.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef split_methods[] = {
    {"put", entry<split_put>, METH_O,
     "put($self, leaves, /)\n--\n\nPuts leaves into all places of the modules, or into none."},
    {"write", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry<split_write>)),
     METH_FASTCALL,
     "write($self, places, indices, values, marks, /)\n--\n\nPuts the values of these indices into "
     "some places of the modules, or into none. They take over the attributes of these names of "
     "what they replace; says how many of the attributes they did not take."},
    {"marks", entry<split_marks>, METH_O,
     "marks($self, name, /)\n--\n\nFor each leaf a byte that says what attribute of that name it "
     "has: 0 for none, 1 for True, 2 for False, 3 for another."},
    {"snapshot", entry<split_snapshot>, METH_NOARGS,
     "snapshot($self, /)\n--\n\nWhat the modules hold: for each of them a tuple of None or "
     "(object, "
     "copy of its contents), for the internal attributes and the instance dict."},
    {"restore", entry<split_restore>, METH_O,
     "restore($self, snapshot, /)\n--\n\nMakes the modules hold what they held then."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot split_slots[] = {
    {Py_tp_doc,
     const_cast<char *>("The modules in a tree of containers as a structure and leaves.")},
    {Py_tp_traverse, reinterpret_cast<void *>(split_tp_traverse)},
    {Py_tp_dealloc, reinterpret_cast<void *>(split_tp_dealloc)},
    {Py_tp_getset, split_getset},
    {Py_tp_methods, split_methods},
    {0, nullptr},
};

PyType_Spec split_spec = {
    "modtree._C.ModuleSplit",
    sizeof(SplitObject),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    split_slots,
};

bool try_known(PyObject *structure, PyObject *tree, SplitObject *split) {
  if (!is_structure(structure)) {
    PyErr_Format(PyExc_TypeError, "expected a ModuleStructure, got %.200s",
                 Py_TYPE(structure)->tp_name);
    fail();
  }
  const auto keep = py::reinterpret_borrow<py::object>(structure);
  SplitValues values;
  if (!match_structure(as_structure(structure)->structure, tree, &values)) {
    return false;
  }
  std::swap(split->values, values);
  split->structure = keep;
  return true;
}

}  // namespace

py::object split_modules(py::handle tree, py::handle known, bool weak, std::int64_t levels,
                         py::handle hints) {
  py::object made = owned(split_type->tp_alloc(split_type, 0));
  SplitObject *split = as_split(made.ptr());
  new (&split->structure) py::object();
  new (&split->values) SplitValues();
  if (PyList_Check(known.ptr())) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(known.ptr()); ++i) {
      if (try_known(PyList_GET_ITEM(known.ptr(), i), tree.ptr(), split)) {
        return made;
      }
    }
  } else if (!known.is_none() && try_known(known.ptr(), tree.ptr(), split)) {
    return made;
  }
  Structure structure;
  SplitValues values;
  build_structure(tree, weak ? Keep::weak : Keep::strong, static_cast<int>(levels),
                  PyDict_Check(hints.ptr()) ? hints.ptr() : nullptr, &structure, &values);
  const py::object shown = new_structure();
  std::swap(as_structure(shown.ptr())->structure, structure);
  std::swap(split->values, values);
  split->structure = shown;
  return made;
}

void make_split_types(py::handle m) {
  structure_type = new_type(m, "ModuleStructure", &structure_spec);
  split_type = new_type(m, "ModuleSplit", &split_spec);
}

}  // namespace modtree
