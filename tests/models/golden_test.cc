// SPDX-License-Identifier: Apache-2.0
// Transformer layers and the whole core, and decoders of recurrent models, against PyTorch's, and the exchange of a state dict.
#include "tests/golden.h"

#include <doctest/doctest.h>

#include "models/recurrent_decoder.h"
#include "models/transformer.h"
#include "nn/checkpoint.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

using namespace heed;

namespace {

TransformerOptions options(const golden::Case& c, TransformerOptions o) {
  o.dropout = 0;
  o.activation = c.options()["activation"] == "gelu" ? Activation::gelu : Activation::relu;
  o.norm = c.options()["norm_first"].get<bool>() ? NormAt::before : NormAt::after;
  o.bias = c.options().value("bias", true);
  o.final_norm = FinalNorm::always;
  return o;
}
constexpr TransformerOptions kLayer{.width = 12, .heads = 3, .feed_forward = 20};

}  // namespace

TEST_CASE("golden: encoder layer") {
  golden::each("transformer_encoder_layer", [](golden::Case& c) {
    Parameters parameters(Seed{1}, c.dtype());
    const TransformerEncoderLayer layer(parameters.root(), options(c, kLayer));
    c.fill(parameters);
    Tape tape;
    c.check(tape, {{"y", layer(c.input("x"), c.lengths())}}, &parameters, "lengths");
  });
}

TEST_CASE("golden: decoder layer") {
  golden::each("transformer_decoder_layer", [](golden::Case& c) {
    Parameters parameters(Seed{1}, c.dtype());
    const TransformerDecoderLayer layer(parameters.root(), options(c, kLayer));
    c.fill(parameters);
    Tape tape;
    const Memory memory = layer.multihead_attn->prepare(c.input("memory"), c.lengths("source_lengths"));
    c.check(tape, {{"y", layer(c.input("target"), &memory, Mask::causal() & c.lengths("target_lengths"))}}, &parameters,
            "target_lengths");
  });
}

TEST_CASE("golden: the whole core, forward and backward") {
  golden::each("transformer", [](golden::Case& c) {
    Parameters parameters(Seed{1}, c.dtype());
    const Transformer core(parameters.root(),
                           options(c, {.width = 16, .heads = 4, .feed_forward = 32, .encoder_layers = 2, .decoder_layers = 2}));
    c.fill(parameters);
    Tape tape;
    c.check(tape, {{"y", core(c.input("source"), c.input("target"), c.lengths("source_lengths"))}}, &parameters,
            "target_lengths");
  });
}

TEST_CASE("golden: decoders that look from the state before, and between two cells") {
  golden::each("decoders", [](const std::string& name) { return name != "cho"; }, [](golden::Case& c) {
    Parameters parameters(Seed{1}, c.dtype());
    const BahdanauDecoder decoder(parameters.root(), {.unit = RecurrentUnit::gru_cudnn, .embedding = 5, .width = 4, .encoder_width = 6,
                                                      .memory_width = 6, .conditional = c.options()["conditional"],
                                                      .readout = Readout::tanh, .start_state = StartState::mean});
    c.fill(parameters);
    Tape tape(evaluating);
    DecoderState state = decoder.start({c.input("states"), c.lengths(), {}, {}});
    Variable weights;
    const Variable features = decoder(c.input("inputs"), state, &weights);
    c.check(tape, {{"features", features}, {"weights", weights}}, &parameters);
  });
}

TEST_CASE("golden: Cho's decoder as it is printed") {
  golden::each("decoders", [](const std::string& name) { return name == "cho"; }, [](golden::Case& c) {
    Parameters parameters(Seed{1}, c.dtype());
    const BahdanauDecoder decoder(parameters.root(), {.unit = RecurrentUnit::gru_cudnn, .embedding = 5, .width = 4, .encoder_width = 6,
                                                      .memory_width = 6, .attention = "none", .reset_context = true,
                                                      .start_state = StartState::context});
    c.fill(parameters);
    Tape tape(evaluating);
    DecoderState state = decoder.start({constant(zeros({3, 1, 6}, c.dtype())), {}, {{c.input("last"), {}}}, {}});
    c.check(tape, {{"features", decoder(c.input("inputs"), state)}}, &parameters);
  });
}

TEST_CASE("exchange: a state dict of nn.Transformer loads without renaming, computes the same, and goes back with the same bits") {
  const SafetensorsFile& check = golden::file("transformer_state_check");
  for (const DType dtype : {DType::f64, DType::f32}) {
    const std::string from =
        golden::path(dtype == DType::f64 ? "transformer_state_f64.safetensors" : "transformer_state_f32.safetensors");
    Parameters parameters(Seed{1}, dtype);
    const Transformer core(parameters.root(), {.width = 8,
                                               .heads = 2,
                                               .feed_forward = 12,
                                               .encoder_layers = 2,
                                               .decoder_layers = 1,
                                               .final_norm = FinalNorm::always});
    load(parameters, from);
    const Variable source = constant(to(check.at("input.source"), dtype)),
                   target = constant(to(check.at("input.target"), dtype));
    const Mask mask = Mask::lengths(to(check.at("input.source_lengths"), DType::i32));
    const Tensor y = golden::rows_that_count(core(source, target, mask).value(), check.at("input.target_lengths"));
    golden::check_close(from, y, check.at("output.y"));

    const TemporaryFolder folder;
    save(parameters, folder / "again.safetensors");
    const SafetensorsFile before = read_safetensors(from), after = read_safetensors(folder / "again.safetensors");
    REQUIRE(after.tensors.size() == before.tensors.size());
    for (const auto& before_one : before.tensors)
      CHECK_MESSAGE(equal_bits(before_one.second, after.at(before_one.first)), before_one.first);
  }
}
