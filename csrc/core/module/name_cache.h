// SPDX-License-Identifier: BSD-3-Clause
// Dotted names, remembered from one walk to the next.
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>
#include <vector>

namespace modtree {

// How a name is put together from the name of its owner (`left`) and its own (`right`).
enum class NameForm {
  dotted,   // left + '.' + right, or right alone when left is empty
  joined,   // left + right
  prefix,   // left + right + '.'
  chopped,  // left without its last character; right is ignored
};

// A memo indexed by the position in a walk. A walk asks for its names in order; a remembered name
// is handed out again only when both parts are the very objects it was made from, which is an exact
// check because strings do not change. So nothing has to be told when a tree changes: a changed
// place simply misses. One walk's worth of names is kept, at most kMaxEntries, and only exact strs:
// a str of another class may have attributes, which would live as long as the process.
class NameCache {
public:
  explicit NameCache(NameForm form) : form_(form) {}
  NameCache(const NameCache &) = delete;
  NameCache &operator=(const NameCache &) = delete;

  // make_name() with a memo.
  PyObject *get(std::size_t position, PyObject *left, PyObject *right) {
    if (position < entries_.size()) {
      Entry &entry = entries_[position];
      if (entry.left == left && entry.right == right) {
        return Py_NewRef(entry.full);
      }
    }
    return make(position, left, right);
  }

private:
  struct Entry {
    PyObject *left = nullptr;
    PyObject *right = nullptr;
    PyObject *full = nullptr;
  };
  static constexpr std::size_t kMaxEntries = std::size_t{1} << 20;

  PyObject *make(std::size_t position, PyObject *left, PyObject *right);

  NameForm form_;
  std::vector<Entry> entries_;
};

// Builds a name without remembering it: what Python's operators make of the parts, which is an
// exact str unless a class of str says otherwise. New reference; null with TypeError when a part,
// or what such a class makes of it, is not a str. Runs user code only for a part that is not an
// exact str.
PyObject *make_name(NameForm form, PyObject *left, PyObject *right);

// The caches of the walks, by what they name.
struct NameCaches {
  NameCache modules{NameForm::dotted};  // named_modules, and the owners' names in named_parameters
                                        // / named_buffers
  NameCache parameters{NameForm::dotted};  // named_parameters
  NameCache buffers{NameForm::dotted};     // named_buffers
  NameCache state_prefixes{
      NameForm::prefix};                   // prefixes of state_dict and load_state_dict ('a.b.')
  NameCache state_keys{NameForm::joined};  // their keys
};
NameCaches &name_caches();

}  // namespace modtree
