// SPDX-License-Identifier: Apache-2.0
// What a call throws, as text.
#pragma once
#include <cxxabi.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <typeinfo>

#include "tensor/error.h"

// The message of an E; "" where nothing is thrown.
template <class E = heed::Error, class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

// "ShapeError: text", or "nothing thrown".
template <class F> std::string thrown(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    const std::unique_ptr<char, void (*)(void*)> type(abi::__cxa_demangle(typeid(e).name(), nullptr, nullptr, nullptr), std::free);
    const std::string name = type.get();
    return name.substr(name.rfind(':') + 1) + ": " + e.what();
  }
  return "nothing thrown";
}
