// SPDX-License-Identifier: BSD-3-Clause
#include "module/deepcopy.h"

#include <array>
#include <utility>
#include <variant>
#include <vector>

#include "family/family.h"
#include "module/class_info.h"
#include "module/torch_facts.h"
#include "module/type.h"
#include "python/call.h"
#include "python/signals.h"

namespace modtree {

namespace {

// What copy.deepcopy goes by, kept for good: the function as it is now, since code of its own file
// calls itself by a default argument; the globals of that file.
PyObject *deepcopy_function = nullptr;
PyObject *copy_globals = nullptr;
// Atoms are returned before the memo is asked.
bool atoms_come_first = false;

// The module for which no native method is found next, as copy.deepcopy is to go on as with any
// other object. Only its address is used; null for none.
thread_local PyObject *declined = nullptr;

// Types whose values are their own deep copies, and what copy._deepcopy_dispatch had for each
// (null: nothing) when the extension was loaded; strong.
struct Atom {
  PyTypeObject *type;
  PyObject *copier;
};
std::array<Atom, 9> atoms{};

bool is_atom(PyObject *value) {
  return PyUnicode_CheckExact(value) || value == Py_None || PyBool_Check(value) ||
         PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyBytes_CheckExact(value) ||
         PyFunction_Check(value) || PyType_CheckExact(value) || PyCFunction_CheckExact(value);
}

py::object checked(py::object result) {
  if (!result) {
    throw py::error_already_set();
  }
  return result;
}

py::object checked(PyObject *result) { return checked(py::reinterpret_steal<py::object>(result)); }

void check(int result) {
  if (result < 0) {
    throw py::error_already_set();
  }
}

// Of any key of an instance dict.
const SpecialName *special_name(PyObject *key) {
  return PyUnicode_Check(key) ? find_special_name(key) : nullptr;
}

bool is_registry_slot(Slot slot) {
  return slot == Slot::parameters || slot == Slot::buffers || slot == Slot::modules;
}

// True for an empty container of the type that a new module has in the slot.
bool is_default_table(Slot slot, PyObject *value) {
  switch (slot) {
    case Slot::training:
    case Slot::is_full_backward_hook:
      return false;
    case Slot::non_persistent_buffers_set:
      return PySet_CheckExact(value) && PySet_GET_SIZE(value) == 0;
    default: {
      const bool is_dict = is_registry_slot(slot) && !torch_facts.ordered_registries;
      return (is_dict ? PyDict_CheckExact(value) : PyODict_CheckExact(value)) &&
             PyDict_GET_SIZE(value) == 0;
    }
  }
}

// True if the dict of a module in exposed mode has the 17 entries, under keys that are exact strs:
// __setstate__ would make up those that are missing.
bool has_ordinary_dict(ModuleObject *module) {
  int slots = 0;
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (dict_next_item(module->dict, &position, &key, &value)) {
    if (!PyUnicode_CheckExact(key)) {
      return false;
    }
    const SpecialName *special = find_special_name(key);
    slots += special && special->slot >= 0;
  }
  return slots == kSlotCount;
}

// Modules inside each other that are copied depth first, so that code of their own runs in the
// order of copy.deepcopy; those further down come after the rest, so that no stack overflows.
constexpr int kMostNested = 100;

// One run of copy.deepcopy over modules. Each module gets an empty copy when it is first met, so
// that cycles do not matter, and is filled then or later; everything that is not a plain module
// goes through copy.deepcopy. Errors travel as error_already_set.
class TreeCopy {
public:
  explicit TreeCopy(PyObject *memo)
      : memo_(py::reinterpret_borrow<py::object>(memo)),
        by_class_(table(names.deepcopy_dispatch)),
        reductions_(table(names.dispatch_table)),
        atoms_are_known_(knows_atoms()) {}

  // True if this module, whose __deepcopy__ was not found yet, may be copied here.
  bool takes(PyObject *value) {
    // A memo may have another class in store for the copies. The module comes last: what runs
    // before may change it.
    return atoms_are_known_ && !is_listed(Py_TYPE(value)) &&
           !(has_foreign_entries() && known_copy(reinterpret_cast<PyObject *>(Py_TYPE(value)))) &&
           copies_natively(as_module(value));
  }

  py::object run(PyObject *root) {
    py::object copy = copy_of_module(root);
    while (!pending_.empty()) {
      const Pending next = std::move(pending_.back());
      pending_.pop_back();
      fill(as_module(next.source.ptr()), as_module(next.copy.ptr()));
    }
    return copy;
  }

private:
  struct Pending {
    py::object source;
    py::object copy;
  };

  // A table of the file copy.py; empty where that has none, or no dict.
  static py::object table(PyObject *name) {
    PyObject *found = dict_get_str(copy_globals, name);
    check(!found && PyErr_Occurred() ? -1 : 0);
    return found && PyDict_Check(found) ? py::reinterpret_borrow<py::object>(found) : py::object();
  }

  // What a table holds for a class: borrowed, null when there is nothing. Runs user code where the
  // metaclass defines a hash or comparison.
  static PyObject *entry_for(const py::object &table, PyTypeObject *type) {
    const auto key = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
    PyObject *entry = table ? dict_get(table.ptr(), key.ptr()) : nullptr;
    check(!entry && PyErr_Occurred() ? -1 : 0);
    return entry;
  }

  // True if a table has an entry for the class. Asked once for each class until Python code has
  // run.
  bool is_listed(PyTypeObject *type) {
    std::monostate nothing;
    if (unlisted_.find(type, &nothing)) {
      return false;
    }
    const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
    const TypeVersion version = type_version(type);
    if (entry_for(by_class_, type) || entry_for(reductions_, type)) {
      return true;
    }
    unlisted_.store(type, version, nothing);
    return false;
  }

  // True if the memo holds entries that this copy did not put there; then it may know anything.
  bool has_foreign_entries() const { return PyDict_GET_SIZE(memo_.ptr()) != own_entries_; }

  bool is_atomic(PyObject *value) {
    return atoms_are_known_ && is_atom(value) &&
           (atoms_come_first || !has_foreign_entries() || !known_copy(value));
  }

  // True if nobody has registered another way of copying one of the types of atoms.
  bool knows_atoms() const {
    for (const Atom &atom : atoms) {
      if (entry_for(by_class_, atom.type) != atom.copier) {
        return false;
      }
    }
    return true;
  }

  // True if the memo has no copy of the value.
  bool is_unknown(PyObject *value) { return !has_foreign_entries() || !known_copy(value); }

  // Borrowed; null when the object was not copied yet.
  PyObject *known_copy(PyObject *value) { return known_copy(checked(PyLong_FromVoidPtr(value))); }

  PyObject *known_copy(const py::object &id) {
    PyObject *copy = dict_get(memo_.ptr(), id.ptr());
    if (!copy && PyErr_Occurred()) {
      throw py::error_already_set();
    }
    return copy;
  }

  // Remembers a copy, and keeps the source alive as long as the memo is: its id must stay its own.
  void remember(PyObject *value, PyObject *copy) {
    remember(checked(PyLong_FromVoidPtr(value)), value, copy);
  }

  void remember(const py::object &id, PyObject *value, PyObject *copy) {
    const Py_ssize_t before = PyDict_GET_SIZE(memo_.ptr());
    check(PyDict_SetItem(memo_.ptr(), id.ptr(), copy));
    own_entries_ += PyDict_GET_SIZE(memo_.ptr()) - before;
    if (!kept_) {
      const py::object of_memo = checked(PyLong_FromVoidPtr(memo_.ptr()));
      PyObject *kept = dict_get(memo_.ptr(), of_memo.ptr());
      kept_ = kept ? py::reinterpret_borrow<py::object>(kept) : py::object(py::list());
      if (!kept) {
        check(PyErr_Occurred() ? -1 : PyDict_SetItem(memo_.ptr(), of_memo.ptr(), kept_.ptr()));
        ++own_entries_;
      }
    }
    if (PyList_Check(kept_.ptr())) {
      check(PyList_Append(kept_.ptr(), value));
    }
  }

  py::object copy_of_module(PyObject *module) {
    auto source = py::reinterpret_borrow<py::object>(module);
    // Owned: making the object may run code that gives the module another class.
    const auto type =
        py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(Py_TYPE(module)));
    py::object copy =
        checked(module_tp_new(reinterpret_cast<PyTypeObject *>(type.ptr()), nullptr, nullptr));
    remember(module, copy.ptr());
    if (nested_ < kMostNested) {
      ++nested_;
      fill(as_module(module), as_module(copy.ptr()));
      --nested_;
    } else {
      pending_.push_back(Pending{std::move(source), copy});
    }
    return copy;
  }

  py::object copy_of(PyObject *value) {
    if (is_atomic(value)) {
      return py::reinterpret_borrow<py::object>(value);
    }
    const py::object id = checked(PyLong_FromVoidPtr(value));
    if (PyObject *known = known_copy(id)) {
      return py::reinterpret_borrow<py::object>(known);
    }
    if (is_module(value)) {
      return takes(value) ? copy_of_module(value) : by_protocol(value);
    }
    if (is_listed(Py_TYPE(value))) {
      return by_protocol(value);
    }
    TensorFamily *family = family_of_type(Py_TYPE(value));
    if (!family && PyErr_Occurred()) {
      throw py::error_already_set();
    }
    py::object copy = family ? copy_of_tensor(family, value) : py::object();
    if (!copy) {
      // A tensor without a __deepcopy__ of its own is copied by the general protocol, like any
      // other object.
      if (!family || !type_has(Py_TYPE(value), names.deepcopy)) {
        return by_protocol(value);
      }
      unlisted_.clear();
      copy = checked(PyObject_CallMethodOneArg(value, names.deepcopy, memo_.ptr()));
    }
    if (copy.ptr() != value) {
      remember(id, value, copy.ptr());
    }
    return copy;
  }

  // Null without an error where the tensor's own method is to be called.
  py::object copy_of_tensor(TensorFamily *family, PyObject *tensor) {
    auto copy = py::reinterpret_steal<py::object>(family->copy_parameter(tensor));
    check(!copy && PyErr_Occurred() ? -1 : 0);
    const auto memory =
        py::reinterpret_steal<py::object>(copy ? nullptr : family->memory_of(tensor));
    if (memory && !known_copy(memory.ptr())) {
      PyObject *shown_memory, *copied_memory;
      copy = py::reinterpret_steal<py::object>(
          family->copy_with_memory(memory.ptr(), &shown_memory, &copied_memory));
      const auto shown = py::reinterpret_steal<py::object>(shown_memory);
      const auto copied = py::reinterpret_steal<py::object>(copied_memory);
      check(copy ? 0 : -1);
      remember(checked(PyLong_FromVoidPtr(memory.ptr())), shown_memory, copied_memory);
    }
    return copy;
  }

  py::object by_protocol(PyObject *value) {
    unlisted_.clear();
    return checked(call(py::handle(deepcopy_function), py::handle(value), memo_));
  }

  // A dict whose values are copied; another holder of the same dict (copy.copy shares them) gets
  // the same copy.
  py::object copy_of_registry(PyObject *registry) {
    if (!PyDict_CheckExact(registry)) {
      return by_protocol(registry);
    }
    const bool shared = !is_sole_reference(registry);
    if (shared) {
      if (PyObject *known = known_copy(registry)) {
        return py::reinterpret_borrow<py::object>(known);
      }
    }
    const auto keep = py::reinterpret_borrow<py::object>(registry);
    py::object copy = checked(PyDict_New());
    if (shared) {
      remember(registry, copy.ptr());
    }
    RegistryItems items;
    check(items.start(registry));
    PyObject *key, *value;
    int more;
    while ((more = items.next(&key, &value)) > 0) {
      const auto keep_key = py::reinterpret_borrow<py::object>(key);
      const auto keep_value = py::reinterpret_borrow<py::object>(value);
      check(signals_.step());
      const py::object copied = copy_of(value);
      check(is_atomic(key) ? PyDict_SetItem(copy.ptr(), key, copied.ptr())
                           : PyDict_SetItem(copy.ptr(), copy_of(key).ptr(), copied.ptr()));
    }
    check(more);
    return copy;
  }

  void fill(ModuleObject *source, ModuleObject *copy) {
    check(reset_state(copy));
    if (source->state.exposed && source->dict) {
      fill_from_dict(source, copy);
      return;
    }
    for (int i = 0; i < kSlotCount; ++i) {
      const Slot slot = static_cast<Slot>(i);
      PyObject *value = peek(source, slot);
      check(!value && PyErr_Occurred() ? -1 : 0);
      const bool is_default = value && is_default_table(slot, value) && is_sole_reference(value);
      const auto keep = py::reinterpret_borrow<py::object>(value);
      if (value && !(is_default && is_unknown(value))) {
        fill_slot(copy, slot, value);
      }
    }
    copy->state.instance_overrides = source->state.instance_overrides;
    if (source->dict) {
      fill_plain_attributes(source, copy);
    }
  }

  // This and the next are for a key and a value that the caller owns.
  void fill_slot(ModuleObject *copy, Slot slot, PyObject *value) {
    const bool is_registry = is_registry_slot(slot) && PyDict_CheckExact(value);
    check(store_slot(copy, slot, (is_registry ? copy_of_registry(value) : copy_of(value)).ptr()));
  }

  void fill_attribute(ModuleObject *copy, PyObject *key, PyObject *value) {
    if (key != names.compiled_call_impl) {
      const py::object copied = copy_of(value);
      const py::object copied_key = copy_of(key);
      check(store_attribute(copy, copied_key.ptr(), copied.ptr()));
    }
  }

  // Of a module in exposed mode. What reset_state() has made is not copied.
  void fill_from_dict(ModuleObject *source, ModuleObject *copy) {
    // A copy of the dict: copying a value may run code that changes the module.
    const auto original = py::reinterpret_borrow<py::object>(source->dict);
    const py::object entries = checked(PyDict_Copy(original.ptr()));
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (dict_next_item(entries.ptr(), &position, &key, &value)) {
      const SpecialName *special = special_name(key);
      const bool is_slot = special && special->slot >= 0;
      // A table that nobody has but the module and this copy of its dict, now: what was copied
      // before may have filled it.
      const bool is_default = is_slot && has_two_holders(value) &&
                              is_default_table(static_cast<Slot>(special->slot), value);
      const auto keep_key = py::reinterpret_borrow<py::object>(key);
      const auto keep_value = py::reinterpret_borrow<py::object>(value);
      if (!is_slot) {
        fill_attribute(copy, key, value);
      } else if (!(is_default && is_unknown(value))) {
        fill_slot(copy, static_cast<Slot>(special->slot), value);
      }
      if (special && special->is_virtual) {
        store_flag(&copy->state.instance_overrides, true);
      }
    }
  }

  void fill_plain_attributes(ModuleObject *source, ModuleObject *copy) {
    // A copy of the dict: copying a value may run code that changes the module. By something that
    // was copied before and looked at it, the dict may have the internal attributes too.
    const auto original = py::reinterpret_borrow<py::object>(source->dict);
    const py::object attributes = checked(PyDict_Copy(original.ptr()));
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (dict_next_item(attributes.ptr(), &position, &key, &value)) {
      const auto keep_key = py::reinterpret_borrow<py::object>(key);
      const auto keep_value = py::reinterpret_borrow<py::object>(value);
      const SpecialName *special = special_name(key);
      if (!special || special->slot < 0) {
        fill_attribute(copy, key, value);
      }
    }
  }

  py::object memo_;
  const py::object by_class_;    // copy._deepcopy_dispatch
  const py::object reductions_;  // copyreg.dispatch_table
  const bool atoms_are_known_;
  TypeCache<std::monostate, 4> unlisted_;
  py::object kept_;
  Py_ssize_t own_entries_ = 0;
  std::vector<Pending> pending_;
  int nested_ = 0;
  SignalCheck signals_;
};

}  // namespace

bool inherits_copying(ModuleObject *module) {
  // A metaclass may answer for `cls.__new__`. It is asked each time, since a change of it, or
  // another one, gives the class no new version.
  return Py_TYPE(Py_TYPE(module))->tp_getattro == PyType_Type.tp_getattro &&
         class_info(Py_TYPE(module)).inherits_copying() &&
         !overrides_any_in_instance<Virtual::getstate, Virtual::reduce_ex, Virtual::deepcopy,
                                    Virtual::getnewargs, Virtual::getnewargs_ex>(module);
}

bool copies_natively(ModuleObject *module) {
  const bool is_ordinary =
      module->state.exposed ? module->dict && has_ordinary_dict(module) : module->state.initialized;
  return is_ordinary && inherits_copying(module);
}

PyObject *deepcopy_tree(PyObject *root, PyObject *memo) {
  if (PyDict_CheckExact(memo)) {
    TreeCopy copy(memo);
    if (copy.takes(root)) {
      return copy.run(root).release().ptr();
    }
  }
  declined = root;
  PyObject *copy =
      call(py::handle(deepcopy_function), py::handle(root), py::handle(memo)).release().ptr();
  if (declined == root) {
    declined = nullptr;
  }
  return copy;
}

bool declines_deepcopy(PyObject *module) {
  if (declined != module) {
    return false;
  }
  declined = nullptr;
  return true;
}

void init_deepcopy() {
  deepcopy_function = checked(import_attribute("copy", "deepcopy")).release().ptr();
  const py::object globals = checked(get_attribute(deepcopy_function, "__globals__"));
  if (!PyDict_Check(globals.ptr())) {
    throw py::type_error("the globals of copy.deepcopy must be a dict");
  }
  copy_globals = py::object(globals).release().ptr();
  PyObject *table = dict_get_str(copy_globals, names.deepcopy_dispatch);
  PyTypeObject *const types[] = {Py_TYPE(Py_None), &PyBool_Type,    &PyLong_Type,
                                 &PyFloat_Type,    &PyUnicode_Type, &PyBytes_Type,
                                 &PyFunction_Type, &PyType_Type,    &PyCFunction_Type};
  for (std::size_t i = 0; i < atoms.size(); ++i) {
    auto *key = reinterpret_cast<PyObject *>(types[i]);
    PyObject *copier = table && PyDict_Check(table) ? PyDict_GetItem(table, key) : nullptr;
    atoms[i] = {types[i], Py_XNewRef(copier)};
  }
  atoms_come_first = PyDict_GetItemString(copy_globals, "_atomic_types") != nullptr;
}

}  // namespace modtree
