// SPDX-License-Identifier: Apache-2.0
// All tests find NaN, and ids of -1, in memory that nothing was written to.
#define DOCTEST_CONFIG_IMPLEMENT  // stated too: the precompiled header has read the part of doctest.h that derives it
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "tensor/storage.h"

namespace {

const struct Fill { Fill() { heed::fill_fresh_memory_with_nan(true); } } fill;

}  // namespace
