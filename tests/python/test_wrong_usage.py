"""Wrong usage from Python: each gives one exception whose sentence says what to do."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from rig import make_model, needs

needs("numpy")
import numpy as np  # noqa: E402

import octet  # noqa: E402

FLOATS = np.zeros((2, 28, 28, 1), np.float32)
PIXELS = np.zeros((2, 28, 28), np.uint8)


class TestWrongUsage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name)
        cls.model, _ = make_model(cls.folder)
        cls.net = octet.load(cls.model)
        (cls.folder / "text.h5").write_text("no model")
        (cls.folder / "empty").mkdir()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def refused(self, kind, sentence, call):
        with self.subTest(sentence), self.assertRaises(kind) as caught:
            call()
        error = caught.exception
        self.assertIn(sentence, str(error))
        self.assertEqual(error.status, kind.status)
        self.assertFalse(str(error).startswith("octet: error"))

    def test_models(self):
        m, folder = self.net, self.folder
        for kind, sentence, call in (
            (octet.DataError, "nowhere.int8.h5", lambda: octet.load(folder / "nowhere.int8.h5")),
            (octet.DataError, "text.h5", lambda: octet.load(folder / "text.h5")),
            (octet.DataError, "", lambda: octet.load(b"\0" * 100)),
            (octet.UsageError, "give 1 to 2147483647 samples", lambda: octet.load(self.model, max_batch=0)),
            (octet.UsageError, "takes 1 input, and got 2", lambda: m(FLOATS, FLOATS)),
            (octet.UsageError, "pass x.transpose(0, 2, 3, 1)", lambda: m(FLOATS.transpose(0, 3, 1, 2))),
            (octet.UsageError, "the model takes (N, 28, 28, 1)", lambda: m(FLOATS[0, 0])),
            (octet.UsageError, "the model takes (N, 28, 28, 1)", lambda: m(np.zeros((2, 32, 32, 1)))),
            (octet.UsageError, "the model takes float32", lambda: m(np.zeros((2, 28, 28, 1), complex))),
            (octet.UsageError, "call the net itself", lambda: m.predict(FLOATS)),
            (octet.UsageError, "give one of: as_trained", lambda: m.predict(PIXELS, order="bgr")),
            (octet.UsageError, "the ending says no format", lambda: m.export(folder / "net.pb")),
            (octet.UsageError, "write them to a file", lambda: octet.load(self.flat()).export("a.onnx")),
        ):
            self.refused(kind, sentence, call)

    def flat(self):
        path = self.folder / "net.flat"
        self.net.export(path, "--force")
        return path.read_bytes()

    def test_recipes_and_runs(self):
        folder, recipe = self.folder, self.folder / "recipe.yaml"
        array = np.zeros((8, 28, 28), np.uint8)
        output = {"output": str(folder / "never")}
        for kind, sentence, call in (
            (octet.UsageError, "did you mean 'fashion-mnist'", lambda: octet.Recipe("fashion-mnits")),
            (octet.UsageError, "unknown key 'bad'", lambda: octet.Recipe("schema: 1\nbad: 3\n")),
            (octet.UsageError, "did you mean 'qat.epochs'", lambda: octet.train(recipe, {"qat.epoch": 2})),
            (octet.UsageError, "give one of: bar, lines, none", lambda: octet.train(recipe, progress="quiet")),
            (octet.UsageError, "give both, or neither", lambda: octet.train(recipe, output, test=(array, array))),
            (octet.UsageError, "give uint8 pixels or float32", lambda: octet.train(recipe, output, data=(["a"], [1]))),
            (octet.UsageError, "8 images and 3 labels", lambda: octet.train(recipe, output, data=(array, [1, 2, 3]))),
            (octet.UsageError, "--ranks", lambda: octet.train(recipe, output, ranks=0)),
            (octet.DataError, "there is no such folder", lambda: octet.train(recipe, {**output, "data.format": "idx",
                                                                                    "data.path": "/nowhere"})),
            (octet.DataError, "is no run folder", lambda: octet.Run(folder / "empty")),
            (octet.UsageError, "unknown command", lambda: octet.command("trian")),
        ):
            self.refused(kind, sentence, call)
        self.assertFalse((folder / "never").exists())

    def test_no_program_and_no_mpi(self):
        said = "import octet\ntry: octet.Recipe('fashion-mnist')\nexcept octet.ResourceError as e: print(e)\n"
        program = self.folder / "octet"
        program.write_text("#!/bin/sh\necho 'octet: error while loading shared libraries: libmpi.so.40: no such file' >&2\n"
                           "exit 127\n")
        program.chmod(0o755)
        for path, sentence in (("/nowhere/octet", "set OCT_PROGRAM to the program"), (program, "apt-get install openmpi-bin")):
            done = subprocess.run([sys.executable, "-c", said], env={**os.environ, "OCT_PROGRAM": str(path)},
                                  capture_output=True, text=True)
            self.assertIn(sentence, done.stdout, done.stderr)


if __name__ == "__main__":
    unittest.main()
