// SPDX-License-Identifier: Apache-2.0
// The data of a run: files to sentence pairs, pairs to tokens.
#pragma once
#include <string>
#include <vector>

#include "models/run.h"

namespace heed::cli {

struct Dataset {
  Corpus train, dev;
};
// Paths become absolute, auto becomes what the data, the kind of model and --vocabularies ask for.
void settle(RunConfig& config);
Dataset read_dataset(const RunConfig& config);                               // FileError
// train, dev, test, or another file of --data
Corpus read_part(const RunConfig& config, const std::string& part, CorpusOptions options = {});

// "warning: 3 of 1000 source sentences of test.tsv stand in the training data as well"
std::string shared_warning(Index shared, const Corpus& part);

// Whether links of the data count tokens as this run makes them.
bool has_links(const RunConfig& config);

// A note where the training data has links that this run does not read, as it counts other words, else nothing.
std::string unused_links(const RunConfig& config, const Corpus& train);

// Tokenizers and vocabularies of another run, or learned from the training part but for SentencePiece models that are there. Mistake where
// no word is left.
Run make_run(const std::string& path, const RunConfig& config, const Dataset& data);

// RUN/data.sha256 holds what the file of --split-by-source was when it was split: of other lines other sentences would be dev and test.
void keep_split_data(const Run& run);
void check_split_data(const Run& run);             // a warning where the file has changed

struct Examples {
  std::vector<Example> train, dev;
  std::string checksum;                            // of their ids
};
// Pairs left out as too long are counted in the reports.
Examples make_examples(const Run& run, Dataset& data);

}  // namespace heed::cli
