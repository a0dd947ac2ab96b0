# SPDX-License-Identifier: Apache-2.0
"""Training speed of Heed beside PyTorch's on the same cores, in turns; prints Markdown.

python compare_train.py [--heed build/tests/bench/train_bench] [--peer ../shared/peers/torch_train.py] [--python PYTHON]
                        [--threads 2] [--seconds 3] [--rounds 5] [CASE ...]

Both programs take `CASE --threads N --seconds S` and print a line `CASE params P M step X ms tokens/s Y peak RSS Z MiB`.
A round runs Heed, PyTorch and PyTorch with --compile once each, every round in another order, each in a process of its own;
ratios are formed within a round, because the machine's speed drifts between rounds. PYTHON is one that has torch.
"""
import argparse, os, re, statistics, subprocess, sys

LINE = re.compile(r"^(\S+)\s+params\s+([\d.]+)\s*M\s+step\s+([\d.]+) ms\s+tokens/s\s+(\d+)\s+peak RSS\s+(\d+) MiB", re.M)


def measure(command, case):
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [m.groups() for m in LINE.finditer(out.stdout) if m.group(1) == case]
    if out.returncode or len(lines) != 1:
        sys.exit(f"{' '.join(command)}: exit {out.returncode}\n{out.stdout}{out.stderr[-2000:]}")
    return {k: float(v) for k, v in zip(("params", "step", "tokens", "memory"), lines[0][1:])}


def spread(values):
    cut = statistics.quantiles(values, n=10, method="inclusive") if len(values) > 1 else values * 9
    return f"{cut[0]:.2f} / **{statistics.median(values):.2f}** / {cut[-1]:.2f}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--heed", default="build/tests/bench/train_bench")
    p.add_argument("--peer", default="../shared/peers/torch_train.py")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--skip", choices=("eager", "compile"))
    p.add_argument("cases", nargs="*", default=["tiny", "small", "base", "bahdanau", "luong"])
    a = p.parse_args()
    tail = ["--threads", str(a.threads), "--seconds", str(a.seconds)]
    commands = {"heed": [a.heed], "eager": [a.python, a.peer], "compile": [a.python, a.peer, "--compile"]}
    commands = {k: v for k, v in commands.items() if k != a.skip}
    peers = [k for k in commands if k != "heed"]
    version = subprocess.run([a.python, "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE, text=True,
                             check=True).stdout.strip()
    model = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown")
    print(f"PyTorch {version}, {a.threads} threads, {a.rounds} rounds of {a.seconds:g} s, {model}, "
          f"load before {os.getloadavg()[0]:.2f}\n")
    if os.getloadavg()[0] > 0.5:
        print("**Not to be quoted: the machine is busy, which stops PyTorch's spinning threads more than Heed's.**\n")
    print("Source + target tokens/s (median); ratios are Heed / PyTorch in one round, p10 / median / p90.\n")
    head = ["case", "parameters", "Heed", *(f"PyTorch {k}" for k in peers), *(f"ratio to {k}" for k in peers),
            "ratio to the better", "memory MiB, Heed / PyTorch"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    for case in a.cases:
        seen = {k: [] for k in commands}
        for r in range(a.rounds):
            order = list(commands)
            for k in order[r % len(order):] + order[:r % len(order)]: seen[k].append(measure(commands[k] + [case] + tail, case))
        tokens = {k: [x["tokens"] for x in v] for k, v in seen.items()}
        memory = [statistics.median(x["memory"] for x in seen[k]) for k in ("heed", peers[0])]
        sizes = {x[0]["params"] for x in seen.values()}
        ratios = [[h / y for h, y in zip(tokens["heed"], tokens[k])] for k in peers]
        better = [min(x) for x in zip(*ratios)]
        cells = [case, " != ".join(f"{s:.2f} M" for s in sorted(sizes)),
                 *(f"{statistics.median(tokens[k]):.0f}" for k in commands), *map(spread, ratios), spread(better),
                 f"{memory[0]:.0f} / {memory[1]:.0f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__": main()
