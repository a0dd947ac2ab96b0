# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers and cells: PyTorch's, and the two forms of the GRU that papers use, written out."""
import torch, torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from golden import File, lengths_to_allowed

E, N, B, S = 5, 4, 3, 6


def layer(draw, kind, layers=1, bidirectional=False, lengths=None, bias=True, start=True, nonlinearity="tanh"):
    options = {"bias": bias, "bidirectional": bidirectional, "batch_first": True}
    if kind == "rnn": options["nonlinearity"] = nonlinearity
    net = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[kind](E, N, layers, **options)
    rows = layers * (2 if bidirectional else 1)
    inputs = {"x": draw.normal(B, S, E)}
    if start: inputs["h_0"] = draw.normal(rows, B, N)
    if start and kind == "lstm": inputs["c_0"] = draw.normal(rows, B, N)
    state = (inputs["h_0"], inputs["c_0"]) if start and kind == "lstm" else inputs["h_0"] if start else None
    if lengths: inputs["lengths"] = torch.tensor(lengths)
    def call():
        if lengths:
            packed = pack_padded_sequence(inputs["x"], inputs["lengths"], batch_first=True, enforce_sorted=False)
            packed, last = net(packed, state)
            y = pad_packed_sequence(packed, batch_first=True, total_length=S)[0]
        else: y, last = net(inputs["x"], state)
        valid = lengths_to_allowed(inputs["lengths"], S) if lengths else torch.ones(B, S, dtype=torch.bool)
        return {"y": (valid, y)} | ({"h_n": last[0], "c_n": last[1]} if kind == "lstm" else {"h_n": last})
    return inputs, net, call


def cell(draw, kind, bias=True):
    net = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}[kind](E, N, bias=bias)
    inputs = {"x": draw.normal(B, E), "h": draw.normal(B, N)} | ({"c": draw.normal(B, N)} if kind == "lstm" else {})
    def call():
        if kind == "lstm": return dict(zip(("h", "c"), net(inputs["x"], (inputs["h"], inputs["c"]))))
        return {"h": net(inputs["x"], inputs["h"])}
    return inputs, net, call


def gru_of_paper(draw, form):
    """r, z = σ(W x + U h + b);  g = tanh(W_g x + U_g (r ⊙ h) + b_g)
    bahdanau: h' = (1-z) ⊙ h + z ⊙ g;  cho: h' = z ⊙ h + (1-z) ⊙ g
    """
    x, h = draw.normal(B, E), draw.normal(B, N)
    p = {"weight_ih": draw.normal(3 * N, E, scale=E ** -0.5), "weight_hh": draw.normal(3 * N, N, scale=N ** -0.5)}
    p["bias_ih"] = draw.normal(3 * N, scale=0.3)
    def call():
        from_x, from_h = (x @ p["weight_ih"].T + p["bias_ih"]).chunk(3, -1), p["weight_hh"].chunk(3, 0)
        r, z = (torch.sigmoid(from_x[i] + h @ from_h[i].T) for i in (0, 1))
        g = torch.tanh(from_x[2] + (r * h) @ from_h[2].T)
        return {"h": (1 - z) * h + z * g if form == "bahdanau" else z * h + (1 - z) * g}
    return {"x": x, "h": h}, p, call


def make():
    f = File("recurrent")
    for kind in ("rnn", "lstm", "gru"):
        f.case(kind, layer, kind=kind); f.case(f"{kind}_no_bias", layer, kind=kind, bias=False, start=False)
        f.case(f"{kind}_2", layer, kind=kind, layers=2, lengths=[2, 6, 3])
        f.case(f"{kind}_bidirectional", layer, kind=kind, bidirectional=True, lengths=[6, 1, 4])
        f.case(f"{kind}_3_bidirectional", layer, kind=kind, layers=3, bidirectional=True, lengths=[3, 5, 6], start=False)
        f.case(f"{kind}_cell", cell, kind=kind); f.case(f"{kind}_cell_no_bias", cell, kind=kind, bias=False)
    f.case("rnn_relu", layer, kind="rnn", layers=2, nonlinearity="relu")
    for form in ("bahdanau", "cho"): f.case(f"gru_{form}_cell", gru_of_paper, form=form)
    f.write()
