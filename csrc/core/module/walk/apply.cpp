// SPDX-License-Identifier: BSD-3-Clause
#include "module/methods.h"

#include "module/walk/tree_visit.h"
#include "python/arguments.h"
#include "python/native_section.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

struct ApplyVisitor {
  static constexpr Virtual kMethod = Virtual::apply;

  PyObject *fn;

  int before_user_code() { return 0; }
  bool visit_leaf(PyObject *) { return false; }
  int enter(PyObject *, ClassInfo) { return 0; }

  int leave(PyObject *module) {
    const OutsideNativeSection outside;
    PyObject *result = PyObject_CallOneArg(fn, module);
    Py_XDECREF(result);
    return result ? 0 : -1;
  }

  int call_override(PyObject *child) {
    PyObject *result = PyObject_CallMethodOneArg(child, names.apply, fn);
    Py_XDECREF(result);
    return result ? 0 : -1;
  }
};

}  // namespace

PyObject *module_apply(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                       PyObject *keywords) {
  static const ArgumentNames kNames = {"apply", {"fn"}, 1};
  PyObject *values[1] = {};
  if (parse_arguments(kNames, args, count, keywords, values) < 0) {
    return nullptr;
  }
  ApplyVisitor visitor{values[0]};
  const int done = slot_guard(-1, [&] { return TreeVisit<ApplyVisitor>(visitor).run(self_obj); });
  return done < 0 ? nullptr : Py_NewRef(self_obj);
}

}  // namespace modtree
