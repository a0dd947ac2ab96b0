// SPDX-License-Identifier: Apache-2.0
// The op table: what the tests know of the samples at the end of autograd/ops/<stem>.cc. A row is one line in tests/ops/<stem>_test.cc:
//   static const InTable rows{{"tanh", reference::each([](double x) { return std::tanh(x); })}, ...};
// tests/op_table_test.cc runs the same properties over all samples.
#pragma once
#include <initializer_list>

#include "autograd/samples.h"
#include "tests/reference.h"

struct Row {
  struct Wrong {
    std::vector<heed::Shape> inputs;            // shapes that must throw; the text shows the first two of them
    std::vector<std::string> says = {};         // and this
  };
  std::string name;                             // of a sample, or of a function: then of all its samples without a row of their own
  reference::Function reference;
  heed::DifferentiableFunction definition = {}; // a composition of small ops that a fused one must equal
  std::vector<Wrong> wrong = {};
  double ulp = 16;                              // |y - reference| <= ulp ε max(1, |y|), also of gradients, f32 against f64
};

struct InTable {
  InTable(std::initializer_list<Row> rows);
};

// The row of a sample, nullptr without one.
const Row* row_of(const heed::Sample& sample);
const std::vector<Row>& all_rows();
