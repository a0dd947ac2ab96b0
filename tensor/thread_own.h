// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <utility>

namespace heed {

// The T that this thread keeps for itself, made when it is first asked for; nullptr at the thread's end, when it is gone and destructors of
// other thread-local and static objects, or functions of std::atexit, still compute.
template <class T> T* own_of_thread() {
  static thread_local constinit T* one = nullptr;
  static thread_local constinit bool ended = false;
  struct End {
    ~End() {
      ended = true;
      delete std::exchange(one, nullptr);
    }
  };
  if (!one && !ended) [[unlikely]] {
    one = new T;
    static thread_local End end;
  }
  return one;
}

// The same, or this one at the thread's end.
template <class T> T& own_or(T& here) {
  T* const own = own_of_thread<T>();
  return own ? *own : here;
}

}  // namespace heed
