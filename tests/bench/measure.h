// SPDX-License-Identifier: Apache-2.0
// What the benchmarks share: the clock, the memory a process asked for and has, medians.
#pragma once
#include <vector>

namespace heed::bench {

double seconds_now();          // of a clock that all processes of the machine share
double processor_seconds();    // of all threads so far
double kernel_seconds();       // the same, in the system
double median(std::vector<double> values);   // the upper one of two; 0 of none

struct Calls {
  long mallocs = 0, mmaps = 0, faults = 0;
};
bool counts_calls();           // of mallocs and mmaps: with glibc, where no sanitizer has functions of its own
Calls calls();                 // so far; mallocs: malloc, calloc, realloc, operator new and their aligned forms, of all threads
void show_mallocs(int count);  // the next `count` calls leave a backtrace on standard error

double peak_memory();          // MiB, most at any time

}  // namespace heed::bench
