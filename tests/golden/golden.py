# SPDX-License-Identifier: Apache-2.0
"""How golden values are drawn, differentiated and written. Keys of a file: `<case>.<kind>.<name>`, where kind is

input      what goes in: float64 (each value exact in float32), int64 (ids, lengths), uint8 (masks, 1 = may attend, as in Heed)
parameter  the module's parameters under PyTorch's names
output     what comes out; rows beyond a sentence's length are zero here and are not to be compared
upstream   the gradient given to that output, zero in those rows (none: the output takes no part in the gradients)
gradient   `gradient.input.<name>` and `gradient.parameter.<name>` of sum(output * upstream) over all outputs

The metadata holds PyTorch's version and, under the name of each case, its options as JSON.
"""
import json, pathlib, zlib
import numpy, torch

HERE = pathlib.Path(__file__).parent
VERSIONS = {"torch": torch.__version__.split("+")[0], "numpy": numpy.__version__, "made_by": "tests/golden/make.py"}
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


class Draw:
    """Random numbers of one case: they follow from its name, so adding a case changes no other."""

    def __init__(self, name): self.random = numpy.random.default_rng(zlib.crc32(name.encode()))
    def normal(self, *shape, scale=1.0):
        return torch.tensor((self.random.standard_normal(shape) * scale).astype("float32")).double()

    def integers(self, low, high, *shape): return torch.tensor(self.random.integers(low, high, shape))

    def fill(self, module):
        """Replaces every parameter: matrices about 1/√in, biases and gains (around 1) wide enough to matter."""
        for name, p in module.named_parameters():
            is_gain = p.dim() == 1 and name.endswith("weight")
            value = self.normal(*p.shape, scale=0.3 if p.dim() == 1 else p.shape[-1] ** -0.5) + (1.0 if is_gain else 0.0)
            p.data = value.float().double()
        return module


def lengths_to_allowed(lengths, size): return torch.arange(size)[None, :] < lengths[:, None]                  # [B, size]
def causal(T): return torch.ones(T, T, dtype=torch.bool).tril()                                            # [T, T]


class File:
    def __init__(self, name): self.name, self.tensors, self.metadata = name, {}, dict(VERSIONS)

    def case(self, case, build, **options):
        """build(draw, **options) -> (inputs, parameters or module, call); call() -> {name: output or (valid rows, output)}.

        An input or output given as a pair ("value", tensor) takes no part in the gradients.
        """
        draw = Draw(f"{self.name}.{case}")
        inputs, parameters, call = build(draw, **options)
        if isinstance(parameters, torch.nn.Module): parameters = dict(draw.fill(parameters).named_parameters())
        leaves = {f"input.{k}": v for k, v in inputs.items() if not isinstance(v, tuple) and v.is_floating_point()}
        leaves |= {f"parameter.{k}": v for k, v in parameters.items()}
        for leaf in leaves.values(): leaf.requires_grad_()
        loss, out = torch.zeros(()), {}
        for name, output in call().items():
            kind, valid = "differentiable", None
            if isinstance(output, tuple): kind, output = output
            if isinstance(kind, torch.Tensor): kind, valid = "differentiable", kind
            if valid is not None: output = output * valid.reshape(*valid.shape, *[1] * (output.dim() - valid.dim()))
            out[f"output.{name}"] = output
            if kind == "value": continue
            upstream = draw.normal(*output.shape)
            if valid is not None: upstream = upstream * valid.reshape(*valid.shape, *[1] * (output.dim() - valid.dim()))
            out[f"upstream.{name}"] = upstream
            loss = loss + (output * upstream).sum()
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        every = {f"input.{k}": v[1] if isinstance(v, tuple) else v for k, v in inputs.items()} | leaves | out
        every |= {f"gradient.{k}": g for k, g in zip(leaves, gradients)}
        for key, value in every.items():
            value = value.detach()
            assert not value.is_floating_point() or bool(torch.isfinite(value).all()), f"{self.name} {case} {key} is not finite"
            self.tensors[f"{case}.{key}"] = (value.to(torch.uint8) if value.dtype == torch.bool else value).contiguous().clone()
        self.metadata[case] = json.dumps(options)

    def write(self): save(self.name, self.tensors, self.metadata)


def save(name, tensors, metadata):
    """A .safetensors file whose bytes follow from its content (the library's own writer shuffles the metadata)."""
    header, data = {"__metadata__": metadata}, b""
    for key, t in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        raw = t.detach().contiguous().numpy().tobytes()
        dtype = {torch.float64: "F64", torch.float32: "F32", torch.int64: "I64", torch.uint8: "U8"}[t.dtype]
        header[key] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (HERE / f"{name}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


def number(x):
    """JSON has no inf and nan: they are written as strings."""
    if isinstance(x, (list, tuple)): return [number(y) for y in x]
    return x if isinstance(x, (int, str)) or numpy.isfinite(x) else str(float(x))


def write_json(name, value):
    rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
    (HERE / f"{name}.json").write_text("{\n" + rows + "\n}\n")
