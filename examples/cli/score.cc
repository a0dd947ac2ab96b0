// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "examples/cli/quality.h"
#include "models/text.h"
#include "models/tokenizer.h"
#include "tensor/json.h"

namespace heed::cli {
int score(std::span<const std::string> words) {
  std::string hypotheses, tokenizer = "13a", smoothing = "exp";
  std::string references;
  bool lowercase = false, words_too = false;
  std::string sources;
  Manner manner;
  const Syntax syntax{.command = "score",
                      .usage = "--hypotheses FILE --references FILE [options]",
                      .about = "BLEU, chrF and exact match with their signatures; the numbers are those of sacreBLEU.",
                      .example = "heed score --hypotheses translated.txt --references correct.txt",
                      .options = std::vector<Option>{
                          {.name = "hypotheses", .value = &hypotheses, .takes = "FILE", .help = "a translation a line; -: standard input"},
                          {.name = "references", .value = &references, .takes = "FILE",
                           .help = "what it should be; several files: A,B,..; -: standard input"},
                          {.name = "tokenize", .value = &tokenizer, .takes = "NAME",
                           .help = "of BLEU", .choices = {"13a", "none"}, .standard = "13a"},
                          {.name = "smooth", .value = &smoothing, .takes = "NAME",
                           .help = "of BLEU", .choices = {"exp", "floor", "add-k", "none"}, .standard = "exp"},
                          {.name = "lowercase", .value = &lowercase, .help = "compare without case"},
                          {.name = "chrf-words", .value = &words_too, .help = "chrF++: n-grams of words as well"},
                          {.name = "sources", .value = &sources, .takes = "FILE",
                           .help = "BLEU by the length of these, too; -: standard input"}
                      } + options(manner)};
  if (!parse(syntax, words)) return 0;
  check_required(hypotheses, "hypotheses", "a file with a translation a line");
  check_required(references, "references", "a file with a reference a line");
  if (std::ranges::count(std::array<std::string_view, 3>{hypotheses, references, sources}, "-") > 1)
    throw Mistake("standard input more than once: -; for one of --hypotheses, --references, --sources");
  const std::vector<std::string> hypothesis_lines = read_lines(hypotheses, manner);
  References all(hypothesis_lines.size());
  add_references(all, references, hypotheses, manner);
  const BleuOptions bleu_options{.tokenizer = tokenizer == "13a" ? BleuTokenizer::mteval_13a : BleuTokenizer::none,
                                 .smoothing = smoothing == "exp"     ? BleuSmoothing::exp
                                              : smoothing == "floor" ? BleuSmoothing::floor
                                              : smoothing == "add-k" ? BleuSmoothing::add_k
                                                                     : BleuSmoothing::none,
                                 .lowercase = lowercase};
  const BleuScore b = bleu(hypothesis_lines, all, bleu_options);
  const ChrfScore c = chrf(hypothesis_lines, all, {.word_order = words_too ? 2 : 0, .lowercase = lowercase});
  const double exact = 100 * exact_match(hypothesis_lines, all, lowercase);
  std::vector<LengthBucket> buckets;
  if (!sources.empty()) {
    const std::vector<std::string> lines = read_lines(sources, manner);
    if (lines.size() != hypothesis_lines.size())
      throw Mistake(fmt::format("numbers of lines differ: {} has {}, {} has {}; line n is the source of line n", hypotheses,
                                hypothesis_lines.size(), sources, lines.size()));
    const Tokenizer space;
    std::vector<Index> lengths;
    for (const std::string& line : lines) lengths.push_back(Index(space.tokens(line).size()));
    buckets = bleu_by_length(lengths, hypothesis_lines, all, 10, bleu_options);
  }
  if (manner.json) {
    Json json{{"bleu", b.score},
              {"bleu_signature", b.signature},
              {"precisions", b.precisions},
              {"brevity_penalty", b.brevity_penalty},
              {"length_ratio", b.length_ratio()},
              {"hypothesis_length", b.counts.hypothesis_length},
              {"reference_length", b.counts.reference_length},
              {"chrf", c.score},
              {"chrf_signature", c.signature},
              {"exact", exact},
              {"sentences", hypothesis_lines.size()}};
    for (const LengthBucket& bucket : buckets)
      json["by_length"].push_back(
          {{"above", bucket.above}, {"up_to", bucket.up_to}, {"sentences", bucket.segments}, {"bleu", bucket.bleu.score}});
    print(json_text(json) + "\n");
    return 0;
  }
  print(fmt::format("BLEU {:.2f}  ({})\n  {}\n", b.score, b.signature, bleu_parts(b)));
  print(fmt::format("{} {:.2f}  ({})\n", c.name, c.score, c.signature));
  print(fmt::format("exact match {:.2f} %  ({:.0f} of {}, by words)\n", exact, exact / 100 * double(hypothesis_lines.size()),
                    hypothesis_lines.size()));
  if (b.score == 0 && b.counts.totals.back() == 0)
    print("no hypothesis has four tokens: BLEU, as sacreBLEU has it, is 0 whatever is right\n");
  for (const LengthBucket& bucket : buckets)
    print(fmt::format("{:>4} to {:<4} words: BLEU {:.2f}  ({})\n", bucket.above + 1, bucket.up_to, bucket.bleu.score,
                      counted(bucket.segments, "sentence")));
  return 0;
}

}  // namespace heed::cli
