#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers with clang and runs each from the seeds in tests/fuzz/corpus and what earlier runs kept. A find is left in
# build-fuzz/finds; add it to the corpus when it is mended.
#   tests/fuzz/run.sh [SECONDS [HARNESS...]]      each for 30 or so many seconds, with AddressSanitizer and UndefinedBehaviorSanitizer
#   tests/fuzz/run.sh --runs N [HARNESS...]       N executions of each on up to 4 KiB, without them several times as fast; then what was
#                                                 kept, with them
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,7s/^# //p' "${BASH_SOURCE[0]}"; exit ;; esac
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$top/examples/install.sh"
install_missing "${HEED_PACKAGES[@]}" clang libclang-rt-14-dev
use_memory
executions='' seconds=30
if [ "${1:-}" = --runs ]; then executions=$2; shift 2
elif [ $# -gt 0 ]; then seconds=$1; shift
fi
[ $# -gt 0 ] || set -- $(ls "$top/tests/fuzz/corpus")

plain=$top/build
set_up "$plain" "$top"
compile "$plain" libheed.a examples/cli/libheed-cli.a
# make FOLDER HARNESSES OPTIONS...
make() {
  local build=$1 harnesses=$2
  shift 2
  CXX=clang++ set_up "$build" "$top" -Dfuzz=true "$@"
  compile "$build" $(printf 'tests/fuzz/fuzz-%s ' $harnesses)
}
make "$top/build-fuzz" "$*" -Dbuildtype=debug -Doptimization=1
[ -z "$executions" ] || make "$top/build-fuzz-fast" "$*" -Doptimization=2

kept=$top/build-fuzz/kept finds=$top/build-fuzz/finds failed=0
mkdir -p "$finds"
# the reader of lines takes 64 KiB at a time: what is freed should not count for long
export ASAN_OPTIONS=quarantine_size_mb=16
# fuzz BUILD HARNESS ARGS...
fuzz() {
  local log=$1/$2.log program=$1/tests/fuzz/fuzz-$2 harness=$2 status=0
  shift 2
  mkdir -p "$kept/$harness"
  "$program" -rss_limit_mb=256 -timeout=2 -max_len=65536 -print_final_stats=1 -artifact_prefix="$finds/$harness-" "$@" \
    "$kept/$harness" "$top/tests/fuzz/corpus/$harness" >"$log" 2>&1 || status=$?
  printf '%-20s %12s executions, peak %s MiB, %s\n' "$harness" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")" "$([ $status -eq 0 ] && echo 'nothing found' || echo "FOUND, see $log")"
  [ $status -eq 0 ] || failed=1
}
for harness in "$@"; do
  if [ -z "$executions" ]; then fuzz "$top/build-fuzz" "$harness" -max_total_time="$seconds"
  else
    fuzz "$top/build-fuzz-fast" "$harness" -runs="$executions" -max_len=4096
    fuzz "$top/build-fuzz" "$harness" -runs=0
  fi
done
exit $failed
