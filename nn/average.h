// SPDX-License-Identifier: Apache-2.0
// An exponential average of the weights of a training, often better than the last of them: Polyak and Juditsky 1992; PyTorch's
// torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn, whose decay is constant.
//
//   WeightAverage average(parameters, 0.995);
//   adam.step(), average.update();                   // each time
//   const WeightAverage::InPlace use(average);       // the model has the averages: it is evaluated, saved
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/scope.h"
#include "tensor/list.h"
#include "tensor/ops/update.h"

namespace heed {

class WeightAverage {
 public:
  // a_1 = w_1;  a_t = d a_{t-1} + (1 - d) w_t with d = min(decay, (1 + t)/(10 + t)), which rises so that early weights do not linger.
  // Of the parameters that are there now. Error unless decay is in [0, 1).
  WeightAverage(Parameters& parameters, double decay) : WeightAverage(parameters.select(), decay) {}
  WeightAverage(const Selection& parameters, double decay);

  WeightAverage(const WeightAverage&) = delete;  // state() and load_state() make another
  WeightAverage& operator=(const WeightAverage&) = delete;

  void reserve();                                // the memory of update(), which asks for none afterwards. The same Error
  void update();                                 // one more t. Error while the averages are in place
  std::int64_t updates() const { return updates_; }
  bool in_place() const { return in_place_; }    // an InPlace lives

  // a by path; nothing before the first update. The next update writes to these memories: clone to keep them.
  std::map<std::string, Tensor> state() const;
  // As after so many updates. FileError that says which average is missing or has another shape or dtype; then nothing has changed.
  // What else stands in it is passed over.
  void load_state(const std::map<std::string, Tensor>& state, std::int64_t updates);

  // While it lives, the parameters hold the averages, and state() what they held before. Before the first update nothing changes.
  // Error where another one lives.
  class [[nodiscard]] InPlace {
   public:
    explicit InPlace(WeightAverage& average);
    ~InPlace();
    InPlace(const InPlace&) = delete;
    InPlace& operator=(const InPlace&) = delete;

   private:
    WeightAverage& average_;
    Tensor buffer_;
  };

 private:
  struct Item {
    std::shared_ptr<Parameter::Data> parameter;
    Tensor average;
  };
  void swap(const Tensor& buffer);
  std::vector<Item> items_;
  List<UpdateItem> next_;
  double decay_;
  std::int64_t updates_ = 0;
  bool in_place_ = false;
};

}  // namespace heed
