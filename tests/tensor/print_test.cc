// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "tensor/format.h"
#include "tensor/ops/view.h"
#include "tensor/tensor.h"

using namespace heed;

// The texts are NumPy 2.4's, printed with np.set_printoptions(precision=4).
TEST_CASE("tensors print as in NumPy") {
  std::vector<float> values(60);
  for (int i = 0; i < 60; ++i) values[size_t(i)] = float(i / 7.0);
  const Tensor sevenths = tensor(values, {2, 30});
  const std::pair<Tensor, const char*> rows[] = {
      {tensor({{1, 2, 3}, {4, 5, 6}}), R"([[1. 2. 3.]
 [4. 5. 6.]])"},
      {tensor({1, 2.5, -3}), R"([ 1.   2.5 -3. ])"},
      {tensor({0.1, 123456.7}), R"([1.0000e-01 1.2346e+05])"},
      {tensor({0.1, 99.98765432}), R"([ 0.1    99.9877])"},
      {tensor({1e-5, 1}), R"([1.e-05 1.e+00])"},
      {tensor({1e10, -2.5}), R"([ 1.0e+10 -2.5e+00])"},
      {tensor({1e10, 1e12}), R"([1.e+10 1.e+12])"},
      {tensor({-INFINITY, 1, NAN, 2.25}), R"([-inf 1.    nan 2.25])"},
      {tensor({NAN, INFINITY}), R"([nan inf])"},
      {tensor({-1, 10, 100}, DType::i32), R"([ -1  10 100])"},
      {tensor({0, 0}), R"([0. 0.])"},
      {tensor({1e-300, NAN, -INFINITY}, DType::f64), R"([1.e-300     nan    -inf])"},
      {arange(0, 40), R"([ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39])"},
      {arange(0, 2000), R"([   0    1    2 ... 1997 1998 1999])"},
      {reshape(arange(0, 10000), {100, 100}), R"([[   0    1    2 ...   97   98   99]
 [ 100  101  102 ...  197  198  199]
 [ 200  201  202 ...  297  298  299]
 ...
 [9700 9701 9702 ... 9797 9798 9799]
 [9800 9801 9802 ... 9897 9898 9899]
 [9900 9901 9902 ... 9997 9998 9999]])"},
      {zeros({200, 7}), R"([[0. 0. 0. ... 0. 0. 0.]
 [0. 0. 0. ... 0. 0. 0.]
 [0. 0. 0. ... 0. 0. 0.]
 ...
 [0. 0. 0. ... 0. 0. 0.]
 [0. 0. 0. ... 0. 0. 0.]
 [0. 0. 0. ... 0. 0. 0.]])"},
      {zeros({200, 6}), R"([[0. 0. 0. 0. 0. 0.]
 [0. 0. 0. 0. 0. 0.]
 [0. 0. 0. 0. 0. 0.]
 ...
 [0. 0. 0. 0. 0. 0.]
 [0. 0. 0. 0. 0. 0.]
 [0. 0. 0. 0. 0. 0.]])"},
      {reshape(arange(0, 8), {2, 2, 2}), R"([[[0 1]
  [2 3]]

 [[4 5]
  [6 7]]])"},
      {reshape(arange(0, 2400), {2, 600, 2}), R"([[[   0    1]
  [   2    3]
  [   4    5]
  ...
  [1194 1195]
  [1196 1197]
  [1198 1199]]

 [[1200 1201]
  [1202 1203]
  [1204 1205]
  ...
  [2394 2395]
  [2396 2397]
  [2398 2399]]])"},
      {sevenths, R"([[0.     0.1429 0.2857 0.4286 0.5714 0.7143 0.8571 1.     1.1429 1.2857
  1.4286 1.5714 1.7143 1.8571 2.     2.1429 2.2857 2.4286 2.5714 2.7143
  2.8571 3.     3.1429 3.2857 3.4286 3.5714 3.7143 3.8571 4.     4.1429]
 [4.2857 4.4286 4.5714 4.7143 4.8571 5.     5.1429 5.2857 5.4286 5.5714
  5.7143 5.8571 6.     6.1429 6.2857 6.4286 6.5714 6.7143 6.8571 7.
  7.1429 7.2857 7.4286 7.5714 7.7143 7.8571 8.     8.1429 8.2857 8.4286]])"},
  };
  for (const auto& [x, text] : rows) CHECK(to_string(x) == text);
}

TEST_CASE("every element type, scalars, empty tensors and views print") {
  CHECK(to_string(tensor({1, 255}, DType::u8)) == "[  1 255]");
  CHECK(to_string(tensor({9007199254740993.0, -1}, DType::i64)) == "[9007199254740992               -1]");
  CHECK(to_string(tensor({0.1, 1}, DType::bf16)) == "[0.1001 1.    ]");   // 0.1 is 0.10009765625 there
  CHECK(to_string(tensor(3)) == "3.0");
  CHECK(to_string(tensor(2.302585093, DType::f64)) == "2.3026");
  CHECK(to_string(tensor(7, DType::i32)) == "7");
  CHECK(to_string(zeros({0})) == "[]");
  CHECK(to_string(zeros({2, 0, 3})) == "[]");
  CHECK(to_string(Tensor()) == "(no tensor)");
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  CHECK(to_string(transpose(x)) == "[[1. 4.]\n [2. 5.]\n [3. 6.]]");
  CHECK(to_string(x(1, Slice{.step = -1})) == "[6. 5. 4.]");
  CHECK(to_string(expand(tensor({1}), {3})) == "[1. 1. 1.]");
}

TEST_CASE("a precision fixes the digits") {
  const Tensor x = tensor({1, 2.34567, -1e-9, NAN});
  CHECK(to_string(x, 3) == "[ 1.000  2.346 -0.000    nan]");
  CHECK(to_string(x, 0) == "[  1   2  -0 nan]");
  CHECK(to_string(tensor(1234567890.5, DType::f64), 2) == "1234567890.50");
  CHECK(to_string(tensor({1}, DType::f64), 600) == "[1." + std::string(600, '0') + "]");
  const std::string large = to_string(tensor({1e308}, DType::f64), 250);
  CHECK(large.size() == 1 + 309 + 1 + 250 + 1);
  CHECK(large.ends_with("." + std::string(250, '0') + "]"));
}

TEST_CASE("fmt prints tensors") {
  const Tensor x = tensor({{1, 2}, {3, 4.5}});
  CHECK(fmt::format("{}", x) == to_string(x));
  CHECK(fmt::format("x = {:.2f}", x[1]) == "x = [3.00 4.50]");
  CHECK(fmt::format("{:s}", x) == "[2, 2] f32");
  CHECK(fmt::format("{:s}|{}", Tensor(), Tensor()) == "(no tensor)|(no tensor)");
  std::ostringstream out;
  out << x << '\n';
  CHECK(out.str() == to_string(x) + "\n");
  CHECK_THROWS_AS((void)fmt::format(fmt::runtime("{:x}"), x), fmt::format_error);
  CHECK_THROWS_AS((void)fmt::format(fmt::runtime("{:.f}"), x), fmt::format_error);
}

TEST_CASE("quote: a long text is cut between characters") {
  CHECK(quote(std::string(78, 'a') + "é") == "\"" + std::string(78, 'a') + "é\"");
  CHECK(quote(std::string(79, 'a') + "é") == "\"" + std::string(79, 'a') + "...\"");
  CHECK(quote(std::string(78, 'a') + "€") == "\"" + std::string(78, 'a') + "...\"");
}
