"""A model's JSON, run by PyTorch: the other side of the golden comparisons.

Parameters have EchoTrain's names and layouts, so that weights travel between both without a map: images are
[N, H, W, C], a convolution's weight is [KH, KW, C / groups, filters], a dense one's [features, units].
"""

import fnmatch
import math

import torch
import torch.nn.functional as F

ACTIVATIONS = {
    "none": lambda x: x, "relu": torch.relu, "leaky_relu": lambda x: F.leaky_relu(x, 0.01),
    "elu": lambda x: F.elu(x, 0.01), "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "softplus": F.softplus, "exp": torch.exp,
    "log": torch.log, "sqrt": torch.sqrt, "square": torch.square, "abs": torch.abs, "negate": torch.neg,
}
BINARY = {"add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div,
          "maximum": torch.maximum, "minimum": torch.minimum}
# The source of the one operation in GLSL that has a counterpart here.
PRELU = """
float forward(uint i) { return x0[i] < 0.0 ? x1[i % WIDTH] * x0[i] : x0[i]; }
float gradient0(uint i) { return x0[i] < 0.0 ? x1[i % WIDTH] * dy[i] : dy[i]; }
float gradient1(uint c) {
  float sum = 0.0;
  for (uint i = c; i < COUNT_x0; i += WIDTH) sum += x0[i] < 0.0 ? x0[i] * dy[i] : 0.0;
  return sum;
}
"""
REDUCE = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}


def _any_matches(patterns, name):
    patterns = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def image_op(x, op):
    """An operation on [N, C, H, W] for an image [N, H, W, C]."""
    return op(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def multibox_loss(output, boxes, spec):
    """The loss for rows [classes with background; offsets; anchor] and boxes [N, most, 5] (Liu et al. 2016)."""
    total, positives = 0, 0
    for rows, wanted in zip(output, boxes):
        wanted = wanted[wanted[:, 0] >= 0]
        logits, offsets, anchors = rows[:, :-8], rows[:, -8:-4], rows[:, -4:]
        corners = torch.cat([anchors[:, :2] - anchors[:, 2:] / 2, anchors[:, :2] + anchors[:, 2:] / 2], 1)
        target = torch.zeros(len(rows), dtype=torch.long)
        if len(wanted) == 0:
            continue
        low = torch.maximum(corners[:, None, :2], wanted[:, 1:3])
        high = torch.minimum(corners[:, None, 2:], wanted[:, 3:5])
        both = (high - low).clamp(min=0).prod(-1)
        overlap = both / (anchors[:, None, 2:].prod(-1) + (wanted[:, 3:5] - wanted[:, 1:3]).prod(-1) - both)
        found = torch.where(overlap.amax(1) >= spec.get("iou_threshold", 0.5), overlap.argmax(1), -1)
        for box, anchor in enumerate(overlap.argmax(0)):
            found[anchor] = box
        target[found >= 0] = wanted[found[found >= 0], 0].long() + 1
        entropy = F.cross_entropy(logits, target, reduction="none")
        hardest = entropy[found < 0].sort(descending=True)[0][:int(spec.get("negative_ratio", 3) * int((found >= 0).sum()))]
        box, anchor = wanted[found[found >= 0]], anchors[found >= 0]
        aim = torch.cat([((box[:, 1:3] + box[:, 3:5]) / 2 - anchor[:, :2]) / (0.1 * anchor[:, 2:]),
                         torch.log((box[:, 3:5] - box[:, 1:3]) / anchor[:, 2:]) / 0.2], 1)
        total = total + entropy[found >= 0].sum() + hardest.sum() + F.smooth_l1_loss(offsets[found >= 0], aim, reduction="sum")
        positives += len(box)
    return total / max(positives, 1)


class TorchModel:
    """The model `spec` ({"layers", "inputs", "loss"}) on `weights` (name -> array)."""

    def __init__(self, spec, weights, dtype=torch.float32):
        self.spec, self.dtype = spec, dtype
        self.states = {name: torch.tensor(value, dtype=dtype) for name, value in weights.items() if ".running_" in name}
        self.parameters = {name: torch.tensor(value, dtype=dtype, requires_grad=True)
                           for name, value in weights.items() if ".running_" not in name}
        self.lora = spec.get("lora")
        if self.lora:  # all is frozen but the adapters and what "train" names
            for name, parameter in self.parameters.items():
                if ".lora_" not in name and not _any_matches(self.lora.get("train", []), name):
                    parameter.requires_grad_(False)
        self.decayed = set()  # filled by the forward pass: weights of products
        self.training = True

    def weights(self):
        both = {**self.parameters, **self.states}
        return {name: tensor.detach().numpy() for name, tensor in both.items()}

    def __call__(self, fields):
        values = {name: self._field(fields, name) for name in self.inputs()}
        return self._run(self.spec["layers"], values[self.inputs()[0]], "", values)

    def _field(self, fields, name):
        tensor = torch.as_tensor(fields[name])
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def inputs(self):
        inputs = self.spec.get("inputs", ["image"])
        return [inputs] if isinstance(inputs, str) else inputs

    def loss(self, output, fields):
        spec = self.spec.get("loss", {})
        kind = spec.get("loss", "softmax_cross_entropy")
        if kind == "multibox":
            return multibox_loss(output, self._field(fields, spec.get("target", "boxes")), spec)
        target = self._field(fields, spec.get("target", "label"))
        if kind == "softmax_cross_entropy":
            weight = spec.get("class_weights") or None
            return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1).long(),
                                   label_smoothing=spec.get("label_smoothing", 0.0),
                                   ignore_index=spec.get("ignore_index", -1),
                                   weight=None if weight is None else torch.tensor(weight, dtype=self.dtype))
        return {"mse": F.mse_loss, "l1": F.l1_loss, "binary_cross_entropy": F.binary_cross_entropy_with_logits,
                "huber": lambda x, t: F.huber_loss(x, t, delta=spec.get("delta", 1.0))}[kind](output, target)

    def _run(self, layers, x, scope, values):
        for position, layer in enumerate(layers, 1):
            options = dict(layer)
            kind = options.pop("layer")
            name = scope + (options.pop("name", "") or f"{kind}_{position}")
            inputs = options.pop("input", [])
            inputs = [inputs] if isinstance(inputs, str) else inputs
            inputs = [self._find(values, scope, wanted) for wanted in inputs] or [x]
            x = values[name] = getattr(self, "_" + kind)(name, options, inputs, values)
        return x

    @staticmethod
    def _find(values, scope, name):
        while scope + name not in values:
            scope = scope[:-1].rpartition(".")[0] + "." if "." in scope[:-1] else ""
        return values[scope + name]

    def _weight(self, name):
        self.decayed.add(name)
        return self.parameters[name]

    def _activate(self, options, x):
        return ACTIVATIONS[options.get("activation", "none")](x)

    # Products ---------------------------------------------------------------------------------

    def _product(self, name, x):
        y = x @ self._weight(name + ".weight")
        if name + ".lora_a" in self.parameters:
            scale = self.lora.get("alpha", 16) / self.lora.get("rank", 8)
            y = y + scale * (x @ self._weight(name + ".lora_a") @ self._weight(name + ".lora_b"))
        return y + self.parameters[name + ".bias"] if name + ".bias" in self.parameters else y

    def _dense(self, name, o, inputs, values):
        if o.get("tied_to"):
            x = inputs[0] @ self.parameters[o["tied_to"] + ".weight"].T
            return self._activate(o, x + self.parameters[name + ".bias"] if name + ".bias" in self.parameters else x)
        return self._activate(o, self._product(name, inputs[0]))

    def _convolve(self, name, o, x, padding):
        weight = self._weight(name + ".weight").permute(3, 2, 0, 1)
        y = image_op(x, lambda image: F.conv2d(image, weight, self.parameters.get(name + ".bias"), o.get("stride", 1),
                                               padding, o.get("dilation", 1), o.get("groups", 1)))
        return self._activate(o, y)

    def _conv2d(self, name, o, inputs, values):
        pad = o.get("pad", -1)
        same = (o.get("kernel", 3) - 1) * o.get("dilation", 1) // 2
        return self._convolve(name, o, inputs[0], pad if pad >= 0 else same)

    def _conv1d(self, name, o, inputs, values):
        pad = o.get("pad", -1)
        same = (o.get("kernel", 3) - 1) * o.get("dilation", 1) // 2
        return self._convolve(name, o, inputs[0].unsqueeze(1), (0, pad if pad >= 0 else same)).squeeze(1)

    def _conv2d_transpose(self, name, o, inputs, values):
        weight = self._weight(name + ".weight").permute(3, 2, 0, 1)
        pad = o.get("pad", -1)
        pad = pad if pad >= 0 else (o.get("kernel", 3) - 1) // 2
        y = image_op(inputs[0], lambda image: F.conv_transpose2d(
            image, weight, self.parameters.get(name + ".bias"), o.get("stride", 1), pad))
        return self._activate(o, y)

    def _embedding(self, name, o, inputs, values):
        return F.embedding(inputs[0].long(), self.parameters[name + ".weight"])

    def _position_embedding(self, name, o, inputs, values):
        return inputs[0] + self.parameters[name + ".weight"]

    def _attention(self, name, o, inputs, values):
        x, memory = inputs[0], inputs[1] if len(inputs) > 1 else inputs[0]
        heads = o["heads"]
        kv_heads, head = o.get("kv_heads") or heads, o.get("head_dim") or x.shape[-1] // heads
        if len(inputs) == 1 and not o.get("separate"):
            q, k, v = self._product(name + ".qkv", x).split([heads * head, kv_heads * head, kv_heads * head], -1)
        else:
            q, k, v = (self._product(f"{name}.{part}", source)
                       for part, source in (("query", x), ("key", memory), ("value", memory)))

        def split(t):
            return t.reshape(t.shape[0], t.shape[1], -1, head).transpose(1, 2)

        q, k, v = (split(part).repeat_interleave(heads // (part.shape[-1] // head), 1) for part in (q, k, v))
        if o.get("rotary_base"):
            q, k = (self._rotated(part, o) for part in (q, k))
        scores = q @ k.transpose(-1, -2) / math.sqrt(head)
        rows, columns = scores.shape[-2:]
        if o.get("causal"):
            scores = scores.masked_fill(torch.ones(rows, columns).triu(1 + columns - rows).bool(), -math.inf)
        if len(inputs) == 3:
            beyond = torch.arange(columns)[None, :] >= inputs[2].long()[:, None]
            scores = scores.masked_fill(beyond[:, None, None, :], -math.inf)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape[0], rows, -1)
        return self._product(name + ".output", y)

    def _rotated(self, x, o):
        """Rotary positions of [N, heads, positions, head], as Llama has them."""
        head = x.shape[-1]
        steps = o["rotary_base"] ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
        if o.get("rotary_scaling"):
            factor, low, high, context = o["rotary_scaling"]
            turns = context * steps / (2 * math.pi)
            smooth = ((turns - low) / (high - low)).clamp(0, 1)
            steps = (1 - smooth) * steps / factor + smooth * steps
        angles = (torch.arange(x.shape[2], dtype=torch.float64)[:, None] * steps).to(self.dtype)
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def _recurrent(self, name, o, x, run, states):
        flat = [self._weight(name + ".input.weight").T, self._weight(name + ".recurrent.weight").T,
                self.parameters[name + ".input.bias"], self.parameters[name + ".recurrent.bias"]]
        x = x.flip(1) if o.get("reverse") else x
        y = run(x, states(x.new_zeros(1, x.shape[0], o["units"])), flat, True, 1, 0.0, self.training, False, True)[0]
        y = y.flip(1) if o.get("reverse") else y
        last = 0 if o.get("reverse") else -1
        return y[:, last] if o.get("output") == "last" else y

    def _lstm(self, name, o, inputs, values):
        return self._recurrent(name, o, inputs[0], torch._VF.lstm, lambda zero: (zero, zero))

    def _gru(self, name, o, inputs, values):
        return self._recurrent(name, o, inputs[0], torch._VF.gru, lambda zero: zero)

    def _gather(self, name, o, inputs, values):
        return torch.stack([x[ids.long()] for x, ids in zip(inputs[0], inputs[1])])

    # Normalisation ----------------------------------------------------------------------------

    def _scaled(self, name, h):
        y = h * self.parameters[name + ".gamma"]
        return y + self.parameters[name + ".beta"] if name + ".beta" in self.parameters else y

    def _batch_norm(self, name, o, inputs, values):
        x, epsilon = inputs[0], o.get("epsilon", 1e-5)
        mean, var = self.states[name + ".running_mean"], self.states[name + ".running_var"]
        y = F.batch_norm(x.reshape(-1, x.shape[-1]), mean, var, self.parameters[name + ".gamma"],
                         self.parameters[name + ".beta"], self.training, 1 - o.get("momentum", 0.9), epsilon)
        return self._activate(o, y.reshape(x.shape))

    def _layer_norm(self, name, o, inputs, values):
        return self._scaled(name, F.layer_norm(inputs[0], inputs[0].shape[-1:], eps=o.get("epsilon", 1e-5)))

    def _rms_norm(self, name, o, inputs, values):
        x = inputs[0]
        return self._scaled(name, x * torch.rsqrt(x.square().mean(-1, keepdim=True) + o.get("epsilon", 1e-5)))

    def _group_norm(self, name, o, inputs, values):
        x = inputs[0]
        y = F.group_norm(x.reshape(x.shape[0], -1, x.shape[-1]).transpose(1, 2), o.get("groups", 32),
                         self.parameters[name + ".gamma"], self.parameters[name + ".beta"], o.get("epsilon", 1e-5))
        return self._activate(o, y.transpose(1, 2).reshape(x.shape))

    def _bias(self, name, o, inputs, values):
        return inputs[0] + self.parameters[name + ".bias"]

    def _glsl(self, name, o, inputs, values):
        assert o["source"] == PRELU
        return torch.where(inputs[0] < 0, self._weight(name + ".weight") * inputs[0], inputs[0])

    # Functions and shapes ----------------------------------------------------------------------

    def _activation(self, name, o, inputs, values):
        return ACTIVATIONS[o["function"]](inputs[0])

    def _box_head(self, name, o, inputs, values):
        kernel, scale, columns = o.get("kernel", 3), o["scale"], 1 + o["classes"] + 4
        weight, bias = self._weight(name + ".weight"), self.parameters[name + ".bias"]
        x = image_op(inputs[0], lambda x: F.conv2d(x, weight.permute(3, 2, 0, 1), bias, padding=(kernel - 1) // 2))
        sizes = [(scale * math.sqrt(r), scale / math.sqrt(r)) for r in o.get("ratios", [1, 2, 0.5])]
        if o.get("next_scale"):
            sizes.append((math.sqrt(scale * o["next_scale"]),) * 2)
        n, h, w, _ = x.shape
        anchors = torch.empty(h, w, len(sizes), 4, dtype=self.dtype)
        anchors[..., 0] = ((torch.arange(w) + 0.5) / w)[None, :, None]
        anchors[..., 1] = ((torch.arange(h) + 0.5) / h)[:, None, None]
        anchors[..., 2:] = torch.tensor(sizes)
        return torch.cat([x.reshape(n, -1, columns), anchors.reshape(1, -1, 4).expand(n, -1, -1)], -1)

    def _relu(self, name, o, inputs, values):
        return torch.relu(inputs[0])

    def _softmax(self, name, o, inputs, values):
        return inputs[0].softmax(-1)

    def _log_softmax(self, name, o, inputs, values):
        return inputs[0].log_softmax(-1)

    def _reduce(self, name, o, inputs, values):
        return REDUCE[o.get("function", "mean")](inputs[0], dim=tuple(o["axes"]), keepdim=o.get("keep_dims", False))

    def _flatten(self, name, o, inputs, values):
        return inputs[0].flatten(1)

    def _reshape(self, name, o, inputs, values):
        return inputs[0].reshape(inputs[0].shape[0], *o["shape"])

    def _parameter(self, name, o, inputs, values):
        return self.parameters[name + ".weight"]

    def _permute(self, name, o, inputs, values):
        return inputs[0].permute(*o["axes"])

    def _concat(self, name, o, inputs, values):
        return torch.cat(inputs, o.get("axis", -1))

    def _slice(self, name, o, inputs, values):
        axis, x = o.get("axis", -1), inputs[0]
        begin = o.get("begin", 0) % x.shape[axis]
        return x.narrow(axis, begin, o.get("length", 0) or x.shape[axis] - begin)

    def _max_pool(self, name, o, inputs, values):
        return image_op(inputs[0], lambda x: F.max_pool2d(x, o.get("window", 2), o.get("stride", 2), o.get("pad", 0)))

    def _avg_pool(self, name, o, inputs, values):
        return image_op(inputs[0], lambda x: F.avg_pool2d(x, o.get("window", 2), o.get("stride", 2), o.get("pad", 0),
                                                          count_include_pad=False))

    def _adaptive_avg_pool(self, name, o, inputs, values):
        return image_op(inputs[0], lambda x: F.adaptive_avg_pool2d(x, o["output_size"]))

    def _global_avg_pool(self, name, o, inputs, values):
        return inputs[0].mean((1, 2))

    # Composition --------------------------------------------------------------------------------

    def _residual(self, name, o, inputs, values):
        branch = self._run(o["layers"], inputs[0], name + ".", values)
        shortcut = self._run(o.get("shortcut", []), inputs[0], name + ".shortcut.", values)
        return self._activate(o, branch + shortcut)

    def _repeat(self, name, o, inputs, values):
        x = inputs[0]
        for i in range(1, o["times"] + 1):
            x = self._run(o["layers"], x, f"{name}.{i}.", values)
        return x


def _binary(function):
    def run(self, name, o, inputs, values):
        x = inputs[0]
        for other in inputs[1:]:
            x = function(x, other)
        return x
    return run


for _name, _function in BINARY.items():
    setattr(TorchModel, "_" + _name, _binary(_function))
