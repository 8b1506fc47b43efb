// SPDX-License-Identifier: BSD-3-Clause
#include "module/error_note.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "module/object.h"
#include "python/c_stack.h"
#include "python/call.h"
#include "python/installed.h"
#include "python/native_section.h"
#include "python/owned.h"
#include "python/slot_guard.h"
#include "python/type_text.h"

namespace modtree {

namespace {

constexpr std::size_t kMostNames = 40;         // of a path; those in the middle are counted
constexpr std::size_t kMostVisited = 100'000;  // entries of registries, in one search

PyTypeObject *note_type = nullptr;  // null: nothing is noted

// What a note says. Strings are exact strs, so that nothing here can lead back to the exception.
struct NotePlace {
  std::vector<Owned> names;  // the innermost first
  Py_ssize_t left_out = 0;   // names in the middle
  Owned class_name;
  Owned ending;  // ", called with (2, 4)"
  Owned module;  // a weak reference to the module that the exception has left last
};

// A str with its parts: what traceback and logging show needs no code of ours.
struct NoteObject {
  PyUnicodeObject text;
  NotePlace *place;  // null in one that a program has made
};

void note_tp_dealloc(PyObject *self_obj) {
  PyTypeObject *type = Py_TYPE(self_obj);
  delete reinterpret_cast<NoteObject *>(self_obj)->place;
  PyUnicode_Type.tp_dealloc(self_obj);
  Py_DECREF(type);
}

// Pickled and copied as a plain str: who reads it may not have modtree.
PyObject *note_reduce(PyObject *self_obj, PyObject *) {
  return Py_BuildValue("O(N)", &PyUnicode_Type, PyUnicode_FromObject(self_obj));
}

const NotePlace *note_place(PyObject *note) {
  return Py_TYPE(note) == note_type ? reinterpret_cast<NoteObject *>(note)->place : nullptr;
}

Owned note_text(const NotePlace &place) {
  if (place.names.empty()) {
    return steal(PyUnicode_FromFormat("in %U%U", place.class_name.ptr(), place.ending.ptr()));
  }
  py::list path;
  for (std::size_t i = place.names.size(); i-- > 0;) {
    path.append(place.names[i]);
    if (place.left_out && i == kMostNames / 2) {
      path.append(steal(PyUnicode_FromFormat("[%zd more]", place.left_out)));
    }
  }
  const Owned dotted = steal(PyUnicode_Join(names.dot, path.ptr()));
  return !dotted ? dotted
                 : steal(PyUnicode_FromFormat("in %U (%U)%U", dotted.ptr(), place.class_name.ptr(),
                                              place.ending.ptr()));
}

Owned new_note(NotePlace place) {
  const Owned text = note_text(place);
  Owned note = text
                   ? steal(PyObject_CallOneArg(reinterpret_cast<PyObject *>(note_type), text.ptr()))
                   : Owned();
  if (note) {
    reinterpret_cast<NoteObject *>(note.ptr())->place = new NotePlace(std::move(place));
  }
  return note;
}

// The exception that passes: taken away while it gets its note, and set again.
class PassingError {
public:
  PassingError() {
    PyErr_Fetch(&type_, &error_, &trace_);
    if (is_error()) {
      PyErr_NormalizeException(&type_, &error_, &trace_);
    }
  }
  PassingError(const PassingError &) = delete;
  PassingError &operator=(const PassingError &) = delete;
  // What went wrong meanwhile is forgotten, but not an interrupt.
  ~PassingError() {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
      Py_XDECREF(type_);
      Py_XDECREF(error_);
      Py_XDECREF(trace_);
      return;
    }
    PyErr_Restore(type_, error_, trace_);
  }

  PyObject *error() const { return error_; }
  // Not for what ends a loop or the program.
  bool is_error() const {
    return type_ && PyErr_GivenExceptionMatches(type_, PyExc_Exception) &&
           !PyErr_GivenExceptionMatches(type_, PyExc_StopIteration) &&
           !PyErr_GivenExceptionMatches(type_, PyExc_StopAsyncIteration);
  }

private:
  PyObject *type_, *error_, *trace_;
};

// True for the exceptions by which torch.compile and checkpoints of activations steer a forward.
bool steers_torch(PyTypeObject *type) {
  const Owned bases = borrow(type->tp_mro);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases.ptr()); ++i) {
    auto *base = reinterpret_cast<PyTypeObject *>(PyTuple_GET_ITEM(bases.ptr(), i));
    const Owned home = PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE)
                           ? borrow(dict_get_str(base->tp_dict, names.module))
                           : Owned();
    const char *text = home && PyUnicode_CheckExact(home.ptr()) ? PyUnicode_AsUTF8(home.ptr()) : "";
    if (text && (std::strncmp(text, "torch._dynamo", 13) == 0 ||
                 std::strcmp(text, "torch.utils.checkpoint") == 0)) {
      return true;
    }
  }
  return false;
}

// The registry of children, or null. Runs no user code.
PyObject *peek_children(PyObject *value) {
  if (!is_module(value)) {
    return nullptr;
  }
  const ModuleObject *module = as_module(value);
  PyObject *children = !module->state.exposed ? module->state.modules
                       : module->dict         ? dict_peek_str(module->dict, names.modules_)
                                              : nullptr;
  return children && is_plain_table(children) ? children : nullptr;
}

// Appends the names that lead from a module to one below it, the last one first. False where it is
// not found. Modules near the first are met first. Runs no user code: all is borrowed.
bool find_below(PyObject *root, PyObject *wanted, std::vector<Owned> *path) {
  struct Step {
    PyObject *children, *key;
    std::size_t parent;
  };
  std::vector<Step> steps{{peek_children(root), nullptr, 0}};
  std::size_t visited = 0;
  for (std::size_t at = 0; at < steps.size(); ++at) {
    PyObject *key, *child;
    Py_ssize_t position = 0;
    while (steps[at].children && visited < kMostVisited &&
           dict_next_item(steps[at].children, &position, &key, &child)) {
      ++visited;
      if (child != wanted) {
        if (PyObject *children = peek_children(child)) {
          steps.push_back({children, key, at});
        }
        continue;
      }
      std::vector<PyObject *> keys{key};
      for (std::size_t i = at; i != 0; i = steps[i].parent) {
        keys.push_back(steps[i].key);
      }
      for (PyObject *name : keys) {
        if (!PyUnicode_Check(name)) {
          return false;
        }
        path->push_back(borrow(name));
      }
      return true;
    }
  }
  return false;
}

// Puts names that lead to the place in front. Those in the middle of a long path are counted.
bool prepend_names(NotePlace *place, std::vector<Owned> *path) {
  for (const Owned &name : *path) {
    place->names.push_back(steal(PyUnicode_FromObject(name.ptr())));
    if (!place->names.back()) {
      return false;
    }
    if (place->names.size() > kMostNames) {
      place->names.erase(place->names.begin() + kMostNames / 2);
      ++place->left_out;
    }
  }
  return true;
}

// The notes of an exception, or null without them or where they are not a list. No override of
// reading attributes is asked.
Owned notes_of_error(PyObject *error) {
  Owned notes = steal(PyObject_GenericGetAttr(error, names.notes));
  if (!notes && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
  }
  return notes;
}

// The place of the note among those of the list, or the size of the list.
Py_ssize_t note_index(const Owned &notes, PyObject *note) {
  Py_ssize_t at = 0;
  while (at < PyList_GET_SIZE(notes.ptr()) &&
         (note ? PyList_GET_ITEM(notes.ptr(), at) != note
               : !note_place(PyList_GET_ITEM(notes.ptr(), at)))) {
    ++at;
  }
  return at;
}

// Puts the note in the place of the old one, or behind all others.
void put_note(PyObject *error, Owned notes, const Owned &old, Owned note) {
  if (!notes) {
    notes = steal(PyList_New(0));
    if (!notes || PyObject_GenericSetAttr(error, names.notes, notes.ptr()) < 0) {
      return;
    }
  }
  const Py_ssize_t at = old ? note_index(notes, old.ptr()) : PyList_GET_SIZE(notes.ptr());
  if (at < PyList_GET_SIZE(notes.ptr())) {
    PyList_SetItem(notes.ptr(), at, note.release().ptr());
  } else {
    PyList_Append(notes.ptr(), note.ptr());
  }
}

// True if the place now leads from the root, which the exception leaves. It does not if the module
// that it left before is not below the root: then the exception is raised anew.
bool extend_note(NotePlace *place, PyObject *root) {
  const Owned left = place->module ? referent_of(place->module.ptr()) : Owned();
  std::vector<Owned> path;
  if (!left || (left.ptr() == root && place->names.empty())) {
    return false;
  }
  // One that calls itself stays where it is.
  return left.ptr() == root || (find_below(root, left.ptr(), &path) && prepend_names(place, &path));
}

// `make_ending()` gives what a new note says behind the class.
template <class MakeEnding>
void note_error(PyObject *root, PyObject *module, MakeEnding make_ending) {
  if (!note_type) {
    return;
  }
  const NativeSection in_section;
  const PassingError passing;
  slot_guard(0, [&] {
    if (!passing.is_error() || !PyExceptionInstance_Check(passing.error())) {
      return 0;
    }
    const Owned notes = notes_of_error(passing.error());
    if (PyErr_Occurred() || (notes && !PyList_Check(notes.ptr()))) {
      return 0;
    }
    Owned old;
    NotePlace place;
    if (notes) {
      const Py_ssize_t at = note_index(notes, nullptr);
      if (at < PyList_GET_SIZE(notes.ptr())) {
        old = borrow(PyList_GET_ITEM(notes.ptr(), at));
        place = *note_place(old.ptr());
      }
    }
    if (!old && (steers_torch(Py_TYPE(passing.error())) || PyErr_Occurred())) {
      return 0;
    }
    if (!old || !extend_note(&place, root)) {
      place = NotePlace();
      std::vector<Owned> path;
      const std::string class_name = short_type_text(module);
      place.class_name = steal(PyUnicode_FromString(class_name.c_str()));
      if (module != root && find_below(root, module, &path)) {
        prepend_names(&place, &path);
      }
      if (PyErr_Occurred()) {
        return 0;
      }
      place.ending = make_ending();
      if (!place.ending && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_Exception))) {
        PyErr_Clear();
        place.ending = borrow(names.empty);
      }
    }
    place.module =
        place.class_name && place.ending ? steal(PyWeakref_NewRef(root, nullptr)) : Owned();
    Owned note = place.module ? new_note(std::move(place)) : Owned();
    if (note) {
      put_note(passing.error(), notes, old, std::move(note));
    }
    return 0;
  });
}

// ", called with (2, 4)". Python code makes it, for which there may be no room.
Owned arguments_ending(PyObject *args, PyObject *kwargs) {
  return c_stack_ends()
             ? Owned()
             : call_installed(installed.describe_arguments, args, kwargs ? kwargs : Py_None);
}

PyObject *call_noted_hook(PyObject *self_obj, PyObject *const *args, Py_ssize_t count) {
  PyObject *result = PyObject_Vectorcall(PyTuple_GET_ITEM(self_obj, 0), args, count, nullptr);
  const Owned held = result ? Owned() : referent_of(PyTuple_GET_ITEM(self_obj, 1));
  if (PyObject *module = held.ptr()) {
    note_error(module, module, [&] { return call_installed(installed.describe_hook, module); });
  }
  return result;
}

}  // namespace

PyObject *note_failed_call(PyObject *module, PyObject *const *args, std::size_t flagged_count,
                           PyObject *keyword_names) {
  note_error(module, module, [&] {
    Owned tuple, keywords;
    return pack_arguments(args, PyVectorcall_NARGS(flagged_count), keyword_names, &tuple,
                          &keywords) < 0
               ? Owned()
               : arguments_ending(tuple.ptr(), keywords.ptr());
  });
  return nullptr;
}

PyObject *note_failed_call(PyObject *module, PyObject *args, PyObject *kwargs) {
  note_error(module, module, [&] { return arguments_ending(args, kwargs); });
  return nullptr;
}

int note_failure(PyObject *root, PyObject *module, const char *method) {
  note_error(root, module, [&] { return steal(PyUnicode_FromFormat(", in %s", method)); });
  return -1;
}

PyObject *noted_hook(PyObject *hook, PyObject *module) {
  static PyMethodDef definition = {
      "hook", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_noted_hook)),
      METH_FASTCALL, nullptr};
  if (!note_type) {
    return Py_NewRef(hook);
  }
  const Owned weak = steal(PyWeakref_NewRef(module, nullptr));
  const Owned both = weak ? steal(PyTuple_Pack(2, hook, weak.ptr())) : Owned();
  return both ? PyCFunction_New(&definition, both.ptr()) : nullptr;
}

void make_note_type() {
  const char *wanted = std::getenv("MODTREE_NOTES");
  if (!kHasExceptionNotes || (wanted && std::strcmp(wanted, "0") == 0)) {
    return;
  }
  static PyMethodDef methods[] = {{"__reduce__", note_reduce, METH_NOARGS, nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void *>(note_tp_dealloc)},
                                {Py_tp_methods, methods},
                                {Py_tp_base, &PyUnicode_Type},
                                {0, nullptr}};
  static PyType_Spec spec = {"modtree.ErrorNote", sizeof(NoteObject), 0, Py_TPFLAGS_DEFAULT, slots};
  note_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
  if (!note_type) {
    throw py::error_already_set();
  }
}

}  // namespace modtree
