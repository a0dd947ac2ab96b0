# SPDX-License-Identifier: Apache-2.0
"""Training throughput of JAX (XLA on CPU) on the same cases as torch_train.py.

One jitted step with donated arguments: forward, label-smoothed cross-entropy, backward, clipping by
global norm, Adam. Usage: python jax_train.py [--seconds 6] [case ...]
"""
import argparse, functools, math, resource, time
import jax, jax.numpy as jnp, optax
jax.config.update("jax_default_prng_impl", "unsafe_rbg")   # the fast generator

def dense(key, i, o): return {"w": jax.random.normal(key, (i, o)) / math.sqrt(i), "b": jnp.zeros(o)}
def lin(p, x): return x @ p["w"] + p["b"]
def norm(p, x):
    m = x.mean(-1, keepdims=True); v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(v + 1e-5) * p["g"] + p["b"]
def ln(d): return {"g": jnp.ones(d), "b": jnp.zeros(d)}
def drop(key, x, p): return jnp.where(jax.random.bernoulli(key, 1 - p, x.shape), x / (1 - p), 0.0)

def transformer(vocab, d, heads, ff, layers, p=0.1):
    ks = iter(jax.random.split(jax.random.key(0), 1000))
    att = lambda: {n: dense(next(ks), d, d) for n in "qkvo"}
    def layer(cross):
        r = {"self": att(), "n1": ln(d), "f1": dense(next(ks), d, ff), "f2": dense(next(ks), ff, d), "n2": ln(d)}
        if cross: r |= {"cross": att(), "n3": ln(d)}
        return r
    params = {"src": jax.random.normal(next(ks), (vocab, d)) / math.sqrt(d), "tgt": jax.random.normal(next(ks), (vocab, d)) / math.sqrt(d),
              "enc": [layer(False) for _ in range(layers)], "dec": [layer(True) for _ in range(layers)],
              "ne": ln(d), "nd": ln(d), "out": dense(next(ks), d, vocab)}
    pos = jnp.arange(512)[:, None] / 10000 ** (jnp.arange(0, d, 2) / d)
    pe = jnp.stack([jnp.sin(pos), jnp.cos(pos)], -1).reshape(512, d)
    def attend(w, q, m, mask, key):
        B, T, _ = q.shape; S = m.shape[1]; k = d // heads
        Q = lin(w["q"], q).reshape(B, T, heads, k); K = lin(w["k"], m).reshape(B, S, heads, k); V = lin(w["v"], m).reshape(B, S, heads, k)
        s = jnp.einsum("bthk,bshk->bhts", Q, K) / math.sqrt(k)
        if mask is not None: s = s + mask
        a = drop(key, jax.nn.softmax(s), p)
        return lin(w["o"], jnp.einsum("bhts,bshk->bthk", a, V).reshape(B, T, d))
    def apply(P, src, tgt, key):
        ks = iter(jax.random.split(key, 8 * layers + 2))
        causal = jnp.where(jnp.tril(jnp.ones((tgt.shape[1],) * 2, bool)), 0.0, -jnp.inf)
        x = drop(next(ks), P["src"][src] * math.sqrt(d) + pe[: src.shape[1]], p)
        for l in P["enc"]:
            x = norm(l["n1"], x + drop(next(ks), attend(l["self"], x, x, None, next(ks)), p))
            x = norm(l["n2"], x + drop(next(ks), lin(l["f2"], drop(next(ks), jax.nn.relu(lin(l["f1"], x)), p)), p))
        m = norm(P["ne"], x)
        ks = iter(jax.random.split(jax.random.fold_in(key, 1), 8 * layers + 2))
        y = drop(next(ks), P["tgt"][tgt] * math.sqrt(d) + pe[: tgt.shape[1]], p)
        for l in P["dec"]:
            y = norm(l["n1"], y + drop(next(ks), attend(l["self"], y, y, causal, next(ks)), p))
            y = norm(l["n3"], y + drop(next(ks), attend(l["cross"], y, m, None, next(ks)), p))
            y = norm(l["n2"], y + drop(next(ks), lin(l["f2"], drop(next(ks), jax.nn.relu(lin(l["f1"], y)), p)), p))
        return lin(P["out"], norm(P["nd"], y))
    return params, apply

def bahdanau(vocab, e, h):
    ks = iter(jax.random.split(jax.random.key(0), 50))
    gru = lambda i: {"x": dense(next(ks), i, 3 * h), "h": dense(next(ks), h, 3 * h)}
    P = {"se": jax.random.normal(next(ks), (vocab, e)), "te": jax.random.normal(next(ks), (vocab, e)), "f": gru(e), "b": gru(e), "init": dense(next(ks), h, h),
         "U": dense(next(ks), 2 * h, h), "W": dense(next(ks), h, h), "v": jax.random.normal(next(ks), (h,)) / math.sqrt(h), "cell": gru(e + 2 * h),
         "read": dense(next(ks), 3 * h + e, h), "out": dense(next(ks), h, vocab)}
    def cell(xg, hid, w):
        hg = lin(w, hid); xr, xz, xn = jnp.split(xg, 3, -1); hr, hz, hn = jnp.split(hg, 3, -1)
        r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz); n = jnp.tanh(xn + r * hn); return (1 - z) * n + z * hid
    def apply(P, src, tgt, key):
        B = src.shape[0]; zero = jnp.zeros((B, h)); xs = P["se"][src].swapaxes(0, 1)
        def run(w, xs, rev):
            g = lin(w["x"], xs)
            return jax.lax.scan(lambda s, x: (lambda n: (n, n))(cell(x, s, w["h"])), zero, g, reverse=rev)[1]
        H = jnp.concatenate([run(P["f"], xs, False), run(P["b"], xs, True)], -1).swapaxes(0, 1); keys = lin(P["U"], H)
        emb = P["te"][tgt].swapaxes(0, 1); st = jnp.tanh(lin(P["init"], H[:, 0, h:]))
        def step(st, y):
            a = jax.nn.softmax(jnp.tanh(keys + lin(P["W"], st)[:, None]) @ P["v"]); c = jnp.einsum("bs,bsh->bh", a, H)
            st = cell(lin(P["cell"]["x"], jnp.concatenate([y, c], -1)), st, P["cell"]["h"]); return st, jnp.concatenate([st, c, y], -1)
        o = jax.lax.scan(step, st, emb)[1].swapaxes(0, 1)
        return lin(P["out"], jnp.tanh(lin(P["read"], o)))
    return P, apply

CASES = {"tiny": (lambda: transformer(64, 128, 4, 256, 2), 64, 64, 12, 12), "small": (lambda: transformer(4000, 256, 8, 1024, 3), 4000, 64, 16, 16),
         "base": (lambda: transformer(8000, 512, 8, 2048, 6), 8000, 32, 24, 24), "bahdanau": (lambda: bahdanau(4000, 256, 256), 4000, 64, 16, 16)}

def run(name, seconds):
    make, V, B, S, T = CASES[name]; P, apply = make()
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-4, b1=0.9, b2=0.98, eps=1e-9)); st = tx.init(P)
    src = jax.random.randint(jax.random.key(1), (B, S), 0, V); tgt = jax.random.randint(jax.random.key(2), (B, T + 1), 0, V)
    def loss(P, key):
        lp = jax.nn.log_softmax(apply(P, src, tgt[:, :-1], key)); y = tgt[:, 1:]
        return (-(0.9 * jnp.take_along_axis(lp, y[..., None], -1)[..., 0] + 0.1 * lp.mean(-1))).mean()
    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(P, st, key):
        l, g = jax.value_and_grad(loss)(P, key); u, st = tx.update(g, st, P); return optax.apply_updates(P, u), st, l
    t0 = time.perf_counter(); ts = []; key = jax.random.key(3)
    for i in range(3): P, st, l = step(P, st, jax.random.fold_in(key, i)); l.block_until_ready()
    first = time.perf_counter() - t0; t0 = time.perf_counter()
    while time.perf_counter() - t0 < seconds or len(ts) < 5:
        a = time.perf_counter(); P, st, l = step(P, st, jax.random.fold_in(key, len(ts))); l.block_until_ready(); ts.append(time.perf_counter() - a)
    med = sorted(ts)[len(ts) // 2]; n = sum(x.size for x in jax.tree.leaves(P))
    print(f"{name:10s} params {n/1e6:6.2f}M step {med*1e3:8.2f} ms  tokens/s {B*(S+T)/med:10.0f}  first 3 steps {first:.1f} s  peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1024:6.0f} MiB", flush=True)

if __name__ == "__main__":
    p = argparse.ArgumentParser(); p.add_argument("--seconds", type=float, default=6); p.add_argument("cases", nargs="*", default=list(CASES)); a = p.parse_args()
    print("jax", jax.__version__)
    for c in a.cases: run(c, a.seconds)
