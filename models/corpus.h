// SPDX-License-Identifier: Apache-2.0
// Corpora of sentence pairs: reading, checking, splitting.
#pragma once
#include <string>
#include <vector>

#include "models/alignment.h"
#include "models/text.h"

namespace heed {

struct Pair {
  std::string source, target;
  Alignment links{};               // of tokens as the tokenizer of the data makes them; checked against them by make_examples
  Index line = 0;                  // in the file, from 1
};

// What was read and what was left out. Nothing is dropped without being counted here.
struct CorpusReport {
  TextReport text{};
  Index pairs = 0;
  Index empty = 0, empty_kept = 0; // lines with a blank side, left out or kept as CorpusOptions say
  Index too_long = 0;              // pairs that make_examples left out
  Index unlinked = 0;              // pairs whose links were left out: cleaning took away a word that stood alone
  Index further_columns = 0;       // lines with more than four columns; the rest of the line is ignored
};

struct Corpus {
  std::string name;                // of the file or files
  std::vector<Pair> pairs;
  CorpusReport report;
};

// "train.tsv: 20000 lines, 19998 pairs, 1 of them left out as too long, 2 lines skipped for an empty side, .."
std::string to_string(const Corpus& corpus);

struct CorpusOptions {
  bool skip_empty = true;          // false: pair n answers line n, empty sides stay
};

// Lines `source TAB target [TAB sure links i-j .. [TAB possible links i?j ..]]`, read as LineReader reads.
// FileError: no such file, or one that is no text; a line with one column; a link that is none (with line and link); no pairs.
Corpus read_tsv(const std::string& path, CorpusOptions options = {});

// Line n of one file and line n of the other. FileError also where the numbers of lines differ (with both names and numbers).
Corpus read_parallel(const std::string& source_path, const std::string& target_path, CorpusOptions options = {});

struct SplitOptions { Index dev = 1500, test = 1500; };      // numbers of source sentences
struct CorpusSplit { Corpus train, dev, test; };

// No source sentence (cleaned, lower case) stands in two parts: its SHA-256 decides, the lowest go to dev, the next to test.
// All text is cleaned (TokenizerOptions::clean does the same to what is translated); links are kept where as many words are left. Dev and
// test keep the first target of each source. Error: nothing is left to train.
CorpusSplit split_by_source(const Corpus& corpus, SplitOptions options = {});

// How many pairs of `other` have a source sentence (cleaned, lower case) that `train` has as well.
Index shared_sources(const Corpus& train, const Corpus& other);

}  // namespace heed
