// SPDX-License-Identifier: BSD-3-Clause
#include "module/hooked_call.h"

#include <vector>

#include "module/class_info.h"
#include "module/error_note.h"
#include "module/forward.h"
#include "module/globals.h"
#include "module/hook_snapshot.h"
#include "module/torch_facts.h"
#include "python/compat.h"
#include "python/installed.h"
#include "python/native_section.h"
#include "python/once.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

// One call through the hooks. Functions return 0, or -1 with a Python error set.
class HookedCall {
public:
  HookedCall(PyObject *self_obj, PyObject *args, PyObject *kwargs)
      : self_(self_obj),
        args_(py::reinterpret_borrow<py::object>(args)),
        kwargs_(py::reinterpret_borrow<py::object>(kwargs)),
        result_(py::none()) {}

  PyObject *run() {
    if (run_normally() == 0) {
      return result_.release().ptr();
    }
    if (PyErr_ExceptionMatches(PyExc_Exception)) {
      run_always_called();
    }
    return note_failed_call(self_, args_.ptr(), kwargs_.ptr());
  }

private:
  ModuleObject *module() const { return as_module(self_); }

  int run_normally() {
    // forward is looked up before any hook runs: one that replaces it takes effect in the next
    // call.
    const auto type =
        py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(Py_TYPE(self_)));
    forward_ = find_forward(module(), &unbound_);
    if (!forward_ || collect_backward_hooks() < 0 || run_pre_hooks() < 0) {
      return -1;
    }
    if (type.ptr() != reinterpret_cast<PyObject *>(Py_TYPE(self_)) && follow_class(type) < 0) {
      return -1;
    }
    if (tap_input() < 0) {
      return -1;
    }
    if (take_result(call_forward()) < 0 || run_forward_hooks() < 0) {
      return -1;
    }
    return finish_backward_hooks();
  }

  // A lazy module has become one of another class, whose forward it is that runs from now on.
  int follow_class(const py::object &before) {
    const auto name =
        py::reinterpret_steal<py::object>(PyUnicode_FromString("_calls_forward_of_new_class"));
    if (!name) {
      return -1;
    }
    if (type_has(reinterpret_cast<PyTypeObject *>(before.ptr()), name.ptr())) {
      forward_ = find_forward(module(), &unbound_);
    }
    return forward_ ? 0 : -1;
  }

  int take_result(PyObject *result) {
    if (!result) {
      return -1;
    }
    result_ = py::reinterpret_steal<py::object>(result);
    return 0;
  }

  PyObject *call_forward() {
    // A pre-hook may have put another sequence or mapping in place of the arguments.
    if (!PyTuple_CheckExact(args_.ptr())) {
      auto tuple = py::reinterpret_steal<py::object>(tuple_of_items(args_.ptr()));
      if (!tuple) {
        return nullptr;
      }
      return call_forward_with(tuple.ptr());
    }
    return call_forward_with(args_.ptr());
  }

  PyObject *call_forward_with(PyObject *args) {
    py::object kwargs = kwargs_;
    if (kwargs && !PyDict_Check(kwargs.ptr())) {
      kwargs = py::reinterpret_steal<py::object>(PyDict_New());
      if (!kwargs) {
        return nullptr;
      }
      if (PyDict_Update(kwargs.ptr(), kwargs_.ptr()) < 0) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) {  // as CPython says of `**kwargs`
          PyErr_Format(PyExc_TypeError,
                       "a forward pre-hook of %.200s gave keyword arguments that are no mapping: "
                       "%R",
                       type_short_name(Py_TYPE(self_)), kwargs_.ptr());
        }
        return nullptr;
      }
    }
    const OutsideNativeSection outside;
    return unbound_ ? call_unbound(forward_.ptr(), self_, args, kwargs.ptr())
                    : PyObject_Call(forward_.ptr(), args, kwargs.ptr());
  }

  // The dict of keyword arguments, made for the first hook that wants it. In-place changes reach
  // forward, not the caller.
  PyObject *kwargs() {
    if (!kwargs_) {
      kwargs_ = py::reinterpret_steal<py::object>(PyDict_New());
    }
    return kwargs_.ptr();
  }

  // --- forward hooks
  // ---------------------------------------------------------------------------------

  int run_pre_hooks() {
    // Mostly so, and then no snapshot is made.
    if (!has_entries(global_hooks.forward_pre) &&
        !may_have_entries(module(), Slot::forward_pre_hooks)) {
      return 0;
    }
    HookSnapshot hooks;
    if (collect_pre_hooks(module(), hooks) < 0) {
      return -1;
    }
    for (std::size_t i = 0; i < hooks.size(); ++i) {
      const Hook &hook = hooks[i];
      if ((hook.with_kwargs ? run_pre_hook_with_kwargs(hook) : run_pre_hook(hook)) < 0) {
        return -1;
      }
    }
    return 0;
  }

  int run_pre_hook(const Hook &hook) {
    const py::object result = call(hook.function, self_, args_.ptr());
    if (!result) {
      return -1;
    }
    if (!result.is_none()) {
      args_ = PyTuple_Check(result.ptr())
                  ? result
                  : py::reinterpret_steal<py::object>(PyTuple_Pack(1, result.ptr()));
    }
    return args_ ? 0 : -1;
  }

  int run_pre_hook_with_kwargs(const Hook &hook) {
    if (!kwargs()) {
      return -1;
    }
    const py::object result = call(hook.function, self_, args_.ptr(), kwargs_.ptr());
    if (!result || result.is_none()) {
      return result ? 0 : -1;
    }
    if (!PyTuple_Check(result.ptr()) || PyTuple_GET_SIZE(result.ptr()) != 2) {
      PyErr_Format(
          PyExc_RuntimeError,
          "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got %R.",
          result.ptr());
      return -1;
    }
    args_ = py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(result.ptr(), 0));
    kwargs_ = py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(result.ptr(), 1));
    return 0;
  }

  int run_forward_hooks() {
    HookSnapshot hooks;
    if (collect_forward_hooks(module(), hooks) < 0) {
      return -1;
    }
    for (std::size_t i = 0; i < hooks.size(); ++i) {
      const Hook &hook = hooks[i];
      if (hook.always_call) {
        started_.push_back(hook.id);
      }
      if (run_forward_hook(hook) < 0) {
        return -1;
      }
    }
    return 0;
  }

  int run_forward_hook(const Hook &hook) {
    if (hook.with_kwargs && !kwargs()) {
      return -1;
    }
    const py::object result =
        hook.with_kwargs ? call(hook.function, self_, args_.ptr(), kwargs_.ptr(), result_.ptr())
                         : call(hook.function, self_, args_.ptr(), result_.ptr());
    if (result && !result.is_none()) {
      result_ = result;
    }
    return result ? 0 : -1;
  }

  // --- backward hooks
  // ---------------------------------------------------------------------------------

  // 1 if the module has hooks of this kind, -1 on error.
  template <Slot slot>
  int has_own() {
    PyObject *table;
    py::object keep;
    return registry(module(), slot, &table, &keep) < 0 ? -1 : table_has_hooks(table);
  }

  int collect_backward_hooks() {
    const int hooks = has_entries(global_hooks.backward) ? 1 : has_own<Slot::backward_hooks>();
    const int pre_hooks = hooks < 0 ? -1
                          : has_entries(global_hooks.backward_pre)
                              ? 1
                              : has_own<Slot::backward_pre_hooks>();
    if (pre_hooks < 0 || (!hooks && !pre_hooks)) {
      return pre_hooks;
    }
    return list_backward_hooks(hooks, pre_hooks);
  }

  [[gnu::noinline]] int list_backward_hooks(bool hooks, bool pre_hooks) {
    return slot_guard(-1, [&] {
      full_hooks_ = legacy_hooks_ = backward_pre_hooks_ = py::list();
      if (hooks) {
        const py::object returned = call_method(self_, "_get_backward_hooks");
        if (!returned) {
          return -1;
        }
        const py::tuple both(returned);
        full_hooks_ = both[0];
        legacy_hooks_ = both[1];
      }
      if (pre_hooks) {
        backward_pre_hooks_ = call_method(self_, "_get_backward_pre_hooks");
      }
      return backward_pre_hooks_ ? 0 : -1;
    });
  }

  int tap_input() {
    if (!full_hooks_) {
      return 0;
    }
    return slot_guard(-1, [&] {
      if (py::len(full_hooks_) > 0 || py::len(backward_pre_hooks_) > 0) {
        tap_ = call_installed(installed.make_backward_tap, self_, full_hooks_, backward_pre_hooks_,
                              args_);
        py::object tapped = tap_ ? call_method(tap_, "setup_input_hook", args_) : py::object();
        if (!tapped) {
          return -1;
        }
        args_ = std::move(tapped);
      }
      return 0;
    });
  }

  int finish_backward_hooks() {
    if (!full_hooks_) {
      return 0;
    }
    return slot_guard(-1, [&] {
      if (tap_) {
        py::object tapped = call_method(tap_, "setup_output_hook", result_);
        if (!tapped) {
          return -1;
        }
        result_ = std::move(tapped);
      }
      if (py::len(legacy_hooks_) > 0) {
        return call_installed(installed.attach_legacy_backward_hooks, self_, args_, result_,
                              legacy_hooks_)
                   ? 0
                   : -1;
      }
      return 0;
    });
  }

  // --- after an error
  // ---------------------------------------------------------------------------------

  bool was_started(const py::object &id) const {
    for (const py::object &started : started_) {
      if (started.is(id)) {
        return true;
      }
    }
    return false;
  }

  // Every always_call hook that was not called yet is called; what such a hook raises is only
  // warned of. The error that is set stays, unless something worse than an Exception replaces it.
  void run_always_called() {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    HookSnapshot hooks;
    int done = collect_forward_hooks(module(), hooks);
    for (std::size_t i = 0; done == 0 && i < hooks.size(); ++i) {
      const Hook &hook = hooks[i];
      if (hook.always_call && !was_started(hook.id) && run_forward_hook(hook) < 0) {
        done = PyErr_ExceptionMatches(PyExc_Exception) ? warn_of_silenced(hook) : -1;
      }
    }
    if (done < 0) {
      Py_XDECREF(type);
      Py_XDECREF(error);
      Py_XDECREF(traceback);
      return;
    }
    PyErr_Restore(type, error, traceback);
  }

  // Turns the error that is set into a warning. -1 when the warning is an error.
  static int warn_of_silenced(const Hook &hook) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    const char *kind = hook.is_global ? "global module" : "module";
    const int warned =
        warn_as_torch(hook.is_global ? "global module forward hook" : "module forward hook",
                      PyUnicode_FromFormat(
                          "%s forward hook with ``always_call=True`` raised an exception that was "
                          "silenced as another error was raised in forward: %R",
                          kind, error ? error : Py_None));
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return warned;
  }

  PyObject *self_;
  py::object forward_;
  bool unbound_ = false;
  py::object args_;
  py::object kwargs_;  // null while there are none
  py::object result_;
  py::object full_hooks_;  // all three are null when there are no hooks on gradients
  py::object legacy_hooks_;
  py::object backward_pre_hooks_;
  py::object tap_;
  std::vector<py::object> started_;
};

}  // namespace

PyObject *call_with_hooks(PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  const auto keep = py::reinterpret_borrow<py::object>(self_obj);
  return slot_guard<PyObject *>(nullptr, [&] { return HookedCall(self_obj, args, kwargs).run(); });
}

}  // namespace modtree
