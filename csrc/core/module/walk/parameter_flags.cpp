// SPDX-License-Identifier: BSD-3-Clause
#include "module/methods.h"

#include <vector>

#include "family/family.h"
#include "module/attributes/reading.h"
#include "module/torch_facts.h"
#include "module/walk/look_ahead.h"
#include "module/walk/plain_class.h"
#include "module/walk/pointer_set.h"
#include "module/walk/preorder_walk.h"
#include "python/arguments.h"
#include "python/signals.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

// The parameters of a tree in which nothing runs user code, without references. Goes through the
// registries in the order of the walk that owns what it uses. All pointers are into a tree that
// does not change meanwhile.
class PlainParameters {
public:
  // Calls visit(family, parameter) -> bool for those of `root` and of all below; one that is
  // registered several times, or in a module without children that is, may come as often. `visit`
  // runs no user code. True: it was true of all. False: it was not, or something in the tree is not
  // plain, or the tree is so large that signals are to be looked at; the rest was not visited.
  template <class Visit>
  bool all(PyObject *root, Visit visit) {
    if (!is_plain_state(root) || !visit_members(root, visit)) {
      return false;
    }
    seen_.insert(root);
    open(root);
    while (!path_.empty()) {
      if (!visit_children(visit)) {
        return false;
      }
    }
    return true;
  }

private:
  struct Place {
    PyObject *children;
    Py_ssize_t position;  // of dict_next()
  };

  // Until a child has children itself, or to their end.
  template <class Visit>
  bool visit_children(Visit &visit) {
    Place &place = path_.back();
    PyObject *key, *child;
    while (dict_next(place.children, &place.position, &key, &child)) {
      if (child == Py_None) {
        continue;
      }
      if (--left_ < 0 || !PyUnicode_CheckExact(key) || !is_plain(child)) {
        return false;
      }
      ahead_.from(
          [&](int places) { return dict_value_ahead(place.children, place.position, places - 1); },
          Py_TYPE(child), families_.last());
      const PyObject *children = as_module(child)->state.modules;
      const bool has_children = children && PyDict_GET_SIZE(children) != 0;
      // What only this registry holds is met but once, and what has no children may come again.
      if (has_children && !is_sole_reference(child) && !seen_.insert(child)) {
        continue;
      }
      if (!visit_members(child, visit)) {
        return false;
      }
      if (has_children) {
        open(child);
        return true;
      }
    }
    path_.pop_back();
    return true;
  }

  template <class Visit>
  bool visit_members(PyObject *module, Visit &visit) {
    PyObject *parameters = as_module(module)->state.parameters;
    if (!parameters) {
      return true;
    }
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (dict_next(parameters, &position, &key, &value)) {
      if (value == Py_None) {
        continue;
      }
      TensorFamily *family = families_.known(value);
      if (!family || !visit(family, value)) {
        return false;
      }
    }
    return true;
  }

  // Of a plain module.
  void open(PyObject *module) {
    PyObject *children = as_module(module)->state.modules;
    if (children && PyDict_GET_SIZE(children) != 0) {
      path_.push_back({children, 0});
    }
  }

  // True if it has nothing of its own that walks ask, and its registries are dicts.
  static bool is_plain_state(PyObject *module) {
    const ModuleState &state = as_module(module)->state;
    return state.initialized && !may_override(as_module(module)) &&
           (!state.modules || PyDict_CheckExact(state.modules)) &&
           (!state.parameters || PyDict_CheckExact(state.parameters));
  }

  bool is_plain(PyObject *child) { return plain_class_.has(child) && is_plain_state(child); }

  std::vector<Place> path_;
  PointerSet seen_;  // of those with children that somebody else holds as well
  FamilyMemo families_;
  LookAhead<ReadsOf::gradient> ahead_;
  PlainClass<Virtual::named_modules, Virtual::getattribute> plain_class_;
  long left_ = kStepsWithoutReferences;
};

// True only for a parameter that certainly has no gradient. For a walk that runs no user code: what
// is known of the last type is not asked again.
class LacksGrad {
public:
  bool operator()(TensorFamily *family, PyObject *parameter) {
    if (Py_TYPE(parameter) == type_) {
      return is_null_in(parameter);
    }
    if (family != asked_) {
      if (const std::size_t offset = family->grad_offset(Py_TYPE(parameter))) {
        type_ = Py_TYPE(parameter);
        offset_ = offset;
        return is_null_in(parameter);
      }
      asked_ = family;
    }
    return family->lacks_grad(parameter);
  }

private:
  bool is_null_in(PyObject *parameter) const {
    const char *place = reinterpret_cast<const char *>(parameter) + offset_;
    return *reinterpret_cast<PyObject *const *>(place) == nullptr;
  }

  PyTypeObject *type_ = nullptr;  // of tensors whose gradient is at offset_
  std::size_t offset_ = 0;
  TensorFamily *asked_ = nullptr;  // has a type whose gradients cannot be read in place
};

[[gnu::noinline]] void raise_no_tensor(PyObject *self_obj, PyObject *parameter) {
  // The walk would have put it into a set first.
  if (PyObject_Hash(parameter) != -1) {
    PyErr_Format(PyExc_AttributeError, "a parameter of %.200s is a '%.200s', which is no tensor",
                 type_short_name(Py_TYPE(self_obj)), Py_TYPE(parameter)->tp_name);
  }
}

// 1, or -1 with an error for anything but a tensor.
inline int find_family(PyObject *self_obj, PyObject *parameter, FamilyMemo &families,
                       TensorFamily **family) {
  const int is_tensor = families.find(parameter, family);
  if (is_tensor == 0) {
    raise_no_tensor(self_obj, parameter);
  }
  return is_tensor > 0 ? 1 : -1;
}

// What visit() gives; 1 instead for one that is not compared by identity.
template <class Function>
int visit_parameter(PyObject *self_obj, PyObject *parameter, FamilyMemo &families, Function visit) {
  TensorFamily *family = families.known(parameter);  // of tensors that are compared by identity
  if (family) {
    return visit(family, parameter);
  }
  if (find_family(self_obj, parameter, families, &family) < 0) {
    return -1;
  }
  return families.are_by_identity(parameter) ? visit(family, parameter) : 1;
}

// Over the registries themselves: a parameter with several names is visited for each, so `visit`
// must do nothing the second time. 1, with the rest not visited, at a parameter that has a say in
// which of them are the same.
template <class Function>
int for_each_registered_parameter(PyObject *self_obj, Function visit) {
  FamilyMemo families;
  SignalCheck signals;
  PreorderWalk walk(names.empty, true, false, nullptr);
  walk.read_ahead(Slot::parameters);
  walk.start(self_obj);
  Visit reached;
  int more;
  while ((more = walk.next(&reached)) > 0) {
    if (reached.unpack() < 0) {
      return -1;
    }
    PyObject *mapping = nullptr;
    auto keep = py::object();
    if (class_info_of(reached.module.ptr()).is_module()) {
      if (registry(as_module(reached.module.ptr()), Slot::parameters, &mapping, &keep) < 0) {
        return -1;
      }
    } else {
      keep = py::reinterpret_steal<py::object>(
          PyObject_GetAttr(reached.module.ptr(), names.parameters_));
      mapping = keep.ptr();
      if (!mapping) {
        return -1;
      }
    }
    RegistryItems items;
    if (items.start(mapping) < 0) {
      return -1;
    }
    PyObject *key, *value;
    int left;
    while ((left = signals.step() < 0 ? -1 : items.next(&key, &value)) > 0) {
      const auto parameter = py::reinterpret_borrow<py::object>(value);
      const int visited = value == Py_None ? 0 : visit_parameter(self_obj, value, families, visit);
      if (visited != 0) {
        return visited;
      }
    }
    if (left < 0) {
      return -1;
    }
  }
  return more;
}

// Calls visit(family, parameter) for each of self.parameters(); 0, or -1 on error. Before that
// visit_quietly(family, parameter), which runs no user code, is called for as many as possible: it
// does the same and returns true, or nothing. Where it did all of it, that is all.
template <class Quiet, class Function>
int for_each_parameter(PyObject *self_obj, Quiet visit_quietly, Function visit) {
  bool overridden = false;
  for (const Virtual method : {Virtual::parameters, Virtual::named_parameters,
                               Virtual::named_members, Virtual::named_modules}) {
    overridden = overridden || overrides(as_module(self_obj), method);
  }
  if (overridden && PyErr_Occurred()) {
    return -1;
  }
  if (!overridden) {
    // The walk puts every module into a set, the root first.
    if (class_info(Py_TYPE(self_obj)).identity_hash() &&
        PlainParameters().all(self_obj, visit_quietly)) {
      return 0;
    }
    const int visited = for_each_registered_parameter(self_obj, visit);
    if (visited <= 0) {
      return visited;
    }
  }
  const auto walk =
      py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(self_obj, names.parameters));
  const auto iterator =
      walk ? py::reinterpret_steal<py::object>(PyObject_GetIter(walk.ptr())) : py::object();
  if (!iterator) {
    return -1;
  }
  FamilyMemo families;
  SignalCheck signals;
  while (const auto parameter = py::reinterpret_steal<py::object>(PyIter_Next(iterator.ptr()))) {
    TensorFamily *family;
    if (signals.step() < 0 || find_family(self_obj, parameter.ptr(), families, &family) < 0 ||
        visit(family, parameter.ptr()) < 0) {
      return -1;
    }
  }
  return PyErr_Occurred() ? -1 : 0;
}

int warn_if_replica(PyObject *self_obj) {
  if (Py_TYPE(self_obj)->tp_getattro == module_tp_getattro) {
    const int has_flag = has_attribute(as_module(self_obj), names.is_replica);
    if (has_flag <= 0) {
      return has_flag;
    }
  }
  if (PyErr_Occurred()) {
    return -1;
  }
  PyObject *found;
  const int has_flag = optional_attr(self_obj, names.is_replica, &found);
  const auto flag = py::reinterpret_steal<py::object>(found);
  const int is_replica = has_flag > 0 ? PyObject_IsTrue(flag.ptr()) : has_flag;
  if (is_replica <= 0) {
    return is_replica;
  }
  return warn_as_torch(
      "Calling .zero_grad()",
      PyUnicode_FromString(
          "Calling .zero_grad() from a module created with nn.DataParallel() has no "
          "effect: its parameters are copies, as "
          "leaves, of those of the original module, which does not get their "
          "gradients. Call it on the original module"));
}

}  // namespace

PyObject *module_requires_grad_(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                PyObject *keywords) {
  static const ArgumentNames kNames = {"requires_grad_", {"requires_grad"}};
  PyObject *values[1] = {};
  if (parse_arguments(kNames, args, count, keywords, values) < 0) {
    return nullptr;
  }
  PyObject *flag = values[0] ? values[0] : Py_True;
  const auto set_quietly = [&](TensorFamily *family, PyObject *parameter) {
    return PyBool_Check(flag) && family->set_requires_grad_quietly(parameter, flag == Py_True);
  };
  const auto set = [&](TensorFamily *family, PyObject *parameter) {
    if (!PyBool_Check(flag)) {
      PyErr_Format(PyExc_TypeError,
                   "requires_grad_(): argument 'requires_grad' must be bool, not %.200s",
                   Py_TYPE(flag)->tp_name);
      return -1;
    }
    return family->set_requires_grad(parameter, flag == Py_True);
  };
  const int done = slot_guard(-1, [&] { return for_each_parameter(self_obj, set_quietly, set); });
  return done < 0 ? nullptr : Py_NewRef(self_obj);
}

PyObject *module_zero_grad(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                           PyObject *keywords) {
  static const ArgumentNames kNames = {"zero_grad", {"set_to_none"}};
  PyObject *values[1] = {};
  if (parse_arguments(kNames, args, count, keywords, values) < 0) {
    return nullptr;
  }
  const int set_to_none = values[0] ? PyObject_IsTrue(values[0]) : 1;
  if (set_to_none < 0 || warn_if_replica(self_obj) < 0) {
    return nullptr;
  }
  const auto zero = [&](TensorFamily *family, PyObject *parameter) {
    return family->zero_grad(parameter, set_to_none == 1);
  };
  const int done = slot_guard(-1, [&] { return for_each_parameter(self_obj, LacksGrad(), zero); });
  if (done < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

}  // namespace modtree
