#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Heed, trains a small Transformer on English -> French phrases, scores it, translates and draws where it looked.
# Usage: examples/run.sh [options of heed train]     the model that was there before becomes run/phrases.old, an unfinished one run/phrases.unfinished
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$top/examples/install.sh"
install_missing "${HEED_PACKAGES[@]}"

build=$top/build
[ -f "$build/build.ninja" ] || meson setup "$build" "$top" -Dtests=false >/dev/null
echo "Building (two to four minutes the first time)"
# by default ninja runs more jobs than there are processors; they push each other out of the caches
ninja -j "$(nproc)" -C "$build" --quiet examples/heed
heed=$build/examples/heed

work=$top/run
data=$work/phrases-data
model=$work/phrases
mkdir -p "$work"
if [ ! -f "$data/task.json" ] || [ -e "$data/.unfinished" ]; then "$heed" data phrases --out "$data"; fi
if [ -d "$model" ]; then   # a model of minutes: neither a mistyped option nor Ctrl-C may cost it
  before=$model.unfinished
  if grep -qs '"event": "end"' "$model/metrics.jsonl"; then before=$model.old; fi
  rm -rf "$before"
  mv "$model" "$before"
fi
echo "Training"
"$heed" train --data "$data" --out "$model" "$@"
echo
"$heed" evaluate --run "$model" --data "$data"
echo
echo "Translations, each above its reference:"
head -n 5 "$data/test.tsv" | while IFS=$'\t' read -r source target _; do
  printf '  %s\n    %s\n    %s\n' "$source" "$(printf '%s\n' "$source" | "$heed" translate --run "$model" --quiet)" "$target"
done
echo
sentence="the dog does not see the big black house"
"$heed" attention --run "$model" --source "$sentence" --out "$work/attention.svg"
"$heed" attention --run "$model" --source "$sentence" --out "$work/attention.html"
echo "Where it looked: $work/attention.svg; every layer and head: $work/attention.html"
