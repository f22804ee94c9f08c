#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tokenizers with the Hugging Face library on difficult texts.

    python3 tests/parity/tokenizers.py --lines build/dev/tests/text-lines \
        [--xray build/dev/xray] [--data shared/data] [--only NAME] [--texts N]
        [--goldens tests/text/goldens] [--ids tests/text/goldens]

Needs the Python package `tokenizers`. Makes small tokenizers of every kind from a
seed, compares ids, offsets, decoded and streamed text, and stops each tokenizer at
its first difference. --goldens and --ids write the goldens that ctest checks without
Python.
"""
import argparse
import base64
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2, LLAMA3 = CL100K % r"\p{N}", CL100K % r"\p{N}{1,3}"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
META = "\u2581"
COUNT = 250  # merges
# The tokenizers that --goldens writes, one of each kind, made from fewer words.
GOLDENS = ["gpt2_prefix", "qwen2", "llama3", "o200k", "llama2", "mistral_first", "gemma3", "first_after_norm", "spm_some_bytes", "t5",
           "unigram_bytes", "albert", "bert", "clip", "wl_punct", "split_MergedWithPrevious_1", "split_Contiguous_0", "norm_NFC", "norm_chain"]

# ---------------------------------------------------------------- texts

WORDS = ("the quick brown fox jumps over lazy dog don't we'll I'VE it's they're def return hello world tokens "
         "of and in that is for 3.14 1234567 12 x=y+1 // http://a.b/c?d=e&f #tag @you naïve café Ünïcödé "
         "Привет мир как дела Москва 你好 世界 中文 分词 日本語 テスト カタカナ 한국어 안녕하세요 مرحبا بالعالم שלום "
         "नमस्ते दुनिया สวัสดี Ελληνικά ñandú ſs 'ſ 'S 'LL İstanbul ǅ Ⅷ ½ ² ① ㎏ ﬁ ﬀ ﬃ Å Å ё ё").split()
NASTY = ["e\u0301", "a\u0323\u0301", "a\u0301\u0323", "\u1100\u1161\u11a8", "\uac00\u11a8", "\uac00\u11a7", "\u0915\u094d\u0937",
         "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F1E9\U0001F1EA", "\U0001F44D\U0001F3FD", "\U0001F600", "❤️",
         "\u200b", "\u200d", "\ufeff", "\ufffd", "\u00ad", "\u180e", "\u0085", "\u00a0", "\u2028", "\u3000", "\u2003",
         "\x01", "\x07", "\x0b", "\x0c", "\x1f", "\x7f", "\x9f", "\r\n", "\n", "\r", "\t", "\n\n\n", " \n ", "\r\n\r\n",
         "  ", "   ", "       ", " ", "\u2581", "\u2581\u2581", "\u0130", "\u0149", "\u1e9e", "\ufb01", "\uff21\uff22", "\u3392",
         "\u2126", "\u212b", "\u0344", "\u0958", "\u0f73", "\U0001D15E", "\U000105c9", "\u0378", "\U000E0001", "\uf8ff", "\U0010fffd",
         "'", "''", "'s", "'S", "'re", "'RE", "' s", "\u2019s", '"', "\\", "$", "^", "`", "!?", "...", "——", "、。", "¿", "«»",
         "<s>", "</s>", "<unk>", "<0x41>", "<0x0A>", "<|im_start|>", "<|im_end|>", "[MASK]", "[CLS]", "<pad>", "<mask>", "xyz",
         "ab", "aab", "abc", "Ġ", "Ċ", "##a", "</w>", "0", "00", "<a1>", "<ab12>", "<unused25>", "<unused2", "<unused30>", "<<a5>", "٣", "²", "½", "Ⅷ", "①", "a1b2", "_", "__a", "-", "A.B", "ΑΣ", "\u0345"]


def make_texts(seed, count):
    r = random.Random(seed)
    out = ["", " ", "  ", "a", " a", "a ", "\n", "\u2581", "\u2581a", "'", "é", "<s>", " <s> ", "<s><s>", "a<s>b", "<mask> <mask>"]
    out += NASTY + [" " + n for n in NASTY] + ["a" + n + "b" for n in NASTY] + [n + " " for n in NASTY]

    def char():
        k = r.random()
        top = 0x80 if k < .3 else 0x250 if k < .45 else 0x3000 if k < .7 else 0x11000 if k < .9 else 0x110000
        while True:
            c = r.randrange(1, top)
            if not 0xD800 <= c <= 0xDFFF:
                return chr(c)

    while len(out) < count:
        kind = r.random()
        parts = []
        for _ in range(r.randrange(1, 12)):
            k = r.random()
            if kind < .35:
                parts.append(r.choice(WORDS) + (" " if r.random() < .9 else ""))
            elif kind < .8:
                parts.append(r.choice(NASTY) if k < .5 else r.choice(WORDS) if k < .8 else " ")
            else:
                parts.append(char() if k < .7 else r.choice(NASTY))
        out.append("".join(parts))
    out.append("the quick " * 40)
    out.append("你好世界" * 40 + "ab" * 100)
    out.append("x" * 300)
    return [t.replace("\0", "") for t in out]


def sweep():
    """Makes texts with every code point between letters, before a mark and after a space."""
    codes = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF and c not in range(0x323B0, 0xE0000) and c < 0xE1000]
    return ["".join(f"a{c}b {c}\u0334\u0301" for c in codes[i:i + 40]) for i in range(0, len(codes), 40)]


# ---------------------------------------------------------------- tokenizers

def alphabet():
    codes = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    out, n = {}, 0
    for b in range(256):
        if b in codes:
            out[b] = chr(b)
        else:
            out[b] = chr(256 + n)
            n += 1
    return out


def train_merges(words, count, start):
    """Trains merges: the most frequent pair first, ties in order of the text."""
    words = [list(w) for w in words]
    merges = []
    for _ in range(count):
        freq = {}
        for w in words:
            for p in zip(w, w[1:]):
                freq[p] = freq.get(p, 0) + 1
        if not freq:
            break
        best = min(freq, key=lambda p: (-freq[p], p))
        if freq[best] < 2:
            break
        merges.append(best)
        for w in words:
            i = 0
            while i + 1 < len(w):
                if (w[i], w[i + 1]) == best:
                    w[i:i + 2] = [w[i] + w[i + 1]]
                i += 1
    vocab = dict.fromkeys(start)
    for a, b in merges:
        vocab.setdefault(a)
        vocab.setdefault(b)
        vocab.setdefault(a + b)
    return {t: i for i, t in enumerate(vocab)}, merges


def byte_bpe(count=None, drop=0, **more):
    count = COUNT if count is None else count
    al = alphabet()
    words = [("" if i % 3 == 0 else "Ġ") + "".join(al[b] for b in w.encode()) for i, w in enumerate(WORDS * 2)]
    words += ["ĠĠĠĠ", "ĊĊ", "ĠĠ", "čĊ"] * 3
    start = list(al.values())[drop:]
    vocab, merges = train_merges(words, count, start)
    if drop:
        keep = {t for t in vocab if all(c in start for c in t)}
        merges = [m for m in merges if m[0] in keep and m[1] in keep and m[0] + m[1] in keep]
        vocab = {t: i for i, t in enumerate(t for t in vocab if t in keep)}
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab,
            "merges": [" ".join(m) for m in merges], **more}


def spm_bpe(missing=(), chars=True, **more):
    count = COUNT
    words = [META + w for w in WORDS * 2] + [META * 4, META * 2] * 3
    seen = sorted({c for w in words for c in w}) if chars else [META] + list("abcdefghijklmnopqrstuvwxyz")
    start = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256) if b not in missing] + [c for c in seen if c not in "ёkо"]
    known = set(start)
    vocab, merges = train_merges([[c for c in w if c in known] for w in words], count, start)
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab,
            "merges": [list(m) for m in merges], **more}


def unigram(seed, fallback=False, mark=META, unk=0):
    r = random.Random(seed)
    pieces = {"<unk>": 0.0, "<s>": 0.0, "</s>": 0.0}
    if fallback:
        for b in range(256):
            pieces[f"<0x{b:02X}>"] = 0.0
    for w in WORDS:
        w = mark + w
        for i in range(len(w)):
            for j in range(i + 1, min(i + 6, len(w)) + 1):
                if r.random() < .5 or j == i + 1 and r.random() < .9:
                    pieces.setdefault(w[i:j], -round(r.uniform(2, 12), r.choice([0, 1, 3])))
    pieces.setdefault(mark, -3.0)
    return {"type": "Unigram", "unk_id": unk, "vocab": [[p, s] for p, s in pieces.items()], "byte_fallback": fallback}


def wordpiece(**more):
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    low = sorted({c for w in WORDS for c in w.lower() + w})
    vocab += low + ["##" + c for c in low if c not in "xz"]
    for w in WORDS:
        w = w.lower()
        vocab += [w[:3], "##" + w[2:4], w]
    vocab = list(dict.fromkeys(v for v in vocab if v))
    return {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 20,
            "vocab": {t: i for i, t in enumerate(vocab)}, **more}


def wordlevel(chars=False):
    words = ["<unk>", "<s>", "</s>"] + (sorted({c for w in WORDS for c in w}) if chars else WORDS + [m + w for w in WORDS for m in (META,)])
    return {"type": "WordLevel", "unk_token": "<unk>", "vocab": {t: i for i, t in enumerate(dict.fromkeys(words))}}


def charsmap(rules):
    """Builds a double-array trie over `rules` in the layout of Darts-clone."""
    blob, at = b"", {}
    for key, value in rules.items():
        at[key] = len(blob)
        blob += value.encode() + b"\0"
    trie = {}
    for key in rules:
        node = trie
        for b in key.encode():
            node = node.setdefault(b, {})
        node[None] = at[key]
    units, used = [0] * 256, {0}
    todo = [(trie, 0)]
    while todo:
        node, pos = todo.pop()
        labels = [0 if k is None else k for k in node]
        base = 1
        while True:
            if all((base ^ x) not in used for x in labels) and (pos ^ base) < 1 << 21:
                break
            base += 1
        while len(units) <= (base | 255):
            units.append(0)
        units[pos] |= (pos ^ base) << 10
        for k, child in node.items():
            place = base ^ (0 if k is None else k)
            used.add(place)
            if k is None:
                units[pos] |= 1 << 8
                units[place] = child | 1 << 31
            else:
                units[place] = k
                todo.append((child, place))
    raw = struct.pack("<I", 4 * len(units)) + b"".join(struct.pack("<I", u) for u in units) + blob
    return base64.b64encode(raw).decode()


CHARSMAP = {"ﬁ": "fi", "\u00a0": " ", "\u3000": " ", "Å": "Å", "e\u0301": "é", "\u200b": " ", "½": "1/2", "①": "1", "\u00ad": "",
            "Ⅷ": "VIII", "\t": " ", "\r": "", "ａ": "a", "Ａ": "A", "a\u0301": "á", "가": "가", "ㄱ": "ᄀ", "\x01": "", "㎏": "kg", "\u0301": ""}

SEQ = "Sequence"


def added(content, id, special=True, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special, **flags}


def build(model, norm=None, pre=None, post=None, dec=None, tokens=None):
    size = max(model["vocab"].values()) + 1 if isinstance(model["vocab"], dict) else len(model["vocab"])
    known = model["vocab"] if isinstance(model["vocab"], dict) else {p: i for i, (p, _) in enumerate(model["vocab"])}
    out = []
    for t in tokens if tokens is not None else ["<s>", "</s>", "<|im_start|>"]:
        t = dict(content=t) if isinstance(t, str) else dict(t)
        id = known.get(t["content"])
        if id is None:
            id, size = size, size + 1
        out.append(added(id=id, **t))
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": sorted(out, key=lambda t: t["id"]), "normalizer": norm,
            "pre_tokenizer": pre, "post_processor": post, "decoder": dec, "model": model}


def byte_level(prefix=False, trim=True, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def pres(*steps):
    return {"type": SEQ, "pretokenizers": list(steps)}


def norms(*steps):
    return {"type": SEQ, "normalizers": list(steps)}


def decs(*steps):
    return {"type": SEQ, "decoders": list(steps)}


def metaspace(scheme="always", do_split=True, mark=META):
    return {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme, "split": do_split}


def template(before=(), after=(), ids=None):
    single = [{"SpecialToken": {"id": t, "type_id": 0}} for t in before] + [{"Sequence": {"id": "A", "type_id": 0}}]
    single += [{"SpecialToken": {"id": t, "type_id": 0}} for t in after]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in (*before, *after)}}


def repl(a, b, kind="String"):
    return {"type": "Replace", "pattern": {kind: a}, "content": b}


def plain(name):
    return {"type": name}


PREPEND = {"type": "Prepend", "prepend": META}
SPM_DEC = decs(repl(META, " "), plain("ByteFallback"), plain("Fuse"), {"type": "Strip", "content": " ", "start": 1, "stop": 0})
FLAGGED = [dict(content="<s>"), dict(content="</s>"), dict(content="<mask>", lstrip=True), dict(content="<|im_end|>", rstrip=True),
           dict(content="[MASK]", lstrip=True, rstrip=True), dict(content="xyz", special=False, single_word=True),
           dict(content="ab", special=False), dict(content="aab", special=False, normalized=True),
           dict(content="Abc", special=False, normalized=True), dict(content="<|im_start|>", normalized=True)]


def all_tokenizers():
    out = {}
    bb, sp = byte_bpe(), spm_bpe()
    dec = byte_level()
    # byte-level BPE
    out["gpt2"] = build(bb, pre=byte_level(), post=byte_level(trim=False), dec=dec)
    out["gpt2_prefix"] = build(bb, pre=byte_level(True), post=byte_level(True), dec=dec, tokens=FLAGGED)
    out["gpt2_trim"] = build(bb, pre=byte_level(), post=byte_level(trim=True), dec=dec, tokens=FLAGGED)
    out["gpt2_noregex"] = build(bb, pre=byte_level(regex=False), dec=dec)
    out["gpt2_regex"] = build(bb, pre=pres(split(GPT2 + "|\u0378"), byte_level(regex=False)), dec=dec)
    out["roberta"] = build(bb, pre=byte_level(True), dec=dec, tokens=FLAGGED,
                           post={"type": "RobertaProcessing", "sep": ["Ġ", bb["vocab"]["Ġ"]], "cls": ["a", bb["vocab"]["a"]],
                                 "trim_offsets": True, "add_prefix_space": True})
    out["qwen2"] = build(bb, norm=plain("NFC"), pre=pres(split(QWEN2), byte_level(regex=False)), post=byte_level(trim=False), dec=dec)
    out["qwen2_slow"] = build(bb, norm=plain("NFC"), pre=pres(split(QWEN2 + "|\u0378"), byte_level(regex=False)), post=byte_level(), dec=dec)
    l3 = byte_bpe(ignore_merges=True)
    n = len(l3["vocab"])
    l3["vocab"] = {**l3["vocab"], "Ġquick!": n, "Ñģ!": n + 1, "ĠÐ¼Ð¸ÑĢ!": n + 2}
    l3["merges"] = [m.split(" ") for m in l3["merges"]]
    ids = {"<|begin_of_text|>": n + 3}
    out["llama3"] = build(l3, pre=pres(split(LLAMA3), byte_level(regex=False)), dec=byte_level(True),
                          post={"type": SEQ, "processors": [byte_level(True), template(["<|begin_of_text|>"], ids=ids)]},
                          tokens=["<|begin_of_text|>", "<|eot_id|>"])
    out["llama3_removed"] = build(bb, pre=pres(split(LLAMA3, "Removed", True), byte_level(regex=False)), dec=dec)
    out["o200k"] = build(bb, pre=pres(split(O200K), byte_level(regex=False)), dec=dec)
    out["deepseek"] = build(bb, norm=norms(), pre=pres(*[split(p) for p in DEEPSEEK], byte_level(regex=False)), dec=dec)
    out["deepseek_coder"] = build(bb, norm=norms(), dec=dec, pre=pres(
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-\ud7ff]+"), {"type": "Digits", "individual_digits": True},
        byte_level(regex=False)))
    out["starcoder"] = build(bb, pre=pres({"type": "Digits", "individual_digits": True}, byte_level()), dec=dec, post=byte_level())
    out["falcon"] = build(bb, dec=dec, pre=pres({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
                                                {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")))
    out["byte_missing"] = build(byte_bpe(drop=40), pre=byte_level(), dec=dec)
    unk = byte_bpe(drop=40, unk_token="!")
    unk["vocab"]["!"] = max(unk["vocab"].values()) + 1
    out["byte_unk"] = build(unk, pre=byte_level(), dec=dec)
    out["byte_unk_fuse"] = build({**unk, "fuse_unk": True}, pre=byte_level(), dec=dec, post=byte_level())
    out["byte_norm"] = build(bb, norm=norms(plain("NFKC"), plain("ByteLevel")), dec=dec)
    out["clip"] = build({**byte_bpe(0), "end_of_word_suffix": "</w>", "unk_token": "!",
                         "vocab": {t: i for i, t in enumerate([*alphabet().values(), *[c + "</w>" for c in alphabet().values()], "th", "the</w>", "ÃŃ"])},
                         "merges": ["t h", "th e</w>"]},
                        norm=norms(plain("NFC"), repl(r"\s+", " ", "Regex"), plain("Lowercase")),
                        pre=pres(split(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", "Removed", True), byte_level()),
                        dec=plain("ByteLevel") | {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}, tokens=[])
    # SentencePiece-style BPE
    lids = {"<s>": 1, "</s>": 2}
    llama_norm = norms(PREPEND, repl(" ", META))
    out["llama2"] = build(sp, norm=llama_norm, post=template(["<s>"], ids=lids), dec=SPM_DEC, tokens=FLAGGED)
    out["llama2_eos"] = build(sp, norm=llama_norm, post=template(["<s>"], ["</s>"], ids=lids), dec=SPM_DEC)
    out["mistral_first"] = build(sp, pre=metaspace("first", False), post=template(["<s>"], ids=lids), dec=SPM_DEC, tokens=FLAGGED)
    out["first_after_norm"] = build(sp, norm=norms({"type": "Strip", "strip_left": True, "strip_right": False}, plain("NFKC")),
                                    pre=metaspace("first", True), dec=metaspace("first"), tokens=FLAGGED)
    out["first_after_split"] = build(sp, pre=pres(plain("WhitespaceSplit"), metaspace("first", True)), dec=metaspace("first"), tokens=FLAGGED)
    out["phi3"] = build(sp, norm=llama_norm, dec=SPM_DEC, tokens=[dict(content="<s>"), dict(content="</s>", rstrip=True, special=False),
                                                                 dict(content="<|im_end|>", rstrip=True)])
    out["gemma"] = build(sp, norm=repl(" ", META), post=template(["<s>"], ids=lids), dec=decs(repl(META, " "), plain("ByteFallback"), plain("Fuse")),
                         tokens=["<s>", "</s>", dict(content="\n\n", special=False), dict(content="   ", special=False)])
    many = ["<s>", "</s>"] + [dict(content=f"<{x}{i}>", normalized=i % 5 == 0, special=i % 2 == 0) for x in ("a", "ab", "unused") for i in range(60)]
    out["gemma_many"] = build(sp, norm=repl(" ", META), dec=SPM_DEC, tokens=many)
    out["gemma3"] = build(sp, norm=repl(" ", META), pre=split(" ", "MergedWithPrevious", kind="String"), post=template(["<s>"], ids=lids),
                          dec=decs(repl(META, " "), plain("ByteFallback"), plain("Fuse")), tokens=["<s>", "</s>"])
    out["spm_no_fallback"] = build({**sp, "byte_fallback": False}, norm=llama_norm, dec=SPM_DEC)
    out["spm_no_fuse"] = build({**sp, "byte_fallback": False, "fuse_unk": False}, norm=llama_norm, dec=SPM_DEC)
    out["spm_some_bytes"] = build(spm_bpe(missing=(0xC5, 0xE2, 0x0A)), norm=llama_norm, dec=SPM_DEC)
    out["spm_no_unk"] = build({**sp, "byte_fallback": False, "unk_token": None}, norm=llama_norm, dec=SPM_DEC)
    out["spm_lost_unk"] = build({**sp, "byte_fallback": False, "unk_token": "[none]"}, norm=llama_norm, dec=SPM_DEC)
    out["spm_ascii"] = build(spm_bpe(chars=False), norm=llama_norm, dec=SPM_DEC)
    out["spm_prefix"] = build({"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": "##", "end_of_word_suffix": None,
                               "fuse_unk": True, "byte_fallback": False, "ignore_merges": False,
                               "vocab": {t: i for i, t in enumerate(["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz", *["##" + c for c in "abcdefghijklmnopqrstuvwxyz"],
                                                                     "th", "the", "##or", "##ld", "wor", "world"])},
                               "merges": ["t ##h", "th ##e", "##o ##r", "w ##or", "##l ##d", "wor ##ld"]}, pre=plain("Whitespace"), dec={"type": "BPEDecoder", "suffix": "</w>"})
    # Unigram
    out["t5"] = build(unigram(1), norm=norms({"type": "Precompiled", "precompiled_charsmap": charsmap(CHARSMAP)}, repl(" {2,}", " ", "Regex")),
                      pre=pres(plain("WhitespaceSplit"), metaspace()), post=template(after=["</s>"], ids=lids), dec=metaspace())
    out["xlmr"] = build(unigram(2), norm={"type": "Precompiled", "precompiled_charsmap": charsmap(CHARSMAP)}, pre=metaspace(),
                        post=template(["<s>"], ["</s>"], ids=lids), dec=metaspace(), tokens=FLAGGED)
    out["unigram_bytes"] = build(unigram(3, True), norm=norms(PREPEND, repl(" ", META)), dec=SPM_DEC)
    out["unigram_nfkc"] = build(unigram(4), norm=norms(plain("Nmt"), plain("NFKC"), repl(r" {2,}", " ", "Regex")), pre=metaspace("never"), dec=metaspace("never"))
    out["unigram_nounk"] = build(unigram(5, True, unk=None), norm=repl(" ", META), dec=SPM_DEC)
    out["unigram_whole"] = build(unigram(6, True), pre=metaspace("first", False), dec=metaspace("first"))
    out["albert"] = build(unigram(7), norm=norms(repl("``", '"'), repl("''", '"'), plain("NFKD"), plain("StripAccents"), plain("Lowercase"),
                                                 {"type": "Precompiled", "precompiled_charsmap": charsmap(CHARSMAP)}, repl(" {2,}", " ", "Regex")),
                          pre=metaspace(), dec=metaspace(), tokens=FLAGGED)
    # WordPiece and WordLevel
    wp = wordpiece()
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    bids = wp["vocab"]
    bpost = {"type": "BertProcessing", "sep": ["[SEP]", bids["[SEP]"]], "cls": ["[CLS]", bids["[CLS]"]]}
    btok = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    wdec = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    out["bert"] = build(wp, norm=bert, pre=plain("BertPreTokenizer"), post=bpost, dec=wdec, tokens=btok)
    out["bert_cased"] = build(wp, norm={**bert, "lowercase": False}, pre=plain("BertPreTokenizer"), post=template(["[CLS]"], ["[SEP]"], ids=bids),
                              dec={**wdec, "cleanup": False}, tokens=btok)
    out["bert_accents"] = build(wp, norm={**bert, "strip_accents": False}, pre=plain("Whitespace"), dec=wdec, tokens=btok)
    wl = wordlevel()
    out["wl_whitespace"] = build(wl, pre=plain("Whitespace"), tokens=FLAGGED)
    out["wl_split"] = build(wl, pre=plain("WhitespaceSplit"))
    out["wl_punct"] = build(wl, pre=pres(plain("WhitespaceSplit"), {"type": "Punctuation", "behavior": "Isolated"}))
    out["wl_chars"] = build(wordlevel(True), pre=split("", "Isolated"), dec=plain("Fuse"))
    out["wl_delim"] = build(wl, pre={"type": "CharDelimiterSplit", "delimiter": " "})
    out["wl_length"] = build(wl, pre={"type": "FixedLength", "length": 3})
    behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    chars = wordlevel(True)
    for b in behaviors:
        for inv in (False, True):
            out[f"split_{b}_{int(inv)}"] = build({**chars, "vocab": {**chars["vocab"], **{t: len(chars["vocab"]) + i for i, t in enumerate(("  ", " a", "a ", "ab"))}}},
                                                 pre=split(r"\s|a", b, inv), tokens=[])
        out[f"split_empty_{b}"] = build(chars, pre=split("x*", b), tokens=[])
        out[f"split_word_{b}"] = build(chars, pre=split(r"\b\w+\b|^ *| *$", b), tokens=[])
        out[f"punct_{b}"] = build(chars, pre={"type": "Punctuation", "behavior": b}, tokens=[])
    out["split_string"] = build(chars, pre=split("a.", "Removed", kind="String"), tokens=[])
    out["split_script"] = build(chars, pre=split(r"[\p{Han}\p{Hiragana}]+|\p{Cyrillic}+|\P{Latin}", "Isolated"), tokens=[])
    out["digits"] = build(chars, pre={"type": "Digits", "individual_digits": False}, tokens=[])
    out["digits1"] = build(chars, pre={"type": "Digits", "individual_digits": True}, tokens=[])
    for s in ("always", "first", "never"):
        for d in (False, True):
            out[f"meta_{s}_{int(d)}"] = build(spm_bpe(), pre=metaspace(s, d), dec=metaspace(s), tokens=FLAGGED)
    out["meta_other"] = build(spm_bpe(), pre=metaspace("always", True, "_"), dec=metaspace("always", True, "_"))
    # normalizers, with single characters as tokens
    nt = [dict(content="Abc", special=False, normalized=True), dict(content="e\u0301x", special=False, normalized=True), "<s>"]
    for n in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "StripAccents", "ByteLevel"):
        out["norm_" + n] = build(sp, norm=plain(n), dec=SPM_DEC, tokens=nt)
    for left in (False, True):
        for right in (False, True):
            out[f"norm_strip{int(left)}{int(right)}"] = build(sp, norm={"type": "Strip", "strip_left": left, "strip_right": right}, tokens=nt)
    out["norm_replace"] = build(sp, norm=norms(repl("ab", "<cd>"), repl(r"\s+", "-", "Regex"), repl("é", "")), tokens=nt)
    out["norm_regex_empty"] = build(sp, norm=repl("x*", "-", "Regex"), tokens=[])
    out["norm_prepend"] = build(sp, norm={"type": "Prepend", "prepend": "ab\u2581"}, tokens=nt)
    out["norm_bert"] = build(sp, norm=bert, tokens=nt)
    out["norm_map"] = build(sp, norm={"type": "Precompiled", "precompiled_charsmap": charsmap(CHARSMAP)}, tokens=nt)
    out["norm_chain"] = build(sp, norm=norms(plain("NFKD"), plain("StripAccents"), plain("NFC"), repl("a", "aa"), PREPEND, plain("Lowercase")), tokens=nt)
    # decoders
    out["dec_none"] = build(sp, norm=llama_norm)
    out["dec_strip2"] = build(sp, norm=llama_norm, dec=decs(repl(META, " "), plain("Fuse"), {"type": "Strip", "content": " ", "start": 2, "stop": 1}), tokens=["x"])
    out["dec_regex"] = build(sp, norm=llama_norm, dec=decs(plain("Fuse"), repl(r"[\u2581o]+", "_", "Regex")))
    out["dec_seq"] = build(sp, norm=llama_norm, dec=decs(plain("ByteFallback"), metaspace("always")))
    out["dec_wordpiece"] = build(sp, norm=llama_norm, dec={"type": "WordPiece", "prefix": META, "cleanup": True})
    out["dec_bpe"] = build(sp, norm=llama_norm, dec={"type": "BPEDecoder", "suffix": META})
    out["dec_empty"] = build(sp, norm=llama_norm, dec=decs())
    out["dec_level_bytes"] = build(bb, pre=byte_level(), dec=decs(plain("ByteFallback"), plain("ByteLevel") | {"add_prefix_space": True, "trim_offsets": True, "use_regex": True}))
    return out


# ---------------------------------------------------------------- comparison

def char_map(text):
    """Maps byte offsets to character offsets."""
    out, b = {}, 0
    for i, c in enumerate(text):
        out[b] = i
        b += len(c.encode())
    out[b] = len(text)
    return out


def library(tok, text):
    try:
        full, bare = tok.encode(text), tok.encode(text, add_special_tokens=False)
        return {"ids": full.ids, "plain": bare.ids, "spans": [[a, max(a, b)] for a, b in full.offsets],
                "decoded": tok.decode(full.ids, skip_special_tokens=False), "skipped": tok.decode(full.ids)}
    except Exception as e:
        return {"error": str(e)}
    except BaseException as e:  # the library panics where X-ray has a result
        if type(e).__name__ != "PanicException":
            raise
        return {"panic": str(e)}


def differs(text, want, got, around):
    if "panic" in want:
        return None
    if "error" in want:
        return None if "error" in got else ("error", want["error"], got)
    if "error" in got:
        return "error", want, got["error"]
    for key in ("ids", "plain", "decoded", "skipped"):
        if want[key] != got[key]:
            return key, want[key], got[key]
    if got["again"] != got["ids"]:
        return "ids with spans", got["ids"], got["again"]
    if got["streamed"] != got["decoded"] or got["streamed_skipped"] != got["skipped"]:
        return "streamed", got["decoded"], got["streamed"]
    chars = char_map(text)
    spans = [[chars.get(a, -1), chars.get(b, -1)] for a, b in got["spans"]]
    for i, (w, g) in enumerate(zip(want["spans"], spans)):
        if w != g and not (w == [0, 0] and g[0] == g[1]):
            return f"span {i}", want["spans"], spans
    return None


def ask(program, folder, texts):
    rows = "".join(json.dumps({"text": t}) + "\n" for t in texts)
    done = subprocess.run([*program, folder], input=rows.encode(), capture_output=True)
    if done.returncode and not done.stdout:
        return done.stderr.decode().strip()
    return [json.loads(line) for line in done.stdout.split(b"\n") if line]


def ask_xray(program, folder, texts, want):
    """Runs xray tokenize and back; returns 0, or the first text that differs."""
    rows = "".join(json.dumps({"text": t}) + "\n" for t in texts)
    done = subprocess.run([program, "tokenize", "--model", folder], input=rows.encode(), capture_output=True)
    lines = [json.loads(line) for line in done.stdout.split(b"\n") if line]
    for t, w, g in zip(texts, want, lines):
        if "ids" in w and w["ids"] != g.get("ids"):
            return t
    return None if len(lines) == len(texts) else "(too few lines)"


def write_goldens(folder, texts):
    """Writes tokenizer.json and lines.jsonl with the library's results, for ctest."""
    global COUNT, WORDS
    COUNT, WORDS = 60, WORDS[::4]
    todo = all_tokenizers()
    for name in GOLDENS:
        where = os.path.join(folder, name)
        os.makedirs(where, exist_ok=True)
        with open(os.path.join(where, "tokenizer.json"), "w") as f:
            json.dump(todo[name], f, separators=(",", ":"))
            f.write("\n")
        tok = Tokenizer.from_file(os.path.join(where, "tokenizer.json"))
        with open(os.path.join(where, "lines.jsonl"), "w") as f:
            for t in texts:
                want = library(tok, t)
                if "ids" not in want:
                    continue
                at = [0]
                for c in t:
                    at.append(at[-1] + len(c.encode()))
                want["spans"] = [[at[a], at[b]] for a, b in want["spans"]]
                f.write(json.dumps({"text": t, **want}, separators=(",", ":")) + "\n")


def write_ids(folder):
    """Writes ids.jsonl beside each tokenizer.json: ids that no text gives but a model may
    sample (bytes of half a character, special tokens anywhere), and their texts."""
    for name in sorted(os.listdir(folder)):
        where = os.path.join(folder, name)
        if not os.path.exists(os.path.join(where, "tokenizer.json")):
            continue
        tok, r = Tokenizer.from_file(os.path.join(where, "tokenizer.json")), random.Random(name)
        known = sorted(tok.get_vocab(True).values())
        byte = [i for t, i in tok.get_vocab(True).items() if len(t) == 6 and t.startswith("<0x")]
        special = [i for i, t in tok.get_added_tokens_decoder().items() if t.special]
        with open(os.path.join(where, "ids.jsonl"), "w") as f:
            rows = 0
            while rows < 14:
                ids = [r.choice(byte if byte and r.random() < .5 else special if special and r.random() < .1 else known) for _ in range(r.randrange(1, 11))]
                row = {"ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False), "skipped": tok.decode(ids)}
                if "\0" not in row["decoded"]:  # X-ray's texts cannot hold a NUL
                    f.write(json.dumps(row, separators=(",", ":")) + "\n")
                    rows += 1


def compare(name, spec, texts, args):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        if isinstance(spec, str):
            tok, folder = Tokenizer.from_file(os.path.join(spec, "tokenizer.json")), spec
        else:
            with open(path, "w") as f:
                json.dump(spec, f, ensure_ascii=False)
            tok = Tokenizer.from_file(path)
        tok.no_truncation()
        tok.no_padding()
        answers = ask([args.lines], folder, texts)
        if isinstance(answers, str):
            print(f"{name}: {answers}")
            return 1
        if len(answers) != len(texts):
            print(f"{name}: {len(answers)} answers for {len(texts)} texts; the next is {texts[len(answers)]!r}")
            return 1
        wants = [library(tok, t) for t in texts]
        for t, want, got in zip(texts, wants, answers):
            d = differs(t, want, got, None)
            if d:
                print(f"{name}: {d[0]} of {t!r}\n  library {d[1]}\n  xray    {d[2]}")
                return 1
        if args.xray:
            t = ask_xray(args.xray, folder, texts, wants)
            if t is not None:
                print(f"{name}: xray tokenize differs on {t!r}")
                return 1
    errors, panics = sum("error" in w for w in wants), sum("panic" in w for w in wants)
    print(f"{name}: {len(texts)} texts agree" + (f", {errors} errors in both" if errors else "") +
          (f"; the library panics on {panics}" if panics else ""))
    return 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lines")
    p.add_argument("--xray")
    p.add_argument("--data")
    p.add_argument("--only", default="")
    p.add_argument("--texts", type=int, default=1500)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--goldens")
    p.add_argument("--ids", help="a folder of goldens: write ids.jsonl of each tokenizer in it")
    p.add_argument("--sweep", action="store_true", help="every code point, in place of the texts")
    args = p.parse_args()
    if args.goldens:
        all_of_them = make_texts(args.seed, 400)
        write_goldens(args.goldens, random.Random(args.seed).sample([t for t in all_of_them if len(t) < 60], 45))
        return 0
    if args.ids:
        write_ids(args.ids)
        return 0
    texts = sweep() if args.sweep else make_texts(args.seed, args.texts)
    todo = all_tokenizers()
    if args.data:
        for name in ("gpt2", "qwen2", "llama2_spm"):
            todo["data_" + name] = os.path.join(args.data, "tokenizers", name)
    bad = sum(compare(n, s, texts, args) for n, s in todo.items() if not args.only or any(o in n for o in args.only.split(',')))
    print(f"{bad} tokenizers differ")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
