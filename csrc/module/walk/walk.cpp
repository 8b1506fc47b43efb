// SPDX-License-Identifier: BSD-3-Clause
#include "module/walk/walk.h"

#include <memory>

#include "family/family.h"
#include "module/class_info.h"
#include "module/name_cache.h"
#include "module/walk/module_walk.h"
#include "module/walk/walk_generator.h"
#include "python/call.h"
#include "python/new_type.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

// A running walk.
// - request.root is dropped when the walk starts.
// - modules: the walk over modules; null for a walk within one module.
// - pairs: an iterator of (name, value) made by an override, whose items are passed on.
// - entries, members: the registry of the current module, or what get_members_fn gave for it.
// - owner: the name of the current module.
struct Walk {
  Request request;
  bool started = false;
  bool finished = false;
  bool running = false;
  std::unique_ptr<ModuleWalk> modules;
  py::object pairs;
  RegistryItems entries;
  py::object members;
  py::object owner;
  py::object current;
  SeenSet seen;
  PyTypeObject *tensor_type =
      nullptr;  // of the last tensor; borrowed, only compared with the types of living values
  std::size_t position = 0;

  int start();
  PyObject *next();
  PyObject *next_member();
  PyObject *next_pair();
  PyObject *next_child();
  PyObject *next_module();
  int open(PyObject *module);
  int next_pair_of_members(py::object *key, py::object *value);
  PyObject *next_registered();
  PyObject *next_given();
  PyObject *item(PyObject *key, PyObject *value);
  int start_modules();
  int start_override(PyObject *result);
};

struct WalkObject {
  PyObject_HEAD Walk walk;
};

PyTypeObject *walk_type = nullptr;

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
  static PyMethodDef of_parameters = {"items", registered_items<false>, METH_O, nullptr};
  static PyMethodDef of_buffers = {"items", registered_items<true>, METH_O, nullptr};
  return PyCFunction_New(kind == WalkKind::buffers ? &of_buffers : &of_parameters, nullptr);
}

int Walk::start_modules() {
  const bool make_names = request.named;
  modules = std::make_unique<ModuleWalk>(request.prefix.ptr(), request.remove_duplicate, make_names,
                                         request.memo.ptr());
  PyObject *root = request.root.ptr();
  // Members are walked over self.named_modules(...), which a class may have overridden;
  // named_modules itself is the walk.
  const bool own = request.kind == WalkKind::modules && request.named;
  if (own || !overrides(as_module(root), Virtual::named_modules)) {
    modules->start(root);
    return 0;
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

// Uses what an override returned as the source of pairs; steals `result`.
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
      return start_override(PyObject_CallMethodNoArgs(root.ptr(), names.named_children));
    }
    PyObject *children;
    py::object keep;
    return registry(module, Slot::modules, &children, &keep) < 0 ? -1 : entries.start(children);
  }
  if (request.kind == WalkKind::modules) {
    return start_modules();
  }
  const bool is_buffers = request.kind == WalkKind::buffers;
  if (request.kind != WalkKind::members) {
    const Virtual named_method = is_buffers ? Virtual::named_buffers : Virtual::named_parameters;
    if (!request.named && overrides(module, named_method)) {
      py::kwargs keywords;
      keywords["recurse"] = py::bool_(request.recurse);
      return start_override(call_with_keywords(root.ptr(), virtual_name(named_method), keywords));
    }
    if (overrides(module, Virtual::named_members)) {
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
  return open(root.ptr());
}

// Makes `module` the one whose members come next.
int Walk::open(PyObject *module) {
  current = py::reinterpret_borrow<py::object>(module);
  if (request.kind == WalkKind::members) {
    const auto iterable = py::reinterpret_steal<py::object>(
        PyObject_CallOneArg(request.get_members_fn.ptr(), module));
    members = iterable ? py::reinterpret_steal<py::object>(PyObject_GetIter(iterable.ptr()))
                       : py::object();
    return members ? 0 : -1;
  }
  const Slot slot = registry_slot(request.kind);
  PyObject *mapping = nullptr;
  if (class_info_of(module).is_module()) {
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

// Tensors are compared by identity; anything else that somebody put into a registry by its own
// __hash__ and __eq__.
int compared_by_identity(PyObject *value) {
  TensorFamily *family;
  const int is_tensor = family_of(value, &family);
  if (is_tensor != 0) {
    return is_tensor;
  }
  return class_info_of(value).identity_hash();
}

PyObject *Walk::item(PyObject *key, PyObject *value) {
  if (!request.named) {
    return Py_NewRef(value);
  }
  // The cache lets go of the name that stood at this position, which may be of a str class with
  // code of its own.
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
  while (entries.next(&key, &value) > 0) {
    if (value == Py_None) {
      continue;
    }
    PyTypeObject *type = Py_TYPE(value);
    if (type == tensor_type && seen.holds_addresses()) {
      // Seen before in this walk: values of this type are compared by identity, which runs no user
      // code among addresses.
      const int is_new = seen.visit(value, true, request.remove_duplicate);
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
        by_identity < 0 ? -1 : seen.visit(value, by_identity == 1, request.remove_duplicate);
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
    const int more = next_pair_of_members(&key, &value);
    if (more <= 0) {
      return nullptr;
    }
    if (value.is_none()) {
      continue;
    }
    const int by_identity = compared_by_identity(value.ptr());
    const int is_new =
        by_identity < 0 ? -1 : seen.visit(value.ptr(), by_identity == 1, request.remove_duplicate);
    if (is_new != 0) {
      return is_new < 0 ? nullptr : item(key.ptr(), value.ptr());
    }
  }
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
    Visit visit;
    if (modules->next(&visit) <= 0 || visit.unpack() < 0) {
      return nullptr;
    }
    owner = std::move(visit.name);
    if (open(visit.module.ptr()) < 0) {
      return nullptr;
    }
  }
}

PyObject *Walk::next_module() {
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
  while (entries.next(&key_ptr, &child_ptr) > 0) {
    if (child_ptr == Py_None) {
      continue;
    }
    const auto key = py::reinterpret_borrow<py::object>(key_ptr);
    const auto child = py::reinterpret_borrow<py::object>(child_ptr);
    const int by_identity = compared_by_identity(child_ptr);
    const int is_new = by_identity < 0 ? -1 : seen.visit(child_ptr, by_identity == 1, true);
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

PyObject *Walk::next() {
  if (!started) {
    started = true;
    if (start() < 0) {
      return nullptr;
    }
    request.root = py::object();
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

// --- the Python object
// ---------------------------------------------------------------------------------

Walk &walk_of(PyObject *self_obj) { return reinterpret_cast<WalkObject *>(self_obj)->walk; }

// The method of Module that asked for it.
const char *name_of(const Request &request) {
  switch (request.kind) {
    case WalkKind::modules:
      return request.named ? "named_modules" : "modules";
    case WalkKind::children:
      return request.named ? "named_children" : "children";
    case WalkKind::parameters:
      return request.named ? "named_parameters" : "parameters";
    case WalkKind::buffers:
      return request.named ? "named_buffers" : "buffers";
    case WalkKind::members:
      return "_named_members";
  }
  return "modules";
}

// Lets go of everything; the walk is at its end.
void finish(Walk &walk) {
  walk.finished = true;
  Request request;
  std::swap(request, walk.request);
  walk.request.kind = request.kind;  // its name outlives it
  walk.request.named = request.named;
  const std::unique_ptr<ModuleWalk> modules = std::move(walk.modules);
  RegistryItems entries;
  std::swap(entries, walk.entries);
  const py::object pairs = std::move(walk.pairs);
  const py::object members = std::move(walk.members);
  const py::object owner = std::move(walk.owner);
  const py::object current = std::move(walk.current);
  walk.seen.clear();
}

PyObject *walk_tp_iternext(PyObject *self_obj) {
  Walk &walk = walk_of(self_obj);
  if (walk.finished) {
    return nullptr;
  }
  if (walk.running) {
    PyErr_SetString(PyExc_ValueError, "generator already executing");
    return nullptr;
  }
  walk.running = true;
  PyObject *item = slot_guard<PyObject *>(nullptr, [&] { return walk.next(); });
  walk.running = false;
  if (!item) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    finish(walk);
    PyErr_Restore(type, error, traceback);
  }
  return item;
}

PyObject *walk_close(PyObject *self_obj, PyObject *) {
  Walk &walk = walk_of(self_obj);
  if (walk.running) {
    PyErr_SetString(PyExc_ValueError, "generator already executing");
    return nullptr;
  }
  finish(walk);
  Py_RETURN_NONE;
}

int walk_tp_traverse(PyObject *self_obj, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self_obj));
  const Walk &walk = walk_of(self_obj);
  Py_VISIT(walk.request.root.ptr());
  Py_VISIT(walk.request.memo.ptr());
  Py_VISIT(walk.request.get_members_fn.ptr());
  Py_VISIT(walk.pairs.ptr());
  Py_VISIT(walk.members.ptr());
  Py_VISIT(walk.current.ptr());
  if (const int result = walk.entries.traverse(visit, arg)) {
    return result;
  }
  if (walk.modules) {
    if (const int result = walk.modules->traverse(visit, arg)) {
      return result;
    }
  }
  return walk.seen.traverse(visit, arg);
}

int walk_tp_clear(PyObject *self_obj) {
  finish(walk_of(self_obj));
  return 0;
}

void walk_tp_dealloc(PyObject *self_obj) {
  PyObject_GC_UnTrack(self_obj);
  PyTypeObject *type = Py_TYPE(self_obj);
  walk_of(self_obj).~Walk();
  type->tp_free(self_obj);
  Py_DECREF(type);
}

PyMethodDef walk_methods[] = {
    {"close", walk_close, METH_NOARGS, "close($self, /)\n--\n\nEnds the walk."},
    {"send", walk_send, METH_O,
     "send($self, value, /)\n--\n\nThe next item; there is nothing that could take the value."},
    {"throw", walk_throw, METH_VARARGS,
     "throw($self, type, value=None, traceback=None, /)\n--\n\nEnds the walk and raises."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot walk_slots[] = {
    {Py_tp_doc, const_cast<char *>("A lazy walk over a module tree; behaves as a generator.")},
    {Py_tp_iter, reinterpret_cast<void *>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void *>(walk_tp_iternext)},
    {Py_tp_traverse, reinterpret_cast<void *>(walk_tp_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(walk_tp_clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(walk_tp_dealloc)},
    {Py_tp_repr, reinterpret_cast<void *>(walk_tp_repr)},
    {Py_tp_methods, walk_methods},
    {Py_tp_getset, walk_getset},
    {0, nullptr},
};

PyType_Spec walk_spec = {
    "modtree._C.Walk",
    sizeof(WalkObject),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    walk_slots,
};

}  // namespace

WalkStatus walk_status(PyObject *self_obj) {
  const Walk &walk = walk_of(self_obj);
  return {name_of(walk.request), walk.started, walk.finished, walk.running};
}

void end_walk(PyObject *self_obj) { finish(walk_of(self_obj)); }

PyObject *new_walk(Request request) {
  PyObject *self_obj = walk_type->tp_alloc(walk_type, 0);
  if (!self_obj) {
    return nullptr;
  }
  Walk *walk = new (&walk_of(self_obj)) Walk();
  walk->request = std::move(request);
  return self_obj;
}

void make_walk_type(py::handle m) { walk_type = new_type(m, "Walk", &walk_spec); }

}  // namespace modtree
