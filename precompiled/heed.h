// SPDX-License-Identifier: Apache-2.0
// The same for all above tensor/.
#include "precompiled/tensor.h"

#include "autograd/ops.h"
#include "autograd/record.h"
#include "autograd/tape.h"
#include "tensor/json.h"
