// SPDX-License-Identifier: BSD-3-Clause
#include "module/methods.h"

#include "module/convert/conversion.h"
#include "module/convert/convert_members.h"
#include "module/error_note.h"
#include "module/walk/look_ahead.h"
#include "module/walk/plain_class.h"
#include "module/walk/tree_visit.h"
#include "python/arguments.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

struct ConvertVisitor {
  static constexpr Virtual kMethod = Virtual::apply_;

  explicit ConvertVisitor(PyObject *fn) : conversion(fn) {}

  MemberConversion conversion;
  py::object failed;  // the module at which it ended with an error

  int before_user_code() { return conversion.leave_no_grad(); }
  bool visit_leaf(PyObject *) { return false; }
  int enter(PyObject *module, ClassInfo info) {
    return asks_python(module, info) ? before_user_code() : 0;
  }
  int leave(PyObject *module) {
    return conversion.convert(as_module(module), asks_python(module, class_info(Py_TYPE(module)))) <
                   0
               ? fail_at(module)
               : 0;
  }

  bool is_plain_leaf(PyObject *child) {
    if (!plain_class_.has(child)) {
      return false;
    }
    const ModuleState &state = as_module(child)->state;
    return state.initialized && !may_override(as_module(child)) &&
           (!state.modules ||
            (PyDict_CheckExact(state.modules) && PyDict_GET_SIZE(state.modules) == 0));
  }
  int leave_plain_leaf(PyObject *child) {
    return conversion.convert(as_module(child), false) < 0 ? fail_at(child) : 0;
  }
  void look_ahead(const RegistryItems &children, PyObject *child) {
    ahead_.from([&](int places) { return children.ahead(places - 1); }, Py_TYPE(child),
                conversion.last_family());
  }

  // True if looking for its children, parameters or buffers may run Python.
  static bool asks_python(PyObject *module, ClassInfo info) {
    return may_override(as_module(module)) || !as_module(module)->state.initialized ||
           info.overrides_any<Virtual::children, Virtual::named_children, Virtual::getattribute,
                              Virtual::parameters_, Virtual::buffers_, Virtual::modules_>();
  }

  int call_override(PyObject *child) {
    if (before_user_code() < 0) {
      return -1;
    }
    PyObject *result = PyObject_CallMethodOneArg(child, names.apply_, conversion.fn());
    Py_XDECREF(result);
    return result ? 0 : fail_at(child);
  }

private:
  int fail_at(PyObject *module) {
    failed = py::reinterpret_borrow<py::object>(module);
    return -1;
  }

  // For those whose _apply is Module's own and for which asks_python() is false.
  PlainClass<Virtual::apply_, Virtual::children, Virtual::named_children, Virtual::getattribute,
             Virtual::parameters_, Virtual::buffers_, Virtual::modules_>
      plain_class_;
  LookAhead<ReadsOf::gradient> ahead_;
};

}  // namespace

PyObject *module_apply_(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                        PyObject *keywords) {
  static const ArgumentNames kNames = {"_apply", {"fn", "recurse", "preserve_ties"}, 1, 2};
  PyObject *values[3] = {};
  if (parse_arguments(kNames, args, count, keywords, values) < 0) {
    return nullptr;
  }
  int recurse = 1, preserve_ties = 0;
  if (truths_or(values[1], &recurse, values[2], &preserve_ties) < 0) {
    return nullptr;
  }
  const auto fn = preserve_ties ? py::reinterpret_steal<py::object>(new_keep_ties(values[0]))
                                : py::reinterpret_borrow<py::object>(values[0]);
  if (!fn) {
    return nullptr;
  }
  const int done = slot_guard(-1, [&] {
    ConvertVisitor visitor(fn.ptr());
    const int converted =
        recurse ? TreeVisit<ConvertVisitor, true>(visitor).run(self_obj) : visitor.leave(self_obj);
    if (converted < 0 && visitor.failed) {
      note_failure(self_obj, visitor.failed.ptr(), "_apply");
    }
    return converted < 0 ? -1 : visitor.before_user_code();
  });
  return done < 0 ? nullptr : Py_NewRef(self_obj);
}

}  // namespace modtree
