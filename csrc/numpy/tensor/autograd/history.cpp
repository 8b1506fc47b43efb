// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/autograd/history.h"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

#include "python/compat.h"
#include "python/once.h"
#include "tensor/grad_mode.h"

namespace modtree {

namespace {

LeafExtra *ensure_extra(TensorObject *tensor) {
  if (tensor->extra == nullptr) {
    tensor->extra = new (std::nothrow) LeafExtra();
    if (tensor->extra == nullptr) {
      PyErr_NoMemory();
    }
  }
  return tensor->extra;
}

std::uint32_t version_of(TensorObject *tensor) {
  return tensor->cell == nullptr ? 0 : tensor->cell->version;
}

// A view, its base and their arrays at one moment. Making a node may run code that exchanges what a
// tensor holds (swap_contents, `data`): the base is owned, and the others are looked at again.
struct SeenView {
  explicit SeenView(TensorObject *seen)
      : view(seen),
        held(py::reinterpret_borrow<py::object>(seen->base)),
        array(seen->array),
        base_array(base()->array) {}

  TensorObject *base() const { return as_tensor(held.ptr()); }

  // The addresses of arrays are only compared: their contents are read afterwards.
  bool is_still_so() const {
    return view->base == held.ptr() && view->array == array && base()->array == base_array;
  }

  TensorObject *const view;
  const py::object held;
  PyArrayObject *const array;
  PyArrayObject *const base_array;
};

// The place of `view` in its base; null with an error set.
ViewGeometry *geometry_of(TensorObject *view) {
  PyArrayObject *array = view->array;
  PyArrayObject *base = as_tensor(view->base)->array;
  auto *geometry = new (std::nothrow) ViewGeometry();
  if (geometry == nullptr) {
    PyErr_NoMemory();
    return nullptr;
  }
  geometry->num = PyArray_TYPE(base);
  geometry->base_dims.assign(PyArray_DIMS(base), PyArray_DIMS(base) + PyArray_NDIM(base));
  geometry->base_strides.assign(PyArray_STRIDES(base), PyArray_STRIDES(base) + PyArray_NDIM(base));
  geometry->dims.assign(PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
  geometry->strides.assign(PyArray_STRIDES(array), PyArray_STRIDES(array) + PyArray_NDIM(array));
  geometry->offset = PyArray_BYTES(array) - PyArray_BYTES(base);
  return geometry;
}

bool shares_memory_with_base(TensorObject *view) {
  const auto base = py::reinterpret_borrow<py::object>(view->base);
  return view->is_meta || storage_owner(view->array) == storage_owner(as_tensor(base.ptr())->array);
}

// Gives a view whose base has changed a history through the base, unless it was exchanged in the
// meantime: then nothing changes. 0, or -1 with an error set.
int renew_view(TensorObject *view) {
  const SeenView seen(view);
  NodeObject *node = new_node(NodeKind::as_view, 1, 1);
  if (node == nullptr) {
    return -1;
  }
  int status = set_edge(node, 0, seen.base(), 0);
  if (status == 0 && seen.is_still_so()) {
    node->geometry = geometry_of(view);
    status =
        node->geometry == nullptr || set_output(node, 0, view->array, view->is_meta) < 0 ? -1 : 0;
    if (status == 0) {
      view->view_version = version_of(view);
      set_history(view, node, 0);
    }
  }
  Py_DECREF(as_object(node));
  return status;
}

// A retained gradient belongs to the tensor: it moves to the node the tensor comes from now.
int move_retained(TensorObject *tensor, NodeObject *old_node) {
  PyObject *self = reinterpret_cast<PyObject *>(tensor);
  if (old_node != nullptr && old_node->hooks != nullptr) {
    auto &retained = old_node->hooks->retained;
    for (std::size_t i = 0; i < retained.size(); ++i) {
      if (is_referent(retained[i].tensor, self)) {
        Py_DECREF(retained[i].tensor);
        retained.erase(retained.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
    }
  }
  return retain_grad(tensor);
}

void replace_history(TensorObject *tensor, NodeObject *node, std::uint32_t nr) {
  Py_INCREF(as_object(node));
  PyObject *old = std::exchange(tensor->grad_fn, as_object(node));
  tensor->output_nr = nr;
  tensor->requires_grad = true;
  release_later(old);
}

// The in-place operation `inner` on a view, as an operation on the base.
NodeObject *make_copy_slices(TensorObject *view, NodeObject *inner) {
  const SeenView seen(view);
  std::size_t n_others = 0;
  for (std::size_t i = 0; i < inner->n_edges; ++i) {
    n_others += inner->edges[i].arg != 0;
  }
  NodeObject *node = new_node(NodeKind::copy_slices, 1 + n_others, 1);
  if (node == nullptr) {
    return nullptr;
  }
  Py_INCREF(as_object(inner));
  node->target = as_object(inner);
  int status = set_edge(node, 0, seen.base(), 0);
  if (status == 0 && !seen.is_still_so()) {
    PyErr_SetString(PyExc_RuntimeError, "a view that is being changed in place was exchanged for "
                                        "another tensor in the meantime, by a finalizer or a "
                                        "callback: the change cannot be recorded");
    status = -1;
  }
  if (status == 0) {
    node->geometry = geometry_of(view);
  }
  if (node->geometry == nullptr ||
      set_output(node, 0, seen.base()->array, seen.base()->is_meta) < 0) {
    Py_DECREF(as_object(node));
    return nullptr;
  }
  std::size_t place = 1;
  for (std::size_t i = 0; i < inner->n_edges; ++i) {
    const Edge &edge = inner->edges[i];
    if (edge.arg != 0) {
      Py_XINCREF(as_object(edge.node));
      node->edges[place++] = edge;
    }
  }
  return node;
}

}  // namespace

void raise_refused_inplace(TensorObject *view, const char *event) {
  py::object name = view->grad_fn == nullptr
                        ? py::str("a function")
                        : py::reinterpret_steal<py::object>(node_name(as_node(view->grad_fn)));
  if (!name) {
    return;
  }
  PyErr_Format(PyExc_RuntimeError, "Output %u of %U is a view and %s. %s",
               static_cast<unsigned>(view->output_nr), name.ptr(), event,
               view->view_origin == ViewOrigin::one_of_many
                   ? "This view is the output of a function that returns multiple views. Such "
                     "functions do not allow the "
                     "output views to be modified inplace. You should replace the inplace "
                     "operation by an out-of-place one"
                   : "This view was created inside a custom Function (or because an input was "
                     "returned as-is), whose own "
                     "derivative the change would bypass. You can fix this by cloning the output "
                     "of the custom Function");
}

NodeObject *current_grad_fn(TensorObject *tensor, bool *error) {
  *error = false;
  // Again where it was exchanged for another view while it was renewed.
  while (tensor->base != nullptr && version_of(tensor) != tensor->view_version &&
         (tensor->grad_fn != nullptr || needs_grad(as_tensor(tensor->base))) &&
         shares_memory_with_base(tensor)) {
    if (tensor->view_origin == ViewOrigin::no_grad) {
      PyErr_SetString(PyExc_RuntimeError, "A view was created in no_grad mode and its base or "
                                          "another view of its base has been modified "
                                          "inplace with grad mode enabled: whether that change "
                                          "belongs to the graph is ambiguous. Do both under "
                                          "modtree.no_grad(), or both outside it");
      *error = true;
      return nullptr;
    }
    if (refuses_inplace(tensor)) {
      raise_refused_inplace(tensor,
                            "its base or another view of its base has been modified inplace");
      *error = true;
      return nullptr;
    }
    if (renew_view(tensor) < 0) {
      *error = true;
      return nullptr;
    }
  }
  Py_XINCREF(tensor->grad_fn);
  return as_node(tensor->grad_fn);
}

namespace {

// The node where the leaf's gradient is added up: a new reference, or null where it has none.
NodeObject *own_accumulator(const LeafExtra *extra) {
  return extra->accumulator != nullptr && try_to_own(as_object(extra->accumulator))
             ? extra->accumulator
             : nullptr;
}

}  // namespace

int gradient_edge(TensorObject *tensor, Edge *edge) {
  bool error;
  NodeObject *node = current_grad_fn(tensor, &error);
  if (error) {
    return -1;
  }
  if (node != nullptr) {
    edge->node = node;
    edge->nr = tensor->output_nr;
    return 0;
  }
  edge->node = nullptr;
  edge->nr = 0;
  // A view made under no_grad needs a gradient because its base does, but it has no edge to it and
  // is not a leaf itself.
  if (!tensor->requires_grad) {
    return 0;
  }
  LeafExtra *extra = ensure_extra(tensor);
  if (extra == nullptr) {
    return -1;
  }
  edge->node = own_accumulator(extra);
  if (edge->node == nullptr) {
    node = new_node(NodeKind::accumulate, 0, 0);
    if (node == nullptr) {
      return -1;
    }
    // Making the node may have run code that gave the leaf one.
    edge->node = own_accumulator(extra);
    if (edge->node == nullptr) {
      share_by_try(as_object(node));
      Py_INCREF(tensor);
      node->target = reinterpret_cast<PyObject *>(tensor);
      extra->accumulator = node;
      edge->node = node;
      return 0;
    }
    Py_DECREF(as_object(node));
  }
  return 0;
}

namespace {

// Its address tells a thread from the others.
thread_local char t_here;

void let_others_run() {
  PyThreadState *state = PyEval_SaveThread();
  std::this_thread::yield();
  PyEval_RestoreThread(state);
}

}  // namespace

GradientLock::GradientLock(TensorObject *leaf) : extra_(leaf->extra) {
  if (extra_->adding == &t_here) {
    // By code of a finalizer that runs meanwhile.
    extra_ = nullptr;
    return;
  }
  // Seconds, and no longer: in a child of fork() the thread may not exist.
  constexpr int kMostTries = 1'000'000;
  for (int i = 0; extra_->adding != nullptr && i < kMostTries; ++i) {
    let_others_run();
  }
  extra_->adding = &t_here;
}

GradientLock::~GradientLock() {
  if (extra_ != nullptr) {
    extra_->adding = nullptr;
  }
}

void set_history(TensorObject *tensor, NodeObject *node, std::uint32_t nr) {
  replace_history(tensor, node, nr);
}

int rebase_history(TensorObject *tensor, NodeObject *node, std::uint32_t nr) {
  PyObject *old = tensor->grad_fn;
  Py_XINCREF(old);
  int status = 0;
  if (tensor->base == nullptr) {
    replace_history(tensor, node, nr);
  } else {
    const auto held = py::reinterpret_borrow<py::object>(tensor->base);
    TensorObject *base = as_tensor(held.ptr());
    NodeObject *slices = make_copy_slices(tensor, node);
    if (slices == nullptr) {
      status = -1;
    } else {
      PyObject *old_of_base = base->grad_fn;
      Py_XINCREF(old_of_base);
      replace_history(base, slices, 0);
      status = base->retains_grad ? move_retained(base, as_node(old_of_base)) : 0;
      Py_XDECREF(old_of_base);
      Py_DECREF(as_object(slices));
      // Not one that was exchanged by now.
      status = status < 0 || (tensor->base == held.ptr() && renew_view(tensor) < 0) ? -1 : 0;
    }
  }
  if (status == 0 && tensor->retains_grad) {
    status = move_retained(tensor, as_node(old));
  }
  Py_XDECREF(old);
  return status;
}

int drop_history(TensorObject *tensor) {
  if (tensor->base != nullptr) {
    PyErr_SetString(PyExc_RuntimeError,
                    "Can't detach views in-place. Use detach() instead, which gives a new handle");
    return -1;
  }
  release_later(std::exchange(tensor->grad_fn, nullptr));
  tensor->output_nr = 0;
  tensor->requires_grad = false;
  return 0;
}

void set_base(TensorObject *view, TensorObject *base, ViewOrigin origin) {
  if (!is_float_category(dtype_or_none(view->array)->category)) {
    return;
  }
  if (!grad_enabled()) {
    origin = ViewOrigin::no_grad;
  }
  PyObject *root = reinterpret_cast<PyObject *>(base);
  if (base->base != nullptr) {
    root = base->base;
    origin = std::max(origin, base->view_origin);
  }
  Py_INCREF(root);
  release_later(std::exchange(view->base, root));
  view->view_origin = origin;
  view->view_version = version_of(view);
}

int retain_grad(TensorObject *tensor) {
  bool error;
  NodeObject *node = current_grad_fn(tensor, &error);
  if (node == nullptr) {
    return error ? -1 : 0;
  }
  int status = -1;
  // Of this node: the tensor may be exchanged while the reference is made.
  const std::uint32_t nr = tensor->output_nr;
  NodeHooks *hooks = ensure_hooks(node);
  PyObject *reference =
      hooks == nullptr ? nullptr : PyWeakref_NewRef(reinterpret_cast<PyObject *>(tensor), nullptr);
  if (reference != nullptr) {
    hooks->retained.push_back({nr, reference});
    tensor->retains_grad = true;
    status = 0;
  }
  Py_DECREF(as_object(node));
  return status;
}

PyObject *tensor_hooks(TensorObject *tensor) {
  bool error;
  NodeObject *node = current_grad_fn(tensor, &error);
  if (error) {
    return nullptr;
  }
  PyObject *table = nullptr;
  if (node == nullptr) {
    LeafExtra *extra = ensure_extra(tensor);
    return extra == nullptr ? nullptr : Py_XNewRef(fill_once(&extra->hooks, PyODict_New));
  }
  // Of this node: the tensor may be exchanged while the table is made, or get its table there.
  const std::uint32_t nr = tensor->output_nr;
  NodeHooks *hooks = ensure_hooks(node);
  const auto find_table = [&]() -> PyObject * {
    for (const auto &entry : hooks->tensor_tables) {
      if (entry.nr == nr) {
        return Py_NewRef(entry.table);
      }
    }
    return nullptr;
  };
  if (hooks != nullptr && (table = find_table()) == nullptr) {
    const auto fresh = py::reinterpret_steal<py::object>(PyODict_New());
    if (fresh && (table = find_table()) == nullptr) {
      hooks->tensor_tables.push_back({nr, Py_NewRef(fresh.ptr())});
      table = Py_NewRef(fresh.ptr());
    }
  }
  Py_DECREF(as_object(node));
  return table;
}

PyObject *post_accumulate_hooks(TensorObject *tensor) {
  LeafExtra *extra = ensure_extra(tensor);
  return extra == nullptr ? nullptr
                          : Py_XNewRef(fill_once(&extra->post_accumulate_hooks, PyODict_New));
}

}  // namespace modtree
