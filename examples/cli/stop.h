// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM and SIGHUP as a wish to stop soon; a second one ends the process at once.
#pragma once

namespace heed::cli {

// While it lives, signals are wishes. One inside another changes nothing.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
};

int stop_signal();                                 // that came, 0 for none
const char* signal_name(int number);

}  // namespace heed::cli
