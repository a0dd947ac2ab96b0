// SPDX-License-Identifier: Apache-2.0
#include "tensor/file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>

#include "tensor/format.h"
#include "tests/temporary_folder.h"
#include "tests/thrown.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {

// The system calls of a save pass through here: the one with number `at` fails, lies, is cut short, or is the last of the
// process.
enum class Fault { none, error, once_interrupted, short_write, lost_write, kill };
struct Injection {
  Fault fault = Fault::none;
  int at = 0, error = 0, calls = 0;
  bool fired = false;
  std::string order = {};                                          // first letters of the calls
};
thread_local Injection* injection = nullptr;

bool fires(Fault fault) {
  return injection && injection->fault == fault && injection->calls == injection->at && (injection->fired = true);
}

// true: the call fails with errno set
bool intercepted(char call) {
  if (!injection) return false;
  ++injection->calls;
  injection->order += call;
  if (fires(Fault::kill)) ::raise(SIGKILL);
  if (fires(Fault::error)) return errno = injection->error, true;
  if (fires(Fault::once_interrupted)) return errno = EINTR, true;
  return false;
}

}  // namespace

extern "C" {
ssize_t write(int fd, const void* data, size_t size) {
  if (intercepted('w')) return -1;
  if (fires(Fault::short_write) && size > 1) size /= 2;
  if (fires(Fault::lost_write)) return ssize_t(size);
  return syscall(SYS_write, fd, data, size);
}
int fsync(int fd) { return intercepted('s') ? -1 : int(syscall(SYS_fsync, fd)); }
int close(int fd) {
  const bool failed = intercepted('c');
  const int error = errno, result = int(syscall(SYS_close, fd));
  return failed ? errno = error, -1 : result;
}
int rename(const char* from, const char* to) {
  return intercepted('r') ? -1 : int(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}
int fchmod(int fd, mode_t mode) { return intercepted('m') ? -1 : int(syscall(SYS_fchmod, fd, mode)); }
}

namespace {

struct Inject {
  Injection state;
  explicit Inject(Fault fault, int at = 0, int error = 0) : state{.fault = fault, .at = at, .error = error} { injection = &state; }
  ~Inject() { injection = nullptr; }
};

int errno_of(const std::function<void()>& f) {
  try { f(); } catch (const FileError& e) { return e.error_number; }
  return -1;
}

std::size_t entries(const fs::path& folder) {
  return std::size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}
mode_t mode_of(const std::string& path) {
  struct stat status;
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

const std::string old_text = "the old version\n";
const std::string new_text = [] {
  std::string s;
  for (int i = 0; i < 300000; ++i) s += "line " + std::to_string(i) + "\n";      // 3.5 MB: four blocks
  return s;
}();

}  // namespace

TEST_CASE("file: what is written is read") {
  TemporaryFolder folder;
  for (std::size_t size : {std::size_t(0), std::size_t(1), std::size_t(7), std::size_t(8), (std::size_t(1) << 20) - 1,
                           std::size_t(1) << 20, (std::size_t(1) << 20) + 1, new_text.size()}) {
    CAPTURE(size);
    std::string bytes = new_text.substr(0, size);
    if (size > 2) bytes[1] = '\0';
    write_file_atomically(folder / "x", bytes);
    CHECK((read_file(folder / "x") == bytes));
  }
  CHECK(entries(folder.path()) == 1);
  AtomicFile pieces(folder / "y");
  for (std::size_t i = 0; i < new_text.size(); i += 77777) pieces.write(std::string_view(new_text).substr(i, 77777));
  pieces.write(std::as_bytes(std::span("abc", 3)));
  CHECK_FALSE(fs::exists(folder / "y"));
  pieces.commit();
  CHECK((read_file(folder / "y") == new_text + "abc"));
  CHECK_THROWS_AS(pieces.write("more"), Error);
  CHECK_THROWS_AS(pieces.commit(), Error);
  { AtomicFile abandoned(folder / "y"); abandoned.write("never seen"); }
  CHECK((read_file(folder / "y") == new_text + "abc"));
  CHECK(entries(folder.path()) == 2);
}

TEST_CASE("file: errors name the path and the reason") {
  TemporaryFolder folder;
  const std::string d = folder.path();
  CHECK(message_of<FileError>([&] { read_file(d + "/none"); }) == d + "/none: cannot open: No such file or directory");
  CHECK(errno_of([&] { read_file(d + "/none"); }) == ENOENT);
  CHECK(message_of<FileError>([&] { read_file(d); }) == d + ": cannot read: Is a directory");
  CHECK(message_of<FileError>([&] { write_file_atomically(d, "x"); }) == d + ": cannot write: Is a directory");
  CHECK(message_of<FileError>([&] { write_file_atomically(d + "/none/x", "x"); }) ==
        d + "/none/x: cannot create a file in its folder: No such file or directory");
  CHECK(message_of<FileError>([&] { write_file_atomically("/dev/full", "x"); }) ==
        "/dev/full: cannot write at byte 0: No space left on device");
  CHECK(errno_of([&] { write_file_atomically("/dev/full", "x"); }) == ENOSPC);
  write_file_atomically(folder / "ten", "0123456789");
  CHECK(message_of<FileError>([&] { read_file(folder / "ten", 9); }) == d + "/ten: too large: 10 bytes, at most 9 allowed");
  CHECK(message_of<FileError>([&] { read_file("/dev/zero", 5000000); }) == "/dev/zero: too large: more than the 5000000 bytes allowed");
  CHECK(errno_of([&] { read_file(folder / "ten", 9); }) == 0);
  CHECK(read_file(folder / "ten", 10) == "0123456789");
  fs::create_symlink("b", folder / "a");
  fs::create_symlink("a", folder / "b");
  CHECK(message_of<FileError>([&] { write_file_atomically(folder / "a", "x"); }) ==
        d + "/a: cannot open: Too many levels of symbolic links");
  CHECK(message_of<FileError>([&] { make_directory(folder / "a"); }) == d + "/a: cannot make the directory: Not a directory");
  CHECK(errno_of([&] { read_file("/dev/fd/0x"); }) == ENOENT);        // no stream
}

TEST_CASE("file: a folder that can be written and not read") {
  TemporaryFolder folder;
  write_file_atomically(folder / "x", old_text);
  constexpr uid_t kNobody = 65534;
  if (::geteuid() == 0)
    REQUIRE((::chown(folder.path().c_str(), kNobody, kNobody) == 0 && ::chown((folder / "x").c_str(), kNobody, kNobody) == 0));
  ::chmod(folder.path().c_str(), 0300);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) ::_exit(2);
    ::_exit(errno_of([&] { write_file_atomically(folder / "x", new_text), make_directory(folder / "y"); }) == -1 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ::chmod(folder.path().c_str(), 0700);
  CHECK(status == 0);
  CHECK(read_file(folder / "x") == new_text);
}

TEST_CASE("file: pipes and devices") {
  TemporaryFolder folder;
  write_file_atomically("/dev/null", "gone");
  CHECK(fs::is_character_file("/dev/null"));
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    write_file_atomically(pipe, new_text);
    ::_exit(0);
  }
  CHECK((read_file(pipe) == new_text));
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(fs::is_fifo(pipe));

  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  write_file_atomically(fmt::format("/dev/fd/{}", ends[1]), "through");
  char read[8]{};
  CHECK(::read(ends[0], read, 8) == 7);
  CHECK(std::string_view(read) == "through");
  ::close(ends[0]), ::close(ends[1]);
  const int file = ::open((folder / "log").c_str(), O_WRONLY | O_CREAT, 0600);
  REQUIRE(::write(file, "a ", 2) == 2);
  write_file_atomically(fmt::format("/dev/fd/{}", file), "line");   // goes on where the others who write to it are
  REQUIRE(::write(file, " b", 2) == 2);
  ::close(file);
  CHECK(read_file(folder / "log") == "a line b");
}

TEST_CASE("file: mode and symbolic links stay") {
  TemporaryFolder folder;
  const mode_t before = ::umask(027);
  write_file_atomically(folder / "new", "x");
  CHECK(mode_of(folder / "new") == 0640);
  ::umask(before);
  REQUIRE(::chmod((folder / "new").c_str(), 0606) == 0);
  write_file_atomically(folder / "new", "y");
  CHECK(mode_of(folder / "new") == 0606);

  fs::create_directory(folder / "far");
  fs::create_symlink("far/target", folder / "link");               // dangling at first
  fs::create_symlink(folder / "link", folder / "link2");
  for (const char* text : {"first", "second"}) {
    write_file_atomically(folder / "link2", text);
    CHECK(fs::is_symlink(folder / "link"));
    CHECK(fs::is_symlink(folder / "link2"));
    CHECK(read_file(folder / "far/target") == text);
  }
  CHECK(entries(folder / "far") == 1);
}

TEST_CASE("file: a system call that fails, at every place in a save, leaves the old file and no other") {
  for (int error : {ENOSPC, EIO, EROFS}) {
    TemporaryFolder folder;
    const std::string path = folder / "x";
    bool fired = true;
    int at = 1, after_rename = 0;
    for (; fired; ++at) {
      CAPTURE(at);
      write_file_atomically(path, old_text);
      std::optional<FileError> thrown;
      {
        Inject inject(Fault::error, at, error);
        try { write_file_atomically(path, new_text); } catch (const FileError& e) { thrown = e; }
        fired = inject.state.fired;
      }
      const std::string now = read_file(path);
      if (thrown) {
        CHECK(thrown->error_number == error);
        CHECK(std::string(thrown->what()).starts_with(path + ": cannot "));
        if (now != old_text) {                                     // only the sync of the folder comes after the rename
          CHECK(++after_rename == 1);
          CHECK(std::string(thrown->what()).starts_with(path + ": cannot sync its folder: "));
        }
      }
      CHECK((now == old_text || now == new_text));
      CHECK((thrown || now == new_text));
      CHECK(entries(folder.path()) == 1);
    }
    CHECK(at > 10);                                                // mode, four blocks, sync, close, close, rename, sync, close
    CHECK(after_rename == 1);
  }
}

TEST_CASE("file: bytes are on the disk before the name is, and the name before anything else") {
  TemporaryFolder folder;
  const auto order_of = [](const std::function<void()>& f) {
    Inject watch(Fault::none);
    f();
    return watch.state.order;
  };
  // write, sync, close; read again; rename, sync of the folder
  CHECK(order_of([&] { write_file_atomically(folder / "x", new_text); }) == "wwwwsccrsc");
  CHECK(order_of([&] { write_file_atomically(folder / "x", old_text); }) == "mwsccrsc");
  CHECK(order_of([&] { make_directory(folder / "a/b//c/"); }) == "scscsc");
  CHECK(fs::is_directory(folder / "a/b/c"));
  CHECK(order_of([&] { make_directory(folder / "a/b"); }) == "");
  CHECK(order_of([&] { sync_name(folder / "x"); }) == "sc");
  CHECK(message_of<FileError>([&] { make_directory(folder / "x"); }) == folder / "x" + ": cannot make the directory: Not a directory");
  CHECK(message_of<FileError>([&] { make_directory(folder / "x/y"); }) == folder / "x/y" + ": cannot make the directory: Not a directory");
  for (const int error : {EIO, ENOSPC}) {
    Inject inject(Fault::error, 1, error);
    CHECK(errno_of([&] { make_directory(folder / ("d" + std::to_string(error))); }) == error);
  }
}

TEST_CASE("file: one that grows shorter while it is read is noticed") {
  TemporaryFolder folder;
  const std::string path = folder / "x";
  write_file_atomically(path, "0123456789");
  InputFile file(path);
  fs::resize_file(path, 4);
  char to[10];
  CHECK(message_of<FileError>([&] { file.read(to, 10); }) == path + ": ends at byte 4, had 10 bytes when it was opened");
}

TEST_CASE("file: interrupted and short writes are continued") {
  for (Fault fault : {Fault::once_interrupted, Fault::short_write}) {
    TemporaryFolder folder;
    const std::string path = folder / "x";
    bool fired = true;
    for (int at = 1; fired; ++at) {
      CAPTURE(at);
      fs::remove(path);
      {
        Inject inject(fault, at);
        if (fault == Fault::once_interrupted) {
          try {
            write_file_atomically(path, new_text);
          } catch (const FileError& e) {
            CHECK(e.error_number == EINTR);
            CHECK(inject.state.order[std::size_t(at - 1)] == 'r');   // rename, which never is in truth
          }
        } else {
          write_file_atomically(path, new_text);
        }
        fired = inject.state.fired || at < 8;
      }
      if (fs::exists(path)) CHECK((read_file(path) == new_text));
      CHECK(entries(folder.path()) == (fs::exists(path) ? 1 : 0));
    }
  }
}

TEST_CASE("file: a write that is lost without an error is noticed") {
  TemporaryFolder folder;
  const std::string path = folder / "x";
  int lost = 0;
  bool fired = true;
  for (int at = 1; at < 10; ++at) {
    write_file_atomically(path, old_text);
    std::string text;
    {
      Inject inject(Fault::lost_write, at);
      text = message_of<FileError>([&] { write_file_atomically(path, new_text); });
      fired = inject.state.fired;
    }
    if (!fired) continue;
    ++lost;
    CHECK(text.starts_with(path + ": read back differs from what was written: "));
    CHECK(read_file(path) == old_text);
    CHECK(entries(folder.path()) == 1);
  }
  CHECK(lost == 4);
}

TEST_CASE("file: killed at every system call of a save, the file is the old or the new one") {
  TemporaryFolder folder;
  const std::string path = folder / "x";
  bool killed = true;
  int at = 1;
  for (; killed; ++at) {
    CAPTURE(at);
    write_file_atomically(path, old_text);
    const pid_t child = ::fork();
    if (child == 0) {
      Inject inject(Fault::kill, at);
      write_file_atomically(path, new_text);
      injection = nullptr;
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    killed = WIFSIGNALED(status);
    const std::string now = read_file(path);
    CHECK((now == old_text || now == new_text));
    if (!killed) CHECK((now == new_text));
    for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) {
      const std::string name = entry.path().filename().string();
      if (name != "x") CHECK(name.starts_with(kTemporaryPrefix));
    }
  }
  CHECK(at > 10);
}

TEST_CASE("file: a size limit of the process is an error like any other") {
  TemporaryFolder folder;
  const std::string path = folder / "x";
  write_file_atomically(path, old_text);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100000, 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::_exit(errno_of([&] { write_file_atomically(path, new_text); }) == EFBIG && entries(folder.path()) == 1 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(read_file(path) == old_text);
}
