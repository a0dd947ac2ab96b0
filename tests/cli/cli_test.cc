// SPDX-License-Identifier: Apache-2.0
// `heed` and its options: help, data, what a training leaves, translation, tokenizers, configurations.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <regex>
#include <set>

#include "models/bpe.h"
#include "models/run.h"
#include "models/translate.h"
#include "tensor/context.h"
#include "tensor/json.h"
#include "tensor/ops/view.h"
#include "tensor/safetensors.h"
#include "tests/cli/small_run.h"
#include "tests/run_program.h"

using namespace heed;
namespace fs = std::filesystem;

TEST_CASE("cli: help") {
  const Result none = call("");
  CHECK(none.code == 0);
  CHECK(none.err.empty());
  CHECK(none.out.find("heed train --data reverse-data --out reverse") != none.out.npos);
  CHECK(call("--help").out == none.out);
  CHECK(call("--version").out == fmt::format("heed " HEED_VERSION "\n{}\n", describe_context()));
  for (const char* command : {"data", "train", "translate", "evaluate", "score", "attention", "explain", "compare", "trace", "diff",
                              "inspect", "check-gradients"}) {
    const Result help = call(std::string(command) + " --help");
    CHECK(help.code == 0);
    CHECK(help.err.empty());
    CHECK(help.out.find(std::string("Usage: heed ") + command) != help.out.npos);
    CHECK(call(std::string("help ") + command).out == help.out);
  }
  CHECK(call("evaluate --help").out.find("--nbest") == std::string::npos);
  for (const char* heading : {"\nModel\n  --layers ", "\nRecurrent models\n  --decoder "})
    CHECK(call("compare --help").out.find(heading) != std::string::npos);
  // The defaults in the help text are those of the table.
  const std::string help = call("train --help").out;
  RunConfig config;
  for (const Option& option : options(config)) {
    INFO(option.name);
    const std::size_t begin = help.find("\n  --" + std::string(option.name) + " ");
    REQUIRE(begin != help.npos);
    const std::string about = help.substr(begin, help.find("\n  --", begin + 1) - begin);
    if (!is_absent(option) && !std::holds_alternative<bool*>(option.value))
      CHECK_MESSAGE(std::regex_search(about, std::regex("\\[" + value_text(option) + "[\\],]")), about);
  }
}

TEST_CASE("cli: data") {
  const TemporaryFolder folder;
  for (const char* task : {"copy", "reverse", "sort", "numbers", "dates", "phrases"}) {
    const Result made = heed_in(folder.path(), std::string("data ") + task + " --out " + task + " --train 30 --dev 5 --test 5 --json");
    CHECK_MESSAGE(made.code == 0, made.err);
    CHECK(parse_json(made.out)["parts"]["train"] == 30);
    CHECK(lines_of(text_of(folder / (std::string(task) + "/train.tsv"))).size() == 30);
  }
  CHECK(heed_in(folder.path(), "data numbers --out german --from digits --to de --train 9 --dev 2 --test 2").code == 0);
  CHECK(heed_in(folder.path(), "data copy --out copy2 --train 30 --dev 5 --test 5 --seed 2").code == 0);
  CHECK(text_of(folder / "copy/train.tsv") != text_of(folder / "copy2/train.tsv"));
}

TEST_CASE("cli: what is tied is stored once, in the best weights too") {
  REQUIRE(
      call("train --data data --out tied --tie all --steps 2 --layers 1 --width 8 --heads 2 --feed-forward 8 --evaluate-every 1 --quiet")
          .code == 0);
  const SafetensorsFile best = read_safetensors(small().folder / "tied/best.safetensors");
  std::set<const std::byte*> tables;
  for (const char* name : {"source_embedding.weight", "target_embedding.weight", "output.weight"})
    tables.insert(best.at(name).storage().data());
  CHECK(tables.size() == 1);
  std::set<std::string> same;
  const auto json = parse_json(call("inspect tied/best.safetensors --json").out);
  for (const auto& tensor : json["tensors"])
    if (tensor.contains("same_as")) same.insert(tensor["name"].get<std::string>() + " " + tensor["same_as"].get<std::string>());
  CHECK(same.size() == 2);
  CHECK(same.contains("target_embedding.weight output.weight"));
}

TEST_CASE("cli: options of a search reach it, each under its name") {
  const Run run = open_run(small().folder / "run");
  const LoadedModel loaded = load_model(run);
  const std::vector<std::string> lines{"1 2 3", "4 4", "2 1 3 4"};
  const auto drawn = [](double temperature, Index top_k, double top_p) {
    return SearchOptions{.sampling = Sampling{.temperature = temperature, .top_k = top_k, .top_p = top_p, .key = Key(Seed{5})}};
  };
  const std::pair<const char*, SearchOptions> rows[] = {
      {"", {}},
      {"--beam 3 --length-penalty average --alpha 0.9", {.beam = 3, .penalty = LengthPenalty::average, .alpha = 0.9}},
      {"--beam 3 --length-penalty none", {.beam = 3, .penalty = LengthPenalty::none}},
      {"--beam 3 --coverage 0.7", {.beam = 3, .coverage = 0.7}},
      {"--beam 3 --stop first-k --extra-length 4", {.beam = 3, .stop = Stop::first_k, .extra_length = 4}},
      {"--no-repeat-ngram 1 --min-length 4", {.min_length = 4, .no_repeat_ngram = 1}},
      {"--sample --seed 5 --top-k 2", drawn(1, 2, 1)},
      {"--sample --seed 5 --top-p 0.4 --temperature 2", drawn(2, 0, 0.4)}};
  std::set<std::string> answers;
  for (const auto& row : rows) {
    const std::string flags = row.first;
    CAPTURE(flags);
    const Result result = call("translate --run run --json " + flags, "1 2 3\n4 4\n2 1 3 4\n");
    REQUIRE_MESSAGE(result.code == 0, result.err);
    answers.insert(result.out);
    const std::vector<std::string> told = lines_of(result.out);
    const auto found = translate(run, *loaded.model, lines, {.search = row.second});
    REQUIRE(told.size() == found.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto json = parse_json(told[i])["translations"];
      const Translation& best = found[i][0];
      CHECK(json[0]["text"] == best.text);
      CHECK(json[0]["score"].get<double>() == best.score);
      CHECK(json[0]["log_probability"].get<double>() == best.log_probability);
      CHECK(json[0]["finished"] == best.finished);
    }
  }
  CHECK(answers.size() == std::size(rows));
}

TEST_CASE("cli: a pipe in place of a run's file is refused, not waited for") {
  for (const std::string name : {"config.json", "source.vocabulary", "source.tokenizer.json"}) {
    fs::remove_all(small().folder / "piped");
    fs::copy(small().folder / "run", small().folder / "piped", fs::copy_options::recursive);
    fs::remove(small().folder / ("piped/" + name));
    REQUIRE(::mkfifo((small().folder / ("piped/" + name)).c_str(), 0600) == 0);
    const Result result = call("translate --run piped", "1\n");
    CHECK(result.code == 2);
    CHECK_MESSAGE(result.err.find(name + ": not a regular file") != result.err.npos, result.err);
  }
}

TEST_CASE("cli: what a training leaves") {
  const std::string run = small().folder / "run";
  for (const std::string file : {"config.json", "source.vocabulary", "target.vocabulary", "source.tokenizer.json", "best.safetensors",
                                 "checkpoints/60.safetensors", "metrics.jsonl", "curves.svg"})
    CHECK_MESSAGE(fs::exists(run + "/" + file), file);
  CHECK(!fs::is_empty(run + "/attention"));
  std::size_t updates = 0, devs = 0;
  for (const std::string& line : lines_of(text_of(run + "/metrics.jsonl"))) {
    const auto json = parse_json(line);
    updates += json["event"] == "update";
    if (json["event"] == "update") CHECK(json["timing"]["tokens_per_second"] > 0);
    devs += json["event"] == "dev";
  }
  CHECK(updates == 1);
  CHECK(devs >= 2);
  CHECK(text_of(run + "/curves.svg").find("The train loss is") != std::string::npos);
  for (const char* shown : {"Training of run<", ">exact match (percent)<", ">dev loss<"})
    CHECK_MESSAGE(text_of(run + "/curves.svg").find(shown) != std::string::npos, shown);
  CHECK(call("train --data data --out named/ --width 8 --heads 2 --feed-forward 8 --warmup 1 --steps 1 --quiet").code == 0);
  CHECK(text_of(small().folder / "named/curves.svg").find("Training of named<") != std::string::npos);
  // no line of the log yet
  CHECK(call("train --data data --out brief --width 8 --heads 2 --feed-forward 8 --warmup 1 --steps 1 --quiet").code == 0);
  const std::string curves = text_of(small().folder / "brief/curves.svg");
  CHECK(curves.find("The train loss is") == std::string::npos);
  CHECK(curves.find(">0.5<") == std::string::npos);                        // an update is whole
  CHECK(parse_json(text_of(run + "/config.json"))["tokenizer"] == "space");
  const Run opened = open_run(run);
  CHECK(opened.config.width == 16);
  CHECK(opened.source.vocabulary.size() == 9);
  CHECK(load_model(opened).file == run + "/best.safetensors");
  for (const auto& [name, value] : read_safetensors(run + "/best.safetensors").tensors) CHECK(!name.starts_with("model."));
}

TEST_CASE("cli: translate answers line n in line n") {
  const Result some = call("translate --run run --quiet", "\xEF\xBB\xBF" "1 2 3\r\n\n 2 2\n\xff 4 nonsense\n\xC2\xA0\n5");
  CHECK(some.code == 0);
  CHECK(some.err.empty());
  const std::vector<std::string> lines = lines_of(some.out);
  REQUIRE(lines.size() == 6);
  CHECK(lines[1].empty());
  CHECK(lines[4].empty());
  CHECK(!lines[0].empty());
  CHECK(call("translate --run run", "").out.empty());
  for (const char* end : {"", "\n1\n"}) {
    const Result too_long = call("translate --run run", "1 2\n3\n" + std::string((1 << 20) + 9, '4') + end);
    CHECK(too_long.code == 2);
    CHECK(too_long.err == "heed translate: standard input: line 3 is longer than 1048576 bytes; shorter lines\n");
    CHECK(lines_of(too_long.out).size() == 2);
  }
  CHECK(call("translate --run run", std::string("\xFF\xFE" "1\0\n\0", 6)).err ==
        "heed translate: standard input: not UTF-8 text: UTF-16 byte order mark\n");
  CHECK(call("translate --run run", std::string(99, '\0') + "\n1\n").err ==
        "heed translate: standard input: not text: 99 NUL bytes among the first 102\n");
  CHECK(call("translate --run run", "1 zork\n" + std::string((1 << 20) + 9, '4')).err ==
        "unknown to the model: zork\nheed translate: standard input: line 2 is longer than 1048576 bytes; shorter lines\n");

  CHECK(lines_of(call("translate --run run --beam 3 --nbest 3 --quiet", "1 2 3\n").out).size() == 3);
  const auto json = parse_json(call("translate --run run --beam 2 --nbest 2 --json", "1 2 3\n").out);
  CHECK(json["source"] == "1 2 3");
  CHECK(json["translations"].size() == 2);
  CHECK(json["translations"][0]["score"].get<double>() >= json["translations"][1]["score"].get<double>());
  CHECK(call("translate --run run --prefix '4 4' --quiet", "1 2 3\n").out.starts_with("4 4"));
  // A prefix is whole whatever the length, and its unknown words are named.
  CHECK(call("translate --run run --prefix '4 3 4 3 4' --extra-length 0 --quiet", "1 2\n").out.starts_with("4 3 4 3 4"));
  const Result unknown = call("translate --run run --prefix '4 x y x' --replace-unk", "1 2 3\n");
  CHECK(unknown.err == "unknown to the model: x, y\n");
  CHECK(unknown.out.starts_with("4 x y x"));
  CHECK(call("translate --run run --prefix=--quiet", "1 2 3\n").out.starts_with("--quiet"));
  // So are those of the lines, once.
  CHECK(call("translate --run run", "1 y 2\n\nx 3 y\n").err == "unknown to the model: x, y\n");
  CHECK(call("translate --run run --quiet", "1 y 2\n").err.empty());
  CHECK(call("translate --run run", std::string(1 << 20, 'a')).err == "unknown to the model: " + std::string(39, 'a') + "…\n");
  std::string letter = "a";
  for (int i = 0; i < 100000; ++i) letter += "\u0301";
  CHECK(call("translate --run run", letter).err.size() < 1000);
  // In a long text many do not wait for its end.
  std::string text;
  for (int i = 0; i < 2 * 512 * 20; ++i) text += "w" + std::to_string(i) + (i % 20 == 19 ? "\n" : " ");
  const std::vector<std::string> notes = lines_of(call("translate --run run --extra-length 0", text).err);
  CHECK(notes.size() >= 2);
  CHECK(notes[0].find(" more") != std::string::npos);
  CHECK(call("translate --run run --checkpoint run/checkpoints/60.safetensors --quiet", "1\n").code == 0);

  const std::string many = "1 2\n\n3 4 5\n2\n1 1 1\n";
  const Result drawn = call("translate --run run --sample --seed 3 --quiet", many);
  CHECK(drawn.out == call("translate --run run --sample --seed 3 --threads 3 --batch 2 --quiet", many).out);
  CHECK(drawn.out != call("translate --run run --sample --seed 4 --quiet", many).out);
  CHECK(call("translate --run run --sample --temperature 0 --quiet", many).out == call("translate --run run --quiet", many).out);
  CHECK(call("translate --run run --max-length 2 --quiet", "1 2 3 4\n").out == call("translate --run run --quiet", "1 2\n").out);
  const auto score_in = [](const std::string& precision) {
    return parse_json(call("translate --run run --json --precision " + precision, "1 2 3\n").out)["translations"][0]["score"].get<double>();
  };
  for (const char* precision : {"bfloat16", "int8"}) {
    CHECK(score_in(precision) != score_in("float32"));
    CHECK(score_in(precision) == doctest::Approx(score_in("float32")).epsilon(0.05));
    CHECK(call("translate --run run --quiet --json --precision " + std::string(precision), many).out ==
          call("translate --run run --quiet --json --threads 3 --batch 1 --precision " + std::string(precision), many).out);
  }
  CHECK(call("translate --run run --max-length 2", "1 2 3 4\n").err.find("1 line longer than 2 words was cut") != std::string::npos);
}

TEST_CASE("cli: check-gradients") {
  const Result table = call("check-gradients");
  CHECK_MESSAGE(table.code == 0, table.out);
  CHECK(std::regex_search(table.out, std::regex(R"(\nsoftmax +[0-9]+  [0-9.]+e-[01][0-9]\n)")));
  const auto json = parse_json(call("check-gradients --only layer_norm --json").out);
  CHECK(json["functions"].size() == 1);
  CHECK(json["largest"] <= 1e-6);
  const Result strict = call("check-gradients --only softmax --tolerance 0");
  CHECK(strict.code == 1);
  CHECK(strict.err.starts_with("heed check-gradients: gradients of "));
}

namespace {
const std::string kTrainFiles = "train --train-files s t --dev-files s t ",
                  kTrainSplit = "train --train pairs.tsv --split-by-source --split-dev 3 --split-test 3 ";
const std::string kTinyModel = "--layers 1 --width 8 --heads 2 --feed-forward 8 ", kTiny = kTinyModel + "--steps 3 --warmup 2 ";

// Forty pairs as two parallel files and as one.
void write_forty_pairs(const TemporaryFolder& folder) {
  std::string source, target, pairs;
  for (int i = 0; i < 40; ++i) {
    const std::string s = "Go " + std::to_string(i % 13) + "!", t = "Va " + std::to_string(i % 13) + " !";
    source += s + "\n", target += t + "\n", pairs += s + "\t" + t + "\n";
  }
  write_text(folder / "s", source), write_text(folder / "t", target), write_text(folder / "pairs.tsv", pairs);
}
}  // namespace

TEST_CASE("cli: tokenizers and options") {
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  const std::string train = kTrainFiles + kTiny + "--test-files s t --out r ";
  for (const std::string& options :
       std::vector<std::string>{"--tokenizer char", "--tokenizer word --lowercase --tie all",
                                has_sentencepiece() ? "--tokenizer bpe --vocabulary-size 30 --tie output" : "--tie output",
                                "--positions learned --norm pre --final-norm always",
                                "--batch-sentences 7 --accumulate 2 --optimizer sgd --schedule constant --momentum 0.5",
                                "--average 0.9 --evaluate-every 2 --patience 1 --optimizer adamw --weight-decay 0.1"}) {
    INFO(options);
    // of a token
    const std::string noun = options.find("char") != options.npos ? "character" : options.find("bpe") != options.npos ? "piece" : "word";
    const Result trained = heed_in(folder.path(), train + options);
    CHECK_MESSAGE(trained.code == 0, trained.err);
    CHECK_MESSAGE(std::regex_search(trained.err, std::regex("\n[0-9]+ source and [0-9]+ target " + noun + "s, ")), trained.err);
    CHECK(std::regex_search(trained.err, std::regex("update 3, epoch [0-9]+: dev loss [0-9.]+, BLEU of tokens [0-9.]+, ")));
    CHECK(trained.out.find(", best dev BLEU of tokens ") != std::string::npos);
    CHECK(text_of(folder / "r/curves.svg").find("dev BLEU of tokens") != std::string::npos);
    CHECK(heed_in(folder.path(), "inspect r").out.find(", BLEU of tokens ") != std::string::npos);
    const Result translated = heed_in(folder.path(), "translate --run r --quiet", "Go 3!\n\nGo!\n");
    CHECK_MESSAGE(translated.code == 0, translated.err);
    CHECK(lines_of(translated.out).size() == 3);
    CHECK(std::regex_search(heed_in(folder.path(), "inspect r").out,
                            std::regex("\nsource: [0-9]+ " + noun + "s, tokenizer [a-z]+\ntarget: [0-9]+ " + noun + "s, ")));
    CHECK(heed_in(folder.path(), "translate --run r --max-length 2", "Go 3!\n").err.find("1 line longer than 2 " + noun + "s was cut") !=
          std::string::npos);
    CHECK(heed_in(folder.path(), "explain --run r --source Go! --target Va! --step 40").err.find(noun + "s, its end counted\n") !=
          std::string::npos);
    CHECK(heed_in(folder.path(), "evaluate --run r --quiet").code == 0);
    fs::remove_all(folder / "r");
  }
}

TEST_CASE("cli: data split by source") {
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  const std::string pairs = text_of(folder / "pairs.tsv");
  write_text(folder / "pairs.tsv", pairs + "bad\xff\tline\n\tmissing\n");
  const Result split = heed_in(folder.path(), kTrainSplit + kTiny + "--out r2");
  CHECK_MESSAGE(split.code == 0, split.err);
  CHECK(split.err.find("1 line skipped for an empty side, 1 invalid byte sequence replaced") != std::string::npos);
  CHECK(text_of(folder / "r2/metrics.jsonl").find("\"empty\": 1, \"invalid_sequences\": 1") != std::string::npos);
  CHECK(parse_json(heed_in(folder.path(), "evaluate --run r2 --json --quiet").out)["sentences"] == 3);
  CHECK(heed_in(folder.path(), "evaluate --run r2 --quiet").err.empty());
  write_text(folder / "pairs.tsv", pairs);
  CHECK(heed_in(folder.path(), "evaluate --run r2 --quiet").err.find("pairs.tsv has changed since it was split for the training") !=
        std::string::npos);
}

TEST_CASE("cli: SentencePiece models, learned and one's own") {
  if (!has_sentencepiece()) return;
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  const Result bpe = heed_in(folder.path(), kTrainSplit + kTiny + "--tokenizer bpe --vocabulary-size 40 --out r6 --quiet");
  CHECK_MESSAGE(bpe.code == 0, bpe.err);
  const auto translations = [&](const std::string& line) {
    return parse_json(heed_in(folder.path(), "translate --run r6 --json --quiet", line).out)["translations"];
  };
  CHECK(translations(" Go\u00a0 3! \n") == translations("Go 3!\n"));
  // Files of the tokenizer that do not fit the run.
  const auto refused = [&](const std::string& file, const std::string& content) {
    const std::string path = folder / ("r6/" + file), before = text_of(path);
    write_text(path, content);
    const Result result = heed_in(folder.path(), "translate --run r6", "Go 3!\n");
    write_text(path, before);
    CHECK(result.out.empty());
    return result.err;
  };
  const std::string model = text_of(folder / "r6/source.model");
  CHECK(refused("source.model", text_of(folder / "r6/target.model"))
            .starts_with("heed translate: r6/source.model: not the model that source.vocabulary was made with: it has no piece \""));
  CHECK(refused("target.model", model)
            .starts_with("heed translate: r6/target.model: not the model that target.vocabulary was made with: it has no piece \""));
  CHECK(refused("source.model", model.substr(0, model.size() - 1))
            .starts_with("heed translate: r6/source.model: not a SentencePiece model: malformed at byte "));
  CHECK(refused("target.tokenizer.json", R"({"name": "bpe", "lowercase": true})") ==
        "heed translate: r6/target.tokenizer.json: lowercase true, but the run's config.json says false\n");
  CHECK(refused("target.tokenizer.json", R"({"name": "bpe"})") ==
        "heed translate: r6/target.tokenizer.json: clean false, but the run's config.json says split-by-source true\n");
  CHECK(refused("target.tokenizer.json", R"({"name": "char"})") ==
        "heed translate: r6/target.tokenizer.json: tokenizer char, but the run's config.json says bpe\n");

  // SentencePiece models of one's own: what is trained with them reads with them.
  std::vector<std::string> lines(40, "Go 3! Va 7 !");
  const std::string removes_spaces = "\x1a\x02\x20\x01";                  // normalizer_spec, field 3: remove_extra_whitespaces, field 4
  const Tokenizer own({.name = "bpe"}, train_tokenizer({.name = "bpe"}, lines, 20).model() + removes_spaces);
  write_text(folder / "own.model", own.model());
  const Result learned_elsewhere =
      heed_in(folder.path(), kTrainFiles + kTiny + "--sentencepiece own.model own.model --tie all --out r7 --quiet");
  CHECK_MESSAGE(learned_elsewhere.code == 0, learned_elsewhere.err);
  CHECK(text_of(folder / "r7/source.model") == own.model());
  CHECK(text_of(folder / "r7/target.model") == own.model());
  fs::remove(folder / "own.model");                                      // the run has it
  CHECK(heed_in(folder.path(), "train --resume --out r7 --steps 5 --quiet").code == 0);
  const Run with_own = open_run(folder / "r7");
  CHECK(with_own.config.tokenizer == "bpe");
  CHECK(with_own.source.tokenizer.tokens("Go 9") == own.tokens("Go 9"));
  // A line of which it leaves nothing takes no draw from those that come later.
  const std::string draws = "translate --run r7 --sample --quiet", blanks(600, '\n');
  CHECK(lines_of(heed_in(folder.path(), draws, "\u2581\n" + blanks + "Go 3!\n").out).back() ==
        lines_of(heed_in(folder.path(), draws, "Go 3!\n").out).back());
  for (const std::string& piece : own.pieces()) CHECK(with_own.target.vocabulary.id(piece) != with_own.target.vocabulary.unk);
}

TEST_CASE("cli: the configurations that come with Heed, made small") {
  if (!has_sentencepiece()) return;
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  for (const auto& config : fs::directory_iterator(fs::path(HEED_SOURCE_DIR) / "examples/tatoeba")) {
    INFO(config.path().string());
    const Result trained = heed_in(
        folder.path(), kTrainFiles + "--out r --quiet --width 8 --steps 3 --warmup 1 --tokenizer word --config " + config.path().string());
    CHECK_MESSAGE(trained.code == 0, trained.err);
    fs::remove_all(folder / "r");
  }
}

TEST_CASE("cli: a config file, flags before it; another run's config; weights of another run to start from") {
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  write_text(folder / "c.json",
             R"({"width": 8, "heads": 4, "layers": 1, "feed-forward": 8, "epochs": 1, "dropout": 0.3, "schedule": "cosine", "warmup": 0})");
  const Result configured = heed_in(folder.path(), kTrainFiles + "--config c.json --heads 2 --out r3 --quiet");
  CHECK_MESSAGE(configured.code == 0, configured.err);
  const Run run = open_run(folder / "r3");
  CHECK(run.config.heads == 2);
  CHECK(run.config.dropout == 0.3);
  CHECK(!run.config.steps);
  CHECK(run.config.schedule_steps == run.config.epochs.value() * 1);
  CHECK(heed_in(folder.path(), "train --config r3/config.json --out r4 --quiet --init r3").code == 0);
  CHECK(heed_in(folder.path(), "train --config r3/config.json --out r5 --quiet --steps 2 --init r4/checkpoints/1.safetensors").code == 0);
  CHECK(!open_run(folder / "r5").config.epochs);
}

TEST_CASE("cli: other data with the words of another run, from its weights, and an ensemble of both") {
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  write_text(folder / "s2", "Go 3 now!\nGO 5!\n"), write_text(folder / "t2", "Va 3 vite maintenant !\nVa 5 !\n");
  const auto must = [&](const std::string& line) {
    const Result result = heed_in(folder.path(), line);
    REQUIRE_MESSAGE(result.code == 0, result.err);
    return result.err;
  };
  must(kTrainFiles + kTiny + "--test-files s t --lowercase --min-count 2 --out first --quiet");
  // Of `go 3 now !`, `go 5 !` and `va 3 vite maintenant !`, `va 5 !` three words are new.
  const std::string told = must(
      "train --config first/config.json --init first --vocabularies first --train-files s2 t2 --dev-files s2 t2 --learning-rate 0 --steps 1 "
      "--out second");
  CHECK_MESSAGE(told.find("/first, to which 14.3 % of the source and 25.0 % of the target words are unknown\n") != told.npos, told);
  const Run first = open_run(folder / "first"), second = open_run(folder / "second");
  CHECK((second.source.vocabulary == first.source.vocabulary && second.target.vocabulary == first.target.vocabulary));
  CHECK((second.source.tokenizer.options() == first.source.tokenizer.options() && second.config.lowercase));
  CHECK(second.config.train_files[0].ends_with("/s2"));
  CHECK(second.config.test_files.empty());
  CHECK((second.config.min_count == 1 && second.config.heads == first.config.heads));
  const SafetensorsFile before = read_safetensors(folder / "first/best.safetensors"),
                        after = read_safetensors(folder / "second/best.safetensors");
  for (const auto& weight : before.tensors)
    CHECK_MESSAGE((after.at(weight.first).to_vector<float>() == weight.second.to_vector<float>()), weight.first);
  CHECK(lines_of(heed_in(folder.path(), "translate --run first --ensemble second --quiet", "Go 3!\nGo 5!\n").out).size() == 2);
  // Cleaned text for a run whose words come from one without; its own config; the run of the words is gone.
  must(kTrainSplit + kTiny + "--vocabularies second --out third --quiet");
  CHECK(open_run(folder / "third").source.vocabulary == first.source.vocabulary);
  must("train --config second/config.json --out fourth --quiet");
  fs::remove_all(folder / "first");
  must("train --resume --out second --steps 3 --quiet");
  CHECK(heed_in(folder.path(), "translate --run second --quiet", "Go 3!\n").code == 0);
  if (!has_sentencepiece()) return;
  must(kTrainFiles + kTiny + "--tokenizer bpe --vocabulary-size 30 --out pieces --quiet");
  must(kTrainFiles + kTiny + "--vocabularies pieces --init pieces --out more --quiet");
  CHECK(text_of(folder / "more/source.model") == text_of(folder / "pieces/source.model"));
  CHECK(open_run(folder / "more").config.tokenizer == "bpe");
}

TEST_CASE("cli: data from a pipe") {
  const TemporaryFolder folder;
  write_text(folder / "pairs.tsv", "1\t1\n2\t2\n3\t3\n");
  run_program("cd '" + folder.path() +
              "' && cat pairs.tsv | " HEED_BUILD_DIR
              "/examples/heed train --train /dev/stdin --split-by-source --split-dev 1 --split-test 0 --out run --width 8 --heads 2 "
              "--steps 1 --warmup 1 --quiet; echo $? > code");
  CHECK(text_of(folder / "code") == "0\n");
  CHECK(fs::exists(folder / "run/best.safetensors"));
}

TEST_CASE(
    "cli: noam's factor and adadelta's rate are 1, adamw's decay 0.01 unless others are given, and a warm-up that does not end is told") {
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  const std::string train = kTrainFiles + kTiny;
  const auto config = [&](const std::string& options) {
    const Result trained = heed_in(folder.path(), train + "--out r " + options);
    CHECK_MESSAGE(trained.code == 0, trained.err);
    CHECK(trained.err.find("warm-up") == std::string::npos);
    RunConfig stored = open_run(folder / "r").config;
    fs::remove_all(folder / "r");
    return stored;
  };
  const auto rate = [&](const std::string& options) { return config(options).learning_rate; };
  write_text(folder / "noam.json", R"({"schedule": "noam"})");
  CHECK(rate("--schedule noam") == 1);
  CHECK(rate("--config noam.json") == 1);
  CHECK(rate("--schedule noam --learning-rate 0.002") == 0.002);
  CHECK(rate("--schedule inverse_sqrt") == 0.002);
  CHECK(rate("--optimizer adadelta") == 1);
  CHECK(rate("--optimizer adadelta --learning-rate 0.5") == 0.5);
  CHECK(config("--optimizer adamw").weight_decay == 0.01);
  CHECK(config("--optimizer adamw --weight-decay 0").weight_decay == 0);
  CHECK(config("--optimizer adam").weight_decay == 0);
  CHECK(config("--schedule noam").eps == 1e-9);
  CHECK(config("--schedule inverse_sqrt").eps == 1e-8);
  CHECK(config("--schedule step").schedule_steps == 1);            // of 3 updates a fifth is none
  const Result compared = heed_in(folder.path(),
                                  "compare --train-files s t --dev-files s t --test-files s t --attention dot --width 8 --steps 1 "
                                  "--batch-sentences 40 --schedule noam --warmup 1 --out c");
  CHECK_MESSAGE(compared.code == 0, compared.err);
  CHECK(open_run(folder / "c/dot-1").config.learning_rate == 1);
  const Result cold = heed_in(folder.path(), kTrainFiles + kTinyModel + "--steps 3 --out r --warmup 20");
  CHECK_MESSAGE(cold.err.find("warning: the warm-up of 20 updates does not end in the 3 planned\n") != std::string::npos, cold.err);
}

TEST_CASE("cli: --init from a model without global tokens starts theirs as copies of its projections") {
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  const std::string train = kTrainFiles + kTinyModel + "--steps 1 --warmup 1 --learning-rate 0 --quiet --sliding-window 2 ";
  CHECK(heed_in(folder.path(), train + "--out plain --seed 2").code == 0);
  const auto before = read_safetensors(folder / "plain/best.safetensors").tensors;
  std::map<std::string, Tensor> without;
  for (const auto& [name, value] : before)
    if (name.starts_with("core.")) without.emplace(name.substr(5), value);
  write_safetensors(folder / "core.safetensors", without);
  for (const std::string file : {"plain", "core.safetensors"}) {
    const Result trained = heed_in(folder.path(), train + "--global-tokens 1 --out r --init " + file);
    CHECK_MESSAGE(trained.code == 0, trained.err);
    const auto now = read_safetensors(folder / "r/best.safetensors").tensors;
    const std::string layer = "core.encoder.layers.0.self_attn.";
    for (const std::string part : {"weight", "bias"})
      CHECK(equal_bits(
          concat({now.at(layer + "query_global." + part), now.at(layer + "key_global." + part), now.at(layer + "value_global." + part)}),
          before.at(layer + "in_proj_" + part)));
    for (const auto& [name, value] : before)
      if (file == "plain" || name.starts_with("core.")) CHECK(equal_bits(now.at(name), value));
    CHECK(heed_in(folder.path(), train + "--out back --init r").code == 2);
    fs::remove_all(folder / "r");
  }
}

TEST_CASE("cli: --init takes the core alone, with its prefix or without, and says what starts fresh") {
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  const std::string train = kTrainFiles + kTinyModel + "--steps 1 --warmup 1 --learning-rate 0 ";
  CHECK(heed_in(folder.path(), train + "--out whole --seed 2 --quiet").code == 0);
  std::map<std::string, Tensor> with, without, most;
  for (const auto& [name, value] : read_safetensors(folder / "whole/best.safetensors").tensors)
    if (name.starts_with("core.")) with.emplace(name, value), without.emplace(name.substr(5), value);
  most = without;
  most.erase("encoder.layers.0.linear1.bias");
  most.emplace("encoder.norm.weight", ones({8}));
  write_safetensors(folder / "with.safetensors", with), write_safetensors(folder / "without.safetensors", without),
      write_safetensors(folder / "most.safetensors", most);
  for (const std::string file : {"with", "without"}) {
    const Result trained = heed_in(folder.path(), train + "--out r --init " + file + ".safetensors");
    CHECK_MESSAGE(trained.code == 0, trained.err);
    CHECK_MESSAGE(
        trained.err.find(
            file + ".safetensors: " + std::to_string(with.size()) +
            " weights of the core taken, output.bias, output.weight, source_embedding.weight, target_embedding.weight start fresh\n") !=
            std::string::npos,
        trained.err);
    const auto now = read_safetensors(folder / "r/best.safetensors").tensors;
    for (const auto& [name, value] : with) CHECK(equal_bits(now.at(name), value));
    fs::remove_all(folder / "r");
  }
  std::map<std::string, Tensor> shorter;
  for (const auto& [name, value] : with) shorter.emplace(name, to(value, DType::bf16));
  write_safetensors(folder / "shorter.safetensors", shorter);
  const Result rounded = heed_in(folder.path(), train + "--out r --init shorter.safetensors");
  CHECK_MESSAGE(rounded.code == 0, rounded.err);
  const auto now = read_safetensors(folder / "r/best.safetensors").tensors;
  for (const auto& [name, value] : shorter) CHECK(equal_bits(now.at(name), to(value, DType::f32)));
  fs::remove_all(folder / "r");
  const Result refused = heed_in(folder.path(), train + "--out r --init most.safetensors");
  CHECK(refused.code == 2);
  CHECK_MESSAGE(refused.err.find("most.safetensors: does not fit the model; missing: encoder.layers.0.linear1.bias; unexpected: "
                                 "encoder.norm.weight; --final-norm always for final norms\n") != std::string::npos,
                refused.err);
  CHECK(!fs::exists(folder / "r"));
  with.emplace("source_embedding.weight", ones({3, 8}));
  write_safetensors(folder / "with.safetensors", with);
  CHECK(heed_in(folder.path(), train + "--out r --init with.safetensors").code == 2);
}
