// SPDX-License-Identifier: Apache-2.0
// record: how an operation becomes differentiable, the library's own and a user's alike:
//
//   Variable square(const Variable& x) {
//     Tensor y = square(x.value());
//     return record("square", y, {x}, [x = x.slot(), value = saved(x.value())](const Tensor& dy) {
//       x.gradient([&](Into dx) { add_into(2 * value * dy, dx); });
//     });
//   }
//
// A rule reads its dy, which other rules may read too: it writes to gradients of its inputs alone.
#pragma once
#include <array>
#include <initializer_list>
#include <new>

#include "autograd/tape.h"
#include "tensor/function_ref.h"
#include "tensor/mask.h"

namespace heed {

// A value kept for the gradient. Reading it throws if its memory was written to since.
class Saved {
 public:
  explicit Saved(Tensor value) : value_(std::move(value)), version_(value_.version()) {}
  bool overwritten() const { return value_.version() != version_; }
  const Tensor& get() const {
    if (overwritten()) throw_overwritten();
    return value_;
  }
  operator const Tensor&() const { return get(); }
  const Tensor* operator->() const { return &get(); }

 private:
  [[noreturn]] void throw_overwritten() const;
  Tensor value_;
  std::uint64_t version_;
};
inline Saved saved(Tensor value) { return Saved(std::move(value)); }
inline Saved saved(const Variable& x) { return Saved(x.value()); }

// The same for a mask.
class SavedMask {
 public:
  explicit SavedMask(const Mask& mask)
      : mask_(mask), lengths_(mask.lengths()), allowed_(mask.allowed()), dilation_(mask.sliding() ? mask.sliding()->dilation : Tensor()) {}
  operator const Mask&() const {
    lengths_.get();
    allowed_.get();
    dilation_.get();
    return mask_;
  }

 private:
  Mask mask_;
  Saved lengths_, allowed_, dilation_;
};
inline SavedMask saved(const Mask& mask) { return SavedMask(mask); }

using Inputs = std::initializer_list<std::reference_wrapper<const Variable>>;

namespace detail {
// The current tape if one of the inputs wants a gradient, else nullptr. Error: an input belongs to a tape that is gone.
Tape* tape_for(const char* op, std::span<const std::reference_wrapper<const Variable>> inputs);
void check_forward(const char* op, const Tensor& y);   // anomaly mode
std::string_view interned_current_path();
Variable dense(const Variable& x);                      // x, copied if its layout has gaps or overlaps

template <class F, std::size_t N> struct NodeOf : Tape::Node {
  F rule;
  alignas(Gradient) std::byte room[N * sizeof(Gradient)];
  explicit NodeOf(F f) : rule(std::move(f)) {}
};

template <std::size_t N, class F> std::array<Variable, N> append_n(const char* op, Tape& tape, std::array<Tensor, N> ys, F rule) {
  using Made = NodeOf<F, N>;
  static_assert(alignof(Made) <= alignof(std::max_align_t),
                "what a rule captures needs more alignment than a tape gives: keep a pointer to it");
  std::array<Variable, N> out;
  const std::string_view path = interned_current_path();   // before the node is made: nothing after that may throw
  auto* node = new (tape.allocate(sizeof(Made))) Made(std::move(rule));
  node->op = op;
  node->path = path;
  node->outputs = reinterpret_cast<Gradient*>(node->room);
  node->output_count = int(N);
  for (std::size_t i = 0; i < N; ++i) {
    new (node->outputs + i) Gradient(ys[i]);
    out[i] = Variable(std::move(ys[i]), Slot(node->outputs + i, tape.id()));
  }
  node->play = [](Tape::Node* base) {
    auto* self = static_cast<Made*>(base);
    if constexpr (N == 1) {
      const Tensor dy = self->outputs[0].take();
      self->rule(dy);
    } else {
      std::array<Tensor, N> dys;
      for (std::size_t i = 0; i < N; ++i) dys[i] = self->outputs[i].take();
      self->rule(dys);
    }
  };
  node->destroy = [](Tape::Node* base) {
    auto* self = static_cast<Made*>(base);
    self->rule.~F();
    for (std::size_t i = 0; i < N; ++i) self->outputs[i].end();   // slots may ask until the tape is gone
  };
  tape.append(node);
  return out;
}

template <std::size_t N, class F>
std::array<Variable, N> record_n(const char* op, std::array<Tensor, N> ys, std::span<const std::reference_wrapper<const Variable>> inputs,
                                 F rule) {
  for (const Tensor& y : ys) check_forward(op, y);
  Tape* tape = tape_for(op, inputs);
  std::array<Variable, N> out;
  if (!tape) {
    for (std::size_t i = 0; i < N; ++i) out[i] = constant(std::move(ys[i]));
    return out;
  }
  if constexpr (std::is_invocable_v<F>) return append_n<N>(op, *tape, std::move(ys), rule());
  else return append_n<N>(op, *tape, std::move(ys), std::move(rule));
}
}  // namespace detail

// The output y of `op` on the inputs, with the rule that gives the inputs their gradients from dy = dLoss/dy.
// The rule runs at most once, only if a gradient reached y. `rule` may also be a function without arguments that makes it,
// called only where there is a tape: to save values costs as much as a small operation.
template <class F> Variable record(const char* op, Tensor y, Inputs inputs, F rule) {
  return std::move(detail::record_n<1>(op, {std::move(y)}, {inputs.begin(), inputs.size()}, std::move(rule))[0]);
}
// The same for any number of inputs.
template <class F> Variable record(const char* op, Tensor y, std::span<const Variable> inputs, F rule) {
  const List<std::reference_wrapper<const Variable>> references(inputs.begin(), inputs.end());
  return std::move(detail::record_n<1>(op, {std::move(y)}, references, std::move(rule))[0]);
}
// Several outputs: the rule gets one dy for each, undefined where none arrived.
template <std::size_t N, class F> std::array<Variable, N> record(const char* op, std::array<Tensor, N> ys, Inputs inputs, F rule) {
  return detail::record_n<N>(op, std::move(ys), {inputs.begin(), inputs.size()}, std::move(rule));
}

// A view of x: `view` maps a tensor to a view of its memory (not expanded). Its gradient is a view of x's gradient. Error: a copy.
template <class F> Variable record_view(const char* op, const Variable& x, F view) {
  const Variable parent = detail::dense(x);
  return detail::record_view(op, parent, view(parent.value()));
}

// Views that together cover x once, as split makes them: their gradients are computed into one buffer of x's layout, which x
// then takes over without a copy. `views` maps a tensor to views of its memory. ShapeError: views that together have other than x's
// number of elements.
List<Variable> record_split(const char* op, const Variable& x, FunctionRef<List<Tensor>(const Tensor&)> views);

}  // namespace heed
