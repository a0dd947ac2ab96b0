// SPDX-License-Identifier: Apache-2.0
// Operands wide enough for tiles and for joined rows, of every layout, against one element after another.
#include "tensor/ops/walk.h"

#include <doctest/doctest.h>

#include "tensor/ops/binary.h"
#include "tensor/ops/random.h"
#include "tensor/ops/view.h"
#include "tests/every_target.h"

using namespace heed;

namespace {

// A tensor of `shape` [a, b, c], from kWhole on one that broadcasts to it.
constexpr int kLayouts = 8, kWhole = 5;
template <class T> Tensor laid_out(const Shape& shape, int layout, std::uint64_t seed) {
  const auto draw = [&](const Shape& s) { return normal(Key(Seed{seed}), s, 0, 1, dtype_of<T>); };
  const Index a = shape[0], b = shape[1], c = shape[2];
  switch (layout) {
    case 0: return draw({a, b, c});
    case 1: return permute(draw({a, c, b}), {0, 2, 1});
    case 2: return permute(draw({c, a, b}), {1, 2, 0});
    case 3: return slice(draw({a, b, 2 * c + 1}), 2, 1, Slice::kToEnd, 2);
    case 4: return flip(draw({a, b, c}), {1, 2});
    case 5: return draw({a, 1, c});
    case 6: return draw({b, 1});
    default: return draw({});
  }
}

// Whether f holds for the elements of the tensors at every index of `shape`.
template <class T> struct Reader {
  Reader(const Tensor& x, const Shape& shape) : data(x.data<T>()), strides(broadcast_strides(x, shape)) {}
  T operator()(Index i, Index j, Index k) const { return data[i * strides[0] + j * strides[1] + k * strides[2]]; }
  const T* data;
  Strides strides;
};
template <class F, class... R> bool every(const Shape& shape, F&& f, const R&... at) {
  for (Index i = 0; i < shape[0]; ++i)
    for (Index j = 0; j < shape[1]; ++j)
      for (Index k = 0; k < shape[2]; ++k)
        if (!f(at(i, j, k)...)) return false;
  return true;
}

template <class T> void check_layouts(const Shape& shape) {
  CAPTURE(to_string(shape));
  const auto read = [&](const Tensor& x) { return Reader<T>(x, shape); };
  for (int i = 0; i < kLayouts; ++i) {
    CAPTURE(i);
    const Tensor x = laid_out<T>(shape, i, 1), copy = expand(x, shape).contiguous();
    CHECK(every(shape, [](T u, T v) { return u == v; }, read(x), read(copy)));
    for (int j = 0; j < kLayouts; ++j) {
      CAPTURE(j);
      const Tensor y = laid_out<T>(shape, j, 2), z = subtract(expand(x, shape), y);
      CHECK(every(shape, [](T u, T v, T w) { return w == u - v; }, read(x), read(y), read(z)));
      if (j >= kWhole) continue;
      const Tensor before = y.clone();
      const auto grad = [&](bool add) {
        const Into dx{y, add};
        binary_grad(Binary::multiply, x, x, z, z, &dx, nullptr);
      };
      grad(true);
      CHECK(every(shape, [](T u, T w, T old, T now) { return now == old + w * u; }, read(x), read(z), read(before), read(y)));
      grad(false);
      CHECK(every(shape, [](T u, T w, T now) { return now == w * u; }, read(x), read(z), read(y)));
    }
  }
}

}  // namespace

TEST_CASE("walk: every layout of operands and results") {
  for_every_target([] {
    for (const Shape& shape : {Shape{2, 21, 100}, Shape{3, 70, 5}, Shape{1, 1, 1500}, Shape{1, 16, 64}, Shape{1, 17, 1100}}) {
      check_layouts<float>(shape);
      check_layouts<double>(shape);
    }
  });
}
