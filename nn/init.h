// SPDX-License-Identifier: Apache-2.0
// Initial values, as PyTorch's nn.init. For a weight [out, in, ...]: fan_in = in · rest, fan_out = out · rest.
// ShapeError where a parameter has not the dimensions that an initializer needs; Error for one made of none.
#pragma once
#include "nn/scope.h"

namespace heed {

Initializer constant_init(double value);
Initializer identity_init();                      // [n, m]: 1 on the diagonal, 0 elsewhere
Initializer uniform_init(double low, double high);
Initializer normal_init(double mean, double deviation);
Initializer xavier_uniform(double gain = 1);      // U(±gain √(6 / (fan_in + fan_out)))                 Glorot and Bengio 2010
Initializer xavier_normal(double gain = 1);       // N(0, gain² 2 / (fan_in + fan_out))
Initializer kaiming_uniform(double gain = 1.4142135623730951);  // U(±gain √(3 / fan_in)); gain √2 is for ReLU     He et al. 2015
Initializer kaiming_normal(double gain = 1.4142135623730951);   // N(0, gain² / fan_in)
Initializer orthogonal(double gain = 1);          // rows or columns orthonormal, times gain               Saxe et al. 2014
Initializer linear_uniform(Index fan_in);         // U(±1/√fan_in), PyTorch's start of Linear: weight and bias
// The first axis cut into blocks >= 1, each started by itself: packed projections. ShapeError where it does not divide, or is none.
Initializer stacked(Index blocks, Initializer one);
// All of them, except the row `index`, which is zero. IndexError where there is none
Initializer zero_row(Index index, Initializer rest);

}  // namespace heed
