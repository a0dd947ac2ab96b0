// SPDX-License-Identifier: Apache-2.0
// Variable: a Tensor that remembers how it was made while a Tape lives. A Variable comes from an operation on Variables,
// from `variable` (a leaf that wants a gradient), from a Parameter, or from `constant`; nothing converts a Tensor silently.
#pragma once
#include <memory>

#include "tensor/into.h"

namespace heed {

// Where the gradient of one value is collected: written on first use, added to after that.
class Gradient {
 public:
  // A buffer that several gradients are parts of; its memory is taken by the first part that is reached.
  struct Joint {
    Index size;
    DType dtype;
    Tensor buffer;
  };

  // The gradient of `value` has its shape, and its memory layout where that is dense (any order of axes, no gaps).
  explicit Gradient(const Tensor& value);

  bool wanted() const { return wanted_; }
  bool written() const { return written_; }
  const Tensor& value() const { return value_; }      // meaningful when written
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  DType dtype() const { return dtype_; }

  void want(bool wanted) { wanted_ = wanted; }
  void live_in(Joint* joint, Index offset, const Strides& strides);  // the first write goes there instead of to fresh memory
  void live_apart() { apart_ = true; }                               // never takes the memory of another as its own
  void forget() { written_ = false; value_ = {}; scale_ = 1; }
  void end() { forget(); ended_ = true; }                            // its operation was played or is gone: nobody reads it any more
  bool ended() const { return ended_; }
  Tensor take();                                                     // moves the value out
  void zero_if_unwritten();

  Into into();                       // the buffer, to be written now
  // takes dy's memory as its value when it is the first, else adds it; alone: nobody else has these elements
  void adopt(const Tensor& dy, bool alone);
  bool take_over(const Tensor& dy);  // only where it is the first and nobody else has that memory
  Tensor whole();                    // the buffer as a sum so far: zeros when nothing was written

  // A factor that its reader applies, so that clipping costs no pass of its own. What is added later is not scaled by it.
  double scale() const { return scale_; }
  void scale(double factor) { if (written_) scale_ *= factor; }
  void settle();                     // multiplies the value by it

 private:
  void own();                        // copies the value if its memory is shared with another gradient

  Tensor value_;
  double scale_ = 1;
  Joint* joint_ = nullptr;
  Index joint_offset_ = 0;
  Shape shape_;
  Strides strides_;
  DType dtype_;
  bool wanted_ = true, written_ = false, adopted_ = false, apart_ = false, ended_ = false;
};

class Variable;
namespace detail { Variable record_view(const char* op, const Variable& x, const Tensor& y); }   // y, a view of x's value

// The slot of a value: where its gradient goes, not the value. Captured by rules. The slot of a view (reshape, permute, slice)
// is a view of its parent's gradient, so that views cost nothing backwards.
class Slot {
 public:
  struct View {
    Shape shape;
    Strides strides;
    Index offset;      // from the parent's first element
    bool covers;       // every element of the parent once
    std::uint64_t tape;   // of the parent's gradient, which may be an older one than that of the view
  };
  Slot() = default;
  Slot(Gradient* gradient, std::uint64_t tape) : gradient_(gradient), tape_(tape) {}
  explicit Slot(std::shared_ptr<Gradient> leaf) : gradient_(leaf.get()), leaf_(std::move(leaf)) {}

  bool wanted() const { return gradient_ && alive() && gradient_->wanted(); }
  bool alive() const;                  // its tape lives and was not played past it; true for leaves and constants

  // Computes a gradient into its destination:  x.gradient([&](Into dx) { softmax_grad(y, dy, dim, dx); })
  // f runs only if the value wants a gradient.
  template <class F> void gradient(F&& f) const {
    if (!wanted()) return;
    f(into());
    check_written();
  }
  // Hands dy on as it is, without a copy where possible. ShapeError, DTypeError unless dy has the value's shape and dtype.
  void adopt(const Tensor& dy) const {
    if (!wanted()) return;
    adopt_or_add(dy, false);
    check_written();
  }
  // The same of one of dy's parts, which have no element in common. alone: nobody else had dy's memory, so that sums are made in it.
  void adopt_part(const Tensor& part, bool alone) const {
    if (!wanted()) return;
    adopt_or_add(part, alone);
    check_written();
  }
  // The same of factor dy, in the place of dy where nobody else has its memory.
  void adopt(const Tensor& dy, double factor) const;

 private:
  friend class Variable;
  friend class Tape;
  friend Variable detail::record_view(const char* op, const Variable& x, const Tensor& y);
  friend bool same_layout(const Variable& x);
  Into into() const;
  void check_fits(const Tensor& dy) const;
  void adopt_or_add(const Tensor& dy, bool alone) const;
  Tensor viewed(const Tensor& buffer) const;
  void check_written() const;          // anomaly mode looks at the value

  Gradient* gradient_ = nullptr;
  const View* view_ = nullptr;         // in the tape's memory
  std::uint64_t tape_ = 0;             // 0: a leaf or a constant
  std::shared_ptr<Gradient> leaf_;
};

class Variable {
 public:
  Variable() = default;
  Variable(const Variable&) = default;
  Variable(Variable&&) noexcept = default;
  Variable& operator=(const Variable&) & = default;         // not to x[0]: it would change no element
  Variable& operator=(Variable&&) & noexcept = default;
  Variable(Tensor value, Slot slot) : value_(std::move(value)), slot_(std::move(slot)) {}

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }            // leaving the tape
  const Shape& shape() const { return value_.shape(); }
  Index size(int dim) const { return value_.size(dim); }
  int rank() const { return value_.rank(); }
  DType dtype() const { return value_.dtype(); }
  Index numel() const { return value_.numel(); }
  // Views, as Tensor::operator[] and ().
  Variable operator[](Index i) const;
  template <class... I> Variable operator()(I... index) const { return indexed({Indexer(index)...}); }
  Variable indexed(std::initializer_list<Indexer> index) const;

  // What a rule keeps of it: empty where no gradient is wanted now, whatever becomes of that before the tape is played.
  Slot slot() const { return slot_.leaf_ && !slot_.leaf_->wanted() ? Slot() : slot_; }
  bool alive() const { return slot_.alive(); }              // Slot::alive
  bool wants_gradient() const { return slot_.wanted(); }

  // Gradient of a leaf made by `variable`, summed over all tapes since forget_gradient(); zeros if nothing reached it. What comes
  // later is added to the same memory: clone to keep it.
  // Error for anything else: only leaves keep their gradient.
  Tensor grad() const;
  bool has_grad() const;                                    // of a leaf: whether anything reached it; false for its views
  void forget_gradient() const;                             // of a leaf; nothing otherwise

 private:
  Tensor value_;
  Slot slot_;
};

Variable variable(Tensor value);   // a leaf that wants a gradient; DTypeError unless f32 or f64
Variable constant(Tensor value);   // takes part without a gradient

// With autograd/ops.h. a is another value afterwards; that of before stays what it was, for all who have it.
inline Variable& operator+=(Variable& a, const auto& b) { return a = a + b; }
inline Variable& operator-=(Variable& a, const auto& b) { return a = a - b; }
inline Variable& operator*=(Variable& a, const auto& b) { return a = a * b; }
inline Variable& operator/=(Variable& a, const auto& b) { return a = a / b; }

}  // namespace heed
