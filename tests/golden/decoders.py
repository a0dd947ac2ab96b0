# SPDX-License-Identifier: Apache-2.0
"""Decoders with PyTorch's GRU cells and additive attention: one cell a step (Bahdanau et al. 2015), and two with attention between
them (conditional GRU: Sennrich et al. 2017, section 2)."""
import torch, torch.nn as nn
from golden import File, lengths_to_allowed

E, N, M, B, S, T = 5, 4, 6, 3, 5, 4


class Decoder(nn.Module):
    def __init__(self, conditional):
        super().__init__()
        self.init = nn.Linear(M, N, bias=False)
        self.attention = nn.ModuleDict({"query_proj": nn.Linear(N, N, bias=False), "key_proj": nn.Linear(M, N, bias=False)})
        self.attention.v = nn.Parameter(torch.zeros(N))
        self.decoder = nn.ModuleDict({"cell1": nn.GRUCell(E, N), "cell2": nn.GRUCell(M, N)}) if conditional else nn.GRUCell(E + M, N)
        self.readout = nn.ModuleDict({"state": nn.Linear(N, N), "embed": nn.Linear(E, N, bias=False), "context": nn.Linear(M, N, bias=False)})
        self.conditional = conditional

    def look(self, query, states, allowed):
        e = torch.tanh(self.attention["query_proj"](query)[:, None] + self.attention["key_proj"](states)) @ self.attention.v   # [B, S]
        weights = torch.softmax(e.masked_fill(~allowed, -torch.inf), -1)
        return weights, (weights[..., None] * states).sum(1)

    def forward(self, states, lengths, inputs):
        allowed = lengths_to_allowed(lengths, S)
        s = torch.tanh(self.init(states.sum(1) / lengths[:, None]))
        features, looked = [], []
        for y in inputs:
            between = self.decoder["cell1"](y, s) if self.conditional else s
            weights, c = self.look(between, states, allowed)
            s = self.decoder["cell2"](c, between) if self.conditional else self.decoder(torch.cat([y, c], -1), s)
            features.append(torch.tanh(self.readout["state"](s) + self.readout["embed"](y) + self.readout["context"](c)))
            looked.append(weights)
        return torch.stack(features), torch.stack(looked, 1)


def decoder(draw, conditional):
    net, lengths = Decoder(conditional), torch.tensor([5, 2, 4])
    inputs = {"states": draw.normal(B, S, M) * lengths_to_allowed(lengths, S)[..., None], "lengths": lengths, "inputs": draw.normal(T, B, E)}
    return inputs, net, lambda: dict(zip(("features", "weights"), net(**inputs)))


def make():
    f = File("decoders")
    f.case("bahdanau", decoder, conditional=False)
    f.case("conditional", decoder, conditional=True)
    f.write()
