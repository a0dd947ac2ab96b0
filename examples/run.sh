#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Heed, trains a small Transformer on English -> French phrases, scores it, translates and draws where it looked.
# Usage: examples/run.sh [options of heed train]; with --resume an interrupted training goes on.
# All of it lies in run-phrases; the model that was there before becomes run-phrases/model.old, an unfinished one model.unfinished.
set -euo pipefail
case " $* " in *' --help '* | *' -h '*) sed -n '3,5s/^# //p' "${BASH_SOURCE[0]}"; exit ;; esac
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$top/examples/install.sh"
install_missing "${HEED_PACKAGES[@]}"

build=$top/build
[ -f "$build/build.ninja" ] || meson setup "$build" "$top" -Dtests=false >/dev/null
heed=$build/examples/heed
if [ -x "$heed" ]; then echo "Building"; else echo "Building (two to four minutes the first time)"; fi
compile "$build" examples/heed

work=$top/run-phrases
data=$work/data
model=$work/model
mkdir -p "$work"
if [ ! -f "$data/task.json" ] || [ -e "$data/.unfinished" ]; then "$heed" data phrases --out "$data"; fi
before=''
resumes=''
case " $* " in *' --resume '*) resumes=yes ;; esac
if [ -d "$model" ] && [ -z "$resumes" ]; then   # a model of minutes: neither a mistyped option nor Ctrl-C may cost it
  before=$model.unfinished
  if grep -qs '"event": "end"' "$model/metrics.jsonl"; then before=$model.old; fi
  if [ -e "$before" ]; then rm -rf "$before.older" && mv "$before" "$before.older"; fi
  mv "$model" "$before"
fi
echo "Training"
status=0
if [ -n "$resumes" ]; then "$heed" train --out "$model" "$@" || status=$?
else "$heed" train --data "$data" --out "$model" "$@" || status=$?
fi
if [ -n "$before" ] && [ -e "$model" ]; then rm -rf "$before.older"
elif [ -n "$before" ]; then   # the options were refused
  mv "$before" "$model"
  [ ! -e "$before.older" ] || mv "$before.older" "$before"
fi
[ $status -eq 0 ] || exit $status
echo
"$heed" evaluate --run "$model" --data "$data"
echo
echo "Translations, each above its reference:"
head -n 5 "$data/test.tsv" | while IFS=$'\t' read -r source target _; do
  printf '  %s\n    %s\n    %s\n' "$source" "$(printf '%s\n' "$source" | "$heed" translate --run "$model" --quiet)" "$target"
done
echo
sentence="the dog does not see the big black house"
if "$heed" attention --run "$model" --source "$sentence" --out "$work/attention.svg"; then   # not without attention
  "$heed" attention --run "$model" --source "$sentence" --out "$work/attention.html"
  echo "Where it looked: $work/attention.svg; every layer and head: $work/attention.html"
fi
