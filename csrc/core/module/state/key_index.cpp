// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/key_index.h"

#include <algorithm>

#include "module/name_cache.h"
#include "python/signals.h"

namespace modtree {

KeyIndex::~KeyIndex() {
  std::vector<Entry> entries;
  entries.swap(entries_);
  for (const Entry &entry : entries) {
    Py_DECREF(entry.key);
    Py_DECREF(entry.value);
  }
}

int raise_bad_key(PyObject *key) {
  const char *advice = "did you mean to pass something else?";
  if (PyBytes_CheckExact(key)) {
    advice = "try {key.decode(): value for key, value in state_dict.items()}";
  } else if (PyTuple_CheckExact(key)) {
    advice = "try {'.'.join(map(str, key)): value for key, value in state_dict.items()}";
  }
  PyErr_Format(PyExc_TypeError, "the keys of a state_dict must be str, got %.200s: %R; %s",
               Py_TYPE(key)->tp_name, key, advice);
  return -1;
}

int KeyIndex::build(PyObject *mapping, PyObject *prefix) {
  nodes_.emplace_back();
  std::string_view prefix_view;
  if (!text_of(prefix, &prefix_view)) {
    return -1;
  }
  entries_.reserve(static_cast<std::size_t>(PyDict_GET_SIZE(mapping)));
  SignalCheck signals;
  if (PyDict_CheckExact(mapping)) {
    RegistryItems items;
    int more = items.start(mapping);
    PyObject *key, *value;
    while (more >= 0 && (more = signals.step() < 0 ? -1 : items.next(&key, &value)) > 0) {
      if (add(key, value, prefix_view) < 0) {
        return -1;
      }
    }
    return more;
  }
  // An OrderedDict may have an order of its own.
  const auto keys = py::reinterpret_steal<py::object>(PySequence_List(mapping));
  if (!keys) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.ptr()); ++i) {
    if (signals.step() < 0) {
      return -1;
    }
    PyObject *key = PyList_GET_ITEM(keys.ptr(), i);
    PyObject *value = dict_get(mapping, key);
    if (!value) {
      if (PyErr_Occurred()) {
        return -1;
      }
      continue;
    }
    if (add(key, value, prefix_view) < 0) {
      return -1;
    }
  }
  return 0;
}

bool KeyIndex::text_of(PyObject *text, std::string_view *view) {
  if (PyUnicode_IS_COMPACT_ASCII(text)) {
    *view = std::string_view(reinterpret_cast<const char *>(PyUnicode_1BYTE_DATA(text)),
                             static_cast<std::size_t>(PyUnicode_GET_LENGTH(text)));
    return true;
  }
  // Lone surrogates are legal in names.
  PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
  if (!bytes) {
    return false;
  }
  encoded_.emplace_back(PyBytes_AS_STRING(bytes),
                        static_cast<std::size_t>(PyBytes_GET_SIZE(bytes)));
  Py_DECREF(bytes);
  *view = encoded_.back();
  return true;
}

int KeyIndex::add(PyObject *key, PyObject *value, std::string_view prefix) {
  if (!PyUnicode_Check(key)) {
    return raise_bad_key(key);
  }
  entries_.push_back(Entry{Py_NewRef(key), Py_NewRef(value)});
  std::string_view rest;
  if (!text_of(key, &rest)) {
    return -1;
  }
  if (rest.substr(0, prefix.size()) != prefix) {
    Py_DECREF(value);
    Py_DECREF(key);
    entries_.pop_back();
    return 0;
  }
  rest.remove_prefix(prefix.size());
  NodeId at = kRoot;
  std::size_t depth = 0;
  for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
    const std::string_view name = rest.substr(0, dot);
    if (depth < last_path_.size() && nodes_[last_path_[depth]].name == name) {
      at = last_path_[depth];
    } else {
      last_path_.resize(depth);
      at = child_or_new(at, name);
      last_path_.push_back(at);
    }
    ++depth;
    rest.remove_prefix(dot + 1);
  }
  last_path_.resize(depth);
  nodes_[at].leaves.push_back(Leaf{rest, static_cast<std::uint32_t>(entries_.size() - 1)});
  return 0;
}

KeyIndex::NodeId KeyIndex::child(NodeId parent, std::string_view name) const {
  const auto found = edges_.find(EdgeKey{parent, name});
  return found == edges_.end() ? kNone : found->second;
}

KeyIndex::NodeId KeyIndex::child_or_new(NodeId parent, std::string_view name) {
  NodeId id = child(parent, name);
  if (id == kNone) {
    id = static_cast<NodeId>(nodes_.size());
    nodes_.emplace_back();
    nodes_.back().name = name;
    nodes_[parent].children.push_back(id);
    edges_.emplace(EdgeKey{parent, name}, id);
  }
  return id;
}

KeyIndex::NodeId KeyIndex::descend(NodeId id, PyObject *name) {
  std::string_view rest;
  if (!PyUnicode_Check(name)) {
    raise_bad_key(name);
    return kNone;
  }
  // As it is in a prefix.
  const auto plain = py::reinterpret_steal<py::object>(
      PyUnicode_CheckExact(name) ? Py_NewRef(name)
                                 : make_name(NameForm::joined, names.empty, name));
  if (!plain || !text_of(plain.ptr(), &rest)) {
    return kNone;
  }
  for (std::size_t dot = rest.find('.'); id != kNone && dot != std::string_view::npos;
       dot = rest.find('.')) {
    id = child(id, rest.substr(0, dot));
    rest.remove_prefix(dot + 1);
  }
  return id == kNone ? kNone : child(id, rest);
}

std::vector<std::uint32_t> KeyIndex::positions(NodeId id) const {
  std::vector<std::uint32_t> found;
  if (id == kNone) {
    return found;
  }
  std::vector<NodeId> open{id};
  while (!open.empty()) {
    const Node &node = nodes_[open.back()];
    open.pop_back();
    for (const Leaf &leaf : node.leaves) {
      found.push_back(leaf.position);
    }
    open.insert(open.end(), node.children.rbegin(), node.children.rend());
  }
  if (!std::is_sorted(found.begin(), found.end())) {
    std::sort(found.begin(), found.end());
  }
  return found;
}

PyObject *KeyIndex::dict_of(NodeId id) const {
  PyObject *dict = PyDict_New();
  if (!dict) {
    return nullptr;
  }
  SignalCheck signals;
  for (const std::uint32_t position : positions(id)) {
    if (signals.step() < 0 ||
        PyDict_SetItem(dict, entries_[position].key, entries_[position].value) < 0) {
      Py_DECREF(dict);
      return nullptr;
    }
  }
  return dict;
}

bool KeyIndex::same_entries(NodeId id, PyObject *dict) const {
  const std::vector<std::uint32_t> mine = positions(id);
  if (!PyDict_CheckExact(dict) || static_cast<std::size_t>(PyDict_GET_SIZE(dict)) != mine.size()) {
    return false;
  }
  Py_ssize_t at = 0;
  PyObject *key, *value;
  for (const std::uint32_t position : mine) {
    if (!dict_next_item(dict, &at, &key, &value) || key != entries_[position].key ||
        value != entries_[position].value) {
      return false;
    }
  }
  return true;
}

}  // namespace modtree
