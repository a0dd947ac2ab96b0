#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds and runs all tests. The last line is "N passed, N failed".
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$top/examples/install.sh"
install_missing "${HEED_PACKAGES[@]}" "${HEED_TEST_PACKAGES[@]}"

build=$top/build
if [ ! -f "$build/build.ninja" ]; then meson setup "$build" "$top" >/dev/null
elif [ ! -e "$build/tests" ]; then meson configure "$build" -Dtests=true
fi
ninja -C "$build" --quiet

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$build/tests/heed-tests" --no-intro=true "$@" >"$log" 2>&1 || status=$?
grep -v -E '^(OK, passed|- |$)|^Using configuration' "$log" | tail -n 60 || true
passed=$(sed -n 's/.*test cases: *[0-9]* | *\([0-9]*\) passed.*/\1/p' "$log" | tail -n 1)
failed=$(sed -n 's/.*test cases: .* passed | *\([0-9]*\) failed.*/\1/p' "$log" | tail -n 1)
if [ -z "$passed" ] || { [ "$status" -ne 0 ] && [ "${failed:-0}" -eq 0 ]; }; then failed=$((${failed:-0} + 1)); fi
echo "${passed:-0} passed, ${failed:-0} failed"
[ "$status" -eq 0 ] && [ "${failed:-0}" -eq 0 ]
