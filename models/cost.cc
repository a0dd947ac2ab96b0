// SPDX-License-Identifier: Apache-2.0
#include "models/cost.h"

#include <algorithm>
#include <cmath>

#include "attention/attend.h"
#include "attention/relative.h"
#include "models/recurrent_config.h"

namespace heed {
namespace {

bool has(std::string_view path, std::string_view part) { return path.find(part) != path.npos; }

// Rows that a matrix is multiplied with.
double rows(std::string_view path, double S, double T) {
  if (has(path, "multihead_attn.in_proj")) return (T + 2 * S) / 3;                        // queries; keys and values
  if (has(path, "multihead_attn.k_proj") || has(path, "multihead_attn.v_proj")) return S;
  if (path.starts_with("encoder.") || has(path, ".encoder.") || has(path, "key_proj")) return S;
  if (has(path, "attention.filter") || has(path, "attention.coverage")) return S * T;   // weights that are looked back on
  if (path.starts_with("init.") || path.starts_with("context_proj.") || path.starts_with("bridge.")) return 1;
  return T;
}

// Pairs of n words that lie at most w apart, both ways.
double pairs(double n, double w) { return w < n ? n * (2 * w + 1) - w * (w + 1) : n * n; }
// The same where only every gap-th word is counted, which makes gap sequences of them; both ways and causal.
double pairs(double n, double w, double gap) {
  if (gap == 1) return pairs(n, w);
  const double least = std::floor(n / gap), longer = n - least * gap;                     // words of a sequence, sequences with one more
  return longer * pairs(least + 1, w) + (gap - longer) * pairs(least, w);
}
double causal_pairs(double n, double w, double gap) { return (pairs(n, w, gap) + n) / 2; }

}  // namespace

double multiply_adds_per_word(const RunConfig& given, const Parameters& parameters, double S, double T) {
  RunConfig c = given;
  settle_recurrent(c);
  const double global = std::min(double(c.global_tokens.value_or(0)), S);
  double work = 0, memory = 0, hidden = 0, reads_context = 0;                             // rows of the matrices that read c, of M columns
  for (const auto& item : parameters.items()) {
    const Shape& shape = item->variable.shape();
    if (shape.rank() == 2 && item->multiplied)
      work += double(shape.numel()) * (has(item->path, "query_global") ? global : rows(item->path, S, T));
    if (item->path.ends_with("copy.key_proj.weight")) work += double(shape[0]) * S * T;   // ψ
    if (has(item->path, "attention.key_proj.weight")) hidden = double(shape[0]);
    if (item->path.ends_with("attn_out.weight")) memory = double(shape[1] - shape[0]);    // [n, M + n]
    if (item->path.ends_with("readout.context.weight")) memory = double(shape[1]);        // [2l, M]
    if (item->path.ends_with("readout.context.weight") || item->path.ends_with("decoder.weight_ih")) reads_context += double(shape[0]);
  }
  const double d = double(c.width);
  if (c.model == "transformer") {
    const double encoder = double(c.layers), decoder = double(decoder_layers(c));
    const double w = double(c.sliding_window.value_or(Index(S + T)));
    if (c.linear_attention) {                                                             // sums and what reads them, of each word
      // random ones are made by a product
      const double head = d / double(c.heads), features = double(c.random_features.value_or(Index(head)));
      work += double(c.heads) * features * (head + 1 + (c.random_features ? head : 0)) * (encoder * 2 * S + decoder * (S + 3 * T));
    } else {
      const double a_pair = 2 * d + (c.talking_heads ? 2 * double(c.heads * c.heads) : 0);
      std::vector<Index> gaps = dilation(c);
      if (gaps.empty()) gaps = {1};
      for (const Index g : gaps) {                                                        // of a head, or 1 of all
        const double gap = double(g), own = pairs(S - global, w, gap) + S * S - (S - global) * (S - global);
        work += a_pair / double(gaps.size()) * (encoder * own + decoder * (causal_pairs(T, w, gap) + S * T));
      }
    }
    // q·a^K_r, α a^V_r
    if (c.positions == "shaw") work += 2 * (encoder * S + decoder * T) * d * double(2 * RelativePositions::Options().clip + 1);
  } else if (c.attention == "none") {
    work -= reads_context * memory * (T - 1);                                             // of a context that stays: once a sentence
  } else {
    const double seen = !window_of(c.attention).empty() ? std::min(S, 2 * double(*c.window) + 1) : S;
    const std::string score = score_of(c.attention);
    const bool looks = score != "location" && score != "gaussian" && score != "mean";
    work += T * seen * (memory + (!looks ? 0 : hidden > 0 ? hidden : memory));
  }
  return work / std::max(T, 1.0);
}

}  // namespace heed
