"""Models from Python: the bits of `octet run`, every layer's codes, threads, no leaks."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

from rig import PROGRAM, make_model, needs

needs("numpy")
import numpy as np  # noqa: E402

import octet  # noqa: E402


def files_open():
    return len(os.listdir("/proc/self/fd"))


def resident_pages():
    return int(Path("/proc/self/statm").read_text().split()[1])


class TestNet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model, cls.images = make_model(Path(cls.folder.name))
        cls.flat = cls.model.with_suffix(".flat")
        subprocess.run([PROGRAM, "export", cls.model, "--format", "flat", "-o", cls.flat], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_bits_are_those_of_the_program_from_every_kind_of_source(self):
        said = subprocess.run([PROGRAM, "run", self.model, "--input", self.images, "--count", "20", "--logits", "--json"],
                              check=True, capture_output=True, text=True).stdout
        rows = json.loads(said)["images"]
        expected = np.array([row["logits"] for row in rows], np.float32)
        pixels = np.load(self.images)[:20]
        for source in (self.model, self.flat, self.flat.read_bytes()):
            for threads, batch in ((1, 1), (2, 7), (0, 64)):
                with octet.load(source, threads=threads, max_batch=batch) as m:
                    np.testing.assert_array_equal(m(pixels), expected)
                    np.testing.assert_array_equal(m.predict(pixels).classes, expected.argmax(axis=1))
                    m.verify()

    def test_a_network_of_the_zoo_comes_by_its_name(self):
        entry = octet.command("zoo", "tiny")
        with octet.load("zoo:tiny") as m:
            self.assertEqual(m.path, entry["model"])
            m.verify()
        with self.assertRaisesRegex(octet.UsageError, "did you mean 'tiny'"):
            octet.load("zoo:tinny")
        with self.assertRaisesRegex(octet.DataError, "octet zoo make cifar10-mobilenetv2 trains it"):
            octet.load("zoo:cifar10-mobilenetv2")

    def test_views_and_other_orders_are_the_same_pixels(self):
        pixels = np.load(self.images)[:6]
        n, h, w = pixels.shape
        frames = np.zeros((n, h + 5, w + 9), np.uint8)
        frames[:, 2:-3, 4:-5] = pixels
        planes = pixels[:, np.newaxis]
        padded = np.stack([pixels, pixels], axis=-1)
        m = octet.load(self.model)
        expected = m(pixels)
        np.testing.assert_array_equal(m(frames[:, 2:-3, 4:-5]), expected)
        np.testing.assert_array_equal(m(frames[::-1, 2:-3, 4:-5]), expected[::-1])
        for images, order in ((planes, "planes"), (padded, "padded"), (np.asfortranarray(pixels), "as_trained")):
            np.testing.assert_array_equal(m.predict(images, order=order).scores, m.predict(pixels).scores)
        np.testing.assert_array_equal(m(pixels[0]), expected[0])

    def test_codes_of_every_layer_end_in_the_output(self):
        m = octet.load(self.model, max_batch=4)
        x = np.linspace(-2, 2, 10 * 28 * 28, dtype=np.float32).reshape(10, 28, 28, 1)
        codes = m.codes(x)
        self.assertEqual([c.layer for c in codes.values()], list(m.layers))
        first = next(iter(codes.values()))
        q = m.inputs[0]
        rounded = np.clip(np.rint(x * (np.float32(1) / np.float32(q.scale))) + q.zero_point, 0, 255)
        np.testing.assert_array_equal(first.values, rounded)
        np.testing.assert_array_equal(list(codes.values())[-1].real.reshape(m(x).shape), m(x))
        flat = octet.load(self.flat).codes(x)
        for name, c in codes.items():
            np.testing.assert_array_equal(c.values, flat[name].values)

    def test_threads_call_one_net_side_by_side(self):
        m = octet.load(self.model, threads=1)
        x = np.random.default_rng(1).normal(size=(8, 4, 28, 28, 1)).astype(np.float32)
        expected = [m(part) for part in x]
        differ = []

        def call(part):
            for _ in range(50):
                if not np.array_equal(m(x[part]), expected[part]):
                    differ.append(part)

        threads = [threading.Thread(target=call, args=(part,)) for part in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(differ, [])

    def test_ten_thousand_calls_leak_nothing(self):
        m = octet.load(self.flat, threads=1)
        x = np.zeros((1, 28, 28, 1), np.float32)
        for calls in (500, 10000):
            for _ in range(calls):
                m(x)
            for _ in range(calls // 100):
                octet.load(self.flat).predict(np.zeros((28, 28), np.uint8))
            if calls == 500:
                files, pages = files_open(), resident_pages()
        self.assertEqual(files_open(), files)
        self.assertLess((resident_pages() - pages) * os.sysconf("SC_PAGE_SIZE"), 2 << 20)

    def test_wrong_usage_says_what_to_do(self):
        m = octet.load(self.model)
        cases = [
            (lambda: m(np.zeros((2, 1, 28, 28), np.float32)), octet.UsageError, "x.transpose(0, 2, 3, 1)"),
            (lambda: m(np.zeros((2, 28, 27, 1))), octet.UsageError, "the model takes (N, 28, 28, 1)"),
            (lambda: m(np.array(["a"])), octet.UsageError, "the model takes float32"),
            (lambda: m(), octet.UsageError, "takes 1 inputs, and got 0"),
            (lambda: m.predict(np.zeros((1, 28, 28))), octet.UsageError, "call the net itself"),
            (lambda: m.predict(np.zeros((28, 28), np.uint8), order="bgr"), octet.UsageError, "give one of: as_trained"),
            (lambda: m.predict(np.zeros((28, 28), np.uint8), order="reversed"), octet.UsageError, "no reversed order"),
            (lambda: octet.load("nowhere.int8.h5"), octet.DataError, "nowhere.int8.h5"),
            (lambda: octet.load(b"no model"), octet.DataError, ""),
            (lambda: octet.load(self.flat.read_bytes()[:-1]), octet.DataError, ""),
            (lambda: octet.load(self.model, max_batch=0), octet.UsageError, "give 1 or more"),
            (lambda: octet.load(self.model, threads=-1), octet.UsageError, "threads is -1"),
        ]
        for number, (call, kind, sentence) in enumerate(cases):
            with self.subTest(number), self.assertRaises(kind) as caught:
                call()
            self.assertIn(sentence, str(caught.exception))
            self.assertGreater(len(str(caught.exception)), 10)
        m.close()
        with self.assertRaisesRegex(octet.UsageError, "is closed; load it again"):
            m(np.zeros((1, 28, 28, 1), np.float32))

    @unittest.skipIf((Path(octet.__file__).parent / "_lib").exists(), "the wheel has the library inside")
    def test_a_missing_library_says_where_it_was_looked_for(self):
        program = "import octet\ntry:\n    octet.load('m.flat')\nexcept octet.ResourceError as e:\n    print(e.status, e)"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OCT_", "LD_LIBRARY"))}
        for variables, sentence in (({"OCT_LIBRARY": "/nowhere/liboctet.so"}, "/nowhere/liboctet.so is not a library"),
                                    ({"OCT_PREFIX": "/nowhere"}, "RESOURCE liboctet-runtime.so.0.1 was not found in")):
            said = subprocess.run([sys.executable, "-c", program], env={**clean, **variables}, capture_output=True, text=True)
            self.assertIn(sentence, said.stdout, said.stderr)


if __name__ == "__main__":
    unittest.main()
