// SPDX-License-Identifier: Apache-2.0
// For all else but the program.
#include "precompiled/common.h"

#include "autograd/ops.h"
#include "autograd/record.h"
#include "autograd/tape.h"
