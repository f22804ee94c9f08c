#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
r"""Compares the grader math_verify with the library Math-Verify.

From a seed it writes pairs of a response and a ground truth, in the forms in which
models answer GSM8K, MATH, AMC and AIME, asks the library which responses are right,
and compares with `xray grade`.

    pip install "math-verify[antlr4_13_2]"
    tests/parity/math_answers.py --seed 1 --count 600 --write pairs.jsonl
    tests/parity/math_answers.py --read pairs.jsonl --xray build/dev/xray

A line is {"response", "truth", "right", "meant"}: the library's verdict, and
whether the pair was made to be right. The truth is given to the library unchanged
if it holds a formula or a box, and in a box otherwise.

The library refuses some right answers (6\,610 is 616 there). So answers that are
accepted against the library and were made to be wrong are counted separately.
"""
import argparse
import json
import random
import subprocess
import sys

FRAC = r"\frac{%d}{%d}"


def gcd(a, b):
    return a if b == 0 else gcd(b, a % b)


def commas(n):
    return f"{n:,}"


# ---- answers: (truth, right forms, wrong forms, plain forms allowed) --------
# A form is LaTeX without dollars. "plain" ones may also occur in prose.

def integer(r):
    n = r.choice([r.randint(0, 20), r.randint(10, 999), r.randint(-50, -1)])
    wrong = [str(n + r.choice([-2, -1, 1, 2, 10])), str(-n if n else 7), str(n) + "0",
             f"{n}.5", str(n) + str(r.randint(1, 9))]
    return str(n), [str(n)], wrong, True


def thousands(r):
    n = r.choice([r.randint(1000, 9999), r.randint(10000, 3000000)])
    right = [str(n), commas(n), commas(n).replace(",", "{,}"), commas(n).replace(",", r"\,"),
             commas(n).replace(",", r",\!")]
    return r.choice([str(n), commas(n)]), right, [str(n + 1), str(n)[:-1], commas(n * 10), str(n // 1000)], True


def money(r):
    n = r.randint(3, 4000)
    cents = r.choice(["", "", ".00", ".50", ".25"])
    t = f"{n}{cents}"
    right = [t, rf"\${t}", rf"{t}\text{{ dollars}}", t, rf"\$ {t}"]
    return t, right, [f"{n + 3}{cents}", f"{n}.75", rf"\${n * 2}"], True


def decimal(r):
    n, d = r.randint(0, 99), r.randint(1, 99)
    t = f"{n}.{d:02d}"
    v = n * 100 + d
    g = gcd(v, 100)
    right = [t, t + "0", FRAC % (v // g, 100 // g)]
    if n == 0:
        right.append(f".{d:02d}")
    return t, right, [f"{n}.{(d + 1) % 100:02d}", f"{d}.{n:02d}", f"{n}{d:02d}"], True


def rounded(r):
    a, b = r.randint(1, 20), r.choice([3, 7, 9, 11, 13])
    t = FRAC % (a, b)
    right = [t, f"{a / b:.6f}", f"{a / b:.8f}", rf"\approx {a / b:.6f}"]
    return t, right, [f"{a / b:.2f}", f"{a / b:.4f}", FRAC % (a + 1, b)], False


def fraction(r):
    a, b = r.randint(1, 60), r.randint(2, 60)
    g = gcd(a, b)
    a, b = a // g, b // g
    if b == 1:
        b, a = 2, 2 * a + 1
    s = r.choice(["", "", "-"])
    k = r.randint(2, 4)
    right = [s + FRAC % (a, b), s + r"\d" + (FRAC % (a, b))[1:], f"{s}{a}/{b}", s + FRAC % (a * k, b * k),
             s + r"\t" + (FRAC % (a, b))[1:]]
    if a < 10 and b < 10:
        right.append(rf"{s}\frac{a}{b}")
    wrong = [s + FRAC % (b, a), s + FRAC % (a + 1, b), s + FRAC % (a, b + 1), f"{s}{a}", ("-" if not s else "") + FRAC % (a, b)]
    return s + FRAC % (a, b), right, wrong, False


def plain_fraction(r):
    t, right, wrong, _ = fraction(r)
    plain = [f for f in right if "/" in f]
    return t.replace(r"\frac{", "").replace("}{", "/").replace("}", ""), plain, [w for w in wrong if "frac" not in w] + ["7/3"], True


def mixed(r):
    w, a, b = r.randint(1, 9), r.randint(1, 4), r.choice([5, 7, 9])
    t = rf"{w}\frac{{{a}}}{{{b}}}"
    return t, [t, FRAC % (w * b + a, b), f"{w} {FRAC % (a, b)}"], [FRAC % (w * a, b), f"{w + 1}{FRAC % (a, b)}", FRAC % (a, b)], False


def radical(r):
    a, b, k = r.randint(1, 12), r.choice([2, 3, 5, 6, 7]), r.randint(2, 9)
    kind = r.randrange(4)
    if kind == 0:
        return (rf"{k}\sqrt{{{b}}}", [rf"{k}\sqrt{{{b}}}", rf"{k}\sqrt{b}", rf"\sqrt{{{k * k * b}}}", rf"{k} \cdot \sqrt{{{b}}}"],
                [rf"{k + 1}\sqrt{{{b}}}", rf"\sqrt{{{k * b}}}", rf"{k}\sqrt{{{b + 4}}}"], False)
    if kind == 1:
        return (rf"{a} + {k}\sqrt{{{b}}}", [rf"{k}\sqrt{{{b}}} + {a}", rf"{a}+{k}\sqrt{{{b}}}"],
                [rf"{a} - {k}\sqrt{{{b}}}", rf"{a + k}\sqrt{{{b}}}"], False)
    if kind == 2:
        return (rf"\frac{{\sqrt{{{b}}}}}{{{k}}}", [rf"\dfrac{{\sqrt{{{b}}}}}{{{k}}}", rf"\frac{{1}}{{{k}}}\sqrt{{{b}}}", rf"\frac{{{b}}}{{{k}\sqrt{{{b}}}}}"],
                [rf"\frac{{{k}}}{{\sqrt{{{b}}}}}", rf"\frac{{{b}}}{{{k}}}"], False)
    return rf"\sqrt[3]{{{a + 1}}}", [rf"\sqrt[3]{{{a + 1}}}", rf"({a + 1})^{{1/3}}", rf"{a + 1}^{{\frac{{1}}{{3}}}}"], [rf"\sqrt{{{a + 1}}}", rf"\sqrt[3]{{{a + 2}}}"], False


def circle(r):
    k, d = r.randint(1, 40), r.choice([1, 2, 3, 4, 6])
    g = gcd(k, d)
    k, d = k // g, d // g
    kk = "" if k == 1 else str(k)
    t = rf"{kk}\pi" if d == 1 else rf"\frac{{{kk}\pi}}{{{d}}}"
    right = [t, rf"\frac{{{k}}}{{{d}}}\pi" if d > 1 else rf"{k} \pi", rf"{k}\pi/{d}" if d > 1 else rf"\pi \cdot {k}"]
    return t, right, [rf"{k + 1}\pi", str(k), rf"\frac{{{k}\pi}}{{{d + 1}}}", rf"{k * 3.14159 / d:.2f}"], False


def interval(r):
    a = r.randint(-9, 5)
    b = a + r.randint(1, 9)
    lo, hi = r.choice("(["), r.choice(")]")
    kind = r.randrange(4)
    if kind == 0:
        t = rf"{lo}{a},{b}{hi}"
        return t, [rf"\left{lo}{a}, {b}\right{hi}", rf"{lo}{a}, {b}{hi}"], [rf"{'[' if lo == '(' else '('}{a},{b}{hi}", rf"{lo}{a},{b + 1}{hi}"], False
    if kind == 1:
        t = rf"(-\infty, {a}{hi} \cup {lo}{b}, \infty)"
        return (t, [rf"(-\infty,{a}{hi}\cup{lo}{b},\infty)", rf"\left(-\infty, {a}\right{hi} \cup \left{lo}{b}, \infty\right)", rf"x \in (-\infty,{a}{hi}\cup{lo}{b},\infty)"],
                [rf"(-\infty,{a - 1}{hi}\cup{lo}{b},\infty)", rf"{lo}{b},\infty)", rf"({a},{b})"], False)
    if kind == 2:
        t = rf"[{a},\infty)"
        return t, [rf"[{a}, \infty)", rf"\left[{a}, \infty\right)", rf"[{a},+\infty)", rf"x \ge {a}"], [rf"({a},\infty)", rf"[{a + 1},\infty)", rf"(-\infty,{a}]"], False
    t = rf"{a} < x \le {b}"
    return t, [rf"{a} < x \leq {b}", rf"({a},{b}]", rf"x \in ({a}, {b}]"], [rf"{a} \le x \le {b}", rf"[{a},{b}]", rf"{a} < x \le {b + 1}"], False


def solutions(r):
    xs = r.sample(range(-12, 13), r.randint(2, 4))
    t = ", ".join(map(str, sorted(xs)))
    sh = xs[:]
    r.shuffle(sh)
    join = ", ".join(map(str, sh))
    right = [join, join.replace(" ", ""), rf"\{{{join}\}}", t, r" \text{ and } ".join(map(str, sh)) if len(sh) == 2 else join,
             rf"x = {sh[0]}, {', '.join(map(str, sh[1:]))}" if r.random() < 0.5 else rf"\left\{{{join}\right\}}"]
    wrong = [", ".join(map(str, sh[:-1])), ", ".join(map(str, sh[:-1] + [sh[-1] + 13])), rf"\{{{', '.join(map(str, sh + [30]))}\}}", str(sh[0])]
    return r.choice([t, t, rf"\{{{t}\}}"]), right, wrong, False


def pair(r):
    a, b = r.randint(-9, 12), r.randint(-9, 12)
    if r.random() < 0.4:
        c = r.randint(-9, 9)
        t = f"({a},{b},{c})"
        return t, [f"({a}, {b}, {c})", rf"\left({a}, {b}, {c}\right)"], [f"({b}, {a}, {c + 1})", f"({a}, {b})", f"({a}, {b}, {c + 2})"], False
    t = f"({a},{b})"
    return t, [f"({a}, {b})", rf"\left({a},{b}\right)", rf"(x, y) = ({a}, {b})"], [f"({a + 1}, {b})", f"({a}, {b - 1})", f"({b + 1},{a})"], False


def matrix(r):
    e = [r.randint(-9, 9) for _ in range(4)]
    col = r.random() < 0.5
    env = r.choice(["pmatrix", "bmatrix"])
    body = rf"{e[0]} \\ {e[1]}" if col else rf"{e[0]} & {e[1]} \\ {e[2]} & {e[3]}"
    bad = rf"{e[0]} \\ {e[1] + 1}" if col else rf"{e[0]} & {e[1]} \\ {e[2] + 1} & {e[3]}"
    t = rf"\begin{{{env}}} {body} \end{{{env}}}"
    other = "bmatrix" if env == "pmatrix" else "pmatrix"
    right = [t, rf"\begin{{{env}}}{body.replace(' ', '')}\end{{{env}}}", rf"\begin{{{other}}} {body} \end{{{other}}}"]
    return t, right, [rf"\begin{{{env}}} {bad} \end{{{env}}}", rf"\begin{{{env}}} {e[0]} & {e[1]} \end{{{env}}}"], False


def poly(cs, x="x"):
    out = ""
    n = len(cs) - 1
    for i, c in enumerate(cs):
        p = n - i
        if c == 0:
            continue
        s = "-" if c < 0 else ("+" if out else "")
        a = "" if abs(c) == 1 and p else str(abs(c))
        v = "" if p == 0 else (x if p == 1 else f"{x}^{p}" if p < 10 else f"{x}^{{{p}}}")
        out += f"{s}{a}{v}"
    return out or "0"


def polynomial(r):
    a, b = r.randint(-9, 9) or 2, r.randint(-9, 9) or 3
    t = poly([1, a + b, a * b])
    f = f"(x{a:+d})(x{b:+d})"
    right = [t, f, f"(x{b:+d})(x{a:+d})", poly([1, a + b, a * b]).replace("+", " + ").replace("-", " - ").strip()]
    wrong = [poly([1, a + b, a * b + 1]), f"(x{-a:+d})(x{b:+d})", poly([1, a + b + 1, a * b]), poly([2, a + b, a * b])]
    return r.choice([t, f]), right, wrong, False


def several(r):
    a, b = r.randint(2, 9), r.randint(1, 9)
    n, m = r.choice(["n", "x", "a"]), r.choice(["y", "k", "b"])
    return (rf"{a}{n}^{b + 1}{m}", [rf"{a}{n}^{b + 1}{m}", rf"{a}{m}{n}^{b + 1}", rf"{a} {n}^{{{b + 1}}} {m}"],
            [rf"{a}{n}^{b}{m}", rf"{a + 1}{n}^{b + 1}{m}", rf"{a}{n}^{b + 1}"], False)


def equation(r):
    m, c = r.randint(2, 9), r.randint(-9, 9) or 4
    t = f"y = {m}x{c:+d}"
    kind = r.randrange(3)
    if kind == 0:
        return t, [f"y={m}x{c:+d}", f"{m}x{c:+d}", f"y = {m}x {c:+d}"], [f"y={m}x{c + 1:+d}", f"y={m + 1}x{c:+d}"], False
    if kind == 1:
        return (f"{m}x - y{c:+d} = 0", [f"{m}x-y{c:+d}=0", f"y = {m}x{c:+d}", f"{m}x - y = {-c}"], [f"{m}x - y{c + 1:+d} = 0", f"{m}x + y{c:+d} = 0"], False)
    n = r.randint(-20, 20)
    v = r.choice(["x", "n", "k", "a"])
    return f"{v} = {n}" if r.random() < 0.3 else str(n), [f"{v}={n}", f"{v} = {n}", str(n)], [f"{v}={n + 1}", f"{v} = {n}1"], False


def percent(r):
    n = r.choice([r.randint(1, 99), r.randint(1, 199) / 2])
    t = f"{n:g}"
    truth = r.choice([t + r"\%", t, t + "%"])
    return truth, [t + r"\%", t + "%" if False else t + r"\%", t, t + r"\text{ percent}"], [f"{n + 1:g}\\%", f"{n * 10:g}", f"{n + 5:g}\\%"], True


def degrees(r):
    n = r.randint(1, 179)
    return r.choice([str(n), rf"{n}^\circ", rf"{n}^{{\circ}}"]), [rf"{n}^\circ", rf"{n}^{{\circ}}", str(n), rf"{n}\text{{ degrees}}"], [rf"{n + 1}^\circ", rf"{180 - n}^\circ" if n != 90 else "80"], False


def with_units(r):
    n = r.randint(2, 600)
    u = r.choice(["cm", "inches", "square units", "hours", "miles", "feet", "minutes", "cm^2", "meters", "apples", "students", "m/s"])
    base = u.split("^")[0]
    right = [str(n), rf"{n} \text{{ {base}}}", rf"{n}\text{{ {base}}}", rf"{n}\ \text{{{base}}}", rf"{n} \text{{ {base}}}^2" if "^2" in u else rf"{n}\,\text{{{base}}}", rf"{n}\mathrm{{ {base}}}"]
    return r.choice([str(n), rf"{n}\text{{ {base}}}"]), right, [str(n + 1), rf"{n + 2} \text{{ {base}}}", rf"{n}0\text{{ {base}}}"], False


def word(r):
    ws = ["Tuesday", "even", "Evelyn", "ellipse", "blue", "parabola", "Navin", "odd", "Friday", "west", "true", "east", "saturday"]
    w, v = r.sample(ws, 2)
    return rf"\text{{{w}}}", [rf"\text{{{w}}}", rf"\text{{{w.lower()}}}", w, rf"\mathrm{{{w}}}", rf"\textbf{{{w}}}"], [rf"\text{{{v}}}", v], False


def letter(r):
    a, b = r.sample("ABCDE", 2)
    return (r.choice([a, rf"\text{{({a})}}", rf"\text{{{a}}}"]), [a, rf"\text{{({a})}}", rf"\textbf{{({a})}}", rf"\text{{{a}}}", rf"\mathrm{{({a})}}", rf"({a})"],
            [b, rf"\text{{({b})}}", rf"\textbf{{({b})}}"], False)


def inequality(r):
    a = r.randint(-20, 20)
    o, p, q = r.choice([("<", ">", r"\le"), (r"\ge", r"\le", ">"), (r"\leq", r"\geq", "<"), (">", "<", r"\geq")])
    return f"x {o} {a}", [f"x{o} {a}", f"{a} {p} x"], [f"x {p} {a}", f"x {q} {a}", f"x {o} {a + 1}"], False


def plus_minus(r):
    a, b = r.randint(1, 12), r.choice([2, 3, 5, 7])
    t = rf"{a} \pm \sqrt{{{b}}}"
    return t, [rf"{a}\pm\sqrt{{{b}}}", rf"{a}+\sqrt{{{b}}}, {a}-\sqrt{{{b}}}", rf"x = {a} \pm \sqrt{{{b}}}"], [rf"{a}+\sqrt{{{b}}}", rf"{a + 1}\pm\sqrt{{{b}}}"], False


def base_number(r):
    b = r.choice([2, 3, 5, 7, 8])
    d = "".join(str(r.randrange(b)) for _ in range(3))
    d = "1" + d
    return rf"{d}_{b}" if b < 10 else d, [rf"{d}_{b}", rf"{d}_{{{b}}}", d], [rf"{d[::-1]}1_{b}", rf"{d}1_{b}"], False


def complex_number(r):
    a, b = r.randint(-9, 9) or 1, r.randint(2, 9)
    return f"{a}+{b}i", [f"{a} + {b}i", f"{b}i + {a}" if a > 0 else f"{a}+{b}i"], [f"{a}-{b}i", f"{b}+{a + 1}i", f"{a}"], False


def power(r):
    a, n = r.choice([2, 3, 5]), r.randint(3, 12)
    big = r.random() < 0.3
    n = n + 40 if big else n
    right = [rf"{a}^{{{n}}}", rf"{a}^{n}" if n < 10 else rf"{a}^{{{n}}}"]
    if not big:
        right.append(str(a ** n))
    return rf"{a}^{{{n}}}", right, [rf"{a}^{{{n + 1}}}", rf"{a * n}", rf"{a + 1}^{{{n}}}"], False


def function(r):
    n = r.randint(2, 9)
    k = r.randrange(6)
    if k == 0:
        return rf"\ln {n}", [rf"\ln({n})", rf"\ln {n}", rf"\log_e {n}", rf"-\ln\frac{{1}}{{{n}}}"], [rf"\log_2 {n}", rf"\ln {n + 1}"], False
    if k == 1:
        return rf"\log_2 {n}", [rf"\log_2 {n}", rf"\log_{{2}}({n})", rf"\frac{{\ln {n}}}{{\ln 2}}"], [rf"\log_3 {n}", rf"\log_2 {n + 1}"], False
    if k == 2:
        return rf"\frac{{1}}{{{n}}}e^{{{n}x}}", [rf"\frac{{e^{{{n}x}}}}{{{n}}}", rf"\frac{{1}}{{{n}}} e^{{{n}x}}"], [rf"e^{{{n}x}}", rf"{n}e^{{{n}x}}"], False
    if k == 3:
        return rf"{n}\sin x", [rf"{n}\sin(x)", rf"{n} \sin x", rf"{n}\cdot\sin{{x}}"], [rf"{n}\cos x", rf"{n + 1}\sin x"], False
    if k == 4:
        return rf"\binom{{{n + 4}}}{{2}}", [rf"\binom{{{n + 4}}}{{2}}", str((n + 4) * (n + 3) // 2), rf"\frac{{{n + 4}!}}{{2!{n + 2}!}}"], [rf"\binom{{{n + 4}}}{{3}}", str((n + 4) * (n + 4) // 2 + 1)], False
    return str(n * n), [rf"{n} \cdot {n}", rf"{n}^2", rf"{n} \times {n} = {n * n}", rf"({n})^2"], [rf"{n}^3", rf"{n} \cdot {n + 1}", rf"{n} \times {n} = {n * n + 1}"], False


def ratio(r):
    a, b = r.randint(1, 9), r.randint(1, 9)
    return f"{a}:{b}", [f"{a}:{b}", f"{a} : {b}"], [f"{b}:{a + 1}", f"{a}:{b + 1}"], False


def scientific(r):
    a, n = r.randint(11, 99) / 10, r.randint(3, 9)
    return rf"{a} \times 10^{{{n}}}", [rf"{a}\times 10^{n}", rf"{a} \cdot 10^{{{n}}}", str(round(a * 10 ** n))], [rf"{a} \times 10^{{{n + 1}}}", str(round(a * 10 ** n) + 10 ** n)], False


def named(r):
    n = r.randint(2, 500)
    f = r.choice(["f(2)", "f(x)", "a_n", "S", r"\angle ABC", "P(A)", "AB", "N", r"\theta"])
    return str(n), [rf"{f} = {n}", rf"{f}={n}"], [rf"{f} = {n + 1}", rf"{f} = -{n}"], False


def other(r):
    n, m = r.randint(2, 9), r.randint(10, 60)
    k = r.randrange(5)
    if k == 0:
        return str(m % n), [rf"{m} \bmod {n} = {m % n}", str(m % n)], [rf"{m} \bmod {n} = {m % n + 1}"], False
    if k == 1:
        return str(n), [rf"\lim_{{x\to 0}} f(x) = {n}", rf"\lim_{{n \to \infty}} a_n = {n}"], [rf"\lim_{{x\to 0}} f(x) = {n + 1}"], False
    if k == 2:
        return rf"{n},{m}", [rf"{{{n},{m}}}", rf"{n}, {m}"], [rf"{n}, {m + 1}", str(n)], False
    if k == 3:
        return f"0.{m}", [f"0,{m}", f"0.{m}"], [f"0,{m + 1}", f"{m}"], True
    return rf"\frac{{x+{n}}}{{x-{m}}}", [rf"\frac{{x + {n}}}{{x - {m}}}", rf"(x+{n})/(x-{m})", rf"\dfrac{{{n}+x}}{{x-{m}}}"], [rf"\frac{{x-{n}}}{{x-{m}}}", rf"\frac{{x+{n}}}{{x+{m}}}"], False


KINDS = [(integer, 22), (thousands, 7), (money, 7), (decimal, 5), (rounded, 2), (fraction, 11), (plain_fraction, 2), (mixed, 2), (radical, 7), (circle, 3),
         (interval, 5), (solutions, 5), (pair, 4), (matrix, 2), (polynomial, 4), (several, 2), (equation, 4), (percent, 3), (degrees, 3), (with_units, 5), (word, 3),
         (letter, 3), (inequality, 2), (plus_minus, 1), (base_number, 1), (complex_number, 2), (power, 2), (function, 4), (ratio, 1), (scientific, 1), (named, 3), (other, 3)]

# ---- responses --------------------------------------------------------------

STEPS = [
    "We start by writing down what is given.", r"First, $a = {0}$ and $b = {1}$, so $a + b = {2}$.", r"She has {0} apples and buys {1} more, so she has {0} + {1} = {2} apples.",
    r"Let $x$ be the number of coins.", r"\[ x^2 - {0}x + {1} = 0 \]", "By symmetry it is enough to look at one case.", r"The total cost is {0} * {1} = ${3}.",
    r"Then \( {0} \cdot {1} = {3} \).", "**Step 1:** Find the sum of the digits.", "1. Count the ways to choose the first one.", "2. Subtract what was counted twice.",
    r"$$\frac{{{0}}}{{{1}}} + \frac{{1}}{{2}}$$", "So in {0} days there are {1} * {0} = {3} minutes.", "This means that every one of the {0} students gets {1} books.",
    r"Using the formula $A = \frac{{1}}{{2}}bh$ gives the area.", r"Hence $f({0}) = {1}$ and the slope is ${2}$.", "Wait, let me check that again.", r"Since $n \le {0}$, there are {1} cases.",
    r"The answer to the first part is ${0}$, which we use below.", r"(3, 4) and (5, 12) are legs of right triangles.",
]

# {L}: LaTeX of the answer. Those of PLAIN take answers that are no LaTeX.
FORMULA = [
    (r"So the answer is $\boxed{{{L}}}$.", 14), (r"\[\boxed{{{L}}}\]", 8), (r"\boxed{{{L}}}", 8), (r"Therefore, the answer is $\boxed{{{L}}}$", 5), (r"Thus, $x = \boxed{{{L}}}$.", 3),
    (r"The final answer is: $\boxed{{{L}}}$", 4), (r"The final answer is $\boxed{{{L}}}$. I hope it is correct.", 3), (r"Final Answer: The final answer is ${L}$. I hope it is correct.", 6),
    (r"The answer is ${L}$.", 6), (r"Therefore, the answer is \({L}\).", 3), (r"**Answer:** ${L}$", 3), (r"Answer: ${L}$", 3), (r"Answer: {L}", 3), (r"The answer is {L}.", 3), (r"the value is ${L}$.", 4), (r"\[ = {L} \]", 2),
    (r"Hence it equals $${L}$$", 2), (r"Therefore $\boxed{{{L}}}$ is the answer. We used the rule from above.", 2), (r"We get \boxed{{{L}}}. This completes the solution.", 2), (r"\( \boxed{{{L}}} \)", 2),
    (r"Final Answer: ${L}$", 2), ("Final Answer: $\\boxed{{{L}}}$", 2), ("**Final Answer**\n\n\\boxed{{{L}}}", 3), ("### Final Answer\n\n$\\boxed{{{L}}}$", 2), ("</think>\n\nThe answer is \\(\\boxed{{{L}}}\\).", 3),
    (r"$\boxed{{{L}}}$<|im_end|>", 1), (r"So we have $\fbox{{{L}}}$.", 1), (r"\boxed {{{L}}}", 1), ("Final Answer: The largest value is ${L}$.", 1), ("Final Answer: The sum is {L}.", 1), (r"Answer: \[ {L} \]", 1),
    (r"The answer is therefore $$\boxed{{{L}}}.$$", 1), ("The answer is:\n$${L}$$", 1), (r"\boxed{{{L}}} \text{{ units}}", 1), (r"$\boxed{{{L}}}$ cm", 1), (r"so it is ${L}$, as wanted.", 2), (r"$\boxed{{\displaystyle {L}}}$", 1),
]
PLAIN = [
    ("#### {L}", 8), ("The answer is {L}.", 8), ("Answer: {L}", 4), ("**Answer: {L}**", 2), ("The final answer is {L}.", 3), ("The final answer is {L}. I hope it is correct.", 2), ("so the total is {L}.", 3), ("So that is = {L}", 3),
    ("The answer is **{L}**.", 2), ("Therefore, it costs ${L} in all.", 3), ("Final answer: {L}", 2), ("She has {L} left.", 2), ("ANSWER: {L}", 2), ("The answer is {L} miles.", 2), ("The answer is: {L}", 2), ("Answer:\n{L}", 1), ("So the final answer is ${L}.", 1), ("That is {L}%.", 1),
    ("the answer is 3 + 4 = {L}", 1), ("Answer: x = {L}", 1),
]


def choose(r, weighted):
    return r.choices([w[0] for w in weighted], [w[1] for w in weighted])[0]


def steps(r):
    out = []
    for _ in range(r.choices([0, 1, 2, 3], [2, 3, 3, 2])[0]):
        a, b = r.randint(2, 40), r.randint(2, 30)
        out.append(r.choice(STEPS).format(a, b, a + b, a * b))
    return r.choice(["\n", "\n\n", " "]).join(out)


def finish(r, form, bad, plain):
    """Makes the end of a response that answers `form`; `bad` is a wrong answer."""
    if plain and r.random() < 0.6:
        return choose(r, PLAIN).replace("{L}", form.replace("\\$", "").replace("{,}", ","))
    kind = r.random()
    text = choose(r, FORMULA).format(L=form)
    if kind < 0.03:
        return rf"One may think of $\boxed{{{bad}}}$, but that counts some cases twice, so we have to take them off again. " + text
    if kind < 0.05:
        return text[: len(text) - r.randint(1, max(2, len(text) // 2))]
    if kind < 0.07:
        return text + r" Since $x$ was positive, this is the only one."
    if kind < 0.08:
        return text + "\n\nNote: 12 of these are even."
    return text


def make(r):
    truth, right, wrong, plain = choose(r, KINDS)(r)
    good = r.random() < 0.62
    form = r.choice(right if good else wrong)
    plain = plain and not any(c in form for c in "\\{")
    before = steps(r)
    end = finish(r, form, r.choice(wrong), plain)
    return {"response": (before + "\n" + end) if before else end, "truth": truth, "meant": good}


def pairs(seed, count):
    r = random.Random(seed)
    seen = set()
    out = []
    while len(out) < count:
        row = make(r)
        key = (row["response"], row["truth"])
        if key not in seen:
            seen.add(key)
            out.append(row)
    return out


# ---- the library, and ours --------------------------------------------------

def gold_text(truth):
    marks = ("$", "\\boxed", "\\(", "\\[")
    return truth if any(m in truth for m in marks) else "\\boxed{" + truth + "}"


def ask_library(rows):
    import logging
    from math_verify import parse, verify
    logging.disable(logging.CRITICAL)
    for row in rows:
        gold, answer = parse(gold_text(row["truth"])), parse(row["response"])
        row["right"] = bool(verify(gold, answer))
        row["library"] = [str(gold)[:80], str(answer)[:80]]


def ask_xray(rows, xray):
    lines = "".join(json.dumps({"prompt": "", "response": row["response"], "ground_truth": row["truth"]}) + "\n" for row in rows)
    command = [xray, "grade", "--reward", "rule", "--set", "reward.rule.grader=math_verify", "-"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line)["score"] > 0 for line in done.stdout.splitlines()]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--count", type=int, default=1000)
    args.add_argument("--read", help="pairs with verdicts instead of new ones")
    args.add_argument("--write", help="where to write the pairs with the library's verdicts")
    args.add_argument("--xray", help="the program to compare with")
    args.add_argument("--probe", help="a program that answers 0 or 1 a line instead")
    args.add_argument("--show", type=int, default=0, help="differences to print")
    args = args.parse_args()
    if args.read:
        rows = [json.loads(line) for line in open(args.read)]
    else:
        rows = pairs(args.seed, args.count)
        ask_library(rows)
    if args.write:
        with open(args.write, "w") as out:
            for row in rows:
                kept = {key: row[key] for key in ("response", "truth", "right", "meant")}
                out.write(json.dumps(kept) + "\n")
    if not (args.xray or args.probe):
        return 0
    if args.probe:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        ours = [c == "1" for c in subprocess.run([args.probe], input=lines, capture_output=True, text=True, check=True).stdout.split()]
    else:
        ours = ask_xray(rows, args.xray)
    same = sum(o == row["right"] for o, row in zip(ours, rows))
    more = sum(o and not row["right"] for o, row in zip(ours, rows))
    wrong = sum(o and not row["right"] and not row["meant"] for o, row in zip(ours, rows))
    print(f"{same} of {len(rows)} the same verdict ({100 * same / len(rows):.1f} %), "
          f"{more} accepted that the library refuses, {wrong} of them wrong")
    for o, row in zip(ours, rows):
        if o != row["right"] and args.show > 0:
            args.show -= 1
            print(("ACCEPTED " if o else "refused  "), json.dumps(row["truth"]), json.dumps(row["response"][-160:]), row.get("library"), row.get("meant"))
    return 1 if wrong or same < 0.97 * len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
