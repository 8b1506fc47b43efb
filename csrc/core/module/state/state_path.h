// SPDX-License-Identifier: BSD-3-Clause
// The way from the root of a state_dict or load_state_dict walk to the current module, and the keys
// along it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "module/object.h"

namespace modtree {

// One module on the way. The references are owned by the StatePath.
struct StateFrame {
  PyObject *module = nullptr;
  PyObject *name = nullptr;    // in its parent; null for the root
  PyObject *prefix = nullptr;  // 'a.b.'; null until asked for
  PyObject *local_metadata =
      nullptr;               // state_dict: the dict in _metadata; null while it is only recorded
  std::size_t position = 0;  // in the walk, for the memo of prefixes
  std::uint32_t record = 0;  // state_dict, load: the number of the module in the walk's list
  RegistryItems children;
};

// An explicit stack, so that depth is bounded by memory only. Prefixes are built when an entry or
// Python code needs them: a chain of n modules whose only parameter is at its end makes one long
// key, not n of them.
class StatePath {
public:
  StatePath();
  StatePath(const StatePath &) = delete;
  StatePath &operator=(const StatePath &) = delete;
  ~StatePath();

  bool empty() const { return frames_.empty(); }
  std::size_t size() const { return frames_.size(); }
  StateFrame &top() { return frames_.back(); }
  StateFrame &operator[](std::size_t index) { return frames_[index]; }

  // Borrows its arguments. The root has a prefix and no name, the others a name.
  void push_root(PyObject *module, PyObject *prefix);
  void push(PyObject *module, PyObject *name) { push(module, name, take_position()); }
  void push(PyObject *module, PyObject *name, std::size_t position);
  void pop();

  // -1 with RecursionError when `module`, about to be pushed under `name`, is on the way already.
  // Called for modules with children.
  int check_cycle(PyObject *module, PyObject *name, const char *function);

  // The prefix of the top frame; borrowed, null on error.
  PyObject *prefix() {
    PyObject *made = frames_.back().prefix;
    return made ? made : make_own_prefix();
  }
  // The place of the next module in the walk, for the memo of prefixes.
  static std::size_t take_position();
  // The prefix that a child of the top frame would have: new reference, null on error.
  PyObject *child_prefix(PyObject *name, std::size_t position = take_position());
  // The path of the top frame without the last dot, for messages: new reference, null on error.
  PyObject *path();

private:
  PyObject *make_own_prefix();
  // From the last known prefix on: through those of all modules on the way, or at once.
  PyObject *made_one_by_one(std::size_t known);
  PyObject *long_prefix(std::size_t known);

  std::vector<StateFrame> frames_;
  std::unordered_set<PyObject *> deep_;  // the modules of the frames beyond the first kScanned
};

// prefix + name through the memo of keys, in the order of a walk. New reference; null with
// TypeError when a part is not a str.
PyObject *state_key(PyObject *prefix, PyObject *name);

// The same of `prefix` + "_extra_state".
PyObject *extra_state_key(PyObject *prefix);

// The key of `_metadata` for a prefix: without its last character. New reference; null on error.
PyObject *metadata_key(PyObject *prefix);

}  // namespace modtree
