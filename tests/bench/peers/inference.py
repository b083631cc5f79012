"""int8 inference of ONNX Runtime, OpenVINO and PyTorch on the networks of networks.py, one thread.

A form is a peer and how it is used:

    onnxruntime plain        the QDQ model, all optimizations
    onnxruntime bound        the same, input and output bound once in place of copied
    openvino qdq             the QDQ model
    openvino nncf            the float model, quantized by NNCF
    inductor python          torchao's PT2E (X86InductorQuantizer), compiled with freezing, channels_last
    inductor python-bf16     the same, what is no int8 in bfloat16 (autocast)
    inductor cpp             the same as python, called by compiled code (cpp_wrapper)
    inductor cpp-bf16
    eager x86                torch.ao.quantization (deprecated), the x86 engine
"""
import os
import tempfile
import warnings

import networks

FORMS = ("onnxruntime plain", "onnxruntime bound", "openvino qdq", "openvino nncf", "inductor python",
         "inductor python-bf16", "inductor cpp", "inductor cpp-bf16", "eager x86")
# With an exported file there is one model for both.
FILE_FORMS = ("onnxruntime bound", "openvino qdq")


def onnxruntime_run(path, shape, how):
    import numpy
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    x, name = numpy.random.default_rng(2).uniform(-1, 1, shape).astype(numpy.float32), session.get_inputs()[0].name
    if how == "plain":
        return lambda: session.run(None, {name: x})
    binding, value = session.io_binding(), onnxruntime.OrtValue.ortvalue_from_numpy(x)
    binding.bind_ortvalue_input(name, value)
    binding.bind_output(session.get_outputs()[0].name, "cpu")
    return lambda: session.run_with_iobinding(binding)


def openvino_run(path, shape, how):
    import numpy
    import openvino
    core = openvino.Core()
    model = core.read_model(path)
    model.reshape(list(shape))
    if how == "nncf":
        import nncf
        random, count = numpy.random.default_rng(2), max(1, 8 // shape[0])
        samples = nncf.Dataset([random.uniform(-1, 1, shape).astype(numpy.float32) for _ in range(count)])
        model = nncf.quantize(model, samples, preset=nncf.QuantizationPreset.MIXED, subset_size=count)
    compiled = core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1,
                                                 "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False})
    request = compiled.create_infer_request()
    x = numpy.random.default_rng(2).uniform(-1, 1, shape).astype(numpy.float32)
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
    return request.infer


def inductor_run(name, batch, how):
    import torch
    import torch._inductor.config
    import training
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
    torch._inductor.config.freezing = True
    torch._inductor.config.cpp_wrapper = how.startswith("cpp")
    x = torch.randn(batch, *networks.NETWORKS[name].image).to(memory_format=torch.channels_last)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=how.endswith("bf16"), cache_enabled=False):
        model = training.build(training.Plain(), name).to(memory_format=torch.channels_last).eval()
        quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
        model = quantize_pt2e.prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
        model(x)
        model = quantize_pt2e.convert_pt2e(model)
        compiled = torch.compile(model)
        compiled(x)

    def run():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=how.endswith("bf16"), cache_enabled=False):
            compiled(x)
    return run


def eager_run(name, batch):
    import torch
    import torch.ao.quantization as ao
    import training
    x = torch.randn(batch, *networks.NETWORKS[name].image).to(memory_format=torch.channels_last)
    torch.backends.quantized.engine = "x86"
    model = training.build(training.Eager(), name).to(memory_format=torch.channels_last).eval()
    training.fuse_eager(model, False)
    model.qconfig = ao.get_default_qconfig("x86")
    with torch.no_grad():
        ao.prepare(model, inplace=True)
        model(x)
        ao.convert(model, inplace=True)

    def run():
        with torch.no_grad():
            model(x)
    return run


def make_run(form, name, batch, path):
    """A function that runs one batch. path: of an exported ONNX file in place of the network `name`, or None."""
    import logging
    warnings.filterwarnings("ignore")
    logging.disable(logging.INFO)
    peer, how = form.split()
    if peer == "inductor":
        return inductor_run(name, batch, how)
    if peer == "eager":
        return eager_run(name, batch)
    make = {"onnxruntime": onnxruntime_run, "openvino": openvino_run}[peer]
    if path:
        import onnx
        dims = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
        return make(path, (batch,) + tuple(dim.dim_value for dim in dims[1:]), how)
    import graph
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.onnx")
        graph.write(path, name, how != "nncf", batch)
        return make(path, (batch,) + networks.NETWORKS[name].image, how)
