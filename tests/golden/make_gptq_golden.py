#!/usr/bin/env python3
"""Writes gptq_golden.h: codes of weights by GPTQ as its authors write it, with the inverse of H.

Run with NumPy (Debian 12: python3-numpy) in this folder:
    /usr/bin/python3 make_gptq_golden.py > gptq_golden.h && clang-format-14 -i gptq_golden.h

quant/module/conv/qat_conv_round.c factors H itself, from the last weight to the first; here it is inverted, the
inverse is factored, and every error is taken from the weights behind it (Frantar 2022, algorithm 1, a block of one
column). As in Octet the largest weight of a row has the code of its own value, whatever came before it.
"""
import numpy as np

rng = np.random.default_rng(20221031)
K, ROWS, WINDOWS = 27, 6, 160

base = rng.normal(size=(WINDOWS, 9)) @ rng.normal(size=(9, K))  # of rank 9: strongly correlated
x = np.clip(np.rint(20 * base + 4 * rng.normal(size=(WINDOWS, K))) + 128, 0, 255).astype(np.int64)
x[:, 5] = 128  # an input that is always 0
w = rng.normal(scale=0.2, size=(ROWS, K)).astype(np.float32)

h = (x - 128).T @ (x - 128)
damped = h.astype(np.float64) + np.eye(K) * 0.01 * np.trace(h) / K
upper = np.linalg.cholesky(np.linalg.inv(damped)).T
codes = np.zeros((ROWS, K), np.int64)
for o in range(ROWS):
    scale = np.float32(np.abs(w[o]).max() / np.float32(127))
    largest = int(np.abs(w[o]).argmax())
    row = w[o].astype(np.float64)
    for k in range(K):
        wanted = float(w[o, k]) if k == largest else row[k]
        codes[o, k] = min(max(np.rint(wanted / float(scale)), -127), 127)
        e = (row[k] - codes[o, k] * float(scale)) / upper[k, k]
        row[k + 1:] -= e * upper[k, k + 1:]


def emit(kind, name, values):
    lines = [", ".join(str(v) for v in values[i:i + 20]) for i in range(0, len(values), 20)]
    print(f"static const {kind} {name}[] = {{\n" + ",\n".join(lines) + "};\n")


print("/* Codes by GPTQ as its authors write it, by make_gptq_golden.py; do not edit. */\n#pragma once\n")
print("#include <stdint.h>\n")
print(f"enum {{ GPTQ_DEPTH = {K}, GPTQ_ROWS = {ROWS}, GPTQ_WINDOWS = {WINDOWS} }};\n")
emit("uint8_t", "gptq_inputs", x.flatten().tolist())
emit("float", "gptq_weights", [v.hex() + "f" for v in map(float, w.flatten())])
emit("int8_t", "gptq_codes", codes.flatten().tolist())
