// SPDX-License-Identifier: Apache-2.0
// For the program: half of its files read or write JSON, whose templates cost every file that has read them half a second.
#include "precompiled/heed.h"

#include "tensor/json.h"
