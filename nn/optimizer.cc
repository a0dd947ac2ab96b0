// SPDX-License-Identifier: Apache-2.0
#include "nn/optimizer.h"

#include <algorithm>
#include <cmath>

#include "tensor/format.h"
#include "tensor/into.h"
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
  check<Error>(state_names_.size() <= UpdateItem().state.size(), "optimizer: at most {} states a parameter: {}", UpdateItem().state.size(),
               fmt::join(state_names_, ", "));
  for (const auto& parameter : parameters) items_.push_back({parameter, {}, 0});
}

void Optimizer::set_learning_rate(double rate) {
  check_range("optimizer", "learning_rate", rate, 0, kMost);
  learning_rate_ = rate;
}

void Optimizer::set_factors(const Selection& some, Factors factors) {
  check_range("optimizer", "the factor of the learning rate", factors.learning_rate, 0, kMost);
  check_range("optimizer", "the factor of the weight decay", factors.weight_decay, 0, kMost);
  for (const auto& chosen : some)
    check<Error>(std::ranges::find(items_, chosen, &Item::parameter) != items_.end(),
                 "optimizer: set_factors: {} is not among its parameters", chosen->path);
  for (const auto& chosen : some) std::ranges::find(items_, chosen, &Item::parameter)->factors = factors;
}

// All in one block, whose pages the threads of the first update touch: blocks of their own would begin with pages touched here, one after
// the other. Five lines between states: those of one size would share their places in the caches.
void Optimizer::allocate() {
  constexpr std::size_t kLine = 64, kApart = 5 * kLine;
  const auto room = [](const Variable& value) {
    return round_up(std::size_t(value.numel()) * item_size(value.dtype()), kLine) + kApart;
  };
  std::size_t bytes = 0;
  for (const Item& item : items_)
    if (item.states.empty()) bytes += state_names_.size() * room(item.parameter->variable);
  if (bytes == 0) return;
  const Storage block(bytes);
  std::size_t at = 0;
  for (Item& item : items_) {
    if (!item.states.empty()) continue;
    std::vector<Tensor> states;
    const Variable& value = item.parameter->variable;
    for (std::size_t s = 0; s < state_names_.size(); ++s, at += room(value))
      states.emplace_back(block, value.dtype(), value.shape(), contiguous_strides(value.shape()), Index(at / item_size(value.dtype())));
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
      if (!gradient.written()) continue;
      UpdateItem update{{}, item.parameter->variable.value(), gradient.value(), {},
                        {.rate = learning_rate_ * item.factors.learning_rate, .gradient_scale = gradient.scale()},
                        item.steps == 0};
      for (std::size_t s = 0; s < item.states.size(); ++s) update.state[s] = item.states[s];
      ++item.steps;
      counted.push_back(&item);
      update.kind = constants(item, update.constants);
      update.constants.weight_decay *= item.factors.weight_decay;
      update.constants.decay *= item.factors.weight_decay;
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
  std::vector<std::string> problems;
  std::map<std::string, bool> used;
  std::vector<std::int64_t> steps;                   // of each item; 0: never updated when it was saved
  for (const auto& [name, value] : state) used[name] = false;
  const auto find = [&](const std::string& name) {
    const auto at = state.find(name);
    if (at == state.end()) return static_cast<const Tensor*>(nullptr);
    used[name] = true;
    return &at->second;
  };
  for (const Item& item : items_) {
    const std::string& path = item.parameter->path;
    const Tensor* const step = find(path + ".step");
    const bool updated =
        step || std::ranges::any_of(state_names_, [&](const std::string& name) { return state.contains(path + "." + name); });
    steps.push_back(updated);
    if (!updated) continue;
    if (step) {
      const bool number = step->defined() && step->numel() == 1 && (step->dtype() == DType::i64 || is_float(step->dtype()));
      const double count = number ? step->item() : -1;
      if (count >= 0 && count == std::floor(count) && count < 0x1p53) steps.back() = std::int64_t(count);
      else
        problems.push_back(fmt::format("{}.step is {} {}{}, needs one i64 or whole number", path, step->dtype(), step->shape(),
                                       number ? fmt::format(" {}", count) : ""));
    } else if (counts_) {
      problems.push_back(fmt::format("missing {}.step", path));
    }
    for (const std::string& name : state_names_) {
      const Tensor* const given = find(path + "." + name);
      const Variable& value = item.parameter->variable;
      if (!given || !given->defined())
        problems.push_back(fmt::format("missing {}.{}", path, name));
      else if (given->shape() != value.shape() || given->dtype() != value.dtype())
        problems.push_back(
            fmt::format("{}.{} is {} {}, needs {} {}", path, name, given->dtype(), given->shape(), value.dtype(), value.shape()));
    }
  }
  for (const auto& [name, was_used] : used)
    if (!was_used) problems.push_back("unexpected " + shown(name));
  check<FileError>(problems.empty(), "optimizer state: does not fit the model; {}", first_ten(problems, "; "));
  allocate();
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (std::size_t i = 0; i < items_.size(); ++i)
    for (std::size_t s = 0; s < items_[i].states.size(); ++s)
      if (steps[i] > 0) copies.emplace_back(items_[i].states[s], state.at(items_[i].parameter->path + "." + state_names_[s]));
  copy_each(std::move(copies));
  for (std::size_t i = 0; i < items_.size(); ++i) items_[i].steps = steps[i];
}

// ---- the rules ------------------------------------------------------------------------------------------------------

SGD::SGD(Selection parameters, Options o)
    : Optimizer(std::move(parameters), o.learning_rate,
                o.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{}),
      options_(o) {
  counts_ = false;
  check_range("sgd", "momentum", o.momentum, 0, kMost);
  check_range("sgd", "dampening", o.dampening, 0, kMost);
  check_range("sgd", "weight_decay", o.weight_decay, 0, kMost);
  check<Error>(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
               "sgd: nesterov needs momentum > 0 and no dampening: momentum {}, dampening {}", o.momentum, o.dampening);
}

Update SGD::constants(const Item& item, UpdateConstants& c) const {
  c.weight_decay = options_.weight_decay;
  if (options_.momentum == 0) return Update::sgd;
  c.momentum = options_.momentum;
  c.keep = item.steps == 1 ? 1 : 1 - options_.dampening;
  return options_.nesterov ? Update::nesterov : Update::momentum;
}

Adam::Adam(Selection parameters, Options o, bool decoupled)
    : Optimizer(std::move(parameters), o.learning_rate, {"exp_avg", "exp_avg_sq"}), options_(o), decoupled_(decoupled) {
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
}

Update Adagrad::constants(const Item& item, UpdateConstants& c) const {
  c.rate /= 1 + double(item.steps - 1) * options_.learning_rate_decay;
  c.weight_decay = options_.weight_decay;
  c.eps = options_.eps;
  c.start = options_.initial_accumulator;
  return Update::adagrad;
}

Adadelta::Adadelta(Selection parameters, Options o)
    : Optimizer(std::move(parameters), o.learning_rate, {"square_avg", "acc_delta"}), options_(o) {
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
    : Optimizer(std::move(parameters), o.learning_rate,
                o.momentum != 0 ? std::vector<std::string>{"square_avg", "momentum_buffer"} : std::vector<std::string>{"square_avg"}),
      options_(o) {
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

namespace {

using Items = std::span<const std::shared_ptr<Parameter::Data>>;

double clip_norm(Items items, double max_norm, bool error_if_nonfinite) {
  check<Error>(max_norm >= 0, "clip_gradient_norm: max_norm must be 0 or more: {}", max_norm);
  List<Tensor> gradients;
  for (const auto& item : items)
    if (item->gradient->written()) {
      item->gradient->settle();
      gradients.push_back(item->gradient->value());
    }
  const double norm = norm_of_all(gradients);
  check<NumericError>(std::isfinite(norm) || !error_if_nonfinite, "clip_gradient_norm: the norm is not finite: {}", norm);
  const double factor = max_norm / (norm + 1e-6);
  for (const auto& item : items) item->gradient->scale(factor > 1 ? 1 : factor);   // NaN, where the norm is
  return norm;
}

void clip_value(Items items, double limit) {
  check<Error>(limit >= 0, "clip_gradient_value: limit must be 0 or more: {}", limit);
  for (const auto& item : items) item->gradient->settle();     // before the first is touched, since it may take memory
  for (const auto& item : items)
    if (item->gradient->written()) clamp_(item->gradient->value(), -limit, limit);
}

}  // namespace

double clip_gradient_norm(Parameters& parameters, double max_norm, bool error_if_nonfinite) {
  return clip_norm(parameters.items(), max_norm, error_if_nonfinite);
}
double clip_gradient_norm(const Selection& some, double max_norm, bool error_if_nonfinite) {
  return clip_norm({some.begin(), some.end()}, max_norm, error_if_nonfinite);
}
void clip_gradient_value(Parameters& parameters, double limit) { clip_value(parameters.items(), limit); }
void clip_gradient_value(const Selection& some, double limit) { clip_value({some.begin(), some.end()}, limit); }

}  // namespace heed
