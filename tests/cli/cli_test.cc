// SPDX-License-Identifier: Apache-2.0
// The commands of `heed`, run for real on small data from another working directory.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "models/bpe.h"
#include "models/run.h"
#include "tensor/json.h"
#include "tensor/safetensors.h"
#include "tests/cli/program.h"
#include "tests/close.h"
#include "tests/run_program.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Data of a task and a run trained on it for a moment, made once.
struct Small {
  TemporaryFolder folder;
  Small() {
    REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 300 --dev 40 --test 40").code == 0);
    const Result trained = heed_in(folder.path(), "train --data data --out run --layers 1 --width 16 --heads 2 --feed-forward 32 --batch-tokens 256 --steps 60 --warmup 20 --learning-rate 0.01");
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
  }
};
const Small& small() {
  static const Small made;
  return made;
}
Result call(const std::string& line, const std::string& input = {}) { return heed_in(small().folder.path(), line, input); }

}  // namespace

TEST_CASE("cli: help") {
  const Result none = call("");
  CHECK(none.code == 0);
  CHECK(none.err.empty());
  CHECK(none.out.find("heed train --data reverse-data --out reverse") != none.out.npos);
  CHECK(call("--help").out == none.out);
  CHECK(call("--version").out == "heed " HEED_VERSION "\n");
  for (const char* command : {"data", "train", "translate", "evaluate", "score", "attention", "explain", "compare", "trace", "diff", "inspect", "check-gradients"}) {
    const Result help = call(std::string(command) + " --help");
    CHECK(help.code == 0);
    CHECK(help.err.empty());
    CHECK(help.out.find(std::string("Usage: heed ") + command) != help.out.npos);
    CHECK(call(std::string("help ") + command).out == help.out);
  }
  CHECK(call("evaluate --help").out.find("--nbest") == std::string::npos);
  for (const char* heading : {"\nModel\n  --layers ", "\nRecurrent models\n  --decoder "}) CHECK(call("compare --help").out.find(heading) != std::string::npos);
  // The defaults in the help text are those of the table.
  const std::string help = call("train --help").out;
  RunConfig config;
  for (const Option& option : options(config)) {
    INFO(option.name);
    const std::size_t begin = help.find("\n  --" + std::string(option.name) + " ");
    REQUIRE(begin != help.npos);
    const std::string about = help.substr(begin, help.find("\n  --", begin + 1) - begin);
    if (!is_absent(option) && !std::holds_alternative<bool*>(option.value)) CHECK_MESSAGE(std::regex_search(about, std::regex("\\[" + value_text(option) + "[\\],]")), about);
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

TEST_CASE("cli: what a training leaves") {
  const std::string run = small().folder / "run";
  for (const std::string file : {"config.json", "source.vocabulary", "target.vocabulary", "source.tokenizer.json", "best.safetensors", "checkpoints/60.safetensors", "metrics.jsonl", "curves.svg"})
    CHECK_MESSAGE(fs::exists(run + "/" + file), file);
  CHECK(!fs::is_empty(run + "/attention"));
  std::size_t updates = 0, devs = 0;
  for (const std::string& line : lines_of(text_of(run + "/metrics.jsonl"))) {
    const auto json = parse_json(line);
    updates += json["event"] == "update";
    devs += json["event"] == "dev";
  }
  CHECK(updates == 1);
  CHECK(devs >= 2);
  CHECK(text_of(run + "/curves.svg").find("The train loss is") != std::string::npos);
  CHECK(text_of(run + "/curves.svg").find("Training of run<") != std::string::npos);
  CHECK(call("train --data data --out named/ --width 8 --heads 2 --feed-forward 8 --warmup 1 --steps 1 --quiet").code == 0);
  CHECK(text_of(small().folder / "named/curves.svg").find("Training of named<") != std::string::npos);
  CHECK(call("train --data data --out brief --width 8 --heads 2 --feed-forward 8 --warmup 1 --steps 1 --quiet").code == 0);     // no line of the log yet
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

TEST_CASE("cli: attention pictures stay a tenth of the training apart, and those of the newest evaluation and of the best") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 50 --dev 5 --test 5").code == 0);
  const auto steps = [&] {
    std::set<Index> found;
    for (const auto& entry : fs::directory_iterator(folder / "run/attention"))
      if (const std::string name = entry.path().stem().string(); name.starts_with("sentence-")) found.insert(std::stoll(name.substr(name.rfind('-') + 1)));
    return found;
  };
  REQUIRE(heed_in(folder.path(), "train --data data --out run --width 8 --heads 2 --feed-forward 8 --learning-rate 0 --evaluate-every 1 --steps 14 --quiet").code == 0);
  CHECK(best_step(open_run(folder / "run")) == 1);
  CHECK(steps() == std::set<Index>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14});
  write_text(folder / "run/attention/mine-3.svg", "");
  REQUIRE(heed_in(folder.path(), "train --resume --out run --steps 16 --quiet").code == 0);
  CHECK(steps() == std::set<Index>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 16});
  CHECK(fs::exists(folder / "run/attention/mine-3.svg"));
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
  CHECK(call("translate --run run --max-length 2", "1 2 3 4\n").err.find("1 lines longer than 2 words were cut") != std::string::npos);
}

TEST_CASE("cli: evaluate and score agree") {
  const Result plain = call("evaluate --run run --data data --out translated.txt --quiet");
  CHECK_MESSAGE(plain.code == 0, plain.err);
  CHECK(std::regex_search(plain.out, std::regex(R"(\nBLEU [0-9.]+  \(nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:heed-[0-9.]+\)\n)")));
  const auto json = parse_json(call("evaluate --run run --json --quiet").out);     // the run's own data
  CHECK(json["sentences"] == 40);
  CHECK(json["loss"].get<double>() > 0);
  std::string references;
  for (const std::string& line : lines_of(text_of(small().folder / "data/test.tsv"))) {
    const std::size_t first = line.find('\t') + 1;
    references += line.substr(first, line.find('\t', first) - first) + "\n";
  }
  write_text(small().folder / "references.txt", references);
  const auto score = parse_json(call("score --hypotheses translated.txt --references references.txt --json").out);
  CHECK(score["bleu"] == json["bleu"]);
  CHECK(score["exact"] == json["exact"]);
  CHECK(call("score --hypotheses references.txt --references references.txt,references.txt --sources references.txt").out.starts_with("BLEU 100.00  (nrefs:2|"));

  // With a second reference of each sentence, here its own translation, everything is as good as it can be.
  const auto second = parse_json(call("evaluate --run run --references translated.txt --json --quiet").out);
  CHECK(second["exact"] == 100);
  for (const char* name : {"bleu", "token_bleu", "chrf"}) CHECK(second[name].get<double>() == doctest::Approx(100));
  CHECK(second["loss"] == json["loss"]);
  CHECK(second["bleu_signature"].get<std::string>().starts_with("nrefs:2|"));
  std::string halves;
  for (std::size_t i = 0; const std::string& line : lines_of(text_of(small().folder / "translated.txt"))) halves += (i++ % 2 ? line : "other words") + "\n";
  write_text(small().folder / "halves.txt", halves);
  const auto both = parse_json(call("evaluate --run run --references halves.txt,references.txt --json --quiet").out);
  CHECK(both["bleu"] == parse_json(call("score --hypotheses translated.txt --references references.txt,halves.txt,references.txt --json").out)["bleu"]);

  CHECK(call("evaluate --run run").err.find("sentence 0 of") == std::string::npos);
  CHECK(call("evaluate --run run").err.ends_with("sentence 40 of 40, 0:00 left\n"));
  const auto coarse = parse_json(call("evaluate --run run --json --quiet --precision int8").out);
  CHECK(coarse["loss"] != json["loss"]);
  CHECK(coarse["loss"].get<double>() == doctest::Approx(json["loss"].get<double>()).epsilon(0.05));

  const Result forced = call("evaluate --run run --data data --split dev --force --quiet");
  double sum = 0, tokens = 0;
  for (const std::string& line : lines_of(forced.out)) {
    std::istringstream in(line);
    double log_probability, count;
    in >> log_probability >> count;
    sum -= log_probability, tokens += count;
  }
  CHECK(lines_of(forced.out).size() == 40);
  const auto dev = parse_json(call("evaluate --run run --data data --split dev --json --quiet").out);
  CHECK(sum / tokens == doctest::Approx(dev["loss"].get<double>()).epsilon(1e-5));
}

TEST_CASE("cli: evaluate compares without case what a run has learned without case") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "data");
  for (const char* part : {"train", "dev", "test"}) {
    std::string letters;
    for (std::string line : lines_of(text_of(small().folder / ("data/" + std::string(part) + ".tsv")))) {
      line.resize(line.find('\t', line.find('\t') + 1));   // without the links
      for (char& c : line)
        if (c >= '0' && c <= '9') c = char('A' + (c - '0'));
      letters += line + "\n";
    }
    write_text(folder / ("data/" + std::string(part) + ".tsv"), letters);
  }
  REQUIRE(heed_in(folder.path(), "train --data data --out run --lowercase --layers 1 --width 16 --heads 2 --feed-forward 32 --batch-tokens 256 --steps 60 --warmup 20 --learning-rate 0.01 --quiet").code == 0);
  const auto json = parse_json(heed_in(folder.path(), "evaluate --run run --data data --out translated --json --quiet").out);
  std::string references;
  for (const std::string& line : lines_of(text_of(folder / "data/test.tsv"))) references += line.substr(0, line.find('\t')) + "\n";   // copies
  write_text(folder / "references", references);
  const auto score = [&](const std::string& how) { return parse_json(heed_in(folder.path(), "score --hypotheses translated --references references --json " + how).out); };
  CHECK(json["bleu"].get<double>() > 0);
  CHECK(json["bleu"] == score("--lowercase")["bleu"]);
  CHECK(json["chrf"] == score("--lowercase")["chrf"]);
  CHECK(json["exact"] == score("--lowercase")["exact"]);
  CHECK(json["chrf"] != score("")["chrf"]);
}

TEST_CASE("cli: evaluate answers line n in line n") {
  const std::string& folder = small().folder.path();
  write_text(folder + "/some.s", "1 2\n\n3\t4\n5\n" + [] { std::string longer; for (int i = 0; i < 400; ++i) longer += "1 "; return longer; }() + "\n");
  write_text(folder + "/some.t", "1 2\n3\n3\t4\n\n1\n");
  const Result some = call("evaluate --run run --files some.s some.t --out some.out --json");
  CHECK(lines_of(text_of(folder + "/some.out")).size() == 5);
  const auto json = parse_json(some.out);
  CHECK(json["sentences"] == 5);
  CHECK(json["loss_sentences"] == 2);
  CHECK(some.err.find("1 of them left out as too long, 2 with an empty side") != std::string::npos);
  const std::vector<std::string> forced = lines_of(call("evaluate --run run --files some.s some.t --force --quiet").out);
  REQUIRE(forced.size() == 5);
  for (const std::string& line : forced) CHECK(std::ranges::count(line, '\t') == 3);
  CHECK(forced[4].starts_with("nan\t2\t1 1 "));
  double sum = 0;
  for (const int i : {0, 2}) sum -= std::stod(forced[std::size_t(i)]);
  CHECK(sum / 6 == doctest::Approx(json["loss"].get<double>()).epsilon(1e-5));
  CHECK(call("evaluate --run run --files some.t some.s --out /dev/stdout --quiet").out.starts_with("some.t + some.s: 5 sentences, "));

  // Draws of one line differ from those of the same line further on, and are those of `heed translate`.
  std::string many;
  for (int i = 0; i < 300; ++i) many += "1 2 3\n";
  write_text(folder + "/many", many);
  CHECK(call("evaluate --run run --files many many --sample --temperature 3 --out many.out --quiet").code == 0);
  CHECK(text_of(folder + "/many.out") == call("translate --run run --sample --temperature 3 --quiet", many).out);
}

TEST_CASE("cli: score reads what it is given") {
  const std::string& folder = small().folder.path();
  write_text(folder + "/upper", "The Cat sat on it\n"), write_text(folder + "/lower", "the cat sat on it\n"), write_text(folder + "/a,b", "the cat sat on it\n");
  write_text(folder + "/latin", "caf\xe9 \xe0 la carte\n");
  const auto json = parse_json(call("score --hypotheses - --references a,b --lowercase --json", "The Cat sat on it\n").out);
  CHECK(json["exact"] == 100);
  write_text(folder + "/half-read", "read before\nThe Cat sat on it\n");
  run_program("cd '" + folder + "' && (read line; " HEED_BUILD_DIR "/examples/heed score --hypotheses - --references a,b --lowercase --json > rest.scores) < half-read");
  CHECK(parse_json(text_of(folder + "/rest.scores"))["exact"] == 100);
  CHECK(parse_json(call("score --hypotheses upper --references lower --lowercase=false --json=true").out)["exact"] == 0);
  CHECK(json["precisions"] == Json{100, 100, 100, 100});
  CHECK(json["chrf"] == 100);
  const auto others = parse_json(call("score --hypotheses upper --references lower --chrf-words --smooth floor --json").out);
  CHECK_MESSAGE(others["chrf_signature"].get<std::string>().find("|nw:2|") != std::string::npos, others);
  CHECK_MESSAGE(others["bleu_signature"].get<std::string>().find("|smooth:floor[0.10]|") != std::string::npos, others);
  CHECK(json["brevity_penalty"] == 1);
  CHECK(json["hypothesis_length"] == 5);
  CHECK(parse_json(call("score --hypotheses upper --references lower --json").out)["exact"] == 0);
  write_text(folder + "/three-words", "a b c\n");
  CHECK(call("score --hypotheses three-words --references three-words").out.find("\nexact match 100.00 %  (1 of 1)\nno hypothesis has four tokens: BLEU, as sacreBLEU has it, is 0 whatever is right\n") != std::string::npos);
  CHECK(call("score --hypotheses latin --references lower").err == "latin: 2 invalid byte sequences replaced; is it UTF-8?\n");
}

TEST_CASE("cli: attention") {
  for (const char* file : {"a.svg", "a.html", "a.txt", "b.SVG"}) {
    CHECK(call(std::string("attention --run run --source '1 2 3' --out ") + file).code == 0);
    const std::string text = text_of(small().folder / file);
    CHECK(text.find("layer 1") != text.npos);
    CHECK(text.find(std::string(file) == "a.txt" ? "</s>" : "&lt;/s&gt;") != text.npos);
  }
  for (const std::string all : {"", " --all"}) {
    CHECK(call("attention --run run --source '1 2 3' --out plain.svg" + all).code == 0);
    CHECK(call("attention --run run --source '1 2 3' --out numbers.svg --numbers" + all).code == 0);
    const auto elements = [](const char* file) { return lines_of(text_of(small().folder / file)).size(); };
    CHECK(elements("numbers.svg") > elements("plain.svg") + 20);
  }
  CHECK(call("attention --run run --source '1 2 3' --all --out all.txt").code == 0);
  const std::string all = text_of(small().folder / "all.txt");
  for (const char* label : {"encoder layer 1, head 2, self-attention", "decoder layer 1, head 2, self-attention", "decoder layer 1, mean over 2 heads, cross-attention"}) CHECK_MESSAGE(all.find(label) != all.npos, all);
  CHECK(text_of(small().folder / "all.txt").size() == call("attention --run run --source '1 2 3' --all").out.size());
  const std::string by_input = call("attention --run run --source '1 2' --target '5 6' --all --align-to input").out;
  const std::string decoder = by_input.substr(by_input.find("decoder layer 1, head 1, self-attention"));
  CHECK_MESSAGE(std::regex_search(decoder, std::regex("^[^\n]*\n( *[┌│][^\n]*\n)+ *<s> ")), decoder);
  const Result forced = call("attention --run run --source '1 2' --target '5 5 5'");
  CHECK(forced.code == 0);
  CHECK(forced.out.starts_with("1 2 → 5 5 5\n"));
  CHECK(forced.out.find("mean over 2 heads") != forced.out.npos);
}

TEST_CASE("cli: attention has the data's links of this very pair") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 4 --train 50 --dev 5 --test 5").code == 0);
  REQUIRE(heed_in(folder.path(), "train --data data --out run --layers 1 --width 8 --heads 2 --feed-forward 8 --warmup 1 --steps 1 --min-count 1000 --quiet").code == 0);
  write_text(folder / "data/test.tsv", "1 2\t2 1\t0-1 1-0\n3 4\t4 3\t0-0 5-1\t0?1 1?7\n");      // the second with links to nowhere
  const auto picture = [&](const std::string& source, const std::string& target) {
    const Result drawn = heed_in(folder.path(), "attention --run run --quiet --source '" + source + "' --target '" + target + "'");
    CHECK_MESSAGE(drawn.code == 0, drawn.err);
    return drawn.out;
  };
  CHECK(picture("1 2", "2 1").find("gold link, sure") != std::string::npos);
  CHECK(picture("x y", "y x").find("gold link") == std::string::npos);                               // every word is unknown to the model
  CHECK(picture("3 4", "4 3").find("gold link, sure") != std::string::npos);
  fs::rename(folder / "data/test.tsv", folder / "data/dev.tsv");                                      // a part that is missing hides no other
  CHECK(picture("1 2", "2 1").find("gold link, sure") != std::string::npos);
}

TEST_CASE("cli: nobody reads what goes to --out") {
  const std::string folder = small().folder.path();
  run_program("cd '" + folder + "' && (sleep 0.2; " HEED_BUILD_DIR "/examples/heed evaluate --run run --quiet --out /dev/fd/3 3>&1 > unread.scores 2> unread.err; echo $? > unread.code) | true");
  CHECK(text_of(small().folder / "unread.code") == "0\n");
  CHECK(text_of(small().folder / "unread.err") == "");
  CHECK(text_of(small().folder / "unread.scores").find("BLEU") != std::string::npos);
}

TEST_CASE("cli: explain") {
  const std::string written = lines_of(call("translate --run run --quiet --tokens", "1 2 3\n").out).at(0);
  const std::string first = written.substr(0, written.find(' '));
  const std::string unknown = " --run run --source '1 y 2 x y' --target '1 z'", named = "--source: unknown to the model: y, x\n--target: unknown to the model: z\n";
  CHECK(call("attention" + unknown).err == named);
  CHECK(call("explain" + unknown).err == named);
  CHECK(call("trace --out unknown.safetensors" + unknown).err == named);
  CHECK(call("trace --out unknown.safetensors --quiet" + unknown).err == "");
  const Result walk = call("explain --run run --source '1 2 3'");
  CHECK_MESSAGE(walk.code == 0, walk.err);
  CHECK(walk.out.find("\nwritten  " + first + "  (p = ") != walk.out.npos);
  CHECK(walk.out.find("core.decoder.layers.0.multihead_attn.weights  [4]  α = softmax(e)") != walk.out.npos);
  CHECK(walk.out.find("dL") == walk.out.npos);
  const Result back = call("explain --run run --source '1 2 3' --target '1 2 3' --step 2 --head 2");
  CHECK(back.out.find("L = -log p(2) = ") != back.out.npos);
  CHECK(back.out.find("\n  dL ") != back.out.npos);
  const auto json = parse_json(call("explain --run run --source '1 2 3' --step 2 --json --top 2").out);
  CHECK(json["top"].size() == 2);
  CHECK(json["step"] == 2);
}

TEST_CASE("cli: trace and diff") {
  const Result traced = call("trace --run run --source '1 2 3' --out one.safetensors");
  CHECK_MESSAGE(traced.code == 0, traced.err);
  const SafetensorsFile file = read_safetensors(small().folder / "one.safetensors");
  CHECK(file.at("core.encoder.layers.0.linear1").shape() == Shape{1, 4, 32});
  CHECK(file.at("core.decoder.layers.0.multihead_attn.weights").size(1) == 2);
  CHECK(file.metadata.at("heed.source") == "1 2 3");
  CHECK(call("diff one.safetensors one.safetensors").out.ends_with(": the same\n"));
  CHECK(call("diff one.safetensors one.safetensors").code == 0);
  // Another word: the first difference is where it is read.
  CHECK(call("trace --run run --source '1 2 4' --target '1 2 3' --out two.safetensors").code == 0);
  CHECK(call("trace --run run --source '1 2 3' --target '1 2 3' --out one.safetensors").code == 0);
  const Result other = call("diff one.safetensors two.safetensors");
  CHECK(other.code == 1);
  CHECK(other.out.starts_with("first    source_embedding [0, 2, 0]: "));
  CHECK(other.out.find("\nlargest  ") != other.out.npos);
  CHECK(call("diff one.safetensors two.safetensors --tolerance 1e6").code == 0);
  CHECK(parse_json(call("diff one.safetensors two.safetensors --json").out)["same"] == false);
  write_safetensors(small().folder / "a.safetensors", {{"x", tensor({1, 2})}, {"y", tensor({1})}, {"n", tensor({NAN})}});
  write_safetensors(small().folder / "b.safetensors", {{"x", tensor({{1, 2}})}, {"z", tensor({1})}, {"n", tensor({NAN})}});
  const Result unmatched = call("diff a.safetensors b.safetensors");
  CHECK(unmatched.code == 1);
  CHECK(unmatched.out == "x: f32 [2] and f32 [1, 2]\nonly in a.safetensors: y\nonly in b.safetensors: z\n3 tensors without one of the same name, shape and type in the other file; of the 1 compared none differs\n");
  write_safetensors(small().folder / "b.safetensors", {{"x", tensor({{1, 2}})}, {"y", tensor({1})}, {"n", tensor({1.0})}});
  CHECK(call("diff a.safetensors b.safetensors").out.ends_with("\n1 tensors without one of the same name, shape and type in the other file; of the 2 compared 1 differ\n"));
  constexpr std::int64_t kBig = std::int64_t{1} << 60;                        // beyond 2^53
  for (const auto& [name, more] : {std::pair("a.safetensors", 0), {"b.safetensors", 1}}) write_safetensors(small().folder / name, {{"n", tensor(std::vector{kBig, kBig + more}, {2})}});
  CHECK(call("diff a.safetensors b.safetensors").out.starts_with("first    n [1]: 1152921504606846976 and 1152921504606846977, 1 apart\n"));
  CHECK(call("diff a.safetensors b.safetensors --tolerance 1").code == 0);
  const auto half = [](const char* name, const std::string& last) {           // F16: 1, 2 and another number
    const std::string header = R"({"h":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}})";
    write_text(small().folder / name, std::string{char(header.size()), 0, 0, 0, 0, 0, 0, 0} + header + std::string("\x00\x3c\x00\x40", 4) + last);
  };
  half("a.safetensors", std::string("\x00\x42", 2)), half("b.safetensors", std::string("\x00\x7e", 2));
  CHECK(call("diff a.safetensors a.safetensors").out == "1 tensors, 3 numbers: the same\n");
  const Result bytes = call("diff a.safetensors b.safetensors");
  CHECK(bytes.code == 1);
  CHECK(bytes.out == "h: F16 [3]: 1 of 6 bytes differ\n1 of 1 tensors differ\n");
  CHECK(parse_json(call("diff a.safetensors b.safetensors --json").out)["same"] == false);
  write_safetensors(small().folder / "b.safetensors", {{"h", tensor({1, 2, 3})}});
  CHECK(call("diff a.safetensors b.safetensors").out.starts_with("h: F16 [3] and f32 [3]\n"));
  CHECK(call("inspect a.safetensors").out.ends_with("all values that were read are finite; not read: those of 1 tensors\n"));
  CHECK(parse_json(call("inspect a.safetensors --json").out)["tensors"][0]["nan"].is_null());
}

TEST_CASE("cli: diff reads of a checkpoint beside weights the weights alone") {
  CHECK(call("diff run/best.safetensors run/checkpoints/60.safetensors").out.ends_with(": the same\n"));
  CHECK(call("diff run/checkpoints/60.safetensors run/best.safetensors --json").code == 0);
  CHECK(call("diff run/checkpoints/60.safetensors run/checkpoints/60.safetensors").out.find("numbers: the same") != std::string::npos);
}

TEST_CASE("cli: compare") {
  const std::string command = "compare --data data --attention none,additive,general,transformer --out compared --epochs 1 --width 16 --layers 1 --heads 2 --feed-forward 32 --start eos --seeds 2 --bucket 3";
  const Result first = call(command);
  REQUIRE_MESSAGE(first.code == 0, first.err);
  const std::vector<std::string> table = lines_of(first.out);
  CHECK(table[0].starts_with("attention "));
  CHECK(table[1].starts_with("none "));
  CHECK(table[4].starts_with("transformer "));
  CHECK(!std::regex_search(first.out, std::regex(" [0-9]{4} ")));   // "7,932" as "20,228" beside it
  for (const char* run : {"additive-1", "transformer-1"}) CHECK(parse_json(text_of(small().folder / ("compared/" + std::string(run) + "/config.json")))["start"] == "eos");
  CHECK(first.out.find("BLEU by source words (sentences), test\n") != first.out.npos);
  CHECK(text_of(small().folder / "compared/table.txt") == first.out);
  for (const char* file : {"bleu.svg", "length.svg"}) {
    const std::string svg = text_of(small().folder / (std::string("compared/") + file));
    CHECK(svg.starts_with("<svg"));
    for (const char* word : {"Means", "whiskers:", " ± "}) CHECK(svg.find(word) != svg.npos);
  }
  CHECK(text_of(small().folder / "compared/bleu.svg").find(" allow: ") != std::string::npos);   // of models this small
  const std::vector<std::string> csv = lines_of(text_of(small().folder / "compared/table.csv"));
  CHECK(csv.size() == 9);
  CHECK(csv[0].starts_with("attention,seed,parameters,width,"));
  const auto all = parse_json(call(command + " --json --quiet").out);
  REQUIRE(all.size() == 8);
  const double wanted = all[0]["parameters"];
  for (const auto& one : all) {
    CHECK(std::abs(one["parameters"].get<double>() / wanted - 1) < 0.25);        // of models this small a step of the width is much
    CHECK(one["dev_loss"].get<double>() > 0);
    CHECK(one["entropy"].is_null() == (one["name"] == "none"));
  }
  // What is finished is kept; a lost table is made again from the runs, without training.
  const std::string before = listing(small().folder / "compared");
  const Result again = call(command);
  CHECK(again.out == first.out);
  CHECK(again.err.find("general, seed 2 (7 of 8): width ") != again.err.npos);
  CHECK(again.err.find("update") == again.err.npos);
  fs::remove(small().folder / "compared/general-1.json");
  CHECK(call(command + " --quiet").code == 0);
  const Result shorter = call("compare --data data --attention concat,none,general --out compared --steps 1 --width 16 --layers 1");
  CHECK(shorter.code == 2);
  CHECK(std::regex_search(shorter.err, std::regex("trained beyond the limit: compared/none-1 has ([0-9]+) updates: --steps 1; --steps \\1, or another --out")));
  CHECK(!fs::exists(small().folder / "compared/concat-1"));
  const Result sooner = call(command + " --patience 1");
  CHECK(sooner.code == 2);
  CHECK_MESSAGE(sooner.err.find(": --patience 1; --patience 1000000000, or another --out") != sooner.err.npos, sooner.err);
  const Result other = call(command + " --dropout 0.3");
  CHECK(other.code == 2);
  CHECK(other.err.find("contradicts the run: --dropout 0.3, stored in compared/none-1 is ") != other.err.npos);
}

TEST_CASE("cli: compare gives a model the first one's width where that comes nearest, and says which pairs it leaves out") {
  const Result odd = call("compare --data data --attention dot,scaled-dot,general --width 6 --steps 1 --max-length 3 --out odd --json");
  REQUIRE_MESSAGE(odd.code == 0, odd.err);
  for (const auto& one : parse_json(odd.out)) CHECK(one["width"] == 6);
  CHECK(std::regex_search(odd.err, std::regex("data/test.tsv: 40 pairs, [1-9][0-9]? of them left out as too long\n")));
}

TEST_CASE("cli: where no target has four words, right translations are the best") {
  REQUIRE(call("data copy --out three --symbols 12 --max-length 3 --train 800 --dev 60 --test 60").code == 0);
  const Result trained = call("train --data three --out of-three --steps 350 --evaluate-every 50 --width 32 --layers 1 --batch-tokens 500 --threads 1");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK_MESSAGE(trained.out.find("best dev BLEU 100.00 (") != trained.out.npos, trained.out);
  const Result measured = call("evaluate --run of-three");
  for (const char* line : {"\nBLEU 0.0  (", "\nBLEU of tokens 100.0  (nrefs:1|case:mixed|eff:yes|tok:none|", "\nno reference has four tokens: "}) CHECK(measured.out.find(line) != measured.out.npos);
}

TEST_CASE("cli: compare counts no result of other data") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 5 --train 50 --dev 10 --test 10").code == 0);
  const auto again = [&] { return heed_in(folder.path(), "compare --data data --attention none --steps 1 --width 8 --out compared"); };
  const auto is_new = [](const Result& result) { return result.code == 0 && result.err.find("done before") == result.err.npos; };
  CHECK(is_new(again()));
  CHECK(!is_new(again()));
  std::string test = text_of(folder / "data/test.tsv");
  for (const std::string& other : {test + "1\t1\n", test.replace(test.find("\t0-0 1-1"), 8, "\t0-1 1-1")}) {      // another pair; another link
    write_text(folder / "data/test.tsv", other);
    CHECK(is_new(again()));
    CHECK(!is_new(again()));
  }
  for (const std::string part : {"data/dev.tsv", "data/train.tsv"}) {
    const std::string text = text_of(folder / part);
    write_text(folder / part, text + "1\t1\n");
    const Result refused = again();
    CHECK(refused.code == 2);
    CHECK_MESSAGE(refused.err.find("the data has changed since compared/none-1/checkpoints/1.safetensors was written") != std::string::npos, refused.err);
    write_text(folder / part, text);
  }
}

TEST_CASE("cli: compare takes over what an end within a write leaves") {
  for (const char* left : {"before", "after"}) {
    fs::create_directory(small().folder / left);
    write_text(small().folder / (std::string(left) + "/.heed-tmp-1-2f"), "half");
  }
  write_text(small().folder / "after/table.txt", "the first of its files");
  for (const std::string left : {"before", "after"}) {
    const Result result = call("compare --data data --attention none --steps 1 --width 8 --quiet --out " + left);
    CHECK_MESSAGE(result.code == 0, result.err);
    CHECK(!fs::exists(small().folder / (left + "/.heed-tmp-1-2f")));
    // While another is at work, neither its files nor its table are touched.
    const RunLock another(small().folder / left);
    write_text(small().folder / (left + "/.heed-tmp-1-30"), "half");
    const std::string before = listing(small().folder / left);
    const Result second = call("compare --data data --attention none,dot --steps 1 --width 8 --quiet --out " + left);
    CHECK(second.code == 2);
    CHECK_MESSAGE(second.err.starts_with("heed compare: another training holds " + left + ": process "), second.err);
    CHECK((listing(small().folder / left) == before));
    CHECK(text_of(small().folder / (left + "/bleu.svg")).find(" nearly ") != std::string::npos);
  }
}

TEST_CASE("cli: attention of recurrent models") {
  CHECK(call("data reverse --out rev --symbols 5 --max-length 6 --train 200 --dev 20 --test 20").code == 0);
  for (const std::string options : {"--model gru --attention additive", "--model lstm --attention location", "--model gru --attention local-p --window 1"}) {
    INFO(options);
    fs::remove_all(small().folder / "look");
    const Result trained = call("train --data rev --out look --width 16 --steps 5 --quiet " + options);
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    std::istringstream pair(lines_of(text_of(small().folder / "rev/test.tsv")).at(0));
    std::string source, target, links;
    std::getline(pair, source, '\t'), std::getline(pair, target, '\t'), std::getline(pair, links, '\t');
    const std::string sentence = "--source '" + source + "' --target '" + target + "'";
    CHECK(call("attention --run look " + sentence + " --out look.svg --quiet").code == 0);
    const std::string svg = text_of(small().folder / "look.svg");
    CHECK(svg.find("target word being written") != svg.npos);
    CHECK((svg.find("gold link, sure") != svg.npos) == !links.empty());
    CHECK((svg.find("window of the attention") != svg.npos) == (options.find("local-") != options.npos));
    const std::string joined = std::regex_replace(svg, std::regex("</text>\\s*<text[^>]*>"), " ");   // a sentence may go on in the next line
    CHECK((joined.find("aims at the word being") != joined.npos) == (options.find(" location") != options.npos));
    const Result read = call("attention --run look " + sentence + " --align-to input --quiet");
    CHECK(read.out.find("target word just read") != read.out.npos);
    CHECK(read.out.find("\n") != read.out.npos);
    CHECK(call("attention --run look --source '1 2' --target '2 1' --links '0-1 1-0' --out own.html --quiet").code == 0);
    CHECK(call("explain --run look --source '1 2' --step 2 --target '2 1'").out.find("  dL ") != std::string::npos);
    CHECK(call("trace --run look --source '1 2' --out look.safetensors --quiet").code == 0);
  }
}

TEST_CASE("cli: inspect") {
  const Result run = call("inspect run");
  CHECK(run.code == 0);
  CHECK(run.out.find("--width 16") != run.out.npos);
  CHECK(run.out.find("core.encoder.layers.0.linear1.weight") != run.out.npos);
  CHECK(run.out.find("finished: 60 (steps)") != run.out.npos);
  fs::copy(small().folder / "run", small().folder / "diverged", fs::copy_options::recursive);
  write_text(small().folder / "diverged/metrics.jsonl", "{\"event\": \"dev\", \"step\": 60, \"loss\": null, \"bleu\": 0, \"exact\": 0}\n{\"event\": \"end\", \"reason\": 0}\n");
  CHECK(call("inspect diverged").out.find("\nlast evaluation: update 60, dev loss nan, BLEU 0.00, exact 0.0 %\n\n") != std::string::npos);
  const Result best = call("inspect run/best.safetensors");
  CHECK(best.out.find("checksum right") != best.out.npos);
  CHECK(best.out.find("all values are finite") != best.out.npos);
  write_safetensors(small().folder / "odd.safetensors", {{"x", tensor({1, NAN, INFINITY, -INFINITY})}, {"n", tensor({1, 2}, DType::i64)}}, {}, {.checksum = false});
  const auto odd = parse_json(call("inspect odd.safetensors --json").out);
  CHECK(odd["checksum"] == "none");
  CHECK(odd["tensors"][1]["nan"] == 1);
  CHECK(odd["tensors"][1]["inf"] == 2);

  // A damaged checkpoint, damaged best weights, and none.
  const std::string copy = small().folder / "damaged";
  fs::copy(small().folder / "run", copy, fs::copy_options::recursive);
  for (const char* file : {"/checkpoints/60.safetensors", "/best.safetensors"}) {
    std::string bytes = text_of(copy + file);
    bytes[bytes.size() / 2] ^= 1;
    write_text(copy + file, bytes);
  }
  const Result damaged = call("inspect damaged");
  CHECK(damaged.code == 1);
  CHECK(damaged.out.find("\nbest.safetensors: damaged\n") != damaged.out.npos);
  for (const char* file : {"checkpoints/60", "best"}) CHECK(damaged.out.find(std::string("\ndamaged: damaged/") + file + ".safetensors: checksum differs: ") != damaged.out.npos);
  CHECK(parse_json(call("inspect damaged --json").out)["damaged"].size() == 2);
  fs::remove(copy + "/best.safetensors"), fs::remove(copy + "/checkpoints/60.safetensors");
  const Result without = call("inspect damaged");
  CHECK(without.code == 0);
  CHECK(without.out.find("\nbest.safetensors: none\n") != without.out.npos);
  CHECK(call("translate --run damaged", "1 2\n").err.starts_with("damaged has no best.safetensors: using damaged/checkpoints/"));
  // A model that the weights do not fit.
  const std::string config = text_of(copy + "/config.json");
  write_text(copy + "/config.json", std::regex_replace(config, std::regex("\"width\": [0-9]+"), "\"width\": 8"));
  CHECK(call("inspect damaged").code == 1);
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
const std::string kTrainFiles = "train --train-files s t --dev-files s t ", kTrainSplit = "train --train pairs.tsv --split-by-source --split-dev 3 --split-test 3 ";
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
  for (const std::string& options : std::vector<std::string>{"--tokenizer char", "--tokenizer word --lowercase --tie all", has_sentencepiece() ? "--tokenizer bpe --vocabulary-size 30 --tie output" : "--tie output", "--positions learned --norm pre --final-norm always",
                                                             "--batch-sentences 7 --accumulate 2 --optimizer sgd --schedule constant --momentum 0.5", "--average 0.9 --evaluate-every 2 --patience 1 --optimizer adamw --weight-decay 0.1"}) {
    INFO(options);
    const Result trained = heed_in(folder.path(), train + options);
    CHECK_MESSAGE(trained.code == 0, trained.err);
    CHECK(std::regex_search(trained.err, std::regex("update 3, epoch [0-9]+: dev loss [0-9.]+, BLEU of tokens [0-9.]+, ")));
    CHECK(trained.out.find(", best dev BLEU of tokens ") != std::string::npos);
    CHECK(text_of(folder / "r/curves.svg").find("dev BLEU of tokens") != std::string::npos);
    CHECK(heed_in(folder.path(), "inspect r").out.find(", BLEU of tokens ") != std::string::npos);
    const Result translated = heed_in(folder.path(), "translate --run r --quiet", "Go 3!\n\nGo!\n");
    CHECK_MESSAGE(translated.code == 0, translated.err);
    CHECK(lines_of(translated.out).size() == 3);
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
  CHECK(split.err.find("1 lines skipped for an empty side, 1 invalid byte sequences replaced") != std::string::npos);
  CHECK(text_of(folder / "r2/metrics.jsonl").find("\"empty\": 1, \"invalid_sequences\": 1") != std::string::npos);
  CHECK(parse_json(heed_in(folder.path(), "evaluate --run r2 --json --quiet").out)["sentences"] == 3);
  CHECK(heed_in(folder.path(), "evaluate --run r2 --quiet").err.empty());
  write_text(folder / "pairs.tsv", pairs);
  CHECK(heed_in(folder.path(), "evaluate --run r2 --quiet").err.find("pairs.tsv has changed since it was split for the training") != std::string::npos);
}

TEST_CASE("cli: SentencePiece models, learned and one's own") {
  if (!has_sentencepiece()) return;
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  const Result bpe = heed_in(folder.path(), kTrainSplit + kTiny + "--tokenizer bpe --vocabulary-size 40 --out r6 --quiet");
  CHECK_MESSAGE(bpe.code == 0, bpe.err);
  const auto translations = [&](const std::string& line) { return parse_json(heed_in(folder.path(), "translate --run r6 --json --quiet", line).out)["translations"]; };
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
  CHECK(refused("source.model", text_of(folder / "r6/target.model")).starts_with("heed translate: r6/source.model: not the model that source.vocabulary was made with: it has no piece \""));
  CHECK(refused("target.model", model).starts_with("heed translate: r6/target.model: not the model that target.vocabulary was made with: it has no piece \""));
  CHECK(refused("source.model", model.substr(0, model.size() - 1)).starts_with("heed translate: r6/source.model: not a SentencePiece model: malformed at byte "));
  CHECK(refused("target.tokenizer.json", R"({"name": "char"})") == "heed translate: r6/target.tokenizer.json: tokenizer char, but the run's config.json says bpe\n");

  // SentencePiece models of one's own: what is trained with them reads with them.
  std::vector<std::string> lines(40, "Go 3! Va 7 !");
  const std::string removes_spaces = "\x1a\x02\x20\x01";                  // normalizer_spec, field 3: remove_extra_whitespaces, field 4
  const Tokenizer own({.name = "bpe"}, train_tokenizer({.name = "bpe"}, lines, 20).model() + removes_spaces);
  write_text(folder / "own.model", own.model());
  const Result learned_elsewhere = heed_in(folder.path(), kTrainFiles + kTiny + "--sentencepiece own.model own.model --tie all --out r7 --quiet");
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
  CHECK(lines_of(heed_in(folder.path(), draws, "\u2581\n" + blanks + "Go 3!\n").out).back() == lines_of(heed_in(folder.path(), draws, "Go 3!\n").out).back());
  for (const std::string& piece : own.pieces()) CHECK(with_own.target.vocabulary.id(piece) != with_own.target.vocabulary.unk);
}

TEST_CASE("cli: the configurations that come with Heed, made small") {
  if (!has_sentencepiece()) return;
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  for (const auto& config : fs::directory_iterator(fs::path(HEED_SOURCE_DIR) / "examples/tatoeba")) {
    INFO(config.path().string());
    const Result trained = heed_in(folder.path(), kTrainFiles + "--out r --quiet --width 8 --steps 3 --warmup 1 --tokenizer word --config " + config.path().string());
    CHECK_MESSAGE(trained.code == 0, trained.err);
    fs::remove_all(folder / "r");
  }
}

TEST_CASE("cli: a config file, flags before it; another run's config; weights of another run to start from") {
  const TemporaryFolder folder;
  write_forty_pairs(folder);
  write_text(folder / "c.json", R"({"width": 8, "heads": 4, "layers": 1, "feed-forward": 8, "epochs": 1, "dropout": 0.3, "schedule": "cosine", "warmup": 0})");
  const Result configured = heed_in(folder.path(), kTrainFiles + "--config c.json --heads 2 --out r3 --quiet");
  CHECK_MESSAGE(configured.code == 0, configured.err);
  const Run run = open_run(folder / "r3");
  CHECK(run.config.heads == 2);
  CHECK(run.config.dropout == 0.3);
  CHECK(!run.config.steps);
  CHECK(run.config.schedule_steps == run.config.epochs.value() * 1);
  CHECK(heed_in(folder.path(), "train --config r3/config.json --out r4 --quiet --init r3/best.safetensors").code == 0);
  CHECK(heed_in(folder.path(), "train --config r3/config.json --out r5 --quiet --steps 2 --init r4/checkpoints/1.safetensors").code == 0);
  CHECK(!open_run(folder / "r5").config.epochs);
}

TEST_CASE("cli: data from a pipe") {
  const TemporaryFolder folder;
  write_text(folder / "pairs.tsv", "1\t1\n2\t2\n3\t3\n");
  run_program("cd '" + folder.path() + "' && cat pairs.tsv | " HEED_BUILD_DIR "/examples/heed train --train /dev/stdin --split-by-source --split-dev 1 --split-test 0 --out run --width 8 --heads 2 --steps 1 --warmup 1 --quiet; echo $? > code");
  CHECK(text_of(folder / "code") == "0\n");
  CHECK(fs::exists(folder / "run/best.safetensors"));
}

TEST_CASE("cli: noam's factor and adadelta's rate are 1, adamw's decay 0.01 unless others are given, and a warm-up that does not end is told") {
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
  const Result compared = heed_in(folder.path(), "compare --train-files s t --dev-files s t --test-files s t --attention dot --width 8 --steps 1 --batch-sentences 40 --schedule noam --warmup 1 --out c");
  CHECK_MESSAGE(compared.code == 0, compared.err);
  CHECK(open_run(folder / "c/dot-1").config.learning_rate == 1);
  const Result cold = heed_in(folder.path(), kTrainFiles + kTinyModel + "--steps 3 --out r --warmup 20");
  CHECK_MESSAGE(cold.err.find("warning: the warm-up of 20 updates does not end in the 3 planned\n") != std::string::npos, cold.err);
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
  write_safetensors(folder / "with.safetensors", with), write_safetensors(folder / "without.safetensors", without), write_safetensors(folder / "most.safetensors", most);
  for (const std::string file : {"with", "without"}) {
    const Result trained = heed_in(folder.path(), train + "--out r --init " + file + ".safetensors");
    CHECK_MESSAGE(trained.code == 0, trained.err);
    CHECK_MESSAGE(trained.err.find(file + ".safetensors: " + std::to_string(with.size()) + " weights of the core taken, output.bias, output.weight, source_embedding.weight, target_embedding.weight start fresh\n") != std::string::npos, trained.err);
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
  CHECK_MESSAGE(refused.err.find("most.safetensors: does not fit the model; missing: encoder.layers.0.linear1.bias; unexpected: encoder.norm.weight; --final-norm always for final norms\n") != std::string::npos, refused.err);
  CHECK(!fs::exists(folder / "r"));
  with.emplace("source_embedding.weight", ones({3, 8}));
  write_safetensors(folder / "with.safetensors", with);
  CHECK(heed_in(folder.path(), train + "--out r --init with.safetensors").code == 2);
}
