"""Recipes from Python: all keys, changes that the program checks, and the text."""
import tempfile
import unittest
from pathlib import Path

from rig import RECIPE, needs

needs("numpy")
import octet  # noqa: E402


class TestRecipe(unittest.TestCase):
    def test_values_have_their_types(self):
        r = octet.Recipe("fashion-mnist")
        self.assertEqual((r["qat.epochs"], r["model.name"], r["data.flip"], r["data.mean"]), (1, "cnn-small", False, [0.286]))
        self.assertEqual(r["model.onnx"], "")
        self.assertGreater(len(r), 100)

    def test_values_come_back_as_they_were_set(self):
        r = octet.Recipe(RECIPE.format(folder="."))
        values = {"qat.epochs": 3, "data.flip": True, "float.lr": 0.0125, "data.mean": [0.25, 0.5], "data.std": [1, 2],
                  "data.train": ["rotate 10", "color_jitter 0.4 0.4 0.4 0.1"], "name": "a: b # c", "quant.int16_layers": []}
        r.update(values)
        self.assertEqual({key: r[key] for key in values}, values)
        with tempfile.TemporaryDirectory() as folder:
            r.write(Path(folder) / "r.yaml")
            self.assertEqual(octet.Recipe(Path(folder) / "r.yaml"), r)
        self.assertEqual(octet.Recipe(str(r)), r)
        self.assertNotEqual(octet.Recipe(r, {"seed": 9}), r)

    def test_a_wrong_change_is_refused_and_changes_nothing(self):
        r = octet.Recipe("fashion-mnist")
        before = str(r)
        for key, value, sentence in (("qat.epoch", 2, "did you mean 'qat.epochs'"), ("qat.epochs", -1, "allowed: 0 to 10000"),
                                     ("qat.epochs", "many", "not a whole number"), ("data.flip", 3, "true")):
            with self.subTest(key), self.assertRaisesRegex(octet.UsageError, sentence):
                r[key] = value
        self.assertEqual(str(r), before)
        with self.assertRaises(KeyError):
            r["qat.epoch"]


if __name__ == "__main__":
    unittest.main()
