#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# sanitize.sh memcheck|racecheck|synccheck|initcheck: runs the suites with the
# label gpu under compute-sanitizer. They also compare the cuda device with the
# cpu device.
set -euo pipefail
tool=${1:?which tool}
checker=$(command -v compute-sanitizer || true)
[ -n "$checker" ] || checker=/usr/local/cuda/bin/compute-sanitizer
[ -x "$checker" ] || { echo "skipped: compute-sanitizer is not installed"; exit 77; }
ran=0
for suite in "$XRAY_BUILD"/tests/test-gpu-*; do
    code=0
    "$suite" >/dev/null 2>&1 || code=$?
    [ $code != 77 ] || continue
    "$checker" --tool "$tool" --error-exitcode 1 "$suite" || { echo "FAIL: $tool of $suite" >&2; exit 1; }
    ran=1
done
[ $ran = 1 ] || { echo "skipped: there is no GPU"; exit 77; }
