#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that one suite of each kind passes with the repository alone: its sources
# are copied to a folder that holds nothing else, the material is made from the copy,
# and HOME and the working folder are empty.
set -euo pipefail
work=$(realpath "$(mktemp -d)")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
mkdir "$work/tree" "$work/home"
cd "$XRAY_SOURCE"
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then git ls-files; else find . -name build -prune -o -type f -print; fi |
    while read -r file; do if [ -e "$file" ]; then echo "$file"; fi; done | tar -cf - -T - | tar -xf - -C "$work/tree"

"$XRAY_BUILD/tests/test-material" "$work/tree" "$work/made"
cd "$work/home"
export HOME=$work/home XRAY_SOURCE=$work/tree XRAY_TEST_DATA=$work/made
unset CI
run() { # COMMAND...
    "$@" >"$work/out" 2>&1 || { cat "$work/out"; echo "FAIL: $*"; exit 1; }
    ! grep -qi 'skipped' "$work/out" || { cat "$work/out"; echo "FAIL: $* skips"; exit 1; }
}
run "$XRAY_BUILD/tests/test-nn-golden"
run "$XRAY_BUILD/tests/test-cli-tokenize"
run "$XRAY_SOURCE/tests/rl/stories.sh"
run "$XRAY_SOURCE/tests/cli/docs.sh"
run "$XRAY_SOURCE/tests/broken/run.sh" safetensors
echo "repository_alone: ok"
