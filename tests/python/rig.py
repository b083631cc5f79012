"""What the tests of the Python package share. CTest says where the library and the program are."""
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("OCT_PROGRAM", "octet")
SKIPPED = 77  # tests/CMakeLists.txt

#: Of a short training on what make_images wrote; .format(folder=...).
RECIPE = """schema: 1
name: small
model: {{name: cnn-small}}
data: {{format: npy, path: {folder}, images: images, labels: labels}}
batch: {{size: 20}}
float: {{epochs: 2, lr: 0.05}}
qat: {{epochs: 1, lr: 0.01}}
calibrate: {{batches: 2}}
"""


def needs(*packages):
    """Ends the file as skipped where Python lacks a package."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        print(f"SKIPPED: {sys.executable} has no {', '.join(missing)}; tests/run installs them by pip")
        sys.exit(SKIPPED)


def make_images(folder, count=60, side=28):
    """Images (count, side, side) of four classes with a bright band in different places, and their labels, as .npy in the folder."""
    import numpy as np

    random = np.random.default_rng(7)
    labels = np.arange(count, dtype=np.int64) % 4
    images = random.integers(0, 60, (count, side, side), dtype=np.uint8)
    for image, label in zip(images, labels):
        image[label * side // 4 : (label + 1) * side // 4] += 150
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
    return folder / "images.npy", folder / "labels.npy"


def make_model(folder):
    """Trains a small network for some steps; returns the paths of its int8 model and of its images."""
    images, labels = make_images(folder)
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=folder))
    subprocess.run([PROGRAM, "train", recipe, f"output={folder / 'run'}", "--progress", "none"], check=True)
    return folder / "run" / "model.int8.h5", images
