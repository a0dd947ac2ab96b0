#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds and runs tests. The last line is "N passed, N failed".
#   tests/run.sh         all but the long ones
#   tests/run.sh fast    those of a minute
#   tests/run.sh kill    trainings killed and their disk broken at every moment
#   tests/run.sh full    all, and for Arm, under the sanitizers, with planted faults, and what fuzzers think of: hours
# Further arguments go to the test program: tests/run.sh -tc='resume*'
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,8s/^# //p' "${BASH_SOURCE[0]}"; exit ;; esac
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$top/examples/install.sh"
install_missing "${HEED_PACKAGES[@]}" "${HEED_TEST_PACKAGES[@]}"

which=() further=()
case ${1:-} in
  fast) shift; which=(-tse=slow) ;;
  kill) shift; which=(--no-skip -ts=kill) ;;
  full) shift; which=(--no-skip); further=(arm.sh 'sanitize.sh address' 'sanitize.sh thread' 'sanitize.sh valgrind' mutate.sh fuzz/run.sh) ;;
esac
[[ ${which[*]-} != *--no-skip* ]] || install_missing strace

build=$top/build
set_up "$build" "$top"
if ! compile "$build"; then
  echo "0 passed, 1 failed"
  exit 1
fi

use_memory
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$build/tests/heed-tests" --no-intro=true "${which[@]}" "$@" >"$log" 2>&1 || status=$?
grep -v -E '^(OK, passed|- |$)|^Using configuration' "$log" | tail -n 60 || true
passed=$(sed -n 's/.*test cases: *[0-9]* | *\([0-9]*\) passed.*/\1/p' "$log" | tail -n 1)
failed=$(sed -n 's/.*test cases: .* passed | *\([0-9]*\) failed.*/\1/p' "$log" | tail -n 1)
if [ -z "$passed" ] || { [ "$status" -ne 0 ] && [ "${failed:-0}" -eq 0 ]; }; then failed=$((${failed:-0} + 1)); fi
for step in "${further[@]}"; do
  if "$top/tests/"$step; then passed=$((${passed:-0} + 1)); else failed=$((${failed:-0} + 1)) status=1; fi
done
echo "${passed:-0} passed, ${failed:-0} failed"
[ "$status" -eq 0 ] && [ "${failed:-0}" -eq 0 ] && [ "${passed:-0}" -gt 0 ]   # a filter that finds nothing shows nothing
