// SPDX-License-Identifier: Apache-2.0
#include "nn/checkpoint.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>

#include "nn/init.h"
#include "nn/recurrent.h"
#include "tensor/format.h"
#include "tensor/ops/view.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"
#include "tests/thrown.h"

using namespace heed;
using namespace std::string_literals;

namespace {

constexpr GruForm kForms[] = {GruForm::bahdanau, GruForm::cho, GruForm::cudnn};
std::string name_of(GruForm form) { return form == GruForm::bahdanau ? "bahdanau" : form == GruForm::cho ? "cho" : "cudnn"; }

// A layer and a cell, whose parameters have the same shapes in every form.
struct Net {
  Net(GruForm form, Seed seed)
      : parameters(seed),
        layer(parameters.root() / "core" / "encoder", {.in = 2, .width = 3, .bidirectional = true, .form = form, .bias = false}),
        cell(parameters.root() / "core" / "decoder", {.in = 2, .width = 3, .form = form, .bias = false}) {}
  Parameters parameters;
  Gru layer;
  GruCell cell;
};

}  // namespace

TEST_CASE("checkpoint: weights of a GRU of another form are refused") {
  const TemporaryFolder folder;
  const std::string file = folder / "gru.safetensors";
  for (const GruForm saved : kForms)
    for (const GruForm wanted : kForms) {
      CAPTURE(name_of(saved));
      CAPTURE(name_of(wanted));
      Net from(saved, Seed{1}), to(wanted, Seed{2});
      save(from.parameters, file);
      const Tensor before = to.cell.weight_hh.value().clone();
      const std::string said = message_of<FileError>([&] { load(to.parameters, file); });
      CHECK(equal_bits(to.cell.weight_hh.value(), saved == wanted ? from.cell.weight_hh.value() : before));
      if (saved == wanted) CHECK(said == "");
      else if (saved == GruForm::cudnn)
        CHECK(said == fmt::format("{}: does not fit the model; GRUs of another form: gru_form.core.decoder (cudnn, as the file does not "
                                  "say, needs {}) gru_form.core.encoder (cudnn, as the file does not say, needs {})",
                                  file, name_of(wanted), name_of(wanted)));
      else
        CHECK(said == fmt::format("{}: does not fit the model; GRUs of another form: gru_form.core.decoder ({}, needs {}) "
                                  "gru_form.core.encoder ({}, needs {})",
                                  file, name_of(saved), name_of(wanted), name_of(saved), name_of(wanted)));
    }
}

TEST_CASE("checkpoint: a file says the form of GRUs that are not PyTorch's, by their path in the selection") {
  const TemporaryFolder folder;
  const std::string file = folder / "gru.safetensors";
  using Metadata = std::map<std::string, std::string>;
  Net cho(GruForm::cho, Seed{1}), plain(GruForm::cudnn, Seed{1});
  save(cho.parameters, file);
  CHECK(read_safetensors(file).metadata == Metadata{{"gru_form.core.encoder", "cho"}, {"gru_form.core.decoder", "cho"}});
  save(cho.parameters.select("core.*"), file);
  CHECK(read_safetensors(file).metadata == Metadata{{"gru_form.encoder", "cho"}, {"gru_form.decoder", "cho"}});
  CHECK(message_of<FileError>([&] { load(cho.parameters.select("core.*"), file); }) == "");
  CHECK(message_of<FileError>([&] {
          load(plain.parameters.select("core.*"), file);
        }).ends_with("GRUs of another form: gru_form.decoder (cho, needs cudnn) gru_form.encoder (cho, needs cudnn)"));
  save(cho.parameters.select("core.encoder.*"), file);
  CHECK(read_safetensors(file).metadata == Metadata{{"gru_form.", "cho"}});
  CHECK(message_of<FileError>([&] {
          load(plain.parameters.select("core.encoder.*"), file);
        }).ends_with("GRUs of another form: gru_form. (cho, needs cudnn)"));
  save(plain.parameters, file);
  CHECK(read_safetensors(file).metadata.empty());
}

TEST_CASE("checkpoint: the form of a GRU that is not selected does not matter") {
  const TemporaryFolder folder;
  const std::string file = folder / "encoder.safetensors";
  Parameters from(Seed{1}), to(Seed{2});
  const Gru encoder(from.root() / "encoder", {.in = 2, .width = 3}),
      decoder(from.root() / "decoder", {.in = 2, .width = 3, .form = GruForm::bahdanau});
  const Gru encoder_to(to.root() / "encoder", {.in = 2, .width = 3}), decoder_to(to.root() / "decoder", {.in = 2, .width = 3});
  save(from.select("enc*"), file);
  CHECK(read_safetensors(file).metadata.empty());
  CHECK(message_of<FileError>([&] { load(to.select("enc*"), file); }) == "");
  write_safetensors(file, state(from.select("enc*")), {});
  CHECK(message_of<FileError>([&] { load(from.select("enc*"), file); }) == "");
}

TEST_CASE("checkpoint: a parameter of a dtype with which Heed does not compute is not missing") {
  const TemporaryFolder folder;
  const std::string file = folder / "half.safetensors",
                    header =
                        R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"I16","shape":[1],"data_offsets":[4,6]}})";
  std::ofstream(file) << char(header.size()) << std::string(7, '\0') << header << std::string(6, '\0');
  Parameters parameters(Seed{1});
  (void)parameters.root().parameter("a", {2}, constant_init(0));
  CHECK(message_of<FileError>([&] { load(parameters, file); }) ==
        file + ": does not fit the model; unexpected: b; mismatched: a (F16 [2], needs f32 [2]: convert_floats)");
  CHECK(message_of<FileError>([&] { load(parameters, {{"a", ones({2}, DType::bf16)}}); })
            .ends_with("mismatched: a (bf16 [2], needs f32 [2]: convert_floats)"));
}

TEST_CASE("checkpoint: two copies of a tied parameter are compared by bits") {
  Parameters parameters(Seed{1});
  const Parameter a = parameters.root().parameter("a", {2}, constant_init(0));
  (void)parameters.root().alias("b", a.share(), {2});
  load(parameters.select(), {{"a", full({2}, NAN)}, {"b", full({2}, NAN)}});
  CHECK(all_nan(a.value()));
  load(parameters.select(), {{"a", zeros({2})}, {"b", expand(zeros({1}), {2})}});
  CHECK(doubles(a.value()) == std::vector<double>{0, 0});
  CHECK(message_of<FileError>([&] {
          load(parameters.select(), {{"a", zeros({2})}, {"b", ones({2})}});
        }).find("b (tied to a but different)") != std::string::npos);
  Parameters scalars(Seed{1});
  const Parameter first = scalars.root().parameter("a", {2}, constant_init(1)), last = scalars.root().parameter("g", {}, constant_init(1));
  CHECK(message_of<FileError>([&] {
          load(scalars.select(), {{"a", zeros({2})}, {"g", Tensor()}});
        }).ends_with("mismatched: g (an empty Tensor, needs f32 [])"));
  CHECK(doubles(first.value()) == std::vector<double>{1, 1});
}

TEST_CASE("checkpoint: values may lie in the memory of other parameters; names of a file are cut and escaped in messages") {
  Parameters parameters(Seed{1});
  const Parameter a = parameters.root().parameter("a", {2}, constant_init(1)), b = parameters.root().parameter("b", {2}, constant_init(2));
  const auto now = state(parameters);
  load(parameters.select(), {{"a", now.at("b")}, {"b", now.at("a")}});
  CHECK(doubles(a.value()) == std::vector<double>{2, 2});
  CHECK(doubles(b.value()) == std::vector<double>{1, 1});
  const std::string said = message_of<FileError>([&] {
    load(parameters.select(), {{"a", ones({2})}, {"b", ones({2})}, {"x\n" + std::string(200, 'y'), ones({2})}});
  });
  CHECK(said.ends_with("unexpected: \"x\\u000a" + std::string(78, 'y') + "...\""));
}

TEST_CASE("checkpoint: a part of a file, and what of it fits") {
  const TemporaryFolder folder;
  const std::string file = folder / "whole.safetensors";
  Net from(GruForm::cho, Seed{1}), to(GruForm::cho, Seed{2}), other(GruForm::cudnn, Seed{2});
  save(from.parameters, file);
  const Selection encoder = to.parameters.select("core.encoder.*");
  const std::string said = message_of<FileError>([&] { load(encoder, file); });
  CHECK_MESSAGE(said.ends_with("; all that is missing is there under \"core.encoder.\": LoadOptions::from"), said);
  Parameters small(Seed{3});
  const Parameter one = small.root().parameter("weight_hh", {9, 3}, constant_init(1)),
                  two = small.root().parameter("weight_ih", {9, 2}, constant_init(1));
  write_safetensors(folder / "two.safetensors",
                    {{"a.weight_hh", one.value()}, {"a.weight_ih", two.value()}, {"b.weight_hh", ones({1})}, {"b.weight_ih", ones({1})}});
  // a or b?
  CHECK(message_of<FileError>([&] { load(small, folder / "two.safetensors"); }).find("all that is missing") == std::string::npos);
  const Tensor before = to.cell.weight_hh.value().clone();
  const Loaded loaded = load(encoder, file, {.from = "core.encoder."});
  CHECK((loaded.missing.empty() && loaded.unexpected.empty()));
  for (const auto& [name, value] : state(encoder)) CHECK(equal_bits(value, state(from.parameters).at("core.encoder." + name)));
  CHECK(equal_bits(to.cell.weight_hh.value(), before));
  CHECK(message_of<FileError>([&] {
          load(other.parameters.select("core.encoder.*"), file, {.from = "core.encoder."});
        }).ends_with("GRUs of another form: gru_form. (cho, needs cudnn)"));
  CHECK(message_of<FileError>([&] { load(encoder, file, {.from = "encoder."}); }) ==
        file + ": no key begins with \"encoder.\": the first is \"core.decoder.weight_hh\"");

  std::map<std::string, Tensor> some = state(from.parameters);
  some.erase("core.decoder.weight_ih");
  some.emplace("head.weight", ones({2}));
  write_safetensors(file, some, gru_forms(from.parameters.select()));
  CHECK(message_of<FileError>([&] { load(to.parameters, file); }).ends_with("missing: core.decoder.weight_ih; unexpected: head.weight"));
  const Tensor stays = to.cell.weight_ih.value().clone();
  const Loaded fits = load(to.parameters, file, {.partial = true});
  CHECK(fits.missing == std::vector<std::string>{"core.decoder.weight_ih"});
  CHECK(fits.unexpected == std::vector<std::string>{"head.weight"});
  CHECK(equal_bits(to.cell.weight_ih.value(), stays));
  CHECK(equal_bits(to.cell.weight_hh.value(), from.cell.weight_hh.value()));
  // GRUs of which nothing is copied may be of any form.
  write_safetensors(folder / "head.safetensors", {{"head.weight", ones({2})}});
  load(to.parameters, folder / "head.safetensors", {.partial = true});
  load(small, file, {.partial = true});
  CHECK(message_of<FileError>([&] { load(other.parameters, file, {.partial = true}); }).find("GRUs of another form: ") !=
        std::string::npos);
  some["core.decoder.weight_ih"] = ones({2});
  write_safetensors(file, some, gru_forms(from.parameters.select()));
  CHECK(message_of<FileError>([&] {
          load(to.parameters, file, {.partial = true});
        }).ends_with("does not fit the model; mismatched: core.decoder.weight_ih (f32 [2], needs f32 [9, 2])"));
  load(to.parameters, state(from.parameters));
  CHECK(equal_bits(to.cell.weight_ih.value(), from.cell.weight_ih.value()));
}

TEST_CASE("checkpoint: every number of half precision, and other precisions where they are asked for") {
  const TemporaryFolder folder;
  const std::string path = folder / "half.safetensors", wide = folder / "wide.safetensors";
  std::string text =
      R"({"a":{"dtype":"F16","shape":[256,256],"data_offsets":[0,131072]},"b":{"dtype":"I16","shape":[1],"data_offsets":[131072,131074]}})";
  while (text.size() % 8) text += ' ';
  std::string bytes;
  for (std::uint64_t size = text.size(), i = 0; i < 8; ++i, size >>= 8) bytes += char(size & 0xff);
  bytes += text;
  for (std::uint32_t i = 0; i < 65536; ++i) bytes += {char(i & 0xff), char(i >> 8)};
  bytes += "\0\0"s;
  std::ofstream(path, std::ios::binary) << bytes;
  for (const DType dtype : {DType::f32, DType::f64}) {
    SafetensorsFile file = read_safetensors(path);
    convert_floats(file, dtype);
    CHECK(file.others.size() == 1);
    const Tensor x = to(file.at("a"), DType::f64);
    CHECK(file.at("a").dtype() == dtype);
    for (int i = 0; i < 65536; ++i) {
      const int exponent = i >> 10 & 31, mantissa = i & 1023;
      const double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                          : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                         : std::ldexp(mantissa, -24),
                   is = x.data<double>()[i];
      const bool right = std::isnan(size) ? std::isnan(is) : is == (i >> 15 ? -size : size) && std::signbit(is) == bool(i >> 15);
      if (!right) FAIL_CHECK("half " << i << " became " << is);
    }
  }
  write_safetensors(wide, {{"d", full({2}, 1.0 / 3, DType::f64)}, {"b", full({2}, 3, DType::bf16)}, {"i", full({2}, 3, DType::i64)}});
  SafetensorsFile file = read_safetensors(wide);
  convert_floats(file, DType::f32);
  CHECK(file.at("d").data<float>()[1] == 1.0f / 3);
  CHECK(file.at("b").data<float>()[0] == 3);
  CHECK(file.at("i").dtype() == DType::i64);
  CHECK_THROWS_AS(convert_floats(file, DType::bf16), DTypeError);
}
