// SPDX-License-Identifier: Apache-2.0
// Optimisers with PyTorch's definitions and defaults. step() updates every parameter of the selection, those declared when the
// optimiser was made, whose gradient is written, then marks these gradients unwritten: another optimiser finds none of them, and those of
// parameters that no optimiser has add up unless they are frozen. Groups of parameters with rates or decays of their own: set_factors; with
// other rules: an optimiser over a Selection each.
// Error where an option or a rate is out of its range.
// State goes by parameter path and PyTorch's names (exp_avg, exp_avg_sq, momentum_buffer, ...).
// A rule of one's own is a loop:
//
//   for (const auto& item : parameters.items()) {
//     const Parameter weight(item);
//     if (const Tensor g = gradient(weight); g.defined()) copy_into(weight.value(), weight.value() - 1e-3 * sign(g));
//   }
//   parameters.forget_gradients();
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/scope.h"
#include "tensor/ops/update.h"

namespace heed {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;          // two would share the memory of their states: state() and load_state() make another
  Optimizer& operator=(const Optimizer&) = delete;

  // One pass over all parameters; all memory is there before the first is touched. Who leaves out a step calls forget_gradients(), or the
  // next one has those gradients too.
  void step();
  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double rate);
  // From now on these parameters have so many times the learning rate, whatever a schedule makes of it, and so many times the weight decay:
  //   adam.set_factors(parameters.select([](const Parameter::Data& p) { return p.variable.rank() < 2; }), {.weight_decay = 0});   // biases, norms
  // Error: below 0, or a parameter that this optimiser does not update; then nothing has changed.
  struct Factors { double learning_rate = 1, weight_decay = 1; };
  void set_factors(const Selection& some, Factors factors);

  // State as tensors: "<path>.exp_avg", "<path>.step" (i64), ... The next step writes to these memories, but for .step: clone to keep them.
  std::map<std::string, Tensor> state() const;
  // Restores it, also from PyTorch's, whose step is a float and of SGD absent; a parameter without any entry was never updated. FileError
  // that lists the missing, unexpected and mismatched entries; then nothing has changed.
  void load_state(const std::map<std::string, Tensor>& state);

 protected:
  struct Item {
    std::shared_ptr<Parameter::Data> parameter;
    std::vector<Tensor> states;                  // one for each name, at most two; written by the first update
    std::int64_t steps = 0;
    Factors factors = {};
  };
  Optimizer(Selection parameters, double learning_rate, std::vector<std::string> state_names);
  // The kernel to run and the constants of one item at its t-th update; learning rate and gradient scale are filled in before,
  // the factor of the weight decay is applied after.
  virtual Update constants(const Item& item, UpdateConstants& c) const = 0;
  bool counts_ = true;                           // a state without .step is refused: the constants depend on t

 private:
  void allocate();
  std::vector<Item> items_;
  std::vector<std::string> state_names_;
  double learning_rate_;
};

// weight_decay wd: before each of these rules g += wd θ, but for AdamW's.

// b = μ b + (1 - damp) g (first: g);  d = g + μ b (Nesterov) or b, g where μ = 0;  θ -= lr d
class SGD : public Optimizer {
 public:
  struct Options { double learning_rate = 1e-3, momentum = 0, dampening = 0, weight_decay = 0; bool nesterov = false; };
  SGD(Parameters& parameters, Options options) : SGD(parameters.select(), options) {}
  SGD(Selection parameters, Options options);

 private:
  Update constants(const Item& item, UpdateConstants& c) const override;
  Options options_;
};

// m = β1 m + (1-β1) g;  v = β2 v + (1-β2) g²;  θ -= lr/(1-β1^t) m / (√v/√(1-β2^t) + eps)           Kingma and Ba 2015
class Adam : public Optimizer {
 public:
  struct Options { double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0; };
  Adam(Parameters& parameters, Options options) : Adam(parameters.select(), options) {}
  Adam(Selection parameters, Options options, bool decoupled = false);

 private:
  Update constants(const Item& item, UpdateConstants& c) const override;
  Options options_;
  bool decoupled_;
};

// θ *= 1 - lr wd, then Adam                                                                        Loshchilov and Hutter 2019
class AdamW : public Adam {
 public:
  struct Options { double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01; };
  AdamW(Parameters& parameters, Options options) : AdamW(parameters.select(), options) {}
  AdamW(Selection parameters, Options o) : Adam(std::move(parameters), {o.learning_rate, o.beta1, o.beta2, o.eps, o.weight_decay}, true) {}
};

// v += g²;  θ -= lr/(1 + (t-1) lr_decay) g/(√v + eps)                                              Duchi et al. 2011
class Adagrad : public Optimizer {
 public:
  struct Options { double learning_rate = 1e-2, learning_rate_decay = 0, weight_decay = 0, initial_accumulator = 0, eps = 1e-10; };
  Adagrad(Parameters& parameters, Options options) : Adagrad(parameters.select(), options) {}
  Adagrad(Selection parameters, Options options);

 private:
  Update constants(const Item& item, UpdateConstants& c) const override;
  Options options_;
};

// v = ρ v + (1-ρ) g²;  d = g √(u+eps)/√(v+eps);  u = ρ u + (1-ρ) d²;  θ -= lr d                    Zeiler 2012
class Adadelta : public Optimizer {
 public:
  struct Options { double learning_rate = 1, rho = 0.9, eps = 1e-6, weight_decay = 0; };
  Adadelta(Parameters& parameters, Options options) : Adadelta(parameters.select(), options) {}
  Adadelta(Selection parameters, Options options);

 private:
  Update constants(const Item& item, UpdateConstants& c) const override;
  Options options_;
};

// v = α v + (1-α) g²;  b = μ b + g/(√v + eps);  θ -= lr b  (without momentum: lr g/(√v + eps))      Hinton 2012
class RMSprop : public Optimizer {
 public:
  struct Options { double learning_rate = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0; };
  RMSprop(Parameters& parameters, Options options) : RMSprop(parameters.select(), options) {}
  RMSprop(Selection parameters, Options options);

 private:
  Update constants(const Item& item, UpdateConstants& c) const override;
  Options options_;
};

// Scales the gradients that are there by min(1, max_norm/(norm + 1e-6)), norm that of all of them together, in the pass of the next
// update. Returns the norm before. NumericError when it is not finite and error_if_nonfinite; the gradients stay as they are.
// Error: max_norm < 0.
double clip_gradient_norm(Parameters& parameters, double max_norm, bool error_if_nonfinite = false);
double clip_gradient_norm(const Selection& some, double max_norm, bool error_if_nonfinite = false);
// Every gradient element is clamped to [-limit, limit]. Error: limit < 0.
void clip_gradient_value(Parameters& parameters, double limit);
void clip_gradient_value(const Selection& some, double limit);

}  // namespace heed
