#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the strength of the suites: makes deliberate slips in a copy of the
sources, one at a time, and runs the suites that must notice each, without any
test data from outside. A slip of slips.txt is made of lines

  slip NAME        begins one
  file PATH        where it is made
  by REGEX         the suites that must fail then, as ctest -R takes it
  - OLD            text that the file holds once; further lines follow
                   one another
  + NEW            what takes its place

run.py [NAME...] makes these slips, or all; the last line says how many were
caught, and the exit code is 1 if one was not. A slip that does not compile is
not caught; one that makes a suite hang is. Every suite has to pass on sources
without a slip first.

Nearly all slips are in one build: beside a function stands its copy with the
slip, which is called instead when XRAY_SLIP names the slip (switch.py). What
is not noticed so, or lies in no function, is made in a build of its own. The copy
and its build stay in build/mutate, so that a second run builds little.

run.py --list says whether every slip still fits the sources and names suites of
the build XRAY_BUILD; nothing is built.
run.py --table FILE takes another list of slips.
"""
import argparse
import concurrent.futures
import filecmp
import os
import re
import shutil
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True  # the sources are left as they are
from switch import Slip, SlipError, key_of, switched

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, "../.."))
WORK = os.environ.get("XRAY_MUTATE", os.path.join(ROOT, "build/mutate"))
TREE = os.path.join(WORK, "tree")
BUILD = os.path.join(TREE, "build/mutate")
JOBS = os.cpu_count() or 1
SKIPPED_LABELS = "gpu|nightly"
FLAGS = "-O1 -DNDEBUG -Wno-error -include " + os.path.join(TREE, "tests/mutate/slip.h")

# Without data a suite skips, in CI too.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("CI", "XRAY_PLUGIN_PATH")}


def fail(text):
    sys.exit(f"mutate: {text}")


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def write(path, text):
    """Writes what a file does not hold already: equal files are not built again."""
    if not os.path.exists(path) or read(path) != text:
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)


def read_table(path):
    """The slips of a list, in its order."""
    slips = {}
    slip = None
    for number, line in enumerate(read(path).splitlines(), 1):
        kind, _, rest = line.partition(" ")
        if kind == "slip":
            if rest in slips:
                fail(f"{path}:{number}: there are two slips {rest}")
            slip = slips[rest] = Slip(rest)
        elif line and not line.startswith("#"):
            if slip is None or not slip.take(kind, rest):
                fail(f"{path}:{number}: a line of no known form: {line}")
    if not slips:
        fail(f"{path} holds no slip")
    return slips


def names_of(listing):
    """Names of suites in what ctest prints."""
    return re.findall(r"^ *Test +#\d+: (\S+)", listing, re.M)


def list_slips(slips):
    out = subprocess.run(["ctest", "--test-dir", os.environ["XRAY_BUILD"], "-N"],
                         capture_output=True, text=True, check=True)
    suites = names_of(out.stdout)
    wrong = 0
    for slip in slips.values():
        try:
            slip.made_in(ROOT)
            if not any(re.search(slip.suites, suite) for suite in suites):
                raise SlipError(f"no suite of this build is named {slip.suites}")
        except SlipError as error:
            print(f"{slip.name}: {error}")
            wrong = 1
    if not wrong:
        print(f"mutate: {len(slips)} slips fit the sources")
    return wrong


def files_below(top):
    """Paths of the sources, from the top: no build, no git."""
    for folder, folders, files in os.walk(top):
        here = os.path.relpath(folder, top)
        folders[:] = [f for f in folders if f not in (".git", "__pycache__") and (here, f) != (".", "build")]
        for name in files:
            yield os.path.normpath(os.path.join(here, name))


def copy_sources(slips):
    """Makes the copy equal to the sources, with every slip that a function can hold
    behind its switch. Returns the slips that have one."""
    os.makedirs(TREE, exist_ok=True)
    have = set(files_below(ROOT))
    for path in set(files_below(TREE)) - have:
        os.remove(os.path.join(TREE, path))
    by_file = {}
    for slip in slips.values():
        by_file.setdefault(slip.file, []).append(slip)
    held = set()
    for path in have:
        source, target = os.path.join(ROOT, path), os.path.join(TREE, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if path in by_file and path.endswith((".c", ".h")):
            text, taken = switched(read(source), by_file[path])
            held.update(taken)
            write(target, text)
        elif not os.path.exists(target) or not filecmp.cmp(source, target, shallow=False):
            shutil.copyfile(source, target)
        shutil.copymode(source, target)
    return held


def run(command, limit=None, **environment):
    """Exit status, or None after the limit, and what was printed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", env={**ENVIRONMENT, **environment},
                               stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        out, _ = process.communicate(timeout=limit)
        return process.returncode, out
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 15)
        try:
            out, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, _ = process.communicate()
        return None, out


def ninja():
    return run(["ninja", "-C", BUILD, "-k", "0", "-j", str(JOBS)])


def build_all(slips, held):
    """Configures and builds the copy; the slips of a file that does not compile with
    its copies of functions are taken out of it."""
    status, out = run(["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                       f"-DCMAKE_C_FLAGS_RELEASE={FLAGS}", f"-DCMAKE_CXX_FLAGS_RELEASE={FLAGS}",
                       "-DXRAY_CUDA=OFF", "-DXRAY_WERROR=OFF", f"-DXRAY_TEST_DATA={WORK}/none"])
    if status != 0:
        fail(f"the sources are not configured\n{out}")
    while True:
        status, out = ninja()
        if status == 0:
            return
        errors = {os.path.relpath(os.path.realpath(os.path.join(BUILD, path)), TREE)
                  for path in re.findall(r"^(\S+?):\d+:\d+: (?:fatal )?error", out, re.M)}
        bad = {name for name in held if slips[name].file in errors}
        if not bad:
            fail(f"the sources do not build as they are\n{out[-4000:]}")
        for path in {slips[name].file for name in bad}:
            write(os.path.join(TREE, path), read(os.path.join(ROOT, path)))
        held -= bad


def ctest(regex, limit, *options, **environment):
    return run(["ctest", "--test-dir", BUILD, "-R", regex, "-LE", SKIPPED_LABELS, "--no-tests=error",
                "--output-on-failure", *options], limit, **environment)


def check_clean(slips):
    """Seconds that each suite takes that some slip names, without one; a suite that
    does not pass, or skips all, is missing."""
    _, out = ctest(".", None, "-N")
    named = [name for name in names_of(out) if any(re.search(slip.suites, name) for slip in slips.values())]
    _, out = ctest(f"^({'|'.join(map(re.escape, named))})$", None, "-j", str(JOBS))
    seconds = {}
    for name, result, took in re.findall(r"Test +#\d+: (\S+) \.*\s*(.*?) +([\d.]+) sec", out):
        if result == "Passed":
            seconds[name] = float(took)
        elif name != "material":
            print(f"mutate: {name} without a slip: {result.strip('* ')}")
    return seconds


def failed_of(out, suites):
    """Suites that noticed something; one that could not start has noticed nothing."""
    listed = out.partition("The following tests FAILED")[2]
    return [name for name, why in re.findall(r"^\s*\d+ - (\S+) \((.*?)\)", listed, re.M)
            if name in suites and why not in ("Not Run", "Skipped", "Disabled")]


class Suites:
    """Runs suites, each of them in one place at a time."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.locks = {name: threading.Lock() for name in seconds}

    def named(self, slip):
        return [name for name in sorted(self.seconds) if re.search(slip.suites, name)]

    def catch(self, slip, value):
        """What noticed a slip, in words, or nothing."""
        names = self.named(slip)
        limit = 60 + 10 * sum(self.seconds[name] for name in names)
        for name in names:
            self.locks[name].acquire()
        try:
            # The fixtures were made by check_clean, without a slip.
            status, out = ctest(slip.suites, limit, "-FA", ".", XRAY_SLIP=value)
        finally:
            for name in names:
                self.locks[name].release()
        if status is None:
            return f"{slip.suites} takes more than {limit:.0f} s"
        return " ".join(failed_of(out, names))


def try_switched(slip, suites):
    start = time.monotonic()
    return suites.catch(slip, key_of(slip.name)), time.monotonic() - start


def try_built(slip, suites):
    """The same with the slip in a build that holds no other in its file."""
    start = time.monotonic()
    path = os.path.join(TREE, slip.file)
    kept = read(path)
    write(path, slip.made_in(ROOT))
    status, _ = ninja()
    outcome = suites.catch(slip, "0") if status == 0 else ""
    write(path, kept)
    return "DOES NOT COMPILE" if status != 0 else outcome, time.monotonic() - start


def tell(slip, outcome, took):
    """Prints what became of a slip; whether it was caught."""
    caught = bool(outcome) and outcome != "DOES NOT COMPILE"
    words = f"caught by {outcome}" if caught else outcome or f"SURVIVES {slip.suites}"
    print(f"{slip.name:28} {slip.file:40} {took:4.0f} s  {words}", flush=True)
    return caught


def main():
    parser = argparse.ArgumentParser(description="Makes deliberate slips and counts those that the suites notice.")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", default=os.path.join(HERE, "slips.txt"))
    parser.add_argument("name", nargs="*")
    given = parser.parse_args()
    table = read_table(given.table)
    if given.list:
        return list_slips(table)
    for name in given.name:
        if name not in table:
            fail(f"there is no slip {name}")
    slips = {name: table[name] for name in given.name or table}
    for slip in slips.values():
        try:
            slip.made_in(ROOT)
        except SlipError as error:
            fail(f"{slip.name}: {error}")
    held = copy_sources(slips)
    build_all(slips, held)
    suites = Suites(check_clean(slips))
    caught = set()
    able = [slip for slip in slips.values() if suites.named(slip)]
    for slip in slips.values():
        if slip not in able:
            print(f"{slip.name:28} {slip.file:40}         NOT TRIED, {slip.suites} does not pass")
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        tries = {pool.submit(try_switched, slip, suites): slip for slip in able if slip.name in held}
        for done in concurrent.futures.as_completed(tries):
            outcome, took = done.result()
            if outcome and tell(tries[done], outcome, took):
                caught.add(tries[done].name)
    for slip in able:
        if slip.name not in caught and tell(slip, *try_built(slip, suites)):
            caught.add(slip.name)
    print(f"mutate: {len(caught)} of {len(slips)} slips caught")
    return 0 if len(caught) == len(slips) else 1


if __name__ == "__main__":
    sys.exit(main())
