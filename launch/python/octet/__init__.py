"""Octet from Python: quantization-aware training whose int8 models compute bit for bit what training computed.

    import octet
    run = octet.train("my.yaml", ranks=2)  # or arrays: data=(images, labels)
    run.metrics, run.weights, run.report  # records for pandas, arrays by name, the page in a notebook
    m = run.model                         # or octet.load("model.int8.h5"), also of a flat file
    m(x)                                  # float32 as in training, or uint8 pixels: what the model computes
    m.predict(images)                     # classes and their probabilities
    m.codes(x)["layers.0"].values         # what each layer gives, as codes with scale and zero point

Arrays have channels last (samples, rows, columns, channels). What fails raises an octet.Error with Octet's own
sentences: what happened, where, and what to do.
"""
from ._errors import (
    DataError,
    DefectError,
    Error,
    LostError,
    MismatchError,
    NumericError,
    PrepareError,
    ResourceError,
    StoppedError,
    UsageError,
)
from ._library import version
from ._net import Codes, Layer, Net, Port, Prediction, load
from ._program import command
from ._recipe import Recipe
from ._run import Report, Run, train

__version__ = version()

__all__ = [
    "Codes",
    "DataError",
    "DefectError",
    "Error",
    "Layer",
    "LostError",
    "MismatchError",
    "Net",
    "NumericError",
    "Port",
    "Prediction",
    "PrepareError",
    "Recipe",
    "Report",
    "ResourceError",
    "Run",
    "StoppedError",
    "UsageError",
    "command",
    "load",
    "train",
    "version",
]
