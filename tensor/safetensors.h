// SPDX-License-Identifier: Apache-2.0
// Named tensors in a file: the safetensors format, byte for byte as its reference writes it. A file is data and nothing else:
// reading one runs nothing, believes no number before it is checked, and takes no more memory than the file has bytes, those of the header
// twice.
//
//   8 bytes N (little-endian) | N bytes JSON | data
//   {"__metadata__":{"format":"pt"},"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace heed {

struct StoredTensor {
  std::string name;
  std::string_view stored_as;                  // the file's word for the dtype: "F32", "BF16", "F8_E4M3", ...
  std::optional<DType> dtype;                  // nothing where Heed does not compute with it
  Shape shape;
  std::uint64_t begin, end;                    // bytes of the file
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;           // in the order of their bytes
  std::map<std::string, std::string> metadata; // as in the file
  std::uint64_t file_bytes;
};

struct OtherTensor {
  std::string_view stored_as;
  Shape shape;
  Tensor bytes;                                // u8
};

struct SafetensorsFile {
  std::map<std::string, Tensor> tensors;       // of Heed's dtypes, tied ones under each of their names
  std::map<std::string, OtherTensor> others;   // of other dtypes
  std::map<std::string, std::string> metadata; // without what Heed itself keeps there: checksum, names of tied tensors
  SafetensorsHeader header;
  std::string path;
  bool has_checksum;                           // and it was right

  const Tensor& at(const std::string& name) const;   // FileError: no such tensor, or of a dtype that Heed does not compute with
};

// What a file holds, checked as read_safetensors checks it, without the data. FileError gives path, tensor or byte, found and
// expected.
SafetensorsHeader read_safetensors_header(const std::string& path);

// Reads all tensors. A checksum in the metadata is verified; files without one (PyTorch's) load.
SafetensorsFile read_safetensors(const std::string& path);

// Its tensors of F16, BF16, F32 and F64 as tensors of this dtype, rounded to the nearest; DTypeError unless f32 or f64.
void convert_floats(SafetensorsFile& file, DType dtype);

struct SafetensorsOptions {
  bool checksum = true;                        // XXH64 of header and data, in the metadata; false: exactly the metadata given
};

// Same tensors and metadata, same bytes: sorted by dtype and name, no time, no host. Tensors that are one and the same memory
// are stored once, under the first of their names. The file replaces an older one in one step (tensor/file.h).
void write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {}, SafetensorsOptions options = {});

}  // namespace heed
