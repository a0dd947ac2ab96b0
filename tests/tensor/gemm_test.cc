// SPDX-License-Identifier: Apache-2.0
#include "tensor/gemm.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <vector>

#include "tensor/random.h"
#include "tests/every_target.h"

using namespace heed;

namespace {

// x [rows, columns] by rows, by columns or spread out, in a buffer that is NaN elsewhere.
template <class T>
struct Matrix {
  Index row, column;
  std::vector<T> buffer;

  Matrix(Index rows, Index columns, Index layout, Random& random)
      : row(layout == 0   ? columns + random.below(9)
            : layout == 1 ? 1
                          : 3 * columns),
        column(layout == 0   ? 1
               : layout == 1 ? rows + random.below(9)
                             : 3),
        buffer(std::size_t(rows * row + columns * column + 1), T(NAN)) {
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j) at(i, j) = T(random.uniform() - 0.5);
  }
  T& at(Index i, Index j) { return buffer[std::size_t(i * row + j * column)]; }
};

// Elements that are not equal, those between them that nothing may touch included.
template <class T> Index differing(const Matrix<T>& x, const Matrix<T>& y) {
  Index count = 0;
  for (std::size_t i = 0; i < x.buffer.size(); ++i)
    count += x.buffer[i] != y.buffer[i] && !(std::isnan(x.buffer[i]) && std::isnan(y.buffer[i]));
  return count;
}

// What a finish sees: each element once, with its final value.
template <class T>
struct Witness {
  Matrix<T>& c;
  Matrix<T>& expected;
  Index n;
  std::vector<int> calls;
  std::atomic<Index> wrong = 0;

  static void see(const void* self, Index row, Index rows, Index column, Index columns) {
    auto& w = *static_cast<Witness*>(const_cast<void*>(self));
    for (Index i = row; i < row + rows; ++i)
      for (Index j = column; j < column + columns; ++j) {
        if (w.c.at(i, j) != w.expected.at(i, j)) ++w.wrong;
        ++w.calls[std::size_t(i * w.n + j)];
      }
  }
};

// Bits of every element against the definition: one chain in rising k; fused: with one rounding a step.
template <class T>
void compare(Index m, Index n, Index k, bool fused, Random& random) {
  const bool add = random.below(2), finish = random.below(2), with_bias = random.below(2), packed = random.below(3) == 0;
  Matrix<T> a(m, k, random.below(3), random), b(k, n, random.below(3), random), c(m, n, finish || with_bias ? 0 : random.below(3), random),
      bias(1, n, 0, random);
  Matrix<T> expected = c;
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) {
      const T *const x = &a.at(i, 0), *const y = &b.at(0, j);
      T sum = add ? c.at(i, j) : 0;
      for (Index l = 0; l < k; ++l) sum = fused ? std::fma(x[l * a.column], y[l * b.row], sum) : sum + x[l * a.column] * y[l * b.row];
      expected.at(i, j) = with_bias ? sum + bias.at(0, j) : sum;
    }
  INFO("m ", m, " n ", n, " k ", k, " a ", a.row, " ", a.column, " b ", b.row, " ", b.column, packed ? " packed c " : " c ", c.row, " ",
       c.column, with_bias ? " bias" : "");
  const Storage panels = packed ? pack(k, n, b.buffer.data(), b.row, b.column) : Storage();
  Witness<T> witness{c, expected, n, std::vector<int>(std::size_t(m * n))};
  multiply(Product<T>{m, n, k, a.buffer.data(), a.row, a.column, b.buffer.data(), b.row, b.column, c.buffer.data(), c.row,
                      c.column, add, reinterpret_cast<const T*>(panels.data())},
           {finish ? &Witness<T>::see : nullptr, &witness, with_bias ? bias.buffer.data() : nullptr});
  Index wrong = witness.wrong + differing(c, expected);
  for (int calls : witness.calls) wrong += calls != int(finish);
  CHECK(wrong == 0);
}

// Bits of one thread against those of many on every target with fused multiply-add.
void compare_halves(Index m, Index n, Index k, Random& random) {
  Matrix<float> a(m, k, 1, random), b(k, n, 0, random), c(m, n, 0, random), expected = c;
  const auto product = [&](Matrix<float>& to) {
    return Product<float>{m,      n,         k,   a.buffer.data(), a.row, a.column, b.buffer.data(), b.row, b.column, to.buffer.data(),
                          to.row, to.column, true};
  };
  for_threads([&] { multiply_by_halves(product(expected)); }, {1});
  for_every_fma_target([&] {
    for_threads([&] {
      Matrix<float> found = c;
      multiply_by_halves(product(found));
      INFO("m ", m, " n ", n, " k ", k, " threads ", threads());
      CHECK(differing(found, expected) == 0);
    }, {2, 5, 8, 16});
  });
}

}  // namespace

TEST_CASE("multiply: random sizes, strides, starts, biases and finishes, packed before or not, on every target") {
  Random sizes(Key(Seed{11}));
  for_threads([&] { for_every_target([&] {
    const bool fused = has_fma();
    for (int i = 0; i < 120; ++i) {
      const Index most[] = {1, 8, 40, 150, 400};
      const Index m = 1 + sizes.below(most[sizes.below(5)]), n = 1 + sizes.below(most[sizes.below(5)]),
                  k = sizes.below(most[sizes.below(5)]);
      compare<float>(m, n, k, fused, sizes);
      if (i % 3 == 0) compare<double>(m, n, k, fused, sizes);
    }
    for (auto [m, n, k] : {std::array<Index, 3>{40, 600, 70}, {5, 1100, 30}, {300, 700, 20}, {20, 300, 1500}, {64, 512, 40}, {1, 600, 70},
                           {2, 300, 1500}, {150, 250, 1100}, {150, 256, 1100}, {20, 55, 600}})
      for (int i = 0; i < 6; ++i) compare<float>(m, n, k, fused, sizes);
  }); }, {1});
}

TEST_CASE("multiply: cut by rows and columns for many threads, on every target") {
  Random random(Key(Seed{12}));
  for_every_target([&] {
    const bool fused = has_fma();
    for_threads([&] {
      for (auto [m, n, k] : {std::array<Index, 3>{300, 700, 40}, {200, 129, 150}, {70, 700, 100}, {64, 256, 200}, {33, 400, 300},
                             {3, 1500, 90}, {1000, 64, 60}, {500, 320, 530}, {50, 250, 600}, {400, 1200, 90}})
        compare<float>(m, n, k, fused, random);
      compare<double>(150, 300, 60, fused, random);
    }, {4, 7, 16});
  });
}

TEST_CASE("multiply_by_halves: the same bits cut for any number of threads, on every target with fused multiply-add") {
  Random random(Key(Seed{13}));
  compare_halves(256, 256, 256, random);
  compare_halves(70, 1100, 300, random);
  compare_halves(513, 100, 700, random);
  compare_halves(32, 600, 260, random);
}
