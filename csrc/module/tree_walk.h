// SPDX-License-Identifier: BSD-3-Clause
// Depth-first walk over children as `train`, `apply` and `_apply` make it: every module once per parent.
#pragma once

#include <memory>
#include <vector>

#include "core/pointer_set.h"
#include "module/class_info.h"
#include "module/seen.h"

namespace modtree {

// Walks without recursion. A visitor has
//   int enter(PyObject *module)            before the children: 1 go in, 0 leave this subtree out, -1 error
//   int leave(PyObject *module)            after the children: 0, or -1 on error
//   int call_override(PyObject *child)     for a child that overrides `method`, or is not one of our modules: 0, or -1 on error
// Children come from the registry, or from an overridden children() of the parent. Each is kept alive while it is visited.
template <class Visitor>
class TreeWalk {
public:
  TreeWalk(Virtual method, Visitor &visitor) : method_(method), visitor_(visitor) {}

  // 0, or -1 with an error set.
  int run(PyObject *root) {
    if (push(root, nullptr) < 0) {
      return -1;
    }
    while (!stack_.empty()) {
      py::object key, child;
      const int more = next_child(&key, &child);
      if (more < 0) {
        return -1;
      }
      if (more == 0) {
        const Frame frame = std::move(stack_.back());
        stack_.pop_back();
        if (visitor_.leave(frame.module.ptr()) < 0) {
          return -1;
        }
        continue;
      }
      const bool native = is_module(child.ptr()) && !overrides(as_module(child.ptr()), method_);
      if ((native ? push(child.ptr(), key.ptr()) : visitor_.call_override(child.ptr())) < 0) {
        return -1;
      }
    }
    return 0;
  }

private:
  struct Frame {
    py::object module;
    py::object key;
    RegistryItems children;
    py::object iterator;  // of an overridden children()
    std::unique_ptr<SeenSet> seen;  // siblings; only where there can be a second one
  };

  int push(PyObject *module, PyObject *key) {
    const int entered = visitor_.enter(module);
    if (entered <= 0) {
      return entered;
    }
    Frame frame;
    frame.module = py::reinterpret_borrow<py::object>(module);
    frame.key = py::reinterpret_borrow<py::object>(key);
    if (overrides(as_module(module), Virtual::children) || overrides(as_module(module), Virtual::named_children)) {
      const auto children = py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(module, names.children));
      frame.iterator = children ? py::reinterpret_steal<py::object>(PyObject_GetIter(children.ptr())) : py::object();
      if (!frame.iterator) {
        return -1;
      }
    } else {
      PyObject *children;
      const int found = registry(as_module(module), Slot::modules, &children);
      if (found < 0 || frame.children.start(children) < 0) {
        return -1;
      }
      if (found && PyObject_Size(children) > 1) {
        frame.seen = std::make_unique<SeenSet>();
      } else if (found && PyErr_Occurred()) {
        return -1;
      }
    }
    stack_.push_back(std::move(frame));
    return check_depth();
  }

  // 1 and the next child, 0 at the end, -1 on error.
  int next_child(py::object *key, py::object *child) {
    Frame &frame = stack_.back();
    if (frame.iterator) {
      *child = py::reinterpret_steal<py::object>(PyIter_Next(frame.iterator.ptr()));
      return *child ? 1 : PyErr_Occurred() ? -1 : 0;
    }
    PyObject *key_ptr, *child_ptr;
    int more;
    while ((more = frame.children.next(&key_ptr, &child_ptr)) > 0) {
      if (child_ptr == Py_None) {
        continue;
      }
      *key = py::reinterpret_borrow<py::object>(key_ptr);
      *child = py::reinterpret_borrow<py::object>(child_ptr);
      const bool by_identity = is_module(child_ptr) && class_info(Py_TYPE(child_ptr))->identity_hash;
      if (!frame.seen && by_identity) {
        return 1;
      }
      if (!frame.seen) {
        frame.seen = std::make_unique<SeenSet>();
      }
      const int is_new = frame.seen->visit(child_ptr, by_identity, true);
      if (is_new != 0) {
        return is_new;
      }
    }
    return more;
  }

  // A module that contains itself makes the stack grow for ever, so looking for a repetition at doubling depths is enough.
  int check_depth() {
    if (stack_.size() < next_check_) {
      return 0;
    }
    next_check_ *= 2;
    PointerSet path;
    for (const Frame &frame : stack_) {
      if (!path.insert(frame.module.ptr())) {
        return raise_cycle(frame);
      }
    }
    return 0;
  }

  int raise_cycle(const Frame &repeated) {
    py::str path("");
    py::str first("");
    bool seen_first = false;
    for (const Frame &frame : stack_) {
      if (frame.key) {
        path = py::str(py::len(path) ? "{}.{}" : "{}{}").format(path, frame.key);
      }
      if (&frame == &repeated) {
        break;
      }
      if (!seen_first && frame.module.is(repeated.module)) {
        first = path;
        seen_first = true;
      }
    }
    PyErr_Format(PyExc_RecursionError, "the module tree contains itself: the module at %R is the module at %R again; %U() cannot end",
                 path.ptr(), first.ptr(), virtual_name(method_));
    return -1;
  }

  Virtual method_;
  Visitor &visitor_;
  std::vector<Frame> stack_;
  std::size_t next_check_ = 512;
};

}  // namespace modtree
