// SPDX-License-Identifier: Apache-2.0
#include "models/run_config.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "attention/attend.h"
#include "attention/normalise.h"
#include "attention/position.h"
#include "models/copied_words.h"
#include "models/copynet.h"
#include "models/pointer_generator.h"
#include "models/recurrent_config.h"
#include "models/text.h"
#include "models/tokenizer.h"
#include "models/transformer.h"
#include "tensor/format.h"

namespace heed {
namespace {

std::vector<std::string_view> tokenizer_choices() {
  static const std::vector<std::string> names = tokenizer_names();
  std::vector<std::string_view> choices{"auto"};
  choices.insert(choices.end(), names.begin(), names.end());
  return choices;
}

std::string_view attention_help() {
  static thread_local std::set<std::string> texts;                                     // a user's own scores come and go
  return *texts.insert(fmt::format("what a recurrent decoder looks by ({})", attention_choices())).first;
}

std::string_view normalise_help() {
  static const std::string text = fmt::format("how scores become weights ({}); others than softmax take longer", normalise_choices());
  return text;
}

constexpr std::pair<std::string_view, Activation> kActivations[] = {{"relu", Activation::relu},           {"gelu", Activation::gelu},
                                                                    {"gelu-tanh", Activation::gelu_tanh}, {"silu", Activation::silu},
                                                                    {"tanh", Activation::tanh},           {"sigmoid", Activation::sigmoid}};

std::vector<std::string_view> activation_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, activation] : kActivations) names.push_back(name);
  return names;
}

Activation activation_named(std::string_view given) {
  for (const auto& [name, activation] : kActivations)
    if (name == given) return activation;
  fail<Error>("unknown activation: {}; there are {}", quote(given), fmt::join(activation_names(), ", "));
}

std::vector<Option> table(RunConfig& c) {
  constexpr double kBig = 1e12;
  return {
      {.name = "data", .value = &c.data, .takes = "DIR",
       .help = "train.tsv, dev.tsv and test.tsv: source TAB target [TAB links]", .heading = "Data"},
      {.name = "train-files", .value = &c.train_files, .takes = "SRC TGT",
       .help = "or parallel files: line n belongs to line n", .count = 2},
      {.name = "dev-files", .value = &c.dev_files, .takes = "SRC TGT", .help = "the same for dev", .count = 2},
      {.name = "test-files", .value = &c.test_files, .takes = "SRC TGT", .help = "the same for test; may be left out", .count = 2},
      {.name = "train", .value = &c.train, .takes = "FILE", .help = "or one file source TAB target, with --split-by-source"},
      {.name = "split-by-source", .value = &c.split_by_source, .help = "make dev and test of --train; no source sentence in two parts"},
      {.name = "split-dev", .value = &c.split_dev, .takes = "N", .help = "source sentences in that dev part", .low = 1, .high = kBig},
      {.name = "split-test", .value = &c.split_test, .takes = "N", .help = "source sentences in that test part", .low = 0, .high = kBig},

      {.name = "tokenizer", .value = &c.tokenizer, .takes = "NAME",
       .help = "auto: what `heed data` says of its data, else word", .choices = tokenizer_choices(), .heading = "Text"},
      {.name = "sentencepiece", .value = &c.sentencepiece, .takes = "SRC TGT",
       .help = "SentencePiece models of one's own for bpe, of any type, instead of learning them", .later = true, .count = 2},
      {.name = "vocabularies", .value = &c.vocabularies, .takes = "RUN",
       .help = "the tokenizers and vocabularies of that run, instead of learning them: with --init RUN its model goes on with other data",
       .later = true},
      {.name = "lowercase", .value = &c.lowercase, .help = "lower-case all text"},
      {.name = "min-count", .value = &c.min_count, .takes = "N",
       .help = "words and characters seen less often in training become <unk>; from 2 on the model learns what it stands for", .low = 1, .high = kBig},
      {.name = "vocabulary-size", .value = &c.vocabulary_size, .takes = "N",
       .help = "most words or characters of a language, or pieces of bpe (there 8000)", .low = 5, .high = 1e6},
      {.name = "max-length", .value = &c.max_length, .takes = "N",
       .help = "training leaves out pairs with more tokens on a side", .low = 1, .high = 1e5},

      {.name = "model", .value = &c.model, .takes = "NAME", .help = "kind of model", .choices = model_names(), .heading = "Model"},
      {.name = "layers", .value = &c.layers, .takes = "N", .help = "layers of the encoder, and of the decoder", .low = 1, .high = 100},
      {.name = "decoder-layers", .value = &c.decoder_layers, .takes = "N",
       .help = "of the decoder, else as many; few of them after a deep encoder translate faster", .low = 1, .high = 100, .later = true},
      {.name = "width", .value = &c.width, .takes = "N", .help = "size of the vector of a word", .low = 1, .high = 65536},
      {.name = "heads", .value = &c.heads, .takes = "N", .help = "attention heads; must divide the width", .low = 1, .high = 1024},
      {.name = "key-value-heads", .value = &c.key_value_heads, .takes = "N",
       .help = "of the decoder, each shared by a group of its heads; else as many", .low = 1, .high = 1024, .later = true},
      {.name = "feed-forward", .value = &c.feed_forward, .takes = "N",
       .help = "hidden units of the feed-forward layers", .low = 1, .high = 1048576},
      {.name = "activation", .value = &c.activation, .takes = "NAME",
       .help = "of these units", .choices = activation_names(), .later = true},
      {.name = "gated", .value = &c.gated,
       .help = "they are multiplied by a second projection; with --activation silu: SwiGLU", .later = true},
      {.name = "dropout", .value = &c.dropout, .takes = "P", .help = "of embeddings and sublayers", .low = 0, .high = 1},
      {.name = "attention-dropout", .value = &c.attention_dropout, .takes = "P", .help = "of attention weights", .low = 0, .high = 1},
      {.name = "activation-dropout", .value = &c.activation_dropout, .takes = "P",
       .help = "inside the feed-forward layers", .low = 0, .high = 1},
      {.name = "copy", .value = &c.copy, .help = "words of the source may be copied, also such as no vocabulary has", .later = true},
      {.name = "copy-form", .value = &c.copy_form, .takes = "NAME",
       .help = "of --copy; pointer-generator: from where attention looks, by a gate; copynet: places are scored beside the words, in one softmax",
       .choices = {"pointer-generator", "copynet"}, .later = true},
      {.name = "norm", .value = &c.norm, .takes = "NAME",
       .help = "post: after each residual (the paper); pre: before each sublayer", .choices = {"post", "pre"}},
      {.name = "final-norm", .value = &c.final_norm, .takes = "NAME",
       .help = "after the last layer; auto: with --norm pre only", .choices = {"auto", "always"}},
      {.name = "rms-norm", .value = &c.rms_norm, .help = "norms without means and biases: RMSNorm instead of layer norm", .later = true},
      {.name = "positions", .value = &c.positions, .takes = "NAME",
       .help = "how a word knows its place: added to the words, none, or inside self-attention from rope on", .choices = position_names()},
      {.name = "qk-norm", .value = &c.qk_norm, .takes = "NAME",
       .help = "how queries and keys of a head are normalised; l2: to a length of g, learned, and 1", .choices = query_key_names(),
       .later = true},
      {.name = "sliding-window", .value = &c.sliding_window, .takes = "N",
       .help = "words to each side that self-attention sees; else all", .low = 1, .high = 1e6, .later = true},
      {.name = "dilation", .value = &c.dilation, .takes = "G,G,..",
       .help = "of the sliding window, a number a head or one for all: it sees every G-th word, so many of them to each side",
       .later = true},
      {.name = "global-tokens", .value = &c.global_tokens, .takes = "N",
       .help = "of the sliding window in the encoder: the first N words see all and are seen by all", .low = 1, .high = 1e6, .later = true},
      {.name = "normalise", .value = &c.normalise, .takes = "NAME", .help = normalise_help(), .later = true},
      {.name = "talking-heads", .value = &c.talking_heads, .help = "heads mix their scores, and their weights", .later = true},
      {.name = "differential", .value = &c.differential,
       .help = "heads in pairs: the weights of one less λ times those of the other", .later = true},
      {.name = "linear-attention", .value = &c.linear_attention,
       .help = "features of queries and keys instead of scores: work that grows with the length, not its square", .later = true},
      {.name = "random-features", .value = &c.random_features, .takes = "N",
       .help = "linear attention: N features of a head that estimate softmax (Performer), else elu(x) + 1", .low = 1, .high = 1e5,
       .later = true},
      {.name = "tie", .value = &c.tie, .takes = "NAME",
       .help = "shared tables: target and output; all three (one vocabulary)", .choices = {"none", "output", "all"}},
      {.name = "start", .value = &c.start, .takes = "NAME", .help = "symbol that opens a target", .choices = {"bos", "eos"}},
      {.name = "qkv-init", .value = &c.qkv_init, .takes = "NAME",
       .help = "Xavier start of each projection, or of the packed three (PyTorch)", .choices = {"separate", "packed"}},

      {.name = "attention", .value = &c.attention, .takes = "NAME", .help = attention_help(), .heading = "Recurrent models"},
      {.name = "decoder", .value = &c.decoder, .takes = "NAME",
       .help = "order of a step: bahdanau looks from the previous state, luong from the new one, conditional (Nematus) from one between two cells; without attention cho, cho-exact (as its paper prints it), sutskever",
       .choices = {"auto", "bahdanau", "conditional", "luong", "cho", "cho-exact", "sutskever"}},
      {.name = "window", .value = &c.window, .takes = "N", .help = "local-m, local-p: words to each side, else 10", .low = 0, .high = 1e6},
      {.name = "input-feeding", .value = &c.input_feeding, .help = "luong: the last attentional vector is read with each word"},
      {.name = "reverse-source", .value = &c.reverse_source, .help = "the encoder reads the last word first"},
      {.name = "one-direction", .value = &c.one_direction,
       .help = "bahdanau, conditional, cho, cho-exact: an encoder that reads forwards only"},
      {.name = "gru-form", .value = &c.gru_form, .takes = "NAME",
       .help = "auto: that of the decoder's paper; cho-exact: of the encoder", .choices = {"auto", "bahdanau", "cho", "cudnn"}},
      {.name = "readout", .value = &c.readout, .takes = "NAME",
       .help = "bahdanau, conditional, cho, cho-exact: before the output layer", .choices = {"auto", "maxout", "tanh", "linear"}},
      {.name = "readout-state", .value = &c.readout_state, .takes = "NAME",
       .help = "bahdanau, conditional, cho, cho-exact: the state it reads", .choices = {"auto", "current", "previous"}},
      {.name = "start-state", .value = &c.start_state, .takes = "NAME",
       .help = "bahdanau, conditional, cho, cho-exact: what the first state is made of",
       .choices = {"auto", "backward", "last", "mean", "zeros", "context"}},
      {.name = "bridge", .value = &c.bridge, .takes = "NAME",
       .help = "luong, sutskever: from the encoder's last states to the decoder's first", .choices = {"auto", "copy", "linear", "tanh"}},
      {.name = "context", .value = &c.context, .takes = "NAME",
       .help = "cho, cho-exact: what every step reads of the source", .choices = {"auto", "every_step", "both_ends"}},
      {.name = "initial-values", .value = &c.initial_values, .takes = "NAME",
       .help = "bahdanau: orthogonal states, N(0, 0.01²); sutskever: U(-0.08, 0.08); luong: U(-0.1, 0.1)",
       .choices = {"pytorch", "bahdanau", "sutskever", "luong"}},

      {.name = "batch-tokens", .value = &c.batch_tokens, .takes = "N",
       .help = "target tokens of a batch, padding counted", .low = 1, .high = kBig, .heading = "Training"},
      {.name = "batch-sentences", .value = &c.batch_sentences, .takes = "N",
       .help = "or this many sentences, sorted by length in windows of 50 batches", .low = 1, .high = kBig},
      {.name = "accumulate", .value = &c.accumulate, .takes = "N", .help = "batches added up for one update", .low = 1, .high = 1e6},
      {.name = "optimizer", .value = &c.optimizer, .takes = "NAME",
       .help = "with PyTorch's definitions", .choices = {"adam", "adamw", "sgd", "adagrad", "adadelta", "rmsprop"}},
      {.name = "learning-rate", .value = &c.learning_rate, .takes = "X",
       .help = "its peak; default 1 with --optimizer adadelta, and with --schedule noam, where it is a factor", .low = 0, .high = 1e6},
      {.name = "beta1", .value = &c.beta1, .takes = "X",
       .help = "adam, adamw: decay of the mean of the gradients", .low = 0, .high = 1, .below = true, .later = true},
      {.name = "beta2", .value = &c.beta2, .takes = "X",
       .help = "adam, adamw: decay of the mean of their squares", .low = 0, .high = 1, .below = true},
      {.name = "eps", .value = &c.eps, .takes = "X",
       .help = "adam, adamw: added to the root of the squared gradients; default 1e-9 with --schedule noam", .low = 1e-30, .high = 1,
       .later = true},
      {.name = "rho", .value = &c.rho, .takes = "X",
       .help = "adadelta: decay of its means of squares, 0.95 in its paper", .low = 0, .high = 1, .below = true, .later = true},
      {.name = "momentum", .value = &c.momentum, .takes = "X", .help = "sgd, rmsprop", .low = 0, .high = 1, .below = true},
      {.name = "weight-decay", .value = &c.weight_decay, .takes = "X",
       .help = "adamw: decoupled, default 0.01; else added to the gradient", .low = 0, .high = 1e6},
      {.name = "schedule", .value = &c.schedule, .takes = "NAME", .help = "of the learning rate", .choices = Schedule::names()},
      {.name = "warmup", .value = &c.warmup, .takes = "N", .help = "updates of linear rise from 0", .low = 0, .high = kBig},
      {.name = "schedule-steps", .value = &c.schedule_steps, .takes = "N",
       .help = "linear, cosine: its last update, else the last one planned; step: updates to each halving", .low = 1, .high = kBig},
      {.name = "schedule-after", .value = &c.schedule_after, .takes = "N",
       .help = "step: updates before those that lead to the first halving", .low = 0, .high = kBig, .later = true},
      {.name = "label-smoothing", .value = &c.label_smoothing, .takes = "X",
       .help = "share of the target spread over all words", .low = 0, .high = 1, .below = true},
      {.name = "guided-alignment", .value = &c.guided_alignment, .takes = "X",
       .help = "weight of a loss on where the last cross-attention looks, by the links of the training data; 0: none", .low = 0,
       .high = 1e6, .later = true},
      {.name = "coverage-loss", .value = &c.coverage_loss, .takes = "X",
       .help = "weight of a loss on its looking twice at the same word; 0: none", .low = 0, .high = 1e6, .later = true},
      {.name = "clip", .value = &c.clip, .takes = "X",
       .help = "largest norm of all gradients together; 0: no limit", .low = 0, .high = 1e9},
      {.name = "average", .value = &c.average, .takes = "X",
       .help = "decay of an average of the weights, which is then evaluated and kept; 0: none", .low = 0, .high = 1, .below = true},
      {.name = "seed", .value = &c.seed, .takes = "N", .help = "of initial weights, order of the data, dropout", .low = 0,
       .high = kLargestSeed},
      {.name = "precision", .value = &c.precision, .takes = "NAME",
       .help = "of the factors in the matrix products of updates; weights, sums and evaluations stay float32; bfloat16 needs AVX512-BF16",
       .choices = {"float32", "bfloat16"}, .later = true},
      {.name = "init", .value = &c.init, .takes = "PATH",
       .help = "start from these weights: a run's, a checkpoint, any .safetensors, PyTorch's too"},

      {.name = "steps", .value = &c.steps, .takes = "N",
       .help = "updates; unlimited where --epochs or --minutes is given", .low = 1, .high = kBig, .heading = "How long, and what is kept"},
      {.name = "epochs", .value = &c.epochs, .takes = "N", .help = "times through the data", .low = 1, .high = 1e9},
      {.name = "minutes", .value = &c.minutes, .takes = "X", .help = "of training in all; 0: no limit", .low = 0, .high = 1e9},
      {.name = "patience", .value = &c.patience, .takes = "N",
       .help = "stop after so many evaluations in a row without a new best", .low = 1, .high = 1e9},
      {.name = "evaluate-every", .value = &c.evaluate_every, .takes = "N",
       .help = "updates between evaluations on dev, else after each epoch", .low = 1, .high = kBig},
      {.name = "best-by", .value = &c.best_by, .takes = "NAME",
       .help = "best.safetensors is the model with the highest BLEU on dev, of equal ones that with the lowest loss; or the other way round; --schedule plateau goes by the same",
       .choices = {"bleu", "loss"}, .later = true},
      {.name = "save-every", .value = &c.save_every, .takes = "N",
       .help = "updates between checkpoints, besides those at evaluations and each minute", .low = 1, .high = kBig},
      {.name = "keep", .value = &c.keep, .takes = "N",
       .help = "newest checkpoints that stay; the best stays always", .low = 1, .high = 1e9},
      {.name = "if-full", .value = &c.if_full, .takes = "NAME",
       .help = "where the disk is full: go on and try again later, or stop", .choices = {"go-on", "stop"}},
      {.name = "threads", .value = &c.threads, .takes = "N",
       .help = "else HEED_THREADS, else what the machine offers", .low = 1, .high = 1024},
  };
}

}  // namespace

RunConfig default_config(std::string_view model, std::string_view schedule, std::string_view optimizer) {
  RunConfig config;
  config.model = model;
  if (is_recurrent(model)) {
    config.layers = 1;
    config.batch_tokens = {};
    config.batch_sentences = 64;
    config.dropout = 0.1;
    config.learning_rate = 1e-3;
    config.beta2 = 0.999;
    config.schedule = "constant";
    config.warmup = 0;
    config.label_smoothing = 0;
  }
  if (schedule == "noam" || optimizer == "adadelta") config.learning_rate = 1;
  if (schedule == "noam") config.eps = 1e-9;
  if (optimizer == "adamw") config.weight_decay = 0.01;
  return config;
}

std::vector<Option> options(RunConfig& config) {
  RunConfig fresh, recurrent = default_config("gru");
  std::vector<Option> all = table(config), defaults = table(fresh), others = table(recurrent);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::holds_alternative<bool*>(all[i].value)) continue;
    if (!is_absent(defaults[i])) all[i].standard = value_text(defaults[i]);
    if (all[i].name != "model" && value_text(others[i]) != value_text(defaults[i]))
      all[i].standard = fmt::format("{}, recurrent {}", value_text(defaults[i]), value_text(others[i]));
  }
  return all;
}

bool copies_by_attention(const RunConfig& c) { return c.copy && c.copy_form == "pointer-generator"; }

bool may_change(std::string_view option) {
  constexpr std::string_view names[] = {"steps",   "epochs", "minutes",     "patience",  "threads",    "save-every", "keep",
                                        "if-full", "data",   "train-files", "dev-files", "test-files", "train"};
  return std::find(std::begin(names), std::end(names), option) != std::end(names);
}

// ---- from options to objects ----------------------------------------------------------------------------------------

Index decoder_layers(const RunConfig& config) { return config.decoder_layers.value_or(config.layers); }

namespace {

std::unique_ptr<Seq2Seq> make_transformer(const RunConfig& c, Scope scope, Index source_vocabulary, Index target_vocabulary,
                                          std::int32_t pad) {
  const TransformerOptions core{.width = c.width,
                                .heads = c.heads,
                                .feed_forward = c.feed_forward,
                                .encoder_layers = c.layers,
                                .decoder_layers = decoder_layers(c),
                                .dropout = c.dropout,
                                .attention_dropout = c.attention_dropout,
                                .activation_dropout = c.activation_dropout,
                                .activation = activation_named(c.activation),
                                .gated = c.gated,
                                .norm = c.norm == "pre" ? NormAt::before : NormAt::after,
                                .final_norm = c.final_norm == "always" ? FinalNorm::always : FinalNorm::automatic,
                                .rms_norm = c.rms_norm,
                                .packed_qkv_init = c.qkv_init == "packed",
                                .key_value_heads = c.key_value_heads.value_or(0),
                                .query_key = query_key_named(c.qk_norm),
                                .normalise = c.normalise,
                                .sliding_window = c.sliding_window,
                                .dilation = dilation(c),
                                .global_tokens = c.global_tokens.value_or(0),
                                .talking_heads = c.talking_heads,
                                .differential = c.differential,
                                .linear_attention = c.linear_attention,
                                .random_features = c.random_features.value_or(0)};
  const TranslationModel::Options options{.source_vocabulary = source_vocabulary,
                                          .target_vocabulary = target_vocabulary,
                                          .core = core,
                                          .tie = c.tie == "all" ? Tie::all : c.tie == "output" ? Tie::output : Tie::none,
                                          .positions = positions_named(c.positions),
                                          .max_positions = max_positions(c),
                                          .pad = pad};
  return std::make_unique<TranslationModel>(scope, options);
}

using ModelMaker = std::unique_ptr<Seq2Seq> (*)(const RunConfig&, Scope, Index, Index, std::int32_t pad);
constexpr std::pair<std::string_view, ModelMaker> kModels[] = {
    {"transformer", make_transformer}, {"rnn", make_recurrent}, {"lstm", make_recurrent}, {"gru", make_recurrent}};

}  // namespace

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, maker] : kModels) names.push_back(name);
  return names;
}

std::unique_ptr<Seq2Seq> make_model(const RunConfig& config, Scope scope, Index source_vocabulary, Index target_vocabulary,
                                    const Tensor& shared, SpecialIds ids) {
  for (const auto& [name, maker] : kModels) {
    if (name != config.model) continue;
    auto model = maker(config, scope, source_vocabulary, target_vocabulary, ids.pad);
    if (!config.copy) return model;
    const CopyingModel::Options options{.source_vocabulary = source_vocabulary,
                                        .target_vocabulary = target_vocabulary,
                                        .shared = shared,
                                        .pad = ids.pad,
                                        .source_unk = ids.source_unk,
                                        .target_unk = ids.target_unk};
    if (config.copy_form == "copynet") return std::make_unique<CopyNet>(scope, std::move(model), options);
    return std::make_unique<PointerGenerator>(scope, std::move(model), options);
  }
  fail<Error>("unknown model: {}; there are {}", quote(config.model), fmt::join(model_names(), ", "));
}

std::unique_ptr<Seq2Seq> make_model(const RunConfig& config, Scope scope, const Vocabulary& source, const Vocabulary& target) {
  check<Error>(source.pad == target.pad, "the vocabularies have different ids of <pad>: source {}, target {}; one id for both", source.pad,
               target.pad);
  return make_model(config, scope, source.size(), target.size(), config.copy ? shared_words(source, target) : Tensor(),
                    {target.pad, source.unk, target.unk});
}

std::unique_ptr<Optimizer> make_optimizer(const RunConfig& c, Parameters& parameters) {
  const double rate = c.learning_rate, decay = c.weight_decay;
  if (c.optimizer == "adam")
    return std::make_unique<Adam>(
        parameters, Adam::Options{.learning_rate = rate, .beta1 = c.beta1, .beta2 = c.beta2, .eps = c.eps, .weight_decay = decay});
  if (c.optimizer == "adamw")
    return std::make_unique<AdamW>(
        parameters, AdamW::Options{.learning_rate = rate, .beta1 = c.beta1, .beta2 = c.beta2, .eps = c.eps, .weight_decay = decay});
  if (c.optimizer == "sgd")
    return std::make_unique<SGD>(parameters, SGD::Options{.learning_rate = rate, .momentum = c.momentum, .weight_decay = decay});
  if (c.optimizer == "adagrad")
    return std::make_unique<Adagrad>(parameters, Adagrad::Options{.learning_rate = rate, .weight_decay = decay});
  if (c.optimizer == "adadelta")
    return std::make_unique<Adadelta>(parameters, Adadelta::Options{.learning_rate = rate, .rho = c.rho, .weight_decay = decay});
  if (c.optimizer == "rmsprop")
    return std::make_unique<RMSprop>(parameters, RMSprop::Options{.learning_rate = rate, .weight_decay = decay, .momentum = c.momentum});
  fail<Error>("unknown optimizer: {}", quote(c.optimizer));
}

Schedule make_schedule(const RunConfig& c) {
  const auto kind = Schedule::kind(c.schedule);
  return Schedule({.kind = kind,
                   .peak = c.learning_rate,
                   .warmup = c.warmup,
                   .total = c.schedule_steps.value_or(0),
                   .factor = kind == Schedule::Kind::noam ? c.learning_rate : 0.5,
                   .every = c.schedule_steps.value_or(1),
                   .after = c.schedule_after,
                   .width = c.width});
}

std::vector<Index> dilation(const RunConfig& c) {
  std::vector<Index> gaps;
  if (c.dilation.empty()) return gaps;
  for (const std::string& number : at_commas(c.dilation)) {
    Index gap = 0;
    const char* const end = number.data() + number.size();
    const auto [read, error] = std::from_chars(number.data(), end, gap);
    check<Error>(error == std::errc() && read == end && gap >= 1 && gap <= 1000000,
                 "no list of gaps: --dilation {}; whole numbers in [1, 1000000] with commas between, as 1,1,2,4", quote(c.dilation));
    gaps.push_back(gap);
  }
  check<Error>(gaps.size() <= 1 || Index(gaps.size()) == c.heads,
               "gaps of some heads: --dilation {} --heads {}; a number for each of {}, or one for all", c.dilation, c.heads, c.heads);
  if (gaps.size() == 1) gaps.assign(std::size_t(c.heads), gaps[0]);
  return gaps;
}

std::int32_t start_symbol(const RunConfig& config, const Vocabulary& target) { return config.start == "eos" ? target.eos : target.bos; }

// 50 words more than a source has, as SearchOptions::extra_length, and eos
Index max_positions(const RunConfig& config) { return config.max_length + 51; }

}  // namespace heed
