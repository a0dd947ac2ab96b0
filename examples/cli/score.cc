// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "examples/cli/quality.h"
#include "models/text.h"
#include "models/tokenizer.h"
#include "tensor/json.h"

namespace heed::cli {
namespace {

struct Scores {
  BleuScore bleu;
  ChrfScore chrf;
  double exact;                                    // percent
  std::size_t sentences;
  std::vector<LengthBucket> buckets;
};

void print_json(const Scores& s) {
  Json json{{"bleu", s.bleu.score},
            {"bleu_signature", s.bleu.signature},
            {"precisions", s.bleu.precisions},
            {"brevity_penalty", s.bleu.brevity_penalty},
            {"length_ratio", s.bleu.length_ratio()},
            {"hypothesis_length", s.bleu.counts.hypothesis_length},
            {"reference_length", s.bleu.counts.reference_length},
            {"chrf", s.chrf.score},
            {"chrf_signature", s.chrf.signature},
            {"exact", s.exact},
            {"sentences", s.sentences}};
  for (const LengthBucket& bucket : s.buckets)
    json["by_length"].push_back(
        {{"above", bucket.above}, {"up_to", bucket.up_to}, {"sentences", bucket.segments}, {"bleu", bucket.bleu.score},
         {"bleu_signature", bucket.bleu.signature}});
  print(json_text(json) + "\n");
}

void print_text(const Scores& s) {
  print(fmt::format("BLEU {:.2f}  ({})\n  {}\n", s.bleu.score, s.bleu.signature, bleu_parts(s.bleu)));
  print(fmt::format("{} {:.2f}  ({})\n", s.chrf.name, s.chrf.score, s.chrf.signature));
  print(fmt::format("exact match {:.2f} %  ({:.0f} of {}, by words)\n", s.exact, s.exact / 100 * double(s.sentences), s.sentences));
  if (s.bleu.score == 0 && s.bleu.counts.totals.back() == 0)
    print("no hypothesis has four tokens: BLEU, as sacreBLEU has it, is 0 whatever is right\n");
  for (const LengthBucket& bucket : s.buckets)
    print(fmt::format("{:>4} to {:<4} words: BLEU {:.2f}  ({})\n", bucket.above + 1, bucket.up_to, bucket.bleu.score,
                      counted(bucket.segments, "sentence")));
  if (std::ranges::any_of(s.buckets, [&](const LengthBucket& bucket) { return bucket.bleu.signature != s.bleu.signature; }))
    print("lengths at which no reference has four tokens: their BLEU counts the orders there are (eff:yes)\n");
}

}  // namespace

int score(std::span<const std::string> words) {
  std::string hypotheses, references, sources, tokenizer = "13a", smoothing = "exp";
  bool lowercase = false, words_too = false;
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
  Scores scores{.bleu = bleu(hypothesis_lines, all, bleu_options),
                .chrf = chrf(hypothesis_lines, all, {.word_order = words_too ? 2 : 0, .lowercase = lowercase}),
                .exact = 100 * exact_match(hypothesis_lines, all, lowercase),
                .sentences = hypothesis_lines.size(),
                .buckets = {}};
  if (!sources.empty()) {
    const std::vector<std::string> lines = read_lines(sources, manner);
    if (lines.size() != hypothesis_lines.size())
      throw Mistake(fmt::format("numbers of lines differ: {} has {}, {} has {}; line n is the source of line n", hypotheses,
                                hypothesis_lines.size(), sources, lines.size()));
    const Tokenizer space;
    std::vector<Index> lengths;
    for (const std::string& line : lines) lengths.push_back(Index(space.tokens(line).size()));
    scores.buckets = bleu_by_length(lengths, hypothesis_lines, all, 10, bleu_options);
  }
  manner.json ? print_json(scores) : print_text(scores);
  return 0;
}

}  // namespace heed::cli
