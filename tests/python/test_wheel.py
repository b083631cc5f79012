"""The wheel: what its audit finds, and that a package with programs and library inside uses these.

launch/python/wheel --check builds a wheel and tries it, which takes minutes.
"""
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from rig import PROGRAM, ROOT, make_model, needs

needs("numpy")
LIBRARY = os.environ.get("OCT_LIBRARY")
HELPER = os.environ.get("OCT_HDF5_PROGRAM")
if not LIBRARY or not HELPER:
    print("SKIPPED: this is for the programs and libraries of a build, which CTest names")
    sys.exit(77)

loader = importlib.machinery.SourceFileLoader("wheel_script", str(ROOT / "launch/python/wheel"))
wheel = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(wheel)


class TestWheel(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.package = self.folder / "octet"
        shutil.copytree(ROOT / "launch/python/octet", self.package)
        (self.package / "_lib").mkdir()
        (self.package / "_bin").mkdir()
        self.library = self.package / "_lib/liboctet-runtime.so.0.1"
        shutil.copy(LIBRARY, self.library)

    def audit(self, *glibc):
        return wheel.audit(str(self.package), *glibc)[0]

    def test_versions_are_those_of_the_library(self):
        found = [re.search(pattern, (ROOT / file).read_text(), re.M)[1] for file, pattern in (
            ("CMakeLists.txt", r"project\(octet VERSION ([0-9.]+)"),
            ("launch/python/pyproject.toml", r'^version = "(.*)"'),
            ("launch/python/octet/_library.py", r'^VERSION = "(.*)"'))]
        self.assertEqual(found, [found[0]] * 3)

    def test_what_the_library_needs_is_put_beside_it(self):
        self.assertIn("which is not in the wheel", "\n".join(self.audit()))
        for name, file in wheel.bundle([str(self.library)]).items():
            shutil.copy(file, self.package / "_lib" / name)
        here = int(os.confstr("CS_GNU_LIBC_VERSION").split(".")[1])
        self.assertEqual(self.audit(max(here, wheel.GLIBC)), [])

    def test_only_the_program_may_need_mpi(self):
        for name in ("octet", "octet-hdf5"):
            shutil.copy(PROGRAM, self.package / "_bin" / name)
        said = "\n".join(self.audit())
        self.assertRegex(said, r"octet-hdf5 needs libmpi\S*, which is not")
        self.assertNotRegex(said, r"octet needs libmpi")

    def test_names_of_others_and_a_newer_glibc_are_found(self):
        shutil.copy("/usr/lib/x86_64-linux-gnu/libz.so.1", self.package / "_lib/liboctet-z.so")
        self.assertRegex("\n".join(self.audit()), r"liboctet-z.so exports .* names that are not Octet's")
        self.assertRegex("\n".join(self.audit(3)), r"liboctet-runtime.so.0.1 needs glibc 2.\d+; build on")

    def test_the_package_uses_what_is_inside(self):
        model, images = make_model(self.folder)
        helper = self.package / "_bin/octet-hdf5"
        helper.write_text(f"#!/bin/sh\ntouch '{self.folder}/started'\nexec '{HELPER}' \"$@\"\n")
        program = self.package / "_bin/octet"
        program.write_text("#!/bin/sh\necho inside: $*\n")
        for script in (helper, program):
            script.chmod(0o755)
        said = subprocess.run([sys.executable, "-c", "import numpy, octet, octet._program, sys\n"
                               f"print(octet.load({str(model)!r})(numpy.load({str(images)!r})).shape)\n"
                               "sys.argv[1:] = ['help', 'train']; sys.stdout.flush(); octet._program.main()"],
                              env={"PYTHONPATH": str(self.folder), "PATH": os.defpath}, capture_output=True, text=True)
        self.assertEqual((said.stdout, said.stderr), ("(60, 4)\ninside: help train\n", ""))
        self.assertTrue((self.folder / "started").exists())


if __name__ == "__main__":
    unittest.main()
