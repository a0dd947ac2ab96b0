// SPDX-License-Identifier: Apache-2.0
// The exceptions of Heed. Every message reads  [in <module path>: ]<op>: <rule>: <both sides>[; <hint>].
#pragma once
#include <new>
#include <stdexcept>
#include <string>

namespace heed {

struct Error : std::runtime_error { using runtime_error::runtime_error; };  // misuse that has no finer type; base of all
struct ShapeError : Error { using Error::Error; };    // rank, sizes, broadcasting, element count overflow
struct DTypeError : Error { using Error::Error; };    // mixed dtypes, dtype an op does not take, typed access of the wrong type
struct IndexError : Error { using Error::Error; };    // dim, index, slice, token id, class label out of range
struct NumericError : Error { using Error::Error; };  // non-finite values where the policy says stop; anomaly mode

// Cannot open, read, write, sync, rename, lock; malformed; does not fit the model.
struct FileError : Error {
  explicit FileError(const std::string& text, int number = 0) : Error(text), error_number(number) {}
  int error_number;                                   // errno of the refused system call; 0: the content is at fault
};

// Memory refused by the system. The text gives the bytes asked for and those in use.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

}  // namespace heed
