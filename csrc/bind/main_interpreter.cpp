// SPDX-License-Identifier: BSD-3-Clause
// The extension's entry point: the main interpreter alone gets the module. Types, caches and the
// exchanged methods of object belong to the process, and pybind11 waits for ever for the GIL of an
// interpreter that it does not know; so a subinterpreter is refused before any of that is reached.

#include <pybind11/pytypes.h>

#include <array>

#include "python/compat.h"

extern "C" PyObject *PyInit__C_in_main();  // pybind11's entry point, defined in init.cpp

namespace modtree {

namespace {

using CreateFunction = PyObject *(*)(PyObject * spec, PyModuleDef *def);
using ExecFunction = int (*)(PyObject *module);

CreateFunction create_in_main = nullptr;
ExecFunction execute_in_main = nullptr;

// 0 in the main interpreter; elsewhere -1 with ImportError.
int check_interpreter() {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) {
    return 0;
  }
  PyErr_SetString(PyExc_ImportError,
                  "modtree works in the main interpreter of a process only, and this is a "
                  "subinterpreter: import it in the main one, or start another process "
                  "(multiprocessing)");
  return -1;
}

PyObject *create_module(PyObject *spec, PyModuleDef *def) {
  return check_interpreter() < 0 ? nullptr : create_in_main(spec, def);
}

int execute_module(PyObject *module) {
  return check_interpreter() < 0 ? -1 : execute_in_main(module);
}

// Leaves the GIL off where the interpreter runs without it.
void declare_gil([[maybe_unused]] PyModuleDef_Slot *slot) {
#ifdef Py_mod_gil
  if constexpr (kRunsWithoutGil) {
    *slot = {Py_mod_gil, Py_MOD_GIL_NOT_USED};
  }
#endif
}

// From CPython 3.13 on, the entry point runs in the main interpreter for others as well, which call
// the functions of the module's slots then.
void guard_slots(PyModuleDef *def) {
  static std::array<PyModuleDef_Slot, 18> guarded{};
  if (def->m_slots == guarded.data()) {
    return;
  }
  std::size_t count = 0;
  for (const PyModuleDef_Slot *slot = def->m_slots; slot && slot->slot; ++slot) {
    if (count == guarded.size() - 2) {
      return;  // more than there are kinds
    }
    PyModuleDef_Slot &copy = guarded[count++] = *slot;
    if (slot->slot == Py_mod_create) {
      create_in_main = reinterpret_cast<CreateFunction>(slot->value);
      copy.value = reinterpret_cast<void *>(create_module);
    } else if (slot->slot == Py_mod_exec) {
      execute_in_main = reinterpret_cast<ExecFunction>(slot->value);
      copy.value = reinterpret_cast<void *>(execute_module);
    }
  }
  declare_gil(&guarded[count]);
  def->m_slots = guarded.data();
}

}  // namespace

}  // namespace modtree

extern "C" PYBIND11_EXPORT PyObject *PyInit__C() {
  if (modtree::check_interpreter() < 0) {
    return nullptr;
  }
  PyObject *made = PyInit__C_in_main();
  if (made && PyObject_TypeCheck(made, &PyModuleDef_Type)) {
    modtree::guard_slots(reinterpret_cast<PyModuleDef *>(made));
  }
  return made;
}
