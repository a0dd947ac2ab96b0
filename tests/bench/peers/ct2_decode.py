# SPDX-License-Identifier: Apache-2.0
"""One case of decode_bench with CTranslate2, on a model of random weights; prints a line of JSON.

The better of one worker with all threads and of as many workers as threads.
"""
import argparse, json, os, resource, time

import ctranslate2, numpy as np
from ctranslate2.specs import transformer_spec

SIZES = {"small": (256, 1024, 4000, 3, 8), "base": (512, 2048, 8000, 6, 8), "base32k": (512, 2048, 32000, 6, 8)}
LENGTH = 24

def build(path, width, feed_forward, words, layers, heads):
    random = np.random.default_rng(0)
    spec = transformer_spec.TransformerSpec.from_config(layers, heads, pre_norm=False)

    def linear(part, rows, columns):
        part.weight = random.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
        part.bias = np.zeros(rows, np.float32)

    def norm(part):
        part.gamma, part.beta = np.ones(width, np.float32), np.zeros(width, np.float32)

    for side in (spec.encoder, spec.decoder):
        embedding = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embedding.weight = random.standard_normal((words, width), dtype=np.float32) / np.sqrt(width)
        for layer in side.layer:
            linear(layer.self_attention.linear[0], 3 * width, width)
            linear(layer.self_attention.linear[1], width, width)
            norm(layer.self_attention.layer_norm)
            if hasattr(layer, "attention"):
                linear(layer.attention.linear[0], width, width)
                linear(layer.attention.linear[1], 2 * width, width)
                linear(layer.attention.linear[2], width, width)
                norm(layer.attention.layer_norm)
            linear(layer.ffn.linear_0, feed_forward, width)
            linear(layer.ffn.linear_1, width, feed_forward)
            norm(layer.ffn.layer_norm)
    linear(spec.decoder.projection, words, width)
    tokens = ["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(words - 3)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(path)

p = argparse.ArgumentParser()
p.add_argument("case", choices=SIZES)
p.add_argument("--beam", type=int, default=1)
p.add_argument("--batch", type=int, default=32)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--seconds", type=float, default=5)
p.add_argument("--precision", default="float32")
p.add_argument("--models", required=True)
a = p.parse_args()

path = os.path.join(a.models, a.case)
if not os.path.exists(os.path.join(path, "model.bin")):
    os.makedirs(path, exist_ok=True)
    build(path, *SIZES[a.case])

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
