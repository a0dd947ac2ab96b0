// SPDX-License-Identifier: Apache-2.0
// What the commands of `heed` share: reading their words, writing results, what a mistake is.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/option.h"
#include "tensor/error.h"

namespace heed::cli {

// A mistake in the command, or in a file named there: exit code 2. Text: `<what>: <where>; <what would be right>`
struct Mistake : Error { using Error::Error; };
// A fault while working: exit code 1.
struct Fault : Error { using Error::Error; };
struct Diverged : Fault { using Fault::Fault; };   // a training without a finite loss
// Nobody reads the output any more: a quiet end.
struct Unread {};

// Words given for each option.
using Given = std::map<std::string, std::vector<std::string>, std::less<>>;

struct Syntax {
  struct Word {                                    // without a flag
    std::string_view name;
    std::string* value;
  };
  std::string command, usage, about, example{};
  std::vector<Option> options;
  std::vector<Word> words{};
};

// --quiet and --json.
struct Manner {
  bool quiet = false, json = false;
};
std::vector<Option> options(Manner& manner);
std::vector<Option> operator+(std::vector<Option> a, const std::vector<Option>& b);

// Splits the words after the command; the values are not yet looked at. Mistake on an unknown flag, a missing or a repeated value.
// False after --help, which prints what the command takes.
bool read(const Syntax& syntax, std::span<const std::string> words, Given& given);
// The same for any number of lines: made once, it is fast.
class Reader {
 public:
  explicit Reader(const Syntax& syntax);
  ~Reader();
  bool operator()(std::span<const std::string> words, Given& given);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};
void set_options(const Syntax& syntax, const Given& given);              // sets the options; Mistake
// Both; false after --help.
bool parse(const Syntax& syntax, std::span<const std::string> words);
std::string help(const Syntax& syntax);

// Standard output. Fault where it cannot be written to, Unread where nobody reads it.
void print(std::string_view text);
void flush();
// A line on standard error, made printable.
void note(std::string_view line);

// Mistake where two files are one and the same, by inode.
void check_different(const std::string& input, const std::string& output);
void check_output(const std::string& file);        // Mistake where no file of this name can be made
void check_required(const std::string& value, std::string_view flag, std::string_view hint);   // Mistake where it is empty

struct Command {
  std::string_view name, about;
  int (*run)(std::span<const std::string> words);
};

int data(std::span<const std::string> words);
int train(std::span<const std::string> words);
int translate(std::span<const std::string> words);
int evaluate(std::span<const std::string> words);
int score(std::span<const std::string> words);
int attention(std::span<const std::string> words);
int inspect(std::span<const std::string> words);
int explain(std::span<const std::string> words);
int trace(std::span<const std::string> words);
int diff(std::span<const std::string> words);
int compare(std::span<const std::string> words);
int check_gradients(std::span<const std::string> words);

// Metadata that `trace` writes and `diff` reads: [[name, formula], ..] in the order of computation.
inline constexpr std::string_view kTraceOrder = "heed.trace";

}  // namespace heed::cli
