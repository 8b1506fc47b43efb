// SPDX-License-Identifier: BSD-3-Clause
#include "module/deepcopy.h"

#include <utility>
#include <vector>

#include "family/family.h"
#include "module/class_info.h"
#include "python/call.h"
#include "python/signals.h"

namespace modtree {

namespace {

// Values that are their own deep copy.
bool is_atomic(PyObject *value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
         PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) ||
         PyFunction_Check(value) || PyType_Check(value) || PyCFunction_CheckExact(value);
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

// Modules inside each other that are copied depth first, so that code of their own runs in the
// order of copy.deepcopy; those further down come after the rest, so that no stack overflows.
constexpr int kMostNested = 100;

// One run of copy.deepcopy over modules. Each module gets an empty copy when it is first met, so
// that cycles do not matter, and is filled then or later; everything that is not a plain module
// goes through copy.deepcopy. Errors travel as error_already_set.
class TreeCopy {
public:
  explicit TreeCopy(PyObject *memo) : memo_(py::reinterpret_borrow<py::object>(memo)) {}

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

  // Borrowed; null when the object was not copied yet.
  PyObject *known_copy(PyObject *value) { return known_copy(checked(PyLong_FromVoidPtr(value))); }

  PyObject *known_copy(const py::object &id) {
    PyObject *copy = PyDict_GetItemWithError(memo_.ptr(), id.ptr());
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
    check(PyDict_SetItem(memo_.ptr(), id.ptr(), copy));
    if (!kept_) {
      const py::object of_memo = checked(PyLong_FromVoidPtr(memo_.ptr()));
      PyObject *kept = PyDict_GetItemWithError(memo_.ptr(), of_memo.ptr());
      kept_ = kept ? py::reinterpret_borrow<py::object>(kept) : py::object(py::list());
      if (!kept) {
        check(PyErr_Occurred() ? -1 : PyDict_SetItem(memo_.ptr(), of_memo.ptr(), kept_.ptr()));
      }
    }
    if (PyList_Check(kept_.ptr())) {
      check(PyList_Append(kept_.ptr(), value));
    }
  }

  py::object copy_of_module(PyObject *module) {
    PyTypeObject *type = Py_TYPE(module);
    py::object copy = checked(type->tp_new(type, py::tuple().ptr(), nullptr));
    remember(module, copy.ptr());
    auto source = py::reinterpret_borrow<py::object>(module);
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
      return copies_natively(as_module(value)) ? copy_of_module(value)
                                               : checked(call(deepcopy_function(), value, memo_));
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
        return checked(call(deepcopy_function(), value, memo_));
      }
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

  const py::object &deepcopy_function() {
    if (!deepcopy_) {
      deepcopy_ = checked(import_attribute("copy", "deepcopy"));
    }
    return deepcopy_;
  }

  // A dict whose values are copied; another holder of the same dict (copy.copy shares them) gets
  // the same copy.
  py::object copy_of_registry(PyObject *registry) {
    if (!PyDict_CheckExact(registry)) {
      return checked(call(deepcopy_function(), registry, memo_));
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
      check(PyDict_SetItem(copy.ptr(), key, copy_of(value).ptr()));
    }
    check(more);
    return copy;
  }

  void fill(ModuleObject *source, ModuleObject *copy) {
    check(reset_state(copy));
    for (int i = 0; i < kSlotCount; ++i) {
      const Slot slot = static_cast<Slot>(i);
      PyObject *value = peek(source, slot);
      if (!value) {
        continue;
      }
      const bool is_registry =
          !source->state.exposed &&
          (slot == Slot::parameters || slot == Slot::buffers || slot == Slot::modules);
      if (is_registry && PyDict_GET_SIZE(value) == 0 && is_sole_reference(value)) {
        continue;
      }
      const auto keep = py::reinterpret_borrow<py::object>(value);
      check(store_slot(copy, slot, (is_registry ? copy_of_registry(value) : copy_of(value)).ptr()));
    }
    copy->state.instance_overrides = source->state.instance_overrides;
    if (source->dict) {
      fill_plain_attributes(source, copy);
    }
  }

  void fill_plain_attributes(ModuleObject *source, ModuleObject *copy) {
    // A copy of the dict: copying a value may run code that changes the module.
    const auto original = py::reinterpret_borrow<py::object>(source->dict);
    const py::object attributes = checked(PyDict_Copy(original.ptr()));
    if (source->state.exposed) {
      // By something that was copied before and looked at it: the dict has the internal attributes
      // too.
      check(expose(copy));
    }
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(attributes.ptr(), &position, &key, &value)) {
      if (key != names.compiled_call_impl) {
        const py::object copied = copy_of(value);
        // Not before: what is copied may look at the copy's __dict__, which replaces it.
        const auto target = py::reinterpret_borrow<py::object>(instance_dict(copy));
        check(target ? PyDict_SetItem(target.ptr(), key, copied.ptr()) : -1);
      }
    }
  }

  py::object memo_;
  py::object kept_;
  py::object deepcopy_;
  std::vector<Pending> pending_;
  int nested_ = 0;
  SignalCheck signals_;
};

}  // namespace

bool copies_natively(ModuleObject *module) {
  return module->state.initialized && !module->state.exposed && !has_own_copy_protocol(module);
}

PyObject *deepcopy_tree(PyObject *root, PyObject *memo) {
  return TreeCopy(memo).run(root).release().ptr();
}

}  // namespace modtree
