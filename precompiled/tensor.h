// SPDX-License-Identifier: Apache-2.0
// For kernels: also what Highway reads.
#include <hwy/base.h>
#if HWY_ARCH_X86
#include <immintrin.h>
#endif

#include "precompiled/common.h"
