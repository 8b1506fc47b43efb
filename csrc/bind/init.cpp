// SPDX-License-Identifier: BSD-3-Clause
#include <pybind11/pybind11.h>

#include <string>

#include "bind/functions.h"
#include "bind/parts.h"
#include "family/family.h"
#include "family/read_tensors.h"
#include "module/adoption.h"
#include "module/attributes/append.h"
#include "module/bases_behind.h"
#include "module/bound_method.h"
#include "module/class_info.h"
#include "module/convert/conversion.h"
#include "module/convert/torch_to.h"
#include "module/copy.h"
#include "module/error_note.h"
#include "module/globals.h"
#include "module/object_methods.h"
#include "module/split/structure.h"
#include "module/state/state_metadata.h"
#include "module/type.h"
#include "module/uses.h"
#include "module/walk/iterator.h"
#include "module/walk/match_paths.h"
#include "python/checked.h"
#include "python/dict_lookup.h"
#include "python/installed.h"
#include "python/internals.h"
#include "python/interned.h"
#include "python/native_section.h"
#include "python/once.h"
#include "python/ordered_dict.h"
#include "tensor/override.h"

// <pybind11/pytypes.h>, which is all that other files include, uses this for the text of an error
// and leaves it to <pybind11/pybind11.h> to define it.
template std::string pybind11::handle::cast<std::string>() const;

namespace modtree {

namespace {

void seal(const py::type &cls) {
  seal_module_class(reinterpret_cast<PyTypeObject *>(cls.ptr()));
  leave_slots_to_object();
}

py::object noted_hook_of(py::handle hook, py::handle module) {
  return owned(noted_hook(hook.ptr(), module.ptr()));
}

void forget_all_families() {
  forget_families();
  forget_foreign_classes();
}

bool start_class_exposed(const py::type &cls) {
  const int is_new = start_exposed(reinterpret_cast<PyTypeObject *>(cls.ptr()));
  if (is_new < 0) {
    throw py::error_already_set();
  }
  return is_new;
}

py::object as_tuple(py::handle items) {
  auto tuple = py::reinterpret_steal<py::object>(tuple_of_items(items.ptr()));
  if (!tuple) {
    throw py::error_already_set();
  }
  return tuple;
}

py::object installed_objects() {
  auto found = py::reinterpret_steal<py::object>(all_installed());
  if (!found) {
    throw py::error_already_set();
  }
  return found;
}

void bind_module(Functions &m) {
  make_module_type(m.module());
  m.def<may_know_internals>("_may_know_internals(part)",
                            "False where a part must do without what it knows of the inside of "
                            "CPython or libtorch (docs/lifetime.md).");
  init_object_methods();
  m.def<exchange_object_methods>(
      "_exchange_object_methods(on)",
      "Lets object.__setattr__ and its like take modules, or not; says whether they do afterwards. "
      "For tests: without the exchange, CPython's refusal must be what is left.");
  make_note_type();
  m.def<noted_hook_of>("_noted_hook(hook, module, /)",
                       "The hook on gradients of a module, with a note on what it raises.");
  make_bound_method_type(m.module());
  make_handed_methods(m.module());
  add_attribute_methods(m.module());
  make_walk_type(m.module());
  make_conversion_types(m.module());
  make_split_types(m.module());
  m.def<split_modules>(
      "_split_modules(tree, known, weak, levels=0, hints=None, /)",
      "The modules in containers as a ModuleStructure and a flat list of leaves. "
      "`known`: a structure that the tree may have, a list of them, or None; "
      "`weak`: a new structure refers to attributes weakly; `levels`: of containers "
      "that are parts of the structure also without modules; `hints`: id of a module -> (weak "
      "reference, {name: (value, leaf)}): an entry with this very value is that leaf.");
  m.def<watch_uses>("_watch_uses(function, /)",
                    "Gives the thread a function that is called with each module that it uses and "
                    "whether that is new, or None; returns the one before.");
  bind_global_hooks(m.module());
  m.def<seal>("_seal_module_class(cls, /)",
              "Declares the class whose attributes count as Module's own; everything else is an "
              "override.");
  m.def<adopt_module_class>(
      "_adopt_module_class(attributes, sealed, left)",
      "Puts the attributes of another library's Module on the native base (docs/dropin.md).");
  m.def<set_torch_facts>("_set_torch_facts(facts, warning=None)",
                         "Says what the torch has whose class is adopted, by name.");
  m.def<set_torch_to>("_set_torch_to(code)",
                      "Makes the function known that torch's Module.to() gives to _apply.");
  m.def<start_class_exposed>(
      "_start_exposed(cls)",
      "From now on modules of this very class have all of their attributes in the dict from the "
      "start. True if they did not before.");
  m.def<start_report>("_start_report()", "Notes the classes of modules that are made from now on.");
  m.def<native_report>("_native_report()", "What native code did since the class was adopted.");
  m.def<rebind_global_hooks>("_rebind_global_hooks(name, table)",
                             "Replaces a process-wide table of hooks.");
  m.def<set_tracing_probe>("_set_tracing_probe(library, function)",
                           "Says how to find out whether torch.jit.trace is at work.");
  m.def<show_calls>("_show_calls(function)",
                    "Calls modules by this function in threads with a profiler; None ends it.");
  m.def<append_children>(
      "_append_children(container, modules, first, /)",
      "Adds modules to a container, named by their positions from `first` on, up to the first one "
      "for which more than Module's own methods must run; says how many it has added.");
  m.def<make_state_metadata>("_make_state_metadata(record, /)",
                             "Makes the `_metadata` of a StateDict from its compact record.");
}

}  // namespace

// The entry point of this name calls it: main_interpreter.cpp.
PYBIND11_MODULE(_C_in_main, m) {
  init_native_section();
  const NativeSection in_section;
  m.doc() = "Native parts of modtree.";
  m.attr("__version__") = MODTREE_VERSION;
  init_type_versions();
  init_dict_lookup();
  init_ordered_dict();
  intern_names();
  init_special_names();
  init_copying();
  Functions functions(m);
  bind_module(functions);
  functions.def<forget_all_families>(
      "_forget_families()", "Makes the tree ask modtree.families.find again for every type.");
  functions.def<match_paths>(
      "_match_paths(root, states, start, ask, tables, /)",
      "The modules of a tree whose paths a machine accepts, or the values in some of their "
      "registries: a list of (path, object), in which shared ones may come several times.");
  functions.def<read_tensors>(
      "read_tensors(tensors)",
      "Where the values of each tensor lie: a list of (dtype name, shape, address, nbytes, "
      "is_contiguous), with None for values that native code cannot read as they lie in memory.");
  functions.def<as_tuple>(
      "as_tuple(items, /)",
      "tuple(items), which bears that user code shortens the list while the tuple is made.");
  functions.def<install>(
      "_install(**objects)",
      "Gives objects of modtree's Python modules to native code, by the names under which that "
      "uses them.");
  functions.def<installed_objects>(
      "_installed()", "What was given to _install, by name; None for what is missing.");
  functions.def<annotations_of>(
      "_annotations(function, /)",
      "Annotations of the parameters of a function of the extension and of its result, a line for "
      "each, with which tools/make_stubs writes its stub.");
  bind_kernels(functions);
  bind_tensor(functions);
  bind_autograd(functions);
}

}  // namespace modtree
