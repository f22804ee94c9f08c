#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# xray generate --stream prints a text as its tokens come: while an engine waits
# before its fifth step, the text of the tokens so far can be read.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL: $1"
    exit 1
}
line='{"prompt":"Once upon a time"}'
options=(--model "$XRAY_TEST_DATA/models/stories260K/hf" --temperature 0 --max-tokens 12)
whole=$(echo "$line" | "$XRAY_BIN" generate "${options[@]}" | sed 's/.*"text":"\([^"]*\)".*/\1/')
[ ${#whole} -gt 20 ] || fail "too short: $whole"

export SICK=infer-wait SICK_AT=5 SICK_FLAG=$work/waits
exec 3< <(echo "$line" | "$XRAY_BIN" generate "${options[@]}" --plugin-path "$XRAY_BUILD/tests/sick" --infer sick --stream)
IFS= read -r -N 11 -t 30 -u 3 begun || fail "no text while the engine waits"
[ "$begun" = "${whole:0:11}" ] || fail "$begun is not the beginning of $whole"
[ ! -e "$work/waits.go" ] || fail "the engine did not wait"
touch "$work/waits.go"
rest=$(cat <&3)
[ "$begun$rest" = "$whole" ] || fail "$begun$rest is not $whole"
echo "as they come: ok"
