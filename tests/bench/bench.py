# SPDX-License-Identifier: Apache-2.0
"""Heed beside its peers, in turns on the same processors, and beside the machine's own limits; run.sh builds and calls it.

Every program runs alone, in a process of its own. A round runs each side once, every round in another order; ratios are formed within
a round, because a machine's speed drifts. Products and ops go round in turns of milliseconds, a round the median of some. The
machine's limits are measured before and after: where they moved, the run is unsteady.
"""
import argparse, contextlib, itertools, json, os, pathlib, re, shutil, signal, statistics, subprocess, sys, tempfile, time

import report

TOP = pathlib.Path(__file__).resolve().parents[2]
PEERS = TOP / "tests/bench/peers"
SECTIONS = ["products", "ops", "training", "decoding", "memory", "growth"]
TRAINING = ["tiny", "small", "base", "bahdanau", "luong"]
PRECISIONS = ["float32", "bfloat16", "int8"]
DECODING = ["small", "base", "base32k"]
GROWTH = {  # of the case small
    "training: sentences": (("--batch",), [8, 16, 32, 64, 128]),
    "training: width": (("--width",), [64, 128, 256, 512]),
    "training: words of a sentence": (("--source", "--target"), [8, 16, 32, 64, 128]),
    "training: vocabulary": (("--vocabulary",), [1000, 2000, 4000, 8000, 16000, 32000]),
    "training: layers": (("--layers",), [1, 2, 4, 8]),
    "training: threads": (("--threads",), [1, 2, 4]),
    "decoding: sentences": (("--batch",), [1, 2, 4, 8, 16, 32, 64]),
    "decoding: beam": (("--beam",), [1, 2, 4, 8]),
    "decoding: words of a sentence": (("--length",), [12, 24, 48, 96]),
}


TURN, TURNS = 0.01, 5   # seconds of a turn, turns of a round


class Failed(Exception): pass


class Waiting:
    """A program that answers lines, and stands still in between: idle threads of a library would spin on the processors."""

    def __init__(self, command, **environment):
        self.command, self.said = " ".join(map(str, command)), tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, text=True, env=os.environ | environment)

    def __enter__(self):
        self.ready = self.answer()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.said.close()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.said.seek(0)
            raise Failed(f"{self.command}: exit {self.process.wait()}: {(self.said.read().strip() or 'nothing said').splitlines()[-1]}")
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(line)

    def ask(self, line):
        self.process.send_signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError): print(line, file=self.process.stdin, flush=True)
        return self.answer()


def execute(command, **environment):
    out = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment)
    if out.returncode:
        said = (out.stderr.strip() or out.stdout.strip() or "nothing said").splitlines()[-1]
        raise Failed(f"{' '.join(map(str, command))}: exit {out.returncode}: {said}")
    return out.stdout


class Machine:
    """The limits of this run: peak in flop/s, bandwidth of the level that holds a working set."""

    def __init__(self, limits, threads):
        self.limits, self.threads = limits, str(threads)
        self.peak = limits["peak"][limits["isa"]][self.threads] * 1e9

    def bandwidth(self, level, way="read"): return self.limits["bandwidth"][level][self.threads][way] * 1e9

    def level(self, held):  # measured within half of a cache
        levels = self.limits["bandwidth"]
        for name in ("L1", "L2", "L3"):
            if name in levels and held <= 2 * levels[name][self.threads]["bytes_a_thread"] * int(self.threads): return name
        return "DRAM"

    def seconds(self, flop, moved, level): return max(flop / self.peak, moved / self.bandwidth(level))


class Run:
    def __init__(self, options):
        self.o, self.rows, self.notes, self.curves = options, [], [], []
        self.programs = TOP / options.build / "tests" / "bench"
        self.heed = lambda name, *more: [self.programs / f"{name}_bench", "--threads", options.threads, *more]
        self.peers = self.find_peers() if options.peers else {}
        self.broken = set()

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)
            print(f"note: {text}", file=sys.stderr, flush=True)

    # ---- peers
    def find_peers(self):
        found = {}
        for module in ("torch", "jax", "optax", "ctranslate2"):
            try: found[module] = execute([self.o.peers, "-c", f"import {module}; print({module}.__version__)"]).strip().splitlines()[-1]
            except Failed as failed: self.note(f"no {module}: {failed}")
        return found

    def libraries(self):  # of matrix products
        names = {}
        known = execute(["/sbin/ldconfig", "-p"]) if os.path.exists("/sbin/ldconfig") else ""
        for label, file in (("OpenBLAS", "libopenblas.so.0"), ("oneDNN", "libdnnl.so"), ("BLIS", "libblis.so")):
            if match := re.search(rf"=> (\S*{re.escape(file)}\S*)", known): names[label] = match.group(1)
        if "torch" in self.peers:
            path = execute([self.o.peers, "-c", "import os, torch; print(os.path.join(os.path.dirname(torch.__file__), 'lib', 'libtorch_cpu.so'))"]).strip()
            if os.path.exists(path): names["MKL in PyTorch"] = path
        return names

    def training_peers(self, case, seconds, precision="float32"):
        line = re.compile(rf"^{case}\s+params\s+([\d.]+)\s*M\s+step\s+([\d.]+) ms\s+tokens/s\s+(\d+).*peak RSS\s+(\d+) MiB", re.M)

        def call(script, *more):
            command = [self.o.peers, *wrapper, PEERS / script, case, "--seconds", seconds, *more]
            def measure():
                start = time.monotonic()
                match = line.search(execute(command))
                if not match: raise Failed(f"{' '.join(map(str, command))}: no line of {case}")
                step, tokens, memory = (float(match.group(i)) for i in (2, 3, 4))
                return {"tokens": tokens, "peak_mib": memory, "step": step / 1e3, "wall": time.monotonic() - start}
            return measure

        wrapper = [] if precision == "float32" else [PEERS / "torch_bfloat16.py"]
        sides = {}
        if "torch" in self.peers:
            sides["PyTorch"] = call("torch_train.py", "--threads", self.o.threads)
            if precision == "float32": sides["PyTorch compiled"] = call("torch_train.py", "--threads", self.o.threads, "--compile")
        if precision == "float32" and {"jax", "optax"} <= self.peers.keys() and case != "luong":
            sides["JAX"] = call("jax_train.py")
        return {k: v for k, v in sides.items() if k not in self.o.skip}

    # ---- turns and rows
    def turns(self, sides, rounds=None):
        """What every side measured in every round; a peer that fails is left out from then on, Heed must not fail."""
        seen = {name: [] for name in sides if name not in self.broken}
        for r in range(rounds or self.o.rounds):
            order = list(seen)
            for name in order[r % len(order):] + order[:r % len(order)]:
                try: seen[name].append(sides[name]())
                except Failed as failed:
                    if name == "Heed": raise
                    self.note(f"no {name}: {failed}")
                    self.broken.add(name)
                    del seen[name]
        return seen

    def short_turns(self, sides):
        """What every side, a call that returns {"seconds": ...}, took in every round."""
        seen = self.turns(sides, TURNS * self.o.rounds)
        return {name: [statistics.median(x["seconds"] for x in turns[i:i + TURNS]) for i in range(0, len(turns), TURNS)] for name, turns in seen.items()}

    def row(self, section, name, unit, values, limit=None, smaller=False):
        """values: {side: one number a round}; limit: what the machine allows, in the same unit."""
        heed = statistics.median(values["Heed"])
        row = {"section": section, "name": name, "unit": unit, "value": heed, "smaller_is_better": smaller,
               "values": values, "limit": limit, "share_of_limit": limit and (limit / heed if smaller else heed / limit)}
        peers = {k: v for k, v in values.items() if k != "Heed" and len(v) == len(values["Heed"])}
        if peers:
            best = (min if smaller else max)(peers, key=lambda k: statistics.median(peers[k]))
            rounds = zip(values["Heed"], *peers.values())
            ratios = [min(p) / h if smaller else h / max(p) for h, *p in rounds]
            cut = statistics.quantiles(ratios, n=10, method="inclusive") if len(ratios) > 1 else ratios * 9
            row |= {"peer": best, "peer_value": statistics.median(peers[best]), "ratio": statistics.median(ratios), "p10": cut[0], "p90": cut[-1]}
        self.rows.append(row)
        print(report.line(row), flush=True)

    # ---- sections
    def products(self):
        if not (self.programs / "gemm_bench").exists(): return self.note("no products: gemm_bench is not built; it needs Google Benchmark")
        libraries = {label: pathlib.Path(path) for label, path in self.libraries().items() if label not in self.o.skip}
        if not libraries: self.note("no peer for products: neither OpenBLAS, oneDNN nor BLIS is installed, nor a PyTorch given")
        command = [self.programs / "gemm_bench", "--turns", f"--benchmark_min_time={TURN}"]
        with contextlib.ExitStack() as running:
            sides = {"Heed": running.enter_context(Waiting(command))}
            for label, path in libraries.items():
                try: side = running.enter_context(Waiting(command, HEED_BLAS=str(path)))
                except Failed as failed:
                    self.note(f"no {label}: {failed}")
                    continue
                if any(name.endswith(path.name) for name in side.ready): sides[label] = side
                else: self.note(f"no {label}: no sgemm found in {path}")
            names = [name.removesuffix("/heed") for name in sides["Heed"].ready if name.endswith("/heed") and re.match(f"({self.o.products})/", name)]
            if not names: raise Failed(f"no matrix product has {self.o.products} as its whole name; .*{self.o.products}.* matches a part of it")
            for name in names:
                named = {label: f"{name}/{libraries[label].name if label in libraries else 'heed'}" for label in sides}
                costs = sides["Heed"].ask(named["Heed"])
                seen = self.short_turns({label: lambda label=label: sides[label].ask(named[label]) for label in sides})
                level = "DRAM" if "/cold" in name else self.machine.level(costs["bytes"])
                self.row("products", name.replace("/", ", "), "GF/s", {label: [1e-9 * costs["flop"] / s for s in seconds] for label, seconds in seen.items()},
                         1e-9 * costs["flop"] / self.machine.seconds(costs["flop"], costs["bytes"], level))

    def ops(self):
        if not (self.programs / "op_bench").exists(): return self.note("no ops: op_bench is not built; it needs Google Benchmark")
        with contextlib.ExitStack() as running:
            heed = running.enter_context(Waiting([self.programs / "op_bench", "--turns", f"--benchmark_min_time={TURN}"]))
            peer, names = None, heed.ready
            if "torch" in self.peers and "PyTorch" not in self.o.skip:
                try: peer = running.enter_context(Waiting([self.o.peers, PEERS / "torch_ops.py", "--threads", self.o.threads, "--seconds", TURN]))
                except Failed as failed: self.note(f"no PyTorch: {failed}")
            while names:
                # the peer goes its own way and says what comes next
                name = peer.ready if peer and peer.ready in names else names[0]
                costs = heed.ask(name)
                seen = self.short_turns({"Heed": lambda: heed.ask(name)} | ({"PyTorch": lambda: peer.ask("again")} if peer and peer.ready == name else {}))
                float32 = not name.endswith(("bfloat16", "int8"))
                limit = self.machine.seconds(costs["flop"], costs["bytes"], self.machine.level(costs["bytes"]))
                self.row("ops", name, "us", {side: [1e6 * s for s in seconds] for side, seconds in seen.items()}, 1e6 * limit if float32 else None, smaller=True)
                names = [n for n in names if n != name]
                if "PyTorch" in seen: peer.ready = peer.ask("next")

    def training(self):
        for case, precision in itertools.product(self.cases(TRAINING), ["float32", *(p for p in self.o.precisions if p == "bfloat16")]):
            float32 = precision == "float32"
            try:
                seen = self.turns({"Heed": self.train(case, "--seconds", self.o.seconds, "--precision", precision)} | self.training_peers(case, self.o.seconds, precision))
            except Failed as failed:
                if float32: raise
                self.note(f"no training in {precision}: {failed}")
                continue
            first = seen["Heed"][0]
            step_limit = first["flop_a_step"] / self.machine.peak
            self.row("training", case if float32 else f"{case}, {precision}", "tokens/s", {k: [x["tokens"] for x in v] for k, v in seen.items()},
                     first["tokens_a_second"] * first["step_seconds"] / step_limit if float32 else None)

    def decoding(self):
        for case in self.cases(DECODING):
            for beam in (1, 4):
                for batch, precision in itertools.product((1, 32), self.o.precisions):
                    which = [case, "--beam", beam, "--batch", batch, "--precision", precision, "--seconds", self.o.seconds]
                    sides = {"Heed": self.decode(*which)}
                    if "ctranslate2" in self.peers and "CTranslate2" not in self.o.skip:
                        command = [self.o.peers, PEERS / "ct2_decode.py", *which, "--threads", self.o.threads, "--models", self.o.out / "models"]
                        sides["CTranslate2"] = lambda: json.loads(execute(command).splitlines()[-1])
                    seen = self.turns(sides)
                    first = seen["Heed"][0]
                    step = self.machine.seconds(batch * first["flop_a_token"], 4 * first["weights"], self.machine.level(4 * first["weights"]))
                    self.row("decoding", f"{case}, beam {beam}, batch {batch}, {precision}", "tokens/s",
                             {k: [x["tokens_a_second"] for x in v] for k, v in seen.items()}, batch / step if precision == "float32" else None)

    def memory(self):
        for case in self.cases(TRAINING):
            # 3 steps to warm up and 5 that count
            seen = self.turns({"Heed": self.train(case, "--seconds", 0)} | self.training_peers(case, 0))
            self.row("memory", f"{case}, peak", "MiB", {k: [x["peak_mib"] for x in v] for k, v in seen.items()}, smaller=True)
            self.row("memory", f"{case}, a process of 8 steps less their time", "s",
                     {k: [max(1e-3, x["wall"] - 8 * x["step"]) for x in v] for k, v in seen.items()}, smaller=True)
            # the system clears pages at 0.2 to 4.5 ms per 2 MiB, as the host has them ready or not: what it took is measured, not computed
            start = [x["first_step_seconds"] - x["step"] - x["first_step_kernel_seconds"] for x in seen["Heed"]]
            self.row("memory", f"{case}, start to first step, less a step and a thread's share of the time in the kernel", "ms", {"Heed": [1e3 * x for x in start]}, smaller=True)
            steady = self.train(case, "--steps", 50)()
            for name in ("mallocs", "mmaps", "faults"):
                self.row("memory", f"{case}, {name} a steady step", "", {"Heed": [steady[f"{name}_a_step"]]}, smaller=True)

    def growth(self):
        flat = lambda settings: itertools.chain(*settings.items())

        def measured(axis, settings):
            if axis.startswith("training"):
                seen = self.train("small", "--seconds", self.o.seconds, *flat(settings))()
                return {"flop": seen["flop_a_step"], "seconds": seen["step_seconds"], "peak_mib": seen["peak_mib"]}
            seen = self.decode("small", "--seconds", self.o.seconds, *flat({"--beam": 1, "--batch": 32} | settings))()
            words = seen["batch"] * seen["length"]
            return {"flop": words * seen["flop_a_token"], "seconds": words / seen["tokens_a_second"], "peak_mib": seen["peak_mib"]}

        for axis, (options, values) in GROWTH.items():
            rounds = [[measured(axis, dict.fromkeys(options, value)) for value in values] for _ in range(self.o.rounds)]
            points = []
            for value, runs in zip(values, zip(*rounds)):
                seconds = [run["seconds"] for run in runs]
                peak = self.machine.peak * (min(1, value / self.o.threads) if axis.endswith("threads") else 1)
                points.append(runs[0] | {"at": value, "seconds": statistics.median(seconds), "limit": runs[0]["flop"] / peak})
                self.row("growth", f"{axis} {value}", "ms", {"Heed": [1e3 * s for s in seconds]}, 1e3 * points[-1]["limit"], smaller=True)
            self.curves.append({"axis": axis, "points": points})

    def cases(self, all_of_them): return [c for c in all_of_them if not self.o.cases or c in self.o.cases]

    def decode(self, case, *more):
        return lambda: json.loads(execute(self.heed("decode", "--json", case, *more)))

    def train(self, case, *more):
        def measure():
            start = time.monotonic()
            threads = [] if "--threads" in more else ["--threads", self.o.threads]
            x = json.loads(execute([self.programs / "train_bench", case, "--json", "--since", start, *threads, *more]))
            return x | {"wall": time.monotonic() - start, "tokens": x["tokens_a_second"], "step": x["step_seconds"]}
        return measure

    def measure(self):
        limits = [json.loads(execute(self.heed("roofline")))]
        self.machine = Machine(limits[0], self.o.threads)
        print(report.roofline(limits, self.o.threads), flush=True)
        for section in SECTIONS:
            if section in self.o.sections: getattr(self, section)()
        limits.append(json.loads(execute(self.heed("roofline"))))
        isa, n = limits[0]["isa"], str(self.o.threads)
        moved = lambda get: abs(get(limits[1]) / get(limits[0]) - 1)
        peak, dram = moved(lambda x: x["peak"][isa][n]), moved(lambda x: x["bandwidth"]["DRAM"][n]["read"])
        unsteady = peak > 0.05 or dram > 0.15
        if unsteady: self.note(f"unsteady: between begin and end the peak moved by {100 * peak:.0f} %, the bandwidth of DRAM by {100 * dram:.0f} %; not to be quoted")
        model = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown")
        results = {"machine": model, "heed": limits[0]["context"], "threads": self.o.threads, "rounds": self.o.rounds, "seconds": self.o.seconds,
                   "peers": self.peers, "unsteady": unsteady, "load_before": self.o.load, "notes": self.notes, "roofline": limits, "rows": self.rows, "growth": self.curves}
        (self.o.out / "results.json").write_text(json.dumps(results, indent=1))
        (self.o.out / "results.md").write_text(report.markdown(results))
        written = ["results.json", "results.md"]
        for name, svg in (("ratios.svg", report.bars(results)), ("growth.svg", report.growth(self.curves))):
            (self.o.out / name).unlink(missing_ok=True)
            if svg:
                (self.o.out / name).write_text(svg)
                written.append(name)
        print(f"{self.o.out}: {' '.join(written)}")


def options():
    p = argparse.ArgumentParser(prog="run.sh", description="Measures Heed beside its peers, in turns.")
    p.add_argument("--peers", metavar="PYTHON", help="a python that has torch, jax and optax, ctranslate2, or some of them")
    p.add_argument("--skip", action="append", default=[], metavar="PEER", help="leave out a peer, by the name in the table")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=5, help="of one measurement; of products and ops turns are shorter")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--cases", nargs="+", choices=sorted({*TRAINING, *DECODING}), metavar="CASE", help="of training, decoding and memory")
    p.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["float32", "int8"], metavar="NAME", help="of decoding; bfloat16: of training as well")
    p.add_argument("--products", default=".*", metavar="REGEX", help="matrix products by name, 1024x256x256t say")
    p.add_argument("--build", default="build", metavar="DIR")
    p.add_argument("--out", type=pathlib.Path, default=TOP / "build" / "bench", metavar="DIR")
    p.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {' '.join(SECTIONS)}; all if none is named")
    o = p.parse_intermixed_args()
    for section in o.sections:
        if section not in SECTIONS: p.error(f"section {section}: there are {', '.join(SECTIONS)}")
    o.sections = o.sections or SECTIONS
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= o.threads <= len(allowed): p.error(f"--threads {o.threads}: this process may use {len(allowed)} processors")
    if o.rounds < 1: p.error(f"--rounds {o.rounds}: at least 1")
    if o.seconds < 0: p.error(f"--seconds {o.seconds}: not below 0")
    if o.peers and not shutil.which(o.peers): p.error(f"--peers {o.peers}: no such program")
    o.load = os.getloadavg()[0]
    os.sched_setaffinity(0, allowed[:o.threads])
    os.environ.update({name: str(o.threads) for name in ("HEED_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")})
    o.out.mkdir(parents=True, exist_ok=True)
    return o


if __name__ == "__main__":
    try: Run(options()).measure()
    except Failed as failed: sys.exit(f"run.sh: {failed}")
    except KeyboardInterrupt: sys.exit(130)
