// SPDX-License-Identifier: Apache-2.0
#include "tensor/file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tensor/format.h"

namespace heed {
namespace {

constexpr std::size_t kBlock = std::size_t(1) << 20;

[[noreturn]] void refused(const std::string& path, std::string_view what, int error) {
  throw FileError(fmt::format("{}: {}: {}", path, what, std::generic_category().message(error)), error);
}

// The system would end it at a NUL.
const std::string& whole(const std::string& path) {
  check<FileError>(path.find('\0') == path.npos, "{}: a NUL in a path; another name", quote(path));
  return path;
}

// f() until it is not interrupted by a signal
template <class F> auto retry(F&& f) {
  auto result = f();
  while (result < 0 && errno == EINTR) result = f();
  return result;
}

struct Descriptor {
  int fd;
  ~Descriptor() { if (fd >= 0) ::close(fd); }
};

// Up to `size` bytes, fewer only at the end of the file; -1 with errno.
ssize_t read_fully(int fd, char* out, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = retry([&] { return ::read(fd, out + done, size - done); });
    if (n < 0) return -1;
    if (n == 0) break;
    done += std::size_t(n);
  }
  return ssize_t(done);
}

std::string follow_links(const std::string& path) {
  namespace fs = std::filesystem;
  fs::path target = path;
  for (int links = 0;; ++links) {
    std::error_code error;
    const fs::path next = fs::read_symlink(target, error);
    if (error) return target.string();                             // not a link, or not there
    if (links == 40) refused(path, "cannot open", ELOOP);
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
}

// The open file that /dev/stdin, /dev/stdout, /dev/stderr or /dev/fd/N stands for, or -1.
int stream_of(std::string_view path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  constexpr std::string_view folder = "/dev/fd/";
  if (!path.starts_with(folder)) return -1;
  int stream = -1;
  const char* const end = path.data() + path.size();
  return std::from_chars(path.data() + folder.size(), end, stream).ptr == end ? stream : -1;
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// 0 or errno. A write-only folder cannot be opened (EACCES); EINVAL comes from a file system without sync of directories
int sync_folder(const std::string& path) {
  const Descriptor folder{retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); })};
  if (folder.fd < 0) return errno == EACCES ? 0 : errno;
  return retry([&] { return ::fsync(folder.fd); }) < 0 && errno != EINVAL ? errno : 0;
}

}  // namespace

InputFile::InputFile(const std::string& path, Kind kind)
    : path_(whole(path)), file_(retry([&] {
        const int stream = kind == Kind::any ? stream_of(path) : -1;
        if (stream >= 0) return ::fcntl(stream, F_DUPFD_CLOEXEC, 0);                              // from where it stands
        return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (kind == Kind::regular ? O_NONBLOCK : 0));  // a pipe would wait
      })) {
  struct stat status {};
  const int error = file_ < 0 || ::fstat(file_, &status) < 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
  const bool regular = S_ISREG(status.st_mode);
  if (error != 0 || (kind == Kind::regular && !regular)) {
    if (file_ >= 0) ::close(file_);
    if (error == 0) throw FileError(fmt::format("{}: not a regular file", path), EINVAL);
    refused(path, error == EISDIR ? "cannot read" : "cannot open", error);
  }
  if (regular) size_ = std::uint64_t(status.st_size);
}

InputFile::~InputFile() { ::close(file_); }

std::size_t InputFile::read_some(char* to, std::size_t size) {
  const ssize_t n = retry([&] { return ::read(file_, to, size); });
  if (n < 0) refused(path_, fmt::format("cannot read at byte {}", position_), errno);
  position_ += std::uint64_t(n);
  return std::size_t(n);
}

void InputFile::read(void* to, std::size_t size) {
  for (std::size_t done = 0, n; done < size; done += n) {
    n = read_some(static_cast<char*>(to) + done, size - done);
    check<FileError>(n > 0, "{}: ends at byte {}, had {} bytes when it was opened", path_, position_, size_);
  }
}

std::string read_file(const std::string& path, std::size_t limit, InputFile::Kind kind) {
  InputFile file(path, kind);
  check<FileError>(file.size() <= limit, "{}: too large: {} bytes, at most {} allowed", path, file.size(), limit);
  std::string bytes(std::size_t(file.size()) + 1, '\0');            // one byte more shows the end
  for (std::size_t size = 0;;) {
    if (size == bytes.size()) bytes.resize(size + std::max(kBlock, size));
    const std::size_t n = file.read_some(bytes.data() + size, bytes.size() - size);
    if (n == 0) return bytes.resize(size), bytes;
    size += n;
    check<FileError>(size <= limit, "{}: too large: more than the {} bytes allowed", path, limit);
  }
}

AtomicFile::AtomicFile(const std::string& path) : path_(whole(path)), target_(follow_links(path)) {
  buffer_.reserve(kBlock);
  struct stat old;
  const int stream = stream_of(path);
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) refused(path_, "cannot write", EISDIR);
  if (stream >= 0 || (exists && !S_ISREG(old.st_mode))) {
    file_ = retry([&] { return stream >= 0 ? ::fcntl(stream, F_DUPFD_CLOEXEC, 0) : ::open(target_.c_str(), O_WRONLY | O_CLOEXEC); });
    if (file_ < 0) refused(path_, "cannot open", errno);
    return;
  }
  std::uint64_t random = std::uint64_t(reinterpret_cast<std::uintptr_t>(this));
  do {
    if (std::uint64_t drawn; ::getrandom(&drawn, sizeof drawn, 0) == sizeof drawn) random = drawn;
    else ++random;
    temporary_ = fmt::format("{}/{}{}-{:016x}", folder_of(target_), kTemporaryPrefix, ::getpid(), random);
    file_ = retry([&] { return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  } while (file_ < 0 && errno == EEXIST);
  if (file_ < 0) {
    const int error = errno;
    temporary_.clear();
    refused(path_, "cannot create a file in its folder", error);
  }
  if (exists && ::fchmod(file_, old.st_mode & 07777) < 0) fail("cannot set the mode", errno);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  file_ = -1;
  temporary_.clear();
}

void AtomicFile::fail(std::string_view what, int error) {
  discard();
  refused(path_, what, error);
}

void AtomicFile::write(std::string_view bytes) {
  check<Error>(file_ >= 0, "write file: committed or failed before: {}", path_);
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), kBlock - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + std::ptrdiff_t(n));
    bytes.remove_prefix(n);
    if (buffer_.size() == kBlock) flush();
  }
}

void AtomicFile::flush() {
  checksum_.add(buffer_.data(), buffer_.size());
  for (std::size_t done = 0; done < buffer_.size();) {
    const ssize_t n = retry([&] { return ::write(file_, buffer_.data() + done, buffer_.size() - done); });
    if (n <= 0) fail(fmt::format("cannot write at byte {}", written_ + done), n < 0 ? errno : EIO);
    done += std::size_t(n);
  }
  written_ += buffer_.size();
  buffer_.clear();
}

// What the file holds now must be what was written: a disk or system that lost bytes without saying so is found here.
void AtomicFile::compare() {
  const Descriptor file{retry([&] { return ::open(temporary_.c_str(), O_RDONLY | O_CLOEXEC); })};
  if (file.fd < 0) fail("cannot read back", errno);
  std::uint64_t size = 0;
  Checksum sum;
  buffer_.resize(kBlock);
  for (ssize_t n = ssize_t(kBlock); n == ssize_t(kBlock);) {
    n = read_fully(file.fd, buffer_.data(), kBlock);
    if (n < 0) fail("cannot read back", errno);
    size += std::uint64_t(n);
    sum.add(buffer_.data(), std::size_t(n));
  }
  if (size == written_ && sum.value() == checksum_.value()) return;
  discard();
  throw FileError(fmt::format("{}: read back differs from what was written: {} bytes written, {} read", path_, written_, size),
                  EIO);
}

void AtomicFile::commit() {
  check<Error>(file_ >= 0, "write file: committed or failed before: {}", path_);
  flush();
  if (!temporary_.empty() && retry([&] { return ::fsync(file_); }) < 0) fail("cannot sync", errno);
  if (::close(std::exchange(file_, -1)) < 0 && errno != EINTR) fail("cannot close", errno);
  if (temporary_.empty()) return;
  compare();
  if (::rename(temporary_.c_str(), target_.c_str()) < 0) fail("cannot rename", errno);
  temporary_.clear();
  if (const int error = sync_folder(folder_of(target_))) refused(path_, "cannot sync its folder", error);
}

void sync_name(const std::string& path) {
  if (const int error = sync_folder(folder_of(path))) refused(path, "cannot sync its folder", error);
}

void make_directory(const std::string& path) {
  const std::string name = path.substr(0, std::max<std::size_t>(path.find_last_not_of('/') + 1, 1));
  if (::mkdir(name.c_str(), 0777) == 0) return sync_name(name);
  const int error = errno;
  std::error_code ignored;
  if (error == EEXIST && std::filesystem::is_directory(name, ignored)) return;
  if (error != ENOENT || folder_of(name) == ".") refused(path, "cannot make the directory", error == EEXIST ? ENOTDIR : error);
  make_directory(folder_of(name));
  if (::mkdir(name.c_str(), 0777) != 0 && errno != EEXIST) refused(path, "cannot make the directory", errno);
  sync_name(name);
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace heed
