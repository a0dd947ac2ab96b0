# SPDX-License-Identifier: Apache-2.0
"""Does PyTorch read what Heed saved?  python check_exchange.py WEIGHTS CHECK --heads 2 [--norm pre] [--activation gelu]

WEIGHTS is a state dict for torch.nn.Transformer; it must load strictly. CHECK holds `input.source` [B, S, d], `input.target` [B, T, d],
`input.source_lengths`, `input.target_lengths` [B] and the output Heed computed from them, `output.y` [B, T, d]; its rows beyond
the length are not compared. `transformer_state_f64.safetensors transformer_state_check.safetensors`
is such a pair, made by PyTorch itself.
"""
import argparse, sys
import safetensors.torch, torch
from attention import core
from golden import lengths_to_allowed

p = argparse.ArgumentParser(); p.add_argument("weights"); p.add_argument("check")
p.add_argument("--heads", type=int, required=True)
p.add_argument("--norm", choices=("post", "pre"), default="post"); p.add_argument("--activation", default="relu")
a = p.parse_args()
state, check = safetensors.torch.load_file(a.weights), safetensors.torch.load_file(a.check)
N, M = (1 + max(int(k.split(".")[2]) for k in state if k.startswith(f"{side}.layers.")) for side in ("encoder", "decoder"))
F, d = state["encoder.layers.0.linear1.weight"].shape
dtype = state["encoder.norm.weight"].dtype
model = torch.nn.Transformer(d, a.heads, N, M, F, 0.0, a.activation, batch_first=True, norm_first=a.norm == "pre", dtype=dtype)
model.load_state_dict(state, strict=True)
inputs = [check[f"input.{n}"] for n in ("source", "target", "source_lengths", "target_lengths")]
y = core(model, *(x.to(dtype) if x.is_floating_point() else x for x in inputs)).detach().double()
valid = lengths_to_allowed(inputs[3], y.size(1))[..., None]
error = ((y - check["output.y"].double()).abs() * valid).max().item()
bound = 1e-5 if dtype == torch.float32 else 1e-10
print(f"{len(state)} tensors, {N}+{M} layers, width {d}, {dtype}: largest difference {error:.3g}, allowed {bound:g}")
sys.exit(0 if error <= bound else 1)
