#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""family_plot.py DIR... >docs/family.svg

Plots the runs that family.sh left in the folders, with one panel per preset: the
mean reward of each step's samples (line, mean of ten steps) and greedy accuracy on
held-out problems (dots). If several folders have a preset, the last one counts.
"""
import json
import pathlib
import sys

WIDTH, HEIGHT, ACROSS, GAP, TOP = 150, 70, 5, 18, 26


def read(path):
    reward, greedy = [], []
    for line in path.open():
        row = json.loads(line)
        if "critic/score/mean" in row:
            reward.append((row["step"], row["critic/score/mean"]))
        for key, value in row.items():
            if key.startswith("val-core/") and key.endswith("/mean@1"):
                greedy.append((row["step"], value))
    return reward, greedy


def mean_of_tens(points):
    return [(sum(s for s, _ in part) / len(part), sum(y for _, y in part) / len(part))
            for part in (points[i:i + 10] for i in range(0, len(points), 10))]


def panel(name, reward, greedy, x0, y0):
    last = max(s for s, _ in reward)

    def at(point):
        return x0 + WIDTH * point[0] / last, y0 + HEIGHT * (1 - point[1])

    yield f'<text x="{x0}" y="{y0 - 5}">{name}</text>'
    yield f'<path class="axis" d="M{x0} {y0}v{HEIGHT}h{WIDTH}M{x0} {y0 + HEIGHT * 0.1:.0f}h{WIDTH}"/>'
    line = " ".join("%.1f,%.1f" % at(p) for p in mean_of_tens(reward))
    yield f'<polyline points="{line}"/>'
    for point in greedy:
        yield '<circle cx="%.1f" cy="%.1f" r="2.5"/>' % at(point)


def main():
    runs = {}
    for folder in sys.argv[1:]:
        for metrics in sorted(pathlib.Path(folder).glob("*/metrics.jsonl")):
            reward, greedy = read(metrics)
            if reward and len(greedy) > 4:
                runs[metrics.parent.name] = reward, greedy
    rows = -(-len(runs) // ACROSS)
    width = ACROSS * (WIDTH + GAP) + GAP
    height = rows * (HEIGHT + GAP + TOP)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">')
    print("<style>svg{background:#fff}text{font:11px sans-serif;fill:#222}.axis{stroke:#bbb;fill:none}"
          "polyline{fill:none;stroke:#2563eb;stroke-width:1.5}circle{fill:#b91c1c}</style>")
    for i, (name, (reward, greedy)) in enumerate(sorted(runs.items())):
        x0 = GAP + i % ACROSS * (WIDTH + GAP)
        y0 = TOP + i // ACROSS * (HEIGHT + GAP + TOP)
        print("\n".join(panel(name, reward, greedy, x0, y0)))
    print("</svg>")


main()
