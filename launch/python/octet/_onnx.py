"""A module of PyTorch as the ONNX file that Octet trains: parameters keep their names, batch norms stay apart."""
from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from pathlib import Path
from typing import Any, Callable

import onnx
import torch
from torch import nn

from ._errors import UsageError


def _by_torchscript(module: nn.Module, example: torch.Tensor, path: Path) -> None:
    # PRESERVE and no folding: batch norms stay what they are. A module that says it is in training keeps equal
    # parameters apart, which would else become one; its forward itself still runs in evaluation.
    module.register_forward_pre_hook(lambda own, _: setattr(own, "training", False))
    module.register_forward_hook(lambda own, *_: setattr(own, "training", True))
    module.training = True
    try:
        torch.onnx.export(module, (example,), str(path), dynamo=False, input_names=["input"],
                          dynamic_axes={"input": {0: "batch"}}, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.PRESERVE)
    finally:
        module.training = False


def _by_dynamo(module: nn.Module, example: torch.Tensor, path: Path) -> None:
    # Its own optimizer would fold batch norms and rename what it folds: only what holds no parameter is folded.
    from onnxscript import optimizer

    program = torch.onnx.export(module, (example,), dynamo=True, optimize=False, verbose=False, input_names=["input"])
    assert program is not None
    parameters = set(module.state_dict())
    optimizer.inline(program.model)
    optimizer.fold_constants(program.model, should_fold=lambda node: node.op_type in SHAPES or not any(
        value is not None and value.name in parameters for value in node.inputs))
    for node in program.model.graph:  # a convolution without a bias has gotten one of zeros, which would be learned
        if node.op_type in ("Conv", "ConvTranspose") and len(node.inputs) > 2:
            bias = node.inputs[2]
            if bias is not None and bias.name not in parameters:
                node.replace_input_with(2, None)
    optimizer.remove_unused_nodes(program.model)
    program.save(str(path), external_data=False)


#: These give the shape of a parameter, and not its values.
SHAPES = ("Shape", "Size", "CastLike")
#: In the order in which they are tried.
EXPORTERS: dict[str, Callable[[nn.Module, torch.Tensor, Path], None]] = {
    "torchscript": _by_torchscript, "dynamo": _by_dynamo}


def write_onnx(module: nn.Module, example: torch.Tensor, path: Path, exporter: str | None) -> str:
    """Writes the module, which is in evaluation, and returns the exporter that did it."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.training = True  # is part of the training
    failures = []
    for name in [exporter] if exporter else EXPORTERS:
        level = logging.root.manager.disable
        logging.disable(logging.WARNING)
        torch._C._jit_set_onnx_log_enabled(False)  # a whole graph where an export fails
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                EXPORTERS[name](module, example, path)
            return name
        except Exception as error:  # whatever an exporter raises
            failures.append(f"{name}: {next(iter(str(error).strip().splitlines()), type(error).__name__)}")
        finally:
            logging.disable(level)
    raise UsageError(f"PyTorch cannot export {type(module).__name__} to ONNX: {'; '.join(failures)}")


def folded_batch_norms(path: Path) -> dict[str, tuple[str, float]]:
    """Of each layer with weights that a batch norm follows: the batch norm's name and its epsilon."""
    graph = onnx.load(str(path), load_external_data=False).graph
    makers = {name: node for node in graph.node for name in node.output}
    found = {}
    for node in graph.node:
        if node.op_type == "BatchNormalization" and node.input[0] in makers:
            weight = [name for name in makers[node.input[0]].input if name.endswith(".weight")]
            epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
            if weight:
                found[weight[0][: -len(".weight")]] = (node.input[1].rpartition(".")[0], epsilon)
    return found


def name_modules(sentence: str, path: Path, module: nn.Module) -> str:
    """The sentence with the module's own names beside the nodes of the ONNX file in it."""
    scopes: dict[str, str] | None = None

    def named(match: re.Match[str]) -> str:
        nonlocal scopes
        if scopes is None:
            scopes = {node.name: _scope(node) for node in onnx.load(str(path), load_external_data=False).graph.node}
        layer = scopes.get(match[2], "")
        kind = type(dict(module.named_modules()).get(layer, module)).__name__
        return f"{match[0]} of {layer} ({kind})" if layer else match[0]

    return re.sub(r"node ('?)([^' ]+?)\1(?=:? |:?$)", named, sentence)


def _scope(node: Any) -> str:
    """The path of the module that a node was exported of: of its name, /layer1/layer1.0/conv1/Conv, or its metadata."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.name_scopes":
            names = [name for name in re.findall(r"'([^']*)'", entry.value)[:-1] if name]
            return names[-1] if names else ""
    path = ""
    for part in node.name.strip("/").split("/")[:-1]:
        path = part if part.startswith(path + ".") or not path else f"{path}.{part}"
    return path
