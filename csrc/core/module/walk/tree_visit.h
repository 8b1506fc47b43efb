// SPDX-License-Identifier: BSD-3-Clause
// Depth-first walk over children as `train`, `apply` and `_apply` make it: every module once per
// parent.
#pragma once

#include <memory>
#include <vector>

#include "module/class_info.h"
#include "module/walk/pointer_set.h"
#include "module/walk/seen.h"
#include "python/call.h"
#include "python/signals.h"

namespace modtree {

// A module on the way from the root of a walk to where it goes on; all borrowed.
struct TreePlace {
  PyObject *module;
  PyObject *key;        // under which the parent has it; null for the root
  PyObject *children;   // its registry: a plain dict
  Py_ssize_t position;  // of dict_next(): the children before it were visited
};

// Walks without recursion. A visitor has
//   static constexpr Virtual kMethod              the method that walks: a child may have its own
//   int enter(PyObject *module, ClassInfo info)   before the children: 0, or -1 on error
//   int leave(PyObject *module)                   after the children: 0, or -1 on error
//   int call_override(PyObject *child)            for a child that overrides kMethod, or is none of
//                                                 our modules: 0, or -1 on error
//   int before_user_code()                        what is next may run Python: 0, or -1 on error
//   bool visit_leaf(PyObject *child)              all of that for a childless one, without
//                                                 user code; it may come more than once.
//                                                 False: not possible, and nothing was done
// and, with kLeavesAtOnce, for a child that only its parent holds, before all of the above:
//   bool is_plain_leaf(PyObject *child)           true if leave_plain_leaf() may be called instead.
//                                                 Runs no user code
//   void look_ahead(const RegistryItems &, PyObject *child)   before that; only prefetches
//   int leave_plain_leaf(PyObject *child)         0, or -1 on error; may run user code
// Children come from the registry, or from an overridden children() of the parent. Each is kept
// alive while it is visited.
template <class Visitor, bool kLeavesAtOnce = false>
class TreeVisit {
public:
  explicit TreeVisit(Visitor &visitor) : visitor_(visitor) {}

  // 0, or -1 with an error set.
  int run(PyObject *root) {
    return run_from(py::reinterpret_borrow<py::object>(root), class_info(Py_TYPE(root)));
  }

  // Goes on where another walk has stopped, which entered each module of the path and ran no user
  // code.
  int go_on(const std::vector<TreePlace> &path) {
    for (const TreePlace &place : path) {
      if (push(place.module, place.key, place.children) < 0) {
        return -1;
      }
      stack_.back().children.skip_to(place.position);
    }
    return run_from(py::object(), ClassInfo());
  }

private:
  struct Frame {
    py::object module;
    py::object key;
    py::object registry;
    RegistryItems children;
    py::object iterator;            // of an overridden children()
    std::unique_ptr<SeenSet> seen;  // siblings; made when one may come twice
  };

  // `module`: where to begin, or null in the middle.
  int run_from(py::object module, ClassInfo info) {
    const NestedCall nested;
    if (!nested.entered()) {
      return -1;
    }
    py::object key;
    bool native = true;
    // One loop, so that there is one call of visit(), which is inlined.
    while (true) {
      if (module) {
        const int visited =
            native ? visit(module.ptr(), info, key.ptr()) : visitor_.call_override(module.ptr());
        if (visited < 0) {
          return -1;
        }
      }
      int more = 0;
      while (!stack_.empty() && (more = next_child(&key, &module, &info)) == 0) {
        if (leave() < 0) {
          return -1;
        }
      }
      if (more <= 0) {
        return more;
      }
      native = info.is_module() && !overrides_any<Visitor::kMethod>(as_module(module.ptr()), info);
    }
  }

  // Takes the innermost frame away.
  int leave() {
    const py::object module = std::move(stack_.back().module);
    stack_.pop_back();
    return visitor_.leave(module.ptr());
  }

  // Enters a module; one without children is left at once.
  int visit(PyObject *module, ClassInfo info, PyObject *key) {
    const bool overridden =
        overrides_any<Virtual::children, Virtual::named_children>(as_module(module), info);
    if (visitor_.enter(module, info) < 0) {
      return -1;
    }
    if (!overridden && !may_have_entries(as_module(module), Slot::modules)) {
      return visitor_.leave(module);
    }
    PyObject *children = nullptr;
    py::object keep;
    if (!overridden && registry(as_module(module), Slot::modules, &children, &keep) < 0) {
      return -1;
    }
    return push(module, key, children);
  }

  int push(PyObject *module, PyObject *key, PyObject *children) {
    if (stack_.empty()) {
      stack_.reserve(8);
    }
    Frame &frame = stack_.emplace_back();
    frame.module = py::reinterpret_borrow<py::object>(module);
    frame.key = py::reinterpret_borrow<py::object>(key);
    if (children) {
      frame.registry = py::reinterpret_borrow<py::object>(children);
      if (frame.children.start(children) < 0) {
        return -1;
      }
    } else {
      const auto iterable =
          py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(module, names.children));
      frame.iterator = iterable
                           ? py::reinterpret_steal<py::object>(PyObject_GetIter(iterable.ptr()))
                           : py::object();
      if (!frame.iterator) {
        return -1;
      }
    }
    return check_depth();
  }

  // 1 and the next child with the facts about its class, 0 at the end, -1 on error.
  int next_child(py::object *key, py::object *child, ClassInfo *info) {
    Frame &frame = stack_.back();
    const bool is_plain = frame.registry && PyDict_CheckExact(frame.registry.ptr());
    if (!is_plain && visitor_.before_user_code() < 0) {
      return -1;
    }
    if (frame.iterator) {
      if (may_go_on() < 0) {
        return -1;
      }
      *key = *child = py::object();
      *child = py::reinterpret_steal<py::object>(PyIter_Next(frame.iterator.ptr()));
      *info = *child ? class_info_of(child->ptr()) : ClassInfo();
      return *child ? 1 : PyErr_Occurred() ? -1 : 0;
    }
    PyObject *key_ptr, *child_ptr;
    int more;
    while ((more = may_go_on() < 0 ? -1 : frame.children.next(&key_ptr, &child_ptr)) > 0) {
      // Once siblings are remembered, each of them must be.
      if (child_ptr == Py_None || (!frame.seen && visitor_.visit_leaf(child_ptr))) {
        continue;
      }
      const bool only_here = is_sole_reference(child_ptr);
      if constexpr (kLeavesAtOnce) {
        // The child of the round before does not die, so nothing changes before this one is owned.
        if (only_here && is_plain && !frame.seen && visitor_.is_plain_leaf(child_ptr) &&
            !(*child && is_sole_reference(child->ptr()))) {
          visitor_.look_ahead(frame.children, child_ptr);
          *child = py::reinterpret_borrow<py::object>(child_ptr);
          if (visitor_.leave_plain_leaf(child_ptr) < 0) {
            return -1;
          }
          continue;
        }
      }
      {
        auto new_key = py::reinterpret_borrow<py::object>(key_ptr);
        auto new_child = py::reinterpret_borrow<py::object>(child_ptr);
        std::swap(*key, new_key);
        std::swap(*child, new_child);
        // Those of the round before die here, which may change the registry: the new ones are owned
        // by now.
      }
      *info = class_info_of(child_ptr);
      const bool by_identity = info->identity_hash();
      // Nobody but this registry holds it: it cannot be one of its other children.
      if (only_here && by_identity && !frame.seen) {
        return 1;
      }
      const int is_new = remember_sibling(frame, key_ptr, child_ptr, by_identity);
      if (is_new < 0) {
        return -1;  // at once: a lookup in a class drops the error
      }
      if (is_new > 0) {
        if (!by_identity || !frame.seen->holds_addresses()) {
          *info = class_info_of(child_ptr);  // again: comparing siblings may have run user code
        }
        return 1;
      }
    }
    return more;
  }

  // -1 with the error of a signal's handler.
  int may_go_on() {
    return !signals_.is_due() ? 0 : visitor_.before_user_code() < 0 ? -1 : signals_.look();
  }

  // 1 when the child was not met under this parent before, 0 when it was, -1 on error.
  int remember_sibling(Frame &frame, PyObject *key, PyObject *child, bool by_identity) {
    const bool compares_addresses = by_identity && frame.seen && frame.seen->holds_addresses();
    if (!compares_addresses && visitor_.before_user_code() < 0) {
      return -1;
    }
    if (!frame.seen) {
      frame.seen = std::make_unique<SeenSet>();
      if (remember_earlier_siblings(frame, key) < 0) {
        return -1;
      }
    }
    return frame.seen->visit(child, by_identity, true, false);
  }

  int remember_earlier_siblings(Frame &frame, PyObject *until) {
    RegistryItems items;
    if (items.start(frame.registry.ptr()) < 0) {
      return -1;
    }
    PyObject *key, *child;
    int more;
    while ((more = items.next(&key, &child)) > 0 && key != until) {
      if (child == Py_None) {
        continue;
      }
      const auto keep = py::reinterpret_borrow<py::object>(child);
      const bool by_identity = class_info_of(child).identity_hash();
      if (frame.seen->visit(child, by_identity, true, false) < 0) {
        return -1;
      }
    }
    return more < 0 ? -1 : 0;
  }

  // A module that contains itself makes the stack grow for ever, so looking for a repetition at
  // doubling depths is enough.
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
    py::object path = py::str("");
    py::object first = path;
    bool seen_first = false;
    for (const Frame &frame : stack_) {
      if (frame.key) {
        const char *format = PyUnicode_GET_LENGTH(path.ptr()) ? "%U.%S" : "%U%S";
        path = py::reinterpret_steal<py::object>(
            PyUnicode_FromFormat(format, path.ptr(), frame.key.ptr()));
        if (!path) {
          return -1;
        }
      }
      if (&frame == &repeated) {
        break;
      }
      if (!seen_first && frame.module.is(repeated.module)) {
        first = path;
        seen_first = true;
      }
    }
    PyErr_Format(PyExc_RecursionError,
                 "the module tree contains itself: the module at %R is the module at %R again; "
                 "%U() cannot end",
                 path.ptr(), first.ptr(), virtual_name(Visitor::kMethod));
    return -1;
  }

  Visitor &visitor_;
  std::vector<Frame> stack_;
  std::size_t next_check_ = 512;
  SignalCheck signals_;
};

}  // namespace modtree
