// SPDX-License-Identifier: Apache-2.0
// Golden values: what PyTorch computes from identical weights (tests/golden, made by golden/make.py).
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "autograd/tape.h"
#include "nn/scope.h"
#include "tensor/json.h"
#include "tensor/mask.h"
#include "tensor/safetensors.h"

namespace heed::golden {

std::string path(const std::string& file);             // of tests/golden/<file>
const SafetensorsFile& file(std::string_view name);    // read once
Json json(const std::string& name);
std::vector<std::string> cases(const std::string& file);

// Largest |a - e| at most bound · max(|e|, 0.01), both taken over the whole tensor: bound 1e-10 in f64, 1e-5 in f32.
void check_close(const std::string& what, const Tensor& actual, const Tensor& expected);

// x [B, T, ...] with rows t >= lengths[b] set to zero, as the files have them.
Tensor rows_that_count(const Tensor& x, const Tensor& lengths);

// One case of a file in one precision. A test makes its inputs, fills its parameters, computes, and hands back the outputs.
class Case {
 public:
  Case(const std::string& file, const std::string& name, DType dtype);

  bool has(const std::string& input) const;
  Variable input(const std::string& name);       // a leaf that wants a gradient; the same one each time
  Tensor tensor(const std::string& name) const;  // an input that wants none; floats in the case's dtype
  Mask lengths(const std::string& name = "lengths") const;
  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  const Json& options() const { return options_; }
  // Copies every stored parameter into the one of its name; the names must be the same on both sides.
  void fill(Parameters& parameters) const;
  Variable parameter(const std::string& name);  // of a function without a module: a leaf

  void check_value(const std::string& output, const Tensor& actual) const;  // an output outside the gradients
  // Compares the outputs, plays the tape from their upstream gradients, compares every gradient the case has. `lengths` names
  // the input that says which rows of the outputs count.
  void check(Tape& tape, const std::map<std::string, Variable>& outputs, const Parameters* parameters = nullptr,
             const std::string& lengths = {});

 private:
  Tensor get(const std::string& key) const;
  Variable leaf(const std::string& key);
  std::string what(const std::string& key) const { return file_name_ + " " + name_ + " " + key; }

  std::string file_name_, name_;
  const SafetensorsFile& file_;
  DType dtype_;
  Json options_;
  std::map<std::string, Variable> leaves_;
};

// Runs `test(Case&)` on every case of a file whose name passes `wanted`, in f64 and f32.
template <class Test, class Wanted>
void each(const std::string& file, Wanted wanted, Test test) {
  for (const std::string& name : cases(file))
    if (wanted(name))
      for (const DType dtype : {DType::f64, DType::f32}) {
        Case c(file, name, dtype);
        test(c);
      }
}
template <class Test>
void each(const std::string& file, Test test) {
  each(
      file, [](const std::string&) { return true; }, test);
}

}  // namespace heed::golden
