// SPDX-License-Identifier: Apache-2.0
#include "precompiled/heed.h"

#include <doctest/doctest.h>

#include "autograd/check.h"
#include "tests/close.h"
#include "tests/every_target.h"
