# SPDX-License-Identifier: Apache-2.0
"""Slips, and how a C file holds several of them at once.

Functions end and begin with a brace in the first column, as clang-format leaves
them. Beside a function with a slip stands a copy that has it, and the function
begins by calling the copy when xray_slip() (slip.h) is the slip's key.
"""
import os
import re
import zlib


class SlipError(Exception):
    """Says in one sentence why a slip cannot be made."""


class Slip:
    def __init__(self, name):
        self.name = name
        self.file = self.suites = ""
        self.old, self.new = [], []

    def take(self, kind, rest):
        """Takes a line of the list; whether it has a known form."""
        if kind == "file":
            self.file = rest
        elif kind == "by":
            self.suites = rest
        elif kind in ("-", "+"):
            (self.old if kind == "-" else self.new).append(rest)
        else:
            return False
        return True

    def place(self, text):
        """Where the old text begins."""
        old = "\n".join(self.old)
        if not old:
            raise SlipError("says no text to change")
        if self.old == self.new:
            raise SlipError("changes nothing")
        if old not in text:
            raise SlipError(f"{self.file} does not hold its text")
        if text.count(old) > 1:
            raise SlipError(f"{self.file} holds its text more than once")
        return text.index(old)

    def made(self, text):
        """The text with the slip in it."""
        start = self.place(text)
        return text[:start] + "\n".join(self.new) + text[start + len("\n".join(self.old)):]

    def made_in(self, root):
        if not self.suites:
            raise SlipError("names no suites")
        path = os.path.join(root, self.file)
        if not os.path.isfile(path):
            raise SlipError(f"there is no file {self.file}")
        with open(path, encoding="utf-8", newline="") as file:
            return self.made(file.read())


def key_of(name):
    """What XRAY_SLIP is for a slip: it stays when others are added to the list."""
    return str(zlib.crc32(name.encode()) & 0x7FFFFFFF or 1)


def functions_of(lines):
    """(first line of the signature, line of the brace, line of the last brace)."""
    for brace, line in enumerate(lines):
        if line != "{":
            continue
        first = brace
        while first > 0 and re.match(r"[A-Za-z_ ]", lines[first - 1]) and not lines[first - 1].endswith(("*/", ";")):
            first -= 1
        try:
            last = lines.index("}", brace)
        except ValueError:
            continue
        if first < brace:
            yield first, brace, last


def parameters_of(text):
    """Names of the parameters in what stands between the parentheses; None: not all
    are named."""
    if text.strip() == "void":
        return []
    names, part, depth = [], "", 0
    for letter in text + ",":
        depth += (letter in "([") - (letter in ")]")
        if letter != "," or depth:
            part += letter
            continue
        found = re.search(r"\(\*\s*(\w+)\)\s*\(", part) or re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", part)
        if not found:
            return None
        names.append(found[1])
        part = ""
    return names


def head_of(signature):
    """(type and qualifiers, name, parameters as text) of a function."""
    match = re.match(r"([\w\s*]+?)\b(\w+)\((.*)\)\s*$", signature, re.S)
    if not match or "..." in match[3] or not match[1].strip():
        return None
    return match[1], match[2], match[3]


def call_of(slip, head):
    """(name of the copy, lines that call it) for a function's head, or None."""
    kind, name, parameters = head
    names = parameters_of(parameters)
    if names is None:
        return None
    copy = f"{name}_slip_{key_of(slip.name)}"
    call = f"{copy}({', '.join(names)});"
    call = f"{{ {call} return; }}" if re.search(r"\bvoid\s*$", kind) else f"return {call}"
    return copy, [f"    if (xray_slip() == {key_of(slip.name)})", f"        {call}"]


def switched(text, slips):
    """The text with those slips behind their switches that lie in one function, and
    these slips' names."""
    lines = text.split("\n")
    copies, calls, taken = {}, {}, set()
    functions = list(functions_of(lines))
    for slip in slips:
        start = text[:slip.place(text)].count("\n")
        end = start + len(slip.old) - 1
        home = next((f for f in functions if f[1] < start and end < f[2]), None)
        head = home and head_of("\n".join(lines[home[0]:home[1]]))
        made = head and call_of(slip, head)
        if not made:
            continue
        copy, call = made
        body = "\n".join(lines[start:end + 1])
        body = slip.made(body).split("\n")
        signature = f"{head[0]}{copy}({head[2]})"
        if not re.search(r"\bstatic\b|\b[A-Z_]{3,}\b", head[0]):  # XRAY_FN_ and VFN are static
            signature = "static " + signature
        copies.setdefault(home[0], []).append(
            "\n".join(lines[home[0]:home[1]]) + ";\n" +
            "\n".join([signature, *lines[home[1]:start], *body, *lines[end + 1:home[2] + 1]]))
        calls.setdefault(home[1], []).extend(call)
        taken.add(slip.name)
    out = []
    for number, line in enumerate(lines):
        out.extend(copies.get(number, []))
        out.append(line)
        out.extend(calls.get(number, []))
    return "\n".join(out), taken
