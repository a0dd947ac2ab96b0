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
        CHECK(said == fmt::format("{}: does not fit the model; GRUs of another form: gru_form.core.decoder (cudnn, as the file does not say, needs {}) gru_form.core.encoder (cudnn, as the file does not say, needs {})",
                                  file, name_of(wanted), name_of(wanted)));
      else
        CHECK(said == fmt::format("{}: does not fit the model; GRUs of another form: gru_form.core.decoder ({}, needs {}) gru_form.core.encoder ({}, needs {})", file, name_of(saved),
                                  name_of(wanted), name_of(saved), name_of(wanted)));
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
  CHECK(message_of<FileError>([&] { load(plain.parameters.select("core.*"), file); }).ends_with("GRUs of another form: gru_form.decoder (cho, needs cudnn) gru_form.encoder (cho, needs cudnn)"));
  save(cho.parameters.select("core.encoder.*"), file);
  CHECK(read_safetensors(file).metadata == Metadata{{"gru_form.", "cho"}});
  CHECK(message_of<FileError>([&] { load(plain.parameters.select("core.encoder.*"), file); }).ends_with("GRUs of another form: gru_form. (cho, needs cudnn)"));
  save(plain.parameters, file);
  CHECK(read_safetensors(file).metadata.empty());
}

TEST_CASE("checkpoint: the form of a GRU that is not selected does not matter") {
  const TemporaryFolder folder;
  const std::string file = folder / "encoder.safetensors";
  Parameters from(Seed{1}), to(Seed{2});
  const Gru encoder(from.root() / "encoder", {.in = 2, .width = 3}), decoder(from.root() / "decoder", {.in = 2, .width = 3, .form = GruForm::bahdanau});
  const Gru encoder_to(to.root() / "encoder", {.in = 2, .width = 3}), decoder_to(to.root() / "decoder", {.in = 2, .width = 3});
  save(from.select("enc*"), file);
  CHECK(read_safetensors(file).metadata.empty());
  CHECK(message_of<FileError>([&] { load(to.select("enc*"), file); }) == "");
  write_safetensors(file, state(from.select("enc*")), {});
  CHECK(message_of<FileError>([&] { load(from.select("enc*"), file); }) == "");
}

TEST_CASE("checkpoint: a parameter of a dtype with which Heed does not compute is not missing") {
  const TemporaryFolder folder;
  const std::string file = folder / "half.safetensors", header = R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"I16","shape":[1],"data_offsets":[4,6]}})";
  std::ofstream(file) << char(header.size()) << std::string(7, '\0') << header << std::string(6, '\0');
  Parameters parameters(Seed{1});
  (void)parameters.root().parameter("a", {2}, constant_init(0));
  CHECK(message_of<FileError>([&] { load(parameters, file); }) == file + ": does not fit the model; unexpected: b; mismatched: a (F16 [2], needs f32 [2])");
}

TEST_CASE("checkpoint: two copies of a tied parameter are compared by bits") {
  Parameters parameters(Seed{1});
  const Parameter a = parameters.root().parameter("a", {2}, constant_init(0));
  (void)parameters.root().alias("b", a.share(), {2});
  load(parameters.select(), {{"a", full({2}, NAN)}, {"b", full({2}, NAN)}});
  CHECK(all_nan(a.value()));
  load(parameters.select(), {{"a", zeros({2})}, {"b", expand(zeros({1}), {2})}});
  CHECK(doubles(a.value()) == std::vector<double>{0, 0});
  CHECK(message_of<FileError>([&] { load(parameters.select(), {{"a", zeros({2})}, {"b", ones({2})}}); }).find("b (tied to a but different)") != std::string::npos);
}
