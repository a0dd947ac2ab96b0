// SPDX-License-Identifier: Apache-2.0
#include "autograd/tape.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <set>

#include "autograd/record.h"
#include "autograd/trace.h"
#include "tensor/chain.h"
#include "tensor/format.h"
#include "tensor/gemm_bfloat16.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/unary.h"
#include "tensor/thread_own.h"

namespace heed {

// ---- Gradient -------------------------------------------------------------------------------------------------------

namespace {

// No gaps and no overlaps, axes in any order. An empty tensor does not count: its strides may be those of an expanded view.
bool is_dense(const Shape& shape, const Strides& strides) {
  Shape axes;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != 1) axes.push_back(axis);
  std::sort(const_cast<Index*>(axes.begin()), const_cast<Index*>(axes.end()),
            [&](Index a, Index b) { return strides[int(a)] < strides[int(b)]; });
  Index step = 1;
  for (Index axis : axes) {
    if (strides[int(axis)] != step) return false;
    step *= shape[int(axis)];
  }
  return step != 0;
}

// "nan at [0, 3], the first of 16", in row-major order
std::string not_finite(const Tensor& x) {
  const Tensor values = to(x, DType::f64).contiguous();
  Index first = 0, count = 0;
  for (Index i = 0; i < x.numel(); ++i)
    if (!std::isfinite(values.data<double>()[i]) && count++ == 0) first = i;
  return fmt::format("{} at {}, the first of {}", values.data<double>()[first], position_of(first, x.shape()), count);
}

bool same_strides(const Shape& shape, const Strides& a, const Strides& b) {
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] > 1 && a[axis] != b[axis]) return false;
  return true;
}

}  // namespace

Gradient::Gradient(const Tensor& value)
    : shape_(value.shape()),
      strides_(is_dense(value.shape(), value.strides()) ? value.strides() : contiguous_strides(value.shape())),
      dtype_(value.dtype()) {}

void Gradient::live_in(Joint* joint, Index offset, const Strides& strides) {
  joint_ = joint;
  joint_offset_ = offset;
  strides_ = strides;
}

void Gradient::own() {
  if (adopted_ && !value_.storage().is_unique()) {
    const Tensor mine(empty(shape_, dtype_).storage(), dtype_, shape_, strides_, 0);
    copy_into(mine, value_);
    value_ = mine;
  }
  adopted_ = false;
}

Into Gradient::into() {
  const bool add = written_;
  if (add) {
    own();
    settle();
  } else if (joint_) {
    if (!joint_->buffer.defined()) joint_->buffer = empty({joint_->size}, joint_->dtype);
    value_ = Tensor(joint_->buffer.storage(), dtype_, shape_, strides_, joint_offset_);
  } else {
    value_ = Tensor(empty(shape_, dtype_).storage(), dtype_, shape_, strides_, 0);
  }
  written_ = true;
  return {value_, add};
}

void Gradient::adopt(const Tensor& dy, bool alone) {
  if (written_ || joint_ || apart_ || !same_strides(shape_, dy.strides(), strides_)) {
    add_into(dy, into());
    return;
  }
  value_ = dy;
  written_ = true;
  adopted_ = !alone;
}

bool Gradient::take_over(const Tensor& dy) {
  if (written_ || joint_ || !same_strides(shape_, dy.strides(), strides_) || !dy.storage().is_unique()) return false;
  value_ = dy;
  return written_ = true;
}

void Gradient::settle() {
  if (scale_ != 1 && written_) copy_into(value_, multiply(value_, scale_));
  scale_ = 1;
}

Tensor Gradient::whole() {
  zero_if_unwritten();
  return into().tensor;
}

void Gradient::zero_if_unwritten() {
  if (!written_) fill_(into().tensor, 0);
}

Tensor Gradient::take() {
  written_ = adopted_ = false;
  return std::exchange(value_, {});
}

// ---- Slot -----------------------------------------------------------------------------------------------------------

Tensor Slot::viewed(const Tensor& buffer) const {
  if (!view_) return buffer;
  return {buffer.storage(), buffer.dtype(), view_->shape, view_->strides, buffer.offset() + view_->offset};
}

Into Slot::into() const {
  const Into parent = !view_ || view_->covers ? gradient_->into() : Into{gradient_->whole(), true};
  return {viewed(parent.tensor), parent.add};
}

// ---- thread state ---------------------------------------------------------------------------------------------------

namespace {

thread_local Tape* alive_tapes = nullptr;           // latest tape that lives, played ones included
thread_local Tape* current_tape = nullptr;          // latest tape that records
thread_local Tape::Masks* current_masks = nullptr;  // of the latest tape that was not played
thread_local NoRecording* silences = nullptr;       // tapes that began before the latest do not record
thread_local const Tape::Node* playing = nullptr;
thread_local int detect_anomaly = 0;                // how many live
std::atomic<std::uint64_t> next_tape_id{1};         // no two threads share one

const char* playing_op() { return playing ? playing->op : "gradient"; }

}  // namespace

void Slot::check_fits(const Tensor& dy) const {
  const Shape& shape = view_ ? view_->shape : gradient_->shape();
  check<Error>(dy.defined(), "{}: the gradient that its rule gives is empty (default constructed)", playing_op());
  check<ShapeError>(dy.shape() == shape, "{}: the gradient that its rule gives differs in shape: {}, expected {}", playing_op(), dy.shape(),
                    shape);
  check<DTypeError>(dy.dtype() == gradient_->dtype(), "{}: the gradient that its rule gives differs in dtype: {}, expected {}",
                    playing_op(), dy.dtype(), gradient_->dtype());
}

void Slot::adopt_or_add(const Tensor& dy, bool alone) const {
  check_fits(dy);
  if (!view_) return gradient_->adopt(dy, alone);
  if (view_->covers && !gradient_->written() && same_strides(view_->shape, dy.strides(), view_->strides))
    return gradient_->adopt(Tensor(dy.storage(), dy.dtype(), gradient_->shape(), gradient_->strides(), dy.offset() - view_->offset), alone);
  add_into(dy, into());
}

void Slot::adopt(const Tensor& dy, double factor) const {
  if (!wanted()) return;
  check_fits(dy);
  const bool taken = !view_ && gradient_->take_over(dy);
  if (!taken || factor != 1) binary(Binary::multiply, dy, number_like(factor, dy, Binary::multiply), taken ? Into{dy} : into());
  check_written();
}

// Nodes live in chunks that the thread keeps for its next tape.
struct Tape::Arena {
  static constexpr std::size_t kChunk = 256 << 10;
  std::vector<std::unique_ptr<std::byte[]>> chunks;
  std::size_t chunk = 0, used = 0;

  void* allocate(std::size_t bytes) {
    bytes = round_up(bytes, alignof(std::max_align_t));
    if (bytes > kChunk) return (large.emplace_back(new std::byte[bytes])).get();
    if (chunk < chunks.size() && used + bytes > kChunk) { ++chunk; used = 0; }
    if (chunk == chunks.size()) chunks.emplace_back(new std::byte[kChunk]);
    return chunks[chunk].get() + std::exchange(used, used + bytes);
  }
  std::vector<std::unique_ptr<std::byte[]>> large;

  // Those of a thread that no tape uses, with room for all of them: a tape gives its own back without asking for memory.
  struct Idle {
    std::vector<std::unique_ptr<Arena>> arenas;
    std::size_t made = 0;
  };
  static Arena* take() {
    Idle* const idle = own_of_thread<Idle>();
    if (idle && idle->arenas.empty()) idle->arenas.reserve(++idle->made);
    if (!idle || idle->arenas.empty()) return new Arena;
    Arena* const last = idle->arenas.back().release();
    idle->arenas.pop_back();
    return last;
  }
  static void give_back(Arena* arena) {
    std::unique_ptr<Arena> owned(arena);
    arena->chunk = arena->used = 0;
    arena->large.clear();
    Idle* const idle = own_of_thread<Idle>();
    if (idle && idle->arenas.size() < idle->made) idle->arenas.push_back(std::move(owned));
  }
};

// ---- Tape -----------------------------------------------------------------------------------------------------------

Tape::Tape() : began_(next_tape_id++), outer_(alive_tapes) {
  arena_ = Arena::take();
  alive_tapes = this;
  find_current();
}

Tape::Tape(Key key) : Tape() {
  masks_.mode = Masks::Mode::keyed;
  masks_.key = key;
}

Tape::Tape(Evaluating) : Tape() { masks_.mode = Masks::Mode::off; }

Tape::~Tape() {
  while (last_) {
    Node* node = last_;
    last_ = node->previous;
    node->destroy(node);
  }
  unchain(alive_tapes, this, &Tape::outer_);
  find_current();
  Arena::give_back(arena_);
}

void Tape::find_current() {
  Tape* tape = alive_tapes;
  while (tape && tape->played_) tape = tape->outer_;
  current_masks = tape ? &tape->masks_ : nullptr;
  current_tape = tape && (!silences || tape->began_ >= silences->began_) ? tape : nullptr;
}

Tape* Tape::current() { return current_tape; }

void* Tape::allocate(std::size_t bytes) { return arena_->allocate(bytes); }

void Tape::backward(const Variable& loss) {
  check<ShapeError>(loss.numel() == 1, "backward: the loss must be a scalar: loss {}; take its sum or mean", loss.shape());
  const Tensor one = ones(loss.shape(), loss.dtype());
  play({&loss, 1}, {&one, 1});
}

// Rules add into what an output adopts: gradients of the caller's, which may be those of a leaf, are copied.
void Tape::backward(std::span<const Variable> outputs, std::span<const Tensor> gradients) {
  List<Tensor> own;
  for (const Tensor& gradient : gradients) own.push_back(gradient.defined() ? gradient.clone() : gradient);
  play(outputs, own);
}

void Tape::play(std::span<const Variable> outputs, std::span<const Tensor> gradients) {
  check<Error>(!played_, "backward: this tape was already played; record the operations again on a new tape");
  check<Error>(outputs.size() == gradients.size(), "backward: {} outputs, {} gradients", outputs.size(), gradients.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Slot slot = outputs[i].slot();
    check<Error>(slot.gradient_ != nullptr,
                 "backward: nothing that wants a gradient led to this value, or it was computed before this tape began or on another thread: "
                 "shape {}",
                 outputs[i].shape());
    check<Error>(slot.tape_ == id_ || (slot.leaf_ && slot.tape_ == 0), "backward: the value was recorded on another tape: shape {}",
                 outputs[i].shape());
    check<ShapeError>(outputs[i].shape() == gradients[i].shape(), "backward: value and gradient differ in shape: value {}, gradient {}",
                      outputs[i].shape(), gradients[i].shape());
    check<DTypeError>(outputs[i].dtype() == gradients[i].dtype(), "backward: value and gradient differ in dtype: value {}, gradient {}",
                      outputs[i].dtype(), gradients[i].dtype());
  }
  const Tape* mine = alive_tapes;
  while (mine && mine != this) mine = mine->outer_;
  check<Error>(mine, "backward: this tape records on another thread");
  check<Error>(current_tape == this, "backward: {}", current_tape ? "a later tape is still recording" : "a NoRecording lives");
  played_ = true;
  find_current();
  const Node* outer_playing = playing;
  struct Restore {
    Tape* tape;
    const Node* node;
    ~Restore() {
      playing = node;
      tape->id_ = 0;   // Variables of this tape count as gone from here on
    }
  } restore{this, outer_playing};
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i].slot().adopt(gradients[i]);
  while (last_) {
    Node* node = last_;
    bool reached = false;
    for (int i = 0; i < node->output_count; ++i) reached |= node->outputs[i].written();
    if (reached) {
      playing = node;
      const Inside inside(node->path);
      node->play(node);
    }
    last_ = node->previous;
    node->destroy(node);
  }
}

bool Slot::alive() const {
  const auto lives = [](std::uint64_t id) {
    const Tape* tape = id == 0 ? nullptr : alive_tapes;
    while (tape && tape->id_ != id) tape = tape->outer_;
    return id == 0 || tape;
  };
  return lives(tape_) && (!view_ || view_->tape == tape_ || lives(view_->tape)) && !(gradient_ && gradient_->ended());
}

NoRecording::NoRecording() : began_(next_tape_id.load()), outer_(std::exchange(silences, this)) { Tape::find_current(); }
NoRecording::~NoRecording() {
  unchain(silences, this, &NoRecording::outer_);
  Tape::find_current();
}

// ---- record ---------------------------------------------------------------------------------------------------------

namespace detail {

Tape* tape_for(const char* op, std::span<const std::reference_wrapper<const Variable>> inputs) {
  if (!current_tape) return nullptr;
  bool wanted = false;
  for (const Variable& input : inputs) {
    check<Error>(input.alive(),
                 "{}: an input of shape {} was recorded on a tape that is gone, has been played past it, or is another thread's; use "
                 "constant(x.value()) to go on without its past",
                 op, input.shape());
    wanted |= input.wants_gradient();
  }
  return wanted ? current_tape : nullptr;
}

void check_forward(const char* op, const Tensor& y) {
  if (!detect_anomaly || !is_float(y.dtype()) || all_finite(y)) return;
  fail<NumericError>("{}: the result has a NaN or infinity: shape {}; {}", op, y.shape(), not_finite(y));
}

// Module paths outlive their modules here, because a node may outlive its module.
std::string_view interned_current_path() {
  struct Paths {
    std::set<std::string, std::less<>> all;
    std::string_view last_seen, last_interned;
  };
  const std::string_view path = current_path();
  Paths* const paths = path.empty() ? nullptr : own_of_thread<Paths>();
  if (!paths) return {};
  if (path.data() == paths->last_seen.data() && path == paths->last_interned) return paths->last_interned;
  paths->last_seen = path;
  const auto known = paths->all.find(path);
  return paths->last_interned = known != paths->all.end() ? *known : *paths->all.emplace(path).first;
}

}  // namespace detail

void Slot::check_written() const {
  if (!detect_anomaly || all_finite(gradient_->value())) return;
  fail<NumericError>("{}: a gradient computed backwards has a NaN or infinity: shape {}; {}", playing_op(), gradient_->shape(),
                     not_finite(gradient_->value()));
}

void Saved::throw_overwritten() const {
  fail<Error>("{}: a value saved for the gradient was overwritten before the tape was played: shape {}", playing_op(), value_.shape());
}

bool same_layout(const Variable& x) {
  const Slot slot = x.slot();
  return same_strides(x.shape(), x.value().strides(), slot.view_ ? slot.view_->strides : slot.gradient_->strides());
}

Variable detail::dense(const Variable& x) {
  if (!x.wants_gradient() || same_layout(x)) return x;
  return record("contiguous", x.value().clone(), {x}, [x = x.slot()](const Tensor& dy) { x.adopt(dy); });
}

Variable detail::record_view(const char* op, const Variable& x, const Tensor& y) {
  check<Error>(y.storage() == x.value().storage(), "{}: not a view of its input's memory, but a copy: shape {}, input {}", op, y.shape(),
               x.shape());
  detail::check_forward(op, y);
  const std::reference_wrapper<const Variable> input = x;
  Tape* tape = detail::tape_for(op, {&input, 1});
  if (!tape) return constant(y);
  Slot slot = x.slot();
  const Slot::View* parent = slot.view_;
  slot.view_ = new (tape->allocate(sizeof(Slot::View)))
      Slot::View{y.shape(), y.strides(), y.offset() - x.value().offset() + (parent ? parent->offset : 0),
                 y.numel() == x.numel() && (!parent || parent->covers), parent ? parent->tape : slot.tape_};
  slot.tape_ = tape->id();   // the view's memory goes with this tape, also when the parent is a leaf
  return {y, std::move(slot)};
}

List<Variable> record_split(const char* op, const Variable& x, FunctionRef<List<Tensor>(const Tensor&)> views) {
  const Variable parent = detail::dense(x);
  List<Tensor> ys = views(parent.value());
  Index covered = 0;
  for (const Tensor& y : ys) covered += y.storage() == parent.value().storage() ? y.numel() : 0;
  check<ShapeError>(covered == parent.numel(), "{}: the views together must cover the input once: {} elements of {}", op, covered,
                    parent.numel());
  const std::reference_wrapper<const Variable> input = parent;
  Tape* tape = detail::tape_for(op, {&input, 1});
  List<Variable> out;
  if (!tape) {
    for (Tensor& y : ys) out.push_back(constant(std::move(y)));
    return out;
  }
  struct Parts : Tape::Node {
    Slot x;
    Gradient::Joint joint;
    Shape shape;
    Strides strides;
  };
  // Parts of a dense value keep its layout; a view with gaps (a split of a split) is collected in a dense buffer of its own.
  const bool dense = is_dense(parent.shape(), parent.value().strides());
  if (!dense) ys = views(parent.value().contiguous());
  const std::string_view path = detail::interned_current_path();
  out.reserve(ys.size());
  const std::size_t head = round_up(sizeof(Parts), alignof(Gradient));
  auto* room = static_cast<std::byte*>(tape->allocate(head + ys.size() * sizeof(Gradient)));
  auto* node = new (room) Parts{};
  node->op = op;
  node->path = path;
  node->x = parent.slot();
  node->shape = parent.shape();
  node->strides = dense ? parent.value().strides() : contiguous_strides(parent.shape());
  const Index start = dense ? parent.value().offset() : 0;
  node->joint = {parent.numel(), parent.dtype(), {}};
  node->outputs = reinterpret_cast<Gradient*>(room + head);
  node->output_count = int(ys.size());
  for (std::size_t i = 0; i < ys.size(); ++i) {
    auto* gradient = new (node->outputs + i) Gradient(ys[i]);
    gradient->live_in(&node->joint, ys[i].offset() - start, ys[i].strides());
    out.emplace_back(std::move(ys[i]), Slot(gradient, tape->id()));
  }
  node->play = [](Tape::Node* base) {
    auto* self = static_cast<Parts*>(base);
    for (int i = 0; i < self->output_count; ++i) {
      self->outputs[i].zero_if_unwritten();
      self->outputs[i].take();
    }
    const Tensor buffer = std::exchange(self->joint.buffer, {});
    self->x.adopt(Tensor(buffer.storage(), buffer.dtype(), self->shape, self->strides, 0));
  };
  node->destroy = [](Tape::Node* base) {
    auto* self = static_cast<Parts*>(base);
    for (int i = 0; i < self->output_count; ++i) self->outputs[i].end();
    self->~Parts();
  };
  tape->append(node);
  return out;
}

// ---- leaves ---------------------------------------------------------------------------------------------------------

Variable variable(Tensor value) {
  check<Error>(value.defined(), "variable: the tensor is empty (default constructed)");
  check<DTypeError>(is_float(value.dtype()), "variable: a gradient needs f32 or f64: {}", value.dtype());
  auto leaf = std::make_shared<Gradient>(value);
  leaf->live_apart();
  return {std::move(value), Slot(std::move(leaf))};
}

Variable constant(Tensor value) { return {std::move(value), Slot()}; }

Tensor Variable::grad() const {
  check<Error>(slot_.leaf_ != nullptr && !slot_.view_,
               "grad: only leaves made by variable(...) keep their gradient; see gradient_hook: shape {}", shape());
  slot_.leaf_->settle();
  return slot_.leaf_->written() ? slot_.leaf_->value() : zeros(shape(), dtype());
}

bool Variable::has_grad() const {
  return slot_.leaf_ && !slot_.view_ && slot_.leaf_->written();
}

void Variable::forget_gradient() const {
  if (slot_.leaf_ && !slot_.view_) slot_.leaf_->forget();
}

// ---- dropout keys, recomputation, hooks, anomaly mode ----------------------------------------------------------------

bool dropout_acts(double p) { return p > 0 && current_masks && current_masks->mode != Tape::Masks::Mode::off; }

std::optional<Key> dropout_key(double p) {
  check<Error>(p >= 0 && p <= 1, "dropout: p must be in [0, 1]: {}", p);
  if (!dropout_acts(p)) return std::nullopt;
  check<Error>(
      current_masks->mode == Tape::Masks::Mode::keyed,
      "dropout: this tape has no key: use Tape tape(Key{{seed, step}}) to train or Tape tape(evaluating) to record without dropout: p {}",
      p);
  const std::string_view path = detail::interned_current_path();
  auto& calls = current_masks->calls;
  auto at = std::find_if(calls.begin(), calls.end(), [&](const auto& call) { return call.first.data() == path.data(); });
  if (at == calls.end()) at = calls.insert(calls.end(), {path, 0});
  return current_masks->key / path / at->second++;
}

std::vector<Variable> recompute(std::function<std::vector<Variable>(std::span<const Variable>)> f, std::span<const Variable> inputs) {
  check<Error>(f != nullptr, "recompute: the function is empty");
  Tape* tape = Tape::current();
  if (!tape || Trace::current()) return f(inputs);
  const auto masks = std::make_shared<Tape::Masks>(*current_masks);
  std::vector<Tensor> values;
  {
    const NoRecording unrecorded;
    for (const Variable& y : f(inputs)) values.push_back(y.value());
  }
  std::vector<Variable> outputs;
  // One node plays f again once all outputs' nodes have put their gradients into `gradients`. It has a leaf of its own as input, so that
  // it is recorded even where nothing but parameters wants a gradient.
  struct Shared {
    std::function<std::vector<Variable>(std::span<const Variable>)> f;
    std::vector<Variable> inputs;
    std::vector<Saved> given, made;
    std::vector<Tensor> gradients;
  };
  const auto shared =
      std::make_shared<Shared>(Shared{std::move(f), {inputs.begin(), inputs.end()}, {}, {}, std::vector<Tensor>(values.size())});
  for (const Variable& x : inputs) shared->given.push_back(saved(x));
  for (const Tensor& y : values) shared->made.push_back(saved(y));
  // The recomputing node comes first on the tape, so it is played after the outputs' own nodes have delivered their gradients.
  const Variable trigger = variable(zeros({}));
  const Variable joint = record("recompute", zeros({}), {trigger}, [shared, masks, precision = product_precision()](const Tensor&) {
    for (const Saved& x : shared->given) x.get();
    Tape inner;
    inner.masks_ = *masks;
    const std::vector<Variable> again = [&] {
      const ProductPrecision use(precision);
      return shared->f(shared->inputs);
    }();
    check<Error>(again.size() == shared->gradients.size(),
                 "recompute: the function returned {} values when it ran first, {} when it ran again", shared->gradients.size(),
                 again.size());
    for (std::size_t i = 0; i < again.size(); ++i)
      check<Error>(shared->made[i].overwritten() || equal_bits(shared->made[i], again[i].value()),
                   "recompute: the function gave other values when it ran again: output {} of shape {}; was a weight overwritten before "
                   "the tape was played, or is something gone that f refers to?",
                   i, again[i].shape());
    std::vector<Variable> reached;   // as values of the inner tape, also what the function hands on as it is
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < again.size(); ++i)
      if (shared->gradients[i].defined() && again[i].wants_gradient()) {
        reached.push_back(record_view("recompute", again[i], [](const Tensor& y) { return y; }));
        gradients.push_back(shared->gradients[i]);
      }
    if (!reached.empty()) inner.play(reached, gradients);
  });
  for (std::size_t i = 0; i < values.size(); ++i)
    outputs.push_back(record("recompute", values[i], {joint}, [shared, i, joint = joint.slot()](const Tensor& dy) {
      shared->gradients[i] = dy;
      joint.gradient([](Into d) { fill_(d.tensor, 0); });
    }));
  return outputs;
}

Variable recompute(std::function<Variable(const Variable&)> f, const Variable& input) {
  check<Error>(f != nullptr, "recompute: the function is empty");
  return recompute([f = std::move(f)](std::span<const Variable> x) { return std::vector{f(x[0])}; }, {&input, 1})[0];
}

Variable gradient_hook(const Variable& x, std::function<std::optional<Tensor>(const Tensor&)> f) {
  check<Error>(f != nullptr, "gradient_hook: the function is empty");
  return record("gradient_hook", x.value(), {x}, [x = x.slot(), f = std::move(f)](const Tensor& dy) {
    const std::optional<Tensor> other = f(dy);
    if (other) {
      check<ShapeError>(other->shape() == dy.shape(), "gradient_hook: the gradient returned differs in shape: {}, expected {}",
                        other->shape(), dy.shape());
      check<DTypeError>(other->dtype() == dy.dtype(), "gradient_hook: the gradient returned differs in dtype: {}, expected {}",
                        other->dtype(), dy.dtype());
    }
    x.adopt(other ? other->clone() : dy);
  });
}

DetectAnomaly::DetectAnomaly() { ++detect_anomaly; }
DetectAnomaly::~DetectAnomaly() { --detect_anomaly; }

}  // namespace heed
