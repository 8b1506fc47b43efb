// SPDX-License-Identifier: BSD-3-Clause
// The shape of a torch tensor by the C functions that libtorch has for compiled models, whose ABI
// stays: a few instructions, where DLPack's table takes a reference under the GIL.
#pragma once

#include <pybind11/pytypes.h>

#include <cstdint>

namespace modtree {

class TensorSizes {
public:
  // Belongs to the tensor: gone as soon as anything else runs.
  struct Sizes {
    std::int64_t ndim = 0;
    std::int64_t *lengths = nullptr;
    std::int32_t device = 0;

    bool equal(const Sizes &other) const;
  };

  // Looks for the functions in a library that is loaded. Where one is missing, nothing is read.
  void find(const char *library);

  using Tensor = const void *const *;  // where the pointer to the implementation is

  // Of a tensor whose layout is known.
  static Tensor tensor_of(PyObject *object);

  // True if the tensor of libtorch is where objects of this type keep it: compared with `_cdata`
  // once for each type.
  bool knows_layout(PyObject *tensor);
  // True if that comparison was made and succeeded.
  bool has_known_layout(PyObject *object) const {
    return Py_TYPE(object) == known_[0] || Py_TYPE(object) == known_[1];
  }

  // Of a tensor whose layout is known. False where libtorch cannot tell; then nothing is read any
  // more, as it writes a line to stderr each time.
  bool read(PyObject *tensor, Sizes *sizes);
  bool is_meta(const Sizes &sizes) const { return sizes.device == meta_; }
  // Asks for the memory of the tensor of libtorch that any object keeps, if it is known to.
  void prefetch(PyObject *object) const;

private:
  static bool compare(PyObject *tensor);

  std::int32_t (*get_ndim_)(Tensor, std::int64_t *) = nullptr;
  std::int32_t (*get_lengths_)(Tensor, std::int64_t **) = nullptr;
  std::int32_t (*get_device_)(Tensor, std::int32_t *) = nullptr;
  std::int32_t meta_ = -1;
  bool is_found_ = false;
  // Types that live as long as torch: those of the tensors that are asked for.
  const PyTypeObject *known_[2] = {nullptr, nullptr};
};

// Right behind the head of the Python object: a pointer to the implementation is all that a tensor
// of libtorch is.
inline TensorSizes::Tensor TensorSizes::tensor_of(PyObject *object) {
  return reinterpret_cast<Tensor>(reinterpret_cast<const char *>(object) + sizeof(PyObject));
}

}  // namespace modtree
