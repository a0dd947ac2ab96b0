// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "examples/cli/dataset.h"
#include "examples/cli/model.h"
#include "examples/cli/progress.h"
#include "examples/cli/quality.h"
#include "tensor/json.h"
#include "tensor/packed.h"

namespace heed::cli {
namespace {

// The data to evaluate on: what the flags name, else what the run was trained with.
RunConfig data_of(const Run& run, const std::string& data, const std::vector<std::string>& files) {
  if (data.empty() && files.empty()) return run.config;
  RunConfig config;
  config.data = data;
  config.test_files = files;
  config.tokenizer = run.config.tokenizer;
  return config;
}

// Mistake where the output is a file of the data: the name of a corpus is that of no file where it is a part of one, or of two.
void check_not_data(const RunConfig& config, const Corpus& corpus, const std::string& out) {
  check_different(config.data.empty() ? config.train : corpus.name, out);
  for (const auto* files : {&config.train_files, &config.dev_files, &config.test_files})
    for (const std::string& file : *files) check_different(file, out);
}

bool has_blank_side(const Pair& pair) { return is_blank(pair.source) || is_blank(pair.target); }

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
    if (json) print(json_text(Json{{"log_probability", log_probability}, {"tokens", tokens}, {"source", pair.source}, {"target", pair.target}}) + "\n");
    else print(fmt::format("{:.6f}\t{}\t{}\t{}\n", log_probability, tokens, without_tabs(pair.source), without_tabs(pair.target)));
  }
}

}  // namespace

int evaluate(std::span<const std::string> words) {
  RunFlags run_flags;
  SearchFlags search_flags;
  Manner manner;
  std::string data, split = "test", further, out;
  std::vector<std::string> files;
  bool force = false;
  std::vector<Option> searching = options(search_flags);
  std::erase_if(searching, [](const Option& option) { return option.name == "nbest"; });    // one translation is scored
  const Syntax syntax{.command = "evaluate",
                      .usage = "--run RUN [--data DIR] [--split test] [options]",
                      .about = "Loss, perplexity, BLEU, chrF and exact match of a model on data.",
                      .example = "heed evaluate --run phrases --data phrases-data --beam 4",
                      .options = options(run_flags) +
                                 std::vector<Option>{{.name = "data", .value = &data, .takes = "DIR", .help = "with train.tsv, dev.tsv, test.tsv; else the data of the run", .heading = "Data"},
                                                     {.name = "split", .value = &split, .takes = "NAME", .help = "NAME.tsv of it: train, dev, test, test-long, ..", .standard = "test"},
                                                     {.name = "files", .value = &files, .takes = "SRC TGT", .help = "or two parallel files", .count = 2},
                                                     {.name = "references", .value = &further, .takes = "FILE", .help = "further references, line n of pair n; several files: A,B,.."},
                                                     {.name = "force", .value = &force, .help = "only score the given pairs: log P, tokens, source, target"},
                                                     {.name = "out", .value = &out, .takes = "FILE", .help = "write the translations there"}} +
                                 searching + options(manner)};
  Given given;
  if (!read(syntax, words, given)) return 0;
  set_options(syntax, given);
  if (!data.empty() && !files.empty()) throw Mistake("more than one source of data: --data --files; only one of them");
  if (!files.empty() && given.contains("split")) throw Mistake(fmt::format("parts are of --data or the run: --files {} {} --split {}; only one of them", files[0], files[1], split));
  if (force && !further.empty()) throw Mistake(fmt::format("nothing is translated: --force --references {}; one of them", further));
  if (force && !out.empty()) throw Mistake(fmt::format("nothing is translated: --force --out {}; leave out --out, standard output has the scores", out));
  for (const Option& option : searching)
    if (force && option.name != "precision" && given.contains(option.name)) throw Mistake(fmt::format("nothing is translated: --force --{}; one of them", option.name));
  TranslateOptions translate_with = translate_options(search_flags, given);
  if (!out.empty()) check_output(out);
  const Ready model = ready(run_flags);
  check_search(search_flags, model.run.config);
  PackedWeights weights(precision_named(search_flags.precision));
  const PackedWeights::Use use(weights);
  const Run& run = model.run;
  if (!out.empty()) check_outside(run, out);
  const RunConfig config = data_of(run, data, files);
  const Corpus corpus = read_part(config, split, {.skip_empty = false});
  if (data.empty() && files.empty()) check_split_data(run);
  if (!out.empty()) {
    check_different(model.loaded.file, out);
    check_not_data(config, corpus, out);
    if (!further.empty())
      for (const std::string& file : reference_files(further)) check_different(file == "-" ? "/dev/stdin" : file, out);
  }

  References references = single_references(target_lines(corpus));
  if (!further.empty()) add_references(references, further, corpus.name, manner);
  Index too_long = 0;
  const std::vector<Example> examples = heed::make_examples(corpus, run.source, run.target, {.max_length = run.config.max_length, .links = false}, &too_long);
  const auto left_out = [&](const Example& example) { return has_blank_side(corpus.pairs[std::size_t(example.pair)]); };   // of the loss, as in training
  if (std::ranges::all_of(examples, left_out))
    throw Mistake(fmt::format("no pair for the loss: {}; words on both sides, at most {} as in training", corpus.name, run.config.max_length));
  if (!manner.quiet && (too_long > 0 || corpus.report.empty_kept > 0 || corpus.report.text.invalid > 0)) {
    Corpus said = corpus;
    said.report.too_long = too_long;
    note(to_string(said));
  }
  const std::vector<double> losses = negative_log_likelihoods(run, model.model(), examples);
  double sum = 0;
  Index tokens = 0, in_loss = 0;
  for (std::size_t i = 0; i < examples.size(); ++i)
    if (!left_out(examples[i])) sum += losses[i], tokens += Index(examples[i].target.size()), ++in_loss;
  if (force) {
    print_forced(run, corpus, examples, losses, manner.json);
    if (!manner.quiet) note(fmt::format("loss {:.4f} per token, perplexity {:.4f}", sum / double(tokens), perplexity(sum, tokens)));
    return 0;
  }

  const std::vector<std::string> sources = source_lines(corpus);
  std::vector<std::string> texts, token_lines;
  References reference_tokens(references.size());
  Progress progress(std::cerr, Progress::standard_error(manner.quiet));
  constexpr std::size_t kBlock = 256;
  Index exact = 0;
  Overlooked overlooked;
  progress.update({.unit = "sentence", .done = 0, .total = Index(sources.size())});
  for (std::size_t first = 0; first < sources.size(); first += kBlock) {
    const std::span<const std::string> block = std::span(sources).subspan(first, std::min(kBlock, sources.size() - first));
    for (const auto& best : heed::translate(run, model.model(), block, translate_with, {}, &overlooked)) {
      bool any = false;
      for (const std::string& reference : references[texts.size()]) {
        const std::vector<std::string> wanted = run.target.tokenizer.tokens(reference);
        any |= best[0].tokens == wanted;
        reference_tokens[texts.size()].push_back(token_line(wanted));
      }
      exact += any;
      texts.push_back(best[0].text);
      token_lines.push_back(token_line(best[0].tokens));
    }
    draw_on(translate_with, run, block);
    progress.update({.unit = "sentence", .done = Index(texts.size()), .total = Index(sources.size())});
  }
  progress.finish();
  const BleuScore text_bleu = bleu(texts, references, {.lowercase = run.config.lowercase});
  const BleuScore token_bleu = bleu(token_lines, reference_tokens, {.tokenizer = BleuTokenizer::none});
  const ChrfScore characters = chrf(texts, references, {.lowercase = run.config.lowercase});
  const double loss = sum / double(tokens), exact_share = 100 * double(exact) / double(texts.size());
  if (manner.json) {
    print(json_text(Json{{"data", corpus.name}, {"weights", model.loaded.file}, {"sentences", texts.size()}, {"loss_sentences", in_loss}, {"loss", loss}, {"perplexity", std::exp(loss)}, {"bleu", text_bleu.score}, {"bleu_signature", text_bleu.signature},
                                 {"token_bleu", token_bleu.score}, {"token_bleu_signature", token_bleu.signature}, {"chrf", characters.score}, {"chrf_signature", characters.signature}, {"exact", exact_share}}) + "\n");
  } else {
    const std::string some = in_loss == Index(texts.size()) ? "" : fmt::format(" (of {} sentences)", in_loss);
    print(fmt::format("{}: {} sentences, loss {:.4f} per token, perplexity {:.3f}{}\n", corpus.name, texts.size(), loss, std::exp(loss), some));
    print(fmt::format("BLEU {:.1f}  ({})\n", text_bleu.score, text_bleu.signature));
    print(fmt::format("BLEU of tokens {:.1f}  ({})\n", token_bleu.score, token_bleu.signature));
    print(fmt::format("{} {:.1f}  ({})\n", characters.name, characters.score, characters.signature));
    print(fmt::format("exact match {:.1f} %  ({} of {})\n", exact_share, exact, texts.size()));
  }
  flush();                                         // the file may fail
  if (!out.empty()) {
    std::string all;
    for (const std::string& text : texts) all += text + "\n";
    write_file_atomically(out, all);
  }
  if (!manner.quiet && !manner.json && overlooked.cut > 0) note(fmt::format("{} sources longer than {} words were cut", overlooked.cut, run.config.max_length));
  return 0;
}

}  // namespace heed::cli
