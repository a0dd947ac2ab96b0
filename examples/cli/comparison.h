// SPDX-License-Identifier: Apache-2.0
// What `heed compare` measures of its models: one result of each seed as JSON, all of them as tables and pictures.
#pragma once
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "examples/cli/quality.h"
#include "tensor/json.h"

namespace heed::cli {

struct ComparedResult {
  std::string name;
  Index seed = 0, width = 0, parameters = 0, steps = 0;
  double multiply_adds = NAN, step_ms = NAN, train_loss = NAN, dev_loss = NAN, bleu = NAN, exact = NAN;   // NAN: not measured
  AlignmentQuality alignment{};
  struct Bucket { Index above, up_to, sentences; double bleu; };
  std::vector<Bucket> buckets;                     // BLEU by the length of the source
};
Json to_json(const ComparedResult& result);
std::optional<ComparedResult> compared_result(const Json& json);   // nothing where it is none of to_json's

struct ComparedGroup {
  std::string name;
  std::vector<ComparedResult> results;             // one a seed
};

struct ComparisonStyle {
  std::string bleu = "BLEU", noun = "word", split = "test";   // what it is called, a token, the part of the data
  Index seeds = 1, bucket = 5;                     // source tokens to a bucket
};
std::string text_table(std::span<const ComparedGroup> groups, const ComparisonStyle& style);
// table.txt, table.csv, bleu.svg, length.svg, and alignment.svg where there is one
void write_tables(const std::string& folder, std::span<const ComparedGroup> groups, const ComparisonStyle& style);

}  // namespace heed::cli
