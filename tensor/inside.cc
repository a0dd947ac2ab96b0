// SPDX-License-Identifier: Apache-2.0
#include "tensor/inside.h"

namespace heed {
namespace {
thread_local std::string_view current;
}

Inside::Inside(std::string_view path) : previous_(current) { current = path; }
Inside::~Inside() { current = previous_; }
std::string_view current_path() { return current; }

}  // namespace heed
