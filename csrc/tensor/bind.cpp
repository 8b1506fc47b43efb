// SPDX-License-Identifier: BSD-3-Clause
#define MODTREE_IMPORT_ARRAY
#include "tensor/bind.h"

#include "autograd/bind.h"
#include "autograd/node.h"
#include "tensor/create.h"
#include "tensor/float_errors.h"
#include "tensor/grad_mode.h"
#include "tensor/methods.h"
#include "tensor/numpy_family.h"
#include "tensor/op.h"
#include "tensor/slot_ops.h"
#include "tensor/special.h"

namespace modtree {

void bind_tensor(py::module_ &m) {
  if (PyArray_ImportNumPyAPI() < 0) {
    throw py::error_already_set();
  }
  bind_dtype(m);
  bind_float_errors(m);
  bind_grad_mode(m);
  bind_object(m);
  bind_methods(m);
  bind_promote(m);
  bind_op(m);
  bind_slot_ops(m);
  bind_node(m);
  bind_autograd(m);
  bind_create(m);
  bind_special(m);
  bind_numpy_family(m);
}

}  // namespace modtree
