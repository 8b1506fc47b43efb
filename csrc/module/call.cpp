// SPDX-License-Identifier: BSD-3-Clause
#include "module/call.h"

#include <vector>

#include "module/class_info.h"
#include "module/globals.h"
#include "py/slot_guard.h"

namespace modtree {

namespace {

bool is_empty_table(PyObject *table) { return !table || (PyDict_Check(table) ? PyDict_GET_SIZE(table) == 0 : PyObject_Size(table) == 0); }

// 1 when a call must go through the hooks, 0 when not, -1 with AttributeError before Module.__init__.
int has_call_hooks(ModuleObject *module) {
  if (has_entries(global_hooks.forward_pre) || has_entries(global_hooks.forward) || has_entries(global_hooks.backward) ||
      has_entries(global_hooks.backward_pre)) {
    return 1;
  }
  if (!module->state.exposed) {
    if (!module->state.initialized) {
      raise_missing_slot(module, Slot::backward_hooks);
      return -1;
    }
    if (!module->state.hooks) {
      return 0;
    }
  }
  for (const Slot slot : {Slot::backward_hooks, Slot::backward_pre_hooks, Slot::forward_hooks, Slot::forward_pre_hooks}) {
    PyObject *table = peek(module, slot);
    if (!table && module->state.exposed) {
      raise_missing_slot(module, slot);
      return -1;
    }
    if (!is_empty_table(table)) {
      return 1;
    }
  }
  return 0;
}

// Calls a plain function of the class with self in front, without making a bound method.
PyObject *call_unbound(PyObject *function, PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  constexpr Py_ssize_t kSmall = 8;
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  PyObject *small[kSmall + 1];
  std::vector<PyObject *> large;
  PyObject **stack = small;
  if (count > kSmall) {
    large.resize(static_cast<std::size_t>(count) + 1);
    stack = large.data();
  }
  stack[0] = self_obj;
  for (Py_ssize_t i = 0; i < count; ++i) {
    stack[i + 1] = PyTuple_GET_ITEM(args, i);
  }
  // A patch of the class during the call must not free the function that runs.
  Py_INCREF(function);
  PyObject *result = PyObject_VectorcallDict(function, stack, static_cast<std::size_t>(count) + 1, kwargs);
  Py_DECREF(function);
  return result;
}

// The class's own `forward` when it is a plain function that no instance attribute hides; borrowed, or null.
PyObject *plain_forward(ModuleObject *module) {
  const ClassInfo *info = class_info(Py_TYPE(module));
  return info->forward && !info->overrides(Virtual::getattribute) && !instance_overrides(module, Virtual::forward) ? info->forward
                                                                                                                    : nullptr;
}

PyObject *call_forward(PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  if (PyObject *function = plain_forward(as_module(self_obj))) {
    return call_unbound(function, self_obj, args, kwargs);
  }
  const auto forward = py::reinterpret_steal<py::object>(PyObject_GetAttr(self_obj, names.forward));
  return forward ? PyObject_Call(forward.ptr(), args, kwargs) : nullptr;
}

// --- the slow path ----------------------------------------------------------------------------------------------------------

// A hook as it was when its phase began: removing it or its flags later changes nothing in this call.
struct Hook {
  py::object id;
  py::object function;
  bool with_kwargs;
  bool always_call;
  bool is_global;
};

bool in_table(PyObject *table, const py::object &id) {
  if (!table) {
    return false;
  }
  const int found = PySequence_Contains(table, id.ptr());
  if (found < 0) {
    throw py::error_already_set();
  }
  return found == 1;
}

void append_hooks(std::vector<Hook> &hooks, PyObject *table, PyObject *with_kwargs, PyObject *always_called, bool is_global) {
  if (is_empty_table(table)) {
    return;
  }
  const auto items = py::reinterpret_steal<py::list>(PyMapping_Items(table));
  if (!items) {
    throw py::error_already_set();
  }
  for (const py::handle item : items) {
    const auto pair = py::cast<py::tuple>(item);
    const py::object id = pair[0];
    hooks.push_back(Hook{id, pair[1], in_table(with_kwargs, id), in_table(always_called, id), is_global});
  }
}

std::vector<Hook> forward_hooks_of(ModuleObject *module) {
  std::vector<Hook> hooks;
  append_hooks(hooks, global_hooks.forward, global_hooks.forward_with_kwargs, global_hooks.forward_always_called, true);
  append_hooks(hooks, peek(module, Slot::forward_hooks), peek(module, Slot::forward_hooks_with_kwargs),
               peek(module, Slot::forward_hooks_always_called), false);
  return hooks;
}

py::object checked(PyObject *result) {
  if (!result) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(result);
}

// One call through the hooks. Errors travel as error_already_set.
class HookedCall {
public:
  HookedCall(PyObject *self_obj, PyObject *args, PyObject *kwargs)
      : self_(py::reinterpret_borrow<py::object>(self_obj)),
        forward_(checked(PyObject_GetAttr(self_obj, names.forward))),
        args_(py::reinterpret_borrow<py::object>(args)),
        // Pre-hooks may change the dict in place; forward sees it, the caller does not.
        kwargs_(kwargs ? py::reinterpret_borrow<py::object>(kwargs) : py::object(py::dict())),
        result_(py::none()) {}

  py::object run() {
    try {
      run_normally();
      return result_;
    } catch (py::error_already_set &error) {
      if (!error.matches(PyExc_Exception)) {
        throw;
      }
      run_always_called();
      throw;
    }
  }

private:
  void run_normally() {
    collect_backward_hooks();
    run_pre_hooks();
    py::object tap;
    if (py::len(full_hooks_) > 0 || py::len(backward_pre_hooks_) > 0) {
      tap = py::module_::import("modtree.hooks").attr("make_backward_tap")(self_, full_hooks_, backward_pre_hooks_, args_);
      args_ = tap.attr("setup_input_hook")(args_);
    }
    result_ = checked(call(forward_, args_, kwargs_));
    for (const Hook &hook : forward_hooks_of(module())) {
      if (hook.always_call) {
        started_.push_back(hook.id);
      }
      run_forward_hook(hook);
    }
    if (tap) {
      result_ = tap.attr("setup_output_hook")(result_);
    }
    if (py::len(legacy_hooks_) > 0) {
      py::module_::import("modtree.hooks").attr("attach_legacy_backward_hooks")(self_, args_, result_, legacy_hooks_);
    }
  }

  ModuleObject *module() const { return as_module(self_.ptr()); }

  // PyObject_Call insists on a tuple; a pre-hook may have given another sequence.
  static PyObject *call(const py::object &function, const py::object &args, const py::object &kwargs) {
    const auto tuple = py::reinterpret_steal<py::object>(PySequence_Tuple(args.ptr()));
    if (!tuple) {
      return nullptr;
    }
    if (!PyDict_Check(kwargs.ptr())) {
      const py::dict copy(kwargs);
      return PyObject_Call(function.ptr(), tuple.ptr(), copy.ptr());
    }
    return PyObject_Call(function.ptr(), tuple.ptr(), kwargs.ptr());
  }

  void collect_backward_hooks() {
    if (has_entries(global_hooks.backward) || !is_empty_table(peek(module(), Slot::backward_hooks))) {
      const py::tuple both = self_.attr("_get_backward_hooks")();
      full_hooks_ = both[0];
      legacy_hooks_ = both[1];
    }
    if (has_entries(global_hooks.backward_pre) || !is_empty_table(peek(module(), Slot::backward_pre_hooks))) {
      backward_pre_hooks_ = self_.attr("_get_backward_pre_hooks")();
    }
  }

  void run_pre_hooks() {
    std::vector<Hook> hooks;
    append_hooks(hooks, global_hooks.forward_pre, nullptr, nullptr, true);
    append_hooks(hooks, peek(module(), Slot::forward_pre_hooks), peek(module(), Slot::forward_pre_hooks_with_kwargs), nullptr, false);
    for (const Hook &hook : hooks) {
      if (hook.with_kwargs) {
        run_pre_hook_with_kwargs(hook);
        continue;
      }
      const py::object result = hook.function(self_, args_);
      if (!result.is_none()) {
        args_ = py::isinstance<py::tuple>(result) ? result : py::object(py::make_tuple(result));
      }
    }
  }

  void run_pre_hook_with_kwargs(const Hook &hook) {
    const py::object result = hook.function(self_, args_, kwargs_);
    if (result.is_none()) {
      return;
    }
    if (!py::isinstance<py::tuple>(result) || py::len(result) != 2) {
      const py::str shown = py::repr(result);
      PyErr_Format(PyExc_RuntimeError, "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got %U.",
                   shown.ptr());
      throw py::error_already_set();
    }
    args_ = result[py::int_(0)];
    kwargs_ = result[py::int_(1)];
  }

  void run_forward_hook(const Hook &hook) {
    const py::object result =
        hook.with_kwargs ? hook.function(self_, args_, kwargs_, result_) : hook.function(self_, args_, result_);
    if (!result.is_none()) {
      result_ = result;
    }
  }

  bool was_started(const py::object &id) const {
    for (const py::object &started : started_) {
      if (started.is(id)) {
        return true;
      }
    }
    return false;
  }

  // After an error: every always_call hook that had no turn yet; what such a hook raises is only warned of.
  void run_always_called() {
    for (const Hook &hook : forward_hooks_of(module())) {
      if (!hook.always_call || was_started(hook.id)) {
        continue;
      }
      try {
        run_forward_hook(hook);
      } catch (py::error_already_set &error) {
        if (!error.matches(PyExc_Exception)) {
          throw;
        }
        warn_of_silenced(hook, error);
      }
    }
  }

  static void warn_of_silenced(const Hook &hook, const py::error_already_set &error) {
    const py::str shown = py::repr(error.value());
    if (PyErr_WarnFormat(PyExc_UserWarning, 1,
                         "%s forward hook with ``always_call=True`` raised an exception that was silenced as another error was raised in "
                         "forward: %U",
                         hook.is_global ? "global module" : "module", shown.ptr()) < 0) {
      throw py::error_already_set();
    }
  }

  py::object self_;
  py::object forward_;
  py::object args_;
  py::object kwargs_;
  py::object result_;
  py::object full_hooks_ = py::list();
  py::object legacy_hooks_ = py::list();
  py::object backward_pre_hooks_ = py::list();
  std::vector<py::object> started_;
};

PyObject *call_with_hooks(PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  return slot_guard<PyObject *>(nullptr, [&] { return HookedCall(self_obj, args, kwargs).run().release().ptr(); });
}

// 1 and a new reference when the instance or class has a compiled implementation, 0 when not, -1 on error.
int compiled_implementation(ModuleObject *module, PyObject **compiled) {
  if (!overrides(module, Virtual::compiled_call_impl)) {
    return 0;
  }
  *compiled = PyObject_GetAttr(as_object(module), names.compiled_call_impl);
  if (!*compiled) {
    return -1;
  }
  if (*compiled == Py_None) {
    Py_CLEAR(*compiled);
    return 0;
  }
  return 1;
}

}  // namespace

PyObject *module_call_impl(PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  const int hooked = has_call_hooks(as_module(self_obj));
  if (hooked < 0) {
    return nullptr;
  }
  return hooked ? call_with_hooks(self_obj, args, kwargs) : call_forward(self_obj, args, kwargs);
}

PyObject *module_tp_call(PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  ModuleObject *self = as_module(self_obj);
  PyObject *compiled = nullptr;
  const int is_compiled = compiled_implementation(self, &compiled);
  if (is_compiled != 0) {
    PyObject *result = is_compiled > 0 ? PyObject_Call(compiled, args, kwargs) : nullptr;
    Py_XDECREF(compiled);
    return result;
  }
  if (overrides(self, Virtual::call_impl)) {
    const auto method = py::reinterpret_steal<py::object>(PyObject_GetAttr(self_obj, names.call_impl));
    return method ? PyObject_Call(method.ptr(), args, kwargs) : nullptr;
  }
  return module_call_impl(self_obj, args, kwargs);
}

}  // namespace modtree
