# SPDX-License-Identifier: Apache-2.0
"""Prints the numbers that stats_test.c holds; needs numpy and scipy.

Independent of core/ab: Philox, the bootstrap, t, Welch and Holm are written
here from their definitions, or taken from scipy.
"""
import itertools

import numpy as np
from scipy import stats

M32, M64 = 2**32 - 1, 2**64 - 1


def philox(key, c):
    k0, k1 = key & M32, key >> 32
    c0, c1, c2, c3 = c
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & M32, (a >> 32) ^ c3 ^ k1, a & M32
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return c0, c1, c2, c3


def pick(rows, resample, place):
    return philox(0x626F6F7473747261, (resample, place, rows, 0))[0] * rows >> 32


def show(name, *values):
    print(name, ", ".join(repr(float(v)) for v in values))


a = np.array([0.41, 0.44, 0.39, 0.47, 0.425])
b = np.array([0.46, 0.47, 0.45, 0.49, 0.455])
d = b - a

for t, df in [(2.0, 4), (0.1, 1), (12.7, 1), (5.5, 2.5), (1e-3, 30), (40.0, 3), (2.0, 1000.5)]:
    show(f"t both tails {t} {df}", 2 * stats.t.sf(t, df))
for tails, df in [(0.05, 1), (0.05, 2), (0.05, 4), (0.025, 4), (0.05, 7.3), (0.01, 120), (0.5, 1.5)]:
    show(f"t critical {tails} {df}", stats.t.isf(tails / 2, df))

r = stats.ttest_rel(b, a)
ci = r.confidence_interval(0.95)
show("paired mean, p, low, high", d.mean(), r.pvalue, ci.low, ci.high)
ci = r.confidence_interval(0.975)
show("paired 97.5 % low, high", ci.low, ci.high)

c = np.array([0.52, 0.31, 0.66, 0.48])
r = stats.ttest_ind(c, a, equal_var=False)
ci = r.confidence_interval(0.95)
show("welch mean, df, p, low, high", c.mean() - a.mean(), r.df, r.pvalue, ci.low, ci.high)

# Exact tests by going through every shuffle.
n = 5
signs = list(itertools.product([1, -1], repeat=n))
show("signs of 5", sum(abs(sum(s)) >= n for s in signs) / len(signs))
pool = [0.0] * 3 + [1.0] * 4
splits = list(itertools.combinations(range(7), 3))
diff = lambda s: abs(np.mean([pool[i] for i in range(7) if i not in s]) - np.mean([pool[i] for i in s]))
show("labels of 3 and 4", sum(diff(s) >= 1 - 1e-12 for s in splits) / len(splits), 2 / 35)

p = [0.03, 0.005, 0.2, 0.013]
order = np.argsort(p, kind="stable")
holm, most = np.empty(4), 0.0
for rank, i in enumerate(order):
    most = min(1.0, max(most, (4 - rank) * p[i]))
    holm[i] = most
show("holm", *holm)

values = np.array([1.5, -2.0, 3.25, 0.5, 9.0, 4.0])
show("quantiles", *[np.quantile(values, q) for q in (0, 0.025, 0.25, 0.5, 0.9, 1)])
show("mean, variance", values.mean(), values.var(ddof=1))

print("picks of 5:", [pick(5, 0, i) for i in range(5)], [pick(5, 9999, i) for i in range(5)])
rows = np.array([[0.1, 1.0, 5.0], [0.3, 1.5, 5.0], [0.2, 0.25, 5.0], [0.7, 2.0, 5.0], [0.45, 1.1, 5.0]])
index = np.array([[pick(5, r, i) for i in range(5)] for r in range(10000)])
means = rows[index].mean(axis=1)
show("bands low", *np.quantile(means, 0.025, axis=0))
show("bands high", *np.quantile(means, 0.975, axis=0))
