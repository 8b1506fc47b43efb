// SPDX-License-Identifier: BSD-3-Clause
// What differs between the torches whose class is adopted (python/modtree/torch/facts.py
// finds it out). The values here are those of the newest, and of modtree's own Module.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

namespace py = pybind11;

struct TorchFacts {
  // `_parameters`, `_buffers` and `_modules` of a new module are OrderedDicts.
  bool ordered_registries = false;
  // `modules()` takes `remove_duplicate`.
  bool modules_may_repeat = true;
  // A buffer may be anything with `__torch_function__`.
  bool tensor_like_buffers = true;
  // There is torch.nn.Buffer, and an assignment to a buffer is a call of `register_buffer`.
  bool buffer_class = true;
  // An assignment gives `persistent` to a `register_buffer` that was put on Module itself;
  // otherwise it looks for it in the signature, as it does for a subclass.
  bool patches_take_persistent = true;
  // Hooks of `register_state_dict_post_hook` must return None.
  bool state_dict_post_hooks = true;
  // A tensor without dimensions takes one of a single dimension only where that has one element;
  // otherwise it takes the first of any number.
  bool scalars_from_one = true;
};

extern TorchFacts torch_facts;

// What warns in the place of a method of torch's, where its warnings name torch's own file: called
// with the beginning of torch's text, and the text. Null where they name the caller's.
extern PyObject *torch_warning;  // strong

// A UserWarning that torch gives too; `begins` is how its text begins there. Steals the text, null
// is an error that is set. -1 on error.
int warn_as_torch(const char *begins, PyObject *text);

}  // namespace modtree
