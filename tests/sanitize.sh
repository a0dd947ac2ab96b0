#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests under a tool that sees what they do not. The last line says "clean" or what to read.
#   tests/sanitize.sh address [ARGS]    AddressSanitizer (leaks, and freed tensors poisoned) and UndefinedBehaviorSanitizer: all tests
#   tests/sanitize.sh thread [ARGS]     ThreadSanitizer with the pool of std::thread: all tests of the library (most of the
#                                       program's train for minutes); a planted race must be found
#   tests/sanitize.sh valgrind [ARGS]   memcheck: some tests of every layer
# ARGS go to the test program: tests/sanitize.sh address -tc='softmax*'
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$top/examples/install.sh"
install_missing "${HEED_PACKAGES[@]}" "${HEED_TEST_PACKAGES[@]}"
kind=${1:-}
shift || true
log=$top/build-$kind/tests.log
use_memory

case $kind in address | thread | valgrind) mkdir -p "$top/build-$kind" ;; esac
# The kernels are built for one instruction set: for all of them each takes minutes.
flags='-DHWY_COMPILE_ONLY_STATIC'
[ "$(uname -m)" != x86_64 ] || flags+=' -march=haswell -maes'
# make FOLDER OPTIONS...
make() {
  local build=$1
  shift
  set_up "$build" "$top" -Dbuildtype=debug -Doptimization=1 "$@"
  compile "$build"
}
finish() {
  grep -v -E '^(OK, passed|- |$)|^Using configuration' "$log" | tail -n 60 || true
  if [ "$1" -eq 0 ]; then echo "$kind: clean"; else echo "$kind: not clean, see $log"; fi
  exit "$1"
}
# Headers are compiled and a copy is installed by other tests just as well.
without=-tce='house: every header*,an installed copy*'
status=0
case $kind in
  address)
    build=$top/build-address
    make "$build" -Db_sanitize=address,undefined -Db_lundef=false -Dcpp_args="$flags -fno-sanitize-recover=all -fsanitize=float-cast-overflow"
    export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
    "$build/tests/heed-tests" --no-intro=true "$without" "$@" >"$log" 2>&1 || status=$?
    ;;
  thread)
    build=$top/build-thread
    make "$build" -Db_sanitize=thread -Db_lundef=false -Dthreads=std -Dcpp_args="$flags"
    # its shadow memory wants addresses that are not random; a report ends the program at once
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 HEED_THREADS=3
    if setarch -R "$build/tests/planted-race" >"$log" 2>&1 || ! grep -q 'data race' "$log"; then
      echo 'the planted race was not found' | tee -a "$log"
      finish 1
    fi
    # what may take a second or 16 MB does not keep to it here
    without+=',fuzz: 64 KiB*,attack files*'
    setarch -R "$build/tests/heed-tests" --no-intro=true "$without" '-sfe=*/cli/*,*/examples/*' "$@" >"$log" 2>&1 || status=$?
    ;;
  valgrind)
    install_missing valgrind
    build=$top/build
    set_up "$build" "$top"
    compile "$build" tests/heed-tests examples/heed
    check=(valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite)
    some='tensors print*,softmax*,matmul: sizes*,parallel*,file: what is*,save*,attacks*,a value used*,split:*,golden: Linear*,golden: LayerNorm*'
    some+=',scope*,attention: two*,positions*,cache*,search: a beam*,trainer: an update*,corpus*,vocabulary*,tokenizer*,bleu*,options*'
    "${check[@]}" "$build/tests/heed-tests" --no-intro=true "${@:--tc=$some}" >"$log" 2>&1 || status=$?
    if [ $# -eq 0 ] && [ $status -eq 0 ]; then
      work=$(mktemp -d)
      {
        "${check[@]}" "$build/examples/heed" data copy --out "$work/data" --symbols 5 --max-length 4 --train 50 --dev 10 --test 10 &&
          "${check[@]}" "$build/examples/heed" train --data "$work/data" --out "$work/run" --layers 1 --width 8 --heads 2 --feed-forward 8 --steps 3 --quiet &&
          echo '1 2 3' | "${check[@]}" "$build/examples/heed" translate --run "$work/run" --beam 3
      } >>"$log" 2>&1 || status=$?
      rm -rf "$work"
    fi
    ;;
  *) sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
finish $status
