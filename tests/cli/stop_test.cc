// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/stop.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>

using namespace heed::cli;

namespace {

// The status of a process that does f and then ends with 0; it begins with the signals as a program's, not a test's.
template <class F>
int status_of(const F& f) {
  const pid_t process = ::fork();
  if (process == 0) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_DFL);
    f();
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(process, &status, 0) == process);
  return status;
}

}  // namespace

TEST_CASE("stop: a first signal is a wish, a second one ends the process with 128 + its number") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(number);
    const int once = status_of([&] {
      const StopSignals signals;
      ::raise(number);
      ::_exit(stop_signal() == number ? 7 : 8);
    });
    CHECK((WIFEXITED(once) && WEXITSTATUS(once) == 7));
    const int twice = status_of([&] {
      const StopSignals signals;
      ::raise(number), ::raise(number);
    });
    CHECK((WIFEXITED(twice) && WEXITSTATUS(twice) == 128 + number));
    const int on_the_way_out = status_of([&] {
      { const StopSignals signals; ::raise(number); }
      ::raise(number);
    });
    CHECK((WIFEXITED(on_the_way_out) && WEXITSTATUS(on_the_way_out) == 128 + number));
  }
}

TEST_CASE("stop: signals do as before where none came, and inside each other nothing changes") {
  const int before = status_of([] {
    { const StopSignals signals; }
    ::raise(SIGTERM);
  });
  CHECK((WIFSIGNALED(before) && WTERMSIG(before) == SIGTERM));
  const int nested = status_of([] {
    const StopSignals signals;
    { const StopSignals inner; }
    ::raise(SIGTERM);
    ::_exit(stop_signal() == SIGTERM ? 7 : 8);
  });
  CHECK((WIFEXITED(nested) && WEXITSTATUS(nested) == 7));
  const int ignored = status_of([] {
    ::signal(SIGHUP, SIG_IGN);
    const StopSignals signals;
    ::raise(SIGHUP), ::raise(SIGHUP);
    ::_exit(stop_signal() == 0 ? 7 : 8);
  });
  CHECK((WIFEXITED(ignored) && WEXITSTATUS(ignored) == 7));
  const int again = status_of([] {
    { const StopSignals signals; ::raise(SIGTERM); }
    const StopSignals signals;
    if (stop_signal() != 0) ::_exit(8);
    ::raise(SIGINT);
    ::_exit(stop_signal() == SIGINT ? 7 : 8);
  });
  CHECK((WIFEXITED(again) && WEXITSTATUS(again) == 7));
}
