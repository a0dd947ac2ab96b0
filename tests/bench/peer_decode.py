# SPDX-License-Identifier: Apache-2.0
"""One case of decode_bench with CTranslate2, on the random model that the peers' ct2_decode.py builds; prints a line of JSON.

The better of one worker with all threads and of as many workers as threads.
"""
import argparse, importlib.util, json, os, resource, time

import ctranslate2, numpy as np

SIZES = {"small": (256, 1024, 4000, 3, 8), "base": (512, 2048, 8000, 6, 8), "base32k": (512, 2048, 32000, 6, 8)}
LENGTH = 24

p = argparse.ArgumentParser()
p.add_argument("case", choices=SIZES)
p.add_argument("--beam", type=int, default=1)
p.add_argument("--batch", type=int, default=32)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--seconds", type=float, default=5)
p.add_argument("--precision", default="float32")
p.add_argument("--script", required=True)
p.add_argument("--models", required=True)
a = p.parse_args()

path = os.path.join(a.models, a.case)
if not os.path.exists(os.path.join(path, "model.bin")):
    spec = importlib.util.spec_from_file_location("ct2_decode", a.script)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    os.makedirs(path, exist_ok=True)
    script.build(path, *SIZES[a.case])

words = SIZES[a.case][2] - 3
sentences = [["t%d" % x for x in row] for row in np.random.default_rng(1).integers(0, words, (64 if a.batch > 1 else 4, LENGTH))]
how = dict(beam_size=a.beam, max_batch_size=a.batch, min_decoding_length=LENGTH, max_decoding_length=LENGTH, disable_unk=True)
best = 0
splits = sorted({(1, a.threads), (a.threads, 1)})
for workers, threads in splits:
    translator = ctranslate2.Translator(path, "cpu", compute_type=a.precision, inter_threads=workers, intra_threads=threads)
    translator.translate_batch(sentences[:a.batch], **how)
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < a.seconds / len(splits) or len(times) < 2:
        start = time.perf_counter()
        translator.translate_batch(sentences, **how)
        times.append(time.perf_counter() - start)
    best = max(best, len(sentences) * LENGTH / sorted(times)[len(times) // 2])
print(json.dumps({"tokens_a_second": best, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
