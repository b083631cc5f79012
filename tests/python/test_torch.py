"""PyTorch modules through octet.torch: both exporters, weights under the module's names, data of every kind."""
import os
import tempfile
import unittest
import warnings
from pathlib import Path

from rig import needs

needs("numpy", "torch", "onnx", "onnxscript")
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import octet  # noqa: E402
import octet.torch  # noqa: E402

SHORT = {"batch__size": 16, "qat__epochs": 1, "calibrate__batches": 1, "qat__lr": 0.01}


class Block(nn.Module):
    """Two batch norms of one size with the same values, a parameter that stands alone, dropout, and a shared layer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                                      nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        # Names that Octet writes otherwise, and not in the order of the calls.
        self.late = nn.ModuleDict({"B-2": nn.Conv2d(8, 8, 1), "A-1": nn.Conv2d(8, 8, 1)})
        self.gamma = nn.Parameter(torch.full((8, 1, 1), 0.5))
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(8 * 5 * 4, 4)

    def forward(self, x):
        x = self.late["B-2"](self.late["A-1"](self.features(x) * self.gamma))
        return self.head(self.drop(torch.flatten(x, 1)))


def make_samples(count, h=10, w=8):
    """Float images (count, 3, h, w) of four classes."""
    random = np.random.default_rng(3)
    labels = np.arange(count) % 4
    images = random.normal(0, 0.3, (count, 3, h, w)).astype(np.float32)
    for image, label in zip(images, labels):
        image[:, label * 2 : label * 2 + 2] += 1
    return images, labels


def accuracy(module, images, labels):
    with torch.no_grad():
        found = module.eval()(torch.from_numpy(images)).argmax(1).numpy()
    return 100 * float((found == labels).mean())


class Pictures(torch.utils.data.Dataset):
    """A Dataset that counts how often it is read."""

    classes = ["top", "upper", "lower", "bottom"]

    def __init__(self, images, labels):
        self.images, self.labels, self.reads = images, labels, 0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        self.reads += 1
        return torch.from_numpy(self.images[i]), int(self.labels[i])


class TestTorch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.images, cls.labels = make_samples(64)
        cls.test = make_samples(200)
        cls.home = os.getcwd()
        cls.folder = tempfile.TemporaryDirectory()
        os.chdir(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        os.chdir(cls.home)
        cls.folder.cleanup()

    def setUp(self):
        torch.manual_seed(5)
        self.module = Block()

    def qat(self, module=None, data=None, **more):
        return octet.torch.qat(module or self.module, data or (self.images, self.labels), **{**SHORT, **more})

    def check_weights(self, result, module):
        """The module's own names, all of them trained, and the outputs that Octet has."""
        self.assertLess(result.max_error, 1e-5)
        self.assertEqual(result.missing, ())
        state = result.state_dict
        self.assertEqual(list(state), list(module.state_dict()))
        for name, before in module.state_dict().items():
            self.assertEqual(state[name].shape, before.shape, name)
            if "num_batches" not in name:
                self.assertFalse(torch.equal(state[name], before), name)

    def test_both_exporters_give_the_weights_back(self):
        for exporter in ("torchscript", "dynamo"):
            with self.subTest(exporter):
                result = self.qat(exporter=exporter, inplace=False, float__epochs=2)
                self.assertEqual(result.exporter, exporter)
                self.assertIsNot(result.module, self.module)
                self.check_weights(result, self.module)

    def test_float_accuracy_in_torch_is_that_of_octet(self):
        result = self.qat(float__epochs=4, float__lr=0.05, test=self.test)
        self.assertIs(result.module, self.module)
        # The same weights go to Octet a second time, whose float figure of them is this.
        again = octet.torch.calibrate(self.module, (self.images, self.labels), test=self.test)
        here = accuracy(self.module, *self.test)
        self.assertGreater(here, 60)
        self.assertLess(abs(here - again.float_accuracy), 0.1)
        self.assertGreater(again.calibration["output_sqnr_db"], 10)
        codes = result.model(self.test[0].transpose(0, 2, 3, 1)).argmax(1)
        self.assertAlmostEqual(100 * float((codes == self.test[1]).mean()), result.int8_accuracy, places=4)

    def test_attention_with_more_heads_than_positions(self):
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.patches = nn.Conv2d(3, 48, 5, stride=5)
                self.attention = nn.MultiheadAttention(48, 12, batch_first=True)
                self.head = nn.Linear(48, 4)

            def forward(self, x):
                x = self.patches(x).flatten(2).transpose(1, 2)
                return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))

        result = self.qat(Attention(), layout="NCHW")
        self.assertLess(result.max_error, 1e-5)

    def test_folded_batch_norms_are_undone(self):
        self.module.features[1].running_mean.uniform_(-0.3, 0.3)
        self.module.features[5].running_var.uniform_(0.5, 2)
        before = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
        result = self.qat(quant__batch_norm="folded", inplace=False)
        self.assertLess(result.max_error, 1e-5)
        ones = result.state_dict["features.1.weight"]
        self.assertTrue(torch.equal(ones, torch.ones(8)))
        self.assertFalse(torch.equal(result.state_dict["features.1.bias"], before["features.1.bias"]))
        self.assertTrue(torch.equal(self.module.features[1].running_mean, before["features.1.running_mean"]))

    def test_what_does_not_come_back_is_said_and_changes_nothing(self):
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.utils.parametrizations.weight_norm(nn.Linear(3 * 10 * 8, 4))

            def forward(self, x):
                return self.head(x.flatten(1))

        module = Scaled()
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        with self.assertWarnsRegex(UserWarning, "do not fit into the module.*original"):
            result = self.qat(module, layout="NCHW")
        with self.assertRaisesRegex(octet.MismatchError, "result.run.weights"):
            _ = result.module
        for name, tensor in module.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), name)
        self.assertEqual(result.model(self.images[:3].transpose(0, 2, 3, 1)).shape, (3, 4))

    def test_data_of_every_kind_make_the_same_model(self):
        pictures = Pictures(self.images, self.labels)
        tensors = (torch.from_numpy(self.images), torch.from_numpy(self.labels))
        kinds = {"arrays": (self.images, self.labels), "last": (self.images.transpose(0, 2, 3, 1), self.labels),
                 "tensors": tensors, "TensorDataset": torch.utils.data.TensorDataset(*tensors), "Dataset": pictures}
        models = {kind: self.qat(data=data, inplace=False, output=f"kinds/{kind}") for kind, data in kinds.items()}
        weights = [result.run.weights["head.weight"] for result in models.values()]
        for array in weights[1:]:
            np.testing.assert_array_equal(array, weights[0])
        self.assertEqual(models["Dataset"].classes, tuple(Pictures.classes))
        self.assertLess(pictures.reads, 2 * len(pictures))
        reads = pictures.reads
        self.qat(data=pictures, inplace=False, output="kinds/Dataset")  # has ended: neither read nor trained again
        self.assertLess(pictures.reads - reads, 5)

    def test_workers_read_a_dataset(self):
        result = octet.torch.calibrate(self.module, Pictures(self.images, self.labels), workers=2, calibrate__batches=1)
        there = np.load(result.run.folder.with_name(result.run.folder.name + ".data") / "train_images.npy")
        np.testing.assert_array_equal(there, self.images.transpose(0, 2, 3, 1))

    def test_calibrate_takes_images_alone(self):
        result = octet.torch.calibrate(self.module, self.images, calibrate__batches=1, quant__target="onnxruntime")
        self.assertIsNone(result.int8_accuracy)
        self.check_export(result)

    def check_export(self, result):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result.export("a.onnx")
        with self.assertWarnsRegex(UserWarning, "quant__target=\"tflite\""):
            result.export("a.tflite")
        self.assertTrue(Path("a.tflite").stat().st_size > 0)

    def test_wrong_usage_says_what_to_do(self):
        good = (self.images, self.labels)
        sparse = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        for sentence, module, data, more in (
            ("give a torch.nn.Module", "net", good, {}),
            ("do not fit the module; the module says", self.module, (self.images[:, :2], self.labels), {}),
            ("layout=\"NCHW\" or", sparse, (np.zeros((8, 3, 3, 3), np.float32), self.labels[:8]), {}),
            ("give one of: NCHW, NHWC", self.module, good, {"layout": "CHW"}),
            ("64 images and 63 labels; give one for each", self.module, (self.images, self.labels[:-1]), {}),
            ("data__mean", self.module, (self.images.astype(np.uint8), self.labels), {}),
            ("give one of: torchscript, dynamo", self.module, good, {"exporter": "caffe"}),
            ("qat.epoch", self.module, good, {"qat__epoch": 1}),
            ("add a transform", self.module, Names(), {}),
            ("test has no samples", self.module, good, {"test": (self.images[:0], self.labels[:0])}),
        ):
            with self.subTest(sentence), self.assertRaisesRegex(octet.UsageError, sentence):
                octet.torch.qat(module, data, **more)

    def test_sentences_of_prepare_name_the_module(self):
        class Sorted(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Conv2d(3, 4, 3), Sort())
                self.head = nn.Linear(4, 4)

            def forward(self, x):
                return self.head(self.body(x).mean((2, 3)))

        for exporter in ("torchscript", "dynamo"):
            with self.subTest(exporter), self.assertRaisesRegex(octet.Error, r"body\.1 \(Sort\)"):
                self.qat(Sorted(), exporter=exporter)


class Sort(nn.Module):
    def forward(self, x):
        return torch.topk(x, 5, 3)[0]


class Names(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return "picture.png", i


if __name__ == "__main__":
    unittest.main()
