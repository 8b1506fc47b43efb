// SPDX-License-Identifier: BSD-3-Clause
#include "module/convert/convert_members.h"

#include "module/attributes/registry_edit.h"
#include "module/class_info.h"
#include "module/convert/conversion.h"
#include "python/installed.h"
#include "python/native_section.h"
#include "python/slot_guard.h"
#include "python/type_text.h"

namespace modtree {

namespace {

int raise_no_tensor(ModuleObject *module, PyObject *key, PyObject *value) {
  const std::string owner = short_type_text(module), type = type_text(value);
  PyErr_Format(PyExc_AttributeError,
               "the parameter %R of %.200s is a '%.200s' object, which is no tensor: it has no "
               "attribute 'data'",
               key, owner.c_str(), type.c_str());
  return -1;
}

// The family of what `fn` returned for a tensor of `own`: it may come from another library. A value
// that is not a tensor is left to `own`, which says what is wrong with it. Null with an error set
// on failure.
TensorFamily *family_of_result(PyObject *converted, TensorFamily *own) {
  TensorFamily *family;
  const int is_tensor = family_of(converted, &family);
  return is_tensor < 0 ? nullptr : is_tensor ? family : own;
}

// Only a tensor can take a parameter's place. -1 with TypeError.
int check_converted(ModuleObject *module, PyObject *key, PyObject *converted) {
  TensorFamily *family;
  const int is_tensor = family_of(converted, &family);
  if (is_tensor == 0) {
    const std::string owner = short_type_text(module), type = type_text(converted);
    PyErr_Format(PyExc_TypeError,
                 "the function given to _apply() must return a tensor for parameter %R of %.200s, "
                 "got '%.200s'",
                 key, owner.c_str(), type.c_str());
  }
  return is_tensor > 0 ? 0 : -1;
}

// Only what register_parameter takes can be replaced by a new parameter. -1 with AssertionError.
int check_replaceable(ModuleObject *module, PyObject *key, TensorFamily *family,
                      PyObject *parameter) {
  const int is_parameter = family->may_be_parameter(parameter);
  const int non_leaf = is_parameter > 0 ? family->has_grad_fn(parameter) : -1;
  const std::string owner = short_type_text(module), type = type_text(parameter);
  if (is_parameter == 0) {
    PyErr_Format(PyExc_AssertionError,
                 "param must be a Parameter to be replaced: %R of %.200s is a '%.200s'; register "
                 "tensors as buffers",
                 key, owner.c_str(), type.c_str());
  } else if (non_leaf > 0) {
    PyErr_Format(PyExc_AssertionError,
                 "param must be a leaf tensor to be replaced: %R of %.200s is computed from others",
                 key, owner.c_str());
  }
  return non_leaf == 0 ? 0 : -1;
}

// Puts the error that says which swap failed in front of the one that is set; -1.
int raise_no_swap(ModuleObject *module, PyObject *key, bool is_grad) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) {
    return -1;
  }
  return slot_guard(-1, [&] {
    py::error_already_set error;
    const auto message = py::reinterpret_steal<py::object>(
        PyUnicode_FromFormat("_apply(): Couldn't swap %s.%S%s", type_short_name(Py_TYPE(module)),
                             key, is_grad ? ".grad" : ""));
    const char *text = message ? PyUnicode_AsUTF8(message.ptr()) : nullptr;
    if (text) {
      py::raise_from(error, PyExc_RuntimeError, text);
    }
    return -1;
  });
}

}  // namespace

MemberConversion::MemberConversion(PyObject *fn)
    : fn_(py::reinterpret_borrow<py::object>(fn)),
      is_function_(PyFunction_Check(fn)),
      torch_to_(fn),
      keep_ties_(is_keep_ties(fn)) {
  if (keep_ties_) {
    ties_ = fn_;
  }
}

PyObject *MemberConversion::ties() {
  if (!ties_) {
    ties_ = py::reinterpret_steal<py::object>(new_keep_ties(fn_.ptr()));
  }
  return ties_.ptr();
}

// The switches of modtree.__future__, and those of the library for its own tensors.
int MemberConversion::ask_switches(TensorFamily *family) {
  bool *const answers[] = {&overwrite_, &swap_};
  for (const auto which : {ConversionSwitch::overwrite, ConversionSwitch::swap}) {
    const int own = own_switch(which);
    const int is_on = own != 0 ? own : family->conversion_switch(which);
    if (is_on < 0) {
      return -1;
    }
    *answers[static_cast<int>(which)] = is_on != 0;
  }
  keeps_same_ = !overwrite_ && !swap_;
  is_immutable_ = family->is_immutable();
  asked_ = family;
  return 0;
}

PyObject *MemberConversion::call(TensorFamily *family, PyObject *tensor) {
  if (torch_to_) {
    if (!family && family_of(tensor, &family) < 0) {
      return nullptr;
    }
    if (family && family->is_own_type(tensor)) {
      PyObject *converted = torch_to_.convert(tensor);
      if (converted || !PyErr_ExceptionMatches(PyExc_NotImplementedError)) {
        return converted;
      }
      PyErr_Clear();
    }
  }
  if (is_function_) {
    PyObject *arguments[] = {nullptr, tensor};
    return call_function(fn_.ptr(), arguments + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  }
  const OutsideNativeSection outside;
  return PyObject_CallOneArg(fn_.ptr(), tensor);
}

int MemberConversion::convert(ModuleObject *module, bool asks_python) {
  if ((asks_python && leave_no_grad() < 0) || convert_parameters(module) < 0 ||
      (asks_python && leave_no_grad() < 0)) {
    return -1;
  }
  const ModuleState &state = module->state;
  const bool has_none = state.initialized && !state.exposed && !state.buffers;
  return has_none ? 0 : convert_buffers(module);
}

int MemberConversion::convert_parameters(ModuleObject *module) {
  PyObject *mapping;
  py::object keep;
  if (registry(module, Slot::parameters, &mapping, &keep) < 0) {
    return -1;
  }
  if (!mapping) {
    return 0;
  }
  if (PyDict_CheckExact(mapping)) {
    return convert_items(module, mapping);
  }
  // Another mapping is walked by its own items().
  return leave_no_grad() < 0 || convert_items(module, mapping) < 0 ? -1 : leave_no_grad();
}

int MemberConversion::convert_items(ModuleObject *module, PyObject *mapping) {
  RegistryItems items;
  if (items.start(mapping) < 0) {
    return -1;
  }
  PyObject *key_ptr, *value_ptr;
  int more;
  while ((more = items.next(&key_ptr, &value_ptr)) > 0) {
    if (value_ptr == Py_None) {
      continue;
    }
    const auto key = py::reinterpret_borrow<py::object>(key_ptr);
    const auto parameter = py::reinterpret_borrow<py::object>(value_ptr);
    TensorFamily *family;
    const int is_tensor = families_.find(value_ptr, &family);
    if (is_tensor <= 0) {
      return is_tensor < 0 ? -1 : raise_no_tensor(module, key.ptr(), parameter.ptr());
    }
    if ((family != asked_ && ask_switches(family) < 0) || no_grad_.enter(family) < 0 ||
        (keep_ties_ || is_immutable_
             ? convert_tied(module, key.ptr(), family, parameter.ptr())
             : convert_parameter(module, key.ptr(), family, parameter.ptr())) < 0) {
      return -1;
    }
  }
  return more;
}

inline int MemberConversion::convert_parameter(ModuleObject *module, PyObject *key,
                                               TensorFamily *family, PyObject *parameter) {
  PyObject *result = call(family, parameter);
  if (result == parameter && keeps_same_ && family->lacks_grad(parameter)) {
    Py_DECREF(result);  // not the last one: the caller owns the parameter
    return 0;
  }
  const auto converted = py::reinterpret_steal<py::object>(result);
  py::object stored;
  return converted ? take_converted(module, key, family, parameter, result, &stored) : -1;
}

// The same for a parameter that may have been met under another name.
int MemberConversion::convert_tied(ModuleObject *module, PyObject *key, TensorFamily *family,
                                   PyObject *parameter) {
  PyObject *ties = this->ties(), *known;
  const int found = ties ? find_converted(ties, parameter, &known) : -1;
  if (found < 0) {
    return -1;
  }
  if (found > 0) {
    const auto replacement = py::reinterpret_steal<py::object>(known);
    if (replacement.ptr() == parameter) {
      return 0;
    }
    return store_registered(module, Slot::parameters, key, known);
  }
  const auto converted = py::reinterpret_steal<py::object>(call(family, parameter));
  py::object stored;
  if (!converted || take_converted(module, key, family, parameter, converted.ptr(), &stored) < 0) {
    return -1;
  }
  return remember_converted(ties, parameter, stored.ptr());
}

struct MemberConversion::Pair {
  TensorFamily *family;
  PyObject *parameter;  // borrowed, as `converted`
  PyObject *converted;
  py::object grad;  // empty when there is none
  py::object converted_grad;
  TensorFamily *grad_family = nullptr;  // of converted_grad

  bool has_grad() const { return static_cast<bool>(grad); }
  bool keeps_grad() const { return converted_grad.is(grad); }
};

// What follows the call of the function; *stored is what the registry holds then.
int MemberConversion::take_converted(ModuleObject *module, PyObject *key, TensorFamily *family,
                                     PyObject *parameter, PyObject *converted, py::object *stored) {
  if (converted != parameter && check_converted(module, key, converted) < 0) {
    return -1;
  }
  const int swap = is_immutable_ ? 0 : swap_ ? 1 : family->must_swap_contents(parameter, converted);
  if (swap < 0) {
    return -1;
  }
  Pair pair{family, parameter, converted, {}, {}};
  pair.grad = py::reinterpret_steal<py::object>(family->grad(parameter));
  if (!pair.grad) {
    return -1;
  }
  if (pair.grad.is_none()) {
    pair.grad = py::object();
  } else if (convert_grad(module, key, &pair) < 0) {
    return -1;
  }
  *stored = py::reinterpret_borrow<py::object>(parameter);
  if (swap) {
    return swap_pair(module, key, pair);
  }
  const int keeps = converted == parameter && !overwrite_;
  const int sets_data = keeps ? 1 : may_set_data(family, parameter, converted);
  if (sets_data != 0) {
    return sets_data < 0 ? -1 : set_data_of_pair(pair);
  }
  return replace_pair(module, key, pair, stored);
}

int MemberConversion::may_set_data(TensorFamily *family, PyObject *tensor, PyObject *converted) {
  return overwrite_ ? 0 : family->can_set_data(tensor, converted);
}

// Before anything of the parameter is changed: the function may fail here too.
int MemberConversion::convert_grad(ModuleObject *module, PyObject *key, Pair *pair) {
  pair->converted_grad = py::reinterpret_steal<py::object>(call(pair->family, pair->grad.ptr()));
  if (!pair->converted_grad) {
    return -1;
  }
  if (pair->keeps_grad()) {
    pair->grad_family = pair->family;
    return 0;
  }
  PyObject *converted = pair->converted_grad.ptr();
  const int is_tensor = family_of(converted, &pair->grad_family);
  if (is_tensor == 0) {
    const std::string owner = short_type_text(module), type = type_text(converted);
    PyErr_Format(PyExc_TypeError,
                 "the conversion of the gradient of parameter %R of %.200s gave a '%.200s' "
                 "object, which is no tensor",
                 key, owner.c_str(), type.c_str());
  }
  const int requires_grad = is_tensor > 0 ? pair->family->requires_grad(pair->grad.ptr()) : -1;
  return requires_grad < 0 ? -1
                           : pair->grad_family->set_requires_grad(converted, requires_grad == 1);
}

// A parameter of what the function made, which requires a gradient where the old one does.
py::object MemberConversion::new_parameter(const Pair &pair) {
  const int requires_grad = pair.family->requires_grad(pair.parameter);
  TensorFamily *family =
      requires_grad < 0 ? nullptr : family_of_result(pair.converted, pair.family);
  return py::reinterpret_steal<py::object>(
      family ? family->make_parameter(pair.converted, requires_grad == 1) : nullptr);
}

// Exchanges the contents of both. A gradient can be swapped only while no tensor holds it, and the
// old contents of the parameter may live on in the graph of a loss: it is taken off before.
int MemberConversion::swap_pair(ModuleObject *module, PyObject *key, const Pair &pair) {
  return slot_guard(-1, [&] {
    TensorFamily *family = pair.family;
    const py::object replacement = new_parameter(pair);
    if (!replacement) {
      return raise_no_swap(module, key, false);
    }
    const auto swap = [&](PyObject *tensor, PyObject *other) {
      return call_method(family->object, "swap_tensors", tensor, other) ? 0 : -1;
    };
    if (!pair.has_grad()) {
      return swap(pair.parameter, replacement.ptr()) < 0 ? raise_no_swap(module, key, false) : 0;
    }
    PyObject *grad = pair.grad.ptr(), *converted_grad = pair.converted_grad.ptr();
    // Whether the new parameter can have the new gradient is asked while nothing is changed.
    TensorFamily *new_family = family_of_result(replacement.ptr(), family);
    if (!new_family || new_family->set_grad(replacement.ptr(), converted_grad) < 0 ||
        new_family->set_grad(replacement.ptr(), Py_None) < 0 ||
        family->set_grad(pair.parameter, Py_None) < 0) {
      return -1;
    }
    const bool swaps_grad = !pair.keeps_grad();
    bool is_grad = true;
    int done = swaps_grad ? swap(grad, converted_grad) : 0;
    if (done == 0) {
      is_grad = false;
      done = swap(pair.parameter, replacement.ptr());
    }
    if (done < 0) {
      raise_no_swap(module, key, is_grad);
      const py::error_scope held;
      if ((!is_grad && swaps_grad && swap(grad, converted_grad) < 0) ||
          family->set_grad(pair.parameter, grad) < 0) {
        PyErr_WriteUnraisable(pair.parameter);
      }
      return -1;
    }
    return family->set_grad(pair.parameter, grad);
  });
}

// Gives the parameter and its gradient new storage; both stay the objects they are.
int MemberConversion::set_data_of_pair(const Pair &pair) {
  TensorFamily *family = pair.family;
  PyObject *grad = pair.grad.ptr(), *converted_grad = pair.converted_grad.ptr();
  const bool moves_grad = pair.has_grad() && !pair.keeps_grad();
  const int sets_data = moves_grad ? may_set_data(family, grad, converted_grad) : 1;
  if (sets_data < 0) {
    return -1;
  }
  py::object old;
  if (moves_grad) {
    old = py::reinterpret_steal<py::object>(family->detach(pair.parameter));
    if (!old) {
      return -1;
    }
  }
  if (pair.converted != pair.parameter && family->set_data(pair.parameter, pair.converted) < 0) {
    return -1;
  }
  if (!moves_grad || (sets_data ? family->set_data(grad, converted_grad)
                                : family->set_grad(pair.parameter, converted_grad)) == 0) {
    return 0;
  }
  const py::error_scope held;
  if (family->set_data(pair.parameter, old.ptr()) < 0) {
    PyErr_WriteUnraisable(pair.parameter);
  }
  return -1;
}

// Puts a new parameter, which has the new gradient, in the place of the old one.
int MemberConversion::replace_pair(ModuleObject *module, PyObject *key, const Pair &pair,
                                   py::object *stored) {
  if (check_replaceable(module, key, pair.family, pair.parameter) < 0) {
    return -1;
  }
  const py::object replacement = new_parameter(pair);
  TensorFamily *family = replacement ? family_of_result(replacement.ptr(), pair.family) : nullptr;
  if (!family ||
      (pair.has_grad() && family->set_grad(replacement.ptr(), pair.converted_grad.ptr()) < 0)) {
    return -1;
  }
  *stored = replacement;
  return store_registered(module, Slot::parameters, key, replacement.ptr());
}

int MemberConversion::convert_buffers(ModuleObject *module) {
  PyObject *mapping;
  py::object keep;
  RegistryItems items;
  if (registry(module, Slot::buffers, &mapping, &keep) < 0) {
    return -1;
  }
  // Buffers are converted outside.
  const bool is_empty = !mapping || (PyDict_CheckExact(mapping) && PyDict_GET_SIZE(mapping) == 0);
  if (is_empty) {
    return 0;
  }
  const auto held = py::reinterpret_borrow<py::object>(mapping);
  if (leave_no_grad() < 0 || items.start(mapping) < 0) {
    return -1;
  }
  PyObject *key_ptr, *value_ptr;
  int more;
  while ((more = items.next(&key_ptr, &value_ptr)) > 0) {
    if (value_ptr == Py_None) {
      continue;
    }
    const auto key = py::reinterpret_borrow<py::object>(key_ptr);
    const auto buffer = py::reinterpret_borrow<py::object>(value_ptr);
    TensorFamily *family;
    const int is_tensor = keep_ties_ ? 0 : families_.find(buffer.ptr(), &family);
    const bool keeps = keep_ties_ || (is_tensor > 0 && family->is_immutable());
    PyObject *ties = keeps ? this->ties() : nullptr, *known = nullptr;
    if (is_tensor < 0 || (keeps && !ties)) {
      return -1;
    }
    const int found = keeps ? find_converted(ties, buffer.ptr(), &known) : 0;
    const auto converted =
        py::reinterpret_steal<py::object>(found != 0 ? known : call(nullptr, buffer.ptr()));
    if (!converted ||
        (keeps && !found && remember_converted(ties, buffer.ptr(), converted.ptr()) < 0)) {
      return -1;
    }
    // A table of another class may keep something else than it is given.
    if ((!converted.is(buffer) || !is_plain_table(held.ptr())) &&
        store_registered(module, Slot::buffers, key.ptr(), converted.ptr()) < 0) {
      return -1;
    }
  }
  return more;
}

}  // namespace modtree
