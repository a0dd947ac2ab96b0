// SPDX-License-Identifier: Apache-2.0
// Lesson 21: attention on a graph: every member of a karate club looks at friends and at itself.
// Of 34 members two say whom they side with, the teacher or the president;
// who follows whom is read off the friendships.        Veličković et al. 2018, arXiv 1710.10903; Zachary 1977
#include "autograd/tape.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/optimizer.h"
#include "tensor/format.h"
#include "tensor/ops/reduce.h"

using namespace heed;

// e_ij = LeakyReLU(a_dstᵀ W x_i + a_srcᵀ W x_j),  α_i = softmax over the friends j of i and i itself,  x'_i = Σ_j α_ij W x_j       [K, N, F']
// In training friends are forgotten at random, half of them.
struct GraphAttention {
  GraphAttention(Scope scope, Index in, Index out, Index heads)
      : W(scope / "W", {.in = in, .out = heads * out, .bias = false, .init = xavier_uniform()}),
        a_dst(scope.parameter("att_dst", {heads, out, 1}, normal_init(0, 0.3))),
        a_src(scope.parameter("att_src", {heads, out, 1}, normal_init(0, 0.3))),
        heads(heads),
        path(scope.path()) {}
  Variable operator()(const Variable& x, const Mask& friends, Variable* weights = nullptr) const {
    Inside inside(path);
    const Variable h = transpose(reshape(W(x), {x.size(0), heads, -1}), 0, 1);               // W x once: [K, N, F']
    const Variable e = leaky_relu(matmul(h, a_dst) + transpose(matmul(h, a_src)), 0.2);      // two numbers a member: [K, N, N]
    const Variable alpha = softmax(e, -1, friends);
    if (weights) *weights = alpha;
    return matmul(dropout(alpha, 0.5), h);
  }
  Linear W;
  Parameter a_dst, a_src;
  Index heads;
  Path path;
};

constexpr Index kMembers = 34, kTeacher = 0, kPresident = 33;
constexpr int kFriends[][17] = {   // of member i, those after i; 0: no more
    {1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31}, {2, 3, 7, 13, 17, 19, 21, 30}, {3, 7, 8, 9, 13, 27, 28, 32}, {7, 12, 13},
    {6, 10}, {6, 10, 16}, {16}, {}, {30, 32, 33}, {33}, {}, {}, {}, {33}, {32, 33}, {32, 33}, {}, {}, {32, 33}, {33}, {32, 33}, {},
    {32, 33}, {25, 27, 29, 32, 33}, {25, 27, 31}, {31}, {29, 33}, {33}, {31, 33}, {32, 33}, {32, 33}, {32, 33}, {33}, {}};
const std::string kSides = "TTTTTTTTTPTTTTPPTTPTPTPPPPPPPPPPPP";    // whom they followed

int main() {
  Tensor knows = eye(kMembers, DType::u8);
  for (Index i = 0; i < kMembers; ++i)
    for (const int j : kFriends[i])
      if (j) fill_(knows(i, j), 1), fill_(knows(j, i), 1);
  const Mask friends = Mask::allowed(knows);
  const Variable members = constant(eye(kMembers));                  // all that is known of a member is who it is
  const Tensor said = tensor({kTeacher, kPresident}, DType::i64), sides = tensor({0, 1}, DType::i32);

  Parameters parameters(Seed{1});
  const GraphAttention first(parameters.root() / "first", kMembers, 4, 4), second(parameters.root() / "second", 16, 2, 1);
  const auto logits = [&](Variable* weights = nullptr) {             // [N, 2]
    const Variable x = elu(reshape(transpose(first(members, friends), 0, 1), {kMembers, 16}));   // the heads side by side
    return select(second(x, friends, weights), 0, 0);
  };
  Adam adam(parameters, {.learning_rate = 1e-2, .weight_decay = 5e-4});
  for (int step = 1; step <= 200; ++step) {
    Tape tape(Key{1, step});
    const Variable loss = cross_entropy(index_select(logits(), 0, said), sides);
    tape.backward(loss);
    adam.step();
    if (step == 1 || step % 100 == 0) fmt::print("step {:3}  loss {:.3f}\n", step, loss.value().item());
  }

  Variable weights;
  const Tensor sided = argmax(logits(&weights).value(), -1);
  std::string found;
  for (Index i = 0; i < kMembers; ++i) found += "TP"[sided(i).item<Index>()];
  fmt::print("followed {}\nfound    {}, from two\n", kSides, found);
  for (const Index i : {8, 9, 31}) {
    fmt::print("member {} looks at ", i);
    for (Index j = 0; j < kMembers; ++j)
      if (const double weight = weights.value()(0, i, j).item(); weight > 0) fmt::print("  {}{} {:.2f}", kSides[std::size_t(j)], j, weight);
    fmt::print("\n");
  }
}

/* Output:
step   1  loss 0.663
step 100  loss 0.034
step 200  loss 0.001
followed TTTTTTTTTPTTTTPPTTPTPTPPPPPPPPPPPP
found    TTTTTTTTPPTTTTPPTTPTPTPPPPPPPPPPPP, from two
member 8 looks at   T0 0.22  T2 0.18  T8 0.15  P30 0.14  P32 0.15  P33 0.15
member 9 looks at   T2 0.39  P9 0.29  P33 0.32
member 31 looks at   T0 0.19  P24 0.14  P25 0.14  P28 0.13  P31 0.13  P32 0.13  P33 0.13
*/
