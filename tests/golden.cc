// SPDX-License-Identifier: Apache-2.0
#include "tests/golden.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tensor/file.h"
#include "tensor/format.h"

namespace heed::golden {

std::string path(const std::string& file) { return HEED_SOURCE_DIR "/tests/golden/" + file; }

const SafetensorsFile& file(std::string_view name) {
  static std::map<std::string, SafetensorsFile, std::less<>> files;
  const auto found = files.find(name);
  return found != files.end() ? found->second
                              : files.emplace(name, read_safetensors(path(fmt::format("{}.safetensors", name)))).first->second;
}

Json json(const std::string& name) { return parse_json(read_file(path(name + ".json"))); }

std::vector<std::string> cases(const std::string& name) {
  std::vector<std::string> out;
  for (const auto& [key, value] : file(name).metadata)
    if (value.starts_with('{')) out.push_back(key);  // the others are versions
  REQUIRE(!out.empty());
  return out;
}

void check_close(const std::string& what, const Tensor& actual, const Tensor& expected) {
  INFO(what);
  REQUIRE(actual.defined());
  REQUIRE_MESSAGE(actual.shape() == expected.shape(), fmt::format("shape {}, expected {}", actual.shape(), expected.shape()));
  const double bound = actual.dtype() == DType::f64 ? 1e-10 : 1e-5;
  const auto a = to(actual, DType::f64).to_vector<double>(), e = to(expected, DType::f64).to_vector<double>();
  double scale = 0.01, worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < e.size(); ++i) {
    scale = std::max(scale, std::abs(e[i]));
    const double error = std::isnan(a[i]) ? INFINITY : std::abs(a[i] - e[i]);
    if (error > worst) worst = error, at = i;
  }
  CHECK_MESSAGE(worst <= bound * scale, fmt::format("{} at element {} instead of {}", a[at], at, e[at]));
}

Tensor rows_that_count(const Tensor& x, const Tensor& lengths) {
  const Tensor y = x.clone();
  for (Index b = 0; b < y.size(0); ++b)
    if (const Index n = lengths.span<std::int64_t>()[std::size_t(b)]; n < y.size(1)) fill_(y(b, Slice{n}), 0);
  return y;
}

Case::Case(const std::string& file, const std::string& name, DType dtype)
    : file_name_(file),
      name_(name),
      file_(golden::file(file)),
      dtype_(dtype),
      options_(parse_json(file_.metadata.at(name))) {}

bool Case::has(const std::string& input) const { return file_.tensors.contains(name_ + ".input." + input); }

Tensor Case::get(const std::string& key) const {
  const Tensor t = file_.at(name_ + "." + key);
  return is_float(t.dtype()) ? to(t, dtype_) : t;
}

Variable Case::leaf(const std::string& key) {
  const auto found = leaves_.find(key);
  return found != leaves_.end() ? found->second : leaves_.emplace(key, variable(get(key).clone())).first->second;
}

Variable Case::input(const std::string& name) { return leaf("input." + name); }
Variable Case::parameter(const std::string& name) { return leaf("parameter." + name); }
Tensor Case::tensor(const std::string& name) const { return get("input." + name); }
Mask Case::lengths(const std::string& name) const { return Mask::lengths(to(tensor(name), DType::i32)); }

void Case::fill(Parameters& parameters) const {
  const std::string prefix = name_ + ".parameter.";
  std::size_t stored = 0;
  for (const auto& entry : file_.tensors) {
    const std::string& key = entry.first;   // clang 14 captures no structured binding
    if (!key.starts_with(prefix)) continue;
    ++stored;
    const Parameter::Data* p = parameters.find(key.substr(prefix.size()));
    REQUIRE_MESSAGE(p, what(key) << ": no such parameter");
    copy_into(p->variable.value(), to(entry.second, dtype_));
  }
  REQUIRE_MESSAGE(stored == parameters.items().size(),
                  what("parameters") << ": " << stored << " in the file, " << parameters.items().size() << " in the module");
}

void Case::check_value(const std::string& output, const Tensor& actual) const {
  check_close(what("output." + output), actual, get("output." + output));
}

void Case::check(Tape& tape, const std::map<std::string, Variable>& outputs, const Parameters* parameters,
                 const std::string& lengths) {
  std::vector<Variable> ys;
  std::vector<Tensor> dys;
  for (const auto& [name, y] : outputs) {
    check_value(name, lengths.empty() ? y.value() : rows_that_count(y.value(), tensor(lengths)));
    ys.push_back(y);
    dys.push_back(get("upstream." + name));
  }
  tape.backward(ys, dys);
  const std::string prefix = name_ + ".gradient.";
  for (const auto& [key, expected] : file_.tensors) {
    if (!key.starts_with(prefix)) continue;
    const std::string of = key.substr(prefix.size());  // input.x, parameter.weight
    if (const auto found = leaves_.find(of); found != leaves_.end()) {
      check_close(what("gradient." + of), found->second.grad(), get("gradient." + of));
    } else if (parameters && of.starts_with("parameter.")) {
      const Parameter::Data* p = parameters->find(of.substr(10));
      REQUIRE(p);
      check_close(what("gradient." + of), p->gradient->written() ? p->gradient->value() : zeros_like(p->variable.value()),
                  get("gradient." + of));
    } else {
      FAIL_CHECK(what("gradient." + of) << " was not computed");
    }
  }
}

}  // namespace heed::golden
