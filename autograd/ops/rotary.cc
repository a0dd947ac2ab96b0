// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/rotary.h"

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"

namespace heed {

Variable rotary(const Variable& x, const Rotations& rotations) {
  return record(
      "rotary", rotary(x.value(), rotations), {x},
      [dx = x.slot(), cosines = saved(rotations.cosines), sines = saved(rotations.sines), layout = rotations.layout](const Tensor& dy) {
        dx.gradient([&](Into out) { rotary_grad(dy, {cosines, sines, layout}, out); });
      });
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void rotary_samples(SampleTable& table) {
  const auto turned = [](RotaryLayout layout) {
    return [layout](auto x) { return rotary(x[0], rotations(x[0].size(-2), x[0].size(-1), x[0].dtype(), layout, 2, 50)); };
  };
  table.both("rotary", turned(RotaryLayout::interleaved), {{{2, 3, 6}}});
  table.both("rotary half", turned(RotaryLayout::half), {{{2, 3, 6}}});
  table.both("rotary wide", turned(RotaryLayout::interleaved), {{{2, 38}}});
  table.both("rotary half wide", turned(RotaryLayout::half), {{{2, 38}}});
}

}  // namespace heed
