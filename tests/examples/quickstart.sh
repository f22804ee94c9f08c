#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the README's main job works from a finished build: greedy accuracy on
# held-out problems reaches at least 90 %.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

XRAY_NO_BUILD=1 XRAY_PRESET=$(basename "$XRAY_BUILD") XRAY_QUICKSTART_DIR=$work \
    "$XRAY_SOURCE/quickstart" 1 | tee "$work/out.txt"
last=$(tail -n 1 "$work/out.txt")
echo "$last" | grep -Eq '^quickstart: accuracy [01]\.[0-9]{2} -> [01]\.[0-9]{2} in [0-9]+ s$' || {
    echo "FAIL: the last line is '$last'" >&2
    exit 1
}
echo "$last" | awk '{ exit !($3 >= 0.40 && $5 >= 0.90) }' || {
    echo "FAIL: $last" >&2
    exit 1
}
