// SPDX-License-Identifier: BSD-3-Clause
#include "bind/functions.h"

#include <iterator>
#include <limits>
#include <stdexcept>

#include "bind/array.h"
#include "python/arguments.h"
#include "python/once.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

constexpr std::size_t kMost = 16;  // parameters of one function
constexpr Py_ssize_t kMostAxes = 64;

}  // namespace

// One for each function of the module, for the life of the process: CPython keeps no copy of the
// definition, and calls may come as long as there is a thread.
struct BoundFunction {
  enum class Collects : std::uint8_t { nothing, positions, keywords };

  PyMethodDef definition{};
  std::string name, doc;
  std::vector<ParameterType> types;
  ParameterType result{};
  std::vector<std::string> texts;
  std::vector<const char *> names;   // into texts
  std::vector<py::object> defaults;  // empty where there is none
  int required = 0, positional_only = 0, keyword_only_from = 0;
  Collects collects = Collects::nothing;
};

namespace {

std::vector<const BoundFunction *> bound_functions;

// As Python writes each Kind, in their order.
constexpr const char *kAnnotations[] = {
    "Any",
    "np.ndarray[Any, Any]",
    "dict[Any, Any]",
    "str",
    "tuple[Any, ...]",
    "type",
    "bool",
    "int",
    "float",
    "str",
    "Sequence[int]",
    "Sequence[int]",
    "Sequence[bool]",
    "Sequence[Any]",
    "Any",
    "None",
};
static_assert(std::size(kAnnotations) == static_cast<std::size_t>(Kind::none) + 1);

std::string annotation(ParameterType type) {
  const std::string text = kAnnotations[static_cast<std::size_t>(type.kind)];
  return type.may_be_none ? text + " | None" : text;
}

// What a call holds until it ends.
struct Held {
  std::vector<py::object> tuples;
  Shape shape;
};

// One argument on its way into a Value. Functions return -1 with an error set.
class Reader {
public:
  Reader(const BoundFunction &function, const char *parameter, Held &held)
      : function_(function),
        parameter_(parameter),
        held_(held) {}

  int read(ParameterType type, PyObject *object, Value &value) {
    value.object = object;
    if (type.may_be_none && object == Py_None) {
      return 0;
    }
    switch (type.kind) {
      case Kind::object:
      case Kind::name:
      case Kind::none:
        return 0;
      case Kind::array:
        return is_array(object) ? 0 : refuse("a NumPy array", object);
      case Kind::dict:
        return PyDict_Check(object) ? 0 : refuse("a dict", object);
      case Kind::str:
        return PyUnicode_Check(object) ? 0 : refuse("a str", object);
      case Kind::tuple:
        return PyTuple_Check(object) ? 0 : refuse("a tuple", object);
      case Kind::type:
        return PyType_Check(object) ? 0 : refuse("a class", object);
      case Kind::truth:
        return truth(object, &value.integers[0]);
      case Kind::integer:
        return integer(object, type.size, &value.integers[0]);
      case Kind::number:
        return number(object, &value.number);
      case Kind::text:
        return text(object, value);
      case Kind::shape:
        return shape(object, value);
      case Kind::integers:
      case Kind::truths:
      case Kind::objects:
        return sequence(type, object, value);
    }
    return -1;
  }

private:
  int refuse(const char *expected, PyObject *object) const {
    PyErr_Format(PyExc_TypeError, "%s(): %s%s must be %s, got %.200s", function_.name.c_str(),
                 part_, parameter_, expected, Py_TYPE(object)->tp_name);
    return -1;
  }

  int truth(PyObject *object, std::int64_t *result) const {
    if (object == Py_True || object == Py_False || object == Py_None) {
      *result = object == Py_True;
      return 0;
    }
    const PyNumberMethods *methods = Py_TYPE(object)->tp_as_number;
    if (!methods || !methods->nb_bool) {
      return refuse("a bool", object);
    }
    const int is_true = PyObject_IsTrue(object);
    *result = is_true;
    return is_true < 0 ? -1 : 0;
  }

  int integer(PyObject *object, std::uint8_t bytes, std::int64_t *result) const {
    if (PyFloat_Check(object) || !PyIndex_Check(object)) {
      return refuse("an integer", object);
    }
    const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(object));
    if (!index) {
      return -1;
    }
    int overflow;
    *result = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    if (*result == -1 && PyErr_Occurred()) {
      return -1;
    }
    const int unused = 64 - 8 * bytes;
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() >> unused;
    if (overflow != 0 || *result > most || *result < -most - 1) {
      PyErr_Format(PyExc_OverflowError, "%s(): %s%s is too large for %d bytes, got %R",
                   function_.name.c_str(), part_, parameter_, static_cast<int>(bytes), index.ptr());
      return -1;
    }
    return 0;
  }

  int number(PyObject *object, double *result) const {
    if (!PyFloat_CheckExact(object) && !PyNumber_Check(object)) {
      return refuse("a number", object);
    }
    *result = PyFloat_AsDouble(object);
    return *result == -1.0 && PyErr_Occurred() ? -1 : 0;
  }

  int text(PyObject *object, Value &value) const {
    if (!PyUnicode_Check(object)) {
      return refuse("a str", object);
    }
    value.text.data = PyUnicode_AsUTF8AndSize(object, &value.text.size);
    return value.text.data ? 0 : -1;
  }

  // The number of items of a sequence; -1 where the object is none.
  Py_ssize_t length(const char *expected, PyObject *object) const {
    if (!PySequence_Check(object) || PyUnicode_Check(object) || PyBytes_Check(object)) {
      refuse(expected, object);
      return -1;
    }
    return PySequence_Size(object);
  }

  // The items, which stay what they are while Python code reads them; null on error.
  PyObject *items_of(PyObject *object) {
    held_.tuples.push_back(py::reinterpret_steal<py::object>(tuple_of_items(object)));
    return held_.tuples.back().ptr();
  }

  int shape(PyObject *object, Value &value) {
    const Py_ssize_t count = length("a sequence of integers", object);
    if (count > kMostAxes) {
      PyErr_Format(PyExc_ValueError, "%s(): %s has %zd axes, more than an array can have",
                   function_.name.c_str(), parameter_, count);
    }
    PyObject *items = count < 0 || count > kMostAxes ? nullptr : items_of(object);
    if (!items) {
      return -1;
    }
    part_ = "an item of ";
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
      std::int64_t size;
      if (integer(PyTuple_GET_ITEM(items, i), sizeof(py::ssize_t), &size) < 0) {
        return -1;
      }
      held_.shape.push_back(static_cast<py::ssize_t>(size));
    }
    value.shape = &held_.shape;
    return 0;
  }

  // A sequence of exactly `type.size` items.
  int sequence(ParameterType type, PyObject *object, Value &value) {
    Py_ssize_t count = length("a sequence", object);
    if (count == type.size) {
      value.object = items_of(object);
      count = value.object ? PyTuple_GET_SIZE(value.object) : -1;
    }
    if (count != type.size) {
      if (count >= 0) {
        PyErr_Format(PyExc_TypeError, "%s(): %s must have %d items, got %zd",
                     function_.name.c_str(), parameter_, static_cast<int>(type.size), count);
      }
      return -1;
    }
    part_ = "an item of ";
    for (std::size_t i = 0; type.kind != Kind::objects && i < type.size; ++i) {
      PyObject *item = PyTuple_GET_ITEM(value.object, static_cast<Py_ssize_t>(i));
      const int read = type.kind == Kind::truths
                           ? truth(item, &value.integers[i])
                           : integer(item, sizeof(py::ssize_t), &value.integers[i]);
      if (read < 0) {
        return -1;
      }
    }
    return 0;
  }

  const BoundFunction &function_;
  const char *parameter_;
  const char *part_ = "";  // of the parameter
  Held &held_;
};

// The arguments of a function with *args or **kwargs: new reference, null on error.
PyObject *collect(const BoundFunction &function, PyObject *const *args, Py_ssize_t count,
                  PyObject *keywords) {
  const Py_ssize_t keyword_count = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  const bool by_position = function.collects == BoundFunction::Collects::positions;
  if (by_position ? keyword_count != 0 : count != 0) {
    PyErr_Format(PyExc_TypeError, "%s() takes no %s arguments", function.name.c_str(),
                 by_position ? "keyword" : "positional");
    return nullptr;
  }
  if (by_position) {
    auto tuple = py::reinterpret_steal<py::object>(PyTuple_New(count));
    for (Py_ssize_t i = 0; tuple && i < count; ++i) {
      PyTuple_SET_ITEM(tuple.ptr(), i, Py_NewRef(args[i]));
    }
    return tuple.release().ptr();
  }
  auto dict = py::reinterpret_steal<py::object>(PyDict_New());
  for (Py_ssize_t i = 0; dict && i < keyword_count; ++i) {
    if (PyDict_SetItem(dict.ptr(), PyTuple_GET_ITEM(keywords, i), args[i]) < 0) {
      return nullptr;
    }
  }
  return dict.release().ptr();
}

// The value of each type; -1 on error.
int read_arguments(const BoundFunction &function, PyObject *const *args, Py_ssize_t count,
                   PyObject *keywords, Held &held, Value *values) {
  PyObject *given[kMost] = {};
  if (function.collects != BoundFunction::Collects::nothing) {
    held.tuples.push_back(
        py::reinterpret_steal<py::object>(collect(function, args, count, keywords)));
    given[0] = held.tuples.back().ptr();
    if (!given[0]) {
      return -1;
    }
  } else {
    const ParameterList parameters{
        function.name.c_str(), function.names.data(),    static_cast<int>(function.names.size()),
        function.required,     function.positional_only, function.keyword_only_from};
    if (match_arguments(parameters, args, count, keywords, given) < 0) {
      return -1;
    }
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < function.types.size(); ++i) {
    if (function.types[i].kind == Kind::name) {
      values[i].text.data = function.name.c_str();
      continue;
    }
    PyObject *object = given[next] ? given[next] : function.defaults[next].ptr();
    Reader reader(function, function.names[next], held);
    if (reader.read(function.types[i], object, values[i]) < 0) {
      return -1;
    }
    ++next;
  }
  return 0;
}

// The parts of "(a, b=(1, 1), *, c)" between the outer commas.
std::vector<std::string> split_parameters(const std::string &signature) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (const char c : signature.substr(signature.find('('))) {
    const bool ends = (c == ',' && depth == 1) || (c == ')' && depth == 1);
    depth += (c == '(') - (c == ')');
    if (ends) {
      if (!part.empty()) {
        parts.push_back(std::move(part));
      }
      part.clear();
    } else if ((c != '(' || depth > 1) && (c != ' ' || !part.empty())) {
      part += c;
    }
  }
  return parts;
}

}  // namespace

PyObject *call_bound(const BoundFunction &function, Call call, PyObject *const *args,
                     Py_ssize_t count, PyObject *keywords) {
  if (c_stack_ends()) {
    return nullptr;
  }
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    Held held;
    Value values[kMost];
    if (read_arguments(function, args, count, keywords, held, values) < 0) {
      return nullptr;
    }
    return call(values).release().ptr();
  });
}

py::str annotations_of(py::handle function) {
  std::string lines;
  for (const BoundFunction *known : bound_functions) {
    if (!PyCFunction_Check(function.ptr()) ||
        reinterpret_cast<PyCFunctionObject *>(function.ptr())->m_ml != &known->definition) {
      continue;
    }
    for (const ParameterType &type : known->types) {
      if (type.kind != Kind::name) {
        lines += annotation(type) + "\n";
      }
    }
    lines += annotation(known->result);
  }
  return lines;
}

Functions::Functions(py::handle module)
    : module_(module),
      module_name_(py::reinterpret_steal<py::object>(PyModule_GetNameObject(module.ptr()))),
      literals_(py::reinterpret_steal<py::object>(PyDict_New())) {
  if (!module_name_ || !literals_) {
    throw py::error_already_set();
  }
}

py::object Functions::literal(const std::string &text) {
  PyObject *known = PyDict_GetItemString(literals_.ptr(), text.c_str());
  if (known) {
    return py::reinterpret_borrow<py::object>(known);
  }
  const auto scope = py::reinterpret_steal<py::object>(PyDict_New());
  auto value = py::reinterpret_steal<py::object>(
      scope ? PyRun_String(text.c_str(), Py_eval_input, scope.ptr(), scope.ptr()) : nullptr);
  if (!value || PyDict_SetItemString(literals_.ptr(), text.c_str(), value.ptr()) < 0) {
    throw py::error_already_set();
  }
  return value;
}

const BoundFunction *Functions::add(const char *signature, const char *doc,
                                    const std::vector<ParameterType> &types, ParameterType result,
                                    Entry entry) {
  auto *function = new BoundFunction;
  const std::string text = signature;
  function->name = text.substr(0, text.find('('));
  function->doc = text + "\n--\n\n" + doc;
  function->types = types;
  function->result = result;
  function->keyword_only_from = static_cast<int>(kMost);
  for (const std::string &part : split_parameters(text)) {
    const int number = static_cast<int>(function->texts.size());
    if (part == "/") {
      function->positional_only = number;
    } else if (part == "*") {
      function->keyword_only_from = number;
    } else if (part[0] == '*') {
      function->collects =
          part[1] == '*' ? BoundFunction::Collects::keywords : BoundFunction::Collects::positions;
      function->texts.push_back(part);
      function->defaults.emplace_back();
    } else {
      const std::size_t equals = part.find('=');
      function->texts.push_back(part.substr(0, equals));
      function->defaults.push_back(equals == std::string::npos ? py::object()
                                                               : literal(part.substr(equals + 1)));
      function->required = equals == std::string::npos ? number + 1 : function->required;
    }
  }
  for (const std::string &name : function->texts) {
    function->names.push_back(name.c_str());
  }
  std::size_t parameters = 0, shapes = 0;
  for (const ParameterType &type : types) {
    parameters += type.kind != Kind::name;
    shapes += type.kind == Kind::shape;
  }
  if (parameters != function->names.size() || types.size() > kMost || shapes > 1) {
    throw std::logic_error("the signature does not fit the function: " + text);
  }
  function->definition = {function->name.c_str(),
                          reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry)),
                          METH_FASTCALL | METH_KEYWORDS, function->doc.c_str()};
  const auto object = py::reinterpret_steal<py::object>(
      PyCFunction_NewEx(&function->definition, module_.ptr(), module_name_.ptr()));
  if (!object || PyModule_AddObjectRef(module_.ptr(), function->name.c_str(), object.ptr()) < 0) {
    throw py::error_already_set();
  }
  bound_functions.push_back(function);
  return function;
}

}  // namespace modtree
