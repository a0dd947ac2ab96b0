// SPDX-License-Identifier: Apache-2.0
// The samples of a stem stand at the end of autograd/ops/<stem>.cc: one row a function, several where shapes, dims or masks make a
// different kernel or rule run.
#pragma once
#include "autograd/ops.h"
#include "autograd/samples.h"

namespace heed {

struct SampleTable {
  using Inputs = std::vector<Sample::Input>;
  using Variables = std::span<const Variable>;
  using Tensors = std::span<const Tensor>;

  void add(std::string name, DifferentiableFunction f, std::function<Tensor(Tensors)> tensor, Inputs inputs) {
    rows.push_back({std::move(name), std::move(f), std::move(tensor), std::move(inputs)});
  }
  // f serves Variables and Tensors alike.
  template <class F> void both(std::string name, F f, Inputs inputs) { add(std::move(name), f, f, std::move(inputs)); }
  // An element-wise function of one tensor.
  template <class F> void each(std::string name, F f, double low, double high, std::vector<double> kinks = {}) {
    both(std::move(name), [f](auto x) { return f(x[0]); }, {{{3, Sample::kAny}, low, high, std::move(kinks)}});
  }

  std::vector<Sample> rows;
};

void unary_samples(SampleTable& table);
void binary_samples(SampleTable& table);
void reduce_samples(SampleTable& table);
void matmul_samples(SampleTable& table);
void einsum_samples(SampleTable& table);
void linear_samples(SampleTable& table);
void softmax_samples(SampleTable& table);
void sparsemax_samples(SampleTable& table);
void norm_samples(SampleTable& table);
void view_samples(SampleTable& table);
void rotary_samples(SampleTable& table);
void index_samples(SampleTable& table);
void sort_samples(SampleTable& table);
void cross_entropy_samples(SampleTable& table);
void soft_cross_entropy_samples(SampleTable& table);
void loss_samples(SampleTable& table);
void attention_samples(SampleTable& table);
void causal_product_samples(SampleTable& table);
void score_samples(SampleTable& table);
void random_samples(SampleTable& table);
void recurrent_samples(SampleTable& table);

}  // namespace heed
