"""Octet's shared library: where it is, and calls of it."""
from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

from . import _declarations as c
from ._errors import DefectError, Error, ResourceError, raise_for

VERSION = "0.1.0"
SERIES = VERSION.rpartition(".")[0]
PACKAGE = Path(__file__).resolve().parent

#: Exit codes of what functions return, in the order of oct_status.
EXIT_CODES = (0, 1, 2, 3, 4, 5, 6, 7, 70, 75, 6)


def installed_trees() -> list[Path]:
    """Folders with lib and bin in which Octet may be installed, beside the system's own."""
    named = os.environ.get("OCT_PREFIX")
    return [Path(named)] if named else [Path.home() / "octet", Path("/usr/local")]


class Library:
    """Functions of one shared object by their names in C; oct_net_open("...") raises where it fails."""

    def __init__(self, path: str):
        self.path = path
        try:
            self._object = ctypes.CDLL(path)
            self._object.oct_version.restype = ctypes.c_char_p
            version = self._object.oct_version().decode()
        except (OSError, AttributeError) as error:
            raise ResourceError(f"{path} is not a library of Octet that can be loaded here: {error}") from None
        if version.rpartition(".")[0] != SERIES:
            raise ResourceError(f"{path} is Octet {version}, and this package is for {SERIES}; install the package of "
                                f"that version, or name another library with OCT_LIBRARY")

    def __getattr__(self, name: str) -> Any:
        result, arguments = c.FUNCTIONS[name]
        try:
            function = getattr(self._object, name)
        except AttributeError:
            raise ResourceError(f"{self.path} has no {name}: it is older than this package; install both") from None
        fails = result is c.oct_status
        function.argtypes, function.restype = arguments, ctypes.c_int if fails else result
        call = self._checked(function) if fails else function
        setattr(self, name, call)
        return call

    def _checked(self, function: Any) -> Any:
        def call(*arguments: Any) -> None:
            status = function(*arguments)
            if status != c.OCT_OK:
                self._raise(status)
        return call

    def _raise(self, status: int) -> None:
        count = self.oct_error_count()
        sentences = [self.oct_error_message(i).decode(errors="replace") for i in range(count)]
        if not 0 <= status < len(EXIT_CODES):
            raise DefectError(f"{self.path} returned the unknown status {status}", *sentences)
        raise_for(EXIT_CODES[status], sentences)


def _find(stem: str) -> Library:
    """Loads lib<stem>.so: of the package, of a tree that Octet is installed in, or where the loader looks."""
    file = f"lib{stem}.so.{SERIES}"
    places = [PACKAGE / "_lib" / file, *(tree / "lib" / file for tree in installed_trees())]
    for place in places:
        if place.exists():
            return Library(str(place))
    try:
        ctypes.CDLL(file)
    except OSError:
        looked = ", ".join(str(place.parent) for place in places)
        raise ResourceError(f"{file} was not found in {looked} or where the loader looks; install the wheel of Octet, "
                            "or set OCT_LIBRARY to the file, or OCT_PREFIX to the folder of cmake --install") from None
    return Library(file)


@cache
def library(*, full: bool = False) -> Library:
    """The library that runs models; full: the one that also runs layers that stay float, which needs MPI's library.

    OCT_LIBRARY names the file of either.
    """
    named = os.environ.get("OCT_LIBRARY")
    if named:
        return Library(named)
    return _find("octet" if full else "octet-runtime")


def version() -> str:
    """The version of the library, such as "0.1.0"; of the package, if no library is there."""
    try:
        return str(library().oct_version().decode())
    except Error:
        return VERSION
