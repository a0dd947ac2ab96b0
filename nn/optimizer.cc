// SPDX-License-Identifier: Apache-2.0
#include "nn/optimizer.h"

#include <cmath>

#include "tensor/format.h"
#include "tensor/list.h"
#include "tensor/ops/unary.h"

namespace heed {
namespace {

void check_range(std::string_view op, std::string_view option, double value, double low, double high) {
  check<Error>(value >= low && value <= high && std::isfinite(value), "{}: {} must be in [{}, {}]: {}", op, option, low, high, value);
}

constexpr double kMost = 1e30;

}  // namespace

Optimizer::Optimizer(Selection parameters, double learning_rate, std::vector<std::string> state_names)
    : state_names_(std::move(state_names)) {
  set_learning_rate(learning_rate);
  check<Error>(state_names_.size() <= UpdateItem().state.size(), "optimizer: at most {} states a parameter: {}", UpdateItem().state.size(), fmt::join(state_names_, ", "));
  for (const auto& parameter : parameters) items_.push_back({parameter, {}, 0});
}

void Optimizer::set_learning_rate(double rate) {
  check_range("optimizer", "learning_rate", rate, 0, kMost);
  learning_rate_ = rate;
}

void Optimizer::allocate() {
  for (Item& item : items_)
    if (item.states.empty() && !state_names_.empty()) {
      std::vector<Tensor> states;
      const Variable& value = item.parameter->variable;
      for (std::size_t s = 0; s < state_names_.size(); ++s) {
        states.push_back(zeros(value.shape(), value.dtype()));
        if (s == 0 && first_state_value_ != 0) fill_(states[0], first_state_value_);
      }
      item.states = std::move(states);
    }
}

void Optimizer::step() {
  allocate();
  List<UpdateItem> updates;
  List<Item*> counted;
  updates.reserve(items_.size());
  counted.reserve(items_.size());
  try {
    for (Item& item : items_) {
      const Gradient& gradient = *item.parameter->gradient;
      if (item.parameter->frozen || !gradient.written()) continue;
      UpdateItem update{{}, item.parameter->variable.value(), gradient.value(), {}, {.rate = learning_rate_, .gradient_scale = gradient.scale()}};
      for (std::size_t s = 0; s < item.states.size(); ++s) update.state[s] = item.states[s];
      ++item.steps;
      counted.push_back(&item);
      update.kind = constants(item, update.constants);
      updates.push_back(std::move(update));
    }
    update(updates);
  } catch (...) {
    for (Item* item : counted) --item->steps;
    throw;
  }
  for (Item& item : items_) item.parameter->gradient->forget();
}

std::map<std::string, Tensor> Optimizer::state() const {
  std::map<std::string, Tensor> out;
  for (const Item& item : items_) {
    if (item.steps == 0) continue;
    out[item.parameter->path + ".step"] = full({}, double(item.steps), DType::i64);
    for (std::size_t s = 0; s < item.states.size(); ++s) out[item.parameter->path + "." + state_names_[s]] = item.states[s];
  }
  return out;
}

void Optimizer::load_state(const std::map<std::string, Tensor>& state) {
  std::string problems;
  std::map<std::string, bool> used;
  for (const auto& [name, value] : state) used[name] = false;
  for (const Item& item : items_) {
    const std::string& path = item.parameter->path;
    const auto step = state.find(path + ".step");
    if (step == state.end()) continue;               // never updated when it was saved
    used[path + ".step"] = true;
    if (step->second.numel() != 1 || step->second.dtype() != DType::i64)
      problems += fmt::format("; {} is {} {}, needs one {}", step->first, step->second.dtype(), step->second.shape(), DType::i64);
    for (const std::string& name : state_names_) {
      const auto at = state.find(path + "." + name);
      if (at == state.end()) {
        problems += fmt::format("; missing {}.{}", path, name);
        continue;
      }
      used[at->first] = true;
      const Variable& value = item.parameter->variable;
      if (at->second.shape() != value.shape() || at->second.dtype() != value.dtype())
        problems += fmt::format("; {} is {} {}, needs {} {}", at->first, at->second.dtype(), at->second.shape(), value.dtype(), value.shape());
    }
  }
  for (const auto& [name, was_used] : used)
    if (!was_used) problems += fmt::format("; unexpected {}", name);
  check<FileError>(problems.empty(), "optimizer state: does not fit the model{}", problems);
  allocate();
  for (Item& item : items_) {
    const std::string& path = item.parameter->path;
    const auto step = state.find(path + ".step");
    item.steps = step == state.end() ? 0 : std::int64_t(step->second.item());
    for (std::size_t s = 0; s < item.states.size(); ++s) {
      if (step != state.end()) copy_into(item.states[s], state.at(path + "." + state_names_[s]));
      else fill_(item.states[s], s == 0 ? first_state_value_ : 0);
    }
  }
}

// ---- the rules ------------------------------------------------------------------------------------------------------

SGD::SGD(Selection parameters, Options o)
    : Optimizer(std::move(parameters), o.learning_rate, o.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{}), options_(o) {
  check_range("sgd", "momentum", o.momentum, 0, kMost);
  check_range("sgd", "dampening", o.dampening, 0, kMost);
  check_range("sgd", "weight_decay", o.weight_decay, 0, kMost);
  check<Error>(!o.nesterov || (o.momentum > 0 && o.dampening == 0), "sgd: nesterov needs momentum > 0 and no dampening: momentum {}, dampening {}", o.momentum, o.dampening);
}

Update SGD::constants(const Item& item, UpdateConstants& c) const {
  c.weight_decay = options_.weight_decay;
  if (options_.momentum == 0) return Update::sgd;
  c.momentum = options_.momentum;
  c.keep = item.steps == 1 ? 1 : 1 - options_.dampening;
  return options_.nesterov ? Update::nesterov : Update::momentum;
}

Adam::Adam(Selection parameters, Options o, bool decoupled) : Optimizer(std::move(parameters), o.learning_rate, {"exp_avg", "exp_avg_sq"}), options_(o), decoupled_(decoupled) {
  check_range("adam", "beta1", o.beta1, 0, 1 - 1e-12);
  check_range("adam", "beta2", o.beta2, 0, 1 - 1e-12);
  check_range("adam", "eps", o.eps, 0, kMost);
  check_range("adam", "weight_decay", o.weight_decay, 0, kMost);
}

Update Adam::constants(const Item& item, UpdateConstants& c) const {
  const double t = double(item.steps);
  c.beta1 = options_.beta1;
  c.beta2 = options_.beta2;
  c.eps = options_.eps;
  c.root = 1 / std::sqrt(1 - std::pow(options_.beta2, t));
  (decoupled_ ? c.decay : c.weight_decay) = decoupled_ ? c.rate * options_.weight_decay : options_.weight_decay;
  c.rate /= 1 - std::pow(options_.beta1, t);
  return decoupled_ ? Update::adamw : Update::adam;
}

Adagrad::Adagrad(Selection parameters, Options o) : Optimizer(std::move(parameters), o.learning_rate, {"sum"}), options_(o) {
  check_range("adagrad", "learning_rate_decay", o.learning_rate_decay, 0, kMost);
  check_range("adagrad", "weight_decay", o.weight_decay, 0, kMost);
  check_range("adagrad", "eps", o.eps, 0, kMost);
  check_range("adagrad", "initial_accumulator", o.initial_accumulator, 0, kMost);
  first_state_value_ = o.initial_accumulator;
}

Update Adagrad::constants(const Item& item, UpdateConstants& c) const {
  c.rate /= 1 + double(item.steps - 1) * options_.learning_rate_decay;
  c.weight_decay = options_.weight_decay;
  c.eps = options_.eps;
  return Update::adagrad;
}

Adadelta::Adadelta(Selection parameters, Options o) : Optimizer(std::move(parameters), o.learning_rate, {"square_avg", "acc_delta"}), options_(o) {
  check_range("adadelta", "rho", o.rho, 0, 1);
  check_range("adadelta", "weight_decay", o.weight_decay, 0, kMost);
  check_range("adadelta", "eps", o.eps, 0, kMost);
}

Update Adadelta::constants(const Item&, UpdateConstants& c) const {
  c.weight_decay = options_.weight_decay;
  c.beta2 = options_.rho;
  c.eps = options_.eps;
  return Update::adadelta;
}

RMSprop::RMSprop(Selection parameters, Options o)
    : Optimizer(std::move(parameters), o.learning_rate, o.momentum != 0 ? std::vector<std::string>{"square_avg", "momentum_buffer"} : std::vector<std::string>{"square_avg"}), options_(o) {
  check_range("rmsprop", "alpha", o.alpha, 0, 1);
  check_range("rmsprop", "momentum", o.momentum, 0, kMost);
  check_range("rmsprop", "weight_decay", o.weight_decay, 0, kMost);
  check_range("rmsprop", "eps", o.eps, 0, kMost);
}

Update RMSprop::constants(const Item&, UpdateConstants& c) const {
  c.weight_decay = options_.weight_decay;
  c.beta2 = options_.alpha;
  c.eps = options_.eps;
  c.momentum = options_.momentum;
  return options_.momentum != 0 ? Update::rmsprop_momentum : Update::rmsprop;
}

// ---- clipping -------------------------------------------------------------------------------------------------------

double clip_gradient_norm(Parameters& parameters, double max_norm, bool error_if_nonfinite) {
  check<Error>(max_norm >= 0, "clip_gradient_norm: max_norm must not be negative: {}", max_norm);
  List<Tensor> gradients;
  for (const auto& item : parameters.items())
    if (item->gradient->written()) {
      item->gradient->settle();
      gradients.push_back(item->gradient->value());
    }
  const double norm = norm_of_all(gradients);
  check<NumericError>(std::isfinite(norm) || !error_if_nonfinite, "clip_gradient_norm: the norm is not finite: {}", norm);
  for (const auto& item : parameters.items()) item->gradient->scale(std::min(1.0, max_norm / (norm + 1e-6)));
  return norm;
}

void clip_gradient_value(Parameters& parameters, double limit) {
  check<Error>(limit >= 0, "clip_gradient_value: limit must not be negative: {}", limit);
  for (const auto& item : parameters.items())
    if (item->gradient->written()) {
      item->gradient->settle();
      copy_into(item->gradient->value(), clamp(item->gradient->value(), -limit, limit));
    }
}

}  // namespace heed
