# SPDX-License-Identifier: Apache-2.0
"""The operations of op_bench with PyTorch, by the same names, in turns with others.

Writes the name of an operation as a line of JSON; measures it and writes {"seconds": of one call} for each line "again", and
goes on to the next for "next"; null after the last. A name that this PyTorch has nothing for is left out.
"""
import argparse, json, sys, time, warnings

import torch, torch.nn as nn, torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--threads", type=int, default=2)
p.add_argument("--seconds", type=float, default=0.01, help="of a turn")
a = p.parse_args()
torch.set_num_threads(a.threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)
warnings.simplefilter("ignore")   # that a way to quantise will go some day


def say(x): print(json.dumps(x), flush=True)


def measure(name, run):
    try:
        for _ in range(3): run()
    except (AttributeError, ImportError, NotImplementedError, RuntimeError) as error:
        print(f"{name}: {error}".splitlines()[0], file=sys.stderr)
        return
    say(name)
    while sys.stdin.readline() == "again\n":
        for _ in range(2): run()
        times, begin = [], time.perf_counter()
        while time.perf_counter() - begin < a.seconds or not times:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        say({"seconds": sorted(times)[len(times) // 2]})


def recorded(name, inputs, f, back):
    """f(*inputs) remembered by autograd, alone or played back from dy = 1; modules give their parameters as inputs too."""
    leaves = [x.requires_grad_() for x in inputs]
    dy = torch.ones_like(f())

    def run():
        for x in leaves: x.grad = None
        y = f()
        if back: y.backward(dy)
    measure(name + (" and back" if back else ""), run)


def quantised(outputs, inputs, x):
    """Weights rounded to int8 beforehand, x at every call."""
    made = []

    def run():
        if not made: made.append(torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(inputs, outputs, bias=False)), {nn.Linear}, dtype=torch.qint8))
        return made[0](x)
    return run


def both(name, inputs, f):
    recorded(name, inputs, f, False)
    recorded(name, inputs, f, True)


targets = torch.randint(0, 4000, (1024,))
logits = torch.randn(1024, 4000)
recorded("cross-entropy 1024x4000", [logits], lambda: F.cross_entropy(logits, targets, label_smoothing=0.1), True)
teacher = torch.softmax(torch.randn(1024, 4000), -1)
recorded("cross-entropy 1024x4000 of probabilities", [logits], lambda: F.cross_entropy(logits, teacher), True)
x, w, b = torch.randn(1024, 256), torch.randn(4000, 256) * 0.05, torch.randn(4000)
recorded("linear and cross-entropy 1024x4000x256", [x, w, b], lambda: F.cross_entropy(F.linear(x, w, b), targets, label_smoothing=0.1, reduction="sum"), True)

rows, residual, weight, bias = torch.randn(1024, 256), torch.randn(1024, 256), torch.randn(256), torch.randn(256)
both("dropout 1024x256", [rows], lambda: F.dropout(rows, 0.1))
both("layer norm 1024x256", [rows, weight, bias], lambda: F.layer_norm(rows, (256,), weight, bias))
both("add, dropout, layer norm 1024x256", [rows, residual, weight, bias], lambda: F.layer_norm(residual + F.dropout(rows, 0.1), (256,), weight, bias))
scores = torch.randn(512, 16, 16)
both("softmax 512x16x16", [scores], lambda: torch.softmax(scores, -1))
table, ids = torch.randn(4000, 256), torch.randint(0, 4000, (64, 16))
recorded("embedding 1024 of 4000x256", [table], lambda: F.embedding(ids, table) * 16, True)
plain = torch.randn(1024, 256)
for name, f in ("exp", torch.exp), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("gelu", F.gelu): measure(f"{name} 1024x256", lambda: f(plain))

q, k, v = (torch.randn(64, 8, 16, 32) for _ in range(3))
both("attention 64x8 of 16x16x32, dropout", [q, k, v], lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1))
Q, K, V = (torch.randn(4, 8, 512, 64) for _ in range(3))
both("attention 4x8 of 512x512x64, causal", [Q, K, V], lambda: F.scaled_dot_product_attention(Q, K, V, is_causal=True))
Q, K, V = (torch.randn(1, 8, 2048, 64) for _ in range(3))
both("attention 1x8 of 2048x2048x64", [Q, K, V], lambda: F.scaled_dot_product_attention(Q, K, V))
bias = torch.randn(8, 16, 16)
both("attention 64x8 of 16x16x32, bias", [q, k, v, bias], lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias))
Q, K, V, bias = torch.randn(4, 8, 512, 64), torch.randn(4, 8, 512, 64), torch.randn(4, 8, 512, 64), torch.randn(8, 512, 512)
both("attention 4x8 of 512x512x64, bias", [Q, K, V, bias], lambda: F.scaled_dot_product_attention(Q, K, V, attn_mask=bias))
K, V = torch.randn(4, 2, 512, 64), torch.randn(4, 2, 512, 64)
both("attention 4x8 of 512x512x64, 2 heads of keys", [Q, K, V], lambda: F.scaled_dot_product_attention(Q, K, V, enable_gqa=True))
angles = torch.arange(16)[:, None] * 10000.0 ** (-torch.arange(0, 32, 2) / 32)
cosines, sines = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()
both("rotary 64x8 of 16x32", [q], lambda: q * cosines + torch.cat((-q[..., 16:], q[..., :16]), -1) * sines)
query, keys, va, memory = torch.randn(64, 1, 256), torch.randn(64, 16, 256), torch.randn(256), torch.randn(64, 16, 512)
both("additive attention step 64x16x256", [query, keys, va, memory], lambda: torch.bmm(torch.softmax((torch.tanh(keys + query) @ va), -1).unsqueeze(1), memory))

cell, inputs, state = nn.GRUCell(256, 256), torch.randn(64, 256), torch.randn(64, 256)
both("GRU cell 64x256", [inputs, state, *cell.parameters()], lambda: cell(inputs, state))
gru, lstm = nn.GRU(256, 256, batch_first=True), nn.LSTM(512, 512, batch_first=True)
words, wide = torch.randn(64, 16, 256), torch.randn(64, 16, 512)
both("GRU layer 64x16x256", [words, *gru.parameters()], lambda: gru(words)[0])
both("LSTM layer 64x16x512", [wide, *lstm.parameters()], lambda: lstm(wide)[0])

parameter = nn.Parameter(torch.randn(2048, 4096))
parameter.grad = torch.randn(2048, 4096)
adam = torch.optim.Adam([parameter], fused=True)
measure("clip and Adam 8.4 M", lambda: (nn.utils.clip_grad_norm_([parameter], 1.0), adam.step()))

a0, a1, column, turned = torch.randn(1024, 256), torch.randn(1024, 256), torch.randn(1024, 1), torch.randn(256, 1024)
mask = torch.rand(1024, 256) < 0.3
both("add column 1024x256", [a0, column], lambda: a0 + column)
threes, three = torch.randn(100000, 3), torch.randn(3)
both("add row 100000x3", [threes, three], lambda: threes + three)
both("scale flipped 1024x256", [a0], lambda: a0.flip(1) * 2)
both("add transposed 1024x256", [a0, turned], lambda: a0 + turned.T)
both("where 1024x256", [a0, a1], lambda: torch.where(mask, a0, a1))
both("sum 256x1024 over 0", [turned], lambda: turned.sum(0))
both("sum transposed 256x1024 over 1", [turned], lambda: turned.T.sum(1))
middle, lines, wide_lines = torch.randn(64, 16, 256), torch.randn(256, 1000), torch.randn(128, 32000)
both("max 1024x256 over 1", [a0], lambda: a0.amax(1))
pairs = torch.randn(2048, 256, 2)
both("max 2048x256x2 over 2", [pairs], lambda: pairs.amax(2))
both("softmax 64x16x256 over 1", [middle], lambda: torch.softmax(middle, 1))
both("cumsum 1024x256 over 1", [a0], lambda: a0.cumsum(1))
both("standard deviation 1024x256 over 1", [a0], lambda: a0.std(1))
tile = torch.randn(256, 256)
both("repeat 256x256 4x", [tile], lambda: tile.repeat(4, 1))
both("sort 256x1000", [lines], lambda: torch.sort(lines, stable=True).values)
both("topk 10 of 128x32000", [wide_lines], lambda: torch.topk(wide_lines, 10).values)
chosen, columns, tall = torch.randint(0, 4000, (1024,)), torch.randn(256, 4000), torch.randn(4000, 256)
both("index_select 1024 of 256x4000 over 1", [columns], lambda: columns.index_select(1, chosen))
places = chosen.unsqueeze(1).expand(1024, 256)
both("scatter_add 1024x256 to 4000x256 over 0", [tall, a0], lambda: tall.scatter_add(0, places, a0))
left, right = torch.randn(4096, 4, 4), torch.randn(4096, 4, 4)
both("products 4096 of 4x4x4", [left, right], lambda: left @ right)
w1, bias1 = torch.randn(1, 256), torch.randn(1)
both("linear 1024x1x256", [a0, w1, bias1], lambda: F.linear(a0, w1, bias1))
pictures, w10, b10 = torch.randn(128, 784), torch.randn(10, 784), torch.randn(10)
both("linear 128x10x784", [pictures, w10, b10], lambda: F.linear(pictures, w10, b10))
long1, long2 = torch.randn(100000), torch.randn(100000)
both("product of vectors of 100000", [long1, long2], lambda: long1 @ long2)
short, eight = torch.randn(100000, 8), torch.randint(0, 8, (100000,))
both("cross-entropy 100000x8", [short], lambda: F.cross_entropy(short, eight))
teacher8 = torch.softmax(torch.randn(100000, 8), 1)
both("cross-entropy 100000x8 of probabilities", [short], lambda: F.cross_entropy(short, teacher8))
labels = torch.randint(0, 256, (1024,))
both("negative log-likelihood 1024x256", [a0], lambda: F.nll_loss(a0, labels))
chances = torch.rand(256, 4000)
measure("multinomial 16 of 256x4000, with replacement", lambda: torch.multinomial(chances, 16, True))
measure("multinomial 16 of 256x4000", lambda: torch.multinomial(chances, 16))
square = torch.randn(1024, 1024)
counts, b0, b1 = torch.randint(0, 100, (1024, 256)), torch.randn(1024, 256), torch.randn(1024, 256)
measure("less 1024x256", lambda: b0 < b1)
measure("add i64 1024x256", lambda: counts + counts)
measure("full 1024x1024", lambda: torch.full((1024, 1024), 0.5))
measure("copy transposed 1024x1024", lambda: square.T.contiguous())
measure("f32 to bfloat16, 1 M", lambda: square.to(torch.bfloat16))
measure("randint, 1 M", lambda: torch.randint(0, 100, (1024, 1024)))
measure("permutation, 100 k", lambda: torch.randperm(100000))

with torch.no_grad():
    for m, n, inner in (1024, 1024, 256), (768, 2048, 512), (128, 4000, 256), (4, 4000, 256):
        name, layer, x = f"linear {m}x{n}x{inner}", nn.Linear(inner, n, bias=False), torch.randn(m, inner)
        low, x16 = layer.to(torch.bfloat16), x.to(torch.bfloat16)
        measure(name + ", bfloat16", lambda: low(x16))
        measure(name + ", int8", quantised(n, inner, x))

say(None)
