#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh PROGRAM NAME
#
# Runs a libFuzzer target for XRAY_FUZZ_SECONDS (10) from corpus/NAME. New inputs
# stay in the build folder, where the next run starts from them; an input that
# fails is kept there as well, and its name is printed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$XRAY_BUILD/tests/fuzz/runs/$2
mkdir -p "$work/found" "$work/failed"
dict=()
[ -e "$here/$2.dict" ] && dict=("-dict=$here/$2.dict")
log=$work/log
"$1" -max_total_time="${XRAY_FUZZ_SECONDS:-10}" -max_len=8192 -timeout=10 \
    -rss_limit_mb=2048 -artifact_prefix="$work/failed/" -print_final_stats=1 \
    "${dict[@]}" "$work/found" "$here/corpus/$2" >"$log" 2>&1 || {
    tail -n 60 "$log"
    exit 1
}
awk '/^stat::number_of_executed_units/ { n = $2 } / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") c = $(i + 1) }
    END { printf "%s: %d executions, %d edges\n", name, n, c }' name="$2" "$log"
