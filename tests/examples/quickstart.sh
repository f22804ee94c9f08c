#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the README's main job works from a finished build: greedy accuracy on
# held-out problems reaches at least 90 %, and that a run which fails ends it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quickstart() { XRAY_NO_BUILD=1 XRAY_PRESET=$(basename "$XRAY_BUILD") XRAY_QUICKSTART_DIR=$work "$XRAY_SOURCE/quickstart" "$1"; }

code=0
XRAY_RUN__LOG=loud quickstart 2 >"$work/refused.txt" 2>"$work/said.txt" || code=$?
if [ "$code" != 2 ] || grep -q accuracy "$work/refused.txt" || ! grep -q "'loud' is not one of" "$work/said.txt"; then
    echo "FAIL: after a run that fails it ends with $code: $(cat "$work/refused.txt" "$work/said.txt")" >&2
    exit 1
fi

quickstart 1 | tee "$work/out.txt"
last=$(tail -n 1 "$work/out.txt")
echo "$last" | grep -Eq '^quickstart: accuracy [01]\.[0-9]{2} -> [01]\.[0-9]{2} in [0-9]+ s$' || {
    echo "FAIL: the last line is '$last'" >&2
    exit 1
}
echo "$last" | awk '{ exit !($3 >= 0.40 && $5 >= 0.90) }' || {
    echo "FAIL: $last" >&2
    exit 1
}
