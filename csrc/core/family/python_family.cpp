// SPDX-License-Identifier: BSD-3-Clause
// The adapter that answers for any library through the methods of a Python object.
#include "family/family.h"
#include "family/tensor_reader.h"
#include "python/compat.h"
#include "python/installed.h"
#include "python/interned.h"
#include "python/native_section.h"
#include "python/owned.h"

namespace modtree {

namespace {

// A result that answers a question: 0/1, or -1 with an error set. Steals `result`, which may be
// null.
int truth_of(PyObject *result) {
  if (!result) {
    return -1;
  }
  if (result == Py_True || result == Py_False) {
    const int truth = result == Py_True;
    Py_DECREF(result);
    return truth;
  }
  const int truth = PyObject_IsTrue(result);
  Py_DECREF(result);
  return truth;
}

// The result of an action: 0, or -1 with an error set. Steals `result`, which may be null.
int done(PyObject *result) {
  if (!result) {
    return -1;
  }
  Py_DECREF(result);
  return 0;
}

template <class... Args>
PyObject *called(const py::object &function, Args... args) {
  // One slot in front for PY_VECTORCALL_ARGUMENTS_OFFSET, so that bound methods need not copy.
  PyObject *stack[] = {nullptr, args...};
  const OutsideNativeSection outside;
  return PyObject_Vectorcall(function.ptr(), stack + 1,
                             sizeof...(args) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

// What a library's `Parameter.__deepcopy__` does, without its Python frames. For a library that
// describes its copies as torch does: make(Parameter, clone of the data, requires_grad), where
// `__deepcopy__` and the constructor are its own.
class ParameterCopies {
public:
  // A modtree.core.family.ParameterCopies, or None for a library whose copies it makes itself.
  // Throws error_already_set.
  explicit ParameterCopies(py::handle description);

  // New reference. Null without an error where `__deepcopy__` is to be called; null with an error
  // set on failure. The value is of the class itself.
  PyObject *copy(PyObject *parameter);

private:
  // True if the class still has the same attributes under the names that decide. Remembered until
  // the class changes.
  bool is_as_described();
  bool compare() const;

  py::object parameter_type_, plain_types_, make_, memory_format_, clone_names_, deciding_;
  TypeVersion known_version_ = 0;
  bool known_answer_ = false;
};

ParameterCopies::ParameterCopies(py::handle description) {
  if (description.is_none()) {
    return;
  }
  parameter_type_ = description.attr("parameter_type");
  make_ = description.attr("make");
  memory_format_ = description.attr("memory_format");
  plain_types_ = description.attr("plain_types");
  // A dict of our own, which nobody changes while it is walked.
  deciding_ = steal(PyDict_Copy(py::dict(description.attr("deciding")).ptr()));
  clone_names_ = steal(Py_BuildValue("(s)", "memory_format"));
  if (!deciding_ || !clone_names_) {
    throw py::error_already_set();
  }
}

bool ParameterCopies::compare() const {
  auto *type = reinterpret_cast<PyTypeObject *>(parameter_type_.ptr());
  Py_ssize_t position = 0;
  PyObject *name, *value;
  while (dict_next_item(deciding_.ptr(), &position, &name, &value)) {
    if (type_lookup(type, name).ptr() != value) {
      return false;
    }
  }
  return Py_TYPE(type)->tp_call == PyType_Type.tp_call;
}

bool ParameterCopies::is_as_described() {
  auto *type = reinterpret_cast<PyTypeObject *>(parameter_type_.ptr());
  TypeVersion version = type_version(type);
  if (version != 0 && version == known_version_) {
    return known_answer_;
  }
  // A lookup gives the class a version. It is read before the rest, as user code may run there.
  type_lookup(type, names.deepcopy);
  version = type_version(type);
  const bool answer = compare();
  known_version_ = version;
  known_answer_ = answer;
  return answer;
}

PyObject *ParameterCopies::copy(PyObject *parameter) {
  if (!parameter_type_ || !is_as_described()) {
    return nullptr;
  }
  // Read by their names, so that patches of these and modes see them as they see torch's.
  const auto data = steal(PyObject_GetAttr(parameter, names.data));
  PyObject *arguments[] = {nullptr, data.ptr(), memory_format_.ptr()};
  const auto clone =
      data
          ? steal(PyObject_VectorcallMethod(names.clone, arguments + 1,
                                            1 | PY_VECTORCALL_ARGUMENTS_OFFSET, clone_names_.ptr()))
          : Owned();
  const auto requires_grad =
      clone ? steal(PyObject_GetAttr(parameter, names.requires_grad)) : Owned();
  if (!requires_grad) {
    return nullptr;
  }
  // The constructor makes something else of other classes.
  const auto type =
      py::reinterpret_borrow<Owned>(reinterpret_cast<PyObject *>(Py_TYPE(clone.ptr())));
  const int is_plain = PySequence_Contains(plain_types_.ptr(), type.ptr());
  if (is_plain < 0) {
    return nullptr;
  }
  return is_plain ? PyObject_CallFunctionObjArgs(make_.ptr(), parameter_type_.ptr(), clone.ptr(),
                                                 requires_grad.ptr(), nullptr)
                  : PyObject_CallFunctionObjArgs(parameter_type_.ptr(), clone.ptr(),
                                                 requires_grad.ptr(), nullptr);
}

// Bound methods are looked up once: a family is not patched after its first use. Where the
// library's tensors have the common names
// (`has_common_names`), the short questions are asked of the tensor itself, which saves a Python
// call each.
class PythonFamily final : public TensorFamily {
public:
  explicit PythonFamily(py::object python_family)
      : TensorFamily(std::move(python_family)),
        common_names_(py::bool_(object.attr("has_common_names"))),
        tensor_type_(object.attr("tensor_type")),
        parameter_type_(object.attr("parameter_type")),
        is_parameter_(object.attr("is_parameter")),
        is_buffer_(object.attr("is_buffer")),
        is_uninitialized_(object.attr("is_uninitialized")),
        is_meta_(object.attr("is_meta")),
        is_floating_point_(object.attr("is_floating_point")),
        is_complex_(object.attr("is_complex")),
        shape_(object.attr("shape")),
        requires_grad_(object.attr("requires_grad")),
        set_requires_grad_(object.attr("set_requires_grad")),
        has_grad_fn_(object.attr("has_grad_fn")),
        grad_(object.attr("grad")),
        set_grad_(object.attr("set_grad")),
        zero_grad_(object.attr("zero_grad")),
        no_grad_(object.attr("no_grad")),
        is_grad_enabled_(object.attr("is_grad_enabled")),
        set_grad_enabled_(object.attr("set_grad_enabled")),
        detach_(object.attr("detach")),
        make_parameter_(object.attr("make_parameter")),
        can_set_data_(object.attr("can_set_data")),
        set_data_(object.attr("set_data")),
        must_swap_contents_(object.attr("must_swap_contents")),
        is_overwriting_(object.attr("get_overwrite_module_params_on_conversion")),
        is_swapping_(object.attr("get_swap_module_params_on_conversion")),
        copy_into_(object.attr("copy_into")),
        copy_all_(object.attr("copy_all")),
        to_(object.attr("to")),
        empty_like_(object.attr("empty_like")),
        filled_(object.attr("filled")),
        in_place_of_(object.attr("in_place_of")),
        takes_source_(object.attr("takes_source")),
        immutable_(py::bool_(object.attr("immutable"))),
        bare_parameters_(py::bool_(object.attr("bare_parameters"))),
        told_by_address_(py::bool_(object.attr("told_by_address"))),
        copies_(object.attr("parameter_copies")),
        reader_(tensor_type_, parameter_type_, object.attr("tensor_access")) {}

  bool are_parameters(PyTypeObject *type) override {
    return reinterpret_cast<PyObject *>(type) == parameter_type_.ptr();
  }

  int is_parameter(PyObject *tensor) override {
    if (reinterpret_cast<PyObject *>(Py_TYPE(tensor)) == parameter_type_.ptr()) {
      return 1;
    }
    return common_names_ && !facts_of_type(Py_TYPE(tensor)).may_claim_class &&
                   !PyObject_TypeCheck(tensor,
                                       reinterpret_cast<PyTypeObject *>(parameter_type_.ptr()))
               ? has_mark(tensor, names.is_param)
               : truth_of(called(is_parameter_, tensor));
  }
  int is_buffer(PyObject *tensor) override {
    return common_names_ ? has_mark(tensor, names.is_buffer) : truth_of(called(is_buffer_, tensor));
  }
  int is_uninitialized(PyObject *tensor) override {
    return common_names_ && is_own_type(tensor) ? 0 : truth_of(called(is_uninitialized_, tensor));
  }
  int is_meta(PyObject *tensor) override {
    return truth_of(ask(TensorAttribute::is_meta, names.is_meta, is_meta_, tensor));
  }
  int is_floating_point(PyObject *tensor) override {
    return truth_of(common_names_ ? PyObject_CallMethodNoArgs(tensor, names.is_floating_point)
                                  : called(is_floating_point_, tensor));
  }
  int is_complex(PyObject *tensor) override {
    return truth_of(common_names_ ? PyObject_CallMethodNoArgs(tensor, names.is_complex)
                                  : called(is_complex_, tensor));
  }

  bool has_bare_parameters() const override { return bare_parameters_; }
  bool is_told_by_address() const override { return told_by_address_; }
  bool is_immutable() const override { return immutable_; }
  PyObject *filled(PyObject *tensor, PyObject *source, bool as_it_is) override {
    return called(filled_, tensor, source, as_it_is ? Py_True : Py_False);
  }
  PyObject *in_place_of(PyObject *value, PyObject *tensor) override {
    return called(in_place_of_, value, tensor);
  }
  int takes_source(PyObject *value) override { return truth_of(called(takes_source_, value)); }

  PyObject *shape(PyObject *tensor) override {
    return ask(TensorAttribute::shape, names.shape, shape_, tensor);
  }

  int same_shape(PyObject *tensor, PyObject *other) override {
    bool any_meta;
    const int same = reader_.same_shape(tensor, other, &any_meta);
    if (same >= 0) {
      return same;
    }
    TensorFamily *other_family = this;
    const int is_tensor = family_of(other, &other_family);
    if (is_tensor < 0) {
      return -1;
    }
    const auto mine = py::reinterpret_steal<py::object>(shape(tensor));
    if (!mine) {
      return -1;
    }
    const auto theirs = py::reinterpret_steal<py::object>(
        is_tensor ? other_family->shape(other) : PyObject_GetAttr(other, names.shape));
    return theirs ? PyObject_RichCompareBool(mine.ptr(), theirs.ptr(), Py_EQ) : -1;
  }

  Read read(PyObject *tensor, TensorFacts *facts) override { return reader_.read(tensor, facts); }
  Read read_values(PyObject *tensor, TensorFacts *facts) override {
    return reader_.read_values(tensor, facts);
  }

  int requires_grad(PyObject *tensor) override {
    return truth_of(
        ask(TensorAttribute::requires_grad, names.requires_grad, requires_grad_, tensor));
  }
  int set_requires_grad(PyObject *tensor, bool flag) override {
    if (reader_.knows(tensor) && reader_.has_requires_grad(tensor, flag)) {
      return 0;
    }
    PyObject *value = flag ? Py_True : Py_False;
    return done(common_names_ ? PyObject_CallMethodOneArg(tensor, names.requires_grad_, value)
                              : called(set_requires_grad_, tensor, value));
  }
  int has_grad_fn(PyObject *tensor) override {
    if (!common_names_) {
      return truth_of(called(has_grad_fn_, tensor));
    }
    PyObject *node = ask(TensorAttribute::grad_fn, names.grad_fn, has_grad_fn_, tensor);
    Py_XDECREF(node);
    return node ? node != Py_None : -1;
  }
  PyObject *grad(PyObject *tensor) override {
    return reader_.knows(tensor) ? reader_.grad(tensor)
           : common_names_       ? PyObject_GetAttr(tensor, names.grad)
                                 : called(grad_, tensor);
  }
  bool lacks_grad(PyObject *tensor) override { return reader_.lacks_grad(tensor); }
  void prefetch_grad(PyObject *tensor, bool again) override {
    reader_.prefetch_grad(tensor, again);
  }
  int set_grad(PyObject *tensor, PyObject *grad) override {
    return reader_.knows(tensor) ? reader_.set_grad(tensor, grad)
           : common_names_       ? PyObject_SetAttr(tensor, names.grad, grad)
                                 : done(called(set_grad_, tensor, grad));
  }
  int zero_grad(PyObject *tensor, bool set_to_none) override {
    if (common_names_) {
      if (reader_.lacks_grad(tensor)) {
        return 0;
      }
      PyObject *grad = this->grad(tensor);
      Py_XDECREF(grad);
      if (!grad || grad == Py_None) {
        return grad ? 0 : -1;
      }
      if (set_to_none) {
        return set_grad(tensor, Py_None);
      }
    }
    return done(called(zero_grad_, tensor, set_to_none ? Py_True : Py_False));
  }

  // A library that has a switch is asked for it (the scope is its old value); the others give a
  // context manager, or None.
  PyObject *enter_no_grad() override {
    if (!set_grad_enabled_.is_none()) {
      auto old = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(is_grad_enabled_.ptr()));
      return old && done(called(set_grad_enabled_, Py_False)) == 0 ? old.release().ptr() : nullptr;
    }
    auto context = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(no_grad_.ptr()));
    if (!context || context.is_none()) {
      return context.release().ptr();
    }
    return done(PyObject_CallMethod(context.ptr(), "__enter__", nullptr)) == 0
               ? context.release().ptr()
               : nullptr;
  }
  int exit_no_grad(PyObject *scope) override {
    if (!set_grad_enabled_.is_none()) {
      return done(called(set_grad_enabled_, scope));
    }
    return scope == Py_None
               ? 0
               : done(PyObject_CallMethod(scope, "__exit__", "OOO", Py_None, Py_None, Py_None));
  }

  PyObject *detach(PyObject *tensor) override {
    if (reader_.knows_detach(tensor)) {
      return reader_.detach(tensor);
    }
    return common_names_ ? PyObject_CallMethodNoArgs(tensor, names.detach)
                         : called(detach_, tensor);
  }
  PyObject *make_parameter(PyObject *data, bool requires_grad) override {
    return called(make_parameter_, data, requires_grad ? Py_True : Py_False);
  }
  PyObject *copy_parameter(PyObject *tensor) override {
    return reinterpret_cast<PyObject *>(Py_TYPE(tensor)) == parameter_type_.ptr()
               ? copies_.copy(tensor)
               : nullptr;
  }
  int can_set_data(PyObject *tensor, PyObject *other) override {
    return truth_of(called(can_set_data_, tensor, other));
  }
  int set_data(PyObject *tensor, PyObject *other) override {
    return common_names_ ? PyObject_SetAttr(tensor, names.data, other)
                         : done(called(set_data_, tensor, other));
  }
  int must_swap_contents(PyObject *tensor, PyObject *other) override {
    return is_own_type(tensor) && is_own_type(other)
               ? 0
               : truth_of(called(must_swap_contents_, tensor, other));
  }
  int conversion_switch(ConversionSwitch which) override {
    const bool swap = which == ConversionSwitch::swap;
    const py::object &getter = swap ? is_swapping_ : is_overwriting_;
    // A program on the native class has one pair of switches for both.
    const bool is_own =
        getter.ptr() == (swap ? installed.get_swap_module_params_on_conversion
                              : installed.get_overwrite_module_params_on_conversion);
    return getter.is_none() || is_own ? 0 : truth_of(called(getter));
  }
  int copy_into(PyObject *tensor, PyObject *source) override {
    const bool own = common_names_ && family_of_type(Py_TYPE(source)) == this;
    if (!own && PyErr_Occurred()) {
      return -1;
    }
    return done(own ? PyObject_CallMethodOneArg(tensor, names.copy_in_place, source)
                    : called(copy_into_, tensor, source));
  }

  bool is_own_type(PyObject *tensor) override {
    auto *type = reinterpret_cast<PyObject *>(Py_TYPE(tensor));
    return type == parameter_type_.ptr() || type == tensor_type_.ptr();
  }
  bool is_copied_plainly(PyObject *tensor, PyObject *source) override {
    bool any_meta;
    return reader_.same_shape(tensor, source, &any_meta) == 1 && !any_meta;
  }
  bool is_read_afar() const override { return true; }
  void prefetch(PyObject *tensor) override { reader_.prefetch(tensor); }
  bool copies_in_batches(PyObject *tensor, PyObject *source) override {
    return !copy_all_.is_none() && is_own_type(tensor) && is_own_type(source);
  }
  int copy_all(PyObject *tensors, PyObject *sources) override {
    return truth_of(called(copy_all_, tensors, sources));
  }

  PyObject *to(PyObject *tensor, PyObject *device, PyObject *dtype, bool non_blocking,
               PyObject *memory_format) override {
    return called(to_, tensor, device, dtype, non_blocking ? Py_True : Py_False, memory_format);
  }
  PyObject *empty_like(PyObject *tensor, PyObject *device) override {
    return called(empty_like_, tensor, device);
  }

private:
  // The value of an attribute, by the shortest way: new reference, null on error.
  PyObject *ask(TensorAttribute attribute, PyObject *name, const py::object &function,
                PyObject *tensor) {
    return reader_.knows(tensor) ? reader_.get(attribute, tensor)
           : common_names_       ? PyObject_GetAttr(tensor, name)
                                 : called(function, tensor);
  }

  // Truth of an attribute that most tensors do not have.
  static int has_mark(PyObject *tensor, PyObject *name) {
    PyObject *mark;
    const int found = optional_attr(tensor, name, &mark);
    return found > 0 ? truth_of(mark) : found;
  }

  const bool common_names_;
  py::object tensor_type_, parameter_type_;
  py::object is_parameter_, is_buffer_, is_uninitialized_, is_meta_, is_floating_point_,
      is_complex_, shape_;
  py::object requires_grad_, set_requires_grad_, has_grad_fn_, grad_, set_grad_, zero_grad_,
      no_grad_, is_grad_enabled_, set_grad_enabled_;
  py::object detach_, make_parameter_, can_set_data_, set_data_, must_swap_contents_,
      is_overwriting_, is_swapping_, copy_into_, copy_all_, to_, empty_like_;
  py::object filled_, in_place_of_, takes_source_;
  const bool immutable_, bare_parameters_, told_by_address_;
  ParameterCopies copies_;
  TensorReader reader_;
};

}  // namespace

TensorFamily *new_python_family(py::object python_family) {
  return new PythonFamily(std::move(python_family));
}

}  // namespace modtree
