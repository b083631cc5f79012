"""The networks of networks.py as ONNX files with random weights, batch norm folded.

In "qdq" each tensor goes through QuantizeLinear and DequantizeLinear: u8 by tensor for activations, s8 by channel
for weights, relu in the range of the codes, as Octet's own int8 programs have it. "float" has none of these.
"""
import numpy
import onnx
import onnx.numpy_helper

import networks


class Writer:
    """Nodes and arrays of a graph. A tensor is a name and its codes: a scale and a zero point."""

    def __init__(self, coded):
        self.coded, self.nodes, self.arrays, self.count = coded, [], [], 0
        self.random = numpy.random.default_rng(1)

    def name(self):
        self.count += 1
        return f"t{self.count}"

    def array(self, value):
        name = self.name()
        self.arrays.append(onnx.numpy_helper.from_array(numpy.asarray(value), name))
        return name

    def node(self, kind, inputs, **attributes):
        name = self.name()
        self.nodes.append(onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def code(self, x, scale, zero):
        if self.coded:
            params = [self.array(numpy.float32(scale)), self.array(numpy.uint8(zero))]
            x = self.node("DequantizeLinear", [self.node("QuantizeLinear", [x] + params)] + params)
        return x, (scale, zero)

    def activate(self, y, act, wide=6):
        """Codes of y: those of relu begin at zero, the others lie around it."""
        if act and not self.coded:
            y = self.node("Relu", [y]) if act == "relu" else self.node(
                "Clip", [y, self.array(numpy.float32(0)), self.array(numpy.float32(6))])
        return self.code(y, *((4 / 255, 0) if act else (wide / 255, 128)))

    def weights(self, shape, x_scale):
        """Weight and bias of a layer that neither grows nor shrinks what goes through."""
        scale = numpy.full(shape[0], (2 / numpy.prod(shape[1:])) ** 0.5 / 64, numpy.float32)
        codes = self.random.integers(-127, 128, shape, numpy.int8)
        bias = self.random.integers(-999, 999, shape[0], numpy.int32)
        if not self.coded:
            by_row = scale.reshape([-1] + [1] * (len(shape) - 1))
            return [self.array((codes * by_row).astype(numpy.float32)),
                    self.array((bias * scale * x_scale).astype(numpy.float32))]
        zeros = [self.array(numpy.zeros(shape[0], kind)) for kind in (numpy.int8, numpy.int32)]
        return [self.node("DequantizeLinear", [self.array(codes), self.array(scale), zeros[0]], axis=0),
                self.node("DequantizeLinear",
                          [self.array(bias), self.array(scale * numpy.float32(x_scale)), zeros[1]], axis=0)]


def write_layers(w, layers, x, channels, side):
    """x and what comes of it: a tensor, its channels, and height and width."""
    for layer in layers:
        if isinstance(layer, networks.Conv):
            groups = channels if layer.depthwise else 1
            shape = (layer.out, channels // groups, layer.kernel, layer.kernel)
            y = w.node("Conv", [x[0]] + w.weights(shape, x[1][0]), kernel_shape=[layer.kernel] * 2,
                       strides=[layer.stride] * 2, pads=[layer.kernel // 2] * 4, group=groups)
            x, channels, side = w.activate(y, layer.act), layer.out, (side - 1) // layer.stride + 1
        elif isinstance(layer, networks.Linear):
            y = w.node("Gemm", [x[0]] + w.weights((layer.out, channels), x[1][0]), transB=1)
            last = layer is layers[-1]
            x, channels = (y, x[1]) if last else w.activate(y, layer.act), layer.out
        elif isinstance(layer, networks.MaxPool):
            y = w.node("MaxPool", [x[0]], kernel_shape=[layer.kernel] * 2, strides=[layer.stride] * 2,
                       pads=[layer.padding] * 4)
            x, side = w.code(y, *x[1]), (side + 2 * layer.padding - layer.kernel) // layer.stride + 1
        elif isinstance(layer, networks.Residual):
            body, out, smaller = write_layers(w, layer.body, x, channels, side)
            if layer.shortcut:
                x = write_layers(w, layer.shortcut, x, channels, side)[0]
            x, channels, side = w.activate(w.node("Add", [body[0], x[0]]), layer.act, 8), out, smaller
        else:
            if isinstance(layer, networks.Mean):
                x = w.code(w.node("GlobalAveragePool", [x[0]]), 2 / 255, 0)
            else:
                channels *= side * side
            x, side = w.code(w.node("Flatten", [x[0]]), *x[1]), 1
    return x, channels, side


def write(path, name, coded, batch):
    """Writes the network for batches of that size."""
    network, w = networks.NETWORKS[name], Writer(coded)
    channels, side = network.image[0], network.image[1]
    y = write_layers(w, network.layers, w.code("x", 2 / 255, 128), channels, side)[0][0]
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(w.nodes, name, [info("x", onnx.TensorProto.FLOAT, (batch,) + network.image)],
                                   [info(y, onnx.TensorProto.FLOAT, (batch, network.classes))], w.arrays)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    model.ir_version = 7
    onnx.checker.check_model(model)
    onnx.save(model, path)
