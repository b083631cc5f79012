"""Training steps of PyTorch and Brevitas on the networks of networks.py, in every form that they offer.

A form is four words: HOW RUN LAYOUT PRECISION.

    HOW        float, or who makes the quantization: eager and fx (torch.ao.quantization, deprecated), pt2e
               (torchao, X86InductorQuantizer), brevitas, brevitas-jit (BREVITAS_JIT=1)
    RUN        plain, or compiled: loss, forward and backward by inductor
    LAYOUT     nchw or nhwc (channels_last)
    PRECISION  f32, autocast (to bfloat16), or bf16math: float32 whose convolutions and products oneDNN may
               compute in bfloat16

A step is forward, cross entropy, backward and a fused SGD with momentum, on a batch that is there already.
8-bit fake quantization everywhere: activations by tensor, weights by channel, moving averages of ranges.
"""
import itertools
import warnings

import torch
from torch import nn

import networks

HOWS = {"float": ("float",), "qat": ("eager", "fx", "pt2e", "brevitas", "brevitas-jit")}
RUNS, LAYOUTS, PRECISIONS = ("plain", "compiled"), ("nhwc", "nchw"), ("f32", "autocast", "bf16math")


def forms(what):
    """The words of all forms of `what`, float or qat."""
    return [" ".join(form) for form in itertools.product(HOWS[what], RUNS, LAYOUTS, PRECISIONS)]


class Plain:
    """Modules of float networks, which pt2e and fx quantize too."""

    def conv(self, channels, c):
        groups = channels if c.depthwise else 1
        return self.block(nn.Conv2d(channels, c.out, c.kernel, c.stride, c.kernel // 2, 1, groups, c.bias),
                          nn.BatchNorm2d(c.out), c.act)

    def linear(self, channels, c):
        return self.block(nn.Linear(channels, c.out), nn.BatchNorm1d(c.out) if c.norm else None, c.act)

    def block(self, product, norm, act):
        return nn.Sequential(*filter(None, (product, norm, self.act(act))))

    def act(self, act):
        return {"relu": nn.ReLU, "relu6": nn.ReLU6}[act]() if act else None

    def residual(self, body, shortcut, act):
        return Residual(body, shortcut, self.act(act))

    def network(self, layers):
        return nn.Sequential(*layers)


class Residual(nn.Module):
    def __init__(self, body, shortcut, act):
        super().__init__()
        self.body, self.shortcut, self.act = body, shortcut, act

    def forward(self, x):
        y = self.body(x) + (self.shortcut(x) if self.shortcut else x)
        return self.act(y) if self.act else y


class Eager(Plain):
    """What eager QAT wants: additions as modules and relu in place of relu6, which it cannot fuse."""

    def act(self, act):
        return nn.ReLU() if act else None

    def residual(self, body, shortcut, act):
        return EagerResidual(body, shortcut, act)

    def network(self, layers):
        import torch.ao.quantization as ao
        return nn.Sequential(ao.QuantStub(), *layers, ao.DeQuantStub())


class EagerResidual(nn.Module):
    def __init__(self, body, shortcut, act):
        super().__init__()
        self.body, self.shortcut, self.act = body, shortcut, act
        self.add = torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x):
        add = self.add.add_relu if self.act else self.add.add
        return add(self.body(x), self.shortcut(x) if self.shortcut else x)


class Brevitas(Plain):
    """Brevitas' own layers: int8 weights by channel, u8 after relu, int8 elsewhere."""

    def __init__(self):
        import brevitas.nn
        from brevitas.quant import scaled_int
        self.qnn, self.weight = brevitas.nn, scaled_int.Int8WeightPerChannelFloat

    def conv(self, channels, c):
        groups = channels if c.depthwise else 1
        conv = self.qnn.QuantConv2d(channels, c.out, c.kernel, c.stride, c.kernel // 2, 1, groups, bias=c.bias,
                                    weight_quant=self.weight)
        return self.block(conv, nn.BatchNorm2d(c.out), c.act or "identity")

    def linear(self, channels, c):
        return self.block(self.qnn.QuantLinear(channels, c.out, True, weight_quant=self.weight),
                          nn.BatchNorm1d(c.out) if c.norm else None, c.act)

    def act(self, act):
        """Statistics of the first 300 steps would be slower than the scales that are learned later on."""
        if act == "identity":
            return self.qnn.QuantIdentity(bit_width=8, collect_stats_steps=1)
        return self.qnn.QuantReLU(bit_width=8, collect_stats_steps=1) if act else None

    def residual(self, body, shortcut, act):
        return Residual(body, shortcut, self.act(act or "identity"))

    def network(self, layers):
        return nn.Sequential(self.act("identity"), *layers)


def build(maker, name):
    """The network as modules that `maker` makes."""
    network = networks.NETWORKS[name]
    channels, side = network.image[0], network.image[1]

    def make(layers):
        nonlocal channels, side
        modules = []
        for layer in layers:
            if isinstance(layer, networks.Conv):
                modules.append(maker.conv(channels, layer))
                channels, side = layer.out, (side - 1) // layer.stride + 1
            elif isinstance(layer, networks.Linear):
                modules.append(maker.linear(channels, layer))
                channels = layer.out
            elif isinstance(layer, networks.MaxPool):
                modules.append(nn.MaxPool2d(layer.kernel, layer.stride, layer.padding))
                side = (side + 2 * layer.padding - layer.kernel) // layer.stride + 1
            elif isinstance(layer, networks.Residual):
                before = channels, side
                body = nn.Sequential(*make(layer.body))
                after = channels, side
                channels, side = before
                shortcut = nn.Sequential(*make(layer.shortcut)) if layer.shortcut else None
                channels, side = after
                modules.append(maker.residual(body, shortcut, layer.act))
            else:
                if isinstance(layer, networks.Mean):
                    modules.append(nn.AdaptiveAvgPool2d(1))
                else:
                    channels *= side * side
                modules.append(nn.Flatten())
        return modules
    return maker.network(make(network.layers))


def fuse_eager(model, train):
    """Fuses each layer with its batch norm and relu, as far as eager QAT has a module for it."""
    import torch.ao.quantization as ao
    fuse = ao.fuse_modules_qat if train else ao.fuse_modules
    for module in list(model.modules()):
        if not isinstance(module, nn.Sequential) or not isinstance(module[0], (nn.Conv2d, nn.Linear)):
            continue
        count = 2 if isinstance(module[0], nn.Linear) else len(module)
        if len(module) > 1:
            fuse(module, [str(i) for i in range(count)], inplace=True)


def prepare(how, name, x):
    """The network in training mode, with fake quantization as `how` makes it."""
    layout = torch.channels_last if x.is_contiguous(memory_format=torch.channels_last) else torch.contiguous_format
    if how in ("brevitas", "brevitas-jit"):
        return build(Brevitas(), name).to(memory_format=layout).train()
    if how == "eager":
        import torch.ao.quantization as ao
        model = build(Eager(), name).to(memory_format=layout).train()
        fuse_eager(model, True)
        model.qconfig = ao.get_default_qat_qconfig("x86")
        return ao.prepare_qat(model)
    model = build(Plain(), name).to(memory_format=layout).train()
    if how == "fx":
        import torch.ao.quantization as ao
        from torch.ao.quantization import quantize_fx
        return quantize_fx.prepare_qat_fx(model, ao.get_default_qat_qconfig_mapping("x86"), (x,))
    if how == "pt2e":
        from torchao.quantization import pt2e
        from torchao.quantization.pt2e import quantize_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
        quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config(is_qat=True))
        model = quantize_pt2e.prepare_qat_pt2e(torch.export.export(model, (x,)).module(), quantizer)
        return pt2e.move_exported_model_to_train(model)
    return model


def set_precision(precision):
    """Returns what autocast is given for its `enabled`."""
    if precision == "bf16math":
        torch.backends.mkldnn.conv.fp32_precision = "bf16"
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    return precision == "autocast"


def make_step(form, name, batch):
    """A function that makes one training step in the form's way, the model's first steps not made yet."""
    how, run, layout, precision = form.split()
    warnings.filterwarnings("ignore")
    autocast = set_precision(precision)
    network = networks.NETWORKS[name]
    x, y = torch.randn(batch, *network.image), torch.arange(batch) % network.classes
    if layout == "nhwc":
        x = x.to(memory_format=torch.channels_last)
    model = prepare(how, name, x)
    # Observers get their shapes, which inductor wants, and Brevitas ends its first statistics.
    for _ in range(2 if how != "float" else 0):
        with torch.no_grad():
            model(x)
    optimizer = torch.optim.SGD(model.parameters(), 0.001, 0.9, fused=True)

    def loss(x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return nn.functional.cross_entropy(model(x), y)
    forward = torch.compile(loss) if run == "compiled" else loss

    def step():
        optimizer.zero_grad(set_to_none=True)
        forward(x, y).backward()
        optimizer.step()
    return step
