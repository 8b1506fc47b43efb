// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <stdexcept>
#include <unordered_set>
#include <vector>

#include "bind/parts.h"
#include "python/checked.h"
#include "python/signals.h"
#include "tensor/autograd/anomaly.h"
#include "tensor/autograd/backward.h"
#include "tensor/autograd/engine.h"
#include "tensor/autograd/gradient.h"
#include "tensor/autograd/history.h"
#include "tensor/autograd/record.h"
#include "tensor/autograd/saved_values.h"

namespace modtree {

namespace {

py::object run_engine(const py::tuple &roots, const py::tuple &gradients, const py::object &inputs,
                      bool keep_graph, bool create_graph, bool accumulate, bool allow_unused) {
  py::object chosen;
  if (!inputs.is_none()) {
    chosen = owned(inputs_tuple(inputs.ptr()).release().ptr());
  }
  return owned(run_backward(roots.ptr(), gradients.ptr(), chosen.ptr(),
                            {keep_graph, create_graph, accumulate, allow_unused}));
}

py::object record(const py::str &name, const py::tuple &inputs, const py::tuple &outputs,
                  const py::object &function, const py::tuple &changed, bool saves) {
  NodeObject *node =
      record_python(name.ptr(), inputs.ptr(), outputs.ptr(), function.ptr(), changed.ptr());
  if (node == nullptr) {
    throw py::error_already_set();
  }
  node->saved_something = saves;
  return py::reinterpret_steal<py::object>(as_object(node));
}

py::object function_view(const py::object &tensor, bool one_of_many) {
  if (!is_tensor(tensor.ptr())) {
    throw py::type_error("function_view: expected a Tensor");
  }
  py::object view = owned(tensor_alias(as_tensor(tensor.ptr())));
  set_base(as_tensor(view.ptr()), as_tensor(tensor.ptr()),
           one_of_many ? ViewOrigin::one_of_many : ViewOrigin::of_function);
  return view;
}

py::object with_history(const py::object &tensor, const py::object &node, std::int64_t nr) {
  // An accumulating node takes one gradient, though it has no outputs.
  if (!is_tensor(tensor.ptr()) || !is_node(node.ptr()) || nr < 0 ||
      nr >= std::max<std::int64_t>(as_node(node.ptr())->n_outputs, 1)) {
    throw py::type_error(
        "with_history: expected a Tensor, a Node and the number of one of its outputs");
  }
  py::object alias = owned(tensor_alias(as_tensor(tensor.ptr())));
  set_history(as_tensor(alias.ptr()), as_node(node.ptr()), static_cast<std::uint32_t>(nr));
  return alias;
}

py::tuple edge_of(const py::object &tensor) {
  Edge edge{};
  if (!is_tensor(tensor.ptr())) {
    throw py::type_error("expected a Tensor");
  }
  if (gradient_edge(as_tensor(tensor.ptr()), &edge) < 0) {
    throw py::error_already_set();
  }
  if (edge.node == nullptr) {
    throw std::runtime_error(
        "the tensor needs no gradient, or is a view that was made under no_grad");
  }
  return tuple_of(owned(named_node(edge.node)), std::int64_t{edge.nr});
}

// True if a tensor depends on a leaf other than those whose accumulating nodes are `own`.
bool reaches_other_leaves(const py::tuple &tensors, const py::tuple &own) {
  std::unordered_set<NodeObject *> seen;
  std::vector<NodeObject *> stack;
  for (py::handle node : own) {
    if (!is_node(node.ptr())) {
      throw py::type_error("reaches_other_leaves: expected Nodes");
    }
    seen.insert(as_node(node.ptr()));
  }
  py::list held;
  for (py::handle tensor : tensors) {
    Edge edge{};
    if (!is_tensor(tensor.ptr())) {
      throw py::type_error("reaches_other_leaves: expected Tensors");
    }
    if (gradient_edge(as_tensor(tensor.ptr()), &edge) < 0) {
      throw py::error_already_set();
    }
    if (edge.node != nullptr) {
      held.append(py::reinterpret_steal<py::object>(as_object(edge.node)));
      stack.push_back(edge.node);
    }
  }
  SignalCheck signals;
  while (!stack.empty()) {
    if (signals.step() < 0) {
      throw py::error_already_set();
    }
    NodeObject *node = stack.back();
    stack.pop_back();
    if (!seen.insert(node).second) {
      continue;
    }
    if (node->kind == NodeKind::accumulate && !node->is_ended) {
      return true;
    }
    for (std::size_t i = 0; i < node->n_edges; ++i) {
      if (node->edges[i].node != nullptr) {
        stack.push_back(node->edges[i].node);
      }
    }
  }
  return false;
}

void end_leaves(const py::tuple &nodes) {
  for (py::handle node : nodes) {
    if (!is_node(node.ptr())) {
      throw py::type_error("end_leaves: expected Nodes");
    }
    as_node(node.ptr())->is_ended = true;
  }
}

void set_anomaly_mode(bool enabled, bool check_nan) { anomaly_mode = {enabled, check_nan}; }

py::tuple get_anomaly_mode() { return tuple_of(anomaly_mode.enabled, anomaly_mode.check_nan); }

void change_saved_hooks(int by) { saved_hooks_depth += by; }

bool node_runs(const py::object &node) {
  if (!is_node(node.ptr())) {
    throw py::type_error("expected a Node");
  }
  const int runs = current_backward_runs(as_node(node.ptr()));
  if (runs < 0) {
    throw py::error_already_set();
  }
  return runs == 1;
}

}  // namespace

void bind_autograd(Functions &m) {
  make_node_type(m.module());
  init_gradient();
  m.def<run_engine>(
      "run_backward(roots, gradients, inputs, keep_graph, create_graph, accumulate, allow_unused)",
      "Runs the graph backward from the roots: a tuple of gradients, or None.");
  m.def<record>("record_python(name, inputs, outputs, function, changed=(), saves=False)",
                "Puts a Python function on the graph: function(*gradients of the outputs) -> tuple "
                "of gradients, one per input.");
  m.def<function_view>(
      "function_view(tensor, one_of_many, /)",
      "A view of a tensor, of all of it, for a function that returns its input. What the function "
      "computes backward would be lost if the view were changed in place, so that is refused.");
  m.def<with_history>("with_history(tensor, node, nr, /)",
                      "Another handle of the tensor as output `nr` of a node.");
  m.def<reaches_other_leaves>(
      "reaches_other_leaves(tensors, own, /)",
      "True if a tensor depends on a leaf other than those whose accumulating nodes are `own`.");
  m.def<end_leaves>("end_leaves(nodes, /)", "No leaf is behind these accumulating nodes any more.");
  m.def<set_anomaly_mode>("set_anomaly_mode(enabled, check_nan, /)",
                          "Switches the search for the cause of errors and NaN.");
  m.def<get_anomaly_mode>("anomaly_mode()", "(enabled, check_nan)");
  m.def<change_saved_hooks>(
      "change_saved_hooks(by, /)",
      "One more, or one less, is entered: they count for all threads, which then look closer.");
  m.def<current_backward_id>("current_backward_id()", "The number of the backward that runs.");
  m.def<is_backward_running>("is_backward_running(number, /)",
                             "True until the backward of that number has ended.");
  m.def<node_runs>("current_backward_runs(node, /)",
                   "True if the backward that is running will call this node.");
  m.def<edge_of>("gradient_edge(tensor, /)",
                 "(node, output number) that the gradient of a tensor goes to.");
}

}  // namespace modtree
