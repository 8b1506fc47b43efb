// SPDX-License-Identifier: BSD-3-Clause
// What is used of DLPack (https://dmlc.github.io/dlpack), as its version 1.3 lays it out: the table
// of C functions that a library offers as `__dlpack_c_exchange_api__` of its tensor class.
#pragma once

#include <cstdint>

namespace modtree::dlpack {

constexpr std::uint32_t kMajorVersion = 1;
constexpr const char *kTableName = "dlpack_exchange_api";

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

enum DeviceType : std::int32_t { kCpu = 1 };

struct Device {
  std::int32_t type;
  std::int32_t id;
};

enum DataTypeCode : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kOpaqueHandle = 3,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4m3fn = 10,
  kFloat8E4m3fnuz = 11,
  kFloat8E5m2 = 12,
  kFloat8E5m2fnuz = 13,
  kFloat8E8m0fnu = 14,
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

// Owns nothing: `shape` and `strides` belong to the tensor.
struct Tensor {
  void *data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t *shape;
  std::int64_t *strides;
  std::uint64_t byte_offset;
};

// The same in all major versions.
struct TableHeader {
  Version version;
  TableHeader *previous;  // of an older major version, or null
};

// The functions that are not used have no type here.
using Function = void (*)();

struct Table {
  TableHeader header;
  Function managed_tensor_allocator;
  Function managed_tensor_from_py_object_no_sync;
  Function managed_tensor_to_py_object_no_sync;
  // 0, or -1 with a Python error set. May be null.
  int (*dltensor_from_py_object_no_sync)(void *object, Tensor *out);
  Function current_work_stream;
};

}  // namespace modtree::dlpack
