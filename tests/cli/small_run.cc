// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/small_run.h"

#include <doctest/doctest.h>

SmallRun::SmallRun() {
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 300 --dev 40 --test 40").code == 0);
  const Result trained = heed_in(folder.path(),
                                 "train --data data --out run --layers 1 --width 16 --heads 2 --feed-forward 32 --batch-tokens 256 --steps "
                                 "60 --warmup 20 --learning-rate 0.01");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
}

const SmallRun& small() {
  static const SmallRun made;
  return made;
}

Result call(const std::string& line, const std::string& input) { return heed_in(small().folder.path(), line, input); }
