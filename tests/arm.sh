#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the tensor library for 64-bit Arm, with the headers of this machine: what NEON's kernels alone would tell.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$top/examples/install.sh"
install_missing "${HEED_PACKAGES[@]}" g++-aarch64-linux-gnu

build=$top/build-arm
if [ ! -f "$build/build.ninja" ]; then
  mkdir -p "$build"
  cat >"$build/cross.txt" <<END
[binaries]
cpp = 'aarch64-linux-gnu-g++'
ar = 'aarch64-linux-gnu-ar'
pkgconfig = 'pkg-config'
[built-in options]
cpp_args = ['-idirafter', '/usr/include']
[properties]
pkg_config_libdir = '$(pkg-config --variable pc_path pkg-config)'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
  meson setup "$build" "$top" --cross-file "$build/cross.txt" -Dwerror=true -Dtests=false -Doptimization=0 >/dev/null
fi
compile "$build" libheed-tensor.a
