"""The package as a whole: types and style are clean, errors have Octet's codes."""
import re
import subprocess
import sys
import unittest

from rig import PROGRAM, ROOT, needs

needs("numpy", "mypy", "ruff")
import octet  # noqa: E402

PACKAGE = ROOT / "launch/python"


def run(*command):
    return subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True)


class TestPackage(unittest.TestCase):
    def test_types_are_strict(self):
        done = run(sys.executable, "-m", "mypy", "--no-incremental")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_style_is_clean(self):
        done = run(sys.executable, "-m", "ruff", "check", "--no-cache", "octet", "wheel")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_exit_codes_are_those_of_the_program(self):
        said = subprocess.run([PROGRAM, "help"], capture_output=True, text=True, check=True).stdout
        codes = {int(code) for code in re.findall(r"^ +(\d+) {2,}\S", said, re.M)}
        self.assertGreater(len(codes), 8)
        kinds = [kind for kind in vars(octet).values() if isinstance(kind, type) and issubclass(kind, octet.Error)]
        self.assertEqual({kind.exit_code for kind in kinds}, codes - {0})

    def test_every_public_name_is_described(self):
        for name in octet.__all__:
            self.assertTrue(getattr(octet, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
