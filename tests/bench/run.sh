#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the benchmarks and measures: the machine's limits, then Heed beside its peers in turns. Writes build/bench/results.{json,md}, *.svg
#   tests/bench/run.sh [--peers PYTHON] [--rounds N] [--seconds S] [--threads N] [products ops training decoding memory growth]
# All options: tests/bench/run.sh --help
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [[ " $* " != *" --help "* ]]; then
  source "$top/examples/install.sh"
  install_missing "${HEED_PACKAGES[@]}" "${HEED_TEST_PACKAGES[@]}"
  build=$top/build
  set_up "$build" "$top"
  compile "$build" tests/bench/{train,decode,roofline,gemm,op}_bench
fi
exec python3 "$top/tests/bench/bench.py" "$@"
