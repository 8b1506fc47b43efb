// SPDX-License-Identifier: BSD-3-Clause
#include "module/module_walk.h"

#include <string>

#include "module/class_info.h"
#include "module/name_cache.h"

namespace modtree {

ModuleWalk::ModuleWalk(PyObject *prefix, bool remove_duplicate, bool named, PyObject *memo)
    : prefix_(py::reinterpret_borrow<py::object>(prefix)), remove_duplicate_(remove_duplicate), named_(named) {
  if (memo) {
    seen_.adopt(memo);
  }
}

int ModuleWalk::start_with_pairs(PyObject *iterable) {
  Frame frame;
  frame.pairs = py::reinterpret_steal<py::object>(PyObject_GetIter(iterable));
  if (!frame.pairs) {
    return -1;
  }
  stack_.push_back(std::move(frame));
  return 0;
}

int ModuleWalk::next(Visit *visit) {
  if (root_) {
    const py::object root = std::move(root_);
    root_ = py::object();
    const int entered = enter(root.ptr(), nullptr, visit);
    if (entered != 0) {
      return entered;
    }
  }
  while (!stack_.empty()) {
    bool found = false;
    const int result = stack_.back().pairs ? next_pair(visit, &found) : next_child(visit, &found);
    if (result < 0) {
      return -1;
    }
    if (found) {
      return 1;
    }
  }
  return 0;
}

// Visits a module natively: 1 and *visit set, 0 when it was seen before, -1 on error.
int ModuleWalk::enter(PyObject *module, PyObject *key, Visit *visit) {
  const int is_new = seen_.visit(module, class_info(Py_TYPE(module))->identity_hash, remove_duplicate_);
  if (is_new <= 0) {
    return is_new;
  }
  if (!remove_duplicate_ && !on_path_.insert(module)) {
    return raise_cycle(module, key);
  }
  Frame frame;
  frame.module = py::reinterpret_borrow<py::object>(module);
  frame.key = py::reinterpret_borrow<py::object>(key);
  if (named_) {
    frame.prefix = full_name(key);
    if (!frame.prefix) {
      return -1;
    }
    visit->name = frame.prefix;
  }
  visit->module = frame.module;
  stack_.push_back(std::move(frame));
  return 1;
}

// Lets Python walk a subtree: an overridden named_modules(), or a child that is not one of our modules.
int ModuleWalk::enter_foreign(PyObject *module, PyObject *key) {
  const py::object name = named_ ? full_name(key) : py::object();
  const py::object child_prefix = name ? name : [&] {
    const py::object path = path_of_top();
    return path ? py::reinterpret_steal<py::object>(make_name(NameForm::dotted, path.ptr(), key)) : py::object();
  }();
  PyObject *memo = child_prefix ? seen_.as_set() : nullptr;
  if (!memo) {
    return -1;
  }
  const auto keep_memo = py::reinterpret_borrow<py::object>(memo);
  const auto pairs = py::reinterpret_steal<py::object>(PyObject_CallMethodObjArgs(
      module, names.named_modules, memo, child_prefix.ptr(), remove_duplicate_ ? Py_True : Py_False, nullptr));
  return pairs ? start_with_pairs(pairs.ptr()) : -1;
}

int ModuleWalk::next_child(Visit *visit, bool *found) {
  Frame &frame = stack_.back();
  if (!frame.opened) {
    frame.opened = true;
    PyObject *modules;
    if (registry(as_module(frame.module.ptr()), Slot::modules, &modules) < 0 || frame.children.start(modules) < 0) {
      return -1;
    }
  }
  PyObject *key, *child;
  const int more = frame.children.next(&key, &child);
  if (more <= 0) {
    if (more == 0) {
      pop();
    }
    return more;
  }
  if (child == Py_None) {
    return 0;
  }
  const auto keep_key = py::reinterpret_borrow<py::object>(key);
  const auto keep_child = py::reinterpret_borrow<py::object>(child);
  if (!is_module(child) || overrides(as_module(child), Virtual::named_modules)) {
    return enter_foreign(child, key);
  }
  const int entered = enter(child, key, visit);
  *found = entered > 0;
  return entered;
}

int ModuleWalk::next_pair(Visit *visit, bool *found) {
  const py::object pairs = stack_.back().pairs;
  const auto pair = py::reinterpret_steal<py::object>(PyIter_Next(pairs.ptr()));
  if (!pair) {
    if (PyErr_Occurred()) {
      return -1;
    }
    pop();
    return 0;
  }
  const auto parts = py::reinterpret_steal<py::object>(PySequence_Fast(pair.ptr(), "named_modules() must give (name, module) pairs"));
  if (!parts) {
    return -1;
  }
  if (PySequence_Fast_GET_SIZE(parts.ptr()) != 2) {
    PyErr_Format(PyExc_ValueError, "named_modules() must give (name, module) pairs, got %zd items",
                 PySequence_Fast_GET_SIZE(parts.ptr()));
    return -1;
  }
  visit->name = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(parts.ptr(), 0));
  visit->module = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(parts.ptr(), 1));
  *found = true;
  return 0;
}

void ModuleWalk::pop() {
  // The frame dies after the stack is in order: its end may run user code.
  const Frame frame = std::move(stack_.back());
  stack_.pop_back();
  if (!remove_duplicate_ && frame.module) {
    on_path_.erase(frame.module.ptr());
  }
}

py::object ModuleWalk::full_name(PyObject *key) {
  if (!key) {
    return prefix_;
  }
  return py::reinterpret_steal<py::object>(name_caches().modules.get(position_++, stack_.back().prefix.ptr(), key));
}

// The dotted name of the innermost open module; null with an error set on failure.
py::object ModuleWalk::path_of_top() {
  py::object path = prefix_;
  for (const Frame &frame : stack_) {
    if (frame.key) {
      path = py::reinterpret_steal<py::object>(make_name(NameForm::dotted, path.ptr(), frame.key.ptr()));
      if (!path) {
        return path;
      }
    }
  }
  return path;
}

int ModuleWalk::raise_cycle(PyObject *module, PyObject *key) {
  const py::object parent = path_of_top();
  const auto path = parent ? py::reinterpret_steal<py::object>(make_name(NameForm::dotted, parent.ptr(), key)) : py::object();
  if (!path) {
    return -1;
  }
  py::object first = prefix_;
  for (const Frame &frame : stack_) {
    if (frame.key) {
      first = py::reinterpret_steal<py::object>(make_name(NameForm::dotted, first.ptr(), frame.key.ptr()));
    }
    if (!first) {
      return -1;
    }
    if (frame.module.ptr() == module) {
      break;
    }
  }
  PyErr_Format(PyExc_RecursionError,
               "the module tree contains itself: %R is the module at %R again, so there is no end of names without remove_duplicate",
               path.ptr(), first.ptr());
  return -1;
}

int ModuleWalk::traverse(visitproc visit, void *arg) const {
  for (const Frame &frame : stack_) {
    Py_VISIT(frame.module.ptr());
    Py_VISIT(frame.pairs.ptr());
    if (const int result = frame.children.traverse(visit, arg)) {
      return result;
    }
  }
  Py_VISIT(root_.ptr());
  return seen_.traverse(visit, arg);
}

}  // namespace modtree
