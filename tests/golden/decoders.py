# SPDX-License-Identifier: Apache-2.0
"""Decoders with PyTorch's GRU cells and additive attention: one cell a step (Bahdanau et al. 2015), and two with attention between
them (conditional GRU: Sennrich et al. 2017, section 2). Without attention the one of Cho et al. 2014, A.1.2, as it is printed."""
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


class Cho(nn.Module):
    def __init__(self):
        super().__init__()
        self.context_proj, self.init = nn.Linear(M, N, bias=False), nn.Linear(N, N, bias=False)
        self.decoder = nn.GRUCell(E + N, N)   # for its parameters: weight_ih = [W | C], weight_hh = U
        self.readout = nn.ModuleDict({"state": nn.Linear(N, N), "embed": nn.Linear(E, N, bias=False), "context": nn.Linear(N, N, bias=False)})

    def forward(self, last, inputs):
        c = torch.tanh(self.context_proj(last))
        s, features = torch.tanh(self.init(c)), []
        W_r, W_z, W = self.decoder.weight_ih[:, :E].chunk(3)
        C_r, C_z, C = self.decoder.weight_ih[:, E:].chunk(3)
        U_r, U_z, U = self.decoder.weight_hh.chunk(3)
        b_r, b_z, b = self.decoder.bias_ih.chunk(3)
        d_r, d_z, d = self.decoder.bias_hh.chunk(3)
        for y in inputs:
            r = torch.sigmoid(y @ W_r.T + s @ U_r.T + c @ C_r.T + b_r + d_r)
            z = torch.sigmoid(y @ W_z.T + s @ U_z.T + c @ C_z.T + b_z + d_z)
            s = z * s + (1 - z) * torch.tanh(y @ W.T + b + r * (s @ U.T + c @ C.T + d))
            t = self.readout["state"](s) + self.readout["embed"](y) + self.readout["context"](c)
            features.append(t.unflatten(-1, (-1, 2)).amax(-1))
        return torch.stack(features)


def cho(draw):
    net, inputs = Cho(), {"last": draw.normal(B, M), "inputs": draw.normal(T, B, E)}
    return inputs, net, lambda: {"features": net(**inputs)}


def make():
    f = File("decoders")
    f.case("bahdanau", decoder, conditional=False)
    f.case("conditional", decoder, conditional=True)
    f.case("cho", cho)
    f.write()
