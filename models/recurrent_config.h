// SPDX-License-Identifier: Apache-2.0
// From the options of a run to a recurrent model.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "models/run_config.h"

namespace heed {

bool is_recurrent(std::string_view model);                // rnn, lstm, gru
// Options that the other kind of model lacks.
std::vector<std::string_view> recurrent_options();
std::vector<std::string_view> transformer_options();
// Error, with what there is, unless it is the name of an attention, "auto" or one of these others.
void check_attention(std::string_view name, std::vector<std::string_view> others = {});
// Every "auto" of a recurrent model becomes the name it stands for; window gets its value where one is read.
void settle_recurrent(RunConfig& config);
bool is_bahdanau(const RunConfig& settled);               // a BahdanauDecoder: bahdanau, conditional, cho, cho-exact; else a LuongDecoder
// Error where options of recurrent models do not fit together, or where one that another kind of model has was set.
void check_recurrent(const RunConfig& config);
void check_not_recurrent(const RunConfig& config);
std::unique_ptr<Seq2Seq> make_recurrent(const RunConfig& config, Scope scope, Index source_vocabulary, Index target_vocabulary,
                                        std::int32_t pad);

}  // namespace heed
