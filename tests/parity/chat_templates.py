#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares X-ray's template interpreter with Jinja2, set up as in transformers'
apply_chat_template, on snippets and templates; reports the first differences.
Needs jinja2, not transformers.

    chat_templates.py PROGRAM            compare (PROGRAM: build/.../test-text-jinja)
    chat_templates.py PROGRAM --random N also compare N random expressions
    chat_templates.py PROGRAM --templates FOLDER --contexts FILE
    chat_templates.py --write FILE       write Jinja2's results as goldens
    chat_templates.py --check FILE       compare goldens with Jinja2's results
"""
import argparse
import copy
import datetime
import json
import os
import random
import re
import subprocess
import sys
import warnings

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
warnings.simplefilter("ignore")
NOW = datetime.datetime(2025, 7, 29, 14, 30, 5)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _body(self, context, caller):
        return caller()


class TemplateDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            TemplateNamespace._check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        TemplateNamespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent,
                          separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    env.globals["dict"] = TemplateDict()
    env.globals["namespace"] = TemplateNamespace
    return env


ENV = environment()


def reference(case):
    variables = copy.deepcopy(case.get("v") or {})  # |indent adds to a list in place
    variables.setdefault("messages", [])
    for name in ("tools", "documents"):
        variables.setdefault(name, None)
    variables.setdefault("add_generation_prompt", False)
    try:
        return {"o": ENV.from_string(case["t"]).render(**variables)}
    except jinja2.exceptions.TemplateError as error:
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"m": str(error)} if raised else {"m": ""}
    except Exception:
        return {"m": ""}


class Program:
    def __init__(self, path):
        self.process = subprocess.Popen([path, "render"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def __call__(self, case):
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("the program ended at " + json.dumps(case))
        return json.loads(answer)


def same(wanted, got):
    if "o" in wanted:
        return got.get("o") == wanted["o"]
    return "e" in got and wanted["m"] in got["e"]


VARIABLES = {
    "s": "Hello, World", "u": "naïve café — 你好 🙂", "w": "  a b\tc \n", "e": "",
    "n": 7, "f": 2.5, "z": 0, "t": True, "x": None, "m": -3,
    "l": [3, 1, 2], "k": ["b", "A", "c", "B"], "d": {"b": 1, "a": 2, "C": [1, "x"]},
    "p": [{"name": "Bo", "age": 3, "in": {"q": 1}}, {"name": "al", "age": 1},
          {"name": "Cy", "age": 2, "in": {"q": 5}}],
    "j": {"a": [1, 2.5, None, True], "é": "\"q\" \\ \n\t<&>", "n": {}, "o": []},
}


class Random:
    """Makes random expressions over VARIABLES, most of them well typed or nearly so."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *options):
        return self.r.choice(options)

    def atom(self):
        return self.pick(*"s u w e n f z t x m l k d p j".split(), "1", "0", "-2",
                         "2.5", "1e3", "'a'", "'b,c'", "\"it's\"", "[1, 'a', none]",
                         "(1, 2)", "{'a': 1}", "true", "none", "q", "range(4)", "'Aé'")

    def filter(self):
        return self.pick(
            "upper", "lower", "title", "capitalize", "trim", "length", "first", "last",
            "list", "join", "join('-')", "string", "int", "float", "abs", "round",
            "round(1)", "sort", "sort(reverse=true)", "unique|list", "reverse|list",
            "sum", "min", "max", "tojson", "tojson(indent=2)", "default('D')",
            "default('D', true)", "replace('a', 'o')", "items|list", "dictsort",
            "map('upper')|list", "map(attribute='name')|list", "select|list",
            "reject('none')|list", "selectattr('age', 'gt', 1)|list",
            "rejectattr('in')|list", "batch(2)|list", "slice(2)|list", "indent",
            "wordcount", "escape", "safe", "groupby('age')", "count",
            "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "sum(attribute='age')")

    def test(self):
        return self.pick("defined", "undefined", "none", "string", "mapping", "iterable",
                         "sequence", "number", "integer", "float", "boolean", "true",
                         "false", "odd", "even", "lower", "upper", "callable",
                         "divisibleby 2", "eq 1", "in [1, 'a']", "gt 2", "sameas none",
                         "not none", "not string", "ne 'a'")

    def method(self):
        return self.pick("strip()", "lstrip('aH')", "split()", "split(',')", "split('l', 1)",
                         "rsplit(None, 1)", "upper()", "title()", "startswith('H')",
                         "endswith(('d', '\\n'))", "replace('l', 'L', 1)", "find('o')",
                         "rfind('o')", "items()", "keys()", "values()",
                         "get('a')", "get('zz', 5)", "a", "b.c", "name", "upper().lower()",
                         "splitlines()", "isdigit()", "join(k)", "format(n, s)", "append(1)",
                         "partition(',')", "zfill(9)", "center(20, '*')", "swapcase()")

    def expression(self, depth):
        if depth <= 0:
            return self.atom()
        e = lambda: self.expression(depth - 1 - self.r.randrange(2))
        return self.pick(
            lambda: f"{e()}|{self.filter()}",
            lambda: f"({e()})|{self.filter()}",
            lambda: f"{self.atom()}.{self.method()}",
            lambda: f"({e()}).{self.method()}",
            lambda: f"({e()} is {self.test()})",
            lambda: f"({e()} {self.pick('+', '-', '*', '/', '//', '%', '~', '**')} {e()})",
            lambda: f"({e()} {self.pick('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {e()})",
            lambda: f"({e()} {self.pick('and', 'or')} {e()})",
            lambda: f"(not {e()})",
            lambda: f"(-{self.atom()})",
            lambda: f"({e()} if {e()} else {e()})",
            lambda: f"{self.atom()}[{e()}]",
            # Jinja2's optimizer folds a slice of a literal, which is another code path.
            lambda: f"{self.pick(*'s u w l k d p n'.split())}[{self.pick('', '1', '-2', '9')}:{self.pick('', '2', '-1')}"
                    f"{self.pick('', ':2', ':-1')}]",
            lambda: f"[{e()}, {e()}]",
            lambda: f"{{'k': {e()}, 1: {e()}}}",
            lambda: f"({e()}, {e()})",
        )()

    def statement(self, depth):
        e = lambda: self.expression(2)
        if depth <= 0:
            return "{{ " + e() + " }}"
        b = lambda: self.statement(depth - 1)
        gap = self.pick("", " ", "\n", "\n  ")
        o, c = self.pick("{%", "{%-", "{%+"), self.pick("%}", "-%}", "+%}")
        return gap + self.pick(
            lambda: f"{o} if {e()} {c}{gap}{b()}{gap}{o} else {c}{b()}{gap}{o} endif {c}",
            lambda: f"{o} for i in {e()} {c}{gap}{{{{ loop.index }}}}{{{{ i }}}}{b()}"
                    f"{o} else {c}-{o} endfor {c}",
            lambda: f"{o} for i in {e()} if {self.atom()} {c}{{{{ loop.last }}}}{b()}{o} endfor {c}",
            lambda: f"{o} set n = {e()} {c}{gap}{b()}",
            lambda: f"{o} set y {c}{b()}{o} endset {c}{{{{ y }}}}",
            lambda: f"{o} macro g(a, b={e()}) {c}{{{{ a }}}}|{{{{ b }}}}{o} endmacro {c}"
                    f"{{{{ g({e()}) }}}}{b()}",
            lambda: f"{o} filter {self.pick('upper', 'trim', 'title')} {c}{b()}{o} endfilter {c}",
            lambda: f"{o} with n = {e()} {c}{b()}{o} endwith {c}",
            lambda: f"{{# c #}}{gap}{b()}{b()}",
            lambda: f"{o} generation {c}{b()}{o} endgeneration {c}",
        )()


def comparable(wanted):
    """Tells whether a result can be compared: addresses and reprs of objects differ."""
    return not re.search(r" at 0x[0-9a-f]{6}|<class '", wanted.get("o", ""))


def template_cases(path, contexts):
    source = open(path, encoding="utf-8", newline="").read()
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    for name, context in json.load(open(contexts, encoding="utf-8")).items():
        yield {"t": source, "v": {**tokens, **context}, "n": f"{path} over {name}"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?")
    parser.add_argument("--write")
    parser.add_argument("--check", help="compare a goldens file with Jinja2")
    parser.add_argument("--templates", help="a folder of templates, instead of the "
                        "snippets, each over all of --contexts")
    parser.add_argument("--contexts", help="a JSON object of named variables")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--snippets", default=os.path.join(HERE, "chat_snippets.json"))
    parser.add_argument("--show", type=int, default=10)
    args = parser.parse_args()
    cases = [{"t": c, "v": VARIABLES} if isinstance(c, str) else c
             for c in json.load(open(args.snippets, encoding="utf-8"))]
    if args.templates:
        cases = [case for name in sorted(os.listdir(args.templates))
                 for case in template_cases(os.path.join(args.templates, name),
                                            args.contexts)]
    r = Random(args.seed)
    for i in range(args.random):
        text = r.statement(r.r.randrange(4))
        cases.append({"t": text, "v": VARIABLES})
    if args.check:
        goldens = open(args.check, encoding="utf-8").read().rstrip("\n").split("\n")
        stale = [g for g in map(json.loads, goldens[1:])
                 if any(g.get(k) != v for k, v in
                        reference({"t": g["t"], "v": g.get("v", VARIABLES)}).items())]
        print(f"{len(goldens) - 1} goldens, {len(stale)} differ from this Jinja2")
        return bool(stale)
    if args.write:
        with open(args.write, "w", encoding="utf-8") as out:
            # The first line holds the variables of all rows that have none of their own.
            out.write(json.dumps({"v": VARIABLES}, ensure_ascii=False) + "\n")
            for case in cases:
                wanted = reference(case)
                if comparable(wanted):
                    row = {"t": case["t"], **wanted}
                    if case.get("v") is not VARIABLES:
                        row["v"] = case.get("v")
                    out.write(json.dumps(row, ensure_ascii=False) + "\n")
        return 0
    program = Program(args.program)
    wrong = skipped = errors = 0
    for case in cases:
        wanted = reference(case)
        if not comparable(wanted):
            skipped += 1
            continue
        errors += "m" in wanted
        got = program(case)
        if not same(wanted, got):
            wrong += 1
            if wrong <= args.show:
                print("template:", case.get("n") or repr(case["t"]))
                print("  jinja2:", repr(wanted.get("o", "error " + wanted.get("m", ""))))
                print("  xray:  ", repr(got.get("o", "error " + got.get("e", ""))))
    print(f"{len(cases)} cases, {errors} of them errors, {skipped} not comparable, "
          f"{wrong} differences")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
