// SPDX-License-Identifier: BSD-3-Clause
// What _apply does to the parameters and buffers of one module (BEHAVIOUR 5.5).
#pragma once

#include "family/family.h"
#include "family/no_grad.h"
#include "module/convert/torch_to.h"
#include "module/object.h"

namespace modtree {

// One conversion: the function, and the process-wide switches as they are when it begins. A
// parameter and its gradient are converted both or, after an error, neither.
class MemberConversion {
public:
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
  struct Pair;  // a parameter and its gradient, with what the function made of both
  int convert_grad(ModuleObject *module, PyObject *key, Pair *pair);
  int swap_pair(ModuleObject *module, PyObject *key, const Pair &pair);
  int set_data_of_pair(const Pair &pair);
  int replace_pair(ModuleObject *module, PyObject *key, const Pair &pair, py::object *stored);
  py::object new_parameter(const Pair &pair);
  int may_set_data(TensorFamily *family, PyObject *tensor, PyObject *converted);
  int ask_switches(TensorFamily *family);

  // Where the conversion remembers what tensors became: borrowed, null on error.
  PyObject *ties();

  // What fn makes of a tensor: new reference, null on error.
  PyObject *call(TensorFamily *family, PyObject *tensor);

  py::object fn_;
  py::object ties_;   // KeepTies: `fn_` if it is one, or made when the first immutable tensor comes
  bool is_function_;  // a Python function
  TorchTo torch_to_;
  NoGradScopes no_grad_;
  FamilyMemo families_;
  bool keep_ties_;
  TensorFamily *asked_ = nullptr;  // whose switches, and whose nature, the following are
  bool overwrite_ = false;
  bool swap_ = false;
  bool is_immutable_ = false;
  // A tensor that comes back from the function stays where it is, but for its gradient.
  bool keeps_same_ = true;
};

}  // namespace modtree
