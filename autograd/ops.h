// SPDX-License-Identifier: Apache-2.0
// The one list of differentiable functions. Formulas, shapes and errors stand in tensor/ops/<stem>.h; a function here throws
// exactly when its Tensor twin throws, with the same text.
#pragma once
#include "autograd/variable.h"
#include "tensor/mask.h"
#include "tensor/ops/attention.h"

namespace heed {

// ---- unary: tensor/ops/unary.h ---------------------------------------------------------------------------------------

// ---- binary: tensor/ops/binary.h -------------------------------------------------------------------------------------

// ---- reduce: tensor/ops/reduce.h -------------------------------------------------------------------------------------

// ---- matmul: tensor/ops/matmul.h -------------------------------------------------------------------------------------
Variable matmul(const Variable& a, const Variable& b);                       // c = a b over the last two axes; NumPy's batches and vectors

// ---- softmax: tensor/ops/softmax.h -----------------------------------------------------------------------------------
Variable softmax(const Variable& x, int dim = -1, const Mask& mask = {});       // e^x / Σ e^x, 0 where masked
Variable log_softmax(const Variable& x, int dim = -1, const Mask& mask = {});   // x - log Σ e^x
Variable logsumexp(const Variable& x, const Dims& dims = {}, bool keepdim = false);              // log Σ e^x; no dims: over all

// ---- norm: tensor/ops/norm.h -----------------------------------------------------------------------------------------
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps = 1e-5);   // γ ⊙ (x - μ)/√(var + eps) + β
Variable rms_norm(const Variable& x, const Variable& weight, double eps = 1e-5);                            // γ ⊙ x / √(mean x² + eps)
// sum = residual + dropout(x),  y = layer_norm(sum), in one pass; weight and bias may be undefined
struct AddedNorm { Variable y, sum; };
AddedNorm add_dropout_norm(const Variable& x, const Variable& residual, const Variable& weight, const Variable& bias, double dropout = 0, double eps = 1e-5);

// ---- view: tensor/ops/view.h -----------------------------------------------------------------------------------------
// Views: the gradient of a view is a view of x's gradient, no copy is made.
Variable reshape(const Variable& x, const Shape& shape);                     // one size may be -1; copies only when it must
Variable flatten(const Variable& x, int first = 0, int last = -1);
Variable transpose(const Variable& x, int a = -2, int b = -1);
Variable permute(const Variable& x, const Dims& dims);
Variable squeeze(const Variable& x, int dim);
Variable unsqueeze(const Variable& x, int dim);
Variable flip(const Variable& x, const Dims& dims);
Variable slice(const Variable& x, int dim, Index start, Index stop = Slice::kToEnd, Index step = 1);   // x[start:stop:step]
Variable select(const Variable& x, int dim, Index index);
std::vector<Variable> split(const Variable& x, Index count, int dim = 0);                        // equal parts
std::vector<Variable> split(const Variable& x, const std::vector<Index>& sizes, int dim = 0);
std::vector<Variable> unbind(const Variable& x, int dim = 0);
Variable concat(const std::vector<Variable>& xs, int dim = 0);               // copies, as do those below
Variable stack(const std::vector<Variable>& xs, int dim = 0);
Variable pad(const Variable& x, int dim, Index before, Index after, double value = 0);
Variable tril(const Variable& x, Index diagonal = 0);
Variable triu(const Variable& x, Index diagonal = 0);

// ---- index: tensor/ops/index.h ---------------------------------------------------------------------------------------
Variable embedding(const Variable& table, const Tensor& ids, double scale = 1, Index padding_idx = -1, const Tensor& positions = {});   // scale table[ids] + positions; the row padding_idx gets no gradient
Variable index_select(const Variable& x, int dim, const Tensor& ids);        // y[.., i, ..] = x[.., ids[i], ..]
Variable gather(const Variable& x, int dim, const Tensor& index);            // y[i, j, k] = x[i, index[i, j, k], k] for dim 1
Variable scatter_add(const Variable& x, int dim, const Tensor& index, const Variable& src);   // x, then y[i, index[i, j, k], k] += src[i, j, k]
Variable masked_fill(const Variable& x, const Tensor& mask, double value);   // value where mask (u8) is not 0
struct SortedVariable { Variable values; Tensor indices; };
SortedVariable sort(const Variable& x, int dim = -1, bool descending = false);   // stable
SortedVariable topk(const Variable& x, Index k, int dim = -1);               // the k largest, falling

// ---- random: tensor/ops/random.h -------------------------------------------------------------------------------------
Variable dropout(const Variable& x, double p);   // x m/(1-p), m by the tape's key and the module path; x itself where nothing trains

// ---- loss: tensor/ops/loss.h -----------------------------------------------------------------------------------------

// ---- attention: tensor/ops/attention.h -------------------------------------------------------------------------------
// O = dropout(softmax(scale Q Kᵀ, mask)) V, fused; the key of options is the tape's. The weights carry no gradient.
struct AttentionVariable { Variable output; Tensor weights; };
AttentionVariable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v, const Mask& mask = {}, AttentionOptions options = {});

}  // namespace heed
