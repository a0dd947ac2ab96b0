# SPDX-License-Identifier: Apache-2.0
"""Linear, embedding, norms, feed-forward, activations, losses."""
import torch, torch.nn as nn, torch.nn.functional as F
from golden import File

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "sigmoid": torch.sigmoid}


def linear(draw, bias):
    x, layer = draw.normal(2, 3, 5), nn.Linear(5, 7, bias=bias)
    return {"x": x}, layer, lambda: {"y": layer(x)}


def embedding(draw, padding_idx):
    ids = torch.tensor([[3, 10, 0, 3], [1, 3, 0, 0]])      # 3 and 0 thrice
    layer = nn.Embedding(11, 5, padding_idx=padding_idx)
    return {"ids": ids}, layer, lambda: {"y": layer(ids)}


def layer_norm(draw, width, eps=1e-5, affine=True, bias=True):
    x, layer = draw.normal(2, 3, width, scale=3.0), nn.LayerNorm(width, eps=eps, elementwise_affine=affine, bias=bias)
    return {"x": x}, layer, lambda: {"y": layer(x)}


def rms_norm(draw, width, eps):
    x, layer = draw.normal(2, 3, width, scale=3.0), nn.RMSNorm(width, eps=eps)
    return {"x": x}, layer, lambda: {"y": layer(x)}


def feed_forward(draw, activation, gated=False, bias=True):
    x = draw.normal(2, 3, 6)
    layers = nn.ModuleDict({"linear1": nn.Linear(6, 11, bias=bias), "linear2": nn.Linear(11, 6, bias=bias)})
    if gated: layers["linear3"] = nn.Linear(6, 11, bias=bias)
    def call():
        inner = ACTIVATIONS[activation](layers["linear1"](x))
        return {"y": layers["linear2"](inner * layers["linear3"](x) if gated else inner)}
    return {"x": x}, layers, call


FUNCTIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
             "softplus": F.softplus, "elu": F.elu, "leaky_relu": F.leaky_relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
             "log_sigmoid": F.logsigmoid}
REDUCTIONS = {"softmax": torch.softmax, "log_softmax": torch.log_softmax, "logsumexp": torch.logsumexp}


def activation(draw, function):
    half = torch.tensor([1e-3, 0.125, 0.5, 1.0, 2.0, 4.25, 9.5, 30.0]).float().double()
    x = torch.cat([-half.flip(0), half])
    return {"x": x}, {}, lambda: {"y": FUNCTIONS[function](x)}


def reduction(draw, function, dim):
    x = draw.normal(2, 5, 3, scale=4.0)
    return {"x": x}, {}, lambda: {"y": REDUCTIONS[function](x, dim)}


def cross_entropy(draw, reduction, label_smoothing=0.0, ignore_index=-100, smoothing=None, weight=False):
    """`smoothing`: forms PyTorch does not have, written out: mass of the true word and of every other word of K labels."""
    logits, targets = draw.normal(2, 4, 7, scale=2.0), torch.tensor([[3, 6, 1, 0], [2, 2, 0, 0]])
    if smoothing is None:
        options = {"reduction": reduction, "label_smoothing": label_smoothing, "ignore_index": ignore_index}
        weights = {"weight": draw.normal(7).abs()} if weight else {}
        call = lambda: {"loss": F.cross_entropy(logits.flatten(0, 1), targets.flatten(), **options, **weights)}
        return {"logits": logits, "targets": targets} | {k: ("value", v) for k, v in weights.items()}, {}, call
    pad, V, e = ignore_index, 7, label_smoothing
    true, other = {"uniform": (1 - e + e / (V - 1), e / (V - 1)), "others": (1 - e, e / (V - 1)),
                   "others_not_pad": (1 - e, e / (V - 2))}[smoothing]
    q = torch.full((2, 4, V), other).scatter(-1, targets[..., None], true)
    if smoothing != "others": q[..., pad] = 0
    q = q * (targets != pad)[..., None]
    count = (targets != pad).sum() if reduction == "mean" else 1
    return {"logits": logits, "targets": targets}, {}, lambda: {"loss": -(q * torch.log_softmax(logits, -1)).sum() / count}


def soft_cross_entropy(draw, function, reduction):
    x, y = draw.normal(5, 7, scale=2.0), torch.softmax(draw.normal(5, 7, scale=2.0), -1).float().double()
    return {"x": x, "target": y}, {}, lambda: {"loss": F.cross_entropy(x, y, reduction=reduction)}


def pair(draw, function, reduction, **options):
    x, y = draw.normal(3, 5), draw.normal(3, 5)
    if function == "kl_div": x, y = F.log_softmax(x, -1).detach(), F.softmax(y, -1).detach()
    return {"x": x, "target": y}, {}, lambda: {"loss": getattr(F, function)(x, y, reduction=reduction, **options)}


def nll_loss(draw, function, reduction, ignore_index=-100, weight=False):
    x, targets = torch.log_softmax(draw.normal(5, 7, scale=2.0), -1).float().double(), torch.tensor([3, 6, 1, 0, 2])
    weights = {"weight": draw.normal(7).abs()} if weight else {}
    call = lambda: {"loss": F.nll_loss(x, targets, ignore_index=ignore_index, reduction=reduction, **weights)}
    return {"x": x, "targets": targets} | {k: ("value", v) for k, v in weights.items()}, {}, call


def binary_cross_entropy(draw, reduction, weight=False, pos_weight=False):
    x, y = draw.normal(3, 5, scale=3.0), draw.integers(0, 2, 3, 5).double()
    x[0, 0], x[0, 1], y[1, 1] = 40.0, -40.0, 0.25
    w, p = draw.normal(3, 5).abs(), draw.normal(5).abs()
    weights = ({"weight": w} if weight else {}) | ({"pos_weight": p} if pos_weight else {})
    call = lambda: {"loss": F.binary_cross_entropy_with_logits(x, y, reduction=reduction, **weights)}
    return {"x": x} | {k: ("value", v) for k, v in ({"target": y} | weights).items()}, {}, call


def make():
    f = File("linear"); f.case("bias", linear, bias=True); f.case("no_bias", linear, bias=False); f.write()
    f = File("embedding"); f.case("plain", embedding, padding_idx=None); f.case("padding", embedding, padding_idx=0); f.write()
    f = File("layer_norm")
    f.case("plain", layer_norm, width=9); f.case("wide", layer_norm, width=37); f.case("eps", layer_norm, width=9, eps=1e-2)
    f.case("no_bias", layer_norm, width=9, bias=False); f.case("no_affine", layer_norm, width=9, affine=False)
    f.write()
    f = File("rms_norm"); f.case("plain", rms_norm, width=9, eps=1e-5); f.case("wide", rms_norm, width=37, eps=1e-2)
    f.case("eps_none", rms_norm, width=9, eps=None); f.write()
    f = File("feed_forward")
    for name in ACTIVATIONS:
        f.case(name, feed_forward, activation=name)
        f.case(f"{name}_gated", feed_forward, activation=name, gated=True, bias=False)
    f.write()
    f = File("activations")
    for name in FUNCTIONS: f.case(name, activation, function=name)
    for name in REDUCTIONS:
        for dim in (0, 1, 2): f.case(f"{name}_{dim}", reduction, function=name, dim=dim)
    f.write()
    f = File("cross_entropy")
    for r in ("mean", "sum"):
        f.case(r, cross_entropy, reduction=r); f.case(f"ignore_{r}", cross_entropy, reduction=r, ignore_index=0)
        f.case(f"smoothing_{r}", cross_entropy, reduction=r, label_smoothing=0.1)
        f.case(f"smoothing_ignore_{r}", cross_entropy, reduction=r, label_smoothing=0.1, ignore_index=0)
        f.case(f"weight_{r}", cross_entropy, reduction=r, weight=True)
        f.case(f"weight_smoothing_ignore_{r}", cross_entropy, reduction=r, label_smoothing=0.1, ignore_index=0, weight=True)
        for s in ("uniform", "others", "others_not_pad"):
            f.case(f"{s}_{r}", cross_entropy, reduction=r, label_smoothing=0.1, ignore_index=0, smoothing=s)
    f.write()
    f = File("losses")
    for r in ("mean", "sum", "none"):
        f.case(f"mse_{r}", pair, function="mse_loss", reduction=r); f.case(f"l1_{r}", pair, function="l1_loss", reduction=r)
        f.case(f"smooth_{r}", pair, function="smooth_l1_loss", reduction=r, beta=0.5); f.case(f"huber_{r}", pair, function="huber_loss", reduction=r, delta=1.5)
        f.case(f"smooth_0_{r}", pair, function="smooth_l1_loss", reduction=r, beta=0.0); f.case(f"kl_{r}", pair, function="kl_div", reduction=r)
        f.case(f"soft_{r}", soft_cross_entropy, function="soft_cross_entropy", reduction=r)
        f.case(f"nll_{r}", nll_loss, function="nll_loss", reduction=r)
        f.case(f"nll_weight_ignore_{r}", nll_loss, function="nll_loss", reduction=r, ignore_index=0, weight=True)
        f.case(f"bce_{r}", binary_cross_entropy, reduction=r)
        f.case(f"bce_weights_{r}", binary_cross_entropy, reduction=r, weight=True, pos_weight=True)
    f.write()
