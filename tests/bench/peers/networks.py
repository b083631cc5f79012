"""The networks of Octet's zoo, layer by layer, without a word of any framework (launch/model/*.c).

Every convolution has a batch norm. `act` is None, "relu" or "relu6"; channels that come in are those of
the layer before. What is built of a network: graph.py (ONNX), training.py (PyTorch, Brevitas).
"""
import collections

Conv = collections.namedtuple("Conv", "out kernel stride depthwise act bias", defaults=(1, False, "relu", False))
Linear = collections.namedtuple("Linear", "out norm act", defaults=(False, None))
MaxPool = collections.namedtuple("MaxPool", "kernel stride padding", defaults=(2, 2, 0))
Mean = collections.namedtuple("Mean", "")          # over each plane; gives a vector
Flatten = collections.namedtuple("Flatten", "")
Residual = collections.namedtuple("Residual", "body shortcut act")  # shortcut (): the identity

# image: channels, height and width; batch: that of a training step, unless another is asked for.
Network = collections.namedtuple("Network", "image classes layers batch")


def cnn_small():
    return (Conv(32, 3), Conv(32, 3), MaxPool(), Conv(64, 3), Conv(64, 3), MaxPool(), Flatten(),
            Linear(128, act="relu"), Linear(10))


def residual_stages(blocks, widths, channels, bottleneck):
    """Stages of residual blocks; all but the first stage halve the image."""
    layers = []
    for stage, (count, width) in enumerate(zip(blocks, widths)):
        out = 4 * width if bottleneck else width
        for block in range(count):
            stride = 2 if block == 0 and stage > 0 else 1
            if bottleneck:
                body = (Conv(width, 1), Conv(width, 3, stride), Conv(out, 1, act=None))
            else:
                body = (Conv(width, 3, stride), Conv(out, 3, act=None))
            same = stride == 1 and channels == out
            layers.append(Residual(body, () if same else (Conv(out, 1, stride, act=None),), "relu"))
            channels = out
    return tuple(layers)


def resnet20():
    return (Conv(16, 3),) + residual_stages((3, 3, 3), (16, 32, 64), 16, False) + (Mean(), Linear(10))


def resnet18c():
    return (Conv(64, 3),) + residual_stages((2, 2, 2, 2), (64, 128, 256, 512), 64, False) + (Mean(), Linear(10))


def resnet50():
    return ((Conv(64, 7, 2), MaxPool(3, 2, 1)) +
            residual_stages((3, 4, 6, 3), (64, 128, 256, 512), 64, True) + (Mean(), Linear(10)))


def mobilenetv2(act, stride):
    """stride: of the stem, and of the first stage that may halve the image."""
    layers, channels = [Conv(32, 3, stride, act=act)], 32
    for expand, out, count, first in ((1, 16, 1, 1), (6, 24, 2, stride), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                      (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(count):
            step, wide = first if block == 0 else 1, channels * expand
            body = (Conv(wide, 1, act=act),) if expand != 1 else ()
            body += (Conv(wide, 3, step, True, act), Conv(out, 1, act=None))
            layers += [Residual(body, (), None)] if step == 1 and channels == out else body
            channels = out
    return tuple(layers) + (Conv(1280, 1, act=act), Mean(), Linear(10))


def vgg11c():
    layers = []
    for out in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers.append(Conv(out, 3, bias=True) if out else MaxPool())
    return tuple(layers) + (Mean(), Linear(512, True, "relu"), Linear(10))


NETWORKS = {
    "cnn-small": Network((1, 28, 28), 10, cnn_small(), 64),
    "resnet20": Network((3, 32, 32), 10, resnet20(), 64),
    "resnet18c": Network((3, 32, 32), 10, resnet18c(), 64),
    "mobilenetv2c-relu": Network((3, 32, 32), 10, mobilenetv2("relu", 1), 64),
    "vgg11c": Network((3, 32, 32), 10, vgg11c(), 64),
    "resnet50": Network((3, 224, 224), 10, resnet50(), 16),
    "mobilenetv2": Network((3, 224, 224), 10, mobilenetv2("relu6", 2), 16),
}


def taps(side, kernel, stride, padding):
    """Of all outputs of a row together, those that are not in the padding."""
    out = (side + 2 * padding - kernel) // stride + 1
    return sum(0 <= o * stride + k - padding < side for o in range(out) for k in range(kernel)), out


def multiply_adds(name):
    """Of one image: forward, and a training step, whose first layer has no gradient of its input."""
    network, products = NETWORKS[name], []

    def walk(layers, channels, side):
        for layer in layers:
            if isinstance(layer, Conv):
                row, out = taps(side, layer.kernel, layer.stride, layer.kernel // 2)
                products.append(row * row * layer.out * (1 if layer.depthwise else channels))
                channels, side = layer.out, out
            elif isinstance(layer, Linear):
                products.append(channels * layer.out)
                channels = layer.out
            elif isinstance(layer, MaxPool):
                side = taps(side, layer.kernel, layer.stride, layer.padding)[1]
            elif isinstance(layer, Residual):
                walk(layer.shortcut, channels, side)
                channels, side = walk(layer.body, channels, side)
            else:
                channels, side = channels * (side * side if isinstance(layer, Flatten) else 1), 1
        return channels, side
    walk(network.layers, network.image[0], network.image[1])
    return sum(products), 3 * sum(products) - products[0]
