#!/usr/bin/env python3
"""Weak scaling of training steps over simulated ranks, as a table and a drawing.

    tests/bench/simgrid/scaling.py FOLDER [--ranks 1,8,64] [--nets resnet50] [--clusters 25gbe]

Each line of FOLDER/scaling.tsv is one simulation (tests/bench/simgrid/run); lines that are there are not simulated
again. FOLDER/scaling.svg draws all of them.
"""
import argparse
import os
import re
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NETS = {  # leaves of a rank, and its description in the drawing
    "resnet20": (4, "ResNet-20, 32x32, 32 images a rank, 1.1 MB"),
    "resnet18c": (4, "resnet18c, 32x32, 32 images a rank, 44.7 MB"),
    "resnet50": (1, "ResNet-50, 224x224, 4 images a rank, 94.1 MB"),
}
CLUSTERS = {"10gbe": "#c0392b", "25gbe": "#1f6fb2", "100gbe": "#2e8b57"}
RANKS = [1, 8, 64, 128, 512, 1024]
FASTER = "2.5"  # than the machine of the traces: the rate of RESULTS.md, "Beside PyTorch"


def read(path):
    rows = {}
    if os.path.exists(path):
        for line in open(path):
            cells = line.rstrip("\n").split("\t")
            if cells[0] != "net":
                rows[cells[0], cells[1], int(cells[2])] = cells[3:]
    return rows


def write(path, rows):
    with open(path, "w") as out:
        out.write("net\tcluster\tranks\tstep ms\tcomputes ms\tefficiency %\n")
        for key in sorted(rows, key=lambda k: (list(NETS).index(k[0]), list(CLUSTERS).index(k[1]), k[2])):
            out.write("\t".join([*map(str, key), *rows[key]]) + "\n")


def simulate(net, cluster, ranks):
    line = subprocess.run([f"{HERE}/run", "-c", cluster, "-n", str(ranks), "-t", net, "-l", str(NETS[net][0]),
                           "-x", FASTER, "-g"], check=True, stdout=subprocess.PIPE, text=True).stdout
    print(net, cluster, line.strip(), flush=True)
    found = re.search(r"in ([\d.]+) ms; it computes ([\d.]+) ms: efficiency ([\d.]+)", line)
    return list(found.groups())


def draw(rows):
    ranks = sorted({key[2] for key in rows})
    width, height, left, top = 330, 220, 46, 54
    low = min(80, min(10 * int(float(cells[2]) / 10) for cells in rows.values()))

    def x_of(n):
        return left + (width - left - 40) * ranks.index(n) / max(1, len(ranks) - 1)

    def y_of(percent):
        return top + (height - top - 34) * (100 - percent) / (100 - low)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * len(NETS)}" height="{height + 40}" '
             'font-family="sans-serif" font-size="11">',
             f'<rect width="{width * len(NETS)}" height="{height + 40}" fill="white"/>',
             '<text x="12" y="18" font-size="13" font-weight="bold">Weak scaling of a QAT step, SIMULATED '
             '(SimGrid SMPI, 8 ranks a host): efficiency beside one rank, %</text>']
    for place, net in enumerate(NETS):
        parts.append(f'<g transform="translate({place * width} 0)"><text x="{left}" y="42">{NETS[net][1]}</text>')
        for percent in range(low, 101, 5 if low >= 60 else 20):
            y = y_of(percent)
            parts.append(f'<line x1="{left}" x2="{width - 40}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                         f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{percent}</text>')
        for n in ranks:
            parts.append(f'<text x="{x_of(n):.1f}" y="{height - 16}" text-anchor="middle">{n}</text>')
        for cluster, colour in CLUSTERS.items():
            points = [(x_of(n), y_of(float(rows[net, cluster, n][2]))) for n in ranks if (net, cluster, n) in rows]
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
                         + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
        parts.append(f'<text x="{(left + width) / 2}" y="{height}" text-anchor="middle">ranks</text></g>')
    for place, (cluster, colour) in enumerate(CLUSTERS.items()):
        x = left + 110 * place
        parts.append(f'<line x1="{x}" x2="{x + 24}" y1="{height + 22}" y2="{height + 22}" stroke="{colour}" '
                     f'stroke-width="2"/><text x="{x + 30}" y="{height + 26}">{cluster[:-3]} GbE</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)))
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--clusters", default=",".join(CLUSTERS))
    asked = parser.parse_args()
    table = os.path.join(asked.folder, "scaling.tsv")
    rows = read(table)
    with tempfile.TemporaryDirectory() as programs:
        os.environ.setdefault("OCT_SIMULATED", programs)
        for ranks in map(int, asked.ranks.split(",")):
            for net in asked.nets.split(","):
                for cluster in asked.clusters.split(","):
                    if (net, cluster, ranks) not in rows:
                        rows[net, cluster, ranks] = simulate(net, cluster, ranks)
                        write(table, rows)
    with open(os.path.join(asked.folder, "scaling.svg"), "w") as out:
        out.write(draw(rows))


if __name__ == "__main__":
    main()
