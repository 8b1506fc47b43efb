// SPDX-License-Identifier: BSD-3-Clause
#include "module/split/structure.h"

namespace modtree {

namespace {

class Mix {
public:
  void add(std::size_t more) {
    hash_ = (hash_ ^ more) * std::size_t{0x9E3779B97F4A7C15};
    hash_ ^= hash_ >> 29;
  }
  void add(int more) { add(static_cast<std::size_t>(more)); }
  void add(const void *more) { add(reinterpret_cast<std::size_t>(more)); }
  void add_name(const py::object &name) {
    add(name ? static_cast<std::size_t>(PyObject_Hash(name.ptr())) : std::size_t{1});
  }
  std::size_t value() const { return hash_; }

private:
  std::size_t hash_ = 17;
};

// Both null, or equal and of one type, as 1 and True are not: 1 or 0, or -1 with an error set.
int equal_objects(const py::object &one, const py::object &other) {
  if (one.ptr() == other.ptr() || !one || !other) {
    return one.ptr() == other.ptr();
  }
  if (Py_TYPE(one.ptr()) != Py_TYPE(other.ptr())) {
    return 0;
  }
  return PyObject_RichCompareBool(one.ptr(), other.ptr(), Py_EQ);
}

int equal_nodes(const TreeNode &one, const TreeNode &other) {
  if (one.kind != other.kind || one.index != other.index || one.count != other.count ||
      one.type.ptr() != other.type.ptr() || one.keys.size() != other.keys.size()) {
    return 0;
  }
  for (std::size_t i = 0; i < one.keys.size(); ++i) {
    const int equal = equal_objects(one.keys[i], other.keys[i]);
    if (equal <= 0) {
      return equal;
    }
  }
  return 1;
}

int equal_places(const LeafPlace &one, const LeafPlace &other) {
  return one.module != other.module || one.leaf != other.leaf ||
                 one.is_parameter != other.is_parameter
             ? 0
             : equal_objects(one.name, other.name);
}

int equal_children(const ChildPlace &one, const ChildPlace &other) {
  return one.module != other.module || one.is_first != other.is_first
             ? 0
             : equal_objects(one.name, other.name);
}

int equal_modules(const ModuleRecord &one, const ModuleRecord &other) {
  return one.type.ptr() != other.type.ptr() || one.training.ptr() != other.training.ptr() ||
                 one.parent != other.parent || one.root != other.root ||
                 one.first_place != other.first_place || one.parameters != other.parameters ||
                 one.buffers != other.buffers || one.first_child != other.first_child ||
                 one.children != other.children || one.first_attribute != other.first_attribute ||
                 one.attributes != other.attributes || !one.hooks != !other.hooks
             ? 0
             : equal_objects(one.non_persistent, other.non_persistent);
}

// Compares plain attributes and hooks of structures that are equal in all else.
int equal_values(const Structure &one, const Structure &other) {
  if (one.attributes.size() != other.attributes.size()) {
    return 0;
  }
  StaticComparison comparison(one.values, other.values);
  int equal = 1;
  for (std::size_t i = 0; equal > 0 && i < one.attributes.size(); ++i) {
    const StaticAttribute &left = one.attributes[i], &right = other.attributes[i];
    equal = equal_objects(left.name, right.name);
    equal = equal <= 0 ? equal : comparison.equal(left.value, right.value);
  }
  for (std::size_t i = 0; equal > 0 && i < one.modules.size(); ++i) {
    const HookValues *left = one.modules[i].hooks.get();
    for (std::size_t k = 0; left && equal > 0 && k < left->size(); ++k) {
      equal = comparison.equal((*left)[k], (*other.modules[i].hooks)[k]);
    }
  }
  return equal;
}

template <class Item>
int equal_lists(const std::vector<Item> &one, const std::vector<Item> &other,
                int (*equal)(const Item &, const Item &)) {
  if (one.size() != other.size()) {
    return 0;
  }
  for (std::size_t i = 0; i < one.size(); ++i) {
    const int same = equal(one[i], other[i]);
    if (same <= 0) {
      return same;
    }
  }
  return 1;
}

}  // namespace

int Structure::equals(const Structure &other) const {
  if (this == &other) {
    return 1;
  }
  if (hash != other.hash || leaf_count != other.leaf_count || other_count != other.other_count) {
    return 0;
  }
  int equal = equal_lists(modules, other.modules, &equal_modules);
  equal = equal <= 0 ? equal : equal_lists(places, other.places, &equal_places);
  equal = equal <= 0 ? equal : equal_lists(children, other.children, &equal_children);
  equal = equal <= 0 ? equal : equal_lists(nodes, other.nodes, &equal_nodes);
  return equal <= 0 ? equal : equal_values(*this, other);
}

void Structure::compute_hash() {
  Mix mix;
  for (const TreeNode &node : nodes) {
    mix.add(static_cast<int>(node.kind));
    mix.add(node.count);
    mix.add(node.index);
  }
  for (const ModuleRecord &module : modules) {
    mix.add(module.type.ptr());
    mix.add(module.training.ptr());
    mix.add(module.parameters);
    mix.add(module.buffers);
    mix.add(module.children);
    mix.add(module.attributes);
  }
  for (const LeafPlace &place : places) {
    mix.add_name(place.name);
    mix.add(place.leaf);
  }
  for (const ChildPlace &child : children) {
    mix.add_name(child.name);
    mix.add(child.module);
  }
  for (const StaticAttribute &attribute : attributes) {
    mix.add_name(attribute.name);
    mix.add(values.hash(attribute.value));
  }
  PyErr_Clear();  // of a name without a hash
  hash = mix.value();
}

py::object Structure::path_of(int module) const {
  std::vector<int> way;
  for (int at = module; modules[static_cast<std::size_t>(at)].parent >= 0;
       at = modules[static_cast<std::size_t>(at)].parent) {
    way.push_back(at);
  }
  auto path = py::reinterpret_steal<py::object>(PyUnicode_FromString(""));
  for (auto at = way.rbegin(); path && at != way.rend(); ++at) {
    const py::object &name = modules[static_cast<std::size_t>(*at)].name;
    const char *format = PyUnicode_GET_LENGTH(path.ptr()) ? "%U.%U" : "%U%U";
    path = py::reinterpret_steal<py::object>(PyUnicode_FromFormat(format, path.ptr(), name.ptr()));
  }
  if (!path) {
    throw py::error_already_set();
  }
  return path;
}

int Structure::traverse(visitproc visit, void *arg) const {
  for (const TreeNode &node : nodes) {
    Py_VISIT(node.type.ptr());
    for (const py::object &key : node.keys) {
      Py_VISIT(key.ptr());
    }
  }
  for (const ModuleRecord &module : modules) {
    Py_VISIT(module.type.ptr());
    Py_VISIT(module.training.ptr());
    Py_VISIT(module.non_persistent.ptr());
    Py_VISIT(module.name.ptr());
    for (std::size_t i = 0; module.hooks && i < module.hooks->size(); ++i) {
      Py_VISIT((*module.hooks)[i].value.ptr());
    }
  }
  for (const LeafPlace &place : places) {
    Py_VISIT(place.name.ptr());
  }
  for (const ChildPlace &child : children) {
    Py_VISIT(child.name.ptr());
  }
  for (const StaticAttribute &attribute : attributes) {
    Py_VISIT(attribute.name.ptr());
    Py_VISIT(attribute.value.value.ptr());
  }
  if (const int result = values.traverse(visit, arg)) {
    return result;
  }
  for (const py::object &root : roots) {
    Py_VISIT(root.ptr());
  }
  return 0;
}

}  // namespace modtree
