#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run in a build folder of clang: parses every file that is compiled there and writes nothing; warnings are errors.
Each file but the tests is read with what it includes itself: a precompiled header serves those that include all of it anyway."""
import concurrent.futures
import functools
import json
import os
import re
import shlex
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRECOMPILED = [                # the first that fits
    ["tensor/format.h", "tensor/tensor.h", "autograd/ops.h"],
    ["tensor/tensor.h", "autograd/ops.h", "autograd/record.h", "autograd/tape.h"],
    ["tensor/tensor.h", "autograd/ops.h"],
    ["tensor/format.h", "tensor/tensor.h"],
    ["tensor/format.h"],
    ["tensor/tensor.h"],
]


@functools.cache
def includes(file):
    with open(os.path.join(TOP, file)) as text:
        return re.findall(r'^\s*#include "([^"]+)"', text.read(), re.M)


def included(file):
    """All files of the project that a file includes, and they include."""
    seen, waiting = set(), [file]
    while waiting:
        new = [name for name in includes(waiting.pop()) if name not in seen and os.path.exists(os.path.join(TOP, name))]
        seen.update(new)
        waiting += new
    return seen


def flags(unit):
    """Of a unit's command, without what it makes."""
    words = shlex.split(unit["command"])
    for name in ("-o", "-c", "-MQ", "-MF", "-include-pch"):
        if name in words:
            at = words.index(name)
            del words[at:at + 2]
    return [word for word in words if word not in ("-MD", "-fPIC", "-pthread")] + ["-fPIC", "-pthread"]   # alike in all


def read(command):
    return subprocess.run(command, capture_output=True, text=True)


def main():
    with open("compile_commands.json") as file:
        units = json.load(file)
    library = next(flags(unit) for unit in units if unit["file"].endswith("autograd/tape.cc"))
    commands = []
    for number, headers in enumerate(PRECOMPILED):
        with open(f"read-{number}.h", "w") as header:
            header.writelines(f'#include "{name}"\n' for name in headers)
        commands.append(library + ["-fpch-instantiate-templates", "-x", "c++-header", f"read-{number}.h", "-o", f"read-{number}.pch"])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(read, commands))
        commands = []
        for unit in units:
            if "tests/heed-tests.p" in unit["command"]:
                commands.append(shlex.split(unit["command"]) + ["-fsyntax-only"])
                continue
            own = included(os.path.relpath(os.path.join(unit["directory"], unit["file"]), TOP))
            fitting = [n for n, headers in enumerate(PRECOMPILED) if own.issuperset(headers)]
            commands.append(flags(unit) + (["-include-pch", f"read-{fitting[0]}.pch"] if fitting else []) + ["-fsyntax-only", unit["file"]])
        results += pool.map(read, commands)
    for result in results:
        sys.stderr.write(result.stderr)
    sys.exit(any(result.returncode for result in results))


main()
