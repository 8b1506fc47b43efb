// SPDX-License-Identifier: BSD-3-Clause
#include <pybind11/pybind11.h>

#include <string>

#include "bind/bind_install.h"
#include "bind/bind_kernels.h"
#include "bind/bind_tensor.h"
#include "bind/bind_threads.h"
#include "bind/guarded_functions.h"
#include "family/family.h"
#include "family/read_tensors.h"
#include "module/adoption.h"
#include "module/bound_method.h"
#include "module/class_info.h"
#include "module/copy.h"
#include "module/globals.h"
#include "module/object_methods.h"
#include "module/state/state_metadata.h"
#include "module/type.h"
#include "module/walk/conversion.h"
#include "module/walk/torch_to.h"
#include "module/walk/walk.h"
#include "python/dict_lookup.h"
#include "python/installed.h"
#include "python/interned.h"

// <pybind11/pytypes.h>, which is all that other folders include, uses this for the text of an error
// and leaves it to <pybind11/pybind11.h> to define it.
template std::string pybind11::handle::cast<std::string>() const;

namespace modtree {

namespace {

void bind_module(py::module_ &m) {
  make_module_type(m);
  init_object_methods();
  m.def(
      "_exchange_object_methods", &exchange_object_methods, py::arg("on"),
      "Lets object.__setattr__ and its like take modules, or not; says whether they do afterwards. "
      "For tests: without the exchange, CPython's refusal must be what is left.");
  make_bound_method_type(m);
  add_attribute_methods(m);
  make_walk_type(m);
  make_conversion_types(m);
  bind_global_hooks(m);
  m.def(
      "_seal_module_class",
      [](py::type cls) {
        seal_module_class(reinterpret_cast<PyTypeObject *>(cls.ptr()));
        leave_slots_to_object();
      },
      "Declares the class whose attributes count as Module's own; everything else is an override.");
  m.def("_adopt_module_class", &adopt_module_class, py::arg("attributes"), py::arg("sealed"),
        "Puts the attributes of another library's Module on the native base (docs/dropin.md).");
  m.def("_set_torch_to", &set_torch_to, py::arg("code"),
        "Makes the function known that torch's Module.to() gives to _apply.");
  m.def(
      "_start_modules_exposed", [] { modules_start_exposed = true; },
      "From now on modules have all of their attributes in the dict from the start.");
  m.def("_start_report", &start_report, "Notes the classes of modules that are made from now on.");
  m.def("_native_report", &native_report, "What native code did since the class was adopted.");
  m.def("_rebind_global_hooks", &rebind_global_hooks, py::arg("name"), py::arg("table"),
        "Replaces a process-wide table of hooks.");
  m.def("_set_tracing_probe", &set_tracing_probe, py::arg("library"), py::arg("function"),
        "Says how to find out whether torch.jit.trace is at work.");
  m.def(
      "_make_state_metadata", [](py::handle record) { return make_state_metadata(record); },
      "Makes the `_metadata` of a StateDict from its compact record.");
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Native parts of modtree.";
  m.attr("__version__") = MODTREE_VERSION;
  init_type_versions();
  init_dict_lookup();
  intern_names();
  init_special_names();
  init_copying();
  bind_module(m);
  m.def("_forget_families", &forget_families,
        "Makes the tree ask modtree.families.find again for every type.");
  m.def("read_tensors", &read_tensors, py::arg("tensors"),
        "Where the values of each tensor lie: a list of (dtype name, shape, address, nbytes, "
        "is_contiguous), with None for values that native code cannot read as they lie in memory.");
  m.def(
      "_install", [](const py::kwargs &objects) { install(objects); },
      "Gives objects of modtree's Python modules to native code, by the names under which that "
      "uses them.");
  m.def(
      "_installed",
      [] {
        auto found = py::reinterpret_steal<py::object>(all_installed());
        if (!found) {
          throw py::error_already_set();
        }
        return found;
      },
      "What was given to _install, by name; None for what is missing.");
  bind_kernels(m);
  bind_threads(m);
  bind_tensor(m);
  bind_autograd(m);
  const py::cpp_function example([] {});
  guard_functions(m, example);
  guard_functions(m.attr("kernels"), example);
}

}  // namespace modtree
