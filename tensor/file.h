// SPDX-License-Identifier: Apache-2.0
// Whole files in and out. A file that is written replaces the old one in one step, or not at all.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/checksum.h"

namespace heed {

// A file read from front to back. FileError with path and reason; also for a pipe or device unless they are allowed; then what
// /dev/stdin or /dev/fd/N stand for is read on from where it stands.
class InputFile {
 public:
  enum class Kind { regular, any };
  explicit InputFile(const std::string& path, Kind kind = Kind::regular);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }                     // when it was opened; 0 for a pipe or device
  void read(void* to, std::size_t size);                           // all of it: FileError where the file ends before
  std::size_t read_some(char* to, std::size_t size);               // what is there already, at least a byte; 0 only at the end

 private:
  std::string path_;
  int file_ = -1;
  std::uint64_t size_ = 0, position_ = 0;
};

// The bytes of a file, a pipe or a device. FileError with path and reason; also beyond `limit` bytes.
std::string read_file(const std::string& path, std::size_t limit = std::numeric_limits<std::size_t>::max(),
                      InputFile::Kind kind = InputFile::Kind::any);

// A new version of a file, invisible until commit: written beside `path` under a temporary name, synced, read again and
// compared, renamed over `path`, the directory synced. The file keeps its mode (a new one gets the umask's); a symbolic link is
// followed; a device or pipe, and what /dev/stdout or /dev/fd/N stand for, is written to directly. Whatever fails throws FileError
// with path and reason, removes the temporary and leaves the old file as it was; only where the directory could not be synced the new one
// is there, and a power cut may bring back the old one.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();                                                   // without commit: nothing has happened
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void write(std::span<const std::byte> bytes) {
    write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void commit();

 private:
  void flush();
  void compare();
  [[noreturn]] void fail(std::string_view what, int error);
  void discard() noexcept;

  std::string path_, target_, temporary_;                          // as given; links followed; empty for a device
  int file_ = -1;
  std::uint64_t written_ = 0;
  Checksum checksum_;
  std::vector<char> buffer_;
};

void write_file_atomically(const std::string& path, std::string_view bytes);

// Makes a directory and those above it that are missing, each synced into the one above. FileError
void make_directory(const std::string& path);
// The name of a new file lasts beyond a power cut only once the folder it stands in is synced. FileError
void sync_name(const std::string& path);

// Names of AtomicFile's temporaries begin with this: who holds the lock of a folder may delete what a crash left there.
inline constexpr std::string_view kTemporaryPrefix = ".heed-tmp-";

}  // namespace heed
