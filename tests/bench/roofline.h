// SPDX-License-Identifier: Apache-2.0
// What the machine itself can do, measured: the best of many short windows in which all threads work at once.
#pragma once
#include <cstddef>

namespace heed::bench {

double multiply_add_peak(int threads);          // float operations a second of the chosen instruction set, 2 a multiply-add
double clock_rate();                            // Hz: additions that wait for each other

struct Bandwidth { double read, write; };       // bytes a second of all threads
Bandwidth bandwidth(std::size_t bytes, int threads);   // each thread goes through its own so many bytes again and again

struct FirstTouch { double page, huge; };       // seconds: a page of 4 KiB, one of 2 MiB where the system gives them
FirstTouch first_touch();

}  // namespace heed::bench
