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

int raise_too_many(const ArgumentNames &names, int accepted, Py_ssize_t given) {
  PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional argument%s (%zd given)",
               names.function, accepted, accepted == 1 ? "" : "s", given);
  return -1;
}

}  // namespace

int parse_arguments(const ArgumentNames &names, PyObject *const *args, Py_ssize_t count,
                    PyObject *keywords, PyObject **values) {
  const int total = parameter_count(names);
  const int positional = names.keyword_only_from < total ? names.keyword_only_from : total;
  if (count > positional) {
    return raise_too_many(names, positional, count);
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    values[i] = args[i];
  }
  const Py_ssize_t keyword_count = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t k = 0; k < keyword_count; ++k) {
    PyObject *keyword = PyTuple_GET_ITEM(keywords, k);
    int index = 0;
    while (index < total &&
           PyUnicode_CompareWithASCIIString(keyword, names.parameters[index]) != 0) {
      ++index;
    }
    if (index == total) {
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", names.function,
                   keyword);
      return -1;
    }
    if (values[index]) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", names.function,
                   keyword);
      return -1;
    }
    values[index] = args[count + k];
  }
  for (int i = 0; i < names.required; ++i) {
    if (!values[i]) {
      PyErr_Format(PyExc_TypeError, "%s() missing required argument: '%s'", names.function,
                   names.parameters[i]);
      return -1;
    }
  }
  return 0;
}

}  // namespace modtree
