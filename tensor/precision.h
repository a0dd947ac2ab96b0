// SPDX-License-Identifier: Apache-2.0
// How many bits the operands of a matrix product have; sums have at least 32.
#pragma once
#include <string_view>

namespace heed {

enum class Precision { float32, bfloat16, int8 };
Precision precision_named(std::string_view name);   // Error lists the names

}  // namespace heed
