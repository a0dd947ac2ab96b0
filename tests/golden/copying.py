# SPDX-License-Identifier: Apache-2.0
"""CopyNet (Gu et al. 2016, Eq. 5-8): words of the vocabulary and places of the source in one softmax, of states and features as they are given."""
import torch, torch.nn as nn
from golden import File, lengths_to_allowed

V, D, M, B, S, T = 7, 5, 6, 3, 5, 4


class CopyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.out, self.copy = nn.Linear(D, V), nn.ModuleDict({"key_proj": nn.Linear(M, D, bias=False)})

    def forward(self, states, features, words, lengths):
        places = features @ torch.tanh(self.copy["key_proj"](states)).mT                                                   # [B, T, S]
        places = places.masked_fill(~lengths_to_allowed(lengths, S)[:, None], -torch.inf)
        p = torch.softmax(torch.cat([self.out(features), places], -1), -1)
        return torch.cat([p[..., :V], torch.zeros(B, T, S)], -1).scatter_add(-1, words[:, None].expand(B, T, S), p[..., V:])   # [B, T, V + S]


def copynet(draw, scale):
    net, lengths = CopyNet(), torch.tensor([5, 2, 4])
    # words of the vocabulary, V + j one that it lacks and the source has first at place j
    words = torch.tensor([[3, V + 1, 4, V + 1, 3], [V + 0, 2, 0, 0, 0], [5, 5, V + 2, 2, 0]])
    targets = torch.tensor([[V + 1, 3, 6, 2], [V + 0, 0, 2, 4], [5, V + 2, V + 2, 1]])
    inputs = {"states": draw.normal(B, S, M), "features": draw.normal(B, T, D, scale=scale), "words": words, "lengths": lengths, "targets": targets}

    def call():
        p = net(inputs["states"], inputs["features"], words, lengths)
        return {"probabilities": ("value", p), "loss": -p.gather(-1, targets[..., None]).log().sum()}
    return inputs, net, call


def make():
    f = File("copying")
    f.case("near", copynet, scale=1)
    f.case("far", copynet, scale=8)
    f.write()
