# SPDX-License-Identifier: Apache-2.0
# Sourced by the run scripts: what they install, and how they build.

# install_missing PACKAGE...    Debian packages; says which
install_missing() {
  command -v dpkg-query >/dev/null || return 0   # not Debian's: Meson says what it does not find
  local package missing=() sudo=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  echo "Installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${sudo[@]}" apt-get update -qq && "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

HEED_PACKAGES=(g++ meson ninja-build pkg-config libhwy-dev libtbb-dev libfmt-dev nlohmann-json3-dev libutf8proc-dev libsentencepiece-dev libcli11-dev)
HEED_TEST_PACKAGES=(doctest-dev librapidcheck-dev libbenchmark-dev)

# set_up FOLDER SOURCE [OPTIONS...]    a build folder, with tests though it was set up without
set_up() {
  if [ ! -f "$1/build.ninja" ]; then meson setup "$@" >/dev/null
  elif [ ! -e "$1/tests" ]; then meson configure "$1" -Dtests=true
  fi
}

# compile FOLDER [TARGET...]
compile() {
  # by default ninja runs more jobs than there are processors; they push each other out of the caches
  ninja -j "$(nproc)" -C "$@" --quiet
}

# Tests sync thousands of small files: in memory, where there is room, that takes no time.
use_memory() {
  local memory=/dev/shm
  if [ -z "${TMPDIR:-}" ] && [ -w $memory ] && [ "$(df --output=avail -k $memory | tail -n 1)" -gt 1000000 ]; then export TMPDIR=$memory; fi
}
