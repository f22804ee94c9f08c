#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Digests what the cases of a golden suite leave; called by lib.sh.

    golden.py digest CASE...               a line for each case: name, exit code, digests, values
    golden.py show CASE...                 all that is digested, as it is digested
    golden.py compare GOLDEN MODE WANTED   the lines in WORK/results with those of the golden

A case has left WORK/cases/NAME.{out,err,code,command} and its files in WORK/cases/NAME.
"""
import fnmatch
import hashlib
import json
import os
import re
import sys

WORK = os.environ["GOLDEN_WORK"]
KINDS = [kind.split("=", 1) for kind in os.environ["GOLDEN_KINDS"].split()]
VALUES = os.environ["GOLDEN_VALUES"].split()
EXACT = os.environ["GOLDEN_EXACT"]
STREAMS = ("stdout", "stderr", "files")

# Paths, the longest first, since one may lie in another.
PLACES = {WORK: "WORK", os.path.realpath(WORK): "WORK"}
for name in ("XRAY_BIN", "XRAY_BUILD", "XRAY_SOURCE", "XRAY_TEST_DATA"):
    if os.environ.get(name):
        for path in (os.environ[name], os.path.realpath(os.environ[name])):
            PLACES.setdefault(path.rstrip("/"), name[5:])
PLACES = sorted(PLACES.items(), key=lambda place: -len(place[0]))

# These differ legitimately between two runs or two releases.
NUMBER = r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
VARYING = [
    (r'"timing_[^"]*": ?[^,}\n]*(?:, ?)?', ""),
    (r'"perf/(?:throughput|time_per_step|mfu[^"]*|update_weights_bytes|infer\.[^"]*)": ?[^,}\n]*(?:, ?)?', ""),
    (r", ?}", "}"),
    (r"(?m)^(timing_\S+|perf/\S+) .*", r"\1 ..."),
    (rf"{NUMBER}k? tokens/s", "RATE tokens/s"),
    (rf"\bin {NUMBER} (?:s|ms|min|h)\b", "in TIME"),
    (r"\bpid \d+( on \S+)?", "pid PID"),
    (r"\b(127\.0\.0\.1|localhost|\[::1\]):\d+", r"\1:PORT"),
    (r'"(run|lines_xxh64)": ?"[0-9a-f]{16}"', r'"\1": ID'),
    # run.ini and history.json hold paths, so their sizes and checksums differ.
    (r'(\{"path": "[^"]*(?:run\.ini|history\.json)"), [^}]*', r"\1"),
    (r'"self": "[0-9a-f]{16}"', '"self": ID'),
]
VARYING = [(re.compile(pattern), text) for pattern, text in VARYING]
FLOAT = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:[eE][-+]?\d+)?|[eE][-+]?\d+)(?![\w.])")
DIGITS = str.maketrans("0123456789", "".join(chr(0xE000 + i) for i in range(10)))
PLAIN = {0xE000 + i: str(i) for i in range(10)}
KEEP = re.compile(rf'"(?:{EXACT})": ?(?:\[[^\]]*\]|[^,}}\]]*)') if EXACT else None


def rounded(match):
    """A float with six significant digits: the last bits may be those of a libm."""
    value = float(match[0])
    return "0" if abs(value) < 1e-12 else f"{value:.6g}"


def normal(text, case=None):
    if case:
        for path in (WORK, os.path.realpath(WORK)):
            text = text.replace(f"{path}/cases/{case}", "CASE")
    for path, name in PLACES:
        text = text.replace(path, name)
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    if KEEP:
        text = KEEP.sub(lambda match: match[0].translate(DIGITS), text)
    return FLOAT.sub(rounded, text).translate(PLAIN)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def tensors(data):
    """Lines about the tensors of a safetensors file, for show."""
    size = int.from_bytes(data[:8], "little")
    lines = []
    for name, tensor in json.loads(data[8 : 8 + size]).items():
        begin, end = tensor.pop("data_offsets", (0, 0))
        part = data[8 + size + begin : 8 + size + end]
        lines.append(f"{name} {json.dumps(tensor)} {hashlib.sha256(part).hexdigest()[:12]}\n")
    return "".join(lines)


def shown(path, data, case):
    if path.endswith(".safetensors") and len(data) > 8:
        return tensors(data)
    try:
        return normal(data.decode("utf-8"), case)
    except UnicodeDecodeError:
        return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:12]}\n"


def digestible(path, data, case):
    try:
        return data if path.endswith(".safetensors") else normal(data.decode("utf-8"), case).encode()
    except UnicodeDecodeError:
        return data


def step_of(path):
    match = re.search(r"global_step_(\d+)/", path)
    return int(match[1]) if match else -1


def kind_of(path, newest):
    """The digest that has a file, and the name that the file has in it."""
    for kind, glob in KINDS:
        if fnmatch.fnmatch(path, glob):
            if not kind.endswith("@"):
                return kind, path
            inside = re.sub(r".*global_step_\d+/", "", path)
            return (kind[:-1], inside) if step_of(path) == newest else (None, path)
    return "data", path


def files_of(name):
    root = f"{WORK}/cases/{name}"
    found = []
    for folder, folders, files in os.walk(root):
        folders.sort()
        found += [os.path.relpath(os.path.join(folder, file), root) for file in files]
        found += [os.path.relpath(os.path.join(folder, one), root) + "/" for one in folders
                  if not os.listdir(os.path.join(folder, one))]
    return sorted(found)


def engine_lines(name, path):
    """What an engine tells about its work, which other engines do otherwise."""
    text = read(f"{WORK}/cases/{name}/{path}").decode()
    parts = re.findall(r'"perf/(infer\.[^"]*|update_weights_bytes)": ?([^,}\n]*)', text)
    return "".join(f"{key} {normal(value)}\n" for key, value in parts)


def pieces(name):
    """(digest, name of the piece, its path or None, its text or bytes) of all that a case left."""
    base = f"{WORK}/cases/{name}"
    yield "out", "stdout", normal(read(base + ".out").decode("utf-8", "replace"), name).encode()
    yield "err", "stderr", normal(read(base + ".err").decode("utf-8", "replace"), name).encode()
    files = files_of(name)
    yield "files", "files", "".join(file + "\n" for file in files).encode()
    newest = max([step_of(file) for file in files], default=-1)
    for file in files:
        if file.endswith("/") or os.path.islink(f"{base}/{file}"):
            continue
        kind, inside = kind_of(file, newest)
        if kind and kind != "-":
            yield kind, inside, digestible(file, read(f"{base}/{file}"), name)
        if file.endswith("metrics.jsonl"):
            lines = engine_lines(name, file)
            if lines:
                yield "engine", file, lines.encode()


def values_of(name, code):
    """A few words for the reader: the last values of metrics, or how an error begins."""
    base = f"{WORK}/cases/{name}"
    if os.path.exists(base + ".values"):
        return " ".join(normal(read(base + ".values").decode(), name).split())
    text = read(base + ".err" if code else base + ".out").decode("utf-8", "replace")
    found = []
    for path in files_of(name):
        if path.endswith("metrics.jsonl") and VALUES and not code:
            metrics = read(f"{base}/{path}").decode()
            for key in VALUES:
                last = re.findall(rf'"{re.escape(key)}": ?({NUMBER})', metrics)
                if last:
                    found.append(f"{key.split('/')[-2 if key.endswith('/mean') else -1]} {float(last[-1]):.6g}")
    if not found:
        lines = [line for line in normal(text, name).splitlines() if line.strip()] or [""]
        found = [re.sub(r"\s+", " ", lines[0])[:40].strip()]
    return ", ".join(found[:3])


def digest(names):
    for name in names:
        code = int(read(f"{WORK}/cases/{name}.code"))
        sums = {}
        for kind, inside, data in pieces(name):
            if not data and inside in STREAMS:
                continue
            part = sums.setdefault(kind, hashlib.sha256())
            part.update(f"{inside}\0{len(data)}\0".encode() + data)
        digests = " ".join(f"{kind}={part.hexdigest()[:6]}" for kind, part in sums.items())
        print(f"{name} {code} {digests} | {values_of(name, code)}".rstrip())


def show(names):
    for name in names:
        print(f"== case {name}, exit code {read(f'{WORK}/cases/{name}.code').decode().strip()}")
        for kind, inside, data in pieces(name):
            text = data.decode() if inside in STREAMS else shown(inside, data, name)
            print(f"== {kind}: {inside}\n{text}", end="" if text.endswith("\n") else "\n")


def parsed(lines):
    """name: (code, {digest: sum}, values)"""
    cases = {}
    for line in lines:
        if line.strip() and not line.startswith("#"):
            left, _, values = line.rstrip("\n").partition(" |")
            name, code, *sums = left.split()
            cases[name] = (code, dict(part.split("=") for part in sums), values.strip())
    return cases


def difference(old, new):
    parts = [f"exit code {new[0]}, was {old[0]}"] if old[0] != new[0] else []
    kinds = [kind for kind in dict.fromkeys([*old[1], *new[1]]) if old[1].get(kind) != new[1].get(kind)]
    parts += [", ".join(kinds)] if kinds else []
    parts += [f"{new[2]!r}, was {old[2]!r}"] if old[2] != new[2] else []
    return "; ".join(parts)


def unequal(cases):
    """Sentences about groups of cases whose digests are to be equal and are not."""
    first, faults = {}, []
    with open(f"{WORK}/same") as file:
        for line in file:
            name, group, kinds = line.split()
            if name not in cases:
                continue
            other = first.setdefault(group, name)
            differ = [kind for kind in kinds.split(",") if cases[name][1].get(kind) != cases[other][1].get(kind)]
            if differ:
                faults.append(f"{name} and {other} are to be the same ({group}), but differ in {', '.join(differ)}")
    return faults


def compare(golden, mode, wanted):
    topic = os.path.basename(golden).rsplit(".", 1)[0]
    with open(f"{WORK}/results") as file:
        lines = file.readlines()
    new = parsed(lines)
    faults = unequal(new)
    names = read(f"{WORK}/names").decode().split()
    faults += [f"two cases have the name {name}" for name in sorted(set(names)) if names.count(name) > 1]
    before = open(golden).readlines() if os.path.exists(golden) else []
    old = parsed(before)
    if mode == "write" and not faults:
        written = {line.split()[0]: line for line in [*(before if wanted.strip() else []), *lines]}
        with open(golden, "w") as file:
            file.writelines(written[name] for name in names if name in written)
    elif mode != "write":
        for name, case in new.items():
            if old.get(name) != case:
                what = difference(old[name], case) if name in old else "it is not in the golden"
                command = read(f"{WORK}/cases/{name}.command").decode().replace(WORK, "WORK")
                said = normal(read(f"{WORK}/cases/{name}.err").decode("utf-8", "replace"), name).splitlines()[-2:]
                said = "".join(f"    {line}\n" for line in said) if case[0] != "0" else ""
                faults.append(f"{name}: {what}\n    {command}{said}    tests/golden/{topic}.sh show {name}")
        if not wanted.strip():
            faults += [f"{name} is in the golden, but no case" for name in old if name not in names]
        faults += [f"there is no case {name}" for name in wanted.split() if name not in names]
    for fault in faults:
        print("FAIL:", fault, file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    {"digest": digest, "show": show, "compare": lambda arguments: compare(*arguments)}[sys.argv[1]](sys.argv[2:])
