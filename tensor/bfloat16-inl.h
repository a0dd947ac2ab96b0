// SPDX-License-Identifier: Apache-2.0
// AVX512-BF16, which Highway 1.0.3 does not reach: its intrinsics, and the target of a kernel that has them. x86-64 only.
#pragma once
#include <hwy/base.h>
#include <immintrin.h>

// g++ 12 finds __Y = __Y in its own header
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define HEED_BFLOAT16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
