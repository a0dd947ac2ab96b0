# SPDX-License-Identifier: Apache-2.0
"""Training throughput of PyTorch on the models this project is compared on.

Each case is one full step: forward, label-smoothed cross-entropy, backward,
gradient clipping by global norm, Adam. Prints tokens/s (source + target) and peak RSS.
Usage: python torch_train.py [--threads 2] [--compile] [--dropout 0.1] [case ...]
"""
import argparse, math, resource, time
import torch, torch.nn as nn, torch.nn.functional as F

class TransformerNMT(nn.Module):
    def __init__(s, vocab, d, heads, ff, layers, dropout=0.1, max_len=512):
        super().__init__()
        s.d = d
        s.src = nn.Embedding(vocab, d); s.tgt = nn.Embedding(vocab, d)
        pe = torch.zeros(max_len, d); pos = torch.arange(max_len).unsqueeze(1).float()
        div = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
        pe[:, 0::2] = torch.sin(pos * div); pe[:, 1::2] = torch.cos(pos * div)
        s.register_buffer("pe", pe)
        s.drop = nn.Dropout(dropout)
        s.core = nn.Transformer(d, heads, layers, layers, ff, dropout, batch_first=True)
        s.out = nn.Linear(d, vocab)
    def forward(s, src, tgt):
        m = torch.triu(torch.full((tgt.size(1), tgt.size(1)), float("-inf")), 1)
        a = s.drop(s.src(src) * math.sqrt(s.d) + s.pe[: src.size(1)])
        b = s.drop(s.tgt(tgt) * math.sqrt(s.d) + s.pe[: tgt.size(1)])
        pad = torch.zeros(src.shape, dtype=torch.bool)
        return s.out(s.core(a, b, tgt_mask=m, src_key_padding_mask=pad, memory_key_padding_mask=pad))

class Bahdanau(nn.Module):
    """GRU encoder (bidirectional) + additive attention GRU decoder, teacher forced."""
    def __init__(s, vocab, e, h):
        super().__init__()
        s.se = nn.Embedding(vocab, e); s.te = nn.Embedding(vocab, e)
        s.enc = nn.GRU(e, h, bidirectional=True, batch_first=True)
        s.init = nn.Linear(h, h)
        s.Ua = nn.Linear(2 * h, h, bias=False); s.Wa = nn.Linear(h, h); s.va = nn.Linear(h, 1, bias=False)
        s.cell = nn.GRUCell(e + 2 * h, h)
        s.read = nn.Linear(h + 2 * h + e, h); s.out = nn.Linear(h, vocab)
        s.h = h
    def forward(s, src, tgt):
        H, hn = s.enc(s.se(src)); keys = s.Ua(H)
        st = torch.tanh(s.init(hn[1])); emb = s.te(tgt); outs = []
        for t in range(tgt.size(1)):
            sc = s.va(torch.tanh(keys + s.Wa(st).unsqueeze(1))).squeeze(-1)
            a = torch.softmax(sc, -1)
            c = torch.bmm(a.unsqueeze(1), H).squeeze(1)
            st = s.cell(torch.cat([emb[:, t], c], -1), st)
            outs.append(torch.cat([st, c, emb[:, t]], -1))
        return s.out(torch.tanh(s.read(torch.stack(outs, 1))))

class LuongGeneral(nn.Module):
    """LSTM encoder-decoder, global 'general' attention, input feeding."""
    def __init__(s, vocab, e, h, layers=2):
        super().__init__()
        s.se = nn.Embedding(vocab, e); s.te = nn.Embedding(vocab, e)
        s.enc = nn.LSTM(e, h, layers, batch_first=True)
        s.cells = nn.ModuleList([nn.LSTMCell(e + h if i == 0 else h, h) for i in range(layers)])
        s.Wa = nn.Linear(h, h, bias=False); s.Wc = nn.Linear(2 * h, h, bias=False); s.out = nn.Linear(h, vocab)
        s.h = h
    def forward(s, src, tgt):
        H, (hn, cn) = s.enc(s.se(src)); keys = s.Wa(H); emb = s.te(tgt)
        hs = [hn[i] for i in range(len(s.cells))]; cs = [cn[i] for i in range(len(s.cells))]
        feed = torch.zeros(src.size(0), s.h); outs = []
        for t in range(tgt.size(1)):
            x = torch.cat([emb[:, t], feed], -1)
            for i, cell in enumerate(s.cells):
                hs[i], cs[i] = cell(x, (hs[i], cs[i])); x = hs[i]
            a = torch.softmax(torch.bmm(keys, x.unsqueeze(2)).squeeze(2), -1)
            c = torch.bmm(a.unsqueeze(1), H).squeeze(1)
            feed = torch.tanh(s.Wc(torch.cat([c, x], -1))); outs.append(feed)
        return s.out(torch.stack(outs, 1))

DROPOUT = 0.1
# name: (model, vocab, batch, source length, target length)
CASES = {
    "tiny":     (lambda: TransformerNMT(64, 128, 4, 256, 2, DROPOUT), 64, 64, 12, 12),
    "small":    (lambda: TransformerNMT(4000, 256, 8, 1024, 3, DROPOUT), 4000, 64, 16, 16),
    "base":     (lambda: TransformerNMT(8000, 512, 8, 2048, 6, DROPOUT), 8000, 32, 24, 24),
    "bahdanau": (lambda: Bahdanau(4000, 256, 256), 4000, 64, 16, 16),
    "luong":    (lambda: LuongGeneral(4000, 256, 256), 4000, 64, 16, 16),
}

def run(name, seconds, compile_):
    make, vocab, B, S, T = CASES[name]
    torch.manual_seed(0)
    m = make(); m.train()
    step_model = torch.compile(m) if compile_ else m
    opt = torch.optim.Adam(m.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    crit = nn.CrossEntropyLoss(label_smoothing=0.1)
    src = torch.randint(0, vocab, (B, S)); tgt = torch.randint(0, vocab, (B, T + 1))
    def step():
        opt.zero_grad(set_to_none=True)
        loss = crit(step_model(src, tgt[:, :-1]).reshape(-1, vocab), tgt[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return float(loss.detach())
    for _ in range(3): step()
    ts = []; t0 = time.perf_counter()
    while time.perf_counter() - t0 < seconds or len(ts) < 5:
        a = time.perf_counter(); step(); ts.append(time.perf_counter() - a)
    ts.sort(); med = ts[len(ts) // 2]
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    params = sum(p.numel() for p in m.parameters())
    print(f"{name:10s} params {params/1e6:6.2f}M step {med*1e3:8.2f} ms  tokens/s {B*(S+T)/med:10.0f}  peak RSS {rss:6.0f} MiB", flush=True)

if __name__ == "__main__":
    p = argparse.ArgumentParser(); p.add_argument("--threads", type=int, default=2); p.add_argument("--seconds", type=float, default=5)
    p.add_argument("--compile", action="store_true"); p.add_argument("--dropout", type=float, default=0.1); p.add_argument("cases", nargs="*", default=list(CASES))
    a = p.parse_args(); DROPOUT = a.dropout; torch.set_num_threads(a.threads); torch.set_flush_denormal(True)
    print("torch", torch.__version__, "threads", a.threads, "compile", a.compile)
    for c in a.cases: run(c, a.seconds, a.compile)
