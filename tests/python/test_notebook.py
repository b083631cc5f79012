"""The notebook runs from its first cell to its last, and its figures are those of PyTorch, ONNX Runtime and LiteRT."""
import json
import os
import tempfile
import unittest

from rig import ROOT, needs

needs("numpy", "torch", "onnx", "onnxruntime", "ai_edge_litert")
import numpy as np  # noqa: E402

NOTEBOOK = json.loads((ROOT / "launch/python/notebook.ipynb").read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


class TestNotebook(unittest.TestCase):
    def test_outputs_are_stripped(self):
        for cell in CODE:
            self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None))

    def test_figures_are_those_of_the_other_programs(self):
        names = {}
        home = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                for cell in CODE:
                    exec("".join(cell["source"]), names)
            finally:
                os.chdir(home)
            result, lite = names["result"], names["lite"]
            self.assertGreater(result.int8_accuracy, 85)
            self.assertLess(abs(names["in_torch"] - lite.float_accuracy), 0.1)
            self.assertAlmostEqual(names["in_onnxruntime"], result.int8_accuracy, places=6)
            np.testing.assert_array_equal(names["logits"], result.model(names["test"][0].transpose(0, 2, 3, 1)))
            self.assertAlmostEqual(names["in_litert"], lite.int8_accuracy, places=6)


if __name__ == "__main__":
    unittest.main()
