// SPDX-License-Identifier: Apache-2.0
#include "autograd/trace.h"

#include <algorithm>
#include <utility>

#include "autograd/record.h"
#include "tensor/inside.h"
#include "tensor/chain.h"

namespace heed {
namespace {
thread_local Trace* current_trace = nullptr;
}

Trace::Trace() : outer_(std::exchange(current_trace, this)) {}
Trace::~Trace() { unchain(current_trace, this, &Trace::outer_); }
Trace* Trace::current() { return current_trace; }

std::string Trace::Entry::key() const {
  std::string key = path;
  if (!name.empty()) key += (key.empty() ? "" : ".") + name;
  return call == 1 ? key : key + "#" + std::to_string(call);
}

const Trace::Entry* Trace::find(std::string_view key) const {
  const auto at = std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.key() == key; });
  return at == entries_.end() ? nullptr : &*at;
}

Trace::Entry& Trace::add(std::string_view name, std::string_view formula, const Tensor& x, Axes axes) {
  const std::string path(current_path()), which(name);
  return entries_.emplace_back(
      Entry{path, which, std::string(formula), axes, ++calls_[{path, which}], x.clone(), {}, std::make_shared<Tensor>()});
}

Variable Trace::note(std::string_view name, std::string_view formula, const Variable& x, Axes axes) {
  Entry& entry = add(name, formula, x.value(), axes);
  entry.variable = x;
  if (Tape::current() && x.wants_gradient())
    entry.variable = gradient_hook(x, [gradient = entry.gradient](const Tensor& dy) -> std::optional<Tensor> {
      *gradient = dy.clone();
      return {};
    });
  return entry.variable;
}

Variable with_value(const Variable& x, Tensor y) {
  return record("with_value", std::move(y), {x}, [x = x.slot()](const Tensor& dy) { x.adopt(dy); });
}

void Trace::note(std::string_view name, std::string_view formula, const Tensor& x, Axes axes) { add(name, formula, x, axes); }

}  // namespace heed
