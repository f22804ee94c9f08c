#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputes the formulas of reinforcement learning (docs/algorithms.md) in
float64, written from the text of the formulas and not from the sources, for
random inputs, and compares with the results of model/rl. Needs numpy.

    algorithms.py PROGRAM                compare (PROGRAM: build/.../tests/algo-values)
    algorithms.py PROGRAM --cases N      N inputs per function (default 300)
    algorithms.py --write FILE           write inputs and results as goldens
    algorithms.py --vectors FILE         write complete rows and groups with the
                                         results of the plugins (rl_vectors.json)
"""
import argparse
import json
import subprocess
import sys

import numpy as np

TOLERANCE = 2e-6  # returns, GAE and whitening are stored as float32
f32 = np.float32


# ---- draws -----------------------------------------------------------------

class Draw:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def real(self, low, high):
        return float(f32(self.rng.uniform(low, high)))

    def many(self, n, low, high):
        return [self.real(low, high) for _ in range(n)]

    def int(self, n):
        return int(self.rng.integers(n))

    def logp(self):
        return self.real(-4, -0.05)

    def near(self, logp):
        """Draws a log-prob near another, sometimes far away."""
        return logp + (self.real(-30, 30) if self.int(12) == 0 else self.real(-0.6, 0.6))

    def mask(self, n):
        return [float(self.int(4) != 0) for _ in range(n)]


# ---- policy losses: section 2.5 --------------------------------------------

def draw_token(d):
    old = d.logp()
    bound = [0.0, 20.0][d.int(2)]
    return [d.real(0.05, 0.5), d.real(0.05, 0.5), [0.0, 1.5, 3.0][d.int(3)], bound,
            d.real(0.5, 2), d.near(old), old, d.real(-2, 2)]


def draw_prob(d):
    x = draw_token(d)
    x[5] = d.logp()
    return x


def ratio_of(bound, logp, old):
    x = logp - old
    if bound:
        x = np.clip(x, -bound, bound)
    return x, np.exp(x)


def vanilla(low, high, dual, bound, _, logp, old, a):
    x, rho = ratio_of(bound, logp, old)
    l1 = -a * rho
    l2 = -a * np.clip(rho, 1 - low, 1 + high)
    loss = max(l1, l2)
    lower = dual > 0 and a < 0 and loss > -a * dual
    if lower:
        loss = min(loss, -a * dual)
    return [loss, l2 > l1, lower]


def cispo(low, high, dual, bound, _, logp, old, a):
    x, rho = ratio_of(bound, logp, old)
    return [-np.clip(rho, 1 - low, 1 + high) * a * logp, rho > 1 + high, rho < 1 - low]


def gpg(low, high, dual, bound, _, logp, old, a):
    return [-a * logp, 0, 0]


def sapo(low, high, dual, bound, p, logp, old, a):
    x, rho = ratio_of(bound, logp, old)
    tau = p if a > 0 else p + 0.05
    return [-a * (1 / (1 + np.exp(-tau * (rho - 1)))) * 4 / tau, 0, 0]


def clip_cov(low, high, dual, bound, p, logp, old, a):
    loss, clipped, _ = vanilla(low, high, 0, bound, p, logp, old, a)
    picked = p > 1.2
    return [0 if picked else loss, picked, clipped and not picked]


def kl_cov(low, high, dual, bound, p, logp, old, a):
    x, rho = ratio_of(bound, logp, old)
    picked = p > 1.2
    return [-a * rho + (0.1 * abs(x) if picked else 0), picked, 0]


def dppo(kl):
    def loss(low, high, dual, bound, _, logp, old, a):
        x, rho = ratio_of(bound, logp, old)
        p, q = np.exp(logp), np.exp(old)
        if kl:
            far = q * (old - logp) + (1 - q) * np.log((1 - q + 1e-8) / (1 - p + 1e-8))
            valid = (far <= high or p <= q) if a > 0 else (far <= low or p >= q)
        else:
            valid = p - q <= high if a > 0 else p - q >= -low
        held = min(rho, dual) if dual > 0 else rho
        return [-a * held * logp * valid, not valid, valid and dual > 0 and rho > dual]
    return loss


def dro(low, high, dual, bound, beta, logp, old, a):
    return [-(logp * a - 0.5 * beta * (logp - old) ** 2), 0, 0]


def draw_row(d):
    n = 1 + d.int(12)
    a = d.real(-2, 2)
    weighted = d.int(2)
    x = [d.real(0.05, 0.5), d.real(0.05, 0.5), n]
    for _ in range(n):
        old = d.logp()
        x += [d.near(old), old, a, d.real(0.2, 2) if weighted else 1.0]
    return x


def row_of(x):
    n = int(x[2])
    return x[0], x[1], n, np.array(x[3:]).reshape(n, 4).T


def gspo(*x):
    low, high, n, (logp, old, a, _) = row_of(x)
    s = np.exp(min(np.mean(logp - old), 10))
    out = []
    for i in range(n):
        l1, l2 = -a[i] * s, -a[i] * np.clip(s, 1 - low, 1 + high)
        out += [max(l1, l2), l2 > l1, 0]
    return out


def geo_mean(*x):
    low, high, n, (logp, old, a, w) = row_of(x)
    d = logp - old
    held = np.sign(a) * np.minimum(np.sign(a) * d, np.sign(a) * np.clip(d, -low, high))
    m = n + 1e-8
    weight = np.exp(np.sum(np.log(w + 1e-10)) / m)
    loss = -(np.sum(a) / m) * np.exp(np.sum(held) / m) * weight
    outside = (d < -low) | (d > high)
    out = []
    for i in range(n):
        out += [loss, outside[i] and a[i] > 0, outside[i] and a[i] < 0]
    return out


# ---- KL, aggregation: sections 2.3, 2.4 ------------------------------------

def draw_kl(d):
    logp = d.logp()
    return [d.int(4) + 8 * d.int(2), d.int(2), logp, d.near(logp)]


def kl(kind, bounded, logp, ref):
    base, straight = int(kind) % 8, int(kind) >= 8
    diff = logp - ref
    if base == 0:
        value, slope = diff, 1.0
    elif base == 1:
        value, slope = abs(diff), np.sign(diff)
    elif base == 2:
        value, slope = 0.5 * diff * diff, diff
    else:
        d = -diff
        if bounded:
            d = np.clip(d, -20, 20)
        value = np.exp(d) - d - 1
        slope = 1 - np.exp(d)
        if bounded and (value > 10 or value < -10):
            value, slope = np.clip(value, -10, 10), 0.0
    return [value, diff if straight else slope]


def aggregate(mode, rows, tokens, scale, row_tokens):
    over = lambda a, b: a / b if b > 0 else 0.0
    return [[over(1, tokens), 1.0, over(1, rows), over(over(1, rows), scale),
             over(over(1, row_tokens + 1e-8), rows)][int(mode)]]


def draw_pick(d):
    n = 1 + d.int(12)
    return [d.real(0, 1), n] + sum(([d.real(-2, 2), d.logp()] for _ in range(n)), [])


def pick(ratio, n, *x):
    a, logp = np.array(x).reshape(int(n), 2).T
    cov = (a - a.mean()) * (logp - logp.mean())
    k = max(int(ratio * n), 1)
    marks = np.zeros(int(n))
    marks[np.argsort(-cov, kind="stable")[:k]] = 1
    return list(marks)


# ---- advantages: section 2.2 -----------------------------------------------

def draw_advantage(d):
    n = 1 + d.int(12)
    kind = d.int(8)
    scores = [float(d.int(3)) for _ in range(n)] if d.int(2) else d.many(n, -2, 2)
    x = [kind, d.int(4), [1e-6, 1e-4, 1e-9][d.int(3)], 8 + d.int(9), d.int(9), n]
    return x + sum(([s, float(1 + d.int(9))] for s in scores), [])


def grpo(s, deviation, epsilon):
    n = len(s)
    if deviation == 2:
        return (s - s.mean()) / (s.std() + epsilon)
    if deviation == 3:
        if n < 2:
            return np.zeros(n)
        out = []
        for i in range(n):
            others = np.delete(s, i)
            a = s[i] - others.mean()
            std = others.std(ddof=1) if n > 2 and others.max() > others.min() else 0
            out.append(a / (std + epsilon) if std > 0 else a)
        return np.array(out)
    mean, std = (s.mean(), s.std(ddof=1)) if n > 1 else (0.0, 1.0)
    return s - mean if deviation == 0 else (s - mean) / (std + epsilon)


def advantage(kind, deviation, epsilon, rows, nonzero, n, *x):
    s, length = np.array(x).reshape(int(n), 2).T
    n = int(n)
    mean = s.mean() if n > 1 else 0.0
    if kind == 0:
        return list(grpo(s, deviation, epsilon))
    if kind == 1:
        return list(n / (n - 1) * (s - mean) if n > 1 else s)
    if kind == 2:
        return list(n / (n - 1) * (s - mean) if n > 1 else 0 * s)
    if kind == 3:
        out = np.zeros(n)
        if n > 1:
            best = int(np.argmax(s))
            gain = np.sort(s)[-1] - np.sort(s)[-2]
            out[best] = gain if deviation == 0 else gain / (s.std(ddof=1) + epsilon)
        return list(out)
    if kind == 4:
        return list(s - (np.sum(length * s) / np.sum(length) if n > 1 else 0.0))
    if kind == 5:
        return list(rows / max(nonzero, 1) * (s - mean))
    if kind == 6:
        return list((s - mean) / (mean + epsilon))
    return list(s - mean)


def overlong(length, longest, buffer, factor):
    return [min(-(length - (longest - buffer)) / buffer * factor, 0)]


def draw_baseline(d):
    n = [1 + d.int(12), 1 + d.int(12)]
    return n + sum(([d.real(-1, 1), d.logp(), d.real(0.1, 1)] for _ in range(sum(n))), [])


def token_baseline(n0, n1, *x):
    x = np.array(x).reshape(-1, 3)
    rows = [x[:int(n0)], x[int(n0):]]
    weights = [np.cumsum(1 - 2 * np.exp(r[:, 1]) + r[:, 2]) for r in rows]
    out = []
    for t in range(max(len(rows[0]), len(rows[1]))):
        have = [i for i in range(2) if t < len(rows[i])]
        num = sum(rows[i][t, 0] * weights[i][t] for i in have)
        out.append(num / (sum(weights[i][t] for i in have) + 1e-8) if len(have) > 1 else 0.0)
    return out


# ---- rollout correction: section 2.6 ---------------------------------------

def draw_drift(d):
    n = 1 + d.int(12)
    high = d.real(1.05, 3)
    kind = d.int(4)
    rs = [1 / high, high] if kind == 1 else [-1.0, d.real(0.001, 0.1)]
    x = [d.int(3), [-1.0, 0.5][d.int(2)], high, d.int(4), kind] + rs + [n]
    for _ in range(n):
        old = d.logp()
        x += [old, old + d.real(-0.3, 0.3)]
    if d.int(10) == 0:
        x[-1] = x[-2] - 27
    return x


def drift(weight, low, high, level, kind, rs_low, rs_high, n, *x):
    old, rollout = np.array(x).reshape(int(n), 2).T
    r = np.clip(old - rollout, -20, 20)
    w = np.ones(int(n))
    if weight == 1:
        w = np.exp(r)
    if weight == 2:
        w = np.full(int(n), np.exp(np.clip(r.sum(), -20, 20)))
    if weight:
        w = np.minimum(w, high) if low < 0 else np.where((w < low) | (w > high), 0, w)
    k = {0: -r, 1: -r, 2: 0.5 * r * r, 3: np.exp(r) - 1 - r}[int(kind)]

    def inside(v):
        if kind == 1:
            q = np.exp(np.clip(-v, -20, 20))
            return rs_low <= q <= rs_high
        return v <= rs_high
    if kind == 0:
        keep = [True] * int(n)
    elif level == 0:
        keep = [inside(v) for v in k]
    else:
        row = {1: lambda: inside(k.sum()), 2: lambda: inside(k.mean()),
               3: lambda: all(inside(v) for v in k)}[int(level)]()
        keep = [row] * int(n)
    return sum(([w[i], keep[i]] for i in range(int(n))), [])


# ---- PPO: sections 2.1, 2.2, 2.8 -------------------------------------------

def draw_gae(d):
    n = 1 + d.int(12)
    return [d.real(0, 1), d.real(0, 1), d.int(2), n] + d.many(n, -2, 2) + d.many(n, -2, 2) + d.mask(n)


def gae(gamma, lam, through, n, *x):
    r, v, m = np.array(x).reshape(3, int(n))
    if through:
        m = np.ones(int(n))
    a, ret = np.zeros(int(n)), np.zeros(int(n))
    last = next_value = 0.0
    for t in reversed(range(int(n))):
        delta = r[t] + gamma * next_value - v[t]
        cand = delta + gamma * lam * last
        next_value = v[t] * m[t] + next_value * (1 - m[t])
        last = cand * m[t] + last * (1 - m[t])
        a[t] = last * m[t]
        ret[t] = (last + v[t]) * m[t]
    return list(a) + list(ret)


def draw_returns(d):
    n = 1 + d.int(12)
    return [d.real(0, 1), n] + d.many(n, -2, 2) + d.mask(n)


def returns(gamma, n, *x):
    r, m = np.array(x).reshape(2, int(n))
    g, out = 0.0, np.zeros(int(n))
    for t in reversed(range(int(n))):
        if m[t]:
            g = r[t] + gamma * g
            out[t] = g
    return list(out)


def draw_whiten(d):
    n = 3 + d.int(10)
    mask = d.mask(n)
    mask[0] = mask[1] = 1.0
    return [d.int(2), d.int(2), n] + d.many(n, -2, 2) + mask


def whiten(unbiased, keep, n, *x):
    v, m = np.array(x).reshape(2, int(n))
    inside = v[m > 0]
    mean, var = inside.mean(), inside.var(ddof=int(unbiased))
    return list(np.where(m > 0, (v - mean) / np.sqrt(var + 1e-8) + (mean if keep else 0), 0))


def draw_gdpo(d):
    n = 3 + d.int(10)
    return [n] + d.many(2, 0.1, 2) + sum(([float(d.int(3)), d.real(-2, 2)] for _ in range(n)), [])


def gdpo(n, w0, w1, *x):
    s = np.array(x).reshape(int(n), 2)
    a = w0 * grpo(s[:, 0], 1, 1e-6) + w1 * grpo(s[:, 1], 1, 1e-6)
    return list((a - a.mean()) / np.sqrt(a.var(ddof=1) + 1e-8))


def value_loss(clip, value, old, ret):
    plain = (value - ret) ** 2
    held = (np.clip(value, old - clip, old + clip) - ret) ** 2
    return [0.5 * max(plain, held), held > plain]


def draw_control(d):
    return [d.int(2), d.real(0.05, 2), d.real(10, 10000), d.real(0, 1), d.real(0, 2), d.int(999)]


def kl_update(adaptive, target, horizon, beta, observed, steps):
    return [beta * (1 + np.clip(observed / target - 1, -0.2, 0.2) * steps / horizon) if adaptive else beta]


def draw_moments(d):
    n, m = 2 + d.int(11), 2 + d.int(11)
    return [n] + d.many(n, -2, 2) + [m] + d.many(m, -2, 2)


def moments(n, *x):
    first, rest = np.array(x[:int(n)]), np.array(x[int(n) + 1:])
    both = np.concatenate([first, rest])
    return [first.std(ddof=1), first.mean(), first.var(), first.std(ddof=1),
            rest.std(ddof=1), both.mean(), both.var(), both.std(ddof=1)]


def draw_explained(d):
    n = 3 + d.int(10)
    mask = d.mask(n)
    mask[0] = mask[1] = 1.0
    return [n] + d.many(n, -2, 2) + d.many(n, -2, 2) + mask


def explained(n, *x):
    ret, v, m = np.array(x).reshape(3, int(n))
    ret, v = ret[m > 0], v[m > 0]
    return [1 - (ret - v).var(ddof=1) / (ret.var(ddof=1) + 1e-5)]


FUNCTIONS = {
    "vanilla": (draw_token, vanilla), "cispo": (draw_token, cispo), "gpg": (draw_token, gpg),
    "sapo": (draw_token, sapo), "clip_cov": (draw_token, clip_cov), "kl_cov": (draw_token, kl_cov),
    "dppo_tv": (draw_prob, dppo(False)), "dppo_kl": (draw_prob, dppo(True)), "dro": (draw_prob, dro),
    "gspo": (draw_row, gspo), "geo_mean": (draw_row, geo_mean), "kl": (draw_kl, kl),
    "aggregate": (lambda d: [d.int(5), d.int(9), d.int(99), d.int(64), d.int(20)], aggregate),
    "pick": (draw_pick, pick), "advantage": (draw_advantage, advantage),
    "overlong": (lambda d: [d.int(30), 20 + d.int(10), 1 + d.int(9), d.real(0, 2)], overlong),
    "token_baseline": (draw_baseline, token_baseline), "drift": (draw_drift, drift),
    "gae": (draw_gae, gae), "returns": (draw_returns, returns), "whiten": (draw_whiten, whiten),
    "value_loss": (lambda d: [d.real(0.1, 1)] + d.many(3, -2, 2), value_loss),
    "kl_update": (draw_control, kl_update), "moments": (draw_moments, moments),
    "explained": (draw_explained, explained), "gdpo": (draw_gdpo, gdpo),
}


def cases(count):
    for k, (name, (draw, compute)) in enumerate(FUNCTIONS.items()):
        d = Draw(1000 + k)
        for _ in range(count):
            x = [float(v) for v in draw(d)]
            yield {"f": name, "in": x, "out": [float(v) for v in compute(*x)]}


# ---- rows and groups for the plugins ---------------------------------------

def gae_vector(name, reward, value, mask, gamma, lam, whitened=False):
    # The recursion includes masked tokens; whitening uses the statistics of the
    # others.
    both = np.array(gae(gamma, lam, 1, len(reward), *reward, *value, *mask)).reshape(2, -1)
    expected = {"returns": [list(both[1])]}
    if whitened:
        inside = both[0][np.array(mask) > 0]
        expected["whitened_advantages"] = [list((both[0] - inside.mean()) / np.sqrt(inside.var(ddof=1) + 1e-8))]
    return {"name": name, "inputs": {"rewards": [reward], "values": [value], "mask": [mask], "gamma": gamma, "lam": lam}, "expected": expected}


def returns_vector(name, rewards, masks, gamma):
    return {"name": name, "inputs": {"rewards": rewards, "mask": masks, "gamma": gamma},
            "expected": {"returns": [returns(gamma, len(r), *r, *m) for r, m in zip(rewards, masks)]}}


def group_vector(name, kind, deviation, scores, groups, **more):
    out = np.zeros(len(scores))
    for g in set(groups):
        at = [i for i, k in enumerate(groups) if k == g]
        x = sum(([scores[i], 1.0] for i in at), [])
        out[at] = advantage(kind, deviation, more.get("eps", 1e-6), len(scores), len(scores), len(at), *x)
    return {"name": name, "inputs": {"scores": scores, "group": groups, **more}, "expected": {"adv": list(out)}}


def vectors():
    reward, value = [0.25, -1.5, 2.5], [0.75, -0.5, 1.25]
    yield gae_vector("gae_return_gamma1_lam1", reward, value, [1, 1, 1], 1.0, 1.0)
    yield gae_vector("gae_masked_whitened_adv", reward, value, [1, 0, 1], 1.0, 1.0, True)
    yield gae_vector("gae_return_gamma0.5", reward, value, [1, 1, 1], 0.5, 1.0)
    yield gae_vector("gae_return_lam0.5", reward, value, [1, 1, 1], 1.0, 0.5)
    yield group_vector("rloo_outcome", 2, 0, [0.5, 2.0, -1.0, 4.0, 3.0], [0, 1, 0, 1, 2])
    yield group_vector("grpo_no_std", 0, 0, [0.5, 2.0, -1.0, 4.0], [0, 1, 0, 1])
    yield group_vector("maxrl", 6, 0, [0.5, 2.0, 1.0, 4.0], [0, 1, 0, 1], eps=1e-6)
    yield returns_vector("reinforce_pp_returns_gamma0.5", [reward], [[1, 1, 1]], 0.5)
    yield returns_vector("reinforce_pp_obs_span", [[0.5, 1.0, 0, 0.25, -3.0]], [[1, 1, 0, 0, 1]], 0.5)
    yield returns_vector("reinforce_pp_batch", [[0, 0.5, 0, 1], [0.25, 0, 1, 3.0]], [[1, 0, 1, 1], [1, 1, 1, 0]], 1.0)
    yield {"name": "multi_turn_gae_obs_invariance", "expected": None,
           "inputs": {"rewards": [[0, 0, 0.5, 0, -0.25, 0, 0, 0.125, 1, 0, 0]], "mask": [[0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0]],
                      "values_on_mask": [0.5, -1, 2, 0.25, 3]}}
    adv, old, now = [1.5, -0.5, -2], [-1.25, -0.5, -2.5], [-2.0, -0.25, -0.75]
    inputs = {"adv": adv, "old_lp": old, "lp": now, "clip_low": 0.2, "clip_high": 0.2}
    loss = [vanilla(0.2, 0.2, 3.0, 20.0, 0, n, o, a)[0] for n, o, a in zip(now, old, adv)]
    yield {"name": "ppo_dual_clip", "inputs": {**inputs, "clip_c": 3.0}, "expected": {"per_token": loss, "sum": sum(loss), "mean": sum(loss) / 3}}
    loss = [float(cispo(0.2, 0.2, 0, 20.0, 0, n, o, a)[0]) for n, o, a in zip(now, old, adv)]
    yield {"name": "cispo_sum", "inputs": inputs, "expected": {"per_token": loss, "sum": sum(loss)}}
    mask = [1, 0, 1]
    loss = [dro(0, 0, 0, 0, 0.05, n, o, a)[0] * m for n, o, a, m in zip(now, old, adv, mask)]
    yield {"name": "dro", "inputs": {"old_lp": old, "lp": now, "adv": adv, "mask": mask, "beta": 0.05}, "expected": {"loss": sum(loss) / sum(mask)}}
    losses, masks = [[0.5, -2, 30], [4, 50, 1.25]], [[1, 1, 0], [1, 0, 1]]
    yield {"name": "agg_token_sum", "inputs": {"loss": losses, "mask": masks, "mode": "token-sum", "dp_size": 4},
           "expected": {"loss": 4 * float(np.sum(np.array(losses) * np.array(masks)))}}


def compare(program, count):
    todo = list(cases(count))
    text = "".join(c["f"] + " " + " ".join(repr(v) for v in c["in"]) + "\n" for c in todo)
    run = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    worst, bad = {}, 0
    for case, line in zip(todo, run.stdout.splitlines(), strict=True):
        got, want = np.array(json.loads(line)["out"]), np.array(case["out"])
        off = np.max(np.abs(got - want) / (1 + np.abs(want))) if got.shape == want.shape else np.inf
        worst[case["f"]] = max(worst.get(case["f"], 0), off)
        if not off <= TOLERANCE:
            bad += 1
            if bad < 4:
                print(f"{case['f']}: {case['in']}\n  ours  {list(got)}\n  here  {list(want)}")
    for name, off in worst.items():
        print(f"{name:15s} {off:.1e}")
    print(f"{len(todo)} cases, {bad} differ by more than {TOLERANCE}")
    return bad == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--write")
    parser.add_argument("--vectors")
    args = parser.parse_args()
    if args.write:
        with open(args.write, "w") as out:
            rows = ",\n  ".join(json.dumps(c) for c in cases(8))
            out.write(f'{{"tolerance": {TOLERANCE},\n "cases": [\n  {rows}\n ]}}\n')
    if args.vectors:
        with open(args.vectors, "w") as out:
            out.write("[\n" + ",\n".join(json.dumps(v) for v in vectors()) + "\n]\n")
    if args.program and not compare(args.program, args.cases):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
