// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/autograd/engine.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "python/context_variable.h"
#include "python/signals.h"
#include "tensor/autograd/anomaly.h"
#include "tensor/autograd/backward_hooks.h"
#include "tensor/autograd/gradient.h"
#include "tensor/autograd/history.h"
#include "tensor/float_errors.h"
#include "tensor/grad_mode.h"
#include "tensor/op_errors.h"

namespace modtree {

namespace {

std::uint64_t g_last_backward = 0;
std::unordered_set<std::uint64_t> g_running;  // the numbers of passes

// A node may take long.
constexpr long kNodesBetweenSignals = 64;

// What a backward knows of one node.
struct Work {
  NodeObject *node;  // alive as long as the roots are
  std::uint32_t dependencies = 0;
  bool needed = true;
  bool queued = false;                      // ready, or done
  bool owns_single = false;                 // nobody else sees the array in `single`
  PyObject *single = nullptr;               // the gradient of output 0
  std::vector<PyObject *> *more = nullptr;  // of all outputs, when there are several
  std::int32_t first_capture = -1;
};

struct Capture {
  NodeObject *node;
  std::uint32_t nr;
  TensorObject *tensor;
  PyObject *gradient = nullptr;  // owned
  std::int32_t next = -1;        // the next one of the same node
};

class GradModeScope {
public:
  explicit GradModeScope(bool flag) : saved_(set_grad_enabled(flag)) {}
  ~GradModeScope() { set_grad_enabled(saved_); }
  GradModeScope(const GradModeScope &) = delete;
  GradModeScope &operator=(const GradModeScope &) = delete;

private:
  bool saved_;
};

class Backward {
public:
  explicit Backward(const BackwardOptions &options) : options_(options), id_(++g_last_backward) {
    g_running.insert(id_);
  }
  Backward(const Backward &) = delete;
  Backward &operator=(const Backward &) = delete;
  ~Backward() {
    g_running.erase(id_);
    for (Work &work : works_) {
      if (work.node->task == id_) {
        work.node->task = 0;
      }
      Py_XDECREF(work.single);
      if (work.more != nullptr) {
        for (PyObject *gradient : *work.more) {
          Py_XDECREF(gradient);
        }
        delete work.more;
      }
    }
    for (Capture &capture : captures_) {
      Py_XDECREF(reinterpret_cast<PyObject *>(capture.node));
      Py_XDECREF(capture.gradient);
    }
    for (Edge &root : roots_) {
      Py_DECREF(as_object(root.node));
    }
  }

  int add_root(TensorObject *tensor) {
    Edge edge{};
    if (gradient_edge(tensor, &edge) < 0) {
      return -1;
    }
    if (edge.node == nullptr) {
      PyErr_SetString(PyExc_RuntimeError, "a view that was made under no_grad has no history of "
                                          "its own: it cannot be derived by backward()");
      return -1;
    }
    roots_.push_back(edge);
    return discover(edge.node);
  }

  int add_capture(TensorObject *tensor) {
    Edge edge{};
    if (gradient_edge(tensor, &edge) < 0) {
      return -1;
    }
    captures_.push_back({edge.node, edge.nr, tensor});
    return 0;
  }

  int run(PyObject *gradients) {
    if (find_needed() < 0) {
      return -1;
    }
    for (std::size_t i = 0; i < roots_.size(); ++i) {
      Work &work = works_[find(roots_[i].node)];
      PyObject *gradient = PyTuple_GET_ITEM(gradients, static_cast<Py_ssize_t>(i));
      if (add_to(work, roots_[i].nr, Py_NewRef(gradient)) < 0) {
        return -1;
      }
    }
    for (const Edge &root : roots_) {
      const std::uint32_t index = find(root.node);
      if (works_[index].dependencies == 0 && !works_[index].queued) {
        push(index);
      }
    }
    SignalCheck signals(kNodesBetweenSignals);
    while (!ready_.empty()) {
      if (signals.step() < 0) {
        return -1;
      }
      std::pop_heap(ready_.begin(), ready_.end(), is_older);
      const std::uint32_t index = ready_.back().second;
      ready_.pop_back();
      if (process(works_[index]) < 0) {
        return -1;
      }
    }
    return 0;
  }

  std::uint64_t id() const { return id_; }

  // True if the node will run or has run.
  bool runs(NodeObject *node) const {
    if (!is_known(node)) {
      return false;
    }
    const Work &work = works_[find(node)];
    return work.needed || work.first_capture >= 0;
  }

  // The gradients of the inputs as tensors.
  PyObject *captured() {
    py::object result =
        py::reinterpret_steal<py::object>(PyTuple_New(static_cast<Py_ssize_t>(captures_.size())));
    for (std::size_t i = 0; result && i < captures_.size(); ++i) {
      Capture &capture = captures_[i];
      if (capture.gradient == nullptr && !options_.allow_unused) {
        PyErr_Format(PyExc_RuntimeError,
                     "The differentiated Tensor at index %zu appears to not have been used in the "
                     "graph. Set "
                     "allow_unused=True if this is the desired behavior.",
                     i);
        return nullptr;
      }
      PyObject *tensor = gradient_to_tensor(capture.gradient, capture.tensor->is_meta);
      if (tensor == nullptr) {
        return nullptr;
      }
      PyTuple_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i), tensor);
    }
    return result.release().ptr();
  }

private:
  // -- the part of the graph that matters

  int discover(NodeObject *root) {
    SignalCheck signals;
    std::vector<NodeObject *> stack;
    if (claim(root)) {
      stack.push_back(root);
    }
    while (!stack.empty()) {
      if (signals.step() < 0) {
        return -1;
      }
      NodeObject *node = stack.back();
      stack.pop_back();
      for (std::size_t i = 0; i < node->n_edges; ++i) {
        NodeObject *next = node->edges[i].node;
        if (next == nullptr) {
          continue;
        }
        if (claim(next)) {
          stack.push_back(next);
        }
        ++works_[find(next)].dependencies;
      }
    }
    return 0;
  }

  // Makes the node ours; false when it was. One that another backward works on goes into a map.
  bool claim(NodeObject *node) {
    const auto index = static_cast<std::uint32_t>(works_.size());
    if (node->task == 0 && (shared_.empty() || shared_.count(node) == 0)) {
      node->task = id_;
      node->task_index = index;
    } else if (node->task == id_ || !shared_.emplace(node, index).second) {
      return false;
    }
    works_.push_back(Work{node});
    return true;
  }

  std::uint32_t find(NodeObject *node) const {
    return node->task == id_ ? node->task_index : shared_.at(node);
  }

  bool is_known(NodeObject *node) const { return node->task == id_ || shared_.count(node) != 0; }

  // With inputs given, only what is between them and the roots is needed.
  int find_needed() {
    if (captures_.empty()) {
      return 0;
    }
    std::vector<std::uint32_t> order(works_.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      order[i] = i;
      works_[i].needed = false;
    }
    // A node is younger than those its edges lead to.
    std::sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) {
      return works_[a].node->sequence < works_[b].node->sequence;
    });
    std::vector<bool> leads_there(works_.size(), false);
    for (std::size_t i = 0; i < captures_.size(); ++i) {
      Capture &capture = captures_[i];
      if (capture.node != nullptr && is_known(capture.node)) {
        const std::uint32_t index = find(capture.node);
        capture.next = works_[index].first_capture;
        works_[index].first_capture = static_cast<std::int32_t>(i);
        leads_there[index] = true;
        works_[index].needed |= options_.accumulate;
      }
    }
    SignalCheck signals;
    for (std::uint32_t index : order) {
      if (signals.step() < 0) {
        return -1;
      }
      NodeObject *node = works_[index].node;
      for (std::size_t i = 0; i < node->n_edges; ++i) {
        NodeObject *next = node->edges[i].node;
        if (next != nullptr && leads_there[find(next)]) {
          works_[index].needed = leads_there[index] = true;
        }
      }
    }
    leads_to_capture_ = std::move(leads_there);
    return 0;
  }

  bool is_wanted(std::uint32_t index) const {
    return leads_to_capture_.empty() || leads_to_capture_[index];
  }

  // -- the order

  // Leaves are equally old: the heap keeps their order, in which torch, too, accumulates them and
  // runs their hooks.
  static bool is_older(const std::pair<std::uint64_t, std::uint32_t> &a,
                       const std::pair<std::uint64_t, std::uint32_t> &b) {
    return a.first < b.first;
  }

  // Youngest first; leaves as soon as their gradient is complete.
  void push(std::uint32_t index) {
    NodeObject *node = works_[index].node;
    works_[index].queued = true;
    ready_.emplace_back(node->kind == NodeKind::accumulate ? ~std::uint64_t{0} : node->sequence,
                        index);
    std::push_heap(ready_.begin(), ready_.end(), is_older);
  }

  // -- gradients on their way

  // Adds to the gradient of an output. Steals.
  int add_to(Work &work, std::uint32_t nr, PyObject *gradient) {
    PyObject **slot = &work.single;
    if (work.node->n_outputs > 1) {
      if (work.more == nullptr) {
        work.more = new std::vector<PyObject *>(work.node->n_outputs, nullptr);
      }
      slot = &(*work.more)[nr];
    }
    if (*slot == nullptr) {
      *slot = gradient;
      return 0;
    }
    PyObject *old = *slot;
    *slot = nullptr;
    *slot = add_gradients(old, slot == &work.single && work.owns_single, gradient,
                          options_.create_graph);
    Py_DECREF(gradient);
    if (slot == &work.single) {
      work.owns_single = true;
    }
    return *slot == nullptr ? -1 : 0;
  }

  void take(Work &work, Gradients &outputs) {
    if (work.more == nullptr) {
      outputs[0] = work.single;
      work.single = nullptr;
      return;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      outputs[i] = (*work.more)[i];
      (*work.more)[i] = nullptr;
    }
  }

  int process(Work &work) {
    NodeObject *node = work.node;
    Gradients outputs(std::max<std::size_t>(node->n_outputs, 1));
    take(work, outputs);
    // Hooks do not run on a node that leads to nothing that was asked for.
    if ((work.needed || work.first_capture >= 0) &&
        run_tensor_hooks(node, outputs, options_.create_graph) < 0) {
      return -1;
    }
    for (std::int32_t i = work.first_capture; i >= 0;
         i = captures_[static_cast<std::size_t>(i)].next) {
      Capture &capture = captures_[static_cast<std::size_t>(i)];
      capture.gradient = Py_XNewRef(outputs[capture.nr]);
    }
    if (!work.needed) {
      return skip(node);
    }
    if (run_pre_hooks(node, outputs, options_.create_graph) < 0) {
      return -1;
    }
    if (node->kind == NodeKind::accumulate) {
      return finish_leaf(node, outputs);
    }
    Gradients results(node->n_edges);
    std::vector<bool> wanted(node->n_edges);
    for (std::size_t i = 0; i < node->n_edges; ++i) {
      NodeObject *next = node->edges[i].node;
      wanted[i] = next != nullptr && is_wanted(find(next));
    }
    const auto apply = anomaly_mode.enabled ? apply_inspected : apply_node;
    if (apply(node, outputs, wanted, results, options_.create_graph) < 0 ||
        run_post_hooks(node, results, outputs, options_.create_graph) < 0) {
      return -1;
    }
    if (!options_.keep_graph) {
      release_saved(node);
    }
    for (std::size_t i = 0; i < node->n_edges; ++i) {
      if (node->edges[i].node != nullptr &&
          deliver(node->edges[i], wanted[i] ? results.take(i) : nullptr) < 0) {
        return -1;
      }
    }
    return 0;
  }

  int skip(NodeObject *node) {
    for (std::size_t i = 0; i < node->n_edges; ++i) {
      if (node->edges[i].node != nullptr && deliver(node->edges[i], nullptr) < 0) {
        return -1;
      }
    }
    return 0;
  }

  int deliver(const Edge &edge, PyObject *gradient) {
    const std::uint32_t index = find(edge.node);
    Work &work = works_[index];
    if (gradient != nullptr && add_to(work, edge.nr, gradient) < 0) {
      return -1;
    }
    if (--work.dependencies == 0) {
      push(index);
    }
    return 0;
  }

  int finish_leaf(NodeObject *node, Gradients &outputs) {
    const bool has_hooks = has_post_hooks(node);
    py::object seen = py::reinterpret_borrow<py::object>(has_hooks ? outputs[0] : nullptr);
    PyObject *gradient = outputs.take(0);
    auto leaf = py::reinterpret_borrow<py::object>(node->target);
    if (!needs_grad(as_tensor(leaf.ptr()))) {  // no longer
      Py_XDECREF(gradient);
      return 0;
    }
    if (gradient != nullptr) {
      const GradientLock lock(as_tensor(leaf.ptr()));
      if (accumulate_grad(as_tensor(leaf.ptr()), gradient, options_.create_graph) < 0) {
        return -1;
      }
    }
    if (run_post_accumulate_hooks(as_tensor(leaf.ptr())) < 0) {
      return -1;
    }
    if (has_hooks) {
      Gradients none(0);
      Gradients again(1);
      again[0] = seen.release().ptr();
      if (run_post_hooks(node, none, again, options_.create_graph) < 0) {
        return -1;
      }
    }
    return 0;
  }

  const BackwardOptions options_;
  const std::uint64_t id_;
  std::vector<Work> works_;
  std::unordered_map<NodeObject *, std::uint32_t> shared_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> ready_;
  std::vector<bool> leads_to_capture_;
  std::vector<Edge> roots_;
  std::vector<Capture> captures_;
};

int need_tensors(const char *what, PyObject *tuple) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject *item = PyTuple_GET_ITEM(tuple, i);
    if (!is_tensor(item)) {
      const py::object type = type_text(Py_TYPE(item));
      const py::object advice = type ? advice_on(item) : py::object();
      if (advice) {
        PyErr_Format(PyExc_TypeError, "expected modtree.Tensors as %s, but element %zd is %U%U",
                     what, i, type.ptr(), advice.ptr());
      }
      return -1;
    }
  }
  return 0;
}

}  // namespace

std::int64_t current_backward_id() {
  const Backward *current = AtWork<Backward>::current();
  return current == nullptr ? -1 : static_cast<std::int64_t>(current->id());
}

bool is_backward_running(std::int64_t number) {
  return number >= 0 && g_running.count(static_cast<std::uint64_t>(number)) != 0;
}

int current_backward_runs(NodeObject *node) {
  const Backward *current = AtWork<Backward>::current();
  if (current == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "no backward pass is running in this context");
    return -1;
  }
  return current->runs(node) ? 1 : 0;
}

PyObject *run_backward(PyObject *roots, PyObject *gradients, PyObject *inputs,
                       const BackwardOptions &options) {
  const Py_ssize_t n_roots = PyTuple_GET_SIZE(roots);
  if (need_tensors("outputs", roots) < 0 ||
      (inputs != nullptr && need_tensors("inputs", inputs) < 0)) {
    return nullptr;
  }
  if (PyTuple_GET_SIZE(gradients) != n_roots) {
    PyErr_Format(PyExc_RuntimeError, "got %zd tensors and %zd gradients", n_roots,
                 PyTuple_GET_SIZE(gradients));
    return nullptr;
  }
  py::object firsts = py::reinterpret_steal<py::object>(PyTuple_New(n_roots));
  if (!firsts) {
    return nullptr;
  }
  const auto backward = std::make_unique<Backward>(options);
  const AtWork<Backward> at_work(backward.get());
  if (!at_work.entered()) {
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < n_roots; ++i) {
    TensorObject *root = as_tensor(PyTuple_GET_ITEM(roots, i));
    if (!needs_grad(root)) {
      PyErr_Format(PyExc_RuntimeError,
                   "element %zd of tensors does not require grad and does not have a grad_fn", i);
      return nullptr;
    }
    PyObject *first = first_gradient(i, root, PyTuple_GET_ITEM(gradients, i), options.create_graph);
    if (first == nullptr || backward->add_root(root) < 0) {
      Py_XDECREF(first);
      return nullptr;
    }
    PyTuple_SET_ITEM(firsts.ptr(), i, first);
  }
  for (Py_ssize_t i = 0; inputs != nullptr && i < PyTuple_GET_SIZE(inputs); ++i) {
    TensorObject *input = as_tensor(PyTuple_GET_ITEM(inputs, i));
    if (!needs_grad(input)) {
      PyErr_SetString(PyExc_RuntimeError,
                      "One of the differentiated Tensors does not require grad");
      return nullptr;
    }
    if (backward->add_capture(input) < 0) {
      return nullptr;
    }
    // backward(inputs=...) makes those that are not leaves keep their gradient, from now on.
    if (options.accumulate && !input->retains_grad && retain_grad(input) < 0) {
      return nullptr;
    }
  }
  GradModeScope mode(options.create_graph);
  SilenceFloatErrors silence(SilenceFloatErrors::Work::python);
  if (backward->run(firsts.ptr()) < 0) {
    return nullptr;
  }
  if (!options.accumulate) {
    return backward->captured();
  }
  Py_RETURN_NONE;
}

}  // namespace modtree
