// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <type_traits>
#include <utility>

namespace heed {

// A reference to a callable, which has to live as long.
template <class> class FunctionRef;
template <class R, class... Args> class FunctionRef<R(Args...)> {
 public:
  template <class F> requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& f) : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))), call_([](void* object, Args... args) -> R {
    return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
  }) {}
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace heed
