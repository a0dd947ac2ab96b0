// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "examples/cli/dataset.h"
#include "examples/cli/model.h"
#include "examples/cli/progress.h"
#include "models/text.h"
#include "tensor/file.h"

namespace heed::cli {
namespace {

TerminalColour colours() {
  if (!takes_colour(STDOUT_FILENO)) return TerminalColour::none;
  const char* const depth = std::getenv("COLORTERM");
  return depth && (std::string_view(depth) == "truecolor" || std::string_view(depth) == "24bit") ? TerminalColour::rgb
                                                                                                 : TerminalColour::indexed;
}

// Each layer's heads and, before those of cross-attention, their mean; self-attention only where all is asked for.
AttentionPicture chosen_maps(AttentionPicture picture, bool all) {
  picture.maps = with_means(picture.maps);
  std::erase_if(picture.maps,
                [&](const AttentionPicture::Map& map) { return map.axes != AttentionPicture::Axes::cross && (!all || map.head == 0); });
  return picture;
}

bool is_outside(const Link& link, const Example& example) {
  return link.source + 1 >= Index(example.source.size()) || link.target + 1 >= Index(example.target.size());
}

// The links of this pair in the data that the run was trained with; none where it is not there or its links count other tokens.
Alignment links_in_data(const Run& run, const std::string& source, const std::string& target, const Example& example) {
  if (run.config.data.empty() && run.config.train.empty()) return {};
  // all unknown words have one id
  const std::vector<std::string> sources = run.source.tokenizer.tokens(source), targets = run.target.tokenizer.tokens(target);
  for (const char* part : {"test", "dev", "train"}) try {
      if (!has_links(run.config)) return {};
      for (Pair& pair : read_part(run.config, part).pairs) {
        if (pair.links.sure.empty() || run.source.tokenizer.tokens(pair.source) != sources ||
            run.target.tokenizer.tokens(pair.target) != targets)
          continue;
        for (auto* links : {&pair.links.sure, &pair.links.possible})
          std::erase_if(*links, [&](const Link& link) { return is_outside(link, example); });
        return pair.links;
      }
    } catch (const Error&) {                       // this part is gone, is not what it was, or may not be looked at
    }
  return {};
}

Alignment links_of(const std::string& text, const Run& run, const Example& example) {
  const Alignment links{parse_links(text), {}};
  for (const Link& link : links.sure)
    if (is_outside(link, example))
      throw Mistake(fmt::format("a link points outside: {}-{} in --links; {} source and {} target {}s, from 0", link.source, link.target,
                                example.source.size() - 1, example.target.size() - 1, run.source.tokenizer.options().noun()));
  return links;
}

}  // namespace

int attention(std::span<const std::string> words) {
  RunFlags run_flags;
  Manner manner;
  std::string source, target, out;
  bool all = false, numbers = false;
  std::string align_to = "predicted", links;
  Syntax syntax{.command = "attention",
                .usage = "--run RUN --source TEXT [--target TEXT] [--out FILE.svg|.html|.txt]",
                .about = "Draws where a model looks: for each word of the translation the weights of the source words.",
                .example = "heed attention --run phrases --source 'the black cat' --out cat.svg",
                .options = options(run_flags) + std::vector<Option>{
                    {.name = "source", .value = &source, .takes = "TEXT", .help = "the sentence", .heading = "Picture"},
                    {.name = "target", .value = &target, .takes = "TEXT", .help = "its translation; else what the model says"},
                    {.name = "out", .value = &out, .takes = "FILE",
                     .help = "ending in .svg, .html (every layer and head to choose from) or .txt; else the terminal, the last layer and the mean of its heads"},
                    {.name = "align-to", .value = &align_to, .takes = "NAME",
                     .help = "a row is named for the word it predicts, or the word that was read for it", .choices = {"predicted", "input"},
                     .standard = "predicted"},
                    {.name = "links", .value = &links, .takes = "TEXT",
                     .help = "gold links \"0-0 1-2\", source-target from 0, drawn over it; else those of the run's data, where it has the pair"},
                    {.name = "all", .value = &all,
                     .help = "SVG and text: self-attention as well, on the terminal every layer and head; the page has them always"},
                    {.name = "numbers", .value = &numbers, .help = "SVG: print the weights into the cells"},
                    {.name = "quiet", .value = &manner.quiet, .help = "no notes on standard error", .heading = "Output"}
                }};
  if (!parse(syntax, words)) return 0;
  const std::string ending = lower(std::filesystem::path(out).extension().string());
  if (!out.empty() && ending != ".svg" && ending != ".html" && ending != ".txt")
    throw Mistake(fmt::format("unknown kind of picture: --out {}; a name that ends in .svg, .html or .txt", out));
  if (numbers && ending != ".svg")
    throw Mistake(fmt::format("numbers go into the cells of an SVG: --numbers{}; --out FILE.svg", out.empty() ? "" : " --out " + out));
  check_required(source, "source", "the sentence to translate");
  if (!out.empty()) check_output(out);
  const Ready model = ready(run_flags);
  const Run& run = model.run;
  if (!out.empty()) check_outside(model, out);
  Example example = sentence_pair(model, source, target);
  example.links = links.empty()
                      ? links_in_data(run, repaired(source), target.empty() ? target_text(run, example) : repaired(target), example)
                      : links_of(links, run, example);
  AttentionPicture picture = attention_picture(run, model.model(), example,
                                               align_to == "input" ? AttentionPicture::Rows::input : AttentionPicture::Rows::predicted);
  if (last_cross_attention(picture).maps.empty())
    throw Mistake(fmt::format("no attention over the source: --run {}; one trained with attention", run_flags.run));
  picture.title = source_text(run, example) + " → " + target_text(run, example);
  picture.numbers = numbers;
  if (ending == ".html") {
    write_file_atomically(out, attention_html(picture));
  } else if (ending == ".svg") {
    write_file_atomically(out, attention_svg(chosen_maps(picture, all)));
  } else {
    const TerminalColour colour = out.empty() ? colours() : TerminalColour::none;
    const std::string text =
        attention_text(out.empty() && !all ? last_cross_attention(picture) : chosen_maps(picture, all),
                       std::max(40, page_columns(out.empty() ? STDOUT_FILENO : -1)), colour);
    if (out.empty()) print(text);
    else write_file_atomically(out, text);
  }
  note_unknown(run, source, target, manner);
  if (!out.empty() && !manner.quiet) note(fmt::format("{}: {}", out, picture.title));
  return 0;
}

}  // namespace heed::cli
