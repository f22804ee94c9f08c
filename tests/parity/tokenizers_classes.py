#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the character classes of the Hugging Face library.

    python3 tests/parity/tokenizers_classes.py classes   >model/text/char_class_runs.c
    python3 tests/parity/tokenizers_classes.py unicode16 >runs of model/text/unicode16.c

Asks the Python package `tokenizers` about every code point; nothing is taken
from its sources. `unicode16` also needs `unicodedata2` (a Unicode of at least 16)
and a Python whose own Unicode is 14.
"""
import os
import sys
import unicodedata

sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]
from tokenizers import Regex, normalizers as N, pre_tokenizers as P  # noqa: E402

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def matched(pattern):
    """Returns the characters that a pattern of one character matches."""
    drop, out = N.Replace(Regex(pattern), ""), set()
    for i in range(0, len(CODES), 4096):
        part = CODES[i:i + 4096]
        out |= set(part) - set(map(ord, drop.normalize_str("".join(map(chr, part)))))
    return out


def where(test):
    return {c for c in CODES if test("a" + chr(c) + "a")}


def changes(normalizer):
    return {c: s for c in CODES if (s := normalizer.normalize_str(chr(c))) != chr(c)}


def combining():
    """Returns characters with a combining class, which reorder with marks of another class."""
    nfd, out = N.NFD(), set()
    for c in CODES:
        if not unicodedata.combining(chr(c)):
            continue
        low = unicodedata.combining(chr(c)) == 1
        text = "a\u0301" + chr(c) if low else "a" + chr(c) + "\u0334"
        if nfd.normalize_str(text) != text:
            out.add(c)
    return out


def seconds(nfd):
    """Returns characters that compose with the one before them."""
    out = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for c, s in nfd.items():
        parts = unicodedata.decomposition(chr(c)).split()
        if len(s) > 1 and unicodedata.normalize("NFC", s) == chr(c) and len(parts) == 2:
            out.add(int(parts[1], 16))
    return out


def bert(**flags):
    return N.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False, **flags})


def classes():
    nfd, nfc, marks = changes(N.NFD()), changes(N.NFC()), combining()
    clean, accents, strip = bert(clean_text=True), bert(strip_accents=True), N.StripAccents()
    bits = [
        matched(r"\p{L}"), matched(r"\p{N}"),
        where(lambda s: len(P.WhitespaceSplit().pre_tokenize_str(s)) > 1),
        where(lambda s: len(P.Whitespace().pre_tokenize_str(s)) == 1),
        where(lambda s: len(P.Digits(True).pre_tokenize_str(s)) > 1),
        where(lambda s: len(P.Punctuation("removed").pre_tokenize_str(s)) > 1),
        where(lambda s: clean.normalize_str(s) == "aa"),
        {c for c in CODES if accents.normalize_str(chr(c)) == ""},
        where(lambda s: strip.normalize_str(s) == "aa"),
        marks, set(nfd), set(changes(N.NFKD())), set(nfc) | marks | seconds(nfd),
    ]
    value = [0] * 0x110000
    for i, codes in enumerate(bits):
        for c in codes:
            value[c] |= 1 << i
    runs, i = [], 0
    while i < 0x110000:
        j = i
        while j + 1 < 0x110000 and value[j + 1] == value[i] and j + 1 - i < 0x7FFFF:
            j += 1
        runs.append((j - i + 1) << 13 | value[i])
        i = j + 1
    print("""/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes of all code points as runs, measured on the Hugging Face library and
 * printed by tests/parity/tokenizers_classes.py.
 */
#include "model/text/char_class.h"

/* clang-format off */
const uint32_t xm_char_class_runs[] = {""")
    for k in range(0, len(runs), 7):
        print("".join("0x%X," % x for x in runs[k:k + 7]))
    print("""};
/* clang-format on */
const size_t xm_char_class_run_count =
    sizeof xm_char_class_runs / sizeof xm_char_class_runs[0];""")


def unicode16():
    import unicodedata2
    known = set().union(*(matched(r"\p{%s}" % k) for k in "LMNPS"))
    runs = []
    for c in CODES:
        if unicodedata.category(chr(c)) != "Cn" or c not in known:
            continue
        kind = unicodedata2.category(chr(c))
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == kind:
            runs[-1][1] = c
        else:
            runs.append([c, c, kind])
    for a, b, kind in runs:
        print('{0x%X,0x%X,"%s"},' % (a, b, kind))


if __name__ == "__main__":
    {"classes": classes, "unicode16": unicode16}[sys.argv[1]]()
