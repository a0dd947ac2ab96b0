# SPDX-License-Identifier: Apache-2.0
"""Attention and the Transformer's layers. Masks here say what is allowed; PyTorch's padding masks what is forbidden."""
import math
import torch, torch.nn as nn, torch.nn.functional as F, safetensors.torch
from golden import HERE, VERSIONS, Draw, File, causal, lengths_to_allowed, save


def scaled_dot_product(draw, T, S, is_causal=False, lengths=None, mask=False, scale=None, bias=None):
    q, k, v = draw.normal(2, 3, T, 4), draw.normal(2, 3, S, 4), draw.normal(2, 3, S, 5)
    inputs, allowed = {"q": q, "k": k, "v": v}, torch.ones(2, 1, T, S, dtype=torch.bool)
    if is_causal: allowed = allowed & causal(T)
    if lengths:
        inputs["lengths"] = torch.tensor(lengths)
        allowed = allowed & lengths_to_allowed(inputs["lengths"], S)[:, None, None, :]
    if mask:
        inputs["mask"] = draw.integers(0, 2, 2, T, S).bool() | (torch.arange(S) == 1)      # no row without any key
        allowed = allowed & inputs["mask"][:, None]
    if bias: inputs["bias"] = draw.normal(*bias)
    def call():
        added = inputs["bias"] if bias else torch.zeros(())
        scores = (q @ k.transpose(-2, -1) * (4 ** -0.5 if scale is None else scale) + added).masked_fill(~allowed, float("-inf"))
        float_mask = torch.zeros(allowed.shape).masked_fill(~allowed, float("-inf")) + added
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=float_mask if bias else allowed, scale=scale)
        return {"context": context, "weights": ("value", torch.softmax(scores, -1))}
    return inputs, {}, call


def multi_head(draw, T, S=None, bias=True, is_causal=False, lengths=None, mask=False, key_width=None):
    """S = None: self-attention. Lengths belong to the keys; in self-attention queries beyond them are not compared."""
    width, heads = 12, 3
    layer = nn.MultiheadAttention(width, heads, bias=bias, kdim=key_width, vdim=key_width, batch_first=True)
    inputs = {"query": draw.normal(2, T, width)}
    if S: inputs["memory"] = draw.normal(2, S, key_width or width)
    query = inputs["query"]
    key = value = inputs.get("memory", query)
    forbidden, padding, valid = torch.zeros(2 * heads, T, key.size(1), dtype=torch.bool), None, None
    if is_causal: forbidden = forbidden | ~causal(T)
    if mask:
        inputs["mask"] = draw.integers(0, 2, 2, T, key.size(1)).bool() | (torch.arange(key.size(1)) == 1)
        forbidden = forbidden | ~inputs["mask"].repeat_interleave(heads, 0)
    if lengths:
        inputs["lengths"] = torch.tensor(lengths)
        padding = ~lengths_to_allowed(inputs["lengths"], key.size(1))
        valid = None if S else ~padding
    def call():
        context, weights = layer(query, key, value, padding, attn_mask=forbidden, average_attn_weights=False)
        average = layer(query, key, value, padding, attn_mask=forbidden)[1]
        if valid is not None: weights, average = weights * valid[:, None, :, None], average * valid[:, :, None]
        if valid is not None: context = (valid, context)
        return {"context": context, "weights": ("value", weights), "weights_average": ("value", average)}
    return inputs, layer, call


def self_masked(x, is_causal, lengths):
    """Inputs, what positions [2, 1, T, T] may see, the rows that count (None: all)."""
    T = x.size(1)
    inputs, allowed, valid = {"x": x}, torch.ones(2, 1, T, T, dtype=torch.bool), None
    if is_causal: allowed = allowed & causal(T)
    if lengths:
        inputs["lengths"] = torch.tensor(lengths)
        valid = lengths_to_allowed(inputs["lengths"], T)
        allowed = allowed & valid[:, None, None, :]
    return inputs, allowed, valid


def relative(draw, kind, T=6, is_causal=False, lengths=None, clip=2, buckets=32, farthest=128, shared=False, norm="none", window=None):
    """Self-attention whose queries know how far their keys are: RoFormer's and Llama's rotation, ALiBi, T5's buckets, Shaw's tables.
    Queries and keys normalised before; positions farther than `window` forbidden."""
    width, heads = 12, 3
    head_width = width // heads
    x = draw.normal(2, T, width)
    parameters = {"in_proj_weight": draw.normal(3 * width, width, scale=width ** -0.5), "in_proj_bias": draw.normal(3 * width, scale=0.3),
                  "out_proj.weight": draw.normal(width, width, scale=width ** -0.5), "out_proj.bias": draw.normal(width, scale=0.3)}
    inputs, allowed, valid = self_masked(x, is_causal, lengths)
    if kind == "t5": parameters["relative_attention_bias.weight"] = draw.normal(buckets, heads)
    if kind == "shaw":
        for name in ("rel_k.weight", "rel_v.weight"): parameters[name] = draw.normal(*([] if shared else [heads]), 2 * clip + 1, head_width)
    if norm == "l2": parameters["g"] = draw.normal(scale=2.0)
    if norm in ("rms", "layer"):
        for name in ("q_norm.weight", "k_norm.weight"): parameters[name] = draw.normal(head_width)
    if norm == "layer":
        for name in ("q_norm.bias", "k_norm.bias"): parameters[name] = draw.normal(head_width)
    place = torch.arange(T)
    if window is not None: allowed = allowed & ((place[None, :] - place[:, None]).abs() <= window)
    distance = place[None, :] - place[:, None]                                                         # j - i

    def slopes(n):                                          # Press et al., their get_slopes
        power = lambda n: [(2 ** (-2 ** -(math.log2(n) - 3))) ** (i + 1) for i in range(n)]
        if math.log2(n).is_integer(): return power(n)
        nearest = 2 ** math.floor(math.log2(n))
        return power(nearest) + slopes(2 * nearest)[0::2][:n - nearest]

    def bucket(relative_position, bidirectional):           # Raffel et al., as in Hugging Face's modeling_t5.py, in double
        result, n = torch.zeros_like(relative_position), buckets
        if bidirectional:
            n //= 2
            result = result + (relative_position > 0).long() * n
            relative_position = torch.abs(relative_position)
        else: relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))
        exact = n // 2
        large = exact + (torch.log(relative_position.double().clamp(min=1) / exact) / math.log(farthest / exact) * (n - exact) + 1e-9).long()
        return result + torch.where(relative_position < exact, relative_position, torch.min(large, torch.full_like(large, n - 1)))

    def turn(x):
        angle = place[:, None] * 10000.0 ** (-torch.arange(0, head_width, 2) / head_width)             # [T, d/2]
        if kind == "rope": return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
        half = lambda x: torch.cat((-x[..., head_width // 2:], x[..., :head_width // 2]), -1)          # Llama's rotate_half
        angles = torch.cat((angle, angle), -1)
        return x * angles.cos() + half(x) * angles.sin()

    def call():
        p = parameters
        q, k, v = (y.unflatten(-1, (heads, head_width)).transpose(1, 2) for y in F.linear(x, p["in_proj_weight"], p["in_proj_bias"]).chunk(3, -1))
        if norm == "l2": q, k = p["g"] * F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        if norm == "rms": q, k = F.rms_norm(q, (head_width,), p["q_norm.weight"], 1e-5), F.rms_norm(k, (head_width,), p["k_norm.weight"], 1e-5)
        if norm == "layer": q, k = (F.layer_norm(y, (head_width,), p[f"{n}.weight"], p[f"{n}.bias"]) for y, n in ((q, "q_norm"), (k, "k_norm")))
        if kind.startswith("rope"): q, k = turn(q).contiguous(), turn(k).contiguous()
        scores = q @ k.transpose(-2, -1) * (1 if kind == "t5" or norm == "l2" else head_width ** -0.5)
        if kind == "alibi": scores = scores - torch.tensor(slopes(heads))[:, None, None] * distance.abs()
        if kind == "t5": scores = scores + p["relative_attention_bias.weight"][bucket(distance, not is_causal)].permute(2, 0, 1)
        row, tables = distance.clamp(-clip, clip) + clip, "tsd" if shared else "htsd"
        if kind == "shaw": scores = scores + torch.einsum(f"bhtd,{tables}->bhts", q, p["rel_k.weight"][..., row, :]) * head_width ** -0.5
        weights = torch.softmax(scores.masked_fill(~allowed, float("-inf")), -1)
        context = weights @ v
        if kind == "shaw": context = context + torch.einsum(f"bhts,{tables}->bhtd", weights, p["rel_v.weight"][..., row, :])
        y = F.linear(context.transpose(1, 2).flatten(2), p["out_proj.weight"], p["out_proj.bias"])
        return {"y": y if valid is None else (valid, y)}
    return inputs, parameters, call


def projections(draw, width, shared):
    """Weights of queries, keys and values, packed where they are equally wide, and of the output."""
    matrix = lambda rows: draw.normal(rows, width, scale=width ** -0.5)
    if shared == width: parameters = {"in_proj_weight": matrix(3 * width)}
    else: parameters = {"q_proj.weight": matrix(width), "k_proj.weight": matrix(shared), "v_proj.weight": matrix(shared)}
    return parameters | {"out_proj.weight": matrix(width)}


def projected(x, p):
    if "in_proj_weight" in p: return F.linear(x, p["in_proj_weight"], p.get("in_proj_bias")).chunk(3, -1)
    return (F.linear(x, p[f"{n}_proj.weight"]) for n in ("q", "k", "v"))


def sliding(draw, window, dilation=(1, 1, 1, 1), global_tokens=0, T=9, is_causal=False, lengths=None, key_value_heads=4):
    """Longformer's self-attention (Beltagy et al. 2020), row by row from the keys that each sees. As in the authors' code global tokens
    see by projections of their own, of all positions, and are seen by the others' ordinary ones."""
    width, heads = 16, 4
    x, groups = draw.normal(2, T, width), heads // key_value_heads
    parameters = projections(draw, width, key_value_heads * width // heads)
    if global_tokens:
        rows = {"query": width, "key": key_value_heads * width // heads, "value": key_value_heads * width // heads}
        parameters |= {f"{n}_global.weight": draw.normal(r, width, scale=width ** -0.5) for n, r in rows.items()}
    inputs, allowed, valid = self_masked(x, is_causal, lengths)

    def seen(b, h, i):
        near = [i + m * dilation[h] for m in range(-window, window + 1)]
        places = range(T) if i < global_tokens else sorted({*range(global_tokens), *near})
        return [j for j in places if 0 <= j < T and allowed[b, 0, i, j]]

    def call():
        p = parameters
        split = lambda y, n: y.unflatten(-1, (n, -1)).transpose(1, 2)
        def qkv(q, k, v): return split(q, heads), *(split(y, key_value_heads).repeat_interleave(groups, 1) for y in (k, v))
        own = qkv(*projected(x, p))
        of_all = qkv(*(F.linear(x, p[f"{n}_global.weight"]) for n in ("query", "key", "value"))) if global_tokens else own
        def row(b, h, i):
            q, k, v = of_all if i < global_tokens else own
            places = seen(b, h, i)
            if not places: return torch.zeros(width // heads)
            return torch.softmax(k[b, h, places] @ q[b, h, i] * (width // heads) ** -0.5, -1) @ v[b, h, places]
        context = torch.stack([torch.stack([torch.cat([row(b, h, i) for h in range(heads)]) for i in range(T)]) for b in range(2)])
        y = F.linear(context, p["out_proj.weight"])
        return {"y": y if valid is None else (valid, y)}
    return inputs, parameters, call


def between_heads(draw, kind, T=6, is_causal=False, lengths=None, layer=1, key_value_heads=4, bias=True):
    """Self-attention whose heads mix scores and weights (Shazeer et al. 2020) or are subtracted in pairs (Ye et al. 2024, whose code
    counts heads as pairs: head_dim = width / heads / 2)."""
    width, heads = 16, 4
    head_width = width // heads
    x, shared = draw.normal(2, T, width), key_value_heads * head_width
    parameters = projections(draw, width, shared)
    if bias: parameters |= {"in_proj_bias": draw.normal(3 * width, scale=0.3), "out_proj.bias": draw.normal(width, scale=0.3)}
    if kind == "talking": parameters |= {"logit_mix": draw.normal(heads, heads), "weight_mix": draw.normal(heads, heads)}
    else:
        parameters |= {f"lambda_{n}": draw.normal(head_width, scale=0.5) for n in ("q1", "k1", "q2", "k2")}
        parameters["norm.weight"] = draw.normal(2 * head_width)
    inputs, allowed, valid = self_masked(x, is_causal, lengths)

    def call():
        p = parameters
        q, k, v = projected(x, p)
        split = lambda y, n: y.unflatten(-1, (n, -1)).transpose(1, 2)
        forbid = lambda z: z.masked_fill(~allowed, float("-inf"))
        if kind == "talking":
            keys = split(k, key_value_heads).repeat_interleave(heads // key_value_heads, 1)
            scores = torch.einsum("bhtd,bhsd->btsh", split(q, heads), keys) * head_width ** -0.5
            scores = (scores @ p["logit_mix"].T).permute(0, 3, 1, 2)
            weights = torch.einsum("ah,bhts->bats", p["weight_mix"], torch.softmax(forbid(scores), -1))
            context = torch.einsum("bhts,bhsd->bthd", weights, split(v, key_value_heads).repeat_interleave(heads // key_value_heads, 1))
        else:
            pairs, groups = heads // 2, heads // key_value_heads
            lambda_init = 0.8 - 0.6 * math.exp(-0.3 * (layer - 1))
            factor = torch.exp((p["lambda_q1"] * p["lambda_k1"]).sum()) - torch.exp((p["lambda_q2"] * p["lambda_k2"]).sum()) + lambda_init
            keys, values = split(k, key_value_heads).repeat_interleave(groups, 1), split(v, key_value_heads // 2).repeat_interleave(groups, 1)
            weights = torch.softmax(forbid(split(q, heads) @ keys.transpose(-2, -1) * head_width ** -0.5), -1).unflatten(1, (pairs, 2))
            weights = weights[:, :, 0] - factor * weights[:, :, 1]
            context = (F.rms_norm(weights @ values, (2 * head_width,), p["norm.weight"], 1e-5) * (1 - lambda_init)).transpose(1, 2)
        y = F.linear(context.flatten(2), p["out_proj.weight"], p.get("out_proj.bias"))
        return {"y": y if valid is None else (valid, y), "weights": ("value", weights if valid is None else weights * valid[:, None, :, None])}
    return inputs, parameters, call


def linear(draw, T=6, is_causal=False, lengths=None, norm="none", key_value_heads=3):
    """Self-attention of features elu(x) + 1 (Katharopoulos et al. 2020): sums over the keys, or over those up to each query."""
    width, heads = 12, 3
    head_width = width // heads
    x, shared = draw.normal(2, T, width), key_value_heads * head_width
    parameters = projections(draw, width, shared)
    if norm == "rms":
        for name in ("q_norm.weight", "k_norm.weight"): parameters[name] = draw.normal(head_width)
    inputs, valid = {"x": x}, None
    if lengths:
        inputs["lengths"] = torch.tensor(lengths)
        valid = lengths_to_allowed(inputs["lengths"], T)

    def call():
        p = parameters
        q, k, v = projected(x, p)
        q, k, v = (y.unflatten(-1, (-1, head_width)).transpose(1, 2) for y in (q, k, v))
        if norm == "rms": q, k = F.rms_norm(q, (head_width,), p["q_norm.weight"], 1e-5), F.rms_norm(k, (head_width,), p["k_norm.weight"], 1e-5)
        q, k, v = F.elu(q) + 1, (F.elu(k) + 1).repeat_interleave(heads // key_value_heads, 1), v.repeat_interleave(heads // key_value_heads, 1)
        if valid is not None: k = k * valid[:, None, :, None]
        products = torch.einsum("bhsm,bhsn->bhsmn", k, v)
        if is_causal: context = torch.einsum("bhtm,bhtmn->bhtn", q, products.cumsum(2)) / (q * k.cumsum(2)).sum(-1, keepdim=True)
        else: context = torch.einsum("bhtm,bhmn->bhtn", q, products.sum(2)) / (q @ k.sum(2)[..., None])
        y = F.linear(context.transpose(1, 2).flatten(2), p["out_proj.weight"])
        return {"y": y if valid is None else (valid, y)}
    return inputs, parameters, call


SIZES = {"d_model": 12, "nhead": 3, "dim_feedforward": 20, "dropout": 0.0, "batch_first": True}


def encoder_layer(draw, norm_first, activation, bias=True, lengths=(5, 3)):
    layer = nn.TransformerEncoderLayer(**SIZES, norm_first=norm_first, activation=activation, bias=bias)
    x, lengths = draw.normal(2, 5, 12), torch.tensor(lengths); valid = lengths_to_allowed(lengths, 5)
    return {"x": x, "lengths": lengths}, layer, lambda: {"y": (valid, layer(x, src_key_padding_mask=~valid))}


def decoder_layer(draw, norm_first, activation, bias=True, target_lengths=(2, 4), source_lengths=(5, 3)):
    layer = nn.TransformerDecoderLayer(**SIZES, norm_first=norm_first, activation=activation, bias=bias)
    target, source = torch.tensor(target_lengths), torch.tensor(source_lengths)
    valid, allowed = lengths_to_allowed(target, 4), lengths_to_allowed(source, 5)
    y, memory = draw.normal(2, 4, 12), draw.normal(2, 5, 12)
    masks = {"tgt_mask": ~causal(4), "tgt_key_padding_mask": ~valid, "memory_key_padding_mask": ~allowed}
    call = lambda: {"y": (valid, layer(y, memory, **masks))}
    return {"target": y, "memory": memory, "target_lengths": target, "source_lengths": source}, layer, call


def core(model, source, target, source_lengths, target_lengths):
    S, T = source.size(1), target.size(1)
    source_padding, target_padding = ~lengths_to_allowed(source_lengths, S), ~lengths_to_allowed(target_lengths, T)
    return model(source, target, tgt_mask=~causal(T), src_key_padding_mask=source_padding, tgt_key_padding_mask=target_padding,
                 memory_key_padding_mask=source_padding)


def transformer(draw, norm_first, activation):
    model = nn.Transformer(16, 4, 2, 2, 32, 0.0, activation, batch_first=True, norm_first=norm_first)
    inputs = {"source": draw.normal(2, 6, 16), "target": draw.normal(2, 5, 16)}
    inputs |= {"source_lengths": torch.tensor([4, 6]), "target_lengths": torch.tensor([5, 3])}
    valid = lengths_to_allowed(inputs["target_lengths"], 5)
    return inputs, model, lambda: {"y": (valid, core(model, *inputs.values()))}


def transformer_state():
    """A state dict as PyTorch writes it, in both precisions, and what the model computes: for exchange in both directions."""
    draw = Draw("transformer_state"); model = draw.fill(nn.Transformer(8, 2, 2, 1, 12, 0.0, batch_first=True))
    safetensors.torch.save_file(model.state_dict(), HERE / "transformer_state_f64.safetensors")
    single = {k: v.float() for k, v in model.state_dict().items()}
    safetensors.torch.save_file(single, HERE / "transformer_state_f32.safetensors")
    inputs = {"input.source": draw.normal(3, 5, 8), "input.target": draw.normal(3, 4, 8)}
    inputs |= {"input.source_lengths": torch.tensor([5, 2, 3]), "input.target_lengths": torch.tensor([1, 4, 3])}
    valid = lengths_to_allowed(inputs["input.target_lengths"], 4)[..., None]
    y = (core(model, *inputs.values()) * valid).detach()
    save("transformer_state_check", inputs | {"output.y": y}, VERSIONS)


def make():
    f = File("scaled_dot_product_attention")
    f.case("plain", scaled_dot_product, T=4, S=5); f.case("scale", scaled_dot_product, T=4, S=5, scale=0.75)
    f.case("causal", scaled_dot_product, T=5, S=5, is_causal=True)
    f.case("lengths", scaled_dot_product, T=3, S=6, lengths=[2, 6])
    f.case("causal_lengths", scaled_dot_product, T=5, S=5, is_causal=True, lengths=[5, 3])
    f.case("mask", scaled_dot_product, T=4, S=5, mask=True)
    f.case("bias", scaled_dot_product, T=4, S=5, bias=[2, 3, 4, 5]); f.case("bias_heads", scaled_dot_product, T=5, S=5, is_causal=True, lengths=[5, 3], bias=[3, 5, 5])
    f.case("bias_keys", scaled_dot_product, T=4, S=5, mask=True, scale=0.75, bias=[2, 1, 1, 5])
    f.write()
    f = File("relative_positions")
    for kind in ("rope", "rope_half", "alibi", "t5", "shaw"):
        f.case(kind, relative, kind=kind); f.case(f"{kind}_causal", relative, kind=kind, is_causal=True, lengths=[4, 6])
    f.case("t5_far", relative, kind="t5", T=40, farthest=32); f.case("t5_far_causal", relative, kind="t5", T=40, is_causal=True, farthest=24)
    f.case("shaw_shared", relative, kind="shaw", shared=True, lengths=[2, 6])
    f.write()
    f = File("query_key_norm")
    for norm in ("l2", "rms", "layer"):                     # without rotation the β of keys would change nothing
        f.case(norm, relative, kind="rope_half", norm=norm); f.case(f"{norm}_causal", relative, kind="rope", norm=norm, is_causal=True, lengths=[4, 6])
    f.case("rms_t5", relative, kind="t5", norm="rms"); f.case("window", relative, kind="none", window=1, lengths=[5, 6])
    f.case("window_causal", relative, kind="shaw", window=2, is_causal=True); f.case("l2_window", relative, kind="alibi", norm="l2", window=3, T=9)
    f.write()
    f = File("sliding_window")
    f.case("dilation", sliding, window=1, dilation=(1, 2, 3, 1), lengths=[9, 6]); f.case("dilation_causal", sliding, window=2, dilation=(2, 1, 3, 2), is_causal=True)
    f.case("global", sliding, window=1, global_tokens=2, lengths=[9, 5]); f.case("global_short", sliding, window=1, global_tokens=3, T=4)
    f.case("both", sliding, window=1, dilation=(1, 2, 3, 1), global_tokens=1, lengths=[7, 9], key_value_heads=2)
    f.case("both_causal", sliding, window=1, dilation=(3, 1, 1, 2), global_tokens=2, is_causal=True, lengths=[9, 4])
    f.write()
    f = File("between_heads")
    for kind in ("talking", "differential"):
        f.case(kind, between_heads, kind=kind); f.case(f"{kind}_causal", between_heads, kind=kind, is_causal=True, lengths=[4, 6], layer=3)
        f.case(f"{kind}_shared", between_heads, kind=kind, layer=2, key_value_heads=2, bias=False)
    f.write()
    f = File("linear_attention")
    f.case("whole", linear); f.case("lengths", linear, lengths=[4, 6]); f.case("causal", linear, is_causal=True)
    f.case("causal_lengths", linear, is_causal=True, lengths=[6, 3], norm="rms"); f.case("shared", linear, key_value_heads=1)
    f.case("shared_causal", linear, is_causal=True, key_value_heads=1)
    f.write()
    f = File("multi_head_attention")
    f.case("self", multi_head, T=5); f.case("self_no_bias", multi_head, T=5, bias=False)
    f.case("self_causal", multi_head, T=5, is_causal=True)
    f.case("self_lengths", multi_head, T=5, lengths=[5, 3])
    f.case("self_causal_lengths", multi_head, T=5, is_causal=True, lengths=[2, 5])
    f.case("self_mask", multi_head, T=5, mask=True); f.case("cross", multi_head, T=4, S=6)
    f.case("cross_lengths", multi_head, T=4, S=6, lengths=[6, 1])
    f.case("cross_width", multi_head, T=4, S=6, lengths=[3, 6], key_width=7)
    f.write()
    for name, build in (("transformer_encoder_layer", encoder_layer), ("transformer_decoder_layer", decoder_layer)):
        f = File(name)
        for norm in ("post", "pre"):
            for act in ("relu", "gelu"): f.case(f"{norm}_{act}", build, norm_first=norm == "pre", activation=act)
        f.case("post_relu_no_bias", build, norm_first=False, activation="relu", bias=False)
        f.write()
    f = File("transformer"); f.case("post", transformer, norm_first=False, activation="relu")
    f.case("pre", transformer, norm_first=True, activation="gelu"); f.write()
    transformer_state()
