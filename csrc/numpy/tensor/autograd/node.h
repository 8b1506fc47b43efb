// SPDX-License-Identifier: BSD-3-Clause
// A node of the graph that gradients go back through.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/op.h"

namespace modtree {

enum class NodeKind : unsigned char {
  op,           // a call of an operation: its derivative functions run on saved arrays
  accumulate,   // a leaf: adds to its grad
  python,       // a Python function: autograd.Function, taps of hooks
  copy_slices,  // an in-place operation on a view, seen from the view's base
  as_view,      // a view of a base that changed in place after the view was made
};

struct NodeObject;

// Where a gradient goes: the output `nr` of `node`; null for an input that needs none.
struct Edge {
  NodeObject *node;  // owned
  std::uint32_t nr;
  std::uint32_t arg;   // the positional argument it belongs to
  std::uint32_t item;  // its place in that argument, when it is a sequence
};

// Shape and dtype of what a node computed: what its gradient must have.
struct OutputSpec {
  static constexpr int kInline = 4;
  int num;
  int ndim;
  bool is_meta;
  npy_intp inline_dims[kInline];
  npy_intp *more_dims;  // owned, when there are more

  npy_intp *dims() { return ndim > kInline ? more_dims : inline_dims; }
};

// An array kept for the derivative, and the version at which it is valid.
struct SavedVersion {
  VersionCell *cell;  // holds a count
  std::uint32_t version;
  std::uint32_t arg;  // kResult for the result
};
constexpr std::uint32_t kResult = UINT32_MAX;

// The place of a view in its base: both as strided blocks of one memory.
struct ViewGeometry {
  int num;
  std::vector<npy_intp> base_dims, base_strides, dims, strides;
  npy_intp offset;  // of the view's first element from the base's, in bytes
};

// What was registered on a node or one of its outputs.
struct NodeHooks {
  struct OnOutput {
    std::uint32_t nr;
    PyObject *table;  // owned dict of hooks of a tensor
  };
  std::vector<OnOutput> tensor_tables;
  struct Retained {
    std::uint32_t nr;
    PyObject *tensor;  // owned weak reference
  };
  std::vector<Retained> retained;
  PyObject *pre = nullptr;   // dict: hook(grad_outputs)
  PyObject *post = nullptr;  // dict: hook(grad_inputs, grad_outputs)
};

struct NodeObject {
  PyObject_HEAD NodeKind kind;
  bool released;         // its saved values are gone
  bool saved_something;  // it had some
  bool keeps_result;     // the derivative wants the result
  bool has_many;         // the result was a tuple, even if of one
  std::uint32_t n_edges;
  std::uint32_t n_outputs;
  std::uint32_t n_args;  // saved arguments, positional ones first
  std::uint32_t n_positional;
  std::uint32_t n_versions;
  bool is_ended;            // the leaf of a function that has been derived: nobody asks for it
  bool packed_result;       // a hook of saved tensors has the result
  std::uint32_t stand_ins;  // bits of the arguments of which only shape and dtype were kept
  std::uint32_t packed;     // bits of the arguments that a hook of saved tensors has
  std::uint64_t sequence;
  void *block;  // memory of the four arrays below
  Edge *edges;
  OutputSpec *outputs;
  PyObject **args;  // owned; null for None
  SavedVersion *versions;
  OpObject *op;       // owned; kind op
  PyObject *kwnames;  // owned tuple, or null
  PyObject *result;   // owned: the result, or what the operation saved; or null
  PyObject *target;  // owned: the leaf of `accumulate`, the function of `python`, the inner node of
                     // `copy_slices`
  PyObject *name;    // owned str of `python`
  PyObject *dict;    // attributes and metadata, made on demand
  ViewGeometry *geometry;  // of `copy_slices` and `as_view`
  NodeHooks *hooks;        // or null
  PyObject *weakrefs;
  std::uint64_t task;  // the backward pass that works on it, 0: none
  std::uint32_t task_index;
  NodeObject *next_dead;  // while a chain is freed
};

extern PyTypeObject *node_type;

inline NodeObject *as_node(PyObject *obj) { return reinterpret_cast<NodeObject *>(obj); }
inline PyObject *as_object(NodeObject *node) { return reinterpret_cast<PyObject *>(node); }
inline bool is_node(PyObject *obj) { return PyObject_TypeCheck(obj, node_type); }

// The node as Python sees it: of a subclass of Node that has the node's name. Nodes that nobody
// looks at stay of the class itself. Steals, and gives back, the reference; null with an error set.
PyObject *named_node(NodeObject *node);

// A node with room for these counts; everything in it is empty. New reference.
NodeObject *new_node(NodeKind kind, std::size_t n_edges, std::size_t n_outputs,
                     std::size_t n_args = 0, std::size_t n_versions = 0);

// Leads the edge at `place` to where gradients of `tensor` go (to no node when it needs none). 0,
// or -1 with an error set.
int set_edge(NodeObject *node, std::size_t place, TensorObject *tensor, std::size_t arg,
             std::size_t item = 0);
int set_output(NodeObject *node, std::size_t nr, PyArrayObject *array, bool is_meta);

// A spec by value. `array` holds the dimensions of a leaf's array: user code may give the leaf
// another one.
struct HeldSpec {
  OutputSpec spec{};
  py::object array;
};

// Shape and dtype that a gradient for `nr` must have; those of the leaf for an accumulating node.
HeldSpec output_spec(NodeObject *node, std::uint32_t nr);

NodeHooks *ensure_hooks(NodeObject *node);

// Drops what the derivative would need.
void release_saved(NodeObject *node);

// "MulBackward0". New reference.
PyObject *node_name(NodeObject *node);

void make_node_type(py::handle m);

}  // namespace modtree
