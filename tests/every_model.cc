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
  model = make_model(run.config, parameters->root(), run.source.vocabulary, run.target.vocabulary);
}

Example SmallModel::example(const std::string& source, const std::string& target) const {
  return encode_pair(run.source, run.target, source, target, run.config.copy);
}

std::vector<std::string> every_model() {
  std::vector<std::string> all{
      "--layers 2 --heads 2",
      "--layers 1 --heads 4 --norm pre --positions learned --tie all --dropout 0.2 --attention-dropout 0.3",
      "--layers 2 --heads 2 --positions rope",
      "--layers 1 --heads 4 --positions rope_half --norm pre",
      "--layers 2 --heads 4 --positions alibi",
      "--layers 2 --heads 4 --key-value-heads 2 --norm pre",
      "--layers 1 --heads 4 --key-value-heads 1 --positions rope --attention-dropout 0.2",
      "--layers 2 --heads 2 --positions t5 --tie all",
      "--layers 2 --heads 2 --positions shaw --dropout 0.2 --attention-dropout 0.3",
      "--layers 2 --heads 2 --qk-norm l2 --positions rope --sliding-window 1",
      "--layers 1 --heads 4 --qk-norm rms --key-value-heads 2 --norm pre",
      "--layers 2 --heads 2 --qk-norm layer --positions t5 --sliding-window 2 --dropout 0.2 --attention-dropout 0.3",
      "--layers 1 --heads 2 --positions shaw --sliding-window 1 --normalise sparsemax",
      "--layers 2 --heads 4 --sliding-window 1 --dilation 1,2,1,3 --positions rope",
      "--layers 2 --heads 2 --sliding-window 1 --dilation 2 --global-tokens 1 --key-value-heads 1 --dropout 0.2 --attention-dropout 0.3",
      "--layers 1 --heads 2 --sliding-window 1 --global-tokens 2 --positions shaw --normalise entmax --qk-norm l2",
      "--layers 2 --heads 4 --normalise entmax --key-value-heads 2 --qk-norm l2 --attention-dropout 0.3",
      "--layers 1 --heads 2 --talking-heads --attention-dropout 0.3",
      "--layers 1 --heads 2 --normalise learned-entmax --norm pre",
      "--layers 2 --heads 2 --talking-heads --positions shaw --normalise top-2 --norm pre",
      "--layers 2 --heads 4 --differential --key-value-heads 2 --attention-dropout 0.3",
      "--layers 1 --heads 2 --differential --positions rope --norm pre",
      "--layers 1 --heads 2 --differential --talking-heads",
      "--layers 2 --heads 2 --linear-attention --dropout 0.2",
      "--layers 1 --heads 4 --linear-attention --key-value-heads 2 --qk-norm rms --norm pre --positions learned",
      "--layers 2 --heads 2 --linear-attention --random-features 12 --dropout 0.2",
      "--layers 1 --heads 4 --linear-attention --random-features 5 --key-value-heads 2 --norm pre"};
  for (const std::string name : {"mean", "additive", "additive-normed", "dot", "scaled-dot", "general", "general-scaled", "concat",
                                 "location", "gaussian", "cosine", "location-aware", "coverage", "local-m", "local-p"})
    for (const std::string decoder : {"bahdanau", "luong"})
      all.push_back("--model gru --attention " + name + " --decoder " + decoder + (name.starts_with("local") ? " --window 2" : ""));
  all.insert(
      all.end(),
      {"--model gru --attention none --decoder cho",
       "--model lstm --attention none --decoder sutskever --layers 2",
       "--model gru --decoder conditional",
       "--model gru --decoder cho-exact --attention none",
       "--model gru --decoder cho-exact --attention none --context both_ends --start-state backward --gru-form bahdanau --readout tanh "
       "--readout-state previous",
       "--model lstm --decoder conditional --attention local-p --window 2 --readout maxout --readout-state previous --start-state backward",
       "--model lstm --attention dot --layers 2 --input-feeding --reverse-source --start eos",
       "--model rnn --attention additive --readout tanh --readout-state previous",
       "--model gru --attention general-sparsemax --one-direction --decoder bahdanau",
       "--model gru --attention additive-top-2 --decoder luong",
       "--model gru --attention general-learned-entmax",
       "--model gru --attention gaussian-exp",
       "--layers 2 --decoder-layers 1 --heads 2 --activation silu --gated --activation-dropout 0.2",
       "--layers 1 --decoder-layers 3 --heads 2 --activation gelu --norm pre",
       "--layers 2 --heads 2 --rms-norm --dropout 0.2",
       "--layers 1 --heads 4 --rms-norm --norm pre --gated --activation silu --positions rope --key-value-heads 2",
       "--model gru --layers 2 --decoder-layers 1",
       "--model lstm --attention dot --layers 3 --decoder-layers 2",
       "--model gru --attention none --decoder sutskever --decoder-layers 2 --bridge linear",
       "--layers 2 --heads 2 --copy",
       "--layers 1 --heads 4 --copy --tie all --norm pre --attention-dropout 0.3 --label-smoothing 0",
       "--model gru --copy",
       "--model lstm --copy --attention local-m --window 1 --input-feeding --reverse-source",
       "--layers 2 --heads 2 --copy --copy-form copynet --differential",
       "--model gru --copy --copy-form copynet",
       "--model lstm --copy --copy-form copynet --attention none --reverse-source"});
  return all;
}
