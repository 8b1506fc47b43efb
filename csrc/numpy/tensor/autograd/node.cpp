// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/autograd/node.h"

#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "python/compat.h"
#include "python/installed.h"
#include "python/native_section.h"
#include "python/new_type.h"
#include "python/once.h"
#include "python/slot_guard.h"
#include "tensor/autograd/history.h"

namespace modtree {

PyTypeObject *node_type = nullptr;

namespace {

std::uint64_t g_sequence = 0;

// Chains of nodes are freed in a loop: nodes that die while another one is taken apart wait here.
thread_local NodeObject *t_dead = nullptr;
thread_local bool t_is_freeing = false;

void clear_hooks(NodeObject *node) {
  NodeHooks *hooks = node->hooks;
  node->hooks = nullptr;
  if (hooks == nullptr) {
    return;
  }
  for (auto &entry : hooks->tensor_tables) {
    Py_DECREF(entry.table);
  }
  for (auto &entry : hooks->retained) {
    Py_DECREF(entry.tensor);
  }
  Py_XDECREF(hooks->pre);
  Py_XDECREF(hooks->post);
  delete hooks;
}

// The leaf must not find a node that is on its way out.
void forget_accumulator(NodeObject *node) {
  if (node->kind == NodeKind::accumulate && node->target != nullptr) {
    LeafExtra *extra = as_tensor(node->target)->extra;
    if (extra != nullptr && extra->accumulator == node) {
      extra->accumulator = nullptr;
    }
  }
}

template <class Release>
void drop_saved(NodeObject *node, Release release) {
  node->released = true;
  node->saved_something = true;  // a backward that still reaches the node is refused
  const std::size_t n_versions = node->n_versions;
  node->n_versions = 0;
  for (std::size_t i = 0; i < n_versions; ++i) {
    release_cell(node->versions[i].cell);
  }
  const std::size_t n_args = node->n_args;
  node->n_args = 0;
  for (std::size_t i = 0; i < n_args; ++i) {
    PyObject *value = node->args[i];
    node->args[i] = nullptr;
    release(value);
  }
  release(std::exchange(node->result, nullptr));
  release(std::exchange(node->kwnames, nullptr));
}

void clear_node(NodeObject *node) {
  drop_saved(node, [](PyObject *value) { Py_XDECREF(value); });
  for (std::size_t i = 0; i < node->n_edges; ++i) {
    NodeObject *next = node->edges[i].node;
    node->edges[i].node = nullptr;
    Py_XDECREF(next);
  }
  forget_accumulator(node);
  Py_CLEAR(node->target);
  Py_CLEAR(node->dict);
  clear_hooks(node);
}

void free_node(NodeObject *node) {
  PyTypeObject *type = Py_TYPE(node);
  clear_node(node);
  for (std::size_t i = 0; i < node->n_outputs; ++i) {
    if (node->outputs[i].ndim > OutputSpec::kInline) {
      PyMem_Free(node->outputs[i].more_dims);
    }
  }
  Py_XDECREF(reinterpret_cast<PyObject *>(node->op));
  Py_XDECREF(node->name);
  delete node->geometry;
  PyMem_Free(node->block);
  PyObject_GC_Del(node);
  Py_DECREF(type);
}

void node_tp_dealloc(PyObject *self) {
  const NativeSection in_section;
  NodeObject *node = as_node(self);
  PyObject_GC_UnTrack(self);
  if (node->weakrefs != nullptr) {
    PyObject_ClearWeakRefs(self);
  }
  forget_accumulator(node);
  node->next_dead = t_dead;
  t_dead = node;
  if (t_is_freeing) {
    return;
  }
  t_is_freeing = true;
  while (t_dead != nullptr) {
    NodeObject *next = t_dead;
    t_dead = next->next_dead;
    free_node(next);
  }
  t_is_freeing = false;
}

int node_tp_traverse(PyObject *self, visitproc visit, void *arg) {
  NodeObject *node = as_node(self);
  Py_VISIT(Py_TYPE(self));
  for (std::size_t i = 0; i < node->n_edges; ++i) {
    Py_VISIT(as_object(node->edges[i].node));
  }
  for (std::size_t i = 0; i < node->n_args; ++i) {
    Py_VISIT(node->args[i]);
  }
  Py_VISIT(node->op);
  Py_VISIT(node->kwnames);
  Py_VISIT(node->result);
  Py_VISIT(node->target);
  Py_VISIT(node->name);
  Py_VISIT(node->dict);
  if (node->hooks != nullptr) {
    for (auto &entry : node->hooks->tensor_tables) {
      Py_VISIT(entry.table);
    }
    for (auto &entry : node->hooks->retained) {
      Py_VISIT(entry.tensor);
    }
    Py_VISIT(node->hooks->pre);
    Py_VISIT(node->hooks->post);
  }
  return 0;
}

int node_tp_clear(PyObject *self) {
  clear_node(as_node(self));
  return 0;
}

PyObject *node_repr(PyObject *self) {
  py::object name = py::reinterpret_steal<py::object>(node_name(as_node(self)));
  return name ? PyUnicode_FromFormat("<%U object at %p>", name.ptr(), self) : nullptr;
}

PyObject *node_method_name(PyObject *self, PyObject *) { return node_name(as_node(self)); }

PyObject *node_sequence_nr(PyObject *self, PyObject *) {
  return PyLong_FromUnsignedLongLong(as_node(self)->sequence);
}

PyObject *get_next_functions(PyObject *self, void *) {
  NodeObject *node = as_node(self);
  py::object result = py::reinterpret_steal<py::object>(PyTuple_New(node->n_edges));
  for (std::size_t i = 0; result && i < node->n_edges; ++i) {
    const Edge &edge = node->edges[i];
    const auto next = py::reinterpret_steal<py::object>(
        edge.node == nullptr ? Py_NewRef(Py_None)
                             : named_node(as_node(Py_NewRef(as_object(edge.node)))));
    PyObject *pair = next ? Py_BuildValue("(OI)", next.ptr(), edge.nr) : nullptr;
    if (pair == nullptr) {
      return nullptr;
    }
    PyTuple_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i), pair);
  }
  return result.release().ptr();
}

PyObject *get_variable(PyObject *self, void *) {
  NodeObject *node = as_node(self);
  if (node->kind != NodeKind::accumulate || node->target == nullptr) {
    PyErr_SetString(PyExc_AttributeError, "only an AccumulateGrad node has a variable");
    return nullptr;
  }
  Py_INCREF(node->target);
  return node->target;
}

// The table of hooks of one kind, made on demand. Borrowed.
PyObject *hook_table(PyObject *self, bool pre) {
  NodeHooks *hooks = ensure_hooks(as_node(self));
  if (hooks == nullptr) {
    return nullptr;
  }
  return fill_once(pre ? &hooks->pre : &hooks->post, PyODict_New);  // handles refer to it weakly
}

PyObject *get_pre_hooks(PyObject *self, void *) {
  PyObject *table = hook_table(self, true);
  Py_XINCREF(table);
  return table;
}

PyObject *get_post_hooks(PyObject *self, void *) {
  PyObject *table = hook_table(self, false);
  Py_XINCREF(table);
  return table;
}

// Puts a handle of modtree.core.handles on a table of this node.
PyObject *register_on(PyObject *table, PyObject *hook) {
  if (table == nullptr) {
    return nullptr;
  }
  py::object handle = call_installed(installed.RemovableHandle, table);
  const py::object id = handle ? get_attribute(handle, "id") : py::object();
  // Not PyDict_SetItem: an OrderedDict would not know the key when it is removed.
  return id && PyObject_SetItem(table, id.ptr(), hook) == 0 ? handle.release().ptr() : nullptr;
}

PyObject *node_register_hook(PyObject *self, PyObject *hook) {
  return register_on(hook_table(self, false), hook);
}

PyObject *node_register_prehook(PyObject *self, PyObject *hook) {
  return register_on(hook_table(self, true), hook);
}

PyObject *get_metadata(PyObject *self, void *) {
  return Py_XNewRef(fill_once(&as_node(self)->dict, PyDict_New));
}

// _saved_result, _saved_args: what the derivative will be called with.
PyObject *get_saved_result(PyObject *self, void *) {
  PyObject *result = as_node(self)->result;
  Py_INCREF(result == nullptr ? Py_None : result);
  return result == nullptr ? Py_None : result;
}

PyMethodDef kMethods[] = {
    {"name", entry<node_method_name>, METH_NOARGS,
     "name($self)\n--\n\nWhat it computes, \"MulBackward0\"."},
    {"_sequence_nr", entry<node_sequence_nr>, METH_NOARGS, nullptr},
    {"register_hook", entry<node_register_hook>, METH_O,
     "register_hook($self, hook)\n--\n\nhook(grad_inputs, grad_outputs) runs after the node; what "
     "it returns replaces "
     "grad_inputs."},
    {"register_prehook", entry<node_register_prehook>, METH_O,
     "register_prehook($self, hook)\n--\n\nhook(grad_outputs) runs before the node; what it "
     "returns replaces them."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef kMembers[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(NodeObject, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef kGetSet[] = {
    {"next_functions", entry<get_next_functions>, nullptr,
     "Where the gradients of its inputs go: pairs of a node (or None) and the number of its "
     "output.",
     nullptr},
    {"variable", entry<get_variable>, nullptr, "The leaf of an AccumulateGrad node.", nullptr},
    {"metadata", entry<get_metadata>, nullptr, "A dict for the user.", nullptr},
    {"_pre_hooks", entry<get_pre_hooks>, nullptr, nullptr, nullptr},
    {"_post_hooks", entry<get_post_hooks>, nullptr, nullptr, nullptr},
    {"_saved_result", entry<get_saved_result>, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot kSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void *>(node_tp_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void *>(node_tp_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(unfailing_entry<node_tp_clear>)},
    {Py_tp_repr, reinterpret_cast<void *>(entry<node_repr>)},
    {Py_tp_methods, kMethods},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kGetSet},
    {Py_tp_doc, const_cast<char *>("A node of the graph that gradients go back through.")},
    {0, nullptr},
};

PyType_Spec kSpec = {"modtree._C.Node", sizeof(NodeObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
                         Py_TPFLAGS_DISALLOW_INSTANTIATION,
                     kSlots};

template <typename T>
T *take(char *&memory, std::size_t count) {
  T *result = reinterpret_cast<T *>(memory);
  memory += count * sizeof(T);  // NOLINT(bugprone-sizeof-expression): T may be a pointer
  return result;
}

}  // namespace

NodeObject *new_node(NodeKind kind, std::size_t n_edges, std::size_t n_outputs, std::size_t n_args,
                     std::size_t n_versions) {
  constexpr std::size_t kLimit = UINT32_MAX - 1;
  if (std::max(n_edges, n_versions) > kLimit || n_outputs > kLimit) {
    PyErr_Format(PyExc_RuntimeError,
                 "an operation with %zu tensors going in and %zu coming out is too wide to record "
                 "(the limit is %zu): "
                 "do it in several steps",
                 std::max(n_edges, n_versions), n_outputs, kLimit);
    return nullptr;
  }
  static_assert(alignof(Edge) <= 8 && alignof(OutputSpec) <= 8 && alignof(SavedVersion) <= 8, "");
  const std::size_t bytes = n_edges * sizeof(Edge) + n_outputs * sizeof(OutputSpec) +
                            n_args * sizeof(PyObject *) + n_versions * sizeof(SavedVersion);
  void *block = PyMem_Calloc(1, bytes);
  if (block == nullptr) {
    PyErr_NoMemory();
    return nullptr;
  }
  NodeObject *node = PyObject_GC_New(NodeObject, node_type);
  if (node == nullptr) {
    PyMem_Free(block);
    return nullptr;
  }
  constexpr std::size_t kHead = offsetof(NodeObject, kind);
  std::memset(reinterpret_cast<char *>(node) + kHead, 0, sizeof(NodeObject) - kHead);
  node->kind = kind;
  node->n_edges = static_cast<std::uint32_t>(n_edges);
  node->n_outputs = static_cast<std::uint32_t>(n_outputs);
  node->n_args = static_cast<std::uint32_t>(n_args);
  node->sequence = g_sequence++;
  node->block = block;
  char *memory = static_cast<char *>(block);
  node->edges = take<Edge>(memory, n_edges);
  node->outputs = take<OutputSpec>(memory, n_outputs);
  node->args = take<PyObject *>(memory, n_args);
  node->versions = take<SavedVersion>(memory, n_versions);
  PyObject_GC_Track(node);
  return node;
}

int set_edge(NodeObject *node, std::size_t place, TensorObject *tensor, std::size_t arg,
             std::size_t item) {
  Edge &edge = node->edges[place];
  edge.arg = static_cast<std::uint32_t>(arg);
  edge.item = static_cast<std::uint32_t>(item);
  if (!needs_grad(tensor)) {
    return 0;
  }
  if (gradient_edge(tensor, &edge) < 0) {
    return -1;
  }
  // The node of a view may have been made only now; a node is younger than those its edges lead to.
  if (edge.node != nullptr && edge.node->sequence > node->sequence) {
    node->sequence = g_sequence++;
  }
  return 0;
}

int set_output(NodeObject *node, std::size_t nr, PyArrayObject *array, bool is_meta) {
  OutputSpec &spec = node->outputs[nr];
  spec.num = PyArray_TYPE(array);
  spec.is_meta = is_meta;
  const int ndim = PyArray_NDIM(array);
  if (ndim > OutputSpec::kInline) {
    spec.more_dims =
        static_cast<npy_intp *>(PyMem_Malloc(sizeof(npy_intp) * static_cast<std::size_t>(ndim)));
    if (spec.more_dims == nullptr) {
      PyErr_NoMemory();
      return -1;
    }
  }
  spec.ndim = ndim;
  std::copy(PyArray_DIMS(array), PyArray_DIMS(array) + ndim, spec.dims());
  return 0;
}

NodeHooks *ensure_hooks(NodeObject *node) {
  if (node->hooks == nullptr) {
    node->hooks = new (std::nothrow) NodeHooks();
    if (node->hooks == nullptr) {
      PyErr_NoMemory();
    }
  }
  return node->hooks;
}

void release_saved(NodeObject *node) {
  if (node->kind == NodeKind::copy_slices && node->target != nullptr) {
    release_saved(as_node(node->target));
  }
  // A node that kept numbers and shapes only can be gone through again.
  if (node->saved_something) {
    drop_saved(node, release_later);
    if (node->kind == NodeKind::python) {
      release_later(std::exchange(node->target, nullptr));
    }
  }
}

PyObject *node_name(NodeObject *node) {
  switch (node->kind) {
    case NodeKind::op:
      Py_INCREF(node->op->backward_name);
      return node->op->backward_name;
    case NodeKind::python:
      Py_INCREF(node->name);
      return node->name;
    case NodeKind::accumulate:
      return PyUnicode_FromString("AccumulateGrad");
    case NodeKind::copy_slices:
      return PyUnicode_FromString("CopySlices");
    case NodeKind::as_view:
      return PyUnicode_FromString("AsStridedBackward0");
  }
  return PyUnicode_FromString("Node");
}

namespace {

// A class for each name, kept for ever unless programs make up names without end.
PyObject *g_named_types = nullptr;
constexpr Py_ssize_t kMaxNamedTypes = 4096;

py::object make_named_type(PyObject *name) {
  const char *text = PyUnicode_AsUTF8(name);
  if (text == nullptr) {
    return py::object();
  }
  // Kept for ever: before 3.11 a type does not copy its name. Node classes of torch are builtins.
  const std::string_view home = "builtins.";
  const std::size_t length = std::strlen(text);
  auto *full_name = static_cast<char *>(PyMem_Malloc(home.size() + length + 1));
  if (full_name == nullptr) {
    PyErr_NoMemory();
    return py::object();
  }
  std::memcpy(full_name, home.data(), home.size());
  std::memcpy(full_name + home.size(), text, length + 1);
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void *>(node_tp_dealloc)},
      {Py_tp_traverse, reinterpret_cast<void *>(node_tp_traverse)},
      {Py_tp_clear, reinterpret_cast<void *>(unfailing_entry<node_tp_clear>)},
      {0, nullptr},
  };
  PyType_Spec spec = {full_name, sizeof(NodeObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  const auto bases =
      py::reinterpret_steal<py::object>(PyTuple_Pack(1, reinterpret_cast<PyObject *>(node_type)));
  return py::reinterpret_steal<py::object>(bases ? PyType_FromSpecWithBases(&spec, bases.ptr())
                                                 : nullptr);
}

py::object named_type(PyObject *name) {
  if (g_named_types == nullptr && (g_named_types = PyDict_New()) == nullptr) {
    return py::object();
  }
  PyObject *known = dict_get(g_named_types, name);
  if (known != nullptr || PyErr_Occurred()) {
    return py::reinterpret_borrow<py::object>(known);
  }
  py::object made = make_named_type(name);
  if (made && PyDict_GET_SIZE(g_named_types) >= kMaxNamedTypes) {
    PyDict_Clear(g_named_types);
  }
  return made && PyDict_SetItem(g_named_types, name, made.ptr()) == 0 ? made : py::object();
}

}  // namespace

PyObject *named_node(NodeObject *node) {
  auto held = py::reinterpret_steal<py::object>(as_object(node));
  if (Py_TYPE(held.ptr()) != node_type) {
    return held.release().ptr();
  }
  const auto name = py::reinterpret_steal<py::object>(node_name(node));
  py::object type = name ? named_type(name.ptr()) : py::object();
  if (!type) {
    return nullptr;
  }
  if (Py_TYPE(held.ptr()) == node_type) {  // making the type may have led here again
    Py_SET_TYPE(held.ptr(), reinterpret_cast<PyTypeObject *>(type.release().ptr()));
    Py_DECREF(node_type);
  }
  return held.release().ptr();
}

void make_node_type(py::handle m) { node_type = new_type(m, "Node", &kSpec); }

}  // namespace modtree
