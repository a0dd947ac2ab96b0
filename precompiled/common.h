// SPDX-License-Identifier: Apache-2.0
// What nearly every file reads, parsed once a target; files still include what they use (.ci/run, tests/house_test.cc).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/format.h"
#include "tensor/tensor.h"
