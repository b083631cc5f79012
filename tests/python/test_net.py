"""Models from Python: the bits of `octet run`, every layer's codes, threads, no leaks."""
import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

from rig import PROGRAM, ROOT, make_model, needs

needs("numpy")
import numpy as np  # noqa: E402

import octet  # noqa: E402


class Tensor:
    """Not of NumPy, as PyTorch's are not, but becomes an array."""

    dtype = "uint8"

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values


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
            self.assertTrue(os.path.samefile(m.path, entry["model"]))  # in a wheel one has ".."
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
        for same in (Tensor(pixels), pixels.reshape(6, -1), pixels[..., np.newaxis]):
            np.testing.assert_array_equal(m(same), expected)

    def test_planes_of_colours_may_be_apart_and_are_not_guessed(self):
        images = np.random.default_rng(3).integers(0, 256, (4, 32, 32, 3), np.uint8)
        planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        wide = np.zeros((6, 3, 32, 40), np.uint8)
        wide[1:-1, ..., 5:-3] = planes
        for apart in (images, planes, wide):
            apart.setflags(write=False)
        with octet.load("zoo:cifar10-resnet20") as m:
            expected = m.predict(images).scores
            for same in (planes, planes.reshape(4, -1), wide[1:-1, ..., 5:-3]):
                np.testing.assert_array_equal(m.predict(same, order="planes").scores, expected)
            np.testing.assert_array_equal(m.predict(images[..., ::-1], order="reversed").scores, expected)
            self.assertEqual(m.predict(images[:0]).classes.shape, (0,))
            with self.assertRaisesRegex(octet.UsageError, r"reshape\(-1, 3, 32, 32\).transpose\(0, 2, 3, 1\)"):
                m(planes.reshape(4, -1))

    def test_floats_that_lie_at_any_address(self):
        m = octet.load(self.model)
        x = np.random.default_rng(2).normal(size=(3, 28, 28, 1)).astype(np.float32)
        odd = np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1).reshape(x.shape)
        for same in (odd, np.asfortranarray(x), x.astype(">f4"), x.astype(np.float64), x[..., 0].tolist()):
            np.testing.assert_array_equal(m(same), m(x))

    def test_copies_open_the_file_again(self):
        m = octet.load(os.path.relpath(self.model), max_batch=3)
        x = np.zeros((5, 28, 28, 1), np.float32)
        expected = m(x)
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir("/")
        others = [copy.copy(m), copy.deepcopy(m), pickle.loads(pickle.dumps(m))]
        os.chdir(here)
        m.close()
        for other in others:
            self.assertEqual(other.max_batch, 3)
            np.testing.assert_array_equal(other(x), expected)
        with self.assertRaisesRegex(octet.UsageError, "load these again"):
            copy.copy(octet.load(self.flat.read_bytes()))

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

    def test_codes_that_are_interrupted_are_not_returned(self):
        m = octet.load(self.model)
        with mock.patch("ctypes.memmove", side_effect=KeyboardInterrupt), mock.patch("sys.unraisablehook"):
            self.assertRaises(KeyboardInterrupt, m.codes, np.zeros((1, 28, 28, 1), np.float32))

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
        for calls in (2500, 10000):  # the first ones make what the allocator keeps for each thread
            for _ in range(calls):
                m(x)
            for _ in range(calls // 100):
                octet.load(self.flat).predict(np.zeros((28, 28), np.uint8))
            if calls == 2500:
                files, pages = files_open(), resident_pages()
        self.assertEqual(files_open(), files)
        self.assertLess((resident_pages() - pages) * os.sysconf("SC_PAGE_SIZE"), 2 << 20)

    def test_wrong_usage_says_what_to_do(self):
        m = octet.load(self.model)
        cases = [
            (lambda: m(np.zeros((2, 1, 28, 28), np.float32)), octet.UsageError, "x.transpose(0, 2, 3, 1)"),
            (lambda: m(np.zeros((2, 28, 27, 1))), octet.UsageError, "the model takes (N, 28, 28, 1)"),
            (lambda: m(np.array(["a"])), octet.UsageError, "the model takes float32"),
            (lambda: m([[1, 2], [3]]), octet.UsageError, "no array of numbers"),
            (lambda: m.codes(np.zeros((2, 28, 28), np.uint8)), octet.UsageError, "normalise pixels as training did"),
            (lambda: m(), octet.UsageError, "takes 1 input, and got 0"),
            (lambda: m.predict(np.zeros((1, 28, 28))), octet.UsageError, "call the net itself"),
            (lambda: m.predict(np.zeros((28, 28), np.uint8), order="bgr"), octet.UsageError, "give one of: as_trained"),
            (lambda: m.predict(np.zeros((28, 28), np.uint8), order="reversed"), octet.UsageError, "no reversed order"),
            (lambda: octet.load("nowhere.int8.h5"), octet.DataError, "nowhere.int8.h5"),
            (lambda: octet.load(b"no model"), octet.DataError, ""),
            (lambda: octet.load(self.flat.read_bytes()[:-1]), octet.DataError, ""),
            (lambda: octet.load(self.model, max_batch=0), octet.UsageError, "give 1 to 2147483647"),
            (lambda: octet.load(self.model, threads=-1), octet.UsageError, "threads is -1"),
            (lambda: octet.load(self.model, threads=2**33 + 1), octet.UsageError, "threads is 8589934593"),
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

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_a_library_of_another_version_is_refused(self):
        source, made = Path(self.folder.name, "next.c"), Path(self.folder.name, "next.so")
        source.write_text('const char *oct_version(void) { return "0.2.0"; }\n')
        subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source], check=True)
        said = subprocess.run([sys.executable, "-c", "import octet; octet.load('m.flat')"], capture_output=True, text=True,
                              env={**os.environ, "OCT_LIBRARY": str(made)})
        self.assertIn("next.so is Octet 0.2.0, and this package is for 0.1; install the package of", said.stderr)

    def test_declarations_are_those_of_the_headers(self):
        done = subprocess.run([sys.executable, ROOT / "launch/python/declare", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
