// SPDX-License-Identifier: Apache-2.0
#include "tensor/precision.h"

#include "tensor/format.h"

namespace heed {

Precision precision_named(std::string_view name) {
  if (name == "float32") return Precision::float32;
  if (name == "bfloat16") return Precision::bfloat16;
  if (name == "int8") return Precision::int8;
  fail<Error>("precision: unknown name {}; one of float32, bfloat16, int8", quote(name));
}

}  // namespace heed
