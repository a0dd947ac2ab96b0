// SPDX-License-Identifier: Apache-2.0
// `heed compare`: models that differ in their attention alone, trained alike, in one table.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <utility>

#include "attention/attend.h"
#include "examples/cli/comparison.h"
#include "examples/cli/dataset.h"
#include "examples/cli/log.h"
#include "examples/cli/model.h"
#include "examples/cli/quality.h"
#include "examples/cli/stop.h"
#include "examples/cli/training.h"
#include "models/cost.h"
#include "models/drawing.h"
#include "models/metrics.h"
#include "models/recurrent_config.h"
#include "models/translate.h"
#include "tensor/context.h"
#include "tensor/file.h"
#include "tensor/format.h"
#include "tensor/json.h"
#include "tensor/sha256.h"

namespace heed::cli {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kTrainSample = 1000;         // pairs of the training data on which its loss is measured again, without dropout

struct Asked {
  std::string names, out, config, model = "gru", digest;   // of the data
  ComparisonStyle style;
  Manner manner;
};

struct Entry {
  std::string name;
  RunConfig config;
  Index parameters = 0;
};

// ---- what is trained ------------------------------------------------------------------------------------------------

std::vector<std::string> listed(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& given : at_commas(text)) {
    std::string name = hyphenated(given);
    if (name.empty()) throw Mistake(fmt::format("an empty name: --attention {}; names with commas between them", quote(text)));
    if (std::ranges::find(names, name) != names.end())
      throw Mistake(fmt::format("given twice: {} in --attention {}; each name once", name, text));
    names.push_back(std::move(name));
  }
  return names;
}

bool is_transformer(std::string_view name) { return name == "transformer"; }
// without attention
bool is_plain(std::string_view name) { return name == "none" || name == "cho" || name == "cho-exact" || name == "sutskever"; }
bool is_local(std::string_view name) { return !is_transformer(name) && !is_plain(name) && !window_of(name).empty(); }

// Whether the model of this name has an option of `heed train`.
bool has_option(std::string_view name, std::string_view option) {
  const std::vector<std::string_view> others = is_transformer(name) ? recurrent_options() : transformer_options();
  if (is_plain(name) &&
      (option == "input-feeding" || option == "guided-alignment" || option == "coverage-loss" || (option == "decoder" && name != "none")))
    return false;
  return std::ranges::find(others, option) == others.end() && (option != "window" || is_local(name));
}

// The options of `heed train` as they go for one of the models: without those that only others of them have.
RunConfig config_of(const std::string& name, std::span<const std::string> names, const Asked& asked, const Given& given) {
  const bool transformer = is_transformer(name);
  const auto value = [&](std::string_view flag) {
    const auto at = given.find(flag);
    return at == given.end() ? std::string() : at->second.front();
  };
  RunConfig config = default_config(transformer ? name : asked.model, value("schedule"), value("optimizer"));
  config.steps = {};
  if (!given.contains("steps") && !given.contains("epochs") && !given.contains("minutes")) config.epochs = 10;
  if (given.contains("batch-tokens")) config.batch_sentences = {};
  if (given.contains("batch-sentences")) config.batch_tokens = {};
  Given mine;
  for (const auto& [flag, values] : given) {
    const bool is_of_others = !has_option(name, flag) &&
                              std::ranges::any_of(names, [option = flag](const std::string& other) { return has_option(other, option); });
    if (!is_of_others && flag != "attention" && flag != "model") mine.emplace(flag, values);
  }
  set_options({.command = "compare", .usage = "", .about = "", .options = options(config)}, mine);
  if (transformer) return config;
  config.attention = is_plain(name) ? "none" : name;
  if (is_plain(name) && name != "none") {
    if (mine.contains("decoder"))
      throw Mistake(
          fmt::format("a decoder by its name and another: --attention {} --decoder {}; leave out --decoder", name, value("decoder")));
    config.decoder = name;
  }
  if (name == "none" && config.decoder == "auto" && asked.model == "gru" && config.context == "auto")
    config.decoder = "cho", config.context = "both_ends";
  return config;
}

std::vector<Entry> named_entries(const Asked& asked, const Given& given) {
  const std::vector<std::string> names = listed(asked.names);
  if (given.contains("model") && std::ranges::all_of(names, is_transformer))
    throw Mistake(fmt::format("not an option of these models: --model {} --attention {}; leave out --model", asked.model, asked.names));
  std::vector<Entry> entries;
  for (const std::string& name : names) {
    check_attention(name, {"transformer", "cho", "cho-exact", "sutskever"});
    entries.push_back({name, config_of(name, names, asked, given)});
    RunConfig& config = entries.back().config;
    check_config(config);
    check_read(config);
    const std::string decoder = config.decoder;
    settle(config);
    if (given.contains("decoder") && has_option(name, "decoder") && decoder != config.decoder && !asked.manner.quiet)
      note(fmt::format("{}: --decoder {} without attention is {}", name, decoder, config.decoder));
  }
  return entries;
}

Index parameters_of(const RunConfig& config, Index source_words, Index target_words) {
  Parameters parameters(Seed{1});
  make_model(config, parameters.root(), source_words, target_words);
  return parameters.count();
}

// The width that brings the model nearest to the parameters of `first`, with which they grow: a multiple of 4, or of two for each head,
// or the first one's own.
void match(Entry& entry, const Entry& first, Index source_words, Index target_words) {
  const Index wanted = first.parameters;
  const Index unit = entry.config.model == "transformer" ? 2 * entry.config.heads : 4;
  const auto count = [&](Index units) {
    entry.config.width = units * unit;
    return parameters_of(entry.config, source_words, target_words);
  };
  Index low = 1, high = 1;                         // count(low) <= wanted < count(high), if it starts so
  while (count(high) <= wanted && high * unit < 16384) low = high, high *= 2;
  while (high - low > 1) {
    const Index middle = (low + high) / 2;
    (count(middle) <= wanted ? low : high) = middle;
  }
  const Index below = count(low), above = count(high);
  entry.parameters = count(std::abs(above - wanted) < std::abs(wanted - below) ? high : low);
  RunConfig same = entry.config;
  same.width = first.config.width;
  try {
    check_config(same);
  } catch (const Error&) {
    return;                                        // an odd one, or none that its heads divide
  }
  const Index parameters = parameters_of(same, source_words, target_words);
  if (std::abs(parameters - wanted) <= std::abs(entry.parameters - wanted)) entry.config.width = same.width, entry.parameters = parameters;
}

// The widths of all but the first.
void match_parameters(std::span<Entry> entries, const Dataset& data) {
  for (Entry& entry : entries) {
    const Run sized = make_run("", entry.config, data);
    const Index source_words = sized.source.vocabulary.size(), target_words = sized.target.vocabulary.size();
    if (&entry == &entries.front()) entry.parameters = parameters_of(entry.config, source_words, target_words);
    else match(entry, entries.front(), source_words, target_words);
  }
}

// A note where updates read more in one model than in another, so that --steps is not the same training.
void note_batches(std::span<const Entry> entries) {
  const auto batch = [](const RunConfig& c) {
    return c.batch_tokens ? fmt::format("{} tokens", *c.batch_tokens) : fmt::format("{} sentences", c.batch_sentences.value_or(0));
  };
  for (const Entry& entry : entries)
    if (batch(entry.config) != batch(entries[0].config))
      return note(fmt::format("--steps counts batches: of {} in {}, of {} in {}; --epochs gives all the same data", batch(entries[0].config),
                              entries[0].name, batch(entry.config), entry.name));
}

// ---- one model ------------------------------------------------------------------------------------------------------

// Mean milliseconds of an update, nothing else counted.
double step_milliseconds(const std::string& run) {
  double milliseconds = 0, told = 0;
  each_entry((fs::path(run) / "metrics.jsonl").string(), [&](const Json& json) {
    if (!json.contains("timing") || !json.contains("step") || !json["step"].is_number()) return;
    const double mean = json["timing"].value("update_ms", 0.0), step = json["step"].get<double>();
    if (mean > 0) milliseconds += mean * (step - std::exchange(told, step));
  });
  return told > 0 ? milliseconds / told : NAN;
}

double mean_loss(const Run& run, const Seq2Seq& model, std::span<const Example> examples) {
  const std::vector<double> losses = negative_log_likelihoods(run, model, examples);
  double tokens = 0;
  for (const Example& example : examples) tokens += double(example.target.size());
  return std::accumulate(losses.begin(), losses.end(), 0.0) / tokens;
}

// What models are trained on, and what they are measured on.
struct Texts {
  Dataset data;
  Corpus measured;
};

// Nothing where a signal came.
std::optional<ComparedResult> evaluate(const Entry& entry, const Run& run, const Texts& texts, const Asked& asked) {
  const LoadedModel loaded = load_model(run);
  const Seq2Seq& model = *loaded.model;
  ComparedResult result{.name = entry.name, .seed = entry.config.seed, .width = run.config.width, .parameters = loaded.parameters->count(),
                .steps = best_step(run).value_or(0), .buckets = {}};
  Dataset data = texts.data;
  const Examples examples = make_examples(run, data);
  result.train_loss = mean_loss(run, model, std::span(examples.train).first(std::min(kTrainSample, examples.train.size())));
  result.dev_loss = mean_loss(run, model, examples.dev);
  result.step_ms = step_milliseconds(run.path);
  if (stop_signal()) return {};

  const Corpus& corpus = texts.measured;
  Index too_long = 0;
  const std::vector<Example> test =
      heed::make_examples(corpus, run.source, run.target,
                          {.max_length = run.config.max_length, .links = has_links(run.config), .copies = run.config.copy}, &too_long);
  if (too_long > 0 && !asked.manner.quiet)
    note(fmt::format("{}: {} pairs, {} of them left out as too long", corpus.name, corpus.pairs.size(), too_long));
  if (test.empty())
    throw Mistake(fmt::format("no pair is short enough: {}; at most {}", corpus.name,
                              counted(run.config.max_length, run.source.tokenizer.options().noun())));
  double source_words = 0, target_words = 0;
  for (const Example& example : test) source_words += double(example.source.size()), target_words += double(example.target.size());
  result.multiply_adds =
      multiply_adds_per_word(run.config, *loaded.parameters, source_words / double(test.size()), target_words / double(test.size()));

  std::vector<std::string> sources, targets;
  std::vector<Index> lengths;
  for (const Example& example : test) {
    const Pair& pair = corpus.pairs[std::size_t(example.pair)];
    sources.push_back(pair.source);
    targets.push_back(pair.target);
    lengths.push_back(Index(example.source.size()) - 1);
  }
  std::optional<Translated> translated;
  try {
    translated = translate_lines(run, model, sources, single_references(targets), {}, [](Index) { return stop_signal() == 0; });
  } catch (const NumericError& e) {                // it has diverged
    note(fmt::format("warning: {}, seed {}: {}; it has no numbers", entry.name, entry.config.seed, e.what()));
    return result;
  }
  if (!translated) return {};
  const BleuOptions tokens = token_bleu_options(translated->reference_tokens);
  result.bleu = bleu(translated->token_lines, translated->reference_tokens, tokens).score;
  result.exact = 100 * double(translated->exact) / double(test.size());
  for (const auto& [above, up_to, sentences, score] :
       bleu_by_length(lengths, translated->token_lines, translated->reference_tokens, asked.style.bucket, tokens))
    result.buckets.push_back({above, up_to, sentences, score.score});
  result.alignment = alignment_quality(run, model, test);
  return result;
}

// ---- results in files -----------------------------------------------------------------------------------------------

std::string run_path(const Asked& asked, const Entry& entry) {
  return (fs::path(asked.out) / fmt::format("{}-{}", entry.name, entry.config.seed)).string();
}

// Whether nothing is in a directory, or what `heed compare` makes before and after its first table.
bool is_comparison(const std::string& path) {
  const auto is_ours = [](const fs::directory_entry& entry) {
    const std::string stem = entry.path().stem().string();
    const std::size_t dash = stem.rfind('-');
    if (entry.path().filename() == "lock" || stem.starts_with(kTemporaryPrefix)) return true;
    // NAME-SEED, NAME-SEED.json
    return dash != stem.npos && dash + 1 < stem.size() && stem.find_first_not_of("0123456789", dash + 1) == stem.npos;
  };
  const bool has_table = fs::exists(fs::path(path) / "table.txt") && fs::exists(fs::path(path) / "lock");
  return has_table || std::ranges::all_of(fs::directory_iterator(path), is_ours);
}

// Of text and links: the same files may hold other ones.
std::string digest(std::initializer_list<const Corpus*> parts) {
  Sha256 hash;
  for (const Corpus* part : parts) {
    for (const Pair& pair : part->pairs)
      hash.update(fmt::format("{}\t{}\t{}\t{}\n", pair.source, pair.target, to_string(pair.links.sure), to_string(pair.links.possible)));
    hash.update("\n");
  }
  return hexadecimal(hash.digest());
}

// What decides a result besides the run: the run's own options and data, and how it is evaluated.
Json key_of(const RunConfig& config, const Asked& asked) {
  Json json{{"split", asked.style.split}, {"bucket", asked.style.bucket}, {"digest", asked.digest}};
  RunConfig copy = config;
  for (const Option& option : options(copy)) json[std::string(option.name)] = value_text(option);
  for (const char* name : {"threads", "save-every", "keep", "if-full"}) json.erase(name);
  return json;
}

// A finished result of the same key, or nothing.
std::optional<ComparedResult> read_result(const std::string& file, const Json& key) {
  if (!fs::exists(file)) return {};
  const Json json = parse_json(read_file(file));
  if (!json.is_object() || !json.contains("key") || json["key"] != key || !json.contains("result")) return {};
  return compared_result(json["result"]);
}

// ---- the command ----------------------------------------------------------------------------------------------------

std::vector<Option> own_options(Asked& asked) {
  return {{.name = "attention", .value = &asked.names, .takes = "NAMES",
           .help = "any of `heed train --attention`, transformer, and without attention none, cho, cho-exact, sutskever",
           .heading = "Comparison"},
          {.name = "out", .value = &asked.out, .takes = "DIR",
           .help = "runs NAME-SEED, table.txt, table.csv, bleu.svg, length.svg, alignment.svg"},
          {.name = "config", .value = &asked.config, .takes = "FILE",
           .help = "a JSON file with any of these options but --out, --quiet and --json; flags override it, --SWITCH=false too"},
          {.name = "seeds", .value = &asked.style.seeds, .takes = "N",
           .help = "models of each: --seed, --seed + 1, ..", .low = 1, .high = 1000, .standard = "1"},
          {.name = "model", .value = &asked.model, .takes = "NAME",
           .help = "the recurrent cells", .choices = {"rnn", "lstm", "gru"}, .standard = "gru"},
          {.name = "split", .value = &asked.style.split, .takes = "NAME",
           .help = "NAME.tsv on which BLEU and alignment are measured", .standard = "test"},
          {.name = "bucket", .value = &asked.style.bucket, .takes = "N",
           .help = "source tokens to a bucket of BLEU by length", .low = 1, .high = 1e6, .standard = "5"}};
}

// Those of `heed train` that are the same for all models.
std::vector<Option> training_options(RunConfig& shown) {
  std::vector<Option> chosen;
  std::string_view heading;                        // of an option that is left out: the next one has it
  for (Option option : options(shown)) {
    if (option.heading.empty()) option.heading = std::exchange(heading, {});
    if (option.name == "steps") option.standard = {};
    if (option.name == "epochs") option.standard = "10";
    if (option.name == "attention" || option.name == "model" || option.name == "init") heading = option.heading;
    else chosen.push_back(option);
  }
  return chosen;
}

// The options in a file beside those that are given, which go before it and before others of their family.
void take_file(const std::string& file, std::vector<Option> options, Given& given) {
  std::erase_if(options, [](const Option& option) { return option.name == "out" || option.name == "config"; });
  const std::vector<std::string> in_file = from_json(options, read_file(file, 1 << 20), file, false);
  const auto is_given = [flags = given](std::string_view name) {
    for (const std::span<const std::string_view> family :
         {std::span<const std::string_view>(kLimits), std::span<const std::string_view>(kBatches)})
      if (std::ranges::find(family, name) != family.end())
        return std::ranges::any_of(family, [&](std::string_view one) { return flags.contains(one); });
    return flags.contains(name);
  };
  for (const Option& option : options)
    if (!is_absent(option) && std::ranges::find(in_file, option.name) != in_file.end() && !is_given(option.name))
      given.emplace(option.name, value_words(option));
}

// The result of before, else that of a training now; nothing where a signal came.
std::optional<ComparedResult> result_of(const Entry& entry, const std::string& which, const Texts& texts, const Asked& asked) {
  const std::string run = run_path(asked, entry), file = run + ".json";
  const Json key = key_of(entry.config, asked);
  std::optional<ComparedResult> result = read_result(file, key);
  if (!asked.manner.quiet)
    note(fmt::format("{}, seed {} ({}): width {}, {} parameters{}", entry.name, entry.config.seed, which, entry.config.width,
                     drawing::number(double(entry.parameters)), result ? ", done before" : ""));
  if (result || stop_signal()) return result;
  try {
    if (train_run(entry.config, run, texts.data, asked.manner) != 0) return {};
    result = evaluate(entry, open_run(run), texts, asked);
  } catch (const Diverged& e) {
    note(fmt::format("warning: {}, seed {}: {}; it has no numbers", entry.name, entry.config.seed, e.what()));
    result = ComparedResult{
        .name = entry.name, .seed = entry.config.seed, .width = entry.config.width, .parameters = entry.parameters, .buckets = {}};
  }
  if (result) write_file_atomically(file, json_text(Json{{"key", key}, {"result", to_json(*result)}}, 1) + "\n");
  return result;
}

}  // namespace

int compare(std::span<const std::string> words) {
  Asked asked;
  RunConfig shown;
  const Syntax syntax{
      .command = "compare",
      .usage = "--data DIR --attention NAME,NAME,.. --out DIR [--seeds N] [options of heed train]",
      .about =
          "Trains a model with each attention, on the same data with the same seed and budget and as nearly the same number of parameters "
          "as widths allow: "
          "the first has --width, the others the width that comes nearest, a multiple of 4 (transformer: of 2 × --heads) or the first "
          "one's. One table: text, CSV, bars. What is finished is kept: the same command again goes on after an interruption.",
      .example = "heed compare --data phrases-data --attention none,additive,dot,general,transformer --epochs 10 --out compared",
      .options = own_options(asked) + training_options(shown) + options(asked.manner)};
  Given given;
  if (!read(syntax, words, given)) return 0;
  set_options(syntax, given);
  if (!asked.config.empty()) {
    take_file(asked.config, own_options(asked) + training_options(shown), given);
    set_options(syntax, given);
  }
  check_required(asked.names, "attention", "names of attentions with commas between them");
  check_required(asked.out, "out", "a directory for the runs and the table");
  if (shown.threads) set_threads(int(*shown.threads));

  std::vector<Entry> entries = named_entries(asked, given);
  if (const Index seed = entries[0].config.seed; seed > Index(kLargestSeed) - (asked.style.seeds - 1))
    throw Mistake(fmt::format("out of range: --seed {} --seeds {}; all of them at most {:.0f}", seed, asked.style.seeds, kLargestSeed));
  asked.style.bleu = bleu_name(entries[0].config);
  asked.style.noun = TokenizerOptions{.name = entries[0].config.tokenizer}.noun();
  const Texts texts{read_dataset(entries[0].config), read_part(entries[0].config, asked.style.split)};
  const auto& [data, measured] = texts;
  asked.digest = digest({&data.train, &data.dev, &measured});
  if (const Index shared = shared_sources(data.train, measured); shared > 0 && asked.style.split != "train" && !asked.manner.quiet)
    note(shared_warning(shared, measured));
  match_parameters(entries, data);
  if (given.contains("steps") && !asked.manner.quiet) note_batches(entries);
  std::error_code error;
  if (fs::exists(asked.out, error) && !fs::is_directory(asked.out))
    throw Mistake(fmt::format("no directory: --out {}; the name of a directory", asked.out));
  if (fs::exists(asked.out, error) && !is_comparison(asked.out))
    throw Mistake(fmt::format("exists, is not empty and no comparison: --out {}; the name of a new directory", asked.out));
  std::vector<Entry> runs;
  for (Index k = 0; k < asked.style.seeds; ++k)
    for (Entry entry : entries) entry.config.seed += k, runs.push_back(std::move(entry));
  for (const Entry& entry : runs)
    if (!read_result(run_path(asked, entry) + ".json", key_of(entry.config, asked))) check_within(entry.config, run_path(asked, entry));
  fs::create_directories(asked.out, error);
  if (error) throw Mistake(fmt::format("cannot make the directory: --out {}: {}; another one", asked.out, error.message()));
  const RunLock lock(asked.out);

  const StopSignals signals;
  std::vector<ComparedGroup> groups;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::optional<ComparedResult> result = result_of(runs[i], fmt::format("{} of {}", i + 1, runs.size()), texts, asked);
    if (!result) {
      if (!asked.manner.quiet) note("finished models are kept; the same command goes on");
      return 128 + stop_signal();
    }
    if (i < entries.size()) groups.push_back({runs[i].name, {}});
    groups[i % entries.size()].results.push_back(std::move(*result));
    write_tables(asked.out, groups, asked.style);
  }
  if (asked.manner.json) {
    Json all = Json::array();
    for (const ComparedGroup& group : groups)
      for (const ComparedResult& r : group.results) all.push_back(to_json(r));
    print(json_text(all) + "\n");
  } else {
    print(text_table(groups, asked.style));
  }
  return 0;
}

}  // namespace heed::cli
