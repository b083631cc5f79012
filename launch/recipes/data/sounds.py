#!/usr/bin/python3
"""Makes up the sound of a machine, as log-mel features: usual ones to learn, and a test with unusual ones.

usage: sounds.py OUT.h5 [--train N] [--test N] [--seed S]

A sample is what MLPerf Tiny's anomaly detection gets: 5 frames of 128 mel bands, the logarithm (base 10) of the
power in each, float32, stored as (5, 128, 1). The machine hums at a speed that changes with its load, its tones
swell once a turn, and the room has a noise of its own. {train,test}/labels are 0 for usual sounds; half of the test
is unusual and has label 1: a tone is missing, a bearing whistles, something rattles, or the hum is out of tune.
The same numbers give the same bytes, with the same versions of numpy and h5py.
Needs python3 with numpy and h5py (Debian: python3-numpy python3-h5py).
"""
import argparse

import h5py
import numpy as np

FRAMES, BANDS, TONES = 5, 128, 6


def tone(power, centre, level):
    """Adds a tone between bands, as wide as mel bands smear it, to the power of each frame."""
    band = np.arange(BANDS)
    power += level[:, None] * np.exp(-0.5 * ((band - centre) / 1.2) ** 2)


def sound(rng, unusual):
    load = rng.uniform(0, 1)
    first = 11 + 4 * load  # the band of the lowest tone
    turn = rng.uniform(0, 2 * np.pi) + 0.9 * np.arange(FRAMES)
    swell = 1 + 0.5 * np.sin(turn)
    kind = rng.integers(4) if unusual else -1
    power = np.repeat(1e-5 * 10 ** (-1.5 * np.arange(BANDS) / BANDS)[None], FRAMES, 0)
    power *= 10 ** rng.normal(0, 0.05)
    level = 10 ** (-2.2 + 0.8 * load)
    for k in range(TONES):
        spread = 1.02 if kind == 3 and k > 1 else 1.0
        centre = first * (1 + 2.6 * np.log1p(k)) * spread  # mel bands narrow towards high tones
        loss = 0.3 if kind == 0 and k in (2, 3) else 1.0
        tone(power, centre, level * swell * 0.45 ** k * loss)
    if kind == 1:
        tone(power, rng.uniform(95, 120), np.full(FRAMES, 10 ** rng.uniform(-6.3, -5.6)))
    if kind == 2:
        power[rng.integers(FRAMES)] += 10 ** rng.uniform(-6.2, -5.6)
    power *= rng.gamma(8, 1 / 8, power.shape)  # a short time gives only a rough power
    return np.log10(power + 1e-8).astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--train", type=int, default=6000, help="training samples (6000)")
    parser.add_argument("--test", type=int, default=1000, help="test samples (1000)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with h5py.File(args.out, "w") as file:
        for split, count in ((0, args.train), (1, args.test)):
            group = file.create_group(("train", "test")[split])
            labels = np.arange(count, dtype=np.uint8) % 2 * split
            images = [sound(np.random.default_rng([args.seed, split, i]), labels[i]) for i in range(count)]
            group["images"] = np.stack(images)[..., None]
            group["labels"] = labels
    print(f"{args.out}: {args.train} usual sounds to learn, {args.test} to test, every second one unusual")


main()
