#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plants the faults of tests/mutants.txt one at a time in a copy of this tree, builds it, and runs the tests that should notice.
# A line for each fault, at the end "N mutants, N caught"; fails where one survives, does not compile or no longer applies.
#   tests/mutate.sh [PATTERN...]     only those with such a name or file (as in bash: 'nn/*', '*beam*')
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,5s/^# //p' "${BASH_SOURCE[0]}"; exit ;; esac
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$top/examples/install.sh"
install_missing "${HEED_PACKAGES[@]}" "${HEED_TEST_PACKAGES[@]}"
tree=$top/build-mutants
build=$tree/build log=$tree/build/mutant.log files=$tree/build/files
mkdir -p "$build"
use_memory

# The copy holds what git knows here, changed or not; equal files keep their time, so that little is built again.
git -C "$top" ls-files -co --exclude-standard | while read -r file; do [ ! -e "$top/$file" ] || echo "$file"; done | sort >"$files"
(cd "$tree" && find . -path ./build -prune -o -type f -print | sed 's|^\./||' | sort | comm -13 "$files" - | xargs -r -d '\n' rm --)
while read -r file; do
  cmp -s "$top/$file" "$tree/$file" && continue
  mkdir -p "$(dirname "$tree/$file")"
  cp "$top/$file" "$tree/$file"
done <"$files"
set_up "$build" "$tree"

build() { compile "$build" tests/heed-tests examples/heed >"$log" 2>&1; }
run() { timeout 600 "$build/tests/heed-tests" --no-intro=true -tc="$1" >"$log" 2>&1; }

names=() paths=() tests=() froms=() tos=()
while IFS= read -r line || [ -n "$line" ]; do
  i=$((${#names[@]} - 1))
  case $line in
    '# '*) names+=("${line#\# }") paths+=('') tests+=('') froms+=('') tos+=('') ;;
    '- '* | '-') line=${line#-}; froms[i]+=${froms[i]:+$'\n'}${line# } ;;
    '+ '* | '+') line=${line#+}; tos[i]+=${tos[i]:+$'\n'}${line# } ;;
    *' | '*) paths[i]=${line%% | *} tests[i]=${line#* | } ;;
  esac
done <"$top/tests/mutants.txt"

chosen=()
for i in "${!names[@]}"; do
  wanted=$([ $# -eq 0 ] && echo yes || true)
  for pattern in "$@"; do [[ ${names[i]} != $pattern && ${paths[i]} != $pattern ]] || wanted=yes; done
  [ -z "$wanted" ] || chosen+=("$i")
done
[ ${#chosen[@]} -gt 0 ] || { echo "no fault has such a name or file: $*"; exit 2; }

echo "building, and running the tests without a fault"
build || { tail -n 30 "$log"; exit 1; }
run "$(for i in "${chosen[@]}"; do echo "${tests[i]}"; done | sort -u | paste -sd,)" || { tail -n 30 "$log"; echo "the tests fail without a fault"; exit 1; }

file='' text=''
restore() { [ -z "$file" ] || printf '%s' "$text" >"$tree/$file"; file=''; }
trap restore EXIT
caught=0
for i in "${chosen[@]}"; do
  file=${paths[i]} from=${froms[i]} to=${tos[i]} answer=''
  text=$(cat "$tree/$file" && echo .) text=${text%.}                 # keeps the newlines at the end
  without=${text//"$from"/}
  if [ -z "$from" ] || [ $((${#text} - ${#without})) -ne ${#from} ]; then answer='DOES NOT APPLY'
  else
    printf '%s' "${text/"$from"/"$to"}" >"$tree/$file"
    if ! build; then answer='DOES NOT COMPILE'
    elif run "${tests[i]}"; then answer='NOT CAUGHT'
    else
      by=$(sed -n '/^TEST CASE: */{s///p;q}' "$log")
      answer="caught by ${by:-a test that does not end}" caught=$((caught + 1))
    fi
  fi
  restore
  printf '%-70s %s\n' "${paths[i]}: ${names[i]}" "$answer"
done
echo "${#chosen[@]} mutants, $caught caught"
[ "$caught" -eq ${#chosen[@]} ]
