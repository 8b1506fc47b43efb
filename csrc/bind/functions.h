// SPDX-License-Identifier: BSD-3-Clause
// Functions of the extension module: what m.def of pybind11 does, for the types of arguments that
// are needed here. Its header and templates take four seconds per file to compile, these one, and a
// call with keywords takes half the time: one loop (functions.cpp) reads the arguments by the kinds
// of the parameters, which are values, so that templates make nothing but the call.
#pragma once

#include <pybind11/pytypes.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/native_section.h"

namespace modtree {

namespace py = pybind11;

using Shape = std::vector<py::ssize_t>;
using Pair = std::array<py::ssize_t, 2>;
template <std::size_t N>
using Flags = std::array<bool, N>;
template <std::size_t N>
using Objects = std::array<py::object, N>;

// A parameter of this type is not an argument: it receives the name under which Python calls the
// function, for errors.
struct FunctionName {
  const char *text;
};

// --- parameters

enum class Kind : std::uint8_t {
  object,  // anything
  array,   // a NumPy array
  dict,    // or a subclass, as the next three
  str,
  tuple,
  type,
  truth,     // a bool, or what says its truth
  integer,   // an int or an object with __index__, of so many bytes
  number,    // a float or an object that converts to one
  text,      // a str, as UTF-8
  shape,     // a sequence of integers
  integers,  // so many of them
  truths,    // so many bools
  objects,   // so many of anything
  name,      // none of Python's, see FunctionName
  none,      // a result alone: void
};

struct ParameterType {
  Kind kind;
  std::uint8_t size = 0;     // bytes or items, as the kind says
  bool may_be_none = false;  // then `object` stays None and nothing else is read
};

constexpr std::size_t kMostItems = 3;  // of integers and truths

// An argument as it was read.
struct Value {
  PyObject *object;  // borrowed: from the call, a default, or a tuple of items
  union {
    double number;
    std::int64_t integers[kMostItems];  // also those of truth and truths
    struct {
      const char *data;
      Py_ssize_t size;
    } text;
    const Shape *shape;
  };
};

// The type of a parameter, and its value for the function.
template <class T, class = void>
struct Parameter;

template <class T>
struct Parameter<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static_assert(std::is_signed_v<T>);
  static constexpr ParameterType type{Kind::integer, sizeof(T)};
  static T get(const Value &value) { return static_cast<T>(value.integers[0]); }
};

template <>
struct Parameter<FunctionName> {
  static constexpr ParameterType type{Kind::name};
  static FunctionName get(const Value &value) { return {value.text.data}; }
};

template <>
struct Parameter<bool> {
  static constexpr ParameterType type{Kind::truth};
  static bool get(const Value &value) { return value.integers[0] != 0; }
};

template <>
struct Parameter<double> {
  static constexpr ParameterType type{Kind::number};
  static double get(const Value &value) { return value.number; }
};

template <>
struct Parameter<std::string> {
  static constexpr ParameterType type{Kind::text};
  static std::string get(const Value &value) {
    return {value.text.data, static_cast<std::size_t>(value.text.size)};
  }
};

template <>
struct Parameter<Shape> {
  static constexpr ParameterType type{Kind::shape};
  static const Shape &get(const Value &value) { return *value.shape; }
};

template <>
struct Parameter<Pair> {
  static_assert(std::tuple_size_v<Pair> <= kMostItems);
  static constexpr ParameterType type{Kind::integers, 2};
  static Pair get(const Value &value) {
    return {static_cast<py::ssize_t>(value.integers[0]),
            static_cast<py::ssize_t>(value.integers[1])};
  }
};

template <std::size_t N>
struct Parameter<Flags<N>> {
  static constexpr ParameterType type{Kind::truths, N};
  static Flags<N> get(const Value &value) {
    static_assert(N <= kMostItems);
    Flags<N> flags{};
    for (std::size_t i = 0; i < N; ++i) {
      flags[i] = value.integers[i] != 0;
    }
    return flags;
  }
};

template <std::size_t N>
struct Parameter<Objects<N>> {
  static constexpr ParameterType type{Kind::objects, N};
  static Objects<N> get(const Value &value) {
    Objects<N> objects;
    for (std::size_t i = 0; i < N; ++i) {
      objects[i] = py::reinterpret_borrow<py::object>(
          PyTuple_GET_ITEM(value.object, static_cast<Py_ssize_t>(i)));
    }
    return objects;
  }
};

template <class T>
struct Parameter<std::optional<T>> {
  static constexpr ParameterType type{Parameter<T>::type.kind, Parameter<T>::type.size, true};
  static std::optional<T> get(const Value &value) {
    return value.object == Py_None ? std::nullopt : std::optional<T>(Parameter<T>::get(value));
  }
};

// Objects of Python.
template <class T, Kind kind>
struct ObjectParameter {
  static constexpr ParameterType type{kind};
  static T get(const Value &value) { return py::reinterpret_borrow<T>(value.object); }
};

template <>
struct Parameter<py::object> : ObjectParameter<py::object, Kind::object> {};
template <>
struct Parameter<py::dict> : ObjectParameter<py::dict, Kind::dict> {};
template <>
struct Parameter<py::str> : ObjectParameter<py::str, Kind::str> {};
template <>
struct Parameter<py::tuple> : ObjectParameter<py::tuple, Kind::tuple> {};
template <>
struct Parameter<py::type> : ObjectParameter<py::type, Kind::type> {};
template <>
struct Parameter<py::handle> {
  static constexpr ParameterType type{Kind::object};
  static py::handle get(const Value &value) { return value.object; }
};

// --- results

template <>
struct Parameter<void> {
  static constexpr ParameterType type{Kind::none};
};

inline py::object to_object(py::object value) { return value; }
inline py::object to_object(bool value) { return py::bool_(value); }
inline py::object to_object(std::int64_t value) { return py::int_(value); }

template <class... Items>
py::tuple tuple_of(const Items &...items) {
  PyObject *tuple = PyTuple_Pack(sizeof...(items), to_object(items).ptr()...);
  if (!tuple) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::tuple>(tuple);
}

// --- functions

struct BoundFunction;

// Calls one C++ function with its arguments.
using Call = py::object (*)(const Value *);

// Reads the arguments and calls: new reference, null with an error set where either fails.
PyObject *call_bound(const BoundFunction &function, Call call, PyObject *const *args,
                     Py_ssize_t count, PyObject *keywords);

template <class Function>
struct FunctionOf;

template <class Result, class... Args>
struct FunctionOf<Result (*)(Args...)> {
  using Function = Result (*)(Args...);

  static std::vector<ParameterType> types() { return {Parameter<std::decay_t<Args>>::type...}; }
  static constexpr ParameterType result = Parameter<Result>::type;

  static py::object call(Function function, const Value *values) {
    return call(function, values, std::index_sequence_for<Args...>());
  }

private:
  template <std::size_t... I>
  static py::object call(Function function, [[maybe_unused]] const Value *values,
                         std::index_sequence<I...>) {
    if constexpr (std::is_void_v<Result>) {
      function(Parameter<std::decay_t<Args>>::get(values[I])...);
      return py::none();
    } else {
      return to_object(function(Parameter<std::decay_t<Args>>::get(values[I])...));
    }
  }
};

// Takes the place of NativeSection for a function that reads and writes only its arguments: several
// threads may run it at the same time.
struct NoSection {
  NoSection() {}
};

// What CPython calls, with the function behind it.
template <auto kFunction, class Section>
struct Bound {
  static inline const BoundFunction *function = nullptr;

  static PyObject *entry(PyObject *, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    const Section in_section;
    return call_bound(*function, &call, args, count, keywords);
  }

  static py::object call(const Value *values) {
    return FunctionOf<decltype(kFunction)>::call(kFunction, values);
  }
};

// Annotations of the parameters of a function, by position, and of its result: a line for each, and
// no line for an object that is not such a function.
py::str annotations_of(py::handle function);

// Gives functions to a module.
class Functions {
public:
  explicit Functions(py::handle module);

  // `signature` is what Python shows: "softmax(x, out=None)". It says the names of the parameters,
  // which of them have a default, as a literal, and with / and * which are given by position or by
  // keyword only. A function with *args or **kwargs takes nothing else, as a tuple or a dict.
  template <auto kFunction>
  void def(const char *signature, const char *doc) {
    define<kFunction, NativeSection>(signature, doc);
  }
  // The same for a kernel.
  template <auto kFunction>
  void def_kernel(const char *signature, const char *doc) {
    define<kFunction, NoSection>(signature, doc);
  }

  py::handle module() const { return module_; }

private:
  using Entry = PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

  template <auto kFunction, class Section>
  void define(const char *signature, const char *doc) {
    using Made = Bound<kFunction, Section>;
    using Types = FunctionOf<decltype(kFunction)>;
    Made::function = add(signature, doc, Types::types(), Types::result, &Made::entry);
  }

  const BoundFunction *add(const char *signature, const char *doc,
                           const std::vector<ParameterType> &types, ParameterType result,
                           Entry entry);
  py::object literal(const std::string &text);

  py::handle module_;
  py::object module_name_;
  py::object literals_;  // text: object
};

}  // namespace modtree
