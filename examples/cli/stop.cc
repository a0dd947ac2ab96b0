// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/stop.h"

#include <unistd.h>

#include <csignal>

namespace heed::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t came = 0;
struct sigaction before[3];
int depth = 0;                                     // of StopSignals inside each other
bool caught = false;                               // the handlers are set

void remember(int number) {
  if (came) ::_exit(128 + number);
  came = number;
}

}  // namespace

StopSignals::StopSignals() {
  if (depth++ > 0) return;
  came = 0;
  if (caught) return;
  caught = true;
  for (int i = 0; i < 3; ++i) {
    ::sigaction(kSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler == SIG_IGN) continue;           // nohup
    struct sigaction action {};
    action.sa_handler = remember;
    action.sa_flags = SA_RESTART;
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  if (--depth > 0 || came) return;                 // after a signal the process is about to end, and a second one keeps its exit code
  caught = false;
  for (int i = 0; i < 3; ++i) ::sigaction(kSignals[i], &before[i], nullptr);
}

int stop_signal() { return came; }

const char* signal_name(int number) { return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGHUP"; }

}  // namespace heed::cli
