"""What fails raises an exception with Octet's own sentences and the name of its exit code."""
from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn


class Error(Exception):
    """A failure of Octet.

    status: the name of the exit code, such as "DATA"; exit_code: the number, as `octet help` lists them;
    sentences: what happened, where, and what to do. str() gives them as lines.
    """

    status = "DEFECT"
    exit_code = 70

    def __init__(self, *sentences: str):
        super().__init__("\n".join(sentences))
        self.sentences = sentences


class MismatchError(Error):
    """Two things differ that should be the same: a model was changed, or another version trains other bits."""

    status, exit_code = "MISMATCH", 1


class UsageError(Error, ValueError):
    """An argument, an option or a recipe is wrong. Nothing was started."""

    status, exit_code = "USAGE", 2


class DataError(Error, OSError):
    """A file is missing, damaged or not what it should be."""

    status, exit_code = "DATA", 3


class PrepareError(Error):
    """The network cannot become an integer model for this target."""

    status, exit_code = "PREPARE", 4


class NumericError(Error, ArithmeticError):
    """Training failed numerically."""

    status, exit_code = "NUMERIC", 5


class LostError(Error):
    """A rank is lost, stuck or diverged."""

    status, exit_code = "LOST", 6


class ResourceError(Error, RuntimeError):
    """The disk is full, memory is out, or a program, a library or a permission is missing."""

    status, exit_code = "RESOURCE", 7


class DefectError(Error):
    """A defect in Octet."""


class StoppedError(Error):
    """Stopped as requested, with a checkpoint: the same call goes on."""

    status, exit_code = "STOPPED", 75


KINDS = (MismatchError, UsageError, DataError, PrepareError, NumericError, LostError, ResourceError, DefectError,
         StoppedError)


def raise_for(exit_code: int, sentences: Sequence[str]) -> NoReturn:
    """Raises the exception of an exit code; of one that Octet does not have, DefectError."""
    kind = next((kind for kind in KINDS if kind.exit_code == exit_code), DefectError)
    raise kind(*(sentences or (f"Octet failed with status {exit_code} and said nothing",)))
