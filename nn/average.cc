// SPDX-License-Identifier: Apache-2.0
#include "nn/average.h"

#include <algorithm>

#include "tensor/format.h"
#include "tensor/ops/view.h"

namespace heed {

WeightAverage::WeightAverage(const Selection& parameters, double decay) : decay_(decay) {
  check<Error>(decay >= 0 && decay < 1, "weight average: decay must be in [0, 1): {}", decay);
  for (const auto& parameter : parameters) items_.push_back({parameter, {}});
}

void WeightAverage::reserve() {
  check<Error>(!in_place_, "weight average: update() while the averages are in place of the weights");
  next_.reserve(items_.size());
  for (Item& item : items_)
    if (!item.average.defined()) item.average = empty_like(item.parameter->variable.value());
}

void WeightAverage::update() {
  reserve();
  next_.clear();
  const double t = double(updates_ + 1), decay = std::min(decay_, (1 + t) / (10 + t));
  for (const Item& item : items_) {
    const Tensor& weight = item.parameter->variable.value();
    if (updates_ == 0) copy_into(item.average, weight);
    else next_.push_back({Update::average, item.average, weight, {}, {.beta1 = decay}});
  }
  heed::update(next_);
  ++updates_;
}

std::map<std::string, Tensor> WeightAverage::state() const {
  std::map<std::string, Tensor> out;
  if (updates_ > 0)
    for (const Item& item : items_) out[item.parameter->path] = item.average;
  return out;
}

void WeightAverage::load_state(const std::map<std::string, Tensor>& state, std::int64_t updates) {
  check<Error>(updates >= 0, "weight average: updates must be 0 or more: {}", updates);
  check<Error>(!in_place_, "weight average: load_state() while the averages are in place of the weights");
  std::vector<Item> loaded = items_;
  for (Item& item : loaded) {
    item.average = {};
    if (updates == 0) continue;
    const auto at = state.find(item.parameter->path);
    const Variable& weight = item.parameter->variable;
    check<FileError>(at != state.end() && at->second.shape() == weight.shape() && at->second.dtype() == weight.dtype(),
                     "weight average: the state has no {} that is {} {}", item.parameter->path, weight.dtype(), weight.shape());
    item.average = at->second.clone();
  }
  items_ = std::move(loaded);
  updates_ = updates;
}

void WeightAverage::swap(const Tensor& buffer) {
  if (updates_ == 0) return;
  for (const Item& item : items_) {
    const Tensor& weight = item.parameter->variable.value();
    const Tensor kept = reshape(slice(buffer, 0, 0, weight.numel()), weight.shape());
    copy_into(kept, weight);
    copy_into(weight, item.average);
    copy_into(item.average, kept);
  }
}

WeightAverage::InPlace::InPlace(WeightAverage& average) : average_(average) {
  check<Error>(!average.in_place_, "weight average: its averages are in place already");
  Index most = 0;
  for (const Item& item : average.items_) most = std::max(most, item.parameter->variable.numel());
  buffer_ = empty({most}, average.items_.empty() ? DType::f32 : average.items_[0].parameter->variable.dtype());
  average.swap(buffer_);
  average.in_place_ = true;
}

WeightAverage::InPlace::~InPlace() {
  average_.swap(buffer_);
  average_.in_place_ = false;
}

}  // namespace heed
