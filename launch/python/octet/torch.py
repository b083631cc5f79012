"""PyTorch modules: quantization-aware training of a module, and its weights back in it.

    import octet.torch
    result = octet.torch.qat(module, (images, labels), quant__target="onnxruntime")
    result.module                          # the module, with the trained weights
    result.export("net.int8.onnx")         # what ONNX Runtime computes bit for bit
    octet.torch.calibrate(module, images)  # without training

The module goes to Octet as ONNX, in the file `module.onnx` beside the run folder. It needs torch 2.13 and onnx.
"""
from __future__ import annotations

import copy
import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from . import _program
from ._errors import Error, MismatchError, UsageError
from ._net import FORMS, Net
from ._onnx import EXPORTERS, folded_batch_norms, name_modules, write_onnx
from ._recipe import Recipe, Source
from ._run import Record, Run, train, write_data
from ._samples import LAYOUTS, Samples, as_input, find_layout, take_samples

#: What a recipe says where the call does not: the module's weights are the start, and are trained on quantized.
RECIPE = """schema: 1
name: {name}
model: {{onnx: "{onnx}"}}
batch: {{size: 64}}
float: {{epochs: 0, lr: 0.01}}
qat: {{epochs: 2, lr: 0.001, schedule: cosine}}
"""
TOLERANCE = 1e-4  # of the outputs of torch and of Octet for the same weights, as a share of the largest


class Result:
    """A module after Octet: its weights, the run that made them, and the int8 model.

    run: the octet.Run. model: the int8 model, an octet.Net. classes: names of the classes, where the data set had them.
    exporter: which exporter of PyTorch wrote the ONNX file. missing: parameters of the module that the run gave no
    value; the module keeps its own. max_error: the largest difference between outputs of the module in torch and of
    Octet's float network with the same weights, on the golden inputs, as a share of the largest output.
    """

    def __init__(self, module: nn.Module, run: Run, onnx: Path, *, exporter: str, classes: Sequence[str],
                 inplace: bool, calibration: Record | None):
        self.run, self.onnx, self.exporter, self.classes = run, onnx, exporter, tuple(classes)
        #: What `octet calibrate` says of each layer; None of `qat`.
        self.calibration = calibration
        self.missing: tuple[str, ...] = ()
        self.max_error = float("inf")
        self._module, self._state = module, self._state_of(module)
        if not self.agrees:
            warnings.warn(self._why(), stacklevel=3)
            return
        if not inplace:
            self._module = copy.deepcopy(module)
        self._module.load_state_dict(self._state)

    @property
    def agrees(self) -> bool:
        """Whether torch computes with `state_dict` what Octet's float network computes, but for rounding."""
        return self.max_error <= TOLERANCE

    @property
    def module(self) -> nn.Module:
        """The module with the weights after training: the one that was given, or with inplace=False a copy.

        Raises MismatchError where its outputs would differ from Octet's, and the module then keeps its weights.
        """
        self._require()
        return self._module

    @property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights after training under the module's own names; raises MismatchError as `module` does."""
        self._require()
        return self._state

    @property
    def model(self) -> Net:
        """The int8 model."""
        return self.run.model

    @property
    def float_accuracy(self) -> float | None:
        """In percent: at the end of the float phase, or of `calibrate`; None where neither was."""
        return (self.calibration or self.run.result)["float_accuracy"]  # type: ignore[no-any-return]

    @property
    def int8_accuracy(self) -> float | None:
        """In percent, of the int8 model on the test data."""
        return (self.calibration or self.run.result)["int8_accuracy"]  # type: ignore[no-any-return]

    def export(self, path: str | Path, *options: object, form: str | None = None) -> None:
        """Writes the int8 model for other programs, as octet.Net.export: form onnx, tflite, c or flat, or the ending's.

        Warns where the model was trained for another target, and may have other codes there.
        """
        chosen = form or Path(path).suffix[1:]
        target = {"onnx": "onnxruntime", "tflite": "tflite"}.get(chosen)
        trained_for = self.run.recipe["quant.target"]
        if chosen in FORMS and target and trained_for != target:
            warnings.warn(f"the model was trained for quant.target {trained_for}, and may have other codes in the "
                          f"runtime of {path}; give octet.torch quant__target=\"{target}\" for the same", stacklevel=2)
        self.model.export(path, *options, form=form)

    def __repr__(self) -> str:
        said = f"int8 {self.int8_accuracy} %" if self.int8_accuracy is not None else "no accuracy"
        return f"<octet.torch.Result of {type(self._module).__name__}: {said}, {self.run.folder}>"

    def _why(self) -> str:
        names = f": the run has no values of {', '.join(self.missing)}" if self.missing else ""
        return (f"the weights of {self.run.folder} do not fit into the module, which stays as it was{names}; "
                "result.model is the int8 model, result.run.weights has the weights by the names of the ONNX file")

    def _require(self) -> None:
        if not self.agrees:
            raise MismatchError(self._why())

    def _state_of(self, module: nn.Module) -> dict[str, torch.Tensor]:
        """The run's weights as a state_dict, once they have been tried on the golden inputs of the float network."""
        with tempfile.TemporaryDirectory(prefix="octet-") as scratch:
            network = Path(scratch) / "float.onnx"
            weights = self.run.weights
            _program.run(["export", self.run.folder, "--format", "onnx", "-o", network])
            with np.load(f"{network}.golden.npz") as golden:
                inputs, output = golden["input"], golden["output"]
        state, self.missing = match_weights(module, weights, self.onnx)
        trial = copy.deepcopy(module).cpu().float().eval()
        trial.load_state_dict(state)
        with torch.no_grad():
            outputs = tensors_of(trial(torch.from_numpy(inputs)))
        self.max_error = min((_difference(own.numpy(), output) for own in outputs), default=float("inf"))
        return state


def _difference(own: NDArray[Any], output: NDArray[Any]) -> float:
    """The largest difference as a share of the largest value; Octet may have left a softmax or sigmoid to the loss."""
    if own.size != output.size:
        return float("inf")
    logits = torch.from_numpy(output.reshape(own.shape)).double()
    forms = [logits, logits.softmax(1), logits.log_softmax(1), logits.sigmoid()] if logits.ndim > 1 else [logits]
    return min(float(np.abs(form.numpy() - own).max() / max(1e-30, np.abs(own).max())) for form in forms)


def tensors_of(result: Any) -> list[torch.Tensor]:
    """The tensors in what a module returns: one, or those of a tuple or dict."""
    if isinstance(result, torch.Tensor):
        return [result]
    parts = result.values() if isinstance(result, Mapping) else result if isinstance(result, (tuple, list)) else ()
    return [tensor for part in parts for tensor in tensors_of(part)]


def match_weights(module: nn.Module, weights: Mapping[str, NDArray[Any]],
                  onnx: Path) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """A state_dict for the module of weights by the names of its ONNX file, and the parameters that got no value.

    What has the module's name and size is taken. A batch norm that was folded into the layer before it becomes one that
    does nothing but add the bias, which computes the same. Parameters that stand in the file by themselves, outside any
    layer, have names of operators there; they are taken by their number of values, in their order.
    """
    own = module.state_dict()
    folded = folded_batch_norms(onnx)
    # Octet's names have small letters, digits, points, and _ for all else.
    names = {re.sub(r"[^a-z0-9_.]", "_", name.lower()): name for name in (*own, *(f"{layer}.bias" for layer in folded))}
    left = {names.get(key, key): array for key, array in weights.items()}
    found: dict[str, NDArray[Any]] = {}
    for name, tensor in own.items():
        if name in left and left[name].size == tensor.numel():
            found[name] = left.pop(name)
    for layer, (norm, epsilon) in folded.items():
        bias = left.pop(f"{layer}.bias", found.get(f"{layer}.bias"))
        if bias is None or f"{norm}.running_var" in found or f"{norm}.running_var" not in own:
            continue
        ones = np.ones(bias.size, np.float32)
        if f"{layer}.bias" in own:
            found[f"{layer}.bias"], bias = bias, 0 * ones
        found.update({f"{norm}.weight": ones, f"{norm}.bias": bias, f"{norm}.running_mean": 0 * ones,
                      f"{norm}.running_var": ones - np.float32(epsilon)})
    parameters = dict(module.named_parameters())
    for name, parameter in parameters.items():
        if name not in found:
            fits = next((key for key, array in left.items() if array.size == parameter.numel()), None)
            if fits is not None:
                found[name] = left.pop(fits)
    # Two names of one tensor have one value.
    first = {tensor.data_ptr(): name for name, tensor in own.items() if name in found and tensor.numel()}
    for name, tensor in own.items():
        if name not in found and tensor.numel() and tensor.data_ptr() in first:
            found[name] = found[first[tensor.data_ptr()]]
    state = copy.copy(own)  # with the versions of the modules, which a plain dict has not
    for name, tensor in own.items():
        state[name] = (torch.from_numpy(np.array(found[name])).reshape(tensor.shape).to(tensor) if name in found
                       else tensor.detach().clone())
    return state, tuple(name for name in parameters if name not in found)


def qat(module: nn.Module, data: Samples, *, test: Samples | None = None, recipe: Source | None = None,
        ranks: int = 1, output: str | Path | None = None, example: torch.Tensor | None = None,
        layout: str | None = None, exporter: str | None = None, inplace: bool = True, workers: int = 0,
        progress: str | None = None, on_record: Any = None, **changes: Any) -> Result:
    """Trains a module quantized on its data, and returns it with the new weights and the int8 model.

    module: takes images (N, C, H, W), or features (N, F), and returns logits (N, classes) or what recipe's loss takes.
    data, test: (images, labels), NumPy arrays or tensors, or a torch Dataset of such pairs. Images are float32 as the
    module takes them, or uint8 with data__mean and data__std; (N, C, H, W) or (N, H, W, C), which the module decides;
    layout="NCHW" or "NHWC" says it where both would do. Without test, a tenth of the data is kept for it (data.split).
    recipe: a file, the name of a shipped recipe or an octet.Recipe whose training is followed; its model and data are
    not. changes: keys of the recipe, with __ for the point: qat__epochs=5, quant__target="tflite", float__epochs=10
    to train in float first. ranks: processes that train together; no bit depends on them.
    output: the run folder; None: a new one, runs/NAME. A call with the same output and module goes on with that run.
    example: what the exporters get as the module's input. exporter: "torchscript" or "dynamo" of torch.onnx.export;
    None: the first that works. inplace: the module gets the weights; else a copy of it does.
    workers: of the DataLoader that reads a Dataset, whose samples are written once, as .npy files.
    progress, on_record: as of octet.train.

    Raises what octet.train raises, PrepareError where a layer cannot become integers, UsageError where PyTorch cannot
    export the module.
    """
    job = _Job(module, data, test, recipe, output, example, layout, exporter, workers, changes)
    try:
        run = train(job.recipe, ranks=ranks, data=job.data, test=job.test, progress=progress, on_record=on_record)
    except Error as error:
        raise job.name_modules(error) from None
    return Result(module, run, job.onnx, exporter=job.exporter, classes=job.classes, inplace=inplace, calibration=None)


def calibrate(module: nn.Module, data: Samples, *, test: Samples | None = None, recipe: Source | None = None,
              ranks: int = 1, output: str | Path | None = None, example: torch.Tensor | None = None,
              layout: str | None = None, exporter: str | None = None, workers: int = 0, **changes: Any) -> Result:
    """Makes an int8 model of a trained module without training, and judges each layer (`result.calibration`).

    As `qat`, which describes the arguments; data may be images alone, and then there are no accuracies.
    Keys for changes: quant__observer="mse", quant__equalize=True, quant__rounding="gptq", calibrate__batches=64.
    """
    job = _Job(module, data, test, recipe, output, example, layout, exporter, workers,
               {"float.epochs": 0, "qat.epochs": 0, **changes})
    job.recipe.update(write_data(job.folder.with_name(job.folder.name + ".data"), job.data, job.test))
    with tempfile.TemporaryDirectory(prefix="octet-") as scratch:
        file = Path(scratch) / "recipe.yaml"
        job.recipe.write(file)
        words = ["calibrate", file, *(["--ranks", ranks] if ranks != 1 else []), "--quiet"]
        try:
            found = _program.command(*words)
        except Error as error:
            raise job.name_modules(error) from None
    return Result(module, Run(job.folder), job.onnx, exporter=job.exporter, classes=job.classes, inplace=False,
                  calibration=found)


class _Job:
    """What a call gives the program: the ONNX file, arrays with channels last, and the recipe."""

    def __init__(self, module: nn.Module, data: Samples, test: Samples | None, recipe: Source | None,
                 output: str | Path | None, example: torch.Tensor | None, layout: str | None, exporter: str | None,
                 workers: int, changes: Mapping[str, Any]):
        if not isinstance(module, nn.Module):
            raise UsageError(f"the module is a {type(module).__name__}; give a torch.nn.Module")
        if exporter not in (None, *EXPORTERS):
            raise UsageError(f"exporter is '{exporter}'; give one of: {', '.join(EXPORTERS)}")
        if layout not in (None, *LAYOUTS):
            raise UsageError(f"layout is '{layout}'; give one of: {', '.join(LAYOUTS)}")
        self.module = module
        name = type(module).__name__
        self.folder = (Path(output) if output is not None else _free_folder(name)).absolute()
        files = self.folder.with_name(self.folder.name + ".data")
        files.mkdir(parents=True, exist_ok=True)
        frozen = copy.deepcopy(module).cpu().float().eval()
        taken = take_samples(data, files, "train", workers, lambda some: find_layout(frozen, some, example, layout))
        self.data, self.classes = taken.arrays, taken.classes
        if example is None:
            example = as_input(taken.images, "NHWC")
        shape = example.shape[1:]
        self.test = None if test is None else take_samples(
            test, files, "test", workers, lambda some: find_layout(frozen, some, torch.zeros(1, *shape), layout)).arrays
        keys = {key.replace("__", "."): value for key, value in changes.items()}
        self.onnx = files / "module.onnx"
        self.exporter = write_onnx(frozen, example, self.onnx, exporter)
        own: dict[str, Any] = {"model.name": None, "model.onnx": str(self.onnx), "output": str(self.folder)}
        if taken.images.dtype != np.uint8:
            own.update({"data.mean": [0], "data.std": [1]})
        elif recipe is None and not {"data.mean", "data.std"} <= keys.keys():
            raise UsageError("images are uint8 pixels; say what the module wants of them, pixels from 0 to 1, as "
                             "data__mean=[0.5], data__std=[0.5], or give float32 images as the module takes them")
        if recipe is None:
            recipe = RECIPE.format(name=name, onnx=self.onnx)
            if len(self.classes) > 1:
                own["data.classes"] = len(self.classes)
        if taken.labels is None:
            own["data.goal"] = "none"
            with torch.no_grad():
                own["data.classes"] = tensors_of(frozen(example))[0].shape[1]
        self.recipe = Recipe(recipe, {**own, **keys})

    def name_modules(self, error: Error) -> Error:
        """The error with the module that a node of the ONNX file comes from, where a sentence names one."""
        return type(error)(*(name_modules(sentence, self.onnx, self.module) for sentence in error.sentences))


def _free_folder(name: str) -> Path:
    number = 1
    while True:
        folder = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not folder.exists() and not folder.with_name(folder.name + ".data").exists():
            return folder
        number += 1
