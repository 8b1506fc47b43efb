// SPDX-License-Identifier: BSD-3-Clause
#include "module/walk/iterator_steps.h"

#include "family/family.h"
#include "module/class_info.h"
#include "module/name_cache.h"
#include "python/call.h"
#include "python/native_section.h"

namespace modtree {

namespace {

PyObject *pair_of(PyObject *name, PyObject *value) {
  PyObject *pair = PyTuple_New(2);
  if (pair) {
    PyTuple_SET_ITEM(pair, 0, Py_NewRef(name));
    PyTuple_SET_ITEM(pair, 1, Py_NewRef(value));
  }
  return pair;
}

Slot registry_slot(WalkKind kind) {
  return kind == WalkKind::buffers ? Slot::buffers : Slot::parameters;
}

PyObject *call_with_keywords(PyObject *target, PyObject *method, py::kwargs keywords) {
  const auto bound = py::reinterpret_steal<py::object>(PyObject_GetAttr(target, method));
  return bound ? PyObject_Call(bound.ptr(), py::tuple().ptr(), keywords.ptr()) : nullptr;
}

template <bool kBuffers>
PyObject *registered_items(PyObject *, PyObject *module) {
  const py::object registry = get_attribute(module, kBuffers ? "_buffers" : "_parameters");
  return registry ? call_method(registry, "items").release().ptr() : nullptr;
}

// The function that torch hands to _named_members: the items of one registry of a module.
PyObject *items_getter(WalkKind kind) {
  static PyMethodDef of_parameters = {"items", entry<registered_items<false>>, METH_O, nullptr};
  static PyMethodDef of_buffers = {"items", entry<registered_items<true>>, METH_O, nullptr};
  return PyCFunction_New(kind == WalkKind::buffers ? &of_buffers : &of_parameters, nullptr);
}

// Tensors are compared by identity, unless a subclass says otherwise; anything else that somebody
// put into a registry by its own __hash__ and __eq__.
int compared_by_identity(PyObject *value) {
  const TypeFacts facts = facts_of_type(Py_TYPE(value));
  if (facts.family) {
    return facts.by_identity;
  }
  if (PyErr_Occurred()) {
    return -1;
  }
  return class_info_of(value).identity_hash();
}

}  // namespace

int Walk::start_modules() {
  const bool make_names = request.named;
  modules = std::make_unique<PreorderWalk>(request.prefix.ptr(), request.remove_duplicate,
                                           make_names, request.memo.ptr());
  if (request.kind == WalkKind::parameters || request.kind == WalkKind::buffers) {
    modules->read_ahead(registry_slot(request.kind));
  }
  PyObject *root = request.root.ptr();
  // Members are walked over self.named_modules(...), which a class may have overridden;
  // named_modules itself is the walk.
  const bool own = request.kind == WalkKind::modules && request.named;
  if (own || !overrides(as_module(root), Virtual::named_modules)) {
    modules->start(root);
    return 0;
  }
  if (PyErr_Occurred()) {
    return -1;
  }
  py::kwargs keywords;
  if (request.kind != WalkKind::modules) {
    keywords["prefix"] = request.prefix;
  }
  keywords["remove_duplicate"] = py::bool_(request.remove_duplicate);
  const auto pairs_made =
      py::reinterpret_steal<py::object>(call_with_keywords(root, names.named_modules, keywords));
  return pairs_made ? modules->start_with_pairs(pairs_made.ptr()) : -1;
}

// Uses what an override returned as the source of pairs; steals `result`, which is null with an
// error.
int Walk::start_override(PyObject *result) {
  const auto iterable = py::reinterpret_steal<py::object>(result);
  if (!iterable) {
    return -1;
  }
  pairs = py::reinterpret_steal<py::object>(PyObject_GetIter(iterable.ptr()));
  return pairs ? 0 : -1;
}

// Walks parameters() -> named_parameters() -> _named_members() -> named_modules() as far as nothing
// is overridden.
int Walk::start() {
  const py::object root = request.root;
  ModuleObject *module = as_module(root.ptr());
  if (request.kind == WalkKind::children) {
    if (!request.named && overrides(module, Virtual::named_children)) {
      return PyErr_Occurred()
                 ? -1
                 : start_override(PyObject_CallMethodNoArgs(root.ptr(), names.named_children));
    }
    PyObject *children;
    py::object keep;
    return registry(module, Slot::modules, &children, &keep) < 0 ? -1 : entries.start(children);
  }
  if (request.kind == WalkKind::modules) {
    return start_modules();
  }
  seen.reserve();
  const bool is_buffers = request.kind == WalkKind::buffers;
  if (request.kind != WalkKind::members) {
    const Virtual named_method = is_buffers ? Virtual::named_buffers : Virtual::named_parameters;
    if (!request.named && overrides(module, named_method)) {
      if (PyErr_Occurred()) {
        return -1;
      }
      py::kwargs keywords;
      keywords["recurse"] = py::bool_(request.recurse);
      return start_override(call_with_keywords(root.ptr(), virtual_name(named_method), keywords));
    }
    if (overrides(module, Virtual::named_members)) {
      if (PyErr_Occurred()) {
        return -1;
      }
      py::kwargs keywords;
      keywords["prefix"] = request.prefix;
      keywords["recurse"] = py::bool_(request.recurse);
      keywords["remove_duplicate"] = py::bool_(request.remove_duplicate);
      const auto bound =
          py::reinterpret_steal<py::object>(PyObject_GetAttr(root.ptr(), names.named_members));
      const auto getter =
          py::reinterpret_steal<py::object>(bound ? items_getter(request.kind) : nullptr);
      PyObject *first[] = {getter.ptr()};
      return start_override(getter ? PyObject_VectorcallDict(bound.ptr(), first, 1, keywords.ptr())
                                   : nullptr);
    }
  }
  if (request.recurse) {
    return start_modules();
  }
  owner = request.prefix;
  return open(root, true);
}

// Makes `module` the one whose members come next. `is_ours`: no module of another library.
int Walk::open(py::object reached, bool is_ours) {
  current = std::move(reached);
  PyObject *module = current.ptr();
  if (request.kind == WalkKind::members) {
    const auto iterable = py::reinterpret_steal<py::object>(
        PyObject_CallOneArg(request.get_members_fn.ptr(), module));
    members = iterable ? py::reinterpret_steal<py::object>(PyObject_GetIter(iterable.ptr()))
                       : py::object();
    return members ? 0 : -1;
  }
  const Slot slot = registry_slot(request.kind);
  PyObject *mapping = nullptr;
  if (is_ours || class_info_of(module).is_module()) {
    py::object keep;
    return registry(as_module(module), slot, &mapping, &keep) < 0 ? -1 : entries.start(mapping);
  }
  // A module of another library, given by an override.
  const auto foreign = py::reinterpret_steal<py::object>(PyObject_GetAttr(module, slot_name(slot)));
  return foreign ? entries.start(foreign.ptr()) : -1;
}

// The next (key, value) that get_members_fn gave for the current module: 1, 0 at its end, -1 on
// error.
int Walk::next_pair_of_members(py::object *key, py::object *value) {
  const auto pair = py::reinterpret_steal<py::object>(next_of_nested(members.ptr()));
  if (!pair) {
    return PyErr_Occurred() ? -1 : 0;
  }
  return unpack_pair(pair.ptr(), key, value) < 0 ? -1 : 1;
}

PyObject *Walk::item(PyObject *key, PyObject *value) {
  if (!request.named) {
    return Py_NewRef(value);
  }
  // The cache releases the name that was at this position, which may be of a str class with code of
  // its own.
  const auto keep_key = py::reinterpret_borrow<py::object>(key);
  const auto keep_value = py::reinterpret_borrow<py::object>(value);
  NameCaches &caches = name_caches();
  NameCache &cache = request.kind == WalkKind::buffers ? caches.buffers : caches.parameters;
  const auto name = py::reinterpret_steal<py::object>(cache.get(position++, owner.ptr(), key));
  return name ? pair_of(name.ptr(), value) : nullptr;
}

// The next new value of the current module's registry, without touching reference counts on the
// way; null at its end or on error (then PyErr_Occurred).
PyObject *Walk::next_registered() {
  PyObject *key, *value;
  while (signals.step() == 0 && entries.next(&key, &value) > 0) {
    if (value == Py_None) {
      continue;
    }
    PyTypeObject *type = Py_TYPE(value);
    if (type == tensor_type && seen.holds_addresses()) {
      // Seen before in this walk: values of this type are compared by identity, which runs no user
      // code among addresses.
      const int is_new =
          seen.visit(value, true, request.remove_duplicate, is_sole_reference(value));
      if (is_new > 0) {
        return item(key, value);
      }
      if (is_new == 0) {
        continue;
      }
      return nullptr;
    }
    const auto keep_key = py::reinterpret_borrow<py::object>(key);
    const auto keep_value = py::reinterpret_borrow<py::object>(value);
    const int by_identity = compared_by_identity(value);
    const int is_new =
        by_identity < 0 ? -1 : seen.visit(value, by_identity == 1, request.remove_duplicate, false);
    if (by_identity == 1) {
      tensor_type = type;
    }
    if (is_new != 0) {
      return is_new < 0 ? nullptr : item(key, value);
    }
  }
  return nullptr;
}

// The same for the pairs that get_members_fn gave.
PyObject *Walk::next_given() {
  while (true) {
    py::object key, value;
    const int more = signals.step() < 0 ? -1 : next_pair_of_members(&key, &value);
    if (more <= 0) {
      return nullptr;
    }
    if (value.is_none()) {
      continue;
    }
    const int by_identity = compared_by_identity(value.ptr());
    const int is_new = by_identity < 0 ? -1
                                       : seen.visit(value.ptr(), by_identity == 1,
                                                    request.remove_duplicate, false);
    if (is_new != 0) {
      return is_new < 0 ? nullptr : item(key.ptr(), value.ptr());
    }
  }
}

// Goes on to the next module: 1, 0 at the end, -1 on error.
int Walk::open_next() {
  const int plain = modules->next_plain();
  if (plain > 0) {
    owner = py::reinterpret_borrow<py::object>(modules->entered_name());
    return open(py::reinterpret_borrow<py::object>(modules->entered_module()), true) < 0 ? -1 : 1;
  }
  Visit visit;
  const int more = plain < 0 ? -1 : modules->next(&visit);
  if (more <= 0) {
    return more;
  }
  const bool is_ours = visit.is_native();
  if (visit.unpack() < 0) {
    return -1;
  }
  owner = std::move(visit.name);
  return open(std::move(visit.module), is_ours) < 0 ? -1 : 1;
}

PyObject *Walk::next_member() {
  while (true) {
    if (current) {
      PyObject *found = members ? next_given() : next_registered();
      if (found || PyErr_Occurred()) {
        return found;
      }
      current = py::object();
    }
    if (!modules) {
      return nullptr;
    }
    if (open_next() <= 0) {
      return nullptr;
    }
  }
}

PyObject *Walk::next_module() {
  if (const int plain = request.named ? modules->next_plain() : 0) {
    return plain < 0 ? nullptr : pair_of(modules->entered_name(), modules->entered_module());
  }
  Visit visit;
  if (modules->next(&visit) <= 0) {
    return nullptr;
  }
  if (visit.item && request.named) {
    return visit.item.release().ptr();
  }
  if (visit.unpack() < 0) {
    return nullptr;
  }
  return request.named ? pair_of(visit.name.ptr(), visit.module.ptr())
                       : visit.module.release().ptr();
}

PyObject *Walk::next_child() {
  PyObject *key_ptr, *child_ptr;
  while (signals.step() == 0 && entries.next(&key_ptr, &child_ptr) > 0) {
    if (child_ptr == Py_None) {
      continue;
    }
    const auto key = py::reinterpret_borrow<py::object>(key_ptr);
    const auto child = py::reinterpret_borrow<py::object>(child_ptr);
    const int by_identity = compared_by_identity(child_ptr);
    const int is_new = by_identity < 0 ? -1 : seen.visit(child_ptr, by_identity == 1, true, false);
    if (is_new != 0) {
      return is_new < 0      ? nullptr
             : request.named ? pair_of(key.ptr(), child.ptr())
                             : Py_NewRef(child.ptr());
    }
  }
  return nullptr;
}

// Passes on what an override gives; the values alone for an unnamed walk.
PyObject *Walk::next_pair() {
  auto pair = py::reinterpret_steal<py::object>(next_of_nested(pairs.ptr()));
  if (!pair || request.named) {
    return pair.release().ptr();
  }
  py::object name, value;
  return unpack_pair(pair.ptr(), &name, &value) < 0 ? nullptr : value.release().ptr();
}

PyObject *Walk::next_any() {
  if (!started) {
    started = true;
    if (start() < 0) {
      return nullptr;
    }
    request.root = py::object();
    gives_modules = request.kind == WalkKind::modules && !request.named;
  }
  if (pairs) {
    return next_pair();
  }
  switch (request.kind) {
    case WalkKind::modules:
      return next_module();
    case WalkKind::children:
      return next_child();
    default:
      return next_member();
  }
}

}  // namespace modtree
