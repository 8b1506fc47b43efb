// SPDX-License-Identifier: BSD-3-Clause
// The one dispatch point: every operation on tensors is a call of an Op, which unwraps, promotes,
// runs and wraps.
#pragma once

#include "tensor/promote.h"

namespace modtree {

// What happens to the operands before the forward function sees them, and which dtype comes out.
enum class Promotion : unsigned char {
  none,      // arrays go in as they are
  arith,     // operands meet in their result type
  floating,  // the same, and integers become the default floating dtype
  compare,   // operands meet, the result is bool
  logical,   // arrays go in as they are, the result is bool
  bitwise,   // arith on integers and bools only
  same,      // operands must have one dtype already
};

constexpr Py_ssize_t kMaxArgs = 14;

// OpObject::fitting: all numbers the dtype, as torch casts them one by one; the exponent integers
// and float16; or numbers stay in float32 beside float16.
constexpr unsigned char kFittingAll = 1;
constexpr unsigned char kFittingExponent = 2;
constexpr unsigned char kFittingSingle = 3;

// Dtypes, one bit for the number of each, for which an operation is not defined.
struct UnfitDtypes {
  std::uint32_t missing;  // NotImplementedError, as torch raises where it has no kernel
  std::uint32_t refused;  // RuntimeError, as torch raises where the operation has no meaning

  bool has(int num) const {
    return (missing | refused) != 0 && num >= 0 && num < 32 &&
           ((missing | refused) >> num & 1) != 0;
  }
};

// _limit(missing, refused, ...): the masks from Python. False with an error set.
bool parse_unfit(PyObject *args, UnfitDtypes *unfit, int *tensors_only, int *fitting);

// Says that the operation is not defined for the dtype `num`, which `unfit` has.
void raise_unfit(PyObject *name, const UnfitDtypes &unfit, int num);

// One operation of the registry (modtree/numpy/ops/registry.py). `forward` works on ndarrays with
// NumPy's own argument names, so that np.f(t) and t.f() are the same operation; derivatives belong
// to operations as well.
struct OpObject {
  // What a derivative function wants of the call: bits are positional arguments.
  struct Keep {
    std::uint32_t arrays;  // the arrays themselves
    std::uint32_t shapes;  // stand-ins with their shapes and dtypes
    bool result;

    void merge(const Keep &other) {
      arrays |= other.arrays;
      shapes |= other.shapes;
      result |= other.result;
    }
  };
  enum class Derivative : unsigned char { unknown, none, known };

  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject *name;     // owned str
  PyObject *forward;  // owned callable
  PyObject *meta;     // owned: (arrays..., **kwargs) -> (shape, dtype) for meta tensors, or null
  PyObject *doc;      // owned, or null
  PyObject *dict;     // attributes, made on demand
  int first;          // index of the first operand among the positional arguments
  int operands;  // how many operands take part in promotion (-1: the items of the argument `first`)
  Promotion promotion;
  bool is_view;           // the result may share memory with the first argument
  bool is_strict_view;    // it must
  bool is_ufunc;          // forward is a NumPy ufunc: runs no Python code
  bool no_bool;           // not defined for bool (subtraction)
  bool check_zero;        // integer division: a zero divisor is an error
  bool writes_into;       // forward takes `out`, an array to write into, also its first argument
  bool tensors_only;      // operands are tensors, not Python numbers
  unsigned char fitting;  // what numbers among the operands must fit: a constant below
  UnfitDtypes unfit;      // dtypes of the operands, before integers become floats, that are refused
  // Of how many operands, from the right, a Python number has a place among the edges of a node, as
  // in torch, where these operations make a tensor of it.
  unsigned char number_edges;
  // -- the derivative; functions[i] belongs to positional argument i: null where there is none,
  // True where the gradient passes unchanged
  Derivative derivative;
  bool runs_on_tensors;  // the functions do, so that gradients can be derived again
  int n_functions;
  PyObject *functions[kMaxArgs];  // owned
  Keep keep[kMaxArgs];            // of each function; keep[0] of the joint one
  PyObject *joint;                // owned: one function for all arguments, or null
  PyObject *record;         // owned: the forward function that also returns what to save, or null
  PyObject *backward_name;  // owned: "MulBackward0"
  PyObject *out_rule;  // owned: what dtypes `out` may have (modtree/numpy/ops/out.py); null: no out
};

extern PyTypeObject *op_type;

// Calls with the vectorcall convention; keyword values follow the positional ones. New reference.
PyObject *op_call(OpObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

// self = op(self, others...), written into self. 0, or -1 with an error set.
int op_inplace(OpObject *op, TensorObject *self, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames);

// callable(*args, **kwargs) where a keyword is `out`, or an operand by its name: taken apart by
// modtree/numpy/ops/out.py.
PyObject *call_by_name(PyObject *callable, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);

// A tensor, an ndarray or a number: what arithmetic takes.
inline bool is_operand(PyObject *obj) {
  DTypeCategory category;
  return is_tensor(obj) || number_category(obj, &category) || PyArray_Check(obj);
}

// A result of NumPy as the caller gets it: arrays and NumPy scalars become tensors, also inside a
// tuple or list. Steals. `shared`: user code may hold arrays of it.
PyObject *wrap_result(PyObject *result, bool shared = false);

void make_op_type(py::handle m);

}  // namespace modtree
