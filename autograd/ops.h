// SPDX-License-Identifier: Apache-2.0
// The one list of differentiable functions. Formulas, shapes and errors stand in tensor/ops/<stem>.h; a function here throws
// exactly when its Tensor twin throws, with the same text; dropout apart, whose key is the tape's: dropout_key of autograd/tape.h.
#pragma once
#include "autograd/variable.h"
#include "tensor/list.h"
#include "tensor/mask.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/linear.h"
#include "tensor/ops/loss.h"
#include "tensor/ops/recurrent.h"
#include "tensor/ops/rotary.h"

namespace heed {

// ---- unary: tensor/ops/unary.h ---------------------------------------------------------------------------------------
Variable negative(const Variable& x);                                        // -x
Variable abs(const Variable& x);                                             // |x|
Variable exp(const Variable& x);                                             // e^x
Variable expm1(const Variable& x);                                           // e^x - 1
Variable log(const Variable& x);                                             // ln x
Variable log1p(const Variable& x);                                           // ln(1 + x)
Variable sqrt(const Variable& x);                                            // √x
Variable square(const Variable& x);                                          // x²
Variable reciprocal(const Variable& x);                                      // 1 / x
Variable sin(const Variable& x);
Variable cos(const Variable& x);
Variable tanh(const Variable& x);
Variable sigmoid(const Variable& x);                                         // 1 / (1 + e^{-x})
Variable logsigmoid(const Variable& x);                                      // -ln(1 + e^{-x})
Variable relu(const Variable& x);                                            // max(x, 0)
Variable gelu(const Variable& x);                                            // x Φ(x)
Variable gelu_tanh(const Variable& x);                                       // x Φ(x), approximated by tanh
Variable silu(const Variable& x);                                            // x sigmoid(x)
Variable softplus(const Variable& x);                                        // ln(1 + e^x)
Variable erf(const Variable& x);                                             // 2/√π ∫ e^{-t²}
Variable floor(const Variable& x);                                           // gradient 0, as of ceil, round and sign
Variable ceil(const Variable& x);
Variable round(const Variable& x);                                           // half to even
Variable sign(const Variable& x);
Variable operator-(const Variable& x);
Variable elu(const Variable& x, double alpha = 1);                           // x > 0 ? x : α (e^x - 1)
Variable leaky_relu(const Variable& x, double slope = 0.01);                 // x > 0 ? x : slope x
Variable clamp(const Variable& x, double low, double high);                  // min(max(x, low), high)
Variable pow(const Variable& x, double exponent);                            // x^c

// ---- binary: tensor/ops/binary.h -------------------------------------------------------------------------------------
Variable add(const Variable& a, const Variable& b);                          // a + b
Variable add(const Variable& a, double b);
Variable add(double a, const Variable& b);
Variable subtract(const Variable& a, const Variable& b);                     // a - b
Variable subtract(const Variable& a, double b);
Variable subtract(double a, const Variable& b);
Variable multiply(const Variable& a, const Variable& b);                     // a ⊙ b
Variable multiply(const Variable& a, double b);
Variable multiply(double a, const Variable& b);
Variable divide(const Variable& a, const Variable& b);                       // a / b
Variable divide(const Variable& a, double b);
Variable divide(double a, const Variable& b);
Variable maximum(const Variable& a, const Variable& b);                      // ties share the gradient evenly
Variable maximum(const Variable& a, double b);
Variable maximum(double a, const Variable& b);
Variable minimum(const Variable& a, const Variable& b);
Variable minimum(const Variable& a, double b);
Variable minimum(double a, const Variable& b);
Variable pow(const Variable& a, const Variable& b);                          // a^b
Variable pow(double a, const Variable& b);
Variable atan2(const Variable& a, const Variable& b);                        // angle of (b, a)
Variable logaddexp(const Variable& a, const Variable& b);                    // ln(e^a + e^b)
Variable where(const Tensor& condition, const Variable& a, const Variable& b); // condition ? a : b; u8
inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator+(const Variable& a, double b) { return add(a, b); }
inline Variable operator+(double a, const Variable& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return subtract(a, b); }
inline Variable operator-(const Variable& a, double b) { return subtract(a, b); }
inline Variable operator-(double a, const Variable& b) { return subtract(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return multiply(a, b); }
inline Variable operator*(const Variable& a, double b) { return multiply(a, b); }
inline Variable operator*(double a, const Variable& b) { return multiply(a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return divide(a, b); }
inline Variable operator/(const Variable& a, double b) { return divide(a, b); }
inline Variable operator/(double a, const Variable& b) { return divide(a, b); }

// ---- reduce: tensor/ops/reduce.h -------------------------------------------------------------------------------------
Variable sum(const Variable& x, const Dims& dims = {}, Flag keepdim = false); // Σ x over dims, {} = all
Variable mean(const Variable& x, const Dims& dims = {}, Flag keepdim = false); // Σ x / n
Variable prod(const Variable& x, const Dims& dims = {}, Flag keepdim = false); // Π x
Variable max(const Variable& x, const Dims& dims = {}, Flag keepdim = false); // ties share the gradient evenly
Variable min(const Variable& x, const Dims& dims = {}, Flag keepdim = false);
Variable norm(const Variable& x, const Dims& dims = {}, Flag keepdim = false); // √Σ x²
Variable var(const Variable& x, const Dims& dims = {}, Flag unbiased = true, Flag keepdim = false); // Σ (x - mean)² / (n - 1)
// √var, PyTorch's std; gradient 0 where it is 0
Variable stddev(const Variable& x, const Dims& dims = {}, Flag unbiased = true, Flag keepdim = false);
Variable cumsum(const Variable& x, int dim);                                 // y_i = x_0 + ... + x_i
Variable sum_to(const Variable& x, const Shape& shape);                      // inverse of broadcasting

// ---- matmul: tensor/ops/matmul.h -------------------------------------------------------------------------------------
Variable matmul(const Variable& a, const Variable& b);                       // c = a b over the last two axes; NumPy's batches and vectors

// ---- einsum: tensor/ops/einsum.h -------------------------------------------------------------------------------------
Variable einsum(std::string_view spec, const std::vector<Variable>& operands);  // einsum("bthd,bshd->bhts", {q, k})

// ---- linear: tensor/ops/linear.h -------------------------------------------------------------------------------------
struct LinearOptions { Activation activation = Activation::none; double dropout = 0; Variable residual = {}; };
// residual + dropout(activation(x Wᵀ + b)), bias may be undefined; dropout where the tape trains
Variable linear(const Variable& x, const Variable& weight, const Variable& bias, const LinearOptions& options = {});

// ---- softmax: tensor/ops/softmax.h -----------------------------------------------------------------------------------
Variable softmax(const Variable& x, int dim = -1, const Mask& mask = {});       // e^x / Σ e^x, 0 where masked
Variable log_softmax(const Variable& x, int dim = -1, const Mask& mask = {});   // x - log Σ e^x
Variable logsumexp(const Variable& x, const Dims& dims = {}, Flag keepdim = false);              // log Σ e^x; no dims: over all

// ---- sparsemax: tensor/ops/sparsemax.h -------------------------------------------------------------------------------
Variable sparsemax(const Variable& x, const Mask& mask = {});                // max(x - τ, 0), sums to 1; last axis
Variable entmax(const Variable& x, const Mask& mask = {});                   // max(x/2 - τ, 0)², sums to 1; last axis

// max((α - 1) x - τ, 0)^(1/(α - 1)), sums to 1; alpha broadcasts to the axes before the last
Variable alpha_entmax(const Variable& x, const Variable& alpha, const Mask& mask = {});

// ---- norm: tensor/ops/norm.h -----------------------------------------------------------------------------------------
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps = 1e-5);   // γ ⊙ (x - μ)/√(var + eps) + β
Variable rms_norm(const Variable& x, const Variable& weight, double eps = 1e-5);                            // γ ⊙ x / √(mean x² + eps)
// sum = residual + dropout(x),  y = layer_norm(sum), in one pass; weight and bias may be undefined
struct AddedNorm { Variable y, sum; };
AddedNorm add_dropout_norm(const Variable& x, const Variable& residual, const Variable& weight, const Variable& bias, double p = 0,
                           double eps = 1e-5);
AddedNorm add_dropout_norm_by_definition(const Variable& x, const Variable& residual, const Variable& weight, const Variable& bias,
                                         double p = 0, double eps = 1e-5);

// ---- view: tensor/ops/view.h -----------------------------------------------------------------------------------------
// Views: the gradient of a view is a view of x's gradient, no copy is made.
Variable reshape(const Variable& x, const Shape& shape);                     // one size may be -1; copies only when it must
Variable flatten(const Variable& x, int first = 0, int last = -1);
Variable transpose(const Variable& x, int a = -2, int b = -1);
Variable permute(const Variable& x, const Dims& dims);
Variable squeeze(const Variable& x, int dim);
Variable unsqueeze(const Variable& x, int dim);
Variable flip(const Variable& x, const Dims& dims);
Variable roll(const Variable& x, Index shift, int dim);                      // y_i = x_(i - shift), around the end; copies
Variable slice(const Variable& x, int dim, Index start, Index stop = Slice::kToEnd, Index step = 1);   // x[start:stop:step]
Variable select(const Variable& x, int dim, Index index);
List<Variable> split(const Variable& x, Index count, int dim = 0);                               // equal parts
List<Variable> split(const Variable& x, std::span<const Index> sizes, int dim = 0);
inline List<Variable> split(const Variable& x, std::initializer_list<Index> sizes, int dim = 0) {
  return split(x, std::span(sizes.begin(), sizes.size()), dim);
}
List<Variable> unbind(const Variable& x, int dim = 0);
Variable expand(const Variable& x, const Shape& shape);                      // its gradient is summed over the axes that grew
// y[.., t, s] = x[.., rows - 1 - t + s]; its gradient is summed along diagonals
Variable toeplitz(const Variable& x, Index rows);
Variable concat(std::span<const Variable> xs, int dim = 0);                  // copies, as do those below
Variable stack(std::span<const Variable> xs, int dim = 0);
inline Variable concat(std::initializer_list<Variable> xs, int dim = 0) { return concat(std::span(xs.begin(), xs.size()), dim); }
inline Variable stack(std::initializer_list<Variable> xs, int dim = 0) { return stack(std::span(xs.begin(), xs.size()), dim); }
// all of x counts[i] times along axis i, more counts than axes in front; PyTorch's repeat
Variable repeat(const Variable& x, const Shape& counts);
Variable pad(const Variable& x, int dim, Index before, Index after, double value = 0);
Variable tril(const Variable& x, Index diagonal = 0);
Variable triu(const Variable& x, Index diagonal = 0);

// ---- rotary: tensor/ops/rotary.h -------------------------------------------------------------------------------------
// pairs (a, b) of the last axis become (a cos φ - b sin φ, a sin φ + b cos φ)
Variable rotary(const Variable& x, const Rotations& rotations);

// ---- index: tensor/ops/index.h ---------------------------------------------------------------------------------------
// scale table[ids] + positions (a constant [T, d] or none); the row padding_idx of the table gets no gradient, -1: all do
Variable embedding(const Variable& table, const Tensor& ids, double scale = 1, Index padding_idx = -1, const Tensor& positions = {});
Variable index_select(const Variable& x, int dim, const Tensor& ids);        // y[.., i, ..] = x[.., ids[i], ..]
Variable gather(const Variable& x, int dim, const Tensor& index);            // y[i, j, k] = x[i, index[i, j, k], k] for dim 1
// y = x; y[i, index[i, j, k], k] += src[i, j, k]
Variable scatter_add(const Variable& x, int dim, const Tensor& index, const Variable& src);
Variable masked_fill(const Variable& x, const Tensor& mask, double value);   // value where mask (u8) is not 0

// ---- sort: tensor/ops/sort.h -----------------------------------------------------------------------------------------
struct SortedVariable { Variable values; Tensor indices; };
SortedVariable sort(const Variable& x, int dim = -1, bool descending = false);   // stable
SortedVariable topk(const Variable& x, Index k, int dim = -1);               // the k largest, falling

// ---- random: tensor/ops/random.h -------------------------------------------------------------------------------------
Variable dropout(const Variable& x, double p);   // x m/(1-p), m by the tape's key and the module path; x itself where nothing trains

// ---- cross_entropy: tensor/ops/cross_entropy.h -----------------------------------------------------------------------
// -Σ_k w_k q_k log softmax(z)_k of each row of logits [..., V]; mean: Σ / Σ w_y over the rows that are not ignored, y their targets
Variable cross_entropy(const Variable& logits, const Tensor& targets, const CrossEntropyOptions& options = {},
                       Reduction reduction = Reduction::mean);
// -Σ_k q_k log softmax(z)_k of each row for probabilities q in place of a label, such as a teacher's;
// PyTorch's cross_entropy of float targets
Variable soft_cross_entropy(const Variable& logits, const Variable& probabilities, Reduction reduction = Reduction::mean);
// cross_entropy(x Wᵀ + b, targets) summed over the rows, [N, V] never stored; bias may be undefined
Variable linear_cross_entropy(const Variable& x, const Variable& weight, const Variable& bias, const Tensor& targets,
                              const CrossEntropyOptions& options = {});
Variable linear_cross_entropy_by_definition(const Variable& x, const Variable& weight, const Variable& bias, const Tensor& targets,
                                            const CrossEntropyOptions& options = {});
// The same with -log(e^log_share softmax(z)_y + other) for the label, log_share and other [N]: words that may also come from elsewhere;
// with rest [N] -log((e^(log_share + z_y) + other e^rest) / (Σ e^z + e^rest))
Variable linear_mixture_cross_entropy(const Variable& x, const Variable& weight, const Variable& bias, const Variable& log_share,
                                      const Variable& other, const Tensor& targets, const CrossEntropyOptions& options = {},
                                      const Variable& rest = {});
Variable linear_mixture_cross_entropy_by_definition(const Variable& x, const Variable& weight, const Variable& bias,
                                                    const Variable& log_share, const Variable& other, const Tensor& targets,
                                                    const CrossEntropyOptions& options = {}, const Variable& rest = {});

// ---- loss: tensor/ops/loss.h -----------------------------------------------------------------------------------------
Variable mse_loss(const Variable& x, const Variable& target, Reduction reduction = Reduction::mean);                        // (x - y)²
Variable l1_loss(const Variable& x, const Variable& target, Reduction reduction = Reduction::mean);                         // |x - y|
// (x - y)²/2β, beyond β: |x - y| - β/2
Variable smooth_l1_loss(const Variable& x, const Variable& target, Reduction reduction = Reduction::mean, double beta = 1);
// (x - y)²/2, beyond δ: δ (|x - y| - δ/2)
Variable huber_loss(const Variable& x, const Variable& target, Reduction reduction = Reduction::mean, double delta = 1);
Variable kl_div(const Variable& x, const Variable& target, Reduction reduction = Reduction::mean);                          // y (log y - x)
Variable binary_cross_entropy_with_logits(const Variable& x, const Tensor& target, const Tensor& weight = {}, const Tensor& pos_weight = {},
                                          Reduction reduction = Reduction::mean);   // -w (p y log σ(x) + (1 - y) log σ(-x))
// -w_y x_y of each row of log-probabilities [..., V] at its target y
Variable nll_loss(const Variable& x, const Tensor& targets, const Tensor& weight = {}, Index ignore_index = -100,
                  Reduction reduction = Reduction::mean);

// ---- attention: tensor/ops/attention.h -------------------------------------------------------------------------------
// O = dropout(softmax(scale Q Kᵀ + bias, mask)) V, fused; the key of options is the tape's. The weights carry a gradient as well.
struct AttentionVariable { Variable output, weights; };
AttentionVariable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v, const Mask& mask = {},
                                               AttentionOptions options = {}, const Variable& bias = {});
AttentionVariable scaled_dot_product_attention_by_definition(const Variable& q, const Variable& k, const Variable& v, const Mask& mask = {},
                                                            AttentionOptions options = {}, const Variable& bias = {});
Variable with_heads(const Variable& x, Index heads);         // [B, H/g, S, d], each head g times -> [B, H, S, d]

// ---- causal_product: tensor/ops/causal_product.h ---------------------------------------------------------------------
// y_i = q_i Σ_{j <= i} k_jᵀ v_j      q, k [B, H, T, m], v [B, H, T, n] -> [B, H, T, n]
Variable causal_product(const Variable& q, const Variable& k, const Variable& v);
Variable causal_product_by_definition(const Variable& q, const Variable& k, const Variable& v);   // tril(q kᵀ) v

// ---- recurrent: tensor/ops/recurrent.h -------------------------------------------------------------------------------
struct RecurrentState { Variable h = {}, c = {}; };             // [B, n]; c of an LSTM only; undefined: zero
struct RecurrentWeights { Variable weight_ih, weight_hh, bias_ih, bias_hh; };
struct RecurrentSequence { Variable outputs; RecurrentState last; };
// One step; gates = x W_ihᵀ + b_ih [B, gates n]: one product and one pass over the gates
RecurrentState recurrent_cell(RecurrentUnit unit, const Variable& gates, const RecurrentState& state, const Variable& weight_hh,
                              const Variable& bias_hh);
RecurrentState recurrent_cell_by_definition(RecurrentUnit unit, const Variable& gates, const RecurrentState& state,
                                            const Variable& weight_hh, const Variable& bias_hh);
// All steps of x [B, S, E] in one direction, the cell along s < lengths[b]: outputs [B, S, n], 0 beyond a length
RecurrentSequence recurrent_layer(RecurrentUnit unit, const Variable& x, const Tensor& lengths, const RecurrentState& initial,
                                  const RecurrentWeights& weights, bool reverse = false);
RecurrentSequence recurrent_layer_by_definition(RecurrentUnit unit, const Variable& x, const Tensor& lengths, const RecurrentState& initial,
                                                const RecurrentWeights& weights, bool reverse = false);

// ---- score: tensor/ops/score.h ---------------------------------------------------------------------------------------
// e = vᵀ tanh(q + k), fused: q [B, T, A], k [B, S, A], v [A] -> [B, T, S], 0 where masked
Variable additive_score(const Variable& q, const Variable& k, const Variable& v, const Mask& mask = {});
Variable additive_score_by_definition(const Variable& q, const Variable& k, const Variable& v, const Mask& mask = {});

}  // namespace heed
