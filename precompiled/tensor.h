// SPDX-License-Identifier: Apache-2.0
// For kernels: also the intrinsics, of which Highway reads a part a target.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "precompiled/common.h"
