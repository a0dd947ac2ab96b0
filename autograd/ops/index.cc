// SPDX-License-Identifier: Apache-2.0
#include "tensor/ops/index.h"

#include "autograd/ops.h"
#include "autograd/ops/samples.h"
#include "autograd/record.h"
#include "tensor/format.h"

namespace heed {

Variable embedding(const Variable& table, const Tensor& ids, double scale, Index padding_idx, const Tensor& positions) {
  Tensor y = embedding(table.value(), ids, scale, positions);
  check<IndexError>(padding_idx >= -1 && padding_idx < table.size(0), "embedding: padding_idx {} is not in [-1, {}): table {}", padding_idx,
                    table.size(0), table.shape());
  return record("embedding", y, {table},
                [dtable = table.slot(), ids = saved(ids), scale, padding_idx](const Tensor& dy) {
                  dtable.gradient([&](Into out) { embedding_grad(ids, dy, scale, padding_idx, out); });
                });
}

Variable index_select(const Variable& x, int dim, const Tensor& ids) {
  return record("index_select", index_select(x.value(), dim, ids), {x},
                [dx = x.slot(), dim, ids = saved(ids)](const Tensor& dy) {
                  dx.gradient([&](Into out) { index_select_grad(ids, dy, dim, out); });
                });
}

Variable gather(const Variable& x, int dim, const Tensor& index) {
  return record("gather", gather(x.value(), dim, index), {x}, [dx = x.slot(), dim, index = saved(index)](const Tensor& dy) {
    dx.gradient([&](Into out) { gather_grad(index, dy, dim, out); });
  });
}

Variable scatter_add(const Variable& x, int dim, const Tensor& index, const Variable& src) {
  return record("scatter_add", scatter_add(x.value(), dim, index, src.value()), {x, src},
                [dx = x.slot(), dsrc = src.slot(), dim, index = saved(index)](const Tensor& dy) {
                  dx.adopt(dy);
                  if (dsrc.wanted()) dsrc.adopt(gather(dy, dim, index));
                });
}

Variable masked_fill(const Variable& x, const Tensor& mask, double value) {
  return record("masked_fill", masked_fill(x.value(), mask, value), {x}, [dx = x.slot(), mask = saved(mask)](const Tensor& dy) {
    dx.gradient([&](Into out) { masked_fill_grad(mask, dy, out); });
  });
}

// ---- samples -----------------------------------------------------------------------------------------------------------------------

void index_samples(SampleTable& table) {
  constexpr Index N = Sample::kAny;
  const Tensor ids = tensor({{2, 0, 2}, {1, 3, 2}}, DType::i64), list = tensor({2, 0, 2, 1}, DType::i64),
               column = tensor({{1}, {0}, {1}}, DType::i64);
  table.both("embedding", [ids](auto x) { return embedding(x[0], ids, 2); }, {{{4, N}}});
  table.both("index_select", [list](auto x) { return index_select(x[0], 0, list); }, {{{3, N}}});
  table.both("gather", [column](auto x) { return gather(x[0], 1, column); }, {{{3, 2}}});
  table.both("scatter_add", [column](auto x) { return scatter_add(x[0], 1, column, x[1]); }, {{{3, 2}}, {{3, 1}}});
  table.both("masked_fill", [](auto x) { return masked_fill(x[0], tensor({{1}, {0}, {1}}, DType::u8), -3); }, {{{3, N}}});
}

}  // namespace heed
