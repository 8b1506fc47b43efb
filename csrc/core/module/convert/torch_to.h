// SPDX-License-Identifier: BSD-3-Clause
// The function that torch's Module.to() gives to _apply, done natively (docs/dropin.md).
#pragma once

#include "family/family.h"

namespace modtree {

// Makes functions with this code object known as that closure of Module.to(): it converts a tensor
// by `device`, `dtype`, `non_blocking` and `convert_to_format`. Throws error_already_set.
void set_torch_to(py::handle code);

class TorchTo {
public:
  // Reads the closure of `fn` if that is the function; does nothing for any other.
  explicit TorchTo(PyObject *fn);

  // True for that function, if it leaves memory formats alone.
  explicit operator bool() const { return static_cast<bool>(device_); }

  // What the function makes of a tensor of torch's own types: new reference, null on error. The
  // function itself is to be called where this fails with NotImplementedError, whose text it
  // changes.
  PyObject *convert(PyObject *tensor) const;

private:
  py::object device_, dtype_, non_blocking_;
};

}  // namespace modtree
