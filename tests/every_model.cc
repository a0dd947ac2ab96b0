// SPDX-License-Identifier: Apache-2.0
#include "tests/every_model.h"

#include "examples/cli/command.h"
#include "tests/cli/program.h"

using namespace heed;

SmallModel::SmallModel(const std::string& flags) : run{"", {}, {}, {}} {
  run.config.width = 16, run.config.feed_forward = 16;
  run.config.layers = 1;
  cli::parse({.command = "train", .usage = "", .about = "", .options = options(run.config)}, split(flags));
  const std::vector<std::string> lines{"a b c d"};
  run.source = run.target = build_side(lines, {});
  parameters = std::make_unique<Parameters>(Seed{7});
  model = make_model(run.config, parameters->root(), run.source.vocabulary.size(), run.target.vocabulary.size());
}

Example SmallModel::example(const std::string& source, const std::string& target) const {
  return {.source = encode(run.source, source), .target = encode(run.target, target), .links = {}};
}

std::vector<std::string> every_model() { return {"--layers 2 --heads 2", "--layers 1 --heads 4 --norm pre --positions learned --tie all --dropout 0.2 --attention-dropout 0.3"}; }
