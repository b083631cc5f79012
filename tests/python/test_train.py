"""Training from Python: the command's bytes, records as they come, stopping and going on, arrays, what a run holds."""
import io
import os
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stderr
from pathlib import Path

from rig import PROGRAM, RECIPE, make_images, needs

needs("numpy")
import numpy as np  # noqa: E402

import octet  # noqa: E402


class TestTrain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name)
        images, labels = make_images(cls.folder, side=12)
        cls.images, cls.labels = np.load(images), np.load(labels)
        cls.recipe = cls.folder / "recipe.yaml"
        cls.recipe.write_text(RECIPE.format(folder=cls.folder))
        subprocess.run([PROGRAM, "train", cls.recipe, f"output={cls.folder / 'command'}", "--quiet"], check=True)
        cls.bytes = (cls.folder / "command/model.int8.h5").read_bytes()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_two_ranks_from_python_make_the_bytes_of_the_command(self):
        seen = []
        run = octet.train(self.recipe, ranks=2, output=self.folder / "two", on_record=seen.append)
        self.assertEqual((run.folder / "model.int8.h5").read_bytes(), self.bytes)
        self.assertEqual(seen, run.metrics)
        self.assertEqual(seen[-1]["kind"], "result")
        self.assertEqual(run.int8_accuracy, run.qat_accuracy)
        self.assertIn("report", repr(run.report).lower())
        self.assertTrue(run.report._repr_html_().startswith("<iframe"))
        self.assertEqual(run.recipe["batch.size"], 20)

    def test_a_run_that_is_stopped_goes_on_to_the_same_bytes(self):
        class Enough(Exception):
            pass

        def stop(record):
            if record["kind"] == "checkpoint":
                raise Enough

        output = self.folder / "stopped"
        changes = {"checkpoint.every": 1, "float.epochs": 40}  # takes far longer than 0.1 s, after which records are read
        with self.assertRaises(Enough):
            octet.train(self.recipe, changes, output=output, on_record=stop)
        self.assertFalse((output / "model.int8.h5").exists())
        self.assertEqual(repr(octet.Run(output)), f"<octet.Run {output}: not ended>")
        run = octet.train(self.recipe, changes, output=output)
        whole = octet.train(self.recipe, changes, output=self.folder / "whole", ranks=3)
        self.assertEqual((run.folder / "model.int8.h5").read_bytes(), (whole.folder / "model.int8.h5").read_bytes())

    def test_weights_are_those_of_the_last_checkpoint(self):
        run = octet.Run(self.folder / "command")
        weights = run.weights
        self.assertEqual(weights["features.0.weight"].shape[1:], (1, 3, 3))
        self.assertEqual(sum("running_mean" in name for name in weights), 4)
        self.assertTrue(all(np.isfinite(array).all() for array in weights.values()))

    def test_arrays_train_as_files_do_and_are_written_once(self):
        output = self.folder / "arrays"
        changes = {"data.path": "", "output": str(output)}
        run = octet.train(self.recipe, changes, data=(self.images, self.labels))
        written = (self.folder / "arrays.data/train_images.npy").stat()
        np.testing.assert_array_equal(run.model(self.images), octet.Run(self.folder / "command").model(self.images))
        octet.train(self.recipe, changes, data=(self.images, self.labels))
        self.assertEqual((self.folder / "arrays.data/train_images.npy").stat().st_mtime_ns, written.st_mtime_ns)
        tested = octet.train(self.recipe, {"output": str(self.folder / "test")}, data=(self.images, self.labels),
                             test=(self.images[:9], self.labels[:9]))
        self.assertEqual(tested.result["images"], 9)

    def test_progress_is_shown_where_it_is_wanted(self):
        # A bar is drawn some times a second.
        for progress, sentence, epochs in (("bar", " %  left ", 60), ("none", "", 2)):
            with redirect_stderr(io.StringIO()) as said:
                octet.train(self.recipe, {"float.epochs": epochs}, output=self.folder / progress, progress=progress)
            self.assertIn(sentence, said.getvalue())
            self.assertEqual(bool(sentence), bool(said.getvalue()))

    def test_ctrl_c_stops_after_a_step_with_a_checkpoint(self):
        output = self.folder / "ctrl-c"
        # A shell ignores it in what it starts in the background, and so would Python.
        program = ("import octet, os, signal, sys\n"
                   "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                   "def press(record):\n"
                   "    if record['kind'] == 'checkpoint': os.kill(os.getpid(), signal.SIGINT)\n"
                   "try:\n"
                   "    octet.train(sys.argv[1], {'checkpoint.every': 1, 'float.epochs': 200}, output=sys.argv[2], on_record=press)\n"
                   "except KeyboardInterrupt:\n"
                   "    print('stopped', any(os.scandir(sys.argv[2] + '/checkpoints')))\n")
        said = subprocess.run([sys.executable, "-c", program, self.recipe, output], capture_output=True, text=True,
                              env=dict(os.environ))
        self.assertEqual(said.stdout, "stopped True\n", said.stderr)


if __name__ == "__main__":
    unittest.main()
