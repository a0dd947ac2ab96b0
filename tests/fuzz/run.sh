#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers with clang and runs each for some seconds, from the seeds in tests/fuzz/corpus and what earlier runs kept.
# Usage: tests/fuzz/run.sh [SECONDS [HARNESS...]]      A find is left in build-fuzz/finds; add it to the corpus when it is mended.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$top/examples/install.sh"
install_missing "${HEED_PACKAGES[@]}" clang libclang-rt-14-dev
seconds=${1:-30}
shift || true

plain=$top/build
[ -f "$plain/build.ninja" ] || meson setup "$plain" "$top" >/dev/null
ninja -C "$plain" --quiet libheed.a examples/cli/libheed-cli.a
build=$top/build-fuzz
[ -f "$build/build.ninja" ] || CXX=clang++ meson setup "$build" "$top" -Dfuzz=true -Dbuildtype=debug -Doptimization=1 >/dev/null
[ $# -gt 0 ] || set -- $(ls "$top/tests/fuzz/corpus")
ninja -C "$build" --quiet $(printf 'tests/fuzz/fuzz-%s ' "$@")
mkdir -p "$build/finds"
failed=0
# the reader of lines takes 64 KiB at a time: what is freed should not count for long
export ASAN_OPTIONS=quarantine_size_mb=16
for harness in "$@"; do
  mkdir -p "$build/kept/$harness"
  log=$build/$harness.log
  status=0
  "$build/tests/fuzz/fuzz-$harness" -max_total_time="$seconds" -rss_limit_mb=256 -timeout=2 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$build/finds/$harness-" "$build/kept/$harness" "$top/tests/fuzz/corpus/$harness" >"$log" 2>&1 || status=$?
  printf '%-20s %12s executions, peak %s MiB, %s\n' "$harness" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")" "$([ $status -eq 0 ] && echo 'nothing found' || echo "FOUND, see $log")"
  [ $status -eq 0 ] || failed=1
done
exit $failed
