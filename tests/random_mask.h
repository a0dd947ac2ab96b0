// SPDX-License-Identifier: Apache-2.0
// Masks of every kind and their combinations:
// lengths from 0, causal, windows, with gaps and global positions, explicit ones, rows without any position.
#pragma once
#include "tensor/mask.h"
#include "tensor/ops/random.h"

inline heed::Mask random_mask(heed::Random& random, heed::Key key, heed::Index B, heed::Index H, heed::Index T, heed::Index S) {
  using namespace heed;
  Mask mask;
  if (random.below(2)) mask = mask & Mask::lengths(to(randint(key / 0, {B}, 0, random.below(8) ? S + 1 : 1), DType::i32));
  if (random.below(3) == 0) mask = mask & Mask::causal(random.below(S + 5) - 5);
  const Index window = random.below(4);
  if (window == 0) mask = mask & Mask::window(random.below(10), random.below(10), random.below(5));
  if (window == 1)
    mask = mask & Mask::sliding({.left = random.below(6), .right = random.below(6), .offset = random.below(S + 5) - 5,
                                 .dilation = random.below(3) ? to(randint(key / 2, {H}, 1, 5), DType::i32) : Tensor(),
                                 .global = random.below(2) ? random.below(S + 2) : random.below(4)});
  if (random.below(3) == 0)
    mask = mask & Mask::allowed(bernoulli(key / 1, {random.below(2) ? B : 1, random.below(2) ? H : 1, random.below(2) ? T : 1, S},
                                          random.below(5) ? random.uniform() : 0));
  return mask;
}
