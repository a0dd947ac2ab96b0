// SPDX-License-Identifier: Apache-2.0
// Tape: while it lives, operations on Variables are recorded in order; backward walks back over that order once.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/variable.h"
#include "tensor/list.h"
#include "tensor/random.h"

namespace heed {

struct Evaluating {};
inline constexpr Evaluating evaluating{};

// Of the thread that it begins on, where it also ends; tapes may end in any order, but values of one that has ended get no gradient.
// Gradients of one parameter are written by one thread at a time: models that threads train at once are models of their own.
class [[nodiscard]] Tape {
 public:
  Tape();                           // a Dropout with p > 0 throws and names the two choices below
  explicit Tape(Key key);           // trains: dropout masks come from Key{seed, step, micro_batch}
  explicit Tape(Evaluating);        // records without dropout
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Plays the tape backwards once, from a scalar, freeing as it goes. Error: played twice, not a scalar, not of this tape. Where a rule
  // throws, gradients that were reached are unfinished: forget_gradients() before the next backward.
  // A value of an older tape that lives keeps what it gets until that tape is played, too.
  void backward(const Variable& loss);
  // The same from values of any shape with their upstream gradients: d(Σ y·dy).
  void backward(std::span<const Variable> outputs, std::span<const Tensor> gradients);

  std::size_t size() const { return count_; }                // operations recorded
  static Tape* current();                                    // latest unplayed tape of this thread, or nullptr

  struct Node {
    Node* previous;
    void (*play)(Node*);
    void (*destroy)(Node*);
    const char* op;
    std::string_view path;
    Gradient* outputs;
    int output_count;
  };

  // For record.h.
  void* allocate(std::size_t bytes);                         // lives until the node is destroyed
  void append(Node* node) { node->previous = last_; last_ = node; ++count_; }
  std::uint64_t id() const { return id_; }

 private:
  friend class Slot;
  friend class NoRecording;
  friend std::vector<Variable> recompute(std::function<std::vector<Variable>(std::span<const Variable>)> f,
                                         std::span<const Variable> inputs);
  static void find_current();
  void play(std::span<const Variable> outputs, std::span<const Tensor> gradients);

  const std::uint64_t began_;
  std::uint64_t id_ = began_;                                // 0 from the end of backward on
  Tape* outer_;                                              // the tape before that lives
  Node* last_ = nullptr;
  std::size_t count_ = 0;
  bool played_ = false;
  struct Arena;
  Arena* arena_;

 public:
  // Masks drawn so far, by module path: a module called twice gets two masks.
  struct Masks {
    enum class Mode { needs_key, keyed, off } mode = Mode::needs_key;
    Key key{std::uint64_t{0}};
    List<std::pair<std::string_view, std::uint64_t>> calls;
  };

 private:
  Masks masks_;
};

// While it lives, tapes of this thread that began before do not record; dropout goes on as before.
class [[nodiscard]] NoRecording {
 public:
  NoRecording();
  ~NoRecording();
  NoRecording(const NoRecording&) = delete;
  NoRecording& operator=(const NoRecording&) = delete;

 private:
  friend class Tape;
  const std::uint64_t began_;
  NoRecording* outer_;
};

// Key of the next dropout mask of the current module, or nothing where dropout is the identity: p = 0, no tape, Tape(evaluating).
// Error on a tape without a key.  Mask = f(tape key, module path, ordinal of the call, element index).
std::optional<Key> dropout_key(double p);
bool dropout_acts(double p);               // whether it would give a key

// Activation checkpointing (Chen et al. 2016, arXiv 1604.06174): f runs now without being remembered and once more when
// its gradient is needed, with the same dropout masks and product precision. f takes the inputs and may use Parameters and Variables
// of outside. Error where it gives other values then. f is kept until the tape is played: capture by value what lives
// shorter. Under a Trace, which sees f once, it is remembered after all.
std::vector<Variable> recompute(std::function<std::vector<Variable>(std::span<const Variable>)> f, std::span<const Variable> inputs);
Variable recompute(std::function<Variable(const Variable&)> f, const Variable& input);

// A value as it is, whose gradient passes through f: observe it, or return another of the same shape (nothing: keep it). dy is not
// f's to write to: clone it.
Variable gradient_hook(const Variable& x, std::function<std::optional<Tensor>(const Tensor& dy)> f);

// While it lives, the first NaN or infinity that an operation of this thread produces, forwards or backwards, a documented one as well
// (log_softmax where masked), throws NumericError naming the operation and the module path.
class [[nodiscard]] DetectAnomaly {
 public:
  DetectAnomaly();
  ~DetectAnomaly();
  DetectAnomaly(const DetectAnomaly&) = delete;
  DetectAnomaly& operator=(const DetectAnomaly&) = delete;
};

}  // namespace heed
