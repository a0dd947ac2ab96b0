# SPDX-License-Identifier: Apache-2.0
"""Ten steps of every optimiser, fifty rates of every schedule, gradient clipping, the bounds of the initialisers."""
import json, math
import torch
from torch.optim import lr_scheduler
from golden import VERSIONS, Draw, save, write_json

STEPS = 10
OPTIMIZERS = {   # name: (class, options); learning rates large enough that every term shows
    "sgd": ("SGD", {"lr": 0.1}), "sgd_momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "sgd_nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd_dampening": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "sgd_decay": ("SGD", {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.2}),
    "adam": ("Adam", {"lr": 0.05}), "adam_vaswani": ("Adam", {"lr": 0.05, "betas": [0.9, 0.98], "eps": 1e-9}),
    "adam_decay": ("Adam", {"lr": 0.05, "weight_decay": 0.2}),
    "adamw": ("AdamW", {"lr": 0.05}), "adamw_decay": ("AdamW", {"lr": 0.05, "weight_decay": 0.2}),
    "adagrad": ("Adagrad", {"lr": 0.1}), "adagrad_decay": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.2}),
    "adagrad_initial": ("Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.1}),
    "adadelta": ("Adadelta", {}), "adadelta_bahdanau": ("Adadelta", {"rho": 0.95, "eps": 1e-6, "weight_decay": 0.2}),
    "rmsprop": ("RMSprop", {"lr": 0.01}),
    "rmsprop_momentum": ("RMSprop", {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.2, "alpha": 0.9}),
}


def optimizers():
    draw = Draw("optimizers"); start, gradients = draw.normal(7), draw.normal(STEPS, 7)
    gradients[:, 3] = 0.0; gradients[4] = 0.0      # a weight that never has a gradient, a step without any
    tensors, metadata = {"parameter": start, "gradients": gradients}, dict(VERSIONS)
    for name, (kind, options) in OPTIMIZERS.items():
        p = start.clone().requires_grad_(); optimizer = getattr(torch.optim, kind)([p], **options); after = []
        for g in gradients: p.grad = g.clone(); optimizer.step(); after.append(p.detach().clone())
        tensors[name] = torch.stack(after); metadata[name] = json.dumps({"optimizer": kind} | options)
    save("optimizers", tensors, metadata)


METRICS = [5.0, 4.0, 4.5, 4.1, 4.0, 3.9997, 3.5, 3.6, 3.7, 3.8, 3.9, 4.0, 4.1, 2.0] + [2.0 + 0.01 * i for i in range(36)]


def schedules():
    """Row k: the rate of step k, counted from 0, base rate 1 (ReduceLROnPlateau: after METRICS[k] was seen)."""
    def rates(make, metrics=None):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0); schedule = make(optimizer); out = []
        for k in range(50):
            if metrics is None: out.append(optimizer.param_groups[0]["lr"]); optimizer.step(); schedule.step()
            else: optimizer.step(); schedule.step(metrics[k]); out.append(optimizer.param_groups[0]["lr"])
        return out
    plateau = lambda **o: rates(lambda x: lr_scheduler.ReduceLROnPlateau(x, **o), METRICS)
    def noam(d, warmup):      # Vaswani et al. 2017, Eq. 3, with s = k + 1
        return [d ** -0.5 * min(s ** -0.5, s * warmup ** -1.5) for s in range(1, 51)]
    def inverse_sqrt(start, peak, warmup):
        return [start + (peak - start) * s / warmup if s < warmup else peak * math.sqrt(warmup / s) for s in range(1, 51)]
    write_json("schedules", {"versions": VERSIONS, "metrics": METRICS,
        "linear_warmup(start_factor=0.1, total=8)": rates(lambda x: lr_scheduler.LinearLR(x, start_factor=0.1, total_iters=8)),
        "linear_decay(start_factor=1, end_factor=0, total=40)":
            rates(lambda x: lr_scheduler.LinearLR(x, start_factor=1.0, end_factor=0.0, total_iters=40)),
        "step(size=7, gamma=0.5)": rates(lambda x: lr_scheduler.StepLR(x, 7, 0.5)),
        "cosine(total=50, minimum=0.05)": rates(lambda x: lr_scheduler.CosineAnnealingLR(x, 50, 0.05)),
        "plateau(factor=0.5, patience=2, threshold=0)": plateau(factor=0.5, patience=2, threshold=0.0),
        "plateau(factor=0.5, patience=2, threshold=0, maximise)": plateau(factor=0.5, patience=2, threshold=0.0, mode="max"),
        "plateau(factor=0.5, patience=2)": plateau(factor=0.5, patience=2),
        "plateau(factor=0.5, patience=2, threshold=0.001, absolute, cooldown=3, minimum=0.1)":
            plateau(factor=0.5, patience=2, threshold=1e-3, threshold_mode="abs", cooldown=3, min_lr=0.1),
        "plateau(factor=0.5, patience=2, maximise)": plateau(factor=0.5, patience=2, mode="max"),
        "noam(width=512, warmup=16)": noam(512, 16), "inverse_sqrt(start=0, peak=0.01, warmup=16)": inverse_sqrt(0.0, 0.01, 16),
        "inverse_sqrt(start=0.001, peak=0.01, warmup=16)": inverse_sqrt(0.001, 0.01, 16)})


def clip():
    draw = Draw("clip"); gradients = [draw.normal(3, 5), draw.normal(7, scale=4.0), draw.normal(1)]
    tensors = {f"gradient.{i}": g for i, g in enumerate(gradients)}
    def clipped(name, clip):
        parameters = [torch.zeros_like(g).requires_grad_() for g in gradients]
        for p, g in zip(parameters, gradients): p.grad = g.clone()
        norm = clip(parameters)
        if norm is not None: tensors[f"{name}.total_norm"] = norm
        tensors.update({f"{name}.{i}": p.grad for i, p in enumerate(parameters)})
    for c in (1.0, 100.0): clipped(f"norm_{c:g}", lambda p: torch.nn.utils.clip_grad_norm_(p, c))      # 100 exceeds the norm
    clipped("value_0.5", lambda p: torch.nn.utils.clip_grad_value_(p, 0.5))
    save("clip", tensors, VERSIONS)


def initialisers():
    """Half widths of the uniform, standard deviations of the normal forms; shape [out, in, ...]."""
    rows = []
    for shape in ([12, 5], [5, 12], [36, 12], [7, 3, 4]):
        fan_in, fan_out = torch.nn.init._calculate_fan_in_and_fan_out(torch.zeros(shape))
        row = {"shape": shape, "fan_in": fan_in, "fan_out": fan_out}
        for gain in (1.0, torch.nn.init.calculate_gain("tanh")):
            std = gain * math.sqrt(2.0 / (fan_in + fan_out))
            row |= {f"xavier(gain={gain:.6g})": {"bound": math.sqrt(3.0) * std, "std": std}}
        for name, a in (("relu", 0), ("leaky_relu", math.sqrt(5)), ("linear", 0)):
            for mode, fan in (("fan_in", fan_in), ("fan_out", fan_out)):
                std = torch.nn.init.calculate_gain(name, a) / math.sqrt(fan)
                row |= {f"kaiming({name}, {mode}{', a=sqrt(5)' if a else ''})": {"bound": math.sqrt(3.0) * std, "std": std}}
        drawn = {"xavier(gain=1)": torch.nn.init.xavier_uniform_(torch.empty(shape)),
                 "kaiming(leaky_relu, fan_in, a=sqrt(5))": torch.nn.init.kaiming_uniform_(torch.empty(shape), a=math.sqrt(5))}
        for key, w in drawn.items(): assert 0.7 * row[key]["bound"] < w.abs().max().item() <= row[key]["bound"]
        rows.append(row)
    gain = torch.nn.init.calculate_gain
    gains = {n: gain(n) for n in ("linear", "sigmoid", "tanh", "relu", "selu")} | {"leaky_relu(0.2)": gain("leaky_relu", 0.2)}
    write_json("init", {"versions": VERSIONS, "gains": gains} | {"x".join(map(str, r["shape"])): r for r in rows})


def make(): optimizers(); schedules(); clip(); initialisers()
