"""Recipes: what a training is to do. Every check is the program's own."""
from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union

from . import _program
from ._errors import UsageError

Source = Union[str, "os.PathLike[str]", "Recipe"]


def word_of(key: str, value: Any) -> str:
    """key=value as the program takes it: True is true, None is null, and lists have brackets."""
    return f"{key}={_text_of(value)}"


def _text_of(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(json.dumps(v) if isinstance(v, str) else _text_of(v) for v in value) + "]"
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if hasattr(value, "item"):  # a number of NumPy
        return _text_of(value.item())
    return str(value) or "null"  # the default, which of a text is an empty one


def _value_of(text: str) -> Any:
    """The value of a key in the text that the program writes: it quotes texts that look like something else."""
    if text.startswith("["):
        return [_value_of(part) for part in _split_list(text[1:-1])]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _split_list(text: str) -> list[str]:
    parts, part, quoted = [], "", False
    for at, letter in enumerate(text):
        quoted ^= letter == '"' and text[at - 1] != "\\"
        if letter == "," and not quoted:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return [*parts, part.strip()] if part.strip() else parts


def _without_comment(text: str) -> str:
    quoted = False
    for at, letter in enumerate(text):
        quoted ^= letter == '"' and text[at - 1] != "\\"
        if letter == "#" and not quoted and text[at - 1 : at].isspace():
            return text[:at].rstrip()
    return text.rstrip()


class Recipe(Mapping[str, Any]):
    """A recipe as a mapping of all its keys, such as "qat.epochs", to their values.

    Recipe("my.yaml") reads a file, Recipe("fashion-mnist") one of the shipped recipes, and a text of several lines is
    the recipe itself. r["qat.epochs"] = 2 changes a key, r.update({...}) several at once; wrong keys and values raise
    UsageError with the program's sentence, and change nothing. str(r) is the YAML with a comment for each key.
    """

    def __init__(self, source: Source, changes: Mapping[str, Any] | None = None):
        self._text: str
        if isinstance(source, Recipe):
            self._text = source._text
        elif "\n" in os.fspath(source):
            self._text = os.fspath(source)
        elif os.path.exists(source):
            self._text = Path(source).read_text(encoding="utf-8")
        else:
            name = os.fspath(source)
            self._text = _program.run(["recipes", name[:-5] if name.endswith(".yaml") else name])
        self.update(changes or {})

    def update(self, changes: Mapping[str, Any]) -> None:
        """Changes several keys at once, so that values that only fit together may change."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
            file.write(self._text)
            file.flush()
            words = [word_of(key, value) for key, value in changes.items()]
            try:
                said = _program.run(["inspect", file.name, *words, "--json"])
            except UsageError as error:
                raise UsageError(*(s.replace(file.name, "recipe") for s in error.sentences)) from None
        self._text = json.loads(said)["recipe"]
        self._values: dict[str, Any] = {}
        section = ""
        for line in self._text.splitlines():
            name, _, rest = line.partition(":")
            text = _without_comment(rest).strip()
            if not line.startswith(" ") and not text:
                section = name.strip() + "."
            elif text:
                self._values[(section if line.startswith(" ") else "") + name.strip()] = _value_of(text)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the recipe as YAML."""
        Path(path).write_text(self._text, encoding="utf-8")

    def check(self, *, ranks: int = 1) -> Any:
        """What `octet check` finds: memory, time, what becomes of each layer. Reads the data; nothing is written."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
            file.write(self._text)
            file.flush()
            return _program.command("check", file.name, "--ranks", ranks)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<octet.Recipe {self['name']}: {len(self)} keys>"
