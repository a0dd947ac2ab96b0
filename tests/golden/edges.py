# SPDX-License-Identifier: Apache-2.0
"""Values and gradients at the edges: zeros, ties, infinities, nothing at all: Heed's, and PyTorch's where they differ.

edges.json, one row a case: inputs, output, gradients of sum(output) as {"shape", "values"} with "inf", "-inf", "nan" as strings
an input of an
integer dtype names it. `output` and `gradients` are what Heed gives; `torch` is there only where PyTorch's differ.
"""
import json
import torch, torch.nn.functional as F
from golden import HERE, VERSIONS, number

inf, nan = float("inf"), float("nan")
rows = {}


def write(t):
    row = {"shape": list(t.shape), "values": number(t.detach().flatten().tolist())}
    if t.is_floating_point(): return row
    return {"dtype": {torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8"}[t.dtype]} | row


def double(x): return x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=torch.float64)


def case(name, call, *inputs, heed=None, weight=None):
    """`weight`: upstream gradient (ones if absent). `heed`: (output, gradients) in place of PyTorch's."""
    inputs = [x if isinstance(x, torch.Tensor) else double(x) for x in inputs]
    leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    y = call(*inputs)
    row = {"inputs": [write(x) for x in inputs]}
    gradients = []
    if y.is_floating_point() and y.requires_grad:
        upstream = torch.ones_like(y) if weight is None else double(weight)
        if weight is not None: row["upstream"] = write(upstream)
        gradients = [write(g) for g in torch.autograd.grad(y, leaves, upstream)]
    row |= {"output": write(y), "gradients": gradients}
    if heed is not None:
        ours = {"output": write(torch.tensor(heed[0], dtype=y.dtype)), "gradients": [write(double(g)) for g in heed[1]]}
        theirs = {k: row.pop(k) for k in ("output", "gradients")}
        row |= ours | ({} if ours == theirs else {"torch": theirs})
    rows[name] = row


def attention(allowed):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def attention_by_definition(allowed):
    return lambda q, k, v: torch.softmax((q @ k.transpose(-2, -1) * q.size(-1) ** -0.5).masked_fill(~allowed, -inf), -1) @ v


def make():
    rows.clear()
    softmax, log_softmax, weight = lambda x: torch.softmax(x, -1), lambda x: torch.log_softmax(x, -1), [[1.0, 2.0, 3.0]] * 2
    case("softmax: row of -inf", softmax, [[-inf, -inf, -inf], [0.0, 1.0, 2.0]], weight=weight)
    case("softmax: some -inf", softmax, [[-inf, 1.0, -inf], [0.0, -inf, 2.0]], weight=weight)
    case("log_softmax: row of -inf", log_softmax, [[-inf, -inf, -inf], [0.0, 1.0, 2.0]], weight=weight)
    case("log_softmax: 1e4, -1e4", lambda x: torch.log_softmax(x, -1)[..., 0], [1e4, -1e4])
    case("softmax: 1e308 apart", lambda x: torch.softmax(x, -1), [[1e308, -1e308, 0.0]], weight=[[1.0, 2.0, 3.0]])
    case("softmax: row of 0 elements", lambda x: torch.softmax(x, -1), torch.zeros(3, 0))
    case("logsumexp: all -inf", lambda x: torch.logsumexp(x, -1), [-inf, -inf], heed=(-inf, [[0.0, 0.0]]))
    case("logsumexp: inf, 1", lambda x: torch.logsumexp(x, -1), [inf, 1.0], heed=(inf, [[1.0, 0.0]]))
    case("logsumexp: large", lambda x: torch.logsumexp(x, -1), [1e4, 1e4, -1e4])
    q, k, v = [[0.5, -1.0]] * 2, [[1.0, 2.0], [-0.5, 0.25], [3.0, -1.0]], [[1.0, -1.0], [2.0, 0.5], [-3.0, 4.0]]
    allowed = torch.tensor([[False, False, False], [True, False, True]])      # the first query sees nothing
    clean = torch.tensor(q, dtype=torch.float64)[1:], torch.tensor(k, dtype=torch.float64), torch.tensor(v, dtype=torch.float64)
    leaves = [x.requires_grad_() for x in clean]; second = attention(allowed[1:])(*leaves)
    g = torch.autograd.grad(second.sum(), leaves)
    zero = [[0.0, 0.0]]
    heed = zero + second.tolist(), [zero + g[0].tolist(), g[1].tolist(), g[2].tolist()]
    case("attention: a query without any key", attention_by_definition(allowed), q, k, v, heed=heed)
    ignored = torch.tensor([0, 0])
    logits, none = [[1.0, 2.0, 3.0], [0.0, 0.5, -1.0]], torch.zeros(0, dtype=torch.int64)
    loss = lambda reduction: lambda x: F.cross_entropy(x, ignored, ignore_index=0, reduction=reduction)
    case("cross_entropy: every target ignored, mean", loss("mean"), logits, heed=(0.0, [[[0.0] * 3] * 2]))
    case("cross_entropy: every target ignored, sum", loss("sum"), logits)
    case("cross_entropy: no rows, mean", lambda x: F.cross_entropy(x, none), torch.zeros(0, 3), heed=(0.0, [torch.zeros(0, 3)]))
    case("abs", torch.abs, [-1.0, -0.0, 0.0, 2.0]); case("relu", F.relu, [-1.0, 0.0, 2.0])
    case("sqrt at 0", torch.sqrt, [0.0, 4.0])
    case("norm at 0", lambda x: torch.linalg.vector_norm(x), [0.0, 0.0, 0.0])
    case("std of constants", lambda x: x.std(), [3.0, 3.0, 3.0]); case("variance of one, unbiased", lambda x: x.var(), [3.0])
    case("variance of one, biased", lambda x: x.var(correction=0), [3.0])
    clamp = lambda x: x.clamp(-1.0, 2.0)
    heed = [-1.0, -1.0, 0.0, 2.0, 2.0], [[0.0, 1.0, 1.0, 1.0, 0.0]]
    case("clamp at a bound", clamp, [-2.0, -1.0, 0.0, 2.0, 3.0], heed=heed)
    case("pow", torch.pow, [0.0, -1.0, 0.0, 2.0, 0.0], [0.0, 0.5, 2.0, 0.0, 1.0])
    case("pow: constant exponent 0", lambda x: x ** 0, [0.0, 2.0])
    case("pow: constant exponent 2", lambda x: x ** 2, [0.0, -3.0])
    case("pow: constant exponent 0.5", lambda x: x ** 0.5, [0.0, -1.0, 4.0])
    norm = lambda x, w, b: F.layer_norm(x, (x.size(-1),), w, b, 1e-5)
    case("layer_norm: constant row", norm, [[2.0, 2.0, 2.0]], [1.0, 2.0, -1.0], [0.5, 0.25, 0.0], weight=[[1.0, -2.0, 0.5]])
    case("layer_norm: width 1", norm, [[2.0], [-3.0]], [1.5], [0.5], weight=[[1.0], [-2.0]])
    rms_norm = lambda x, w: F.rms_norm(x, (3,), w, 1e-5)
    case("rms_norm: row of zeros", rms_norm, [[0.0, 0.0, 0.0]], [1.0, 2.0, -1.0], weight=[[1.0, -2.0, 0.5]])
    case("max of all, ties", lambda x: x.max(), [1.0, 3.0, 3.0, 3.0])
    case("amax over a dim, ties", lambda x: x.amax(-1), [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    case("min of all, ties", lambda x: x.min(), [1.0, 3.0, 1.0])
    case("max over a dim, ties: value", lambda x: x.max(-1).values, [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    case("max over a dim, ties: index", lambda x: x.max(-1).indices, [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    case("argmax, ties", lambda x: x.argmax(-1), [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    case("maximum, ties", torch.maximum, [1.0, 2.0], [1.0, 3.0]); case("minimum, ties", torch.minimum, [1.0, 2.0], [1.0, 3.0])
    value_only = lambda f: lambda *x: f(*x).detach()      # PyTorch's gradients at nan follow no rule
    case("relu of nan", value_only(F.relu), [nan]); case("clamp of nan", value_only(clamp), [nan])
    case("maximum with nan", value_only(torch.maximum), [nan, 0.0], [0.0, nan])
    case("minimum with nan", value_only(torch.minimum), [nan, 0.0], [0.0, nan])
    case("sort, ties: order", lambda x: torch.sort(x, stable=True).indices, [2.0, 1.0, 2.0, 1.0])
    case("max with nan", lambda x: x.max(), [1.0, nan, 3.0]); case("argmax with nan", lambda x: x.argmax(), [1.0, nan, 3.0])
    case("sum with nan", lambda x: x.sum(), [1.0, nan, 3.0])
    case("prod without zeros", lambda x: x.prod(), [2.0, 3.0, 4.0])
    case("prod with one zero", lambda x: x.prod(), [0.0, 2.0, 3.0])
    case("prod with two zeros", lambda x: x.prod(), [0.0, 2.0, 0.0])
    case("atan2(0, 0)", torch.atan2, [0.0, 1.0, 0.0], [0.0, 1.0, -1.0])
    case("where(x > 0, sqrt(x), 0)", lambda x: torch.where(x > 0, torch.sqrt(x), torch.zeros_like(x)), [-1.0, 0.0, 4.0])
    twice = lambda x: torch.where(x > 0, torch.sqrt(torch.where(x > 0, x, torch.ones_like(x))), torch.zeros_like(x))
    case("where, twice", twice, [-1.0, 0.0, 4.0])
    case("sum of nothing", lambda x: x.sum(), torch.zeros(0)); case("mean of nothing", lambda x: x.mean(), torch.zeros(0))
    case("prod of nothing", lambda x: x.prod(), torch.zeros(0))
    case("sum over a dim of 0", lambda x: x.sum(-1), torch.zeros(2, 0))
    case("matmul with inner size 0", lambda a, b: a @ b, torch.zeros(2, 0), torch.zeros(0, 3))
    case("log", torch.log, [0.0, 1.0, -1.0]); case("log1p", torch.log1p, [-1.0, 1e-300, 0.0])
    case("exp", torch.exp, [-inf, -800.0, 0.0, 800.0, inf, nan])
    case("tanh", torch.tanh, [-inf, -800.0, -0.0, 800.0, inf, nan])
    case("sigmoid", torch.sigmoid, [-inf, -800.0, 0.0, 800.0, inf, nan]); case("softplus", F.softplus, [-800.0, 0.0, 800.0])
    case("gelu", F.gelu, [-40.0, 0.0, 40.0])
    case("divide by 0", torch.div, [1.0, -1.0, 0.0], [0.0, 0.0, 0.0])
    bce = lambda x: F.binary_cross_entropy_with_logits(x, torch.tensor([0.0, 1.0, 1.0]), reduction="none")
    case("bce_with_logits, targets 0, 1, 1", bce, [800.0, 800.0, -800.0])
    saturated = [0, 2147483647, -2147483648, 2, -2]
    case("float to i32", lambda x: x.to(torch.int32), [nan, 1e20, -1e20, 2.9, -2.9], heed=(saturated, []))
    u8 = torch.tensor([255, 1], dtype=torch.uint8); case("u8 wraps", lambda x: x + torch.tensor([1, 1], dtype=torch.uint8), u8)
    ones = torch.tensor([1, 1, 1])
    case("scatter_add, the same place thrice", lambda x: torch.zeros(3).scatter_add(0, ones, x), [1.0, 1.0, 1.0])
    case("dropout, p = 1", lambda x: F.dropout(x, 1.0, training=True), [1.0, -2.0, 3.0])
    p = torch.zeros(2, requires_grad=True); p.grad = torch.tensor([inf, 1.0])
    row = {"inputs": [write(p.grad)], "norm": write(torch.nn.utils.clip_grad_norm_([p], 1.0))}
    rows["clip by norm, gradient inf"] = row | {"torch": {"clipped": write(p.grad)}}
    text = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in ({"versions": VERSIONS} | rows).items())
    (HERE / "edges.json").write_text("{\n" + text + "\n}\n")
