// SPDX-License-Identifier: Apache-2.0
#include <hwy/targets.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <numeric>
#include <thread>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "autograd/ops.h"
#include "autograd/samples.h"
#include "autograd/tape.h"
#include "nn/linear.h"
#include "tensor/format.h"
#include "tensor/ops/binary.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/random.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/unary.h"
#include "tensor/ops/view.h"
#include "tensor/parallel.h"
#include "tests/close.h"
#include "tests/every_target.h"
#include "tests/faults/faults.h"

using namespace heed;

namespace {

// Views whose elements lie in memory in another way than in a fresh tensor.
std::vector<Tensor> views_of(const Tensor& x) {
  std::vector<Tensor> out{x};
  if (x.rank() == 0) return out;
  const Tensor wide = full({3, 2 * x.numel() + 3}, NAN, x.dtype());
  if (x.rank() == 1) {
    const Tensor odd = wide(1, Slice{3, 3 + 2 * x.numel(), 2});
    copy_into(odd, x);
    out.push_back(odd);
  }
  out.push_back(flip(flip(x, 0).clone(), 0));
  if (x.rank() > 1) out.push_back(transpose(transpose(x).clone()));
  if (x.size(0) > 0) out.push_back(expand(slice(x, 0, 0, 1), x.shape()));
  return out;
}

std::string strange_layouts() {
  Cases same;
  for (const Sample& sample : samples())
    for (Index size : {0, 1, 2, 3, 17}) {
      if (!sample.tensor) continue;
      const auto inputs = sample_inputs(sample, size, DType::f32);
      for (std::size_t i = 0; i < inputs.size(); ++i)
        for (const Tensor& view : views_of(inputs[i])) {
          auto with_view = inputs, with_copy = inputs;
          with_view[i] = view, with_copy[i] = view.clone();
          const std::string says = thrown([&] { sample.tensor(with_copy); });
          // a size that the function refuses
          if (says != "nothing thrown") same.add(says == thrown([&] { sample.tensor(with_view); }));
          else same.add(equal_bits(sample.tensor(with_view), sample.tensor(with_copy)));
        }
    }
  return same.say("the bits, or the message, of a contiguous copy");
}

std::string over_its_input() {
  Cases right;
  for (Index n : {1, 2, 7, 64, 300}) {
    const Tensor a = uniform(Key(Seed{1}), {n, n}), want = transpose(a).clone();
    copy_into(a, transpose(a));
    right.add(equal_bits(a, want));
    const Tensor b = arange(0, double(n), 1, DType::f32), shifted = b.clone();
    copy_into(slice(b, 0, 1), slice(b, 0, 0, n - 1));
    right.add(equal_bits(slice(b, 0, 1), slice(shifted, 0, 0, n - 1)));
    const Tensor back = flip(b, 0).clone();
    copy_into(b, flip(b, 0));
    right.add(equal_bits(b, back));
  }
  return right.say("right, as if the source had been copied before");
}

std::string in_a_region() {
  const int before = threads();
  set_threads(4);
  const std::string says = thrown([] {
    parallel_for(1000, 1, [](Index begin, Index) {
      if (begin % 7 == 3) throw ShapeError("a chunk throws");
    });
  });
  Cases works;
  std::vector<int> done(1000);
  parallel_for(1000, 1, [&](Index begin, Index) { done[std::size_t(begin)] = 1; });
  works.add(std::accumulate(done.begin(), done.end(), 0) == 1000);
  set_threads(before);
  return works.say(says + ", once; the pool then does all of the next 1,000 chunks");
}

std::string flushed_to_zero() {
#if defined(__SSE__)
  // products of denormal numbers, large enough for several threads
  const auto denormal_sums = [x = full({300, 300}, 1e-30), y = full({300, 300}, 1e-10)] {
    return concat(std::vector<Tensor>{sum(multiply(x, y), 1), sum(matmul(x, y), 1), sum(softmax(multiply(x, y)), 1)});
  };
  const Tensor plain = denormal_sums();
  const unsigned before = _mm_getcsr();
  const int count = threads();
  Cases same;
  std::vector<Tensor> flushed;
  for (int n : {1, 2, 4}) {
    set_threads(n);
    _mm_setcsr(before | 0x8040);                   // FTZ and DAZ
    flushed.push_back(denormal_sums());
    _mm_setcsr(before);
    same.add(equal_bits(flushed.back(), flushed[0]));
    same.add(!equal_bits(flushed.back(), plain));
    same.add(equal_bits(denormal_sums(), plain));
  }
  set_threads(count);
  return same.say("1, 2 and 4 threads compute in the caller's environment: the same bits; without the flags again those of before");
#else
  return "";
#endif
}

Variable scalar(double x) { return variable(tensor(x, DType::f64)); }

std::string million_nodes() {
  struct Deep {
    static void* run(void* result) {
      const Variable x = scalar(1), one = constant(tensor(1, DType::f64));
      {
        Tape tape;
        Variable y = x;
        for (int i = 0; i < 1'000'000; ++i) y = y * one;
        tape.backward(y);
      }
      *static_cast<double*>(result) = x.grad().item();
      {
        Tape dropped;                              // never played
        Variable y = x;
        for (int i = 0; i < 1'000'000; ++i) y = y * one;
      }
      return nullptr;
    }
  };
  double gradient = 0;
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_t thread;
  if (::pthread_create(&thread, &attributes, Deep::run, &gradient) != 0) return "";
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
  Cases right;
  right.add(gradient == 1);
  return right.say("the gradient, in loops, with that stack");
}

std::string of_another_thread() {
  const Variable x = scalar(2);
  Tape tape;
  const Variable y = x * x;
  std::string says;
  std::thread([&] {
    Tape own;
    says = thrown([&] { y * y; });
  }).join();
  return says;
}

std::string played_twice() {
  const Variable x = scalar(2);
  Tape tape;
  const Variable y = x * x;
  tape.backward(y);
  return thrown([&] { tape.backward(y); });
}

std::string overwritten() {
  const Tensor value = tensor({1, 2, 3}, DType::f64);
  Tape tape;
  const Variable y = sum(square(variable(value)));
  fill_(value, 5);
  return thrown([&] { tape.backward(y); });
}

// A layer that meets a NaN.
std::string anomaly() {
  Parameters parameters(Seed{1});
  const Linear layer(parameters.root() / "encoder" / "layers" / 0 / "linear1", {.in = 3, .out = 2});
  fill_(layer.weight.value()[1], NAN);
  const DetectAnomaly on;
  return thrown([&] { layer(constant(ones({4, 3}))); });
}

std::string anomaly_backwards() {
  const DetectAnomaly on;
  const Variable x = variable(zeros({3}, DType::f64));
  Tape tape;
  const Inside inside("decoder.norm");
  const Variable y = sum(sqrt(x));
  return thrown([&] { tape.backward(y); });
}

std::string nan_everywhere() {
  Cases reached;
  for (const Sample& sample : samples()) {
    // these may leave an element out
    if (!sample.tensor || sample.function() == "topk" || sample.function() == "masked_fill" || sample.name == "gather") continue;
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      auto inputs = sample_inputs(sample, 19);
      inputs[i] = full(inputs[i].shape(), NAN, DType::f64);
      const auto values = doubles(sample.tensor(inputs));
      reached.add(std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); }));
    }
  }
  return reached.say("the result holds a NaN, in every function and for every input");
}

std::string in_a_child() {
  const Tensor x = uniform(Key(Seed{4}), {400, 400});
  const int before = threads();
  set_threads(4);
  const Tensor want = matmul(x, x);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(equal_bits(matmul(x, x), want) ? 0 : 1);
  int status = 0;
  for (int i = 0; i < 500 && ::waitpid(child, &status, WNOHANG) == 0; ++i) ::usleep(20000);
  Cases same;
  same.add(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  same.add(equal_bits(matmul(x, x), want));
  set_threads(before);
  return same.say("the child computes alone: the same bits, no deadlock; the parent goes on");
}

std::string many_threads() {
  const Tensor x = uniform(Key(Seed{4}), {300, 300});
  const int before = threads();
  std::vector<Tensor> results;
  const auto work = [&] { return sum(softmax(matmul(x, x)), 1); };
  for (int count : {1, 2, 3, 7, 16, 64}) {
    set_threads(count);
    results.push_back(work());
  }
  std::vector<Tensor> two(2);
  std::thread other([&] { two[0] = work(); });
  two[1] = work();
  other.join();
  results.insert(results.end(), two.begin(), two.end());
  Tensor nested = empty_like(results[0]);
  parallel_for(8, 1, [&](Index begin, Index) {
    const Tensor inner = work();
    if (begin == 5) copy_into(nested, inner);
  });
  results.push_back(nested);
  set_threads(before);
  Cases same;
  for (const Tensor& result : results) same.add(equal_bits(result, results[0]));
  return same.say("the same bits, no deadlock");
}

std::string on_every_target() {
  Cases near;
  for (const Sample& sample : samples()) {
    if (!sample.tensor) continue;
    const auto inputs = sample_inputs(sample, 33);
    const Tensor want = sample.tensor(inputs);
    const double scale = std::max(1.0, largest_of(doubles(want)));
    for_every_target([&] { near.add(worst_absolute(sample.tensor(inputs), want) <= 1e-12 * scale); });
    Tensor first;
    for_every_fma_target([&] {
      const Tensor y = sample.tensor(inputs);
      if (!first.defined()) first = y;
      near.add(equal_bits(y, first));
    });
  }
  return near.say("within 1e-12 of each other, the same bits on all that have fused multiply-add");
}

}  // namespace

std::vector<Fault> tensor_faults() {
  const Tensor nine = arange(0, 9, 1, DType::f32);
  return {
      {1, "every function on inputs that are reversed, transposed, expanded, at odd offsets, of 0, 1, 2, 3 and 17 elements an axis",
       strange_layouts},
      {1, "`reshape` of [9] to [4, -1]", [=] { return thrown([&] {
                                                 reshape(nine, {4, -1});
                                               }); }},
      {2, "`copy_into` an expanded view", [] { return thrown([] { copy_into(expand(zeros({1}), {3}), ones({3})); }); }},
      {2, "`fill_` of an expanded view", [] { return thrown([] { fill_(expand(zeros({1}), {3}), 1); }); }},
      {3, "`copy_into(a, transpose(a))`, and into itself shifted by one", over_its_input},
      {4, "`zeros({2^40, 2^40})`", [] { return thrown([] {
                                          zeros({Index(1) << 40, Index(1) << 40});
                                        }); }},
      {4, "`zeros({2^61}, f64)`", [] { return thrown([] { zeros({Index(1) << 61}, DType::f64); }); }},
      {4, "`zeros({-1})`", [] { return thrown([] { zeros({-1}); }); }},
      {4, "a product of [2^40, 1] and [1, 2^40]",
       [] { return thrown([] {
              multiply(expand(ones({1, 1}), {Index(1) << 40, 1}), expand(ones({1, 1}), {1, Index(1) << 40}));
            }); }},
      {5, "`zeros({2^44})`, more than there is", [] { return thrown([] { empty({Index(1) << 44}); }); }},
      {6, "every seventh of 1,000 chunks throws, on 4 threads", in_a_region},
      {7, "each input of each function all NaN", nan_everywhere},
      {7, "a NaN in a weight, under `DetectAnomaly`", anomaly},
      {7, "`sqrt` at 0, played backwards under `DetectAnomaly`", anomaly_backwards},
      {9, "`log_softmax([1e4, -1e4])`",
       [] {
         return to_string(log_softmax(tensor({1e4, -1e4})));
       }},
      {9, "`softmax([inf, 1])`, `logsumexp([-inf, -inf])`",
       [] {
         return to_string(softmax(tensor({INFINITY, 1}))) + ", " + to_string(logsumexp(tensor({-INFINITY, -INFINITY})));
       }},
      {9, "`cross_entropy` of one class, smoothed by 0.1; of two equal logits",
       [] {
         const Tensor one = zeros({1}, DType::i64);
         return to_string(cross_entropy(zeros({1, 1}), one, {.label_smoothing = 0.1}).losses) + ", " +
                to_string(cross_entropy(zeros({1, 2}), one, {.label_smoothing = 0.1}).losses);
       }},
      {9, "`cross_entropy` of a class that is none",
       [] { return thrown([] {
              cross_entropy(zeros({2, 3}), tensor({0, 3}, DType::i64));
            }); }},
      {10, "flush-to-zero and denormals-are-zero set by the caller, around products, sums and softmax of denormal numbers",
       flushed_to_zero},
      {11, "a tape played twice", played_twice},
      {11, "a value saved for the gradient overwritten", overwritten},
      {11, "a value of another thread's tape", of_another_thread},
      {11, "1,000,000 operations on a thread with 256 KiB of stack, played and dropped", million_nodes},
      {29, "1 to 64 threads, two threads of the caller at once, a region inside a region", many_threads},
      {29, "a process forked while the pool has threads", in_a_child},
      {30, "every function on every SIMD target of this CPU", on_every_target},
  };
}
