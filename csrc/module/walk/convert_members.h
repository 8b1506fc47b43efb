// SPDX-License-Identifier: BSD-3-Clause
// What _apply does to the parameters and buffers of one module (BEHAVIOUR 5.5).
#pragma once

#include "family/family.h"
#include "family/no_grad.h"
#include "module/object.h"
#include "module/walk/torch_to.h"

namespace modtree {

// One conversion: the function, and the process-wide switches as they are when it begins.
class MemberConversion {
public:
  // Throws when `modtree.__future__` cannot be read.
  explicit MemberConversion(PyObject *fn);

  PyObject *fn() const { return fn_.ptr(); }

  // Parameters (with their gradients), then buffers. -1 on error; what came before stays converted.
  // May end under the libraries' no_grad: the parameters of the next module are converted under it
  // as well. `asks_python`: looking for the module's registries may run Python.
  int convert(ModuleObject *module, bool asks_python);

  // To be called before Python code that is not the function, and at the end. -1 on error.
  int leave_no_grad() { return no_grad_.exit(); }

  // Of the last tensor, or null.
  TensorFamily *last_family() const { return families_.last(); }

private:
  int convert_parameters(ModuleObject *module);
  int convert_items(ModuleObject *module, PyObject *mapping);
  int convert_buffers(ModuleObject *module);
  int convert_parameter(ModuleObject *module, PyObject *key, TensorFamily *family,
                        PyObject *parameter);
  int convert_tied(ModuleObject *module, PyObject *key, TensorFamily *family, PyObject *parameter);
  int take_converted(ModuleObject *module, PyObject *key, TensorFamily *family, PyObject *parameter,
                     PyObject *converted, py::object *stored);
  int store_parameter(ModuleObject *module, PyObject *key, TensorFamily *family,
                      PyObject *parameter, PyObject *converted, bool swap, py::object *stored);
  int convert_grad(ModuleObject *module, PyObject *key, TensorFamily *family, PyObject *parameter,
                   PyObject *grad, bool swap, PyObject *stored);
  int swap_contents(ModuleObject *module, PyObject *key, TensorFamily *family, PyObject *tensor,
                    PyObject *other, bool is_grad);
  int may_set_data(TensorFamily *family, PyObject *tensor, PyObject *converted);

  // What fn makes of a tensor: new reference, null on error.
  PyObject *call(TensorFamily *family, PyObject *tensor);

  py::object fn_;
  bool is_function_;  // a Python function
  TorchTo torch_to_;
  NoGradScopes no_grad_;
  FamilyMemo families_;
  bool keep_ties_;
  bool overwrite_;
  bool swap_;
  // A tensor that comes back from the function stays where it is, but for its gradient.
  bool keeps_same_;
};

}  // namespace modtree
