// SPDX-License-Identifier: BSD-3-Clause
#include "python/arguments.h"

namespace modtree {

namespace {

int parameter_count(const ArgumentNames &names) {
  int count = 0;
  while (count < kMaxArguments && names.parameters[count]) {
    ++count;
  }
  return count;
}

int raise_too_many(const ParameterList &parameters, int accepted, Py_ssize_t given) {
  PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional argument%s (%zd given)",
               parameters.function, accepted, accepted == 1 ? "" : "s", given);
  return -1;
}

// The number of a parameter that may be given by this keyword, the count of all when there is none.
// Keywords mostly come in the order of the parameters: the search begins at `expected`.
int find_parameter(const ParameterList &parameters, PyObject *keyword, int expected) {
  for (int i = expected; i < parameters.count; ++i) {
    if (PyUnicode_CompareWithASCIIString(keyword, parameters.names[i]) == 0) {
      return i;
    }
  }
  for (int i = parameters.positional_only; i < expected; ++i) {
    if (PyUnicode_CompareWithASCIIString(keyword, parameters.names[i]) == 0) {
      return i;
    }
  }
  return parameters.count;
}

}  // namespace

int match_arguments(const ParameterList &parameters, PyObject *const *args, Py_ssize_t count,
                    PyObject *keywords, PyObject **values) {
  const int total = parameters.count;
  const int positional =
      parameters.keyword_only_from < total ? parameters.keyword_only_from : total;
  if (count > positional) {
    return raise_too_many(parameters, positional, count);
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    values[i] = args[i];
  }
  const Py_ssize_t keyword_count = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  int expected = static_cast<int>(count);
  if (expected < parameters.positional_only) {
    expected = parameters.positional_only;
  }
  for (Py_ssize_t k = 0; k < keyword_count; ++k) {
    PyObject *keyword = PyTuple_GET_ITEM(keywords, k);
    const int index = find_parameter(parameters, keyword, expected);
    if (index == total) {
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
                   parameters.function, keyword);
      return -1;
    }
    if (values[index]) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'",
                   parameters.function, keyword);
      return -1;
    }
    values[index] = args[count + k];
    expected = index + 1;
  }
  for (int i = 0; i < parameters.required; ++i) {
    if (!values[i]) {
      PyErr_Format(PyExc_TypeError, "%s() missing required argument: '%s'", parameters.function,
                   parameters.names[i]);
      return -1;
    }
  }
  return 0;
}

int parse_arguments(const ArgumentNames &names, PyObject *const *args, Py_ssize_t count,
                    PyObject *keywords, PyObject **values) {
  const ParameterList parameters{
      names.function,         names.parameters, parameter_count(names), names.required, 0,
      names.keyword_only_from};
  return match_arguments(parameters, args, count, keywords, values);
}

}  // namespace modtree
