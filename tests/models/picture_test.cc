// SPDX-License-Identifier: Apache-2.0
#include "models/picture.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <locale>
#include <map>

#include "models/drawing.h"
#include "tensor/json.h"
#include "tests/thrown.h"
#include "tests/xml.h"

using namespace heed;
using Axes = AttentionPicture::Axes;
using Map = AttentionPicture::Map;
using Words = std::vector<std::string>;

namespace {

// The classic example: A beautiful dog -> Un perro bonito, the swap of words 2 and 3.
AttentionPicture beautiful_dog() {
  AttentionPicture picture;
  picture.title = "a beautiful dog";
  picture.source = {"a", "beautiful", "dog"};
  picture.target = {"un", "perro", "bonito"};
  picture.maps = {Map{.weights = {.9f, .05f, .05f, .1f, .2f, .7f, 0, .95f, .05f}, .layer = 2, .heads = 4}};
  return picture;
}

const Words kOdd = {"<s>", "我", "黑色的", "👩‍👩‍👧", "العربية", "a&b", "\"q\"", "it's", "</script><!--", " ", "", "\n\x1b[31m",
                    "caf\xC3\xA9", "bad\xFF", "\xE2\x80\xAEturned", "\xEF\xBF\xBE",
                    "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz"};

AttentionPicture odd_words() {
  AttentionPicture picture;
  picture.title = "<title> & \"quotes\" \xFF";
  picture.source = picture.target = kOdd;
  const std::size_t n = kOdd.size();
  Map map{.weights = std::vector<float>(n * n, 0.02f), .label = "score <general> & more"};
  for (std::size_t t = 0; t < n; ++t) {
    map.weights[t * n + t] = 0.6f;
    map.windows.push_back({Index(t) - 2, Index(t) + 2});
  }
  map.windows.back() = {5, 4};
  map.weights[3] = NAN;
  picture.maps = {map};
  picture.gold = {{{0, 0}, {1, 2}}, {{2, 1}}};
  return picture;
}

// `heads` maps a layer, all axes; each row spread around its own diagonal.
AttentionPicture transformer(int layers, int heads, int words) {
  AttentionPicture picture;
  for (int w = 0; w < words; ++w) {
    picture.source.push_back(fmt::format("s{}", w));
    picture.target.push_back(fmt::format("t{}", w));
  }
  for (const Axes axes : {Axes::encoder_self, Axes::decoder_self, Axes::cross})
    for (int layer = 1; layer <= layers; ++layer)
      for (int head = 1; head <= heads; ++head) {
        Map map{.axes = axes, .layer = layer, .head = head, .heads = heads};
        for (int t = 0; t < words; ++t)
          for (int s = 0; s < words; ++s) map.weights.push_back(1 / float(1 + std::abs(s - t) * head + layer));
        picture.maps.push_back(map);
      }
  return picture;
}

// What stands in the picture, as lines read one after the other.
std::string texts(const std::string& svg) {
  std::string result;
  for (std::size_t end = svg.find("</text>"); end != svg.npos; end = svg.find("</text>", end + 1)) {
    const std::size_t begin = svg.rfind('>', end) + 1;
    result += svg.substr(begin, end - begin) + " ";
  }
  return result;
}

// Fill colours of the cells by their tooltip.
std::map<std::string, std::string> cells(const std::string& svg) {
  std::map<std::string, std::string> result;
  for (std::size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1)) {
    const std::string element = svg.substr(at, svg.find('\n', at) - at);
    const std::size_t title = element.find("<title>"), fill = element.find("fill=\"") + 6;
    if (title == std::string::npos) continue;
    result[element.substr(title + 7, element.find("</title>") - title - 7)] = element.substr(fill, 7);
  }
  return result;
}

int brightness(const std::string& hex) {
  const auto part = [&](int i) { return std::stoi(hex.substr(std::size_t(1 + 2 * i), 2), nullptr, 16); };
  return 299 * part(0) + 587 * part(1) + 114 * part(2);
}

Json page_data(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t at = html.find(begin) + begin.size();
  return parse_json(html.substr(at, html.find("</script>", at) - at));
}

std::string without_colours(std::string text) {
  for (std::size_t at; (at = text.find('\x1b')) != std::string::npos;) text.erase(at, text.find('m', at) - at + 1);
  return text;
}

}  // namespace

TEST_CASE("picture: the colour scale is ordered by lightness, blue above 0, red below") {
  int above = 1000 * 256, below = above;
  for (int i = 0; i <= 100; ++i) {
    const std::string up = drawing::hex(drawing::heat(i / 100.0)), down = drawing::hex(drawing::heat(-i / 100.0));
    CHECK(brightness(up) < above);
    CHECK(brightness(down) < below);
    above = brightness(up), below = brightness(down);
    const drawing::Rgb u = drawing::heat(i / 100.0), d = drawing::heat(-i / 100.0);
    if (i > 0) CHECK((u.b > u.r && d.r > d.b));
  }
  CHECK(drawing::hex(drawing::heat(5)) == drawing::hex(drawing::heat(1)));
  CHECK(drawing::hex(drawing::heat(NAN)) == "#c4c4c4");
}

TEST_CASE("picture: svg of one map") {
  AttentionPicture picture = beautiful_dog();
  picture.gold = {{{0, 0}, {2, 1}, {1, 2}}, {{0, 1}}};
  const std::string svg = attention_svg(picture);
  CHECK(xml_fault(svg) == "");
  const auto cell = cells(svg);
  CHECK(cell.size() == 9);
  CHECK(cell.at("perro ← dog: 0.700") == drawing::hex(drawing::heat(0.7f)));
  CHECK(cell.at("bonito ← a: 0.000") == drawing::hex(drawing::heat(0)));
  const auto darker = [](const auto& a, const auto& b) { return brightness(a.second) < brightness(b.second); };
  const auto darkest = std::min_element(cell.begin(), cell.end(), darker);
  CHECK(darkest->first == "bonito ← beautiful: 0.950");
  CHECK(has(svg, "decoder layer 2, mean over 4 heads, cross-attention"));
  CHECK(has(svg, "target word being written"));
  CHECK(has(svg, "source word looked at"));
  CHECK(has(texts(svg), "Each weight is the mean over 4 heads."));
  CHECK(count(svg, "stroke-dasharray") == 2);   // one possible link, and its key
  CHECK(has(svg, "gold link, sure"));
  for (const char* tick : {">0<", ">0.25<", ">0.5<", ">0.75<", ">1<"}) CHECK(has(svg, tick));

  picture.rows = AttentionPicture::Rows::input;
  picture.maps[0].head = 3;
  CHECK(has(attention_svg(picture), "target word just read"));
  CHECK(has(attention_svg(picture), "decoder layer 2, head 3, cross-attention"));
  CHECK(has(attention_svg(picture), "No heads were averaged."));
  CHECK(!has(attention_svg(picture), ">0.70<"));
  picture.numbers = true;
  CHECK(has(attention_svg(picture), ">0.70<"));
}

TEST_CASE("picture: the scale goes where the weights go") {
  AttentionPicture picture = beautiful_dog();
  picture.full = 0;
  CHECK(cells(attention_svg(picture)).at("bonito ← beautiful: 0.950") == drawing::hex(drawing::heat(1)));
  for (float& w : picture.maps[0].weights) w *= 1e-4f;
  CHECK(has(attention_html(picture), "\"full\":9.4"));      // 0.95e-4, to the bits: the page divides by it
  picture = beautiful_dog();
  picture.maps[0].weights[1] = 2;
  CHECK(cells(attention_svg(picture)).at("un ← a: 0.900") == drawing::hex(drawing::heat(0.45f)));
  CHECK(has(attention_svg(picture), ">1.5<"));
  picture.maps[0].weights[1] = -0.5f;
  CHECK(cells(attention_svg(picture)).at("un ← beautiful: -0.500") == drawing::hex(drawing::heat(-0.5)));
  CHECK(has(attention_svg(picture), ">-1<"));
  CHECK(has(attention_text(picture, 80), "-▒"));
}

TEST_CASE("picture: odd words are escaped everywhere") {
  const AttentionPicture picture = odd_words();
  const std::string svg = attention_svg(picture);
  CHECK(xml_fault(svg) == "");
  CHECK(has(svg, ">&lt;s&gt;</text>"));
  CHECK(has(svg, "a&amp;b ← &quot;q&quot;: 0.020"));
  CHECK(has(svg, "not a number"));
  CHECK(has(svg, "window of the attention"));
  CHECK(count(svg, "rx=\"2\"") == kOdd.size() - 1 + 1);   // an empty window is not drawn; one stands in the key
  CHECK(has(svg, "␊␛[31m"));
  CHECK(!has(svg, "\xE2\x80\xAE"));
  CHECK(!has(svg, "\xFF"));

  const std::string html = attention_html(picture);
  CHECK(count(html, "</script>") == 2);
  CHECK(count(html, "<!--") == 0);
  const Json data = page_data(html);
  CHECK(data["words"].size() == 1);
  CHECK(data["words"][0][0] == "<s>");
  CHECK(data["words"][0][8] == "</script><!--");
  CHECK(data["words"][0][9] == "␣");
  CHECK(data["maps"][0]["weights"][3].is_null());
  CHECK(data["maps"][0]["windows"][1] == Json({-1, 3}));
  CHECK(data["sure"] == parse_json("[[0,0],[1,2]]"));
  CHECK(has(html, "<title>&lt;title&gt; &amp; &quot;quotes&quot; \xEF\xBF\xBD</title>"));

  const std::string text = attention_text(picture, 100);
  CHECK(!has(text, "\x1b"));
  CHECK(has(text, "??"));
}

TEST_CASE("picture: html holds every map, their means, and nothing from outside") {
  const AttentionPicture picture = transformer(2, 3, 4);
  const std::string html = attention_html(picture);
  const Json data = page_data(html);
  CHECK(count(html, "http") == count(html, "http-equiv") + count(html, "http://www.w3.org/2000/svg"));
  CHECK(!has(html, "src="));
  CHECK(!has(html, "url("));
  CHECK(data["maps"].size() == 3 * 2 * (3 + 1));
  const Json &mean = data["maps"][0], &first = data["maps"][1];
  CHECK(mean["label"] == "encoder layer 1, mean over 3 heads, self-attention");
  CHECK(first["label"] == "encoder layer 1, head 1, self-attention");
  const double unit = data["unit"];
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK(std::abs(first["weights"][i].get<double>() / unit - double(picture.maps[0].weights[i])) <= 0.5 / unit);
    const double sum = double(picture.maps[0].weights[i]) + picture.maps[1].weights[i] + picture.maps[2].weights[i];
    CHECK(std::abs(mean["weights"][i].get<double>() / unit - sum / 3) <= 0.6 / unit);   // and the rounding of a float
  }
  CHECK(data["maps"][data["first"].get<std::size_t>()]["label"] == "decoder layer 2, mean over 3 heads, cross-attention");
  CHECK(has(html, "<noscript>"));
  const std::size_t svg = html.find("<svg"), end = html.find("</svg>") + 6;
  CHECK(xml_fault(html.substr(svg, end - svg)) == "");
  CHECK(has(html.substr(svg, end - svg), "decoder layer 2, mean over 3 heads, cross-attention"));

  AttentionPicture own = picture;   // words of a map's own; a mean that is there is not made again
  own.maps = {mean_map(std::span(picture.maps).subspan(12, 3)), picture.maps[6]};
  own.maps[1].columns = {"<s>", "t0", "t1", "t2"};
  const Json two = page_data(attention_html(own));
  CHECK(two["maps"].size() == 2);
  CHECK(two["words"][two["maps"][1]["columns"].get<std::size_t>()][0] == "<s>");
}

TEST_CASE("picture: small multiples") {
  const AttentionPicture picture = transformer(2, 3, 4);
  const std::string svg = attention_svg(picture);
  CHECK(xml_fault(svg) == "");
  for (const char* heading : {"Encoder self-attention", "Decoder self-attention", "Cross-attention", "layer 2, head 3"})
    CHECK(has(svg, heading));
  CHECK(count(svg, "<title>s1 ← s2: ") == 6);
  CHECK(count(svg, "<title>t1 ← t2: ") == 6);
  CHECK(count(svg, "<title>t1 ← s2: ") == 6);

  const std::string large = attention_svg(transformer(6, 8, 50));   // 360,000 cells
  CHECK(xml_fault(large) == "");
  CHECK(large.size() < 20'000'000);
  CHECK(count(large, "<path") > 100);
  const auto wide = [](const AttentionPicture& p) { return std::stod(attention_svg(p).substr(attention_svg(p).find("width=\"") + 7)); };
  CHECK(wide(transformer(1, 8, 10)) < 2000);                       // eight in a line
  CHECK(wide(transformer(1, 8, 250)) < 250 * 9 + 300);             // one in a line
}

TEST_CASE("picture: numbers stand in the cells of every layout, large enough to be read") {
  AttentionPicture alone = transformer(1, 1, 40), tiny = transformer(1, 8, 30), many = transformer(2, 8, 40);
  alone.maps = {alone.maps[2]};
  for (AttentionPicture picture : {transformer(2, 4, 8), alone, tiny, many}) {   // tiny: 9 px without; many: without tooltips
    std::size_t weights = 0;
    for (const Map& map : picture.maps) weights += std::size_t(std::ranges::count_if(map.weights, [](float w) { return w >= 0.005f; }));
    CHECK(count(attention_svg(picture), ">0.") < 10);   // the scale's
    picture.numbers = true;
    const std::string svg = attention_svg(picture);
    CHECK(xml_fault(svg) == "");
    CHECK(count(svg, ">0.") >= weights);
    std::size_t readable = 0;
    for (std::size_t at = svg.find("font-size=\""); at != svg.npos; at = svg.find("font-size=\"", at + 1))
      readable += std::stod(svg.substr(at + 11, 8)) >= 8.9;
    CHECK(readable == count(svg, "font-size=\""));
  }
}

TEST_CASE("picture: numbers below 0 stand in their cells; a window ends with the words") {
  AttentionPicture picture = beautiful_dog();
  picture.numbers = true;
  picture.maps[0].weights[2] = -0.5f;
  picture.maps[0].windows = {{0, 2}, {1, 9}, {-3, 0}};
  const std::string svg = attention_svg(picture);
  CHECK(has(svg, ">-0.50</text>"));
  // cells of 36 px
  for (const Index words : {1, 2, 3}) CHECK(count(svg, fmt::format("width=\"{}\" height=\"34\" rx=\"2\"", 36 * words - 2)) == 1);
  AttentionPicture many = transformer(2, 4, 8);
  many.numbers = true;
  CHECK(has(attention_svg(many), "width=\"27\" height=\"27\""));
  many.maps[0].weights[0] = -0.5f;                                          // a sign needs room beside the frame of a link
  CHECK(has(attention_svg(many), "width=\"33\" height=\"33\""));
}

TEST_CASE(
    "picture: a window with gaps, and first words beside it, is drawn as its runs; its gaps are blank; heads that differ in it have none "
    "in their mean") {
  AttentionPicture picture = transformer(1, 2, 7);
  picture.maps = {picture.maps[0], picture.maps[1]};
  Map &map = picture.maps[0], &other = picture.maps[1];
  map.windows.assign(7, {0, 6});
  other.windows = map.windows;
  CHECK(mean_map(picture.maps).windows.size() == 7);
  map.windows[5] = {1, 9, 3, 2};                                            // columns 0 1, 4
  CHECK(mean_map(picture.maps).windows.empty());
  const AttentionPicture::Window& window = map.windows[5];
  for (const Index s : {0, 1, 4}) CHECK(window.sees(s));
  for (const Index s : {2, 3, 5, 6}) CHECK(!window.sees(s));
  CHECK(!window.sees(10));
  other.windows.clear();
  for (float& w : map.weights) w = 1;
  const std::string svg = attention_svg(picture);
  CHECK(count(svg, "rx=\"2\"") == 6 + 2 + 1);                                // and the key
  const Json data = page_data(attention_html(picture));
  int with_windows = 0;
  for (const Json& drawn : data["maps"])
    if (drawn.contains("windows")) {
      ++with_windows;
      CHECK((drawn["windows"][5] == Json({0, 1, 4, 4}) && drawn["windows"][4] == Json({0, 6})));
    }
  CHECK(with_windows == 1);
  const std::string text = attention_text(picture, 80, TerminalColour::none);
  CHECK(has(text, "████    ██\n"));
}

TEST_CASE("picture: of more cells than have tooltips each stands in its row and column") {
  AttentionPicture picture = transformer(1, 1, 150);
  picture.maps = {picture.maps[2]};
  picture.maps[0].weights.assign(150 * 150, 0);
  picture.maps[0].weights[3 * 150 + 7] = 1;
  const std::string svg = attention_svg(picture);
  CHECK(xml_fault(svg) == "");
  CHECK(has(svg, "d=\"M7 3h1v1h-1z\""));
}

TEST_CASE("picture: a long title has lines within the picture's width, down to its last word") {
  const auto wide = [](const std::string& svg) { return std::stod(svg.substr(svg.find("width=\"") + 7)); };
  for (const int words : {1, 10, 45}) {
    AttentionPicture picture = transformer(1, 1, words);
    picture.maps = {picture.maps[2]};
    const double plain = wide(attention_svg(picture));
    for (int w = 0; w < 120; ++w) picture.title += fmt::format("{}word{}", w == 0 ? "" : " ", w);
    const std::string svg = attention_svg(picture);
    CHECK(xml_fault(svg) == "");
    CHECK(wide(svg) == plain);
    CHECK(has(texts(svg), picture.title));
    const std::size_t lines = count(svg, "font-size=\"17\"");
    for (std::size_t at = svg.find("font-size=\"17\""); at != svg.npos; at = svg.find("font-size=\"17\"", at + 1)) {
      const std::size_t begin = svg.find('>', at) + 1;
      // bold letters of DejaVu Sans
      CHECK(drawing::width(svg.substr(begin, svg.find('<', begin) - begin), 17) * 1.17 <= plain - 2 * drawing::Page::kMargin + 1);
    }
    CHECK(lines >= 3);
    CHECK(double(lines) <= 2 + drawing::width(picture.title, 17) * 1.2 / (plain - 2 * drawing::Page::kMargin));
  }
}

TEST_CASE("picture: one word, no word, fifty words") {
  AttentionPicture one;
  one.source = {"dog"};
  one.target = {"chien"};
  one.maps = {Map{.weights = {1}}};
  AttentionPicture none = one;
  none.source.clear();
  none.maps = {Map{}};
  AttentionPicture nothing = none;
  nothing.target.clear();
  AttentionPicture fifty = transformer(1, 1, 50);
  for (const AttentionPicture& picture : {one, none, nothing, fifty, odd_words()}) {
    CHECK(xml_fault(attention_svg(picture)) == "");
    CHECK(page_data(attention_html(picture))["maps"].size() == picture.maps.size());
    for (const int limit : {40, 41, 80, 200})
      for (const TerminalColour colour : {TerminalColour::none, TerminalColour::indexed, TerminalColour::rgb}) {
        std::string text = without_colours(attention_text(picture, limit, colour));
        for (std::size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
          CAPTURE(text.substr(0, end));
          CHECK(drawing::columns(text.substr(0, end)) <= limit);
        }
      }
  }
  CHECK(has(attention_svg(none), "no columns: nothing to look at"));
  CHECK(has(attention_text(none, 80), "no columns: nothing to look at"));
  CHECK(has(attention_text(fifty, 80), "columns 1 to 25 of 50"));
}

TEST_CASE("picture: terminal form") {
  AttentionPicture picture = beautiful_dog();
  CHECK(attention_text(picture, 80) ==
        "a beautiful dog\n"
        "\n"
        "decoder layer 2, mean over 4 heads, cross-attention\n"
        "       ┌ a\n"
        "       │ ┌ beautiful\n"
        "       │ │ ┌ dog\n"
        "    un ██· ·\n"
        " perro · ░░▓▓\n"
        "bonito · ██·\n"
        "\n"
        "weight  · < 0.125  ░░ < 0.375  ▒▒ < 0.625  ▓▓ < 0.875  ██ to 1\n"
        "Decoder layer 2, mean over 4 heads, cross-attention. Row: the target word being\n"
        "written. Column: the source word looked at. Each weight is the mean over 4\n"
        "heads.\n");
  picture.gold = {{{0, 0}, {2, 1}, {1, 2}}, {{1, 0}}};
  CHECK(has(attention_text(picture, 80), "    un [██](· ) ·\n perro  ·   ░░ [▓▓]\nbonito  ·  [██] ·\n"));
  CHECK(has(attention_text(picture, 80), "[] gold link, sure\n() gold link, possible\n"));
  picture.caption = "Row t: word t.";
  const drawing::Rgb c = drawing::heat(0.7f);
  const std::string rgb = attention_text(picture, 80, TerminalColour::rgb);
  CHECK(has(rgb, fmt::format("\x1b[48;2;{};{};{};38;5;231m[]\x1b[0m", c.r, c.g, c.b)));
  CHECK(has(attention_text(picture, 80, TerminalColour::indexed), "\x1b[48;5;18;38;5;231m[]\x1b[0m"));
  CHECK(has(rgb, "Row t: word t.\n"));
}

TEST_CASE("picture: sizes that do not match") {
  AttentionPicture picture = beautiful_dog();
  for (const auto& draw : {+[](const AttentionPicture& p) { return attention_svg(p); },
                           +[](const AttentionPicture& p) { return attention_html(p); },
                           +[](const AttentionPicture& p) { return attention_text(p, 80); }}) {
    AttentionPicture wrong = picture;
    wrong.maps[0].weights.pop_back();
    CHECK(has(message_of<ShapeError>([&] { draw(wrong); }),
              "weights and words differ in number: map 0 \"decoder layer 2, mean over 4 heads, cross-attention\" has 8 weights, "
              "words [3, 3] (8 and 9)"));
    wrong = picture;
    wrong.maps[0].axes = Axes::encoder_self;
    wrong.source.push_back(".");
    CHECK(has(message_of<ShapeError>([&] { draw(wrong); }), "9 weights, words [4, 4] (9 and 16)"));
    wrong = picture;
    wrong.maps[0].windows = {{0, 1}};
    CHECK(has(message_of<ShapeError>([&] { draw(wrong); }), "has 1 windows, 3 rows"));
    wrong = picture;
    wrong.gold.possible = {{1, 3}};
    CHECK(has(message_of<IndexError>([&] { draw(wrong); }), "link 1-3 is not in [0, 3) x [0, 3)"));
    wrong.gold = {{{-1, 0}}, {}};
    CHECK(has(message_of<IndexError>([&] { draw(wrong); }), "link -1-0 is not in"));
    wrong = picture;
    wrong.maps[0].windows.assign(3, {0, 1, 0});
    CHECK(has(message_of<IndexError>([&] { draw(wrong); }), "a window without steps: map 0 "));
    wrong = picture;
    wrong.maps.clear();
    CHECK(has(message_of<ShapeError>([&] { draw(wrong); }), "needs at least one map: maps 0"));
  }
  CHECK(has(message_of<ShapeError>([&] { mean_map({}); }), "maps 0"));
  const std::vector<Map> uneven = {picture.maps[0], Map{.weights = {1}}};
  CHECK(has(message_of<ShapeError>([&] { mean_map(uneven); }), "has 9 weights, \"decoder, cross-attention\" has 1"));
}

TEST_CASE("picture: no number depends on the locale") {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const AttentionPicture picture = beautiful_dog();
  const std::string svg = attention_svg(picture), html = attention_html(picture), text = attention_text(picture, 80);
  const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
  const bool same = svg == attention_svg(picture) && html == attention_html(picture) && text == attention_text(picture, 80);
  std::locale::global(before);
  CHECK(same);
}

TEST_CASE("drawing: text") {
  using namespace drawing;
  CHECK(columns("abc") == 3);
  CHECK(columns("黑色的") == 6);
  CHECK(columns("e\xCC\x81") == 1);      // e and a combining accent
  CHECK(columns("👩‍👩‍👧") == 2);             // three emoji and two joiners, one cluster
  CHECK(shorten("extraordinary", 9) == "extraord…");
  CHECK(shorten("黑色的", 5) == "黑色…");
  CHECK(shorten("黑色的", 4) == "黑…");
  CHECK(shorten("abc", 3) == "abc");
  CHECK(word("") == "");
  CHECK(word("  ") == "␣␣");
  CHECK(word("\u200D") == "◌\u200D");
  CHECK(word("\u064E") == "◌\u064E");   // as tokens of letters are: scores compare words
  CHECK(word("\u0301") != word("\u0300"));
  CHECK(word(" a") == " a");
  CHECK(word("\u00A0\u3000") == "␣␣");
  CHECK(word("\u200B") == "␣");
  // seen as \u05D1 → \u05D0 without
  CHECK(escape("\u05D0 → \u05D1 & \u05D2 ← \u05D3") == "\u05D0 \u200E→\u200E \u05D1 &amp; \u05D2 \u200E←\u200E \u05D3");
  CHECK(escape("a → b") == "a → b");
  CHECK(wrap("one two three", 7) == Words{"one two", "three"});
  CHECK(wrap("abcdefgh ij", 5) == Words{"abcde", "fgh", "ij"});
  CHECK(wrap("", 5).empty());
  CHECK(px(-0.04) == "0");
  CHECK(px(12.25) == "12.3");
  CHECK(number(41.0849) == "41.08");
  CHECK(number(0.00005) == "5e-5");
  CHECK(number(12345.4) == "12,345");
  CHECK(number(9999.9) == "10,000");
  CHECK(number(-1234567) == "-1,234,567");
  CHECK(number(2e15) == "2e15");
}
