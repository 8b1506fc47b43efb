// SPDX-License-Identifier: BSD-3-Clause
// The keys of a state dict as a tree of their dotted parts, so that every module finds its own
// entries at once.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "module/object.h"

namespace modtree {

// Built once in the order of the mapping, in time linear in the length of the keys; holds the keys
// and values and does not follow later changes of the mapping.
class KeyIndex {
public:
  using NodeId = std::uint32_t;
  static constexpr NodeId kNone = ~NodeId{0};
  static constexpr NodeId kRoot = 0;

  struct Leaf {
    std::string_view name;   // the last part of the key
    std::uint32_t position;  // in the order of the mapping
  };
  struct Node {
    std::string_view name;
    std::vector<NodeId> children;
    std::vector<Leaf> leaves;
  };

  KeyIndex() = default;
  KeyIndex(const KeyIndex &) = delete;
  KeyIndex &operator=(const KeyIndex &) = delete;
  ~KeyIndex();

  // `mapping` is an exact dict or an OrderedDict; -1 on error, TypeError for a key that is not a
  // str. Keys that do not start with `prefix` are left out; the root represents `prefix`.
  int build(PyObject *mapping, PyObject *prefix);

  const Node &node(NodeId id) const { return nodes_[id]; }
  // Borrowed.
  PyObject *key(std::uint32_t position) const { return entries_[position].key; }

  // The node below `id` for a module name, which may have dots; kNone when no key has it, with an
  // error set only when `name` is not a str.
  NodeId descend(NodeId id, PyObject *name);

  // The positions of all entries below a node, in order.
  std::vector<std::uint32_t> positions(NodeId id) const;
  // A new dict of the entries below a node; null on error.
  PyObject *dict_of(NodeId id) const;
  // True if `dict` is exactly what dict_of(id) gave.
  bool same_entries(NodeId id, PyObject *dict) const;

private:
  struct Entry {
    PyObject *key;
    PyObject *value;
  };
  struct EdgeKey {
    NodeId parent;
    std::string_view name;
    bool operator==(const EdgeKey &other) const {
      return parent == other.parent && name == other.name;
    }
  };
  struct EdgeHash {
    std::size_t operator()(const EdgeKey &edge) const {
      return std::hash<std::string_view>()(edge.name) ^
             (edge.parent * std::size_t{0x9E3779B97F4A7C15});
    }
  };

  int add(PyObject *key, PyObject *value, std::string_view prefix);
  bool text_of(PyObject *text, std::string_view *view);
  NodeId child(NodeId parent, std::string_view name) const;
  NodeId child_or_new(NodeId parent, std::string_view name);

  std::vector<Entry> entries_;
  std::vector<Node> nodes_;
  std::unordered_map<EdgeKey, NodeId, EdgeHash> edges_;
  std::deque<std::string> encoded_;  // texts that are not ASCII; a deque so that views stay valid
  std::vector<NodeId> last_path_;    // the nodes of the key before: neighbours share most of it
};

// Sets the TypeError for a key that is not a str.
int raise_bad_key(PyObject *key);

}  // namespace modtree
