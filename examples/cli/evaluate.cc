// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "examples/cli/dataset.h"
#include "examples/cli/model.h"
#include "examples/cli/progress.h"
#include "examples/cli/quality.h"
#include "models/text.h"
#include "tensor/json.h"
#include "tensor/packed.h"

namespace heed::cli {
namespace {

struct Asked {
  RunFlags run;
  SearchFlags search;
  Manner manner;
  std::string data, split = "test", references, out;
  std::vector<std::string> files;
  bool force = false;
  bool names_data() const { return !data.empty() || !files.empty(); }   // else those of the run
};

// Mistake where flags exclude each other.
void check_flags(const Asked& asked, std::span<const Option> searching, const Given& given) {
  if (!asked.data.empty() && !asked.files.empty()) throw Mistake("more than one source of data: --data --files; only one of them");
  if (!asked.files.empty() && given.contains("split"))
    throw Mistake(fmt::format("parts are of --data or the run: --files {} {} --split {}; only one of them", asked.files[0], asked.files[1],
                              asked.split));
  if (!asked.force) return;
  if (!asked.references.empty())
    throw Mistake(fmt::format("nothing is translated: --force --references {}; one of them", asked.references));
  if (!asked.out.empty())
    throw Mistake(fmt::format("nothing is translated: --force --out {}; leave out --out, standard output has the scores", asked.out));
  for (const Option& option : searching)
    if (option.name != "precision" && given.contains(option.name))
      throw Mistake(fmt::format("nothing is translated: --force --{}; one of them", option.name));
}

// Where the pairs are read from.
RunConfig data_config(const Asked& asked, const RunConfig& run) {
  if (!asked.names_data()) return run;
  RunConfig config;
  config.data = asked.data;
  config.test_files = asked.files;
  config.tokenizer = run.tokenizer;
  return config;
}

// Mistake where the output is one of the files that are read.
Corpus read_corpus(const Asked& asked, const Ready& model) {
  const RunConfig config = data_config(asked, model.run.config);
  Corpus corpus = read_part(config, asked.split, {.skip_empty = false});
  if (!asked.names_data()) check_split_data(model.run);
  if (asked.out.empty()) return corpus;
  check_not_data(config, asked.out);
  if (!config.data.empty()) check_different(corpus.name, asked.out);
  if (!asked.references.empty())
    for (const std::string& file : listed_files(asked.references, "references"))
      check_different(file == "-" ? "/dev/stdin" : file, asked.out);
  return corpus;
}

// A warning where sentences were trained on; none where the training data is gone.
void warn_of_shared(const Asked& asked, const RunConfig& run, const Corpus& corpus) {
  if (!asked.names_data() && (asked.split == "train" || run.split_by_source)) return;
  std::vector<std::string> files = run.train_files;
  if (files.empty()) files.push_back(run.data.empty() ? run.train : run.data + "/train.tsv");
  std::error_code ignored;
  if (!std::ranges::all_of(files, [&](const std::string& file) { return std::filesystem::is_regular_file(file, ignored); })) return;
  try {
    if (const Index shared = shared_sources(read_part(run, "train"), corpus); shared > 0) note(shared_warning(shared, corpus));
  } catch (const Error&) {                         // no longer what it was, or may not be looked at
  }
}

// A pair with a blank side is no part of the loss, as in training.
bool in_loss(const Corpus& corpus, const Example& example) {
  const Pair& pair = corpus.pairs[std::size_t(example.pair)];
  return !is_blank(pair.source) && !is_blank(pair.target);
}

std::vector<Example> make_examples(const Run& run, const Corpus& corpus, bool links, const Manner& manner) {
  Index too_long = 0;
  std::vector<Example> examples = heed::make_examples(
      corpus, run.source, run.target, {.max_length = run.config.max_length, .links = links, .copies = run.config.copy}, &too_long);
  if (!manner.quiet && (too_long > 0 || corpus.report.empty_kept > 0 || corpus.report.text.invalid > 0)) {
    Corpus said = corpus;
    said.report.too_long = too_long;
    note(to_string(said));
  }
  return examples;
}

struct TotalLoss {
  double sum = 0;
  Index tokens = 0, sentences = 0;
  double mean() const { return sum / double(tokens); }   // nan without pairs
};

TotalLoss total_loss(const Corpus& corpus, std::span<const Example> examples, std::span<const double> losses) {
  TotalLoss total;
  for (std::size_t i = 0; i < examples.size(); ++i)
    if (in_loss(corpus, examples[i])) total.sum += losses[i], total.tokens += Index(examples[i].target.size()), ++total.sentences;
  return total;
}

std::string without_tabs(std::string text) {
  std::ranges::replace(text, '\t', ' ');
  return text;
}

// log P TAB target tokens TAB source TAB target, a line a pair; nan where the pair is too long for the model.
void print_forced(const Run& run, const Corpus& corpus, std::span<const Example> examples, std::span<const double> losses, bool json) {
  std::size_t scored = 0;
  for (std::size_t i = 0; i < corpus.pairs.size(); ++i) {
    const Pair& pair = corpus.pairs[i];
    const bool fits = scored < examples.size() && examples[scored].pair == Index(i);
    const double log_probability = fits ? -losses[scored] : std::nan("");
    const std::size_t tokens = fits ? examples[scored].target.size() : encode(run.target, pair.target).size();
    scored += fits;
    if (json)
      print(json_text(Json{{"log_probability", log_probability}, {"tokens", tokens}, {"source", pair.source}, {"target", pair.target}}) +
            "\n");
    else print(fmt::format("{:.6f}\t{}\t{}\t{}\n", log_probability, tokens, without_tabs(pair.source), without_tabs(pair.target)));
  }
}

struct Scores {
  std::string data, weights;
  std::size_t sentences;
  TotalLoss loss;
  bool short_ones;                                 // no reference has four tokens
  BleuScore bleu, token_bleu, lower_bleu;          // of texts, of tokens, of tokens without case
  ChrfScore chrf;
  Index exact;                                     // sentences
  AlignmentQuality alignment;
  double exact_percent() const { return 100 * double(exact) / double(sentences); }
};

Scores scores_of(const Ready& model, const Corpus& corpus, const TotalLoss& loss, const Translated& translated,
                 const References& references, const AlignmentQuality& alignment) {
  const bool lowercase = model.run.config.lowercase;
  const BleuScore text_bleu = bleu(translated.texts, references, {.lowercase = lowercase});
  BleuOptions tokens = token_bleu_options(translated.reference_tokens), without_case = tokens;
  without_case.lowercase = true;
  return {.data = corpus.name,
          .weights = model.loaded.file,
          .sentences = translated.texts.size(),
          .loss = loss,
          .short_ones = tokens.effective_order,
          .bleu = text_bleu,
          .token_bleu = bleu(translated.token_lines, translated.reference_tokens, tokens),
          .lower_bleu = bleu(translated.token_lines, translated.reference_tokens, without_case),
          .chrf = chrf(translated.texts, references, {.lowercase = lowercase}),
          .exact = translated.exact,
          .alignment = alignment};
}

void print_json(const Scores& s) {
  Json json{{"data", s.data},
            {"weights", s.weights},
            {"sentences", s.sentences},
            {"loss_sentences", s.loss.sentences},
            {"loss", s.loss.mean()},
            {"perplexity", std::exp(s.loss.mean())},
            {"bleu", s.bleu.score},
            {"bleu_signature", s.bleu.signature},
            {"brevity_penalty", s.bleu.brevity_penalty},
            {"length_ratio", s.bleu.length_ratio()},
            {"token_bleu", s.token_bleu.score},
            {"token_bleu_signature", s.token_bleu.signature},
            {"token_bleu_lowercase", s.lower_bleu.score},
            {"token_bleu_lowercase_signature", s.lower_bleu.signature},
            {"chrf", s.chrf.score},
            {"chrf_signature", s.chrf.signature},
            {"exact", s.exact_percent()}};
  if (std::isfinite(s.alignment.error_predicted))
    json.update({{"alignment_error", s.alignment.error_predicted},
                 {"alignment_error_input", s.alignment.error_input},
                 {"alignment_accuracy", s.alignment.accuracy},
                 {"monotone_share", s.alignment.monotone_share}});
  print(json_text(json) + "\n");
}

void print_text(const Scores& s) {
  const double loss = s.loss.mean();
  const std::string some = s.loss.sentences == Index(s.sentences) ? "" : fmt::format(" (of {})", counted(s.loss.sentences, "sentence"));
  print(fmt::format("{}: {}, {}\n", s.data, counted(Index(s.sentences), "sentence"),
                    s.loss.sentences == 0 ? "no loss: no pair has words on both sides and the length of training"
                                          : fmt::format("loss {:.4f} per token, perplexity {:.3f}{}", loss, std::exp(loss), some)));
  print(fmt::format("BLEU {:.1f}  ({})\n  {}\n", s.bleu.score, s.bleu.signature, bleu_parts(s.bleu)));
  print(fmt::format("BLEU of tokens {:.1f}  ({})\n", s.token_bleu.score, s.token_bleu.signature));
  if (s.lower_bleu.score != s.token_bleu.score)
    print(fmt::format("BLEU of lower-cased tokens {:.1f}  ({})\n", s.lower_bleu.score, s.lower_bleu.signature));
  print(fmt::format("{} {:.1f}  ({})\n", s.chrf.name, s.chrf.score, s.chrf.signature));
  print(fmt::format("exact match {:.1f} %  ({} of {}, by tokens)\n", s.exact_percent(), s.exact, s.sentences));
  if (std::isfinite(s.alignment.error_predicted)) {
    print(
        fmt::format("alignment error {:.3f}  (against the links of the data, each row of the last cross-attention read as the word it "
                    "predicts; as the word before it {:.3f})\n",
                    s.alignment.error_predicted, s.alignment.error_input));
    print(
        fmt::format("alignment accuracy {:.1f} %  (surely linked target words whose largest weight is on a link), monotone share {:.1f} % "
                    "(adjacent words that do not look back)\n",
                    100 * s.alignment.accuracy, 100 * s.alignment.monotone_share));
  }
  if (s.short_ones)
    print("no reference has four tokens: BLEU of tokens counts the orders there are, sacreBLEU all four, and right translations as 0\n");
}

}  // namespace

int evaluate(std::span<const std::string> words) {
  Asked asked;
  std::vector<Option> searching = options(asked.search);
  std::erase_if(searching, [](const Option& option) { return option.name == "nbest"; });    // one translation is scored
  const Syntax syntax{.command = "evaluate",
                      .usage = "--run RUN [--data DIR] [--split test] [options]",
                      .about = "Loss, perplexity, BLEU, chrF and exact match of a model on data, and how its attention agrees with the links of the data.",
                      .example = "heed evaluate --run phrases --data phrases-data --beam 4",
                      .options = options(asked.run) + ensemble_options(asked.run) + std::vector<Option>{
                          {.name = "data", .value = &asked.data, .takes = "DIR",
                           .help = "with train.tsv, dev.tsv, test.tsv; else the data of the run", .heading = "Data"},
                          {.name = "split", .value = &asked.split, .takes = "NAME",
                           .help = "NAME.tsv of it: train, dev, test, test-long, ..", .standard = "test"},
                          {.name = "files", .value = &asked.files, .takes = "SRC TGT", .help = "or two parallel files", .count = 2},
                          {.name = "references", .value = &asked.references, .takes = "FILE",
                           .help = "further references, line n of pair n; several files: A,B,.."},
                          {.name = "force", .value = &asked.force,
                           .help = "only score the given pairs: log P (nan where a side is too long), tokens, source, target"},
                          {.name = "out", .value = &asked.out, .takes = "FILE", .help = "write the translations there"}
                      } + searching + options(asked.manner)};
  Given given;
  if (!read(syntax, words, given)) return 0;
  set_options(syntax, given);
  check_flags(asked, searching, given);
  const TranslateOptions translate_with = translate_options(asked.search, given);
  if (!asked.out.empty()) check_output(asked.out);
  const Ready model = ready(asked.run);
  const Run& run = model.run;
  check_search(asked.search, model);
  PackedWeights weights(precision_named(asked.search.precision));
  const PackedWeights::Use use(weights);
  if (!asked.out.empty()) check_outside(model, asked.out);
  const Corpus corpus = read_corpus(asked, model);
  if (!asked.manner.quiet) warn_of_shared(asked, run.config, corpus);
  References references = single_references(target_lines(corpus));
  if (!asked.references.empty()) add_references(references, asked.references, corpus.name, asked.manner);
  const std::vector<Example> examples = make_examples(run, corpus, !asked.force && has_links(data_config(asked, run.config)), asked.manner);
  const std::vector<double> losses = negative_log_likelihoods(run, model.translator(), examples);
  const TotalLoss total = total_loss(corpus, examples, losses);
  if (asked.force) {
    print_forced(run, corpus, examples, losses, asked.manner.json);
    if (!asked.manner.quiet && total.sentences > 0)
      note(fmt::format("loss {:.4f} per token, perplexity {:.4f}", total.mean(), perplexity(total.sum, total.tokens)));
    return 0;
  }
  Progress progress(std::cerr, Progress::standard_error(asked.manner.quiet));
  const auto show = [&](Index done) {
    progress.update({.unit = "sentence", .done = done, .total = Index(corpus.pairs.size())});
    return true;
  };
  Overlooked overlooked;
  const Translated translated =
      *translate_lines(run, model.translator(), source_lines(corpus), references, translate_with, show, &overlooked);
  progress.finish();
  const bool linked = !model.ensemble && std::ranges::any_of(examples, [](const Example& example) { return !example.links.sure.empty(); });
  const Scores scores = scores_of(model, corpus, total, translated, references,
                                  linked ? alignment_quality(run, model.model(), examples) : AlignmentQuality());
  asked.manner.json ? print_json(scores) : print_text(scores);
  flush();                                         // the file may fail
  if (!asked.out.empty()) write_file_atomically(asked.out, fmt::format("{}\n", fmt::join(translated.texts, "\n")));
  note_unknown(std::vector<std::string>(overlooked.unknown.begin(), overlooked.unknown.end()), asked.manner);
  note_cut(overlooked, run, run.config.max_length, asked.manner);
  return 0;
}

}  // namespace heed::cli
