// SPDX-License-Identifier: Apache-2.0
// A small untrained model of each kind that `heed train` makes, by the flags that make it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/run.h"

struct SmallModel {
  explicit SmallModel(const std::string& flags);   // "--model lstm --attention dot", over the words a b c d
  heed::Example example(const std::string& source, const std::string& target) const;

  heed::Run run;
  std::unique_ptr<heed::Parameters> parameters;
  std::unique_ptr<heed::Seq2Seq> model;
};

std::vector<std::string> every_model();            // the flags of all of them
